"""Every knob with its keys, its value, and what is to be known about it."""

from __future__ import annotations

from collections.abc import Hashable

from textual.strip import Strip

from sessions.knobs import KnobName, Knobs
from tui.console.draw.palette import ACCENT, DIM, FAINT, KEY, STRONG, WARN, clickable
from tui.console.draw.row import Row, text_line
from tui.console.panels.panel import Panel
from tui.console.store.events import knob_text

TITLES: dict[KnobName, str] = {
    "async_depth": "async depth",
    "admission": "admission",
    "max_micro_batch": "max micro-batch",
    "cuda_graphs": "CUDA graphs",
    "parallelism": "parallelism",
}
ACTIONS: dict[KnobName, tuple[str, ...]] = {
    "async_depth": ("knob.async_depth.up", "knob.async_depth.down"),
    "admission": ("knob.admission.next", "knob.admission.previous"),
    "max_micro_batch": ("knob.max_micro_batch.up", "knob.max_micro_batch.down"),
    "cuda_graphs": ("knob.cuda_graphs.toggle",),
    "parallelism": ("knob.parallelism.toggle",),
}
SHORT_TITLES: dict[KnobName, str] = {
    "async_depth": "depth",
    "admission": "admission",
    "max_micro_batch": "max mb",
    "cuda_graphs": "graphs",
    "parallelism": "parallel",
}
ADMISSION_NOTES = {
    "greedy": "first free slot takes all",
    "capped": "at most the even share",
    "decode-cap": "decodes capped only",
    "rebalance": "requests change slots",
}
VALUE_COLUMN = 22
NOTE_COLUMN = 32


class KnobsPanel(Panel):
    """One line a knob, and one for the load."""

    HELP_TEXT = (
        "A knob's first key turns it up or to the next value, its second down or back; a click on the line does the "
        "same as the first. Async depth is the number of micro-batches in flight, which is also the number of slots; "
        "SGLang's slots are pp_size + pp_async_batch_depth. + and - change the load's concurrency."
    )

    def key(self) -> Hashable:
        pending = tuple(sorted(self.view.pending.items()))
        return (self.store.knobs, self.store.load, self.store.engine, pending)

    def title(self) -> str:
        return "Knobs"

    def rows(self, width: int, height: int) -> list[Strip]:
        state = self.store.knobs
        strips = []
        if state is None:
            strips.append(text_line(width, " The engine has not told its knobs yet.", DIM))
        else:
            strips += [self._knob_row(name, state.knobs, state.unavailable.get(name), width) for name in TITLES]
        strips.append(self._load_row(width))
        return strips[:height]

    def _knob_row(self, name: KnobName, knobs: Knobs, unavailable: str | None, width: int) -> Strip:
        row = Row().add(" ")
        for action in ACTIONS[name]:
            row.add(self.view.key_of(action), clickable(FAINT if unavailable else KEY, action)).add(" ")
        main = ACTIONS[name][0]
        row.to(6).add(TITLES[name], clickable(DIM, main)).to(VALUE_COLUMN)
        row.add(knob_text(getattr(knobs, name)), clickable(DIM if unavailable else STRONG, main))
        pending = self.view.pending.get(name)
        if pending is not None:
            row.add(f" → {knob_text(pending)} …", WARN)
        row.to(NOTE_COLUMN)
        if unavailable:
            row.add(f"n/a: {unavailable}", WARN)
        else:
            row.add(self._note(name, knobs), DIM)
        return row.strip(width)

    def _note(self, name: KnobName, knobs: Knobs) -> str:
        if name == "admission":
            return ADMISSION_NOTES[knobs.admission]
        if name != "async_depth":
            return {"max_micro_batch": "requests a slot", "cuda_graphs": "decode replayed", "parallelism": ""}[name]
        stages = self.store.engine.stages if self.store.engine else 1
        extra = knobs.async_depth - stages
        if extra >= 0:
            return f"SGLang: pp {stages} + depth {extra}"
        return f"SGLang: at least pp {stages}"

    def _load_row(self, width: int) -> Strip:
        load = self.store.load
        row = Row()
        for action in ("load.up", "load.down"):
            row.add(" ").add(self.view.key_of(action), clickable(KEY, action))
        row.to(6).add("load", DIM).to(VALUE_COLUMN)
        if load is None:
            return row.add("none", DIM).strip(width)
        value = f"C {load.concurrency}" if load.concurrency is not None else f"{load.rate or 0:g} req/s"
        row.add(value, STRONG)
        wanted = self.view.wanted_concurrency
        if wanted is not None and wanted != load.concurrency:
            row.add(f" → {wanted} …", WARN)
        return row.to(NOTE_COLUMN).add(load.description, DIM).strip(width)


class KnobStrip(KnobsPanel):
    """The knobs on two lines, for small terminals."""

    def rows(self, width: int, height: int) -> list[Strip]:
        state, load = self.store.knobs, self.store.load
        if state is None:
            return [text_line(width, " The engine has not told its knobs yet.", DIM)]
        first, second = Row(), Row()
        for name, title in SHORT_TITLES.items():
            row = first if name in ("async_depth", "admission", "max_micro_batch") else second
            self._short(row, name, title, state.knobs, name in state.unavailable)
        second.add(" ").add(self.view.key_of("load.up"), clickable(KEY, "load.up")).add("/", DIM)
        second.add(self.view.key_of("load.down"), clickable(KEY, "load.down"))
        concurrency = load.concurrency if load else None
        second.add(" load ", DIM).add(f"C {concurrency}" if concurrency is not None else "none", STRONG)
        stages = self.store.engine.stages if self.store.engine else 1
        extra = state.knobs.async_depth - stages
        second.add(f"  SGLang slots {stages + max(0, extra)} = pp {stages} + depth {max(0, extra)}", DIM)
        return [first.strip(width), second.strip(width)][:height]

    def _short(self, row: Row, name: KnobName, title: str, knobs: Knobs, unavailable: bool) -> None:
        row.add(" ")
        for i, action in enumerate(ACTIONS[name]):
            key = self.view.key_of(action)
            row.add("/" if i else "", DIM).add(key, clickable(FAINT if unavailable else KEY, action))
        row.add(f" {title} ", DIM)
        pending = self.view.pending.get(name)
        value = knob_text(getattr(knobs, name)) if pending is None else f"→ {knob_text(pending)}"
        row.add("n/a" if unavailable else value, FAINT if unavailable else WARN if pending is not None else STRONG)
        row.add(" ", ACCENT)

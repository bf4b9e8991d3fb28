"""The diagnosis screen: every hypothesis, its verdict, its evidence, and what fixing it would gain."""

from __future__ import annotations

import textwrap
from collections.abc import Hashable

from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.strip import Strip

from sessions.messages import Estimate, VerdictOn, Verdicts
from tui.console.draw.bars import add_bar
from tui.console.draw.palette import ACCENT, ACCENT_STRONG, BAD, DIM, GOOD, KEY, LEVELS, STRONG, TEXT
from tui.console.draw.row import Row, blank, text_line
from tui.console.draw.units import quantity
from tui.console.panels.list_panel import ListPanel
from tui.console.panels.panel import Panel
from tui.console.panels.text_panel import TextPanel
from tui.console.screens.screen import ConsoleScreen
from tui.console.store.events import knob_text
from tui.console.store.outlook import verdict_line
from tui.console.store.store import Store
from tui.console.view import View

NAMES = {
    "interconnect": "Interconnect",
    "launch_overhead": "Launch overhead (graphs off)",
    "shallow_depth": "Too few micro-batches in flight",
    "herd": "Thundering herd",
    "uneven_split": "Uneven split over slots",
    "stage_imbalance": "Stage imbalance",
    "expert_imbalance": "Expert imbalance",
    "host": "Framework and host",
}
MARKS: dict[str, tuple[str, Style]] = {"holds": ("■", BAD), "refuted": ("✓", GOOD), "unknown": ("?", DIM)}
GAIN_BAR = 10
GAIN_TOP = 4.0
"""A gain of this fills its bar."""


def shown_verdicts(store: Store, view: View) -> Verdicts | None:
    """The verdicts on a profile or a span while one is looked at, else those of now."""
    return view.apart.verdicts if view.apart is not None else store.verdicts


class VerdictsPanel(ListPanel):
    """One line a hypothesis, the largest gain first."""

    EMPTY_TEXT = "No verdict yet: a few seconds of running requests are needed."
    HELP_TEXT = (
        "Hypotheses ranked by what their fix would gain: ■ holds, ✓ refuted, ? cannot tell. The bar is the predicted "
        "throughput with that one thing fixed over now. Enter (or v for the first) turns the knob that fixes it."
    )

    def items(self) -> list[VerdictOn]:
        found = shown_verdicts(self.store, self.view)
        return list(found.verdicts) if found else []

    def items_key(self) -> Hashable:
        return shown_verdicts(self.store, self.view)

    def title(self) -> str:
        return "Hypotheses"

    def subtitle(self) -> str:
        return "enter applies the fix here"

    def item_rows(self, item: VerdictOn, width: int, selected: bool) -> list[Row]:
        mark, ink = MARKS[item.verdict]
        row = Row().add(f" {mark} ", ink)
        row.add(NAMES.get(item.hypothesis, item.hypothesis), STRONG if item.verdict == "holds" else TEXT)
        if item.gain is not None and item.verdict != "refuted":
            row.to(max(row.width + 1, width - GAIN_BAR - 12)).add("")
            add_bar(row, (item.gain.mid - 1) / (GAIN_TOP - 1), GAIN_BAR, ACCENT)
            row.add(f" {item.gain.low:.1f}-{item.gain.high:.1f}x", TEXT)
        return [row]


class EvidencePanel(TextPanel):
    """What speaks for and against the hypothesis under the cursor, and its fix."""

    HELP_TEXT = "Evidence for and against the hypothesis under the cursor, what is missing, and the fix."

    def __init__(self, verdicts: VerdictsPanel, store: Store, view: View) -> None:
        super().__init__(store, view, id="evidence", classes="box")
        self._verdicts = verdicts

    def lines_key(self) -> Hashable:
        return (self._verdicts.items_key(), self._verdicts.cursor)

    def title(self) -> str:
        item = self._item()
        return f"Evidence · {NAMES.get(item.hypothesis, item.hypothesis)}" if item else "Evidence"

    def _item(self) -> VerdictOn | None:
        items = self._verdicts.items()
        return items[min(self._verdicts.cursor, len(items) - 1)] if items else None

    def lines(self, width: int) -> list[Strip]:
        item = self._item()
        if item is None:
            return []
        mark, ink = MARKS[item.verdict]
        out = [Row().add(f" {mark} {item.verdict}", ink).strip(width)]
        if item.gain is not None:
            out.append(Row().add(" fixing it gains ", DIM).add(_band(item.gain, "x"), STRONG).strip(width))
        out.append(blank(width))
        for line in item.evidence:
            against = line.startswith(("but ", "missing: "))
            out += _wrapped(line, " - " if against else " + ", DIM if against else TEXT, width)
        if item.fix:
            out += [blank(width), text_line(width, " fix", DIM), *_wrapped(item.fix, "   ", TEXT, width)]
        if item.knob is not None and item.value is not None:
            press = Row().add(" ").add("enter", KEY).add(f" sets {item.knob} to {knob_text(item.value)}", TEXT)
            out.append(press.strip(width))
        return out


class MeasuresPanel(Panel, can_focus=False):
    """Measured against expected throughput, the herd metrics, and how the last prediction fared."""

    def key(self) -> Hashable:
        return shown_verdicts(self.store, self.view)

    def title(self) -> str:
        apart = self.view.apart
        if apart is None:
            return "Diagnosis · of now"
        return f"Diagnosis · of {apart.of} ({self.view.key_of('screen.diagnosis')} goes back to now)"

    def rows(self, width: int, height: int) -> list[Strip]:
        found = shown_verdicts(self.store, self.view)
        if found is None:
            return [text_line(width, " Waiting for evidence.", DIM)]
        line = verdict_line(found)
        head = Row().add(f" {line.text}", LEVELS[line.level])
        rate = Row().add(" measured ", DIM).add(f"{quantity(found.measured_tokens_per_s)} tok/s", STRONG)
        if found.expected_tokens_per_s is not None:
            rate.add("   expected when evenly split ", DIM).add(_band(found.expected_tokens_per_s, " tok/s"), TEXT)
        if found.concurrency is not None:
            rate.add("   C ", DIM).add(f"{found.concurrency:.0f}", TEXT)
        metrics = Row().add(" ")
        for name, key, value in (
            ("H", "H", found.herd_index),
            ("waves", "waves", found.waves),
            ("lock-step L", "L", found.lock_step),
            ("utilisation U", "U", found.utilisation),
        ):
            metrics.add(f"{name} ", DIM)
            shown = f"{value:.2f}" if value is not None else f"n/a ({found.why.get(key, 'not measured')})"
            metrics.add(f"{shown}   ", TEXT)
        out = [head.strip(width), rate.strip(width), metrics.strip(width)]
        if found.scored:
            out.append(Row().add(" last prediction: ", DIM).add(found.scored, ACCENT_STRONG).strip(width))
        return out[:height]


class DiagnosisScreen(ConsoleScreen):
    """What should it do, why does it not, what would fix it."""

    MODE = "diagnosis"

    class Chosen(Message):
        """The fix of this verdict is to be applied."""

        def __init__(self, verdict: VerdictOn) -> None:
            super().__init__()
            self.verdict = verdict

    def compose_body(self) -> ComposeResult:
        yield MeasuresPanel(self.store, self.view, id="measures", classes="box")
        with Horizontal(id="diagnosis-body"):
            verdicts = VerdictsPanel(self.store, self.view, id="verdicts", classes="box")
            yield verdicts
            yield EvidencePanel(verdicts, self.store, self.view)

    def on_mount(self) -> None:
        self.query_one(VerdictsPanel).focus()

    def on_list_panel_chosen(self, event: ListPanel.Chosen) -> None:
        item = self.query_one(VerdictsPanel).items()[event.index]
        self.post_message(self.Chosen(item))

    def lay_out(self, width: int, height: int) -> None:
        self.query_one("#measures").styles.height = 5 if self.has_class("compact") else 6


def _band(estimate: Estimate, unit: str) -> str:
    return f"{quantity(estimate.mid)}{unit} ({quantity(estimate.low)}-{quantity(estimate.high)})"


def _wrapped(text: str, lead: str, style: Style, width: int) -> list[Strip]:
    lines = textwrap.wrap(text, max(10, width - len(lead) - 1)) or [""]
    leads = [lead, *[" " * len(lead)] * (len(lines) - 1)]
    return [Row().add(first, DIM).add(line, style).strip(width) for first, line in zip(leads, lines, strict=True)]

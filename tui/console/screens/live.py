"""The live screen: power, stages, slots, throughput, knobs, verdict, events."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from tui.console.panels.event_log import EventLogPanel
from tui.console.panels.gpus import GpusPanel
from tui.console.panels.knobs import KnobsPanel, KnobStrip
from tui.console.panels.slots import SlotsPanel
from tui.console.panels.stages import StagesPanel
from tui.console.panels.throughput import ThroughputPanel
from tui.console.panels.verdict import VerdictPanel
from tui.console.screens.screen import ConsoleScreen

BARS = 3
"""Lines of header, verdict and footer."""
KNOB_LINES = 6
HERD_LINES = 2


class LiveScreen(ConsoleScreen):
    """Everything at a glance."""

    MODE = "live"

    def compose_body(self) -> ComposeResult:
        store, view = self.store, self.view
        yield VerdictPanel(store, view, id="verdict")
        yield StagesPanel(store, view, id="stages", classes="box")
        with Horizontal(id="middle"):
            yield GpusPanel(store, view, id="gpus", classes="box")
            yield SlotsPanel(store, view, id="slots", classes="box")
        with Horizontal(id="bottom"):
            yield ThroughputPanel(store, view, id="throughput", classes="box")
            with Vertical(id="side"):
                yield KnobsPanel(store, view, id="knobs", classes="box")
                yield EventLogPanel(store, view, id="events", classes="box")
        yield KnobStrip(store, view, id="knob-strip")

    def on_mount(self) -> None:
        self._shape: tuple[int, int, int] = (0, 0, 0)
        self.query_one("#stages").focus()

    def tick(self) -> None:
        shape = self._rows_wanted()
        if shape != self._shape:
            self._shape = shape
            self.lay_out(self.app.size.width, self.room())
        super().tick()

    def _rows_wanted(self) -> tuple[int, int, int]:
        store = self.store
        processes = sum(len(host.processes) for host in store.hosts.values())
        slots = len(store.queue.slots) if store.queue else 1
        return (max(1, len(store.lanes)), len(store.gpus) or max(1, processes), slots + HERD_LINES)

    def lay_out(self, width: int, height: int) -> None:
        lanes, bars, slots = self._rows_wanted()
        compact = self.has_class("compact")
        frame = 1 if compact else 2
        knob_lines = 2 if compact else 0
        room = height - BARS - knob_lines
        least_bottom = (3 if compact else KNOB_LINES + 3) + frame
        least_middle = (4 if compact else 5) + frame
        double = not compact and height >= 50
        stages = min(lanes * (2 if double else 1) + frame, max(frame + 1, room - least_middle - least_bottom))
        middle = min(max(bars, slots, least_middle - frame) + frame, max(frame + 1, room - stages - least_bottom))
        if double and 2 * stages < room and lanes * 2 + frame > stages:
            stages = lanes + frame
        self.query_one("#stages").styles.height = stages
        self.query_one("#middle").styles.height = middle
        self.query_one("#knob-strip").display = compact
        self.query_one("#side").display = not compact
        self.query_one("#knobs").styles.height = KNOB_LINES + frame

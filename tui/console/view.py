"""What the operator chose to look at: zoom, hold, cursor. Not part of the session, so not in the store."""

from __future__ import annotations

import msgspec

from sessions.knobs import KnobName, KnobValue
from sessions.messages import Verdicts
from tui.console.session.replay_state import ReplayState

NO_HOLD = 2_000_000_000
"""Windows at least this long scroll; shorter ones are held still, as an oscilloscope does."""


class ChosenSpan(msgspec.Struct, frozen=True):
    """A span of the replay, ns of the recorder's clock; `end_ns` is None until it is chosen."""

    start_ns: int
    end_ns: int | None = None


class Apart(msgspec.Struct, frozen=True):
    """A diagnosis that is not of now: `of` says of what."""

    of: str
    verdicts: Verdicts


class View(msgspec.Struct):
    """Mutable state of the screens, shared by their panels.

    zoom: steps from the automatic width of a swimlane cell, each a factor of 2 (negative is finer).
    frozen_ns: the instant at which the time lines stand still, or None.
    chart_s: seconds that the throughput chart covers.
    colour: False where the terminal shows none.
    pending: knob values asked for and not answered yet.
    wanted_concurrency: the load asked for and not confirmed yet.
    status: what the session is doing before there is an engine to ask.
    bench: what a benchmark that was started here does before it tells of itself.
    recording: the file that the session is being recorded to.
    replay: where the replay stands, while one is shown.
    span: the span of the replay that the operator chose.
    apart: the diagnosis of a profile or of a span, while it is looked at.
    keys: the key shown for each action's id, with the operator's own keys in place.
    """

    zoom: int = 0
    frozen_ns: int | None = None
    chart_s: int = 60
    colour: bool = True
    pending: dict[KnobName, KnobValue] = {}
    wanted_concurrency: int | None = None
    status: str = ""
    bench: str = ""
    recording: str = ""
    replay: ReplayState | None = None
    span: ChosenSpan | None = None
    apart: Apart | None = None
    keys: dict[str, str] = {}

    def key_of(self, action: str) -> str:
        """The key that runs an action, as it is shown."""
        return self.keys.get(action, "")

"""Every action of the console, defined once: its id, key, title, where it works and what it does.

Key bindings, clickable text, the footer, the command palette and the help are all made from this table. A user's
keymap replaces keys by id.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from tui.console.benchmarks import Benchmarks
from tui.console.control import Control
from tui.console.recordings import Recordings
from tui.console.replays import Replays
from tui.console.spans import Spans

KEY_NAMES = {
    "plus": "+",
    "minus": "-",
    "space": "space",
    "question_mark": "?",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "left_curly_bracket": "{",
    "right_curly_bracket": "}",
    "escape": "esc",
    "full_stop": ".",
    "comma": ",",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "left_parenthesis": "(",
    "right_parenthesis": ")",
}


class Operator(Protocol):
    """What an action may use: the session's controls, and the screens."""

    @property
    def control(self) -> Control: ...

    @property
    def benchmarks(self) -> Benchmarks: ...

    @property
    def recordings(self) -> Recordings: ...

    @property
    def replays(self) -> Replays: ...

    @property
    def spans(self) -> Spans: ...

    def show(self, mode: str) -> None:
        """Switch to a screen."""
        ...

    def show_help(self) -> None: ...

    def action_command_palette(self) -> None: ...

    def restart_engine(self) -> None: ...

    def leave(self) -> None: ...

    def open_launcher(self) -> None: ...

    def hold(self) -> None: ...

    def apply_first_verdict(self) -> None: ...

    def profile(self) -> None: ...

    def start_benchmark(self) -> None: ...


class Action(NamedTuple):
    """`key` in Textual's names. `footer` is the short title that the footer shows in the modes `modes` (none: all).
    `without_session`: works in the launcher too."""

    id: str
    key: str
    title: str
    group: str
    run: Callable[[Operator], object]
    footer: str = ""
    without_session: bool = False
    modes: tuple[str, ...] = ()

    @property
    def shown_key(self) -> str:
        """The key as people read it."""
        return shown(self.key)


def shown(key: str) -> str:
    """A key in Textual's name as people read it; of several the first."""
    first = key.split(",")[0]
    if first in KEY_NAMES:
        return KEY_NAMES[first]
    return first.replace("ctrl+", "^")


LIVE = ("live",)
WHY = ("diagnosis",)
BENCH = ("bench",)
NOW = ("live", "diagnosis", "bench", "compare", "sessions", "log")
"""Every screen but that of two recordings, where nothing can be turned."""

ACTIONS: tuple[Action, ...] = (
    # Screens
    Action("screen.live", "1", "Live screen", "Screens", lambda o: o.show("live")),
    Action("screen.diagnosis", "2", "Diagnosis", "Screens", lambda o: o.show("diagnosis")),
    Action("screen.bench", "3", "Benchmark screen", "Screens", lambda o: o.show("bench")),
    Action("screen.compare", "4", "Compare runs", "Screens", lambda o: o.show("compare")),
    Action("screen.sessions", "5", "Recordings", "Screens", lambda o: o.show("sessions")),
    Action("screen.log", "6,l", "Engine log", "Screens", lambda o: o.show("log")),
    Action("screen.together", "7", "Two recordings side by side", "Screens", lambda o: o.replays.show_beside()),
    Action("help", "question_mark,f1", "Help", "Screens", lambda o: o.show_help(), "help", True),
    Action(
        "commands", "ctrl+p", "Command palette", "Screens", lambda o: o.action_command_palette(), without_session=True
    ),
    Action("launcher", "n", "Another session (launcher)", "Screens", lambda o: o.open_launcher()),
    Action("quit", "q", "Quit, ending the engine started here", "Screens", lambda o: o.leave(), "quit", True),
    # Knobs
    Action("knob.async_depth.up", "d", "Async depth up", "Knobs", lambda o: o.control.step_depth(1)),
    Action("knob.async_depth.down", "D", "Async depth down", "Knobs", lambda o: o.control.step_depth(-1)),
    Action("knob.admission.next", "a", "Next admission policy", "Knobs", lambda o: o.control.step_admission(1)),
    Action("knob.admission.previous", "A", "Previous admission", "Knobs", lambda o: o.control.step_admission(-1)),
    Action("knob.max_micro_batch.up", "m", "Double max micro-batch", "Knobs", lambda o: o.control.scale_batch(2)),
    Action("knob.max_micro_batch.down", "M", "Halve max micro-batch", "Knobs", lambda o: o.control.scale_batch(0.5)),
    Action("knob.cuda_graphs.toggle", "g", "CUDA graphs on or off", "Knobs", lambda o: o.control.toggle_graphs()),
    Action("knob.parallelism.toggle", "p", "pp or ep", "Knobs", lambda o: o.control.toggle_parallelism()),
    # Load
    Action("load.up", "plus,equals_sign", "Double the concurrency", "Load", lambda o: o.control.scale_load(2)),
    Action("load.down", "minus", "Halve the concurrency", "Load", lambda o: o.control.scale_load(0.5)),
    Action("load.more", "greater_than_sign", "One concurrent request more", "Load", lambda o: o.control.step_load(1)),
    Action("load.less", "less_than_sign", "One concurrent request less", "Load", lambda o: o.control.step_load(-1)),
    Action(
        "load.pause", "0", "Pause or resume the load", "Load", lambda o: o.control.pause_load(), "pause", modes=LIVE
    ),
    # View
    Action("view.freeze", "space", "Freeze, or pause a replay", "View", lambda o: o.hold(), "hold", modes=LIVE),
    Action("view.finer", "right_square_bracket", "Swimlane finer", "View", lambda o: o.control.zoom(-1)),
    Action("view.coarser", "left_square_bracket", "Swimlane coarser", "View", lambda o: o.control.zoom(1)),
    Action("view.chart_shorter", "right_curly_bracket", "Chart: less time", "View", lambda o: o.control.chart(-1)),
    Action("view.chart_longer", "left_curly_bracket", "Chart: more time", "View", lambda o: o.control.chart(1)),
    # Benchmark
    Action("bench.start", "b", "Start a benchmark", "Benchmark", lambda o: o.start_benchmark(), "measure", modes=NOW),
    Action(
        "bench.cancel", "x", "Cancel the benchmark", "Benchmark", lambda o: o.benchmarks.cancel(), "cancel", modes=BENCH
    ),
    # Diagnosis
    Action(
        "verdict.apply",
        "v",
        "Apply the first verdict's fix",
        "Diagnosis",
        lambda o: o.apply_first_verdict(),
        "fix",
        modes=NOW,
    ),
    Action("profile", "f", "Profile, then diagnose it", "Diagnosis", lambda o: o.profile(), "profile", modes=WHY),
    # Recording and replay
    Action(
        "record", "r", "Record the session, or stop", "Recording", lambda o: o.recordings.toggle(), "record", modes=NOW
    ),
    Action("record.save", "F", "Save the last minutes", "Recording", lambda o: o.recordings.save_flight()),
    Action("replay.look_back", "T", "Look back: replay until now", "Recording", lambda o: o.replays.look_back()),
    Action("replay.live", "E", "Back to now", "Recording", lambda o: o.replays.to_live()),
    Action("replay.back", "comma", "Replay: a frame back", "Recording", lambda o: o.replays.seek(lambda r: r.step(-1))),
    Action(
        "replay.step", "full_stop", "Replay: a frame on", "Recording", lambda o: o.replays.seek(lambda r: r.step(1))
    ),
    Action(
        "replay.back_10",
        "H,shift+left",
        "Replay: 10 s back",
        "Recording",
        lambda o: o.replays.seek(lambda r: r.jump(-10)),
    ),
    Action(
        "replay.on_10", "L,shift+right", "Replay: 10 s on", "Recording", lambda o: o.replays.seek(lambda r: r.jump(10))
    ),
    Action(
        "replay.next_mark", "j", "Replay: next mark", "Recording", lambda o: o.replays.seek(lambda r: r.next_mark())
    ),
    Action(
        "replay.last_mark",
        "k",
        "Replay: mark before",
        "Recording",
        lambda o: o.replays.seek(lambda r: r.previous_mark()),
    ),
    Action(
        "replay.faster", "right_parenthesis", "Replay twice as fast", "Recording", lambda o: o.replays.change_speed(2)
    ),
    Action(
        "replay.slower", "left_parenthesis", "Replay half as fast", "Recording", lambda o: o.replays.change_speed(0.5)
    ),
    Action("replay.go_to", "t", "Replay: go to a time", "Recording", lambda o: o.replays.ask_time()),
    Action("replay.span_start", "i", "Replay: a span begins here", "Recording", lambda o: o.spans.start()),
    Action("replay.span_end", "o", "Replay: diagnose it to here", "Recording", lambda o: o.spans.end()),
    # Engine
    Action("engine.restart", "R", "Restart the engine", "Engine", lambda o: o.restart_engine()),
)

BY_ID = {action.id: action for action in ACTIONS}


def keys_shown(overrides: dict[str, str]) -> dict[str, str]:
    """The key to show for each action's id, `overrides` (id to key) in place."""
    return {action.id: shown(overrides.get(action.id, action.key)) for action in ACTIONS}

"""What the launcher offers, and the session that each choice opens.

Each kind of session is imported when it is opened, so that the first screen is there at once.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from engine.config import EngineConfig
from tui.console.options import ConsoleOptions
from tui.console.session.session import Session

EMULATED_HARDWARE = "8x-rtx-pro-6000"
EMULATED_MODEL = "kimi-k2.6"
EMULATED_STAGES = 8


class Choice(NamedTuple):
    """One line of the launcher. `open` is None where more must be asked first (`asks` says what), or where it cannot
    be had here (`unavailable` says why)."""

    id: str
    title: str
    detail: str
    open: Callable[[], Session] | None
    asks: str = ""
    unavailable: str = ""


def choices(gpus: list[str], concurrency: int) -> list[Choice]:
    """What can be opened on a machine with these GPUs (their names); the best comes first."""
    found = f"{len(gpus)}x {gpus[0]}" if gpus else ""
    own = Choice(
        "gpu",
        f"Engine on {found}" if gpus else "Engine on GPUs",
        f"a small MoE served over {len(gpus)} pipeline stages" if gpus else "",
        (lambda: own_session({}, concurrency)) if gpus else None,
        unavailable="" if gpus else "no NVIDIA GPU found",
    )
    cpu = Choice(
        "cpu",
        "Engine on the CPU",
        "a tiny MoE served over pipeline stages, one process each",
        lambda: own_session({"device": "cpu"}, concurrency),
    )
    emulated = Choice(
        "emulated",
        "Emulated cluster",
        f"{EMULATED_MODEL} on {EMULATED_HARDWARE}, pp {EMULATED_STAGES}: real scheduler, modelled GPUs",
        lambda: own_session(
            {"emulate": EMULATED_HARDWARE, "model": EMULATED_MODEL, "pp": EMULATED_STAGES}, concurrency
        ),
    )
    attach = Choice(
        "attach",
        "Attach",
        "to a running engine, a broker (mqtt://...) or a server (http://...)",
        None,
        asks="socket",
    )
    recording = Choice("recording", "Open a recording", "and replay it in these screens", None, asks="recording")
    first = [own, cpu] if gpus else [cpu]
    return [*first, emulated, attach, recording, *([] if gpus else [own])]


def own_session(chosen: dict[str, object], concurrency: int) -> Session:
    """An engine of our own with the defaults of this machine. Raise click.UsageError for what cannot work here."""
    from tui.cli.engine_defaults import resolve
    from tui.console.session.own import OwnSession

    config = resolve(dict(chosen))
    return OwnSession(config, concurrency, prepare_model="model" not in chosen)


def from_options(options: ConsoleOptions) -> Session | None:
    """The session asked for on the command line; None opens the launcher."""
    if options.engine is not None:
        return own_from(options.engine, options)
    if options.attach is not None:
        from tui.console.session.attached import AttachedSession

        return AttachedSession(options.attach, options.broker)
    if options.launch:
        from tui.console.session.launched import LaunchedSession

        return LaunchedSession(options.launch)
    if options.recording is not None:
        return recorded(str(options.recording))
    return None


def own_from(config: EngineConfig, options: ConsoleOptions) -> Session:
    """An engine of our own, as configured."""
    from tui.console.session.own import OwnSession

    return OwnSession(config, options.concurrency, prepare_model=options.prepare_model)


def from_choice(choice: Choice, path: str) -> Session:
    """The session that a choice opens; `path` answers what the choice asks for. Raise what the opening raises."""
    if choice.open is not None:
        return choice.open()
    if choice.asks == "recording":
        return recorded(path)
    from tui.console.session.attached import AttachedSession

    return AttachedSession(path)


def recorded(path: str) -> Session:
    """A recording. Raise RecordingError when it cannot be read."""
    from tui.console.session.replayed import ReplaySession

    return ReplaySession(Path(path).expanduser())

"""What the console is started with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from engine.config import EngineConfig


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """At most one of engine, attach and recording; with none of them the launcher opens.

    engine: start this engine. attach: join the channel at this address. recording: replay this file. concurrency: the
    background load of an engine of our own (0: none). keymap: keys by action id. prepare_model: write the tiny MoE
    first when it is missing (the model is its folder).
    """

    engine: EngineConfig | None = None
    attach: str | None = None
    recording: Path | None = None
    concurrency: int = 16
    keymap: dict[str, str] = {}
    prepare_model: bool = False

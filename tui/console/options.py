"""What the console is started with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from engine.config import EngineConfig
from sessions.channel.mqtt.address import BrokerAddress, parse_broker


class ConsoleOptions(msgspec.Struct, frozen=True, kw_only=True):
    """At most one of engine, attach, launch and recording; with none of them the launcher opens.

    engine: start this engine. attach: join what this address names, a broker with the credentials that `broker`
    adds. launch: start this server's command line. recording: replay this file, with `beside`
    next to it from where `align` says (see sessions.replay.alignment). concurrency: the background load of an
    engine of our own (0: none). keymap: keys by action id. prepare_model: write the tiny MoE first when it is missing
    (the model is its folder). record: record the session to this file from the start.
    """

    engine: EngineConfig | None = None
    attach: str | None = None
    broker: Callable[[str], BrokerAddress] = parse_broker
    launch: tuple[str, ...] = ()
    recording: Path | None = None
    beside: Path | None = None
    align: str | None = None
    concurrency: int = 16
    keymap: dict[str, str] = {}
    prepare_model: bool = False
    record: Path | None = None

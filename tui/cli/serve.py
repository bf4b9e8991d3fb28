"""`herdscope serve`: an engine without a console, for clients of its OpenAI endpoint and consoles elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui.cli.broker_options import BrokerChoice, broker_options
from tui.cli.engine_options import EngineChoice, engine_options
from tui.cli.output import note

if TYPE_CHECKING:
    from sessions.channel.interface import Channel
    from sessions.channel.mqtt.address import BrokerAddress
    from sessions.messages import EngineState

API_KEY_VARIABLE = "HERDSCOPE_API_KEY"
STATE_S = 30.0
CONNECT_S = 10.0


@click.command()
@click.option("--http", "http", default="127.0.0.1:8000", show_default=True, metavar="[HOST:]PORT")
@click.option("--broker", metavar="URL", help="Also join a broker: mqtt(s)://[user@]host[:port]/prefix[/session]")
@engine_options
@broker_options
def serve(http: str, broker: str | None, engine: EngineChoice, broker_choice: BrokerChoice) -> None:
    """Serve a model without a console: OpenAI's API over HTTP, and the channel for consoles elsewhere.

    With $HERDSCOPE_API_KEY set, clients must send it as their bearer token.

    \b
    Example: herdscope serve --pp 2 --http 8000
             curl localhost:8000/v1/completions -d '{"prompt": "hi", "max_tokens": 8}'
    """
    import asyncio

    from engine.server.run import listen
    from engine.server.run import serve as serve_http
    from probes.headless.prometheus import parse_address
    from tui.cli.engine_session import connect_engine, sampled, start_engine

    address = broker_choice.address(broker) if broker is not None else None
    sock = listen(*parse_address(http))
    with (
        start_engine(engine) as process,
        connect_engine(str(process.socket), "server") as channel,
        sampled(channel, gpus=engine.values["emulate"] is None),
        _joined(process.socket, address),
    ):
        state = _state(channel)
        model = Path(state.model.name).name if state.model else "model"
        host, port = sock.getsockname()[:2]
        said = f"{model} at http://{host}:{port}/v1, socket {process.socket}; Ctrl-C ends it"
        key = os.environ.get(API_KEY_VARIABLE)
        note(asyncio.run(serve_http(channel, sock, model, state.max_context, key, lambda: note(said))))


@contextmanager
def _joined(socket: Path, address: BrokerAddress | None) -> Iterator[None]:
    """Join the engine to a broker meanwhile, with the frames of this host and its GPUs."""
    if address is None:
        yield
        return
    from sessions.channel.bridge import Bridge
    from sessions.channel.mqtt.peer import connect_mqtt
    from sessions.clock import source_id

    bridge = Bridge(socket, source_id("cli"), lambda source: connect_mqtt(address, source, "engine", CONNECT_S))
    note(f"joined to {address}")
    try:
        yield
    finally:
        bridge.close("the engine was ended")


def _state(channel: Channel) -> EngineState:
    from sessions.messages import EngineState

    states = channel.subscribe([EngineState])
    state = states.get(STATE_S)
    states.close()
    if not isinstance(state, EngineState):
        raise click.ClickException(f"the engine told nothing of itself within {STATE_S:.0f} s")
    return state

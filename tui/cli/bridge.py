"""`herdscope bridge`: show a running engine to consoles elsewhere, through a broker."""

from __future__ import annotations

import signal
from pathlib import Path

import click

from tui.cli.broker_options import BrokerChoice, broker_options
from tui.cli.output import note

CONNECT_S = 10.0


@click.command()
@click.option("--connect", "socket", metavar="SOCKET", required=True, type=click.Path(path_type=Path))
@click.option("--broker", metavar="URL", required=True, help="mqtt(s)://[user@]host[:port]/prefix[/session]")
@broker_options
def bridge(socket: Path, broker: str, broker_choice: BrokerChoice) -> None:
    """Join a running engine to a broker until the engine ends or Ctrl-C.

    \b
    Example: herdscope bridge --connect /run/user/1000/herdscope/e.sock --broker mqtts://engine@broker/herdscope
             herdscope attach mqtts://viewer@broker/herdscope          (elsewhere)
    """
    from sessions.channel.bridge import Bridge
    from sessions.channel.mqtt.peer import connect_mqtt
    from sessions.clock import source_id

    address = broker_choice.address(broker)
    joined = Bridge(socket, source_id("cli"), lambda source: connect_mqtt(address, source, "engine", CONNECT_S))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: joined.ended.set())
    note(f"joined to {address}; Ctrl-C ends it")
    while not joined.ended.wait(1.0):
        pass
    joined.close()

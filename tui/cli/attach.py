"""`herdscope attach`: the console on something that runs already."""

from __future__ import annotations

import click

from tui.cli.broker_options import BrokerChoice, broker_options


@click.command()
@click.argument("address")
@broker_options
def attach(address: str, broker_choice: BrokerChoice) -> None:
    """Watch what runs already: an engine (its socket), a broker's engines and probes (mqtt://...), or an SGLang, vLLM
    or Herdscope server (http://HOST:PORT). Leaving the console leaves it alone.

    A server's API key is read from $HERDSCOPE_SERVER_API_KEY.

    \b
    Example: herdscope attach /run/user/1000/herdscope/engine-4711.sock
             herdscope attach http://localhost:30000
             herdscope attach mqtts://viewer@broker.example/herdscope
    """
    from tui.cli.run import open_console
    from tui.console.options import ConsoleOptions

    open_console(ConsoleOptions(attach=address, broker=broker_choice.address))

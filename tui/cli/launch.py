"""`herdscope launch`: SGLang or vLLM as a child of the console."""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def launch(command: tuple[str, ...]) -> None:
    """Start an SGLang or vLLM server and open the console on it; the server ends with the console.

    Knobs become the server's flags. What it cannot change while it runs is offered as a restart, shown as what changes
    in the command line. Of its log, the lines that the console's own polling causes are left out, and counted.

    \b
    Example: herdscope launch -- vllm serve Qwen/Qwen3-30B-A3B --pipeline-parallel-size 2
             herdscope launch -- python -m sglang.launch_server --model-path M --pp-size 8 --enable-metrics
    """
    from probes.launch.command_line import CommandLine
    from tui.cli.run import open_console
    from tui.console.options import ConsoleOptions

    server = CommandLine(command)
    click.echo(f"launching {server.kind}", err=True)  # refuses another program before a screen opens
    open_console(ConsoleOptions(launch=command))

"""`herdscope`: the registry of commands, and the one place where errors become exit codes."""

from __future__ import annotations

import gc
import os
import signal
import sys

import click

from tui.cli.errors import one_line
from tui.cli.lazy_group import Entry, LazyGroup

FAILED = 1

COMMANDS = (
    # name, module:attribute, group in the help, what it does
    Entry("run", "tui.cli.run:run", "See", "Start an engine and watch it in the console."),
    Entry("attach", "tui.cli.attach:attach", "See", "Watch an engine, a broker or a server that runs already."),
    Entry("launch", "tui.cli.launch:launch", "See", "Start SGLang or vLLM and watch it in the console."),
    Entry("replay", "tui.cli.replay:replay", "See", "Show a recording, or stream it to a program."),
    Entry("serve", "tui.cli.serve:serve", "See", "Serve a model without a console, by OpenAI's API."),
    Entry("bridge", "tui.cli.bridge:bridge", "See", "Show a running engine to consoles elsewhere, through a broker."),
    Entry("bench", "tui.cli.bench:bench", "Measure", "Measure an engine at one or more loads."),
    Entry("ab", "tui.cli.ab:ab", "Measure", "Vary knobs against each other and say which of them matter."),
    Entry("compare", "tui.cli.compare:compare", "Measure", "Compare results: how large a difference, and is it real."),
    Entry("load", "tui.cli.load:load", "Measure", "Keep an engine under load until stopped."),
    Entry(
        "probe", "tui.cli.probe:probe", "Diagnose", "Sample GPUs and host without a console and send frames somewhere."
    ),
    Entry(
        "diagnose", "tui.cli.diagnose:diagnose", "Diagnose", "Say why it is slow, from traces, a recording or metrics."
    ),
    Entry("profile", "tui.cli.profile:profile", "Diagnose", "Record some steps of every rank, and diagnose them."),
    Entry("whatif", "tui.cli.whatif:whatif", "Diagnose", "Sweep knobs, GPUs and load on the emulated cluster."),
    Entry("doctor", "tui.cli.doctor:doctor", "Diagnose", "Say what this machine has and lacks, and how to mend it."),
    Entry("broker", "tui.cli.broker:broker", "Set up", "Try a broker: round trip, retained state, access list."),
    Entry("sessions", "tui.cli.sessions:sessions", "Keep", "List, describe, tag, check, merge and prune recordings."),
    Entry("export", "tui.cli.export:export", "Keep", "Write a recording as trace, tables or report."),
    Entry("model", "tui.cli.model:model", "Set up", "Write checkpoints to try things with."),
    Entry("config", "tui.cli.config:config", "Set up", "Show every setting and where its value comes from."),
    Entry("completion", "tui.cli.completion:completion", "Set up", "Print the shell's completion script."),
)


@click.group(
    cls=LazyGroup, entries=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="herdscope", message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """See why a sharded mixture-of-experts deployment is slow, change one thing, and prove what it did.

    \b
    Example: herdscope run                      watch a tiny MoE served over pipeline stages
             herdscope bench --pp 4 --json      measure one
    """
    from tui.cli.config_file import defaults_for

    assert isinstance(ctx.command, LazyGroup)
    ctx.default_map = defaults_for(ctx.command, ctx.invoked_subcommand)


def main() -> None:
    """Run the command line and exit: 0 done, 1 failed (or interrupted), 2 wrong usage. No traceback reaches a user
    unless HERDSCOPE_DEBUG is set."""
    for name in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is signal.SIG_DFL:
            signal.signal(name, _interrupt)
    code = _run()
    gc.freeze()  # or the interpreter, as it ends, looks for cycles in all that is left
    sys.exit(code)


def _run() -> int:
    try:
        code = cli.main(prog_name="herdscope", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "herdscope"
        click.echo(f"error: {error.format_message()} (see {path} --help)", err=True)
        return error.exit_code
    except click.ClickException as error:
        click.echo(f"error: {error.format_message()}", err=True)
        return error.exit_code
    except click.Abort:
        click.echo("interrupted", err=True)
        return FAILED
    except Exception as error:
        if os.environ.get("HERDSCOPE_DEBUG"):
            raise
        click.echo(f"error: {one_line(error)}", err=True)
        return FAILED


def _interrupt(number: int, frame: object) -> None:
    """Leave through every `finally`, as Ctrl-C does, so that what was started is ended."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()

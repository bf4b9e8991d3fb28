"""The command line as a user meets it: help, errors, exit codes, completion; most of it in real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from sessions.messages import Marker
from sessions.recording.meta import origin
from sessions.recording.writer import RecordingWriter
from tui.cli import main as main_module
from tui.cli.lazy_group import GROUPS, Entry, LazyGroup
from tui.cli.main import COMMANDS, cli

HERDSCOPE = [sys.executable, "-m", "tui.cli.main"]


def herdscope(*args: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HERDSCOPE, *args], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )


def all_commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(command, click.Group):
        return [path]
    context = click.Context(command)
    found = [command.get_command(context, name) for name in command.list_commands(context)]
    return [each for sub in found if sub for each in all_commands(sub, (*path, str(sub.name)))]


def test_help_lists_every_command_once_under_its_group():
    lines = CliRunner().invoke(cli, ["--help"]).output.splitlines()
    for entry in COMMANDS:
        (place,) = [i for i, line in enumerate(lines) if line.startswith("  ") and line.split()[0] == entry.name]
        headings = [line.rstrip(":") for line in lines[:place] if line.rstrip(":") in GROUPS]
        assert headings[-1] == entry.group


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from click.testing import CliRunner; from tui.cli.main import cli; "
        "assert CliRunner().invoke(cli, ['--help']).exit_code == 0; "
        "print(sorted({'torch', 'textual', 'numpy', 'msgspec', 'rich', 'triton'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("path", all_commands(cli), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]):
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert "Example: herdscope" in result.output
    assert "--help" in result.output


def test_the_version_is_that_of_the_distribution():
    done = herdscope("--version")
    assert done.stdout == f"herdscope {version('herdscope')}\n"


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["benhc"], 2, "error: no command 'benhc'; did you mean 'bench'?"),
        (["config", "--pp", "0"], 2, "error: Invalid value for '--pp'"),
        (["config", "--cuda-graphs", "maybe"], 2, "'maybe' is neither on nor off"),
        (["bench", "--concurrency", "1,x"], 2, "is not whole numbers"),
        (["bench", "--concurrency", "4", "--rate", "2"], 2, "give either --concurrency or --rate"),
        (["bench", "--prompt-tokens", "9:3"], 2, "'9:3' is not a length"),
        (["bench", "--workload", "mooncake:/nope"], 2, "there is no file /nope"),
        (["load", "--connect", "/tmp/no-such-socket"], 1, "error: no engine listens on /tmp/no-such-socket"),
    ],
)
def test_errors_are_one_line_with_the_right_exit_code(args: list[str], code: int, said: str):
    done = herdscope(*args)
    assert done.returncode == code
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert done.stdout == ""


def test_no_command_shows_the_help():
    done = herdscope()
    assert done.returncode == 2 and "Commands" not in done.stdout and "Usage: herdscope" in done.stderr


def _with_command(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.group()
    def group() -> None:
        pass

    @group.command()
    def boom() -> None:
        raise error

    monkeypatch.setattr(main_module, "cli", group)
    monkeypatch.setattr(sys, "argv", ["herdscope", "boom"])


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (FileNotFoundError(2, "No such file or directory", "/x"), "error: /x: No such file or directory"),
        (RuntimeError("two\nlines"), "error: unexpected RuntimeError: two lines (HERDSCOPE_DEBUG=1 shows where)"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_no_traceback_reaches_a_user(monkeypatch, capsys, error, said):
    _with_command(monkeypatch, error)
    with pytest.raises(SystemExit) as ended:
        main_module.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err.strip() == said


def test_debug_shows_the_traceback(monkeypatch):
    _with_command(monkeypatch, RuntimeError("deep"))
    monkeypatch.setenv("HERDSCOPE_DEBUG", "1")
    with pytest.raises(RuntimeError, match="deep"):
        main_module.main()


def test_a_reader_that_leaves_early_is_no_error_on_the_screen(tmp_path):
    """Far more output than a pipe holds, and a reader that takes one line of it."""
    recording = tmp_path / "long.herd"
    writer = RecordingWriter(recording, origin([]))
    for instant in range(20_000):
        writer.write(instant, Marker(source="t", t_ns=instant, category="note", text="x" * 50))
    writer.close("done")
    done = subprocess.run(
        f"{sys.executable} -m tui.cli.main replay {recording} --json | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.count("\n") == 1 and done.stderr == ""


def test_no_command_leaves_the_processes_signals_changed():
    """A command that restores SIGPIPE would kill whatever embeds it at its next write to a closed socket."""
    assert signal.getsignal(signal.SIGPIPE) is signal.SIG_IGN


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(shell: str):
    done = herdscope("completion", shell)
    assert done.returncode == 0 and "_HERDSCOPE_COMPLETE" in done.stdout


def test_commands_complete_without_being_imported():
    done = herdscope(_HERDSCOPE_COMPLETE="bash_complete", COMP_WORDS="herdscope be", COMP_CWORD="1")
    assert done.stdout.split() == ["plain,bench"]


def test_a_registry_entry_that_is_no_command_is_a_clear_error():
    group = LazyGroup(entries=[Entry("x", "tui.cli.main:FAILED", "See", "")])
    with pytest.raises(TypeError, match="is not a command"):
        group.get_command(click.Context(group), "x")


def test_this_file_runs_the_checkout():
    assert Path(main_module.__file__).parents[2] == Path(__file__).parents[3]

"""`herdscope sessions`, `replay --headless` and `export` as a user calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner, Result

from sessions.messages import Marker
from sessions.recording import meta
from sessions.recording.writer import RecordingWriter
from tests.sessions.recording.synthetic import START_NS, WALL_NS, session
from tui.cli.main import cli
from tui.console.options import ConsoleOptions

ORIGIN = meta.Origin(
    t_ns=START_NS, wall_ns=WALL_NS, host="host", command_line=["herdscope", "run"], versions={"x": "1"}
)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def data(*arguments: object) -> object:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "tonight.herd"
    writer = RecordingWriter(path, ORIGIN)
    for at_ns, batch in session(50, gpus=1, stages=1, spans_per_second=10):
        for message in batch:
            writer.write(at_ns, message)
    writer.write(at_ns, Marker(source="s", t_ns=at_ns, category="note", text="the end"))
    writer.close("done")
    return path


def test_list_show_annotate_tag_verify(recording: Path) -> None:
    assert run("sessions", "annotate", recording, "a note", "--title", "Monday").exit_code == 0
    assert run("sessions", "tag", recording, "keep", "extra").exit_code == 0
    assert run("sessions", "tag", recording, "extra", "--remove").exit_code == 0
    (one,) = data("sessions", "list", recording.parent)
    assert (one["title"], one["tags"], one["seconds"], one["state"]) == ("Monday", ["keep"], 5.0, "finished")
    assert "tonight.herd  Monday #keep" in run("sessions", "list", recording.parent).stdout
    shown = data("sessions", "show", recording)
    assert shown["details"]["notes"] == ["a note"]
    assert shown["marks"][0]["text"] == "the end"
    text = run("sessions", "show", recording).stdout
    assert "async_depth=8" in text
    assert "5.0 s note     the end" in text
    (verdict,) = data("sessions", "verify", recording)
    assert verdict["problems"] == []


def test_verify_exits_1_for_a_bad_file(recording: Path) -> None:
    bad = recording.with_name("bad.herd")
    bad.write_bytes(b"nonsense" * 999)
    result = run("sessions", "verify", recording, bad)
    assert result.exit_code == 1
    assert "whole" in result.stdout
    assert "is no herdscope recording" in result.stdout


def test_prune_deletes_only_when_told(recording: Path) -> None:
    assert run("sessions", "prune", recording.parent).exit_code == 2
    assert run("sessions", "prune", recording.parent, "--older-than", "soon").exit_code == 2
    result = run("sessions", "prune", recording.parent, "--keep", 0)
    assert "would delete 1 recordings" in result.stderr
    assert recording.exists()
    assert run("sessions", "prune", recording.parent, "--max-size", "1GB", "--yes").exit_code == 0
    assert recording.exists()
    assert run("sessions", "prune", recording.parent, "--keep", 0, "--yes").exit_code == 0
    assert not recording.exists()


def test_merge(recording: Path) -> None:
    other = recording.with_name("other.herd")
    writer = RecordingWriter(other, ORIGIN)
    writer.write(START_NS, Marker(source="o", t_ns=START_NS, category="note", text="other"))
    writer.close("done")
    merged = data("sessions", "merge", recording, other, "-o", recording.with_name("both.herd"))
    assert merged["messages"] == 3 + 50 * 3 + 1 + 1


def test_replay_streams_an_interval_of_kinds(recording: Path) -> None:
    result = run("replay", recording, "--json", "--kind", "gpu_frame", "--from", "1", "--until", "0:02")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(lines) == 11
    assert {line["message"]["kind"] for line in lines} == {"gpu_frame"}
    assert lines[0]["at_ns"] == START_NS + 10**9
    from_utc = run("replay", recording, "--headless", "--from", "2026-09-21T13:46:44Z").stdout
    assert from_utc != result.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--json", "--kind", "nothing"], "no kind of message 'nothing': choose from"),
        (["--json", "--from", "never"], "'never' is neither a time from the start"),
        (["--json", "--from", "2", "--until", "1"], "--until is before --from"),
        (["--json", "--speed", "100"], "is not in the range"),
        (["--speed", "2"], "go with --headless"),
        (["--align", "2"], "--align needs two recordings"),
        (["other.herd", "--json"], "--headless streams one recording"),
    ],
)
def test_replay_usage_errors(recording: Path, arguments: list[str], why: str) -> None:
    result = run("replay", recording, *arguments)
    assert result.exit_code == 2
    assert why in result.stderr


def test_replay_refuses_two_recordings_that_do_not_align_before_it_takes_the_terminal(recording: Path) -> None:
    command = [sys.executable, "-m", "tui.cli.main", "replay", os.fspath(recording), os.fspath(recording)]
    done = subprocess.run([*command, "--align", "noon"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "error: tonight.herd: no mark says 'noon'; its marks are: 'the end'\n"


@pytest.mark.parametrize("beside", [False, True])
def test_replay_opens_the_console_with_the_users_keys(
    recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[keys]\nquit = "ctrl+q"\n')
    monkeypatch.setenv("HERDSCOPE_CONFIG", os.fspath(config))
    terminal = SimpleNamespace(isatty=lambda: True)
    monkeypatch.setattr("tui.cli.run.sys", SimpleNamespace(stdin=terminal, stdout=terminal))
    opened: list[ConsoleOptions] = []
    monkeypatch.setattr("tui.console.app.run_console", lambda options: opened.append(options) or 0)
    second = [recording, "--align", "the end"] if beside else []
    assert run("replay", recording, *second).exit_code == 0
    (options,) = opened
    assert (options.recording, options.keymap) == (recording, {"quit": "ctrl+q"})
    assert (options.beside, options.align) == ((recording, "the end") if beside else (None, None))


def test_export_formats(recording: Path, tmp_path: Path) -> None:
    assert data("export", recording, "--to", "chrome")["path"] == str(tmp_path / "tonight.trace.json")
    assert json.loads((tmp_path / "tonight.trace.json").read_text())["traceEvents"]
    assert run("export", recording, "-o", tmp_path / "r.html").exit_code == 0
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert run("export", recording, "-o", tmp_path / "r.md").exit_code == 0
    assert run("export", recording, "--to", "csv", "-o", tmp_path / "tables").exit_code == 0
    assert (tmp_path / "tables" / "gpus.csv").exists()
    undecided = run("export", recording, "-o", tmp_path / "x.xyz")
    assert undecided.exit_code == 2
    assert "say what to write with --to" in undecided.stderr


def test_bad_files_are_one_line_and_a_reader_that_leaves_is_no_error(recording: Path) -> None:
    command = [sys.executable, "-m", "tui.cli.main"]
    missing = subprocess.run(
        [*command, "export", "none.herd", "--to", "chrome"], capture_output=True, text=True, timeout=60
    )
    assert missing.returncode == 1
    assert missing.stderr == "error: none.herd does not exist\n"
    streaming = subprocess.Popen(
        [*command, "replay", os.fspath(recording), "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert streaming.stdout is not None
    assert streaming.stderr is not None
    streaming.stdout.readline()
    streaming.stdout.close()
    assert streaming.stderr.read() == ""
    streaming.wait(30)

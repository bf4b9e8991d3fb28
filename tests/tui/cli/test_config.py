"""Where an engine's settings come from, and what is said about wrong ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tui.cli import engine_defaults
from tui.cli.main import cli


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run `herdscope config` with this file's text, these flags and this environment."""
    monkeypatch.setattr(engine_defaults, "cuda_devices", lambda: 0)

    def run(text: str = "", *flags: str, command: str = "config", **environment: str) -> Result:
        path = tmp_path / "config.toml"
        path.write_text(text)
        return CliRunner().invoke(cli, [command, *flags], env={"HERDSCOPE_CONFIG": str(path), **environment})

    return run


def settings(result: Result) -> dict[str, tuple[object, str]]:
    assert result.exit_code == 0, result.output
    return {row["key"]: (row["value"], row["source"]) for row in json.loads(result.stdout)["settings"]}


def test_command_line_wins_over_environment_over_file_over_default(config):
    text = '[engine]\npp = 3\nasync_depth = 3\nadmission = "capped"\ncuda_graphs = false\n'
    rows = settings(config(text, "--json", "--pp", "4", HERDSCOPE_PP="2", HERDSCOPE_ASYNC_DEPTH="2"))
    assert rows["pp"] == (4, "command line")
    assert rows["async_depth"] == (2, "environment")
    assert rows["admission"] == ("capped", "file")
    assert rows["cuda_graphs"] == (False, "file")
    assert rows["block_size"] == (16, "default")


def test_defaults_follow_what_was_chosen(config):
    rows = settings(config("", "--json", "--pp", "4"))
    assert rows["async_depth"] == (4, "default") and rows["parallelism"] == ("pp", "default")
    rows = settings(config("", "--json", "--ep", "2"))
    assert rows["parallelism"] == ("ep", "default") and rows["pp"] == (1, "default") and rows["async_depth"][0] == 1


def test_one_stage_a_gpu_and_graphs_on_with_cuda(config, monkeypatch):
    monkeypatch.setattr(engine_defaults, "cuda_devices", lambda: 8)
    rows = settings(config("", "--json"))
    assert (rows["pp"][0], rows["device"][0], rows["cuda_graphs"][0]) == (8, "cuda", True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[engine]\nasync_dept = 3\n", "no key in [engine] called async_dept; did you mean async_depth?"),
        ("[engin]\npp = 3\n", "no table called engin; did you mean engine?"),
        ("[bench]\nconcurency = 3\n", "no key in [bench] called concurency; did you mean concurrency?"),
        ("engine = 3\n", "engine must be a table"),
        ("[engine\n", "config.toml: "),
        ('[engine]\npp = "many"\n', "'many' is not a valid integer"),
        ("[engine]\nzzz = 1\n", "choose one of"),
    ],
)
def test_a_wrong_file_is_named_in_one_line(config, text, said):
    result = config(text)
    assert result.exit_code == 2
    assert said in result.output


def test_a_commands_own_table_is_checked_when_it_runs_and_its_values_are_used(config):
    assert "no key in [load] called rat" in config("[load]\nrat = 3\n", command="load").output
    result = config('[load]\nconnect = "/no/such"\nrate = 1\nconcurrency = 2\n', command="load")
    assert "give either --concurrency or --rate" in result.output


def test_an_engine_that_cannot_be_is_refused(config):
    assert "CUDA graphs need an NVIDIA GPU" in config("", "--cuda-graphs", "on").output
    assert "no usable NVIDIA GPU" in config("", "--device", "cuda").output
    too_deep = config("", "--async-depth", "65")
    assert too_deep.exit_code == 2 and "async_depth must be a whole number from 1 to 64" in too_deep.output


def test_the_table_form_shows_the_same(config):
    result = config("", "--pp", "4")
    assert any(line.split() == ["pp", "4", "command", "line"] for line in result.output.splitlines())


def test_the_default_model_is_written_once_and_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_defaults, "tiny_folder", lambda: tmp_path / "models" / "tiny")
    engine_defaults.write_tiny_once()
    first = sorted((tmp_path / "models" / "tiny").iterdir())
    assert (tmp_path / "models" / "tiny" / "config.json") in first
    written = [path.stat().st_mtime_ns for path in first]
    engine_defaults.write_tiny_once()
    assert [path.stat().st_mtime_ns for path in first] == written
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["tiny"]

"""`herdscope diagnose` as its user meets it."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from sessions.knobs import Knobs
from sessions.messages import Marker
from tests.probes.diagnosis.emulation import SECOND_NS, Setup, run, turned
from tests.probes.diagnosis.recordings import record
from tests.probes.traces.synthetic import Pipeline, traces, write
from tui.cli.main import cli

DATA = Path(__file__).resolve().parents[2] / "data"
HYPOTHESES = {
    "interconnect",
    "launch_overhead",
    "shallow_depth",
    "herd",
    "uneven_split",
    "stage_imbalance",
    "expert_imbalance",
    "host",
}


def _run(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["diagnose", *map(str, arguments)])
    return result.exit_code, result.stdout, result.stderr


def _json(*arguments: object) -> dict[str, Any]:
    code, out, err = _run(*arguments, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def _assert_shape(report: dict[str, Any]) -> None:
    for rank in report["ranks"]:
        assert set(rank["decomposition"]) == {"compute", "wire", "launch_gap", "comm_wait", "host", "bubble"}
        assert sum(rank["decomposition"].values()) == pytest.approx(1.0, abs=1e-9)
    herd = report["herd"]
    for name in ("H", "waves", "L", "U", "B"):
        assert herd[name] is not None or herd["why"][name]
    assert {verdict["hypothesis"] for verdict in report["verdicts"]} == HYPOTHESES
    for verdict in report["verdicts"]:
        assert verdict["verdict"] in ("holds", "refuted", "unknown")
        assert set(verdict["gain"]) == {"low", "mid", "high"}
        assert verdict["evidence"] and verdict["fix"]
    gains = [v["gain"]["mid"] for v in report["verdicts"] if v["verdict"] == "holds"]
    assert gains == sorted(gains, reverse=True)


def test_traces(tmp_path: Path) -> None:
    paths = write(Pipeline((16,), 2), tmp_path)
    report = _json(*paths)
    _assert_shape(report)
    assert report["verdicts"][0]["hypothesis"] == "herd"
    assert [rank["rank"] for rank in report["ranks"]] == [0, 1]
    code, text, _ = _run(*paths)
    assert code == 0
    assert "thundering herd" in text and "pp_max_micro_batch_size" in text


def test_of_traces_imports_only_what_it_needs(tmp_path: Path) -> None:
    paths = write(Pipeline((16,), 2), tmp_path)
    code = (
        "import sys; from click.testing import CliRunner; from tui.cli.main import cli; "
        f"assert CliRunner().invoke(cli, ['diagnose', *{[str(path) for path in paths]!r}]).exit_code == 0; "
        "print(sorted({'numpy.ma', 'tomllib', 'platformdirs', 'difflib', 'engine.presets', 'textual', 'torch', "
        "'asyncio', 'sqlite3'} & set(sys.modules)))"
    )
    environment = {**os.environ, "HERDSCOPE_CONFIG": str(tmp_path / "none.toml")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment)
    assert done.stdout.strip() == "[]", done.stderr


def test_a_recording(tmp_path: Path) -> None:
    path = record(run(Setup((8,), Knobs(8, "greedy", 256, True))).messages, tmp_path / "s.herd")
    report = _json(path)
    _assert_shape(report)
    assert report["emulated"] is True
    assert report["verdicts"][0]["hypothesis"] == "herd"
    assert _run(path)[1].startswith("EMULATED")


@pytest.fixture(scope="module")
def dissolved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A herd, and a mark two and a half seconds in; half a second later a knob dissolves it."""
    messages = turned(Setup((8,), Knobs(8, "greedy", 256, True)), "admission", "capped")
    begun = messages[0].t_ns
    at = next(i for i, message in enumerate(messages) if message.t_ns - begun >= 2.5 * SECOND_NS)
    mark = Marker(source="test", t_ns=messages[at].t_ns, category="note", text="here it goes")
    return record([*messages[:at], mark, *messages[at:]], tmp_path_factory.mktemp("d") / "s.herd")


@pytest.mark.parametrize("span", [("--from", "0:01", "--to", "2.8"), ("--to", "mark:1"), ("--until", "mark:goes")])
def test_a_span_of_a_recording(dissolved: Path, span: tuple[str, ...]) -> None:
    assert _json(dissolved, *span)["verdicts"][0]["hypothesis"] == "herd"


def test_an_instant_of_a_recording(dissolved: Path) -> None:
    assert _json(dissolved, "--at", "mark:1")["verdicts"][0]["verdict"] == "holds"
    assert {verdict["verdict"] for verdict in _json(dissolved, "--at", "5.5")["verdicts"]} <= {"refuted", "unknown"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--from", "60"], "outside: the recording is"),
        (["--from", "2", "--to", "1"], "is no span"),
        (["--at", "60"], "outside: the recording is"),
        (["--at", "0.2"], "too little to judge"),
        (["--at", "1", "--to", "2"], "--at goes without"),
        (["--to", "mark:7"], "no mark 7: the recording has 2"),
        (["--to", "mark:never"], "no mark says 'never'"),
        (["--to", "soon"], "'soon' is neither a time"),
    ],
)
def test_a_span_that_is_none_is_one_clear_line(dissolved: Path, options: list[str], words: str) -> None:
    command = [sys.executable, "-m", "tui.cli.main", "diagnose", str(dissolved), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode in (1, 2) and done.stdout == ""
    assert words in done.stderr and "Traceback" not in done.stderr


def test_a_span_needs_a_recording(tmp_path: Path) -> None:
    code, _, err = _run(*write(Pipeline((16,), 2), tmp_path), "--from", "1")
    assert code == 2 and "need a recording" in err


def test_a_scrape() -> None:
    report = _json(DATA / "servers/sglang_metrics_pp2.txt")
    _assert_shape(report)
    assert report["cohorts"] == [15, 1]


def test_token_times(tmp_path: Path) -> None:
    path = tmp_path / "tokens.jsonl"
    lines = [json.dumps({"request": i, "t": n * 0.08}) for n in range(20) for i in range(8)]
    path.write_text("\n".join(lines))
    report = _json(path, "--stages", 8)
    _assert_shape(report)
    assert report["herd"]["B"] == pytest.approx(1.0, abs=0.1)


def test_swimlanes(tmp_path: Path) -> None:
    paths = write(Pipeline((4, 4), 2), tmp_path)
    assert _run(*paths, "--swimlane", tmp_path / "s.svg")[0] == 0
    assert _run(*paths, "--swimlane", tmp_path / "s.png")[0] == 0
    boxes = ElementTree.fromstring((tmp_path / "s.svg").read_text()).findall("{*}rect")
    assert len(boxes) > 20
    assert (tmp_path / "s.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    code, _, err = _run(*paths, "--swimlane", tmp_path / "s.gif")
    assert code == 1 and ".svg or .png" in err


def test_a_merged_trace_can_be_read_back(tmp_path: Path) -> None:
    paths = write(Pipeline((16,), 2), tmp_path)
    merged = tmp_path / "all.json.gz"
    assert _run(*paths, "--merged", merged)[0] == 0
    names = {event["name"] for event in json.loads(gzip.decompress(merged.read_bytes()))["traceEvents"]}
    assert "fused_moe_kernel" in names
    assert _json(merged)["verdicts"][0]["hypothesis"] == "herd"


def _bad(folder: Path) -> dict[str, tuple[list[Path], str]]:
    good = write(Pipeline((16,), 2), folder)
    empty, text, cut, cpu = (folder / name for name in ("empty.json", "text.json", "cut.json.gz", "cpu.json"))
    empty.write_bytes(b"")
    text.write_text("no trace at all")
    cut.write_bytes(good[1].read_bytes()[:40])
    content = traces(Pipeline((16,), 2))[0]
    content["traceEvents"] = [event for event in content["traceEvents"] if event.get("cat") != "kernel"]
    cpu.write_text(json.dumps(content))
    (folder / "other").mkdir()
    other = write(Pipeline((16,), 2, engine="vllm"), folder / "other")
    return {
        "missing": ([folder / "none.json"], "no such file"),
        "empty": ([empty], "empty"),
        "not JSON": ([text], "not JSON"),
        "cut": ([cut], "cut off"),
        "no GPU events": ([cpu], "no GPU events"),
        "two runs mixed": ([good[0], other[1]], "two runs mixed"),
        "the same rank twice": ([good[0], good[0]], "both of rank 0"),
        "two kinds": ([good[0], folder / "s.herd"], "different kinds"),
    }


@pytest.mark.parametrize(
    "name",
    ["missing", "empty", "not JSON", "cut", "no GPU events", "two runs mixed", "the same rank twice", "two kinds"],
)
def test_bad_input_is_one_clear_line(name: str, tmp_path: Path) -> None:
    (tmp_path / "s.herd").write_bytes(b"SQLite format 3\x00")
    paths, words = _bad(tmp_path)[name]
    command = [sys.executable, "-m", "tui.cli.main", "diagnose", *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_missing_rank_is_said_and_not_guessed(tmp_path: Path) -> None:
    report = _json(write(Pipeline((16,), 2), tmp_path)[0])
    assert any("1 of 2 ranks missing" in note for note in report["notes"])
    verdicts = {verdict["hypothesis"]: verdict["verdict"] for verdict in report["verdicts"]}
    assert verdicts["herd"] == verdicts["interconnect"] == "unknown"

"""`herdscope whatif`, and `herdscope bench --emulate`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tui.cli.main import cli


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), env={"HERDSCOPE_CONFIG": "/nonexistent/config.toml"})


def test_whatif_prints_a_table_a_chart_and_json() -> None:
    words = (
        "whatif",
        "--admission",
        "greedy,capped",
        "--concurrency",
        "2,4",
        "--output-tokens",
        "8",
        "--prompt-tokens",
        "4",
    )
    text = run(*words)
    assert text.exit_code == 0, text.output
    assert text.stdout.count("EMULATED") == 2 and "█" in text.stdout
    found = json.loads(run(*words, "--json").stdout)
    assert found["emulated"] is True and len(found["rows"]) == 4
    assert all(row["tokens_per_s"]["low"] < row["tokens_per_s"]["mid"] for row in found["rows"])


def test_validation_says_mape_and_signed_error() -> None:
    text = run("whatif", "--validate")
    assert text.exit_code == 0 and "TP8" in text.stdout and "signed" in text.stdout
    tables = {t["title"]: t["error"] for t in json.loads(run("whatif", "--validate", "--json").stdout)}
    (public,) = [error for title, error in tables.items() if "public" in title]
    assert public["mape"] <= 0.16


def test_a_fit_narrows_the_band(tmp_path: Path) -> None:
    file = tmp_path / "rates.txt"
    file.write_text("1 24.7 off\n1 34 on\n8 95.6 off\n")
    found = json.loads(
        run("whatif", "--calibrate", str(file), "--concurrency", "1", "--output-tokens", "4", "--json").stdout
    )
    assert found["band"] < 0.25
    assert set(found["calibration"]["fitted"]) == {"launch_us", "kernel_us"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpus", "9"), "multiple"),
        (("--emulate", "8x-h999"), "hardware profile"),
        (("--model", "nothing"), "preset"),
        (("--admission", "fair"), "fair"),
        (("--ranks", "64", "--gpus", "64", "--parallelism", "pp"), "61 layers"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(words: tuple[str, ...], said: str) -> None:
    result = run("whatif", *words)
    assert result.exit_code != 0
    assert said in (result.output + str(result.exception))


def test_bench_on_the_emulated_cluster() -> None:
    result = run(
        "bench", "--emulate", "8x-rtx-pro-6000", "--model", "kimi-k2.6", "--pp", "8", "--cuda-graphs", "off",
        "--async-depth", "1", "--admission", "greedy", "--concurrency", "8", "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    point = found["points"][0]
    assert found["emulated"] is True
    assert point["output_tokens_per_s"] == pytest.approx(95.6, rel=0.10)
    assert len(point["power_w"]) == 8 and all(abs(w / 85 - 1) < 0.15 for w in point["power_w"])
    assert point["requests"]["finished"] == 40


def test_the_profile_decides_how_many_stages_there_are() -> None:
    result = run("bench", "--emulate", "2x-h200", "--model", "qwen3-30b-a3b", "--concurrency", "2", "--json")
    assert len(json.loads(result.stdout)["points"][0]["occupancy"]) == 2

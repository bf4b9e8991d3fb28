"""`herdscope compare` and `herdscope ab` as commands: files in, text, JSON, Markdown and HTML out."""

from __future__ import annotations

import json
import random
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sessions.bench.files import write_result
from tests.sessions.compare.synthetic import noisy
from tui.cli import results_folder
from tui.cli.main import cli

AB = ["ab", "--emulate", "8x-rtx-pro-6000", "--model", "kimi-k2.6", "--concurrency", "8", "--requests", "8"]
SHORT = ["--output-tokens", "16"]


def run(*args: str) -> Result:
    return CliRunner().invoke(cli, args)


@pytest.fixture
def runs(tmp_path: Path) -> list[str]:
    rng = random.Random(4)
    paths = []
    for name, speed in (("before", 1.0), ("after", 1.3), ("other", 1.0)):
        path = tmp_path / f"{name}.json"
        write_result(path, noisy(rng, 8, speed=speed, label=name, key="work" if name != "other" else "else"))
        paths.append(str(path))
    return paths


def test_compare_prints_text_json_or_markdown(runs):
    text, markdown = run("compare", *runs[:2]), run("compare", *runs[:2], "--markdown")
    found = run("compare", *runs[:2], "--json")
    assert text.exit_code == markdown.exit_code == found.exit_code == 0
    assert "before -> after" in text.stdout and "better" in text.stdout
    assert markdown.stdout.startswith("### before → after")
    rows = json.loads(found.stdout)["pairs"][0]["rows"]
    assert {row["verdict"] for row in rows} == {"better"}


def test_compare_refuses_different_workloads_and_obeys_force(runs):
    refused = run("compare", runs[0], runs[2])
    assert refused.exit_code == 1 and "--force compares them all the same" in refused.output
    forced = run("compare", runs[0], runs[2], "--force")
    assert forced.exit_code == 0 and "warning: different workloads" in forced.output


@pytest.mark.parametrize(
    ("args", "code", "said"), [((), 2, "RESULTS"), (("x",), 2, "two"), (("x", "y"), 1, "no such file")]
)
def test_compare_names_what_is_missing(args, code, said):
    result = run("compare", *args)
    assert result.exit_code == code and said in result.output


def test_compare_finds_kept_results_by_name(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(results_folder, "results_folder", lambda: tmp_path)
    assert run("compare", "before", "after").exit_code == 0


def test_ab_on_the_emulated_cluster_finds_the_herd(tmp_path):
    html, output = tmp_path / "r.html", tmp_path / "r.json"
    result = run(*AB, *SHORT, "--knob", "admission=greedy,rebalance", "--knob", "async_depth=1,8",
                 "--html", str(html), "--output", str(output), "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found == json.loads(output.read_text())
    effects = {effect["name"]: effect for effect in found["metrics"][0]["effects"]}
    joint = effects["admission=rebalance x async_depth=8"]
    assert joint["verdict"] == "changes" and joint["ratio"] > 1.1
    assert found["same_tokens"] is True
    assert any("EMULATED" in warning for warning in found["warnings"])
    assert found["ended"] == "every effect is decided"


class Page(HTMLParser):
    """Checks that tags close in order and that nothing is loaded from elsewhere."""

    VOID = {"meta", "br", "line", "circle", "polyline"}

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_report_is_one_self_contained_page(tmp_path):
    html = tmp_path / "r.html"
    assert run(*AB, *SHORT, "--knob", "admission=greedy,rebalance", "--html", str(html)).exit_code == 0
    text = html.read_text()
    page = Page()
    page.feed(text)
    assert page.open == [] and page.seen.count("svg") == 3 and "script" not in page.seen
    assert "EMULATED" in text and "admission=rebalance" in text


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("--knob", "admission=greedy"), 2, "at least two different values"),
        (("--knob", "speed=1,2"), 2, "no knob 'speed'"),
        (("--knob", "admission=greedy,capped", "--rate", "2"), 2, "either --concurrency or --rate"),
        (("--knob", "admission=greedy,capped", "--repeat", "3"), 1, "3 repetitions cannot show anything: 6"),
        (("--knob", "admission=greedy,capped", "--record", "x.herd"), 2, "--wall"),
        ((), 2, "--knob"),
    ],
)
def test_ab_refuses_what_cannot_work(args, code, said):
    result = run(*AB, *args)
    assert result.exit_code == code and said in result.output

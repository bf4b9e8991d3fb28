"""Other people's load generators and `herdscope bench` on the same engine with the same load, in turns.

The engine is emulated in wall time: its steps take what is declared, for any batch, so that what differs between the
tools is how they load and measure. The machine's own hiccups fall on all alike; medians over the rounds are compared.
"""

from __future__ import annotations

import json
import os
import re
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from engine.checkpoint.byte_tokenizer import byte_tokenizer
from sessions.compare.readers.read import read_any
from sessions.results import BenchPoint, Percentiles

HERDSCOPE = [sys.executable, "-m", "tui.cli.main"]
PROMPT_TOKENS, OUTPUT_TOKENS = 32, 64
ROUNDS = 3
TOLERANCE = 0.03
ENGINE_TOML = """
base = "h200"
title = "GPU whose step takes 20 ms for any batch"
count = 2
memory_bytes_per_s = 1e15
flops_per_s = 1e18
link_bytes_per_s = 1e15
kernel_us = 18.0
launch_us = 0.0
"""


class Load(NamedTuple):
    """A closed loop of `streams`, and which figures must agree under it.

    With several streams a request that ends while others run finds a step begun, and waits for its end: the longer a
    client takes to send its next request, the shorter that wait. The time to first token is then partly the client's
    own, and we count it from the instant the request was due, others from when they sent it. One stream finds the
    engine idle.
    """

    streams: int
    requests: int
    held: tuple[str, ...]


LOADS = (
    Load(1, 6, ("tokens_per_s", "ttft_p50", "tpot_p50", "itl_mean")),
    Load(4, 20, ("tokens_per_s", "tpot_p50", "itl_mean")),
)


class Served(NamedTuple):
    """An engine's OpenAI endpoint and its socket."""

    url: str
    socket: str


class Figures(NamedTuple):
    """What all tools can be asked for: output tokens a second, and milliseconds."""

    tokens_per_s: float
    ttft_p50: float
    tpot_p50: float
    itl_mean: float


def python_of(variable: str) -> Path:
    """The interpreter that this variable names; the test is skipped without it."""
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"{variable} names no Python")
    return Path(named)


@contextmanager
def emulated_server(folder: Path) -> Iterator[Served]:
    """`herdscope serve` on two emulated GPUs, one micro-batch in flight."""
    (folder / "even.toml").write_text(ENGINE_TOML)
    command = ["serve", "--emulate", str(folder / "even.toml"), "--model", "qwen3-30b-a3b", "--pp", "2"]
    command += ["--async-depth", "1", "--http", "127.0.0.1:0"]
    with subprocess.Popen([*HERDSCOPE, *command], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"at (http://\S+)/v1, socket (\S+);", line)
            assert found is not None, line
            yield Served(found[1], found[2])
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def letters_tokenizer(folder: Path) -> Path:
    """A folder with the tokenizer of models without meaning, as clients load it: a token for each printable letter."""
    tokenizer = byte_tokenizer()
    vocabulary: dict[str, int] = tokenizer["model"]["vocab"]
    printable = [letter for letter, byte in vocabulary.items() if ord(" ") <= byte <= ord("~")]
    tokenizer["model"]["vocab"] = {letter: number for number, letter in enumerate(printable)}
    tokenizer["added_tokens"] = []
    target = folder / "letters"
    target.mkdir()
    (target / "tokenizer.json").write_text(json.dumps(tokenizer))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096}
    (target / "tokenizer_config.json").write_text(json.dumps(settings))
    return target


def run(command: list[str], output: Path, tpot: Literal["tpot_ms", "itl_ms"] = "tpot_ms") -> Figures:
    """Run a tool that writes its result to `output`, and read that; `tpot` is where it keeps what we call TPOT."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, f"{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    (point,) = read_any(output).points
    assert (point.requests.failed, point.requests.refused) == (0, 0)
    return _figures(point, getattr(point, tpot))


def bench(connect: str, load: Load, output: Path) -> Figures:
    """`herdscope bench` with the same load."""
    command = [*HERDSCOPE, "bench", "--connect", connect, "--concurrency", str(load.streams)]
    command += ["--requests", str(load.requests), "--prompt-tokens", str(PROMPT_TOKENS)]
    return run([*command, "--output-tokens", str(OUTPUT_TOKENS), "--output", str(output)], output)


def compare(name: str, load: Load, theirs: Callable[[Served, Path], Figures], folder: Path) -> None:
    """Run theirs, ours over HTTP and ours on the socket in turns; print the medians, hold theirs to ours over HTTP."""
    rounds: dict[str, list[Figures]] = {name: [], "herdscope bench, HTTP": [], "herdscope bench, socket": []}
    with emulated_server(folder) as served:
        for number in range(ROUNDS):
            output = folder / f"{number}.json"
            rounds[name].append(theirs(served, output))
            rounds["herdscope bench, HTTP"].append(bench(served.url, load, output))
            rounds["herdscope bench, socket"].append(bench(served.socket, load, output))
    medians = {tool: Figures(*map(statistics.median, zip(*all_of, strict=True))) for tool, all_of in rounds.items()}
    print(f"\nC={load.streams:<22}  tok/s  TTFT p50  TPOT p50  ITL mean   (ms, medians of {ROUNDS})")
    for tool, figures in medians.items():
        print(f"{tool:24} {figures[0]:6.2f}  {figures[1]:8.2f}  {figures[2]:8.3f}  {figures[3]:8.3f}")
    ours = medians["herdscope bench, HTTP"]
    for field in load.held:
        assert getattr(medians[name], field) == pytest.approx(getattr(ours, field), rel=TOLERANCE), field


def _figures(point: BenchPoint, tpot: Percentiles) -> Figures:
    values = (point.output_tokens_per_s, point.ttft_ms.p50, tpot.p50, point.itl_ms.mean)
    assert all(value is not None for value in values)
    return Figures(*(value for value in values if value is not None))

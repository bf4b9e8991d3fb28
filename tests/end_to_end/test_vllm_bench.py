"""`vllm bench serve` drives our server unchanged and finds what `herdscope bench` finds.

Opt-in: HERDSCOPE_VLLM_PYTHON names the interpreter that has vLLM.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.agreement import (
    LOADS,
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    Figures,
    Load,
    Served,
    compare,
    letters_tokenizer,
    python_of,
    run,
)

pytestmark = [pytest.mark.optin, pytest.mark.timeout(900)]


@pytest.mark.parametrize("load", LOADS, ids=["C=1", "C=4"])
def test_vllm_bench_agrees_with_our_bench(load: Load, tmp_path: Path) -> None:
    vllm = python_of("HERDSCOPE_VLLM_PYTHON").with_name("vllm")
    tokenizer = letters_tokenizer(tmp_path)

    def measure(served: Served, output: Path) -> Figures:
        command = [str(vllm), "bench", "serve", "--backend", "openai", "--base-url", served.url.removesuffix("/v1")]
        command += ["--model", "qwen3-30b-a3b", "--tokenizer", str(tokenizer), "--dataset-name", "random"]
        command += ["--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(OUTPUT_TOKENS)]
        command += ["--num-prompts", str(load.requests), "--max-concurrency", str(load.streams), "--ignore-eos"]
        command += ["--percentile-metrics", "ttft,tpot,itl,e2el", "--disable-tqdm"]
        command += ["--save-result", "--result-dir", str(output.parent), "--result-filename", output.name]
        return run(command, output)

    compare("vllm bench serve", load, measure, tmp_path)

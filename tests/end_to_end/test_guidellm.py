"""guidellm drives our server unchanged and finds what `herdscope bench` finds.

Opt-in: HERDSCOPE_GUIDELLM_PYTHON names the interpreter that has guidellm.
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
def test_guidellm_agrees_with_our_bench(load: Load, tmp_path: Path) -> None:
    guidellm = python_of("HERDSCOPE_GUIDELLM_PYTHON").with_name("guidellm")
    tokenizer = letters_tokenizer(tmp_path)

    def measure(served: Served, output: Path) -> Figures:
        target = served.url.removesuffix("/v1")
        command = [str(guidellm), "run", "--disable-console"]
        command += ["--backend", f"kind=openai_http,target={target},request_format=/v1/completions"]
        command += ["--profile", f"kind=concurrent,streams={load.streams}"]
        command += ["--constraint", f"kind=max_requests,count={load.requests}"]
        data = f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}"
        command += ["--data", data, "--tokenizer", f"kind=huggingface_auto,model={tokenizer}"]
        return run([*command, "--output", f"kind=json,path={output}"], output, tpot="itl_ms")

    compare("guidellm", load, measure, tmp_path)

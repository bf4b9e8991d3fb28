"""A real vLLM server on the CPU with a small mixture of experts over two pipeline stages, weights made up.

Opt-in, docs/measuring.md says how its environment is made.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.checkpoint.byte_tokenizer import byte_tokenizer

VARIABLE = "HERDSCOPE_VLLM_PYTHON"
READY_S = 500.0
GRAPHLESS = ["-cc", '{"mode":1,"backend":"eager","cudagraph_mode":"NONE"}']
"""What vLLM's pipeline on a CPU needs."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "VLLM_NO_USAGE_STATS": "1",
}
SHAPE = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "num_hidden_layers": 8,
    "hidden_size": 128,
    "vocab_size": 320,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "intermediate_size": 256,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "norm_topk_prob": True,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "hidden_act": "silu",
    "eos_token_id": 256,
}
"""Heads of 64: vLLM's attention on a CPU has no smaller ones."""


class VllmServer(NamedTuple):
    """Its address, the group that all its processes are in, and where its profiles go."""

    url: str
    group: int
    profiles: Path


def vllm_program() -> str:
    """The `vllm` beside the interpreter that is named; the test is skipped without one."""
    python = os.environ.get(VARIABLE)
    if not python:
        pytest.skip(f"{VARIABLE} names no Python with vllm-cpu")
    return str(Path(python).with_name("vllm"))


def command_line(folder: Path, port: int, *flags: str) -> list[str]:
    """Write the model into `folder` and return the command that serves it."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(SHAPE))
    (model / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    (model / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    profiler = {"profiler": "torch", "torch_profiler_dir": str(folder), "torch_profiler_with_stack": False}
    command = [vllm_program(), "serve", str(model), "--load-format", "dummy", "--host", "127.0.0.1"]
    command += ["--port", str(port), "--pipeline-parallel-size", "2", "--max-model-len", "256"]
    return [*command, "--max-num-seqs", "16", "--profiler-config", json.dumps(profiler), *flags]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def vllm_server(folder: Path, *flags: str) -> Iterator[VllmServer]:
    """Serve until the block ends; everything that was started ends with it."""
    port = free_port()
    with (folder / "vllm.log").open("wb") as log:
        command = command_line(folder, port, *flags)
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | ENVIRONMENT, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_until_ready(url, process, folder / "vllm.log")
        yield VllmServer(url, process.pid, folder)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        assert process.poll() is None, log.read_text(errors="replace")[-3000:]
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=5):
            return
        time.sleep(1)
    pytest.fail(f"vLLM is not ready after {READY_S:.0f} s: {log.read_text(errors='replace')[-3000:]}")

"""Our knobs as the flags of SGLang and vLLM."""

from __future__ import annotations

import re

from probes.launch.command_line import CommandLine, LaunchError
from sessions.knobs import KnobName, Knobs, KnobValue, parse_knob

_SGLANG_PP = ("--pp-size", "--pipeline-parallel-size")
_SGLANG_TP = ("--tp-size", "--tensor-parallel-size", "--tp")
_SGLANG_EP = ("--ep-size", "--expert-parallel-size", "--ep")
_VLLM_PP = ("--pipeline-parallel-size", "-pp")
_VLLM_TP = ("--tensor-parallel-size", "-tp")
DEFAULT_MAX_RUNNING = 256


def knobs_of(line: CommandLine) -> Knobs:
    """The knobs that a command line stands for. Both servers admit greedily. Raise LaunchError."""
    if line.kind == "sglang":
        pp = line.number(1, *_SGLANG_PP)
        limit = line.number(DEFAULT_MAX_RUNNING, "--max-running-requests") // max(1, pp)
        return Knobs(
            async_depth=pp + line.number(0, "--pp-async-batch-depth"),
            max_micro_batch=line.number(max(1, limit), "--pp-max-micro-batch-size"),
            cuda_graphs=not line.has("--disable-cuda-graph"),
            parallelism="ep" if line.number(1, *_SGLANG_EP) > 1 and pp == 1 else "pp",
        )
    pp = line.number(1, *_VLLM_PP)
    return Knobs(
        async_depth=pp,
        max_micro_batch=line.number(DEFAULT_MAX_RUNNING, "--max-num-seqs"),
        cuda_graphs=not line.has("--enforce-eager") and not _captures_nothing(line),
        parallelism="ep" if line.has("--enable-expert-parallel") and pp == 1 else "pp",
    )


def pipeline_stages(line: CommandLine) -> int:
    """Pipeline stages that a command line asks for. Raise LaunchError."""
    return line.number(1, *(_SGLANG_PP if line.kind == "sglang" else _VLLM_PP))


def _captures_nothing(line: CommandLine) -> bool:
    """Whether vLLM's compilation config switches CUDA graphs off."""
    text = line.value("-cc", "--compilation-config") or ""
    return re.search(r'"cudagraph_mode"\s*:\s*"NONE"', text) is not None


def unavailable(line: CommandLine) -> dict[KnobName, str]:
    """Knobs that this server has no flag for, with the reason."""
    if line.kind == "sglang":
        return {"admission": "SGLang has one admission policy: greedy; cap its slots with max_micro_batch"}
    return {
        "admission": "vLLM has one admission policy: greedy",
        "async_depth": "vLLM's pipeline depth is its number of stages",
    }


def with_knob_flags(line: CommandLine, knob: KnobName, value: KnobValue) -> CommandLine:
    """The command line with one knob changed. Raise LaunchError where there is no flag, KnobError for a bad value."""
    value = parse_knob(knob, value)
    reason = unavailable(line).get(knob)
    if reason is not None:
        raise LaunchError(reason)
    match knob:
        case "parallelism":
            return _with_parallelism(line, str(value))
        case "cuda_graphs":
            flag = "--disable-cuda-graph" if line.kind == "sglang" else "--enforce-eager"
            return line.with_switch(flag, not value)
        case "max_micro_batch":
            flag = "--pp-max-micro-batch-size" if line.kind == "sglang" else "--max-num-seqs"
            return line.with_value(flag, str(value))
        case _:
            return _with_depth(line, int(value))


def _with_depth(line: CommandLine, depth: int) -> CommandLine:
    """SGLang's slots are pp_size + pp_async_batch_depth, so fewer than pp_size cannot be had."""
    pp = line.number(1, *_SGLANG_PP)
    if depth < pp:
        raise LaunchError(f"SGLang keeps at least pp_size = {pp} micro-batches in flight")
    return line.with_value("--pp-async-batch-depth", str(depth - pp))


def _with_parallelism(line: CommandLine, mode: str) -> CommandLine:
    """All GPUs as pipeline stages, or as one tensor-parallel group with its experts split."""
    sglang = line.kind == "sglang"
    pp_names, tp_names = (_SGLANG_PP, _SGLANG_TP) if sglang else (_VLLM_PP, _VLLM_TP)
    gpus = line.number(1, *pp_names) * line.number(1, *tp_names)
    pp, tp = (gpus, 1) if mode == "pp" else (1, gpus)
    changed = line.with_value(pp_names[0], str(pp), *pp_names[1:]).with_value(tp_names[0], str(tp), *tp_names[1:])
    if sglang:
        return changed.with_value(_SGLANG_EP[0], str(tp), *_SGLANG_EP[1:])
    return changed.with_switch("--enable-expert-parallel", mode == "ep")

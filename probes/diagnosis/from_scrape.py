"""Evidence from one scrape of a server's Prometheus metrics: slot sizes at an instant, where the server tells them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from probes.diagnosis.evidence import Evidence, SlotSample

_LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')


class ScrapeError(ValueError):
    """A text that holds no metrics of a known server; one line that says what to give instead."""


class _Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def evidence_from_scrape(text: str, name: str) -> Evidence:
    """What a `/metrics` text tells; `name` is for error messages. Raise ScrapeError."""
    found: dict[str, list[_Sample]] = defaultdict(list)
    for sample in _samples(text):
        found[sample.name].append(sample)
    if any(key.startswith("sglang:") for key in found):
        return _sglang(found)
    if any(key.startswith("vllm:") for key in found):
        return _vllm(found)
    raise ScrapeError(f"{name}: no metrics of SGLang or vLLM in it; give a server's /metrics, a trace or a recording")


def _samples(text: str) -> Iterator[_Sample]:
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        found = _LINE.match(line)
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        yield _Sample(found[1], dict(_LABEL.findall(found[2] or "")), value)


def _sglang(found: dict[str, list[_Sample]]) -> Evidence:
    """Each pipeline rank tells the size of the slot that it last logged, which is another slot on every rank."""
    running = {
        int(sample.labels.get("pp_rank", 0)): int(sample.value)
        for sample in found["sglang:num_running_reqs"]
        if sample.labels.get("tp_rank", "0") == "0"
    }
    stages = max(running, default=0) + 1
    active = sum(
        int(sample.value)
        for sample in found["sglang:http_requests_active"]
        if sample.labels.get("endpoint", "").endswith(("generate", "completions"))
    )
    sizes: tuple[int, ...] = tuple(running[rank] for rank in sorted(running))
    notes: list[str] = []
    slots: list[SlotSample] = []
    if stages > 1 and any(sizes):
        slots = [SlotSample(0, _distinct(sizes, active, notes))]
    return Evidence(
        source="slots",
        engine="sglang",
        stages=stages,
        parallelism="pp" if stages > 1 else "unknown",
        slots=slots,
        least_slots=stages,
        graphs=_sglang_graphs(found),
        streams=active,
        cannot_see=[
            "stages: how long they compute, wait or transfer",
            "how slots change with time: this is one instant",
            "slots beyond one a pipeline rank",
        ],
        notes=notes,
    )


def _distinct(sizes: tuple[int, ...], active: int, notes: list[str]) -> tuple[int, ...]:
    """Ranks that tell the same slot's size twice would count its requests twice: more than the server has."""
    if active and sum(sizes) > active and len(set(sizes)) == 1:
        notes.append(f"every rank tells a slot of {sizes[0]} while {active} requests are active: the same slot")
        return (sizes[0], *(0,) * (len(sizes) - 1))
    return sizes


def _sglang_graphs(found: dict[str, list[_Sample]]) -> bool | None:
    passes: dict[str, float] = defaultdict(float)
    for sample in found["sglang:cuda_graph_passes_total"]:
        passes[sample.labels.get("mode", "")] += sample.value
    replayed = sum(n for mode, n in passes.items() if mode.startswith("decode_") and mode != "decode_none")
    eager = passes.get("decode_none", 0.0)
    return None if replayed + eager == 0 else replayed > eager


def _vllm(found: dict[str, list[_Sample]]) -> Evidence:
    running = sum(int(sample.value) for sample in found["vllm:num_requests_running"])
    return Evidence(
        source="slots",
        engine="vllm",
        stages=1,
        parallelism="unknown",
        streams=running,
        cannot_see=[
            "how the requests are spread: vLLM tells nothing by stage or batch (profile it: /start_profile)",
            "stages: how long they compute, wait or transfer",
        ],
        notes=[f"{running} requests running"],
    )

"""SGLang's metrics.

Traps: with pipeline stages there is one series a stage (label pp_rank), and each shows only the slot that its stage
ran when it last logged. So the values must not be summed as if they were one queue's, and gen_throughput, which is
derived from them, never. The log interval (40 decode steps unless set) can fall on the same slot every time.
"""

from __future__ import annotations

from collections.abc import Sequence

from probes.attach.exposition import Scrape
from probes.attach.snapshot import NotExposed, ServerSnapshot

_GENERATING = ("/generate", "/v1/completions", "/v1/chat/completions")
_SLOTS = NotExposed(
    "slot sizes at every step", "start it with --decode-log-interval 1, or with --enable-forward-pass-metrics"
)
_STAGES = NotExposed("stage occupancy", "record a profile: herdscope attach can start and collect one")


def read_sglang(scrape: Scrape) -> ServerSnapshot:
    """Read a scrape of SGLang 0.5."""
    running_by_rank = _by_rank(scrape, "sglang:num_running_reqs")
    stages = max(running_by_rank, default=0) + 1
    seen = {rank: int(value) for rank, value in running_by_rank.items()}
    active = _active(scrape)
    slots = slots_from(list(seen.values()), active, stages)
    return ServerSnapshot(
        kind="sglang",
        model=_model(scrape),
        stages=stages,
        running=active if active is not None else max(seen.values(), default=None),
        waiting=_whole(max(_by_rank(scrape, "sglang:num_queue_reqs").values(), default=None)),
        slots=slots,
        slots_seen=seen,
        kv_used=_whole(max(_by_rank(scrape, "sglang:kv_used_tokens").values(), default=None)),
        kv_room=_whole(min(_by_rank(scrape, "sglang:max_total_num_tokens").values(), default=None)),
        generated=_whole(scrape.total("sglang:generation_tokens_total")),
        prompted=_whole(scrape.total("sglang:prompt_tokens_total")),
        finished=_whole(scrape.total("sglang:num_requests_total")),
        graphs=_graphs(scrape),
        throughput=max(_by_rank(scrape, "sglang:gen_throughput").values(), default=None) if stages == 1 else None,
        not_exposed=[_STAGES] if slots is not None or stages == 1 else [_SLOTS, _STAGES],
    )


def slots_from(seen: Sequence[int], active: int | None, stages: int) -> list[int] | None:
    """The slots of one instant, from the sizes that each stage last saw: certain only when they account for all of the
    `active` requests, either side by side or as one slot that every stage saw."""
    if stages == 1 or active is None or active < 1:
        return None
    if sum(seen) == active:
        return sorted(seen, reverse=True)
    if set(seen) == {active}:
        return [active] + [0] * (stages - 1)
    return None


def _by_rank(scrape: Scrape, name: str) -> dict[int, float]:
    """Values by pipeline rank; tensor-parallel ranks of a stage say the same, so the first one counts."""
    values: dict[int, float] = {}
    for sample in scrape.all(name):
        values.setdefault(int(sample.labels.get("pp_rank", "0")), sample.value)
    return values


def _active(scrape: Scrape) -> int | None:
    counts = [s.value for s in scrape.all("sglang:http_requests_active") if s.labels.get("endpoint") in _GENERATING]
    return int(sum(counts)) if counts else None


def _graphs(scrape: Scrape) -> bool | None:
    with_graph = scrape.total("sglang:cuda_graph_passes_total", mode="decode_cuda_graph") or 0
    without = scrape.total("sglang:cuda_graph_passes_total", mode="decode_none") or 0
    return with_graph > without if with_graph + without else None


def _model(scrape: Scrape) -> str:
    for sample in scrape.all("sglang:num_running_reqs"):
        return sample.labels.get("model_name", "")
    return ""


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)

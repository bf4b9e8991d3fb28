"""vLLM's metrics, and our own server's, which uses vLLM's names and adds the slots.

vLLM shows nothing per pipeline stage and nothing per micro-batch: how its requests are spread over the stages is only
seen in a profile, or in the rhythm of a client's tokens.
"""

from __future__ import annotations

from probes.attach.exposition import Scrape
from probes.attach.snapshot import NotExposed, ServerSnapshot

_SLOTS = NotExposed("slot sizes", "vLLM has no metric for them: record a profile, or run our load to see the herd")
_PROFILE = NotExposed("stage occupancy", "start it with --profiler-config so that a profile can be recorded")


def read_vllm(scrape: Scrape) -> ServerSnapshot:
    """Read a scrape of vLLM 0.22-0.33 or of our own server."""
    slots = {int(s.labels["slot"]): int(s.value) for s in scrape.all("herdscope_slot_decode_requests")}
    ours = scrape.has_prefix("herdscope_")
    room = _kv_room(scrape)
    stages = len(scrape.all("herdscope_stage_occupancy_ratio"))
    return ServerSnapshot(
        kind="herdscope" if ours else "vllm",
        model=_model(scrape),
        stages=max(1, stages) if ours else 0,
        running=_whole(scrape.total("vllm:num_requests_running")),
        waiting=_whole(scrape.total("vllm:num_requests_waiting")),
        slots=[size for _, size in sorted(slots.items())] if slots else None,
        kv_used=None if room is None else round(room * (scrape.total("vllm:kv_cache_usage_perc") or 0.0)),
        kv_room=room,
        generated=_whole(scrape.total("vllm:generation_tokens_total")),
        prompted=_whole(scrape.total("vllm:prompt_tokens_total")),
        preempted=_whole(scrape.total("vllm:num_preemptions_total")),
        finished=_whole(scrape.total("vllm:request_success_total")),
        not_exposed=[] if ours else [_SLOTS, _PROFILE],
    )


def _kv_room(scrape: Scrape) -> int | None:
    """Blocks of the KV cache, which stand in a label."""
    for sample in scrape.all("vllm:cache_config_info"):
        blocks = sample.labels.get("num_gpu_blocks", "")
        if blocks.isdigit():
            return int(blocks)
    return None


def _model(scrape: Scrape) -> str:
    for sample in scrape.all("vllm:num_requests_running"):
        return sample.labels.get("model_name", "")
    return ""


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)

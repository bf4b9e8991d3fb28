"""`/metrics`: vLLM's names where they mean the same, `herdscope_*` for what only a sharded engine's insides show."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from engine.server.engine_client import EngineClient
from sessions.herd import herd_index, waves
from sessions.messages import Finished, StageFrame

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class ServerMetrics:
    """Counts what this server sees of its requests, and shows the engine's newest frames."""

    def __init__(self, model: str, client: EngineClient) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_EngineCollector(model, client))
        self._model = model

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(name, text, ["model_name"], registry=self._registry, buckets=_SECONDS)

        self._ttft = histogram("vllm:time_to_first_token_seconds", "Time to first token.")
        self._itl = histogram("vllm:inter_token_latency_seconds", "Time between tokens of a request.")
        self._e2e = histogram("vllm:e2e_request_latency_seconds", "Time from submission to the last token.")
        self._ended = Counter(
            "vllm:request_success", "Requests ended.", ["model_name", "finished_reason"], registry=self._registry
        )

    def first_token(self, seconds: float) -> None:
        """A request's first token came."""
        self._ttft.labels(self._model).observe(seconds)

    def next_token(self, seconds: float) -> None:
        """A further token came."""
        self._itl.labels(self._model).observe(seconds)

    def ended(self, finished: Finished, seconds: float) -> None:
        """A request ended."""
        self._ended.labels(self._model, finished.reason).inc()
        self._e2e.labels(self._model).observe(seconds)

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self._registry)


class _EngineCollector:
    def __init__(self, model: str, client: EngineClient) -> None:
        self._model = model
        self._client = client

    def collect(self) -> Iterator[Metric]:
        frame = self._client.queue
        if frame is not None:
            yield self._gauge("vllm:num_requests_running", "Requests in slots.", frame.running)
            yield self._gauge("vllm:num_requests_waiting", "Requests waiting for a slot.", frame.waiting)
            used = frame.kv_blocks_used / frame.kv_blocks if frame.kv_blocks else 0.0
            yield self._gauge("vllm:kv_cache_usage_perc", "KV-cache usage; 1 is full.", used)
            config = GaugeMetricFamily("vllm:cache_config_info", "KV cache.", labels=["model_name", "num_gpu_blocks"])
            config.add_metric([self._model, str(frame.kv_blocks)], 1)
            yield config
            yield self._counter("vllm:prompt_tokens", "Prompt tokens processed.", frame.prompt_tokens_total)
            yield self._counter("vllm:generation_tokens", "Tokens generated.", frame.output_tokens_total)
            yield self._counter("vllm:num_preemptions", "Requests preempted.", frame.preempted_total)
            yield from self._herd([slot.decode for slot in frame.slots])
        yield self._occupancy(self._client.stages)

    def _herd(self, slots: list[int]) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "herdscope_slot_decode_requests", "Decoding requests of each slot.", labels=["model_name", "slot"]
        )
        for slot, size in enumerate(slots):
            family.add_metric([self._model, str(slot)], size)
        yield family
        index, spread = herd_index(slots, max(1, len(self._client.stages))), waves(slots)
        if index.value is not None:
            yield self._gauge("herdscope_herd_index", "0: evenly staggered, 1: one herd.", index.value)
        if spread.value is not None:
            yield self._gauge("herdscope_waves", "Effective number of micro-batches.", spread.value)

    def _occupancy(self, stages: dict[int, StageFrame]) -> Metric:
        family = GaugeMetricFamily(
            "herdscope_stage_occupancy_ratio", "Share of time computing.", labels=["model_name", "stage"]
        )
        for stage, frame in sorted(stages.items()):
            busy = sum(span.end - span.start for span in frame.spans)
            family.add_metric([self._model, str(stage)], min(1.0, busy / max(1, frame.window_ns)))
        return family

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model], value)
        return family

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(name, text, labels=["model_name"])
        family.add_metric([self._model], value)
        return family

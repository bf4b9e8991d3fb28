"""The newest frames as a Prometheus endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from probes.headless.latest import LatestFrames
from probes.headless.names import GPU_METRICS, MetricName
from sessions.messages import GpuFrame, Message

GPU_LABELS = ["gpu", "uuid", "name"]


class AddressError(ValueError):
    """An address that cannot be listened on; one line."""


def parse_address(text: str) -> tuple[str, int]:
    """Read `PORT`, `:PORT` or `HOST:PORT`; without a host it is loopback. IPv6 hosts stand in brackets."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isdigit() or not 0 <= int(port) < 65536:
        raise AddressError(f"{text!r} is no address to listen on: give PORT or HOST:PORT")
    return host, int(port)


class PrometheusSink:
    """Serves `/metrics` at `address`; bound to loopback unless the address names a host."""

    def __init__(self, address: str, missed_ticks: Callable[[], int] = int) -> None:
        host, port = parse_address(address)
        self._latest = LatestFrames()
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector(self._latest, missed_ticks))
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise AddressError(f"cannot listen on {host}:{port}: {error.strerror}; choose another port") from error

    @property
    def port(self) -> int:
        """The port listened on (the one chosen by the system when 0 was asked for)."""
        return int(self._server.server_port)

    def write(self, message: Message) -> None:
        self._latest.take(message)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)


class _Collector:
    """Makes metrics of the newest frames whenever the endpoint is read."""

    def __init__(self, latest: LatestFrames, missed_ticks: Callable[[], int]) -> None:
        self._latest = latest
        self._missed_ticks = missed_ticks

    def collect(self) -> Iterator[Metric]:
        now = time.monotonic_ns()
        gpus = self._latest.gpus(now)
        for metric in GPU_METRICS:
            yield _gpu_family(metric, gpus)
        yield _reasons(gpus)
        yield from self._host_families(now)
        yield CounterMetricFamily("herdscope_probe_missed_ticks", "Samples that came too late.", self._missed_ticks())

    def _host_families(self, now_ns: int) -> Iterator[Metric]:
        host = self._latest.host(now_ns)
        if host is None:
            return
        yield GaugeMetricFamily("host_cpu_ratio", "Share of all cores in use.", host.cpu_ratio)
        yield GaugeMetricFamily("host_load1", "Load average over a minute.", host.load)
        yield GaugeMetricFamily("host_memory_used_bytes", "Memory in use.", host.memory_used_bytes)
        yield GaugeMetricFamily("host_memory_total_bytes", "Memory.", host.memory_total_bytes)


def _labels(frame: GpuFrame) -> list[str]:
    return [str(frame.index), frame.uuid, frame.name]


def _gpu_family(metric: MetricName, gpus: list[GpuFrame]) -> Metric:
    kind = CounterMetricFamily if metric.counter else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=GPU_LABELS)
    for frame in gpus:
        value = getattr(frame, metric.field)
        if value is not None:
            family.add_metric(_labels(frame), value)
    return family


def _reasons(gpus: list[GpuFrame]) -> Metric:
    family = GaugeMetricFamily(
        "gpu_clock_event_reason", "1 for each reason that holds the clock down now.", labels=[*GPU_LABELS, "reason"]
    )
    for frame in gpus:
        for reason in frame.clock_event_reasons:
            family.add_metric([*_labels(frame), reason], 1)
    return family

from __future__ import annotations

import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from probes.headless.prometheus import AddressError, PrometheusSink, parse_address
from sessions.messages import GpuFrame, HostFrame


def scrape(port: int) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        sample.name: {tuple(sorted(s.labels.items())): s.value for s in family.samples if s.name == sample.name}
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_serves_the_newest_frames_in_base_units() -> None:
    sink = PrometheusSink("127.0.0.1:0", missed_ticks=lambda: 3)
    now = time.monotonic_ns()
    for watts in (10.0, 85.0):
        sink.write(
            GpuFrame(
                source="s",
                t_ns=now,
                index=1,
                uuid="GPU-1",
                name="Fake",
                power_watts=watts,
                energy_joules_total=5.0,
                clock_event_reasons=["sw_power_cap"],
            )
        )
    sink.write(
        HostFrame(
            source="s", t_ns=now, host="h", cpu_ratio=0.5, cores=2, load=1.5, memory_used_bytes=1, memory_total_bytes=2
        )
    )
    gpu = (("gpu", "1"), ("name", "Fake"), ("uuid", "GPU-1"))
    metrics = scrape(sink.port)
    sink.close()
    assert metrics["gpu_power_watts"] == {gpu: 85.0}
    assert metrics["gpu_energy_joules_total"] == {gpu: 5.0}
    assert metrics["gpu_clock_event_reason"] == {(*gpu[:2], ("reason", "sw_power_cap"), gpu[2]): 1.0}
    assert metrics["host_cpu_ratio"] == {(): 0.5}
    assert metrics["herdscope_probe_missed_ticks_total"] == {(): 3.0}
    assert "gpu_temperature_celsius" not in metrics


def test_a_frame_too_old_is_not_served_as_if_it_were_new() -> None:
    sink = PrometheusSink("0")
    sink.write(GpuFrame(source="s", t_ns=time.monotonic_ns() - 10**10, index=0, uuid="u", name="n", power_watts=1.0))
    metrics = scrape(sink.port)
    sink.close()
    assert "gpu_power_watts" not in metrics


def test_it_is_bound_to_loopback_unless_told() -> None:
    assert parse_address("9400") == ("127.0.0.1", 9400)
    assert parse_address(":9400") == ("127.0.0.1", 9400)
    assert parse_address("0.0.0.0:9400") == ("0.0.0.0", 9400)
    assert parse_address("[::1]:9400") == ("::1", 9400)


@pytest.mark.parametrize("text", ["", "host:", "host:http", "1.2.3.4:70000"])
def test_a_bad_address_is_named(text: str) -> None:
    with pytest.raises(AddressError, match="no address to listen on"):
        parse_address(text)


def test_a_port_in_use_is_named() -> None:
    first = PrometheusSink("0")
    with pytest.raises(AddressError, match=f"cannot listen on 127.0.0.1:{first.port}"):
        PrometheusSink(str(first.port))
    first.close()

from __future__ import annotations

from probes.headless.snapshot import status_line, table
from sessions.messages import GpuFrame, HostFrame

HOST = HostFrame(
    source="s",
    t_ns=0,
    host="node1",
    cpu_ratio=0.25,
    cores=16,
    load=2.0,
    memory_used_bytes=8 << 30,
    memory_total_bytes=32 << 30,
)
GPUS = [
    GpuFrame(source="s", t_ns=0, index=0, uuid="a", name="RTX PRO 6000", power_watts=85.4, power_limit_watts=600.0,
             utilization_ratio=0.9, memory_used_bytes=48 << 30, memory_total_bytes=96 << 30, sm_clock_hertz=2.1e9),
    GpuFrame(source="s", t_ns=0, index=1, uuid="b", name="RTX PRO 6000", unavailable={"power_watts": "GPU is lost"}),
]  # fmt: skip


def test_the_table_is_aligned_and_says_why_a_value_is_missing() -> None:
    lines = table(GPUS, HOST, None).splitlines()
    assert lines[0] == "node1: CPU 25% of 16 cores, load 2.00, memory 8.0 of 32.0 GiB"
    assert lines[2].split() == ["0", "RTX", "PRO", "6000", "85", "600", "90%", "48.0/96.0", "2100", "n/a", "-"]
    assert lines[1].index("WATTS") == lines[2].index("85") == lines[3].index("n/a")
    assert lines[-1] == "n/a power_watts: GPU is lost"


def test_without_gpus_the_table_says_why() -> None:
    assert table([], HOST, "no NVIDIA driver").splitlines()[1] == "GPUs: no NVIDIA driver"


def test_the_status_line_fits_a_status_bar() -> None:
    assert status_line(GPUS, HOST) == "W 85 - | util 90% | cpu 25% | mem 25%"
    assert status_line([], None) == "no sample yet"

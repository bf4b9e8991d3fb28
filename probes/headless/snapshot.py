"""One snapshot as text: a table for a person, a line for a status bar."""

from __future__ import annotations

from sessions.messages import GpuFrame, HostFrame

NO_VALUE = "n/a"


def table(gpus: list[GpuFrame], host: HostFrame, no_gpus: str | None) -> str:
    """Host and GPUs, a line each, aligned."""
    lines = [
        f"{host.host}: CPU {host.cpu_ratio:.0%} of {host.cores} cores, load {host.load:.2f}, "
        f"memory {_gib(host.memory_used_bytes)} of {_gib(host.memory_total_bytes)} GiB"
    ]
    if not gpus:
        return "\n".join([*lines, f"GPUs: {no_gpus or 'none'}"])
    rows: list[tuple[str, ...]] = [("GPU", "NAME", "WATTS", "CAP", "UTIL", "MEM GiB", "SM MHz", "C", "CLOCK HELD BY")]
    rows += [_row(frame) for frame in gpus]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    reasons = sorted({f"{field}: {why}" for frame in gpus for field, why in frame.unavailable.items()})
    return "\n".join([*lines, *(f"n/a {reason}" for reason in reasons)])


def status_line(gpus: list[GpuFrame], host: HostFrame | None) -> str:
    """Everything that fits one line: watts of each GPU, their mean utilisation, the host's CPU."""
    parts = []
    if gpus:
        parts.append("W " + " ".join(_number(frame.power_watts, ".0f", "-") for frame in gpus))
        used = [frame.utilization_ratio for frame in gpus if frame.utilization_ratio is not None]
        if used:
            parts.append(f"util {sum(used) / len(used):.0%}")
    if host is not None:
        parts.append(f"cpu {host.cpu_ratio:.0%}")
        parts.append(f"mem {host.memory_used_bytes / max(1, host.memory_total_bytes):.0%}")
    return " | ".join(parts) or "no sample yet"


def _row(frame: GpuFrame) -> tuple[str, ...]:
    memory = NO_VALUE
    if frame.memory_used_bytes is not None and frame.memory_total_bytes is not None:
        memory = f"{_gib(frame.memory_used_bytes)}/{_gib(frame.memory_total_bytes)}"
    return (
        str(frame.index),
        frame.name,
        _number(frame.power_watts, ".0f"),
        _number(frame.power_limit_watts, ".0f"),
        _number(frame.utilization_ratio, ".0%"),
        memory,
        _number(None if frame.sm_clock_hertz is None else frame.sm_clock_hertz / 1e6, ".0f"),
        _number(frame.temperature_celsius, ".0f"),
        ",".join(frame.clock_event_reasons) or "-",
    )


def _number(value: float | None, form: str, missing: str = NO_VALUE) -> str:
    return missing if value is None else format(value, form)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f}"

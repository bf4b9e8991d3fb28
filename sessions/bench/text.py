"""A benchmark result as text for a person."""

from __future__ import annotations

from collections.abc import Sequence

from sessions.results import BenchPoint, BenchResult

DEFINITIONS = """\
tok/s  output tokens a second over the measured window (after the warm-up, until the load begins to fall)
/user  tok/s divided by concurrency; scaling is that over its value at C=1
TTFT   from the instant a request was due to its first token; ITL: each gap between a stream's tokens
TPOT   (last token - first token) / (tokens - 1) of a request; e2e: from due to the last token
H      herd index of the slots' decode requests: 0 evenly staggered, 1 one herd; waves: equal groups they move in
busy   each stage's computing share of the window"""

_HEADINGS = (
    "load",
    "tok/s",
    "/user",
    "scaling",
    "TTFT p50/p99",
    "ITL p50/p99",
    "e2e p50",
    "H",
    "waves",
    "busy",
    "queue",
)


def summary(result: BenchResult) -> str:
    """The table of points, with what was measured above it."""
    engine, knobs = result.engine, result.knobs
    emulated = "EMULATED  " if result.emulated else ""
    lines = [
        f"{emulated}{engine.model}  {engine.dtype} on {engine.device}, pp {engine.pp}, ep {engine.ep}",
        f"async depth {knobs.async_depth}, admission {knobs.admission}, max micro-batch {knobs.max_micro_batch}, "
        f"CUDA graphs {'on' if knobs.cuda_graphs else 'off'}",
        result.workload.key,
        "",
        *table([_HEADINGS, *(_row(point) for point in result.points)]),
    ]
    for point in result.points:
        lines += [f"{_load(point)}: {what}: {why}" for what, why in point.why.items() if what != "energy_j_per_token"]
    return "\n".join(lines)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns padded to their widest cell; the first flush left, the others flush right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _load(point: BenchPoint) -> str:
    return f"C={point.concurrency}" if point.rate_per_s is None else f"{point.rate_per_s:g}/s"


def _row(point: BenchPoint) -> tuple[str, ...]:
    return (
        _load(point),
        number(point.output_tokens_per_s),
        number(point.tokens_per_s_per_stream),
        "-" if point.scaling_efficiency is None else f"{point.scaling_efficiency:.0%}",
        f"{number(point.ttft_ms.p50)}/{number(point.ttft_ms.p99)} ms",
        f"{number(point.itl_ms.p50)}/{number(point.itl_ms.p99)} ms",
        f"{number(point.e2e_ms.p50)} ms",
        "-" if point.herd_index is None else f"{point.herd_index:.2f}",
        "-" if point.waves is None else f"{point.waves:.2f}",
        ",".join(f"{share:.0%}" for share in point.occupancy) or "-",
        number(point.queue_depth),
    )


def number(value: float | None) -> str:
    """Four significant digits; a dash for None."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"

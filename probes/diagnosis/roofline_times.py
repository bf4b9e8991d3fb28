"""What the GPUs could do: a decode step's time by the roofline, where launching hides what it takes.

A stage that waits for launches shows how long the host takes, not the GPU. Where the kind of GPU and the model are
known, the roofline (docs/theory.md) tells about how long the GPU takes: not less than its bytes, seldom twice that.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.emulated.band import Band
from probes.diagnosis.evidence import Evidence

LEAST, MOST = 0.9, 2.0
"""How a stage's GPU time compares with the roofline's."""


def gpu_times(evidence: Evidence) -> Callable[[int, int], Band] | None:
    """Seconds that a stage's GPU works on a decode micro-batch (collectives left out: those are measured), by (stage,
    size); None where it cannot be known."""
    if evidence.model is None or not evidence.hardware or evidence.parallelism == "unknown":
        return None
    from engine.config import ConfigError  # what is not launch-bound needs no hardware profiles
    from engine.emulated.hardware import recognise, with_count
    from engine.emulated.model_profile import load_model
    from engine.emulated.roofline import Roofline, decode_work

    hardware = recognise(evidence.hardware)
    if hardware is None:
        return None
    pipelined = evidence.parallelism == "pp"
    ranks = evidence.stages if pipelined else len({span.rank for span in evidence.spans}) or 1
    bounds = [evidence.layers.get(stage) for stage in range(evidence.stages)]
    split = tuple(last - first for first, last in (bound for bound in bounds if bound is not None))
    try:
        roofline = Roofline(
            with_count(hardware, ranks),
            load_model(evidence.model.name),
            evidence.parallelism,
            ranks,
            split if pipelined and len(split) == ranks else "even",
        )
    except ConfigError:
        return None

    def seconds(stage: int, size: int) -> Band:
        gpu = max(roofline.stage_times(decode_work(size), graphs=True)[stage].own)
        return Band(LEAST * gpu, gpu, MOST * gpu)

    return seconds

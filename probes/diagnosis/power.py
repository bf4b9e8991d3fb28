"""Power that each GPU would draw with the requests evenly split at the best depth.

    expected = idle + (measured - idle) x busier,   busier = occupancy(best) / occupancy(now)

Above idle a GPU draws for its work, so power grows with the share of time in which its stage works (docs/emulation.md).
Both occupancies are replays of the measured stage times; idle watts are the hardware profile's. Where the GPU's kind is
not known, or it draws no more than idle, nothing is expected of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean

from engine.emulated.counterfactual import Measured, occupancy
from probes.diagnosis.evidence import Evidence, GpuPower
from sessions.messages import EngineState, GpuFrame


def gpu_powers(engine: EngineState | None, frames: Iterable[GpuFrame]) -> list[GpuPower]:
    """What each rank's GPU drew in the mean over `frames`. Frames of another host than the driver's, whose clock is
    another, are left out."""
    if engine is None:
        return []
    host = _host(engine.source)
    by_gpu: dict[str, list[GpuFrame]] = defaultdict(list)
    for frame in frames:
        if frame.power_watts is not None and _host(frame.source) == host:
            by_gpu[frame.uuid].append(frame)
    return [
        GpuPower(
            rank=rank.rank,
            stage=rank.stage,
            uuid=rank.gpu_uuid,
            name=own[-1].name,
            watts=fmean(frame.power_watts for frame in own if frame.power_watts is not None),
            limit_watts=own[-1].power_limit_watts,
        )
        for rank in engine.ranks
        if rank.gpu_uuid is not None and (own := by_gpu.get(rank.gpu_uuid))
    ]


def expected_watts(evidence: Evidence, now: Measured, best: Measured) -> dict[str, float]:
    """Watts by GPU (uuid); no more than when it always works, nor than its cap."""
    if not evidence.gpus:
        return {}
    from engine.emulated.hardware import recognise  # what has no GPU frames needs no hardware profiles

    before, after = occupancy(now), occupancy(best)
    worked = {rank.rank: rank.decomposition.compute for rank in evidence.ranks}
    found = {}
    for gpu in evidence.gpus:
        hardware = recognise(gpu.name)
        stage = gpu.stage if evidence.parallelism == "pp" else 0
        if hardware is None or gpu.watts <= hardware.idle_watts or not before[stage] or not worked.get(gpu.rank):
            continue
        busier = after[stage] / before[stage]
        most = gpu.limit_watts or hardware.limit_watts
        above = (gpu.watts - hardware.idle_watts) * min(busier, 1.0 / worked[gpu.rank])
        found[gpu.uuid] = min(most, hardware.idle_watts + above)
    return found


def _host(source: str) -> str:
    return source.split("/", 1)[0]

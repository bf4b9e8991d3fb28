"""Every hypothesis about a slow deployment, each in a module with its criteria (Pipeline theory, docs/theory.md)."""

from __future__ import annotations

from collections.abc import Callable

from probes.diagnosis.case import Case
from probes.diagnosis.hypotheses import (
    expert_imbalance,
    herd,
    host,
    interconnect,
    launch_overhead,
    shallow_depth,
    stage_imbalance,
    uneven_split,
)
from probes.diagnosis.verdict import Verdict

JUDGES: tuple[Callable[[Case], Verdict], ...] = (
    herd.judge,
    launch_overhead.judge,
    shallow_depth.judge,
    uneven_split.judge,
    stage_imbalance.judge,
    expert_imbalance.judge,
    interconnect.judge,
    host.judge,
)

"""Who a trace is of: rank, stage and engine, from labels, process names and file names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_PID_LABEL = re.compile(r"^\s*\[([A-Za-z0-9 _-]+)\]")
_COORDINATE = re.compile(r"(?<![A-Za-z])(TP|PP|EP|DP|R|rank)[-_ ]?(\d+)(?!\d)", re.IGNORECASE)
_TRAINER = re.compile(r"worker[-_]?(\d+)", re.IGNORECASE)


class Coordinates(NamedTuple):
    """Where a rank stands in the parallel layout; -1 where it is not told."""

    rank: int = -1
    tp: int = -1
    pp: int = -1
    ep: int = -1
    dp: int = -1

    def filled_from(self, other: Coordinates) -> Coordinates:
        """Take from `other` what is not told here."""
        return Coordinates(*(mine if mine >= 0 else theirs for mine, theirs in zip(self, other, strict=True)))


def pid_label(pid: object) -> str | None:
    """The label that a merged file puts before a process id (`[TP00-PP02] 4711`), or None."""
    found = _PID_LABEL.match(pid) if isinstance(pid, str) else None
    return found[1] if found else None


def coordinates(text: str) -> Coordinates:
    """Read `TP-0-PP-1`, `TP00-PP02`, `dp0_pp1_tp0_rank1`, `scheduler_PP0`, `graphs.pp1`, `R03`."""
    found: dict[str, int] = {}
    for name, number in _COORDINATE.findall(text):
        key = {"r": "rank"}.get(name.lower(), name.lower())
        found.setdefault(key, int(number))
    return Coordinates(**found)


def coordinates_of_file(path: str) -> Coordinates:
    """The same from a file's name; `worker3_step_12...` is rank 3."""
    name = Path(path).name
    found = coordinates(name)
    if found == Coordinates() and (trainer := _TRAINER.search(name)):
        return Coordinates(rank=int(trainer[1]))
    return found


def engine_of(process_names: Iterable[str], annotations: Iterable[str]) -> str:
    """sglang, vllm, herdscope or torch, from the names of processes and annotations."""
    processes = " ".join(process_names).lower()
    for engine in ("sglang", "vllm", "herdscope"):
        if engine in processes:
            return engine
    for name in annotations:
        if name.startswith("herdscope"):
            return "herdscope"
        if name.startswith("execute_context_"):
            return "vllm"
        if name.startswith(("step[", "scheduler.run_batch")):
            return "sglang"
    return "torch"

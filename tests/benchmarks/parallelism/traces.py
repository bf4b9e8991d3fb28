"""Torch-profiler traces of every rank under load, cut down to what a diagnosis reads."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path
from typing import Any

from sessions.messages import ProfileReply, ProfileRequest
from tests.benchmarks.parallelism.cells import Cell
from tests.benchmarks.parallelism.changes import loaded
from tests.benchmarks.parallelism.session import Session

MOST_BYTES = 400_000
PROFILE_S = 240.0
KEPT_CATEGORIES = {
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "cuda_runtime",
    "cuda_driver",
    "user_annotation",
    "gpu_user_annotation",
}
KEPT_ARGS = {"correlation", "stream", "device", "name", "labels", "sort_index", "External id", "graph id"}
COMM_ARGS = ("Collective name", "In msg nelems", "Group size", "Process Group", "Src Rank", "Dst Rank", "Seq", "dtype")


def record(session: Session, cell: Cell, steps: int, prompt: int, folder: Path) -> list[Path]:
    """Profile `steps` micro-batches of the cell's load; the cut traces, one a rank, lie under `folder`."""
    session.set_knobs(cell.knobs())
    with loaded(session, cell.concurrency, prompt, 4096):
        time.sleep(1.0)
        reply = session.channel.request(
            ProfileRequest(
                source=session.channel.source,
                t_ns=time.monotonic_ns(),
                id=f"profile-{time.monotonic_ns()}",
                steps=steps,
                folder=str(folder / "whole"),
            ),
            PROFILE_S,
        )
        session.target.cancel([])
    if not isinstance(reply, ProfileReply) or not reply.ok:
        raise RuntimeError(f"no profile: {reply.reason}")
    return [cut(Path(path), folder / f"rank{rank}.json.gz") for rank, path in enumerate(reply.traces)]


def cut(whole: Path, to: Path, most_bytes: int = MOST_BYTES) -> Path:
    """Write the trace without operators, flow events and unused arguments, and without its end if it is still larger
    than `most_bytes`."""
    data = whole.read_bytes()
    trace: dict[str, Any] = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    events = [
        _slim(event) for event in trace["traceEvents"] if event.get("ph") == "M" or event.get("cat") in KEPT_CATEGORIES
    ]
    named = [event for event in events if event.get("ph") == "M"]
    timed = sorted((event for event in events if event.get("ph") != "M"), key=lambda event: float(event["ts"]))
    to.parent.mkdir(parents=True, exist_ok=True)
    kept = len(timed)
    while True:
        trace["traceEvents"] = named + timed[:kept]
        packed = gzip.compress(json.dumps(trace, separators=(",", ":")).encode(), 9, mtime=0)
        if len(packed) <= most_bytes:
            to.write_bytes(packed)
            return to
        kept = int(kept * most_bytes / len(packed) * 0.95)


def _slim(event: dict[str, Any]) -> dict[str, Any]:
    kept = KEPT_ARGS.union(COMM_ARGS)
    return {**event, "args": {key: value for key, value in event.get("args", {}).items() if key in kept}}

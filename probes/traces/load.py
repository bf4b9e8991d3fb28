"""Loading the traces of one run: every file read, ranks told apart, clocks aligned, mistakes found."""

from __future__ import annotations

import gc
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from probes.traces.align import align, shifted
from probes.traces.events import TraceError, TraceFile, decode, read_file
from probes.traces.fold import fold
from probes.traces.match import Matching, match
from probes.traces.steps import Step, steps
from probes.traces.trace import UNKNOWN, RankTrace

_TAR = (".tar", ".tar.gz", ".tgz")
_TRACE_NAMES = ("*.json", "*.json.gz")
_MAX_RESIDUAL_NS = 1_000_000


@dataclass(frozen=True)
class TraceSet:
    """The ranks of one run on one clock, by rank, and the micro-batches of each. `notes`: what a reader must know.

    `residual` is the largest error (ns) left after alignment; None when nothing ties the ranks or there is only one.
    """

    ranks: list[RankTrace]
    steps: list[list[Step]]
    matching: Matching
    offsets: list[int | None]
    residual: int | None
    missing: list[int]
    notes: list[str]

    @property
    def engine(self) -> str:
        """Who made these traces: sglang, vllm, herdscope or torch."""
        return self.ranks[0].engine

    @property
    def stages(self) -> int:
        """Pipeline stages that the ranks name; 1 without pipeline parallelism."""
        return max(rank.stage for rank in self.ranks) + 1

    def stage_of(self, index: int) -> int:
        """The stage of the rank at `index`; where stages are not named, ranks are stages."""
        rank = self.ranks[index]
        return rank.stage if self.stages > 1 else rank.rank


def load(paths: Sequence[Path]) -> TraceSet:
    """Read the traces of one run (files, merged files, tar archives or folders); raise TraceError."""
    with _collector_paused():
        return _load(paths)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Millions of events hold no cycles: looking for some among them takes half the time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _load(paths: Sequence[Path]) -> TraceSet:
    ranks: list[RankTrace] = []
    notes: list[str] = []
    for name, file in _files(paths):
        found = fold(file, name)
        if not found:
            if file.cut:
                raise TraceError(f"{name}: cut off before any GPU event; copy or record it anew")
            raise TraceError(f"{name}: no GPU events; record with ProfilerActivity.CUDA")
        if file.cut:
            notes.append(f"{name}: cut off; what could be read ends {_length_ms(found):.0f} ms after it begins")
        if file.skipped:
            notes.append(f"{name}: {file.skipped} events of an unknown shape were left out")
        ranks += found
    if not ranks:
        raise TraceError(f"{paths[0]}: no trace files (.json or .json.gz) in there")
    ranks = _numbered(ranks)
    _refuse_mixed(ranks)
    matching = match(ranks)
    alignment = align(ranks, matching)
    offsets = _trusted(ranks, matching, alignment.offsets, alignment.residuals, notes)
    aligned = [shifted(rank, offset or 0) for rank, offset in zip(ranks, offsets, strict=True)]
    missing = _missing(aligned, notes)
    known = [r for r, o in zip(alignment.residuals[1:], offsets[1:], strict=True) if r is not None and o is not None]
    return TraceSet(
        aligned, [steps(rank) for rank in aligned], matching, offsets, max(known, default=None), missing, notes
    )


def _files(paths: Sequence[Path]) -> Iterator[tuple[str, TraceFile]]:
    for path in paths:
        if path.is_dir():
            inside = sorted(found for pattern in _TRACE_NAMES for found in path.glob(pattern))
            if not inside:
                raise TraceError(f"{path}: no trace files (.json or .json.gz) in this folder")
            for found in inside:
                yield str(found), read_file(found)
        elif path.name.endswith(_TAR):
            yield from _archived(path)
        else:
            yield str(path), read_file(path)


def _archived(path: Path) -> Iterator[tuple[str, TraceFile]]:
    import tarfile

    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith((".json", ".json.gz")):
                    content = archive.extractfile(member)
                    if content is not None:
                        yield f"{path}:{member.name}", decode(io.BytesIO(content.read()).getvalue(), member.name)
    except (tarfile.TarError, OSError, EOFError) as error:
        raise TraceError(f"{path}: cannot be unpacked ({error}); unpack it and give the files") from None


def _numbered(ranks: list[RankTrace]) -> list[RankTrace]:
    """Give ranks that no file names the numbers that are left, and sort by rank."""
    taken = {rank.rank for rank in ranks if rank.rank != UNKNOWN}
    free = iter(number for number in range(len(ranks) + len(taken)) if number not in taken)
    numbered = [replace(rank, rank=next(free)) if rank.rank == UNKNOWN else rank for rank in ranks]
    counts = Counter(rank.rank for rank in numbered)
    twice = next((number for number, count in counts.items() if count > 1), None)
    if twice is not None:
        both = [rank.source for rank in numbered if rank.rank == twice]
        raise TraceError(f"{both[0]} and {both[1]} are both of rank {twice}: two runs mixed; give the files of one run")
    return sorted(numbered, key=lambda rank: rank.rank)


def _refuse_mixed(ranks: list[RankTrace]) -> None:
    """Different world sizes or engines cannot be of one run."""
    first = ranks[0]
    for other in ranks[1:]:
        if first.world and other.world and first.world != other.world:
            raise TraceError(
                f"{first.source} is of {first.world} ranks, {other.source} of {other.world}: two runs mixed; "
                "give the files of one run"
            )
        if first.engine != other.engine:
            raise TraceError(
                f"{first.source} is of {first.engine}, {other.source} of {other.engine}: two runs mixed; "
                "give the files of one run"
            )


def _trusted(
    ranks: list[RankTrace],
    matching: Matching,
    offsets: list[int | None],
    residuals: list[int | None],
    notes: list[str],
) -> list[int | None]:
    """Offsets that may be applied. A set whose communication does not fit is refused, or kept on its own clocks."""
    if len(ranks) == 1:
        return offsets
    whole = len(ranks) == max((rank.world for rank in ranks), default=0)
    trusted: list[int | None] = [0]
    for i in range(1, len(ranks)):
        offset, residual = offsets[i], residuals[i]
        fits = offset is not None and residual is not None and residual <= _MAX_RESIDUAL_NS
        if fits:
            trusted.append(offset)
            continue
        apart = _apart(ranks[0], ranks[i])
        at_odds = offset is not None or (i in matching.disagreeing and 0 in matching.disagreeing)
        cut = ranks[0].cut or ranks[i].cut
        if not cut and (apart or (whole and at_odds)):
            raise TraceError(
                f"{ranks[0].source} and {ranks[i].source}: their communication does not fit together"
                f"{' and they share no moment' if apart else ''}: two runs mixed; give the files of one run"
            )
        notes.append(
            f"rank {ranks[i].rank} could not be aligned with rank {ranks[0].rank} (no communication of both fits): "
            "their own clocks are used"
        )
        trusted.append(None)
    return trusted


def _apart(a: RankTrace, b: RankTrace) -> bool:
    return a.span[1] < b.span[0] or b.span[1] < a.span[0]


def _missing(ranks: list[RankTrace], notes: list[str]) -> list[int]:
    world = max((rank.world for rank in ranks), default=0)
    present = {rank.rank for rank in ranks}
    missing = [number for number in range(world) if number not in present]
    if missing:
        shown = ", ".join(map(str, missing[:8])) + (", ..." if len(missing) > 8 else "")
        notes.append(
            f"{len(missing)} of {world} ranks missing ({shown}): waiting and transfer cannot be told apart for "
            "communication with them; give every rank's file"
        )
    return missing


def _length_ms(ranks: list[RankTrace]) -> float:
    return max(rank.span[1] - rank.span[0] for rank in ranks) / 1e6

"""Benchmark runs to look at and compare: those of this session, and those kept before; marked in order."""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from sessions.results import BenchResult
from tui.console.session.bench_runner import saved_results
from tui.console.store.store import Store

MOST_MARKED = 4


class Run(msgspec.Struct, frozen=True):
    """A finished run, and where it is kept (None: only in this session)."""

    result: BenchResult
    path: Path | None = None


class Runs:
    """The newest first. The first mark is the base that the others are compared with."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.marked: list[str] = []
        self._store = store
        self._folder = folder
        self._kept: list[Run] = []

    @property
    def key(self) -> tuple[object, ...]:
        """Changes with everything below."""
        return (self._store.bench.version, len(self._kept), tuple(self.marked))

    def load_kept(self) -> None:
        """Read the kept results anew; files that are not results are passed over."""
        from sessions.bench.files import read_result

        kept = []
        for path in saved_results(self._folder):
            with contextlib.suppress(OSError, ValueError):
                kept.append(Run(read_result(path), path))
        self._kept = kept

    def all(self) -> list[Run]:
        """Every run once."""
        here = [Run(result) for result in reversed(self._store.bench.results.values())]
        names = {run.result.run for run in here}
        return here + [run for run in self._kept if run.result.run not in names]

    def mark(self, run: str) -> None:
        """Mark a run, or take its mark away; past the most that fit, the last mark moves."""
        if run in self.marked:
            self.marked.remove(run)
        else:
            self.marked = [*self.marked[: MOST_MARKED - 1], run]

    def chosen(self) -> list[BenchResult]:
        """The marked runs in order; without two marks the newest two, the older one first."""
        results = {run.result.run: run.result for run in self.all()}
        marked = [results[name] for name in self.marked if name in results]
        if len(marked) >= 2:
            return marked
        newest = list(results.values())
        if marked:
            return marked
        return newest[:2][::-1]

    def letter(self, result: BenchResult) -> str:
        """A, B, ... of a chosen run, else a blank."""
        for letter, chosen in zip("ABCD", self.chosen(), strict=False):
            if chosen.run == result.run:
                return letter
        return " "

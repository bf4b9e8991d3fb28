"""What is asked of an engine, and the generator that asks it."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec

from sessions.load.arrivals import bursty_gaps, poisson_gaps
from sessions.load.generators import ClosedLoop, Generator, OpenLoop, Replay
from sessions.load.lengths import Lengths
from sessions.load.mooncake import Scaling, read_trace, trace_requests
from sessions.load.prompts import random_requests, text_requests
from sessions.load.rate import Rate
from sessions.messages import RequestSpec
from sessions.results import WorkloadSummary

PromptSource = Literal["random", "text", "mooncake"]
DEFAULT_REQUESTS_PER_STREAM = 4


class LoadPoint(msgspec.Struct, frozen=True):
    """One load to measure: a closed loop of `concurrency`, else arrivals at `rate` a second, else a trace's own."""

    concurrency: int | None = None
    rate: float | None = None

    def __str__(self) -> str:
        if self.concurrency is not None:
            return f"C={self.concurrency}"
        return "trace" if self.rate is None else f"{self.rate:g}/s"


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that decides which requests are sent.

    requests: measured requests a point; 0 means 4 a stream (and 64 where arrivals are open). warmup: requests before
    the measured window; None means one a stream. variation: coefficient of variation of the gaps between open
    arrivals (1 is Poisson). ramp_s: seconds in which the load grows to its point. limit: rows of a trace to replay
    (0: all).
    """

    source: PromptSource = "random"
    file: str = ""
    prompt_tokens: Lengths = Lengths(32, 32)
    output_tokens: Lengths = Lengths(64, 64)
    requests: int = 0
    warmup: int | None = None
    variation: float = 1.0
    ramp_s: float = 0.0
    scaling: Scaling = Scaling()
    limit: int = 0
    seed: int = 0

    def requests_at(self, point: LoadPoint) -> int:
        """Measured requests of a point."""
        return self.requests or DEFAULT_REQUESTS_PER_STREAM * (point.concurrency or 16)

    def warmup_at(self, point: LoadPoint) -> int:
        """Requests before the measured window of a point; a trace is measured from its first request."""
        if self.source == "mooncake":
            return 0
        return (point.concurrency or 4) if self.warmup is None else self.warmup

    def bounded(self, point: LoadPoint, run: str, vocab: int, start_ns: int) -> Generator:
        """The generator of one benchmark point: it ends after the warm-up and the measured requests."""
        total = self.warmup_at(point) + self.requests_at(point)
        return self._generator(point, itertools.islice(self.stream(run, vocab), total), run, vocab, start_ns)

    def endless(self, point: LoadPoint, run: str, vocab: int, start_ns: int) -> Generator:
        """The generator of a load that runs until it is stopped (a trace ends with its last row)."""
        return self._generator(point, self.stream(run, vocab), run, vocab, start_ns)

    def _generator(
        self, point: LoadPoint, requests: Iterator[RequestSpec], run: str, vocab: int, start_ns: int
    ) -> Generator:
        if self.source == "mooncake":
            return Replay(self._trace(run, vocab), start_ns)
        if point.rate is None:
            concurrency = 1 if point.concurrency is None else point.concurrency
            return ClosedLoop(requests, concurrency, start_ns, self.ramp_s)
        gaps = poisson_gaps(self.seed) if self.variation == 1.0 else bursty_gaps(self.seed, self.variation)
        ramp = Rate(start_ns, 0.0, point.rate, self.ramp_s) if self.ramp_s else Rate(start_ns, point.rate)
        return OpenLoop(requests, gaps, ramp)

    def stream(self, run: str, vocab: int) -> Iterator[RequestSpec]:
        """Endless requests of this workload, whatever their arrivals."""
        if self.source == "text":
            return text_requests(run, Path(self.file), self.output_tokens, self.seed)
        return random_requests(run, vocab, self.prompt_tokens, self.output_tokens, self.seed)

    def _trace(self, run: str, vocab: int) -> Iterator[tuple[int, RequestSpec]]:
        rows = read_trace(Path(self.file))
        return trace_requests(run, rows[: self.limit or None], vocab, self.scaling, self.seed)

    def summary(self, points: list[LoadPoint]) -> WorkloadSummary:
        """The workload as a result keeps it."""
        prompts, outputs = self._lengths()
        per_stream = DEFAULT_REQUESTS_PER_STREAM if not self.requests and self.source != "mooncake" else 0
        return WorkloadSummary(
            key=self._key(points),
            arrivals=self._arrivals(points),
            prompt_tokens=prompts,
            output_tokens=outputs,
            requests_per_point=self.requests,
            requests_per_stream=per_stream,
            concurrencies=[p.concurrency for p in points if p.concurrency is not None],
            rates_per_s=[p.rate for p in points if p.rate is not None],
            seed=self.seed,
        )

    def describe(self, points: list[LoadPoint]) -> str:
        """Words for the requests and their arrivals, but not for the points or how many requests each has."""
        prompts, outputs = self._lengths()
        ramp = f"ramp {self.ramp_s:g} s; " if self.ramp_s else ""
        return f"{self._arrivals(points)}; prompts of {prompts}; outputs of {outputs}; {ramp}seed {self.seed}"

    def _key(self, points: list[LoadPoint]) -> str:
        """Words for all that was asked, but not which points: those are matched one by one."""
        count = f"{self.requests} requests" if self.requests else f"{DEFAULT_REQUESTS_PER_STREAM} requests a stream"
        warmup = "1 a stream" if self.warmup is None else str(self.warmup)
        if self.source == "mooncake":
            count, warmup = (f"first {self.limit} requests" if self.limit else "all requests"), "0"
        return f"{self.describe(points)}; {count}; warm-up {warmup}"

    def _arrivals(self, points: list[LoadPoint]) -> str:
        if self.source == "mooncake":
            return f"trace at {self.scaling.speed:g}x"
        if any(p.rate is not None for p in points):
            return "Poisson" if self.variation == 1.0 else f"gamma, cv {self.variation:g}"
        return "closed loop"

    def _lengths(self) -> tuple[str, str]:
        if self.source == "mooncake":
            of = f"{Path(self.file).name} {_digest(self.file)} x{self.scaling.length_scale:g}"
            return (
                f"{of}, at most {self.scaling.prompt_cap or 'any'}",
                f"{of}, at most {self.scaling.output_cap or 'any'}",
            )
        if self.source == "text":
            return f"lines of {Path(self.file).name} {_digest(self.file)}", str(self.output_tokens)
        return f"{self.prompt_tokens} random tokens", str(self.output_tokens)


def _digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12]

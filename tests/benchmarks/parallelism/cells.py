"""One cell of the table: a setting of the knobs at one concurrency, its benchmark point and the verdicts on it."""

from __future__ import annotations

import msgspec

from probes.diagnosis.live import LiveDiagnoser
from sessions.bench.runner import run_bench
from sessions.knobs import Admission, Knobs, Parallelism
from sessions.load.lengths import Lengths
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import EngineState, KnobState, QueueFrame, StageFrame, VerdictOn
from sessions.results import BenchPoint
from tests.benchmarks.parallelism.session import Session

WARM_UP_TOKENS = 10


class Cell(msgspec.Struct, frozen=True):
    """What is asked."""

    parallelism: Parallelism
    cuda_graphs: bool
    admission: Admission
    async_depth: int
    concurrency: int

    def knobs(self) -> Knobs:
        """The setting of the engine's knobs."""
        return Knobs(
            async_depth=self.async_depth,
            admission=self.admission,
            cuda_graphs=self.cuda_graphs,
            parallelism=self.parallelism,
        )


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What came: medians over repetitions; itl_ms each gap between a stream's tokens, tpot_ms a request's mean gap."""

    cell: Cell
    itl_ms: float
    tpot_ms: float | None
    ttft_ms: float | None
    output_tokens_per_s: float
    herd_index: float | None
    waves: float | None
    occupancy: list[float]
    power_w: list[float | None] | None
    itl_ms_each: list[float]
    holds: list[VerdictOn] = []
    expected_tokens_per_s: float | None = None


def measure(session: Session, cell: Cell, prompt: int, output: int, repeat: int, diagnosed: bool = False) -> Measured:
    """Closed batches of C requests at once: one short one to warm up (which captures the graphs), then `repeat`."""
    session.set_knobs(cell.knobs())
    point = LoadPoint(concurrency=cell.concurrency)
    _batch(session, point, prompt, WARM_UP_TOKENS, 1)
    heard = session.channel.subscribe((EngineState, KnobState, QueueFrame, StageFrame), capacity=65536)
    try:
        measured = _batch(session, point, prompt, output, repeat)
        diagnoser = LiveDiagnoser("table")
        last_ns = 0
        for message in heard.drain():
            if isinstance(message, QueueFrame) and message.running < cell.concurrency:
                continue  # between the batches
            diagnoser.feed(message)
            last_ns = max(last_ns, message.t_ns)
    finally:
        heard.close()
    verdicts = diagnoser.verdicts(last_ns) if diagnosed else None
    if measured.itl_ms.p50 is None:
        raise RuntimeError(f"no gaps between tokens were seen at {cell}")
    return Measured(
        cell=cell,
        itl_ms=measured.itl_ms.p50,
        tpot_ms=measured.tpot_ms.p50,
        ttft_ms=measured.ttft_ms.p50,
        output_tokens_per_s=measured.output_tokens_per_s,
        herd_index=measured.herd_index,
        waves=measured.waves,
        occupancy=measured.occupancy,
        power_w=measured.power_w,
        itl_ms_each=measured.samples.get("itl_ms_p50", []),
        holds=[verdict for verdict in verdicts.verdicts if verdict.verdict == "holds"] if verdicts else [],
        expected_tokens_per_s=verdicts.expected_tokens_per_s.mid
        if verdicts and verdicts.expected_tokens_per_s
        else None,
    )


def _batch(session: Session, point: LoadPoint, prompt: int, output: int, repeat: int) -> BenchPoint:
    workload = Workload(
        prompt_tokens=Lengths(prompt, prompt),
        output_tokens=Lengths(output, output),
        requests=point.concurrency or 1,
        warmup=0,
    )
    return run_bench(session.target, workload, [point], repeat=repeat).points[0]


class Prediction(msgspec.Struct, frozen=True):
    """A gain that was predicted for turning one knob, and what turning it gave: decode steps' rate over their rate."""

    cell: Cell
    hypothesis: str
    knob: str
    value: object
    low: float
    mid: float
    high: float
    got: float

    @property
    def within(self) -> bool:
        """Whether it came as predicted."""
        return self.low <= self.got <= self.high


def predictions(measured: list[Measured]) -> list[Prediction]:
    """Every predicted gain whose cure is another measured cell."""
    by_cell = {each.cell: each for each in measured}
    found = []
    for each in measured:
        for verdict in each.holds:
            if verdict.knob is None or verdict.gain is None or verdict.knob not in Cell.__struct_fields__:
                continue
            cured = by_cell.get(msgspec.structs.replace(each.cell, **{verdict.knob: verdict.value}))
            if cured is not None:
                gain, got = verdict.gain, each.itl_ms / cured.itl_ms
                found.append(
                    Prediction(
                        each.cell, verdict.hypothesis, verdict.knob, verdict.value, gain.low, gain.mid, gain.high, got
                    )
                )
    return found


def table(measured: list[Measured]) -> str:
    """One row a cell."""
    head = f"{'':<4}{'graphs':<7}{'admission':<11}{'depth':>5}{'C':>5}{'ITL ms':>9}{'TPOT':>8}{'tok/s':>8}{'H':>6}"
    rows = [f"{head}{'waves':>7}  occupancy, watts"]
    for each in measured:
        cell = each.cell
        occupancy = " ".join(f"{share:.2f}" for share in each.occupancy)
        watts = " ".join("-" if watt is None else f"{watt:.0f}" for watt in each.power_w or [])
        rows.append(
            f"{cell.parallelism:<4}{'on' if cell.cuda_graphs else 'off':<7}{cell.admission:<11}{cell.async_depth:>5}"
            f"{cell.concurrency:>5}{each.itl_ms:>9.2f}{each.tpot_ms:>8.2f}{each.output_tokens_per_s:>8.0f}"
            f"{_number(each.herd_index):>6}{_number(each.waves):>7}  {occupancy}  {watts}"
        )
    return "\n".join(rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"

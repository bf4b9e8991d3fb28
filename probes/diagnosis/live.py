"""The diagnosis kept up to date from the messages of a running session."""

from __future__ import annotations

from collections import deque

from engine.emulated.band import Band
from probes.diagnosis.diagnose import Diagnosis, diagnose
from probes.diagnosis.from_messages import Gathered, evidence_from_messages
from probes.diagnosis.report import headline
from probes.diagnosis.score import Score, score
from probes.diagnosis.verdict import Verdict
from sessions.knobs import Knobs
from sessions.messages import (
    EngineState,
    Estimate,
    GpuFrame,
    Jumped,
    KnobState,
    Marker,
    Message,
    QueueFrame,
    StageFrame,
    VerdictOn,
    Verdicts,
)

WINDOW_NS = 4_000_000_000
"""How far back the evidence reaches, at most to the last change of a knob or a load."""
SETTLE_NS = 300_000_000
"""After a knob change the pipeline still holds micro-batches of before."""
LEAST_NS = 800_000_000
"""Evidence of less time is not judged."""
MOST_FRAMES = 2048


class LiveDiagnoser:
    """Feed it every message; ask for `verdicts` every second or two, in a thread: it may take some tenths of a second.

    Knob changes start the evidence afresh, and the prediction made for the knob that was turned is scored once there
    is enough evidence again. After a jump of a replay nothing that came before counts. One thread feeds, and one (the
    same or another) asks, never both at once.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._engine: EngineState | None = None
        self._knobs: KnobState | None = None
        self._frames: deque[StageFrame] = deque(maxlen=MOST_FRAMES)
        self._queues: deque[QueueFrame] = deque(maxlen=MOST_FRAMES)
        self._gpus: deque[GpuFrame] = deque(maxlen=MOST_FRAMES)
        self._begun_ns = 0
        self._last: tuple[Diagnosis, Knobs] | None = None
        self._before: tuple[Diagnosis, Knobs] | None = None
        self._scored: Score | None = None
        self._named: str | None = None

    def feed(self, message: Message) -> None:
        """Take in one message; kinds that tell nothing are ignored."""
        if isinstance(message, StageFrame):
            if message.t_ns >= self._begun_ns:
                self._frames.append(message)
        elif isinstance(message, QueueFrame):
            if message.t_ns >= self._begun_ns:
                self._queues.append(message)
        elif isinstance(message, GpuFrame):
            if message.t_ns >= self._begun_ns:
                self._gpus.append(message)
        elif isinstance(message, KnobState):
            self._turned(message)
        elif isinstance(message, EngineState):
            if message.phase != "ready" or self._engine is None or message.ranks != self._engine.ranks:
                self._restart(message.t_ns)
            self._engine = message
        elif isinstance(message, Jumped):
            self._engine = self._knobs = self._last = self._before = self._scored = None
            self._restart(0)

    def gathered(self, now_ns: int) -> Gathered | None:
        """The messages of the last few seconds; None while there is too little to judge."""
        self._forget(now_ns - WINDOW_NS)
        if len(self._queues) < 2 or self._queues[-1].t_ns - self._queues[0].t_ns < LEAST_NS:
            return None
        if self._queues[-1].running == 0:
            return None
        return Gathered(
            engine=self._engine,
            knobs=self._knobs,
            stage_frames=list(self._frames),
            queue_frames=list(self._queues),
            gpu_frames=list(self._gpus),
        )

    def verdicts(self, now_ns: int) -> Verdicts | None:
        """The diagnosis of the last few seconds; None while there is too little to judge."""
        gathered = self.gathered(now_ns)
        if gathered is None:
            return None
        found = diagnose(evidence_from_messages(gathered))
        if self._knobs is not None:
            self._score(found, self._knobs.knobs)
            self._last = (found, self._knobs.knobs)
        return verdicts_message(found, self._source, now_ns, str(self._scored) if self._scored else "")

    def change(self, verdicts: Verdicts) -> Marker | None:
        """A mark for the time line when the set of causes has changed since the last call."""
        causes = ", ".join(verdict.hypothesis for verdict in verdicts.verdicts if verdict.verdict == "holds")
        if causes == self._named:
            return None
        self._named = causes
        return Marker(source=self._source, t_ns=verdicts.t_ns, category="verdict", text=verdicts.headline)

    def _turned(self, state: KnobState) -> None:
        changed = self._knobs is not None and state.knobs != self._knobs.knobs
        self._knobs = state
        if changed:
            self._before, self._last, self._scored = self._last, None, None
            self._restart(state.t_ns)

    def _restart(self, t_ns: int) -> None:
        """Take only frames from when what changed at `t_ns` has settled."""
        self._frames.clear()
        self._queues.clear()
        self._gpus.clear()
        self._begun_ns = t_ns + SETTLE_NS

    def _forget(self, until_ns: int) -> None:
        for frames in (self._frames, self._queues, self._gpus):
            while frames and frames[0].t_ns < until_ns:
                frames.popleft()

    def _score(self, found: Diagnosis, knobs: Knobs) -> None:
        if self._before is not None:
            earlier, old = self._before
            self._scored = score(earlier, found, old, knobs)


def verdicts_message(diagnosis: Diagnosis, source: str, t_ns: int, scored: str = "") -> Verdicts:
    """A diagnosis as the message that carries it."""
    herd = diagnosis.herd
    return Verdicts(
        source=source,
        t_ns=t_ns,
        headline=headline(diagnosis),
        verdicts=[_verdict(verdict, diagnosis.evidence.engine) for verdict in diagnosis.verdicts],
        measured_tokens_per_s=diagnosis.measured_tokens_per_s,
        expected_tokens_per_s=_estimate(diagnosis.expected_tokens_per_s),
        herd_index=herd.H,
        waves=herd.waves,
        lock_step=herd.L,
        utilisation=herd.U,
        concurrency=herd.concurrency,
        why=herd.why,
        scored=scored,
        emulated=diagnosis.evidence.emulated,
        expected_watts=diagnosis.expected_watts,
    )


def _verdict(verdict: Verdict, engine: str) -> VerdictOn:
    missing = [f"missing: {verdict.missing}"] if verdict.missing else []
    return VerdictOn(
        hypothesis=verdict.hypothesis,
        verdict=verdict.verdict,
        gain=_estimate(verdict.gain),
        evidence=[*verdict.supports, *(f"but {line}" for line in verdict.contradicts), *missing],
        fix=verdict.fix.for_engine(engine),
        knob=verdict.knob,
        value=verdict.value,
    )


def _estimate(band: Band | None) -> Estimate | None:
    return None if band is None else Estimate(band.low, band.mid, band.high)

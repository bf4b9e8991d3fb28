"""Measured rates and stage times that a hardware profile can be compared with and fitted to."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median

import msgspec

from engine.config import ConfigError
from engine.emulated.hardware import Hardware
from engine.emulated.model_profile import ModelProfile
from engine.emulated.predict import predict
from engine.emulated.roofline import Roofline, Sharding, Split, decode_work
from sessions.knobs import Knobs
from sessions.messages import EngineState, StageFrame
from sessions.results import BenchResult


class RateObservation(msgspec.Struct, frozen=True, kw_only=True):
    """Output tokens a second at a concurrency in closed loop, of `ranks` GPUs sharded one way."""

    concurrency: int
    tokens_per_s: float
    knobs: Knobs
    sharding: Sharding = "pp"
    ranks: int = 1
    context: int = 256
    split: Split = "even"

    @property
    def graphs(self) -> bool:
        return self.knobs.cuda_graphs

    @property
    def value(self) -> float:
        return self.tokens_per_s

    def predicted(self, hardware: Hardware, model: ModelProfile) -> float:
        """What the roofline says for it."""
        roofline = Roofline(hardware, model, self.sharding, self.ranks, self.split)
        return predict(roofline, self.knobs, self.concurrency, self.context).tokens_per_s

    def __str__(self) -> str:
        how = "graphs" if self.graphs else "eager"
        return f"{self.sharding}{self.ranks} {how} C={self.concurrency}"


class StageObservation(msgspec.Struct, frozen=True, kw_only=True):
    """Median seconds of a decode micro-batch on one stage, from spans."""

    stage: int
    decode: int
    seconds: float
    graphs: bool
    ranks: int
    context: int = 256
    split: Split = "even"

    @property
    def value(self) -> float:
        return self.seconds

    def predicted(self, hardware: Hardware, model: ModelProfile) -> float:
        """What the roofline says for it."""
        roofline = Roofline(hardware, model, "pp", self.ranks, self.split)
        return roofline.stage_times(decode_work(self.decode, self.context), self.graphs)[self.stage].stage

    def __str__(self) -> str:
        return f"stage {self.stage} of {self.ranks} {'graphs' if self.graphs else 'eager'} b={self.decode}"


Observation = RateObservation | StageObservation

LEAST_SPANS = 3
"""Fewest micro-batches that a stage's median is taken over."""


def stage_observations(frames: Iterable[StageFrame], engine: EngineState) -> list[StageObservation]:
    """Median times of pure decode micro-batches by stage, size and CUDA graphs, from a pipeline's spans.

    Raise ConfigError when the engine is no pipeline (under expert parallelism a span ends with its rank's own work) or
    no size was seen often enough.
    """
    if engine.stages != len(engine.ranks):
        raise ConfigError(
            f"calibrate: spans of {len(engine.ranks)} ranks in {engine.stages} stages: a pipeline is needed"
        )
    times: dict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for frame in frames:
        for span in frame.spans:
            if span.decode and not span.prefill_tokens:
                times[frame.stage, span.decode, span.graph].append(span.end - span.start)
    layers = tuple(rank.last_layer - rank.first_layer for rank in sorted(engine.ranks, key=lambda rank: rank.stage))
    found = [
        StageObservation(
            stage=stage, decode=size, seconds=median(seen) / 1e9, graphs=graph, ranks=engine.stages, split=layers
        )
        for (stage, size, graph), seen in sorted(times.items())
        if len(seen) >= LEAST_SPANS and median(seen) > 0
    ]
    if not found:
        raise ConfigError(f"calibrate: no micro-batch size was seen {LEAST_SPANS} times in pure decode")
    return found


def read_observations(path: Path, ranks: int, sharding: Sharding = "pp") -> list[Observation]:
    """Stage times of a recording (*.herd), or rates from a benchmark result (JSON) or a table of `C tok/s [on|off]`.

    The table's third word is CUDA graphs (on, where it is left out); its rates are those of one micro-batch of all
    requests. `ranks` and `sharding` are the table's; a result brings its own. Raise ConfigError naming file and line.
    """
    if path.suffix == ".herd":
        return [*_of_recording(path)]
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"calibrate: cannot read {path}: {error.strerror}") from None
    if data.lstrip().startswith(b"{"):
        return [*_of_result(path, data)]
    found: list[Observation] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        words = [w for w in re.split(r"[\s,|;]+", line.split("#")[0]) if w]
        if words:
            found.append(_of_line(path, number, words, ranks, sharding))
    if not found:
        raise ConfigError(f"calibrate: {path} has no line such as `8 95.6 off` (C, tok/s, graphs)")
    return found


def _of_recording(path: Path) -> list[StageObservation]:
    from sessions.recording.reader import Recording

    with Recording(path) as recording:
        frames: list[StageFrame] = []
        engine: EngineState | None = None
        for record in recording.records(kinds=[EngineState, StageFrame]):
            if isinstance(record.message, StageFrame):
                frames.append(record.message)
            elif isinstance(record.message, EngineState) and record.message.model is not None:
                engine = record.message
    if engine is None:
        raise ConfigError(f"calibrate: {path} does not say which engine it recorded")
    return stage_observations(frames, engine)


def _of_line(path: Path, number: int, words: list[str], ranks: int, sharding: Sharding) -> RateObservation:
    try:
        concurrency, rate = int(words[0]), float(words[1])
        graphs = {"on": True, "off": False}[words[2]] if len(words) > 2 else True
        if concurrency < 1 or not 0 < rate < float("inf"):
            raise ValueError
    except (ValueError, IndexError, KeyError):
        raise ConfigError(
            f"calibrate: {path} line {number}: need `C tok/s [on|off]`, not {' '.join(words)!r}"
        ) from None
    knobs = Knobs(async_depth=1, max_micro_batch=max(concurrency, 1), cuda_graphs=graphs)
    return RateObservation(concurrency=concurrency, tokens_per_s=rate, knobs=knobs, ranks=ranks, sharding=sharding)


def _of_result(path: Path, data: bytes) -> list[RateObservation]:
    """Rates of steady decode, by the median gap between tokens: a benchmark's output rate has its prefill in it."""
    try:
        result = msgspec.json.decode(data, type=BenchResult)
    except msgspec.DecodeError as error:
        raise ConfigError(f"calibrate: {path} is no benchmark result: {error}") from None
    sharding: Sharding = "ep" if result.knobs.parallelism == "ep" else "pp"
    layers = tuple(last - first for first, last in result.engine.layers)
    pp = result.engine.pp
    room = result.knobs.async_depth * result.knobs.max_micro_batch
    return [
        RateObservation(
            concurrency=point.concurrency,
            tokens_per_s=1e3 * min(point.concurrency, room) / point.itl_ms.p50,
            knobs=result.knobs,
            sharding=sharding,
            ranks=result.engine.ep if sharding == "ep" else pp,
            split=layers if sharding == "pp" and len(layers) == pp else "even",
        )
        for point in result.points
        if point.concurrency and point.rate_per_s is None and point.itl_ms.p50
    ]

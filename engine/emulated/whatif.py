"""What-if sweeps: every combination of knobs, sharding, GPUs and concurrency, each run by the real scheduler on the
emulated cluster in virtual time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import msgspec

from engine.config import MAX_RUNNING, ConfigError, EngineConfig
from engine.emulated.band import Band, around
from engine.emulated.cluster import Cluster, shortage_bytes
from engine.emulated.hardware import Hardware, with_count
from engine.emulated.model_profile import ModelProfile
from engine.emulated.predict import predict
from engine.emulated.roofline import Split
from engine.emulated.target import VirtualTarget
from sessions.bench.percentiles import quantile
from sessions.bench.runner import measure_point
from sessions.bench.sample import Sample
from sessions.knobs import Admission, Knobs, Parallelism
from sessions.load.workload import LoadPoint, Workload


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """The values to combine. `ranks` GPUs make one engine; `gpus` in all make gpus / ranks equal engines that share the
    concurrency. async_depth 0 stands for one micro-batch a rank under pp and one in all under ep."""

    gpus: tuple[int, ...]
    ranks: tuple[int, ...]
    parallelism: tuple[Parallelism, ...] = ("pp",)
    async_depth: tuple[int, ...] = (0,)
    admission: tuple[Admission, ...] = ("greedy",)
    max_micro_batch: tuple[int, ...] = (256,)
    cuda_graphs: tuple[bool, ...] = (True,)
    concurrency: tuple[int, ...] = (1, 8, 32)

    def settings(self) -> Iterator[Setting]:
        """Every combination that is possible, concurrency varying fastest. Raise ConfigError when none is."""
        found = 0
        for gpus, ranks, sharding, depth, admission, cap, graphs, concurrency in itertools.product(
            self.gpus,
            self.ranks,
            self.parallelism,
            self.async_depth,
            self.admission,
            self.max_micro_batch,
            self.cuda_graphs,
            self.concurrency,
        ):
            if gpus % ranks:
                continue
            found += 1
            depth = depth or (ranks if sharding == "pp" else 1)
            knobs = Knobs(depth, admission, cap, graphs, sharding)
            yield Setting(gpus=gpus, ranks=ranks, knobs=knobs, concurrency=concurrency)
        if not found:
            raise ConfigError(f"gpus: none of {_words(self.gpus)} is a multiple of {_words(self.ranks)} ranks")


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One combination."""

    gpus: int
    ranks: int
    knobs: Knobs
    concurrency: int

    @property
    def engines(self) -> int:
        return self.gpus // self.ranks


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """What a setting gives. EMULATED.

    tokens_per_s: measured in virtual time over whole requests, prefill included, with the band of the profile's error.
    theory_tokens_per_s: steady decode by the max-plus recursion alone. occupancy, watts: means over stages and GPUs.
    short_bytes: what each GPU lacks for the weights (0: they fit).
    """

    setting: Setting
    tokens_per_s: Band
    theory_tokens_per_s: float
    tokens_per_s_per_gpu: float
    tokens_per_s_per_user: float
    itl_ms: float | None
    ttft_ms: float | None
    herd_index: float | None
    waves: float | None
    occupancy: float | None
    watts: float | None
    joules_per_token: float | None
    short_bytes: float = 0.0
    emulated: bool = True


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """What all rows share. `band`: share that predictions may be off by."""

    hardware: Hardware
    model: ModelProfile
    workload: Workload
    band: float
    split: Split = "even"

    def run(self, settings: Sequence[Setting], report: Callable[[int], None] = lambda done: None) -> list[Row]:
        """One row a setting, in their order; `report` is told how many are done. Raise ConfigError."""
        rows = []
        for done, setting in enumerate(settings, 1):
            rows.append(self._row(setting))
            report(done)
        return rows

    def _row(self, setting: Setting) -> Row:
        share, left = divmod(setting.concurrency, setting.engines)
        parts = [(n, size) for n, size in ((left, share + 1), (setting.engines - left, share)) if n and size]
        samples = [(n, size, self._measure(setting, size)) for n, size in parts]
        rate = sum(n * sample.output_tokens_per_s for n, _, sample in samples)
        roofline = self._cluster(setting).roofline(setting.knobs.parallelism)
        theory = sum(n * predict(roofline, setting.knobs, size, self._context()).tokens_per_s for n, size, _ in samples)
        main = samples[0][2]
        idle = setting.engines - sum(n for n, _, _ in samples)
        watts = self._watts(samples, setting, idle)
        return Row(
            setting=setting,
            tokens_per_s=around(rate, self.band),
            theory_tokens_per_s=theory,
            tokens_per_s_per_gpu=rate / setting.gpus,
            tokens_per_s_per_user=rate / setting.concurrency,
            itl_ms=_median(main.itl_ms),
            ttft_ms=_median(main.ttft_ms),
            herd_index=main.herd_index,
            waves=main.waves,
            occupancy=_mean(main.occupancy),
            watts=watts,
            joules_per_token=watts * setting.gpus / rate if watts is not None and rate else None,
            short_bytes=shortage_bytes(roofline, self._config(setting)),
        )

    def _measure(self, setting: Setting, concurrency: int) -> Sample:
        target = VirtualTarget(self._config(setting), self._cluster(setting))
        try:
            return measure_point(target, self.workload, LoadPoint(concurrency=concurrency), "whatif")
        finally:
            target.close()

    def _cluster(self, setting: Setting) -> Cluster:
        hardware = with_count(self.hardware, setting.ranks)
        return Cluster(hardware=hardware, model=self.model, pp=setting.ranks, ep=setting.ranks, split=self.split)

    def _config(self, setting: Setting) -> EngineConfig:
        pp, ep = (setting.ranks, 1) if setting.knobs.parallelism == "pp" else (1, setting.ranks)
        most = max(MAX_RUNNING, setting.concurrency)
        return EngineConfig(
            model=self.model.name, emulate=self.hardware.name, pp=pp, ep=ep, knobs=setting.knobs, max_running=most
        )

    def _context(self) -> int:
        """Mean cached tokens of a request over its decode steps."""
        prompt, output = self.workload.prompt_tokens, self.workload.output_tokens
        return (prompt.low + prompt.high) // 2 + (output.low + output.high) // 4

    def _watts(self, samples: list[tuple[int, int, Sample]], setting: Setting, idle_engines: int) -> float | None:
        total = self.hardware.idle_watts * idle_engines
        for count, _, sample in samples:
            mean = _mean([w for w in sample.power_w or [] if w is not None])
            if mean is None:
                return None
            total += count * mean
        return total / setting.engines


def _median(values: Sequence[float]) -> float | None:
    return quantile(sorted(values), 0.5) if values else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _words(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))

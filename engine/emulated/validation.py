"""Published and measured rates that the profiles are held against (docs/emulation.md says where each comes from)."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from engine.emulated.hardware import Hardware, load_hardware
from engine.emulated.model_profile import ModelProfile, load_model
from engine.emulated.observations import RateObservation
from engine.emulated.roofline import Sharding
from sessions.knobs import Knobs

SGLANG_HOST_US = 4464.0
"""Host time a step that the four rates of SGLang on two H200 give when nothing else is fitted."""


class Table(NamedTuple):
    """Rates of one set-up; `fitted_to` tells which of them the profile was derived from, if any."""

    title: str
    hardware: Hardware
    model: ModelProfile
    rows: list[RateObservation]
    fitted_to: str = "none of these"


def tables() -> list[Table]:
    """All of them."""
    return [pipeline_calibration(), pipeline_outcome(), tensor_parallel_8(), one_h200(), two_h200(), sglang_two_h200()]


def pipeline_calibration() -> Table:
    """Kimi K2.6 over a pipeline of eight at C=1: what the profile's launch_us and kernel_us are fitted to."""
    rows = [_row("pp", 8, 1, 24.7, _herd(graphs=False)), _row("pp", 8, 1, 34.0, _herd(graphs=True))]
    return Table("Kimi K2.6, PP8, 8x RTX PRO 6000, C=1", *_kimi(), rows, "both")


def pipeline_outcome() -> Table:
    """The same servers under load, one herd and two waves of 16: not used in the fit."""
    waves = Knobs(async_depth=8, admission="greedy", max_micro_batch=16, cuda_graphs=True)
    rows = [_row("pp", 8, 8, 95.6, _herd(graphs=False)), _row("pp", 8, 32, 248.0, waves)]
    return Table("Kimi K2.6, PP8, 8x RTX PRO 6000, under load", *_kimi(), rows)


def tensor_parallel_8() -> Table:
    """A public row of Kimi K2.6 over tensor parallelism of eight."""
    rates = {1: 91.5, 2: 151.3, 4: 242.6, 8: 350.0, 16: 492.7, 32: 858.8, 64: 1398.0, 128: 2164.7}
    rows = [_row("tp", 8, c, rate, _herd(graphs=True)) for c, rate in rates.items()]
    return Table("Kimi K2.6, TP8, 8x RTX PRO 6000, public", *_kimi(), rows)


def one_h200() -> Table:
    """vLLM 0.22.1, Qwen3-30B-A3B shape, one H200, CUDA graphs; rates are C over the inter-token latency."""
    itl = {1: 4.26, 2: 4.90, 4: 6.39, 8: 9.10, 16: 12.52, 32: 15.73, 64: 17.73, 128: 18.74}
    rows = [_row("pp", 1, c, 1e3 * c / ms, _herd(graphs=True)) for c, ms in itl.items()]
    return Table("Qwen3-30B-A3B, 1x H200, vLLM", load_hardware("h200"), load_model("qwen3-30b-a3b"), rows, "C=1")


def two_h200() -> Table:
    """The same over two H200: pipeline with and without graphs (one herd), and tensor and expert parallel."""
    graphs, eager = {1: 4.30, 8: 9.72, 64: 18.60, 128: 18.85}, {1: 48.97, 8: 53.15, 32: 53.78}
    ep = {1: 4.49, 8: 7.60, 32: 11.23, 64: 12.17, 128: 20.41}
    rows = [_row("pp", 2, c, 1e3 * c / ms, _herd(graphs=True)) for c, ms in graphs.items()]
    rows += [_row("pp", 2, c, 1e3 * c / ms, _herd(graphs=False)) for c, ms in eager.items()]
    rows += [_row("ep", 2, c, 1e3 * c / ms, _herd(graphs=True)) for c, ms in ep.items()]
    return Table("Qwen3-30B-A3B, 2x H200, vLLM", load_hardware("2x-h200"), load_model("qwen3-30b-a3b"), rows)


def sglang_two_h200() -> Table:
    """SGLang 0.5.15 over HTTP, pipeline of two with graphs, one herd: the profile but for the server's host time."""
    itl = {1: 9.23, 8: 13.57, 16: 15.51, 32: 19.66}
    rows = [_row("pp", 2, c, 1e3 * c / ms, _herd(graphs=True)) for c, ms in itl.items()]
    hardware = msgspec.structs.replace(load_hardware("2x-h200"), host_us=SGLANG_HOST_US)
    return Table(
        "Qwen3-30B-A3B, PP2, 2x H200, SGLang", hardware, load_model("qwen3-30b-a3b"), rows, "all, by host_us alone"
    )


def _kimi() -> tuple[Hardware, ModelProfile]:
    return load_hardware("8x-rtx-pro-6000"), load_model("kimi-k2.6")


def _herd(*, graphs: bool) -> Knobs:
    return Knobs(async_depth=1, admission="greedy", max_micro_batch=256, cuda_graphs=graphs)


def _row(sharding: Sharding, ranks: int, concurrency: int, rate: float, knobs: Knobs) -> RateObservation:
    return RateObservation(
        concurrency=concurrency, tokens_per_s=rate, knobs=knobs, sharding=sharding, ranks=ranks, context=256
    )

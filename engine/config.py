"""What an engine is started with. Flag, environment, file and field names are the same words everywhere."""

from __future__ import annotations

from typing import Literal

import msgspec

from sessions.knobs import KNOB_NAMES, KnobError, Knobs, parse_knob

LoadFormat = Literal["auto", "dummy"]
DType = Literal["auto", "float32", "bfloat16"]
DeviceKind = Literal["auto", "cuda", "cpu"]

MAX_RUNNING = 1024
"""Most requests that run at once: the rows of the workers' request tables."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides what an engine is.

    model: a checkpoint folder or a preset's name. pp, ep: ranks of each mode; the larger is the number of workers.
    kv_blocks: cache blocks of `block_size` tokens; 0 sizes the cache from free memory. token_budget: most prompt
    tokens in one micro-batch. emulate: a hardware profile; the engine then runs on the emulated cluster.
    memory_limit: most bytes of weights and cache a rank; 0: `memory_fraction` of the GPU, or what the host has free.
    listen: HOST:PORT where the driver awaits workers that torchrun starts (on any hosts); empty: it starts them itself.
    """

    model: str
    load_format: LoadFormat = "auto"
    dtype: DType = "auto"
    device: DeviceKind = "auto"
    pp: int = 1
    ep: int = 1
    knobs: Knobs = Knobs()
    token_budget: int = 8192
    max_running: int = MAX_RUNNING
    max_context: int = 0
    kv_blocks: int = 0
    block_size: int = 16
    run_ahead: int = 1
    memory_fraction: float = 0.9
    memory_limit: int = 0
    seed: int = 0
    telemetry: bool = True
    emulate: str | None = None
    listen: str = ""


class ConfigError(ValueError):
    """A configuration that cannot work; the text is one line that names the field and the mend."""


def check_config(config: EngineConfig) -> None:
    """Raise ConfigError when a number is out of range, whatever the model and the machine are."""
    least = {"pp": 1, "ep": 1, "token_budget": 1, "max_running": 1, "block_size": 1}
    least |= {"max_context": 0, "kv_blocks": 0, "run_ahead": 0, "memory_limit": 0}
    for field, low in least.items():
        value = getattr(config, field)
        if value < low:
            raise ConfigError(f"{field} must be {low} or more, not {value}")
    if not 0.0 < config.memory_fraction <= 1.0:
        raise ConfigError(f"memory_fraction must be above 0 and at most 1, not {config.memory_fraction:g}")
    try:
        for knob in KNOB_NAMES:
            parse_knob(knob, getattr(config.knobs, knob))
    except KnobError as error:
        raise ConfigError(str(error)) from None


class OutOfMemory(RuntimeError):
    """Not enough memory for what was asked; the text gives what is needed, what is free and what to lower."""

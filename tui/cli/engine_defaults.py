"""Defaults of an engine that depend on the machine it runs on and on what else was chosen."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec

from engine.config import ConfigError, EngineConfig
from sessions.knobs import KnobError, Knobs, parse_knob

EMULATED_MODEL = "kimi-k2.6"
KNOBS = ("async_depth", "admission", "max_micro_batch", "cuda_graphs", "parallelism")


def resolve(chosen: dict[str, Any]) -> EngineConfig:
    """The configuration that `chosen` (keys of ENGINE_KEYS) means here. Raise UsageError for what cannot work."""
    fields = {name: value for name, value in chosen.items() if name not in KNOBS}
    device = chosen.get("device", "auto")
    gpus = 0 if device == "cpu" or "emulate" in chosen else cuda_devices()
    if device == "cuda" and not gpus:
        raise click.UsageError("--device cuda: this machine has no usable NVIDIA GPU (herdscope doctor says more)")
    fields["device"] = "cuda" if gpus else "cpu"
    if "model" not in fields:
        fields["model"] = EMULATED_MODEL if "emulate" in chosen else str(tiny_folder())
    try:
        if "pp" not in fields:
            fields["pp"] = 1 if fields.get("ep", 1) > 1 else _stages(fields, gpus)
        return msgspec.convert({**fields, "knobs": _knobs(chosen, fields, gpus)}, EngineConfig)
    except (ConfigError, KnobError, msgspec.ValidationError) as error:
        raise click.UsageError(str(error)) from error


def _knobs(chosen: dict[str, Any], fields: dict[str, Any], gpus: int) -> dict[str, Any]:
    graphs_possible = bool(gpus) or "emulate" in chosen
    if chosen.get("cuda_graphs") and not graphs_possible:
        raise click.UsageError("--cuda-graphs on: CUDA graphs need an NVIDIA GPU, and this engine runs on the CPU")
    parallelism = chosen.get("parallelism", "ep" if fields.get("ep", 1) > 1 and fields["pp"] == 1 else "pp")
    knobs = {
        "cuda_graphs": graphs_possible,
        "parallelism": parallelism,
        "async_depth": fields["pp"] if parallelism == "pp" else 1,
        **{name: chosen[name] for name in KNOBS if name in chosen},
    }
    return {**msgspec.structs.asdict(Knobs()), **{name: parse_knob(name, value) for name, value in knobs.items()}}


def _stages(fields: dict[str, Any], gpus: int) -> int:
    """One stage a GPU, emulated ones included. Raise ConfigError for a profile or a model that is not there."""
    if "emulate" not in fields:
        return gpus or cpu_stages()
    from engine.emulated.hardware import load_hardware
    from engine.emulated.model_profile import load_model

    return min(load_hardware(fields["emulate"]).count, load_model(fields["model"]).layers)


def cuda_devices() -> int:
    """NVIDIA GPUs that CUDA would show this process, counted without loading CUDA."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1"):
        return 0
    import pynvml

    try:
        pynvml.nvmlInit()
        count = int(pynvml.nvmlDeviceGetCount())
        pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return 0
    return min(count, len(visible.split(","))) if visible is not None else count


def cpu_stages() -> int:
    """Pipeline stages of a CPU engine: one a core, at least 2 (a pipeline), at most 4 (each is a process)."""
    return max(2, min(4, os.cpu_count() or 2))


def tiny_folder() -> Path:
    """Where the tiny MoE is kept, in the user's cache."""
    from platformdirs import user_cache_path

    return user_cache_path("herdscope") / "models" / "tiny-qwen3-moe"


def write_tiny_once() -> None:
    """Write the tiny MoE unless it is there; a half-written one never takes the final name."""
    folder = tiny_folder()
    if (folder / "config.json").is_file():
        return
    from engine.checkpoint.tiny import write_tiny_checkpoint

    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        half = Path(scratch) / folder.name
        write_tiny_checkpoint(half, "qwen3-moe")
        try:
            half.rename(folder)
        except OSError:
            if not (folder / "config.json").is_file():
                raise

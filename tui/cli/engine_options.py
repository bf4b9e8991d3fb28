"""The engine's flags, defined once for every command that starts or describes an engine."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from tui.cli.param_types import ON_OFF

if TYPE_CHECKING:
    from engine.config import EngineConfig

Function = TypeVar("Function", bound=Callable[..., Any])


def _flag(name: str, help: str, type: Any = str, metavar: str | None = None) -> Callable[[Function], Function]:
    environment = "HERDSCOPE_" + name.removeprefix("--").replace("-", "_").upper()
    return click.option(name, type=type, metavar=metavar, envvar=environment, help=help)


_COUNT = click.IntRange(min=1)
_SIZE = click.IntRange(min=0)

_FLAGS = {
    "model": _flag("--model", "Checkpoint folder or preset (default: a tiny MoE).", metavar="PATH|PRESET"),
    "load_format": _flag("--load-format", "Read the weights, or make them up.", click.Choice(["auto", "dummy"])),
    "dtype": _flag("--dtype", "Type of weights and activations.", click.Choice(["auto", "float32", "bfloat16"])),
    "device": _flag("--device", "Where the workers run.", click.Choice(["auto", "cuda", "cpu"])),
    "pp": _flag("--pp", "Pipeline stages (default: one a GPU; 2 to 4 on a CPU).", _COUNT, "N"),
    "ep": _flag("--ep", "Ranks of expert parallelism.", _COUNT, "N"),
    "parallelism": _flag("--parallelism", "Mode to start in, where both are set.", click.Choice(["pp", "ep"])),
    "async_depth": _flag("--async-depth", "Micro-batches in flight (default: one a stage; 1 is serial).", _COUNT, "N"),
    "admission": _flag(
        "--admission",
        "How waiting requests are spread over the slots (default: greedy, as serving engines do).",
        click.Choice(["greedy", "capped", "decode-cap", "rebalance"]),
    ),
    "max_micro_batch": _flag("--max-micro-batch", "Most requests in one slot.", _COUNT, "N"),
    "cuda_graphs": _flag("--cuda-graphs", "Replay captured decode steps (default: on with CUDA).", ON_OFF),
    "token_budget": _flag("--token-budget", "Most prompt tokens in one micro-batch.", _COUNT, "N"),
    "max_running": _flag("--max-running", "Most requests that run at once.", _COUNT, "N"),
    "kv_blocks": _flag("--kv-blocks", "Cache blocks (default 0: from free memory).", _SIZE, "N"),
    "block_size": _flag("--block-size", "Tokens in a cache block.", _COUNT, "N"),
    "max_context": _flag("--max-context", "Longest sequence (default 0: the model's).", _SIZE, "N"),
    "run_ahead": _flag("--run-ahead", "Steps of a slot submitted before its tokens are seen.", _SIZE, "N"),
    "seed": _flag("--seed", "Seed of the weights that are made up.", _SIZE, "N"),
    "emulate": _flag("--emulate", "Run on the emulated cluster: a hardware profile.", metavar="PROFILE"),
}

ENGINE_KEYS = tuple(_FLAGS)


class EngineChoice(NamedTuple):
    """What the user chose (None: nothing) and, for each key, where that came from."""

    values: dict[str, Any]
    sources: dict[str, str]

    def config(self, write_model: bool = True) -> EngineConfig:
        """Fill in the defaults that depend on the machine and on each other; write the tiny MoE if it is the model
        and is not there yet, unless `write_model` is False. Raise UsageError for what cannot work."""
        from tui.cli.engine_defaults import resolve, write_tiny_once

        if write_model and self.model_is_tiny:
            write_tiny_once()
        return resolve({name: value for name, value in self.values.items() if value is not None})

    @property
    def model_is_tiny(self) -> bool:
        """Whether no model was named, so that the tiny MoE is served."""
        return self.values["model"] is None and self.values["emulate"] is None


def engine_options(function: Function) -> Function:
    """Add the engine's flags to a command; its function receives them as one EngineChoice, `engine`."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        context = click.get_current_context()
        values = {name: kwargs.pop(name) for name in ENGINE_KEYS}
        sources = {name: source_of(context, name) for name in ENGINE_KEYS}
        return function(*args, engine=EngineChoice(values, sources), **kwargs)

    for flag in reversed(_FLAGS.values()):
        wrapper = flag(wrapper)
    return wrapper  # type: ignore[return-value]  # same call, minus the engine's flags


def source_of(context: click.Context, name: str) -> str:
    """Where a parameter's value came from, in the user's words."""
    from click.core import ParameterSource

    words = {
        ParameterSource.COMMANDLINE: "command line",
        ParameterSource.ENVIRONMENT: "environment",
        ParameterSource.DEFAULT_MAP: "file",
    }
    source = context.get_parameter_source(name)
    return words.get(source, "default") if source else "default"

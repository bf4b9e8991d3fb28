"""The flags that say what is asked of an engine, defined once for bench, load and ab."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from sessions.load.workload import Workload

Function = TypeVar("Function", bound=Callable[..., Any])

_SIZE = click.IntRange(min=0)
_FLAGS = {
    "workload": click.option(
        "--workload",
        metavar="random|text:FILE|mooncake:FILE",
        default="random",
        show_default=True,
        help="Random prompts, the lines of a text file, or a recorded trace.",
    ),
    "prompt_tokens": click.option(
        "--prompt-tokens", metavar="N|LOW:HIGH", default="32", show_default=True, help="Length of random prompts."
    ),
    "output_tokens": click.option(
        "--output-tokens", metavar="N|LOW:HIGH", default="64", show_default=True, help="Tokens asked for."
    ),
    "variation": click.option(
        "--variation", type=click.FloatRange(0.01), default=1.0, help="Burstiness of --rate: the gaps' cv (1: Poisson)."
    ),
    "ramp": click.option("--ramp", type=click.FloatRange(0), default=0.0, help="Seconds in which the load grows."),
    "speed": click.option(
        "--speed", type=click.FloatRange(0.001), default=1.0, help="Replay a trace this much faster."
    ),
    "length_scale": click.option(
        "--length-scale", type=click.FloatRange(0.0001), default=1.0, help="Multiply a trace's lengths by this."
    ),
    "prompt_cap": click.option(
        "--prompt-cap", type=_SIZE, default=0, help="Cut a trace's prompts to this (0: no cut)."
    ),
    "output_cap": click.option(
        "--output-cap", type=_SIZE, default=0, help="Cut a trace's outputs to this (0: no cut)."
    ),
    "limit": click.option("--limit", type=_SIZE, default=0, help="Replay only a trace's first requests (0: all)."),
    "workload_seed": click.option("--workload-seed", type=_SIZE, default=0, help="Seed of prompts and arrivals."),
}


def workload_options(function: Function) -> Function:
    """Add the workload's flags to a command; its function receives them as one Workload, `workload`."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        given = {name: kwargs.pop(name) for name in _FLAGS}
        return function(*args, workload=_workload(given), **kwargs)

    for flag in reversed(_FLAGS.values()):
        wrapper = flag(wrapper)
    return wrapper  # type: ignore[return-value]  # same call, minus the workload's flags


def _workload(given: dict[str, Any]) -> Workload:
    from sessions.load.lengths import Lengths
    from sessions.load.mooncake import Scaling
    from sessions.load.workload import Workload

    source, _, file = given["workload"].partition(":")
    if source not in ("random", "text", "mooncake") or (source == "random") != (file == ""):
        raise click.UsageError(f"--workload {given['workload']}: write random, text:FILE or mooncake:FILE")
    if file and not Path(file).is_file():
        raise click.UsageError(f"--workload {given['workload']}: there is no file {file}")
    try:
        lengths = [Lengths.parse(given[name]) for name in ("prompt_tokens", "output_tokens")]
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return Workload(
        source=source,
        file=file,
        prompt_tokens=lengths[0],
        output_tokens=lengths[1],
        variation=given["variation"],
        ramp_s=given["ramp"],
        scaling=Scaling(given["speed"], given["length_scale"], given["prompt_cap"], given["output_cap"]),
        limit=given["limit"],
        seed=given["workload_seed"],
    )

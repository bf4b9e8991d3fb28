"""The knobs that an operator may turn while requests run, and the vocabulary of their values."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

Admission = Literal["greedy", "capped", "decode-cap", "rebalance"]
Parallelism = Literal["pp", "ep"]
KnobName = Literal["async_depth", "admission", "max_micro_batch", "cuda_graphs", "parallelism"]
KnobValue = int | str | bool

ADMISSIONS: tuple[Admission, ...] = get_args(Admission)
PARALLELISMS: tuple[Parallelism, ...] = get_args(Parallelism)
KNOB_NAMES: tuple[KnobName, ...] = get_args(KnobName)

MAX_ASYNC_DEPTH = 64
MAX_MICRO_BATCH = 4096


class Knobs(msgspec.Struct, frozen=True):
    """The value of every knob.

    async_depth: micro-batches allowed in flight, which is also the number of slots; 1 is serial.
    admission: how waiting requests are spread over the slots.
    max_micro_batch: most requests in one slot.
    cuda_graphs: replay captured decode steps instead of launching their kernels one by one.
    parallelism: pipeline stages (pp) or tensor-parallel attention with split experts (ep).
    """

    async_depth: int = 1
    admission: Admission = "greedy"
    max_micro_batch: int = 256
    cuda_graphs: bool = False
    parallelism: Parallelism = "pp"


class KnobError(ValueError):
    """A knob name or value that does not exist; the text is one line that says what is allowed."""


def with_knob(knobs: Knobs, name: str, value: KnobValue) -> Knobs:
    """Return `knobs` with one knob changed; raise KnobError when the name or the value is not allowed."""
    return msgspec.structs.replace(knobs, **{name: parse_knob(name, value)})


def parse_knob(name: str, value: KnobValue) -> KnobValue:
    """Check one knob's value, also when it comes as text ("on", "8"); raise KnobError when it is not allowed."""
    match name:
        case "async_depth":
            return _whole(name, value, 1, MAX_ASYNC_DEPTH)
        case "max_micro_batch":
            return _whole(name, value, 1, MAX_MICRO_BATCH)
        case "cuda_graphs":
            return _switch(name, value)
        case "admission":
            return _choice(name, value, ADMISSIONS)
        case "parallelism":
            return _choice(name, value, PARALLELISMS)
    raise KnobError(f"no knob {name!r}: choose one of {', '.join(KNOB_NAMES)}")


def _whole(name: str, value: KnobValue, low: int, high: int) -> int:
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or not low <= number <= high:
        raise KnobError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
    return number


def _switch(name: str, value: KnobValue) -> bool:
    if isinstance(value, bool):
        return value
    words = {"on": True, "true": True, "off": False, "false": False}
    if isinstance(value, str) and value.lower() in words:
        return words[value.lower()]
    raise KnobError(f"{name} must be on or off, not {value!r}")


def _choice(name: str, value: KnobValue, choices: tuple[str, ...]) -> str:
    if value in choices:
        return str(value)
    raise KnobError(f"{name} must be one of {', '.join(choices)}, not {value!r}")

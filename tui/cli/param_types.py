"""Types of option values that click lacks."""

from __future__ import annotations

from typing import Any

import click


class OnOff(click.ParamType[bool]):
    """`on` or `off` on the command line and in the environment; also true or false in the config file."""

    name = "on|off"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> bool:
        if isinstance(value, bool):
            return value
        words = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}
        if str(value).lower() not in words:
            self.fail(f"{value!r} is neither on nor off", param, ctx)
        return words[str(value).lower()]


class WholeNumbers(click.ParamType[tuple[int, ...]]):
    """Whole numbers from 1 on, separated by commas: `1,4,16`; also a list, or one number, in the config file."""

    name = "N,N,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        parts = value if isinstance(value, (list, tuple)) else str(value).split(",")
        try:
            numbers = tuple(int(part) for part in parts)
        except (TypeError, ValueError):
            numbers = ()
        if not numbers or min(numbers) < 1:
            self.fail(f"{value!r} is not whole numbers from 1 on, separated by commas", param, ctx)
        return numbers


class PositiveNumbers(click.ParamType[tuple[float, ...]]):
    """Numbers above 0, separated by commas: `0.5,2`; also a list, or one number, in the config file."""

    name = "R,R,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[float, ...]:
        parts = value if isinstance(value, (list, tuple)) else str(value).split(",")
        try:
            numbers = tuple(float(part) for part in parts)
        except (TypeError, ValueError):
            numbers = ()
        if not numbers or not all(0 < number < float("inf") for number in numbers):
            self.fail(f"{value!r} is not numbers above 0, separated by commas", param, ctx)
        return numbers


class Choices(click.ParamType[tuple[str, ...]]):
    """Words out of a given set, separated by commas: `greedy,capped`; also a list, or one word, in the config file."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self._words = words
        self.name = "|".join(words) + ",..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        parts = value if isinstance(value, (list, tuple)) else str(value).split(",")
        words = tuple(str(part).strip() for part in parts)
        wrong = [word for word in words if word not in self._words]
        if wrong or not words:
            self.fail(f"{', '.join(wrong) or value!r} is not among {', '.join(self._words)}", param, ctx)
        return words


ON_OFF = OnOff()
WHOLE_NUMBERS = WholeNumbers()
POSITIVE_NUMBERS = PositiveNumbers()

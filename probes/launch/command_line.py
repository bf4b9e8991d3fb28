"""A server's command line as data: which server, its flags, and the same line with one flag changed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal

import msgspec

LaunchKind = Literal["sglang", "vllm"]


class LaunchError(ValueError):
    """A command line that cannot be launched or changed; one line."""


class CommandLine(msgspec.Struct, frozen=True):
    """The words of a server's command line."""

    words: tuple[str, ...]

    @property
    def kind(self) -> LaunchKind:
        """Which server it starts. Raise LaunchError for another program."""
        text = " ".join(self.words)
        if "sglang" in text:
            return "sglang"
        if "vllm" in text:
            return "vllm"
        raise LaunchError(f"{shlex.join(self.words)!r} starts neither SGLang nor vLLM")

    def value(self, *names: str) -> str | None:
        """The value of a flag under any of its names (the last one given counts); None when it is not there."""
        found = None
        for index, word in enumerate(self.words):
            name, equals, value = word.partition("=")
            if name in names:
                follows = self.words[index + 1] if index + 1 < len(self.words) else ""
                found = value if equals else follows
        return found

    def number(self, default: int, *names: str) -> int:
        """A flag's whole number. Raise LaunchError when it is none."""
        value = self.value(*names)
        try:
            return default if value is None else int(value)
        except ValueError:
            raise LaunchError(f"{names[0]} must be a whole number, not {value!r}") from None

    def has(self, *names: str) -> bool:
        """Whether a flag without value is there."""
        return any(word in names for word in self.words)

    def with_value(self, name: str, value: str, *aliases: str) -> CommandLine:
        """The line with this flag set once, at the place where it (or an alias) stood first, else at the end."""
        names = (name, *aliases)
        words: list[str] = []
        placed = False
        skip = False
        for word in self.words:
            if skip:
                skip = False
                continue
            flag, equals, _ = word.partition("=")
            if flag not in names:
                words.append(word)
                continue
            skip = not equals
            if not placed:
                words += [name, value]
                placed = True
        return CommandLine(tuple(words if placed else [*words, name, value]))

    def with_switch(self, name: str, on: bool) -> CommandLine:
        """The line with a flag without value, or without it."""
        words = [word for word in self.words if word != name]
        return CommandLine((*words, name) if on else tuple(words))

    def __str__(self) -> str:
        return shlex.join(self.words)


def diff(before: CommandLine, after: CommandLine) -> list[str]:
    """What changes, as lines that begin with - or +."""
    removed = _pairs(before.words)
    added = _pairs(after.words)
    gone = [f"- {pair}" for pair in removed if pair not in added]
    new = [f"+ {pair}" for pair in added if pair not in removed]
    return gone + new


def _pairs(words: Sequence[str]) -> list[str]:
    """Flags with their values as one text each."""
    pairs: list[str] = []
    for word in words:
        if pairs and not word.startswith("-") and pairs[-1].startswith("--") and " " not in pairs[-1]:
            pairs[-1] += f" {word}"
        else:
            pairs.append(word)
    return pairs

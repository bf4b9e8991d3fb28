"""Endless streams of requests. The n-th request of a seed is always the same, whatever the engine does."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

from sessions.load.lengths import Lengths
from sessions.messages import RequestSpec

SMALLEST_VOCABULARY = 256
"""A vocabulary has at least the bytes: somebody else's server does not tell how many tokens it knows."""


def random_requests(
    run: str, vocab: int, prompt_tokens: Lengths, output_tokens: Lengths, seed: int
) -> Iterator[RequestSpec]:
    """Requests of random token ids below `vocab`, with ids `run-0`, `run-1`...; the output is always full length."""
    for index in itertools.count():
        rng = random.Random(f"{seed}/{index}")
        yield RequestSpec(
            id=f"{run}-{index}",
            prompt=random_tokens(rng, prompt_tokens.draw(rng), vocab),
            max_tokens=output_tokens.draw(rng),
            seed=index,
            ignore_eos=True,
        )


def text_requests(run: str, path: Path, output_tokens: Lengths, seed: int) -> Iterator[RequestSpec]:
    """Requests whose prompts are a text file's lines, shuffled, over and over. Raise ValueError when it has none."""
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error
    if not lines:
        raise ValueError(f"{path} has no line with a prompt on it")
    return _text_requests(run, lines, output_tokens, seed)


def _text_requests(run: str, lines: list[str], output_tokens: Lengths, seed: int) -> Iterator[RequestSpec]:
    for index in itertools.count():
        lap, place = divmod(index, len(lines))
        if place == 0:
            order = random.Random(f"{seed}/lap/{lap}").sample(lines, len(lines))
        rng = random.Random(f"{seed}/{index}")
        yield RequestSpec(
            id=f"{run}-{index}",
            prompt=order[place],
            max_tokens=output_tokens.draw(rng),
            seed=index,
            ignore_eos=True,
        )


def random_tokens(rng: random.Random, count: int, vocab: int) -> list[int]:
    """`count` token ids, uniform over [0, vocab); vocab 0 is one that is not known."""
    return rng.choices(range(vocab or SMALLEST_VOCABULARY), k=count)

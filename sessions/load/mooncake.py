"""Request traces in the Mooncake JSON-lines form.

One object a line: `timestamp` (ms), `input_length` and `output_length` (tokens), `hash_ids` (one a 512-token block of
the prompt; equal ids are equal blocks, so equal leading ids are a shared prefix). Source: the Mooncake paper's open
traces, github.com/kvcache-ai/Mooncake.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from sessions.load.prompts import random_tokens
from sessions.messages import RequestSpec

BLOCK_TOKENS = 512


class TraceRow(msgspec.Struct, frozen=True):
    """One request of a trace."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int] = []


class Scaling(NamedTuple):
    """How a trace is fitted to the engine at hand: time divided by `speed`, lengths multiplied by `length_scale` and
    then capped (0: no cap). Lengths never fall below one token."""

    speed: float = 1.0
    length_scale: float = 1.0
    prompt_cap: int = 0
    output_cap: int = 0

    def prompt(self, tokens: int) -> int:
        return _scaled(tokens, self.length_scale, self.prompt_cap)

    def output(self, tokens: int) -> int:
        return _scaled(tokens, self.length_scale, self.output_cap)


def _scaled(tokens: int, scale: float, cap: int) -> int:
    scaled = max(1, round(tokens * scale))
    return min(scaled, cap) if cap else scaled


def read_trace(path: Path) -> list[TraceRow]:
    """Read a whole trace, in order of time. Raise ValueError naming the line that is wrong."""
    decoder = msgspec.json.Decoder(TraceRow)
    rows: list[TraceRow] = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except msgspec.DecodeError as error:
            raise ValueError(f"{path} line {number}: {error}") from error
        if row.timestamp < 0 or row.input_length < 1 or row.output_length < 1:
            raise ValueError(f"{path} line {number}: needs timestamp >= 0, input_length >= 1 and output_length >= 1")
        rows.append(row)
    if not rows:
        raise ValueError(f"{path} holds no request")
    return sorted(rows, key=lambda row: row.timestamp)


def trace_requests(
    run: str, rows: Sequence[TraceRow], vocab: int, scaling: Scaling, seed: int
) -> Iterator[tuple[int, RequestSpec]]:
    """The trace's requests with the instant, in ns since the trace's start, at which each is due."""
    for index, row in enumerate(rows):
        due_ns = round(row.timestamp * 1e6 / scaling.speed)
        yield (
            due_ns,
            RequestSpec(
                id=f"{run}-{index}",
                prompt=_prompt(row, index, vocab, scaling, seed),
                max_tokens=scaling.output(row.output_length),
                seed=index,
                ignore_eos=True,
            ),
        )


def _prompt(row: TraceRow, index: int, vocab: int, scaling: Scaling, seed: int) -> list[int]:
    """Equal hash ids give equal blocks, scaled with the prompt; what no hash id covers is the request's own."""
    length = scaling.prompt(row.input_length)
    block = max(1, round(BLOCK_TOKENS * scaling.length_scale))
    tokens: list[int] = []
    for hash_id in row.hash_ids:
        if len(tokens) >= length:
            break
        tokens += random_tokens(random.Random(f"{seed}/block/{hash_id}"), min(block, length - len(tokens)), vocab)
    return tokens + random_tokens(random.Random(f"{seed}/own/{index}"), length - len(tokens), vocab)

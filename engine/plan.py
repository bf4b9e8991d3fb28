"""What the driver tells the workers: small plans, the same for every stage, as changes to state they already hold.

Each worker keeps a table of `max_running` rows: a row's block table, length, sampling parameters and last token.
A plan first admits rows and appends blocks, then names the rows to run. Decode tokens are not in the plan: the last
stage hands them to the first on the device, so the next step of a row can be submitted before the driver has seen
its token.
"""

from __future__ import annotations

import msgspec


class AdmitRow(msgspec.Struct, frozen=True, array_like=True):
    """A request takes (or retakes) a row: all tokens known so far, none of them in the cache yet."""

    row: int
    tokens: list[int]
    temperature: float
    top_p: float
    seed: int


class AppendBlocks(msgspec.Struct, frozen=True, array_like=True):
    """Cache blocks added to a row's table from entry `first` on."""

    row: int
    first: int
    blocks: list[int]


class PrefillChunk(msgspec.Struct, frozen=True, array_like=True):
    """Known tokens [start, start + length) of a row to run; `last` when they complete its known tokens: then sample."""

    row: int
    start: int
    length: int
    last: bool


class DecodeRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One decode step of a row: run the token sampled last, which stands at `position` (0-based) of the sequence."""

    row: int
    position: int


class MicroBatchPlan(msgspec.Struct, frozen=True, array_like=True):
    """One micro-batch. Tokens are sampled for every decode row, then for every chunk with `last`, in this order."""

    step: int
    slot: int
    admit: list[AdmitRow]
    append: list[AppendBlocks]
    decode: list[DecodeRow]
    prefill: list[PrefillChunk]

    @property
    def sampled_rows(self) -> list[int]:
        """Rows that get a token from this micro-batch, in the order of MicroBatchResult.tokens."""
        return [d.row for d in self.decode] + [c.row for c in self.prefill if c.last]

    @property
    def prefill_tokens(self) -> int:
        """Prompt (or recomputed) tokens that this micro-batch runs."""
        return sum(c.length for c in self.prefill)


class MicroBatchResult(msgspec.Struct, frozen=True, array_like=True):
    """The tokens of one micro-batch, in the order of its `sampled_rows`, sampled at `t_ns` (driver's clock)."""

    step: int
    slot: int
    tokens: list[int]
    t_ns: int

"""The tensors that one forward pass needs besides the weights."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Chunks(NamedTuple):
    """Sequences of a batch and their places in the paged cache.

    block_table [S, max_blocks] int32, context_lens [S] int32 (tokens in the cache after this pass), query_start [S + 1]
    int32: sequence s owns the tokens query_start[s] to query_start[s + 1], the last of its context.
    """

    block_table: Tensor
    context_lens: Tensor
    query_start: Tensor


class Batch(NamedTuple):
    """T tokens: first the decoding sequences' one each, then prefill chunks.

    positions, slots: [T] integers; a slot is block * block_size + offset, negative for padding. decode and prefill are
    None when there is nothing of that kind; `decodes` counts the tokens of the first.
    """

    positions: Tensor
    slots: Tensor
    decodes: int
    decode: Chunks | None
    prefill: Chunks | None

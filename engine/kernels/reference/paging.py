"""The paged cache as torch indexing: a slot is ``block * block_size + offset``."""

from __future__ import annotations

from torch import Tensor


def write_slots(cache: Tensor, rows: Tensor, slot_mapping: Tensor) -> None:
    """Write ``rows`` [T, ...] into ``cache`` [blocks, block_size, ...] at their slots; a negative slot is padding."""
    kept = slot_mapping >= 0
    cache.flatten(0, 1)[slot_mapping[kept].long()] = rows[kept].to(cache.dtype)


def read_context(cache: Tensor, blocks: Tensor, length: int) -> Tensor:
    """The first ``length`` rows of the sequence whose block numbers are ``blocks`` [max_blocks]."""
    used = -(-length // cache.shape[1])
    return cache[blocks[:used].long()].flatten(0, 1)[:length]


def read_contexts(cache: Tensor, block_table: Tensor, length: int) -> Tensor:
    """The first ``length`` rows of every sequence [B, length, ...]; beyond a sequence's own end they mean nothing."""
    used = -(-length // cache.shape[1])
    blocks = block_table[:, :used].long().clamp(0, cache.shape[0] - 1)  # a table holds anything behind its last block
    return cache[blocks].flatten(1, 2)[:, :length]

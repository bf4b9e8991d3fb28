"""The request table of a rank: what the driver's plans have said about each row, on the host and on the device."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.models.batch import Batch, Chunks
from engine.plan import MicroBatchPlan, PrefillChunk

Ints = NDArray[np.int32]


class RowTable:
    """`rows` rows of up to `max_blocks` cache blocks, and one scratch row that padding points at.

    The device copy is kept right by each batch: a decode writes the block of its own position, a prefill its rows'
    whole tables, so no change ever travels by itself.
    """

    def __init__(self, rows: int, max_blocks: int, block_size: int, device: torch.device) -> None:
        self.scratch = rows
        self.block_size = block_size
        self.device = device
        self._blocks = np.zeros((rows + 1, max_blocks), np.int32)
        self._prompts: dict[int, Ints] = {}
        self._temperature = np.zeros(rows + 1, np.float32)
        self._top_p = np.ones(rows + 1, np.float32)
        self._seed = np.zeros(rows + 1, np.int64)
        self.block_table = torch.zeros((rows + 1, max_blocks), dtype=torch.int32, device=device)
        self.last_token = torch.zeros(rows + 1, dtype=torch.int64, device=device)

    def update(self, plan: MicroBatchPlan) -> None:
        """Take in a plan's admitted rows and appended blocks."""
        for admitted in plan.admit:
            row = admitted.row
            self._prompts[row] = np.asarray(admitted.tokens, np.int32)
            self._temperature[row], self._top_p[row] = admitted.temperature, admitted.top_p
            self._seed[row] = np.uint64(admitted.seed & 0xFFFFFFFFFFFFFFFF).astype(np.int64)
        for added in plan.append:
            self._blocks[added.row, added.first : added.first + len(added.blocks)] = added.blocks

    def decode_input(self, plan: MicroBatchPlan, padded: int) -> Ints:
        """[3, padded]: row, position and that position's block of each decode row; padding is (scratch, -1, -1)."""
        packed = np.full((3, padded), -1, np.int32)
        packed[0] = self.scratch
        n = len(plan.decode)
        packed[0, :n] = rows = [d.row for d in plan.decode]
        packed[1, :n] = positions = [d.position for d in plan.decode]
        packed[2, :n] = self._blocks[rows, np.asarray(positions) // self.block_size]
        return packed

    def keep_tokens(self, rows: list[int], tokens: Tensor) -> None:
        """Remember each row's newest token, for its next decode step."""
        self.last_token[self.to_device(np.array(rows, np.int64))] = tokens

    def to_device(self, array: NDArray[np.generic]) -> Tensor:
        """Copy to the device without waiting for it."""
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)

    def decode_batch(self, packed: Tensor) -> tuple[Tensor, Batch]:
        """(last tokens [B], batch) of `decode_input` on the device; only device operations, so it can be captured."""
        rows, positions, blocks = packed.unbind()
        self.block_table[rows, positions.div(self.block_size, rounding_mode="floor")] = blocks
        slots = blocks * self.block_size + positions.remainder(self.block_size)
        starts = torch.arange(len(rows) + 1, dtype=torch.int32, device=packed.device)
        chunks = Chunks(self.block_table[rows], positions + 1, starts)
        batch = Batch(positions.clamp_min(0), slots, len(rows), chunks, None)
        return self.last_token[rows], batch

    def mixed_batch(self, plan: MicroBatchPlan) -> tuple[Tensor, Batch]:
        """(tokens [T], batch) of a plan with prefill chunks, decode rows first."""
        chunks, packed = plan.prefill, self._prefill_input(plan.prefill)
        rows, contexts = packed["rows"], packed["contexts"]
        self.block_table[rows] = packed["tables"]
        prefill = Chunks(packed["tables"], contexts, packed["starts"])
        if not plan.decode:
            return packed["tokens"], Batch(packed["positions"], packed["slots"], 0, None, prefill)
        tokens, decode = self.decode_batch(self.to_device(self.decode_input(plan, len(plan.decode))))
        batch = Batch(
            torch.cat((decode.positions, packed["positions"])),
            torch.cat((decode.slots, packed["slots"])),
            decode.decodes,
            decode.decode,
            prefill if chunks else None,
        )
        return torch.cat((tokens, packed["tokens"])), batch

    def _prefill_input(self, chunks: list[PrefillChunk]) -> dict[str, Tensor]:
        """Everything a prefill needs, in one copy to the device."""
        rows = np.array([c.row for c in chunks], np.int32)
        positions = np.concatenate([np.arange(c.start, c.start + c.length, dtype=np.int32) for c in chunks])
        owners = np.repeat(rows, [c.length for c in chunks])
        blocks = self._blocks[owners, positions // self.block_size]
        parts: dict[str, Ints] = {
            "rows": rows,
            "contexts": np.array([c.start + c.length for c in chunks], np.int32),
            "starts": np.cumsum([0, *(c.length for c in chunks)], dtype=np.int32),
            "tokens": np.concatenate([self._prompts[c.row][c.start : c.start + c.length] for c in chunks]),
            "positions": positions,
            "slots": (blocks * self.block_size + positions % self.block_size).astype(np.int32),
            "tables": self._blocks[rows],
        }
        flat = self.to_device(np.concatenate([part.ravel() for part in parts.values()]))
        pieces = torch.split(flat, [part.size for part in parts.values()])
        return {name: piece.view(part.shape) for (name, part), piece in zip(parts.items(), pieces, strict=True)}

    def sampling(self, plan: MicroBatchPlan) -> tuple[Tensor, Tensor, Tensor, Tensor] | None:
        """(temperature, top_p, seed, position of the new token) of the sampled rows; None when all are greedy."""
        rows = plan.sampled_rows
        if not self._temperature[rows].any():
            return None
        positions = [d.position + 1 for d in plan.decode] + [c.start + c.length for c in plan.prefill if c.last]
        return (
            self.to_device(self._temperature[rows]),
            self.to_device(self._top_p[rows]),
            self.to_device(self._seed[rows]),
            self.to_device(np.asarray(positions, np.int64)),
        )

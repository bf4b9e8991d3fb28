"""The request table of a rank: what the driver's plans have said about each row, on the host and on the device."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.models.batch import Batch, Chunks
from engine.plan import MicroBatchPlan

Ints = NDArray[np.int32]


class Inputs(NamedTuple):
    """One micro-batch on the device.

    tokens: [T]. rows, positions: of the S tokens to be sampled, their rows (int64) and places in their sequences.
    picked: which of the T tokens they are sampled from; None when from each.
    """

    tokens: Tensor
    batch: Batch
    rows: Tensor
    positions: Tensor
    picked: Tensor | None


class RowTable:
    """`rows` rows of up to `max_blocks` cache blocks, and one scratch row that padding points at.

    The device's block table is kept right by each batch: a decode writes the block of its own position, a prefill its
    rows' whole tables, so no change ever travels by itself.
    """

    def __init__(self, rows: int, max_blocks: int, block_size: int, device: torch.device) -> None:
        self.scratch = rows
        self.block_size = block_size
        self.device = device
        self._blocks = np.zeros((rows + 1, max_blocks), np.int32)
        self._prompts: dict[int, Ints] = {}
        self.block_table = torch.zeros((rows + 1, max_blocks), dtype=torch.int32, device=device)
        self.last_token = torch.zeros(rows + 1, dtype=torch.int64, device=device)
        self._temperature = torch.zeros(rows + 1, device=device)
        self._top_p = torch.ones(rows + 1, device=device)
        self._seed = torch.zeros(rows + 1, dtype=torch.int64, device=device)

    def update(self, plan: MicroBatchPlan) -> None:
        """Take in a plan's admitted rows and appended blocks."""
        for added in plan.append:
            self._blocks[added.row, added.first : added.first + len(added.blocks)] = added.blocks
        if plan.admit:
            for admitted in plan.admit:
                self._prompts[admitted.row] = np.asarray(admitted.tokens, np.int32)
            rows = self.to_device(np.array([a.row for a in plan.admit], np.int64))
            seeds = np.array([a.seed & 0xFFFFFFFFFFFFFFFF for a in plan.admit], np.uint64)
            self._temperature[rows] = self.to_device(np.array([a.temperature for a in plan.admit], np.float32))
            self._top_p[rows] = self.to_device(np.array([a.top_p for a in plan.admit], np.float32))
            self._seed[rows] = self.to_device(seeds.view(np.int64))

    def decode_input(self, plan: MicroBatchPlan, padded: int) -> Ints:
        """[3, padded]: row, position and that position's block of each decode row; padding is (scratch, -1, -1)."""
        packed = np.full((3, padded), -1, np.int32)
        packed[0] = self.scratch
        n = len(plan.decode)
        packed[0, :n] = rows = [d.row for d in plan.decode]
        packed[1, :n] = positions = [d.position for d in plan.decode]
        packed[2, :n] = self._blocks[rows, np.asarray(positions) // self.block_size]
        return packed

    def to_device(self, array: NDArray[np.generic]) -> Tensor:
        """Copy to the device without waiting for it."""
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)

    def decode_inputs(self, packed: Tensor) -> Inputs:
        """From `decode_input` on the device; only device operations, so it can be captured in a graph."""
        short_rows, positions, blocks = packed.unbind()
        rows = short_rows.long()
        self.block_table[rows, positions.div(self.block_size, rounding_mode="floor")] = blocks
        slots = blocks * self.block_size + positions.remainder(self.block_size)
        starts = torch.arange(len(rows) + 1, dtype=torch.int32, device=packed.device)
        chunks = Chunks(self.block_table[rows], positions + 1, starts)
        batch = Batch(positions.clamp_min(0), slots, len(rows), chunks, None)
        return Inputs(self.last_token[rows], batch, rows, positions + 1, None)

    def inputs(self, plan: MicroBatchPlan) -> Inputs:
        """A plan's inputs, decode rows first."""
        if not plan.prefill:
            return self.decode_inputs(self.to_device(self.decode_input(plan, len(plan.decode))))
        prefill = self._prefill_inputs(plan)
        if not plan.decode:
            return prefill
        decode = self.decode_inputs(self.to_device(self.decode_input(plan, len(plan.decode))))
        return Inputs(
            torch.cat((decode.tokens, prefill.tokens)),
            Batch(
                torch.cat((decode.batch.positions, prefill.batch.positions)),
                torch.cat((decode.batch.slots, prefill.batch.slots)),
                decode.batch.decodes,
                decode.batch.decode,
                prefill.batch.prefill,
            ),
            torch.cat((decode.rows, prefill.rows)),
            torch.cat((decode.positions, prefill.positions)),
            prefill.picked,
        )

    def _prefill_inputs(self, plan: MicroBatchPlan) -> Inputs:
        """The chunks' inputs, in one copy to the device; `picked` counts the plan's decode rows too."""
        chunks, decodes = plan.prefill, len(plan.decode)
        rows = np.array([c.row for c in chunks], np.int32)
        lengths = np.array([c.length for c in chunks], np.int32)
        stops = np.array([c.start for c in chunks], np.int32) + lengths
        sampled = np.array([c.last for c in chunks], bool)
        starts = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        positions = np.concatenate([np.arange(c.start, c.start + c.length, dtype=np.int32) for c in chunks])
        blocks = self._blocks[np.repeat(rows, lengths), positions // self.block_size]
        parts: list[Ints] = [
            np.concatenate([self._prompts[c.row][c.start : c.start + c.length] for c in chunks]),
            positions,
            blocks * np.int32(self.block_size) + positions % np.int32(self.block_size),
            rows,
            stops,
            starts,
            self._blocks[rows],
            rows[sampled],
            stops[sampled],
            np.concatenate((np.arange(decodes, dtype=np.int32), starts[1:][sampled] - 1 + decodes)).astype(np.int32),
        ]
        flat = self.to_device(np.concatenate([part.ravel() for part in parts]))
        pieces = torch.split(flat, [part.size for part in parts])
        tokens, at, slots, owners, contexts, starts_, tables, sampled_rows, sampled_at, picked = pieces
        tables = tables.view(len(rows), -1)
        self.block_table[owners.long()] = tables
        batch = Batch(at, slots, 0, None, Chunks(tables, contexts, starts_))
        return Inputs(tokens, batch, sampled_rows.long(), sampled_at, picked.long())

    def sampling(self, inputs: Inputs) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(temperature, top_p, seed, position) of each token to be sampled, for engine.kernels.sample."""
        rows = inputs.rows
        return self._temperature[rows], self._top_p[rows], self._seed[rows], inputs.positions

    def keep_tokens(self, rows: list[int], tokens: Tensor) -> None:
        """Remember each row's newest token, for its next decode step."""
        self.last_token[self.to_device(np.array(rows, np.int64))] = tokens

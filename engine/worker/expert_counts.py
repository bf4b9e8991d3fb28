"""Counts which experts tokens are routed to, while somebody asks for it."""

from __future__ import annotations

import torch

from engine.models.decoder import Decoder
from engine.worker_messages import ExpertCounts


class ExpertCounter:
    """Tokens of each expert and distinct experts a micro-batch, by layer. Reads the device, so it slows the engine."""

    def __init__(self) -> None:
        self._tokens: dict[int, torch.Tensor] = {}
        self._distinct: dict[int, int] = {}
        self._micro_batches = 0

    def add(self, decoder: Decoder) -> None:
        """Take in the routing that the decoder kept of its last micro-batch."""
        self._micro_batches += 1
        for layer, ids in (decoder.routed or {}).items():
            counts = torch.bincount(ids.flatten().long(), minlength=decoder.config.experts).cpu()
            self._tokens[layer] = self._tokens.get(layer, 0) + counts
            self._distinct[layer] = self._distinct.get(layer, 0) + int((counts > 0).sum())

    def counts(self) -> ExpertCounts:
        """What was counted so far."""
        batches = max(1, self._micro_batches)
        return ExpertCounts(
            tokens={layer: counts.tolist() for layer, counts in self._tokens.items()},
            distinct={layer: distinct / batches for layer, distinct in self._distinct.items()},
            micro_batches=self._micro_batches,
        )

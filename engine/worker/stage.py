"""Runs micro-batches on this rank's stage: input, layers, sampling, output."""

from __future__ import annotations

import time
from collections import deque

import numpy as np
import torch
from torch import Tensor

from engine.kernels import sample
from engine.models.batch import Batch
from engine.models.decoder import Decoder
from engine.parallel.layout import Layout
from engine.plan import MicroBatchPlan
from engine.worker.graphs import DecodeGraphs
from engine.worker.groups import Groups
from engine.worker.marks import DeviceClock, Mark
from engine.worker.outcome import Outcome
from engine.worker.rows import RowTable


class Stage:
    """One rank's part in every micro-batch, in the order of the plans."""

    def __init__(
        self, decoder: Decoder, layout: Layout, rank: int, rows: RowTable, groups: Groups, clock: DeviceClock
    ) -> None:
        stage = layout.stage_of(rank)
        assert stage is not None
        self.decoder, self.rows, self.groups, self.clock = decoder, rows, groups, clock
        self.first, self.last = stage == 0, stage == layout.stages - 1
        self.reports_tokens = self.last and layout.shard_of(rank) == 0
        self.graphs: DecodeGraphs | None = None
        self._last_rank = layout.stages - 1
        self._hidden_width = decoder.config.hidden
        self._dtype = next(iter(decoder.weights.values())).dtype
        self._awaited: deque[list[int]] = deque()

    def run(self, plan: MicroBatchPlan) -> Outcome:
        """Run (on a GPU: launch) one micro-batch and hand its output on."""
        taken = time.monotonic_ns()
        self.rows.update(plan)
        if self.first and not self.last:
            self._take_tokens(plan)
        graph = None
        if self.graphs is not None and not plan.prefill:
            graph = self.graphs.get(len(plan.decode))
        greedy = None
        if graph is not None:
            received, start, output, greedy = graph.replay(self, plan)
        else:
            received, start, output = self._run_eager(plan)
        tokens = self._hand_on(plan, output, greedy)
        end = self.clock.mark()
        return Outcome(plan, tokens, taken, time.monotonic_ns(), received, start, end, graph is not None)

    def receive(self, into: Tensor) -> Mark | None:
        """Fill `into` with the previous stage's hidden states; None on the first stage."""
        if self.first:
            return None
        self.groups.receive_hidden(into)
        return self.clock.mark()

    def forward(self, tokens: Tensor, hidden: Tensor | None, batch: Batch) -> Tensor:
        """Layers of this stage over embedded tokens (first stage) or received hidden states."""
        inputs = self.decoder.embed(tokens) if hidden is None else hidden
        return self.decoder.forward(inputs, batch)

    def _run_eager(self, plan: MicroBatchPlan) -> tuple[Mark | None, Mark, Tensor]:
        count = len(plan.decode) + plan.prefill_tokens
        hidden, received = None, None
        if not self.first:
            hidden = torch.empty(count, self._hidden_width, dtype=self._dtype, device=self.rows.device)
            received = self.receive(hidden)
        start = received if received is not None else self.clock.mark()
        if plan.prefill:
            tokens, batch = self.rows.mixed_batch(plan)
        else:
            tokens, batch = self.rows.decode_batch(self.rows.to_device(self.rows.decode_input(plan, len(plan.decode))))
        output = self.forward(tokens, hidden, batch)
        if not self.last or not plan.sampled_rows:
            return received, start, output
        sampled = self._sampled_positions(plan)
        return received, start, self.decoder.logits(output if sampled is None else output[sampled])

    def _sampled_positions(self, plan: MicroBatchPlan) -> Tensor | None:
        """Which tokens of the batch are sampled from; None: all."""
        if not plan.prefill:
            return None
        places, at = list(range(len(plan.decode))), len(plan.decode)
        for chunk in plan.prefill:
            at += chunk.length
            if chunk.last:
                places.append(at - 1)
        return self.rows.to_device(np.array(places, np.int64))

    def _hand_on(self, plan: MicroBatchPlan, output: Tensor, greedy: Tensor | None) -> Tensor | None:
        """Send hidden states to the next stage; or sample, keep the tokens for the next step, and send them back.

        `greedy` holds the greedy tokens of a captured step, which has already kept them where it could.
        """
        if not self.last:
            self.groups.send_hidden(output)
            return None
        rows = plan.sampled_rows
        if not rows:
            return torch.empty(0, dtype=torch.int64) if self.reports_tokens else None
        sampling = self.rows.sampling(plan)
        tokens = greedy
        if sampling is not None:
            tokens = sample(output, *sampling)
        elif tokens is None:
            tokens = output.argmax(-1)
        if not self.first:
            self.groups.send_tokens(tokens if greedy is None else tokens.clone())
        elif sampling is not None or greedy is None:
            self.rows.keep_tokens(rows, tokens)
        return self._to_host(tokens) if self.reports_tokens else None

    def _to_host(self, tokens: Tensor) -> Tensor:
        if not tokens.is_cuda:
            return tokens
        host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        return host.copy_(tokens, non_blocking=True)

    def _take_tokens(self, plan: MicroBatchPlan) -> None:
        """First stage of several: receive tokens from the last stage until those that this plan decodes are here.

        They arrive in the order of the micro-batches, so the newest of a row always ends up in the table.
        """
        needed = {d.row for d in plan.decode}
        last_use = max((place for place, rows in enumerate(self._awaited) if needed.intersection(rows)), default=-1)
        for _ in range(last_use + 1):
            rows = self._awaited.popleft()
            tokens = torch.empty(len(rows), dtype=torch.int64, device=self.rows.device)
            self.groups.receive_tokens(tokens, self._last_rank)
            self.rows.keep_tokens(rows, tokens)
        if plan.sampled_rows:
            self._awaited.append(plan.sampled_rows)

    def settle(self) -> None:
        """With nothing in flight: take the tokens still on their way, so that the groups are empty."""
        while self._awaited:
            rows = self._awaited.popleft()
            self.groups.receive_tokens(
                torch.empty(len(rows), dtype=torch.int64, device=self.rows.device), self._last_rank
            )
        self.groups.finish_sends()

"""Runs micro-batches on this rank's stage: input, layers, sampling, output."""

from __future__ import annotations

import time
from collections import deque

import torch
from torch import Tensor

from engine.kernels import sample
from engine.models.decoder import Decoder
from engine.parallel.layout import Layout
from engine.plan import MicroBatchPlan
from engine.worker.graphs import CapturedDecode, DecodeGraphs
from engine.worker.groups import Groups
from engine.worker.marks import DeviceClock, Mark
from engine.worker.outcome import Outcome
from engine.worker.rows import Inputs, RowTable


class Stage:
    """One rank's part in every micro-batch, in the order of the plans."""

    def __init__(
        self, decoder: Decoder, layout: Layout, rank: int, rows: RowTable, groups: Groups, clock: DeviceClock
    ) -> None:
        stage = layout.stage_of(rank)
        assert stage is not None
        self.decoder, self.rows = decoder, rows
        self.first, self.last = stage == 0, stage == layout.stages - 1
        self.graphs: DecodeGraphs | None = None
        self.replays = False
        self._groups, self._clock = groups, clock
        self._reports_tokens = self.last and layout.shard_of(rank) == 0
        self._last_rank = layout.stages - 1
        self._awaited: deque[list[int]] = deque()

    def run(self, plan: MicroBatchPlan) -> Outcome:
        """Run (on a GPU: launch) one micro-batch and hand its output on."""
        taken = time.monotonic_ns()
        self.rows.update(plan)
        if self.first and not self.last:
            self._take_tokens(plan)
        graph = None
        if self.replays and self.graphs is not None and not plan.prefill:
            graph = self.graphs.get(len(plan.decode))
        hidden, received = self._receive(plan, graph)
        start = self._clock.mark() if received is None else received
        if graph is not None:
            output = graph.replay(self.rows.decode_input(plan, graph.size))[: len(plan.decode)]
        else:
            output = self.compute(self.rows.inputs(plan), hidden)
        tokens = self._hand_on(plan, output, kept=graph is None)
        end = self._clock.mark()
        return Outcome(plan, tokens, taken, time.monotonic_ns(), received, start, end, graph is not None)

    def compute(self, inputs: Inputs, hidden: Tensor | None) -> Tensor:
        """This stage's layers over its tokens (first stage) or received hidden states: hidden states [T, hidden], or on
        the last stage the sampled tokens. Only device operations."""
        entering = self.decoder.embed(inputs.tokens) if hidden is None else hidden
        output = self.decoder.forward(entering, inputs.batch)
        if not self.last or not len(inputs.rows):
            return output
        normed = output if inputs.picked is None else output[inputs.picked]
        tokens = sample(self.decoder.logits(normed), *self.rows.sampling(inputs))
        if self.first:
            self.rows.last_token[inputs.rows] = tokens
        return tokens

    def hidden_buffer(self, tokens: int) -> Tensor:
        """Room for hidden states."""
        weights = self.decoder.weights
        dtype = next(iter(weights.values())).dtype
        return torch.empty(tokens, self.decoder.config.hidden, dtype=dtype, device=self.rows.device)

    def settle(self) -> None:
        """With nothing in flight: take the tokens still on their way, so that the groups are empty."""
        self._receive_tokens(len(self._awaited))
        self._groups.finish_sends()

    def _receive(self, plan: MicroBatchPlan, graph: CapturedDecode | None) -> tuple[Tensor | None, Mark | None]:
        """(the previous stage's hidden states, when they came). The first stage of several has no hidden states, and
        its input is the tokens, which have come by now; a single stage waits for nobody."""
        if self.first:
            return None, None if self.last else self._clock.mark()
        count = len(plan.decode) + plan.prefill_tokens
        buffer = None if graph is None else graph.hidden
        hidden = self.hidden_buffer(count) if buffer is None else buffer[:count]
        self._groups.receive_hidden(hidden)
        return hidden, self._clock.mark()

    def _hand_on(self, plan: MicroBatchPlan, output: Tensor, kept: bool) -> Tensor | None:
        """Send hidden states to the next stage, or tokens to the first; the host's copy of the tokens where this rank
        reports them. What is not `kept` is overwritten by the next replay, which must not race a send in flight."""
        if not self.last:
            self._groups.send_hidden(output if kept else output.clone())
            return None
        if not plan.sampled_rows:
            return torch.empty(0, dtype=torch.int64) if self._reports_tokens else None
        if not self.first:
            self._groups.send_tokens(output if kept else output.clone())
        if not self._reports_tokens:
            return None
        if not output.is_cuda:
            return output
        return torch.empty(output.shape, dtype=output.dtype, pin_memory=True).copy_(output, non_blocking=True)

    def _take_tokens(self, plan: MicroBatchPlan) -> None:
        """First stage of several: receive tokens from the last stage until those that this plan decodes are here."""
        needed = {d.row for d in plan.decode}
        last_use = max((place for place, rows in enumerate(self._awaited) if needed.intersection(rows)), default=-1)
        self._receive_tokens(last_use + 1)
        if plan.sampled_rows:
            self._awaited.append(plan.sampled_rows)

    def _receive_tokens(self, micro_batches: int) -> None:
        """They arrive in the order of the micro-batches, so the newest of a row ends up in the table."""
        for _ in range(micro_batches):
            rows = self._awaited.popleft()
            tokens = torch.empty(len(rows), dtype=torch.int64, device=self.rows.device)
            self._groups.receive_tokens(tokens, self._last_rank)
            self.rows.keep_tokens(rows, tokens)

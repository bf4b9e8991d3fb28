"""Composes one slot's next micro-batch: which rows decode, which prompt chunks run, who is admitted or preempted."""

from __future__ import annotations

from itertools import islice

from engine.plan import AdmitRow, AppendBlocks, DecodeRow, MicroBatchPlan, PrefillChunk
from engine.scheduler.admission import Quota
from engine.scheduler.request import Request
from engine.scheduler.running import Running
from engine.scheduler.slots import Flight, Slot
from engine.scheduler.waiting import WaitingQueue


class Composer:
    """Turns a quota and a slot into a plan. `preempted_total` counts the requests it sent back to wait."""

    def __init__(self, running: Running, waiting: WaitingQueue) -> None:
        self._running = running
        self._waiting = waiting
        self.preempted_total = 0

    def compose(self, slot: Slot, quota: Quota, step: int) -> tuple[MicroBatchPlan, Flight] | None:
        """Plan the slot's next step; None when nothing can run. A slot with outstanding steps runs ahead of them: it
        keeps what it has, may take in more, and preempts nobody."""
        ahead = slot.busy
        if ahead:
            if len(slot.decoding) > quota.keep or slot.live > quota.requests:
                return None
        else:
            self._shed(slot, quota)
        self._draw_decodes(slot, quota)
        append: list[AppendBlocks] = []
        admit: list[AdmitRow] = []
        self._extend_decodes(slot, append, may_preempt=not ahead)
        decode, sampled = _decode_rows(slot)
        prefill = self._prefill(slot, quota, admit, append, sampled)
        if not decode and not prefill:
            return None
        return MicroBatchPlan(step, slot.index, admit, append, decode, prefill), Flight(step, slot, sampled)

    def preempt(self, request: Request) -> None:
        """Send a running request that no outstanding step uses back to wait."""
        self._running.preempt(request, self._waiting)
        self.preempted_total += 1

    def _shed(self, slot: Slot, quota: Quota) -> None:
        """Give to the pool what the slot holds above its quota, the last that joined first."""
        pool = self._running.pool
        while len(slot.decoding) > quota.keep or (slot.decoding and slot.live > quota.requests):
            request, _ = slot.decoding.popitem()
            pool.decoding[request] = None
            request.group = pool
        while slot.live > quota.requests:
            request, _ = slot.prefilling.popitem()
            pool.prefilling[request] = None
            request.group = pool

    def _draw_decodes(self, slot: Slot, quota: Quota) -> None:
        """Take decodes that are in no slot, the longest there first."""
        pool = self._running.pool
        count = min(quota.decodes - len(slot.decoding), quota.requests - slot.live)
        if count <= 0 or not pool.decoding:
            return
        if count >= len(pool.decoding) and not slot.decoding:
            slot.decoding, pool.decoding = pool.decoding, slot.decoding
            for request in slot.decoding:
                request.group = slot
            return
        for request in list(islice(pool.decoding, count)):
            del pool.decoding[request]
            slot.decoding[request] = None
            request.group = slot

    def _extend_decodes(self, slot: Slot, append: list[AppendBlocks], may_preempt: bool) -> None:
        """Give blocks to the decodes that need one, first in order first; who gets none is starved and sits out."""
        needy = [r for r in slot.decoding if r.position >= r.barrier and r.position < r.end]
        if not needy:
            return
        needy.sort(key=lambda request: request.order)
        for request in needy:
            if request.group is not slot:
                continue  # preempted for one before it
            granted = self._running.extend(request)
            while granted is None and may_preempt:
                victim = self._running.lowest_below(request)
                if victim is None:
                    break
                self.preempt(victim)
                granted = self._running.extend(request)
            if granted is None:
                self._running.starved.add(request)
            else:
                append.append(granted)

    def _prefill(
        self, slot: Slot, quota: Quota, admit: list[AdmitRow], append: list[AppendBlocks], sampled: list[Request]
    ) -> list[PrefillChunk]:
        """Spend the prompt-token budget: on the slot's own prefills, then the pool's, then on new admissions."""
        running, waiting, pool = self._running, self._waiting, self._running.pool
        budget = quota.prompt_tokens
        chunks: list[PrefillChunk] = []
        for request in list(slot.prefilling):
            if budget <= 0:
                return chunks
            budget -= self._chunk(request, slot, budget, chunks, sampled)
        while budget > 0 and slot.live < quota.requests:
            if pool.prefilling:
                request = next(iter(pool.prefilling))
                del pool.prefilling[request]
                slot.prefilling[request] = None
                request.group = slot
            elif len(waiting) and running.fits(waiting.head()):
                request = waiting.pop()
                row, blocks = running.admit(request, slot)
                admit.append(row)
                append.append(blocks)
            else:
                break
            budget -= self._chunk(request, slot, budget, chunks, sampled)
        return chunks

    def _chunk(
        self, request: Request, slot: Slot, budget: int, chunks: list[PrefillChunk], sampled: list[Request]
    ) -> int:
        length = min(budget, request.known - request.position)
        last = request.position + length == request.known
        chunks.append(PrefillChunk(request.row, request.position, length, last))
        request.position += length
        self._running.prompt_tokens -= length
        if last:
            self._running.prefilled(request, slot)
            sampled.append(request)
        return length


def _decode_rows(slot: Slot) -> tuple[list[DecodeRow], list[Request]]:
    rows: list[DecodeRow] = []
    requests: list[Request] = []
    for request in slot.decoding:
        position = request.position
        if position < request.barrier:
            rows.append(DecodeRow(request.row, position))
            requests.append(request)
            request.position = position + 1
    return rows, requests

"""Every request that has a row: which group it is in, and the rows and cache blocks it holds."""

from __future__ import annotations

from engine.plan import AdmitRow, AppendBlocks
from engine.scheduler.blocks import FreeList, blocks_for
from engine.scheduler.limits import Limits
from engine.scheduler.request import Group, Request, State
from engine.scheduler.slots import Slot
from engine.scheduler.waiting import WaitingQueue


class Running:
    """Slots, the pool, and the free rows and blocks.

    starved: running decodes that were refused a block and have not had one since; while there are any, nothing is
    admitted and no slot runs ahead. prompt_tokens: known tokens of running requests that are not scheduled yet.
    retired: slots beyond the async depth that still have steps outstanding.
    """

    def __init__(self, limits: Limits, max_running: int, depth: int) -> None:
        self.block_size = limits.block_size
        self.blocks = FreeList(limits.kv_blocks)
        self.rows = FreeList(max_running)
        self.pool = Group()
        self.slots = [Slot(index) for index in range(depth)]
        self.retired: dict[int, Slot] = {}
        self.starved: set[Request] = set()
        self.prompt_tokens = 0
        self.count = 0

    @property
    def decoding(self) -> int:
        """Running requests past their prefill."""
        return sum([len(slot.decoding) for slot in self.slots], len(self.pool.decoding))

    def fits(self, request: Request) -> bool:
        """Whether a waiting request can have a row and the blocks of its known tokens now, with a hundredth of the
        blocks left for those that already run."""
        if self.starved or not self.rows.free:
            return False
        reserve = self.blocks.count // 100 if self.count else 0
        return blocks_for(len(request.tokens), self.block_size) + reserve <= self.blocks.free

    def admit(self, request: Request, slot: Slot) -> tuple[AdmitRow, AppendBlocks]:
        """Give a waiting request that fits its row and blocks, and put it into the slot's prefills."""
        request.state = State.RUNNING
        request.row = self.rows.take(1)[0]
        request.known = len(request.tokens)
        request.position = 0
        request.blocks = self.blocks.take(blocks_for(request.known, self.block_size))
        request.group = slot
        slot.prefilling[request] = None
        self.prompt_tokens += request.known
        self.count += 1
        spec = request.spec
        row = AdmitRow(request.row, list(request.tokens), spec.temperature, spec.top_p, spec.seed)
        return row, AppendBlocks(request.row, 0, list(request.blocks))

    def prefilled(self, request: Request, slot: Slot) -> None:
        """All known tokens of a request are scheduled: it decodes from now on."""
        del slot.prefilling[request]
        slot.decoding[request] = None
        self._set_barrier(request)

    def extend(self, request: Request) -> AppendBlocks | None:
        """Give a decode the block that its next step needs; None when none is free."""
        if not self.blocks.free:
            return None
        block = self.blocks.take(1)
        append = AppendBlocks(request.row, len(request.blocks), block)
        request.blocks += block
        self.starved.discard(request)
        self._set_barrier(request)
        return append

    def lowest_below(self, request: Request) -> Request | None:
        """The last in order of those that run after `request` and that no outstanding step uses; None without any."""
        below = [
            other
            for group in (self.pool, *self.slots)
            if not group.busy
            for members in (group.decoding, group.prefilling)
            for other in members
            if other.order > request.order
        ]
        return max(below, key=lambda other: other.order, default=None)

    def preempt(self, request: Request, waiting: WaitingQueue) -> None:
        """Take row and blocks from a request that no outstanding step uses; it waits to be recomputed."""
        self.detach(request)
        self.release(request)
        request.state = State.WAITING
        waiting.push(request)

    def leave(self, request: Request) -> None:
        """An ended request goes; its row and blocks are free once no outstanding step uses them."""
        slot = request.group
        self.detach(request)
        if isinstance(slot, Slot) and slot.outstanding:
            slot.leaving.append((slot.outstanding[-1].step, request))
        else:
            self.release(request)

    def detach(self, request: Request) -> None:
        """Take a running request out of its group."""
        if request.group is None:
            raise RuntimeError(f"request {request.id} is in no group")
        if request in request.group.prefilling:
            self.prompt_tokens -= request.known - request.position
        request.group.remove(request)
        self.starved.discard(request)
        self.count -= 1

    def release(self, request: Request) -> None:
        """Free the row and blocks of a detached request."""
        self.rows.give([request.row])
        self.blocks.give(request.blocks)
        request.row = -1
        request.blocks = []

    def resize(self, depth: int) -> None:
        """Have `depth` slots. Requests of removed slots go to the pool, at once or when their steps are completed."""
        for slot in self.slots[depth:]:
            if slot.outstanding:
                self.retired[slot.index] = slot
            else:
                slot.move_all(self.pool)
        del self.slots[depth:]
        for index in range(len(self.slots), depth):
            self.slots.append(self.retired.pop(index) if index in self.retired else Slot(index))

    def _set_barrier(self, request: Request) -> None:
        request.barrier = min(len(request.blocks) * self.block_size, request.end)

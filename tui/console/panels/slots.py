"""Queues, and how the live requests are spread over the slots: the herd at a glance."""

from __future__ import annotations

from collections.abc import Hashable

from textual.strip import Strip

from sessions.herd import herd_index
from sessions.messages import QueueFrame, SlotSize
from tui.console.draw.bars import add_bar
from tui.console.draw.palette import ACCENT, BAD, DIM, GOOD, STRONG, TEXT, WARN, slot_digit, slot_ink
from tui.console.draw.row import Row, text_line
from tui.console.draw.units import percent
from tui.console.panels.panel import Panel

HERD_WINDOW_NS = 5_000_000_000
GAUGE_WIDTH = 12
CELL_WIDTH = 10


class SlotsPanel(Panel):
    """Waiting and running requests, cache use, herd index, and a bar a slot."""

    HELP_TEXT = (
        "A bar a slot: decode requests, then requests still in prefill; the tick is the even share. H is the herd "
        "index over the last 5 s: 0 when requests are spread evenly over the stages, 1 when they all travel in one "
        "micro-batch; the tick on its gauge is what random placement gives (2/C). Waves is the number of equal groups."
    )

    def key(self) -> Hashable:
        return (self.store.queue, self.store.engine)

    def title(self) -> str:
        queue = self.store.queue
        return f"Slots · {queue.running} running · {queue.waiting} waiting" if queue else "Slots"

    def rows(self, width: int, height: int) -> list[Strip]:
        queue = self.store.queue
        if queue is None:
            return [text_line(width, " No scheduler state yet.", DIM)]
        strips = [self._herd_row(queue, width)]
        if height >= 4:
            strips.append(self._cache_row(queue, width))
        return strips + self._slot_rows(queue, width, height - len(strips))

    def _herd_row(self, queue: QueueFrame, width: int) -> Strip:
        row = Row().add(" H ", DIM)
        index, count = (metric.mean_of_last(HERD_WINDOW_NS) for metric in (self.store.herd, self.store.waves))
        if index is None:
            row.add("n/a ", TEXT).add(herd_index([slot.decode for slot in queue.slots], self.store.stages).why, DIM)
            return row.strip(width)
        live = sum(slot.decode for slot in queue.slots)
        style = GOOD if index <= 2 / max(2, live) else WARN if index < 0.5 else BAD
        row.add(f"{index:.2f} ", style)
        add_bar(row, index, min(GAUGE_WIDTH, max(4, width - 28)), style, 2 / live if live >= 2 else None)
        row.add("  waves ", DIM).add(f"{count or 0:.1f}", STRONG)
        row.add(f" of {min(live, len(queue.slots))}", DIM)
        return row.strip(width)

    def _cache_row(self, queue: QueueFrame, width: int) -> Strip:
        used = queue.kv_blocks_used / queue.kv_blocks if queue.kv_blocks else None
        row = Row().add(" in flight ", DIM).add(f"{queue.in_flight}/{len(queue.slots)}")
        row.add("  KV ", DIM).add(percent(used), WARN if used is not None and used > 0.9 else TEXT)
        row.add("  done ", DIM).add(f"{queue.finished_total:,}")
        if queue.preempted_total:
            row.add("  preempted ", DIM).add(f"{queue.preempted_total}", WARN)
        if queue.refused_total:
            row.add("  refused ", DIM).add(f"{queue.refused_total}", BAD)
        return row.strip(width)

    def _slot_rows(self, queue: QueueFrame, width: int, height: int) -> list[Strip]:
        slots = queue.slots
        if not slots or height < 1:
            return []
        columns = max(1, min(-(-len(slots) // height), width // CELL_WIDTH))
        each = width // columns
        live = sum(slot.decode + slot.prefill for slot in slots)
        top = max(max(slot.decode + slot.prefill for slot in slots), 1)
        even = live / len(slots)
        strips = []
        for line in range(min(height, -(-len(slots) // columns))):
            row = Row()
            for column in range(columns):
                index = column * min(height, -(-len(slots) // columns)) + line
                if index < len(slots):
                    row.to(column * each)
                    self._slot(row, queue, index, each - 1, top, even)
            strips.append(row.strip(width))
        hidden = len(slots) - columns * height
        if hidden > 0:
            strips[-1] = text_line(width, f" {hidden + columns} more slots", DIM)
        return strips

    def _slot(self, row: Row, queue: QueueFrame, index: int, width: int, top: int, even: float) -> None:
        slot = queue.slots[index]
        row.add(f" {slot_digit(index)}", slot_ink(index)).add("▸" if slot.in_flight else " ", ACCENT)
        text = slot_text(slot)
        room = max(2, width - 4 - max(len(slot_text(each)) for each in queue.slots))
        total = slot.decode + slot.prefill
        add_bar(row, total / top, room, slot_ink(index), even / top if len(queue.slots) > 1 and even else None)
        row.add(f" {text}", TEXT if total else DIM)


def slot_text(slot: SlotSize) -> str:
    """Decode requests, and with a p those in prefill."""
    return f"{slot.decode}" + (f"+{slot.prefill}p" if slot.prefill else "")

"""Power of each GPU against its cap and against what it should draw; without GPUs, the engine's processes."""

from __future__ import annotations

from collections.abc import Hashable

from textual.strip import Strip

from sessions.messages import GpuFrame, ProcessSample
from tui.console.draw.bars import add_bar, upright
from tui.console.draw.palette import ACCENT, BAD, DIM, FAINT, TEXT, WARN
from tui.console.draw.row import Row, text_line
from tui.console.draw.units import percent, size
from tui.console.panels.panel import Panel
from tui.console.store.gpus import Gpu

MIDDLE, WIDE = 50, 76
CELL_WIDTH = 18
SKYLINE_LABEL = 5
SPIN_UTILIZATION, SPIN_POWER = 0.9, 0.4


class GpusPanel(Panel):
    """A bar a GPU; many GPUs are laid out in columns of narrow cells."""

    HELP_TEXT = (
        "Each bar is power now against the GPU's power cap; the tick is the power expected at this load, when a "
        "diagnosis knows it. High utilisation at low power is spinning (a communication kernel that waits counts as "
        "busy). Without GPUs the bars are the engine's processes: 100 % is one core."
    )

    def key(self) -> Hashable:
        gpus = tuple((gpu.t_ns, gpu.stale(self.store.now_ns)) for gpu in self.store.gpus.values())
        return (gpus, self.store.expected, tuple(host.t_ns for host in self.store.hosts.values()))

    def title(self) -> str:
        gpus = self.store.sorted_gpus()
        if not gpus:
            return "Processes"
        total = sum(gpu.watts or 0 for gpu in gpus)
        names = sorted({gpu.frame.name for gpu in gpus})
        return f"GPUs · {len(gpus)}x {' + '.join(names)} · {total:,.0f} W"

    def rows(self, width: int, height: int) -> list[Strip]:
        gpus = self.store.sorted_gpus()
        if not gpus:
            return self._processes(width, height)
        columns = -(-len(gpus) // height)
        if columns == 1:
            return [self._gpu_row(gpu, width) for gpu in gpus]
        if columns * CELL_WIDTH <= width:
            return _in_columns([self._gpu_cell(gpu, width // columns - 1) for gpu in gpus], columns, width, height)
        return self._skyline(gpus, width, height)

    def _gpu_row(self, gpu: Gpu, width: int) -> Strip:
        frame = gpu.frame
        row = Row().add(f"{frame.index:>3} ", ACCENT)
        if gpu.stale(self.store.now_ns):
            return row.add("no reading for 3 s", BAD).strip(width)
        details = _details(frame, width)
        power = gpu.watts
        watts = _watts(frame, power)
        room = width - row.width - len(watts) - len(details) - 2
        self._power_bar(row, frame, power, max(4, room))
        row.add(" ").add(watts, TEXT)
        spinning = _spinning(frame)
        row.add(details, WARN if spinning else DIM)
        return row.strip(width)

    def _gpu_cell(self, gpu: Gpu, width: int) -> Row:
        frame = gpu.frame
        row = Row().add(f"{frame.index:>2} ", ACCENT)
        if gpu.stale(self.store.now_ns):
            return row.add("no reading", BAD)
        power = gpu.watts
        watts = f"{power:4.0f} W" if power is not None else "   n/a"
        self._power_bar(row, frame, power, max(3, width - row.width - len(watts)))
        return row.add(watts, TEXT)

    def _skyline(self, gpus: list[Gpu], width: int, height: int) -> list[Strip]:
        """One upright bar a GPU, for more GPUs than there is room for figures; the extremes are named."""
        now = self.store.now_ns
        watts = [(power, gpu.frame.index) for gpu in gpus if (power := gpu.watts) is not None]
        head = Row()
        if watts:
            for name, (value, index) in (("least", min(watts)), ("most", max(watts))):
                head.add(f" {name} ", DIM).add(f"{value:.0f} W", TEXT).add(f" (GPU {index}) ", DIM)
        lost = sum(gpu.stale(now) for gpu in gpus)
        head.add(f" {lost} without reading" if lost else "", BAD)
        each = width - SKYLINE_LABEL
        chunks = [gpus[i : i + each] for i in range(0, len(gpus), each)][: max(1, height - 1)]
        tall = max(1, (height - 1) // len(chunks))
        strips = [head.strip(width)]
        for chunk in chunks:
            levels = [_ratio(gpu.frame, gpu.watts) for gpu in chunk]
            for line, text in enumerate(upright(levels, tall)):
                label = f"{chunk[0].frame.index:>3} " if line == tall - 1 else ""
                strips.append(Row().add(label, ACCENT).to(SKYLINE_LABEL).add(text, ACCENT).strip(width))
        return strips[:height]

    def _power_bar(self, row: Row, frame: GpuFrame, power: float | None, width: int) -> None:
        limit = frame.power_limit_watts
        expected = self.store.expected.watts.get(frame.index) if self.store.expected else None
        if power is None or not limit:
            row.add("·" * width, FAINT)
            return
        add_bar(row, power / limit, width, ACCENT, expected / limit if expected is not None else None)

    def _processes(self, width: int, height: int) -> list[Strip]:
        samples = [sample for host in self.store.hosts.values() for sample in host.processes]
        if not samples:
            return [text_line(width, " No GPU here, and no engine process seen yet.", DIM)]
        samples.sort(key=lambda s: (s.rank is None, s.rank or 0, s.role, s.pid))
        columns = min(-(-len(samples) // height), max(1, width // CELL_WIDTH))
        return _in_columns([_process_row(s, width // columns - 1) for s in samples], columns, width, height)


def _process_row(sample: ProcessSample, width: int) -> Row:
    name = f"r{sample.rank}" if sample.rank is not None else sample.role
    row = Row().add(f" {name[:7]:<7} ", ACCENT)
    figures = f" {sample.cpu_ratio * 100:4.0f} %"
    if width >= 40:
        figures += f"  {size(sample.memory_bytes):>9}"
    if width >= WIDE:
        figures += f"  pid {sample.pid}"
    add_bar(row, sample.cpu_ratio, max(3, width - row.width - len(figures)), ACCENT)
    return row.add(figures, TEXT)


def _in_columns(parts: list[Row], columns: int, width: int, height: int) -> list[Strip]:
    each = width // columns
    strips = []
    for line in range(min(height, -(-len(parts) // columns))):
        row = Row()
        for column in range(columns):
            index = column * height + line
            if index < len(parts):
                row.to(column * each)
                row.extend(parts[index])
        strips.append(row.strip(width))
    return strips


def _ratio(frame: GpuFrame, power: float | None) -> float:
    return power / frame.power_limit_watts if power is not None and frame.power_limit_watts else 0.0


def _watts(frame: GpuFrame, power: float | None) -> str:
    if power is None:
        return f"n/a ({frame.unavailable.get('power_watts', 'not reported')})"
    limit = f"/{frame.power_limit_watts:.0f}" if frame.power_limit_watts else ""
    return f"{power:5.0f}{limit} W"


def _details(frame: GpuFrame, width: int) -> str:
    """What there is room for beside the bar; the same length for every GPU, so that the bars align."""
    if width < MIDDLE:
        return ""
    parts = [f"  util {percent(frame.utilization_ratio):>5}"]
    if width >= WIDE:
        parts.append(f"  {size(frame.memory_used_bytes):>8}")
    if width >= WIDE and frame.temperature_celsius is not None:
        parts.append(f"  {frame.temperature_celsius:.0f} °C")
    parts.append("  spin" if _spinning(frame) else "      ")
    return "".join(parts)


def _spinning(frame: GpuFrame) -> bool:
    if not frame.power_limit_watts or frame.power_watts is None or frame.utilization_ratio is None:
        return False
    return frame.utilization_ratio >= SPIN_UTILIZATION and frame.power_watts / frame.power_limit_watts < SPIN_POWER

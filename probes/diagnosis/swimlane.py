"""A picture of who computed which micro-batch when: one lane a stage, coloured by slot, the slot's number inside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probes.diagnosis.canvas import Canvas, Colour, PngCanvas, SvgCanvas
from probes.diagnosis.evidence import Evidence, StageSpan
from probes.diagnosis.steady import cycle_ns

_WIDTH, _LEFT, _TOP, _LANE = 1200, 90, 40, 30
_CYCLES = 12
_BACKGROUND: Colour = (255, 255, 255)
_LANE_COLOUR: Colour = (235, 235, 235)
_INK: Colour = (40, 40, 40)
_PREFILL: Colour = (170, 170, 170)
_SLOTS: tuple[Colour, ...] = (
    (68, 119, 170),
    (238, 102, 119),
    (34, 136, 51),
    (204, 187, 68),
    (102, 204, 238),
    (170, 51, 119),
    (120, 120, 120),
)
"""Colours that stay apart for the colour-blind."""


def draw(evidence: Evidence, path: Path) -> None:
    """Draw the last dozen rounds into `path` (.svg or .png). Raise ValueError when there is nothing to draw."""
    if path.suffix.lower() not in (".svg", ".png"):
        raise ValueError(f"{path}: draw into a .svg or .png file")
    spans = _last_rounds(evidence.spans)
    if not spans:
        raise ValueError("no micro-batch was timed: there is no swimlane to draw")
    lanes = max(span.stage if evidence.parallelism == "pp" else span.rank for span in spans) + 1
    height = _TOP + lanes * _LANE + 30
    canvas: Canvas
    canvas = (SvgCanvas if path.suffix.lower() == ".svg" else PngCanvas)(_WIDTH, height, _BACKGROUND)
    _paint(canvas, evidence, spans, lanes)
    path.write_bytes(canvas.data())


def _last_rounds(spans: Sequence[StageSpan]) -> list[StageSpan]:
    """Spans of the last rounds; all of them when the length of a round is not known."""
    cycle = cycle_ns(spans)
    if cycle is None:
        return list(spans)
    decodes = [span for span in spans if span.decode]
    last = max(span.end for span in decodes)
    return [span for span in spans if span.start > last - _CYCLES * cycle]


def _paint(canvas: Canvas, evidence: Evidence, spans: Sequence[StageSpan], lanes: int) -> None:
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    scale = (_WIDTH - _LEFT - 10) / max(1, end - start)
    title = "EMULATED " if evidence.emulated else ""
    title += f"{evidence.engine} {(end - start) / 1e6:.1f} ms"
    canvas.text(_LEFT, 12, title, _INK)
    word = "stage" if evidence.parallelism == "pp" else "rank"
    for lane in range(lanes):
        y = _TOP + lane * _LANE
        canvas.text(8, y + 8, f"{word} {lane}", _INK)
        canvas.rectangle(_LEFT, y + 2, _WIDTH - _LEFT - 10, _LANE - 4, _LANE_COLOUR)
    for span in spans:
        y = _TOP + (span.stage if evidence.parallelism == "pp" else span.rank) * _LANE
        x, width = _LEFT + (span.start - start) * scale, (span.end - span.start) * scale
        canvas.rectangle(x, y + 2, width, _LANE - 4, _PREFILL if span.prefill else _SLOTS[span.slot % len(_SLOTS)])
        label = str(span.slot)
        if width > 9 * len(label) and span.slot >= 0:
            canvas.text(x + width / 2 - 4 * len(label), y + 9, label, _BACKGROUND)
    for tick in range(6):
        x = _LEFT + tick * (_WIDTH - _LEFT - 60) / 5
        canvas.text(x, _TOP + lanes * _LANE + 8, f"{(x - _LEFT) / scale / 1e6:.1f}", _INK)

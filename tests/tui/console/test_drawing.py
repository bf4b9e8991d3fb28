from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from tui.console.draw import units
from tui.console.draw.bars import add_bar, bar_text, upright
from tui.console.draw.braille import area, nice_top
from tui.console.draw.palette import slot_digit, slot_fill
from tui.console.draw.row import Row
from tui.console.draw.swimlane import cells, nice_ns
from tui.console.store.lanes import LaneSpan


@given(st.floats(-1, 2), st.integers(1, 80), st.one_of(st.none(), st.floats(0, 2)))
def test_a_bar_is_as_wide_as_asked_and_as_long_as_its_ratio(ratio: float, width: int, mark: float | None) -> None:
    row = Row()
    add_bar(row, ratio, width, Style(), mark)
    assert row.width == width
    eighths = " ▏▎▍▌▋▊▉█"
    filled = sum(eighths.index(char) for char in bar_text(ratio, width))
    assert filled == pytest.approx(min(1, max(0, ratio)) * width * 8, abs=0.5)


@given(st.lists(st.floats(0, 1), max_size=70), st.integers(1, 6))
def test_upright_bars_add_up_to_their_ratios(ratios: list[float], height: int) -> None:
    lines = upright(ratios, height)
    assert len(lines) == height
    for i, ratio in enumerate(ratios):
        filled = sum(" ▁▂▃▄▅▆▇█".index(line[i]) for line in lines)
        assert filled == pytest.approx(ratio * height * 8, abs=0.5)


@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), max_size=60), st.integers(1, 8))
def test_an_area_has_as_many_dots_as_its_values_are_high(values: list[float | None], height: int) -> None:
    lines = area(values, height, 100.0)
    assert len(lines) == height and {len(line) for line in lines} == {-(-len(values) // 2)}
    dots = sum(bin(ord(char) - 0x2800).count("1") for line in lines for char in line)
    expected = sum(max(1, round(v / 100 * height * 4)) for v in values if v)
    assert dots == expected


@given(st.floats(1e-6, 1e12))
def test_the_top_of_an_axis_is_near_and_above(value: float) -> None:
    assert value <= nice_top(value) * (1 + 1e-12) and nice_top(value) <= value * 1.7


@given(st.floats(0.5, 1e12))
def test_a_nice_time_is_near_and_above(value: float) -> None:
    assert value <= nice_ns(value) <= max(1, value * 2.5)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 40), st.integers(0, 5), st.booleans()), max_size=25),
    st.integers(0, 200),
    st.integers(1, 20),
    st.integers(1, 40),
)
def test_swimlane_cells_equal_counting_nanoseconds(
    plan: list[tuple[int, int, int, bool]], start: int, column: int, count: int
) -> None:
    spans, t_ns = [], 0
    for i, (gap, size, slot, prefill) in enumerate(plan):
        t_ns += gap
        spans.append(LaneSpan(t_ns, t_ns, t_ns + size, slot, i, 1, int(prefill), False))
        t_ns += size
    touching = [s for s in spans if s.end > start and s.ready < start + column * count]
    for i, cell in enumerate(cells(touching, start, column, count)):
        times = range(start + i * column, start + (i + 1) * column)
        held = {span: sum(span.ready <= t < span.end for t in times) for span in spans}
        held = {span: n for span, n in held.items() if n}
        if cell is None:
            assert not held
            continue
        assert cell.share == pytest.approx(sum(held.values()) / column)
        longest = max(held.values())
        best = next(span for span, n in held.items() if n == longest)
        assert (cell.slot, cell.prefill) == (best.slot, best.prefill_tokens > 0)


@given(st.lists(st.text(max_size=12), max_size=8), st.integers(1, 60))
def test_a_row_becomes_a_strip_of_the_width_with_a_style_on_every_segment(texts: list[str], width: int) -> None:
    row = Row()
    for text in texts:
        row.add("".join(char for char in text if char.isprintable()))
    strip = row.strip(width)
    assert strip.cell_length == width
    assert sum(cell_len(segment.text) for segment in strip) == width
    assert all(segment.style is not None for segment in strip)


def test_slots_of_an_eight_stage_pipeline_have_colours_and_digits_of_their_own() -> None:
    assert len({slot_fill(slot).bgcolor for slot in range(8)}) == 8
    assert len({slot_digit(slot) for slot in range(62)}) == 62


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.duration(1_500_000), "1.5 ms"),
        (units.duration(250), "250 ns"),
        (units.duration(12_000), "12 us"),
        (units.duration(2_000_000_000), "2 s"),
        (units.clock(3_723_000_000_000), "1:02:03"),
        (units.size(78 << 30), "78 GiB"),
        (units.size(None), "n/a"),
        (units.quantity(95.64), "95.6"),
        (units.quantity(248.0), "248"),
        (units.quantity(12345.6), "12,346"),
        (units.quantity(2_500_000), "2.5M"),
        (units.percent(0.876), "88 %"),
    ],
)
def test_figures_are_short_and_have_units(text: str, expected: str) -> None:
    assert text == expected


@given(st.text("abc 漢█", max_size=12), st.integers(1, 12))
def test_a_line_is_as_wide_as_asked_and_shows_that_it_was_cut(text: str, width: int) -> None:
    row = Row().add(text)
    strip = row.strip(width)
    assert strip.cell_length == width == cell_len(strip.text)
    assert strip.text.endswith("…") == (row.width > width)

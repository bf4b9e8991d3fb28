from __future__ import annotations

import pytest

from engine.config import ConfigError
from engine.emulated.calibrate import UNFITTED_BAND
from engine.emulated.hardware import load_hardware
from engine.emulated.model_profile import load_model
from engine.emulated.predict import slot_sizes
from engine.emulated.report import chart_text, rows_text, validation_text
from engine.emulated.validation import tables
from engine.emulated.whatif import Grid, Row, Sweep
from sessions.knobs import Knobs
from sessions.load.lengths import Lengths
from sessions.load.workload import Workload


def sweep(**changes: object) -> Sweep:
    fields: dict[str, object] = {
        "hardware": load_hardware("rtx-pro-6000"),
        "model": load_model("kimi-k2.6"),
        "workload": Workload(prompt_tokens=Lengths(4, 4), output_tokens=Lengths(24, 24)),
        "band": UNFITTED_BAND,
    }
    return Sweep(**{**fields, **changes})  # type: ignore[arg-type]


def rows(grid: Grid) -> list[Row]:
    return sweep().run(list(grid.settings()))


def test_every_combination_is_a_row_in_order() -> None:
    grid = Grid(gpus=(8,), ranks=(8,), admission=("greedy", "capped"), cuda_graphs=(True, False), concurrency=(1, 8))
    settings = list(grid.settings())
    assert len(settings) == 8
    assert [s.concurrency for s in settings[:2]] == [1, 8]
    assert all(s.knobs.async_depth == 8 for s in settings)


def test_the_default_depth_is_one_under_expert_parallelism() -> None:
    (setting,) = Grid(gpus=(8,), ranks=(8,), parallelism=("ep",), concurrency=(4,)).settings()
    assert setting.knobs.async_depth == 1


def test_gpus_that_make_no_whole_engine_are_refused() -> None:
    with pytest.raises(ConfigError, match="multiple"):
        list(Grid(gpus=(9,), ranks=(8,)).settings())


def test_splitting_the_herd_pays_and_graphs_alone_do_not() -> None:
    grid = Grid(gpus=(8,), ranks=(8,), admission=("greedy", "capped"), cuda_graphs=(False, True), concurrency=(8,))
    eager_herd, herd, eager_even, even = rows(grid)
    assert herd.tokens_per_s.mid == pytest.approx(eager_herd.tokens_per_s.mid, rel=0.01)
    assert eager_even.tokens_per_s.mid > 1.5 * eager_herd.tokens_per_s.mid
    assert even.tokens_per_s.mid > 1.05 * eager_even.tokens_per_s.mid
    assert (herd.waves, even.waves) == (pytest.approx(1.0), pytest.approx(8.0))
    assert all(row.emulated for row in (eager_herd, herd, eager_even, even))


def test_more_gpus_are_more_engines_that_share_the_load() -> None:
    few, many = rows(Grid(gpus=(8, 4096), ranks=(8,), concurrency=(700,)))
    assert many.setting.engines == 512
    assert many.tokens_per_s.mid > 10 * few.tokens_per_s.mid
    assert many.tokens_per_s_per_gpu < few.tokens_per_s_per_gpu
    alone = rows(Grid(gpus=(8,), ranks=(8,), concurrency=(1,)))[0]
    pair = rows(Grid(gpus=(8,), ranks=(8,), concurrency=(2,)))[0]
    expected = 188 * pair.tokens_per_s.mid + 324 * alone.tokens_per_s.mid
    assert many.tokens_per_s.mid == pytest.approx(expected, rel=1e-6)
    idle = rows(Grid(gpus=(800,), ranks=(8,), concurrency=(1,)))[0]
    assert idle.watts is not None and alone.watts is not None
    assert idle.watts == pytest.approx((99 * 50 + alone.watts) / 100)


def test_a_row_carries_the_band_and_says_what_does_not_fit() -> None:
    row = rows(Grid(gpus=(4,), ranks=(4,), concurrency=(2,)))[0]
    assert row.tokens_per_s.high / row.tokens_per_s.mid == pytest.approx(1 + UNFITTED_BAND)
    assert row.tokens_per_s.mid / row.tokens_per_s.low == pytest.approx(1 + UNFITTED_BAND)
    assert row.short_bytes > 50e9
    assert "does not fit" in rows_text([row])


def test_text_is_marked_emulated_and_shows_every_row() -> None:
    found = rows(Grid(gpus=(8,), ranks=(8,), admission=("greedy", "capped"), concurrency=(1, 4)))
    table, chart = rows_text(found), chart_text(found)
    assert table.startswith("EMULATED") and chart.startswith("EMULATED")
    assert table.count("\n") >= 4 and chart.count("admission=") == 4
    assert validation_text(tables()).count("MAPE") == len(tables())


def test_slot_sizes_follow_the_policy() -> None:
    def sizes(admission: str, concurrency: int, depth: int = 4, cap: int = 256) -> tuple[int, ...]:
        return slot_sizes(Knobs(depth, admission, cap), concurrency)  # type: ignore[arg-type]

    assert sizes("greedy", 10) == (10,)
    assert sizes("greedy", 10, cap=4) == (4, 4, 2)
    assert sizes("greedy", 100, cap=4) == (4, 4, 4, 4)
    assert sizes("capped", 5) == (2, 2, 1)
    assert sizes("rebalance", 5) == (2, 1, 1, 1)
    assert sizes("decode-cap", 8) == (2, 2, 2, 2)
    assert sizes("rebalance", 2) == (1, 1)

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from engine.config import ConfigError, EngineConfig
from engine.emulated.calibrate import UNFITTED_BAND, calibrate, unfitted
from engine.emulated.cluster import Cluster
from engine.emulated.hardware import RTX_PRO_6000, load_hardware
from engine.emulated.model_profile import load_model
from engine.emulated.observations import RateObservation, StageObservation, read_observations, stage_observations
from engine.emulated.target import VirtualTarget
from engine.emulated.validation import (
    SGLANG_HOST_US,
    one_h200,
    pipeline_calibration,
    pipeline_outcome,
    sglang_two_h200,
    tables,
    tensor_parallel_8,
)
from sessions.bench.runner import run_bench
from sessions.knobs import Knobs
from sessions.load.workload import LoadPoint, Workload
from sessions.messages import RequestSpec, StageFrame
from sessions.recording import meta
from sessions.recording.writer import RecordingWriter

QWEN = load_model("qwen3-30b-a3b")


def test_the_profile_carries_the_fit_to_the_two_single_request_rates() -> None:
    table = pipeline_calibration()
    fit = calibrate(table.hardware, table.model, table.rows)
    assert set(fit.fitted) == {"launch_us", "kernel_us"}
    assert fit.fitted["launch_us"] == pytest.approx(RTX_PRO_6000.launch_us, rel=2e-3)
    assert fit.fitted["kernel_us"] == pytest.approx(RTX_PRO_6000.kernel_us, rel=2e-3)
    assert fit.error.mape < 1e-3


def test_what_it_was_not_fitted_to_follows() -> None:
    table = pipeline_outcome()
    herd, waves = (row.predicted(table.hardware, table.model) for row in table.rows)
    assert herd == pytest.approx(95.6, rel=0.10)
    assert waves == pytest.approx(248.0, rel=0.15)


def test_the_public_tensor_parallel_row_unfitted() -> None:
    table = tensor_parallel_8()
    error = unfitted(table.hardware, table.model, table.rows)
    assert error.mape <= 0.16
    assert abs(error.signed) <= error.mape


def test_a_server_with_slow_host_code_is_explained_by_its_host_time_alone() -> None:
    table = sglang_two_h200()
    stock = load_hardware("2x-h200")
    assert unfitted(stock, table.model, table.rows).signed > 0.3
    fit = calibrate(stock, table.model, table.rows, ["host_us"])
    assert fit.fitted["host_us"] == pytest.approx(SGLANG_HOST_US, rel=0.01)
    assert fit.leave_one_out is not None and fit.leave_one_out.mape < 0.08


def test_the_band_of_unfitted_profiles_holds_nine_tenths_of_all_tables() -> None:
    ratios = [row.predicted(t.hardware, t.model) / row.value for t in tables() for row in t.rows]
    inside = [1 / (1 + UNFITTED_BAND) <= r <= 1 + UNFITTED_BAND for r in ratios]
    assert sum(inside) >= 0.9 * len(inside)


def test_a_known_truth_is_found_again() -> None:
    truth = msgspec.structs.replace(
        load_hardware("2x-h200"), launch_us=30.0, kernel_us=2.0, memory_efficiency=0.7, hop_us=300.0
    )
    rows = [
        RateObservation(
            concurrency=c,
            tokens_per_s=1.0,
            knobs=Knobs(async_depth=depth, admission="capped", cuda_graphs=graphs),
            ranks=2,
        )
        for c, depth, graphs in [
            (1, 1, False),
            (2, 1, False),
            (1, 1, True),
            (4, 1, True),
            (16, 1, True),
            (64, 1, True),
            (16, 2, True),
        ]
    ]
    seen = [msgspec.structs.replace(row, tokens_per_s=row.predicted(truth, QWEN)) for row in rows]
    fit = calibrate(load_hardware("2x-h200"), QWEN, seen)
    assert fit.error.mape < 0.01
    assert fit.leave_one_out is not None and fit.leave_one_out.mape < 0.05
    for name in ("launch_us", "memory_efficiency"):
        assert fit.fitted[name] == pytest.approx(getattr(truth, name), rel=0.1)


def test_stage_times_from_spans_fit_too() -> None:
    truth = msgspec.structs.replace(load_hardware("h200"), kernel_us=2.5)
    spans = [StageObservation(stage=0, decode=b, seconds=1.0, graphs=True, ranks=1) for b in (1, 8)]
    seen = [msgspec.structs.replace(s, seconds=s.predicted(truth, QWEN)) for s in spans]
    fit = calibrate(load_hardware("h200"), QWEN, seen)
    assert fit.fitted == {"kernel_us": pytest.approx(2.5, rel=0.01)}


def test_the_band_comes_from_what_the_fit_had_not_seen() -> None:
    table = one_h200()
    fit = calibrate(table.hardware, table.model, table.rows)
    assert fit.leave_one_out is not None
    assert fit.leave_one_out.mape >= fit.error.mape
    assert fit.band >= 0.05
    single = calibrate(table.hardware, table.model, table.rows[:1])
    assert single.leave_one_out is None and single.band == UNFITTED_BAND


def test_tables_are_read_and_faults_named(tmp_path: Path) -> None:
    file = tmp_path / "rates.txt"
    file.write_text("# C tok/s graphs\n1 24.7 off\n8, 95.6, off\n32 | 248 | on\n")
    rows = read_observations(file, ranks=8)
    assert [(r.concurrency, r.tokens_per_s, r.graphs) for r in rows] == [
        (1, 24.7, False),
        (8, 95.6, False),
        (32, 248.0, True),
    ]
    for text, word in (
        ("1", "line 1"),
        ("x 3 on", "line 1"),
        ("1 3 maybe", "line 1"),
        ("1 inf", "line 1"),
        ("# no", "no line"),
        ("{", "no benchmark"),
    ):
        file.write_text(text)
        with pytest.raises(ConfigError, match=word):
            read_observations(file, ranks=8)
    with pytest.raises(ConfigError, match="cannot read"):
        read_observations(tmp_path / "none", ranks=8)


def test_faults_of_a_fit_are_one_line() -> None:
    table = one_h200()
    with pytest.raises(ConfigError, match="no measured run"):
        calibrate(table.hardware, table.model, [])
    with pytest.raises(ConfigError, match="colour"):
        calibrate(table.hardware, table.model, table.rows, ["colour"])
    assert math.isfinite(calibrate(table.hardware, table.model, table.rows, ["hop_us"]).error.mape)


def test_spans_of_a_run_fit_the_profile_that_made_them() -> None:
    truth = msgspec.structs.replace(load_hardware("2x-h200"), kernel_us=2.5)
    knobs = Knobs(async_depth=2, admission="capped", cuda_graphs=True)
    config = EngineConfig(model="qwen3-30b-a3b", emulate="2x-h200", pp=2, knobs=knobs)
    target = VirtualTarget(config, Cluster(hardware=truth, model=QWEN, pp=2, ep=2))
    target.submit([RequestSpec(id=str(i), prompt=[1] * 100, max_tokens=300) for i in range(6)])
    frames = [m for _ in range(40) for m in target.advance(target.clock.now_ns() + 10**9) if isinstance(m, StageFrame)]
    seen = stage_observations(frames, target.engine)
    assert {(o.stage, o.decode, o.graphs) for o in seen} == {(0, 3, True), (1, 3, True)}
    fit = calibrate(load_hardware("2x-h200"), QWEN, seen)
    assert fit.fitted["kernel_us"] == pytest.approx(2.5, rel=0.02)
    with pytest.raises(ConfigError, match="no micro-batch"):
        stage_observations([], target.engine)


def test_a_recording_and_a_bench_result_are_read_like_the_runs_they_hold(tmp_path: Path) -> None:
    knobs = Knobs(async_depth=2, admission="rebalance", cuda_graphs=True)
    target = VirtualTarget(EngineConfig(model="qwen3-30b-a3b", emulate="2x-h200", pp=2, knobs=knobs))
    writer = RecordingWriter(tmp_path / "run.herd", meta.origin([]))
    writer.write(target.clock.now_ns(), target.engine)
    target.submit([RequestSpec(id=str(i), prompt=[1] * 8, max_tokens=40) for i in range(4)])
    for _ in range(20):
        for message in target.advance(target.clock.now_ns() + 10**8):
            writer.write(message.t_ns, message)
    writer.close("done")
    seen = read_observations(tmp_path / "run.herd", ranks=1)
    hardware = load_hardware("2x-h200")
    assert len(seen) == 2 and unfitted(hardware, QWEN, seen).mape < 0.01

    result = run_bench(target, Workload(), [LoadPoint(concurrency=c) for c in (1, 4)])
    (tmp_path / "run.json").write_bytes(msgspec.json.encode(result))
    rates = read_observations(tmp_path / "run.json", ranks=1)
    assert len(rates) == 2 and unfitted(hardware, QWEN, rates).mape < 0.03

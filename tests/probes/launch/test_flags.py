from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.launch.command_line import CommandLine, LaunchError, diff
from probes.launch.flags import knobs_of, pipeline_stages, unavailable, with_knob_flags
from sessions.knobs import KnobError, KnobName, KnobValue


def line(text: str) -> CommandLine:
    return CommandLine(tuple(shlex.split(text)))


SGLANG = line("python -m sglang.launch_server --model-path m --pp-size 8 --disable-cuda-graph")
VLLM = line("vllm serve m -pp 8 --enforce-eager --max-num-seqs=64")


def test_a_command_line_says_its_knobs() -> None:
    knobs = knobs_of(SGLANG)
    assert (knobs.async_depth, knobs.max_micro_batch, knobs.cuda_graphs, knobs.parallelism) == (8, 32, False, "pp")
    knobs = knobs_of(VLLM)
    assert (knobs.async_depth, knobs.max_micro_batch, knobs.cuda_graphs) == (8, 64, False)


def test_depth_is_slots_beyond_the_stages() -> None:
    changed = with_knob_flags(SGLANG, "async_depth", 10)
    assert changed.value("--pp-async-batch-depth") == "2"
    assert knobs_of(changed).async_depth == 10
    with pytest.raises(LaunchError, match="at least pp_size = 8"):
        with_knob_flags(SGLANG, "async_depth", 4)


def test_graphs_are_a_flag_that_switches_them_off() -> None:
    assert "--disable-cuda-graph" not in with_knob_flags(SGLANG, "cuda_graphs", True).words
    assert "--enforce-eager" not in with_knob_flags(VLLM, "cuda_graphs", "on").words
    assert with_knob_flags(VLLM, "cuda_graphs", False).words.count("--enforce-eager") == 1


def test_a_value_replaces_the_one_that_stood_there() -> None:
    changed = with_knob_flags(VLLM, "max_micro_batch", 8)
    assert str(changed) == "vllm serve m -pp 8 --enforce-eager --max-num-seqs 8"


def test_parallelism_turns_all_gpus_over() -> None:
    ep = with_knob_flags(VLLM, "parallelism", "ep")
    assert str(ep) == (
        "vllm serve m --pipeline-parallel-size 1 --enforce-eager --max-num-seqs=64 --tensor-parallel-size 8 "
        "--enable-expert-parallel"
    )
    assert knobs_of(ep).parallelism == "ep"
    back = with_knob_flags(ep, "parallelism", "pp")
    assert (back.value("--pipeline-parallel-size"), back.value("--tensor-parallel-size")) == ("8", "1")
    ep = with_knob_flags(SGLANG, "parallelism", "ep")
    assert (ep.value("--pp-size"), ep.value("--tp-size"), ep.value("--ep-size")) == ("1", "8", "8")


def test_what_a_server_has_no_flag_for_is_said() -> None:
    assert set(unavailable(VLLM)) == {"admission", "async_depth"}
    with pytest.raises(LaunchError, match="greedy"):
        with_knob_flags(SGLANG, "admission", "rebalance")
    with pytest.raises(KnobError):
        with_knob_flags(SGLANG, "max_micro_batch", 0)


def test_a_change_shows_as_a_diff() -> None:
    assert diff(VLLM, with_knob_flags(VLLM, "max_micro_batch", 8)) == ["- --max-num-seqs=64", "+ --max-num-seqs 8"]
    assert diff(SGLANG, with_knob_flags(SGLANG, "cuda_graphs", True)) == ["- --disable-cuda-graph"]
    assert diff(VLLM, VLLM) == []


def test_another_program_is_refused() -> None:
    with pytest.raises(LaunchError, match="neither SGLang nor vLLM"):
        knobs_of(line("python -m http.server"))
    with pytest.raises(LaunchError, match="whole number"):
        knobs_of(line("vllm serve m -pp eight"))


@given(
    st.sampled_from([SGLANG, VLLM]),
    st.lists(
        st.one_of(
            st.tuples(st.just("max_micro_batch"), st.integers(1, 500)),
            st.tuples(st.just("cuda_graphs"), st.booleans()),
        ),
        max_size=6,
    ),
)
def test_the_line_always_stands_for_the_knobs_last_asked_for(
    start: CommandLine, changes: list[tuple[KnobName, KnobValue]]
) -> None:
    now, wanted = start, knobs_of(start)
    for knob, value in changes:
        now = with_knob_flags(now, knob, value)
        wanted = type(wanted)(**{**{f: getattr(wanted, f) for f in wanted.__struct_fields__}, knob: value})
    assert knobs_of(now) == wanted


def test_vllms_compilation_config_can_switch_graphs_off() -> None:
    def graphs(config: str) -> bool:
        return knobs_of(CommandLine(("vllm", "serve", "m", "-cc", config))).cuda_graphs

    assert not graphs('{"mode":1,"cudagraph_mode":"NONE"}')
    assert graphs('{"mode":1,"cudagraph_mode":"PIECEWISE"}')


def test_the_stages_are_those_of_the_command_line() -> None:
    assert pipeline_stages(CommandLine(("vllm", "serve", "m", "-pp", "2"))) == 2
    assert pipeline_stages(CommandLine(("python", "-m", "sglang.launch_server", "--pp-size=8"))) == 8

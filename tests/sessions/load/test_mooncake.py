"""Traces in the Mooncake form: lengths, shared prefixes, time, and lines that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.load.mooncake import Scaling, TraceRow, read_trace, trace_requests


def test_the_sample_trace_keeps_its_lengths_times_and_shared_prefixes(shared_data: Path):
    rows = read_trace(shared_data / "workloads" / "mooncake-conversation-1000.jsonl")
    assert len(rows) == 1000
    made = list(trace_requests("m", rows[:60], 32000, Scaling(speed=20.0), seed=0))
    for row, (due_ns, request) in zip(rows, made, strict=False):
        assert len(request.prompt) == row.input_length
        assert request.max_tokens == row.output_length
        assert due_ns == round(row.timestamp * 1e6 / 20)
    first = made[0][1].prompt
    for row, (_, request) in zip(rows, made, strict=False):
        shared = 0
        while (
            shared < min(len(row.hash_ids), len(rows[0].hash_ids)) and row.hash_ids[shared] == rows[0].hash_ids[shared]
        ):
            shared += 1
        cut = min(shared * 512, len(request.prompt), len(first))
        assert request.prompt[:cut] == first[:cut]
        if shared < len(row.hash_ids) and cut + 64 <= min(len(request.prompt), len(first)):
            assert request.prompt[cut : cut + 64] != first[cut : cut + 64]


@given(
    length=st.integers(1, 3000),
    scale=st.floats(0.001, 1.0),
    cap=st.integers(0, 200),
    blocks=st.integers(0, 6),
)
def test_scaled_and_capped_prompts_have_the_length_they_should(length, scale, cap, blocks):
    row = TraceRow(timestamp=0, input_length=length, output_length=length, hash_ids=list(range(blocks)))
    scaling = Scaling(length_scale=scale, prompt_cap=cap, output_cap=cap)
    ((_, request),) = trace_requests("m", [row], 50, scaling, seed=3)
    expected = max(1, round(length * scale))
    expected = min(expected, cap) if cap else expected
    assert len(request.prompt) == request.max_tokens == expected


def test_scaling_keeps_the_shared_part_of_two_prompts():
    rows = [
        TraceRow(timestamp=0, input_length=1024, output_length=1, hash_ids=[7, 8]),
        TraceRow(timestamp=0, input_length=1024, output_length=1, hash_ids=[7, 9]),
    ]
    (_, one), (_, two) = trace_requests("m", rows, 30000, Scaling(length_scale=0.125), seed=0)
    assert len(one.prompt) == 128
    assert one.prompt[:64] == two.prompt[:64] and one.prompt[64:] != two.prompt[64:]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no request"),
        ('{"timestamp": 1}', "line 1"),
        ('{"timestamp":0,"input_length":1,"output_length":1}\nnot json', "line 2"),
        ('{"timestamp":0,"input_length":0,"output_length":1}', "input_length >= 1"),
        ('{"timestamp":-5,"input_length":4,"output_length":1}', "timestamp >= 0"),
    ],
)
def test_a_wrong_trace_is_refused_naming_the_line(tmp_path: Path, text: str, said: str):
    path = tmp_path / "trace.jsonl"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        read_trace(path)


def test_rows_are_replayed_in_order_of_time(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(f'{{"timestamp":{t},"input_length":1,"output_length":1}}\n' for t in (30, 10, 20)))
    assert [row.timestamp for row in read_trace(path)] == [10, 20, 30]

"""Decoding trace files, whole, odd and broken."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from probes.traces.events import TraceError, decode, read_file

KERNEL = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1.5, "dur": 2, "args": {"stream": 7}}


def _file(events: list[object], **more: object) -> bytes:
    return json.dumps({"distributedInfo": {"rank": 1, "world_size": 2}, "traceEvents": events, **more}).encode()


def test_object_list_and_gzip_read_the_same() -> None:
    whole = _file([KERNEL])
    for data in (whole, gzip.compress(whole), json.dumps([KERNEL]).encode()):
        trace = decode(data, "t")
        assert [e.name for e in trace.events] == ["k"]
        assert trace.events[0].ts == 1.5
        assert not trace.cut


def test_rank_and_world() -> None:
    info = decode(_file([KERNEL]), "t").info
    assert info is not None
    assert (info.rank, info.world_size) == (1, 2)


def test_unknown_fields_and_categories_are_skipped() -> None:
    odd = {**KERNEL, "args": {"stream": 7, "Input Dims": [[1]], "more": {"deep": [1]}}, "id": "0x1", "bp": "e"}
    assert decode(_file([odd, {"ph": "C", "name": "counter", "args": {"x": 1}}]), "t").events[0].args is not None


def test_events_of_another_shape_are_left_out_and_counted() -> None:
    trace = decode(_file([KERNEL, {"ph": "X", "name": ["a"], "ts": 1}, "text", KERNEL]), "t")
    assert len(trace.events) == 2
    assert trace.skipped == 2
    assert trace.info is not None and trace.info.rank == 1


@pytest.mark.parametrize("keep", [0.95, 0.7, 0.4])
def test_a_cut_file_is_read_up_to_the_cut(keep: float) -> None:
    whole = _file([KERNEL] * 100)
    trace = decode(whole[: int(len(whole) * keep)], "t")
    assert trace.cut
    assert 30 <= len(trace.events) <= 97
    assert trace.info is not None and trace.info.rank == 1


def test_a_cut_archive_is_read_up_to_the_cut() -> None:
    events = [{**KERNEL, "name": f"kernel {i * 7919 % 1000}", "ts": i * 1.37} for i in range(3000)]
    zipped = gzip.compress(_file(events))
    trace = decode(zipped[: len(zipped) // 2], "t")
    assert trace.cut
    assert 0 < len(trace.events) < 3000


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (gzip.compress(b""), "empty"),
        (b"hello", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\x1f\x8b\x08\x00rubbish", "gzip"),
        (b'{"a": 1}', "traceEvents"),
        (b'{"traceEvents": 5}', "traceEvents"),
        (b'{"traceEvents": [{"ph": "X", "name": "cut he', "cut off"),
    ],
)
def test_bad_files_are_named_in_one_line(data: bytes, words: str) -> None:
    with pytest.raises(TraceError) as error:
        decode(data, "bad.json")
    text = str(error.value)
    assert text.startswith("bad.json")
    assert words in text
    assert "\n" not in text


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no\.json.*No such file"):
        read_file(tmp_path / "no.json")

from __future__ import annotations

import io
import json
import os

import pytest

from probes.headless.json_lines import JsonLinesSink
from probes.headless.sink import SinkGone
from sessions.messages import GpuFrame

FRAME = GpuFrame(source="h/probe/1", t_ns=5, index=0, uuid="GPU-0", name="Fake", power_watts=85.0)


def test_each_message_is_one_line_of_json_with_its_kind() -> None:
    out = io.BytesIO()
    sink = JsonLinesSink(out)
    sink.write(FRAME)
    sink.write(FRAME)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["kind"], line["power_watts"]) for line in lines] == [("gpu_frame", 85.0)] * 2


def test_a_closed_reader_ends_the_sink_with_a_reason() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as stream, pytest.raises(SinkGone, match="closed"):
        JsonLinesSink(stream).write(FRAME)

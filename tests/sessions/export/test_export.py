"""Exports open in the tools they are for, and say what the recording says."""

from __future__ import annotations

import csv
import json
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sessions.export.chrome import write_chrome_trace
from sessions.export.errors import ExportError
from sessions.export.findings import LANES_NS, findings
from sessions.export.mcap_file import write_mcap
from sessions.export.report import html, markdown, write_report
from sessions.export.svg import Bar, Line, Series, line_chart, swimlanes
from sessions.export.tables import write_tables
from sessions.messages import GpuFrame, Marker, Message, QueueFrame, StageFrame, TokenEvent, TokenFrame
from sessions.recording import meta
from sessions.recording.library import annotate
from sessions.recording.reader import Recording
from sessions.recording.writer import RecordingWriter
from tests.sessions.recording.synthetic import START_NS, TICK_NS, WALL_NS, session

ORIGIN = meta.Origin(
    t_ns=START_NS, wall_ns=WALL_NS, host="host", command_line=["herdscope", "run"], versions={"x": "1"}
)
HOSTILE = "</script><script>alert(1)</script> | <b> \\"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    path = tmp_path_factory.mktemp("export") / "x.herd"
    writer = RecordingWriter(path, ORIGIN)
    for number, (at_ns, batch) in enumerate(session(60, gpus=2, stages=2, spans_per_second=50)):
        for message in batch:
            writer.write(at_ns, message)
        if number == 30:
            writer.write(at_ns, Marker(source="s", t_ns=at_ns, category="note", text=HOSTILE))
            writer.write(at_ns, TokenFrame(source="s", t_ns=at_ns, events=[TokenEvent("r1", [1, 2, 3])]))
        writer.commit()
    writer.close("done")
    annotate(path, note=HOSTILE)
    return Recording(path)


def messages(recording: Recording, kind: type[Message]) -> list[Any]:
    return [record.message for record in recording.records(kinds=[kind])]


def test_chrome_trace_fits_the_trace_event_format(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    count = write_chrome_trace(recording, path)
    trace = json.loads(path.read_text())
    events = trace["traceEvents"]
    assert len(events) == count
    assert trace["otherData"]["host"] == "host"
    needed = {
        "X": {"name", "cat", "pid", "tid", "ts", "dur", "args"},
        "C": {"name", "pid", "ts", "args"},
        "M": {"name", "pid", "args"},
        "i": {"name", "s", "ts"},
        "s": {"id", "pid", "tid", "ts", "name", "cat"},
        "t": {"id", "pid", "tid", "ts", "name", "cat"},
    }
    for event in events:
        assert needed[event["ph"]] <= event.keys(), event
        assert isinstance(event["pid"], int)
        assert isinstance(event["ts"], int | float)
        assert event.get("dur", 0) >= 0
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        spans.sort()
        assert all(after[0] >= before[1] - 1e-3 for before, after in pairwise(spans)), "no overlap"
    computing = [event for event in events if event["ph"] == "X" and event["cat"] == "compute"]
    assert len(computing) == sum(len(frame.spans) for frame in messages(recording, StageFrame))
    frame = messages(recording, StageFrame)[0]
    first = next(
        event for event in computing if event["pid"] == frame.rank and event["args"]["step"] == frame.spans[0].step
    )
    assert first["ts"] == pytest.approx((frame.t_ns + frame.spans[0].start - recording.extent()[0]) / 1e3)
    names = {event["args"]["name"] for event in events if event["ph"] == "M" and event["name"] == "process_name"}
    assert {"stage 0 (rank 0)", "stage 1 (rank 1)", "queues", "GPUs", "marks"} == names
    # Every arrow begins once and then continues.
    flows: dict[int, list[str]] = {}
    for event in events:
        if event["ph"] in "st":
            flows.setdefault(event["id"], []).append(event["ph"])
    assert all(phases == ["s"] + ["t"] * (len(phases) - 1) for phases in flows.values())


def test_chrome_trace_of_an_interval(recording: Recording, tmp_path: Path) -> None:
    whole = write_chrome_trace(recording, tmp_path / "whole.json")
    part = write_chrome_trace(recording, tmp_path / "part.json", START_NS, START_NS + 10 * TICK_NS)
    assert 0 < part < whole / 4


def test_mcap_opens_with_the_mcap_library(recording: Recording, tmp_path: Path) -> None:
    reader = pytest.importorskip("mcap.reader")
    path = tmp_path / "x.mcap"
    count = write_mcap(recording, path)
    expected = [(record.at_ns, record.message) for record in recording.records()]
    assert count == len(expected)
    with path.open("rb") as file:
        opened = reader.make_reader(file)
        summary = opened.get_summary()
        assert {channel.topic for channel in summary.channels.values()} >= {"/stage_frame", "/gpu_frame", "/marker"}
        got = list(opened.iter_messages())
    assert len(got) == count
    for (schema, channel, message), (at_ns, original) in list(zip(got, expected, strict=True))[::25]:
        data = json.loads(message.data)
        assert channel.topic == f"/{data['kind']}"
        assert message.log_time == recording.utc_ns(at_ns)
        assert data["t_ns"] == original.t_ns
        definition = json.loads(schema.data)
        assert definition["type"] == "object"
        assert set(definition["required"]) <= data.keys() <= definition["properties"].keys()


def test_parquet_opens_with_pyarrow(recording: Recording, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    written = write_tables(recording, tmp_path / "tables", "parquet")
    assert set(written) == {
        f"{name}.parquet" for name in ("spans", "queues", "slots", "gpus", "tokens", "marks", "seconds")
    }
    spans = parquet.read_table(tmp_path / "tables" / "spans.parquet")
    frames = messages(recording, StageFrame)
    assert spans.num_rows == written["spans.parquet"] == sum(len(frame.spans) for frame in frames)
    first = spans.slice(0, 1).to_pylist()[0]
    assert first["end_ns"] == frames[0].t_ns + frames[0].spans[0].end
    assert first["graph"] is True
    gpus = parquet.read_table(tmp_path / "tables" / "gpus.parquet").to_pylist()
    assert [row["power_watts"] for row in gpus] == [frame.power_watts for frame in messages(recording, GpuFrame)]
    assert gpus[0]["utc_ns"] == recording.utc_ns(gpus[0]["t_ns"])
    queues = parquet.read_table(tmp_path / "tables" / "queues.parquet").to_pylist()
    assert [row["waves_sum"] for row in queues] == [frame.waves_sum for frame in messages(recording, QueueFrame)]


def test_csv(recording: Recording, tmp_path: Path) -> None:
    written = write_tables(recording, tmp_path / "tables", "csv", START_NS, START_NS + 10 * TICK_NS)
    with (tmp_path / "tables" / "gpus.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == written["gpus.csv"] == 20
    assert rows[0]["name"] == "NVIDIA RTX PRO 6000 Blackwell"
    assert "tokens.csv" not in written, "a table without rows is not written"


class _Outside(HTMLParser):
    """Finds whatever an HTML page would load or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href") or name.startswith("on") or (name == "style" and "url(" in (value or "")):
                self.found.append(f"{tag} {name}={value}")


def test_html_report_is_self_contained_and_escapes_everything(recording: Recording, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_report(recording, path)
    text = path.read_text()
    parser = _Outside()
    parser.feed(text)
    assert parser.found == []
    assert "script" not in parser.tags
    assert "b" not in parser.tags
    assert parser.tags.count("svg") == 6
    for svg in re.findall(r"<svg.*?</svg>", text, re.S):
        ElementTree.fromstring(svg)


def test_reports_tell_the_same_figures(recording: Recording) -> None:
    found = findings(recording)
    power = [frame.power_watts for frame in messages(recording, GpuFrame) if frame.index == 0]
    assert found.gpus[0].mean_watts == pytest.approx(sum(power) / len(power))
    assert found.gpus[0].max_watts == max(power)
    spans = [span for frame in messages(recording, StageFrame) if frame.rank == 1 for span in frame.spans]
    assert found.stages[1].micro_batches == len(spans)
    assert found.stages[1].compute_ms == pytest.approx(sum(span.end - span.start for span in spans) / len(spans) / 1e6)
    assert 0.5 < found.stages[1].occupancy <= 1
    assert all(0 <= start < end <= LANES_NS for lane in found.lanes for start, end, *_ in lane.spans)
    assert found.mean("tokens_per_s") == pytest.approx(245, rel=0.1)
    text = markdown(found)
    for shown in (
        f"{found.gpus[0].mean_watts:.0f}",
        f"{found.mean('tokens_per_s'):.1f}",
        "async_depth=8",
        "herdscope run",
    ):
        assert shown in text
        assert shown in html(found)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) >= 3 for row in rows)


def test_a_report_of_nothing(tmp_path: Path) -> None:
    RecordingWriter(tmp_path / "empty.herd", ORIGIN).close("done")
    with Recording(tmp_path / "empty.herd") as empty:
        for form in ("markdown", "html"):
            write_report(empty, tmp_path / form, form)
            assert "empty.herd" in (tmp_path / form).read_text()
        assert write_chrome_trace(empty, tmp_path / "t.json") == 0
        assert json.loads((tmp_path / "t.json").read_text())["traceEvents"] == []
        assert write_tables(empty, tmp_path / "tables", "csv") == {}


def test_what_cannot_be_written_is_named(recording: Recording, tmp_path: Path) -> None:
    missing = tmp_path / "none" / "x"
    for write in (write_report, write_chrome_trace, write_mcap):
        with pytest.raises(ExportError, match=r"cannot write .*: No such file or directory"):
            write(recording, missing)  # type: ignore[operator]


@pytest.mark.parametrize(
    "points", [[], [(0.0, None)], [(0.0, 0.0)], [(0.0, 1e9), (1.0, None), (2.0, 3.0)], [(5.0, 0.03)]]
)
def test_charts_of_any_points_are_well_formed(points: list[tuple[float, float | None]]) -> None:
    chart = line_chart("a < b", "W", [Series("x & y", points), Series("z", points)], [Line(1.0, "<mark>")])
    ElementTree.fromstring(chart)
    assert "nan" not in chart


def test_swimlanes_are_well_formed() -> None:
    lanes = [("stage 0", [Bar(0, 5, 3, "<x>")]), ("stage 1", [])]
    assert ">3</text>" in swimlanes("t", lanes)
    ElementTree.fromstring(swimlanes("t", lanes))
    ElementTree.fromstring(swimlanes("t", []))

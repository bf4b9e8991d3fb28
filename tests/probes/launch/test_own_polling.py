"""A launched server's log without the lines that our polling causes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import httpx
import pytest

from probes.launch.command_line import CommandLine
from probes.launch.launched import LaunchedServer
from probes.launch.own_polling import TELL_EVERY_S, OwnPolling
from sessions.channel.unix import connect_unix
from sessions.messages import LogLines, QueueFrame
from tests.brokers import free_port

OURS = "127.0.0.1:38312"
VLLM = '(APIServer pid=2719) INFO:     {} - "{} HTTP/1.1" {}'
SGLANG = '[2026-02-09 03:51:08] INFO:     {} - "{} HTTP/1.1" {}'
IPV6 = 'INFO:     ::ffff:{} - "{} HTTP/1.1" {}'


class Said:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now_s = 0.0
        self.polling = OwnPolling(lambda: (OURS,), self.lines.append, lambda: self.now_s)


@pytest.mark.parametrize("form", [VLLM, SGLANG, IPV6], ids=["vllm", "sglang", "ipv6"])
@pytest.mark.parametrize(
    ("origin", "request_line", "status", "ours"),
    [
        (OURS, "GET /metrics", "200 OK", True),
        (OURS, "GET /v1/models", "200 OK", True),
        (OURS, "GET /server_info", "404 Not Found", True),
        (OURS, "GET /metrics", "500 Internal Server Error", False),
        (OURS, "POST /v1/completions", "200 OK", False),
        (OURS, "POST /start_profile", "200 OK", False),
        ("127.0.0.1:38313", "GET /metrics", "200 OK", False),
        ("127.0.0.1:3831", "GET /metrics", "200 OK", False),
        ("10.0.0.7:38312", "GET /metrics", "200 OK", False),
    ],
)
def test_only_reads_of_ours_that_went_well(form: str, origin: str, request_line: str, status: str, ours: bool) -> None:
    assert Said().polling.caused(form.format(origin, request_line, status)) == ours


def test_what_is_no_access_line_stays() -> None:
    said = Said()
    for line in ("", "CUDA out of memory", f"ValueError at {OURS}", f'{OURS} - "GET /metrics', "INFO: Started server"):
        assert not said.polling.caused(line)
    assert said.lines == []


def test_what_is_left_out_is_told_at_once_then_as_a_count_with_the_servers_own_lines() -> None:
    said = Said()
    scrape = VLLM.format(OURS, "GET /metrics", "200 OK")
    assert said.polling.caused(scrape)
    assert len(said.lines) == 1
    assert "own polling" in said.lines[0]
    for _ in range(9):
        said.now_s += TELL_EVERY_S
        said.polling.caused(scrape)
    assert len(said.lines) == 1, "a server that says nothing keeps its log still"
    said.polling.caused("step 41")
    said.polling.caused("step 42")
    assert said.lines[1:] == ["access-log lines of herdscope's own polling left out: 10"]
    said.polling.caused(scrape)
    said.polling.tell()
    said.polling.tell()
    assert said.lines[2:] == ["access-log lines of herdscope's own polling left out: 1"]


def test_a_real_access_log_loses_our_scrapes_alone(tmp_path: Path) -> None:
    port = free_port()
    words = (sys.executable, "-m", "tests.probes.launch.uvicorn_like", "vllm", "serve", "m", "--port", str(port))
    server = LaunchedServer(CommandLine(words), tmp_path / "l.sock", "h/server/1")
    channel = connect_unix(tmp_path / "l.sock", "h/console/2", "console", 10)
    seen = channel.subscribe([LogLines, QueueFrame])
    lines: list[str] = []
    scrapes = 0
    deadline = time.monotonic() + 30
    try:
        while scrapes < 3 or not any("404" in line for line in lines):
            assert time.monotonic() < deadline, lines
            for message in seen.drain():
                if isinstance(message, LogLines):
                    lines += [line.text for line in message.lines]
                elif isinstance(message, QueueFrame):
                    scrapes += 1
            if scrapes == 2:
                httpx.get(f"http://127.0.0.1:{port}/metrics")
                httpx.get(f"http://127.0.0.1:{port}/asked-by-somebody-else")
                scrapes = 3
            time.sleep(0.02)
    finally:
        server.close()
        channel.close()
    asked = [line.split('"')[1] for line in lines if " HTTP/1.1" in line]
    assert asked == ["GET /metrics HTTP/1.1", "GET /asked-by-somebody-else HTTP/1.1"]
    assert any("Application startup complete" in line for line in lines)
    assert sum("own polling" in line for line in lines) == 1

"""A launched server behind our channel, with a real child process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from probes.launch.command_line import CommandLine, LaunchError
from probes.launch.launched import LaunchedServer
from sessions.channel.interface import Channel
from sessions.channel.unix import connect_unix
from sessions.knobs import KnobName, KnobValue
from sessions.messages import EngineState, Fault, KnobReply, KnobRequest, KnobState, LogLines, Message, QueueFrame
from tests.brokers import free_port


class Launched:
    def __init__(self, server: LaunchedServer, channel: Channel, die_file: Path) -> None:
        self.server = server
        self.channel = channel
        self.die_file = die_file
        self.seen: list[Message] = []
        self._all = channel.subscribe([EngineState, Fault, KnobState, LogLines, QueueFrame])
        self._count = 0

    def wait(self, kind: type[Message], **fields: object) -> Message:
        deadline = time.monotonic() + 30
        while True:
            self.seen += self._all.drain()
            for message in self.seen:
                if isinstance(message, kind) and all(getattr(message, k) == v for k, v in fields.items()):
                    return message
            assert time.monotonic() < deadline, [type(m).__name__ for m in self.seen]
            time.sleep(0.02)

    def turn(self, knob: KnobName, value: KnobValue) -> KnobReply:
        self._count += 1
        request = KnobRequest(
            source=self.channel.source, t_ns=time.monotonic_ns(), id=f"k{self._count}", knob=knob, value=value
        )
        reply = self.channel.request(request, 60)
        assert isinstance(reply, KnobReply)
        return reply


@pytest.fixture
def launched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launched]:
    die_file = tmp_path / "die"
    monkeypatch.setenv("DIE_FILE", str(die_file))
    words = (sys.executable, "-m", "tests.probes.launch.vllm_like", "serve", "m", "--port", str(free_port()))
    server = LaunchedServer(CommandLine(words), tmp_path / "l.sock", "h/server/1")
    channel = connect_unix(tmp_path / "l.sock", "h/console/2", "console", 10)
    yield Launched(server, channel, die_file)
    channel.close()
    server.close()


def test_it_is_loaded_then_ready_with_its_log_and_metrics(launched: Launched) -> None:
    launched.wait(EngineState, phase="ready")
    launched.wait(QueueFrame, running=3)
    lines = [line.text for m in launched.seen if isinstance(m, LogLines) for line in m.lines]
    assert any("Started server process" in line for line in lines)


def test_a_knob_is_offered_as_a_restart_and_done_when_asked_again(launched: Launched) -> None:
    launched.wait(EngineState, phase="ready")
    first = launched.turn("max_micro_batch", 8)
    assert not first.ok
    assert "restart with + --max-num-seqs 8" in first.reason
    second = launched.turn("max_micro_batch", 8)
    assert (second.ok, second.applied) == (True, 8), second.reason
    assert second.took_ms > 100
    launched.wait(EngineState, phase="switching")
    launched.wait(QueueFrame)
    lines = [line.text for m in launched.seen if isinstance(m, LogLines) for line in m.lines]
    assert sum("Started server process" in line for line in lines) == 2
    assert sum("'--max-num-seqs', '8'" in line for line in lines) == 1
    assert launched.turn("max_micro_batch", 8).ok, "nothing to change is done at once"


def test_a_knob_without_a_flag_is_refused_with_the_reason(launched: Launched) -> None:
    launched.wait(EngineState, phase="ready")
    assert "one admission policy" in launched.turn("admission", "rebalance").reason
    assert "must be" in launched.turn("max_micro_batch", 0).reason


def test_its_death_is_told_with_cause_and_last_lines(launched: Launched) -> None:
    launched.wait(EngineState, phase="ready")
    launched.die_file.touch()
    fault = launched.wait(Fault, what="the server died")
    assert isinstance(fault, Fault)
    assert (fault.cause, fault.exit_code) == ("exit code 9", 9)
    assert fault.last_log[-1] == "CUDA out of memory"


def test_another_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="neither SGLang nor vLLM"):
        LaunchedServer(CommandLine(("sleep", "1")), tmp_path / "x.sock", "h/server/1")

"""The console in a real terminal with real engines: tokens flow, a worker dies, and nothing outlives the console."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from tests.tui.console.terminal import Terminal

EMULATED: dict[str, object] = {"emulate": "8x-rtx-pro-6000", "model": "kimi-k2.6", "pp": 4}
CPU: dict[str, object] = {"device": "cpu", "pp": 2}
TOKENS = rb"[0-9.]+ tok/s"
GONE_S = 10.0

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def emulated() -> Iterator[Terminal]:
    terminal = Terminal(EMULATED)
    yield terminal
    terminal.end()


@pytest.fixture
def cpu() -> Iterator[Terminal]:
    terminal = Terminal(CPU)
    yield terminal
    terminal.end()


def by_q(terminal: Terminal) -> None:
    terminal.type(b"q")


def by_ctrl_c_twice(terminal: Terminal) -> None:
    terminal.type(b"\x03")
    assert terminal.wait_for(rb"again to quit", 5.0)
    terminal.type(b"\x03")


def by_sigterm(terminal: Terminal) -> None:
    os.kill(terminal.pid, signal.SIGTERM)


def by_closing_the_terminal(terminal: Terminal) -> None:
    terminal.hang_up()


@pytest.mark.parametrize("leave", [by_q, by_ctrl_c_twice, by_sigterm, by_closing_the_terminal])
def test_leaving_ends_engine_and_load(emulated: Terminal, leave: Callable[[Terminal], None]) -> None:
    assert emulated.wait_for(TOKENS)
    running = "\n".join(emulated.processes().values())
    assert "engine.driver" in running and "load --connect" in running
    leave(emulated)
    assert emulated.exit_code() is not None
    assert emulated.wait_until_gone(GONE_S) == {}


def test_killing_the_console_ends_the_engine_too(cpu: Terminal) -> None:
    assert cpu.wait_for(TOKENS)
    running = "\n".join(cpu.processes().values())
    assert "engine.driver" in running and "engine.worker" in running and "load --connect" in running
    os.kill(cpu.pid, signal.SIGKILL)
    assert cpu.exit_code() == -signal.SIGKILL
    assert cpu.wait_until_gone(GONE_S) == {}


def test_a_killed_worker_is_named_and_the_restart_works(cpu: Terminal) -> None:
    assert cpu.wait_for(TOKENS)
    workers = [pid for pid, line in cpu.processes().items() if "engine.worker" in line]
    cpu.forget()
    os.kill(workers[-1], signal.SIGKILL)
    assert cpu.wait_for(rb"Engine fault")
    assert cpu.wait_for(rb"rank [01]") and cpu.wait_for(rb"SIGKILL") and cpu.wait_for(rb"last log lines")
    cpu.forget()
    cpu.type(b"r")
    assert cpu.wait_for(rb"engine ready")
    cpu.forget()
    assert cpu.wait_for(TOKENS)
    assert workers[-1] not in cpu.processes()


def test_a_model_that_is_not_there_is_one_clear_fault() -> None:
    terminal = Terminal({"device": "cpu", "pp": 2, "model": "/nowhere/at-all"})
    try:
        assert terminal.wait_for(rb"Engine fault")
        assert terminal.wait_for(rb"/nowhere/at-all")
        assert b"Traceback" not in terminal.text
        terminal.type(b"q")
        assert terminal.exit_code() == 0
        assert terminal.wait_until_gone(GONE_S) == {}
    finally:
        terminal.end()

"""Starts an engine as a process of its own, waits until it is ready, and ends it."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path

import msgspec

from engine.config import EngineConfig, check_config
from sessions.channel.interface import ChannelClosed, ChannelError
from sessions.channel.unix import UnixPeer, connect_unix, runtime_dir
from sessions.clock import source_id
from sessions.messages import EngineState, Fault

KEPT_LINES = 2000
LAST_LINES = 20
STOP_TIMEOUT_S = 15.0
_TICK_S = 0.2


class EngineStartError(RuntimeError):
    """The engine did not become ready. The text's first line says why; the last log lines follow."""


class EngineProcess:
    """A driver that was started here. It ends with this process, and at the latest with `stop`."""

    def __init__(self, process: subprocess.Popen[bytes], socket: Path) -> None:
        """Use `start`."""
        self._process = process
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._reader = threading.Thread(target=self._read_log, name="engine-log", daemon=True)
        self._reader.start()
        self.socket = socket

    @classmethod
    def start(cls, config: EngineConfig, *, socket: Path | None = None, module: str = "engine.driver") -> EngineProcess:
        """Start the driver and return at once; its channel answers at `.socket` soon, long before it is ready.

        `module` is the Python module that runs it. Raise ConfigError when a number in `config` is out of range,
        EngineStartError when no process can be started, ChannelError when there is no place for a socket.
        """
        check_config(config)
        path = socket if socket is not None else runtime_dir() / f"engine-{os.getpid()}-{secrets.token_hex(4)}.sock"
        command = [sys.executable, "-m", module, "--socket", str(path), "--parent", str(os.getpid())]
        command += ["--config", msgspec.json.encode(config).decode()]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=os.environ | {"PYTHONSAFEPATH": "1"},  # not the modules of the folder that it was started in
            )
        except OSError as error:
            raise EngineStartError(f"cannot start the engine: {error.strerror}") from None
        return cls(process, path)

    @property
    def pid(self) -> int:
        """The driver's process id."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The driver's exit code (negative: the signal that killed it); None while it runs."""
        return self._process.poll()

    def wait_ready(self, timeout_s: float) -> EngineState:
        """Wait until the engine takes requests, and return its state. Raise EngineStartError when it fails, ends, or
        is not ready in time; it is not stopped then."""
        deadline = time.monotonic() + timeout_s
        try:
            channel = self._connect(deadline)
        except ChannelError as error:
            raise self._error(str(error)) from None
        try:
            states = channel.subscribe([EngineState, Fault])
            while time.monotonic() < deadline:
                message = states.get(_TICK_S)
                if isinstance(message, EngineState) and message.phase == "ready":
                    return message
                if isinstance(message, Fault):
                    raise self._error(f"{message.what}: {message.cause}")
            raise self._error(f"the engine is not ready after {timeout_s:g} s")
        except ChannelClosed as error:
            raise self._error(f"the engine ended: {error}") from None
        finally:
            channel.close()

    def last_lines(self, count: int = LAST_LINES) -> list[str]:
        """The last lines that the engine wrote, its workers' among them; KEPT_LINES are kept."""
        if self._process.poll() is not None:
            self._reader.join(_TICK_S)
        return list(self._lines)[-count:]

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """End the engine cleanly, or after `timeout_s` by force; return its exit code."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
        code = self._process.wait()
        with contextlib.suppress(OSError):
            self.socket.unlink()
        return code

    def _read_log(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as log:
            for raw in log:
                self._lines.append(raw.decode("utf-8", "replace").rstrip())

    def _connect(self, deadline: float) -> UnixPeer:
        while True:
            if self._process.poll() is not None:
                raise ChannelError(f"the engine ended with exit code {self._process.returncode}")
            try:
                return connect_unix(self.socket, source_id("cli"), "cli", _TICK_S * 5)
            except ChannelError:
                if time.monotonic() >= deadline:
                    raise

    def _error(self, reason: str) -> EngineStartError:
        lines = self.last_lines()
        return EngineStartError("\n".join([reason, *(f"  {line}" for line in lines)]))

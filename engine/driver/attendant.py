"""Attends to the channel from a thread while the main thread cannot: while the model loads, and after a fault."""

from __future__ import annotations

import os
import signal
import threading
import time

from engine.driver.logs import LogRelay
from sessions.channel.interface import Channel, ChannelClosed, Subscription
from sessions.messages import Command, Reply, StopEngine

_TICK_S = 0.1


class Attendant:
    """Answers every command with `reason`, and StopEngine by sending this process SIGTERM; publishes log lines."""

    def __init__(self, channel: Channel, commands: Subscription, logs: LogRelay, reason: str) -> None:
        self._channel = channel
        self._commands = commands
        self._logs = logs
        self._reason = reason
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._attend, name="attendant", daemon=True)
        self._thread.start()

    def leave(self) -> None:
        """Hand the channel back."""
        self._done.set()
        self._thread.join()

    def _attend(self) -> None:
        while not self._done.is_set():
            lines = self._logs.message()
            if lines is not None:
                self._channel.publish(lines)
            try:
                command = self._commands.get(_TICK_S)
            except ChannelClosed:
                return
            if isinstance(command, Command):
                self._answer(command)

    def _answer(self, command: Command) -> None:
        stop = isinstance(command, StopEngine)
        reply = Reply(
            source=self._channel.source,
            t_ns=time.monotonic_ns(),
            id=command.id,
            to=command.source,
            ok=stop,
            reason="" if stop else self._reason,
        )
        self._channel.answer(command, reply)
        if stop:
            os.kill(os.getpid(), signal.SIGTERM)

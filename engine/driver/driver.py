"""The driver: one engine's life on its channel, from the first header to the goodbye."""

from __future__ import annotations

import gc
import socket
import sys
import time
import traceback
from pathlib import Path

from engine.config import ConfigError, EngineConfig, OutOfMemory
from engine.core import EngineCore
from engine.driver.attendant import Attendant
from engine.driver.executors import OpenExecutor, open_executor
from engine.driver.logs import LogRelay
from engine.driver.signals import Stopped, StopSignal
from engine.driver.stall import StallWatch
from engine.executor import Executor, WorkerDied
from engine.text import text_codec
from sessions.channel.interface import Subscription
from sessions.channel.unix import UnixHub
from sessions.clock import MonotonicClock, source_id, wall_anchor
from sessions.messages import (
    CancelRequests,
    Command,
    EngineState,
    Fault,
    Goodbye,
    KnobRequest,
    Message,
    Phase,
    ProfileRequest,
    Reply,
    SessionHeader,
    StopEngine,
    SubmitRequests,
)
from sessions.versions import installed

EXIT_OK, EXIT_FAILED, EXIT_CONFIG = 0, 1, 2
FAULT_LINGER_S = 3.0
"""How long a failed driver still tells its fault to whoever connects."""
MAX_WAIT_S = 1.0
COMMANDS: tuple[type[Command], ...] = (SubmitRequests, CancelRequests, KnobRequest, ProfileRequest, StopEngine)


class Driver:
    """Serves one engine on the socket `path`. `run` it once, in the main thread."""

    def __init__(
        self, config: EngineConfig, path: str | Path, stop: StopSignal, open_with: OpenExecutor = open_executor
    ) -> None:
        """Open the channel. Raise ChannelError when the socket cannot be made."""
        self._config = config
        self._stop = stop
        self._open_with = open_with
        self._hub = UnixHub(path, source_id("engine"), "engine")
        self._logs = LogRelay(self._hub.source)
        self._commands: Subscription = self._hub.serve(COMMANDS)
        self._goodbyes: Subscription = self._hub.subscribe([Goodbye])
        self._unanswered: dict[tuple[str, str], Command] = {}

    def run(self) -> int:
        """Load, serve until told to stop or until something fails; return the exit code. No process is left."""
        code = self._run()
        self._publish_logs()
        if code == EXIT_OK:
            self._say_phase("stopped")
        self._hub.close("the engine has ended")
        return code

    def _run(self) -> int:
        try:
            self._hub.publish(self._header())
            self._say_phase("loading", f"{self._config.model} over {max(self._config.pp, self._config.ep)} ranks")
            try:
                executor = self._load()
            except Stopped:
                return EXIT_OK
            except (ConfigError, OutOfMemory) as error:
                return self._fail("load", str(error), EXIT_CONFIG)
            except WorkerDied as error:
                return self._fail_worker(error)
            try:
                return self._serve(executor)
            finally:
                executor.close()
        except Exception as error:
            self._logs.say(traceback.format_exc())
            return self._fail("driver", f"{type(error).__name__}: {error}", EXIT_FAILED)

    def _load(self) -> Executor:
        attendant = Attendant(self._hub, self._commands, self._logs, "the engine is loading: wait until it is ready")
        try:
            if self._stop.asked:
                raise Stopped
            executor = self._open_with(self._config, self._logs.take)
        finally:
            self._stop.interrupt = False
            attendant.leave()
        self._stop.wake = executor.wake
        return executor

    def _serve(self, executor: Executor) -> int:
        core = self._core(executor)
        self._commands.on_arrival(executor.wake)
        self._goodbyes.on_arrival(executor.wake)
        self._publish([core.state("ready"), core.knob_state()])
        gc.collect()
        gc.freeze()
        stall = StallWatch(time.monotonic_ns())
        try:
            while not self._stop.asked:
                self._take_in(core)
                self._publish(core.step(MAX_WAIT_S))
                scheduler = core.scheduler
                warning = stall.look(scheduler.steps_total, scheduler.outstanding, time.monotonic_ns())
                if warning is not None:
                    self._logs.say(warning)
                self._publish_logs()
        except WorkerDied as error:
            self._publish(core.end_all("failed", str(error)))
            return self._fail_worker(error, executor)
        except Exception as error:
            self._publish(core.end_all("failed", f"{type(error).__name__}: {error}"))
            raise
        self._publish([*core.end_all("cancelled", "the engine is stopping"), core.state("stopping")])
        return EXIT_OK

    def _core(self, executor: Executor) -> EngineCore:
        text, no_text = None, ""
        try:
            text = text_codec(self._config)
        except ConfigError as error:
            no_text = str(error)
        return EngineCore(self._config, executor, MonotonicClock(), source=self._hub.source, text=text, no_text=no_text)

    def _take_in(self, core: EngineCore) -> None:
        for command in self._commands.drain():
            if isinstance(command, StopEngine):
                self._stop.asked = True
                now_ns = time.monotonic_ns()
                reply = Reply(source=self._hub.source, t_ns=now_ns, id=command.id, to=command.source, ok=True)
                self._hub.answer(command, reply)
            elif isinstance(command, Command):
                self._unanswered[command.source, command.id] = command
                core.handle(command)
        for goodbye in self._goodbyes.drain():
            if isinstance(goodbye, Goodbye):
                core.abandon(goodbye.peer)

    def _publish(self, messages: list[Message]) -> None:
        for message in messages:
            if not isinstance(message, Reply):
                self._hub.publish(message)
            elif (command := self._unanswered.pop((message.to, message.id), None)) is not None:
                self._hub.answer(command, message)

    def _publish_logs(self) -> None:
        lines = self._logs.message()
        if lines is not None:
            self._hub.publish(lines)

    def _fail_worker(self, error: WorkerDied, executor: Executor | None = None) -> int:
        fault = Fault(
            source=self._hub.source,
            t_ns=time.monotonic_ns(),
            what=f"rank {error.rank}",
            cause=error.cause,
            rank=error.rank,
            exit_code=error.exit_code,
            signal=error.signal,
            last_log=error.last_log,
        )
        return self._tell(fault, EXIT_FAILED, executor)

    def _fail(self, what: str, cause: str, code: int) -> int:
        return self._tell(Fault(source=self._hub.source, t_ns=time.monotonic_ns(), what=what, cause=cause), code)

    def _tell(self, fault: Fault, code: int, executor: Executor | None = None) -> int:
        """Publish the fault, end the other ranks, and stay for those who connect late."""
        self._hub.publish(fault)
        self._say_phase("failed", f"{fault.what}: {fault.cause}")
        self._logs.say(f"{fault.what}: {fault.cause}")
        attendant = Attendant(self._hub, self._commands, self._logs, f"the engine has failed: {fault.cause}")
        until = time.monotonic() + FAULT_LINGER_S
        if executor is not None:
            executor.close()
        while time.monotonic() < until and not self._stop.asked:
            time.sleep(0.05)
        attendant.leave()
        return code

    def _say_phase(self, phase: Phase, detail: str = "") -> None:
        self._hub.publish(EngineState(source=self._hub.source, t_ns=time.monotonic_ns(), phase=phase, detail=detail))

    def _header(self) -> SessionHeader:
        t_ns, wall_ns = wall_anchor()
        return SessionHeader(
            source=self._hub.source,
            t_ns=t_ns,
            session=self._hub.source,
            wall_ns=wall_ns,
            host=socket.gethostname(),
            versions=installed("herdscope", "torch", "triton", "tokenizers"),
            command_line=sys.argv,
            emulated=self._config.emulate is not None,
            title=self._config.model,
        )

"""A server that we launched, behind our channel: its log, its end, and its knobs by restart.

A knob that needs a restart is refused the first time, with what would change in the command line; asked for again
within half a minute, the server is restarted.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec

from probes.attach.errors import ServerError
from probes.attach.gateway import ServerGateway
from probes.attach.http import ServerHttp
from probes.attach.live_knobs import set_sglang_micro_batch
from probes.attach.recognise import Recognised, recognise
from probes.launch.child import ServerChild
from probes.launch.command_line import CommandLine, LaunchError, diff
from probes.launch.flags import knobs_of, pipeline_stages, unavailable, with_knob_flags
from probes.launch.own_polling import OwnPolling
from sessions.channel.interface import ChannelClosed
from sessions.channel.unix import UnixHub
from sessions.knobs import KnobError, with_knob
from sessions.messages import EngineState, Fault, KnobReply, KnobRequest, KnobState, LogLine, LogLines, Marker, Phase

READY_TIMEOUT_S = 1800.0
CONFIRM_S = 30.0
_POLL_S = 0.5
_LAST_LINES = 20
_PORTS = {"sglang": 30000, "vllm": 8000}


class LaunchedServer:
    """Starts `line` and serves it on a hub at `path`. Everything ends with `close`, or with this process."""

    def __init__(self, line: CommandLine, path: Path, source: str) -> None:
        """Raise LaunchError for a command line of another program, ChannelError when the socket cannot be had."""
        self.knobs = knobs_of(line)
        self._line = line
        self._source = source
        self.hub = UnixHub(path, source, "server")
        self._offered: tuple[CommandLine, float] | None = None
        self._gateway: ServerGateway | None = None
        self._child: ServerChild | None = None
        self._polling: OwnPolling | None = None
        self._closing = threading.Event()
        self._knob_requests = self.hub.serve([KnobRequest])
        self._thread = threading.Thread(target=self._run, name="launched", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server and the channel; may take 20 s, which the server is given to end by itself."""
        self._closing.set()
        self._thread.join(_POLL_S + 5.0)
        self._stop()
        self.hub.close("the server was ended")

    def _run(self) -> None:
        self._tell_knobs()
        self._start()
        while not self._closing.is_set():
            self._notice_end()
            try:
                request = self._knob_requests.get(_POLL_S)
            except ChannelClosed:
                return
            if isinstance(request, KnobRequest):
                self.hub.answer(request, self._turn(request))

    def _start(self) -> str:
        """Start the server and wait until it answers; "" or why it does not."""
        self._state("loading", str(self._line))
        http = self._http()
        self._polling = OwnPolling(lambda: http.origins, self._on_line)
        self._child = ServerChild(self._line, self._on_line, self._polling.caused)
        server = self._wait_until_it_answers(http, self._child)
        if server is None:
            return "it ended while it was starting" if self._child.exit_code is not None else "it does not answer"
        if server.pp is None:
            server = msgspec.structs.replace(server, pp=pipeline_stages(self._line))
        self._gateway = ServerGateway(http, server, self.hub, turns_knobs=False)
        self._tell_knobs()
        return ""

    def _wait_until_it_answers(self, http: ServerHttp, child: ServerChild) -> Recognised | None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline and child.exit_code is None and not self._closing.is_set():
            try:
                return recognise(http)
            except ServerError:
                self._closing.wait(_POLL_S)
        return None

    def _stop(self) -> None:
        gateway, self._gateway = self._gateway, None
        child, self._child = self._child, None
        if gateway is not None:
            gateway.close()
        if child is not None:
            child.stop()
        if self._polling is not None:
            self._polling.tell()

    def _notice_end(self) -> None:
        child = self._child
        if child is None or child.exit_code is None:
            return
        code, last = child.exit_code, list(child.last_lines)[-_LAST_LINES:]
        self._stop()
        cause = f"signal {code - 128}" if code > 128 else f"exit code {code}"
        self._state("failed", cause)
        now = time.monotonic_ns()
        fault = Fault(source=self._source, t_ns=now, what="the server died", cause=cause, exit_code=code, last_log=last)
        self.hub.publish(fault)

    def _turn(self, request: KnobRequest) -> KnobReply:
        begun = time.monotonic()
        try:
            reason = self._turn_live(request) or self._restart_with(request)
        except (KnobError, LaunchError, ServerError) as error:
            reason = str(error)
        return KnobReply(
            source=self._source,
            t_ns=time.monotonic_ns(),
            id=request.id,
            to=request.source,
            ok=reason == "done",
            reason="" if reason == "done" else reason,
            knob=request.knob,
            applied=getattr(self.knobs, request.knob),
            took_ms=(time.monotonic() - begun) * 1000,
        )

    def _turn_live(self, request: KnobRequest) -> str:
        """ "done" when the server could change it as it runs, "" when that takes a restart."""
        changed = with_knob(self.knobs, request.knob, request.value)
        if request.knob != "max_micro_batch" or self._line.kind != "sglang" or self._gateway is None:
            return ""
        set_sglang_micro_batch(self._http(), changed.max_micro_batch)
        self._line = with_knob_flags(self._line, request.knob, request.value)
        self.knobs = changed
        self._tell_knobs()
        return "done"

    def _restart_with(self, request: KnobRequest) -> str:
        """ "done" after a restart, or what one would change."""
        line = with_knob_flags(self._line, request.knob, request.value)
        changes = "; ".join(diff(self._line, line))
        if not changes:
            return "done"
        offered, self._offered = self._offered, (line, time.monotonic())
        if offered is None or offered[0] != line or time.monotonic() - offered[1] > CONFIRM_S:
            return f"ask again to restart with {changes}"
        self._offered = None
        self._state("switching", changes)
        self._stop()
        self._line, self.knobs = line, knobs_of(line)
        begun = time.monotonic()
        failure = self._start()
        if failure:
            return f"restarted with {changes}, but {failure}"
        text = f"restarted with {changes}: ready after {time.monotonic() - begun:.0f} s"
        self.hub.publish(Marker(source=self._source, t_ns=time.monotonic_ns(), category="knob", text=text))
        return "done"

    def _http(self) -> ServerHttp:
        port = self._line.number(_PORTS[self._line.kind], "--port")
        return ServerHttp(f"http://{self._line.value('--host') or '127.0.0.1'}:{port}")

    def _state(self, phase: Phase, detail: str) -> None:
        now = time.monotonic_ns()
        self.hub.publish(EngineState(source=self._source, t_ns=now, phase=phase, detail=detail))

    def _tell_knobs(self) -> None:
        now = time.monotonic_ns()
        state = KnobState(source=self._source, t_ns=now, knobs=self.knobs, unavailable=unavailable(self._line))
        self.hub.publish(state)

    def _on_line(self, text: str) -> None:
        now = time.monotonic_ns()
        self.hub.publish(LogLines(source=self._source, t_ns=now, lines=[LogLine(now, None, text)]))

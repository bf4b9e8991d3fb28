"""Puts somebody else's server behind our channel, so that everything that works with our engine works with it.

Its metrics become queue frames, its streams token frames; requests submitted here are sent to its OpenAI endpoint.
"""

from __future__ import annotations

import socket
import threading
import time
import uuid
from pathlib import Path

import msgspec

from probes.attach.errors import ServerError
from probes.attach.host_spans import host_spans
from probes.attach.http import ServerHttp
from probes.attach.live_knobs import set_sglang_micro_batch
from probes.attach.profile import record_profile
from probes.attach.recognise import Recognised
from probes.attach.request_streams import RequestStreams
from probes.attach.watcher import ServerWatcher
from sessions.channel.interface import ChannelClosed
from sessions.channel.unix import UnixHub
from sessions.clock import wall_anchor
from sessions.knobs import KNOB_NAMES, KnobError, KnobName, Knobs, KnobValue, parse_knob, with_knob
from sessions.messages import (
    CancelRequests,
    Command,
    Goodbye,
    KnobReply,
    KnobRequest,
    KnobState,
    ProfileReply,
    ProfileRequest,
    Reply,
    SessionHeader,
    StopEngine,
    SubmitRequests,
)

PROFILE_STEP_S = 0.05
"""Seconds of profile for each step asked for: servers are told a duration, not a number of steps."""
_COMMANDS = (SubmitRequests, CancelRequests, ProfileRequest, StopEngine)


class ServerGateway:
    """Serves everything but knobs on a hub, in the hub's name; `turns_knobs` adds those that the server lets anybody
    turn while it runs."""

    def __init__(self, http: ServerHttp, server: Recognised, hub: UnixHub, turns_knobs: bool = True) -> None:
        self._server = server
        self._http = http
        self._hub = hub
        self._source = hub.source
        self._knobs = Knobs(async_depth=server.slots or server.pp or 1)
        self._unavailable = _unavailable(server)
        self._requests: dict[str, set[str]] = {}
        model = server.models[0] if server.models else ""
        self._streams = RequestStreams(http, model, self._source, self._hub.publish)
        self._watcher = ServerWatcher(http, server, self._source, self._hub.publish)
        self._closing = threading.Event()
        self._hub.publish(self._header())
        self._turns_knobs = turns_knobs
        if turns_knobs:
            self._tell_knobs()
        self._watcher.start()
        self._commands = self._hub.serve((*_COMMANDS, KnobRequest) if turns_knobs else _COMMANDS)
        self._farewells = self._hub.subscribe([Goodbye])
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Break off requests of ours and end everything but the server and the hub."""
        self._closing.set()
        self._thread.join(5.0)
        self._commands.close()
        self._farewells.close()
        self._streams.close()
        self._watcher.stop()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                command = self._commands.get(0.2)
            except ChannelClosed:
                return
            for farewell in self._farewells.drain():
                if isinstance(farewell, Goodbye):
                    self._streams.cancel(sorted(self._requests.pop(farewell.peer, set())))
            if isinstance(command, Command):
                self._obey(command)

    def _obey(self, command: Command) -> None:
        match command:
            case SubmitRequests():
                self._requests.setdefault(command.source, set()).update(spec.id for spec in command.requests)
                self._streams.begin(command.requests)
                self._hub.answer(command, self._reply(command))
            case CancelRequests():
                self._streams.cancel(command.requests or sorted(self._requests.get(command.source, ())))
                self._hub.answer(command, self._reply(command))
            case KnobRequest():
                self._hub.answer(command, self._knob(command))
            case ProfileRequest():
                threading.Thread(target=self._profile, args=(command,), name="profile", daemon=True).start()
            case _:
                reason = "this server is somebody else's: end it where it was started"
                self._hub.answer(command, self._reply(command, reason))

    def _knob(self, command: KnobRequest) -> KnobReply:
        begun = time.monotonic_ns()
        reason = ""
        try:
            value = parse_knob(command.knob, command.value)
            if command.knob in self._unavailable:
                raise KnobError(self._unavailable[command.knob])
            self._turn(command.knob, value)
            self._knobs = with_knob(self._knobs, command.knob, value)
            self._tell_knobs()
        except (KnobError, ServerError) as error:
            reason = str(error)
        now = time.monotonic_ns()
        return KnobReply(
            source=self._source,
            t_ns=now,
            id=command.id,
            to=command.source,
            ok=not reason,
            reason=reason,
            knob=command.knob,
            applied=getattr(self._knobs, command.knob),
            took_ms=(now - begun) / 1e6,
        )

    def _turn(self, knob: KnobName, value: KnobValue) -> None:
        if knob == "max_micro_batch" and self._server.kind == "sglang":
            set_sglang_micro_batch(self._http, int(value))

    def _profile(self, command: ProfileRequest) -> None:
        reason, traces = "", []
        try:
            seconds = max(1.0, command.steps * PROFILE_STEP_S)
            traces = record_profile(self._http, self._server.kind, Path(command.folder), seconds).traces
            self._tell_spans(traces)
        except ServerError as error:
            reason = str(error)
        self._hub.answer(
            command,
            ProfileReply(
                source=self._source,
                t_ns=time.monotonic_ns(),
                id=command.id,
                to=command.source,
                ok=not reason,
                reason=reason,
                traces=[str(trace) for trace in traces],
            ),
        )

    def _tell_spans(self, traces: list[Path]) -> None:
        """What the traces of a server without GPUs tell: its stages, and their spans."""
        frames = host_spans(traces, self._source, time.monotonic_ns())
        if len(frames) > 1 and self._server.pp is None:
            self._server = msgspec.structs.replace(self._server, pp=len(frames))
            self._knobs = msgspec.structs.replace(self._knobs, async_depth=len(frames))
            self._watcher.tell_stages(len(frames))
            if self._turns_knobs:
                self._tell_knobs()
        for frame in frames:
            self._hub.publish(frame)

    def _reply(self, command: Command, reason: str = "") -> Reply:
        return Reply(
            source=self._source,
            t_ns=time.monotonic_ns(),
            id=command.id,
            to=command.source,
            ok=not reason,
            reason=reason,
        )

    def _tell_knobs(self) -> None:
        state = KnobState(
            source=self._source, t_ns=time.monotonic_ns(), knobs=self._knobs, unavailable=self._unavailable
        )
        self._hub.publish(state)

    def _header(self) -> SessionHeader:
        t_ns, wall_ns = wall_anchor()
        return SessionHeader(
            source=self._source,
            t_ns=t_ns,
            session=uuid.uuid4().hex,
            wall_ns=wall_ns,
            host=socket.gethostname(),
            versions={self._server.kind: self._server.version},
            title=self._http.url,
        )


def _unavailable(server: Recognised) -> dict[KnobName, str]:
    """What nobody can change at a server that runs already."""
    names = {"sglang": "SGLang", "vllm": "vLLM", "herdscope": "this server"}
    reason = f"{names[server.kind]} changes this only by a restart: start it with `herdscope launch`"
    live = {"max_micro_batch"} if server.kind == "sglang" else set()
    return {knob: reason for knob in KNOB_NAMES if knob not in live}

"""An OpenAI-compatible server as the target of a benchmark: our load, its tokens' times, its metrics."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Sequence

import httpx

from probes.attach.http import ServerHttp
from probes.attach.openai_stream import Piece, StreamError, stream_completion
from probes.attach.recognise import Recognised
from probes.attach.watcher import ServerWatcher
from sessions.bench.target import TargetLost
from sessions.clock import Clock, MonotonicClock
from sessions.knobs import KNOB_NAMES, KnobName, Knobs, KnobValue
from sessions.messages import (
    EngineState,
    Fault,
    Finished,
    FinishReason,
    KnobReply,
    KnobState,
    Message,
    RequestSpec,
    TokenEvent,
    TokenFrame,
)

FIRST_STATE_S = 10.0
READ_TIMEOUT_S = 120.0
MAX_CONNECTIONS = 4096
_JOIN_S = 5.0


class HttpTarget:
    """Sends each request as a streamed completion of its own. Token ids are not told by these servers: each token is
    counted, and shows as id 0."""

    def __init__(self, http: ServerHttp, server: Recognised, source: str) -> None:
        """Begin watching. Raise TargetLost when the server does not answer."""
        self.clock: Clock = MonotonicClock()
        self.server = server
        self._source = source
        self._http = http
        self._messages: queue.Queue[Message] = queue.Queue()
        self._engine: EngineState | None = None
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._client: httpx.AsyncClient | None = None
        self._thread = threading.Thread(target=self._run, name="http-target", daemon=True)
        self._thread.start()
        self._watcher = ServerWatcher(http, server, source, self._messages.put)
        self._watcher.start()
        self._note(self._messages.get(timeout=FIRST_STATE_S))

    @property
    def engine(self) -> EngineState:
        assert self._engine is not None
        return self._engine

    @property
    def knobs(self) -> KnobState:
        reason = "this server's settings are its command line's"
        return KnobState(
            source=self._source,
            t_ns=self.clock.now_ns(),
            knobs=Knobs(async_depth=self.server.slots or 1),
            unavailable=dict.fromkeys(KNOB_NAMES, reason),
        )

    def submit(self, requests: Sequence[RequestSpec]) -> str:
        for spec in requests:
            asyncio.run_coroutine_threadsafe(self._begin(spec), self._loop)
        return ""

    def cancel(self, requests: Sequence[str]) -> None:
        for request in requests:
            self._loop.call_soon_threadsafe(self._cancel, request)

    def turn(self, knob: KnobName, value: KnobValue) -> KnobReply:
        raise TargetLost(f"{knob} cannot be turned here: {self.knobs.unavailable[knob]}")

    def advance(self, until_ns: int) -> list[Message]:
        try:
            first = self._messages.get(timeout=max(0.0, (until_ns - self.clock.now_ns()) / 1e9))
        except queue.Empty:
            return []
        messages = [first]
        while not self._messages.empty():
            messages.append(self._messages.get_nowait())
        for message in messages:
            self._note(message)
        return messages

    def close(self) -> None:
        """Break off what still streams and end the threads."""
        self._watcher.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)

    def _note(self, message: Message) -> None:
        if isinstance(message, EngineState):
            self._engine = message
        elif isinstance(message, Fault):
            raise TargetLost(f"{message.what}: {message.cause}")

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _begin(self, spec: RequestSpec) -> None:
        if self._client is None:
            limits = httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=MAX_CONNECTIONS)
            self._client = httpx.AsyncClient(
                base_url=self._http.url, headers=self._http.headers, timeout=READ_TIMEOUT_S, limits=limits
            )
        self._streams[spec.id] = asyncio.create_task(self._stream(self._client, spec))

    def _cancel(self, request: str) -> None:
        if task := self._streams.get(request):
            task.cancel()

    async def _stream(self, client: httpx.AsyncClient, spec: RequestSpec) -> None:
        model = self.server.models[0] if self.server.models else ""
        output, prompt = 0, len(spec.prompt)
        reason: FinishReason = "failed"
        detail = "the stream ended without a finish reason"
        try:
            async for piece in stream_completion(client, model, spec):
                output += piece.tokens
                output = piece.output_tokens or output
                prompt = piece.prompt_tokens or prompt
                if piece.finish_reason is not None:
                    reason, detail = ("length" if piece.finish_reason == "length" else "stop"), ""
                self._tell_tokens(spec.id, piece)
        except StreamError as error:
            reason, detail = ("refused" if error.refused else "failed"), str(error)
        except asyncio.CancelledError:
            reason, detail = "cancelled", ""
        finally:
            self._streams.pop(spec.id, None)
        self._tell([], [Finished(spec.id, reason, prompt, output, detail)], time.monotonic_ns())

    def _tell_tokens(self, request: str, piece: Piece) -> None:
        if piece.tokens:
            self._tell([TokenEvent(request, [0] * piece.tokens, piece.text)], [], piece.t_ns)

    def _tell(self, events: list[TokenEvent], finished: list[Finished], t_ns: int) -> None:
        self._messages.put(TokenFrame(source=self._source, t_ns=t_ns, events=events, finished=finished))

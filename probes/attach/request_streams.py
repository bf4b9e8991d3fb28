"""Requests to an OpenAI-compatible server, each a stream of its own, told as our engine tells its tokens."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence

from probes.attach.http import ServerHttp
from probes.attach.openai_stream import CompletionClient, Piece, StreamError
from sessions.messages import Finished, FinishReason, RequestSpec, TokenEvent, TokenFrame

_JOIN_S = 5.0


class RequestStreams:
    """Streams completions in a thread. These servers do not tell token ids: each token is counted, and shows as id 0.

    Every request begun gets exactly one Finished, whatever becomes of it.
    """

    def __init__(self, http: ServerHttp, model: str, source: str, publish: Callable[[TokenFrame], None]) -> None:
        self._http = http
        self._model = model
        self._source = source
        self._publish = publish
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._loop = asyncio.new_event_loop()
        self._client: CompletionClient | None = None
        self._thread = threading.Thread(target=self._run, name="request-streams", daemon=True)
        self._thread.start()

    def begin(self, requests: Sequence[RequestSpec]) -> None:
        """Send these requests now."""
        for spec in requests:
            self._loop.call_soon_threadsafe(self._begin, spec)

    def cancel(self, requests: Sequence[str]) -> None:
        """Break these off; each still gets its Finished."""
        for request in requests:
            self._loop.call_soon_threadsafe(self._cancel, request)

    def close(self) -> None:
        """Break off everything and end the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        tasks = list(self._streams.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    def _begin(self, spec: RequestSpec) -> None:
        if self._client is None:
            self._client = CompletionClient(self._http.url, self._http.headers, self._model)
        self._streams[spec.id] = self._loop.create_task(self._stream(self._client, spec))

    def _cancel(self, request: str) -> None:
        if task := self._streams.get(request):
            task.cancel()

    async def _stream(self, client: CompletionClient, spec: RequestSpec) -> None:
        output, prompt = 0, len(spec.prompt)
        reason: FinishReason = "failed"
        detail = "the stream ended without a finish reason"
        try:
            async for piece in client.stream(spec):
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
        self._streams.pop(spec.id, None)
        self._tell([], [Finished(spec.id, reason, prompt, output, detail)], time.monotonic_ns())

    def _tell_tokens(self, request: str, piece: Piece) -> None:
        if piece.tokens:
            self._tell([TokenEvent(request, [0] * piece.tokens, piece.text)], [], piece.t_ns)

    def _tell(self, events: list[TokenEvent], finished: list[Finished], t_ns: int) -> None:
        self._publish(TokenFrame(source=self._source, t_ns=t_ns, events=events, finished=finished))

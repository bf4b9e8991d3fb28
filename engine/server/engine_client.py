"""Requests to the engine over its channel, each as an asynchronous stream of what becomes of it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Sequence

import msgspec

from engine.server.api_error import ApiError
from sessions.channel.interface import Channel, ChannelClosed, ChannelError
from sessions.messages import (
    CancelRequests,
    EngineState,
    Fault,
    Finished,
    Message,
    QueueFrame,
    RequestSpec,
    StageFrame,
    SubmitRequests,
    TokenEvent,
    TokenFrame,
)

SUBMIT_TIMEOUT_S = 10.0
SILENCE_TIMEOUT_S = 300.0


class Progress(msgspec.Struct, frozen=True):
    """Something happened to one of the requests asked for: tokens at `t_ns`, its end, or both at once."""

    index: int
    event: TokenEvent | None
    finished: Finished | None
    t_ns: int


class EngineClient:
    """One connection to the engine, shared by all HTTP requests of this process."""

    def __init__(self, channel: Channel) -> None:
        self.state: EngineState | None = None
        self.queue: QueueFrame | None = None
        self.stages: dict[int, StageFrame] = {}
        self.gone: str | None = None
        self.ended = asyncio.Event()
        self._channel = channel
        self._ids = itertools.count()
        self._waiting: dict[str, tuple[int, asyncio.Queue[Progress | None]]] = {}
        self._messages = channel.subscribe([TokenFrame, EngineState, QueueFrame, StageFrame, Fault], capacity=1000)

    def start(self) -> None:
        """Begin reading, in the running event loop: each message as soon as it comes, without a task between."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended: nobody reads any more
                loop.call_soon_threadsafe(self._take_in)

        self._messages.on_arrival(wake)

    def stop(self) -> None:
        """Stop reading and leave the engine."""
        self._messages.on_arrival(lambda: None)
        self._channel.close()

    async def generate(self, specs: Sequence[RequestSpec]) -> AsyncIterator[Progress | None]:
        """Ask for tokens and yield what happens until every request has ended: None as soon as the engine has taken
        all of them in and before anything else has happened. Left early, it cancels what still runs.

        The specs' ids are replaced by ids of this process. Raise ApiError when the engine is gone, refuses or is
        silent.
        """
        specs = [msgspec.structs.replace(spec, id=f"{self._channel.source}#{next(self._ids)}") for spec in specs]
        progress: asyncio.Queue[Progress | None] = asyncio.Queue()
        open_ids = {spec.id for spec in specs}
        for index, spec in enumerate(specs):
            self._waiting[spec.id] = (index, progress)
        try:
            await self._submit(specs)
            self._take_in()  # the engine tells what it refuses before it replies
            if progress.empty():
                yield None
            while open_ids:
                item = await self._next(progress)
                if item.finished is not None:
                    open_ids.discard(item.finished.request)
                yield item
        finally:
            for spec in specs:
                self._waiting.pop(spec.id, None)
            if open_ids and self.gone is None:
                self._cancel(sorted(open_ids))

    async def _submit(self, specs: Sequence[RequestSpec]) -> None:
        command = SubmitRequests(
            source=self._channel.source, t_ns=time.monotonic_ns(), id=specs[0].id, requests=list(specs)
        )
        try:
            reply = await self._channel.ask(command, SUBMIT_TIMEOUT_S)
        except ChannelError as error:
            raise ApiError(503, f"the engine does not answer: {error}") from None
        if not reply.ok:
            raise ApiError(503, f"the engine refused: {reply.reason}")

    def _cancel(self, requests: list[str]) -> None:
        command = CancelRequests(
            source=self._channel.source,
            t_ns=time.monotonic_ns(),
            id=f"{self._channel.source}!{next(self._ids)}",
            requests=requests,
        )
        task = asyncio.ensure_future(self._channel.ask(command, SUBMIT_TIMEOUT_S))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _next(self, progress: asyncio.Queue[Progress | None]) -> Progress:
        try:
            async with asyncio.timeout(SILENCE_TIMEOUT_S):
                item = await progress.get()
        except TimeoutError:
            raise ApiError(504, f"the engine produced nothing for {SILENCE_TIMEOUT_S:.0f} s") from None
        if item is None:
            raise ApiError(503, f"the engine is gone: {self.gone}")
        return item

    def _take_in(self) -> None:
        """Everything that has arrived."""
        try:
            while (message := self._messages.get(0.0)) is not None:
                self._see(message)
        except ChannelClosed as error:
            self._end(str(error))

    def _see(self, message: Message) -> None:
        match message:
            case TokenFrame():
                self._deliver(message)
            case EngineState():
                self.state = message
                if message.phase in ("failed", "stopped"):
                    self._end(message.detail or message.phase)
            case Fault():
                self._end(f"{message.what}: {message.cause}")
            case QueueFrame():
                self.queue = message
            case StageFrame():
                self.stages[message.stage] = message

    def _deliver(self, frame: TokenFrame) -> None:
        ends = {finished.request: finished for finished in frame.finished}
        for event in frame.events:
            self._tell(event.request, event, ends.pop(event.request, None), frame.t_ns)
        for request, finished in ends.items():
            self._tell(request, None, finished, frame.t_ns)

    def _tell(self, request: str, event: TokenEvent | None, finished: Finished | None, t_ns: int) -> None:
        if waiting := self._waiting.get(request):
            index, progress = waiting
            progress.put_nowait(Progress(index, event, finished, t_ns))

    def _end(self, reason: str) -> None:
        if self.gone is not None:
            return
        self.gone = reason
        self.ended.set()
        for _, progress in self._waiting.values():
            progress.put_nowait(None)

"""The HTTP routes."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from engine.server.api_error import ApiError
from engine.server.engine_client import EngineClient
from engine.server.generation import Generation
from engine.server.metrics import ServerMetrics
from engine.server.schema import (
    DEFAULT_COMPLETION_TOKENS,
    MAX_BODY_BYTES,
    MAX_PROMPTS,
    ChatBody,
    CompletionBody,
    SamplingFields,
    check,
    read_body,
)

Handler = Callable[[Request], Awaitable[Response]]
_DISCONNECT_POLL_S = 0.2


class OpenAiServer:
    """Serves one engine under `model`. With `api_key`, everything but /health asks for it as a bearer token."""

    def __init__(self, client: EngineClient, model: str, max_context: int, api_key: str | None = None) -> None:
        self._client = client
        self._model = model
        self._max_context = max_context
        self._api_key = api_key
        self._started = int(time.time())
        self._metrics = ServerMetrics(model, client)

    def app(self, began: Callable[[], None] = lambda: None) -> Starlette:
        """The ASGI application; its lifespan starts and stops the engine client, and calls `began` between."""

        @contextlib.asynccontextmanager
        async def lifespan(_app: Starlette) -> AsyncIterator[None]:
            self._client.start()
            began()
            yield
            self._client.stop()

        routes = [
            Route("/health", self._guarded(self._health, open_to_all=True), methods=["GET"]),
            Route("/metrics", self._guarded(self._show_metrics), methods=["GET"]),
            Route("/v1/models", self._guarded(self._models), methods=["GET"]),
            Route("/v1/completions", self._guarded(self._completions), methods=["POST"]),
            Route("/v1/chat/completions", self._guarded(self._chat), methods=["POST"]),
        ]
        return Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _http_error})

    def _guarded(self, handler: Handler, open_to_all: bool = False) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                if not open_to_all:
                    self._check_key(request)
                return await handler(request)
            except ApiError as error:
                return JSONResponse(error.body(), error.status)

        return guarded

    def _check_key(self, request: Request) -> None:
        if self._api_key is None:
            return
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not secrets.compare_digest(given.encode(), self._api_key.encode()):
            raise ApiError(401, "a valid API key is needed: Authorization: Bearer KEY", code="invalid_api_key")

    async def _health(self, _request: Request) -> Response:
        if self._client.gone is not None:
            raise ApiError(503, f"the engine is gone: {self._client.gone}")
        return Response()

    async def _show_metrics(self, _request: Request) -> Response:
        return Response(self._metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _models(self, _request: Request) -> Response:
        entry = {
            "id": self._model,
            "object": "model",
            "created": self._started,
            "owned_by": "herdscope",
            "max_model_len": self._max_context,
        }
        return JSONResponse({"object": "list", "data": [entry]})

    async def _completions(self, request: Request) -> Response:
        body = read_body(CompletionBody, await _body(request))
        if body.echo or body.logprobs:
            raise ApiError(400, "echo and logprobs are not supported", "echo" if body.echo else "logprobs")
        limit = DEFAULT_COMPLETION_TOKENS if body.max_tokens is None else body.max_tokens
        return await self._generate(request, "completion", body.prompts, body, limit)

    async def _chat(self, request: Request) -> Response:
        body = read_body(ChatBody, await _body(request))
        if not body.messages:
            raise ApiError(400, "messages is empty", "messages")
        if body.logprobs or body.tools:
            raise ApiError(400, "logprobs and tools are not supported", "logprobs" if body.logprobs else "tools")
        limit = max(1, self._max_context // 4) if body.token_limit is None else body.token_limit
        return await self._generate(request, "chat", [chat_prompt(body)], body, limit)

    async def _generate(
        self, request: Request, form: Any, prompts: list[str | list[int]], body: SamplingFields, limit: int
    ) -> Response:
        if body.model not in (None, self._model):
            raise ApiError(404, f"no model {body.model!r} here: it is {self._model!r}", "model", "model_not_found")
        if not 1 <= len(prompts) <= MAX_PROMPTS:
            raise ApiError(400, f"from 1 to {MAX_PROMPTS} prompts a request, not {len(prompts)}", "prompt")
        check(body, limit)
        await self._health(request)
        generation = Generation(self._client, self._metrics, form, self._model, prompts, body, limit)
        if body.stream:
            events = generation.stream()
            first = await anext(events)  # so that a refusal still has its HTTP status
            return StreamingResponse(_all(first, events), media_type="text/event-stream")
        return JSONResponse(await _unless_disconnected(request, generation.whole()))


def chat_prompt(body: ChatBody) -> str:
    """A plain transcript. The engine's models are laboratory models: they were trained on no chat template."""
    lines = [f"{message.role}: {message.text}" for message in body.messages]
    return "\n".join([*lines, "assistant:"])


async def _all(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for event in rest:
        yield event


async def _body(request: Request) -> bytes:
    """The body, refused as soon as it is too long."""
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > MAX_BODY_BYTES:
            raise ApiError(413, f"the request is longer than {MAX_BODY_BYTES} bytes")
    return b"".join(parts)


async def _unless_disconnected(request: Request, work: Any) -> Any:
    """Await the work, and give it up when the client goes away (which cancels its requests)."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await asyncio.wait([task], timeout=_DISCONNECT_POLL_S)
        if not task.done() and await request.is_disconnected():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise ApiError(499, "the client went away")
    return task.result()


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(ApiError(error.status_code, str(error.detail)).body(), error.status_code)

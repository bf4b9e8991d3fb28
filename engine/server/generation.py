"""One HTTP request's generation: specs to the engine, progress to bodies and chunks."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from engine.server.api_error import ApiError
from engine.server.engine_client import EngineClient, Progress
from engine.server.metrics import ServerMetrics
from engine.server.replies import Completion, Form, chunk, finish_reason, usage_chunk, whole
from engine.server.schema import SamplingFields
from sessions.messages import Finished, RequestSpec

DONE = b"data: [DONE]\n\n"


class Generation:
    """The choices of one HTTP request."""

    def __init__(
        self,
        client: EngineClient,
        metrics: ServerMetrics,
        form: Form,
        model: str,
        prompts: list[str | list[int]],
        body: SamplingFields,
        max_tokens: int,
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._form = form
        self._prompts = len(prompts)
        self._head: dict[str, Any] = {
            "id": f"{'chatcmpl' if form == 'chat' else 'cmpl'}-{uuid.uuid4().hex[:16]}",
            "created": int(time.time()),
            "model": model,
        }
        self._include_usage = body.wants_usage
        self._specs = _specs(prompts, body, max_tokens)
        self._choices = [Completion() for _ in self._specs]
        self._begun_ns = time.monotonic_ns()
        self._last_ns = [0] * len(self._specs)

    async def whole(self) -> dict[str, Any]:
        """Generate everything, then answer."""
        async for progress in self._client.generate(self._specs):
            if progress is not None:
                self._take(progress)
        return whole(self._form, self._head, self._choices, self._prompts)

    async def stream(self) -> AsyncIterator[bytes]:
        """Server-sent events, a chunk for each step; first nothing (b""), once the engine has taken the requests in, so
        that the reply's head is sent while it computes. Raise ApiError before the first; later errors are events."""
        answered = False
        begun: set[int] = set()
        try:
            async for progress in self._client.generate(self._specs):
                if progress is None:
                    piece = b""
                else:
                    text, ended = self._take(progress)
                    first = progress.index not in begun
                    begun.add(progress.index)
                    piece = _event(chunk(self._form, self._head, progress.index, text, ended, first))
                answered = True
                yield piece
        except ApiError as error:
            if not answered:
                raise
            yield _event(error.body())
            yield DONE
            return
        if self._include_usage:
            yield _event(usage_chunk(self._form, self._head, self._choices, self._prompts))
        yield DONE

    def _take(self, progress: Progress) -> tuple[str, str | None]:
        """Book what happened; the new text and, at the end, the finish reason. Raise ApiError for a request that was
        refused or broken off."""
        choice = self._choices[progress.index]
        text = ""
        if progress.event is not None:
            text = progress.event.text
            choice.text += text
            choice.output_tokens += len(progress.event.tokens)
            self._time_token(progress)
        if progress.finished is not None:
            self._end(choice, progress.finished, progress.t_ns)
        return text, choice.finish_reason

    def _end(self, choice: Completion, finished: Finished, t_ns: int) -> None:
        if finished.reason in ("refused", "failed", "cancelled"):
            status = 400 if finished.reason == "refused" else 503
            raise ApiError(status, f"request {finished.reason}: {finished.detail or 'no reason given'}")
        choice.prompt_tokens, choice.output_tokens = finished.prompt_tokens, finished.output_tokens
        choice.finish_reason = finish_reason(finished)
        self._metrics.ended(finished, (t_ns - self._begun_ns) / 1e9)

    def _time_token(self, progress: Progress) -> None:
        last = self._last_ns[progress.index]
        if last:
            self._metrics.next_token((progress.t_ns - last) / 1e9)
        else:
            self._metrics.first_token((progress.t_ns - self._begun_ns) / 1e9)
        self._last_ns[progress.index] = progress.t_ns


def _specs(prompts: list[str | list[int]], body: SamplingFields, max_tokens: int) -> list[RequestSpec]:
    """All prompts once, then again for each further choice of `n`, which a seed of its own makes differ."""
    seed = body.seed if body.seed is not None else uuid.uuid4().int & 0x7FFFFFFF
    temperature = 1.0 if body.temperature is None else body.temperature
    return [
        RequestSpec(
            id="",
            prompt=prompt,
            max_tokens=max_tokens,
            temperature=temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            seed=seed + copy,
            stop=body.stop_strings,
            ignore_eos=bool(body.ignore_eos),
            priority=body.priority or 0,
        )
        for copy in range(body.n or 1)
        for prompt in prompts
    ]


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(body) + b"\n\n"

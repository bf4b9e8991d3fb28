"""The bodies that OpenAI's completions and chats have, whole and in chunks."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sessions.messages import Finished

Form = Literal["completion", "chat"]


class Completion(msgspec.Struct):
    """One choice as it grows."""

    text: str = ""
    prompt_tokens: int = 0
    output_tokens: int = 0
    finish_reason: str | None = None


def finish_reason(finished: Finished) -> str:
    """OpenAI's word for how a request ended."""
    return "length" if finished.reason == "length" else "stop"


def usage(choices: list[Completion], prompts: int) -> dict[str, int]:
    """Token counts; a prompt that several choices share counts once (`prompts` distinct ones come first)."""
    prompt = sum(choice.prompt_tokens for choice in choices[:prompts])
    output = sum(choice.output_tokens for choice in choices)
    return {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}


def whole(form: Form, head: dict[str, Any], choices: list[Completion], prompts: int) -> dict[str, Any]:
    """The answer to a request that does not stream."""
    entries = []
    for index, choice in enumerate(choices):
        entry: dict[str, Any] = {"index": index, "finish_reason": choice.finish_reason, "logprobs": None}
        if form == "chat":
            entry["message"] = {"role": "assistant", "content": choice.text}
        else:
            entry["text"] = choice.text
        entries.append(entry)
    kind = "chat.completion" if form == "chat" else "text_completion"
    return {**head, "object": kind, "choices": entries, "usage": usage(choices, prompts)}


def chunk(form: Form, head: dict[str, Any], index: int, text: str, ended: str | None, first: bool) -> dict[str, Any]:
    """One piece of a stream."""
    entry: dict[str, Any] = {"index": index, "finish_reason": ended, "logprobs": None}
    if form == "chat":
        entry["delta"] = {"role": "assistant", "content": text} if first else {"content": text}
    else:
        entry["text"] = text
    return {**head, "object": _chunk_kind(form), "choices": [entry]}


def usage_chunk(form: Form, head: dict[str, Any], choices: list[Completion], prompts: int) -> dict[str, Any]:
    """The last piece of a stream that was asked for usage."""
    return {**head, "object": _chunk_kind(form), "choices": [], "usage": usage(choices, prompts)}


def _chunk_kind(form: Form) -> str:
    return "chat.completion.chunk" if form == "chat" else "text_completion"

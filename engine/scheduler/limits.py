"""What the engine can hold, and why a request that can never fit is refused."""

from __future__ import annotations

import msgspec

from engine.scheduler.blocks import blocks_for
from sessions.messages import RequestSpec


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """kv_blocks of block_size tokens; max_context and vocab are counts; 0 means not bounded. eos ends a sequence."""

    kv_blocks: int
    block_size: int
    max_context: int = 0
    vocab: int = 0
    eos: frozenset[int] = frozenset()


def refusal(spec: RequestSpec, prompt: list[int], limits: Limits) -> str | None:
    """Say in one line why this request can never run, or None when it can."""
    if not prompt:
        return "the prompt is empty"
    if spec.max_tokens < 1:
        return f"max_tokens must be at least 1, not {spec.max_tokens}"
    if spec.temperature < 0.0:
        return f"temperature must be 0 or more, not {spec.temperature:g}"
    if not 0.0 < spec.top_p <= 1.0:
        return f"top_p must be above 0 and at most 1, not {spec.top_p:g}"
    if limits.vocab and not 0 <= min(prompt) <= max(prompt) < limits.vocab:
        wrong = next(token for token in prompt if not 0 <= token < limits.vocab)
        return f"prompt token {wrong} is outside the vocabulary of {limits.vocab}"
    return too_long(len(prompt) + spec.max_tokens, limits)


def too_long(tokens: int, limits: Limits) -> str | None:
    """Say why a sequence of `tokens` (prompt and output) never fits, or None. Its last token is never cached."""
    if limits.max_context and tokens > limits.max_context:
        return f"prompt and max_tokens make {tokens} tokens, the context holds {limits.max_context}"
    if blocks_for(tokens - 1, limits.block_size) > limits.kv_blocks:
        capacity = limits.kv_blocks * limits.block_size
        return f"prompt and max_tokens make {tokens} tokens, the KV cache holds {capacity}"
    return None

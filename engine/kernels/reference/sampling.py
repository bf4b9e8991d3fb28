"""Greedy and nucleus sampling whose draws depend on the request's seed and position alone, never on its batch.

A draw is the argmax of ``logits / temperature`` plus Gumbel noise over the kept tokens (the Gumbel-max trick). The
noise of a token is a hash of (seed, position, token): a request draws the same token in any batch, on any device.
"""

from __future__ import annotations

import torch
from torch import Tensor

MASK = 0xFFFFFFFF


def mix(value: Tensor) -> Tensor:
    """A bijective 32-bit hash on int64 tensors (lowbias32 of C. Wellons, github.com/skeeto/hash-prospector)."""
    value = (value ^ (value >> 16)) * 0x21F0AAAD & MASK
    value = (value ^ (value >> 15)) * 0x735A2D97 & MASK
    return value ^ (value >> 15)


def gumbel(seed: Tensor, position: Tensor, vocab: int) -> Tensor:
    """Gumbel noise [B, vocab] in float32 for ``seed`` [B] and ``position`` [B]."""
    row = mix(mix(seed.long() & MASK) ^ mix((seed.long() >> 32) & MASK) ^ (position.long() & MASK))
    token = torch.arange(vocab, device=seed.device)
    uniform = (mix(row[:, None] ^ mix(token + 1)) >> 8).float() * 2**-24 + 2**-25
    # -log(1 - u), by its series where 1 - u would lose the digits that decide the maximum.
    exponential = torch.where(uniform < 1e-3, uniform + uniform * uniform * 0.5, -torch.log(1.0 - uniform))
    return -torch.log(exponential)


def keep_nucleus(scaled: Tensor, top_p: Tensor) -> Tensor:
    """``scaled`` [B, V] with minus infinity outside the likeliest tokens that make up ``top_p`` (ties stay)."""
    probability = scaled.softmax(-1)
    ordered = probability.sort(dim=-1, descending=True).values
    inside = ordered.cumsum(-1) - ordered < top_p[:, None]
    least = ordered.masked_fill(~inside, 2.0).amin(-1, keepdim=True)
    limited = (probability < least) & (top_p[:, None] < 1.0)
    return scaled.masked_fill(limited, float("-inf"))


def sample(logits: Tensor, temperature: Tensor, top_p: Tensor, seed: Tensor, position: Tensor) -> Tensor:
    """See ``engine.kernels.sample``."""
    greedy = logits.argmax(-1)
    if not bool((temperature > 0).any()):
        return greedy
    scaled = logits.float() / temperature.clamp_min(1e-5)[:, None]
    noisy = keep_nucleus(scaled, top_p) + gumbel(seed, position, logits.shape[-1])
    return torch.where(temperature > 0, noisy.argmax(-1), greedy)

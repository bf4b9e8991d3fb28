"""Tokens of an emulated model: drawn by the request's seed, its first prompt token and the position, nothing else.

So a recomputed request repeats itself, and every schedule gives the same tokens.
"""

from __future__ import annotations

_MASK = (1 << 64) - 1


def token_at(key: int, position: int, vocab: int) -> int:
    """The token at `position` (0-based) of the sequence with this key (see `sequence_key`)."""
    value = (key + position * 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    return (value ^ (value >> 31)) % vocab


def sequence_key(seed: int, first_token: int) -> int:
    """What a sequence's tokens are drawn by: the finaliser of SplitMix64 over both (Steele, Lea, Flood: Fast splittable
    pseudorandom number generators, 2014), which `token_at` uses the first half of."""
    value = (seed * 0x632BE59BD9B4E019 + first_token) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)

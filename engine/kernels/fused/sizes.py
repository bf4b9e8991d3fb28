"""Sizes for launches. Triton's own, which kernels share with the host, cost the host several microseconds a call."""

from __future__ import annotations


def ceil_div(total: int, part: int) -> int:
    """How many parts of this size hold the total."""
    return -(-total // part)


def power_of_two(least: int) -> int:
    """The smallest power of two that is at least ``least``, which is positive."""
    return 1 << (least - 1).bit_length()

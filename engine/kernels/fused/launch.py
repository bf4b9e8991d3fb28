"""Programmatic dependent launch: a kernel starts while the one before it drains, and waits only before it reads.

Every kernel here calls ``await_previous`` in each program before it touches anything an earlier kernel wrote, and
before it writes anything: the order of the stream is kept. What may run before that is the reading of weights.

A kernel that calls ``release_next`` has its successor resident, its weights and tables read, when it ends. That pays
before short kernels. It costs before one that streams weights in a single wave: programs placed while others still hold
room end up several to a multiprocessor, so norms and attention leave it out; and while experts stream, programs that
wait take room from loads in flight, so the experts' kernels call it after their last read.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _dependent_launch(device: torch.device) -> bool:
    return not INTERPRETED and torch.cuda.get_device_capability(device) >= (9, 0)


def launch_options(x: Tensor) -> dict[str, Any]:
    """The launch arguments that every kernel on the device of ``x`` shares."""
    return {"PDL": True, "launch_pdl": True} if _dependent_launch(x.device) else {"PDL": False}


@triton.jit
def release_next(PDL: tl.constexpr):
    """Let the next kernel's programs start as soon as this kernel's have all started."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def await_previous(PDL: tl.constexpr):
    """Wait until the kernels before this one have ended and their writes are visible."""
    if PDL:
        tl.extra.cuda.gdc_wait()

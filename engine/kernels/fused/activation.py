"""The gated activation on its own, for the dense layers and the shared expert."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.kernels.fused.launch import await_previous, launch_options, release_next
from engine.kernels.fused.sizes import ceil_div, power_of_two


@triton.jit
def _silu_mul_kernel(x, out, stride, width, BLOCK: tl.constexpr, PDL: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    release_next(PDL)
    await_previous(PDL)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < width
    gate = tl.load(x + row * stride + cols, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * stride + width + cols, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + cols, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=inside)


def silu_mul(x: Tensor) -> Tensor:
    """See ``engine.kernels.silu_mul``."""
    rows = x.reshape(-1, x.shape[-1])
    width = x.shape[-1] // 2
    out = torch.empty(rows.shape[0], width, dtype=x.dtype, device=x.device)
    block = min(1024, power_of_two(width))
    if rows.shape[0]:
        _silu_mul_kernel[(rows.shape[0], ceil_div(width, block))](
            rows, out, rows.stride(0), width, BLOCK=block, num_warps=4, **launch_options(x)
        )
    return out.view(*x.shape[:-1], width)

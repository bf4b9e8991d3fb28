"""The experts' gated feed-forward layers and their weighted sum."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


def silu_mul(x: Tensor) -> Tensor:
    """``silu(gate) * up`` for ``x`` [..., 2I] holding the gate, then the up half."""
    gate, up = x.chunk(2, dim=-1)
    return functional.silu(gate) * up


def fused_moe(
    x: Tensor,
    weights: Tensor,
    ids: Tensor,
    w_gate_up: Tensor,
    w_down: Tensor,
    expert_offset: int,
    local_experts: int,
) -> Tensor:
    """See ``engine.kernels.fused_moe``."""
    total = torch.zeros(x.shape, dtype=torch.promote_types(x.dtype, torch.float32), device=x.device)
    local = ids.long() - expert_offset
    for expert in torch.unique(local).tolist():
        if 0 <= expert < local_experts:
            token, choice = (local == expert).nonzero(as_tuple=True)
            hidden = silu_mul(functional.linear(x[token], w_gate_up[expert]))
            part = functional.linear(hidden, w_down[expert]).to(total.dtype)
            total.index_add_(0, token, part * weights[token, choice, None])
    return total.to(x.dtype)

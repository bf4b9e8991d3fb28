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
    parts = moe_parts(x, ids, w_gate_up[:local_experts], w_down[:local_experts], expert_offset)
    return combine(parts, weights, ids, expert_offset, local_experts)


def moe_parts(x: Tensor, ids: Tensor, w_gate_up: Tensor, w_down: Tensor, expert_offset: int) -> Tensor:
    """See ``engine.kernels.moe_parts``; the parts of other ranks' experts are zero here."""
    parts = torch.zeros(*ids.shape, x.shape[1], dtype=x.dtype, device=x.device)
    local = ids.long() - expert_offset
    for expert in torch.unique(local).tolist():
        if 0 <= expert < len(w_down):
            token, choice = (local == expert).nonzero(as_tuple=True)
            hidden = silu_mul(functional.linear(x[token], w_gate_up[expert]))
            parts[token, choice] = functional.linear(hidden, w_down[expert])
    return parts


def combine(parts: Tensor, weights: Tensor, ids: Tensor, expert_offset: int, local_experts: int) -> Tensor:
    """The weighted sum [T, H] of ``parts`` [T, k, H], those of other ranks' experts left out."""
    local = ids - expert_offset
    foreign = (local < 0) | (local >= local_experts)
    wide = parts.to(torch.promote_types(parts.dtype, torch.float32)).masked_fill(foreign.unsqueeze(-1), 0.0)
    return torch.einsum("tkh,tk->th", wide, weights.to(wide.dtype)).to(parts.dtype)

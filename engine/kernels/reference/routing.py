"""Which experts a token goes to, and with what weight. Of equal scores the lower expert wins."""

from __future__ import annotations

import torch
from torch import Tensor


def _top(scores: Tensor, k: int) -> Tensor:
    return scores.sort(dim=-1, descending=True, stable=True).indices[..., :k]


def route_softmax_topk(logits: Tensor, k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """See ``engine.kernels.route_softmax_topk``."""
    scores = logits.float().softmax(-1)
    ids = _top(scores, k)
    weights = scores.gather(-1, ids)
    if renormalise:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights, ids.int()


def route_grouped_sigmoid_topk(
    logits: Tensor, bias: Tensor, k: int, groups: int, top_groups: int, scaling: float, renormalise: bool
) -> tuple[Tensor, Tensor]:
    """See ``engine.kernels.route_grouped_sigmoid_topk``."""
    scores = logits.float().sigmoid()
    choice = scores + bias.float()
    if groups > 1:
        grouped = choice.view(len(choice), groups, -1)
        group_scores = grouped.topk(2, dim=-1).values.sum(-1)
        open_groups = torch.zeros_like(group_scores, dtype=torch.bool).scatter(-1, _top(group_scores, top_groups), True)
        choice = grouped.masked_fill(~open_groups.unsqueeze(-1), float("-inf")).flatten(-2)
    ids = _top(choice, k)
    weights = scores.gather(-1, ids)
    if renormalise:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * scaling, ids.int()

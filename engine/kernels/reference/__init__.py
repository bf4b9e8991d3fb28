"""The same functions as ``engine.kernels``, in plain torch: what runs on a CPU and what checks every kernel."""

from torch.nn.functional import linear

from engine.kernels.reference.attention import decode_attention, prefill_attention
from engine.kernels.reference.mla import mla_decode_attention, mla_norm_rope_cache, mla_prefill_attention
from engine.kernels.reference.moe import fused_moe, moe_parts, silu_mul
from engine.kernels.reference.norm import add_norm_router, add_rms_norm, combine_add_rms_norm, rms_norm
from engine.kernels.reference.rope import qk_norm_rope_cache, rope_decode_attention
from engine.kernels.reference.routing import route_grouped_sigmoid_topk, route_softmax_topk
from engine.kernels.reference.sampling import sample

__all__ = [
    "add_norm_router",
    "add_rms_norm",
    "combine_add_rms_norm",
    "decode_attention",
    "fused_moe",
    "linear",
    "mla_decode_attention",
    "mla_norm_rope_cache",
    "mla_prefill_attention",
    "moe_parts",
    "prefill_attention",
    "qk_norm_rope_cache",
    "rms_norm",
    "rope_decode_attention",
    "route_grouped_sigmoid_topk",
    "route_softmax_topk",
    "sample",
    "silu_mul",
]

"""The functions of ``engine.kernels`` as Triton kernels, for CUDA devices."""

from engine.kernels.fused.activation import silu_mul
from engine.kernels.fused.decode import decode_attention, rope_decode_attention
from engine.kernels.fused.linear import linear
from engine.kernels.fused.mla import mla_decode_attention, mla_norm_rope_cache, mla_prefill_attention
from engine.kernels.fused.moe import fused_moe, moe_parts
from engine.kernels.fused.norm import add_rms_norm, combine_add_rms_norm, rms_norm
from engine.kernels.fused.prefill import prefill_attention
from engine.kernels.fused.rope import qk_norm_rope_cache
from engine.kernels.fused.router import add_norm_router
from engine.kernels.fused.routing import route_grouped_sigmoid_topk, route_softmax_topk
from engine.kernels.fused.sampling import sample

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

"""The model's hot functions. On a CPU tensor they run as plain torch, on a CUDA tensor as Triton kernels.

Everything here can be captured in a CUDA graph on CUDA: static shapes, no host synchronisation.
"""

from engine.kernels.ops import (
    add_norm_router,
    add_rms_norm,
    combine_add_rms_norm,
    decode_attention,
    fused_moe,
    linear,
    mla_decode_attention,
    mla_norm_rope_cache,
    mla_prefill_attention,
    moe_parts,
    prefill_attention,
    qk_norm_rope_cache,
    rms_norm,
    rope_decode_attention,
    route_grouped_sigmoid_topk,
    route_softmax_topk,
    sample,
    silu_mul,
)

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

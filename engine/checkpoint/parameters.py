"""The parameters that the engine runs on: fused for speed, made of the checkpoint's tensors, split along one axis."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from engine.checkpoint.model_config import DeepseekV3Config, ModelConfig, Qwen3MoeConfig, WeightType

Initial = Literal["matrix", "norm", "bias"]
"""What dummy weights look like: matrices keep the scale of their input, norms are near one, biases near zero."""


class Source(msgspec.Struct, frozen=True):
    """A checkpoint tensor holding `rows` rows of a parameter; `{expert}` in its name is each expert's number."""

    tensor: str
    rows: int


class Section(msgspec.Struct, frozen=True):
    """Part of a split axis: `count` units (heads, experts, rows) of `size` entries each. Ranks share out the units."""

    count: int
    size: int


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One tensor of the running model.

    unit: what moves together: 0 the embedding, 1..layers the layers, layers + 1 the final norm and lm_head.
    shape: global. Experts are stacked on axis 0; other sources are concatenated by rows.
    axis, sections: how expert parallelism splits it; axis None means that every rank holds all of it.
    """

    name: str
    unit: int
    shape: tuple[int, ...]
    sources: tuple[Source, ...]
    axis: int | None = None
    sections: tuple[Section, ...] = ()
    dtype: WeightType | None = None
    initial: Initial = "matrix"

    @property
    def stacked(self) -> bool:
        """Whether axis 0 counts experts."""
        return len(self.shape) == 3

    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.shape)


def parameters_of(config: ModelConfig) -> list[Parameter]:
    """Every parameter of a model, the embedding first, then layer by layer, the head last."""
    head = config.layers + 1
    embed = f"{config.prefix}model.embed_tokens.weight"
    lm_head = embed if config.tied else f"{config.prefix}lm_head.weight"
    listed = [
        Parameter(name="embed", unit=0, shape=(config.vocab, config.hidden), sources=(Source(embed, config.vocab),))
    ]
    for layer in range(config.layers):
        listed += _layer(config, layer)
    listed.append(_norm("final_norm", head, config.hidden, f"{config.prefix}model.norm.weight"))
    listed.append(
        _split_rows("lm_head", head, config.hidden, [Source(lm_head, config.vocab)], [Section(config.vocab, 1)])
    )
    return listed


def _layer(config: ModelConfig, layer: int) -> list[Parameter]:
    at, unit, ours = f"{config.prefix}model.layers.{layer}.", layer + 1, f"layers.{layer}."
    norms = [
        _norm(f"{ours}input_norm", unit, config.hidden, f"{at}input_layernorm.weight"),
        _norm(f"{ours}post_norm", unit, config.hidden, f"{at}post_attention_layernorm.weight"),
    ]
    if isinstance(config, Qwen3MoeConfig):
        return norms + _grouped_query_attention(config, at, unit, ours) + _experts(config, at, unit, ours)
    assert isinstance(config, DeepseekV3Config)
    attention = _latent_attention(config, at, unit, ours)
    if layer < config.dense_layers:
        return norms + attention + _feed_forward(config, f"{at}mlp.", unit, f"{ours}dense.", config.dense_inner)
    listed = norms + attention + _experts(config, at, unit, ours)
    bias = Source(f"{at}mlp.gate.e_score_correction_bias", config.experts)
    listed.append(
        Parameter(
            name=f"{ours}router_bias",
            unit=unit,
            shape=(config.experts,),
            sources=(bias,),
            dtype="float32",
            initial="bias",
        )
    )
    if config.shared_experts:
        listed += _feed_forward(config, f"{at}mlp.shared_experts.", unit, f"{ours}shared.", config.shared_inner)
    return listed


def _grouped_query_attention(config: Qwen3MoeConfig, at: str, unit: int, ours: str) -> list[Parameter]:
    dim, heads, kv_heads = config.head_dim, config.heads, config.kv_heads
    names = [("q_proj", heads), ("k_proj", kv_heads), ("v_proj", kv_heads)]
    return [
        _split_rows(
            f"{ours}qkv",
            unit,
            config.hidden,
            [Source(f"{at}self_attn.{name}.weight", count * dim) for name, count in names],
            [Section(count, dim) for _, count in names],
        ),
        _norm(f"{ours}q_norm", unit, dim, f"{at}self_attn.q_norm.weight"),
        _norm(f"{ours}k_norm", unit, dim, f"{at}self_attn.k_norm.weight"),
        _split_columns(f"{ours}out", unit, config.hidden, f"{at}self_attn.o_proj.weight", Section(heads, dim)),
    ]


def _latent_attention(config: DeepseekV3Config, at: str, unit: int, ours: str) -> list[Parameter]:
    hidden, heads, attention = config.hidden, config.heads, f"{at}self_attn."
    query, latent = config.nope_dim + config.rope_dim, config.kv_lora + config.rope_dim
    key_value = config.nope_dim + config.value_dim
    down = [Source(f"{attention}kv_a_proj_with_mqa.weight", latent)]
    listed = []
    if config.q_lora:
        down.insert(0, Source(f"{attention}q_a_proj.weight", config.q_lora))
        listed.append(_norm(f"{ours}q_norm", unit, config.q_lora, f"{attention}q_a_layernorm.weight"))
        q_source, q_inputs = Source(f"{attention}q_b_proj.weight", heads * query), config.q_lora
    else:
        q_source, q_inputs = Source(f"{attention}q_proj.weight", heads * query), hidden
    kv_source = Source(f"{attention}kv_b_proj.weight", heads * key_value)
    return [
        Parameter(name=f"{ours}down", unit=unit, shape=(sum(s.rows for s in down), hidden), sources=tuple(down)),
        *listed,
        _norm(f"{ours}kv_norm", unit, config.kv_lora, f"{attention}kv_a_layernorm.weight"),
        _split_rows(f"{ours}q_up", unit, q_inputs, [q_source], [Section(heads, query)]),
        _split_rows(f"{ours}kv_up", unit, config.kv_lora, [kv_source], [Section(heads, key_value)]),
        _split_columns(f"{ours}out", unit, hidden, f"{attention}o_proj.weight", Section(heads, config.value_dim)),
    ]


def _experts(config: ModelConfig, at: str, unit: int, ours: str) -> list[Parameter]:
    expert, inner, count = f"{at}mlp.experts.{{expert}}.", config.expert_inner, Section(config.experts, 1)
    router = Source(f"{at}mlp.gate.weight", config.experts)
    return [
        Parameter(
            name=f"{ours}router",
            unit=unit,
            shape=(config.experts, config.hidden),
            sources=(router,),
            dtype="float32" if config.family == "deepseek_v3" else None,
        ),
        Parameter(
            name=f"{ours}gate_up",
            unit=unit,
            shape=(config.experts, 2 * inner, config.hidden),
            sources=(Source(f"{expert}gate_proj.weight", inner), Source(f"{expert}up_proj.weight", inner)),
            axis=0,
            sections=(count,),
        ),
        Parameter(
            name=f"{ours}down_experts",
            unit=unit,
            shape=(config.experts, config.hidden, inner),
            sources=(Source(f"{expert}down_proj.weight", config.hidden),),
            axis=0,
            sections=(count,),
        ),
    ]


def _feed_forward(config: ModelConfig, at: str, unit: int, ours: str, inner: int) -> list[Parameter]:
    return [
        _split_rows(
            f"{ours}gate_up",
            unit,
            config.hidden,
            [Source(f"{at}gate_proj.weight", inner), Source(f"{at}up_proj.weight", inner)],
            [Section(inner, 1), Section(inner, 1)],
        ),
        _split_columns(f"{ours}down", unit, config.hidden, f"{at}down_proj.weight", Section(inner, 1)),
    ]


def _norm(name: str, unit: int, size: int, tensor: str) -> Parameter:
    return Parameter(name=name, unit=unit, shape=(size,), sources=(Source(tensor, size),), initial="norm")


def _split_rows(name: str, unit: int, inputs: int, sources: list[Source], sections: list[Section]) -> Parameter:
    rows = sum(source.rows for source in sources)
    return Parameter(
        name=name, unit=unit, shape=(rows, inputs), sources=tuple(sources), axis=0, sections=tuple(sections)
    )


def _split_columns(name: str, unit: int, rows: int, tensor: str, section: Section) -> Parameter:
    shape = (rows, section.count * section.size)
    return Parameter(name=name, unit=unit, shape=shape, sources=(Source(tensor, rows),), axis=1, sections=(section,))

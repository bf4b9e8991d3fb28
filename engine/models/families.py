"""Which class runs which family."""

from __future__ import annotations

from engine.checkpoint.model_config import Family
from engine.models.deepseek_v3 import DeepseekV3
from engine.models.qwen3_moe import Qwen3Moe

FAMILIES: dict[Family, type[Qwen3Moe] | type[DeepseekV3]] = {"qwen3_moe": Qwen3Moe, "deepseek_v3": DeepseekV3}

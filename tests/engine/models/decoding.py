"""A checkpoint's logits by this engine's model in one process, and by transformers."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from engine.checkpoint.config_json import read_config
from engine.checkpoint.parameters import parameters_of
from engine.checkpoint.safetensors_reader import Checkpoint
from engine.models.batch import Batch, Chunks
from engine.models.cache import allocate_cache
from engine.models.decoder import Decoder
from engine.models.families import FAMILIES
from engine.models.loading import load_parameter
from engine.parallel.layout import held_ranges, pp_layout

BLOCK = 16
CHUNKS = ((0, 7), (7, 15), *((at, at + 1) for at in range(15, 23)))
"""A prompt in two chunks, then decode steps."""
TOKENS = torch.randint(0, 256, (23,), generator=torch.Generator().manual_seed(3))


def our_logits(folder: Path, stages: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Logits [tokens, vocab] of TOKENS, prefilled in chunks and then decoded."""
    ranks = _ranks(folder, stages, dtype, device)
    table = torch.randperm(16, generator=torch.Generator().manual_seed(4), dtype=torch.int32)[None, :8].to(device)

    def run(start: int, stop: int) -> Tensor:
        positions = torch.arange(start, stop, device=device)
        slots = table[0, positions // BLOCK] * BLOCK + positions % BLOCK
        lengths, bounds = torch.tensor([stop], dtype=torch.int32), torch.tensor([0, stop - start], dtype=torch.int32)
        chunk = Chunks(table, lengths.to(device), bounds.to(device))
        decoding = stop - start == 1
        batch = Batch(positions, slots, int(decoding), chunk if decoding else None, None if decoding else chunk)
        hidden = ranks[0].embed(TOKENS[start:stop].to(device))
        for model in ranks:
            hidden = model.forward(hidden, batch)
        return ranks[-1].logits(hidden)

    return torch.cat([run(start, stop) for start, stop in CHUNKS]).float().cpu()


def their_logits(folder: Path, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The same by transformers, in one forward pass."""
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    reference.to(device)  # type: ignore[arg-type]
    with torch.no_grad():
        logits: Tensor = reference(TOKENS[None].to(device)).logits
    return logits[0].float().cpu()


def error(logits: Tensor, truth: Tensor) -> float:
    """Relative norm of the difference."""
    return float(torch.linalg.norm(logits - truth) / torch.linalg.norm(truth))


def median_error(logits: Tensor, truth: Tensor) -> float:
    """The median token's relative norm of the difference: in bfloat16 a token may be routed to another expert."""
    each = torch.linalg.norm(logits - truth, dim=-1) / torch.linalg.norm(truth, dim=-1)
    return float(each.median())


def _ranks(folder: Path, stages: int, dtype: torch.dtype, device: torch.device) -> list[Decoder]:
    config, checkpoint = read_config(folder), Checkpoint(folder)
    layout = pp_layout(config, stages)
    ranks: list[Decoder] = []
    for rank in range(stages):
        weights = {
            p.name: load_parameter(checkpoint, config, p, held_ranges(p, layout, rank), dtype, device)
            for p in parameters_of(config)
            if held_ranges(p, layout, rank)
        }
        caches = allocate_cache(config, layout, rank, 16, BLOCK, dtype, device)
        model = FAMILIES[config.family](config, layout, rank, weights, caches, lambda x: x, lambda x: x)
        model.prepare(64, device)
        ranks.append(model)
    return ranks

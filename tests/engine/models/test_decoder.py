"""The forward pass in one process, against transformers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from engine.checkpoint.config_json import read_config
from engine.checkpoint.parameters import parameters_of
from engine.checkpoint.safetensors_reader import Checkpoint
from engine.models.batch import Batch, Chunks
from engine.models.cache import allocate_cache
from engine.models.families import FAMILIES
from engine.models.loading import load_parameter
from engine.parallel.layout import held_ranges, pp_layout

CPU = torch.device("cpu")
BLOCK = 4


@pytest.mark.parametrize("stages", [1, 2])
def test_prefill_in_chunks_and_decode_give_transformers_logits(tiny_checkpoint: Path, stages: int) -> None:
    config = read_config(tiny_checkpoint)
    layout = pp_layout(config, stages)
    checkpoint = Checkpoint(tiny_checkpoint)
    ranks = []
    for rank in range(stages):
        weights = {
            p.name: load_parameter(checkpoint, config, p, held_ranges(p, layout, rank), torch.float32, CPU)
            for p in parameters_of(config)
            if held_ranges(p, layout, rank)
        }
        caches = allocate_cache(config, layout, rank, 16, BLOCK, torch.float32, CPU)
        model = FAMILIES[config.family](config, layout, rank, weights, caches, lambda x: x, lambda x: x)
        model.prepare(64, CPU)
        ranks.append(model)
    tokens = torch.randint(0, 256, (23,), generator=torch.Generator().manual_seed(3))
    table = torch.randperm(16, generator=torch.Generator().manual_seed(4), dtype=torch.int32)[None, :8]

    def run(start: int, stop: int) -> torch.Tensor:
        positions = torch.arange(start, stop)
        slots = table[0, positions // BLOCK] * BLOCK + positions % BLOCK
        chunk = Chunks(
            table, torch.tensor([stop], dtype=torch.int32), torch.tensor([0, stop - start], dtype=torch.int32)
        )
        decoding = stop - start == 1
        batch = Batch(positions, slots, int(decoding), chunk if decoding else None, None if decoding else chunk)
        hidden = ranks[0].embed(tokens[start:stop])
        for model in ranks:
            hidden = model.forward(hidden, batch)
        return ranks[-1].logits(hidden)

    ours = torch.cat([run(0, 7), run(7, 15), *(run(at, at + 1) for at in range(15, 23))])
    reference = AutoModelForCausalLM.from_pretrained(tiny_checkpoint, dtype=torch.float32)
    with torch.no_grad():
        theirs = reference(tokens[None]).logits[0]
    assert torch.linalg.norm(ours - theirs) / torch.linalg.norm(theirs) < 1e-5
    assert torch.equal(ours.argmax(-1), theirs.argmax(-1))

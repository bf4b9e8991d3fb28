"""What transformers generates from a checkpoint."""

from __future__ import annotations

from pathlib import Path

from tests.engine.worker.served import OUTPUT, prompts


def greedy_tokens(checkpoint: Path) -> dict[str, list[int]]:
    """transformers' own greedy tokens in float32, the prompts padded on the left."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32)
    asked = prompts()
    width = max(map(len, asked))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in asked])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in asked])
    tokens = model.generate(
        ids, attention_mask=mask, max_new_tokens=OUTPUT, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    return {f"r{number}": row[width:].tolist() for number, row in enumerate(tokens)}

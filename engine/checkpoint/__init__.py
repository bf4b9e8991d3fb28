"""Hugging Face checkpoints: what config.json says, which tensors there are, how to read slices of them. No torch."""

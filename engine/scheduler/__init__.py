"""The scheduler: continuous batching over micro-batch slots, paged cache, admission policies. Pure Python."""

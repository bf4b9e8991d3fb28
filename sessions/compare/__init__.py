"""Comparing benchmark runs: is it a difference, how large is it, and what else differed."""

"""Benchmark runs: a sweep of load points against an engine, and what was measured."""

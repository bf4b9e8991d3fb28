"""The driver process: hosts the engine's channel, runs the engine core, owns the executor."""

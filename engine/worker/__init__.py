"""The process of one rank: `python -m engine.worker`, started by the driver or by torchrun on any host."""

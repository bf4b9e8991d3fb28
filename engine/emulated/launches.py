"""How many kernels a decode step launches."""

from __future__ import annotations

KERNELS_PER_LAYER = 45
"""Kernels that a stock server runs a layer: 49 ms eager over 48 layers at 22 us a launch (docs/emulation.md)."""

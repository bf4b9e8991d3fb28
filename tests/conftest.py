"""Fixtures that every room shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

if not Path("/dev/nvidiactl").exists():
    # Without a GPU, Triton's kernels run under its interpreter; it must know before anything imports triton.
    os.environ.setdefault("TRITON_INTERPRET", "1")

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real traces, scrapes and workloads kept beside the checkout; a test that needs them is skipped without them."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no shared/data folder beside the checkout")
    return SHARED_DATA

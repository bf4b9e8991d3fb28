"""Fixtures that every room shares."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real traces, scrapes and workloads kept beside the checkout; a test that needs them is skipped without them."""
    if not SHARED_DATA.is_dir():
        pytest.skip("no shared/data folder beside the checkout")
    return SHARED_DATA

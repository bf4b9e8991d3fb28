"""The kernel for Hopper becomes code for it, also where there is no GPU; what it gives is tested on one."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engine.kernels.fused.prefill import GLUON_RELEASE

triton = pytest.importorskip("triton")
SHARED_MEMORY = 227 * 1024

pytestmark = pytest.mark.skipif(
    not triton.__version__.startswith(GLUON_RELEASE), reason=f"written for Triton {GLUON_RELEASE}x"
)


@pytest.mark.parametrize(("dim", "size"), [(128, 16), (64, 64)])
def test_compiles(dim: int, size: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.kernels.hopper_code", str(dim), str(size)],
        env={**os.environ, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shared, products, copies = map(int, done.stdout.split())
    assert shared <= SHARED_MEMORY
    assert products and copies

"""Compiles the prefill kernel for Hopper, on any machine: `python -m tests.engine.kernels.hopper_code DIM SIZE`.

Prints shared memory in bytes and how many matrix instructions and bulk copies the code has. In a process of its own,
for the interpreter that the other tests run kernels under replaces what the compiler needs.
"""

from __future__ import annotations

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from engine.kernels.fused.hopper_prefill import WARPS, _prefill_kernel


def main(dim: int, size: int) -> None:
    """Compile for a head of `dim` and pages of `size` tokens."""
    layout = gl.NVMMASharedLayout.get_default_for([size, 64], gl.bfloat16)
    pages = f"tensordesc<bf16[{size}, 64],{layout!r}>"
    constants = {"GROUP": 6, "GROUP_PAD": 8, "DIM": dim}
    kinds = {"q": "*bf16", "out": "*bf16", "keys": pages, "values": pages, "scale": "fp32"}
    kinds |= dict.fromkeys(("block_table", "context_lens", "query_start"), "*i32")
    kinds |= dict.fromkeys(constants, "constexpr")
    names = _prefill_kernel.arg_names
    source = GluonASTSource(
        _prefill_kernel,
        {name: kinds.get(name, "i32") for name in names},
        {(names.index(name),): value for name, value in constants.items()},
    )
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": WARPS})
    code = compiled.asm["ptx"]
    print(compiled.metadata.shared, code.count("wgmma.mma_async"), code.count("cp.async.bulk.tensor"))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))

"""Gaps of Triton 3.6's interpreter, filled: bfloat16 products and rounding, and loop bounds under numpy >= 2.4."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

interpreter = pytest.importorskip("triton.runtime.interpreter")


def _widened(handle: Any) -> Any:
    """Bfloat16 is kept as uint16 bits, which the interpreter would multiply as integers."""
    if handle.dtype.scalar != interpreter.tl.bfloat16:
        return handle
    data = interpreter._convert_float(handle.data, interpreter.tl.bfloat16, interpreter.tl.float32, None)
    return interpreter.TensorHandle(data.view("float32").reshape(handle.data.shape), interpreter.tl.float32)


def _rounded(data: Any) -> Any:
    """Float32 as bfloat16 bits, to the nearest even as the hardware rounds; the interpreter cuts the low bits off."""
    bits = np.ascontiguousarray(data).view(np.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(data), (bits >> 16) | 0x40, nearest).astype(np.uint16)


@pytest.fixture(scope="session", autouse=True)
def mended_interpreter() -> Any:
    patch_tensor, create_dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot
    convert, tl = interpreter._convert_float, interpreter.tl

    def convert_float(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if source == tl.float32 and target == tl.bfloat16:
            return _rounded(data)
        return convert(data, source, target, rounding)

    def patched_tensor(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return create_dot(self, _widened(a), _widened(b), *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "_patch_lang_tensor", patched_tensor)
        patch.setattr(interpreter.InterpreterBuilder, "create_dot", dot)
        patch.setattr(interpreter, "_convert_float", convert_float)
        yield

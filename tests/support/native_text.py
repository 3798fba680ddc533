"""A text of LLVM that multiplies, and what it is to give."""

import ctypes

import numpy as np

SCALED = """
define void @scaled{name}(ptr noalias %x, ptr noalias %y, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %p = getelementptr float, ptr %x, i64 %i
  %q = getelementptr float, ptr %y, i64 %i
  %v = load float, ptr %p
  %w = fmul float %v, {factor}.0
  store float %w, ptr %q
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, %n
  br i1 %c, label %loop, label %done
done:
  ret void
}}
"""


def check_scaled(loaded, factor, name=""):
    x = np.arange(37, dtype=np.float32)
    y = np.zeros_like(x)
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    call(loaded.address(f"scaled{name}"))(x.ctypes.data, y.ctypes.data, x.size)
    assert y.tolist() == [factor * k for k in range(37)]

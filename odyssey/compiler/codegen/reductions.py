"""Combination of the elements of reductions and scatters, for all code generators."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.types import FLOATING, LLVM, SUFFIXES

__all__ = ["combine_elements", "identity_element"]


def identity_element(code: FunctionBuilder, how: str, type: str) -> LLVMValue:
    """Return the result of a reduction of no elements."""
    if how in ("sum", "any"):
        return code.const(type, 0)
    if how in ("prod", "all"):
        return code.const(type, 1)
    if type in FLOATING:
        return code.const(type, -math.inf if how == "max" else math.inf)
    if type == "b1":
        return code.const(type, how == "min")
    limits = np.iinfo(type)
    return code.const(type, limits.min if how == "max" else limits.max)


def combine_elements(
    code: FunctionBuilder,
    how: str,
    a: LLVMValue,
    b: LLVMValue,
    strictly: bool = False,
    hidden: bool = False,
) -> LLVMValue:
    """Combine two elements of a reduction.

    Args:
        code: Where to append instructions.
        how: One of ``REDUCTIONS``.
        a: The accumulated value.
        b: The next element.
        strictly: Whether sums and products keep their order; else LLVM may reassociate them.
        hidden: Whether to hide from LLVM how the element of a maximum or minimum was computed.
    """
    if how in ("sum", "prod") and a.type in FLOATING:
        word = "fadd" if how == "sum" else "fmul"
        # Without nsz: with both flags LLVM reassociates within the elements too where a loop is
        # short, so c * x + c * y becomes c * (x + y), and ((x + c) - c) + ((y + c) - c) becomes 0.
        flags = "" if strictly else " reassoc"
        if how == "prod" and not strictly:
            b = _hide_factors(code, b)
        total = code.op(a.type, f"{word}{flags} {LLVM[a.type]} {a.text}, {b.text}")
        return code.rounded(total) if a.type == "f2b" else total  # a store of bfloat16 cuts
    if how in ("sum", "prod"):
        return a + b if how == "sum" else a * b
    if how in ("any", "all"):
        return a | b if how == "any" else a & b
    if a.type in FLOATING:
        # Half precision needs no rounding here.
        extreme = partial(code.call, a.type, f"llvm.{how}imum.{SUFFIXES[a.type]}")
        if hidden:
            b = extreme(b, _opaque(code, identity_element(code, how, a.type)))
        return extreme(a, b)
    if a.type == "b1":
        return a | b if how == "max" else a & b
    sign = "u" if a.type[0] == "u" else "s"
    return code.intrinsic(f"{sign}{how}", a, b)


def _hide_factors(code: FunctionBuilder, x: LLVMValue) -> LLVMValue:
    """Hide the factors of an element: LLVM turns c * x and c * y into c**2 * (x * y)."""
    return x * _opaque(code, code.const(x.type, 1))


def _opaque(code: FunctionBuilder, x: LLVMValue) -> LLVMValue:
    """Return a constant that LLVM cannot see, to keep it from reassociating within elements.

    A fence around each element would keep loops from being vectorized; this one stands before the
    loop. So would ``where(mask, x, -inf)`` in a maximum: LLVM keeps the total where the mask is
    false, and takes the elements one by one, which takes a hundred times as long.
    """
    return code.call(x.type, f"llvm.arithmetic.fence.{SUFFIXES[x.type]}", x)

"""How folds begin, and combine two elements."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from odyssey.compiler.llvm.ir import LLVM, Code, Word
from odyssey.compiler.llvm.types import FLOATING, SUFFIXES

__all__ = ["folded", "neutral"]


def neutral(code: Code, how: str, type: str) -> Word:
    """What a fold of nothing gives."""
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


def folded(
    code: Code, how: str, a: Word, b: Word, strictly: bool = False, hidden: bool = False
) -> Word:
    """Two elements of a fold as one; sums and products in any order, unless strictly in theirs.

    With ``hidden``, LLVM is not to see how the second, of an extreme, was computed.
    """
    if how in ("sum", "prod") and a.type in FLOATING:
        word = "fadd" if how == "sum" else "fmul"
        # Not nsz beside it: with both LLVM takes apart the elements as well, where a loop is short,
        # and makes c * (x + y) of c * x + c * y, and 0 of ((x + c) - c) + ((y + c) - c).
        flags = "" if strictly else " reassoc"
        if how == "prod" and not strictly:
            b = _whole(code, b)
        return code.op(a.type, f"{word}{flags} {LLVM[a.type]} {a.text}, {b.text}")
    if how in ("sum", "prod"):
        return a + b if how == "sum" else a * b
    if how in ("any", "all"):
        return a | b if how == "any" else a & b
    if a.type in FLOATING:
        # Of half precision too, there is nothing to round.
        fold = partial(code.call, a.type, f"llvm.{how}imum.{SUFFIXES[a.type]}")
        return fold(a, fold(b, _unseen(code, neutral(code, how, a.type))) if hidden else b)
    if a.type == "b1":
        return a | b if how == "max" else a & b
    sign = "u" if a.type[0] == "u" else "s"
    return code.intrinsic(f"{sign}{how}", a, b)


def _whole(code: Code, x: Word) -> Word:
    """An element whose factors LLVM does not see: of c * x and c * y it makes c**2 * (x * y)."""
    return x * _unseen(code, code.const(x.type, 1))


def _unseen(code: Code, x: Word) -> Word:
    """A number that LLVM does not see, to combine elements with, which so are not taken apart.

    A fence around each of them would keep loops from being vectorized; this one stands before the
    loop. So would ``where(mask, x, -inf)`` in a maximum: LLVM leaves the total where there is no
    mask, and takes the elements one by one, in a hundred times the time.
    """
    return code.call(x.type, f"llvm.arithmetic.fence.{SUFFIXES[x.type]}", x)

"""Passes over the tiles of attention: exponentials of scores, and the softmax VJP.

Queries are contiguous, so that every inner loop vectorizes over them, in the order of the keys: no
sum is reordered. The exponential, of numbers that are not positive, has the range reduction of W.
J. Cody and W. Waite, Software Manual for the Elementary Functions, 1980, and a Taylor series.
"""

from __future__ import annotations

import math
from types import FunctionType
from typing import Any

import numpy as np

from odyssey.kernels.loops import Loop, loop

__all__ = ["softmax_vjp_scores", "exponentiate_scores"]

# Placeholders of constants that depend on the dtype; ``LONG``: double precision.
BOTTOM: Any = -math.inf
ZERO: Any = 0.0
HALF: Any = 0.5
ONE: Any = 1.0
LOG2E: Any = 1 / math.log(2)
HIGH: Any = None
LOW: Any = None
LEAST: Any = None
F: Any = None
I: Any = None  # noqa: E741
BITS: Any = None
BIAS: Any = None
SINGLE: Any = None
LONG = False
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12 = [1 / math.factorial(k) for k in range(2, 13)]


def _exponentiate(out: Any, out_top: Any, out_inverse: Any) -> None:
    for b in range(out.shape[0]):
        for i in range(out.shape[2]):
            out_top[i] = BOTTOM
            out_inverse[b, i] = ZERO
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                x = out[b, j, i]
                out_top[i] = out_top[i] if out_top[i] >= x else x
        for i in range(out.shape[2]):
            out_top[i] = ZERO if out_top[i] == BOTTOM else out_top[i]
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                x = out[b, j, i] - out_top[i]
                c = LEAST if x < LEAST else x
                n = I(c * LOG2E - HALF)
                f = F(n)
                r = (c - f * HIGH) - f * LOW
                y = C7
                if LONG:
                    y = C10 + r * (C11 + r * C12)
                    y = C7 + r * (C8 + r * (C9 + r * y))
                y = C5 + r * (C6 + r * y)
                y = C2 + r * (C3 + r * (C4 + r * y))
                y = ONE + (r + (r * r) * y)
                half = I(n >> SINGLE)  # 2**n in two factors, since it may be subnormal
                y = y * I(I(half + BIAS) << BITS).view(F)
                y = y * I(I(I(n - half) + BIAS) << BITS).view(F)
                y = ZERO if x < LEAST else y
                out[b, j, i] = y
                out_inverse[b, i] += y
        for i in range(out.shape[2]):
            out_inverse[b, i] = ONE / (ONE if out_inverse[b, i] == ZERO else out_inverse[b, i])


def _for_dtype(dtype: Any, integer: Any, bits: int, bias: int, **ends: float) -> Loop:
    """Return the loop above for a dtype, and integers of the same size."""
    names = globals() | ends
    numbers = {k: dtype(v) for k, v in names.items() if type(v) is float and k.isupper()}
    types = {
        "F": dtype,
        "I": integer,
        "BITS": integer(bits),
        "BIAS": integer(bias),
        "SINGLE": integer(1),
    }
    scope = names | numbers | types | {"LONG": dtype is np.float64}
    function = FunctionType(_exponentiate.__code__, scope, _exponentiate.__name__)
    function.__qualname__, function.__module__ = f"_weigh_{dtype.__name__}", __name__
    return Loop(function, contract=True)


# HIGH has so few digits of ln 2 that its integer multiples are exact.
_LN2 = {"HIGH": 0.693359375, "LOW": -2.12194440e-4}
_LN2_LONG = {"HIGH": 6.93145751953125e-1, "LOW": 1.42860682030941723212e-6}
_EXPONENTIATE = {
    "f": _for_dtype(np.float32, np.int32, 23, 127, LEAST=-104.0, **_LN2),
    "d": _for_dtype(np.float64, np.int64, 52, 1023, LEAST=-746.0, **_LN2_LONG),
}


@loop
def _softmax_vjp(powers: Any, inverse: Any, out: Any, out_total: Any) -> None:
    for b in range(out.shape[0]):
        for i in range(out.shape[2]):
            out_total[i] = out.dtype.type(0)
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                out_total[i] += powers[b, j, i] * out[b, j, i]
        for i in range(out.shape[2]):
            out_total[i] *= inverse[b, i]
        for j in range(out.shape[1]):
            for i in range(out.shape[2]):
                out[b, j, i] = powers[b, j, i] * (out[b, j, i] - out_total[i])


def exponentiate_scores(scores: Any) -> Any:
    """Replace each column of a stack of matrices by its exponentials over that of its maximum.

    Returns:
        (..., 1, columns), one over their sums; 1 for a column of -inf, whose exponentials are 0.
    """
    *stack, keys, queries = scores.shape
    assert scores.flags.c_contiguous  # otherwise reshape would copy
    inverse = np.empty((math.prod(stack), queries), scores.dtype)
    top = np.empty(queries, scores.dtype)
    _EXPONENTIATE[scores.dtype.char](scores.reshape(-1, keys, queries), top, inverse)
    return inverse.reshape(*stack, 1, queries)


def softmax_vjp_scores(powers: Any, inverse: Any, cotangents: Any) -> None:
    """Replace the cotangents of weights by those of scores, without the factor ``inverse``."""
    *stack, keys, queries = cotangents.shape
    assert cotangents.flags.c_contiguous
    if powers.shape != cotangents.shape:
        powers = np.broadcast_to(powers, cotangents.shape)
        inverse = np.broadcast_to(inverse, (*stack, 1, queries))
    _softmax_vjp(
        powers.reshape(-1, keys, queries),
        inverse.reshape(-1, queries),
        cotangents.reshape(-1, keys, queries),
        np.empty(queries, cotangents.dtype),
    )

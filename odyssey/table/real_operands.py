"""Real operands: conversion and checks for ops that have no complex form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import is_floating, is_inexact, result_type
from odyssey.errors import DTypeError
from odyssey.spec import Array
from odyssey.table.shape_rules import floating_dtype
from odyssey.table.value import NUMBERS, Symbol, Value

__all__ = ["promoted", "real_dtype", "real_floating", "real_options"]


def real_floating(x: Any) -> Array:
    """Convert ``x`` to a real floating array; integers get the dtype of NumPy's own functions.

    Raises:
        TypeError: ``x`` is complex. The caller puts the name of the op before the message.
    """
    x = np.asarray(x)
    if is_floating(x.dtype):
        return x
    if x.dtype.kind in "biu":
        return x.astype(floating_dtype(x.dtype))
    raise TypeError("needs real numbers")


def promoted(x: Any, y: Any) -> tuple[Any, Any]:
    """Cast real operands to the floating dtype of the result, as a ufunc does.

    Without the cast, a kernel that computes with one operand alone may overflow, as squares of int8
    do, be as coarse as float16, or compute in 64 bits, as sums of booleans do.
    """
    dtypes = {v.dtype for v in (x, y) if type(v) not in NUMBERS}
    if len(dtypes) <= 1 and all(is_inexact(dtype) for dtype in dtypes):
        return x, y
    real = real_dtype(result_type(x, y, np.float16))
    return _cast_real(x, real), _cast_real(y, real)


def real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of the real part."""
    return np.empty(0, dtype).real.dtype


def _cast_real(v: Any, real: np.dtype[Any]) -> Any:
    return v if type(v) in NUMBERS or v.dtype.kind == "c" else v.astype(real, copy=False)


def real_options(who: str, *names: str) -> Callable[..., tuple[float, ...]]:
    """Return a ``prepare`` that converts options to Python floats, which raise no precision."""

    def prepare(*options: Any) -> tuple[float, ...]:
        for name, option in zip(names, options, strict=True):
            if isinstance(option, (Value, Symbol)) or np.ndim(option) or np.iscomplexobj(option):
                raise DTypeError(f"{who}: {name} is {option!r}; it is static, pass a real number")
        try:
            return tuple(float(option) for option in options)
        except (TypeError, ValueError) as error:
            raise DTypeError(f"{who}: {', '.join(names)}: {error}; pass a real number") from None

    return prepare

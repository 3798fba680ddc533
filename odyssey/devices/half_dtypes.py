"""Half-precision dtypes: float16 of NumPy and bfloat16 of ml_dtypes, and predicates on dtypes.

NumPy does not know bfloat16: its ``kind`` is ``"V"``, as that of structured arrays, and it is no
subtype of ``np.floating``. So code asks these predicates and not ``dtype.kind`` where a dtype may
be bfloat16. ml_dtypes is imported when bfloat16 is first requested by name, never with odyssey.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.spec import bfloat16, is_bfloat16, is_number_dtype, named_dtype

__all__ = [
    "bfloat16",
    "can_cast",
    "finfo",
    "has_half",
    "is_bfloat16",
    "is_floating",
    "is_half",
    "is_inexact",
    "is_number_dtype",
    "named_dtype",
    "result_type",
]


def result_type(*operands: Any) -> np.dtype[Any]:
    """Return the dtype that arrays, dtypes and Python numbers have together, see ``spec``.

    As ``np.result_type``, but bfloat16 is promoted as float16 is.

    Raises:
        DTypeError: float16 came with bfloat16, which have no common half.

    >>> result_type(bfloat16(), 1.0), result_type(bfloat16(), np.float32), result_type(1, 2.0)
    (dtype(bfloat16), dtype('float32'), dtype('float64'))
    """
    known = [getattr(v, "dtype", v) for v in operands]
    half = next((v for v in known if isinstance(v, np.dtype) and is_bfloat16(v)), None)
    if half is None:
        return np.result_type(*operands)
    if any(isinstance(v, np.dtype) and v.char == "e" for v in known):
        raise DTypeError(
            "float16 and bfloat16 have no common half; cast one of them, with "
            "ops.astype(x, 'float32') for example"
        )
    found = np.result_type(
        *[np.dtype(np.float16) if v is half else o for o, v in zip(operands, known, strict=True)]
    )
    return half if found.char == "e" else found


def can_cast(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Return whether numbers may be stored in an array of another dtype: by ``"same_kind"``.

    >>> can_cast(np.dtype(np.float64), bfloat16()), can_cast(bfloat16(), np.dtype(int))
    (True, False)
    """
    if source.kind != "V" and target.kind != "V":
        return np.can_cast(source, target, "same_kind")
    half: np.dtype[Any] = np.dtype(np.float16)
    source, target = (half if is_bfloat16(dtype) else dtype for dtype in (source, target))
    return np.can_cast(source, target, "same_kind")


def finfo(dtype: np.dtype[Any]) -> Any:
    """Return the limits of a floating dtype, as ``np.finfo``, which does not know bfloat16.

    >>> float(finfo(bfloat16()).eps)
    0.0078125
    """
    if is_bfloat16(dtype):
        import ml_dtypes

        limits: Any = ml_dtypes.finfo
        return limits(dtype)
    return np.finfo(dtype)


def is_half(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is float16 or bfloat16.

    >>> is_half(np.dtype(np.float16)), is_half(bfloat16()), is_half(np.dtype(np.float32))
    (True, True, False)
    """
    return dtype.char == "e" or is_bfloat16(dtype)


def has_half(value: Any) -> bool:
    """Return whether a value is an array, a Variable or a Symbol of half precision."""
    dtype = getattr(value, "dtype", None)
    return isinstance(dtype, np.dtype) and is_half(dtype)


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Return whether numbers of a dtype are floating or complex.

    >>> is_inexact(np.dtype(np.complex64)), is_inexact(bfloat16()), is_inexact(np.dtype("V2"))
    (True, True, False)
    """
    return dtype.kind in "fc" or is_bfloat16(dtype)


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Return whether numbers of a dtype are real and floating.

    >>> is_floating(np.dtype(np.float64)), is_floating(bfloat16()), is_floating(np.dtype(int))
    (True, True, False)
    """
    return dtype.kind == "f" or is_bfloat16(dtype)

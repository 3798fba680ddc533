"""Calls to SciPy's ufuncs, for functions without a scalar formula."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from odyssey.errors import DeviceError, OdysseyError
from odyssey.spec import Array

__all__ = ["by_scipy"]


def by_scipy(name: str, *operands: Any) -> Array:
    """Call a ufunc of SciPy; the result has the floating dtype that a NumPy ufunc would give.

    Raises:
        OdysseyError: if SciPy, an optional dependency, cannot be imported.
        TypeError: if an operand is complex; the caller prefixes the name of the op.
    """
    weak = all(type(v) in (int, float, bool) for v in operands)
    dtype = np.result_type(*operands, np.float64 if weak else np.float16)
    if dtype.kind != "f":
        raise TypeError("needs real numbers")
    try:
        ufunc = getattr(import_module("scipy.special"), name, None)
    except ImportError as error:
        raise OdysseyError(
            f"{name}: SciPy cannot be imported ({error}), and computes it; everything else works "
            "without it; `pip install odyssey[special]`"
        ) from error
    if ufunc is None:  # CuPy has some of SciPy's functions
        raise DeviceError(
            f"{name}: the device's library has no such function; move the operands to the CPU, "
            "with .to('cpu')"
        )
    # Always in double precision: SciPy's single precision is less accurate than float32.
    out = ufunc(*[np.asarray(v).astype(np.float64) for v in operands])
    return np.asarray(out).astype(dtype, copy=False)[()]

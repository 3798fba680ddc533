"""Widening: ops where a constant turns float32 into float64 by NumPy's promotion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import is_inexact
from odyssey.spec import Spec
from odyssey.table.row import Row

__all__ = ["describe_widening", "is_narrow", "is_wide"]


def is_wide(dtype: np.dtype[Any]) -> bool:
    """Return whether real parts of ``dtype`` are floats of 64 bits or more."""
    return is_inexact(dtype) and dtype.itemsize >= (16 if dtype.kind == "c" else 8)


def is_narrow(dtype: np.dtype[Any]) -> bool:
    """Return whether ``dtype`` is a float or complex one below 64 bits."""
    return is_inexact(dtype) and not is_wide(dtype)


def describe_widening(row: Row, operands: Sequence[Spec | None], out: Spec) -> str | None:
    """Describe a call that makes wide floats of narrow ones; None if it does not.

    ``astype`` says what it does, and is none.

    Args:
        row: The op.
        operands: Specs of the operands; None for Python numbers and what is absent.
        out: Spec of the result.
    """
    known = [(name, s) for name, s in zip(row.arrays, operands, strict=False) if s is not None]
    if row.name == "astype" or not is_wide(out.dtype):
        return None
    if not any(is_narrow(spec.dtype) for _, spec in known):
        return None
    came = ", ".join("a number" if spec is None else str(spec) for spec in operands)
    call = f"{row.name}({came}) gives {out}"
    causes = [(n, s) for n, s in known if is_wide(s.dtype) or s.dtype.kind in "iu"]
    if not causes:
        return call
    name, spec = causes[0]
    if spec.shape:
        return f"{call}, since {name} is of {spec.dtype}; cast it to the narrow dtype"
    return (
        f"{call}, since {name} is a number of {spec.dtype}, which is not weak as Python's numbers "
        f"are; pass float({name})"
    )

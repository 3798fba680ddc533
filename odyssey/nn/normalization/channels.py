"""Operands by channel: channels are on axis 1, as in PyTorch."""

from __future__ import annotations

import math
from typing import Any

from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.structure.shape import reshape
from odyssey.spec import Shape

__all__ = ["by_channel", "check_channels", "count_channels", "real_operands", "refuse_lone"]


def real_operands(who: str, **arrays: Any) -> list[Any]:
    """Return operands as arrays of real numbers, Variables or Symbols; None stays None."""
    found = []
    for name, v in arrays.items():
        v = v if v is None or hasattr(v, "dtype") else as_array(who, name, v)
        if v is not None and v.dtype.kind == "c":
            raise DTypeError(
                f"{who}: {name} is of {v.dtype}; it has no meaning for complex numbers"
            )
        found.append(v)
    return found


def count_channels(who: str, x: Any, least: int = 2) -> int:
    """Return the number of channels of ``x``; it must have ``least`` axes."""
    shape: Any = getattr(x, "shape", ())
    if len(shape) < least:
        wanted = "(N, C, ...)" if least == 2 else "(N, C, L, ...)"
        raise ShapeError(f"{who}: x has shape {shape}; wanted is {wanted}, channels on axis 1")
    count: int = shape[1]
    return count


def check_channels(who: str, shape: Shape, **arrays: Any) -> None:
    """Raise unless each array has a number for each channel of ``shape``, or is None."""
    for name, array in arrays.items():
        found = getattr(array, "shape", ())
        if array is not None and found != (shape[1],):
            raise ShapeError(
                f"{who}: {name} {found} for x {shape}; it must have one number for each of the "
                f"{shape[1]} channels, ({shape[1]},)"
            )


def refuse_lone(who: str, shape: Shape, axes: tuple[int, ...], what: str) -> None:
    """Raise ShapeError if a single number would be normalized by itself."""
    if math.prod(shape[k] for k in axes) == 1:
        raise ShapeError(
            f"{who}: x {shape} has a single number {what}, which is its own mean; pass more, or "
            "leave the normalization out"
        )


def by_channel(v: Any, x: Any) -> Any:
    """Reshape a number for each channel so that it broadcasts to ``x``; None stays None."""
    return v if v is None else reshape(v, (v.shape[0], *[1] * (x.ndim - 2)))

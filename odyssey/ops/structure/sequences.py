"""Evenly spaced numbers."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from odyssey.devices.arrays import as_array, native_dtype
from odyssey.devices.half_dtypes import has_half, named_dtype, result_type
from odyssey.errors import ShapeError
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.rounding import floor
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import astype, broadcast_to, moveaxis, shape_of
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.value import NUMBERS, Symbol, Value


@composite(
    numpy=[np.linspace],
    samples=[
        sample((), (), num=5),
        sample((3,), (3,), num=4, endpoint=False, axis=-1),
        sample((2,), (), num=3, retstep=True),
        sample((2,), (2,), num=1),
        sample((), (), num=0),
    ],
    rejects=[reject((), (), num=-1, match="num")],
)
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Evenly spaced numbers over an interval, with gradients in both ends.

    Args:
        start: The first number, or an array of them.
        stop: The last number, or with ``endpoint=False`` the one after it.
        num: The number of numbers.
        endpoint: Whether to include ``stop``.
        retstep: Whether to return the spacing as well.
        dtype: The dtype of the result.
        axis: Position of the new axis in the result.

    Returns:
        The numbers, or a tuple of the numbers and the spacing.

    Raises:
        ShapeError: if ``num`` is negative.

    >>> linspace(0.0, 1.0, 5)
    array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """
    dtype = named_dtype(dtype)
    known = isinstance(start, (Value, Symbol)) or isinstance(stop, (Value, Symbol))
    if not (known or has_half(start) or has_half(stop)):
        start, stop = (
            as_array("linspace", "an end", v) if shape_of(v) else v for v in (start, stop)
        )
        return np.linspace(start, stop, num, endpoint, retstep, dtype, axis)
    count = operator.index(num)
    if count < 0:
        raise ShapeError(f"linspace: num is {count}; it must not be negative")
    first, last = _promote_ends(start, stop)
    gaps = count - 1 if endpoint else count
    delta = sub(last, first)
    step = div(delta, gaps) if gaps > 0 else np.float64(np.nan)
    width = delta if gaps <= 0 else step
    shape = shape_of(width)
    places = np.arange(count, dtype=width.dtype).reshape(-1, *[1] * len(shape))
    numbers = add(mul(places, width), first)
    if endpoint and count > 1:  # exactly, despite rounding
        end = astype(broadcast_to(last, (1, *shape)), numbers.dtype)
        numbers = concatenate([getitem(numbers, slice(0, -1)), end])
    if axis != 0:
        numbers = moveaxis(numbers, 0, axis)
    if dtype is not None:
        integral = native_dtype(dtype).kind in "biu"
        numbers = astype(floor(numbers) if integral else numbers, dtype)
    return (numbers, step) if retstep else numbers


def _promote_ends(start: Any, stop: Any) -> list[Any]:
    """Cast both ends to their common floating dtype; Python numbers stay as they are."""
    known = (*NUMBERS, Value, Symbol)
    ends: list[Any] = [
        v if isinstance(v, known) else as_array("linspace", "an end", v) for v in (start, stop)
    ]
    dtype = result_type(*[v if type(v) in NUMBERS else v.dtype for v in ends], 0.0)
    return [v if type(v) in NUMBERS else astype(v, dtype) for v in ends]


publish(globals())

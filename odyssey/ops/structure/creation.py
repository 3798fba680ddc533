"""Constants with the shape and dtype of another array."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.devices.arrays import as_array, native_dtype
from odyssey.devices.same_device import full_beside, place_as
from odyssey.errors import DTypeError
from odyssey.ops.structure.shape import astype, broadcast_to, shape_of
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.value import CONSTANT, Symbol, Value, free_id, make_value

__all__ = ["full_like", "ones_like", "refuse_imaginary_parts", "zeros_like"]


_LIKE = (sample((2, 3)), sample(()), sample((0,), dtype=np.float32), sample((2,), shape=(3, 1)))
_UNLIKE = (reject((2,), dtype="text", error=DTypeError, match="text"),)


def refuse_imaginary_parts(who: str, what: str, came: np.dtype[Any], dtype: np.dtype[Any]) -> None:
    """Raise DTypeError if complex numbers would be cast to a real dtype."""
    if came.kind == "c" and dtype.kind != "c":
        raise DTypeError(
            f"{who}: {what} {came}, whose imaginary parts an array of {dtype} would lose; pass "
            "the real part, or ask for a complex dtype"
        )


def _filled_constant(x: Any, fill: Any, dtype: Any, shape: Any) -> Any:
    """Return an array filled with ``fill``, as a constant Variable if ``x`` is a Variable."""
    if not isinstance(x, (Value, Symbol)):
        x = as_array("a constant like an array", "that array", x)
    lengths = shape_of(x) if shape is None else shape
    if not isinstance(fill, (int, float, complex)):
        fill = as_array("full_like", "fill_value", fill)
    kind = x.dtype if dtype is None else native_dtype(dtype)
    refuse_imaginary_parts("full_like", "fill_value is", np.result_type(fill), kind)
    data = full_beside(lengths, fill, kind, x)
    return make_value(type(x), data, CONSTANT, free_id()) if isinstance(x, Value) else data


@composite(
    numpy=[np.zeros_like],
    samples=_LIKE,
    rejects=_UNLIKE,
)
def zeros_like(a: Any, dtype: Any = None, *, shape: Any = None) -> Any:
    """Zeros of the shape and dtype of another array; a constant.

    Args:
        a: Array, Variable or Symbol, of which only shape and dtype are read.
        dtype: Another dtype.
        shape: Another shape.

    Returns:
        A constant Variable for a Variable, else an array.

    >>> zeros_like(np.ones(2, np.float32))
    array([0., 0.], dtype=float32)
    """
    return _filled_constant(a, 0, dtype, shape)


@composite(
    numpy=[np.ones_like],
    samples=_LIKE,
    rejects=_UNLIKE,
)
def ones_like(a: Any, dtype: Any = None, *, shape: Any = None) -> Any:
    """Ones of the shape and dtype of another array; a constant.

    Args:
        a: Array, Variable or Symbol, of which only shape and dtype are read.
        dtype: Another dtype.
        shape: Another shape.

    Returns:
        A constant Variable for a Variable, else an array.

    >>> ones_like(np.zeros((1, 2)), int)
    array([[1, 1]])
    """
    return _filled_constant(a, 1, dtype, shape)


@composite(
    numpy=[np.full_like],
    samples=[
        sample((2, 3), 2.5),
        sample((2, 3), (3,)),
        sample((), ()),
        sample((2,), (), shape=(3, 2)),
        sample((0, 2), ()),
    ],
    rejects=[
        reject((2,), (3,), match="broadcast"),
        reject((2,), 1.0 + 2.0j, error=DTypeError, match="imaginary parts"),
        reject((2,), np.array(2.0j), error=DTypeError, match="imaginary parts"),
    ],
)
def full_like(a: Any, fill_value: Any, dtype: Any = None, *, shape: Any = None) -> Any:
    """A number or array broadcast to the shape and dtype of another array.

    Args:
        a: Array, Variable or Symbol, of which only shape and dtype are read.
        fill_value: The number, or an array that broadcasts to the shape. A Variable keeps its
            gradient.
        dtype: Another dtype.
        shape: Another shape.

    Returns:
        A Variable for a Variable, else an array; a constant where ``fill_value`` is one.

    Raises:
        DTypeError: for complex numbers in a real dtype. DeviceError: for a Variable of another
            device than the array.

    >>> full_like(np.zeros(2), 7)
    array([7., 7.])
    """
    if not isinstance(fill_value, (Value, Symbol)):
        return _filled_constant(a, fill_value, dtype, shape)
    if not isinstance(fill_value, Symbol):
        place_as("full_like", "fill_value", fill_value, a)
    kind = dtype or (a if hasattr(a, "dtype") else as_array("full_like", "a", a)).dtype
    refuse_imaginary_parts("full_like", "fill_value is", fill_value.dtype, native_dtype(kind))
    number = astype(fill_value, kind)
    return broadcast_to(number, shape_of(a) if shape is None else shape)


publish(globals())

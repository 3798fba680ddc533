"""Conversion of values to arrays, and refusal of those that would lose their meaning.

An array here is a plain ``np.ndarray`` of numbers in native byte order. A value that means more
than that (a mask, units, labels, a gradient of another library) is refused with its name, since
the conversion would lose that silently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import describe_type, format_value, with_article
from odyssey.errors import DTypeError, OdysseyError
from odyssey.spec import (
    HALF_LISTENERS,
    Array,
    admit_half,
    is_number_dtype,
    named_dtype,
    native_form,
)

__all__ = [
    "ARRAYS",
    "ARRAY_LIKE",
    "ARRAY_TYPE_LISTENERS",
    "DEVICE_TYPES",
    "NATIVE",
    "NUMPY_SCALARS",
    "PRIORITY",
    "ForeignContainerError",
    "HostNumberError",
    "aligned_zeros",
    "as_array",
    "conversion_error",
    "has_own_arithmetic",
    "is_array_like",
    "native_dtype",
    "plain_result",
    "refuse_non_array",
    "takes_precedence",
    "to_native_order",
]

ARRAYS = (np.ndarray,)
"""Types of arrays in memory, of every device: ``devices.backends.install`` adds to them."""

ARRAY_LIKE = (*ARRAYS, np.generic)
"""Types of arrays and of NumPy scalars."""

DEVICE_TYPES: set[type] = set()
"""Types of arrays of devices; empty while no backend is installed."""

ARRAY_TYPE_LISTENERS: list[Callable[[type, bool], None]] = []
"""Functions that are told of an array type that joins ``ARRAYS`` (True), or leaves it (False).

Modules that keep something made of ``ARRAYS`` add one here; the name ``ARRAYS`` itself is replaced
in every module that imports it.
"""

NUMPY_SCALARS = frozenset(
    {kind for kind in np.sctypeDict.values() if issubclass(kind, (np.number, np.bool_))}
) - {np.timedelta64}
"""Types of NumPy scalars."""

NATIVE = set(map(np.dtype, "?bhilqBHILQfdgFDG"))
"""Supported dtypes; a look-up here takes as long as reading the byte order.

A half-precision dtype is here from its first array on, see ``spec.admit_half``: so the first one
takes the slow path, which installs what handles it.
"""
HALF_LISTENERS.append(NATIVE.add)

# Methods that a subclass of ndarray overrides if its arithmetic differs from an array's.
_ARITHMETIC = (
    "__array_ufunc__",
    "__array_function__",
    "__add__",
    "__mul__",
    "__matmul__",
    "__pow__",
    "__eq__",
)
PRIORITY = 1000
"""The ``__array_priority__`` of Variables: NumPy's operators give way instead of looping."""

_NUMBERS = frozenset({bool, int, float, complex})

# Attributes of arrays of other libraries, by which NumPy converts them.
_CONVERSION_ATTRIBUTES = ("__array__", "__array_interface__", "__array_struct__")


class ForeignContainerError(DTypeError):
    """A container with its own arithmetic was passed: Python's operators defer to it."""


class HostNumberError(Exception):
    """A NumPy scalar, or a host array without axes, came to a kernel beside a device's array.

    It is a number if it was passed as such, and refused if it is the array of a Variable, which
    only ``call.general`` sees.
    """


def as_array(who: str, what: str, value: Any) -> Array:
    """Return ``value`` as a plain array of numbers in native byte order, without a copy if it is.

    Args:
        who: The function that was called, for the message.
        what: What the value is to it.
        value: Numbers, arrays, nests of them, or anything that gives an array for itself.

    Raises:
        DTypeError: for what is not an array of numbers, or is more than that.

    >>> as_array("example", "x", [1, 2])
    array([1, 2])
    >>> as_array("example", "x", np.ma.array([1.0, 2.0], mask=[True, False]))
    Traceback (most recent call last):
    ...
    odyssey.errors.DTypeError: example: x is a masked array, whose mask would be lost; pass \
x.filled(value), or x.data with where(x.mask, ...)
    """
    if type(value) is np.ndarray and value.dtype in NATIVE:
        return value
    if type(value) in ARRAYS and value.dtype in NATIVE:
        on_device: Array = value
        return on_device
    refuse_non_array(who, what, value)
    try:
        array = np.asarray(value)
    except (OdysseyError, MemoryError):
        raise
    except Exception as error:  # any error of the container: its text says why it is not an array
        raise DTypeError(f"{who}: {what} is not an array of numbers: {error}") from error
    if array.dtype in NATIVE:
        return array
    if is_number_dtype(array.dtype):
        admit_half(native_form(array.dtype))
        return to_native_order(array)
    raise DTypeError(f"{who}: {what} {_dtype_reason(value, array.dtype)}")


def refuse_non_array(who: str, what: str, value: Any) -> None:
    """Raise if ``value`` would lose its meaning as a plain array."""
    try:
        why = rejection_reason(value)
    except RecursionError:
        raise DTypeError(f"{who}: {what} is a nest that contains itself, or is too deep") from None
    if why is not None:
        kind = ForeignContainerError if has_own_arithmetic(value) else DTypeError
        raise kind(f"{who}: {what} {why}")


def conversion_error(who: str, what: str, value: Any) -> DTypeError | None:
    """Return the error that ``as_array`` would raise for ``value``, or None."""
    if value is None or getattr(value, "dtype", None) in NATIVE:
        return None
    try:
        as_array(who, what, value)
    except DTypeError as error:
        return error
    return None


def is_array_like(value: Any) -> bool:
    """Return whether a value is an array of NumPy, or of a library whose arrays convert to NumPy's.

    >>> is_array_like(np.float32(1.0)), is_array_like([1.0])
    (True, False)
    """
    return isinstance(value, ARRAY_LIKE) or any(
        hasattr(type(value), name) for name in _CONVERSION_ATTRIBUTES
    )


def to_native_order(array: Array) -> Array:
    """Return the array in native byte order."""
    return array if array.dtype.isnative else array.astype(native_form(array.dtype))


def native_dtype(dtype: Any) -> np.dtype[Any]:
    """Return a dtype in native byte order from anything that NumPy accepts as a dtype.

    Raises:
        TypeError: for a dtype that is not numeric.
    """
    try:
        found: np.dtype[Any] = np.dtype(named_dtype(dtype))
    except RecursionError:
        raise TypeError(f"{format_value(dtype)} is not a dtype: it is nested too deeply") from None
    if found in NATIVE:
        return found
    if not is_number_dtype(found):
        raise TypeError(f"dtype {format_value(found)} is not one of numbers")
    found = native_form(found)
    admit_half(found)
    return found


def plain_result(who: str, out: Any) -> Any:
    """Return the result of a user's function, as a plain array if it is array-like."""
    if (type(out) in ARRAYS or isinstance(out, np.generic)) and out.dtype in NATIVE:
        return out
    if isinstance(out, (tuple, list)):
        raise DTypeError(f"{who}: the result is {describe_type(out)}; it must be one array")
    return as_array(who, "the result", out)


# ------------------------------------------------------------------ more than an array


def rejection_reason(value: Any) -> str | None:
    """Return why a value, or a member of a nest, is more than an array; None if it is not.

    Tables of pandas pass: where a function needs numbers, their labels only name rows.
    """
    kind = type(value)
    if kind in _NUMBERS or kind in ARRAYS or isinstance(value, np.generic):
        return None
    if isinstance(value, (list, tuple)):
        return _nested_reason(value)
    if isinstance(value, np.ndarray):
        return _subclass_reason(kind)
    package = kind.__module__.partition(".")[0]
    if package == "scipy" and hasattr(value, "toarray"):
        return f"is sparse ({kind.__name__}); pass its .toarray()"
    if hasattr(kind, "_recording") or package == "odyssey":  # our own objects are checked elsewhere
        return None
    if has_own_arithmetic(value) and package != "pandas":
        return (
            f"is {_qualified_name(kind)}, whose labels or units would be lost; pass the plain "
            "array in it, its .values or .magnitude for example"
        )
    if _has_gradient(value):
        return (
            f"is {_qualified_name(kind)} that requires a gradient, which would be lost; pass "
            ".detach().numpy() of it"
        )
    return None


def _nested_reason(nest: Any) -> str | None:
    if _NUMBERS.issuperset(map(type, nest)):
        return None
    why = next((why for part in nest if (why := rejection_reason(part)) is not None), None)
    return why and f"holds what {why}"


def _subclass_reason(kind: type) -> str | None:
    if issubclass(kind, np.ma.MaskedArray):
        return (
            "is a masked array, whose mask would be lost; pass x.filled(value), or x.data with "
            "where(x.mask, ...)"
        )
    if issubclass(kind, np.matrix):
        return "is a numpy.matrix, whose * and ** are those of matrices; pass np.asarray of it"
    plain: Any = np.ndarray
    if any(getattr(kind, name) is not getattr(plain, name) for name in _ARITHMETIC):
        return (
            f"is {_qualified_name(kind)}, an array with arithmetic of its own, such as units; pass "
            "the plain array in it, .value or .view(np.ndarray) for example"
        )
    return None


def has_own_arithmetic(value: Any) -> bool:
    """Return whether a container has its own arithmetic, by ``__array_ufunc__``."""
    kind = type(value)
    if kind in ARRAYS:
        return False
    array_ufunc = getattr(kind, "__array_ufunc__", None)
    if array_ufunc is None or array_ufunc is np.ndarray.__array_ufunc__:
        return False
    return not issubclass(kind, np.generic)


def takes_precedence(value: Any) -> bool:
    """Return whether Python's operators should defer to a value, as NumPy's arrays would.

    True if it has its own arithmetic, or sets ``__array_ufunc__ = None``, or has no
    ``__array_ufunc__`` and a higher ``__array_priority__``.
    """
    kind = type(value)
    if has_own_arithmetic(value) or issubclass(kind, ARRAY_LIKE):
        return has_own_arithmetic(value)
    if hasattr(kind, "__array_ufunc__"):
        return True  # it is None
    above: bool = getattr(kind, "__array_priority__", PRIORITY) > PRIORITY
    return above


def _has_gradient(value: Any) -> bool:
    """Return whether a tensor of another library requires a gradient."""
    requires_grad = getattr(value, "requires_grad", None)
    if requires_grad is None and hasattr(type(value), "backward"):
        return not getattr(value, "constant", False)
    return requires_grad is True


def _qualified_name(kind: type) -> str:
    package = kind.__module__.partition(".")[0]
    return with_article(
        kind.__qualname__ if package == "builtins" else f"{package}.{kind.__qualname__}"
    )


# ------------------------------------------------------------------ no array


def _dtype_reason(value: Any, dtype: np.dtype[Any]) -> str:
    if dtype.names:
        return f"has the fields {', '.join(dtype.names)}; pass one of them, x[{dtype.names[0]!r}]"
    if type(value) is int:
        return "is an int that no array of numbers holds; pass a float"
    came = f"is {describe_type(value)} of dtype {dtype}"
    if dtype.kind == "O" and isinstance(value, np.ndarray):
        return f"{came}, which holds Python objects; pass numbers, x.astype(np.float64) for example"
    return f"{came}; pass numbers, arrays of numbers, or Variables"


# ------------------------------------------------------------------ memory for many arrays

_LINE = 64


def aligned_zeros(size: int, dtype: np.dtype[Any]) -> Array:
    """Zeros that begin at a cache line: large updates are a tenth faster.

    >>> aligned_zeros(3, np.dtype("float32")).ctypes.data % 64
    0
    """
    room = np.zeros(size * dtype.itemsize + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    return room[start : start + size * dtype.itemsize].view(dtype)

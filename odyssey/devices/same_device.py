"""New arrays on the device of arrays or Variables that are there: zeros, copies, conversions.

Code above the table calls these in place of ``np.zeros``, ``np.array`` and ``np.asarray``. Where no
array lies on a device they are NumPy's functions.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import add, setitem
from typing import Any

import numpy as np

from odyssey.devices.arrays import NUMPY_SCALARS
from odyssey.devices.backends import backend_of
from odyssey.devices.device import device_of
from odyssey.errors import DeviceError
from odyssey.spec import Array

__all__ = [
    "HOST_TYPES",
    "add_beside",
    "array_copy",
    "call_beside",
    "cast_beside",
    "empty_beside",
    "fill_beside",
    "full_beside",
    "host_array",
    "host_copy",
    "namespace_of",
    "new_beside",
    "on_one_device",
    "ones_beside",
    "own_copy",
    "place_as",
    "place_beside",
    "zeros_beside",
]

HOST_TYPES = frozenset({np.ndarray, float, int, complex, bool}) | NUMPY_SCALARS
"""Types of arrays and numbers that lie on no device."""


def _first_on_device(values: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return the first of the values that lies on a device, and its backend; None if none does."""
    for value in values:
        while type(value) not in HOST_TYPES and value is not None:
            backend = backend_of(value)
            if backend is not None:
                return value, backend
            # The array of a Variable, or that of all examples in vmap.
            value = getattr(value, "_array", getattr(value, "payload", None))
    return None, None


def namespace_of(*values: Any) -> Any:
    """Return what stands for NumPy on the device of arrays or Variables: NumPy itself on the host.

    >>> namespace_of(np.ones(2)) is np
    True
    """
    backend = _first_on_device(values)[1]
    return np if backend is None else backend.namespace


def new_beside(values: tuple[Any, ...], name: str, *args: Any) -> Any:
    """Return a new array, on the device of the first of the values that lies on one.

    Args:
        values: Arrays, Variables, or anything else.
        name: NumPy's function that makes it, such as ``"full"``.
        *args: Its arguments.

    >>> new_beside((), "full", 2, 7)
    array([7, 7])
    """
    array, backend = _first_on_device(values)
    if backend is None:
        return getattr(np, name)(*args)
    make = getattr(backend.namespace, name)
    return backend.call(name, backend.device_index(array), make, *args)


def zeros_beside(spec: Any, *values: Any) -> Any:
    """Return zeros of a spec, on the device of the first of the values that lies on one.

    >>> from odyssey.spec import spec_of
    >>> zeros_beside(spec_of(np.ones(2)))
    array([0., 0.])
    """
    return new_beside(values, "zeros", spec.shape, spec.dtype)


def ones_beside(spec: Any, *values: Any) -> Any:
    """Return ones of a spec, on the device of the first of the values that lies on one."""
    return new_beside(values, "ones", spec.shape, spec.dtype)


def full_beside(shape: Any, fill: Any, dtype: Any, *values: Any) -> Any:
    """Return an array of a number or array, on the device of the first value that lies on one."""
    array, backend = _first_on_device(values)
    if backend is None:
        return np.full(shape, fill, dtype)
    if not isinstance(fill, (int, float, complex)):  # an array of the host
        return place_beside(np.full(shape, host_array(fill), dtype), array)
    index = backend.device_index(array)
    return backend.call("full", index, backend.namespace.full, shape, fill, dtype)


def array_copy(array: Any, dtype: Any = None, order: Any = "K") -> Array:
    """Return a copy of an array on its device, as ``np.array`` makes it."""
    backend = backend_of(array)
    if backend is None:
        return np.array(array, dtype, order=order)
    index, copy = backend.device_index(array), backend.namespace.array
    made: Array = backend.call("a copy", index, copy, array, dtype, order=order)
    return made


def empty_beside(array: Any) -> Any:
    """Return a new array of the shape, dtype and device of an array, whose values are undefined."""
    backend = backend_of(array)
    if backend is None:
        return np.empty_like(array, subok=False)
    return backend.call("a copy", backend.device_index(array), backend.namespace.empty_like, array)


def _is_traced(value: Any) -> bool:
    """Return whether an operand, or the value of a Variable, is no array yet."""
    inner = getattr(value, "_array", value)
    return type(inner) not in HOST_TYPES and backend_of(inner) is None


def place_as(who: str, what: str, value: Any, like: Any) -> Any:
    """Return an array that a user passed for a place on the device of ``like``.

    An array of the host is copied there. A value of a graph is placed where the graph runs.

    Raises:
        DeviceError: the value lies on another device, or is a Variable of the host.
    """
    given, target = _first_on_device((value,))[0], _first_on_device((like,))[0]
    if given is None and not hasattr(value, "_array"):
        return place_beside(value, like)
    if _is_traced(value) or _is_traced(like):  # the ops of the graph look where operands lie
        return value
    here, there = device_of(given), device_of(target)
    if here != there:
        raise DeviceError(
            f"{who}: {what} is on {here}, and must be on {there}; pass a copy there, by "
            f".to({str(there)!r}) of a Variable"
        )
    return value


def own_copy(array: Any) -> Any:
    """Return ``array.copy()``, on the device of the array."""
    return array.copy() if backend_of(array) is None else array_copy(array, order="C")


def call_beside(value: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function that adds and copies arrays, on the device of a value.

    A library computes on its current device, wherever the operands lie.
    """
    array, backend = _first_on_device((value,))
    if backend is None:
        return function(*args)
    return backend.call_once("arithmetic", backend.device_index(array), function, args)


def add_beside(x: Any, y: Any) -> Any:
    """Return ``x + y``, computed on the device of ``y``."""
    array, backend = _first_on_device((y,))
    if backend is None:
        return x + y
    return backend.call("a sum", backend.device_index(array), add, x, y)


def on_one_device(values: list[Any]) -> list[Any]:
    """Return numbers as they are if they lie on one device, else on the host, which waits."""
    if len({str(device_of(value)) for value in values}) < 2:
        return values
    return [host_array(value) for value in values]


def cast_beside(array: Any, dtype: Any) -> Any:
    """Return an array in a dtype, on its device; itself if it has the dtype."""
    if backend_of(array) is None:
        return np.asarray(array, dtype)
    return array if array.dtype == dtype else array_copy(array, dtype)


def fill_beside(like: Any, array: Any) -> Any:
    """Return a new array of the shape, dtype and device of ``like`` with the values of another."""
    backend = backend_of(like)
    new = empty_beside(like)
    if backend is None:
        new[...] = array
    else:
        backend.call("a copy", backend.device_index(like), setitem, new, ..., array)
    return new


def host_array(value: Any, dtype: Any = None) -> Array:
    """Return numbers as an array of NumPy; those of a device are copied to the host."""
    backend = backend_of(value)
    return np.asarray(value if backend is None else backend.to_host(value), dtype)


def host_copy(array: Any, dtype: Any = None) -> Array:
    """Return a copy of an array as an array of NumPy, whose memory nobody else has."""
    backend = backend_of(array)
    return np.array(array if backend is None else backend.to_host(array), dtype)


def place_beside(value: Any, *values: Any) -> Any:
    """Return an array, on the device of the first of the values that lies on one.

    An array of the host is copied there; one that lies on a device stays where it is.
    """
    other, backend = _first_on_device(values)
    if backend is None or backend_of(value) is not None:
        return value
    graph = getattr(value, "graph", None)
    if graph is not None:  # values of all examples in vmap; a graph places its own
        payload = getattr(value, "payload", None)
        return value if payload is None else graph.wrap(place_beside(payload, other), value.mapped)
    index = backend.device_index(other)
    return backend.call("a copy", index, backend.to_device, np.asarray(value), index)

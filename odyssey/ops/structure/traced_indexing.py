"""Indexing of traced arrays by indices that are known only at run time, ``x[i]`` in a graph.

A key is an option of ``getitem`` and ``setitem``, and so static in a graph; here it becomes an
operand, of ``take`` and of ``put``.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import can_cast, is_floating, is_inexact
from odyssey.ops.elementwise.arithmetic import add, multiply
from odyssey.ops.elementwise.choice import where
from odyssey.ops.structure.gathering import take, take_along_axis
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.placing import put
from odyssey.ops.structure.shape import astype, broadcast_to, reshape, shape_of, transpose
from odyssey.table.value import NUMBERS, Symbol, Value

__all__ = ["read_at", "write_at"]


def read_at(x: Any, key: Any) -> Any:
    """Return ``x[key]`` by ``take``; NotImplemented if that would read many more elements."""
    given = key if isinstance(key, tuple) else (key,)
    if any(part is None for part in given):
        return _read_with_new_axes(x, given)
    parts = _expand_key(given, x.shape)
    if parts is None:
        return NotImplemented
    at = [k for k, part in enumerate(parts) if not isinstance(part, slice)]
    if not at:
        return NotImplemented
    if len(at) == 1:
        (k,) = at
        rest = [*parts[:k], *[slice(None) for _ in parts[k].shape], *parts[k + 1 :]]
        found = take(x, parts[k], k)
        return getitem(found, tuple(rest)) if _reads_fewer_elements(rest) else found
    if at == [0, 1] and not _reads_fewer_elements(parts[2:]):
        found = _read_row_column_pairs(x, parts[0], parts[1])
        if found is not NotImplemented:
            return found
    return _read_flat(x, parts, at)


def _read_with_new_axes(x: Any, parts: tuple[Any, ...]) -> Any:
    """Return ``x[parts]`` for one array and new axes; NotImplemented for more arrays."""
    others = tuple(part for part in parts if part is not None)
    arrays = [part for part in others if not isinstance(part, slice) and part is not Ellipsis]
    found = read_at(x, others) if len(arrays) == 1 else NotImplemented
    if found is NotImplemented:
        return NotImplemented
    axes: list[Any] = []
    for part in parts:
        if part is None or part is Ellipsis:
            axes.append(part)
        else:
            axes += [slice(None)] * (1 if isinstance(part, slice) else len(shape_of(part)))
    return getitem(found, tuple(axes))


def _expand_key(parts: tuple[Any, ...], shape: Any) -> list[Any] | None:
    """Return a key as slices and integer arrays without ``...``; None for any other key."""
    dots = [k for k, part in enumerate(parts) if part is Ellipsis]
    ndim = len(shape)
    if len(dots) > 1 or len(parts) - len(dots) > ndim:
        return None
    k = dots[0] if dots else len(parts)
    full = [slice(None)] * (ndim - len(parts) + len(dots))
    if dots and not full and _has_array_indices(parts[:k]) and _has_array_indices(parts[k + 1 :]):
        return None  # it stands for no axis, but separates arrays
    spelled = [*parts[:k], *full, *parts[k + 1 :]]
    spelled = [_index_array(part, n) for part, n in zip(spelled, shape, strict=True)]
    return spelled if all(map(_is_basic_index, spelled)) else None


def _has_array_indices(parts: tuple[Any, ...]) -> bool:
    return not all(isinstance(part, slice) for part in parts)


def _index_array(part: Any, n: int) -> Any:
    """Return an integer, or a list of integers, as an array of indices of an axis."""
    if type(part) is int or isinstance(part, np.integer):
        return np.asarray(part) if -n <= part < n else None
    if type(part) is list and all(type(one) is int and -n <= one < n for one in part):
        return np.asarray(part, np.intp)
    return part


def _read_flat(x: Any, parts: list[Any], at: list[int]) -> Any:
    """Return ``x[key]`` by flat indices on the axes of the arrays, reshaped to one axis."""
    if at != list(range(at[0], at[-1] + 1)):  # NumPy then puts the axes of the arrays first
        order = [*at, *[k for k in range(len(parts)) if k not in at]]
        x, parts, at = transpose(x, order), [parts[k] for k in order], list(range(len(at)))
    begin, end = at[0], at[-1] + 1
    rest = [slice(None) if k in at else part for k, part in enumerate(parts)]
    x = getitem(x, tuple(rest)) if _reads_fewer_elements(rest) else x
    numbers: Any = 0
    for n, part in zip(x.shape[begin:end], parts[begin:end], strict=True):
        # Negative and invalid indices are handled for each axis, in a dtype that is wide enough.
        numbers = add(multiply(numbers, n), take(np.arange(n), part, 0))
    count = math.prod(x.shape[begin:end])
    return take(reshape(x, (*x.shape[:begin], count, *x.shape[end:])), numbers, begin)


def _reads_fewer_elements(parts: list[Any]) -> bool:
    bounds = [bound for part in parts for bound in (part.start, part.stop, part.step)]
    return any(bound is not None for bound in bounds)


def _is_basic_index(part: Any) -> bool:
    if isinstance(part, slice):
        return True
    return isinstance(part, (np.ndarray, Symbol, Value)) and part.dtype.kind in "iu"


def _read_row_column_pairs(x: Any, rows: Any, columns: Any) -> Any:
    """Return ``x[rows, columns]`` by taking full rows, no more of them than ``x`` has."""
    shape = x.shape
    if len(rows.shape) != 1 or rows.shape != columns.shape or rows.shape[0] > shape[0]:
        return NotImplemented
    (n,) = rows.shape
    in_order = n == shape[0] and isinstance(rows, np.ndarray) and bool(np.all(rows == np.arange(n)))
    lines = x if in_order else take(x, rows, 0)
    places = reshape(columns, (n, 1, *[1 for _ in shape[2:]]))
    return reshape(take_along_axis(lines, places, 1), (n, *shape[2:]))


# ------------------------------------------------------------------ writing


def write_at(x: Any, value: Any, key: Any) -> Any:
    """Return a copy of ``x`` with ``value`` at ``key``, or NotImplemented."""
    number = type(value) in NUMBERS
    if not number and not (hasattr(value, "dtype") and _can_cast_safely(value.dtype, x.dtype)):
        return NotImplemented
    if isinstance(key, (Symbol, Value)) and key.dtype.kind == "b":
        return _write_masked(x, value, key)
    parts = _expand_key(key if isinstance(key, tuple) else (key,), x.shape)
    if parts is None or all(isinstance(part, slice) for part in parts):
        return NotImplemented
    numbers = _flat_element_indices(parts, x.shape)
    if not number:
        more = len(value.shape) - len(numbers.shape)
        if more > 0 and set(value.shape[:more]) == {1}:  # NumPy drops these axes
            value = reshape(value, value.shape[more:])
        value = broadcast_to(value, numbers.shape)
    return put(x, numbers, value)


def _can_cast_safely(dtype: Any, into: Any) -> bool:
    return bool(can_cast(dtype, into))


def _write_masked(x: Any, value: Any, mask: Any) -> Any:
    """Write one number where a mask holds; more values would need their count."""
    number = type(value) in NUMBERS
    leading = x.shape[: len(mask.shape)] == mask.shape
    if not leading or not is_inexact(x.dtype) or (not number and value.shape):
        return NotImplemented
    if number and isinstance(value, complex) and is_floating(x.dtype):
        return NotImplemented
    rest = (1,) * (len(x.shape) - len(mask.shape))
    return astype(where(reshape(mask, (*mask.shape, *rest)), value, x), x.dtype)


def _flat_element_indices(parts: list[Any], shape: Any) -> Any:
    """Return the row-major indices of the elements of ``x[key]``, in its shape."""
    at = [k for k, part in enumerate(parts) if not isinstance(part, slice)]
    width = max(len(parts[k].shape) for k in at)
    apart = at != list(range(at[0], at[-1] + 1))
    ahead = 0 if apart else at[0]  # slices, whose axes precede those of the arrays
    slices = [k for k in range(len(parts)) if k not in at]
    behind = len(slices) - ahead
    numbers: Any = 0
    for k, (n, part) in enumerate(zip(shape, parts, strict=True)):
        if k in at:
            one, after = take(np.arange(n), part, 0), behind
        else:
            one, place = np.arange(n)[part], slices.index(k)
            after = len(slices) - place - 1 + (width if place < ahead else 0)
        upright = reshape(one, (*one.shape, *(1,) * after))
        numbers = add(multiply(numbers, n), upright)
    return numbers

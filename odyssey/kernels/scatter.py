"""Gather and scatter-add at integer indices: one pass over the elements.

Repeated indices accumulate in order: float32 elements in double precision, as in NumPy's
``bincount``, whole rows in their own dtype.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels.loops import loop
from odyssey.spec import Array, Shape, Spec

__all__ = [
    "scatter_add_lines",
    "scatter_add_elements",
    "scatter_add_slices",
    "has_float_dtype",
    "gather_lines",
]


def has_float_dtype(x: Spec, *rest: Any) -> bool:
    """Return whether a gather or scatter has a compiled loop: for float32 and float64."""
    return x.dtype.char in "fd" and x.ndim > 0


# ------------------------------------------------------------------ loops


@loop
def _add_elements_loop(x: Any, indices: Any, out: Any) -> Any:
    """Add elements at indices; return 0, or 1 + the position of an index out of range."""
    length = out.size
    for k in range(x.size):
        index = indices[k]
        if index < 0:
            index += length
        if index < 0 or index >= length:
            return k + 1
        out[index] += x[k]
    return 0


@loop
def _add_slices_loop(x: Any, indices: Any, out: Any) -> Any:
    heads, length, tail = out.shape
    for h in range(heads):
        for k in range(indices.size):
            index = indices[k]
            if index < 0:
                index += length
            if index < 0 or index >= length:
                return k + 1
            for t in range(tail):
                out[h, index, t] += x[h, k, t]
    return 0


@loop
def _add_lines_loop(x: Any, indices: Any, out: Any) -> Any:
    lines, length = out.shape
    for i in range(lines):
        for k in range(indices.shape[1]):
            index = indices[i, k]
            if index < 0:
                index += length
            if index < 0 or index >= length:
                return i * indices.shape[1] + k + 1
            out[i, index] += x[i, k]
    return 0


@loop
def _gather_lines_loop(x: Any, indices: Any, out: Any) -> Any:
    lines, length = x.shape
    for i in range(lines):
        for k in range(indices.shape[1]):
            index = indices[i, k]
            if index < 0:
                index += length
            if index < 0 or index >= length:
                return i * indices.shape[1] + k + 1
            out[i, k] = x[i, index]
    return 0


# ------------------------------------------------------------------ entry points


def _raise_out_of_range(position: int, indices: Array, length: int) -> None:
    if position:
        raise IndexError(f"index {indices.reshape(-1)[position - 1]} is out of bounds for {length}")


def _as_indices(indices: Array) -> Array:
    return indices if indices.dtype == np.intp else indices.astype(np.intp)


def scatter_add_elements(x: Array, indices: Array, length: int) -> Array:
    """Return ``length`` zeros with the elements of ``x`` added at indices of any shape."""
    indices = _as_indices(indices)
    out = np.zeros(length)
    _raise_out_of_range(
        _add_elements_loop(x.reshape(-1), indices.reshape(-1), out), indices, length
    )
    return out if x.dtype == out.dtype else out.astype(x.dtype)


def scatter_add_slices(x: Array, indices: Array, heads: int, length: int, tail: int) -> Array:
    """Return matrices with ``length`` rows of zeros, to which the rows of ``x`` are added."""
    indices = _as_indices(indices)
    out = np.zeros((heads, length, tail), x.dtype)
    rows = x.reshape(heads, indices.size, tail)
    _raise_out_of_range(_add_slices_loop(rows, indices.reshape(-1), out), indices, length)
    return out


def scatter_add_lines(x: Array, indices: Array, shape: Shape) -> Array:
    """Return zeros with the elements of ``x`` added, in each line at its own indices."""
    indices = _as_indices(indices)
    out, length = np.zeros(shape), shape[-1]
    lines = (math.prod(shape[:-1]), indices.shape[-1])
    arrays = x.reshape(lines), indices.reshape(lines), out.reshape(lines[0], length)
    _raise_out_of_range(_add_lines_loop(*arrays), indices, length)
    return out if x.dtype == out.dtype else out.astype(x.dtype)


def gather_lines(x: Array, indices: Array) -> Array:
    """Return the elements of each line at its own indices."""
    indices = _as_indices(indices)
    out = np.empty(indices.shape, x.dtype)
    length = x.shape[-1]
    lines = (math.prod(x.shape[:-1]), indices.shape[-1])
    arrays = x.reshape(lines[0], length), indices.reshape(lines), out.reshape(lines)
    _raise_out_of_range(_gather_lines_loop(*arrays), indices, length)
    return out

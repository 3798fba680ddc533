"""Sparse rows: gradients of large tables of which a step reads few rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

import numpy as np

from odyssey import ops
from odyssey.checks import STUMBLES, format_value
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, as_array
from odyssey.devices.same_device import (
    call_beside,
    host_array,
    namespace_of,
    new_beside,
    own_copy,
    place_as,
    place_beside,
)
from odyssey.errors import DTypeError, OutOfRangeError, ShapeError
from odyssey.spec import Array, Shape, Spec
from odyssey.table.row import Row
from odyssey.table.rule_adapters import adapt_rule
from odyssey.table.store import device_numbers
from odyssey.table.value import NUMBERS, Symbol

__all__ = ["SparseRows", "assemble_rows", "with_row_rules"]


class SparseRows:
    """Rows of an array that is 0 elsewhere: the gradient of a table that a step read few rows of.

    A Variable made with ``sparse_grad=True`` has its gradients in this form where only
    ``embedding``, ``take`` along the first axis and ``table[indices]`` read it. ``SGD`` and
    ``AdaGrad`` then update these rows alone, and so does ``Adam`` with ``lazy=True``.

    ``np.asarray(rows)`` is the dense array. A product with a number, and a sum of two, stay rows;
    all other arithmetic is dense. ``od.tree`` takes the rows as one leaf.

    Args:
        indices: Numbers of rows, one axis of integers; negative ones count from the end. A row may
            come more than once: its values add up.
        values: The rows, of shape ``(len(indices), *shape[1:])``.
        shape: The shape of the dense array.

    Raises:
        ShapeError, DTypeError, OutOfRangeError: if they do not fit together.

    >>> rows = SparseRows([2, 0, 2], [[1.0], [5.0], [3.0]], (4, 1))
    >>> np.asarray(rows).tolist()
    [[5.0], [0.0], [4.0], [0.0]]
    >>> rows.coalesce()
    SparseRows of (4, 1), float64: [0 2]
    """

    __slots__ = ("indices", "shape", "values")

    indices: Any
    values: Any
    shape: Shape

    # NumPy leaves arithmetic with arrays to this class.
    __array_ufunc__ = None

    def __init__(self, indices: Any, values: Any, shape: Shape) -> None:
        try:
            shape = tuple(map(int, shape))
        except STUMBLES as error:
            raise ShapeError(
                f"SparseRows: shape={format_value(shape)}; pass the lengths of all axes"
            ) from error
        if not isinstance(values, Symbol):
            values = as_array("SparseRows", "values", device_numbers(values))
        if not isinstance(indices, Symbol):
            indices = as_array("SparseRows", "indices", device_numbers(indices))
        if not shape or values.shape != (*indices.shape[:1], *shape[1:]):
            raise ShapeError(
                f"SparseRows: values of shape {values.shape} for {np.shape(indices)} indices of "
                f"rows of shape {shape}; wanted is (indices, {', '.join(map(str, shape[1:]))})"
            )
        if not isinstance(indices, Symbol):
            indices = place_as("SparseRows", "the array of indices", indices, values)
            indices = call_beside(indices, _known_indices, indices, shape[0])
        self.indices, self.values, self.shape = indices, values, shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """The number of axes of the dense array."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements of the dense array."""
        return Spec(self.shape, self.dtype).size

    def __repr__(self) -> str:
        return f"SparseRows of {self.shape}, {self.dtype}: {self.indices}"

    @property
    def is_traced(self) -> bool:
        """Whether these are values of a graph that is traced."""
        return isinstance(self.values, Symbol) or isinstance(self.indices, Symbol)

    # -------------------------------------------------------------- other forms

    def to_dense(self) -> Any:
        """Return the dense array."""
        return _sum_rows(self.values, self.indices, Spec(self.shape, self.dtype))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("SparseRows: the dense array is a copy")
        return host_array(self.to_dense(), dtype)

    def coalesce(self) -> SparseRows:
        """Return the same with each row once, in order.

        While a graph is traced no length can depend on values: there the first of equal indices
        has the sum, and the others have zeros.
        """
        indices, values = self.indices, self.values
        if self.is_traced:
            ordered = ops.sort(indices)
            slots = ops.searchsorted(ordered, indices)
            return assemble_rows(ordered, _sum_rows(values, slots, _spec_of(values)), self.shape)
        return self if len(indices) < 2 else call_beside(indices, self._coalesced)

    def _coalesced(self) -> SparseRows:
        indices, values = self.indices, self.values
        order = indices.argsort(kind="stable")
        ordered = indices[order]
        begins = new_beside((indices,), "empty", len(ordered), bool)
        begins[0] = True
        namespace_of(indices).not_equal(ordered[1:], ordered[:-1], out=begins[1:])
        unique = ordered[begins]
        if len(unique) == len(ordered):
            return assemble_rows(ordered, values.take(order, 0), self.shape)
        slots = new_beside((indices,), "empty", len(ordered), np.intp)
        slots[order] = begins.cumsum() - 1
        spec = Spec((len(unique), *self.shape[1:]), self.dtype)
        return assemble_rows(unique, _sum_rows(values, slots, spec), self.shape)

    def with_sums(self) -> SparseRows:
        """Return rows to write, not to add: each of equal indices has the sum of their values."""
        if not self.is_traced:
            return self.coalesce()
        slots = ops.searchsorted(ops.sort(self.indices), self.indices)
        sums = _sum_rows(self.values, slots, _spec_of(self.values))
        return assemble_rows(self.indices, ops.take(sums, slots, 0, mode="clip"), self.shape)

    def map_values(self, change: Callable[[Any], Any]) -> SparseRows:
        """Return rows of other values, by a function that keeps zeros."""
        return assemble_rows(self.indices, change(self.values), self.shape)

    def copy(self) -> SparseRows:
        """Return the same in memory of its own."""
        return assemble_rows(_own(self.indices), _own(self.values), self.shape)

    def astype(self, dtype: Any) -> SparseRows:
        """Return the same with values of another dtype."""
        return assemble_rows(self.indices, ops.astype(self.values, dtype), self.shape)

    # -------------------------------------------------------------- arithmetic

    def conj(self) -> SparseRows:
        """Return the complex conjugate."""
        return assemble_rows(self.indices, ops.conj(self.values), self.shape)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, SparseRows):
            return ops.add(self.to_dense(), other)
        if self.shape != other.shape:
            raise ShapeError(f"SparseRows: rows of {self.shape} and of {other.shape} do not add up")
        indices = ops.concatenate([self.indices, other.indices])
        total = assemble_rows(indices, ops.concatenate([self.values, other.values]), self.shape)
        if not total.is_traced and len(indices) > self.shape[0]:
            return total.coalesce()  # so that a gradient that accumulates does not grow
        return total

    def __radd__(self, other: Any) -> Any:
        return ops.add(other, self.to_dense())

    def __neg__(self) -> SparseRows:
        return self.map_values(ops.negative)

    def __mul__(self, other: Any) -> Any:
        if _is_number(other):
            return assemble_rows(self.indices, ops.multiply(self.values, other), self.shape)
        return ops.multiply(self.to_dense(), other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        if _is_number(other):
            return assemble_rows(self.indices, ops.divide(self.values, other), self.shape)
        return ops.divide(self.to_dense(), other)

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return other + -self


def assemble_rows(indices: Any, values: Any, shape: Shape) -> SparseRows:
    """Return sparse rows of parts that fit together."""
    rows = SparseRows.__new__(SparseRows)
    rows.indices, rows.values, rows.shape = indices, values, shape
    return rows


def _known_indices(indices: Any, count: int) -> Array:
    """Return indices as numbers from 0 to ``count - 1``, or raise."""
    array = as_array("SparseRows", "indices", indices)
    if array.size and array.dtype.kind not in "iu":
        raise DTypeError(f"SparseRows: indices of {array.dtype} came; pass integers")
    if array.ndim != 1:
        raise ShapeError(f"SparseRows: indices have shape {array.shape}; they have one axis")
    if array.size and not -count <= int(array.min()) <= int(array.max()) < count:
        wrong = array[(array < -count) | (array >= count)][0]
        raise OutOfRangeError(f"SparseRows: index {wrong} is out of range for {count} rows")
    places = array.astype(np.intp)
    found: Array = namespace_of(places).where(places < 0, places + count, places)
    return found


def _spec_of(values: Any) -> Spec:
    return Spec(values.shape, values.dtype)


def _sum_rows(values: Any, places: Any, spec: Spec) -> Any:
    """Return zeros to which rows are added, in the order of a dense gradient."""
    return ops.add_taken(values, places, axis=0, spec=spec)


def _is_number(x: Any) -> bool:
    """Return whether a factor is one number, known or traced; a Variable may carry a gradient."""
    return type(x) in NUMBERS or (isinstance(x, (Symbol, *ARRAY_LIKE)) and x.shape == ())


def _own(part: Any) -> Any:
    return own_copy(part) if isinstance(part, ARRAYS) else part


# ------------------------------------------------------------------ reverse rules that make rows


def with_row_rules(ids: set[int], node: Any) -> Any:
    """Return a node with the rule that makes rows, if it reads rows of an operand among ``ids``."""
    row = node[0]
    if row.name not in _ROW_RULES or row.foreign or ids.isdisjoint(node[2]):
        return node
    return _sparse_row(row), *node[1:]


_SPARSE: dict[str, tuple[Row, Row]] = {}


def _sparse_row(row: Row) -> Row:
    """Return an op's row whose reverse rule makes sparse rows."""
    known = _SPARSE.get(row.name)
    if known is None or known[0] is not row:
        name, rule = _ROW_RULES[row.name]
        pull, place = adapt_rule(row.layout, rule), row.arrays.index(name)
        sparse = copy(row)
        for kind in ("pullbacks", "array_pullbacks"):
            rules = list(getattr(row, kind))
            rules[place] = _rows_or_dense(pull, rules[place])
            setattr(sparse, kind, tuple(rules))
        known = _SPARSE[row.name] = (row, sparse)
    return known[1]


def _rows_or_dense(pull: Any, dense: Any) -> Callable[..., Any]:
    def pull_rows(g: Any, kept: Any, specs: Any) -> Any:
        made = pull(g, kept, specs)
        return dense(g, kept, specs) if made is None else made

    return pull_rows


def _rows_of_table(g: Any, indices: Any, spec: Spec, mode: str = "raise") -> SparseRows | None:
    """Return the cotangent of a table whose rows at ``indices`` were read."""
    if g.shape != (*np.shape(indices), *spec.shape[1:]):
        return None
    count, length = int(np.prod(np.shape(indices))), spec.shape[0]
    if isinstance(indices, Symbol):
        places = _places_of_symbols(ops.reshape(indices, (count,)), length, mode)
    else:
        places = place_beside(indices, g)
        places = places if type(places) in ARRAYS else np.asarray(places)
        places = places.reshape(-1).astype(np.intp)
        if mode == "wrap":
            places %= length or 1
        elif mode == "clip":
            places = namespace_of(places).clip(places, 0, length - 1)
        places[places < 0] += length
    return assemble_rows(places, ops.reshape(g, (count, *spec.shape[1:])), spec.shape)


def _places_of_symbols(indices: Any, length: int, mode: str) -> Any:
    if indices.dtype == np.uint64 and mode == "clip":
        indices = ops.minimum(indices, length)
    places = ops.astype(indices, np.intp)
    if mode == "wrap":
        return ops.remainder(places, length or 1)
    if mode == "clip":
        return ops.minimum(ops.maximum(places, 0), length - 1)
    return ops.where(ops.less(places, 0), ops.add(places, length), places)


def _embedding_rows(g: Any, indices: Any, weight_spec: Spec, padding_index: Any) -> Any:
    rows = _rows_of_table(g, indices, weight_spec)
    if rows is None or padding_index is None:
        return rows
    is_other = ops.expand_dims(ops.not_equal(rows.indices, padding_index % rows.shape[0]), -1)
    return assemble_rows(rows.indices, ops.keep_where(rows.values, is_other), rows.shape)


def _taken_rows(g: Any, indices: Any, x_spec: Spec, axis: Any, mode: str) -> Any:
    is_first = axis in (0, -x_spec.ndim) if axis is not None else x_spec.ndim == 1
    return _rows_of_table(g, indices, x_spec, mode) if is_first else None


def _indexed_rows(g: Any, x_spec: Spec, key: Any) -> Any:
    parts = key if isinstance(key, tuple) else (key,)
    first, rest = parts[0] if parts else None, parts[1:]
    full = all(part is Ellipsis or (type(part) is slice and part == slice(None)) for part in rest)
    if not full or not x_spec.ndim:
        return None
    if isinstance(first, ARRAYS) and first.dtype.kind in "iu":
        return _rows_of_table(g, first, x_spec)
    is_number = isinstance(first, (int, np.integer)) and not isinstance(first, bool)
    return _rows_of_table(g, np.asarray(first), x_spec) if is_number else None


_ROW_RULES: Mapping[str, tuple[str, Any]] = {
    "embedding": ("weight", _embedding_rows),
    "take": ("x", _taken_rows),
    "getitem": ("x", _indexed_rows),
}


def __dir__() -> list[str]:
    return sorted(__all__)

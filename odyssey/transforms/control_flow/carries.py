"""Carries and stacked results of loops that run step by step."""

from __future__ import annotations

from operator import setitem
from typing import Any

import numpy as np

from odyssey.checks import format_value
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, refuse_non_array
from odyssey.devices.half_dtypes import is_floating, is_number_dtype
from odyssey.devices.same_device import (
    array_copy,
    call_beside,
    cast_beside,
    namespace_of,
    new_beside,
    own_copy,
    place_beside,
)
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.ops.structure.joining import stack
from odyssey.spec import Spec, spec_of
from odyssey.table.store import operand_of
from odyssey.table.value import (
    CONSTANT,
    NUMBERS,
    Symbol,
    Value,
    free_id,
    is_constant,
    make_value,
)
from odyssey.tree import leaves, paths, same_tree, unflatten
from odyssey.variable import Variable, writable_alias

__all__ = ["Carry", "StackedResults", "exclusive_results", "spec_of_leaf"]


def exclusive_results(tree: Any) -> Any:
    """Return the result of a loop or a branch as arrays that no argument shares.

    A compiled loop computes all its results anew. As there, Python numbers become NumPy scalars.
    """
    return unflatten(tree, list(map(_exclusive_leaf, leaves(tree))))


def _exclusive_leaf(leaf: Any) -> Any:
    if isinstance(leaf, ARRAYS):
        return own_copy(leaf) if leaf.ndim else leaf[()]
    if type(leaf) in NUMBERS:
        return np.asarray(leaf)[()]
    if type(leaf) is Variable and is_constant(leaf) and not isinstance(leaf._array, Symbol):
        data = operand_of(leaf)
        data = data if isinstance(data, Symbol) else own_copy(data)
        return make_value(Variable, data, CONSTANT, free_id(), leaf._spec, leaf._info)
    return writable_alias(leaf)


_KINDS = {kind: k for k, kinds in enumerate(("b", "iu", "f", "c")) for kind in kinds}


class Carry:
    """The carry of a loop: the values that each step gets and returns, one tree of fixed specs.

    Attributes:
        tree: The present carry.
    """

    def __init__(self, who: str, init: Any) -> None:
        self._who = who
        self._init = self.tree = init
        # Python numbers stay as they are: the first step determines their dtype.
        self._specs = [
            spec_of_leaf(who, path, leaf, weak=True) for path, leaf in paths(init, "the carry")
        ]

    def advance(self, tree: Any, step: int) -> None:
        """Replace the carry by the result of a step.

        Raises:
            ShapeError, DTypeError: it differs from what the step was given.
        """
        flat = same_tree(self._who, "carry", self._init, tree)
        for k, (spec, leaf) in enumerate(zip(self._specs, flat, strict=True)):
            if type(leaf) in NUMBERS:
                leaf = flat[k] = np.asarray(leaf)[()]
            found = spec_of_leaf(self._who, "the carry", leaf)
            if found is not spec and found != spec:
                self._specs[k] = self._resolved_spec(k, spec, found, step)
        self.tree = unflatten(self._init, flat)

    def _resolved_spec(self, k: int, given: Any, found: Any, step: int) -> Any:
        """Return the spec of a Python number once it is known; raise if a spec changed."""
        if _may_have_spec(given, found):
            return found
        given = Spec((), np.asarray(given).dtype) if type(given) in NUMBERS else given
        path = list(paths(self._init, "the carry"))[k][0]
        wrong = f"{self._who}: {path} goes into step {step} as {given}, and comes out as {found}"
        if given is not None and found is not None and found.shape == given.shape:
            raise DTypeError(f"{wrong}; cast one of them, as by ops.astype")
        raise ShapeError(f"{wrong}; it must keep its shape")


def _may_have_spec(number: Any, found: Any) -> bool:
    """True if this is a Python number that may stand for a scalar of the spec."""
    if type(number) not in NUMBERS or found is None or found.shape:
        return False
    kind = "f" if is_floating(found.dtype) else found.dtype.kind
    return _KINDS.get(np.asarray(number).dtype.kind, 9) <= _KINDS.get(kind, -1)


def spec_of_leaf(who: str, what: str, leaf: Any, weak: bool = False) -> Any:
    """Return the spec of a leaf; None for None, and a Python number itself if ``weak``."""
    if isinstance(leaf, Value):
        return leaf._spec
    if leaf is None or (weak and type(leaf) in NUMBERS):
        return leaf
    if isinstance(leaf, Symbol):
        return leaf.spec
    refuse_non_array(who, what, leaf)
    array = None
    if type(leaf) in ARRAYS:
        array = leaf
    elif isinstance(leaf, (*ARRAY_LIKE, *NUMBERS)):
        array = np.asarray(leaf)
    if array is None or not is_number_dtype(array.dtype):
        raise DTypeError(
            f"{who}: {what} is {format_value(leaf)}; pass arrays, Variables or numbers"
        )
    return spec_of(array)


class StackedResults:
    """Results of the steps of a scan, stacked along a new first axis."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._tree: Any = None
        self._specs: list[Any] = []
        self._columns: list[Any] = []

    def store(self, k: int, y: Any) -> None:
        """Store the results of step ``k``.

        Raises:
            ShapeError, DTypeError: it differs from what the first step gave.
        """
        first = not self._specs
        flat = leaves(y) if first else same_tree("scan", "results", self._tree, y)
        if first:
            self._tree = y
            # A number may be the first carry, whose dtype a later step determines.
            self._specs = [spec_of_leaf("scan", "y", leaf, weak=True) for leaf in flat]
            self._columns = [self._column(leaf) for leaf in flat]
        for j, (spec, leaf) in enumerate(zip(self._specs, flat, strict=True)):
            if leaf is None and spec is None:
                continue
            found = spec if leaf is spec else spec_of_leaf("scan", "y", leaf)
            if found is not spec and found != spec:
                if not _may_have_spec(spec, found):
                    raise self._differs(j, k, spec, found)
                self._specs[j] = found
            column = self._columns[j]
            if isinstance(column, ARRAYS) and isinstance(leaf, (Value, Symbol)):
                column = self._columns[j] = list(column)
            # A snapshot, because the next step may write to the result.
            if isinstance(column, ARRAYS):
                call_beside(column, setitem, column, k, leaf)
            else:
                column[k] = _leaf_snapshot(leaf)

    def _column(self, leaf: Any) -> Any:
        if leaf is None:
            return None
        if isinstance(leaf, (Value, Symbol)) or type(leaf) in NUMBERS:
            return [None] * self._steps
        array = leaf if type(leaf) in ARRAYS else np.asarray(leaf)
        return new_beside((leaf,), "empty", (self._steps, *array.shape), array.dtype)

    def _differs(self, j: int, k: int, spec: Any, found: Any) -> OdysseyError:
        path = list(paths(self._tree, "y"))[j][0]
        spec = Spec((), np.asarray(spec).dtype) if type(spec) in NUMBERS else spec
        same = spec is not None and found is not None and spec.shape == found.shape
        kind = DTypeError if same else ShapeError
        return kind(
            f"scan: {path} of step {k} is {found}, and that of the first {spec}; all steps must "
            "give the same"
        )

    def stacked(self) -> Any:
        """Return the tree of all results."""
        return unflatten(self._tree, list(map(self._stack_column, self._specs, self._columns)))

    def _stack_column(self, spec: Any, column: Any) -> Any:
        if type(column) is not list:
            return column
        dtype = spec.dtype if isinstance(spec, Spec) else None
        plain = not any(isinstance(one, (Value, Symbol)) for one in column)
        if namespace_of(*column) is not np:
            column = [
                v
                if isinstance(v, (Value, Symbol))
                else place_beside(cast_beside(v, dtype or v.dtype), *column)
                for v in column
            ]
        elif plain:
            return np.array(column, dtype)
        return stack([array_copy(v, dtype) if isinstance(v, ARRAYS) else v for v in column])


def _leaf_snapshot(leaf: Any) -> Any:
    """Return a copy of a step's result, or an alias of a Variable."""
    if isinstance(leaf, Symbol):
        return leaf
    if isinstance(leaf, Variable):
        return writable_alias(leaf)
    return array_copy(leaf) if type(leaf) in ARRAYS else np.array(leaf)

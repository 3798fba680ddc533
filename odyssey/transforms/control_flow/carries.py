"""What goes from step to step of a loop that is simply run, and what its steps give."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import shown
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS, refuse_non_array
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
from odyssey.variable import Variable, lent

__all__ = ["Carry", "Rows", "own", "spec_of_leaf"]


def own(tree: Any) -> Any:
    """What a loop or a branch returns: arrays of its own, also where it hands on what it was given.

    A compiled one computes all results anew. Python's numbers become NumPy's, as there.
    """
    return unflatten(tree, list(map(_own, leaves(tree))))


def _own(leaf: Any) -> Any:
    if isinstance(leaf, ARRAYS):
        return leaf.copy() if leaf.ndim else leaf[()]
    if type(leaf) in NUMBERS:
        return np.asarray(leaf)[()]
    if type(leaf) is Variable and is_constant(leaf) and not isinstance(leaf._array, Symbol):
        data = operand_of(leaf)
        data = data if isinstance(data, Symbol) else data.copy()
        return make_value(Variable, data, CONSTANT, free_id(), leaf._spec, leaf._info)
    return lent(leaf)


_KINDS = {kind: k for k, kinds in enumerate(("b", "iu", "f", "c")) for kind in kinds}


class Carry:
    """What a step is given, and leaves to the next: always one tree, of the same specs.

    Attributes:
        tree: The present one.
    """

    def __init__(self, who: str, init: Any) -> None:
        self._who = who
        self._init = self.tree = init
        # Python's numbers as they came: the first step says which dtype they have.
        self._specs = [
            spec_of_leaf(who, path, leaf, weak=True) for path, leaf in paths(init, "the carry")
        ]

    def become(self, tree: Any, step: int) -> None:
        """Take over what a step returned.

        Raises:
            ShapeError, DTypeError: it differs from what the step was given.
        """
        flat = same_tree(self._who, "carry", self._init, tree)
        for k, (spec, leaf) in enumerate(zip(self._specs, flat, strict=True)):
            if type(leaf) in NUMBERS:
                leaf = flat[k] = np.asarray(leaf)[()]
            found = spec_of_leaf(self._who, "the carry", leaf)
            if found is not spec and found != spec:
                self._specs[k] = self._settled(k, spec, found, step)
        self.tree = unflatten(self._init, flat)

    def _settled(self, k: int, given: Any, found: Any, step: int) -> Any:
        """The spec of a number, once it is known; raises where something else changed."""
        if _settles(given, found):
            return found
        given = Spec((), np.asarray(given).dtype) if type(given) in NUMBERS else given
        path = list(paths(self._init, "the carry"))[k][0]
        wrong = f"{self._who}: {path} goes into step {step} as {given}, and comes out as {found}"
        if given is not None and found is not None and found.shape == given.shape:
            raise DTypeError(f"{wrong}; cast one of them, as by ops.astype")
        raise ShapeError(f"{wrong}; it must keep its shape")


def _settles(number: Any, found: Any) -> bool:
    """Whether this is a Python number that may stand for a scalar of a spec."""
    if type(number) not in NUMBERS or found is None or found.shape:
        return False
    return _KINDS.get(np.asarray(number).dtype.kind, 9) <= _KINDS.get(found.dtype.kind, -1)


def spec_of_leaf(who: str, what: str, leaf: Any, weak: bool = False) -> Any:
    """Shape and dtype of a leaf; None of None, and where ``weak`` a Python number itself."""
    if isinstance(leaf, Value):
        return leaf._spec
    if leaf is None or (weak and type(leaf) in NUMBERS):
        return leaf
    if isinstance(leaf, Symbol):
        return leaf.spec
    refuse_non_array(who, what, leaf)
    array = np.asarray(leaf) if isinstance(leaf, (*ARRAY_LIKE, *NUMBERS)) else None
    if array is None or array.dtype.kind not in "biufc":
        raise DTypeError(f"{who}: {what} is {shown(leaf)}; pass arrays, Variables or numbers")
    return spec_of(array)


class Rows:
    """The results of steps, side by side along a new first axis."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self._tree: Any = None
        self._specs: list[Any] = []
        self._columns: list[Any] = []

    def put(self, k: int, y: Any) -> None:
        """Take over what step ``k`` gave.

        Raises:
            ShapeError, DTypeError: it differs from what the first step gave.
        """
        first = not self._specs
        flat = leaves(y) if first else same_tree("scan", "results", self._tree, y)
        if first:
            self._tree = y
            # A number may be the first carry, whose dtype a later step will say.
            self._specs = [spec_of_leaf("scan", "y", leaf, weak=True) for leaf in flat]
            self._columns = [self._column(leaf) for leaf in flat]
        for j, (spec, leaf) in enumerate(zip(self._specs, flat, strict=True)):
            if leaf is None and spec is None:
                continue
            found = spec if leaf is spec else spec_of_leaf("scan", "y", leaf)
            if found is not spec and found != spec:
                if not _settles(spec, found):
                    raise self._differs(j, k, spec, found)
                self._specs[j] = found
            column = self._columns[j]
            if isinstance(column, ARRAYS) and isinstance(leaf, (Value, Symbol)):
                column = self._columns[j] = list(column)
            # What the step gave may be written to by the next one.
            column[k] = leaf if isinstance(column, ARRAYS) else _kept(leaf)

    def _column(self, leaf: Any) -> Any:
        if leaf is None:
            return None
        if isinstance(leaf, (Value, Symbol)) or type(leaf) in NUMBERS:
            return [None] * self._steps
        array = np.asarray(leaf)
        return np.empty((self._steps, *array.shape), array.dtype)

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
        """The tree of all results."""
        return unflatten(self._tree, list(map(self._joined, self._specs, self._columns)))

    def _joined(self, spec: Any, column: Any) -> Any:
        if type(column) is not list:
            return column
        dtype = spec.dtype if isinstance(spec, Spec) else None
        if not any(isinstance(one, (Value, Symbol)) for one in column):
            return np.array(column, dtype)
        return stack([np.array(v, dtype) if isinstance(v, ARRAYS) else v for v in column])


def _kept(leaf: Any) -> Any:
    """What a step gave, as it is now."""
    if isinstance(leaf, Symbol):
        return leaf
    return lent(leaf) if isinstance(leaf, Variable) else np.array(leaf)

"""Aliases among results: which leaf of a result is an argument or another leaf, or a view of one.

Found in an eager run, right behind it; ``runtime.results`` makes the leaves of programs so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from odyssey.devices.arrays import ARRAYS
from odyssey.devices.backends import backend_of
from odyssey.devices.ownership import address_of, is_writable, may_alias, memory_span
from odyssey.spec import Array, Shape
from odyssey.table.value import Value, array_of

__all__ = ["Alias", "NO_ALIASES", "ResultAliases", "View", "find_aliases", "view_between"]


class View(NamedTuple):
    """Elements of a C-contiguous array that another array shows.

    Attributes:
        offset: The first element's distance from that of the array, in bytes.
        shape: The shape of the view.
        strides: Its strides, in bytes.
        dtype: Its dtype.
        read_only: Whether nobody can write to it, although the array can be written to.
    """

    offset: int
    shape: Shape
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    read_only: bool

    def of(self, array: Array) -> Array:
        """Return the view of an array.

        >>> base, other = np.arange(6.0).reshape(2, 3), np.zeros((2, 3))
        >>> view = view_between(base.T[1:], base)
        >>> view.of(other).shape, view.of(other).base is other
        ((2, 2), True)
        """
        if backend_of(array) is not None:
            return self._of_device_array(array)
        made: Array = ndarray(self.shape, self.dtype, array, self.offset, self.strides)
        if self.read_only:
            made.flags.writeable = False
        return made

    def _of_device_array(self, array: Any) -> Array:
        """Return the view of a device's array, by steps of which each keeps its owner alive."""
        axes = range(len(self.shape))
        order = sorted(axes, key=lambda axis: -abs(self.strides[axis]))
        ends = zip(self.shape, self.strides, strict=True)
        start = self.offset + sum((n - 1) * step for n, step in ends if step < 0)
        first = start // self.dtype.itemsize
        part = array.reshape(-1).view(self.dtype)[first : first + math.prod(self.shape)]
        part = part.reshape([self.shape[axis] for axis in order])
        made = part.transpose([order.index(axis) for axis in axes])
        shown: Array = made[
            tuple([slice(None, None, -1 if step < 0 else None) for step in self.strides])
        ]
        return shown

    @property
    def is_dense(self) -> bool:
        """Whether it shows neighboring elements, each once, in any order of the axes."""
        steps = zip(self.shape, map(abs, self.strides), strict=True)
        reach = self.dtype.itemsize
        for step, n in sorted((step, n) for n, step in steps if n > 1):
            if step != reach:
                return False
            reach *= n
        return True


class Alias(NamedTuple):
    """One leaf of a result that is not an array of its own.

    Attributes:
        source: The position of the input or of the leaf that it is, or is a view of.
        is_input: Whether ``source`` is an input.
        view: The view; None if the leaf is the very object.
    """

    source: int
    is_input: bool
    view: View | None


class ResultAliases(NamedTuple):
    """All aliases in one result.

    Attributes:
        by_leaf: By position of a leaf, its alias.
        contiguous: Whether all inputs were C-contiguous: only for such ones a run is known to
            return views where it did.
        refusal: Why no program can return such a result, in words; None if one may.
    """

    by_leaf: Mapping[int, Alias]
    contiguous: bool = False
    refusal: str | None = None


NO_ALIASES = ResultAliases(MappingProxyType({}))
"""The aliases of a result of which nothing is known."""


def find_aliases(found: Sequence[Any], given: Sequence[Any]) -> ResultAliases:
    """Find the aliases in a result.

    Args:
        found: The leaves of the result.
        given: The inputs of the call: arrays, NumPy scalars and constant Variables.

    >>> x, y = np.zeros((2, 3)), np.ones(4)
    >>> aliases = find_aliases([x, y, y, y[1:], x.T], [x]).by_leaf
    >>> [(leaf, a.source, a.is_input, a.view is None) for leaf, a in aliases.items()]
    [(0, 0, True, True), (2, 1, False, True), (4, 0, True, False), (3, 1, False, False)]
    """
    inputs = {id(one): k for k, one in enumerate(given) if isinstance(one, (*ARRAYS, Value))}
    # Variables on a device share memory unseen: it is copied before it is written.
    hidden = [array_of(one) for one in (*found, *given) if isinstance(one, Value)]
    unseen = {id(array) for array in hidden if backend_of(array) is not None}
    contiguous = all(_is_contiguous(array_of(one)) for one in given)
    aliases: dict[int, Alias] = {}
    first: dict[int, int] = {}
    rest: list[tuple[int, Array]] = []
    for k, leaf in enumerate(found):
        if not isinstance(leaf, (*ARRAYS, Value)):  # scalars have no identity that matters
            continue
        if id(leaf) in inputs:
            aliases[k] = Alias(inputs[id(leaf)], True, None)
        elif id(leaf) in first:
            aliases[k] = Alias(first[id(leaf)], False, None)
        else:
            first[id(leaf)] = k
            array = array_of(leaf)
            if type(array) in ARRAYS and array.size and id(array) not in unseen:
                rest.append((k, array))
    bases: list[tuple[int, Array]] = []
    sources = [(k, array_of(one)) for k, one in enumerate(given) if inputs.get(id(one)) == k]
    sources = [(k, a) for k, a in sources if type(a) in ARRAYS and a.size and id(a) not in unseen]
    for k, array in sorted(rest, key=_likely_base):
        for is_input, others in ((True, sources), (False, bases)):
            near = [(j, other) for j, other in others if may_alias(array, [other])]
            if near:
                view = view_between(array, near[0][1]) if len(near) == 1 else None
                if view is None or (is_input and not contiguous) or near[0][1] is array:
                    return ResultAliases({}, contiguous, _REFUSALS[is_input])
                aliases[k] = Alias(near[0][0], is_input, view)
                break
        else:
            bases.append((k, array))
    return ResultAliases(aliases, contiguous)


_REFUSALS = {
    True: "it returns an argument, or a view of one",
    False: "two of its results share memory",
}


def _is_contiguous(array: Any) -> bool:
    is_aligned = type(array) is not ndarray or array.flags.aligned
    return type(array) not in ARRAYS or bool(array.flags.c_contiguous and is_aligned)


def _likely_base(leaf: tuple[int, Array]) -> tuple[int, bool]:
    """Return a sort key: arrays that others may be views of come first."""
    start, end = memory_span(leaf[1])
    return start - end, not leaf[1].flags.c_contiguous


def view_between(array: Array, base: Array) -> View | None:
    """Return the view of ``base`` that an array is; None if it is none, or not in simple terms."""
    (start, end), (first, last) = memory_span(array), memory_span(base)
    if not base.flags.c_contiguous or start < first or last < end:
        return None
    if not is_writable(base):  # nobody sees whether the function made the view read-only
        return None
    offset = address_of(array) - first
    view = View(offset, array.shape, array.strides, array.dtype, not is_writable(array))
    return view if backend_of(array) is None or view.is_dense else None

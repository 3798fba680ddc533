"""Aliases among results: which leaf of a result is an argument or another leaf, or a view of one.

Found in an eager run, right behind it; ``runtime.results`` makes the leaves of programs so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from odyssey.devices.ownership import may_alias, memory_span
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
        made: Array = ndarray(self.shape, self.dtype, array, self.offset, self.strides)
        if self.read_only:
            made.flags.writeable = False
        return made


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
    inputs = {id(one): k for k, one in enumerate(given) if isinstance(one, (ndarray, Value))}
    contiguous = all(_is_contiguous(array_of(one)) for one in given)
    aliases: dict[int, Alias] = {}
    first: dict[int, int] = {}
    rest: list[tuple[int, Array]] = []
    for k, leaf in enumerate(found):
        if not isinstance(leaf, (ndarray, Value)):  # scalars have no identity that matters
            continue
        if id(leaf) in inputs:
            aliases[k] = Alias(inputs[id(leaf)], True, None)
        elif id(leaf) in first:
            aliases[k] = Alias(first[id(leaf)], False, None)
        else:
            first[id(leaf)] = k
            array = array_of(leaf)
            if type(array) is ndarray and array.size:
                rest.append((k, array))
    bases: list[tuple[int, Array]] = []
    sources = [(k, array_of(one)) for k, one in enumerate(given) if inputs.get(id(one)) == k]
    sources = [(k, array) for k, array in sources if type(array) is ndarray and array.size]
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
    return type(array) is not ndarray or bool(array.flags.c_contiguous and array.flags.aligned)


def _likely_base(leaf: tuple[int, Array]) -> tuple[int, bool]:
    """Return a sort key: arrays that others may be views of come first."""
    start, end = memory_span(leaf[1])
    return start - end, not leaf[1].flags.c_contiguous


def view_between(array: Array, base: Array) -> View | None:
    """Return the view of ``base`` that an array is; None if it is none, or not in simple terms."""
    (start, end), (first, last) = memory_span(array), memory_span(base)
    if not base.flags.c_contiguous or start < first or last < end:
        return None
    if not base.flags.writeable:  # nobody sees whether the function made the view read-only
        return None
    offset = array.__array_interface__["data"][0] - first
    read_only = not array.flags.writeable
    return View(offset, array.shape, array.strides, array.dtype, read_only)

"""What transforms share: which arguments are differentiated, how results are handed over."""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, function, shown, sort_of
from odyssey.devices.arrays import ARRAYS, as_array
from odyssey.devices.ownership import owns_memory
from odyssey.errors import DTypeError, IndependentWarning, ShapeError
from odyssey.table.scope import recording_now
from odyssey.table.store import MEMORY, operand_of, store
from odyssey.table.value import CONSTANT, LEAF, Symbol, array_of, is_constant, recording_attribute
from odyssey.tape import GradientTape
from odyssey.tape.queries import Known
from odyssey.tape.sweep import dependents, first_after
from odyssey.tape.tape_base import recording_of
from odyssey.tree import leaves, like, map_tree, paths
from odyssey.variable import Variable, lent, twin_of

__all__ = [
    "Argnums",
    "Watched",
    "as_arguments",
    "checked_argnums",
    "detached",
    "hand_over",
    "is_live",
    "named_like",
    "positions_of",
    "split_aux",
    "warn_if_independent",
    "zeros_like",
]

Argnums = int | Sequence[int]

# Arrays of these are watched as they come.
_FLOATING = frozenset({np.dtype(np.float64), np.dtype(np.float32)})

# Leaves of these are no Variables, which is seen at once.
_PLAIN = frozenset({np.ndarray, float, int, bool, str, type(None)})

_ARRAY = frozenset({np.ndarray})

_dtype_of = operator.attrgetter("dtype")

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


# ------------------------------------------------------------------ which arguments


def checked_argnums(who: str, argnums: Argnums) -> tuple[int, ...]:
    """Return ``argnums`` as a tuple; they are compared with the arguments when these come."""
    several = isinstance(argnums, (tuple, list))
    try:
        numbers = tuple(operator.index(n) for n in (argnums if several else (argnums,)))  # type: ignore
    except STUMBLES:
        raise DTypeError(
            f"{who}: argnums={shown(argnums)}; pass an int or a tuple of ints"
        ) from None
    if not numbers:
        raise DTypeError(f"{who}: argnums is empty; name at least one argument")
    return numbers


def positions_of(who: str, argnums: tuple[int, ...], count: int) -> tuple[int, ...]:
    """The positions that ``argnums`` name among ``count`` arguments; negative ones from the end."""
    if len(argnums) == 1 and 0 <= argnums[0] < count:
        return argnums
    for n in argnums:
        if not -count <= n < count:
            raise DTypeError(
                f"{who}: argnums names argument {shown(n)}, but {count} positional arguments came"
            )
    positions = tuple(n % count for n in argnums)
    if len(set(positions)) != len(positions):
        raise DTypeError(f"{who}: argnums={argnums} names an argument twice")
    return positions


def as_arguments(who: str, primals: Any, tangents: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Primals and tangents as tuples: a plain tuple or list has one entry for each argument."""
    several = [type(given) in (tuple, list) for given in (primals, tangents)]
    if several == [False, False]:
        return (primals,), (tangents,)
    if several == [True, True] and len(primals) == len(tangents):
        return tuple(primals), tuple(tangents)
    came = [len(g) if type(g) in (tuple, list) else "a single" for g in (primals, tangents)]
    raise ShapeError(
        f"{who}: {came[0]} primals came with {came[1]} tangents; pass two tuples of one length, "
        "one entry for each argument"
    )


# ------------------------------------------------------------------ watching them


class Watched:
    """Arguments of a call with those that are differentiated replaced by Variables of a tape.

    The function gets containers and Variables of its own, in ``args``: whatever it writes to
    them, ``sources`` stay what was passed in, and ``trees`` have the form of that.
    """

    __slots__ = ("_builders", "_given", "_there", "args", "positions", "sources")

    def __init__(self, who: str, tape: GradientTape, args: Sequence[Any], positions: Sequence[int]):
        self.args = list(args)
        self.positions = positions
        self.sources = Known()
        self._given: list[Any] = []  # Variables that shall be alive, since the tape knows of them
        self._builders: list[Callable[[list[Any]], Any]] = []
        self._there: list[list[bool]] = []  # whether a leaf is not None, for each tree
        for n in positions:
            flat, again = like(args[n])
            usual = flat and _ARRAY.issuperset(map(type, flat))
            if usual and _FLOATING.issuperset(map(_dtype_of, flat)) and store() is MEMORY:
                new: list[Any] = tape._begin_with(flat, self.sources)
                self._given += new
                self._there.append([True] * len(flat))
            else:
                new = [self._watched(who, tape, n, flat, k) for k in range(len(flat))]
                self._there.append([value is not None for value in new])
            self._builders.append(again)
            self.args[n] = again(new)

    def _watched(self, who: str, tape: GradientTape, n: int, flat: list[Any], k: int) -> Any:
        """Leaf ``k`` of argument ``n`` as a Variable to be written to; None stays None."""
        leaf = flat[k]
        if leaf is None:
            return None
        array = leaf if type(leaf) is np.ndarray else _array_of(leaf)
        if array is None or array.dtype not in _FLOATING:
            array = self._checked(who, list(paths(self.args[n], f"argument {n}"))[k][0], leaf)
        known = self.sources
        if store() is MEMORY and not isinstance(array, (Variable, Symbol)):
            (value,) = tape._begin_with([array], known)
            self._given.append(value)
            return value
        value = tape.watch(array)
        known.ids.append(value._id)
        known.specs.append(value._spec)
        known.arrays.append(array_of(value))
        self._given.append(value)
        return twin_of(value)

    def _checked(self, who: str, path: str, leaf: Any) -> Any:
        """A leaf of an argument as what can be watched."""
        came = sort_of(leaf)
        if not isinstance(leaf, (Variable, Symbol)):
            leaf = as_array(who, path, leaf)
        dtype = leaf.dtype
        if dtype.kind not in "fc":
            raise DTypeError(
                f"{who}: {path} is {came} of {dtype}, which has no gradient; pass "
                "floats, or leave it out of what is differentiated"
            )
        return leaf

    def trees(self, values: Sequence[Any], bare: bool) -> Any:
        """Put one value for each source into trees like the arguments; None stays None."""
        if bare and len(values) == len(self._there[0]):
            return self._builders[0](list(values))
        supply = iter(values)
        made = [
            again([next(supply) if here else None for here in there])
            for again, there in zip(self._builders, self._there, strict=True)
        ]
        return made[0] if bare else tuple(made)

    def point(self) -> list[Any]:
        """The trees with the arrays that were watched, or what stands for them in a graph."""
        return list(self.trees(self.sources.arrays, bare=False))


def _array_of(leaf: Any) -> Any:
    """The array of a float or of a constant, which nothing records; None for what is neither."""
    if type(leaf) is float:
        return np.asarray(leaf)
    if type(leaf) is Variable and is_constant(leaf):
        return operand_of(leaf)
    return None


def detached(tree: Any) -> Any:
    """Where nothing records, take recorded Variables among arguments for their values."""
    if not tree:
        return tree
    given = tree.values() if type(tree) is dict else tree
    if all(map(_is_plain, given)) or recording_now() is not None:
        return tree
    if not any(map(_is_recorded, leaves(tree))):
        return tree
    return map_tree(lambda leaf: leaf.detach() if _is_recorded(leaf) else leaf, tree)


def _is_plain(tree: Any) -> bool:
    """Whether a tree has no Variables, as far as is seen at once."""
    if type(tree) is dict:
        return _PLAIN.issuperset(map(type, tree.values()))
    return type(tree) in _PLAIN


def _is_recorded(leaf: Any) -> bool:
    return isinstance(leaf, Variable) and recording_attribute(leaf) not in (CONSTANT, LEAF)


# ------------------------------------------------------------------ results


def warn_if_independent(
    who: str, tape: GradientTape, outputs: Sequence[Any], sources: Known
) -> None:
    """Warn, at the user's line, where no output depends on any source.

    Unless the outputs are made of derivatives, as that of a linear function is a constant.
    """
    if not outputs or not sources.ids or tape._derived:
        return
    if not _is_independent(tape, outputs, sources):
        return
    if store() is not MEMORY:  # the run will warn
        store().only_eagerly(f"{who} warns of a result that depends on nothing")
        return
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"{who}: the result of the function depends on nothing of what is differentiated, so the "
        "derivative is zero; .item(), .numpy(), detach(), no_grad and comparisons end a gradient",
        IndependentWarning,
        stacklevel=level,
    )


def _is_independent(tape: GradientTape, outputs: Sequence[Any], sources: Known) -> bool:
    live = [out._id for out in outputs if is_live(tape, out)]
    if not live:
        return True
    r = recording_of(tape)
    # The sources are watched, all of them.
    if not (r.leaves or r.manual or r.guests) and len(r.watched) == len(sources.ids):
        return False  # there is nothing else that anything here could depend on
    ids: set[Any] = set(sources.ids)
    return dependents(r.nodes[first_after(r, ids) :], ids).isdisjoint(live)


def split_aux(who: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """The result that is differentiated, and what came beside it."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise DTypeError(
            f"{who}: with has_aux=True the function must return a pair (result, aux); "
            f"it returned {sort_of(result)}"
        )
    return result


def is_live(tape: GradientTape, value: Any) -> bool:
    """Whether ``value`` was recorded on ``tape``."""
    return (
        isinstance(value, Variable)
        and recording_attribute(value) is recording_of(tape)
        and tape._covers(value._id)
    )


def hand_over(tape: GradientTape, tree: Any, copy: bool = False) -> Any:
    """Results as Variables while a tape around ``tape`` records, else as plain arrays.

    Each is one of its own, which may be written to.
    """
    if tree is None:
        return tree
    followed = tape._followed()
    if type(tree) is Variable:
        return lent(tree) if followed else _handed_over(tree, copy)
    hand = lent if followed else partial(_handed_over, copy=copy)
    if not any(isinstance(leaf, Variable) for leaf in leaves(tree)):
        return tree
    return map_tree(hand, tree)


def _handed_over(leaf: Any, copy: bool) -> Any:
    if not isinstance(leaf, Variable):
        return leaf
    if store() is not MEMORY:
        return leaf.data
    data = leaf._array
    if isinstance(data, ARRAYS) and (copy or leaf.is_leaf or not owns_memory(data)):
        return data.copy()
    return data


def zeros_like(value: Any) -> Any:
    """Zeros for something that does not move."""
    if isinstance(value, (Variable, Symbol)):
        return np.zeros(value.shape, value.dtype)
    array = np.asarray(value)
    return np.zeros(array.shape, array.dtype) if array.dtype.kind in "biufc" else None


def named_like(fn: Callable[..., Any], made: Callable[..., Any], prefix: str) -> Any:
    """Give ``made`` the name and the docstring of the function that it was made from."""
    name = getattr(function(prefix, fn), "__name__", type(fn).__name__)
    made.__name__ = made.__qualname__ = f"{prefix}({name})"
    made.__doc__ = getattr(fn, "__doc__", None)
    made.__wrapped__ = fn  # type: ignore[attr-defined]
    return made

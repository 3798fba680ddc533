"""Arguments and results of transforms: argument selection, watching, and export of results."""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import numpy as np

from odyssey.checks import STUMBLES, check_callable, describe_type, format_value
from odyssey.devices.arrays import ARRAYS, as_array
from odyssey.devices.half_dtypes import is_inexact, is_number_dtype
from odyssey.devices.ownership import owns_memory
from odyssey.devices.same_device import namespace_of, own_copy, zeros_beside
from odyssey.errors import DTypeError, IndependentWarning, ShapeError
from odyssey.table.scope import recording_now
from odyssey.table.store import MEMORY, operand_of, store
from odyssey.table.tree_sources import fixed_leaves
from odyssey.table.value import (
    CONSTANT,
    LEAF,
    Mark,
    Symbol,
    array_of,
    is_constant,
    recording_attribute,
)
from odyssey.tape import GradientTape
from odyssey.tape.queries import Sources
from odyssey.tape.sweep import dependents, first_dependent
from odyssey.tape.tape_base import recording_of
from odyssey.tree import below_objects, leaves, like, map_tree, paths
from odyssey.tree_objects import AttributeRule, array_attributes, no_attributes
from odyssey.variable import Variable, alias_of, writable_alias

__all__ = [
    "Argnums",
    "WatchedArguments",
    "argument_positions",
    "copy_metadata",
    "detach_recorded",
    "export_results",
    "is_on_tape",
    "normalize_argnums",
    "paired_arguments",
    "split_aux",
    "warn_if_independent",
    "zeros_like",
]

Argnums = int | Sequence[int]

# Arrays of these dtypes are watched without a cast.
_FLOATING = frozenset({np.dtype(np.float64), np.dtype(np.float32)})

# Leaf types that are never Variables.
_PLAIN = frozenset({np.ndarray, float, int, bool, str, type(None)})

_ARRAY = frozenset({np.ndarray})

_dtype_of = operator.attrgetter("dtype")

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


# ------------------------------------------------------------------ which arguments


def normalize_argnums(who: str, argnums: Argnums) -> tuple[int, ...]:
    """Return ``argnums`` as a tuple; it is compared with the arguments at the call."""
    several = isinstance(argnums, (tuple, list))
    try:
        numbers = tuple(operator.index(n) for n in (argnums if several else (argnums,)))  # type: ignore
    except STUMBLES:
        raise DTypeError(
            f"{who}: argnums={format_value(argnums)}; pass an int or a tuple of ints"
        ) from None
    if not numbers:
        raise DTypeError(f"{who}: argnums is empty; name at least one argument")
    return numbers


def argument_positions(who: str, argnums: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return the positions that ``argnums`` name; negative ones count from the end."""
    if len(argnums) == 1 and 0 <= argnums[0] < count:
        return argnums
    for n in argnums:
        if not -count <= n < count:
            raise DTypeError(
                f"{who}: argnums names argument {format_value(n)}, but {count} positional "
                "arguments came"
            )
    positions = tuple(n % count for n in argnums)
    if len(set(positions)) != len(positions):
        raise DTypeError(f"{who}: argnums={argnums} names an argument twice")
    return positions


def paired_arguments(
    who: str, primals: Any, tangents: Any
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return primals and tangents as tuples: a tuple or list has one entry for each argument."""
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


# ------------------------------------------------------------------ watched arguments


class WatchedArguments:
    """Arguments of a call in which those to differentiate are replaced by Variables of a tape.

    The function gets its own containers and Variables, in ``args``. If it writes to them,
    ``sources`` keep the values that were passed in, and ``trees`` build the structure that was
    passed in.
    """

    __slots__ = ("_builders", "_given", "_present", "args", "positions", "sources")

    def __init__(self, who: str, tape: GradientTape, args: Sequence[Any], positions: Sequence[int]):
        self.args = list(args)
        self.positions = positions
        self.sources = Sources()
        self._given: list[Any] = []  # keeps the Variables alive that the tape watches
        self._builders: list[Callable[[list[Any]], Any]] = []
        # For each tree, which leaves are differentiated: neither None nor fixed ones of an object.
        self._present: list[list[bool]] = []
        for n in positions:
            flat, rebuild = like(args[n])
            usual = flat and _ARRAY.issuperset(map(type, flat))
            if usual and _FLOATING.issuperset(map(_dtype_of, flat)) and store() is MEMORY:
                new: list[Any] = tape._watch_arrays(flat, self.sources)
                self._given += new
                self._present.append([True] * len(flat))
            else:
                fixed = fixed_leaves(args[n], flat)
                new = [
                    flat[k] if k in fixed else self._watch_leaf(who, tape, n, flat, k)
                    for k in range(len(flat))
                ]
                self._present.append(
                    [value is not None and k not in fixed for k, value in enumerate(new)]
                )
                if len(fixed) == len(flat):
                    raise _nothing_error(who, n, args[n])
            self._builders.append(rebuild)
            self.args[n] = rebuild(new)

    def _watch_leaf(self, who: str, tape: GradientTape, n: int, flat: list[Any], k: int) -> Any:
        """Return leaf ``k`` of argument ``n`` as a writable Variable; None stays None."""
        leaf = flat[k]
        if leaf is None:
            return None
        array = leaf if type(leaf) in ARRAYS else _array_of(leaf)
        if array is None or array.dtype not in _FLOATING:
            array = self._check_leaf(who, list(paths(self.args[n], f"argument {n}"))[k][0], leaf)
        known = self.sources
        if store() is MEMORY and not isinstance(array, (Variable, Symbol)):
            (value,) = tape._watch_arrays([array], known)
            self._given.append(value)
            return value
        value = tape.watch(array)
        known.ids.append(value._id)
        known.specs.append(value._spec)
        known.arrays.append(array_of(value))
        self._given.append(value)
        return alias_of(value)

    def _check_leaf(self, who: str, path: str, leaf: Any) -> Any:
        """Return a leaf of an argument as an array, Variable or Symbol that can be watched."""
        came = describe_type(leaf)
        if isinstance(leaf, Symbol):
            came = "an ndarray"  # which it stands for
        elif not isinstance(leaf, Variable):
            leaf = as_array(who, path, leaf)
        dtype = leaf.dtype
        if not is_inexact(dtype):
            raise DTypeError(
                f"{who}: {path} is {came} of {dtype}, which has no gradient; pass "
                "floats, or leave it out of what is differentiated"
            )
        return leaf

    def trees(self, values: Sequence[Any], single: bool) -> Any:
        """Put one value for each source into trees like the arguments; None stays None."""
        if single and len(values) == len(self._present[0]):
            return self._builders[0](list(values))
        supply = iter(values)
        made = [
            rebuild([next(supply) if is_present else None for is_present in present])
            for rebuild, present in zip(self._builders, self._present, strict=True)
        ]
        return made[0] if single else tuple(made)

    def primal_trees(self) -> list[Any]:
        """Return the arguments as trees of the watched arrays, or Symbols in a trace."""
        return list(self.trees(self.sources.arrays, single=False))


def _nothing_error(who: str, n: int, tree: Any) -> DTypeError:
    return DTypeError(
        f"{who}: argument {n}, {describe_type(tree)}, holds nothing to differentiate, only "
        "constants, integers and numbers; make parameters with requires_grad=True, or arrays"
    )


def _array_of(leaf: Any) -> Any:
    """Return the array of a float or of a constant; None for any other leaf."""
    if type(leaf) is float:
        return np.asarray(leaf)
    if type(leaf) is Variable and is_constant(leaf):
        return operand_of(leaf)
    return None


def detach_recorded(tree: Any, positions: Collection[int] = ()) -> Any:
    """Detach recorded Variables among arguments if no tape records.

    Args:
        tree: The arguments, as a tuple or a dictionary.
        positions: The arguments of a tuple that are differentiated, in which plain objects are
            trees; a function gets other objects themselves.
    """
    if not tree:
        return tree
    given = tree.values() if type(tree) is dict else tree
    if all(map(_is_plain, given)):
        return tree
    if store() is not MEMORY:  # in vmap, what recordings outside made is a constant with a payload
        tree = map_tree(lambda leaf: store().localize([leaf])[0], tree, rule=no_attributes)
    if recording_now() is not None:
        return tree
    if not positions:
        return _detached(tree, no_attributes)
    rules = [array_attributes if n in positions else no_attributes for n in range(len(tree))]
    return tuple(map(_detached, tree, rules))


def _detached(tree: Any, rule: AttributeRule) -> Any:
    if not any(map(_is_recorded, leaves(tree, rule))):
        return tree
    if rule is array_attributes and True in below_objects(tree):
        # Not constants, which are not differentiated below an object.
        return map_tree(lambda leaf: operand_of(leaf) if _is_recorded(leaf) else leaf, tree)
    detach = lambda leaf: leaf.detach() if _is_recorded(leaf) else leaf  # noqa: E731
    return map_tree(detach, tree, rule=rule)


def _is_plain(tree: Any) -> bool:
    """True if a tree is quickly seen to contain no Variables."""
    if type(tree) is dict:
        return _PLAIN.issuperset(map(type, tree.values()))
    return type(tree) in _PLAIN


def _is_recorded(leaf: Any) -> bool:
    return isinstance(leaf, Variable) and recording_attribute(leaf) not in (CONSTANT, LEAF)


# ------------------------------------------------------------------ results


def warn_if_independent(
    who: str, tape: GradientTape, outputs: Sequence[Any], sources: Sources
) -> None:
    """Warn, at the user's line, if no output depends on any source.

    There is no warning for outputs that are derivatives themselves: the derivative of a linear
    function is a constant.
    """
    if not outputs or not sources.ids or tape._had_inner_sweep:
        return
    if not _is_independent(tape, outputs, sources):
        return
    if store() is not MEMORY:  # the eager run will warn
        store().only_eagerly(f"{who} warns of a result that depends on nothing")
        return
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(
        f"{who}: the result of the function does not depend on the arguments that are "
        "differentiated, so the "
        "derivative is zero; .item(), .numpy(), detach(), no_grad and comparisons end a gradient",
        IndependentWarning,
        stacklevel=level,
    )


def _is_independent(tape: GradientTape, outputs: Sequence[Any], sources: Sources) -> bool:
    live = [out._id for out in outputs if is_on_tape(tape, out)]
    if not live:
        return True
    r = recording_of(tape)
    # Every source is watched.
    if not (r.leaves or r.manual or r.outer_values) and len(r.watched) == len(sources.ids):
        return False  # nodes can depend on nothing else
    ids: set[Any] = set(sources.ids)
    return dependents(r.nodes[first_dependent(r, ids) :], ids).isdisjoint(live)


def split_aux(who: str, result: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return the result to differentiate, and the auxiliary result or None."""
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise DTypeError(
            f"{who}: with has_aux=True the function must return a pair (result, aux); "
            f"it returned {describe_type(result)}"
        )
    return result


def is_on_tape(tape: GradientTape, value: Any) -> bool:
    """True if ``value`` was recorded on ``tape``."""
    return (
        isinstance(value, Variable)
        and recording_attribute(value) is recording_of(tape)
        and tape._covers(value._id)
    )


def export_results(tape: GradientTape, tree: Any, copy: bool = False) -> Any:
    """Return results as Variables while a tape around ``tape`` records, else as plain arrays.

    Each result may be written to without an effect on the tape.
    """
    if tree is None:
        return tree
    is_recorded = tape._is_followed()
    if type(tree) is Variable:
        return writable_alias(tree) if is_recorded else _exported_leaf(tree, copy)
    export = writable_alias if is_recorded else partial(_exported_leaf, copy=copy)
    if not any(isinstance(leaf, Variable) for leaf in leaves(tree, _recorded_attributes)):
        return tree
    return map_tree(export, tree, rule=_recorded_attributes)


def _recorded_attributes(node: Any) -> dict[str, Any] | None:
    """Return the attributes of an object that a function made; other objects stay as they are."""
    found = array_attributes(node)
    if found is None or not any(map(_is_on_a_tape, leaves(list(found.values())))):
        return None
    return found


def _is_on_a_tape(leaf: Any) -> bool:
    return isinstance(leaf, Variable) and not isinstance(recording_attribute(leaf), Mark)


def _exported_leaf(leaf: Any, copy: bool) -> Any:
    if not isinstance(leaf, Variable):
        return leaf
    if store() is not MEMORY:
        return leaf.data
    data = leaf._array
    if isinstance(data, ARRAYS) and (copy or leaf.is_leaf or not owns_memory(data)):
        return own_copy(data)
    return data


def zeros_like(value: Any) -> Any:
    """Return zeros of the shape and dtype of ``value``; None if it is not numeric."""
    if isinstance(value, (Variable, Symbol)):
        return zeros_beside(value, value)
    array = value if namespace_of(value) is not np else np.asarray(value)
    return zeros_beside(array, array) if is_number_dtype(array.dtype) else None


def copy_metadata(fn: Callable[..., Any], wrapper: Callable[..., Any], prefix: str) -> Any:
    """Give ``made`` the name and the docstring of the function that it was wrapper from."""
    name = getattr(check_callable(prefix, fn), "__name__", type(fn).__name__)
    wrapper.__name__ = wrapper.__qualname__ = f"{prefix}({name})"
    wrapper.__doc__ = getattr(fn, "__doc__", None)
    wrapper.__wrapped__ = fn  # type: ignore[attr-defined]
    return wrapper

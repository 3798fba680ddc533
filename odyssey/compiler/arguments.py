"""Arguments of compiled functions: what is an input of a graph, and what is fixed in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.checks import sort_of
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.errors import DTypeError
from odyssey.graph.graph import Graph
from odyssey.table.value import Mark, Symbol, Value, array_of, is_trainable
from odyssey.tree import children_of, extras_in, leaves, paths
from odyssey.tree_rebuild import extra_attributes
from odyssey.variable import Variable

__all__ = [
    "same_variable_kinds",
    "static_values",
    "unsupported_argument",
    "input_leaves",
    "is_flat",
    "is_input",
    "cache_key",
    "number_leaves",
    "receiver_arguments",
    "forwarded_arguments",
    "refuse_unhashable",
    "aliases_states",
    "variable_kinds",
    "program_arguments",
    "alias_refusal",
]

_PLAIN_TYPES = (int, float, complex, str, bool, bytes, range, type(None))


class _Identity:
    """A thing that is told from others by what it is, and kept, so that no other becomes it."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __repr__(self) -> str:
        return f"{type(self.thing).__name__} at {id(self.thing):#x}"


def abstract_signature(value: Any) -> Any:
    """What of an argument decides whether a graph must be traced anew.

    Numbers do by their type alone: a rate or a count of steps may be new in every call.
    """
    kind = type(value)
    if kind is ndarray or issubclass(kind, np.generic):
        # The dtype is hashed in C, which a spec is not.
        return (value.shape, value.dtype) if kind is ndarray else kind
    if kind is Variable:
        where, info = value._recording, value._info
        name = None if info is None else info.name
        return where if type(where) is Mark else "tape", name, value._spec.shape, value._spec.dtype
    if kind is tuple or kind is list:
        return (kind, *map(abstract_signature, value))
    if kind is dict:
        if _STR_ONLY.issuperset(map(type, value)):
            return (kind, *value, *map(abstract_signature, value.values()))
        return (
            kind,
            *[(_key_signature(key), abstract_signature(item)) for key, item in value.items()],
        )
    if kind is str or kind is bool:
        return kind, value
    if issubclass(kind, (dict, list, tuple)) or hasattr(kind, "__dataclass_fields__"):
        return _signature_of_container(value)
    return kind


def _signature_of_container(value: Any) -> Any:
    """What tells a container of a class of its own; what else it holds is among what is fixed."""
    keys, parts = children_of(value)
    names = tuple(map(_key_signature, keys)) if isinstance(value, dict) else len(parts)
    more = tuple([name for name, _ in extra_attributes(value)])
    return (type(value), names, more, *map(abstract_signature, parts))


_STR_ONLY = frozenset({str})


def _key_signature(key: Any) -> Any:
    """What tells a key from others, equal ones among them: 1 from 1.0, and -0.0 from 0.0."""
    kind = type(key)
    if kind in _PLAIN_TYPES:
        return kind, repr(key) if kind in (float, complex, range) else key
    if isinstance(key, np.generic):
        return kind, key.dtype, key.tobytes()
    if kind is tuple or (issubclass(kind, tuple) and not kind.__dictoffset__):
        return (kind, *map(_key_signature, tuple.__iter__(key)))
    return _Identity(key)


def is_input(leaf: Any) -> bool:
    """Whether an argument is an input of the graph, and not fixed in it."""
    if isinstance(leaf, Variable):
        return not is_trainable(leaf)
    return isinstance(leaf, ARRAY_LIKE)


def input_leaves(args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """The arguments that are inputs of a graph, in order."""
    return list(filter(is_input, leaves((args, named))))


def cache_key(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """What decides whether a graph must be traced anew: also which inputs are the same object.

    Raises:
        RecursionError: for a container that holds itself.
    """
    key = (
        (*map(abstract_signature, args), abstract_signature(named))
        if named
        else tuple(map(abstract_signature, args))
    )
    given = list(map(id, input_leaves(args, named)))
    return key if len(set(given)) == len(given) else (key, tuple(map(given.index, given)))


def unsupported_argument(args: tuple[Any, ...], named: dict[str, Any]) -> str | None:
    """Why a program cannot take the arguments, in words; None where it can."""
    for leaf in input_leaves(args, named):
        if isinstance(leaf, Value) and not isinstance(leaf._recording, Mark):
            return "an argument is a result on a tape"
        if type(leaf) not in (ndarray, Variable) and not isinstance(leaf, np.generic):
            return f"an argument is {sort_of(leaf)}, which is more than an array"
    for path, value in extras_in((args, named)):
        if type(value) not in _PLAIN_TYPES and not path.endswith(".__orig_class__"):
            return f"an argument has an attribute of its own, {path.rpartition('.')[2]}"
    return None


def number_leaves(
    args: tuple[Any, ...], named: dict[str, Any]
) -> list[tuple[str, int, int | float]]:
    """Python's numbers among the arguments: path, place among all leaves, and the number."""
    try:
        found = enumerate(_unique_paths(paths((args, named))))
        return [(path, k, leaf) for k, (path, leaf) in found if type(leaf) in (int, float)]
    except Exception:  # of a container that lets nobody look
        return []


def program_arguments(
    places: Sequence[int], args: tuple[Any, ...], named: dict[str, Any]
) -> list[Any]:
    """What a program is called with: the inputs, then the numbers at places among the leaves."""
    given = input_leaves(args, named)
    if places:
        found = leaves((args, named))
        given += [found[k] for k in places]
    return given


def receiver_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The first arguments that are objects and no trees, as that of a method is."""
    count = 0
    for one in args:
        if type(one) in _PLAIN_TYPES or isinstance(one, (*ARRAY_LIKE, Value)):
            break
        parts = leaves(one)
        if len(parts) != 1 or parts[0] is not one:
            break
        count += 1
    return args[:count]


def is_flat(
    places: Collection[int], args: tuple[Any, ...], named: dict[str, Any], ahead: int = 0
) -> bool:
    """Whether arguments, but some ahead, are arrays, no two of them one, and numbers at places."""
    alone = not named and len(set(map(id, args))) == len(args)
    rest = list(enumerate(args))[ahead:]
    # Places are those of leaves: where a tree stands before, they are not those of arguments.
    numbers = {k for k in places if k < len(args) and type(args[k]) in (int, float)}
    return alone and all(type(a) is ndarray or k in numbers for k, a in rest)


def static_values(args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are fixed in a graph, by path: -0.0, 0.0, 0 and False are four."""
    found = {
        path: _static_value(leaf)
        for path, leaf in _unique_paths(paths((args, named)))
        if not is_input(leaf)
    }
    for path, value in _unique_paths(extras_in((args, named))):
        found[f"{path}, an attribute"] = _static_value(value)
    return found


def _static_value(thing: Any) -> Any:
    if type(thing) is int:
        return int, thing
    return repr(thing) if type(thing) in _PLAIN_TYPES else _Identity(thing)


def _unique_paths(found: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Paths that are all different: two keys of a dictionary may be written alike."""
    known: dict[str, int] = {}
    for path, leaf in found:
        count = known[path] = known.get(path, 0) + 1
        yield path if count == 1 else f"{path}, the {count}th", leaf


def refuse_unhashable(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise for an argument that is neither an array nor can be told from others."""
    try:
        given = [*paths(list(args)), *paths(named)]
    except Exception:  # of a strange container: the run will show whether that matters
        return
    for path, leaf in given:
        if type(leaf).__hash__ is None and not issubclass(type(leaf), ARRAYS):
            raise DTypeError(
                f"compile: argument {path} is {sort_of(leaf)}, which is neither an array "
                "nor hashable; pass arrays, numbers or strings, or let the function close over it"
            )


def same_variable_kinds(traced: Any, seen: Any) -> bool:
    """Whether a run may have returned what a trial did: Variables of the same standing."""
    return variable_kinds(traced) == variable_kinds(seen)


def variable_kinds(tree: Any) -> list[Any]:
    """Where the Variables among leaves stand; of other leaves, whether they are arrays with axes.

    What has no axes may be a number of NumPy's.
    """
    return list(map(_variable_kind, leaves(tree)))


def _variable_kind(leaf: Any) -> Any:
    if not isinstance(leaf, Value):
        return isinstance(leaf, (ndarray, Symbol)) and leaf.ndim > 0
    where = leaf._recording
    return where if isinstance(where, Mark) else "tape"


def _shares_memory(result: Any, given: list[Any]) -> bool:
    """Whether a result shares memory with what came."""
    found = [array_of(leaf) for leaf in leaves(result)]
    own = [array for array in map(array_of, given) if type(array) is ndarray]
    arrays = [array for array in found if type(array) is ndarray and array.size]
    return any(np.may_share_memory(array, one) for array in arrays for one in own)


def aliases_states(result: Any, graph: Graph) -> bool:
    """Whether a result shows what a Variable holds, and so what is written to it later.

    To a graph ``w.detach()`` behind a write is what was written, of which a program makes a copy.
    It is asked at once after a run, since the first step of an optimizer moves what it steps.
    """
    variables = [state.variable for state in graph.states]
    own = set(map(id, variables))
    return _shares_memory([leaf for leaf in leaves(result) if id(leaf) not in own], variables)


def forwarded_arguments(result: Any, given: list[Any]) -> dict[int, int]:
    """The leaves of a result, by place, that are arrays which were given, by theirs."""
    places = {id(one): k for k, one in enumerate(given) if type(one) is ndarray}
    return {k: places[id(leaf)] for k, leaf in enumerate(leaves(result)) if id(leaf) in places}


def alias_refusal(
    result: Any, given: list[Any], graph: Graph | None = None, passed: Collection[int] = ()
) -> str | None:
    """Why a program cannot return what a run did, of arguments and of Variables; None if it can.

    Args:
        result: What a run returned.
        given: The arguments.
        graph: Of a trial.
        passed: The places of leaves of the result that are arguments themselves.
    """
    if _shares_memory([leaf for k, leaf in enumerate(leaves(result)) if k not in passed], given):
        return "it returns what it was given, or a part of it"
    if graph is not None and aliases_states(result, graph):
        return "it returns a part of what a Variable holds"
    return None

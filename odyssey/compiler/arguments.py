"""Arguments of compiled functions: inputs, static values, cache keys, and aliases of results."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from odyssey.checks import describe_type
from odyssey.compiler.result_aliases import ResultAliases
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.devices.backends import backend_of
from odyssey.devices.device import Device, device_of
from odyssey.devices.ownership import may_alias
from odyssey.errors import DTypeError, OdysseyError
from odyssey.graph.graph import Graph
from odyssey.sparse_rows import SparseRows
from odyssey.spec import Spec
from odyssey.table.value import Mark, Symbol, Value, array_of, is_trainable
from odyssey.tree import children_of, extras_in, leaves, map_tree, paths
from odyssey.tree_objects import no_attributes
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
    "fill_specs",
    "number_leaves",
    "receiver_arguments",
    "refuse_unhashable",
    "replaced_argument",
    "aliases_states",
    "devices_of_program",
    "is_on_device",
    "variable_kinds",
    "program_arguments",
    "alias_refusal",
    "input_alias_refusal",
]

_PLAIN_TYPES = (int, float, complex, str, bool, bytes, range, type(None))


class _Identity:
    """A key that compares an object by identity, and keeps it alive so that its id stays unique."""

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
    """Return the abstract signature of an argument, for which one graph is traced.

    Of numbers it has the type alone: a rate or a count of steps may be new in every call.
    """
    kind = type(value)
    if kind is ndarray or issubclass(kind, np.generic):
        # The dtype is hashed in C, which a spec is not.
        return (value.shape, value.dtype) if kind is ndarray else kind
    if kind is Variable:
        mark, info = value._recording, value._info
        name = None if info is None else info.name
        key = mark if type(mark) is Mark else "tape", name, value._spec.shape, value._spec.dtype
        backend = backend_of(value._array)
        return key if backend is None else (*key, device_of(value._array))
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
    if kind in ARRAYS:  # of a device
        return value.shape, value.dtype, device_of(value)
    if issubclass(kind, (dict, list, tuple)) or hasattr(kind, "__dataclass_fields__"):
        return _signature_of_container(value)
    return kind


def _signature_of_container(value: Any) -> Any:
    """Return the signature of a container of a user's class; extra attributes are static values."""
    keys, parts = children_of(value, no_attributes)
    names = tuple(map(_key_signature, keys)) if isinstance(value, dict) else len(parts)
    more = tuple([name for name, _ in extra_attributes(value)])
    return (type(value), names, more, *map(abstract_signature, parts))


_STR_ONLY = frozenset({str})


def _key_signature(key: Any) -> Any:
    """Return what tells a key from others, even equal ones: 1 from 1.0, and -0.0 from 0.0."""
    kind = type(key)
    if kind in _PLAIN_TYPES:
        return kind, repr(key) if kind in (float, complex, range) else key
    if isinstance(key, np.generic):
        return kind, key.dtype, key.tobytes()
    if kind is tuple or (issubclass(kind, tuple) and not kind.__dictoffset__):
        return (kind, *map(_key_signature, tuple.__iter__(key)))
    return _Identity(key)


def is_input(leaf: Any) -> bool:
    """Return whether a leaf is an input of the graph, and no static value."""
    if isinstance(leaf, Variable):
        return not is_trainable(leaf)
    return isinstance(leaf, ARRAY_LIKE)


def input_leaves(args: tuple[Any, ...], named: dict[str, Any]) -> list[Any]:
    """Return the leaves that are inputs of a graph, in order."""
    return list(filter(is_input, leaves((args, named), no_attributes)))


def cache_key(args: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return the cache key of a call: its abstract signature, and which inputs are one object.

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
    """Return why a program cannot take the arguments, in words; None if it can."""
    for leaf in input_leaves(args, named):
        if isinstance(leaf, Value) and not isinstance(leaf._recording, Mark):
            return "an argument is a result on a tape"
        if type(leaf) not in (*ARRAYS, Variable) and not isinstance(leaf, np.generic):
            return f"an argument is {describe_type(leaf)}, which is not a plain array"
    for path, value in extras_in((args, named), rule=no_attributes):
        if type(value) not in _PLAIN_TYPES and not path.endswith(".__orig_class__"):
            return f"an argument has an attribute of its own, {path.rpartition('.')[2]}"
    return None


def is_on_device(leaf: Any) -> bool:
    """Return whether an input lies on a device beside the CPU."""
    return backend_of(array_of(leaf)) is not None


def devices_of_program(graph: Graph, args: tuple[Any, ...], named: dict[str, Any]) -> list[Device]:
    """Return the devices beside the CPU that arguments, states and constants of a graph lie on."""
    arrays = [array_of(leaf) for leaf in input_leaves(args, named)]
    arrays += [state.variable._array for state in graph.states]
    arrays += graph.constants.values()
    found = [device_of(array) for array in arrays if backend_of(array) is not None]
    return list(dict.fromkeys(found))


def number_leaves(
    args: tuple[Any, ...], named: dict[str, Any]
) -> list[tuple[str, int, int | float]]:
    """Return the Python numbers among the arguments: path, index among all leaves, and number."""
    try:
        found = enumerate(_unique_paths(paths((args, named), rule=no_attributes)))
        return [(path, k, leaf) for k, (path, leaf) in found if type(leaf) in (int, float)]
    except Exception:  # a container that raises when it is iterated
        return []


def program_arguments(
    places: Sequence[int], args: tuple[Any, ...], named: dict[str, Any]
) -> list[Any]:
    """Return the arguments of a program: the inputs, then the numbers at some leaf indices."""
    given = input_leaves(args, named)
    if places:
        found = leaves((args, named), no_attributes)
        given += [found[k] for k in places]
    return given


def receiver_arguments(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the leading arguments that are objects, not pytrees, as ``self`` of a method is."""
    count = 0
    for one in args:
        if type(one) in _PLAIN_TYPES or isinstance(one, (*ARRAY_LIKE, Value)):
            break
        parts = leaves(one, no_attributes)
        if len(parts) != 1 or parts[0] is not one:
            break
        count += 1
    return args[:count]


def is_flat(
    places: Collection[int], args: tuple[Any, ...], named: dict[str, Any], receivers: int = 0
) -> bool:
    """Return whether all arguments after receivers are distinct arrays or numbers at ``places``."""
    alone = not named and len(set(map(id, args))) == len(args)
    rest = list(enumerate(args))[receivers:]
    # ``places`` are indices of leaves: after a pytree they are not indices of arguments.
    numbers = {k for k in places if k < len(args) and type(args[k]) in (int, float)}
    return alone and all(type(a) is ndarray or k in numbers for k, a in rest)


def static_values(args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Return the static values by path; -0.0, 0.0, 0 and False are four values."""
    found = {
        path: _static_value(leaf)
        for path, leaf in _unique_paths(paths((args, named), rule=no_attributes))
        if not is_input(leaf)
    }
    for path, value in _unique_paths(extras_in((args, named), rule=no_attributes)):
        found[f"{path}, an attribute"] = _static_value(value)
    return found


def _static_value(thing: Any) -> Any:
    if type(thing) is int:
        return int, thing
    return repr(thing) if type(thing) in _PLAIN_TYPES else _Identity(thing)


def replaced_argument(earlier: Iterable[dict[str, Any]], static: dict[str, Any]) -> str | None:
    """Return the path of an argument that was another object in each earlier call, or None.

    Args:
        earlier: The static values of earlier calls.
        static: Those of this call.

    >>> old, new = static_values((object(),), {}), static_values((object(),), {})
    >>> replaced_argument([old], new)
    'argument [0]'
    """
    for path, value in static.items():
        if isinstance(value, _Identity) and all(one.get(path) != value for one in earlier):
            return f"argument {path.removeprefix('[0]').removeprefix('[1]')}"
    return None


def _unique_paths(found: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Make paths unique: two keys of a dictionary may be written alike."""
    known: dict[str, int] = {}
    for path, leaf in found:
        count = known[path] = known.get(path, 0) + 1
        yield path if count == 1 else f"{path}, the {count}th", leaf


def refuse_unhashable(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    """Raise DTypeError for an argument that is neither an array nor hashable."""
    try:
        given = [*paths(list(args), rule=no_attributes), *paths(named, rule=no_attributes)]
    except Exception:  # an untrusted container: the run will show whether that matters
        return
    for path, leaf in given:
        if type(leaf).__hash__ is None and not issubclass(type(leaf), ARRAYS):
            raise DTypeError(
                f"compile: argument {path} is {describe_type(leaf)}, which is neither an array "
                "nor hashable; pass arrays, numbers or strings, or let the function close over it"
            )


def same_variable_kinds(traced: Any, seen: Any) -> bool:
    """Return whether the Variables in two results are of the same kinds."""
    return variable_kinds(traced) == variable_kinds(seen)


def variable_kinds(tree: Any) -> list[Any]:
    """Return the kind of each Variable among leaves; for other leaves, whether they have axes.

    An array without axes may be a NumPy scalar instead.
    """
    return list(map(_variable_kind, leaves(tree)))


def _variable_kind(leaf: Any) -> Any:
    if not isinstance(leaf, Value):
        return isinstance(leaf, (*ARRAYS, Symbol)) and leaf.ndim > 0
    mark = leaf._recording
    return mark if isinstance(mark, Mark) else "tape"


# ------------------------------------------------------------------ alias analysis of results


def _shares_memory(result: Any, given: list[Any]) -> bool:
    """Return whether a leaf of a result may alias one of some arrays."""
    found = [array_of(leaf) for leaf in leaves(result)]
    own = [array for array in map(array_of, given) if type(array) in ARRAYS]
    arrays = [array for array in found if type(array) in ARRAYS and array.size]
    return any(may_alias(array, own) for array in arrays)


def aliases_states(result: Any, graph: Graph) -> bool:
    """Return whether a result aliases data or the gradient of a state, and so shows later writes.

    In a graph ``w.detach()`` after a write is the written value, of which a program makes a copy.
    The question is asked right after a run, as an optimizer's first step moves its parameters.
    """
    variables = [state.variable for state in graph.states]
    own = set(map(id, variables))
    rest = [leaf for leaf in leaves(result) if id(leaf) not in own]
    # What shares memory on a device is copied before it is written; see ``copy_on_write``.
    if _shares_memory(rest, [v for v in variables if backend_of(v._array) is None]):
        return True
    infos = [s.variable._info for s in graph.states if s.field == "grad"]
    grads = [info.grad for info in infos if info]
    rows = [g for g in grads if type(g) is SparseRows]
    left = [*grads, *[part for g in rows for part in (g.indices, g.values)]]
    returned = set(map(id, rest))  # a view of one that is returned itself is a view of that leaf
    return _shares_memory(rest, [grad for grad in left if id(grad) not in returned])


def input_alias_refusal(result: Any, given: list[Any]) -> str | None:
    """Return why aliases of inputs in a result forbid a program for all sizes, or None."""
    if _shares_memory(leaves(result), given):
        return "it returns an argument, or a view of one"
    return None


def alias_refusal(result: Any, graph: Graph | None, aliases: ResultAliases) -> str | None:
    """Return why aliases of inputs or states in a result forbid a program; None if none does.

    Args:
        result: The result of a run.
        graph: The graph of a trace.
        aliases: The aliases of inputs, and of leaves among one another.
    """
    if aliases.refusal is None and graph is not None and aliases_states(result, graph):
        return "it returns a view of a Variable's array"
    return aliases.refusal


def fill_specs(tree: Any) -> Any:
    """Return a tree with an array for each spec; a tree that cannot be read is left as it is."""
    try:
        return map_tree(_fill_spec, tree, rule=no_attributes)
    except OdysseyError:  # a container that holds itself
        return tree


def _fill_spec(leaf: Any) -> Any:
    # Pages of zeros that are not touched take no memory.
    return np.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, Spec) else leaf

"""Trees: nests of dicts, lists, tuples, named tuples and dataclasses, seen as lists of leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any

import numpy as np

from odyssey.checks import describe_type
from odyssey.errors import OdysseyError, ShapeError
from odyssey.tree_rebuild import (
    attributes,
    extra_attributes,
    field_names,
    namedtuple_fields,
    rebuild_container,
)

__all__ = [
    "children_of",
    "containers",
    "extras_in",
    "flatten",
    "leaf_type",
    "leaves",
    "like",
    "map_tree",
    "paths",
    "ravel",
    "replace_containers",
    "same_tree",
    "unflatten",
]

# Each container takes a call or two, and Python allows a thousand by default, which are not all
# ours. Nobody's parameters are nested so deep; what is deeper usually holds itself.
_MAX_DEPTH = 200


# ------------------------------------------------------------------ one container


_PLAIN = dict, list, tuple  # which have no attributes
# What most leaves are: to find out that they are no container took most of the time of a walk.
_LEAVES: set[type] = {np.ndarray, np.float64, np.float32, float, int, bool, complex, type(None)}


def leaf_type(kind: type) -> None:
    """Know the instances of a class, itself and not of those made from it, as leaves."""
    _LEAVES.add(kind)


def _children(node: Any) -> list[Any] | None:
    """The children of a container, or None for a leaf. Dictionaries keep their order."""
    if type(node) in _LEAVES:
        return None
    if isinstance(node, dict):
        return list(node.values())
    if isinstance(node, (list, tuple)):
        return list(node)
    if hasattr(type(node), "__dataclass_fields__"):
        return [getattr(node, name) for name in field_names(node)]
    return None


def _keys(node: Any) -> list[Any]:
    """Return the keys, indices or field names of a container's children, in order."""
    if isinstance(node, dict):
        return list(node)
    if isinstance(node, (list, tuple)):
        return list(namedtuple_fields(node) or range(len(node)))
    return field_names(node)


def _path_steps(node: Any) -> list[str]:
    """The ways to the children, as Python writes them."""
    if isinstance(node, dict):
        return [f"[{key!r}]" for key in node]
    if isinstance(node, (list, tuple)) and not namedtuple_fields(node):
        return [f"[{i}]" for i in range(len(node))]
    return [f".{name}" for name in _keys(node)]


def _is_record(node: Any) -> bool:
    """Whether the children of a container are its attributes."""
    if isinstance(node, tuple):
        return bool(namedtuple_fields(node))
    return not isinstance(node, (dict, list))


# ------------------------------------------------------------------ all leaves


def containers(tree: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield each container with all that it holds: names, children, and attributes of its own."""
    children = _children(tree)
    if children is None:
        return
    names = list(tree) if isinstance(tree, dict) else []  # others are called the same in each run
    yield tree, [*names, *children, *chain.from_iterable(attributes(tree))]
    for child in children:
        yield from containers(child)


def children_of(node: Any) -> tuple[list[Any], list[Any]]:
    """Return the keys of a container's children, and the children."""
    return _keys(node), _children(node) or []


def extras_in(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each attribute of a container that is no child of it, with its path."""
    children = _children(tree)
    if children is None:
        return
    if type(tree) not in _PLAIN:
        for name, value in extra_attributes(tree):
            yield f"{prefix}.{name}", value
    if _LEAVES.issuperset(map(type, children)):
        return
    for step, child in zip(_path_steps(tree), children, strict=True):
        yield from extras_in(child, prefix + step)


def paths(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its path.

    Raises:
        OdysseyError: for a tree that holds itself, or is hundreds of containers deep.

    >>> list(paths({"w": [1, 2]}))
    [("['w'][0]", 1), ("['w'][1]", 2)]
    """
    return iter(_collect(tree, _append_paths, prefix))


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of ``tree`` in order."""
    children = list(tree.values()) if type(tree) is dict else _children(tree)
    if children is None:
        return [tree]
    # The commonest tree, one container, spelled out: a third of the time.
    return (
        children
        if _LEAVES.issuperset(map(type, children))
        else _collect(tree, _append_leaves, None)
    )


def _collect(tree: Any, find: Callable[..., None], prefix: Any) -> list[Any]:
    found: list[Any] = []
    try:
        find(tree, found, prefix, _MAX_DEPTH)
    except RecursionError as error:
        raise _cyclic_tree_error(tree, error) from None
    return found


def _append_leaves(node: Any, found: list[Any], prefix: None, left: int) -> None:
    children = _children(node)
    if children is None:
        found.append(node)
        return
    if not left:
        raise RecursionError
    if _LEAVES.issuperset(map(type, children)):
        found += children
        return
    for child in children:
        if type(child) in _LEAVES:
            found.append(child)
        else:
            _append_leaves(child, found, prefix, left - 1)


def _append_paths(node: Any, found: list[tuple[str, Any]], prefix: str, left: int) -> None:
    children = _children(node)
    if children is None:
        found.append((prefix, node))
        return
    if not left:
        raise RecursionError
    for step, child in zip(_path_steps(node), children, strict=True):
        _append_paths(child, found, prefix + step, left - 1)


def _cyclic_tree_error(tree: Any, error: RecursionError | None = None) -> Exception:
    """The error for a tree that has no end, or hardly one; ``error`` where it is neither."""
    depth = _depth(tree)
    if depth is not None and depth <= _MAX_DEPTH and error is not None:
        return error  # the stack was nearly full when we were called
    which = "holds itself" if depth is None else f"is deeper than {_MAX_DEPTH} containers"
    return OdysseyError(
        f"a tree, which is {describe_type(tree)}, {which}; pass a nest of dicts, lists, tuples "
        "and dataclasses that ends"
    )


def _depth(tree: Any) -> int | None:
    """How many containers are in one another; None for a tree that holds itself."""
    above: set[int] = set()  # the containers that we are in
    done: set[int] = set()
    todo, deepest = [(tree, False)], 0
    while todo:
        node, left = todo.pop()
        if left:
            above.discard(id(node))
            done.add(id(node))
        elif id(node) in above:
            return None
        elif id(node) not in done and (children := _children(node)):
            above.add(id(node))
            deepest = max(deepest, len(above))
            todo.append((node, True))
            todo += [(child, False) for child in children]
    return deepest


def unflatten(tree: Any, values: list[Any]) -> Any:
    """Return a tree of the shape of ``tree`` with ``values`` as its leaves.

    Dictionaries, lists and tuples of classes of their own keep these, and what else they hold;
    dataclasses are made anew, without their constructors.

    Raises:
        OdysseyError: when there are more or fewer values than leaves.
    """
    # The commonest container, spelled out: half the time.
    usual = type(tree) is dict and 0 < len(tree) == len(values)
    if usual and _LEAVES.issuperset(map(type, tree.values())):
        return dict(zip(tree, values, strict=True))
    children = _children(tree)
    if children and len(children) == len(values) and _LEAVES.issuperset(map(type, children)):
        return rebuild_container(tree, list(values))
    supply = iter(values)
    try:
        result = _rebuild_tree(tree, supply, _MAX_DEPTH)
    except _TooFewError:
        raise OdysseyError(f"unflatten: {len(values)} values are too few for this tree") from None
    if next(supply, _MISSING) is not _MISSING:
        raise OdysseyError(f"unflatten: {len(values)} values are too many for this tree")
    return result


_MISSING = object()


class _TooFewError(Exception):
    pass


# No closure of ``unflatten``: one that calls itself is a cycle, and would keep the values alive.
def _rebuild_tree(node: Any, supply: Iterator[Any], left: int) -> Any:
    children = _children(node)
    if children is not None:
        if not left:
            raise _cyclic_tree_error(node)
        return rebuild_container(
            node, [_rebuild_tree(child, supply, left - 1) for child in children]
        )
    value = next(supply, _MISSING)
    if value is _MISSING:
        raise _TooFewError
    return value


def flatten(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the leaves of ``tree`` and a function that puts new leaves in their places."""
    return leaves(tree), lambda values: unflatten(tree, values)


def like(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the leaves of a tree, and a function that rebuilds it from as many values.

    Later changes of ``tree`` do not affect that function.

    >>> leaves, again = like({"w": 1, "b": 2})
    >>> again([10, 20])
    {'w': 10, 'b': 20}
    """
    kind = type(tree)
    # Fast path for the commonest containers: a third of the time.
    if kind is dict and _LEAVES.issuperset(map(type, tree.values())):
        return list(tree.values()), partial(_rebuild_plain_dict, tuple(tree))
    if kind in _LEAVES:
        return [tree], _single_leaf
    found = leaves(tree)
    return found, partial(unflatten, unflatten(tree, found))


def _rebuild_plain_dict(names: tuple[Any, ...], values: list[Any]) -> dict[Any, Any]:
    return dict(zip(names, values, strict=True))


def _single_leaf(values: list[Any]) -> Any:
    (value,) = values
    return value


# ------------------------------------------------------------------ two trees


def same_tree(who: str, what: str, tree: Any, given: Any, where: str = "") -> list[Any]:
    """The leaves of ``given``, a tree like ``tree``, in the order of those of ``tree``.

    Dictionaries go by key, not by order: two orders of the same names would pair the wrong arrays.

    Args:
        who: For the message, as ``what`` is.
        what: What the leaves of ``given`` are.
        tree: Any tree.
        given: A tree with the same containers; a list of numbers may stand for an array.
        where: The path of ``tree`` in a larger one.

    Raises:
        ShapeError: where the trees differ.

    >>> same_tree("example", "gradients", {"w": 1, "b": 2}, {"b": 20, "w": 10})
    [10, 20]
    """
    found: list[Any] = []
    try:
        _match_leaves(tree, given, (), found, _MAX_DEPTH)
    except _DifferError as error:
        where += _format_path(error.args)
        raise ShapeError(
            f"{who}: the {what} came as a tree of {len(leaves(given))} leaves for one of "
            f"{len(leaves(tree))}; the trees differ at {where or 'the root'}"
        ) from None
    except RecursionError as error:
        raise _cyclic_tree_error(tree, error) from None
    return found


class _DifferError(Exception):
    pass


def _format_path(where: Any) -> str:
    """The path of a place: the place above, the container there, and the key in it."""
    path = ""
    while where:
        where, node, key = where
        keys = _keys(node)
        path = (_path_steps(node)[keys.index(key)] if key in keys else f"[{key!r}]") + path
    return path


def _match_leaves(node: Any, given: Any, where: Any, found: list[Any], left: int) -> None:
    """Find what stands in ``given`` where ``node`` has its leaves."""
    children = _children(node)
    if children is None:
        if _children(given) is not None and type(given) not in (list, tuple):
            raise _DifferError(*where)
        found.append(given)
        return
    others = _children(given)
    if others is None:
        raise _DifferError(*where)
    if not left:
        raise RecursionError
    keys = _keys(node)
    if _is_record(node) != _is_record(given):
        raise _DifferError(where, node, keys[0] if keys else 0)
    by_key = dict(zip(_keys(given), others, strict=True))
    if odd := by_key.keys() ^ set(keys):
        raise _DifferError(where, node if odd & set(keys) else given, min(odd, key=str))
    for key, child in zip(keys, children, strict=True):
        _match_leaves(child, by_key[key], (where, node, key), found, left - 1)


def map_tree(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply ``fn`` to the corresponding leaves of trees of one structure.

    >>> map_tree(lambda a, b: a + b, {"w": 1, "b": (2, 3)}, {"w": 10, "b": (20, 30)})
    {'w': 11, 'b': (22, 33)}
    """
    columns = [leaves(tree), *(same_tree("map_tree", "leaves", tree, o) for o in others)]
    return unflatten(tree, [fn(*row) for row in zip(*columns, strict=True)])


def replace_containers(tree: Any, replacement: Callable[[Any], Any]) -> Any:
    """Return ``tree`` with other leaves or containers in the place of some of its containers.

    Args:
        tree: A tree that ends; see ``leaves``.
        replacement: Called with each container, outer ones first; None keeps it.
    """
    children = _children(tree)
    if children is None:
        return tree
    other = replacement(tree)
    if other is not None:
        return other
    others = [replace_containers(child, replacement) for child in children]
    if all(new is old for new, old in zip(others, children, strict=True)):
        return tree
    return rebuild_container(tree, others)


# ------------------------------------------------------------------ one vector


def ravel(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the elements of all leaves in one vector, and the function that goes back.

    Both are differentiable: gradients flow through the vector to Variables of the tree, and from
    the tree that ``unravel`` returns to the vector.

    Args:
        tree: Arrays, Variables and numbers in any tree.

    Returns:
        ``(vector, unravel)``. ``vector`` has the dtype to which NumPy promotes all leaves, (n,); it
        is a Variable if a leaf is one. ``unravel(vector)`` returns a tree like ``tree``, with the
        shapes and dtypes of its leaves: of Variables for a Variable, else of new arrays, and of
        Python numbers where the tree had these.

    Raises:
        DTypeError: for a leaf that is not an array of numbers; the message has its path.
        ShapeError: by ``unravel``, for a vector of another length.

    >>> vector, unravel = od.tree.ravel({"w": np.array([[1.0, 2.0]]), "b": 3.0})
    >>> vector
    array([1., 2., 3.])
    >>> unravel(10.0 * vector)
    {'w': array([[10., 20.]]), 'b': 30.0}
    """
    result: tuple[Any, Callable[[Any], Any]] = import_module("odyssey.flat_vector").ravel_tree(tree)
    return result


def __dir__() -> list[str]:
    return sorted(__all__)

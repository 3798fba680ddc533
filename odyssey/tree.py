"""Trees: nests of dicts, lists, tuples, dataclasses and plain objects, seen as lists of leaves.

A plain object is of a class that a user wrote in Python. It is a tree if one of its attributes is
an array or a Variable, or a container that holds one: these attributes are its children, in the
order of its ``__dict__`` and then of its slots. Its other attributes are no leaves. A tree that is
made of it is a copy with the same other attributes; the constructor of the class does not run.
``od.tree.leaf_type(kind)`` makes the objects of a class leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from itertools import chain
from typing import Any

from odyssey.checks import describe_type
from odyssey.errors import OdysseyError, ShapeError
from odyssey.tree_objects import (
    LEAF_TYPES,
    AttributeRule,
    array_attributes,
    is_plain_class,
)
from odyssey.tree_rebuild import (
    attributes,
    extra_attributes,
    field_names,
    namedtuple_fields,
    rebuild_container,
)

__all__ = [
    "below_objects",
    "children_of",
    "containers",
    "extras_in",
    "extras_of",
    "flatten",
    "leaf_type",
    "leaves",
    "like",
    "map_tree",
    "paths",
    "ravel",
    "rebuild",
    "replace_containers",
    "same_tree",
    "unflatten",
]

# Each container takes a call or two, and Python allows a thousand by default, which are not all
# ours. Nobody's parameters are nested so deep; what is deeper usually holds itself.
_MAX_DEPTH = 200


# ------------------------------------------------------------------ one container


_PLAIN = dict, list, tuple  # which have no attributes
_LEAVES = LEAF_TYPES


def leaf_type(kind: type) -> None:
    """Know the instances of a class, itself and not of those made from it, as leaves."""
    _LEAVES.add(kind)


def _children(node: Any, rule: AttributeRule) -> list[Any] | None:
    """The children of a container, or None for a leaf. Dictionaries keep their order."""
    if type(node) in _LEAVES:
        return None
    if isinstance(node, dict):
        return list(node.values())
    if isinstance(node, (list, tuple)):
        return list(node)
    if hasattr(type(node), "__dataclass_fields__"):
        return [getattr(node, name) for name in field_names(node)]
    found = rule(node)
    return None if found is None else list(found.values())


def _object_names(node: Any, rule: AttributeRule) -> list[str] | None:
    """Return the attributes that are the children of a plain object; None for other containers."""
    if isinstance(node, _PLAIN) or hasattr(type(node), "__dataclass_fields__"):
        return None
    return list(rule(node) or ())


def _keys(node: Any, rule: AttributeRule) -> list[Any]:
    """Return the keys, indices or attributes of a container's children, in order."""
    if isinstance(node, dict):
        return list(node)
    if isinstance(node, (list, tuple)):
        return list(namedtuple_fields(node) or range(len(node)))
    names = _object_names(node, rule)
    return field_names(node) if names is None else names


def _path_steps(node: Any, rule: AttributeRule) -> list[str]:
    """The ways to the children, as Python writes them."""
    if isinstance(node, dict):
        return [f"[{key!r}]" for key in node]
    if isinstance(node, (list, tuple)) and not namedtuple_fields(node):
        return [f"[{i}]" for i in range(len(node))]
    return [f".{name}" for name in _keys(node, rule)]


def _is_record(node: Any) -> bool:
    """Whether the children of a container are its attributes."""
    if isinstance(node, tuple):
        return bool(namedtuple_fields(node))
    return not isinstance(node, (dict, list))


# ------------------------------------------------------------------ all leaves


def containers(
    tree: Any, rule: AttributeRule = array_attributes
) -> Iterator[tuple[Any, list[Any]]]:
    """Yield each container with all that it holds: names, children, and attributes of its own."""
    children = _children(tree, rule)
    if children is None:
        return
    names = list(tree) if isinstance(tree, dict) else []  # others are called the same in each run
    yield tree, [*names, *children, *chain.from_iterable(attributes(tree))]
    for child in children:
        yield from containers(child, rule)


def children_of(node: Any, rule: AttributeRule = array_attributes) -> tuple[list[Any], list[Any]]:
    """Return the keys of a container's children, and the children."""
    return _keys(node, rule), _children(node, rule) or []


def extras_of(node: Any, rule: AttributeRule = array_attributes) -> list[tuple[str, Any]]:
    """Return the attributes of a container that are no children of it, with their names."""
    return extra_attributes(node, _object_names(node, rule))


def extras_in(
    tree: Any, prefix: str = "", rule: AttributeRule = array_attributes
) -> Iterator[tuple[str, Any]]:
    """Yield each attribute of a container that is no child of it, with its path."""
    children = _children(tree, rule)
    if children is None:
        return
    if type(tree) not in _PLAIN:
        for name, value in extras_of(tree, rule):
            yield f"{prefix}.{name}", value
    if _LEAVES.issuperset(map(type, children)):
        return
    for step, child in zip(_path_steps(tree, rule), children, strict=True):
        yield from extras_in(child, prefix + step, rule)


def rebuild(node: Any, children: list[Any], rule: AttributeRule = array_attributes) -> Any:
    """Return a container like ``node`` of other children."""
    return rebuild_container(node, children, _object_names(node, rule))


def below_objects(tree: Any) -> list[bool]:
    """Return for each leaf whether it is below a plain object.

    >>> below_objects({"w": 1, "b": (2, 3)})
    [False, False, False]
    """
    found: list[bool] = []
    _append_below(tree, found, False)
    return found


def _append_below(node: Any, found: list[bool], below: bool) -> None:
    children = _children(node, array_attributes)
    if children is None:
        found.append(below)
        return
    if _LEAVES.issuperset(map(type, children)) and isinstance(node, _PLAIN):
        found += [below] * len(children)
        return
    below = below or _object_names(node, array_attributes) is not None
    for child in children:
        _append_below(child, found, below)


def paths(
    tree: Any, prefix: str = "", rule: AttributeRule = array_attributes
) -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its path.

    Raises:
        OdysseyError: for a tree that holds itself, or is hundreds of containers deep.

    >>> list(paths({"w": [1, 2]}))
    [("['w'][0]", 1), ("['w'][1]", 2)]
    """
    found: list[tuple[str, Any]] = []
    try:
        _append_paths(tree, found, prefix, _MAX_DEPTH, rule)
    except RecursionError as error:
        raise _cyclic_tree_error(tree, rule, error) from None
    return iter(found)


def leaves(tree: Any, rule: AttributeRule = array_attributes) -> list[Any]:
    """Return the leaves of ``tree`` in order.

    Args:
        tree: Any tree.
        rule: Returns for a plain object the attributes that are its children, or None for a leaf.
    """
    children = list(tree.values()) if type(tree) is dict else _children(tree, rule)
    if children is None:
        return [tree]
    # The commonest tree, one container, spelled out: a third of the time.
    if _LEAVES.issuperset(map(type, children)):
        return children
    found: list[Any] = []
    try:
        _append_leaves_of(children, found, _MAX_DEPTH, rule)
    except RecursionError as error:
        raise _cyclic_tree_error(tree, rule, error) from None
    return found


def _append_leaves_of(
    children: list[Any], found: list[Any], left: int, rule: AttributeRule
) -> None:
    """Append the leaves of the children of a container."""
    if not left:
        raise RecursionError
    if _LEAVES.issuperset(map(type, children)):
        found += children
        return
    for child in children:
        if type(child) in _LEAVES or (inner := _children(child, rule)) is None:
            found.append(child)
        else:
            _append_leaves_of(inner, found, left - 1, rule)


def _append_paths(
    node: Any, found: list[tuple[str, Any]], prefix: str, left: int, rule: AttributeRule
) -> None:
    children = _children(node, rule)
    if children is None:
        found.append((prefix, node))
        return
    if not left:
        raise RecursionError
    for step, child in zip(_path_steps(node, rule), children, strict=True):
        _append_paths(child, found, prefix + step, left - 1, rule)


def _cyclic_tree_error(
    tree: Any, rule: AttributeRule, error: RecursionError | None = None
) -> Exception:
    """The error for a tree that has no end, or hardly one; ``error`` where it is neither."""
    depth, cycle = _depth(tree, rule)
    if cycle is None and depth <= _MAX_DEPTH and error is not None:
        return error  # the stack was nearly full when we were called
    which = f"is deeper than {_MAX_DEPTH} containers"
    if cycle is not None:
        where, name = cycle
        which = f"holds itself: {name} is {where or 'the tree'} again"
    return OdysseyError(
        f"a tree, which is {describe_type(tree)}, {which}; pass a nest of dicts, lists, tuples, "
        "dataclasses and objects that ends"
    )


def _depth(tree: Any, rule: AttributeRule) -> tuple[int, tuple[str, str] | None]:
    """How many containers are in one another; and two paths of one, if it holds itself."""
    above: dict[int, str] = {}  # the containers that we are in, by id, and their paths
    done: set[int] = set()
    todo, deepest = [(tree, "", False)], 0
    while todo:
        node, path, left = todo.pop()
        if left:
            del above[id(node)]
            done.add(id(node))
        elif id(node) in above:
            return deepest, (above[id(node)], path)
        elif id(node) not in done and (children := _children(node, rule)):
            above[id(node)] = path
            deepest = max(deepest, len(above))
            todo.append((node, path, True))
            steps = _path_steps(node, rule)
            found = zip(steps, children, strict=True)
            todo += [(child, path + step, False) for step, child in found]
    return deepest, None


def unflatten(tree: Any, values: list[Any], rule: AttributeRule = array_attributes) -> Any:
    """Return a tree of the shape of ``tree`` with ``values`` as its leaves.

    Dictionaries, lists and tuples of classes of their own keep these, and what else they hold;
    dataclasses and plain objects are made anew, without their constructors.

    Args:
        tree: Any tree.
        values: A value for each of its leaves.
        rule: See ``leaves``.

    Raises:
        OdysseyError: when there are more or fewer values than leaves.
    """
    # The commonest container, spelled out: half the time.
    usual = type(tree) is dict and 0 < len(tree) == len(values)
    if usual and _LEAVES.issuperset(map(type, tree.values())):
        return dict(zip(tree, values, strict=True))
    children = _children(tree, rule)
    if children and len(children) == len(values) and _LEAVES.issuperset(map(type, children)):
        return rebuild_container(tree, list(values), _object_names(tree, rule))
    supply = iter(values)
    try:
        result = _rebuild_tree(tree, supply, _MAX_DEPTH, rule)
    except _TooFewError:
        raise OdysseyError(f"unflatten: {len(values)} values are too few for this tree") from None
    if next(supply, _MISSING) is not _MISSING:
        raise OdysseyError(f"unflatten: {len(values)} values are too many for this tree")
    return result


_MISSING = object()


class _TooFewError(Exception):
    pass


# No closure of ``unflatten``: one that calls itself is a cycle, and would keep the values alive.
def _rebuild_tree(node: Any, supply: Iterator[Any], left: int, rule: AttributeRule) -> Any:
    children = _children(node, rule)
    if children is not None:
        if not left:
            raise _cyclic_tree_error(node, rule)
        values = [_rebuild_tree(child, supply, left - 1, rule) for child in children]
        return rebuild_container(node, values, _object_names(node, rule))
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


def same_tree(
    who: str,
    what: str,
    tree: Any,
    given: Any,
    where: str = "",
    rule: AttributeRule = array_attributes,
) -> list[Any]:
    """The leaves of ``given``, a tree like ``tree``, in the order of those of ``tree``.

    Dictionaries go by key, not by order: two orders of the same names would pair the wrong arrays.

    Args:
        who: For the message, as ``what`` is.
        what: What the leaves of ``given`` are.
        tree: Any tree.
        given: A tree with the same containers; a list of numbers may stand for an array.
        where: The path of ``tree`` in a larger one.
        rule: See ``leaves``.

    Raises:
        ShapeError: where the trees differ.

    >>> same_tree("example", "gradients", {"w": 1, "b": 2}, {"b": 20, "w": 10})
    [10, 20]
    """
    found: list[Any] = []
    try:
        _match_leaves(tree, given, (), found, _MAX_DEPTH, rule)
    except _DifferError as error:
        where += _format_path(error.args)
    except RecursionError as error:
        raise _cyclic_tree_error(tree, rule, error) from None
    else:
        return found
    raise ShapeError(
        f"{who}: the {what} came as a tree of {len(leaves(given, rule))} leaves for one of "
        f"{len(leaves(tree, rule))}; the trees differ at {where or 'the root'}"
    )


class _DifferError(Exception):
    pass


def _format_path(where: Any) -> str:
    """The path of a place: the place above, the container there, and the key in it."""
    path = ""
    while where:
        where, node, key = where
        keys = _keys(node, array_attributes)
        steps = _path_steps(node, array_attributes)
        other = f".{key}" if _object_names(node, array_attributes) else f"[{key!r}]"
        path = (steps[keys.index(key)] if key in keys else other) + path
    return path


def _match_leaves(
    node: Any, given: Any, where: Any, found: list[Any], left: int, rule: AttributeRule
) -> None:
    """Find what stands in ``given`` where ``node`` has its leaves."""
    children = _children(node, rule)
    if children is None:
        if _children(given, rule) is not None and type(given) not in (list, tuple):
            raise _DifferError(*where)
        found.append(given)
        return
    keys = _keys(node, rule)
    by_key = _given_children(node, keys, given, rule)
    if by_key is None:
        raise _DifferError(*where)
    if not left:
        raise RecursionError
    if _is_record(node) != _is_record(given):
        raise _DifferError(where, node, keys[0] if keys else 0)
    if odd := by_key.keys() ^ set(keys):
        raise _DifferError(where, node if odd & set(keys) else given, min(odd, key=str))
    for key, child in zip(keys, children, strict=True):
        _match_leaves(child, by_key[key], (where, node, key), found, left - 1, rule)


def _given_children(
    node: Any, keys: list[Any], given: Any, rule: AttributeRule
) -> dict[Any, Any] | None:
    """Return the children of the counterpart of a container by key; None for a leaf."""
    if _object_names(node, rule) is not None and is_plain_class(type(given)):
        # An attribute that stands for an array may be None, say, as a gradient may be.
        more = rule(given) or {}
        return {name: v for name, v in attributes(given) if name in more or name in keys}
    others = _children(given, rule)
    if others is None:
        return None
    return dict(zip(_keys(given, rule), others, strict=True))


def map_tree(
    fn: Callable[..., Any], tree: Any, *others: Any, rule: AttributeRule = array_attributes
) -> Any:
    """Apply ``fn`` to the corresponding leaves of trees of one structure.

    >>> map_tree(lambda a, b: a + b, {"w": 1, "b": (2, 3)}, {"w": 10, "b": (20, 30)})
    {'w': 11, 'b': (22, 33)}
    """
    columns = [
        leaves(tree, rule),
        *(same_tree("map_tree", "leaves", tree, o, rule=rule) for o in others),
    ]
    return unflatten(tree, [fn(*row) for row in zip(*columns, strict=True)], rule)


def replace_containers(
    tree: Any, replacement: Callable[[Any], Any], rule: AttributeRule = array_attributes
) -> Any:
    """Return ``tree`` with other leaves or containers in the place of some of its containers.

    Args:
        tree: A tree that ends; see ``leaves``.
        replacement: Called with each container, outer ones first; None keeps it.
        rule: See ``leaves``.
    """
    children = _children(tree, rule)
    if children is None:
        return tree
    other = replacement(tree)
    if other is not None:
        return other
    others = [replace_containers(child, replacement, rule) for child in children]
    if all(new is old for new, old in zip(others, children, strict=True)):
        return tree
    return rebuild_container(tree, others, _object_names(tree, rule))


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

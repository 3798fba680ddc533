"""Trees: nests of dicts, lists, tuples, named tuples and dataclasses, seen as lists of leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from odyssey.errors import OdysseyError, ShapeError

__all__ = ["flatten", "leaves", "map_tree", "paths", "same_tree", "unflatten"]


def _children(node: Any) -> list[tuple[str, Any]] | None:
    """The named children of a container, or None for a leaf. Dictionaries keep their order."""
    if isinstance(node, dict):
        return [(f"[{key!r}]", value) for key, value in node.items()]
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return [(f".{key}", getattr(node, key)) for key in node._fields]
    if isinstance(node, (list, tuple)):
        return [(f"[{i}]", value) for i, value in enumerate(node)]
    if hasattr(type(node), "__dataclass_fields__"):
        return [(f".{name}", getattr(node, name)) for name in _field_names(node)]
    return None


def _rebuild(node: Any, values: list[Any]) -> Any:
    if isinstance(node, dict):
        same = dict(zip(node, values, strict=True))
        return same if type(node) is dict else type(node)(same)
    if isinstance(node, tuple) and hasattr(node, "_fields"):
        return type(node)(*values)
    if isinstance(node, (list, tuple)):
        return type(node)(values)
    from dataclasses import replace

    return replace(node, **dict(zip(_field_names(node), values, strict=True)))


def _field_names(node: Any) -> list[str]:
    # Imported where it is needed: it brings inspect along, a tenth of the package's import time.
    from dataclasses import fields

    return [field.name for field in fields(node)]


def paths(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each leaf with its path.

    >>> list(paths({"w": [1, 2]}))
    [("['w'][0]", 1), ("['w'][1]", 2)]
    """
    children = _children(tree)
    if children is None:
        yield prefix, tree
    else:
        for name, child in children:
            yield from paths(child, prefix + name)


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of ``tree`` in order."""
    return [leaf for _, leaf in paths(tree)]


def unflatten(tree: Any, values: list[Any]) -> Any:
    """Return a tree of the shape of ``tree`` with ``values`` as its leaves.

    Raises:
        OdysseyError: when there are more or fewer values than leaves.
    """
    supply = iter(values)
    try:
        result = _build(tree, supply)
    except _TooFewError:
        raise OdysseyError(f"unflatten: {len(values)} values are too few for this tree") from None
    if next(supply, _MISSING) is not _MISSING:
        raise OdysseyError(f"unflatten: {len(values)} values are too many for this tree")
    return result


_MISSING = object()


class _TooFewError(Exception):
    pass


# No closure of ``unflatten``: one that calls itself is a cycle, and would keep the values alive.
def _build(node: Any, supply: Iterator[Any]) -> Any:
    children = _children(node)
    if children is not None:
        return _rebuild(node, [_build(child, supply) for _, child in children])
    value = next(supply, _MISSING)
    if value is _MISSING:
        raise _TooFewError
    return value


def flatten(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """Return the leaves of ``tree`` and a function that puts new leaves in their places."""
    return leaves(tree), lambda values: unflatten(tree, values)


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
    try:
        return list(_beside(tree, given, where))
    except _DifferError as error:
        raise ShapeError(
            f"{who}: the {what} came as a tree of {len(leaves(given))} leaves for one of "
            f"{len(leaves(tree))}; the trees differ at {error.args[0] or 'the root'}"
        ) from None


class _DifferError(Exception):
    pass


def _beside(node: Any, given: Any, where: str) -> Iterator[Any]:
    """What stands in ``given`` where ``node`` has its leaves."""
    children, others = _children(node), _children(given)
    if children is None and (others is None or type(given) in (list, tuple)):
        yield given
        return
    if children is None or others is None:
        raise _DifferError(where)
    by_name = dict(others)
    odd = {name for name, _ in children} ^ by_name.keys()
    if odd:
        raise _DifferError(where + min(odd))
    for name, child in children:
        yield from _beside(child, by_name[name], where + name)


def map_tree(fn: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """Apply ``fn`` to the corresponding leaves of trees of one structure.

    >>> map_tree(lambda a, b: a + b, {"w": 1, "b": (2, 3)}, {"w": 10, "b": (20, 30)})
    {'w': 11, 'b': (22, 33)}
    """
    columns = [leaves(tree), *(same_tree("map_tree", "leaves", tree, o) for o in others)]
    return unflatten(tree, [fn(*row) for row in zip(*columns, strict=True)])

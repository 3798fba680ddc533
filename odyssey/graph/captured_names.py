"""Names of captured Variables, as the function's source writes them, and unique labels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from itertools import chain, count
from types import FunctionType, MethodType, ModuleType
from typing import Any

from odyssey.variable import Variable

__all__ = ["UniqueLabels", "captured_names", "captured_names_or_none"]

# A name, or the path of the container, "item" or "attribute", and the key. It is formatted for
# Variables alone: formatting the paths of all objects of a library took 0.2 s of a trace.
_Path = str | tuple[Any, str, Any]

_MAX_OBJECTS = 2000
"""The most objects that a search for names visits: names are for people only."""


def captured_names(fn: Any) -> dict[int, str]:
    """Return how ``fn`` writes each Variable that it reaches, by id: ``net.layers[0]['bias']``.

    >>> v = Variable(1.0)
    >>> captured_names({"layers": [v]})[v.id]
    "['layers'][0]"
    """
    names: dict[int, str] = {}
    visited: set[int] = set()
    # A queue, in order of distance, so that the shortest path wins.
    queue: deque[tuple[_Path, Any]] = deque([("", fn)])
    while queue and len(visited) < _MAX_OBJECTS:
        path, thing = queue.popleft()
        if isinstance(thing, Variable):
            if thing.id not in names:
                names[thing.id] = _format_path(path)
        elif id(thing) not in visited:
            visited.add(id(thing))
            queue.extend(_contents(path, thing))
    return names


def captured_names_or_none(fn: Any) -> dict[int, str]:
    """Return ``captured_names``; empty for an object that refuses to be inspected."""
    try:
        return captured_names(fn)
    except Exception:
        return {}


def _format_path(path: _Path) -> str:
    ends = []
    while not isinstance(path, str):
        path, kind, key = path
        ends.append(f"[{key!r}]" if kind == "item" else f".{key}" if path else key)
    return path + "".join(reversed(ends))


def _contents(path: _Path, thing: Any) -> Iterator[tuple[_Path, Any]]:
    """Yield the contents of a function, container or object with their paths."""
    if isinstance(thing, MethodType):
        yield "self", thing.__self__
        yield "", thing.__func__
    elif isinstance(thing, FunctionType):
        for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # an empty cell
                continue
        # The closure of a function of this package may hold the user's objects, its globals do not.
        is_users = not str(thing.__globals__.get("__name__")).startswith("odyssey.")
        for name in thing.__code__.co_names if is_users else ():
            if name in thing.__globals__:
                yield name, thing.__globals__[name]
        if (inner := getattr(thing, "__wrapped__", None)) is not None:
            yield "", inner
    elif isinstance(thing, partial):
        yield "", thing.func
        yield from ((name, value) for name, value in thing.keywords.items())
        yield from ((f"args[{k}]", value) for k, value in enumerate(thing.args))
    elif isinstance(thing, dict):
        yield from (((path, "item", key), value) for key, value in thing.items())
    elif isinstance(thing, (list, tuple)):
        yield from (((path, "item", k), value) for k, value in enumerate(thing))
    elif not isinstance(thing, (type, ModuleType)):
        attributes = getattr(thing, "__dict__", None)
        if type(attributes) is dict:
            yield from (((path, "attribute", name), v) for name, v in attributes.items())


class UniqueLabels:
    """Labels of Variables in a graph, no two alike.

    Attributes:
        names: The names of captured Variables by id, see ``captured_names``.
    """

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self._labels: dict[int, str] = {}
        self._used: set[str] = set()  # labels, and those of their gradients

    def label(self, variable: Any, field: str = "data") -> str:
        """Return a Variable's own name, or that in the function; with the field if it is "grad"."""
        if variable._id not in self._labels:
            name = variable.name or self.names.get(variable._id) or "unnamed"
            candidates = chain((name,), (f"{name}#{k}" for k in count(2)))
            label = next(c for c in candidates if self._used.isdisjoint((c, f"{c}.grad")))
            self._labels[variable._id] = label
            self._used |= {label, f"{label}.grad"}
        label = self._labels[variable._id]
        return label if field == "data" else f"{label}.{field}"

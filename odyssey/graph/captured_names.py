"""Names of captured Variables, as the function's source spells them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from odyssey.variable import Variable

__all__ = ["captured_names", "captured_names_or_none"]

# How something is spelled: a name, or how what holds it is spelled, and the key or the attribute.
# It is written out for Variables alone: to spell all that a library holds took 0.2 s of a trace.
_Path = str | tuple[Any, str, Any]

# Of what a function reaches only so much is looked at: names are for reading.
_MAX_OBJECTS = 2000


def captured_names(fn: Any) -> dict[int, str]:
    """How ``fn`` spells each Variable that it reaches, by id: ``w``, ``net.layers[0]['bias']``.

    >>> v = Variable(1.0)
    >>> captured_names({"layers": [v]})[v.id]
    "['layers'][0]"
    """
    found: dict[int, str] = {}
    seen: set[int] = set()
    waiting: deque[tuple[_Path, Any]] = deque(
        [("", fn)]
    )  # in order of distance, so that the shortest spelling wins
    while waiting and len(seen) < _MAX_OBJECTS:
        path, thing = waiting.popleft()
        if isinstance(thing, Variable):
            if thing.id not in found:
                found[thing.id] = _format_path(path)
        elif id(thing) not in seen:
            seen.add(id(thing))
            waiting.extend(_contents(path, thing))
    return found


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
    """Yield the contents of a function, container or object with their spelled paths."""
    if isinstance(thing, MethodType):
        yield "self", thing.__self__
        yield "", thing.__func__
    elif isinstance(thing, FunctionType):
        for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # an empty cell
                continue
        # Not into this package: what a transform closes over is the user's, its globals are not.
        theirs = not str(thing.__globals__.get("__name__")).startswith("odyssey.")
        for name in thing.__code__.co_names if theirs else ():
            if name in thing.__globals__:
                yield name, thing.__globals__[name]
        if (inner := getattr(thing, "__wrapped__", None)) is not None:
            yield "", inner
    elif isinstance(thing, partial):
        yield "", thing.func
        yield from ((name, part) for name, part in thing.keywords.items())
        yield from ((f"args[{k}]", part) for k, part in enumerate(thing.args))
    elif isinstance(thing, dict):
        yield from (((path, "item", key), part) for key, part in thing.items())
    elif isinstance(thing, (list, tuple)):
        yield from (((path, "item", k), part) for k, part in enumerate(thing))
    elif not isinstance(thing, (type, ModuleType)):
        held = getattr(thing, "__dict__", None)
        if type(held) is dict:
            yield from (((path, "attribute", name), v) for name, v in held.items())

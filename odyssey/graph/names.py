"""What a function calls the Variables that it captures, for reading its graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from odyssey.variable import Variable

__all__ = ["captured_names"]

# Of what a function reaches only so much is looked at: names are for reading.
_MOST = 2000


def captured_names(fn: Any) -> dict[int, str]:
    """How ``fn`` spells each Variable that it reaches, by id: ``w``, ``net.layers[0]['bias']``.

    >>> v = Variable(1.0)
    >>> captured_names({"layers": [v]})[v.id]
    "['layers'][0]"
    """
    found: dict[int, str] = {}
    seen: set[int] = set()
    waiting = deque([("", fn)])  # in order of distance, so that the shortest spelling wins
    while waiting and len(seen) < _MOST:
        path, thing = waiting.popleft()
        if isinstance(thing, Variable):
            found.setdefault(thing.id, path)
        elif id(thing) not in seen:
            seen.add(id(thing))
            waiting.extend(_parts(path, thing))
    return found


def _parts(path: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """What a function, a container or an object holds, each as it is spelled."""
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
        theirs = not str(thing.__module__).startswith("odyssey.")
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
        yield from ((f"{path}[{key!r}]", part) for key, part in thing.items())
    elif isinstance(thing, (list, tuple)):
        yield from ((f"{path}[{k}]", part) for k, part in enumerate(thing))
    elif not isinstance(thing, (type, ModuleType)):
        held = getattr(thing, "__dict__", None)
        if type(held) is dict:
            yield from ((f"{path}.{name}" if path else name, v) for name, v in held.items())

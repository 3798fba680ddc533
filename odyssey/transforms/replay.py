"""What a function reaches, and the random generators in it, put back to run it once more."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache, partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from odyssey.table.blocks import Block
from odyssey.table.value import Symbol, Value
from odyssey.tape import GradientTape

__all__ = [
    "generators_of",
    "is_generator",
    "names_in",
    "reachable",
    "same_states",
    "set_states",
    "states_of",
    "with_states",
]

_OPAQUE = (str, bytes, int, float, complex, np.ndarray, np.generic, type, ModuleType)
# Looking through a data set that somebody closes over would cost more than the function.
_MOST = 10_000


def generators_of(*roots: Any) -> list[Any]:
    """Find NumPy's random generators in what a function is given and what it is made of.

    A function that names ``random`` may mean ``np.random``, so that module counts as one.
    """
    return [thing for thing in reachable(*roots) if _is_numpys(thing)]


def _is_numpys(thing: Any) -> bool:
    # NumPy loads the module when it is first asked for, and before that there is none of its kinds.
    return "numpy.random" in sys.modules and (thing is np.random or isinstance(thing, _kinds()))


@cache
def _kinds() -> tuple[type, ...]:
    return np.random.Generator, np.random.RandomState, np.random.BitGenerator


def _is_standard(thing: Any) -> bool:
    """Whether this is a generator of the standard library, which need not be loaded."""
    random = sys.modules.get("random")
    return random is not None and isinstance(thing, random.Random)


def _standard() -> Any:
    """What the functions of the standard library's module draw from."""
    import random

    return random.random.__self__  # type: ignore[attr-defined]


def is_generator(thing: Any) -> bool:
    """Whether this draws random numbers by a state: NumPy's, or the standard library's."""
    if _is_standard(thing):
        return not isinstance(thing, sys.modules["random"].SystemRandom)
    return _is_numpys(thing)


def reachable(*roots: Any, but: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """Yield what a function is given and what it is made of, each thing once.

    Looks into containers, closures, defaults, the globals that a function names, bound methods,
    ``functools.partial`` and the attributes of objects; not into this package and NumPy.

    Args:
        roots: Where to begin.
        but: Of what it returns True for, neither the thing nor its parts are yielded.
    """
    waiting = list(roots)
    seen: dict[int, Any] = {}  # with the things, whose ids would else be given out again
    while waiting and len(seen) < _MOST:
        thing = waiting.pop()
        if id(thing) in seen or thing is None:
            continue
        seen[id(thing)] = thing
        if but is not None and but(thing):
            continue
        yield thing
        opaque = (*_OPAQUE, Value, Symbol, GradientTape)
        if not (is_generator(thing) or isinstance(thing, opaque)):
            waiting.extend(_parts(thing))


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (list, tuple, set, frozenset, deque)):
        return list(thing)
    if isinstance(thing, FunctionType):
        return _parts_of_function(thing)
    if isinstance(thing, MethodType):
        return [thing.__func__, thing.__self__]
    if isinstance(thing, BuiltinMethodType):
        return [thing.__self__]
    if isinstance(thing, partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    return list(getattr(thing, "__dict__", {}).values())


def _parts_of_function(function: FunctionType) -> list[Any]:
    parts = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    for cell in function.__closure__ or ():
        try:
            parts.append(cell.cell_contents)
        except ValueError:  # a name that was not bound yet
            continue
    if function.__module__ is None or function.__module__.split(".")[0] not in ("odyssey", "numpy"):
        known, names = function.__globals__, set(names_in(function.__code__))
        parts += [known[name] for name in names if name in known]
        # Its state is slow to take: 40 µs, so only where it may be in use.
        parts += [np.random, _standard()] if "random" in names else []
    return parts


def names_in(code: CodeType) -> Iterator[str]:
    """The names that a function's code, and that of the functions within, may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def states_of(generators: list[Any]) -> list[Any]:
    """Where each generator stands."""
    return [_state(generator) for generator in generators]


def _state(generator: Any) -> Any:
    if _is_standard(generator):
        return generator.getstate()
    if hasattr(generator, "get_state"):
        return generator.get_state(legacy=False)
    return deepcopy(getattr(generator, "bit_generator", generator).state)


def same_states(one: Any, other: Any) -> bool:
    """Whether two states that ``states_of`` gave of one generator are the same."""
    if isinstance(one, dict):
        return all(same_states(value, other[name]) for name, value in one.items())
    return np.array_equal(one, other) if isinstance(one, np.ndarray) else bool(one == other)


def set_states(generators: list[Any], states: list[Any]) -> None:
    """Put generators where ``states_of`` found them."""
    for generator, state in zip(generators, states, strict=True):
        _set(generator, state)


def _set(generator: Any, state: Any) -> None:
    if _is_standard(generator):
        generator.setstate(state)
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        getattr(generator, "bit_generator", generator).state = state


class with_states(Block):
    """Put generators back to where they stood for a block; afterwards they go on from here."""

    def __init__(self, generators: list[Any], states: list[Any]) -> None:
        super().__init__()
        self._generators = generators
        self._states = states

    def _begin(self, entry: list[Any]) -> None:
        entry[1] = states_of(self._generators)
        set_states(self._generators, self._states)

    def _end(self, entry: list[Any]) -> None:
        if entry[1] is not None:
            set_states(self._generators, entry[1])

"""What a function reaches, and the random generators in it, put back to run it once more."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import cache, partial
from gc import get_referents
from types import (
    BuiltinMethodType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any
from weakref import ref

import numpy as np

from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.table.scoped_exit import ScopedBlock
from odyssey.table.value import Symbol, Value
from odyssey.tape import GradientTape

__all__ = [
    "DICT_VIEWS",
    "MAX_REACHED",
    "dict_of_view",
    "enterable",
    "generators_of",
    "is_generator",
    "named_namespaces",
    "names_in_code",
    "reachable",
    "equal_generator_states",
    "restore_generator_states",
    "slot_value",
    "slot_descriptors",
    "generator_states",
    "with_generator_states",
]

_LEAF_TYPES = (str, bytes, int, float, complex, *ARRAY_LIKE, ModuleType)
_ATOMIC_TYPES = frozenset({type(None), bool, int, float, complex, str, bytes})
# Looking through a data set that somebody closes over would cost more than the function.
MAX_REACHED = 10_000

DICT_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
"""What shows a dictionary as it is by then."""

# Whose classes and modules hold nothing of the user's.
_LIBRARY_PACKAGES = sys.stdlib_module_names | {"numpy", "odyssey"}


def generators_of(*roots: Any) -> list[Any]:
    """Find NumPy's random generators in what a function is given and what it is made of.

    A function that names ``random`` may mean ``np.random``, so that module counts as one.
    """
    return [thing for thing in reachable(*roots) if _is_numpy_generator(thing)]


def _is_numpy_generator(thing: Any) -> bool:
    # NumPy loads the module when it is first asked for, and before that there is none of its kinds.
    return "numpy.random" in sys.modules and (
        thing is np.random or isinstance(thing, _numpy_generator_types())
    )


@cache
def _numpy_generator_types() -> tuple[type, ...]:
    return np.random.Generator, np.random.RandomState, np.random.BitGenerator


def _is_python_generator(thing: Any) -> bool:
    """Whether this is a generator of the standard library, which need not be loaded."""
    random = sys.modules.get("random")
    return random is not None and isinstance(thing, random.Random)


def _python_generator() -> Any:
    """What the functions of the standard library's module draw from."""
    import random

    return random.random.__self__  # type: ignore[attr-defined]


def is_generator(thing: Any) -> bool:
    """Whether this draws random numbers by a state: NumPy's, or the standard library's."""
    if _is_python_generator(thing):
        return not isinstance(thing, sys.modules["random"].SystemRandom)
    return _is_numpy_generator(thing)


def reachable(*roots: Any, but: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """Yield what a function is given and what it is made of, each thing once, numbers left out.

    Looks into containers, closures, defaults, the globals that a function names, and the attributes
    that it names of modules, bound methods, ``functools.partial``, the attributes and slots of
    objects and of their classes; not into this package, NumPy, and modules and classes of Python's
    own or that were installed, but for those of the packages that ``roots`` are from. It ends after
    ``FURTHEST`` things.

    Args:
        roots: Where to begin.
        but: Of what it returns True for, neither the thing nor its parts are yielded.
    """
    waiting = list(roots)
    enter = enterable(roots)
    seen: dict[int, Any] = {}  # with the things, whose ids would else be given out again
    while waiting and len(seen) < MAX_REACHED:
        thing = waiting.pop()
        if type(thing) in _ATOMIC_TYPES or id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if but is not None and but(thing):
            continue
        yield thing
        opaque = (*_LEAF_TYPES, Value, Symbol, GradientTape)
        if not (is_generator(thing) or isinstance(thing, opaque)):
            waiting.extend(referents(thing, enter))


def referents(thing: Any, enter: Callable[[Any], bool]) -> list[Any]:
    if isinstance(thing, FunctionType):
        return _function_referents(thing, enter)
    if isinstance(thing, type):
        return [*vars(thing).values(), *thing.__bases__] if enter(thing) else []
    if isinstance(thing, MethodType):
        return [thing.__func__, thing.__self__]
    if isinstance(thing, BuiltinMethodType):
        return [thing.__self__]
    if isinstance(thing, partial):
        return [thing.func, *thing.args, *thing.keywords.values()]
    kind = type(thing)
    # What objects of this package made for themselves, and make again.
    made = getattr(kind, "_derived_state", ())
    held = [slot_value(s, thing) for s in slot_descriptors(kind) if s.__name__ not in made]
    named = getattr(thing, "__dict__", {})
    held += [value for name, value in list(named.items()) if name not in made]
    return [*_container_items(thing), *held, kind]


def _container_items(thing: Any) -> list[Any]:
    if isinstance(thing, (dict, MappingProxyType)):
        return list(thing.values())
    if isinstance(thing, DICT_VIEWS):
        return dict_of_view(thing)
    if isinstance(thing, (list, tuple, set, frozenset, deque)):
        return list(thing)
    if isinstance(thing, property):
        return [thing.fget, thing.fset]
    if isinstance(thing, (staticmethod, classmethod)):
        return [thing.__func__]
    if isinstance(thing, memoryview):
        return [thing.obj]
    return [thing()] if isinstance(thing, ref) else []


def is_user_defined(thing: type | ModuleType) -> bool:
    """Whether a class or module is neither Python's own, nor NumPy's, nor of this package."""
    return package_of(thing) not in _LIBRARY_PACKAGES


def package_of(thing: Any) -> str:
    """The package that a module, a class, a function, or the class of an object is from."""
    if isinstance(thing, ModuleType):
        home = thing.__name__
    else:
        whole = thing if isinstance(thing, (type, FunctionType, MethodType)) else type(thing)
        home = whole.__module__
    return str(home).partition(".")[0]


def enterable(roots: Sequence[Any]) -> Callable[[Any], bool]:
    """Whether to look into a class or module, of what can be reached from ``roots``.

    Into what users wrote, and into an installed package only if a root is from there: it may be
    large, and what it does to itself is its own affair.
    """
    homes = {package_of(thing) for root in roots for thing in (root, *_wrapped_callables(root))}
    return lambda thing: (
        is_user_defined(thing)
        and (package_of(thing) in homes or not _is_installed(package_of(thing)))
    )


def _wrapped_callables(root: Any) -> list[Any]:
    if isinstance(root, partial):
        return [root.func]
    return _container_items(root)


@cache
def _is_installed(package: str) -> bool:
    """Whether a package lies where installers put what others wrote, which may be large."""
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def slot_descriptors(kind: type) -> list[Any]:
    """The descriptors of all ``__slots__`` of a class, but for those of this package."""
    makers = [b for b in kind.__mro__ if "__slots__" in vars(b) and package_of(b) != "odyssey"]
    return [v for m in makers for v in vars(m).values() if type(v) is MemberDescriptorType]


def dict_of_view(view: Any) -> list[Any]:
    """The dictionary that a view shows, ``d.values()`` for instance."""
    return [held for held in get_referents(view) if isinstance(held, dict)]


def slot_value(slot: Any, thing: Any, default: Any = None) -> Any:
    """What stands in a slot, or ``default`` where nothing does."""
    try:
        return slot.__get__(thing)
    except AttributeError:
        return default


def _function_referents(function: FunctionType, enter: Callable[[Any], bool]) -> list[Any]:
    parts = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    parts += function.__dict__.values()
    parts += _closure_values(function)
    if function.__module__ is None or function.__module__.split(".")[0] not in ("odyssey", "numpy"):
        for room, names in named_namespaces(function, enter):
            parts += [room[name] for name in names if name in room]
        # Its state is slow to take: 40 µs, so only where it may be in use.
        parts += (
            [np.random, _python_generator()] if "random" in names_in_code(function.__code__) else []
        )
    return parts


def _closure_values(function: FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # a name that was not bound yet
            continue
    return found


def named_namespaces(
    function: FunctionType, enter: Callable[[Any], bool]
) -> list[tuple[dict[str, Any], set[str]]]:
    """The names that a function's code may look up, and where: globals, and modules."""
    names = set(names_in_code(function.__code__))
    found: dict[int, dict[str, Any]] = {}
    rooms = [function.__globals__]
    # This package's own load their ops when these are first asked for.
    closed = [m for m in _closure_values(function) if isinstance(m, ModuleType)]
    rooms += [vars(m) for m in closed if package_of(m) != "odyssey"]
    while rooms:
        room = rooms.pop()
        if id(room) not in found:
            found[id(room)] = room
            things = [room[name] for name in names if name in room]
            rooms += [vars(m) for m in things if isinstance(m, ModuleType) and enter(m)]
    return [(room, names) for room in found.values()]


def names_in_code(code: CodeType) -> Iterator[str]:
    """The names that a function's code, and that of the functions within, may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in_code(constant)


def generator_states(generators: list[Any]) -> list[Any]:
    """Where each generator stands."""
    return [_generator_state(generator) for generator in generators]


def _generator_state(generator: Any) -> Any:
    if _is_python_generator(generator):
        return generator.getstate()
    if hasattr(generator, "get_state"):
        return generator.get_state(legacy=False)
    return deepcopy(getattr(generator, "bit_generator", generator).state)


def equal_generator_states(one: Any, other: Any) -> bool:
    """Whether two states that ``states_of`` gave of one generator are the same."""
    if isinstance(one, dict):
        return all(equal_generator_states(value, other[name]) for name, value in one.items())
    return np.array_equal(one, other) if isinstance(one, ARRAYS) else bool(one == other)


def restore_generator_states(generators: list[Any], states: list[Any]) -> None:
    """Put generators where ``states_of`` found them."""
    for generator, state in zip(generators, states, strict=True):
        _restore_generator(generator, state)


def _restore_generator(generator: Any, state: Any) -> None:
    if _is_python_generator(generator):
        generator.setstate(state)
    elif hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        getattr(generator, "bit_generator", generator).state = state


class with_generator_states(ScopedBlock):
    """Put generators back to where they stood for a block; afterwards they go on from here."""

    def __init__(self, generators: list[Any], states: list[Any]) -> None:
        super().__init__()
        self._generators = generators
        self._states = states

    def _begin(self, entry: list[Any]) -> None:
        entry[1] = generator_states(self._generators)
        restore_generator_states(self._generators, self._states)

    def _end(self, entry: list[Any]) -> None:
        if entry[1] is not None:
            restore_generator_states(self._generators, entry[1])

"""Reachability: the objects that a function reaches, and the random generators among them.

Checkpoints use it to run a function again from the same generator states; snapshots of traces, to
restore what a trace wrote to.
"""

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

from odyssey.checks import is_installed
from odyssey.devices.arrays import ARRAY_LIKE, ARRAYS
from odyssey.devices.stateful import TraceConstant
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

_LEAF_TYPES = (str, bytes, int, float, complex, ModuleType)
_ATOMIC_TYPES = frozenset({type(None), bool, int, float, complex, str, bytes})
# The most objects visited: a search through a data set in a closure would cost more than the call.
MAX_REACHED = 10_000

DICT_VIEWS: tuple[Any, ...] = (type({}.keys()), type({}.values()), type({}.items()))
"""The classes of views of dictionaries."""

# Packages whose classes and modules hold no objects of users.
_LIBRARY_PACKAGES = sys.stdlib_module_names | {"numpy", "odyssey"}


def generators_of(*roots: Any) -> list[Any]:
    """Find the NumPy random generators that some roots reach.

    A function that names ``random`` may mean ``np.random``, so that module counts as one.
    """
    return [thing for thing in reachable(*roots) if _is_numpy_generator(thing)]


def _is_numpy_generator(thing: Any) -> bool:
    # NumPy loads the module on first use; before that there are no generators.
    return "numpy.random" in sys.modules and (
        thing is np.random or isinstance(thing, _numpy_generator_types())
    )


@cache
def _numpy_generator_types() -> tuple[type, ...]:
    return np.random.Generator, np.random.RandomState, np.random.BitGenerator


def _is_python_generator(thing: Any) -> bool:
    """Return whether this is a generator of the standard library, without loading ``random``."""
    random = sys.modules.get("random")
    return random is not None and isinstance(thing, random.Random)


def _python_generator() -> Any:
    """Return the generator that the functions of ``random`` draw from."""
    import random

    return random.random.__self__  # type: ignore[attr-defined]


def is_generator(thing: Any) -> bool:
    """Return whether this is a random generator with a state, NumPy's or the standard library's."""
    if _is_python_generator(thing):
        return not isinstance(thing, sys.modules["random"].SystemRandom)
    return _is_numpy_generator(thing)


def reachable(*roots: Any, but: Callable[[Any], bool] | None = None) -> Iterator[Any]:
    """Yield the objects that some roots reach, each once, without numbers and strings.

    The traversal enters containers, closures, defaults, the globals that a function names, the
    attributes that it names of modules, bound methods, ``functools.partial``, and the attributes
    and slots of objects and of their classes. It does not enter this package, NumPy, the standard
    library, and installed packages, but for those that ``roots`` are from. It ends after
    ``MAX_REACHED`` objects.

    Args:
        roots: The objects to start from.
        but: Predicate for objects that are neither yielded nor entered.
    """
    waiting = list(roots)
    enter = enterable(roots)
    seen: dict[int, Any] = {}  # keeps the objects alive, so that ids stay unique
    while waiting and len(seen) < MAX_REACHED:
        thing = waiting.pop()
        if type(thing) in _ATOMIC_TYPES or id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if but is not None and but(thing):
            continue
        yield thing
        opaque = (*_LEAF_TYPES, *ARRAY_LIKE, Value, Symbol, GradientTape, TraceConstant)
        if not (is_generator(thing) or isinstance(thing, opaque)):
            waiting.extend(_referents(thing, enter))


def _referents(thing: Any, enter: Callable[[Any], bool]) -> list[Any]:
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
    # Caches that objects of this package rebuild.
    made = getattr(kind, "_derived_state", ())
    held = [slot_value(s, thing) for s in slot_descriptors(kind) if s.__name__ not in made]
    named = getattr(thing, "__dict__", None)
    if isinstance(named, (dict, MappingProxyType)):  # a __getattr__ may answer anything
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
    """Return whether a class or module is not of Python, NumPy or this package."""
    return _package_of(thing) not in _LIBRARY_PACKAGES


def _package_of(thing: Any) -> str:
    """Return the top-level package of a module, a class, a function, or an object's class."""
    if isinstance(thing, ModuleType):
        module = thing.__name__
    else:
        named = thing if isinstance(thing, (type, FunctionType, MethodType)) else type(thing)
        module = named.__module__
    return str(module).partition(".")[0]


def enterable(roots: Sequence[Any]) -> Callable[[Any], bool]:
    """Return a predicate: does a traversal from ``roots`` enter a class or module?

    It enters what users wrote; an installed package, which may be large, only if a root is from it.
    """
    homes = {_package_of(thing) for root in roots for thing in (root, *_wrapped_callables(root))}
    return lambda thing: (
        is_user_defined(thing)
        and (_package_of(thing) in homes or not is_installed(_package_of(thing)))
    )


def _wrapped_callables(root: Any) -> list[Any]:
    if isinstance(root, partial):
        return [root.func]
    return _container_items(root)


def slot_descriptors(kind: type) -> list[Any]:
    """Return the descriptors of all ``__slots__`` of a class, but for those of this package."""
    makers = [b for b in kind.__mro__ if "__slots__" in vars(b) and _package_of(b) != "odyssey"]
    return [v for m in makers for v in vars(m).values() if type(v) is MemberDescriptorType]


def dict_of_view(view: Any) -> list[Any]:
    """Return the dictionary behind a view such as ``d.values()``, in a list."""
    return [held for held in get_referents(view) if isinstance(held, dict)]


def slot_value(slot: Any, thing: Any, default: Any = None) -> Any:
    """Return the value of a slot, or ``default`` if it is empty."""
    try:
        return slot.__get__(thing)
    except AttributeError:
        return default


def _function_referents(function: FunctionType, enter: Callable[[Any], bool]) -> list[Any]:
    parts = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    parts += function.__dict__.values()
    parts += _closure_values(function)
    if function.__module__ is None or function.__module__.split(".")[0] not in ("odyssey", "numpy"):
        for namespace, names in named_namespaces(function, enter):
            parts += [namespace[name] for name in names if name in namespace]
        # Reading its state takes 40 µs, so only where it may be used.
        parts += (
            [np.random, _python_generator()] if "random" in names_in_code(function.__code__) else []
        )
    return parts


def _closure_values(function: FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # the cell is empty
            continue
    return found


def named_namespaces(
    function: FunctionType, enter: Callable[[Any], bool]
) -> list[tuple[dict[str, Any], set[str]]]:
    """Return the namespaces that a function reads by name, globals and modules, with the names."""
    names = set(names_in_code(function.__code__))
    found: dict[int, dict[str, Any]] = {}
    namespaces = [function.__globals__]
    # This package's own modules load ops on first use.
    closed = [m for m in _closure_values(function) if isinstance(m, ModuleType)]
    namespaces += [vars(m) for m in closed if _package_of(m) != "odyssey"]
    while namespaces:
        namespace = namespaces.pop()
        if id(namespace) not in found:
            found[id(namespace)] = namespace
            things = [namespace[name] for name in names if name in namespace]
            namespaces += [vars(m) for m in things if isinstance(m, ModuleType) and enter(m)]
    return [(namespace, names) for namespace in found.values()]


def names_in_code(code: CodeType) -> Iterator[str]:
    """Yield the names that a code object and nested ones may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in_code(constant)


def generator_states(generators: list[Any]) -> list[Any]:
    """Return the state of each generator."""
    return [_generator_state(generator) for generator in generators]


def _generator_state(generator: Any) -> Any:
    if _is_python_generator(generator):
        return generator.getstate()
    if hasattr(generator, "get_state"):
        return generator.get_state(legacy=False)
    return deepcopy(getattr(generator, "bit_generator", generator).state)


def equal_generator_states(one: Any, other: Any) -> bool:
    """Return whether two states of one generator are equal."""
    if isinstance(one, dict):
        return all(equal_generator_states(value, other[name]) for name, value in one.items())
    return np.array_equal(one, other) if isinstance(one, ARRAYS) else bool(one == other)


def restore_generator_states(generators: list[Any], states: list[Any]) -> None:
    """Set generators to states that ``generator_states`` returned."""
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
    """Block in which generators start from given states; afterwards they continue as before."""

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

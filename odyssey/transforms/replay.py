"""Running a function again as it ran before: random generators, and the proof that it did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from odyssey.ops.values import Symbol, Value
from odyssey.tape import GradientTape

__all__ = ["Print", "fingerprint", "generators_of", "same_print", "states_of", "with_states"]

# ------------------------------------------------------------------ random generators

_GENERATORS = (np.random.Generator, np.random.RandomState, np.random.BitGenerator)
_OPAQUE = (str, bytes, int, float, complex, np.ndarray, np.generic, type, ModuleType)
# Looking through a data set that somebody closes over would cost more than the function.
_MOST = 10_000


def generators_of(*roots: Any) -> list[Any]:
    """Find NumPy's random generators in what a function is given and what it is made of.

    Looks into containers, closures, defaults, the globals that a function names, bound methods,
    ``functools.partial`` and the attributes of objects; not into this package and NumPy. A
    function that names ``random`` may mean ``np.random``, so that module counts as one.
    """
    found: list[Any] = []
    waiting = list(roots)
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        thing = waiting.pop()
        if id(thing) in seen or thing is None:
            continue
        seen.add(id(thing))
        if isinstance(thing, _GENERATORS) or thing is np.random:
            found.append(thing)
        elif not isinstance(thing, (*_OPAQUE, Value, Symbol, GradientTape)):
            waiting.extend(_parts(thing))
    return found


def _parts(thing: Any) -> list[Any]:
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (list, tuple, set, frozenset)):
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
        known, names = function.__globals__, set(_names(function.__code__))
        parts += [known[name] for name in names if name in known]
        # Its state is slow to take: 40 µs, so only where it may be in use.
        parts += [np.random] if "random" in names else []
    return parts


def _names(code: CodeType) -> Iterator[str]:
    """The names that a function's code, and that of the functions within, may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def states_of(generators: list[Any]) -> list[Any]:
    """Where each generator stands."""
    return [
        g.get_state(legacy=False)
        if hasattr(g, "get_state")
        else deepcopy(getattr(g, "bit_generator", g).state)
        for g in generators
    ]


def _set(generator: Any, state: Any) -> None:
    if hasattr(generator, "set_state"):
        generator.set_state(state)
    else:
        getattr(generator, "bit_generator", generator).state = state


@contextmanager
def with_states(generators: list[Any], states: list[Any]) -> Iterator[None]:
    """Put generators back to where they stood for a block; afterwards they go on from here."""
    now = states_of(generators)
    for generator, state in zip(generators, states, strict=True):
        _set(generator, state)
    try:
        yield
    finally:
        for generator, state in zip(generators, now, strict=True):
            _set(generator, state)


# ------------------------------------------------------------------ the proof

_PIECES = 64
Print = tuple[Any, Any] | None


def fingerprint(data: Any) -> Print:
    """Sums of some pieces of an array, by which another run's result is known to be the same."""
    if isinstance(data, Symbol):
        return None
    flat = np.asarray(data).reshape(-1)
    if not flat.size:
        return None
    pieces = min(_PIECES, flat.size)
    starts = np.arange(pieces) * flat.size // pieces
    wide = np.complex128 if flat.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        sums = np.add.reduceat(flat, starts, dtype=wide)
        largest = max(abs(flat.real.max()), abs(flat.real.min()))
        if flat.dtype.kind == "c":
            largest = max(largest, abs(flat.imag.max()), abs(flat.imag.min()))
        # Rounding may differ by some units in the last place where threads split the work anew.
        tolerance = 256 * float(np.finfo(flat.dtype).eps) * (flat.size // pieces + 1) * largest
    return sums, tolerance


def same_print(old: Print, new: Print) -> bool:
    """Whether two fingerprints are those of one result, but for rounding."""
    if old is None or new is None:
        return True
    (sums, tolerance), (again, _) = old, new
    if not np.isfinite(tolerance):
        return bool((np.isfinite(sums) == np.isfinite(again)).all())
    return bool((abs(again - sums) <= tolerance).all())

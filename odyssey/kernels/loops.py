"""Loops over arrays, written in plain Python, that numba compiles when they are first called.

A kernel is a function of arrays and numbers, made of loops without objects::

    @loop
    def row_sums(x, out):
        for i in range(x.shape[0]):
            total = x.dtype.type(0)
            for j in range(x.shape[1]):
                total += x[i, j]
            out[i] = total

Parameters whose names begin with ``out`` are written to, the others only read. It is compiled for
the types that come, into code that is kept on disk: a cold compile takes 0.3 to 2 seconds, a warm
one milliseconds, and importing numba 0.4 seconds, once in a process that calls a loop. A loop may
call other loops of its file; those of another file it must not, for numba does not see that a
file changed from which it took machine code over.

Floating-point policy: IEEE, nothing is raised, 1/0 is inf; with ``reassociate`` sums may be taken
in another order, and a product and a sum be rounded once, but NaN and infinities stay. A loop runs
in the thread that calls it, and lets others run. Equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from types import FunctionType
from typing import Any, overload

import numpy as np

from odyssey.kernels import numba_module

__all__ = ["Loop", "loop"]

# What LLVM may do to sums so that they vectorize. NaN, infinities and divisions stay as they are.
_REASSOCIATE = frozenset({"reassoc", "nsz", "contract"})


class Loop:
    """A function of arrays and numbers, compiled for the types that it is called with."""

    def __init__(self, function: FunctionType, reassociate: bool = False) -> None:
        update_wrapper(self, function)
        self.function = function
        self.reassociate = reassociate
        code = function.__code__
        self._writes = [n.startswith("out") for n in code.co_varnames[: code.co_argcount]]
        self._entries: dict[tuple[Any, ...], Any] = {}
        self._made: Any = None

    def __repr__(self) -> str:
        return f"<loop {self.function.__qualname__}>"

    def __call__(self, *values: Any) -> Any:
        """Run it: on arrays, NumPy's numbers, and Python's.

        Arrays that are only read are copied where they have gaps.

        Raises:
            DeviceError: without numba.
        """
        given: list[Any] = []
        key: list[Any] = []
        for value, written in zip(values, self._writes, strict=True):
            kind: Any = type(value)
            if kind is np.ndarray:
                flags = value.flags
                if not (flags.c_contiguous and flags.aligned):
                    assert not written, f"{self}: an array with gaps to write to"
                    value = np.array(value, order="C")
                kind = value.dtype, value.ndim
            given.append(value)
            key.append(kind)
        entry = self._entries.get(tuple(key))
        if entry is None:
            entry = self._entries[tuple(key)] = self._compiled(given)
        return entry(*given)

    def _compiled(self, values: list[Any]) -> Any:
        """The machine code for such values, from the disk if it lies there."""
        numba = numba_module()
        types = numba.types
        # numba passes a writable array for a read-only parameter, but not the other way round.
        parameters = tuple(
            types.Array(numba.from_dtype(v.dtype), v.ndim, "C", readonly=not written)
            if type(v) is np.ndarray
            else numba.typeof(v)
            for v, written in zip(values, self._writes, strict=True)
        )
        if self._made is None:
            self._made = self.machine(cache=True)
        self._made.compile(parameters)
        return self._made.overloads[parameters].entry_point

    def machine(self, cache: bool) -> Any:
        """What numba makes of the function; loops that it calls are made as well."""
        numba = numba_module()
        function = self.function
        names = dict(function.__globals__)
        for name in function.__code__.co_names:
            if isinstance(names.get(name), Loop):
                names[name] = names[name].machine(cache=False)
        bound = FunctionType(function.__code__, names, function.__name__)
        bound.__qualname__, bound.__module__ = function.__qualname__, function.__module__
        settings = {"error_model": "numpy", "nogil": True}
        settings["fastmath"] = set(_REASSOCIATE) if self.reassociate else False
        if cache:
            try:
                return numba.njit(cache=True, **settings)(bound)
            except RuntimeError:  # nowhere to write: a package in an archive, a disk to read from
                pass
        return numba.njit(**settings)(bound)


@overload
def loop(function: Callable[..., Any], /) -> Loop: ...


@overload
def loop(*, reassociate: bool) -> Callable[[Callable[..., Any]], Loop]: ...


def loop(function: Any = None, /, *, reassociate: bool = False) -> Any:
    """Declare a kernel: a plain function of arrays and numbers becomes a ``Loop``.

    Args:
        function: The function, where no option is given.
        reassociate: Sums may be taken in another order, which lets them vectorize.

    >>> @loop
    ... def doubled(x, out):
    ...     for i in range(x.size):
    ...         out[i] = x[i] + x[i]
    >>> out = np.empty(3, np.float32)
    >>> doubled(np.arange(3, dtype=np.float32), out)
    >>> out
    array([0., 2., 4.], dtype=float32)
    """
    if function is None:
        return lambda function: Loop(function, reassociate)
    return Loop(function, reassociate)

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
file changed from which it took machine code over. ``scalars.select`` chooses without a branch.

Floating-point policy: IEEE, nothing is raised, 1/0 is inf; with ``reassociate`` sums may be taken
in another order, and with ``contract`` a product and a sum be rounded once, but NaN and infinities
stay. A loop runs in the thread that calls it, and lets others run. Equal inputs give equal bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from types import CellType, FunctionType
from typing import Any, overload

import numpy as np

from odyssey.kernels import numba_module
from odyssey.kernels.scalars import select

__all__ = ["ByDtype", "Loop", "fma", "loop"]

# What LLVM may do to sums so that they vectorize. NaN, infinities and divisions stay as they are.
_REASSOCIATE = frozenset({"reassoc", "nsz", "contract"})
_CONTRACT = frozenset({"contract"})


# Flags of arrays that loops read as they lie in memory: C-contiguous, and aligned.
_AS_IT_LIES = 0x0001 | 0x0100


class Loop:
    """A function of arrays and numbers, compiled for the types that it is called with."""

    def __init__(
        self, function: FunctionType, reassociate: bool = False, contract: bool = False
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self._flags = _REASSOCIATE if reassociate else _CONTRACT if contract else frozenset()
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
        key: list[Any] = []
        note = key.append
        for value in values:
            if type(value) is np.ndarray:
                if value.flags.num & _AS_IT_LIES != _AS_IT_LIES:
                    pairs = zip(values, self._writes, strict=True)
                    return self(*[self._without_gaps(*pair) for pair in pairs])
                note(value.dtype)
                note(value.ndim)
            else:
                note(type(value))
        entry = self._entries.get(tuple(key))
        if entry is None:
            entry = self._entries[tuple(key)] = self._compiled(list(values))
        return entry(*values)

    def _without_gaps(self, value: Any, written: bool) -> Any:
        """An array that is only read as it lies in memory, or a copy that does so."""
        if type(value) is not np.ndarray or value.flags.num & _AS_IT_LIES == _AS_IT_LIES:
            return value
        assert not written, f"{self}: an array with gaps to write to"
        return np.array(value, order="C")

    def entry(self, *values: Any) -> Any:
        """The machine code for values like these, without a look at what it is called with.

        It is for calls that are made again and again: arrays must have the dtypes and the axes of
        these, be C-contiguous and aligned, and live as long as they are used.
        """
        return self._compiled(list(values))

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
        # Another thread may make one as well: each asks the one that it compiled.
        made = self._made
        if made is None:
            made = self._made = self.machine(cache=True)
        made.compile(parameters)
        return made.overloads[parameters].entry_point

    def machine(self, cache: bool) -> Any:
        """What numba makes of the function; loops that it calls are made as well."""
        numba = numba_module()
        function = self.function
        names = dict(function.__globals__)
        for name in function.__code__.co_names:
            if name in names:
                names[name] = _machine_of(names[name])
        cells = tuple([CellType(_machine_of(c.cell_contents)) for c in function.__closure__ or ()])
        bound = FunctionType(function.__code__, names, function.__name__, None, cells)
        bound.__qualname__, bound.__module__ = function.__qualname__, function.__module__
        settings = {"error_model": "numpy", "nogil": True}
        settings["fastmath"] = set(self._flags)
        if cache:
            try:
                return numba.njit(cache=True, **settings)(bound)
            except RuntimeError:  # nowhere to write: a package in an archive, a disk to read from
                pass
        # A function that is called within a loop keeps it from vectorizing.
        return numba.njit(forceinline=not cache, **settings)(bound)


def _machine_of(value: Any) -> Any:
    """What stands for a global of a loop in its machine code."""
    if value is select or value is fma:
        return _intrinsic(value)
    return value.machine(cache=False) if isinstance(value, (Loop, ByDtype)) else value


class ByDtype:
    """A function of one number that is one loop for 32 bits and another for 64."""

    def __init__(self, name: str, of_dtype: Callable[[np.dtype[Any]], Loop]) -> None:
        self.name = name
        self.of_dtype = of_dtype
        self._stub: Any = None

    def __repr__(self) -> str:
        return f"<{self.name} in loops>"

    def __call__(self, x: Any) -> Any:
        """Raise: it stands for a number in compiled loops only."""
        raise AssertionError(f"{self!r}: called outside of a loop")

    def machine(self, cache: bool) -> Any:
        """A function that numba knows, for both dtypes."""
        if self._stub is None:
            both = [self.of_dtype(np.dtype(kind)).machine(cache=False) for kind in "fd"]

            def stub(x):  # type: ignore[no-untyped-def]
                pass

            def typed(x):  # type: ignore[no-untyped-def]  # numba wants what it names, and no more
                function = both[0] if x.bitwidth == 32 else both[1]
                return lambda x: function(x)

            options = {"forceinline": True}
            numba_module("extending").overload(stub, jit_options=options)(typed)
            self._stub = stub
        return self._stub


def fma(x: Any, y: Any, z: Any) -> Any:
    """``x * y + z``, rounded once; in compiled loops only.

    An instruction of nearly every processor of today; where it is none, a slow call.
    """
    raise AssertionError("fma: no function of Python's")


@lru_cache(maxsize=2)
def _intrinsic(function: Any) -> Any:
    """What LLVM has under a function's name."""
    boolean = numba_module("types").boolean

    # Of Python's ``a if c else b`` it makes a branch where a or b is dear.
    def chosen(context: Any, condition: Any, x: Any, y: Any) -> Any:
        common = context.unify_types(x, y)

        def choose(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            arms = zip(given[1:], signature.args[1:], strict=True)
            cast = [context.cast(builder, value, kind, common) for value, kind in arms]
            return builder.select(given[0], *cast)

        return common(boolean, x, y), choose

    def fused(context: Any, x: Any, y: Any, z: Any) -> Any:
        def multiply_and_add(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            return builder.fma(*given)

        return x(x, x, x), multiply_and_add

    return numba_module("extending").intrinsic(chosen if function is select else fused)


@overload
def loop(function: Callable[..., Any], /) -> Loop: ...


@overload
def loop(
    *, reassociate: bool = False, contract: bool = False
) -> Callable[[Callable[..., Any]], Loop]: ...


def loop(function: Any = None, /, *, reassociate: bool = False, contract: bool = False) -> Any:
    """Declare a kernel: a plain function of arrays and numbers becomes a ``Loop``.

    Args:
        function: The function, where no option is given.
        reassociate: Sums may be taken in another order, which lets them vectorize.
        contract: A product and a sum may be rounded once.

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
        return lambda function: Loop(function, reassociate, contract)
    return Loop(function)

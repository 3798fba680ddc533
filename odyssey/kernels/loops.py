"""Loops over arrays, written in Python and compiled by numba at their first call.

A kernel is a function of arrays and numbers, made of loops without objects::

    @loop
    def row_sums(x, out):
        for i in range(x.shape[0]):
            total = x.dtype.type(0)
            for j in range(x.shape[1]):
                total += x[i, j]
            out[i] = total

Parameters whose names begin with ``out`` are written, the others only read. A loop is compiled for
the types of its arguments, and the machine code is cached on disk: a cold compilation takes 0.3 to
2 seconds, a warm one milliseconds, and the import of numba 0.4 seconds, once in a process that
calls a loop. A loop may call other loops of its file, but none of another file: numba does not
notice that a file changed whose machine code it included. ``scalars.select`` chooses without a
branch.

Floating-point policy: IEEE, nothing is raised, 1/0 is inf. With ``reassociate`` sums may be taken
in another order, and with ``contract`` a product and a sum may be rounded once; NaN and infinities
are preserved. A loop runs in the thread that calls it and releases the GIL. Equal inputs give equal
bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from time import perf_counter
from types import CellType, FunctionType
from typing import Any, overload

import numpy as np

from odyssey.kernels import numba_module
from odyssey.kernels.first_compilation import tell_first_compilation
from odyssey.kernels.scalars import select

__all__ = ["ByDtype", "Loop", "bits_of_half", "fma", "loop", "value_of_half"]

# LLVM's fast-math flags that let sums vectorize. NaN, infinities and divisions are unaffected.
_REASSOCIATE = frozenset({"reassoc", "nsz", "contract"})
_CONTRACT = frozenset({"contract"})


# NumPy's flags of arrays that loops accept without a copy: C-contiguous and aligned.
_CONTIGUOUS = 0x0001 | 0x0100


class Loop:
    """Function of arrays and numbers, compiled for the types of its arguments."""

    def __init__(
        self, function: FunctionType, reassociate: bool = False, contract: bool = False
    ) -> None:
        update_wrapper(self, function)
        self.function = function
        self._flags = _REASSOCIATE if reassociate else _CONTRACT if contract else frozenset()
        code = function.__code__
        self._writes = [n.startswith("out") for n in code.co_varnames[: code.co_argcount]]
        self._entries: dict[tuple[Any, ...], Any] = {}
        self._direct: dict[tuple[Any, ...], Any] = {}
        self._dispatcher: Any = None

    def __repr__(self) -> str:
        return f"<loop {self.function.__qualname__}>"

    def __call__(self, *values: Any) -> Any:
        """Run the loop on arrays, NumPy scalars and Python numbers.

        Read-only arrays are copied if they are not contiguous.

        Raises:
            DeviceError: if numba is missing.
        """
        key: list[Any] = []
        key_append = key.append
        for value in values:
            if type(value) is np.ndarray:
                if value.flags.num & _CONTIGUOUS != _CONTIGUOUS:
                    pairs = zip(values, self._writes, strict=True)
                    return self(*[self._contiguous(*pair) for pair in pairs])
                key_append(value.dtype)
                key_append(value.ndim)
            else:
                key_append(type(value))
        entry = self._entries.get(tuple(key))
        if entry is None:
            entry = self._entries[tuple(key)] = self._compile_for(list(values))
        return entry(*values)

    def _contiguous(self, value: Any, written: bool) -> Any:
        """Return a read-only array if it is contiguous, else a contiguous copy."""
        if type(value) is not np.ndarray or value.flags.num & _CONTIGUOUS == _CONTIGUOUS:
            return value
        assert not written, f"{self}: an output array must be contiguous"
        return np.array(value, order="C")

    def entry(self, *values: Any) -> Any:
        """Return the machine code for values of these types, which does not check its arguments.

        For repeated calls: arrays must have the same dtypes and numbers of axes, be C-contiguous
        and aligned, and outlive the call.
        """
        key = tuple([(v.dtype, v.ndim) if type(v) is np.ndarray else type(v) for v in values])
        entry = self._direct.get(key)
        if entry is None:
            entry = self._direct[key] = self._compile_for(list(values))
        return entry

    def _compile_for(self, values: list[Any]) -> Any:
        """Return the machine code for the types of values, from the disk cache if possible."""
        begin = perf_counter()
        numba = numba_module()
        types = numba.types
        # numba accepts a writable array for a read-only parameter, but not the reverse.
        parameters = tuple(
            types.Array(numba.from_dtype(v.dtype), v.ndim, "C", readonly=not written)
            if type(v) is np.ndarray
            else numba.typeof(v)
            for v, written in zip(values, self._writes, strict=True)
        )
        # Another thread may create a dispatcher as well: each uses the one that it compiled.
        dispatcher = self._dispatcher
        if dispatcher is None:
            dispatcher = self._dispatcher = self.numba_function(cache=True)
        dispatcher.compile(parameters)
        if dispatcher.stats.cache_misses:  # there was no machine code on disk
            tell_first_compilation(self._description(), perf_counter() - begin)
        return dispatcher.overloads[parameters].entry_point

    def _description(self) -> str:
        """Return the name of the loop; of a generated one, what its file says it computes."""
        if self.function.__name__ != "elements":
            return self.function.__qualname__
        text = str(self.function.__globals__.get("__doc__") or self.function.__qualname__)
        return text.partition(", element by element")[0].replace("<lambda>", "an elementwise op")

    def numba_function(self, cache: bool) -> Any:
        """Return the function compiled by numba, and compile the loops that it calls."""
        numba = numba_module()
        function = self.function
        names = dict(function.__globals__)
        for name in function.__code__.co_names:
            if name in names:
                names[name] = _numba_global(names[name])
        cells = tuple(
            [CellType(_numba_global(c.cell_contents)) for c in function.__closure__ or ()]
        )
        bound = FunctionType(function.__code__, names, function.__name__, None, cells)
        bound.__qualname__, bound.__module__ = function.__qualname__, function.__module__
        settings = {"error_model": "numpy", "nogil": True}
        settings["fastmath"] = set(self._flags)
        if cache:
            try:
                return numba.njit(cache=True, **settings)(bound)
            except RuntimeError:  # no writable cache: a package in an archive, a read-only disk
                pass
        # A call within a loop keeps it from vectorizing: inline.
        return numba.njit(forceinline=not cache, **settings)(bound)


def _numba_global(value: Any) -> Any:
    """Return the numba object that replaces a global of a loop."""
    if any(value is one for one in (select, fma, value_of_half, bits_of_half)):
        return _intrinsic(value)
    return value.numba_function(cache=False) if isinstance(value, (Loop, ByDtype)) else value


class ByDtype:
    """Function of one number with one loop for 32 bits and another for 64."""

    def __init__(self, name: str, of_dtype: Callable[[np.dtype[Any]], Loop]) -> None:
        self.name = name
        self.of_dtype = of_dtype
        self._stub: Any = None

    def __repr__(self) -> str:
        return f"<{self.name} in loops>"

    def __call__(self, x: Any) -> Any:
        """Raise AssertionError: the function exists in compiled loops only."""
        raise AssertionError(f"{self!r}: called outside of a loop")

    def numba_function(self, cache: bool) -> Any:
        """Return a function that numba can call, overloaded for both dtypes."""
        if self._stub is None:
            both = [self.of_dtype(np.dtype(kind)).numba_function(cache=False) for kind in "fd"]

            def stub(x):  # type: ignore[no-untyped-def]
                pass

            def typed(x):  # type: ignore[no-untyped-def]  # numba requires this signature
                function = both[0] if x.bitwidth == 32 else both[1]
                return lambda x: function(x)

            options = {"forceinline": True}
            numba_module("extending").overload(stub, jit_options=options)(typed)
            self._stub = stub
        return self._stub


def fma(x: Any, y: Any, z: Any) -> Any:
    """Fused multiply-add, ``x * y + z`` rounded once; in compiled loops only.

    One instruction on nearly every current processor; a slow call elsewhere.
    """
    raise AssertionError("fma: called outside of a compiled loop")


def value_of_half(bits: Any) -> Any:
    """Return the float32 whose bits as float16 are given as uint16; in compiled loops only.

    One instruction for eight numbers on processors with F16C; elsewhere it may not link.
    """
    raise AssertionError("value_of_half: called outside of a compiled loop")


def bits_of_half(value: Any) -> Any:
    """Return the bits, as uint16, of a float32 rounded to float16; see ``value_of_half``."""
    raise AssertionError("bits_of_half: called outside of a compiled loop")


@lru_cache(maxsize=4)
def _intrinsic(function: Any) -> Any:
    """Return the LLVM intrinsic for ``select``, ``fma``, or a conversion of half precision."""
    types = numba_module("types")
    boolean = types.boolean
    if function is value_of_half or function is bits_of_half:
        return _conversion_of_half(function is value_of_half, types)

    # For Python's ``a if c else b`` LLVM emits a branch if a or b is expensive.
    def select_intrinsic(context: Any, condition: Any, x: Any, y: Any) -> Any:
        common = context.unify_types(x, y)

        def choose(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
            arms = zip(operands[1:], signature.args[1:], strict=True)
            cast = [context.cast(builder, value, kind, common) for value, kind in arms]
            return builder.select(operands[0], *cast)

        return common(boolean, x, y), choose

    def fma_intrinsic(context: Any, x: Any, y: Any, z: Any) -> Any:
        def multiply_and_add(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
            return builder.fma(*operands)

        return x(x, x, x), multiply_and_add

    return numba_module("extending").intrinsic(
        select_intrinsic if function is select else fma_intrinsic
    )


def _conversion_of_half(widens: bool, types: Any) -> Any:
    from llvmlite import ir

    def convert(context: Any, value: Any) -> Any:
        def convert_half(context: Any, builder: Any, signature: Any, operands: Any) -> Any:
            half = ir.HalfType()
            if widens:
                return builder.fpext(builder.bitcast(operands[0], half), ir.FloatType())
            return builder.bitcast(builder.fptrunc(operands[0], half), ir.IntType(16))

        signature = types.float32(types.uint16) if widens else types.uint16(types.float32)
        return signature, convert_half

    return numba_module("extending").intrinsic(convert)


@overload
def loop(function: Callable[..., Any], /) -> Loop: ...


@overload
def loop(
    *, reassociate: bool = False, contract: bool = False
) -> Callable[[Callable[..., Any]], Loop]: ...


def loop(function: Any = None, /, *, reassociate: bool = False, contract: bool = False) -> Any:
    """Declare a kernel: turn a function of arrays and numbers into a ``Loop``.

    Args:
        function: The function, if no option is given.
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

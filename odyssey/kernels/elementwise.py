"""Elementwise loops for the CPU and kernels for the GPU, compiled from one scalar function.

`odyssey.kernels.scalars` defines scalar functions. A scalar is traced once on symbols for the
dtypes of a loop, and the resulting program is compiled. Elements are passed as they are, but
integers as floating numbers if the scalar computes in these; its result is cast to the dtype of
the output. Constants are written `T(0.5)`: a bare `0.5` is a float64 and promotes float32
arithmetic to float64, which the builders refuse if it reaches the result.

Floating-point policy: IEEE, no fast-math. 1/0 is inf, log(0) is -inf, nothing is raised. The GPU
may contract a product and a sum into one rounding; the CPU does not.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import FunctionType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from odyssey.errors import DTypeError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels import cuda, numba_module
from odyssey.kernels.scalars import T, program, require_plain_function

__all__ = [
    "T",
    "bind",
    "compile_scalar",
    "cpu_loop",
    "cuda_loop",
    "cuda_ptx",
    "cuda_scalar",
    "kernel_dtype",
]

Scalar = Callable[..., Any]
Loop = Callable[..., None]

# Numba compiles for an array type in ~0.1 s, and a loop takes ~50 kB: enough for a large table in
# both dtypes, and a bound on the memory of lambdas created in a loop.
_MEMO = 512

_CPU_SOURCE = """
def loop({names}, out):
    if not ({equal_sizes}):
        raise ValueError("cpu_loop: sizes differ; every input must have as many elements as out")
    for i in range(out.size):
        out[i] = scalar({elements})
"""

_CUDA_SOURCE = """
def loop({names}, out):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = scalar({elements})
"""


Dtypes = DTypeLike | Sequence[DTypeLike]

_KNOWN = tuple(map(np.dtype, ("float32", "float64", "int32", "int64", "bool")))


class Signature(NamedTuple):
    """Dtypes and options that a loop is compiled for."""

    inputs: tuple[np.dtype[Any], ...]
    result: np.dtype[Any]
    options: tuple[Any, ...]
    text: str  # repr of the options: 1, 1.0 and True are equal, and so are 0.0 and -0.0

    @property
    def computed(self) -> np.dtype[Any]:
        """Dtype that `T` stands for: that of the result, or of the inputs for a boolean result."""
        if self.result.kind != "b":
            return self.result
        return np.result_type(*self.inputs)

    @property
    def scalar_inputs(self) -> tuple[np.dtype[Any], ...]:
        """Dtypes of the scalar's arguments: integers become floating if `computed` is."""
        floating = self.computed.kind == "f"
        return tuple(self.computed if floating and d.kind == "i" else d for d in self.inputs)


def bind(function: Callable[..., Any], dtype: DTypeLike, **names: Any) -> Callable[..., Any]:
    """Rebuild a plain function so that `T` is the constructor of `dtype`, and `math` is math.

    Args:
        function: a function without closure, which loses its other globals.
        dtype: float32 or float64.
        names: further globals.

    Raises:
        DTypeError: for another dtype, or if `function` is not a plain Python function.
    """
    function = require_plain_function(function)
    element = numba_module().from_dtype(kernel_dtype(dtype))
    scope = {"math": math, "T": element, **names}
    return FunctionType(function.__code__, scope, function.__name__)


def kernel_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the dtype if kernels can be built for it.

    Raises:
        DTypeError: if it is neither float32 nor float64.
    """
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise DTypeError(
            f"kernel: no kernels for {dtype}; cast to float32 or float64, which have them"
        )
    return dtype


def loop_signature(
    scalar: Scalar, dtype: Dtypes, result: DTypeLike | None, options: tuple[Any, ...]
) -> Signature:
    """Return the signature of a loop, from the arguments of `cpu_loop`.

    Raises:
        DTypeError: see `cpu_loop`.
    """
    arity = _count_inputs(scalar, len(options))
    several = isinstance(dtype, (list, tuple))
    inputs = tuple(map(_supported_dtype, dtype)) if several else (kernel_dtype(dtype),) * arity  # type: ignore[arg-type]
    if len(inputs) != arity:
        raise DTypeError(f"kernel: {len(inputs)} dtypes for the {arity} numbers of {scalar!r}")
    for option in options:
        if not isinstance(option, (int, float, str, type(None), type, np.dtype)):
            raise DTypeError(f"kernel: the option {option!r} is not a number, a word or None")
    result_dtype = _supported_dtype(result) if result is not None else np.result_type(*inputs)
    return Signature(inputs, result_dtype, tuple(options), repr(options))


def _supported_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    dtype = np.dtype(dtype)
    if dtype not in _KNOWN:
        raise DTypeError(f"kernel: no kernels for {dtype}; cast to {', '.join(map(str, _KNOWN))}")
    return dtype


def cpu_loop(
    scalar: Scalar,
    dtype: Dtypes,
    result: DTypeLike | None = None,
    options: tuple[Any, ...] = (),
) -> Loop:
    """Compile `fn(*inputs, out)`, which writes scalar(*elements, *options) into every element.

    Args:
        scalar: see `odyssey.kernels.scalars`.
        dtype: dtype of all inputs, float32 or float64; or a list with a dtype for each, which may
            be int32, int64 or bool as well.
        result: dtype of out; by default the promoted dtype of the inputs.
        options: numbers, strings or None, passed after the elements.

    Returns:
        A function of 1-D contiguous arrays of one size. It releases the GIL. `out` may be one of
        the inputs. It raises TypeError for arrays of another dtype, rank or layout, and
        ValueError if sizes differ.

    Raises:
        DTypeError: see `scalars.program`; also if an untyped constant promotes a float32 result to
            float64, or a dtype or option is not supported.

    >>> double = cpu_loop(lambda x: T(2) * x, np.float32)
    >>> out = np.empty(3, np.float32)
    >>> double(np.arange(3, dtype=np.float32), out)
    >>> out
    array([0., 2., 4.], dtype=float32)
    """
    return _cpu_loop(scalar, loop_signature(scalar, dtype, result, options))


def cuda_loop(
    scalar: Scalar,
    dtype: Dtypes,
    result: DTypeLike | None = None,
    options: tuple[Any, ...] = (),
) -> Loop:
    """Build `fn(*inputs, out)`, the counterpart of `cpu_loop` for the GPU or its simulator.

    Args:
        scalar: see `cpu_loop`, as for the others.
        dtype: dtype of the inputs.
        result: dtype of out.
        options: arguments after the elements.

    Returns:
        A function of 1-D contiguous arrays of one size, each on the host or on the device. Host
        arrays are copied there, and `out` back. With a device `out` it returns at once. It raises
        DTypeError and ShapeError for arrays that do not fit.

    Raises:
        DTypeError: see `cpu_loop`.
        DeviceError: if there is neither a usable GPU nor the simulator.
    """
    return _cuda_loop(scalar, loop_signature(scalar, dtype, result, options))


def cuda_ptx(
    scalar: Scalar,
    dtype: Dtypes,
    result: DTypeLike | None = None,
    options: tuple[Any, ...] = (),
) -> str:
    """Return the PTX of the kernel that `cuda_loop` launches; no GPU is needed.

    Raises:
        DTypeError: see `cpu_loop`.
        DeviceError: see `odyssey.kernels.cuda.ptx`.
    """
    kinds = loop_signature(scalar, dtype, result, options)
    numba = numba_module()
    arrays = [numba.types.Array(numba.from_dtype(d), 1, "C") for d in (*kinds.inputs, kinds.result)]
    return cuda.ptx(_cuda_kernel(scalar, kinds), tuple(arrays))


@lru_cache(maxsize=_MEMO)
def _cpu_loop(scalar: Scalar, kinds: Signature) -> Loop:
    numba = numba_module()
    types = numba.types
    # Numba accepts a writable array for a read-only parameter, but not the reverse. An explicit
    # signature rejects float64 arrays in a float32 program.
    readable = [types.Array(numba.from_dtype(d), 1, "C", readonly=True) for d in kinds.inputs]
    writable = types.Array(numba.from_dtype(kinds.result), 1, "C")
    loop = _exec_loop_source(_CPU_SOURCE, kinds, {"scalar": _compile_scalar(scalar, kinds)})
    signature = types.void(*readable, writable)
    compiled: Loop = numba.njit([signature], error_model="numpy", nogil=True)(loop)
    return compiled


@lru_cache(maxsize=_MEMO)
def _cuda_loop(scalar: Scalar, kinds: Signature) -> Loop:
    kernel = cuda.build(_cuda_kernel(scalar, kinds))
    arity = len(kinds.inputs)

    def launch(*arrays: Any) -> None:
        if len(arrays) != arity + 1:
            raise TypeError(f"cuda_loop: {len(arrays)} arrays; want {arity} inputs, then out")
        *inputs, out = arrays
        _check_arrays(arrays, kinds)
        if out.size:  # an empty grid cannot be launched
            blocks = -(-out.size // cuda.threads_per_block())
            cuda.launch(kernel, blocks, inputs, out)

    return launch


def _cuda_kernel(scalar: Scalar, kinds: Signature) -> Loop:
    names = {"scalar": _cuda_scalar(scalar, kinds), **cuda.kernel_globals()}
    return _exec_loop_source(_CUDA_SOURCE, kinds, names)


def compile_scalar(scalar: Scalar, dtype: np.dtype[Any]) -> Any:
    """Compile a scalar for one dtype, for kernels of the CPU that call it.

    Raises:
        DTypeError: see `cpu_loop`.
    """
    return _compile_scalar(scalar, loop_signature(scalar, dtype, None, ()))


def cuda_scalar(scalar: Scalar, dtype: np.dtype[Any]) -> Any:
    """Return a scalar for one dtype, for kernels of the GPU or of its simulator that call it.

    Raises:
        DTypeError: see `cpu_loop`.
    """
    return _cuda_scalar(scalar, loop_signature(scalar, dtype, None, ()))


def _cuda_scalar(scalar: Scalar, kinds: Signature) -> Any:
    return (_simulate_scalar if cuda.simulated() else _compile_scalar)(scalar, kinds)


@lru_cache(maxsize=_MEMO)
def _compile_scalar(scalar: Scalar, kinds: Signature) -> Any:
    """Compile a scalar to a function that loops and kernels call and LLVM inlines."""
    numba = numba_module()
    dtype = kinds.computed
    text = program(scalar, len(kinds.inputs), kinds.options, dtype).python_source("function")
    scope: dict[str, Any] = {"math": math, "T": numba.from_dtype(dtype)}
    exec(text, scope)
    compiled = numba.njit(error_model="numpy", nogil=True)(scope["function"])
    compiled.compile(tuple(map(numba.from_dtype, kinds.scalar_inputs)))
    _check_result(scalar, kinds, compiled.nopython_signatures[-1].return_type.name)
    return compiled


# Constants that numba sees in a program, by their types.
_CONSTANTS = {bool: np.bool_, int: np.int64, float: np.float64}


@lru_cache(maxsize=_MEMO)
@ignore_fp_errors()
def _simulate_scalar(scalar: Scalar, kinds: Signature) -> Any:
    """Return the program of a scalar as a function of NumPy's scalars, for the simulator.

    These round as their dtypes do and raise nothing, unlike Python's numbers and `math`. Nothing
    is compiled: code for the CPU takes 0.1 s a scalar, and says nothing of the code for a GPU.
    """
    written = program(scalar, len(kinds.inputs), kinds.options, kinds.computed)
    steps = {step for step, _ in written.steps}
    functions = {s[5:]: _numpy_function(s[5:]) for s in steps if s.startswith("math.")}
    scope: dict[str, Any] = {
        "math": SimpleNamespace(inf=math.inf, nan=math.nan, **functions),
        "T": kinds.computed.type,
        "number": lambda value: _CONSTANTS[type(value)](value),
    }
    exec(written.python_source("function", number="number({})"), scope)
    result = scope["function"](*[dtype.type(1) for dtype in kinds.scalar_inputs])
    _check_result(scalar, kinds, result.dtype.name)
    return scope["function"]


@lru_cache
def _numpy_function(name: str) -> Callable[..., Any]:
    """Return a function of `math` for NumPy's scalars; numba makes those that NumPy lacks."""
    if name == "pow":  # with a number as the exponent, 0.5, np.power(-inf, 0.5) is nan
        return lambda x, y: np.power(x, [y])[0]
    found: Callable[..., Any] | None = getattr(np, name, None)
    if found is None:
        signatures = ["float32(float32)", "float64(float64)"]
        found = numba_module().vectorize(signatures)(eval(f"lambda x: math.{name}(x)"))
    return found


def _check_result(scalar: Scalar, kinds: Signature, dtype: str) -> None:
    if kinds.result == np.float32 and dtype == "float64":
        raise DTypeError(
            f"kernel: {scalar.__qualname__} of float32 gives float64, for a bare constant is a "
            "float64; write T(0.5) instead of 0.5"
        )


def _count_inputs(scalar: Scalar, options: int) -> int:
    parameters = inspect.signature(require_plain_function(scalar)).parameters.values()
    count = len(parameters) - options
    if count < 1 or any(
        p.kind is not p.POSITIONAL_OR_KEYWORD or p.default is not p.empty for p in parameters
    ):
        raise DTypeError(
            f"kernel: {scalar!r} takes {inspect.signature(scalar)}; "
            "a scalar takes one or more positional numbers, then options, without defaults"
        )
    return count


def _exec_loop_source(source: str, kinds: Signature, names: dict[str, Any]) -> Loop:
    # Source text, because numba has no star-call over the elements of several arrays.
    inputs = [f"x{k}" for k in range(len(kinds.inputs))]
    elements = [
        f"{x}[i]" if dtype == scalar_dtype else f"T({x}[i])"
        for x, dtype, scalar_dtype in zip(inputs, kinds.inputs, kinds.scalar_inputs, strict=True)
    ]
    names["T"] = numba_module().from_dtype(kinds.computed)
    text = source.format(
        names=", ".join(inputs),
        elements=", ".join(elements),
        equal_sizes=" == ".join([f"{x}.size" for x in inputs] + ["out.size"]),
    )
    exec(text, names)
    loop: Loop = names["loop"]
    return loop


def _check_arrays(arrays: Sequence[Any], kinds: Signature) -> None:
    out = arrays[-1]
    for array, dtype in zip(arrays, (*kinds.inputs, kinds.result), strict=True):
        if array.dtype != dtype:
            raise DTypeError(f"cuda_loop: an array of {array.dtype}; this loop is for {dtype}")
        if array.shape != (out.size,):
            raise ShapeError(
                f"cuda_loop: shape {tuple(array.shape)} next to out with {out.size} elements; "
                "all arrays must be 1-D and of one size"
            )
        if not array.flags["C_CONTIGUOUS"]:
            raise ShapeError("cuda_loop: an array with gaps; copy it to a contiguous one first")

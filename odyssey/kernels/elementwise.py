"""One scalar function, written once, becomes a loop for the CPU and a kernel for the GPU.

What a scalar is, `odyssey.kernels.scalars` says. It is called once, on symbols, for the dtypes of
a loop, and what it wrote down is compiled. Elements come in as they are, but integers as floating
numbers where it computes in these; what it returns is cast to the dtype of the result. Constants
are written `T(0.5)`: a bare `0.5` is a float64, and float32 arithmetic next to it becomes float64
too, which the builders refuse where it reaches the result.

Floating-point policy: IEEE, no fast-math. 1/0 is inf, log(0) is -inf, nothing is raised. The GPU
may contract a product and a sum into one rounding; the CPU does not.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from odyssey.errors import DTypeError, ShapeError
from odyssey.kernels import cuda, numba_module
from odyssey.kernels.scalars import T, plain, program

__all__ = ["T", "bind", "compile_scalar", "cpu_loop", "cuda_loop", "cuda_ptx", "kernel_dtype"]

Scalar = Callable[..., Any]
Loop = Callable[..., None]

# Numba compiles for an array type in ~0.1 s and a loop takes ~50 kB: enough for a large table in
# both dtypes, and an end to what lambdas made in a loop could hold on to.
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
    """What a loop is compiled for."""

    inputs: tuple[np.dtype[Any], ...]
    result: np.dtype[Any]
    options: tuple[Any, ...]
    text: str  # of the options: 1, 1.0 and True are equal, and so are 0.0 and -0.0

    @property
    def computed(self) -> np.dtype[Any]:
        """What `T` is: the dtype of the result, or of the inputs where truths come out."""
        if self.result.kind != "b":
            return self.result
        return np.result_type(*self.inputs)

    @property
    def taken(self) -> tuple[np.dtype[Any], ...]:
        """What the scalar gets: integers as floating numbers, where it computes in these."""
        floating = self.computed.kind == "f"
        return tuple(self.computed if floating and d.kind == "i" else d for d in self.inputs)


def bind(function: Callable[..., Any], dtype: DTypeLike, **names: Any) -> Callable[..., Any]:
    """Rebuild a plain function so that `T` is the constructor of `dtype`, and `math` is math.

    Args:
        function: a function without closure; what else its globals hold is out of reach.
        dtype: float32 or float64.
        names: further globals.

    Raises:
        DTypeError: the dtype is another, or `function` is not a plain Python function.
    """
    function = plain(function)
    element = numba_module().from_dtype(kernel_dtype(dtype))
    scope = {"math": math, "T": element, **names}
    return FunctionType(function.__code__, scope, function.__name__)


def kernel_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """The dtype itself, if kernels can be built for it.

    Raises:
        DTypeError: it is neither float32 nor float64.
    """
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise DTypeError(
            f"kernel: no kernels for {dtype}; cast to float32 or float64, which have them"
        )
    return dtype


def signature(
    scalar: Scalar, dtype: Dtypes, result: DTypeLike | None, options: tuple[Any, ...]
) -> Signature:
    """What a loop of a scalar is compiled for, from the arguments of `cpu_loop`.

    Raises:
        DTypeError: see `cpu_loop`.
    """
    arity = _arity(scalar, len(options))
    several = isinstance(dtype, (list, tuple))
    inputs = tuple(map(_known, dtype)) if several else (kernel_dtype(dtype),) * arity  # type: ignore[arg-type]
    if len(inputs) != arity:
        raise DTypeError(f"kernel: {len(inputs)} dtypes for the {arity} numbers of {scalar!r}")
    for option in options:
        if not isinstance(option, (int, float, str, type(None), type, np.dtype)):
            raise DTypeError(f"kernel: the option {option!r} is not a number, a word or None")
    made = _known(result) if result is not None else np.result_type(*inputs)
    return Signature(inputs, made, tuple(options), repr(options))


def _known(dtype: DTypeLike) -> np.dtype[Any]:
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
    """Compile `fn(*inputs, out)`, which writes scalar(*elements, *options) into each of out.

    Args:
        scalar: see `odyssey.kernels.scalars`.
        dtype: of all inputs, float32 or float64; or a list with one for each, which may be int32,
            int64 or bool as well.
        result: the dtype of out; by default that to which the inputs are promoted.
        options: numbers, words or None, which come behind the elements.

    Returns:
        A function of 1-D contiguous arrays of one size. It releases the GIL. `out` may be one of
        the inputs. It raises TypeError for arrays of another dtype, rank or layout, and
        ValueError where sizes differ.

    Raises:
        DTypeError: see `scalars.program`; the result is a float64 where float32 was to come, for
            a constant was not typed; or kernels know no such dtype or option.

    >>> double = cpu_loop(lambda x: T(2) * x, np.float32)
    >>> out = np.empty(3, np.float32)
    >>> double(np.arange(3, dtype=np.float32), out)
    >>> out
    array([0., 2., 4.], dtype=float32)
    """
    return _cpu_loop(scalar, signature(scalar, dtype, result, options))


def cuda_loop(
    scalar: Scalar,
    dtype: Dtypes,
    result: DTypeLike | None = None,
    options: tuple[Any, ...] = (),
) -> Loop:
    """Build `fn(*inputs, out)`, which does on the GPU, or its simulator, what a CPU loop does.

    Args:
        scalar: see `cpu_loop`, as the others.
        dtype: of the inputs.
        result: the dtype of out.
        options: what comes behind the elements.

    Returns:
        A function of 1-D contiguous arrays of one size, each on the host or on the device. Host
        arrays are copied there, and `out` back. With a device `out` it does not wait. It raises
        DTypeError and ShapeError for arrays that do not fit.

    Raises:
        DTypeError: see `cpu_loop`.
        DeviceError: there is neither a usable GPU nor the simulator.
    """
    return _cuda_loop(scalar, signature(scalar, dtype, result, options))


def cuda_ptx(
    scalar: Scalar,
    dtype: Dtypes,
    result: DTypeLike | None = None,
    options: tuple[Any, ...] = (),
) -> str:
    """PTX of the kernel that `cuda_loop` launches; no GPU is needed.

    Raises:
        DTypeError: see `cpu_loop`.
        DeviceError: see `odyssey.kernels.cuda.ptx`.
    """
    kinds = signature(scalar, dtype, result, options)
    numba = numba_module()
    arrays = [numba.types.Array(numba.from_dtype(d), 1, "C") for d in (*kinds.inputs, kinds.result)]
    return cuda.ptx(_cuda_kernel(scalar, kinds), tuple(arrays))


@lru_cache(maxsize=_MEMO)
def _cpu_loop(scalar: Scalar, kinds: Signature) -> Loop:
    numba = numba_module()
    types = numba.types
    # Numba passes a writable array for a read-only parameter, but not the other way round; and
    # with the signature given, a float64 array cannot slip into a float32 program.
    readable = [types.Array(numba.from_dtype(d), 1, "C", readonly=True) for d in kinds.inputs]
    writable = types.Array(numba.from_dtype(kinds.result), 1, "C")
    loop = _from_source(_CPU_SOURCE, kinds, {"scalar": _compiled(scalar, kinds)})
    made = types.void(*readable, writable)
    compiled: Loop = numba.njit([made], error_model="numpy", nogil=True)(loop)
    return compiled


@lru_cache(maxsize=_MEMO)
def _cuda_loop(scalar: Scalar, kinds: Signature) -> Loop:
    kernel = cuda.build(_cuda_kernel(scalar, kinds))
    arity = len(kinds.inputs)

    def loop(*arrays: Any) -> None:
        if len(arrays) != arity + 1:
            raise TypeError(f"cuda_loop: {len(arrays)} arrays; want {arity} inputs, then out")
        *inputs, out = arrays
        _check_arrays(arrays, kinds)
        if out.size:  # a grid of no blocks cannot be launched
            blocks = -(-out.size // cuda.threads_per_block())
            cuda.launch(kernel, blocks, inputs, out)

    return loop


def _cuda_kernel(scalar: Scalar, kinds: Signature) -> Loop:
    names = {"scalar": _compiled(scalar, kinds), **cuda.kernel_globals()}
    return _from_source(_CUDA_SOURCE, kinds, names)


def compile_scalar(scalar: Scalar, dtype: np.dtype[Any]) -> Any:
    """The scalar as a compiled function of one dtype, for kernels that call it.

    Raises:
        DTypeError: see `cpu_loop`.
    """
    return _compiled(scalar, signature(scalar, dtype, None, ()))


@lru_cache(maxsize=_MEMO)
def _compiled(scalar: Scalar, kinds: Signature) -> Any:
    """The scalar as a compiled function, which loops and kernels call and LLVM inlines.

    The CPU's machine code serves the simulator as well: in plain Python math.exp(1000) raises,
    and float32 arithmetic would round elsewhere. It is made here and not at the first call,
    which in the simulator comes from many threads at once.
    """
    numba = numba_module()
    dtype = kinds.computed
    text = program(scalar, len(kinds.inputs), kinds.options, dtype).text("function")
    scope: dict[str, Any] = {"math": math, "T": numba.from_dtype(dtype)}
    exec(text, scope)
    compiled = numba.njit(error_model="numpy", nogil=True)(scope["function"])
    compiled.compile(tuple(map(numba.from_dtype, kinds.taken)))
    result = compiled.nopython_signatures[-1].return_type
    if kinds.result == np.float32 and result.name == "float64":
        raise DTypeError(
            f"kernel: {scalar.__qualname__} of float32 gives float64, for a bare constant is a "
            "float64; write T(0.5) instead of 0.5"
        )
    return compiled


def _arity(scalar: Scalar, options: int) -> int:
    parameters = inspect.signature(plain(scalar)).parameters.values()
    count = len(parameters) - options
    if count < 1 or any(
        p.kind is not p.POSITIONAL_OR_KEYWORD or p.default is not p.empty for p in parameters
    ):
        raise DTypeError(
            f"kernel: {scalar!r} takes {inspect.signature(scalar)}; "
            "a scalar takes one or more positional numbers, then options, without defaults"
        )
    return count


def _from_source(source: str, kinds: Signature, names: dict[str, Any]) -> Loop:
    # Text, because numba has no star-call over the elements of several arrays.
    inputs = [f"x{k}" for k in range(len(kinds.inputs))]
    elements = [
        f"{x}[i]" if given == taken else f"T({x}[i])"
        for x, given, taken in zip(inputs, kinds.inputs, kinds.taken, strict=True)
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

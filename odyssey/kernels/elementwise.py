"""One scalar function, written once, becomes a loop for the CPU and a kernel for the GPU.

A scalar is a plain function of one or more numbers, such as `lambda x: math.exp(x)`. It may use
two free names: `math`, and `T`, the constructor of the dtype that a loop is built for, whatever
its own module has under these names. Constants are written `T(0.5)`: a bare `0.5` is a float64,
and float32 arithmetic next to it becomes float64 too, which the builders refuse where it reaches
the result.

Floating-point policy: IEEE, no fast-math. 1/0 is inf, log(0) is -inf, nothing is raised. The GPU
may contract a product and a sum into one rounding; the CPU does not.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from odyssey.errors import DTypeError, ShapeError
from odyssey.kernels import cuda, numba_module

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


# What a scalar's T is before it is bound, so that scalars also run, and check, as plain Python.
T: Any = float


def bind(function: Callable[..., Any], dtype: DTypeLike, **names: Any) -> Callable[..., Any]:
    """Rebuild a plain function so that `T` is the constructor of `dtype`, and `math` is math.

    Args:
        function: a function without closure; what else its globals hold is out of reach.
        dtype: float32 or float64.
        names: further globals.

    Raises:
        DTypeError: the dtype is another, or `function` is not a plain Python function.
    """
    function = _plain(function)
    element = numba_module().from_dtype(kernel_dtype(dtype))
    scope = {"math": math, "T": element, **names}
    return FunctionType(function.__code__, scope, function.__name__)


def _plain(function: Callable[..., Any]) -> FunctionType:
    if isinstance(function, FunctionType) and function.__closure__ is None:
        return function
    raise DTypeError(
        f"kernel: {function!r} is not a plain function without closure; "
        "write a lambda or a def whose only free names are math and T"
    )


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


def cpu_loop(scalar: Scalar, dtype: DTypeLike) -> Loop:
    """Compile `fn(*inputs, out)`, which writes scalar(*elements) into each element of out.

    Args:
        scalar: see the head of this module.
        dtype: of all inputs and of out: float32 or float64.

    Returns:
        A function of 1-D contiguous arrays of one size. It releases the GIL. `out` may be one of
        the inputs. It raises TypeError for arrays of another dtype, rank or layout, and
        ValueError where sizes differ.

    Raises:
        DTypeError: see `bind`; or the result is not of `dtype`, for a constant was not typed.

    >>> double = cpu_loop(lambda x: T(2) * x, np.float32)
    >>> out = np.empty(3, np.float32)
    >>> double(np.arange(3, dtype=np.float32), out)
    >>> out
    array([0., 2., 4.], dtype=float32)
    """
    return _cpu_loop(scalar, kernel_dtype(dtype))


def cuda_loop(scalar: Scalar, dtype: DTypeLike) -> Loop:
    """Build `fn(*inputs, out)`, which does on the GPU, or its simulator, what a CPU loop does.

    Args:
        scalar: see the head of this module.
        dtype: of all inputs and of out: float32 or float64.

    Returns:
        A function of 1-D contiguous arrays of one size, each on the host or on the device. Host
        arrays are copied there, and `out` back. With a device `out` it does not wait. It raises
        DTypeError and ShapeError for arrays that do not fit.

    Raises:
        DTypeError: see `cpu_loop`.
        DeviceError: there is neither a usable GPU nor the simulator.
    """
    return _cuda_loop(scalar, kernel_dtype(dtype))


def cuda_ptx(scalar: Scalar, dtype: DTypeLike) -> str:
    """PTX of the kernel that `cuda_loop` launches; no GPU is needed.

    Raises:
        DTypeError: see `cpu_loop`.
        DeviceError: see `odyssey.kernels.cuda.ptx`.
    """
    dtype, numba = kernel_dtype(dtype), numba_module()
    array = numba.types.Array(numba.from_dtype(dtype), 1, "C")
    return cuda.ptx(_cuda_kernel(scalar, dtype), (array,) * (_arity(scalar) + 1))


@lru_cache(maxsize=_MEMO)
def _cpu_loop(scalar: Scalar, dtype: np.dtype[Any]) -> Loop:
    numba = numba_module()
    element, types = numba.from_dtype(dtype), numba.types
    # Numba passes a writable array for a read-only parameter, but not the other way round; and
    # with the signature given, a float64 array cannot slip into a float32 program.
    readable = types.Array(element, 1, "C", readonly=True)
    writable = types.Array(element, 1, "C")
    signature = types.void(*[readable] * _arity(scalar), writable)
    loop = _from_source(_CPU_SOURCE, scalar, {"scalar": compile_scalar(scalar, dtype)})
    compiled: Loop = numba.njit([signature], error_model="numpy", nogil=True)(loop)
    return compiled


@lru_cache(maxsize=_MEMO)
def _cuda_loop(scalar: Scalar, dtype: np.dtype[Any]) -> Loop:
    kernel = cuda.build(_cuda_kernel(scalar, dtype))
    arity = _arity(scalar)

    def loop(*arrays: Any) -> None:
        if len(arrays) != arity + 1:
            raise TypeError(f"cuda_loop: {len(arrays)} arrays; want {arity} inputs, then out")
        *inputs, out = arrays
        _check_arrays(inputs, out, dtype)
        if out.size:  # a grid of no blocks cannot be launched
            blocks = -(-out.size // cuda.threads_per_block())
            cuda.launch(kernel, blocks, inputs, out)

    return loop


def _cuda_kernel(scalar: Scalar, dtype: np.dtype[Any]) -> Loop:
    names = {"scalar": compile_scalar(scalar, dtype), **cuda.kernel_globals()}
    return _from_source(_CUDA_SOURCE, scalar, names)


@lru_cache(maxsize=_MEMO)
def compile_scalar(scalar: Scalar, dtype: np.dtype[Any]) -> Any:
    """The scalar as a compiled function, which loops and kernels call and LLVM inlines.

    The CPU's machine code serves the simulator as well: in plain Python math.exp(1000) raises,
    and float32 arithmetic would round elsewhere. It is made here and not at the first call,
    which in the simulator comes from many threads at once.
    """
    numba = numba_module()
    element = numba.from_dtype(dtype)
    compiled = numba.njit(error_model="numpy", nogil=True)(bind(scalar, dtype))
    compiled.compile((element,) * _arity(scalar))
    result = compiled.nopython_signatures[-1].return_type
    if dtype == np.float32 and result.name == "float64":
        raise DTypeError(
            f"kernel: {scalar.__qualname__} of float32 gives float64, for a bare constant is a "
            "float64; write T(0.5) instead of 0.5"
        )
    return compiled


def _arity(scalar: Scalar) -> int:
    parameters = inspect.signature(_plain(scalar)).parameters.values()
    if not parameters or any(
        p.kind is not p.POSITIONAL_OR_KEYWORD or p.default is not p.empty for p in parameters
    ):
        raise DTypeError(
            f"kernel: {scalar!r} takes {inspect.signature(scalar)}; "
            "a scalar takes one or more positional numbers, without defaults"
        )
    return len(parameters)


def _from_source(source: str, scalar: Scalar, names: dict[str, Any]) -> Loop:
    # Text, because numba has no star-call over the elements of several arrays.
    inputs = [f"x{k}" for k in range(_arity(scalar))]
    text = source.format(
        names=", ".join(inputs),
        elements=", ".join(f"{x}[i]" for x in inputs),
        equal_sizes=" == ".join([f"{x}.size" for x in inputs] + ["out.size"]),
    )
    exec(text, names)
    loop: Loop = names["loop"]
    return loop


def _check_arrays(inputs: list[Any], out: Any, dtype: np.dtype[Any]) -> None:
    for array in (*inputs, out):
        if array.dtype != dtype:
            raise DTypeError(f"cuda_loop: an array of {array.dtype}; this loop is for {dtype}")
        if array.shape != (out.size,):
            raise ShapeError(
                f"cuda_loop: shape {tuple(array.shape)} next to out with {out.size} elements; "
                "all arrays must be 1-D and of one size"
            )
        if not array.flags["C_CONTIGUOUS"]:
            raise ShapeError("cuda_loop: an array with gaps; copy it to a contiguous one first")

"""Interface to numba.cuda: build kernels, launch them, compile them without a GPU.

`numba.cuda` is the package numba-cuda if installed, which redirects the import, and otherwise the
module bundled with numba. With `NUMBA_ENABLE_CUDASIM=1` both are a simulator, which
runs every GPU thread as a Python thread: right for tests, and one launch at a time.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import Any

import numpy as np

from odyssey.devices.backends import Backend, backend_of
from odyssey.errors import DeviceError
from odyssey.kernels import numba_module
from odyssey.spec import Shape

__all__ = [
    "array_namespace",
    "bind_kernel",
    "build",
    "computing_dtype",
    "contiguous",
    "copy_beside",
    "kernel_globals",
    "launch",
    "max_blocks",
    "new_array",
    "ptx",
    "require_cuda",
    "scratch_array",
    "simulated",
    "simulated_memory",
    "threads_per_block",
    "tile_width",
]

Kernel = Any  # numba's dispatchers carry no types

_THREADS = 256
# Enough to fill any card (an H200 holds 132 x 8 such blocks at once); kernels stride over the rest.
_BLOCKS = 4096
# A simulated thread takes ~0.1 ms to start, and barriers are polled: few threads, but several.
_SIMULATED_THREADS = 16
_SIMULATED_BLOCKS = 8
# Every card gives a block so much shared memory without being asked.
_SHARED_BYTES = 48 * 1024

_WHAT_TO_DO = (
    'run on a machine with a CUDA GPU after `pip install "odyssey[cuda]"`, '
    "or set NUMBA_ENABLE_CUDASIM=1 before Python starts to run kernels in numba's simulator"
)


def simulated() -> bool:
    """Return whether numba.cuda is the simulator in this process."""
    return bool(numba_module("core.config").ENABLE_CUDASIM)


def require_cuda() -> None:
    """Raise DeviceError if no kernel can be launched here.

    Raises:
        DeviceError: if there is neither a usable GPU nor the simulator.
    """
    cuda = numba_module("cuda")
    if simulated() or cuda.is_available():
        return
    driver_error = cuda.cuda_error()
    if driver_error is None:
        missing = "NVVM, the compiler library of the CUDA toolkit, was not found"
    else:
        missing = " ".join(str(driver_error).split()).rstrip(" .:")
    raise DeviceError(f"cuda: no GPU can be used: {missing}; {_WHAT_TO_DO}")


def kernel_globals() -> dict[str, Any]:
    """Return the globals of a kernel's source: `cuda`."""
    # The simulator swaps the module for a block's own view of it by looking through the kernel's
    # globals, so `cuda` must be a global there: neither a closure's variable nor another name.
    return {"cuda": numba_module("cuda")}


def build(kernel: Callable[..., None]) -> Kernel:
    """Make a launchable kernel; numba compiles it at the first launch for the argument types.

    Raises:
        DeviceError: if there is neither a usable GPU nor the simulator.
    """
    require_cuda()
    return numba_module("cuda").jit(kernel)


def threads_per_block() -> int:
    """Return the block size, a power of two and a tree's width; on a GPU whole warps."""
    return _SIMULATED_THREADS if simulated() else _THREADS


def max_blocks() -> int:
    """Return the largest grid of a launch; kernels stride over the rest."""
    return _SIMULATED_BLOCKS if simulated() else _BLOCKS


def tile_width(row_bytes: int) -> int:
    """Return the width of a square tile: one thread an element, and its rows in shared memory.

    Args:
        row_bytes: The bytes of shared memory that each row of a tile takes.

    Returns:
        16, 8 or 4, in the simulator at most 4; or 0 if not even 4 rows fit.
    """
    for width in (4,) if simulated() else (16, 8, 4):
        if width * row_bytes <= _SHARED_BYTES:
            return width
    return 0


def computing_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that kernels compute in: single precision for half, else the dtype."""
    return np.dtype(np.float32) if dtype.char == "e" else dtype


def bind_kernel(
    kernel: Callable[..., None],
    dtype: np.dtype[Any],
    steps: Sequence[Callable[..., Any]] = (),
    **names: Any,
) -> Callable[..., None]:
    """Rebuild a plain function as a kernel of one dtype.

    Args:
        kernel: A function without closure, which loses its other globals.
        dtype: The dtype of arrays, the global `T` of the kernel; `C` is `computing_dtype` of it.
        steps: Functions without closure that the kernel and later steps call, by their names
            without underscore. They do not name `cuda`: in the simulator threads that run one
            function at a time would exchange it under each other.
        names: Further globals, such as the sizes of tiles.
    """
    numba = numba_module()
    types = {"T": numba.from_dtype(dtype), "C": numba.from_dtype(computing_dtype(dtype))}
    scope = {"math": math, **types, **names}
    for step in steps:
        function = FunctionType(step.__code__, dict(scope), step.__name__)
        scope[step.__name__.lstrip("_")] = numba_module("cuda").jit(device=True)(function)
    return FunctionType(kernel.__code__, scope | kernel_globals(), kernel.__name__)


# ------------------------------------------------------------------ arrays


def array_namespace(array: Any) -> Any:
    """Return the module whose functions take an array: NumPy, or that of the array's device."""
    backend = backend_of(array)
    return np if backend is None else backend.namespace


def new_array(beside: Any, shape: Shape | int, dtype: Any) -> Any:
    """Return an array without values, in the memory that holds the array ``beside``."""
    backend = backend_of(beside)
    if backend is None:
        return np.empty(shape, dtype)
    index = backend.device_index(beside)
    return backend.call("kernels", index, backend.namespace.empty, shape, dtype)


def scratch_array(beside: Any, size: int, dtype: Any) -> Any:
    """Return an array without values on the device, which launches copy neither there nor back.

    In the memory of ``beside`` if that is an array of a backend.
    """
    if backend_of(beside) is None:
        return numba_module("cuda").device_array(size, dtype)
    return new_array(beside, size, dtype)


def contiguous(array: Any) -> Any:
    """Return an array on one axis in row-major order: a view, or a copy on the same device."""
    if array.flags["C_CONTIGUOUS"]:
        return array.reshape(array.size)
    return array_namespace(array).ascontiguousarray(array).reshape(array.size)


def copy_beside(beside: Any, array: np.ndarray[Any, Any]) -> Any:
    """Return a host array in the memory that holds the array ``beside``."""
    backend = backend_of(beside)
    return array if backend is None else backend.to_device(array, backend.device_index(beside))


def simulated_memory(address: int, size: int, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the elements at an address of the simulator, whose devices have the host's memory."""
    import ctypes  # only the simulator needs it

    memory: Any = (ctypes.c_byte * int(size * dtype.itemsize)).from_address(int(address))
    return np.frombuffer(memory, dtype, int(size))


def _kernel_argument(backend: Backend, array: Any) -> Any:
    """Return an array of numba on the memory of a contiguous array of a backend."""
    pointer, cuda = backend.pointer(array), numba_module("cuda")
    if simulated():
        host = simulated_memory(pointer, array.size, array.dtype).reshape(array.shape)
        return numba_module("cuda.simulator.cudadrv.devicearray").FakeCUDAArray(host)
    description = {
        "shape": tuple(array.shape),
        "typestr": array.dtype.str,
        "data": (pointer, False),
        "version": 3,
        "strides": None,
    }
    # The launch is in the backend's stream, so there is nothing to wait for.
    return cuda.from_cuda_array_interface(description, owner=array, sync=False)


def launch(
    kernel: Kernel,
    blocks: int,
    inputs: Sequence[Any],
    out: Any,
    sizes: Sequence[Any] = (),
    threads: int | None = None,
) -> None:
    """Run `kernel(*inputs, *outs, *sizes)` on blocks of threads.

    Args:
        kernel: what `build` returned.
        blocks: at least 1; more than `max_blocks()` is cut to that.
        inputs: NumPy arrays, which are copied to the device; or arrays of numba or of a backend,
            which are not, and are contiguous.
        out: one array to write, or a tuple of them; NumPy arrays are copied there and back, for
            which the host waits.
        sizes: further arguments, numbers and tuples of numbers.
        threads: threads of a block, by default `threads_per_block()`.
    """
    outs = out if type(out) is tuple else (out,)
    for array in (*outs, *inputs):
        backend = backend_of(array)
        if backend is not None:
            index, name = backend.device_index(array), getattr(kernel, "__name__", "kernel")
            work = (kernel, blocks, inputs, outs, sizes, threads, backend, index)
            backend.call(name.strip("_"), index, _launch_there, *work)
            return
    _launch_there(kernel, blocks, inputs, outs, sizes, threads)


def _launch_there(
    kernel: Kernel,
    blocks: int,
    inputs: Sequence[Any],
    outs: Sequence[Any],
    sizes: Sequence[Any],
    threads: int | None,
    backend: Backend | None = None,
    index: int = 0,
) -> None:
    cuda = numba_module("cuda")
    arguments, copied = [], []
    for k, array in enumerate((*inputs, *outs)):
        own = None if backend is None else backend_of(array)
        if own is not None:
            arguments.append(_kernel_argument(own, array))
        elif isinstance(array, np.ndarray):
            arguments.append(cuda.to_device(array))
            if k >= len(inputs):
                copied.append((arguments[-1], array))
        else:
            arguments.append(array)
    stream = 0 if backend is None else backend.stream(index)
    if stream:
        stream = cuda.external_stream(stream)
    grid = min(blocks, max_blocks()), threads or threads_per_block(), stream
    with _simulation() if simulated() else nullcontext():
        _configure_launch(kernel, *grid)(*arguments, *sizes)
    for device_array, array in copied:
        device_array.copy_to_host(array)


@contextmanager
def _simulation() -> Iterator[None]:
    interval = sys.getswitchinterval()
    # At barriers the simulator polls its threads, and each of them waits for the poll's end: with
    # Python's interval of 5 ms that takes most of the time.
    sys.setswitchinterval(1e-4)
    api = numba_module("cuda.simulator.kernelapi")
    own, api.FakeCUDAShared.array = api.FakeCUDAShared.array, _shared_array
    try:
        with warnings.catch_warnings():  # arithmetic of a simulated thread is NumPy's, which warns
            warnings.simplefilter("ignore", RuntimeWarning)
            yield
    finally:
        api.FakeCUDAShared.array = own
        sys.setswitchinterval(interval)


def _shared_array(shared: Any, shape: Any, dtype: Any) -> Any:
    """Return the shared array of a block that a line of a kernel declares.

    It stands for a method of the simulator, in which two threads that come at one time both make an
    array, and one of them computes in its own.
    """
    support = numba_module("np.numpy_support")
    dtype = support.as_dtype(dtype) if isinstance(dtype, numba_module("types").Type) else dtype
    frame = sys._getframe(1)
    made = np.empty(shape, dtype)
    return shared._allocations.setdefault((frame.f_code.co_filename, frame.f_lineno), made)


def _configure_launch(kernel: Kernel, blocks: int, threads: int, stream: Any) -> Kernel:
    # Not memoised: in the simulator kernel[a, b] and kernel[c, d] are one object.
    with warnings.catch_warnings():
        # For a small grid numba warns of low occupancy. Filtered by text: numba and numba-cuda have
        # different classes for the warning.
        warnings.filterwarnings("ignore", ".*Grid size .* under-utilization")
        return kernel[blocks, threads, stream]


class _Device:
    """Stand-in for the current device while numba types calls to device functions."""

    def __init__(self, capability: tuple[int, int]) -> None:
        self.compute_capability = capability


def ptx(
    kernel: Callable[..., None], signature: tuple[Any, ...], capability: tuple[int, int] = (9, 0)
) -> str:
    """PTX of a kernel, compiled without a GPU.

    Args:
        kernel: a plain function with `kernel_globals()` among its globals.
        signature: numba types of its arguments.
        capability: compute capability to compile for; (9, 0) is Hopper.

    Raises:
        DeviceError: if the toolkit's compiler is missing, or numba.cuda is the simulator.
    """
    if simulated():
        raise DeviceError("ptx: the simulator compiles nothing; unset NUMBA_ENABLE_CUDASIM")
    dispatcher = numba_module("cuda.dispatcher")
    # compile_ptx takes a capability, but device functions read that of the current device.
    current_device = dispatcher.get_current_device
    dispatcher.get_current_device = lambda: _Device(capability)
    try:
        text, _ = numba_module("cuda").compile_ptx(kernel, signature, cc=capability)
    except (ImportError, RuntimeError) as error:  # libnvvm or its libdevice is missing
        reason = " ".join(str(error).split())
        raise DeviceError(
            f"ptx: the CUDA toolkit's compiler, NVVM, cannot be used: {reason}; "
            'pip install "odyssey[cuda]", or set CUDA_HOME to an installed toolkit'
        ) from error
    finally:
        dispatcher.get_current_device = current_device
    return str(text)

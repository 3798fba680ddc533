"""Interface to numba.cuda: build kernels, launch them, compile them without a GPU.

`numba.cuda` is the package numba-cuda if installed, which redirects the import, and otherwise the
module bundled with numba. With `NUMBA_ENABLE_CUDASIM=1` both are a simulator, which
runs every GPU thread as a Python thread: right for tests, and one launch at a time.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.errors import DeviceError
from odyssey.kernels import numba_module

__all__ = [
    "build",
    "kernel_globals",
    "launch",
    "max_blocks",
    "ptx",
    "require_cuda",
    "simulated",
    "threads_per_block",
]

Kernel = Any  # numba's dispatchers carry no types

_THREADS = 256
# Enough to fill any card (an H200 holds 132 x 8 such blocks at once); kernels stride over the rest.
_BLOCKS = 4096
# A simulated thread takes ~0.1 ms to start, and barriers are polled: few threads, but several.
_SIMULATED_THREADS = 64
_SIMULATED_BLOCKS = 8

_WHAT_TO_DO = (
    'run on a machine with a CUDA GPU after `pip install -e ".[cuda]"`, '
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
    """Return the block size, a power of two: a multiple of the warp size, and a tree's width."""
    return _SIMULATED_THREADS if simulated() else _THREADS


def max_blocks() -> int:
    """Return the largest grid of a launch; kernels stride over the rest."""
    return _SIMULATED_BLOCKS if simulated() else _BLOCKS


def launch(
    kernel: Kernel, blocks: int, inputs: Sequence[Any], out: Any, sizes: Sequence[int] = ()
) -> None:
    """Run `kernel(*inputs, out, *sizes)` on blocks of `threads_per_block()` threads.

    Args:
        kernel: what `build` returned.
        blocks: at least 1; more than `max_blocks()` is cut to that.
        inputs: NumPy arrays, which are copied to the device, or device arrays.
        out: a NumPy array, copied back, for which the host waits; or a device array.
        sizes: further integer arguments.
    """
    cuda = numba_module("cuda")
    arguments = [cuda.to_device(x) if isinstance(x, np.ndarray) else x for x in inputs]
    on_host = isinstance(out, np.ndarray)
    device_out = cuda.device_array(out.shape, out.dtype) if on_host else out
    configured = _configure_launch(kernel, min(blocks, max_blocks()), threads_per_block())
    configured(*arguments, device_out, *sizes)
    if on_host:
        device_out.copy_to_host(out)


def _configure_launch(kernel: Kernel, blocks: int, threads: int) -> Kernel:
    # Not memoised: in the simulator kernel[a, b] and kernel[c, d] are one object.
    with warnings.catch_warnings():
        # For a small grid numba warns of low occupancy. Filtered by text: numba and numba-cuda have
        # different classes for the warning.
        warnings.filterwarnings("ignore", ".*Grid size .* under-utilization")
        return kernel[blocks, threads]


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
            'pip install -e ".[cuda]", or set CUDA_HOME to an installed toolkit'
        ) from error
    finally:
        dispatcher.get_current_device = current_device
    return str(text)

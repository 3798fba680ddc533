"""CuPy as the backend of CUDA devices; imported at the first use of one.

All memory comes from CuPy's default pool: that of arrays, and by ``allocate`` that of compiled
programs and kernels. So its figures and its limit count every user of the device.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from odyssey.devices.backends import Backend
from odyssey.devices.namespace import Namespace
from odyssey.errors import DeviceError, DeviceMemoryError
from odyssey.spec import Array

__all__ = ["CupyBackend", "load"]

_INSTALL = (
    'on a machine with an NVIDIA card and driver 580 or later, pip install "odyssey[cuda]"; '
    "elsewhere pass device='cpu'"
)

_TF32_MATH = 3  # CUBLAS_TF32_TENSOR_OP_MATH

# Names of CUDA's errors, of runtime and driver, and what each means for the user.
_ERRORS: dict[str, str] = {
    "IllegalAddress": (
        "a kernel read or wrote outside of its arrays (illegal address); the device is unusable in "
        "this process, arrays of the CPU are not touched: set ODYSSEY_CUDA_SYNC=1 to find the op, "
        "and start a new process"
    ),
    "LaunchFailure": (
        "a kernel failed; the device is unusable in this process, arrays of the CPU are not "
        "touched: set ODYSSEY_CUDA_SYNC=1 to find the op, and start a new process"
    ),
    "DeviceUnavailable": (
        "the device is lost or busy; nvidia-smi lists the devices and who uses them"
    ),
    "DeviceLost": "the device is lost; nvidia-smi lists the devices that are left",
    "ECCUncorrectable": "the device's memory has an uncorrectable error; use another device",
    "InvalidResourceHandle": (
        "a stream, event or array of another device or context came (foreign stream); make "
        "arrays and streams on the device that uses them"
    ),
    "InvalidHandle": (
        "a stream, event or array of another device or context came (foreign stream); make "
        "arrays and streams on the device that uses them"
    ),
    "StreamCapture": (
        "the stream is being captured, in which this is not allowed; end the capture first"
    ),
    "InsufficientDriver": (
        "the NVIDIA driver is missing or older than CUDA 13 needs; on a machine with an NVIDIA "
        "card, install driver 580 or later; elsewhere pass device='cpu'"
    ),
    "NoDevice": "the driver sees no CUDA device; see nvidia-smi and CUDA_VISIBLE_DEVICES",
    "InvalidDevice": "there is no such device; see nvidia-smi and CUDA_VISIBLE_DEVICES",
}

# Other names for the same errors: those of the driver's interface.
_ALIASES = {
    "ILLEGAL_ADDRESS": "IllegalAddress",
    "MISALIGNED_ADDRESS": "IllegalAddress",
    "MisalignedAddress": "IllegalAddress",
    "INVALID_ADDRESS_SPACE": "IllegalAddress",
    "InvalidAddressSpace": "IllegalAddress",
    "LAUNCH_FAILED": "LaunchFailure",
    "DEVICE_UNAVAILABLE": "DeviceUnavailable",
    "DevicesUnavailable": "DeviceUnavailable",
    "DEVICE_NOT_LICENSED": "DeviceUnavailable",
    "DEVICE_LOST": "DeviceLost",
    "ECC_UNCORRECTABLE": "ECCUncorrectable",
    "INVALID_HANDLE": "InvalidHandle",
    "INVALID_CONTEXT": "InvalidHandle",
    "STREAM_CAPTURE": "StreamCapture",
    "SYSTEM_DRIVER_MISMATCH": "InsufficientDriver",
    "SystemDriverMismatch": "InsufficientDriver",
    "UNSUPPORTED_PTX_VERSION": "InsufficientDriver",
    "NO_DEVICE": "NoDevice",
    "INVALID_DEVICE": "InvalidDevice",
}


def load() -> CupyBackend:
    """Import CuPy and return its backend.

    Raises:
        DeviceError: CuPy or the driver is missing, or there is no device; it says what to do.
    """
    try:
        cupy = importlib.import_module("cupy")
    except ImportError as error:
        what = "CuPy is not installed" if _is_absent(error) else f"CuPy cannot be imported: {error}"
        raise DeviceError(f"device 'cuda' is not available: {what}; {_INSTALL}") from None
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # of the runtime: no driver, or one too old
        reason = describe_error(error) or " ".join(str(error).split())
        raise DeviceError(f"device 'cuda' is not available: {reason}") from None
    if not count:
        raise DeviceError(f"device 'cuda' is not available: {_ERRORS['NoDevice']}")
    return CupyBackend(cupy)


def _is_absent(error: ImportError) -> bool:
    return isinstance(error, ModuleNotFoundError) and error.name == "cupy"


def describe_error(error: BaseException) -> str | None:
    """Return what an error of CUDA means and what to do; None for any other error.

    >>> class CUDARuntimeError(RuntimeError): pass
    >>> describe_error(CUDARuntimeError("cudaErrorNoDevice: no CUDA-capable device"))
    'the driver sees no CUDA device; see nvidia-smi and CUDA_VISIBLE_DEVICES'
    """
    if type(error).__name__ not in _ERROR_CLASSES:
        return None
    return _meaning(" ".join(str(error).split()))


def cuda_error(who: str, text: str) -> Exception:
    """Return the error of this project for an error of CUDA.

    Args:
        who: The op or kernel, for the message.
        text: The name that CUDA gives to the error, a colon, and what CUDA says of it.
    """
    if "MemoryAllocation" in text or "OUT_OF_MEMORY" in text:
        return _memory_error(who, text)
    return DeviceError(f"{who}: {_meaning(text)} ({text})")


def _memory_error(who: str, text: str) -> DeviceMemoryError:
    return DeviceMemoryError(
        f"{who}: the device has too little memory: {text}; free arrays, use smaller "
        "batches or od.checkpoint, or raise od.devices.cuda().memory_limit"
    )


def _meaning(text: str) -> str:
    """Return what an error means whose name, of the runtime or the driver, begins a text."""
    name = text.partition(":")[0].removeprefix("cudaError").removeprefix("CUDA_ERROR_")
    for prefix in ("StreamCapture", "STREAM_CAPTURE"):
        name = prefix if name.startswith(prefix) else name
    meaning = _ERRORS.get(_ALIASES.get(name, name))
    return meaning if meaning is not None else f"CUDA failed: {text}"


# By name: the classes lie in modules that may be missing.
_ERROR_CLASSES = frozenset(
    {
        *("CUDARuntimeError", "CUDADriverError", "CUBLASError", "CUSOLVERError"),
        *("CuFFTError", "CURANDError", "CUSPARSEError", "NVRTCError", "CompileException"),
    }
)


class CupyBackend(Backend):
    """CuPy's arrays on CUDA devices.

    Args:
        cupy: The module.
    """

    platform = "cuda"
    name = "CuPy"

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.namespace = Namespace(cupy, cupy.ndarray)
        self.array_type = cupy.ndarray
        self._peaks: dict[int, int] = {}
        self._contexts: dict[int, Any] = {}  # of the CUDA driver, by device
        self._replacements: Mapping[Any, Any] | None = None

    @property
    def replacements(self) -> Mapping[Any, Any]:  # type: ignore[override]
        """CuPy's functions for those of SciPy, and for NumPy's with another home there."""
        if self._replacements is None:
            self._replacements = _cupy_replacements(self._cupy)
        return self._replacements

    # ------------------------------------------------------------ devices

    def device_count(self) -> int:
        """Return the number of cards that the driver shows to this process."""
        return int(self._cupy.cuda.runtime.getDeviceCount())

    def device_index(self, array: Any) -> int:
        """Return the number of the card that holds an array."""
        return int(array.data.device_id)

    def on(self, index: int) -> AbstractContextManager[Any]:
        """Make a card the current one for a block."""
        device: AbstractContextManager[Any] = self._cupy.cuda.Device(index)
        return device

    @contextmanager
    def tf32(self, index: int) -> Iterator[None]:
        """Set the math mode of cuBLAS for a block; CuPy has a handle for each thread and card.

        ``cupy._core.set_compute_type`` would hold for all threads, and not for batches.
        """
        cublas = self._cupy.cuda.cublas
        with self.on(index):
            handle = self._cupy.cuda.device.get_cublas_handle()
        before = cublas.getMathMode(handle)
        try:
            cublas.setMathMode(handle, _TF32_MATH)
            yield
        finally:
            cublas.setMathMode(handle, before)

    def synchronize(self, index: int) -> None:
        """Wait for all streams of a card."""
        self._cupy.cuda.Device(index).synchronize()
        self.memory_stats(index)

    def stream(self, index: int = 0) -> int:
        """Return the pointer of the stream that is current on a card."""
        with self.on(index):
            return int(self._cupy.cuda.get_current_stream().ptr)

    # ------------------------------------------------------------ arrays

    def to_device(self, array: Array, index: int = 0) -> Any:
        """Return a copy of a host array on a card, in the same order of axes."""
        with self.on(index):
            return self._cupy.array(array, order="K")

    def to_host(self, array: Any) -> Array:
        """Return a copy of a card's array as a NumPy array; waits for it."""
        with self.on(self.device_index(array)):
            host: Array = array.get(order="A")
        return host

    def move(self, array: Any, index: int) -> Any:
        """Return a copy on another card, by way of the bus between them where there is one."""
        with self.on(self.device_index(array)):
            if not (array.flags.c_contiguous or array.flags.f_contiguous):
                array = self._cupy.ascontiguousarray(array)  # CuPy moves no array with gaps
        with self.on(index):
            return self._cupy.array(array, order="K")

    def pointer(self, array: Any) -> int:
        """Return the address of an array's first element on its card."""
        return int(array.data.ptr)

    # ------------------------------------------------------------ memory

    def allocate(self, size: int, index: int = 0) -> Any:
        """Return ``size`` bytes of CuPy's pool; see ``Backend.allocate``."""
        found = super().allocate(size, index)
        self.memory_stats(index)
        return found

    def _pool(self) -> Any:
        return self._cupy.get_default_memory_pool()

    def memory_stats(self, index: int) -> dict[str, int | None]:
        """Return the bytes of CuPy's pool of a card; see ``Device.memory_stats``.

        CuPy keeps no peak: it is the largest number that was seen here, in ``synchronize`` and in
        ``allocate``, where large buffers come from.
        """
        with self.on(index):
            pool = self._pool()
            in_use, reserved = int(pool.used_bytes()), int(pool.total_bytes())
            limit = int(pool.get_limit())
        peak = self._peaks[index] = max(self._peaks.get(index, 0), in_use)
        return {"in_use": in_use, "reserved": reserved, "peak": peak, "limit": limit or None}

    def reset_peak(self, index: int) -> None:
        """Let the peak of a card begin at the bytes that are in use now."""
        self._peaks[index] = 0
        self.memory_stats(index)

    def set_memory_limit(self, index: int, limit: int | None) -> None:
        """Limit the pool of a card."""
        with self.on(index):
            self._pool().set_limit(size=limit or 0)

    def free_memory(self, index: int) -> None:
        """Return the pool's unused blocks, of cards and of pinned host memory."""
        with self.on(index):
            self._cupy.fft.config.get_plan_cache().clear()
            self._pool().free_all_blocks()
            self._cupy.get_default_pinned_memory_pool().free_all_blocks()

    # ------------------------------------------------------------ programs

    def launcher(self, index: int) -> Any:
        """Return a launcher that calls the CUDA driver."""
        # By its name: the compiler imports this module.
        driver = importlib.import_module("odyssey.compiler.cuda.driver")
        context = self._contexts.get(index)
        if context is None:
            context = self._contexts.setdefault(index, driver.DeviceContext(self, index))
        return driver.DriverLauncher(context)

    # ------------------------------------------------------------ errors

    def named_error(self, who: str, error: BaseException) -> Exception | None:
        """Return DeviceMemoryError or DeviceError for an error of CuPy or CUDA."""
        if isinstance(error, (DeviceError, DeviceMemoryError)):
            return None
        kind, text = type(error).__name__, " ".join(str(error).split())
        if kind == "OutOfMemoryError":
            return _memory_error(who, text)
        return cuda_error(who, text) if kind in _ERROR_CLASSES else None


def _cupy_replacements(cupy: Any) -> dict[Any, Any]:
    """Return CuPy's functions by those of NumPy and SciPy that its namespace has elsewhere."""
    found: dict[Any, Any] = {}
    tricks = importlib.import_module("numpy.lib.stride_tricks")

    def as_strided(x: Any, shape: Any = None, strides: Any = None, **options: Any) -> Any:
        del options  # ``subok`` and ``writeable``, which CuPy lacks
        return cupy.lib.stride_tricks.as_strided(x, shape, strides)

    def import_module(name: str) -> Any:
        own = name.startswith("scipy.")
        return importlib.import_module(f"cupyx.{name}" if own else name)

    found[tricks.as_strided] = as_strided
    found[importlib.import_module] = import_module
    try:
        theirs = importlib.import_module("scipy.special")
        ours = importlib.import_module("cupyx.scipy.special")
    except ImportError:
        return found
    for name in dir(ours):
        function = getattr(theirs, name, None)
        if callable(function) and not name.startswith("_"):
            found[function] = getattr(ours, name)
    return found

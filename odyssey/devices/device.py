"""Devices: ``od.devices.cpu`` and ``od.devices.cuda(k)``, their memory and their caches."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.checks import check_int, format_value
from odyssey.devices.arrays import NATIVE
from odyssey.devices.backends import Backend, backend_for, backend_of
from odyssey.errors import DeviceError, SettingError

if TYPE_CHECKING:
    from odyssey.devices.device_cache import DeviceCache

__all__ = ["Device", "as_device", "cpu", "cuda", "device_of", "copy_to_device", "transfer_array"]

_NAMES = "'cpu', 'cuda', 'cuda:1', or an od.devices.Device"


class Device:
    """The CPU or one CUDA card, where arrays lie and ops run.

    An op runs where its operands lie, and refuses arrays of two devices. Anything that takes
    ``device=`` takes one of these, or its name. Two are equal if their names are, and a device
    equals its name.

    >>> import odyssey as od
    >>> od.devices.cpu
    Device('cpu')
    >>> od.Variable([1.0]).device == od.devices.cpu == "cpu"
    True
    """

    __slots__ = ("_index", "_platform")

    _index: int
    _platform: str

    def __init__(self, name: str) -> None:
        found = as_device("Device", name)
        self._platform, self._index = found._platform, found._index

    @property
    def platform(self) -> str:
        """``"cpu"`` or ``"cuda"``.

        >>> import odyssey as od
        >>> od.devices.cpu.platform
        'cpu'
        """
        return self._platform

    @property
    def index(self) -> int:
        """The number of the card; 0 for the CPU.

        >>> import odyssey as od
        >>> od.devices.cpu.index
        0
        """
        return self._index

    def __str__(self) -> str:
        return "cpu" if self._platform == "cpu" else f"{self._platform}:{self._index}"

    def __repr__(self) -> str:
        return f"Device({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Device, str)):
            return str(self) == str(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> Any:
        return Device, (str(self),)

    @property
    def backend(self) -> Backend | None:
        """The array library of the device; None for the CPU, whose arrays are NumPy's.

        >>> import odyssey as od
        >>> od.devices.cpu.backend is None
        True
        """
        return None if self._platform == "cpu" else backend_for(self._platform)

    # ------------------------------------------------------------ work

    def synchronize(self) -> None:
        """Wait until the device has done all that it was given; nothing to do for the CPU.

        Raises:
            DeviceError: work that was given earlier failed.

        >>> import odyssey as od
        >>> od.devices.cpu.synchronize()
        """
        backend = self.backend
        if backend is not None:
            backend.call("synchronize", self._index, backend.synchronize, self._index)

    # ------------------------------------------------------------ memory

    def memory_stats(self) -> dict[str, int | None]:
        """Return ``in_use``, ``reserved``, ``peak`` and ``limit`` in bytes.

        On a card they count the pool from which arrays, compiled programs and kernels all take
        their memory: what they use, what the pool holds for later, and the most that was in use.
        On the CPU they are of the process: its resident memory, and no limit; a number is None
        where the system does not tell it.

        >>> import odyssey as od
        >>> sorted(od.devices.cpu.memory_stats())
        ['in_use', 'limit', 'peak', 'reserved']
        """
        backend = self.backend
        return _process_memory() if backend is None else backend.memory_stats(self._index)

    @property
    def memory_limit(self) -> int | None:
        """The most bytes that the device's pool may hold; None for as many as there are.

        It counts all users of the device in this process: arrays, compiled programs and kernels.
        What would go beyond it raises DeviceMemoryError. Settable; on the CPU it is None.

        >>> import odyssey as od
        >>> od.devices.cpu.memory_limit is None
        True
        """
        return self.memory_stats()["limit"]

    @memory_limit.setter
    def memory_limit(self, limit: int | None) -> None:
        if limit is not None:
            limit = check_int("memory_limit", "memory_limit", limit, 1)
        backend = self.backend
        if backend is None:
            if limit is not None:
                raise DeviceError(
                    f"memory_limit: {limit} came for the CPU, whose memory the system limits; "
                    "limit that of a compiled function with od.compile(memory_limit=), or that of "
                    "the process with ulimit -v"
                )
            return
        backend.set_memory_limit(self._index, limit)

    def reset_peak(self) -> None:
        """Let ``memory_stats()["peak"]`` begin at the bytes that are in use now; cards only.

        >>> import odyssey as od
        >>> od.devices.cpu.reset_peak()  # does nothing
        """
        backend = self.backend
        if backend is not None:
            backend.reset_peak(self._index)

    # ------------------------------------------------------------ caches

    def cache_stats(self) -> dict[str, int]:
        """Return ``entries``, ``limit``, ``hits`` and ``misses`` of the device's cache.

        Tables of rows and loaded kernels are kept there, the least recently used is dropped first.

        >>> import odyssey as od
        >>> sorted(od.devices.cpu.cache_stats())
        ['entries', 'hits', 'limit', 'misses']
        """
        return self._cache().stats()

    @property
    def cache_limit(self) -> int:
        """The largest number of entries of the device's cache; settable, at least 0.

        >>> import odyssey as od
        >>> od.devices.cpu.cache_limit == od.devices.cpu.cache_stats()["limit"]
        True
        """
        return self._cache().limit

    @cache_limit.setter
    def cache_limit(self, limit: int) -> None:
        self._cache().limit = check_int("cache_limit", "cache_limit", limit, 0)

    def clear_cache(self) -> None:
        """Drop all entries of the device's cache, and return unused memory to the device.

        >>> import odyssey as od
        >>> od.devices.cpu.clear_cache()
        >>> od.devices.cpu.cache_stats()["entries"]
        0
        """
        self._cache().clear()
        backend = self.backend
        if backend is not None:
            backend.free_memory(self._index)

    def _cache(self) -> DeviceCache:
        from odyssey.devices.device_cache import CPU_CACHE

        backend = self.backend
        return CPU_CACHE if backend is None else backend.cache(self._index)


def _process_memory() -> dict[str, int | None]:
    """Return the resident memory of this process, and its largest value."""
    in_use = peak = None
    try:
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        with open("/proc/self/statm") as file:
            in_use = int(file.read().split()[1]) * resource.getpagesize()
        peak = max(peak, in_use)
    except (ImportError, OSError, ValueError):  # not on Windows; no /proc on macOS
        pass
    return {"in_use": in_use, "reserved": in_use, "peak": peak, "limit": None}


# ------------------------------------------------------------------ names


def _new_device(platform: str, index: int) -> Device:
    found = object.__new__(Device)
    found._platform, found._index = platform, index
    return found


cpu = _new_device("cpu", 0)
"""The CPU, whose arrays are NumPy's."""


def cuda(k: int = 0) -> Device:
    """Return the CUDA device with a number.

    Args:
        k: The number, from 0.

    Raises:
        DeviceError: CuPy or the driver is missing, or there is no such card; it says what to do.

    >>> import odyssey as od
    >>> od.devices.cuda(-1)
    Traceback (most recent call last):
    ...
    odyssey.errors.SettingError: cuda: k=-1; it must be at least 0
    """
    index = check_int("cuda", "k", k, 0)
    count = backend_for("cuda").device_count()
    if index >= count:
        known = "cuda:0 is the only one" if count == 1 else f"cuda:0 to cuda:{count - 1} are there"
        raise DeviceError(f"device 'cuda:{index}' is not available: {known}")
    return _new_device("cuda", index)


def as_device(who: str, device: Any) -> Device:
    """Return the device of a name, or of a Device.

    Raises:
        DeviceError: there is no such device, or it is not available here.

    >>> as_device("example", "cpu")
    Device('cpu')
    """
    if isinstance(device, Device):
        return device
    if isinstance(device, str):
        platform, colon, number = device.partition(":")
        if platform == "cpu" and (not colon or number == "0"):
            return cpu
        if platform == "cuda" and (not colon or (number.isascii() and number.isdigit())):
            try:
                return cuda(int(number or 0))
            except DeviceError as error:
                raise DeviceError(f"{who}: {error}") from None
            except SettingError:
                pass
    raise DeviceError(f"{who}: device {format_value(device)} is not available; pass {_NAMES}")


def device_of(array: Any) -> Device:
    """Return the device that holds an array.

    >>> device_of(np.ones(2))
    Device('cpu')
    """
    backend = backend_of(array)
    return cpu if backend is None else _new_device(backend.platform, backend.device_index(array))


def copy_to_device(who: str, array: Any, device: Device) -> Any:
    """Return an array on a device: itself if it lies there, else a copy.

    >>> x = np.ones(2)
    >>> copy_to_device("example", x, cpu) is x
    True
    """
    here = device_of(array)
    if here == device:
        return array
    source = backend_of(array)
    target = device.backend
    if target is None:
        assert source is not None
        return source.call(who, here.index, source.to_host, array)
    if source is not None:
        if source is target:
            return target.call(who, device.index, target.move, array, device.index)
        array = source.call(who, here.index, source.to_host, array)
    if array.dtype not in NATIVE or array.dtype.char in "gG":  # extended precision
        raise DeviceError(f"{who}: arrays of dtype {array.dtype} are of the CPU alone")
    return target.call(who, device.index, target.to_device, array, device.index)


def transfer_array(x: Any, device: str) -> Any:
    """Return an array on the device of this name, always as another array."""
    target = as_device("to", device)
    moved = copy_to_device(
        "to", np.asarray(x) if isinstance(x, (int, float, complex)) else x, target
    )
    if moved is not x:
        return moved
    backend = target.backend
    return moved.copy() if backend is None else backend.call("to", target.index, moved.copy)

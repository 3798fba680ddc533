"""Backends: the array libraries of devices, found by the type of an array.

A backend is how arrays of one platform are made, copied and waited for. NumPy has none:
``backend_of`` returns None for its arrays, after one test of the type. Two backends may work on one
device; they allocate from one pool, so that a memory limit counts both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.devices import arrays
from odyssey.errors import DeviceError, DeviceMemoryError
from odyssey.spec import Array
from odyssey.tree_objects import array_type

if TYPE_CHECKING:
    from odyssey.devices.device_cache import DeviceCache

__all__ = ["Backend", "backend_for", "backend_of", "install", "installed", "uninstall"]


class Backend:
    """The array library of a platform; a subclass is one library.

    Attributes:
        platform: The name before the colon of a device: ``"cuda"``.
        array_type: The class of its arrays, which behave as NumPy's do where they can.
        namespace: The module that stands where ``np`` stands in a row's code.
        replacements: Functions of the device, by the function of NumPy, SciPy or odyssey in whose
            place they are called; for those that ``namespace`` has no word for.
        name: The library, for messages.
    """

    platform: str = ""
    name: str = ""
    array_type: type
    namespace: Any
    replacements: Mapping[Any, Any] = MappingProxyType({})

    # ------------------------------------------------------------ devices

    def device_count(self) -> int:
        """Return the number of devices of this platform."""
        raise NotImplementedError

    def device_index(self, array: Any) -> int:
        """Return the number of the device that holds an array."""
        raise NotImplementedError

    def on(self, index: int) -> AbstractContextManager[Any]:
        """Return a block in which new arrays are made on a device, and its kernels launched."""
        del index
        return nullcontext()

    def tf32(self, index: int) -> AbstractContextManager[Any]:
        """Return a block in which this thread's products of float32 on a device may use TF32."""
        del index
        return nullcontext()

    def synchronize(self, index: int) -> None:
        """Wait until a device has done all that it was given."""
        raise NotImplementedError

    # ------------------------------------------------------------ arrays

    def to_device(self, array: Array, index: int = 0) -> Any:
        """Return a copy of a host array on a device, C-contiguous if ``array`` is."""
        raise NotImplementedError

    def to_host(self, array: Any) -> Array:
        """Return a copy of a device's array as a NumPy array, once its values are computed."""
        raise NotImplementedError

    def move(self, array: Any, index: int) -> Any:
        """Return a copy of a device's array on another device of the platform."""
        return self.to_device(self.to_host(array), index)

    def pointer(self, array: Any) -> int:
        """Return the address of an array's first element, in the device's memory."""
        raise NotImplementedError

    def memory_span(self, array: Any) -> tuple[int, int]:
        """Return the first address of an array's memory and the address behind its last byte."""
        start = end = self.pointer(array)
        if not array.size:
            return start, start
        for n, s in zip(array.shape, array.strides, strict=True):
            if s > 0:
                end += (n - 1) * s
            else:
                start += (n - 1) * s
        return start, end + array.dtype.itemsize

    def stream(self, index: int = 0) -> int:
        """Return the handle of the stream that eager ops use on a device: 0 for the default one."""
        del index
        return 0

    def launcher(self, index: int) -> Any:
        """Return a launcher of compiled programs on a device; see ``compiler.cuda.launcher``.

        Raises:
            DeviceError: there is none.
        """
        raise DeviceError(f"compile: {self.name} has no programs for {self.platform}:{index}")

    def allocate(self, size: int, index: int = 0) -> Any:
        """Return ``size`` bytes of a device as an array of uint8, from the pool that arrays share.

        Programs and kernels take their memory here: so ``memory_stats`` and a limit count it.

        Raises:
            DeviceMemoryError: the memory is not there, or is above the limit.
        """
        return self.call("allocate", index, self.namespace.empty, size, np.dtype(np.uint8))

    # ------------------------------------------------------------ memory

    def memory_stats(self, index: int) -> dict[str, int | None]:
        """Return bytes of a device's pool: ``in_use``, ``reserved``, ``peak`` and ``limit``."""
        raise NotImplementedError

    def set_memory_limit(self, index: int, limit: int | None) -> None:
        """Limit the bytes of a device's pool; None: as many as the device has."""
        raise NotImplementedError

    def reset_peak(self, index: int) -> None:
        """Let ``peak`` begin at the bytes that are in use now."""
        raise NotImplementedError

    def free_memory(self, index: int) -> None:
        """Return memory to the device that the pool reserves and no array uses."""
        raise NotImplementedError

    def cache(self, index: int) -> DeviceCache:
        """Return the cache of what is prepared for a device: tables, loaded kernels, plans."""
        from odyssey.devices.device_cache import DeviceCache

        caches: dict[int, DeviceCache] = self.__dict__.setdefault("_caches", {})
        found = caches.get(index)
        return caches.setdefault(index, DeviceCache()) if found is None else found

    # ------------------------------------------------------------ calls

    @property
    def waits(self) -> bool:
        """Whether each call waits for the device: ``ODYSSEY_CUDA_SYNC=1``."""
        return os.environ.get("ODYSSEY_CUDA_SYNC", "0") not in ("", "0")

    def named_error(self, who: str, error: BaseException) -> Exception | None:
        """Return the error of this project for one of the library; None for any other."""
        del who, error
        return None

    def call(
        self, who: str, index: int, function: Callable[..., Any], *args: Any, **options: Any
    ) -> Any:
        """Call a function that computes on a device, and name the errors of the device.

        If memory is short, the pool is emptied and the function called once more; so it must
        leave its arguments as they are until it has all its memory.

        Args:
            who: The op or kernel, for messages.
            index: The number of the device.
            function: The function.
            *args: Its arguments.
            **options: Its options.

        Raises:
            DeviceMemoryError: the device has less memory than was asked for.
            DeviceError: the device failed: an illegal address, a lost device.
        """
        try:
            return self.call_once(who, index, function, args, options)
        except DeviceMemoryError:
            pass  # outside of the handler the error's frames no longer hold arrays
        self.free_memory(index)
        return self.call_once(who, index, function, args, options)

    def call_once(
        self,
        who: str,
        index: int,
        function: Callable[..., Any],
        args: Any,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> Any:
        """Call a function as ``call`` does, but not again if memory is short."""
        try:
            with self.on(index):
                out = function(*args, **options)
            if self.waits:
                self.synchronize(index)
        except Exception as error:
            named = self.named_error(who, error)
            if named is None:
                raise
            raise named from error
        return out


# Backends by the type of their arrays, and by platform: that of the last one installed.
_BY_TYPE: dict[type, Backend] = {}
_BY_PLATFORM: dict[str, Backend] = {}


def backend_of(array: Any) -> Backend | None:
    """Return the backend of an array; None for those of NumPy, and for what is no array.

    >>> backend_of(np.ones(2)) is None
    True
    """
    if type(array) is np.ndarray:
        return None
    return _BY_TYPE.get(type(array))


def backend_for(platform: str) -> Backend:
    """Return the backend of a platform, which is imported if none is installed.

    Raises:
        DeviceError: there is no such platform, its library is missing, or it has no device.
    """
    backend = _BY_PLATFORM.get(platform)
    if backend is not None:
        return backend
    if platform != "cuda":
        raise DeviceError(f"device {platform!r}: the platforms are 'cpu' and 'cuda'")
    # By its name, since the module imports this one.
    loaded: Backend = import_module("odyssey.devices.cupy_backend").load()
    install(loaded)
    return loaded


def installed(platform: str) -> Backend | None:
    """Return the installed backend of a platform; None before its first use."""
    return _BY_PLATFORM.get(platform)


def install(backend: Backend) -> None:
    """Let ops take a backend's arrays, and ``device=`` its platform.

    The array type joins ``ARRAYS`` and ``ARRAY_LIKE`` in each module that holds them: they are
    tuples, which ``isinstance`` tests fastest, and so the CPU pays nothing for a device.
    """
    if _BY_TYPE.get(backend.array_type) is not backend:
        known = backend.array_type in arrays.ARRAYS
        _BY_TYPE[backend.array_type] = backend
        if not known:
            _set_array_types((*arrays.ARRAYS, backend.array_type))
    _BY_PLATFORM[backend.platform] = backend


def uninstall(backend: Backend) -> None:
    """Undo ``install``, for tests; arrays of the backend are no arrays of odyssey any more."""
    if _BY_TYPE.get(backend.array_type) is backend:
        del _BY_TYPE[backend.array_type]
        _set_array_types(tuple(t for t in arrays.ARRAYS if t is not backend.array_type))
    if _BY_PLATFORM.get(backend.platform) is backend:
        del _BY_PLATFORM[backend.platform]
        for other in _BY_TYPE.values():
            if other.platform == backend.platform:
                _BY_PLATFORM[backend.platform] = other


def _set_array_types(types: tuple[type, ...]) -> None:
    """Replace ``ARRAYS`` and ``ARRAY_LIKE`` in all modules, and tell the listeners."""
    before = set(arrays.ARRAYS)
    replaced = {
        id(arrays.ARRAYS): types,
        id(arrays.ARRAY_LIKE): (*types, np.generic),
    }
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "odyssey" and module is not None:
            for key, value in list(vars(module).items()):
                if type(value) is tuple and id(value) in replaced:
                    setattr(module, key, replaced[id(value)])
    for kind in set(types) ^ before:
        array_type(kind, kind in types)
        (arrays.DEVICE_TYPES.add if kind in types else arrays.DEVICE_TYPES.discard)(kind)
        for listener in arrays.ARRAY_TYPE_LISTENERS:
            listener(kind, kind in types)

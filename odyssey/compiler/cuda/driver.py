"""Launcher of CUDA programs on a device: calls of the CUDA driver and of cuBLAS by ctypes.

Each call is a function of C with arguments that are made once. ctypes converts them in C, and the
functions declare no ``argtypes``, whose conversions are calls of their own: a launch took 0.4 µs
instead of 2.0 on the CPU. So arguments have the size that C expects: pointers are ``c_void_p``,
sizes are ``c_size_t``, and ints are C's ``int``.

Programs run in the stream of eager ops. They may have been given to another one before, so a change
of streams waits for the device: the memory of a program is used by one run at a time. A graph is
recorded in a stream of its own, and replayed in that of eager ops.

What the driver made, a module or a graph, is a ``Handle``. When nothing refers to it any more, it
is released, but not by the garbage collector, which may run in any thread, with another device, or
while a stream is captured. ``DeviceContext.synchronize`` does it, when the device is idle.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from itertools import cycle, repeat, starmap
from operator import call, itemgetter
from time import perf_counter
from typing import Any

from odyssey.compiler.cuda.cublas import (
    WORKSPACE_BYTES,
    Cublas,
    CublasStatus,
    GemmCall,
    gemm_call,
    load_cublas,
    status_error,
)
from odyssey.compiler.cuda.launcher import Call, Cell, Launcher
from odyssey.compiler.cuda.loops import LaunchShape
from odyssey.compiler.cuda.program import CudaKernel, CudaProgram, Launch
from odyssey.compiler.cuda.ptx import ARCHITECTURES, emit_ptx
from odyssey.compiler.schedule.buffer_assignment import ALIGNMENT
from odyssey.devices.backends import Backend
from odyssey.devices.commit import run_all
from odyssey.devices.cupy_backend import cuda_error
from odyssey.errors import DeviceError

__all__ = ["DeviceContext", "DriverLauncher", "Handle", "load_driver"]

_FUNCTIONS = (
    *("cuInit", "cuDeviceGet", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain"),
    *("cuCtxSetCurrent", "cuCtxSynchronize", "cuGetErrorName", "cuGetErrorString"),
    *("cuModuleLoadDataEx", "cuModuleGetFunction", "cuModuleUnload", "cuLaunchKernel"),
    *("cuMemcpyDtoDAsync_v2", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemsetD8Async"),
    *("cuMemHostAlloc", "cuMemFreeHost"),
    *("cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize"),
    *("cuEventCreate", "cuEventDestroy_v2", "cuEventRecord", "cuEventSynchronize"),
    *("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"),
    *("cuGraphLaunch", "cuGraphDestroy", "cuGraphExecDestroy"),
)

# CUdevice_attribute, CUjit_option, and flags of streams, events, memory and captures of cuda.h.
_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
_ERROR_LOG_BUFFER, _ERROR_LOG_BUFFER_SIZE = 5, 6
_NON_BLOCKING = 1
_DISABLE_TIMING = 2
_PORTABLE = 1
# Other threads may allocate, and cuBLAS may load a kernel, while a stream is captured.
_RELAXED = 2
# CU_STREAM_PER_THREAD: each thread's own stream has this handle.
_PER_THREAD_STREAM = 2

# More bytes of the host are copied from where they lie, which waits for the stream.
_STAGED_BYTES = 1 << 16
# Runs whose bytes may be on their way to the device at one time.
_PARTS = 8

_LOG_BYTES = 8192
_LOG_SHOWN = 600

_NO_CALL: Call = (int,)
"""A call of C that does nothing, and returns 0."""

# To wait for a whole device is an error while one of its streams is captured, and ends the capture.
_DEVICE_LOCK = threading.RLock()


def load_driver() -> Any:
    """Load the library of the CUDA driver.

    Raises:
        DeviceError: it is not installed.
    """
    name = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        return ctypes.CDLL(name)
    except OSError as error:
        raise DeviceError(
            f"cuda: the NVIDIA driver cannot be loaded ({error}); install driver 580 or later"
        ) from error


class Handle(ctypes.c_void_p):
    """A handle of the driver, which is released when nothing refers to it.

    Attributes:
        needs: What must not be released before it.
    """

    needs: Any = None


class DeviceContext:
    """The primary context of a device, which eager ops use as well.

    Args:
        backend: The backend whose memory and streams programs use.
        index: The number of the device.
        library: The library of the driver; None: load it.
        load_products: Returns the library of cuBLAS.

    Attributes:
        backend: The backend.
        index: The number of the device.
        library: The library of the driver.
        architecture: What PTX is generated for.

    Raises:
        DeviceError: there is no driver, no such device, or it is too old.
    """

    def __init__(
        self,
        backend: Backend,
        index: int,
        library: Any = None,
        load_products: Callable[[], Any] = load_cublas,
    ) -> None:
        library = load_driver() if library is None else library
        missing = [name for name in _FUNCTIONS if not hasattr(library, name)]
        if missing:
            raise DeviceError(
                f"cuda: the NVIDIA driver has no {missing[0]}; install driver 580 or later"
            )
        self.library = library
        self.backend, self.index = backend, index
        self._load_products = load_products
        self._products: Any = None
        # Calls that release handles.
        self._released: deque[Call] = deque()
        self._streams: weakref.WeakValueDictionary[Any, _Stream] = weakref.WeakValueDictionary()
        self.run("cuInit", 0)
        device, number = ctypes.c_int(), ctypes.c_int()
        self.run("cuDeviceGet", ctypes.byref(device), index)
        capability = []
        for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
            self.run("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
            capability.append(number.value)
        self.architecture = _architecture(*capability)
        self._context = ctypes.c_void_p()
        # It is kept until the process ends, as CuPy keeps it.
        self.run("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def run(self, name: str, *args: Any) -> None:
        """Call a function of the driver.

        Raises:
            DeviceError: it failed.
        """
        status = getattr(self.library, name)(*args)
        if status:
            raise self.error(name, status)

    def error(self, who: str, status: int, log: str = "") -> Exception:
        """Return the error for a status of the driver.

        Args:
            who: The kernel or the function, for the message.
            status: The status.
            log: What the driver wrote besides.
        """
        name, text = (
            self._error_text(function, status)
            for function in ("cuGetErrorName", "cuGetErrorString")
        )
        words = f"{name or f'status {status}'}: {text} {log[:_LOG_SHOWN]}"
        return cuda_error(f"cuda: {who}", " ".join(words.split()))

    def _error_text(self, function: str, status: int) -> str:
        text = ctypes.c_char_p()
        getattr(self.library, function)(status, ctypes.byref(text))
        return (text.value or b"").decode(errors="replace")

    def make_current(self) -> None:
        """Let the calls of this thread go to the device."""
        self.run("cuCtxSetCurrent", self._context)

    def empty_handle(self, destroy: str) -> Handle:
        """Return a handle for a function of the driver to write.

        Args:
            destroy: The function that releases what it will be a handle of.
        """
        memory = ctypes.c_void_p()
        handle = Handle.from_buffer(memory)  # the finalizer has the memory, and not the handle
        self.release_with(handle, getattr(self.library, destroy), memory)
        return handle

    def create(self, name: str, destroy: str, *args: Any, log: Any = None) -> Handle:
        """Return what a function of the driver makes.

        Args:
            name: The function; its first argument is where it writes the handle.
            destroy: The function that releases it.
            *args: The other arguments.
            log: A buffer in which the driver writes more about an error.

        Raises:
            DeviceError: it failed.
        """
        handle = self.empty_handle(destroy)
        status = getattr(self.library, name)(ctypes.byref(handle), *args)
        if status:
            raise self.error(name, status, log.value.decode(errors="replace") if log else "")
        return handle

    def release_with(self, owner: Any, destroy: Any, memory: ctypes.c_void_p) -> None:
        """Release a handle once nothing refers to an object any more, and the device is idle."""
        weakref.finalize(owner, self._release, destroy, memory).atexit = False

    def _release(self, destroy: Any, memory: ctypes.c_void_p) -> None:
        if memory.value:
            self._released.append((destroy, memory))

    def release_unused(self) -> None:
        """Release handles to which nothing refers; waits for the device if there are some."""
        if self._released:
            self.synchronize()

    def synchronize(self, who: str = "wait") -> None:
        """Wait for the device.

        Args:
            who: What was given to it last, for the message.

        Raises:
            DeviceError: the device failed.
        """
        with _DEVICE_LOCK:
            status = self.library.cuCtxSynchronize()
            # Within one call of C, so that no signal handler comes between two of them.
            entries = repeat(self._released.popleft, len(self._released))
            run_all(starmap(call, map(call, entries)))
        if status:
            raise self.error(who, status)

    @property
    def products(self) -> Any:
        """The library of cuBLAS."""
        if self._products is None:
            self._products = self._load_products()
        return self._products

    def cublas(self, stream: int, workspace: Any) -> Cublas:
        """Return a handle of cuBLAS for a stream."""
        cublas = Cublas(self.products, self.backend.pointer(workspace))
        self.release_with(cublas, self.products.cublasDestroy_v2, cublas.handle)
        cublas.use_stream(stream)
        return cublas

    def workspace(self) -> Any:
        """Return memory for handles of cuBLAS."""
        return self.backend.allocate(WORKSPACE_BYTES, self.index)

    def stream(self, key: tuple[int, int]) -> _Stream:
        """Return the handles that the programs of a stream share.

        Args:
            key: The stream, and the thread if each thread has another one of this name.
        """
        found = self._streams.get(key)
        return self._streams.setdefault(key, _Stream(self, key[0])) if found is None else found


class _Stream:
    """Handles of cuBLAS that the programs of a stream share, with one workspace.

    Graphs are replayed in the stream, so their products may have the same workspace. They are
    recorded in another one, ``recorder``: the default stream cannot be captured, and other threads
    may use the stream meanwhile.

    Args:
        context: The context.
        stream: The stream of eager ops.
    """

    def __init__(self, context: DeviceContext, stream: int) -> None:
        self._context, self._stream = context, stream
        self._workspace: Any = None
        self._cublas: Cublas | None = None
        self._recorder: tuple[Handle, Cublas | None] | None = None

    def cublas(self) -> Cublas:
        """Return the handle of cuBLAS whose products run in the stream."""
        with _DEVICE_LOCK:
            if self._workspace is None:
                self._workspace = self._context.workspace()
            if self._cublas is None:
                self._cublas = self._context.cublas(self._stream, self._workspace)
            return self._cublas

    def recorder(self, multiplies: bool) -> tuple[Handle, Cublas | None]:
        """Return a stream to capture, and a handle of cuBLAS for it if there are products."""
        context = self._context
        with _DEVICE_LOCK:
            stream, cublas = self._recorder or (None, None)
            if stream is None:
                stream = context.create("cuStreamCreate", "cuStreamDestroy_v2", _NON_BLOCKING)
            if multiplies and cublas is None:
                self.cublas()
                cublas = context.cublas(stream.value or 0, self._workspace)
            self._recorder = stream, cublas
            return self._recorder

    def drop_recorder(self) -> None:
        """Let the next graph be recorded in another stream."""
        self._recorder = None


def _architecture(major: int, minor: int) -> str:
    """Return the latest architecture that is not newer than a device."""
    known = [name for name in ARCHITECTURES if int(name[3:]) <= 10 * major + minor]
    if not known:
        oldest = int(ARCHITECTURES[0][3:])
        raise DeviceError(
            f"cuda: the device has compute capability {major}.{minor}, and programs need "
            f"{oldest // 10}.{oldest % 10} or later; use a newer device, or the CPU"
        )
    return known[-1]


class _Staging:
    """Page-locked memory of the host, from which the runs of a program upload bytes.

    The driver reads it when the copy runs, after the call. So a run writes to another part of it
    than the run before, and a part is used again when the copies of its last run are done.

    Args:
        context: The context.
    """

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._offsets: list[tuple[Cell, int]] = []
        self._size = self._part = 0
        self._memory: Handle | None = None
        self._events: list[Handle] = []

    def add(self, count: int) -> Cell:
        """Return a cell with the address of so many bytes, in the part of the current run."""
        cell = Cell()
        self._offsets.append((cell, self._size))
        self._size += -(-count // ALIGNMENT) * ALIGNMENT
        self._memory = None
        return cell

    def use_next_part(self, stream: Cell) -> None:
        """Give the cells addresses whose bytes no copy reads any more.

        Args:
            stream: The stream of this run, and of the run before.
        """
        if not self._offsets:
            return
        context = self._context
        if self._memory is None:
            flags = ctypes.c_size_t(_PARTS * self._size), _PORTABLE
            events = [
                context.create("cuEventCreate", "cuEventDestroy_v2", _DISABLE_TIMING)
                for _ in range(_PARTS)
            ]
            memory = context.create("cuMemHostAlloc", "cuMemFreeHost", *flags)
            self._events, self._memory = events, memory
        else:
            context.run("cuEventRecord", self._events[self._part], stream)
        self._part = (self._part + 1) % _PARTS
        context.run("cuEventSynchronize", self._events[self._part])
        start = (self._memory.value or 0) + self._part * self._size
        for cell, offset in self._offsets:
            cell.value = start + offset


class DriverLauncher(Launcher):
    """Launcher of programs on a device of CUDA.

    Args:
        context: The context of the device.
    """

    shape = LaunchShape()
    has_graphs = True

    def __init__(self, context: DeviceContext) -> None:
        self._context = context
        self._backend, self._index = context.backend, context.index
        self._library = self._context.library
        self._functions: dict[str, Handle] = {}
        self._multiplies = False
        # Cells with the stream of the run, and its handle of cuBLAS.
        self._stream, self._cublas = Cell(), Cell()
        self._staging = _Staging(context)
        self._key: tuple[int, int] | None = None
        self._loaded_in: tuple[int, int] | None = None
        self._state: _Stream

    def load(self, program: CudaProgram) -> dict[str, float]:
        """Generate PTX, and let the driver compile it for the device."""
        begin = perf_counter()
        self._loaded_in = self._stream_key()  # constants are copied there, behind this
        ptx = emit_ptx(program.text, self._context.architecture)
        between = perf_counter()
        if program.kernels:
            self._backend.call("cuda", self._index, self._load_module, ptx, program.kernels)
        return {"ptx": between - begin, "load": perf_counter() - between}

    def _load_module(self, ptx: str, kernels: Sequence[CudaKernel]) -> None:
        context = self._context
        context.make_current()
        context.release_unused()
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (ctypes.c_int * 2)(_ERROR_LOG_BUFFER, _ERROR_LOG_BUFFER_SIZE)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        arguments = ptx.encode(), len(options), options, values
        module = context.create("cuModuleLoadDataEx", "cuModuleUnload", *arguments, log=log)
        functions: dict[str, Handle] = {}
        for kernel in kernels:
            function = functions[kernel.name] = Handle()
            function.needs = module
            name = kernel.name.encode()
            context.run("cuModuleGetFunction", ctypes.byref(function), module, name)
        self._functions = functions

    def launch_call(self, launch: Launch, cells: Sequence[Cell]) -> Call:
        """Return a call of ``cuLaunchKernel``."""
        # Pointers keep the cells alive; addresses would not.
        parameters = (ctypes.POINTER(Cell) * len(cells))(*map(ctypes.pointer, cells))
        function = self._functions[launch.kernel]
        shape = launch.grid, 1, 1, launch.block, 1, 1, 0  # no dynamic shared memory
        return self._library.cuLaunchKernel, function, *shape, self._stream, parameters, None

    def product_call(self, product: GemmCall, first: Cell, second: Cell, out: Cell) -> Call:
        """Return a call of ``cublasGemmStridedBatchedEx``."""
        made = gemm_call(self._context.products, self._cublas, product, first, second, out)
        if not self._multiplies:
            self._multiplies, self._key = True, None  # the next run fills the cell of the handle
        return made

    def copy_call(self, target: Cell, source: Cell, count: int) -> Call:
        """Return a call of ``cuMemcpyDtoDAsync``."""
        if not count:
            return _NO_CALL
        size = ctypes.c_size_t(count)
        return self._library.cuMemcpyDtoDAsync_v2, target, source, size, self._stream

    def zero_call(self, target: Cell, count: int) -> Call:
        """Return a call of ``cuMemsetD8Async``."""
        if not count:
            return _NO_CALL
        return self._library.cuMemsetD8Async, target, 0, ctypes.c_size_t(count), self._stream

    def upload_call(self, target: Cell, source: int, count: int) -> Call:
        """Return a call of ``memmove`` to page-locked memory and of ``cuMemcpyHtoDAsync``."""
        if count > _STAGED_BYTES:
            return self._copy_and_wait("HtoD", target, Cell(source), count)
        if not count:
            return _NO_CALL
        staged, size = self._staging.add(count), ctypes.c_size_t(count)
        move = ctypes.memmove, staged, source, count
        upload = self._library.cuMemcpyHtoDAsync_v2, target, staged, size, self._stream
        return _in_turn([move, upload], itemgetter(1))

    def download_call(self, target: int, source: Cell, count: int) -> Call:
        """Return a call of ``cuMemcpyDtoHAsync`` and of ``cuStreamSynchronize``."""
        return self._copy_and_wait("DtoH", Cell(target), source, count)

    def _copy_and_wait(self, way: str, target: Cell, source: Cell, count: int) -> Call:
        wait = self._library.cuStreamSynchronize, self._stream
        if not count:
            return wait
        function = getattr(self._library, f"cuMemcpy{way}Async_v2")
        copy = function, target, source, ctypes.c_size_t(count), self._stream
        return _in_turn([copy, wait], max)

    def graph_call(self, calls: Sequence[Call]) -> Call:
        """Return a call of ``cuGraphLaunch``, for the stream of the last ``begin_run``.

        Uploads and downloads cannot be among the calls: the host has a part in each of them.
        """
        assert all(function is not next for function, *_ in calls), "a copy from or to the host"
        made: Call = self._backend.call("cuda", self._index, self._record, calls)
        return made

    def _record(self, calls: Sequence[Call]) -> Call:
        context, library, state = self._context, self._library, self._state
        cells = self._stream, self._cublas
        # ``rest`` gets the graph of a recording that is interrupted, so that it is released.
        graph, rest = (context.empty_handle("cuGraphDestroy") for _ in range(2))
        context.make_current()
        with _DEVICE_LOCK:
            context.release_unused()
            stream, cublas = state.recorder(self._multiplies)
            recorders = stream.value, None if cublas is None else cublas.handle.value
            restore: list[Call] = [(setattr, cell, "value", cell.value) for cell in cells]
            try:
                context.run("cuStreamBeginCapture_v2", stream, _RELAXED)
                for cell, handle in zip(cells, recorders, strict=True):
                    cell.value = handle
                answers = list(starmap(call, calls))
                end = library.cuStreamEndCapture, stream, ctypes.byref(graph)
                ended, *_ = starmap(call, [end, *restore])
                self.check_statuses(answers, [f"call {k} of a graph" for k in range(len(answers))])
                if ended:
                    raise context.error("cuStreamEndCapture", ended)
                flags = ctypes.c_ulonglong(0)
                executable = context.create(
                    "cuGraphInstantiateWithFlags", "cuGraphExecDestroy", graph, flags
                )
            except BaseException:
                end = library.cuStreamEndCapture, stream, ctypes.byref(rest)
                run_all(starmap(call, [end, *restore]))
                state.drop_recorder()
                raise
            run_all(starmap(call, [(library.cuGraphDestroy, graph), (setattr, graph, "value", 0)]))
        executable.needs = state, self._functions
        return library.cuGraphLaunch, executable, self._stream

    def _stream_key(self) -> tuple[int, int]:
        """Return the stream of eager ops, and the thread if each has another one of this name."""
        stream = self._backend.stream(self._index)
        return stream, threading.get_ident() if stream == _PER_THREAD_STREAM else 0

    def keeps_stream(self) -> bool:
        """Return whether eager ops use the stream of the run before."""
        return self._stream_key() == self._key

    def begin_run(self) -> None:
        """Make the device current in this thread, and take the stream of eager ops."""
        self._context.make_current()
        key = self._stream_key()
        if key != self._key:
            self._change_stream(key)
        self._staging.use_next_part(self._stream)

    def _change_stream(self, key: tuple[int, int]) -> None:
        if (self._key or self._loaded_in or key) != key:
            self._context.synchronize()
        state = self._context.stream(key)
        handle = state.cublas().handle.value if self._multiplies else None
        self._key = None
        self._stream.value, self._cublas.value, self._state = key[0], handle, state
        self._key = key

    def check_statuses(self, answers: Sequence[Any], names: Sequence[str]) -> None:
        """Raise the error of the first call that failed."""
        if not any(answers):
            return
        for answer, name in zip(answers, names, strict=True):
            if isinstance(answer, CublasStatus) and answer:
                raise status_error(name, answer.value)
            if answer:
                raise self._context.error(name, answer)

    def wait(self, who: str) -> None:
        """Wait for all streams of the device."""
        self._context.make_current()
        self._context.synchronize(who)


def _in_turn(calls: Sequence[Call], status: Any) -> Call:
    """Return a call of C that makes several calls; its status is a function of theirs."""
    answers = starmap(call, cycle(calls))
    return next, map(status, zip(*[answers] * len(calls), strict=True))

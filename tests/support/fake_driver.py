"""Stand-ins for the libraries of the CUDA driver and of cuBLAS, which compute on host memory.

Functions are called by the C ABI, through pointers to functions of C, and refuse arguments that C
would read with another size. A wrong use is an AssertionError here, where a device would do what it
likes: a handle that does not live, an address outside of the device's memory, a function without a
current context. What the driver's documentation makes an error of has its status.

Kernels run by ``HostKernels`` and products by ``cublas.emulate``: as late as a device may run them,
when something waits for their stream. So what a call only notes must live until then, and memory of
the host is read late. In a stream that is captured, calls are kept with the addresses of then, and
run when their graph does.
"""

import ctypes
import itertools
import re
import threading
from collections import deque
from contextlib import contextmanager
from ctypes import (
    POINTER,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_longlong,
    c_size_t,
    c_ubyte,
    c_uint,
    c_void_p,
)

import numpy as np

from odyssey.compiler.cuda.cublas import DATA_TYPES, WORKSPACE_BYTES, GemmCall, emulate
from odyssey.compiler.cuda.driver import DeviceContext, DriverLauncher
from odyssey.compiler.cuda.host_execution import HostKernels
from odyssey.devices.cupy_backend import CupyBackend
from support.standin import StandIn

INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE, INVALID_CONTEXT, INVALID_PTX = 1, 2, 101, 201, 218
ILLEGAL_STATE, NOT_FOUND, ILLEGAL_ADDRESS = 401, 500, 700
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, UNKNOWN = 900, 901, 999
STATUSES = {
    INVALID_VALUE: ("INVALID_VALUE", "invalid argument"),
    OUT_OF_MEMORY: ("OUT_OF_MEMORY", "out of memory"),
    INVALID_DEVICE: ("INVALID_DEVICE", "invalid device ordinal"),
    INVALID_CONTEXT: ("INVALID_CONTEXT", "invalid device context"),
    INVALID_PTX: ("INVALID_PTX", "a PTX JIT compilation failed"),
    ILLEGAL_STATE: ("ILLEGAL_STATE", "the operation cannot be performed in the present state"),
    NOT_FOUND: ("NOT_FOUND", "named symbol not found"),
    ILLEGAL_ADDRESS: ("ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    719: ("LAUNCH_FAILED", "unspecified launch failure"),
    CAPTURE_UNSUPPORTED: ("STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when capturing"),
    CAPTURE_INVALIDATED: ("STREAM_CAPTURE_INVALIDATED", "capture failed due to a previous error"),
    UNKNOWN: ("UNKNOWN", "unknown error"),
}
WORDS = {
    status: (f"CUDA_ERROR_{name}".encode(), text.encode())
    for status, (name, text) in STATUSES.items()
}

WORD = c_void_p  # CUdeviceptr has the size of a pointer
PROTOTYPES = {
    "cuInit": [c_uint],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxSetCurrent": [c_void_p],
    "cuCtxSynchronize": [],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuModuleLoadDataEx": [
        *(POINTER(c_void_p), c_void_p, c_uint, POINTER(c_int), POINTER(c_void_p)),
    ],
    "cuModuleGetFunction": [POINTER(c_void_p), c_void_p, c_char_p],
    "cuModuleUnload": [c_void_p],
    "cuLaunchKernel": [
        *(c_void_p, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint),
        *(c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    ],
    "cuMemcpyDtoDAsync_v2": [WORD, WORD, c_size_t, c_void_p],
    "cuMemcpyHtoDAsync_v2": [WORD, c_void_p, c_size_t, c_void_p],
    "cuMemcpyDtoHAsync_v2": [c_void_p, WORD, c_size_t, c_void_p],
    "cuMemsetD8Async": [WORD, c_ubyte, c_size_t, c_void_p],
    "cuMemHostAlloc": [POINTER(c_void_p), c_size_t, c_uint],
    "cuMemFreeHost": [c_void_p],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventDestroy_v2": [c_void_p],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuStreamCreate": [POINTER(c_void_p), c_uint],
    "cuStreamDestroy_v2": [c_void_p],
    "cuStreamSynchronize": [c_void_p],
    "cuStreamBeginCapture_v2": [c_void_p, c_int],
    "cuStreamEndCapture": [c_void_p, POINTER(c_void_p)],
    "cuGraphInstantiateWithFlags": [POINTER(c_void_p), c_void_p, ctypes.c_ulonglong],
    "cuGraphLaunch": [c_void_p, c_void_p],
    "cuGraphDestroy": [c_void_p],
    "cuGraphExecDestroy": [c_void_p],
    "cublasCreate_v2": [POINTER(c_void_p)],
    "cublasDestroy_v2": [c_void_p],
    "cublasSetStream_v2": [c_void_p, c_void_p],
    "cublasSetWorkspace_v2": [c_void_p, c_void_p, c_size_t],
    "cublasGemmStridedBatchedEx": [
        *(c_void_p, c_int, c_int, c_int, c_int, c_int, c_void_p),
        *(c_void_p, c_int, c_int, c_longlong, c_void_p, c_int, c_int, c_longlong),
        *(c_void_p, c_void_p, c_int, c_int, c_longlong, c_int, c_int, c_int),
    ],
}
"""Parameters of the functions, from the documentation of CUDA 13."""

# By text: a test loads one program many times.
_KERNELS = {}

_POINTERS = (c_void_p, c_char_p)
# Functions that need no context.
_WITHOUT_CONTEXT = ("cuInit", "cuDevice", "cuCtxSetCurrent", "cuGetError")
# They do their work even if they return the error of an earlier call.
_RELEASES = ("Destroy", "Unload", "FreeHost", "cuCtxSynchronize", "cuStreamEndCapture")


class _FunctionPointer(ctypes._CFuncPtr):
    """A function as ``CDLL`` finds it: it returns an int, and its parameters are not known."""

    _flags_ = ctypes._FUNCFLAG_CDECL
    _restype_ = c_int


class Function:
    """A function of a library; a call counts, and may be told to fail.

    Attributes:
        restype: What the status becomes, as for functions of ctypes.
    """

    def __init__(self, machine, name, function):
        self._machine, self._name, self._function = machine, name, function
        self._types = PROTOTYPES[name]
        self._callback = ctypes.CFUNCTYPE(c_int, *self._types)(self._run)
        self._pointer = _FunctionPointer(ctypes.cast(self._callback, c_void_p).value)
        self._raised = threading.local()
        self.restype = c_int

    def __call__(self, *arguments):
        name, types = self._name, self._types
        assert len(arguments) == len(types), f"{name}: {len(arguments)} arguments"
        for k, (argument, type_) in enumerate(zip(arguments, types, strict=True)):
            assert _is_passed_as(argument, type_), f"{name}: argument {k} is {argument!r}"
        self._raised.error = None
        status = self._pointer(*arguments)
        error, self._raised.error = self._raised.error, None
        if error is not None:
            raise error
        return status if self.restype is c_int else self.restype(status)

    def _run(self, *arguments):
        try:
            return self._machine.count(self._name, self._function, arguments)
        except BaseException as error:  # it cannot go through C
            self._raised.error = error
            return UNKNOWN


def _is_passed_as(argument, type_):
    """Whether C reads an argument as ``ctypes`` passes it without ``argtypes``."""
    if type_ in (c_int, c_uint, c_ubyte):
        bits = 8 * ctypes.sizeof(type_)
        if isinstance(argument, (c_int, c_uint)):
            return True
        return type(argument) is int and -(1 << (bits - 1)) <= argument < 1 << bits
    if type_ in _POINTERS:
        is_address = isinstance(argument, (c_void_p, bytes, ctypes.Array)) or argument is None
        return is_address or type(argument).__name__ == "CArgObject"
    if isinstance(type_, type) and issubclass(type_, ctypes._Pointer):
        is_pointer = isinstance(argument, ctypes.Array) or argument is None
        return is_pointer or type(argument).__name__ == "CArgObject"
    return type(argument) is type_


class Stream:
    """A stream.

    Attributes:
        pending: What was given to it and did not run yet.
        recorded: What was given to it since the capture began; None if it is not captured.
        is_valid: Whether nothing has ended the capture.
    """

    def __init__(self, context):
        self.context, self.recorded, self.is_valid = context, None, True
        self.pending = deque()

    def run(self, until=lambda: False):
        """Run what is pending, in order, until something holds."""
        while self.pending and not until():
            self.pending.popleft()()


class Event:
    """An event: how often it was recorded, the last time in ``stream``, and reached."""

    def __init__(self):
        self.stream, self.recorded, self.reached = None, 0, 0


class _Local(threading.local):
    """The current context of a thread."""

    context = None


class FakeDriver:
    """The driver and cuBLAS of ``devices`` devices.

    Args:
        capability: Compute capability of the devices.
        devices: Their number.
        is_late: Whether what is given to a stream runs when something waits for it. Otherwise it
            runs at once, beside eager ops of the stand-in for CuPy, whose memory is not known here.

    Attributes:
        calls: Names of the functions that were called.
        launched: Names of the kernels that ran.
        streams_used: For each call with a stream, its name and the handle of the stream.
    """

    def __init__(self, capability=(9, 0), devices=1, is_late=True):
        self.capability, self.devices, self.is_late = capability, devices, is_late
        self.calls, self.launched, self.streams_used = [], [], []
        self._fault = self._sticky = None
        self._numbers = itertools.count(0x10010, 16)
        self._programs = []
        self._spans = {}
        self.local = _Local()
        self.contexts = {device: next(self._numbers) for device in range(devices)}
        # By kind, what lives.
        self.living = {kind: {} for kind in ("module", "stream", "graph", "exec", "cublas")}
        self.living |= {"event": {}, "host": {}}
        self.functions = {}
        self._special = {0: Stream(None), 1: Stream(None), 2: Stream(None)}
        self.library = _Library(self, "cu")
        self.cublas = _Library(self, "cublas")

    # -- what tests tell and ask

    def expect(self, program):
        """Let the next module that has the kernels of a program be those of the program."""
        self._programs.append(program)

    def allow(self, array):
        """Let an array of NumPy be memory of the device, which a pool keeps when it is freed."""
        start = array.__array_interface__["data"][0]
        self._spans[start] = start + array.nbytes, array

    def fail(self, call, status, sticky=False):
        """Let a call fail, counted from 0 from now on; sticky: and all later ones."""
        self._fault = len(self.calls) + call, status, sticky

    def count(self, name, function, arguments):
        """Note a call, and make it unless it shall fail."""
        position = len(self.calls)
        self.calls.append(name)
        releases = any(word in name for word in _RELEASES)
        status = self._sticky or 0
        if name.startswith("cuGetError"):
            return function(*arguments)
        if self._fault is not None and position == self._fault[0]:
            status = self._fault[1]
            self._sticky = status if self._fault[2] else None
        if not status and not name.startswith(_WITHOUT_CONTEXT) and self._context() is None:
            return INVALID_CONTEXT
        if status and not releases:
            return status
        return function(*arguments) or status

    def alive(self):
        """By kind, how many handles live."""
        return {kind: len(handles) for kind, handles in self.living.items() if handles}

    # -- helpers

    def _context(self):
        return self.local.context

    def _new(self, kind, value, out):
        handle = next(self._numbers)
        self.living[kind][handle] = value
        out[0] = handle
        return 0

    def _find(self, kind, handle):
        assert handle in self.living[kind], f"no {kind} has the handle {handle}"
        return self.living[kind][handle]

    def _destroy(self, kind, handle):
        assert handle in self.living[kind], f"no {kind} has the handle {handle}"
        del self.living[kind][handle]
        return 0

    def _stream(self, handle):
        handle = handle or 0
        if handle in self._special:
            return self._special[handle]
        stream = self._find("stream", handle)
        assert stream.context == self._context(), "a stream of another context"
        return stream

    def _check(self, address, count):
        inside = not self.is_late or any(
            start <= (address or 0) and (address or 0) + count <= end
            for start, (end, _) in list(self._spans.items())
        )
        assert inside, f"{count} bytes at {address} are not of the device"

    def _submit(self, handle, operation):
        """Run an operation in a stream, or record it."""
        self.streams_used.append((self.calls[-1], handle or 0))
        stream = self._stream(handle)
        if stream.recorded is None:
            stream.pending.append(operation)
            if not self.is_late:
                stream.run()
        elif not stream.is_valid:
            return CAPTURE_INVALIDATED
        else:
            stream.recorded.append(operation)
        return 0

    def _captures(self):
        return [s for s in self.living["stream"].values() if s.recorded is not None]

    # -- devices and contexts

    def cuInit(self, flags):
        return INVALID_VALUE if flags else 0

    def cuDeviceGet(self, out, ordinal):
        if not 0 <= ordinal < self.devices:
            return INVALID_DEVICE
        out[0] = ordinal
        return 0

    def cuDeviceGetAttribute(self, out, attribute, device):
        out[0] = {75: self.capability[0], 76: self.capability[1]}[attribute]
        return 0

    def cuDevicePrimaryCtxRetain(self, out, device):
        out[0] = self.contexts[device]
        return 0

    def cuCtxSetCurrent(self, context):
        assert context in self.contexts.values(), "no context"
        self.local.context = context
        return 0

    def cuCtxSynchronize(self):
        captured = self._captures()
        for stream in [*self._special.values(), *self.living["stream"].values()]:
            if not captured:
                stream.run()
        return self._end_captures(captured)

    def _end_captures(self, streams):
        for stream in streams:
            stream.is_valid = False
        return CAPTURE_UNSUPPORTED if streams else 0

    def cuGetErrorName(self, status, out):
        return self._say(status, out, 0)

    def cuGetErrorString(self, status, out):
        return self._say(status, out, 1)

    def _say(self, status, out, part):
        if status not in WORDS:
            out[0] = None
            return INVALID_VALUE
        address = ctypes.cast(c_char_p(WORDS[status][part]), c_void_p).value
        ctypes.cast(out, POINTER(c_void_p))[0] = address
        return 0

    # -- modules and kernels

    def cuModuleLoadDataEx(self, out, image, count, options, values):
        ptx = ctypes.string_at(image).decode()
        given = {options[k]: values[k] for k in range(count)}
        assert set(given) == {5, 6}, "the buffer for errors, and its size"
        target = int(re.search(r"^\.target sm_(\d+)", ptx, re.M)[1])
        names = re.findall(r"\.entry (\w+)\(", ptx)
        program = next((p for p in self._programs if [k.name for k in p.kernels] == names), None)
        if program is None or target > 10 * self.capability[0] + self.capability[1]:
            log = f"ptxas fatal : no program, or sm_{target} for {self.capability}".encode()
            ctypes.memmove(given[5], log + b"\0", min(len(log) + 1, given[6]))
            return INVALID_PTX
        kernels = _KERNELS.get(program.host_text) or HostKernels(program)
        _KERNELS[program.host_text] = kernels
        return self._new("module", (program, kernels), out)

    def cuModuleGetFunction(self, out, module, name):
        program, kernels = self._find("module", module)
        found = {kernel.name: kernel for kernel in program.kernels}
        if name.decode() not in found:
            return NOT_FOUND
        handle = next(self._numbers)
        self.functions[handle] = module, kernels, found[name.decode()]
        out[0] = handle
        return 0

    def cuModuleUnload(self, module):
        assert not self._captures(), "a module is unloaded while a stream is captured"
        return self._destroy("module", module)

    def cuLaunchKernel(self, function, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra):
        assert (gy, gz, by, bz, shared, bool(extra)) == (1, 1, 1, 1, 0, False)
        assert gx >= 1
        assert 1 <= bx <= 1024
        assert bx % 32 == 0
        module, kernels, kernel = self.functions[function]
        addresses = [
            c_void_p.from_address(parameters[k]).value for k in range(len(kernel.parameters))
        ]

        def launch():
            self._find("module", module)
            for address in addresses:
                self._check(address, 0)
            self.launched.append(kernel.name)
            kernels.launch(kernel.name, gx, bx, addresses)

        return self._submit(stream, launch)

    # -- memory

    def cuMemcpyDtoDAsync_v2(self, target, source, count, stream):
        def copy():
            self._check(target, count)
            self._check(source, count)
            ctypes.memmove(target, source, count)

        return self._submit(stream, copy)

    def cuMemcpyHtoDAsync_v2(self, target, source, count, stream):
        def copy():
            self._check(target, count)
            ctypes.memmove(target, source, count)

        return self._submit(stream, copy)

    def cuMemcpyDtoHAsync_v2(self, target, source, count, stream):
        def copy():
            self._check(source, count)
            ctypes.memmove(target, source, count)

        return self._submit(stream, copy)

    def cuMemsetD8Async(self, target, value, count, stream):
        def fill():
            self._check(target, count)
            ctypes.memset(target, value, count)

        return self._submit(stream, fill)

    def cuMemHostAlloc(self, out, count, flags):
        assert flags == 1, "memory that all contexts may read"
        if not count:
            return INVALID_VALUE
        memory = np.zeros(count, np.uint8)
        out[0] = memory.ctypes.data
        self.living["host"][memory.ctypes.data] = memory
        return 0

    def cuMemFreeHost(self, memory):
        return self._destroy("host", memory)

    # -- events

    def cuEventCreate(self, out, flags):
        assert flags == 2, "times are not asked for"
        return self._new("event", Event(), out)

    def cuEventDestroy_v2(self, event):
        return self._destroy("event", event)

    def cuEventRecord(self, event, stream):
        found = self._find("event", event)
        found.stream, found.recorded = self._stream(stream), found.recorded + 1

        def reach(count=found.recorded):
            found.reached = count

        return self._submit(stream, reach)

    def cuEventSynchronize(self, event):
        found = self._find("event", event)
        if found.stream is not None:
            found.stream.run(lambda: found.reached >= found.recorded)
        return 0

    # -- streams and graphs

    def cuStreamCreate(self, out, flags):
        assert flags == 1, "a stream that waits for the default one cannot be captured beside it"
        return self._new("stream", Stream(self._context()), out)

    def cuStreamDestroy_v2(self, stream):
        found = self._find("stream", stream)
        assert found.recorded is None, "a stream that is captured"
        assert not found.pending, "a stream that works"
        return self._destroy("stream", stream)

    def cuStreamSynchronize(self, stream):
        self.streams_used.append((self.calls[-1], stream or 0))
        found = self._stream(stream)
        if found.recorded is not None:
            return self._end_captures([found])
        found.run()
        return 0

    def cuStreamBeginCapture_v2(self, stream, mode):
        assert mode in (1, 2), "other threads could not allocate"
        found = self._stream(stream)
        if found.context is None:
            return CAPTURE_UNSUPPORTED
        if found.recorded is not None:
            return ILLEGAL_STATE
        found.recorded, found.is_valid = [], True
        return 0

    def cuStreamEndCapture(self, stream, out):
        found = self._stream(stream)
        operations, found.recorded = found.recorded, None
        out[0] = None
        if operations is None:
            return ILLEGAL_STATE
        if not found.is_valid:
            return CAPTURE_INVALIDATED
        return self._new("graph", operations, out)

    def cuGraphInstantiateWithFlags(self, out, graph, flags):
        assert flags == 0
        return self._new("exec", list(self._find("graph", graph)), out)

    def cuGraphLaunch(self, executable, stream):
        operations = self._find("exec", executable)

        def launch():
            self._find("exec", executable)
            for operation in operations:
                operation()

        return self._submit(stream, launch)

    def cuGraphDestroy(self, graph):
        return self._destroy("graph", graph)

    def cuGraphExecDestroy(self, executable):
        return self._destroy("exec", executable)

    # -- cuBLAS

    def cublasCreate_v2(self, out):
        assert not self._captures(), "cublasCreate allocates"
        return self._new("cublas", {"stream": 0, "workspace": None}, out)

    def cublasDestroy_v2(self, handle):
        assert not self._captures(), "cublasDestroy waits for the device"
        return self._destroy("cublas", handle)

    def cublasSetStream_v2(self, handle, stream):
        self._stream(stream)
        self._find("cublas", handle).update(stream=stream or 0, workspace=None)
        return 0

    def cublasSetWorkspace_v2(self, handle, address, count):
        assert count == WORKSPACE_BYTES
        assert address % 256 == 0
        self._check(address, count)
        self._find("cublas", handle)["workspace"] = address
        return 0

    def cublasGemmStridedBatchedEx(
        self, handle, ta, tb, m, n, k, alpha, a, ka, lda, sa, b, kb, ldb, sb, *others
    ):
        beta, c, kc, ldc, sc, batch, compute, algorithm = others
        state = self._find("cublas", handle)
        assert state["workspace"], "a product without a workspace allocates one"
        names = {number: name for name, number in DATA_TYPES.items()}
        scale = {68: c_float, 77: c_float, 70: c_double}[compute]
        assert (ka, algorithm, scale.from_address(alpha).value) == (kb, -1, 1.0)
        types, beta = (names[ka], names[kc]), scale.from_address(beta).value
        call = GemmCall(
            *((ta, tb), (m, n, k), (lda, ldb, ldc), (sa, sb, sc), batch, (0, 0, 0), types, beta),
        )

        def multiply():
            for address in (a, b, c, state["workspace"]):
                self._check(address, 0)
            emulate(call, a, b, c)

        return self._submit(state["stream"], multiply)


class _Library:
    """The functions of a library, as attributes."""

    def __init__(self, machine, prefix):
        for name in PROTOTYPES:
            if re.match(f"{prefix}[A-Z]", name):
                setattr(self, name, Function(machine, name, getattr(machine, name)))


class FakeBackend(StandIn):
    """The stand-in for CuPy with the fake driver.

    Attributes:
        current_stream: The stream of eager ops.
    """

    named_error = CupyBackend.named_error

    def __init__(self, driver):
        super().__init__()
        self.driver, self.current_stream, self.contexts = driver, 0, {}

    def stream(self, index=0):
        return self.current_stream

    def allocate(self, size, index=0):
        # As CuPy's, its memory begins at a multiple of 512.
        memory = np.zeros(size + 512, np.uint8)
        start = -memory.__array_interface__["data"][0] % 512
        self.driver.allow(memory)
        return self.array_type(memory[start : start + size], index)

    def launcher(self, index):
        driver = self.driver
        if index not in self.contexts:
            libraries = driver.library, lambda: driver.cublas
            self.contexts[index] = DeviceContext(self, index, *libraries)
        return _ExpectedLauncher(self.contexts[index], driver)

    @contextmanager
    def on(self, index):
        """As CuPy's: the device is that of the thread's current context."""
        local = self.driver.local
        before, local.context = local.context, self.driver.contexts[index]
        try:
            with super().on(index):
                yield
        finally:
            local.context = before


class _ExpectedLauncher(DriverLauncher):
    """A launcher that lets the fake driver know its program."""

    def __init__(self, context, driver):
        super().__init__(context)
        self._driver = driver

    def load(self, program):
        self._driver.expect(program)
        return super().load(program)

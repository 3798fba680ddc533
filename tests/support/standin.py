"""A stand-in for CuPy on host memory, with CuPy's edges, and a backend of devices made of it.

Its arrays are no ndarrays, become one by ``get()`` alone, take no ndarray for an operand (a number
or a NumPy scalar they do), give arrays without axes where NumPy gives scalars, and know the
functions, methods and keywords of CuPy, listed in ``cupy_names.json``. So whatever slips onto the
host is an error at its place. Elements are computed by NumPy: results equal the CPU's bit for bit.

Where CuPy computes otherwise by its documentation, so does the stand-in: an index out of bounds
wraps, and floats out of range become the nearest integer.
"""

import functools
import inspect
import json
import math
import threading
import weakref
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from odyssey.devices.backends import Backend, install, uninstall
from odyssey.devices.namespace import Namespace
from odyssey.errors import DeviceMemoryError

_NAMES = json.loads(Path(__file__).with_name("cupy_names.json").read_text())
FUNCTIONS, METHODS = _NAMES["modules"], _NAMES["methods"]
DEVICES = 2
KEYWORDS = frozenset(_NAMES["ufunc_keywords"])
OF_UFUNCS = _NAMES["ufunc_methods"] | {"outer": None}
"""The ufuncs that have a method; None: all."""
_METHOD_SIGNATURES = {
    "reduce": "(array, axis=0, dtype=None, out=None, keepdims=False)",
    "accumulate": "(array, axis=0, dtype=None, out=None)",
    "reduceat": "(array, indices, axis=0, dtype=None, out=None)",
    "at": "(a, indices, b=None)",
    "outer": "(A, B, **options)",
}
LEAKS = []
"""What was refused, in words, the latest last."""


class LeakError(TypeError):
    """An array of the device came where one of the host was needed, or the other way round."""


def leak(text):
    LEAKS.append(text)
    del LEAKS[:-20]
    return LeakError(text)


# ------------------------------------------------------------------ memory


class OutOfMemoryError(MemoryError):
    """As ``cupy.cuda.memory.OutOfMemoryError``."""


class Pool:
    """Bytes of a device: those in use, the most so far, and the limit."""

    def __init__(self):
        self.blocks = {}
        self.in_use = self.peak = 0
        self.limit = None

    def add(self, elements):
        """Count a block of memory as long as it lives."""
        if elements.base is not None or id(elements) in self.blocks:
            return
        size = elements.nbytes
        if self.limit is not None and self.in_use + size > self.limit:
            raise OutOfMemoryError(
                f"Out of memory allocating {size:,} bytes (allocated so far: {self.in_use:,} "
                f"bytes, limit set to: {self.limit:,} bytes)."
            )
        self.in_use += size
        self.peak = max(self.peak, self.in_use)
        self.blocks[id(elements)] = weakref.ref(
            elements, functools.partial(self._drop, id(elements), size)
        )

    def _drop(self, key, size, _):
        self.blocks.pop(key, None)
        self.in_use -= size


POOLS = [Pool() for _ in range(DEVICES)]


class _Current(threading.local):
    """The current device of a thread, as CUDA has one."""

    index = 0


CURRENT = _Current()


def reset():
    """Forget limits, peaks and what was refused."""
    LEAKS.clear()
    CURRENT.index = 0
    for pool in POOLS:
        pool.limit = None
        pool.peak = pool.in_use


@contextmanager
def installed(backend):
    """A block in which a backend is that of "cuda:0" and "cuda:1"."""
    reset()
    install(backend)
    try:
        yield backend
    finally:
        uninstall(backend)
        reset()


# ------------------------------------------------------------------ conversion


def host(x, who="", anywhere=False):
    """Return elements in the place of device arrays, in nests too; refuse host arrays.

    Arrays lie on the current device, unless they may lie ``anywhere``.
    """
    if isinstance(x, DeviceArray):
        return x._a if anywhere else x.on_current(who)
    if isinstance(x, np.ndarray):
        raise leak(f"{who}: a host array among operands")
    if type(x) is list:
        return [host(i, who, anywhere) for i in x]
    if isinstance(x, tuple):
        made = [host(i, who, anywhere) for i in x]
        return type(x)(*made) if hasattr(x, "_fields") else tuple(made)
    if type(x) is dict:
        return {k: host(v, who, anywhere) for k, v in x.items()}
    return x


def result(made, args, who):
    """Return a result: a view lies where its array does, all else is made on the current device."""
    if type(made) in (list, tuple):
        return type(made)(result(one, args, who) for one in made)
    for array in args:
        is_view = isinstance(array, DeviceArray) and isinstance(made, np.ndarray)
        if is_view and np.may_share_memory(made, array._a):
            return array._like(made)
    host(args, who)
    return device(made)


def device(x):
    """Return device arrays in the place of what NumPy returned."""
    if isinstance(x, (np.ndarray, np.generic)):
        return DeviceArray(np.asarray(x))
    if type(x) is list:
        return [device(i) for i in x]
    if isinstance(x, tuple):
        made = [device(i) for i in x]
        return type(x)(*made) if hasattr(x, "_fields") else tuple(made)
    return x


@functools.cache
def _signature(text):
    scope = {}
    exec(f"def function{text}: pass", scope)  # names of parameters alone
    return inspect.signature(scope["function"])


def check_call(name, known, args, options):
    """Refuse what CuPy's function or method does not take."""
    for option in ("subok", *(("casting",) if name == "ndarray.astype" else ())):
        if options.get(option) is not None:
            raise leak(f"cupy.{name}: {option} is not supported yet")
    if options.get("kind") not in (None, "stable") and "sort" in name:
        raise leak(f"cupy.{name}: kind must be 'stable' or None")
    if name == "einsum" and options.keys() - {"dtype", "optimize"}:
        raise leak(f"cupy.einsum: no keyword {', '.join(sorted(options))}")
    if known == "ufunc":
        wrong = options.keys() - KEYWORDS
        if wrong:
            raise leak(f"cupy.{name}: no keyword {', '.join(sorted(wrong))}")
    elif known is not None:
        try:
            _signature(known).bind(*args, **options)
        except TypeError as error:
            raise leak(f"cupy.{name}: {error}") from None


_OF_LISTS = frozenset(
    [
        "array",
        "asarray",
        "concatenate",
        "stack",
        "hstack",
        "vstack",
        "dstack",
        "column_stack",
        "block",
        "einsum",
        "select",
        "choose",
        "meshgrid",
        "ix_",
        "broadcast_arrays",
        "broadcast_shapes",
        "result_type",
        "array_split",
        "unravel_index",
        "ravel_multi_index",
        "lexsort",
        "piecewise",
        "full",
        "linspace",
        "multi_dot",
        "tril_indices",
    ]
)
"""Functions of CuPy that take lists or tuples for arrays; others raise for these."""


_MOVES = frozenset(["array", "asarray", "ascontiguousarray", "asfortranarray"])
"""Functions that copy an array of the host, or of another device, to the current one."""


class Function:
    """A function of CuPy, computed by NumPy's of the same name."""

    def __init__(self, path, name, known, own):
        self.__name__ = name
        self.path = path
        self.known = known
        self.own = own

    def __repr__(self):
        return f"<{self.path}.{self.__name__} of the stand-in>"

    def __call__(self, *args, **options):
        name = self.__name__
        check_call(name, self.known, args, options)
        if (
            name not in _OF_LISTS
            and args
            and type(args[0]) in (list, tuple)
            and (
                self.known == "ufunc"
                or name in ("sum", "prod", "max", "min", "take", "sort", "where")
            )
        ):
            raise leak(f"cupy.{name}: {type(args[0]).__name__} for an array")
        out = options.pop("out", None)
        outs = out if isinstance(out, tuple) else (out,)
        if any(isinstance(o, np.ndarray) for o in outs):
            raise leak(f"cupy.{name}: a host array for out")
        named = host(options, name)
        if out is not None:
            named["out"] = host(out)
        if name in _MOVES:
            # from the host by hand: a copy that somebody wrote down
            named.pop("blocking", None)
            first = args[0]._a if isinstance(args[0], DeviceArray) else args[0]
            first = host(first) if type(first) in (list, tuple) else first
            made = self.own(first, *args[1:], **named)
            if isinstance(args[0], np.ndarray):
                made = made.copy()
            elif isinstance(args[0], DeviceArray) and made is first:
                return args[0]
        elif name == "take":
            a, indices, *rest = host(args, name)
            made = self.own(a, indices, *rest, mode="wrap", **named)
        else:
            made = self.own(*host(args, name, anywhere=out is None), **named)
        if out is not None:
            return out[0] if isinstance(out, tuple) and len(out) == 1 else out
        return result(made, args if name not in _MOVES else (), name)

    def __getattr__(self, name):
        having = OF_UFUNCS.get(name, ())
        if self.known != "ufunc" or not (having is None or self.__name__ in having):
            raise AttributeError(f"{self!r} has no {name!r}")
        known = _METHOD_SIGNATURES[name]
        return Function(self.path, f"{self.__name__}.{name}", known, getattr(self.own, name))


class Library:
    """A module of CuPy: functions of its list alone."""

    def __init__(self, path, own):
        self.__name__ = path
        self.own = own

    def __repr__(self):
        return f"<module {self.__name__} of the stand-in>"

    def __getattr__(self, name):
        path = f"{self.__name__}.{name}"
        if any(p == path or p.startswith(path + ".") for p in FUNCTIONS):
            return Library(path, getattr(self.own, name))
        known = FUNCTIONS.get(self.__name__, {})
        if name not in known:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        own = _BY_MATH.get(name) if self.__name__.startswith("cupyx") else None
        found = Function(self.__name__, name, known[name], own or getattr(self.own, name))
        self.__dict__[name] = found
        return found


# Python's are those that the CPU's rows call.
_BY_MATH = {name: np.vectorize(getattr(math, name), [float]) for name in ("erf", "erfc")}

CUPY = Library("cupy", np)


def import_module(name):
    """Import a module for code of rows on the device: CuPy's for those of SciPy."""
    import importlib

    own = importlib.import_module(name)
    if f"cupyx.{name}" in FUNCTIONS:
        return Library(f"cupyx.{name}", own)
    return own


# ------------------------------------------------------------------ arrays


def _wrapped_key(array, key):
    """Return a key of host arrays whose indices out of bounds wrap, as CuPy's do."""
    parts = key if isinstance(key, tuple) else (key,)
    used = sum(
        p.ndim if isinstance(p, np.ndarray) and p.dtype.kind == "b" else p is not None
        for p in parts
        if p is not Ellipsis
    )
    made, axis = [], 0
    for part in parts:
        if part is Ellipsis:
            axis += array.ndim - used
        elif isinstance(part, np.ndarray) and part.dtype.kind in "iu":
            size = array.shape[axis] if axis < array.ndim else 0
            made.append(part % size if size and part.ndim else part)
            axis += 1
            continue
        elif isinstance(part, np.ndarray) and part.dtype.kind == "b":
            axis += part.ndim
        elif part is not None:
            axis += 1
        made.append(part)
    return tuple(made) if isinstance(key, tuple) else made[0]


_OWNERS = weakref.WeakValueDictionary()
"""Arrays that own memory, by id of its elements."""


class DeviceArray:
    """An array of the stand-in."""

    __array_priority__ = 100
    __hash__ = None
    __slots__ = ("__weakref__", "_a", "_base", "_index")

    def __init__(self, elements, index=None):
        self._a = elements
        # As in CuPy, a view refers to the array that owns its memory.
        owner = elements
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        self._base = None if owner is elements else _OWNERS.get(id(owner))
        if self._base is None:
            _OWNERS[id(owner)] = self
        self._index = CURRENT.index if index is None else index
        POOLS[self._index].add(elements)

    def get(self, *_, **__):
        """Return a copy on the host."""
        return self._a.copy()

    shape = property(lambda s: s._a.shape)
    dtype = property(lambda s: s._a.dtype)
    ndim = property(lambda s: s._a.ndim)
    size = property(lambda s: s._a.size)
    nbytes = property(lambda s: s._a.nbytes)
    itemsize = property(lambda s: s._a.itemsize)
    strides = property(lambda s: s._a.strides)
    T = property(lambda s: s._like(s._a.T))
    mT = property(lambda s: s._like(s._a.mT))
    real = property(
        lambda s: s._like(s._a.real), lambda s, v: s._a.real.__setitem__(..., host(v, "real"))
    )
    imag = property(
        lambda s: s._like(s._a.imag), lambda s, v: s._a.imag.__setitem__(..., host(v, "imag"))
    )
    flat = property(lambda s: _Flat(s))
    flags = property(lambda s: _Flags(s._a.flags))

    def on_current(self, who):
        """Return the elements for a kernel, which runs on the current device."""
        if self._index != CURRENT.index:
            raise leak(
                f"{who}: Array device must be same as the current device: array device = "
                f"{self._index} while current = {CURRENT.index}"
            )
        return self._a

    def _like(self, elements):
        return DeviceArray(np.asarray(elements), self._index)

    @property
    def base(self):
        return self._base

    @property
    def device(self):
        return self._index

    @property
    def __cuda_array_interface__(self):
        return self._a.__array_interface__ | {"version": 3, "stream": 1}

    def __getattr__(self, name):
        if name not in METHODS or name.startswith("__"):
            if not name.startswith("__"):
                LEAKS.append(f"attribute {name}")
            raise AttributeError(f"'cupy.ndarray' object has no attribute {name!r}")
        method = getattr(self._a, name)

        def call(*args, **options):
            check_call(f"ndarray.{name}", METHODS[name], args, options)
            out = options.get("out")
            if name == "take":
                options["mode"] = "wrap"
            made = method(*host(args, name), **host(options, name))
            if out is not None:
                return out
            # A view lies where its array does; all else is computed on the current device.
            is_view = isinstance(made, np.ndarray) and np.may_share_memory(made, self._a)
            if not (is_view or name == "copy"):
                self.on_current(name)
            return self._like(made) if is_view else device(made)

        return call

    def item(self):
        return self._a.item()

    def tolist(self):
        return self._a.tolist()

    def view(self, *kind, **options):
        check_call("ndarray.view", METHODS["view"], kind, options)
        return self._like(self._a.view(*kind, **options))

    def astype(self, *args, **options):
        check_call("ndarray.astype", METHODS["astype"], args, options)
        dtype = np.dtype(args[0] if args else options["dtype"])
        if dtype != self._a.dtype:
            self.on_current("astype")
        if self._a.dtype.kind == "f" and dtype.kind in "iu":
            limits = np.iinfo(dtype)
            whole = np.trunc(np.nan_to_num(self._a.astype(np.float64), nan=0.0))
            made = np.where(
                whole >= float(limits.max),
                limits.max,
                np.where(
                    whole <= float(limits.min),
                    limits.min,
                    np.clip(whole, float(limits.min), np.nextafter(float(limits.max), 0)),
                ).astype(dtype),
            )
            return self._like(np.asarray(made, dtype))
        made = self._a.astype(*args, **options)
        return self if made is self._a else self._like(made)

    # -- protocols

    def __array__(self, *_, **__):
        raise leak(
            "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct "
            "a NumPy array explicitly."
        )

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        known = FUNCTIONS["cupy"].get(ufunc.__name__)
        if known != "ufunc":
            LEAKS.append(f"cupy has no {ufunc.__name__}")
            return NotImplemented
        if "out" in options:
            options["out"] = options["out"][0]
        function = getattr(CUPY, ufunc.__name__)
        if method != "__call__":
            function = getattr(function, method)
        return function(*inputs, **options)

    def __array_function__(self, function, types, args, options):
        library = CUPY
        for part in [*function.__module__.split(".")[1:], function.__name__]:
            if not part.startswith("_"):
                library = getattr(library, part, None)
                if library is None:
                    LEAKS.append(f"cupy has no {function.__module__}.{function.__name__}")
                    return NotImplemented
        if any(issubclass(t, np.ndarray) for t in types):
            raise leak(f"a host array in {function.__name__}")
        return library(*args, **options)

    # -- Python

    def __getitem__(self, key):
        made = self._a[_wrapped_key(self._a, host(key, "[]"))]
        copies = isinstance(made, np.ndarray) and not np.may_share_memory(made, self._a)
        if copies and made.size:  # an empty view shares nothing
            self.on_current("[]")
        return self._like(made)

    def __setitem__(self, key, value):
        self.on_current("[]=")
        self._a[_wrapped_key(self._a, host(key, "[]"))] = host(value, "[]=")

    def __len__(self):
        return len(self._a)

    def __iter__(self):
        return (self._like(part) for part in self._a)

    def __bool__(self):
        return bool(self._a)

    def __int__(self):
        return int(self._a)

    def __float__(self):
        return float(self._a)

    def __complex__(self):
        return complex(self._a)

    def __copy__(self):
        return self._like(self._a.copy())

    def __deepcopy__(self, memo):
        return self._like(self._a.copy())

    def __format__(self, how):
        return format(self._a, how)

    def __repr__(self):
        return repr(self._a)

    def __str__(self):
        return str(self._a)


class _Flags:
    """CuPy's flags: none of writing."""

    def __init__(self, own):
        self.c_contiguous, self.f_contiguous = own.c_contiguous, own.f_contiguous
        self.owndata, self.forc, self.fnc = own.owndata, own.forc, own.fnc

    def __getitem__(self, name):
        return {"C_CONTIGUOUS": self.c_contiguous, "F_CONTIGUOUS": self.f_contiguous}.get(
            name, self.owndata
        )

    def __getattr__(self, name):
        LEAKS.append(f"flags.{name}")
        raise AttributeError(f"flags of a device array have no {name!r}")


class _Flat:
    def __init__(self, array):
        self._array = array

    def __getitem__(self, key):
        return self._array._like(self._array._a.flat[host(key, "flat")])

    def __setitem__(self, key, value):
        self._array._a.flat[host(key, "flat")] = host(value, "flat")


def _operator(name):
    def call(self, *others):
        for other in others:
            if isinstance(other, np.ndarray):
                raise leak(f"a host array beside a device array in {name}")
            if getattr(type(other), "__array_ufunc__", 0) is None or not isinstance(
                other, (DeviceArray, int, float, complex, np.generic)
            ):
                return NotImplemented
        made = getattr(self.on_current(name), name)(*host(others))
        return made if made is NotImplemented else self._like(made)

    return call


_ARITHMETIC = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
    *("and", "or", "xor", "lshift", "rshift"),
)
for _name in (*_ARITHMETIC, "matmul", "divmod"):
    for _side in ("", "r"):
        setattr(DeviceArray, f"__{_side}{_name}__", _operator(f"__{_side}{_name}__"))
for _name in ["lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert"]:
    setattr(DeviceArray, f"__{_name}__", _operator(f"__{_name}__"))


def _in_place(name):
    def call(self, other):
        getattr(self.on_current(name), name)(host(other, name))
        return self

    return call


for _name in _ARITHMETIC:
    setattr(DeviceArray, f"__i{_name}__", _in_place(f"__i{_name}__"))


# ------------------------------------------------------------------ the backend


class StandIn(Backend):
    """A backend of two devices named ``cuda:0`` and ``cuda:1``, in host memory."""

    platform = "cuda"
    name = "the stand-in for CuPy"
    array_type = DeviceArray

    def __init__(self):
        self.namespace = Namespace(CUPY, DeviceArray)
        self.waited = 0
        from importlib import import_module as of_host

        from numpy.lib.stride_tricks import as_strided

        self.replacements = {
            of_host: import_module,
            as_strided: self.namespace.lib.stride_tricks.as_strided,
        }

    def device_count(self):
        return DEVICES

    def device_index(self, array):
        return array._index

    @contextmanager
    def on(self, index):
        before, CURRENT.index = CURRENT.index, index
        try:
            yield
        finally:
            CURRENT.index = before

    def synchronize(self, index):
        self.waited += 1

    def to_device(self, array, index=0):
        with self.on(index):
            order = "K" if array.flags.c_contiguous or array.flags.f_contiguous else "C"
            return self.call("to_device", index, DeviceArray, np.array(array, order=order), index)

    def to_host(self, array):
        return array.get()

    def pointer(self, array):
        return array._a.__array_interface__["data"][0]

    def launcher(self, index):
        from odyssey.compiler.cuda.host_launcher import HostLauncher

        return HostLauncher(has_graphs=True)

    def memory_stats(self, index):
        pool = POOLS[index]
        return {
            "in_use": pool.in_use,
            "reserved": pool.in_use,
            "peak": pool.peak,
            "limit": pool.limit,
        }

    def set_memory_limit(self, index, limit):
        POOLS[index].limit = limit

    def reset_peak(self, index):
        POOLS[index].peak = POOLS[index].in_use

    def free_memory(self, index):
        pass

    def named_error(self, who, error):
        if isinstance(error, OutOfMemoryError):
            return DeviceMemoryError(f"{who}: {error}")
        return None

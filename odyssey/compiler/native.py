"""Programs in the text of LLVM become machine code that Python can call.

The text has no addresses: what it declares and does not define is found by name, in ``symbols`` of
this program and then in the process, where C's own functions are. So equal programs are equal
texts, and machine code of earlier processes serves, as ``storage`` keeps it. Each program is a
library of its own: two of them may know two functions by one name, and globals are not shared.
"""

from __future__ import annotations

import ctypes
import platform
import sys
import threading
from collections.abc import Callable, Mapping
from functools import cache
from time import perf_counter
from types import MappingProxyType
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from odyssey.checks import shown
from odyssey.compiler import halves, storage
from odyssey.devices.guard import hold_at_forks
from odyssey.errors import DeviceError, OdysseyError, SettingError

__all__ = ["Loaded", "MissingSymbolError", "available", "builtin", "load", "why_not"]

_NO_SYMBOLS: Mapping[str, int] = MappingProxyType({})

# What is asked of LLVM; code on disk was made by the same.
_SPEED = 2
_CODE = 3

# The one library that each engine has.
_LIBRARY = "program"

# LLVM's objects belong to one thread at a time.
_LOCK = threading.RLock()


class MissingSymbolError(OdysseyError, KeyError):
    """Machine code has no function or global of this name, or calls one that is nowhere."""

    __str__ = Exception.__str__  # that of a KeyError would put the message in quotes


class _Target(NamedTuple):
    """A processor that code is made for."""

    machine: Any
    words: tuple[str, ...]


class Loaded:
    """Machine code in memory, which stays there as long as this does.

    Attributes:
        text: The program, as it was given.
        seconds: How long it took: to ``"parse"``, ``"optimise"``, ``"emit"`` and ``"write"``, or to
            ``"read"`` from the disk; and to ``"link"``.
    """

    text: str
    seconds: dict[str, float]

    def __init__(
        self,
        text: str,
        code: bytes,
        symbols: Mapping[str, int],
        cpu: str,
        seconds: dict[str, float],
    ) -> None:
        from llvmlite import binding as llvm

        start = perf_counter()
        self.text = text
        self.seconds = seconds
        self._cpu = cpu
        self._addresses: dict[str, int] = {}
        self._engine = llvm.create_lljit_compiler(
            _target(cpu).machine, use_jit_link=_JIT_LINK, suppress_errors=True
        )
        library = llvm.JITLibraryBuilder().add_object_img(code)
        for name, address in symbols.items():
            library.import_symbol(name, address)
        try:
            # The library is unloaded when any of its trackers is let go.
            self._trackers = [library.add_current_process().link(self._engine, _LIBRARY)]
        except RuntimeError as error:
            raise OdysseyError(f"load: LLVM cannot link the program: {error}") from error
        # The collector runs all that a cycle has of ``__del__`` before it frees anything, LLVM's in
        # between; one of them may call this code yet. It does not look into arrays: this one is
        # freed with the last that knew the program, and only then is the code.
        self._last = np.empty(0)
        finalize(self._last, _unload, self._trackers, self._engine).atexit = False
        seconds["link"] = perf_counter() - start

    def address(self, name: str) -> int:
        """Where a function or a global of the program lies.

        Raises:
            MissingSymbolError: The program does not define it, or calls what is nowhere.
        """
        known = self._addresses.get(name)
        if known is not None:
            return known
        start = perf_counter()
        _demand("address")
        with _LOCK:
            try:
                tracker = self._engine.lookup(_LIBRARY, name)
            except RuntimeError as error:
                raise MissingSymbolError(
                    f"address: {name!r} cannot be had of this program ({error}); ask for what its "
                    "text defines, and pass load the symbols that it declares and calls"
                ) from None
            self._trackers.append(tracker)
            self.seconds["link"] += perf_counter() - start
            found: int = tracker[name]
            return self._addresses.setdefault(name, found)

    def assembly(self) -> str:
        """The program in the processor's own language, for who wants to read it; made anew."""
        _demand("assembly")
        with _LOCK:
            target = _target(self._cpu)
            with _optimised(self.text, target, {}) as module:
                made: str = target.machine.emit_assembly(module)
        return made


def _unload(*held: object) -> None:
    """Let LLVM's objects go, which the caller does when this returns."""


def available() -> bool:
    """Whether programs can be compiled and run here."""
    return why_not() is None


def why_not() -> str | None:
    """What keeps programs from being compiled here; None if nothing does."""
    return _lost[0] if _lost else _reason()


@cache
def _reason() -> str | None:
    """The same, of what stays as it is."""
    if sys.implementation.name != "cpython":
        return f"it calls CPython, and this is {sys.implementation.name}"
    if sys.maxsize <= 2**32:
        return "this Python has addresses of 32 bits, and programs are made for those of 64"
    try:
        from llvmlite import binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.check_jit_execution()
        _ = llvm.create_lljit_compiler, llvm.create_pass_builder  # older ones lack them
        _target("")
    except ImportError as error:
        return f"llvmlite cannot be imported ({error}); `pip install llvmlite`"
    except AttributeError as error:
        return f"this llvmlite is too old ({error}); `pip install --upgrade llvmlite`"
    except (OSError, RuntimeError) as error:  # a library that is missing, a system that forbids
        return f"llvmlite does not work here ({type(error).__name__}: {error})"
    return None


def load(text: str, symbols: Mapping[str, int] = _NO_SYMBOLS, *, cpu: str = "") -> Loaded:
    """Machine code of a program: from the disk if it lies there, else by LLVM.

    Args:
        text: A module in LLVM's language.
        symbols: Addresses of what the text declares and does not define. What is not here is
            looked for in the process.
        cpu: ``"x86-64-v2"`` or another level of processors, that this one has; all that it has by
            default.

    Raises:
        DeviceError: There is no llvmlite that works; ``why_not`` knows more.
        SettingError: There is no such level, or this processor is below it.
        OdysseyError: LLVM refuses the text.
    """
    _demand("load")
    with _LOCK:
        if "half" in text:
            symbols = {**_halves(cpu), **symbols}
        return _loaded(text, symbols, cpu)


def _loaded(text: str, symbols: Mapping[str, int], cpu: str) -> Loaded:
    target = _target(cpu)
    seconds: dict[str, float] = {}
    start = perf_counter()
    key = storage.key_of([*target.words, text])
    code = storage.read(key)
    if code is not None:
        seconds["read"] = perf_counter() - start
    else:
        with _optimised(text, target, seconds) as module:
            start = perf_counter()
            code = bytes(target.machine.emit_object(module))
        seconds["emit"] = perf_counter() - start
        start = perf_counter()
        storage.write(key, code)
        seconds["write"] = perf_counter() - start
    return Loaded(text, code, symbols, cpu, seconds)


# By level: functions that lie in memory as long as the process lives.
_kept: dict[str, Loaded] = {}


def _halves(cpu: str) -> dict[str, int]:
    """Conversions of half precision, for where the processor has none."""
    if cpu not in _kept:
        _kept[cpu] = _loaded(halves.TEXT, _NO_SYMBOLS, cpu)
    return {name: _kept[cpu].address(name) for name in halves.NAMES}


def _demand(who: str) -> None:
    why = why_not()
    if why is not None:
        raise DeviceError(f"{who}: no machine code can be made: {why}; all else works without it")


class _optimised:
    """A module that was parsed and optimised, for a block."""

    def __init__(self, text: str, target: _Target, seconds: dict[str, float]) -> None:
        from llvmlite import binding as llvm

        start = perf_counter()
        # Of its own, so that the types of one program do not pile up for the next.
        self._context = llvm.create_context()
        try:
            self._module = module = llvm.parse_assembly(text, self._context)
            module.triple = target.machine.triple
            module.data_layout = str(target.machine.target_data)
            module.verify()
        except RuntimeError as error:
            raise OdysseyError(f"load: LLVM refuses the program: {error}") from error
        parsed = perf_counter()
        options = llvm.create_pipeline_tuning_options(speed_level=_SPEED)
        options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = True
        builder = llvm.create_pass_builder(target.machine, options)
        builder.getModulePassManager().run(module, builder)
        seconds["parse"] = parsed - start
        seconds["optimise"] = perf_counter() - parsed

    def __enter__(self) -> Any:
        return self._module

    def __exit__(self, *raised: object) -> None:
        self._module.close()


# Elsewhere LLVM's older linker is the one that is proven.
_JIT_LINK = platform.machine().lower() in ("arm64", "aarch64")


# What a processor of each level has that those below it may lack.
_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": ("sse2",),
    "x86-64-v2": ("cx16", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def _check_level(cpu: str, features: Mapping[str, bool]) -> None:
    # LLVM ends the process over a name that it does not know.
    levels = list(_LEVELS) if features.get("sse2") else []
    if cpu not in levels:
        raise SettingError(f"load: cpu={shown(cpu)} is none of {levels} here; leave it out")
    wanted = [name for level in levels[: levels.index(cpu) + 1] for name in _LEVELS[level]]
    if missing := [name for name in wanted if not features.get(name)]:
        raise SettingError(
            f"load: cpu={shown(cpu)} needs {', '.join(missing)}, which this processor lacks; pass "
            "a level below, or leave it out"
        )


@cache
def _target(cpu: str) -> _Target:
    """A level of processors, or that of this machine."""
    import llvmlite
    from llvmlite import binding as llvm

    here = llvm.get_host_cpu_features()
    if cpu:
        _check_level(cpu, here)
    name = cpu or llvm.get_host_cpu_name()
    features = "" if cpu else here.flatten()
    triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=name, features=features, opt=_CODE, jit=True
    )
    version = ".".join(map(str, llvm.llvm_version_info))
    recipe = f"O{_SPEED} O{_CODE} vectorized unrolled"
    return _Target(machine, (llvmlite.__version__, version, triple, name, features, recipe))


# ------------------------------------------------------------------ calling


class _MethodDef(ctypes.Structure):
    """CPython's ``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_FASTCALL = 0x80

_new_function: Any = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
)


def builtin(address: int, name: str, keep: object) -> Callable[..., object]:
    """A function in C as one of Python's built-in functions.

    Args:
        address: Of ``PyObject *f(PyObject *self, PyObject **args, Py_ssize_t count)``, which takes
            positional arguments and is called with the interpreter's lock held.
        name: What it is called.
        keep: Lives as long as the function does, such as what its code lies in.
    """
    definition = _MethodDef(name.encode(), address, _METH_FASTCALL, None)
    make = _new_function(("PyCFunction_NewEx", ctypes.pythonapi))
    # What it is bound to is let go last of all, after the definition was read.
    made: Callable[..., object] = make(ctypes.addressof(definition), (definition, keep), None)
    return made


# ------------------------------------------------------------------ forks

# Seconds that a fork waits for a program that another thread compiles: most take less than one.
_FORK_WAITS = 10.0

# In a child: what its parent's other threads were in the middle of.
_lost: list[str] = []


def _lose() -> None:
    _lost.append("this process was forked while another thread of its parent was within LLVM")


def _locks() -> list[threading.RLock]:
    """That of who compiles here, and that of all who use llvmlite, such as numba."""
    known: Any = sys.modules.get("llvmlite.binding.ffi")
    lock: Any = getattr(getattr(getattr(known, "lib", None), "_lock", None), "_lock", None)
    return [_LOCK, lock] if hasattr(lock, "_at_fork_reinit") else [_LOCK]


hold_at_forks(_locks, _FORK_WAITS, _lose)

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
from typing import Any
from weakref import finalize

import numpy as np

from odyssey.compiler.llvm import float16
from odyssey.compiler.machine import disk_cache
from odyssey.compiler.machine.elf_loader import link_object
from odyssey.compiler.machine.target import (
    SPEED,
    Target,
    host_fingerprint,
    store_host_fingerprint,
    target_fingerprint,
    target_of,
)
from odyssey.devices.write_guard import hold_during_forks
from odyssey.errors import DeviceError, OdysseyError

__all__ = ["Loaded", "MissingSymbolError", "available", "builtin", "load", "unavailable_reason"]

_NO_SYMBOLS: Mapping[str, int] = MappingProxyType({})

# The one library that each engine has.
_LIBRARY = "program"

# LLVM's objects belong to one thread at a time.
_LOCK = threading.RLock()


class MissingSymbolError(OdysseyError, KeyError):
    """Machine code has no function or global of this name, or calls one that is nowhere."""

    __str__ = Exception.__str__  # that of a KeyError would put the message in quotes


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
        start = perf_counter()
        self.text = text
        self.seconds = seconds
        self._cpu = cpu
        self._addresses: dict[str, int] = {}
        self._engine: Any = None
        self._trackers: list[Any] = []
        linked = link_object(code, symbols)
        if linked is None:
            self._link(code, symbols)
        else:
            self._addresses |= linked.places
        # The collector runs all that a cycle has of ``__del__`` before it frees anything, LLVM's in
        # between; one of them may call this code yet. It does not look into arrays: this one is
        # freed with the last that knew the program, and only then is the code.
        self._last = np.empty(0)
        finalize(self._last, _unload, linked, self._trackers, self._engine).atexit = False
        seconds["link"] = perf_counter() - start

    def _link(self, code: bytes, symbols: Mapping[str, int]) -> None:
        """Let LLVM do it, where nobody else can."""
        from llvmlite import binding as llvm

        _check_llvm("load")
        self._engine = llvm.create_lljit_compiler(
            target_of(self._cpu).machine, use_jit_link=_JIT_LINK, suppress_errors=True
        )
        library = llvm.JITLibraryBuilder().add_object_img(code)
        for name, address in symbols.items():
            library.import_symbol(name, address)
        try:
            # The library is unloaded when any of its trackers is let go.
            self._trackers = [library.add_current_process().link(self._engine, _LIBRARY)]
        except RuntimeError as error:
            raise OdysseyError(f"load: LLVM cannot link the program: {error}") from error

    def address(self, name: str) -> int:
        """Return the address of a function or a global of the program.

        Raises:
            MissingSymbolError: The program does not define it, or calls what is nowhere.
        """
        known = self._addresses.get(name)
        if known is not None:
            return known
        start = perf_counter()
        _require_available("address")
        if self._engine is None:
            raise _missing_symbol(name, "it defines nothing of this name")
        with _LOCK:
            try:
                tracker = self._engine.lookup(_LIBRARY, name)
            except RuntimeError as error:
                raise _missing_symbol(name, str(error)) from None
            self._trackers.append(tracker)
            self.seconds["link"] += perf_counter() - start
            found: int = tracker[name]
            return self._addresses.setdefault(name, found)

    def assembly(self) -> str:
        """The program in the processor's own language, for who wants to read it; made anew."""
        _require_available("assembly")
        _check_llvm("assembly")
        with _LOCK:
            target = target_of(self._cpu)
            with _OptimizedModule(self.text, target, {}) as module:
                made: str = target.machine.emit_assembly(module)
        return made


def _missing_symbol(name: str, why: str) -> MissingSymbolError:
    return MissingSymbolError(
        f"address: {name!r} cannot be had of this program ({why}); ask for what its text defines, "
        "and pass load the symbols that it declares and calls"
    )


def _unload(*held: object) -> None:
    """Let the code go, which the caller does when this returns."""


def available() -> bool:
    """Whether programs can be compiled and run here."""
    return unavailable_reason() is None


def unavailable_reason() -> str | None:
    """Return why programs cannot be compiled here; None if they can."""
    return _fork_failures[0] if _fork_failures else _static_unavailable_reason()


@cache
def _static_unavailable_reason() -> str | None:
    """Return the part of ``unavailable_reason`` that cannot change while the process runs."""
    if sys.implementation.name != "cpython":
        return f"it calls CPython, and this is {sys.implementation.name}"
    if sys.maxsize <= 2**32:
        return "this Python has addresses of 32 bits, and programs are made for those of 64"
    try:
        if host_fingerprint() is not None:
            return None
    except ImportError as error:
        return _missing_library(error)
    return _llvm_failure()


def _missing_library(error: ImportError) -> str:
    return f"llvmlite cannot be imported ({error}); `pip install llvmlite`"


@cache
def _llvm_failure() -> str | None:
    """Return why llvmlite does not work; its import takes long."""
    try:
        from llvmlite import binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.check_jit_execution()
        _ = llvm.create_lljit_compiler, llvm.create_pass_builder  # older ones lack them
        target_of("")
        store_host_fingerprint()
    except ImportError as error:
        return _missing_library(error)
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
    _require_available("load")
    with _LOCK:
        if "half" in text:
            symbols = {**_float16_symbols(cpu), **symbols}
        return _loaded(text, symbols, cpu)


def _loaded(text: str, symbols: Mapping[str, int], cpu: str) -> Loaded:
    seconds: dict[str, float] = {}
    start = perf_counter()
    key = disk_cache.entry_key([*target_fingerprint(cpu), text])
    code = disk_cache.read_entry(key)
    if code is not None:
        seconds["read"] = perf_counter() - start
    else:
        _check_llvm("load")
        target = target_of(cpu)
        with _OptimizedModule(text, target, seconds) as module:
            start = perf_counter()
            code = bytes(target.machine.emit_object(module))
        seconds["emit"] = perf_counter() - start
        start = perf_counter()
        disk_cache.write_entry(key, code)
        seconds["write"] = perf_counter() - start
    return Loaded(text, code, symbols, cpu, seconds)


# By level: functions that lie in memory as long as the process lives.
_float16_programs: dict[str, Loaded] = {}


def _float16_symbols(cpu: str) -> dict[str, int]:
    """Conversions of half precision, for where the processor has none."""
    if cpu not in _float16_programs:
        _float16_programs[cpu] = _loaded(float16.TEXT, _NO_SYMBOLS, cpu)
    return {name: _float16_programs[cpu].address(name) for name in float16.NAMES}


def _require_available(who: str) -> None:
    _raise_unavailable(who, unavailable_reason())


def _check_llvm(who: str) -> None:
    """Raise where LLVM itself is needed, and does not work."""
    _raise_unavailable(who, _llvm_failure())


def _raise_unavailable(who: str, why: str | None) -> None:
    if why is not None:
        raise DeviceError(f"{who}: no machine code can be made: {why}; all else works without it")


class _OptimizedModule:
    """A module that was parsed and optimised, for a block."""

    def __init__(self, text: str, target: Target, seconds: dict[str, float]) -> None:
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
        options = llvm.create_pipeline_tuning_options(speed_level=SPEED)
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


def builtin(address: int, name: str, *keep: object) -> Callable[..., object]:
    """A function in C as one of Python's built-in functions.

    Args:
        address: Of ``PyObject *f(PyObject *self, PyObject **args, Py_ssize_t count)``, which takes
            positional arguments and is called with the interpreter's lock held.
        name: What it is called.
        keep: Live as long as the function does, such as what its code lies in; ``self`` is a tuple
            that has them from its second place on.
    """
    definition = _MethodDef(name.encode(), address, _METH_FASTCALL, None)
    make = _new_function(("PyCFunction_NewEx", ctypes.pythonapi))
    # What it is bound to is let go last of all, after the definition was read.
    made: Callable[..., object] = make(ctypes.addressof(definition), (definition, *keep), None)
    return made


# ------------------------------------------------------------------ forks

# Seconds that a fork waits for a program that another thread compiles: most take less than one.
_FORK_WAITS = 10.0

# In a child: what its parent's other threads were in the middle of.
_fork_failures: list[str] = []


def _mark_fork_failure() -> None:
    _fork_failures.append(
        "this process was forked while another thread of its parent was within LLVM"
    )


def _compiler_locks() -> list[threading.RLock]:
    """Return our compiler lock, and the one that all users of llvmlite share, such as numba."""
    known: Any = sys.modules.get("llvmlite.binding.ffi")
    lock: Any = getattr(getattr(getattr(known, "lib", None), "_lock", None), "_lock", None)
    return [_LOCK, lock] if hasattr(lock, "_at_fork_reinit") else [_LOCK]


hold_during_forks(_compiler_locks, _FORK_WAITS, _mark_fork_failure)

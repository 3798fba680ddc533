"""JIT compilation: from LLVM IR as text to machine code in memory that Python can call.

Called by ``runtime``, and by the loader of native entry points. The text contains no addresses: a
function that it declares is found by name, in ``symbols`` of the program and then in the process,
where those of C are. So equal programs have equal texts, and machine code of earlier processes can
be used, see ``disk_cache``. Each program is a library of its own, with its own names and globals.
"""

from __future__ import annotations

import ctypes
import platform
import sys
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
from odyssey.errors import DeviceError, OdysseyError
from odyssey.kernels.llvm_locks import COMPILER_LOCK, FORK_FAILURES

__all__ = ["Loaded", "MissingSymbolError", "available", "builtin", "load", "unavailable_reason"]

_NO_SYMBOLS: Mapping[str, int] = MappingProxyType({})

# Name of the one library of each engine.
_LIBRARY = "program"


class MissingSymbolError(OdysseyError, KeyError):
    """Machine code does not define a name, or calls a function that is not found."""

    __str__ = Exception.__str__  # KeyError would put the message in quotes


class Loaded:
    """Machine code in memory, which is freed with this object.

    Attributes:
        text: LLVM IR of the program.
        seconds: Time of each stage: ``"parse"``, ``"optimise"``, ``"emit"`` and ``"write"``, or
            ``"read"`` from the disk; and ``"link"``.
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
            self._addresses |= linked.addresses
        # In a cycle the garbage collector runs every ``__del__``, LLVM's among them, before it
        # frees anything, and one of them may still call this code. It does not look into arrays:
        # this array is freed with the last reference to the program, and only then is the code.
        self._sentinel = np.empty(0)
        finalize(self._sentinel, _unload, linked, self._trackers, self._engine).atexit = False
        seconds["link"] = perf_counter() - start

    def _link(self, code: bytes, symbols: Mapping[str, int]) -> None:
        """Link by LLVM, for object files that the ELF loader does not support."""
        from llvmlite import binding as llvm

        _check_llvm("load")
        self._engine = llvm.create_lljit_compiler(
            target_of(self._cpu).machine, use_jit_link=_JIT_LINK, suppress_errors=True
        )
        library = llvm.JITLibraryBuilder().add_object_img(code)
        for name, address in symbols.items():
            library.import_symbol(name, address)
        try:
            # The library is unloaded when any of its trackers is released.
            self._trackers = [library.add_current_process().link(self._engine, _LIBRARY)]
        except RuntimeError as error:
            raise OdysseyError(f"load: LLVM cannot link the program: {error}") from error

    def address(self, name: str) -> int:
        """Return the address of a function or a global of the program.

        Raises:
            MissingSymbolError: The program does not define it, or calls a function not found.
        """
        address = self._addresses.get(name)
        if address is not None:
            return address
        start = perf_counter()
        _require_available("address")
        if self._engine is None:
            raise _missing_symbol(name, "it defines no such function")
        with COMPILER_LOCK:
            try:
                tracker = self._engine.lookup(_LIBRARY, name)
            except RuntimeError as error:
                raise _missing_symbol(name, str(error)) from None
            self._trackers.append(tracker)
            self.seconds["link"] += perf_counter() - start
            return self._addresses.setdefault(name, int(tracker[name]))

    def assembly(self) -> str:
        """Return the program in assembly language; it is compiled again for that."""
        _require_available("assembly")
        _check_llvm("assembly")
        with COMPILER_LOCK:
            target = target_of(self._cpu)
            with _OptimizedModule(self.text, target, {}) as module:
                assembly: str = target.machine.emit_assembly(module)
        return assembly


def _missing_symbol(name: str, why: str) -> MissingSymbolError:
    return MissingSymbolError(
        f"address: {name!r} is not in this program ({why}); ask for a function that its text "
        "defines, and pass the symbols that it declares to load"
    )


def _unload(*held: object) -> None:
    """Release the code: the references are dropped when this returns."""


def available() -> bool:
    """Return whether programs can be compiled and run here."""
    return unavailable_reason() is None


def unavailable_reason() -> str | None:
    """Return why programs cannot be compiled here; None if they can."""
    return FORK_FAILURES[0] if FORK_FAILURES else _static_unavailable_reason()


@cache
def _static_unavailable_reason() -> str | None:
    """Return the part of ``unavailable_reason`` that cannot change while the process runs."""
    if sys.implementation.name != "cpython":
        return f"it calls CPython, and this is {sys.implementation.name}"
    if sys.maxsize <= 2**32:
        return "this is a 32-bit Python, and programs need a 64-bit one"
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
    """Return why llvmlite does not work; None if it does. Its import takes 20 ms."""
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
    except (
        OSError,
        RuntimeError,
    ) as error:  # a missing library, or a system that forbids executable memory
        return f"llvmlite does not work here ({type(error).__name__}: {error})"
    return None


def load(text: str, symbols: Mapping[str, int] = _NO_SYMBOLS, *, cpu: str = "") -> Loaded:
    """Return the machine code of a program: from the disk cache, or compiled by LLVM.

    Args:
        text: LLVM IR of a module.
        symbols: Addresses of functions that the text declares; others are looked up in the process.
        cpu: Level of processors such as ``"x86-64-v2"``, which this one must support; all features
            of this processor by default.

    Raises:
        DeviceError: llvmlite does not work; see ``unavailable_reason``.
        SettingError: There is no such level, or this processor is below it.
        OdysseyError: LLVM refuses the text.
    """
    _require_available("load")
    with COMPILER_LOCK:
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


# By level of processors; never freed.
_float16_programs: dict[str, Loaded] = {}


def _float16_symbols(cpu: str) -> dict[str, int]:
    """Return conversions of half precision, for processors that have none."""
    if cpu not in _float16_programs:
        _float16_programs[cpu] = _loaded(float16.TEXT, _NO_SYMBOLS, cpu)
    return {name: _float16_programs[cpu].address(name) for name in float16.NAMES}


def _require_available(who: str) -> None:
    _raise_unavailable(who, unavailable_reason())


def _check_llvm(who: str) -> None:
    """Raise DeviceError if LLVM, which is needed now, does not work."""
    _raise_unavailable(who, _llvm_failure())


def _raise_unavailable(who: str, why: str | None) -> None:
    if why is not None:
        raise DeviceError(
            f"{who}: machine code cannot be generated: {why}; everything else works without it"
        )


class _OptimizedModule:
    """Context manager of a module that is parsed and optimised."""

    def __init__(self, text: str, target: Target, seconds: dict[str, float]) -> None:
        from llvmlite import binding as llvm

        start = perf_counter()
        # A context of its own: types would accumulate in a shared one.
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
        passes = builder.getModulePassManager()
        try:
            passes.run(module, builder)
        finally:
            # llvmlite's own ``close`` finds the empty ``_dispose`` of a parent, and leaks 100 kB.
            llvm.newpassmanagers.NewPassManager._dispose(passes)
            passes.detach()
        seconds["parse"] = parsed - start
        seconds["optimise"] = perf_counter() - parsed

    def __enter__(self) -> Any:
        return self._module

    def __exit__(self, *raised: object) -> None:
        self._module.close()


# Elsewhere we use LLVM's older linker, which is better tested.
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


@cache
def _new_function() -> Any:
    """Return CPython's ``PyCFunction_NewEx``: once, since a ctypes function holds itself."""
    types = ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p
    return ctypes.PYFUNCTYPE(*types)(("PyCFunction_NewEx", ctypes.pythonapi))


def builtin(address: int, name: str, *keep: object) -> Callable[..., object]:
    """Return a C function as a Python built-in function.

    Args:
        address: Address of ``PyObject *f(PyObject *self, PyObject **args, Py_ssize_t count)``,
            which takes positional arguments and is called with the GIL held.
        name: Name of the function.
        keep: Objects that live as long as the function, such as its code; ``self`` is a tuple
            with these as its items 1, 2 and so on.
    """
    definition = _MethodDef(name.encode(), address, _METH_FASTCALL, None)
    make = _new_function()
    # A function releases ``self`` last, after it has read its definition.
    function: Callable[..., object] = make(ctypes.addressof(definition), (definition, *keep), None)
    return function

"""Rows on a device: array rules of the CPU's rows, whose globals hold the device's array library.

A row has one reference and one set of rules, written with ``np``. On a device the same code runs
with other globals: the backend's namespace in the place of ``np``, tables copied to the device,
caches of its own, and array rules of the helpers that it calls. Ops stay ops. Rows are changed when
a backend is installed, and changed back when it is uninstalled; so programs that use no device have
the kernels and rules of the CPU, with no test in between.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from threading import RLock
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from odyssey.devices.arrays import ARRAY_TYPE_LISTENERS, DEVICE_TYPES, HostNumberError
from odyssey.devices.backends import Backend, backend_of
from odyssey.devices.same_device import place_beside
from odyssey.errors import DeviceError
from odyssey.kernels.scalars import program
from odyssey.spec import HALVES, spec_of
from odyssey.table.half_kernels import half_kernel, half_rules
from odyssey.table.multi_output import MultiOutput
from odyssey.table.scope import allows_tf32
from odyssey.table.signature import PASS
from odyssey.table.store import store
from odyssey.table.value import Symbol, Value

__all__ = [
    "DeviceCode",
    "composite_body",
    "device_kernel",
    "device_rules",
    "device_with_residual",
    "host_rules",
    "place_numbers",
]

_COPIED = tuple(
    f"odyssey.{room}."
    for room in (
        *("ops", "special", "linalg", "fft", "nn", "losses", "table", "devices"),
        *("kernels.on_arrays", "floating_point_errors"),
    )
)
# Dispatch and its records are one for all devices; so are decisions by dtype or shape alone.
_SHARED = tuple(
    f"odyssey.{room}"
    for room in (
        *("table.call", "table.fast_calls", "table.declare", "table.registry", "table.row"),
        *("table.value", "table.store", "table.scope", "table.steps"),
        *("table.half_kernels", "table.kernel_selection", "table.kernel_overrides"),
        *("table.device_rows", "table.profiling", "table.fused_rules"),
        *("devices.arrays", "devices.backends", "devices.half_dtypes", "devices.ownership"),
        *("devices.write_guard", "devices.cupy_backend", "devices.device", "devices.same_device"),
        # A generator is one for all devices; where its state lies on one, its bits are made there.
        "ops.random.generator",
    )
)


def _is_copied(module: Any) -> bool:
    return isinstance(module, str) and (module + ".").startswith(_COPIED) and module not in _SHARED


class _Globals(dict[str, Any]):
    """The globals of a module's functions on one device, made as they are first read."""

    def __init__(self, code: DeviceCode, module: str) -> None:
        super().__init__(__builtins__=code.builtins, __name__=module)
        self.code = code
        self.host = vars(sys.modules[module])

    def __missing__(self, name: str) -> Any:
        found = self[name] = self.code.translate(self.host[name])
        return found


class _Module:
    """A module as code on a device sees it."""

    def __init__(self, names: _Globals) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        try:
            return self._names[name]
        except KeyError:
            raise AttributeError(name) from None


class DeviceCode:
    """The code of rows for one device of a backend.

    Args:
        backend: The array library.
        index: The number of the device: tables and caches belong to one.
    """

    def __init__(self, backend: Backend, index: int) -> None:
        self.backend = backend
        self.index = index
        self._globals: dict[str, _Globals] = {}
        self._modules: dict[str, _Module] = {}
        self.builtins = vars(builtins) | {"__import__": self._import}
        self._translated: dict[int, tuple[Any, Any]] = {}  # by id, with the value that has it
        # Those that this thread has begun: a function is there before its closure is filled.
        self._begun: dict[int, tuple[Any, Any]] = {}
        self._depth = 0
        self._lock = RLock()

    def globals_of(self, module: str) -> _Globals:
        """Return the globals of a module's functions on this device."""
        found = self._globals.get(module)
        if found is None:
            found = self._globals[module] = _Globals(self, module)
        return found

    def translate(self, value: Any) -> Any:
        """Return what stands on this device for a value that code of the CPU reads.

        Functions of op modules get other globals and closures, NumPy's functions are those of the
        device's namespace, host arrays are copied; anything else is shared.
        """
        known = self._translated.get(id(value))
        if known is not None:
            return known[1]
        with self._lock:
            known = self._translated.get(id(value)) or self._begun.get(id(value))
            if known is not None:
                return known[1]
            self._depth += 1
            try:
                found = self._translate(value)
                if found is not value:
                    self._begun[id(value)] = value, found
                if self._depth == 1:
                    self._translated |= self._begun
            finally:
                self._depth -= 1
                if not self._depth:
                    self._begun.clear()
        return found

    def _translate(self, value: Any) -> Any:
        if value is np:
            return self.backend.namespace
        if value is PASS or hasattr(value, "row") or hasattr(value, "aliases"):
            return value  # an op, or a composite of ops, finds the device by its operands
        try:
            if value in self.backend.replacements:
                return self.backend.replacements[value]
        except TypeError:  # it has no hash
            pass
        kind = type(value)
        if value is program:  # it traces scalars of the CPU
            return lambda scalar, *rest: program(getattr(scalar, "__wrapped__", scalar), *rest)
        if kind is ModuleType:
            return self._translate_module(value)
        if getattr(value, "device_version", None) is not None:
            return self.translate(value.device_version)
        if getattr(value, "runs_on_host", False):
            return self._call_on_host(value)
        if kind is np.ndarray:
            return self.backend.to_device(value, self.index)
        if kind in (dict, tuple, list):
            return self._translate_container(value)
        if kind is FunctionType and _is_copied(value.__globals__.get("__name__")):
            return self._translate_function(value)
        if kind is partial:
            return partial(
                self.translate(value.func),
                *map(self.translate, value.args),
                **{name: self.translate(one) for name, one in value.keywords.items()},
            )
        if hasattr(value, "cache_parameters") and callable(value):
            return self.backend.cache(self.index).memoize(self.translate(value.__wrapped__))
        if kind is type:
            return self._translate_class(value)
        return self._library_function(value)

    def _translate_container(self, value: Any) -> Any:
        """Return a table of the CPU with its arrays and functions on the device."""
        items = value.items() if type(value) is dict else enumerate(value)
        changed = {key: self.translate(one) for key, one in items if not self._is_plain(one)}
        if all(value[key] is one for key, one in changed.items()):
            return value
        if type(value) is dict:
            return value | changed
        return type(value)([changed.get(k, one) for k, one in enumerate(value)])

    @staticmethod
    def _is_plain(value: Any) -> bool:
        return type(value) in (str, int, float, bool, complex, type(None), np.dtype)

    def _translate_function(self, function: FunctionType) -> FunctionType:
        made = FunctionType(
            function.__code__,
            self.globals_of(function.__globals__["__name__"]),
            function.__name__,
            function.__defaults__,
            function.__closure__ and tuple([CellType() for _ in function.__closure__]),
        )
        self._begun[id(function)] = function, made  # before its closure, which may hold it
        for own, cell in zip(made.__closure__ or (), function.__closure__ or (), strict=True):
            with suppress(ValueError):  # an empty cell
                own.cell_contents = self.translate(cell.cell_contents)
        if function.__kwdefaults__:
            pairs = function.__kwdefaults__.items()
            made.__kwdefaults__ = {name: self.translate(value) for name, value in pairs}
        if function.__defaults__:
            made.__defaults__ = tuple(map(self.translate, function.__defaults__))
        made.__dict__.update(
            {k: v for k, v in vars(function).items() if k not in ("__wrapped__", "without_halves")}
        )
        made.__wrapped__ = function  # type: ignore[attr-defined]  # rules are read by parameters
        return made

    def _import(self, name: str, *args: Any) -> Any:
        """Import a module inside of a function, as its code on the device sees it."""
        return self._translate_module(builtins.__import__(name, *args))

    def _translate_module(self, module: ModuleType) -> Any:
        if not _is_copied(module.__name__):
            return module
        found = self._modules.get(module.__name__)
        if found is None:
            found = self._modules[module.__name__] = _Module(self.globals_of(module.__name__))
        return found

    def _call_on_host(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that copies its operands to the host, and its results back."""
        backend, index = self.backend, self.index

        def call(*values: Any, **options: Any) -> Any:
            values = tuple([backend.to_host(v) if backend_of(v) else v for v in values])
            return copy_results(function(*values, **options))

        def copy_results(out: Any) -> Any:
            if isinstance(out, tuple):
                made = map(copy_results, out)
                return type(out)(*made) if hasattr(out, "_fields") else tuple(made)
            if isinstance(out, (np.ndarray, np.generic)):
                return backend.to_device(np.asarray(out), index)
            return out

        return call

    def _translate_class(self, kind: type) -> type:
        """Return a helper class whose methods run on the device."""
        if (
            not _is_copied(kind.__module__)
            or kind.__module__.startswith("odyssey.table.")
            or kind.__bases__ != (object,)
            or "__slots__" in vars(kind)
            or not any(type(member) is FunctionType for member in vars(kind).values())
        ):
            return kind
        made = type(kind.__name__, (), {})
        self._begun[id(kind)] = kind, made
        for name, member in vars(kind).items():
            if name in ("__dict__", "__weakref__", "__doc__"):
                continue
            if isinstance(member, (staticmethod, classmethod)):
                member = type(member)(self.translate(member.__func__))
            elif type(member) is FunctionType:
                member = self.translate(member)
            setattr(made, name, member)
        return made

    def _library_function(self, value: Any) -> Any:
        """Return the device's function for one of NumPy's: ``np.add``, ``np.add.reduce``."""
        if not callable(value) or isinstance(value, type):
            return value
        owner = getattr(value, "__self__", None)
        if isinstance(owner, np.ufunc):
            return getattr(self._library_function(owner), value.__name__)
        name = getattr(value, "__name__", "")
        if isinstance(value, np.ufunc):
            return getattr(self.backend.namespace, name, value)
        module = getattr(value, "__module__", None) or ""
        if not isinstance(value, (FunctionType, BuiltinFunctionType)) and not hasattr(
            value, "_implementation"
        ):
            return value
        first, *rest = module.split(".")
        if first != "numpy":
            return value
        found = self.backend.namespace
        for part in [*[p for p in rest if not p.startswith("_")], name]:
            found = getattr(found, part, None)
            if found is None:
                return value
        return found


# ------------------------------------------------------------------ rows

# The code of each device in use, by backend and number.
_CODES: dict[tuple[Backend, int], DeviceCode] = {}


def code_of(backend: Backend, index: int) -> DeviceCode:
    """Return the code of rows for a device."""
    found = _CODES.get((backend, index))
    if found is None:
        found = _CODES.setdefault((backend, index), DeviceCode(backend, index))
    return found


def code_of_array(array: Any) -> DeviceCode:
    """Return the code of rows for the device that holds an array."""
    backend = backend_of(array)
    assert backend is not None
    return code_of(backend, backend.device_index(array))


def _forget_codes(kind: type, _: bool) -> None:
    for key in [key for key in _CODES if key[0].array_type is kind]:
        del _CODES[key]


ARRAY_TYPE_LISTENERS.append(_forget_codes)


def array_on_device(values: Sequence[Any]) -> Any:
    """Return the first array of a device among values, in nests and Variables too; None if none.

    The value of an example in ``vmap`` lies where those of all examples do.
    """
    for value in values:
        while isinstance(value, (Value, Symbol)):
            value = value._array if isinstance(value, Value) else getattr(value, "payload", None)
        if type(value) in DEVICE_TYPES:
            return value
        if type(value) is MultiOutput:
            found = array_on_device(list(value.parts.values()))
            if found is not None:
                return found
        elif type(value) in (tuple, list):
            found = array_on_device(value)
            if found is not None:
                return found
    return None


def device_name(array: Any) -> str:
    """Return the name of the device that holds an array: ``"cpu"`` or ``"cuda:0"``."""
    backend = backend_of(array)
    return "cpu" if backend is None else f"{backend.platform}:{backend.device_index(array)}"


def composite_body(
    function: Callable[..., Any], args: Sequence[Any], named: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return the function of a composite that runs a call: the device's, if operands are there."""
    if store().traces:  # ops in a graph take keys and other arrays of the host
        return function
    array = array_on_device(args)
    if array is None and named:
        array = array_on_device(list(named.values()))
    if array is None:
        return function
    code = code_of_array(array)

    def run(*args: Any, **named: Any) -> Any:
        with code.backend.on(code.index):
            return code.translate(function)(*args, **named)

    return run


def overriding_kernel(row: Any, values: Sequence[Any]) -> Any:
    """Return the kernel that ``use_kernels`` runs instead of the row's on a device, or None."""
    for kernel in row.device_kernels:
        if kernel.takes(*[spec_of(v) if hasattr(v, "dtype") else v for v in values]):
            return kernel
    return None


def device_kernel(row: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that runs arrays of a device there, and others by ``kernel``."""
    count = len(row.arrays)
    kernels: dict[DeviceCode, Callable[..., Any]] = {}

    def run_on_device(values: tuple[Any, ...], array: Any) -> Any:
        code = code_of_array(array)
        _check_devices(row, values, array)
        found = kernels.get(code)
        if found is None:
            found = kernels[code] = _kernel_on_device(row, code)
        if len(values) > count:
            values = (*values[:count], *[_place_option(code, o) for o in values[count:]])
        override = overriding_kernel(row, values)
        found = found if override is None else override.run
        return _call(row, code, row.name, found, values)

    def run(*values: Any) -> Any:
        for value in values[:count]:
            if type(value) in DEVICE_TYPES:
                return run_on_device(values, value)
        return run_on_host(*values)

    def run_one(x: Any, *options: Any) -> Any:
        if type(x) in DEVICE_TYPES:
            return run_on_device((x, *options), x)
        return run_on_host(x, *options)

    def run_on_host(*values: Any) -> Any:
        try:
            return kernel(*values)
        except TypeError:  # perhaps of a device's array, which refuses to become one of the host
            found = [array_on_device((value,)) for value in values]
            k = next((k for k, array in enumerate(found) if array is not None), None)
            if k is None:
                raise
        raise _other_device(row, values, values[0], k, found[k])

    found: Any = run_one if count == 1 else run
    found.without_devices = kernel
    return found


def _call(
    row: Any, code: DeviceCode, who: str, function: Callable[..., Any], values: Sequence[Any]
) -> Any:
    """Call a function of a row on a device; products in TF32 where that is allowed or exact."""
    if row.precision == "low" and _may_use_tf32(row, values):
        with code.backend.tf32(code.index):
            return code.backend.call(who, code.index, function, *values)
    return code.backend.call(who, code.index, function, *values)


# Rows that multiply their operands, and whose rules multiply cotangents by operands. Halves are
# computed in float32, and are numbers of TF32: it has 10 bits of mantissa, as float16 has, and 8 of
# the exponent, as bfloat16 has. So TF32 changes nothing but the order of sums.
_EXACT_IN_TF32 = frozenset(
    {
        *("matmul", "linear", "contract", "conv1d", "conv2d", "conv3d"),
        *("convolution_input", "convolution_weight"),
    }
)


def _may_use_tf32(row: Any, values: Sequence[Any]) -> bool:
    """Return whether all products of a call may be in TF32; those of complex numbers may not."""
    arrays = chain.from_iterable([v if type(v) is tuple else (v,) for v in values])
    dtypes = [v.dtype for v in arrays if hasattr(v, "dtype")]
    if row.name in _EXACT_IN_TF32 and HALVES.issuperset(dtypes):
        return True
    return allows_tf32() and all(dtype.kind != "c" for dtype in dtypes)


def _check_devices(row: Any, values: Sequence[Any], array: Any) -> None:
    """Raise DeviceError if an operand or an option lies on another device than ``array``.

    Raises:
        HostNumberError: an operand is a number of NumPy's, or a host array without axes.
    """
    count = len(row.arrays)
    for k, value in enumerate(values):
        kind = type(value)
        if kind in DEVICE_TYPES or (k >= count and kind is tuple):
            other = array_on_device((value,))
            if not (other is None or other is array) and device_name(other) != device_name(array):
                raise _other_device(row, values, array, k, other)
        elif k < count and kind is np.ndarray and value.ndim:
            raise _other_device(row, values, array, k, value)
        elif k < count and hasattr(value, "dtype"):
            raise HostNumberError


def _other_device(row: Any, values: Sequence[Any], array: Any, k: int, other: Any) -> DeviceError:
    """Return the error for operand or option ``k``, whose array lies on another device."""
    names = (*row.arrays, *row.options)
    where = next(n for n, one in enumerate(values) if one is array)
    own = device_name(array)
    return DeviceError(
        f"{row.name}: {names[where]} is on {own} and {names[k]} on {device_name(other)}; pass both "
        f"on one device, by .to({own!r}) of a Variable, or od.Variable(array, device={own!r})"
    )


def place_numbers(row: Any, operands: Sequence[Any], values: list[Any]) -> list[Any]:
    """Return operands of a call in which NumPy's numbers lie on the device of the arrays.

    Raises:
        DeviceError: a Variable of the host is beside an array of a device.
    """
    array = next((value for value in values if type(value) in DEVICE_TYPES), None)
    if array is None:
        return values
    placed = list(values)
    for k, value in enumerate(values):
        if isinstance(value, np.generic) or (type(value) is np.ndarray and not value.ndim):
            if isinstance(operands[k], Value):
                raise _other_device(row, values, array, k, value)
            placed[k] = place_beside(np.asarray(value), array)
    return placed


def _place_option(code: DeviceCode, option: Any) -> Any:
    """Copy host arrays among options, such as indices, to the device."""
    if type(option) is np.ndarray:
        return code.backend.to_device(option, code.index)
    if type(option) is tuple and any(type(one) in (np.ndarray, tuple) for one in option):
        return tuple([_place_option(code, one) for one in option])
    return option


def _kernel_on_device(row: Any, code: DeviceCode) -> Callable[..., Any]:
    """Return a row's kernel on a device: the code of the CPU's kernel, for halves by float32."""
    plain: Callable[..., Any] = code.translate(row.device_source[0])
    halves = half_kernel(row, plain, on_host=False)
    return lambda *values: (halves if HALVES else plain)(*values)


def device_with_residual(row: Any, with_residual: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``with_residual`` that runs arrays of a device there."""
    count = len(row.arrays)
    own: dict[DeviceCode, Callable[..., Any]] = {}

    def run(*values: Any) -> Any:
        array = array_on_device(values[:count])
        if array is None:
            return with_residual(*values)
        override, source = overriding_kernel(row, values), row.device_source[1]
        if override is not None:
            source = override.with_residual
        elif any(getattr(v, "dtype", None) in HALVES for v in values[:count]):
            source = None
        if source is None:
            return None
        code = code_of_array(array)
        _check_devices(row, values, array)
        if override is None:
            if code not in own:
                own[code] = code.translate(source)
            source = own[code]
        placed = [_place_option(code, option) for option in values[count:]]
        return _call(row, code, row.name, source, (*values[:count], *placed))

    run.without_devices = with_residual  # type: ignore[attr-defined]
    return run


def device_rules(
    row: Any, rules: Sequence[Any], sources: Sequence[Any] | None = None
) -> tuple[Any, ...]:
    """Return rules that run arrays of a device, and Variables of these, by the device's code.

    Args:
        row: The op.
        rules: Its rules on the CPU.
        sources: The rules whose code runs on devices; None for these.
    """
    pairs = zip(rules, rules if sources is None else sources, strict=True)
    return tuple([_device_rule(row, rule, source) for rule, source in pairs])


def _device_rule(row: Any, rule: Any, source: Any) -> Any:
    if rule is None or rule is PASS or isinstance(rule, MethodType):
        return rule
    translated: dict[DeviceCode, Callable[..., Any]] = {}

    def run(g: Any, kept: Any, specs: Any) -> Any:
        array = array_on_device((g,))
        if array is None:
            return rule(g, kept, specs)
        code = code_of_array(array)
        found = translated.get(code)
        if found is None:
            plain = getattr(source, "without_halves", source)
            own = code.translate(plain)
            found = translated[code] = own if plain is source else half_rules(row, (own,))[0]
        if kept:
            kept = tuple([_place_option(code, one) for one in kept])
        return _call(row, code, f"gradient of {row.name}", found, (g, kept, specs))

    run.without_devices = rule  # type: ignore[attr-defined]
    if hasattr(rule, "without_halves"):
        run.without_halves = rule.without_halves  # type: ignore[attr-defined]
    return run


def host_rules(row: Any, rules: Sequence[Any], sources: Any = None) -> tuple[Any, ...]:
    """Return the rules that ``device_rules`` wrapped."""
    return tuple([getattr(rule, "without_devices", rule) for rule in rules])

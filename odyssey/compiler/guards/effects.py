"""Side effects of library functions: which functions of Python and NumPy are pure.

A compiled program calls none of them: their results during the trace become constants of it. So a
function that is not known to be pure keeps its caller from being compiled.
"""

from __future__ import annotations

import builtins
import sys
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

from odyssey.checks import is_standard_library

__all__ = [
    "defining_module",
    "impure_attributes",
    "is_library",
    "is_own_or_numpy",
    "side_effect_of",
]


# Pure modules of the standard library, and the modules in C behind them, as ``_operator``.
_PURE = {
    *("__future__", "abc", "array", "bisect", "builtins", "cmath", "collections", "contextlib"),
    *("copy", "dataclasses", "enum", "fractions", "functools", "graphlib", "heapq", "itertools"),
    *("keyword", "math", "numbers", "operator", "re", "statistics", "string", "struct"),
    *("textwrap", "types", "typing"),
}
# Modules of which only the names listed are pure.
_PURE_NAMES = {
    "sys": {"byteorder", "float_info", "int_info", "maxsize", "version_info"},
    "time": set[str](),
}

# Functions and methods of pure modules that draw random numbers, or change the process, and those
# of devices that ask for memory and caches, or change them.
_IMPURE_NAMES = {
    "statistics": {"samples", "kde_random"},
    "contextlib": {"chdir", "redirect_stderr", "redirect_stdout"},
    "odyssey.devices.device": {
        *("synchronize", "memory_stats", "memory_limit", "reset_peak"),
        *("cache_stats", "cache_limit", "clear_cache"),
    },
}
# Attributes of immutable objects of impure modules that depend on nothing but the object. Others
# read the clock, the local time zone, the locale or files of time zones.
_PURE_ATTRIBUTES = {
    "datetime": {
        *("year", "month", "day", "hour", "minute", "second", "microsecond", "fold", "tzinfo"),
        *("days", "seconds", "microseconds", "total_seconds", "max", "min", "resolution", "utc"),
        *("weekday", "isoweekday", "isocalendar", "isoformat", "ctime", "toordinal", "replace"),
        *("date", "time", "timetz", "timetuple", "utctimetuple", "combine", "fromordinal"),
        *("fromisoformat", "fromisocalendar", "utcfromtimestamp"),
        *("utcoffset", "dst", "tzname", "fromutc"),
    },
    "pathlib": {
        *("name", "stem", "suffix", "suffixes", "parts", "parent", "parents", "anchor", "drive"),
        *("root", "joinpath", "with_name", "with_stem", "with_suffix", "match", "as_posix"),
        *("is_absolute", "is_relative_to", "relative_to"),
    },
    "zoneinfo": {"key", "utcoffset", "dst", "tzname", "fromutc"},
}

_PURE_BUILTINS = {
    *("abs", "all", "any", "ascii", "bin", "bool", "bytearray", "bytes", "callable", "chr"),
    *("classmethod", "complex", "delattr", "dict", "dir", "divmod", "enumerate", "filter"),
    *("float", "format", "frozenset", "getattr", "hasattr", "hash", "hex", "int", "isinstance"),
    *("issubclass", "iter", "len", "list", "locals", "map", "max", "memoryview", "min", "next"),
    *("object", "oct", "ord", "pow", "property", "range", "repr", "reversed", "round", "set"),
    *("setattr", "slice", "sorted", "staticmethod", "str", "sum", "super", "tuple", "type"),
    *("vars", "zip", "__build_class__", "NotImplemented", "Ellipsis", "__debug__", "__name__"),
    *("__doc__", "__package__", "__spec__"),
}

_IMPURE_NUMPY_MODULES = {
    *("numpy.random", "numpy.testing", "numpy.ctypeslib", "numpy.f2py", "numpy.distutils"),
    *("numpy.lib._npyio_impl", "numpy.lib.npyio", "numpy.lib._format_impl", "numpy.lib.format"),
    *("numpy.lib._datasource", "numpy._core._ufunc_config", "numpy.core._ufunc_config"),
    *("numpy._core.memmap", "numpy.core.memmap", "numpy._core.printoptions"),
}
_IMPURE_NUMPY_NAMES = {
    "datetime64",  # np.datetime64("now") reads the clock
    *("errstate", "f2py", "fromfile", "fromregex", "genfromtxt", "geterr", "geterrcall", "info"),
    *("load", "loadtxt", "memmap", "random", "save", "savetxt", "savez", "savez_compressed"),
    *("set_printoptions", "setbufsize", "seterr", "seterrcall", "show_config", "show_runtime"),
    *("test", "testing", "ctypeslib", "printoptions", "get_printoptions", "getbufsize"),
}


def defining_module(thing: Any) -> str:
    """Return the module that defines a function, a class, or the class of an object."""
    if isinstance(thing, ModuleType):
        return thing.__name__
    if isinstance(thing, FunctionType):
        # ``__module__`` may come from another function, by ``functools.wraps``.
        return str(thing.__globals__.get("__name__", ""))
    if isinstance(thing, BuiltinFunctionType):
        owner = thing.__self__
        if isinstance(owner, (type, ModuleType)):
            return defining_module(owner)
        return str(thing.__module__ or type(owner).__module__)
    if isinstance(thing, type) or type(thing).__module__ in ("numpy", "builtins"):
        return str(getattr(thing, "__module__", None) or type(thing).__module__)
    return str(type(thing).__module__)


def is_library(module: str) -> bool:
    """Return whether a module is of this package, NumPy or Python, whose names stay as they are."""
    top = module.partition(".")[0]
    return is_own_or_numpy(top) or (top in sys.stdlib_module_names and is_standard_library(top))


def is_own_or_numpy(module: str) -> bool:
    """Return whether a module is of this package or NumPy, whose functions hold private objects."""
    return module.partition(".")[0] in ("numpy", "odyssey")


def side_effect_of(thing: Any, module: str, name: str) -> str | None:
    """Return why a function may have a side effect or differ between two calls; None if pure.

    Args:
        thing: A function, a class or a module, of Python's own, of NumPy or of this package.
        module: The module that defines it.
        name: Its name in the calling code.
    """
    top = module.partition(".")[0]
    differs = f"it uses {name} of {module}, which may behave differently at each call"
    if top in ("odyssey", "ml_dtypes"):  # dtypes and their scalars
        return differs if name in _IMPURE_NAMES.get(module, ()) else None
    if top == "numpy":
        own = getattr(thing, "__name__", name)
        impure = any(f"{module}.".startswith(f"{one}.") for one in _IMPURE_NUMPY_MODULES)
        if impure or own in _IMPURE_NUMPY_NAMES or name in _IMPURE_NUMPY_NAMES:
            return f"it uses numpy's {name}"
        return None
    if top == "builtins":
        return None if _is_pure_builtin(thing, name) else f"it uses {name}"
    known = _is_pure_module(top) and name not in _IMPURE_NAMES.get(top, ())
    if known or name in _PURE_NAMES.get(top, ()):
        return None
    return differs


def _is_pure_module(top: str) -> bool:
    return top.lstrip("_") in {one.lstrip("_") for one in _PURE}


@lru_cache(maxsize=512)
def impure_attributes(kind: type) -> dict[str, str]:
    """Return the attributes of a class that may differ between two calls on one object.

    Only Python's own classes among its bases count: the code of others is walked. Special methods
    are taken to be pure, but for the ``__format__`` of dates, which reads the locale.

    Returns:
        By name of the attribute, the module and the name of the class that defines it.
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        module = base.__module__
        top = module.partition(".")[0]
        if module in _IMPURE_NAMES:
            names = set(vars(base)) & _IMPURE_NAMES[module]
        elif (
            top == "builtins"
            or is_own_or_numpy(module)
            or not is_library(module)
            or _is_pure_module(top)
        ):
            continue
        else:
            names = {
                name
                for name in vars(base)
                if not name.startswith("__") or (top == "datetime" and name == "__format__")
            } - _PURE_ATTRIBUTES.get(top, set())
        found.update(dict.fromkeys(names, f"{module}.{base.__name__}"))
    return found


def _is_pure_builtin(thing: Any, name: str) -> bool:
    own = str(getattr(thing, "__name__", name))
    if (
        getattr(builtins, own, None) is not thing
    ):  # a method, or a class that builtins does not name
        return True
    exception = isinstance(thing, type) and issubclass(thing, BaseException)
    return exception or own in _PURE_BUILTINS

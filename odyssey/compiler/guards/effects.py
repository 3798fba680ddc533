"""What of Python's own and of NumPy's does the same at each call, and nothing besides.

A native program calls none of it: what it returned while the function was traced stays in the
program. So whatever is not known to be so keeps a function from being replaced by a program.
"""

from __future__ import annotations

import builtins
import os
import sys
from functools import lru_cache
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

__all__ = ["side_effect_of", "defining_module", "is_library", "is_own_or_numpy"]


# Of the standard library; also for what these have from modules written in C, ``_operator``.
_PURE = {
    *("__future__", "abc", "array", "bisect", "builtins", "cmath", "collections", "contextlib"),
    *("copy", "dataclasses", "enum", "fractions", "functools", "graphlib", "heapq", "itertools"),
    *("keyword", "math", "numbers", "operator", "re", "statistics", "string", "struct"),
    *("textwrap", "types", "typing"),
}
# Of these modules what is named is pure, and the rest is not.
_PURE_NAMES = {
    "sys": {"byteorder", "float_info", "int_info", "maxsize", "version_info"},
    "time": set[str](),
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

_NUMPYS_EFFECTS = {
    *("numpy.random", "numpy.testing", "numpy.ctypeslib", "numpy.f2py", "numpy.distutils"),
    *("numpy.lib._npyio_impl", "numpy.lib.npyio", "numpy.lib._format_impl", "numpy.lib.format"),
    *("numpy.lib._datasource", "numpy._core._ufunc_config", "numpy.core._ufunc_config"),
    *("numpy._core.memmap", "numpy.core.memmap", "numpy._core.printoptions"),
}
_NUMPYS_NAMES = {
    *("errstate", "f2py", "fromfile", "fromregex", "genfromtxt", "geterr", "geterrcall", "info"),
    *("load", "loadtxt", "memmap", "random", "save", "savetxt", "savez", "savez_compressed"),
    *("set_printoptions", "setbufsize", "seterr", "seterrcall", "show_config", "show_runtime"),
    *("test", "testing", "ctypeslib", "printoptions", "get_printoptions", "getbufsize"),
}


def defining_module(thing: Any) -> str:
    """The module that a function, a class, a module, or the class of an object was written in."""
    if isinstance(thing, ModuleType):
        return thing.__name__
    if isinstance(thing, FunctionType):
        # Not by its attribute, which ``functools.wraps`` takes from another function.
        return str(thing.__globals__.get("__name__", ""))
    if isinstance(thing, BuiltinFunctionType):
        owner = thing.__self__
        if isinstance(owner, (type, ModuleType)):
            return defining_module(owner)
        return str(thing.__module__ or type(owner).__module__)
    if isinstance(thing, type) or type(thing).__module__ in ("numpy", "builtins"):
        return str(getattr(thing, "__module__", None) or type(thing).__module__)
    return str(type(thing).__module__)


def is_library(home: str) -> bool:
    """Whether a module is of this package, NumPy or Python: its own names nobody assigns."""
    top = home.partition(".")[0]
    return is_own_or_numpy(top) or (top in sys.stdlib_module_names and _is_standard_library(top))


@lru_cache(maxsize=512)
def _is_standard_library(module: str) -> bool:
    """Whether a module with a name of Python's own is from there, and not a user's beside it."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:  # it is written in C
        return True
    folder = os.path.realpath(os.path.dirname(os.__file__))
    place = os.path.realpath(file)
    return place.startswith(folder + os.sep) and "site-packages" not in place[len(folder) :]


def is_own_or_numpy(home: str) -> bool:
    """Whether a module is of this package or NumPy: what its functions hold is its own affair."""
    return home.partition(".")[0] in ("numpy", "odyssey")


def side_effect_of(thing: Any, home: str, name: str) -> str | None:
    """Why what ``thing`` does may differ between two calls, or leave something; None if it cannot.

    Args:
        thing: A function, a class or a module, of Python's own, of NumPy or of this package.
        home: Where it was written.
        name: What the code calls it.
    """
    top = home.partition(".")[0]
    if top == "odyssey":
        return None
    if top == "numpy":
        own = getattr(thing, "__name__", name)
        part = next((one for one in _NUMPYS_EFFECTS if f"{home}.".startswith(f"{one}.")), None)
        if part or own in _NUMPYS_NAMES or name in _NUMPYS_NAMES:
            return f"it uses numpy's {name}"
        return None
    if top == "builtins":
        return None if _is_pure_builtin(thing, name) else f"it uses {name}"
    known = top.lstrip("_") in {one.lstrip("_") for one in _PURE}
    if known or name in _PURE_NAMES.get(top, ()):
        return None
    return f"it uses {name} of {home}, which may do something else at each call"


def _is_pure_builtin(thing: Any, name: str) -> bool:
    own = str(getattr(thing, "__name__", name))
    if getattr(builtins, own, None) is not thing:  # a method, or a class without a name there
        return True
    exception = isinstance(thing, type) and issubclass(thing, BaseException)
    return exception or own in _PURE_BUILTINS

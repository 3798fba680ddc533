"""How NumPy's functions are called: their arguments by name, and which of them say nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.table.signature import format_call

__all__ = [
    "bound",
    "is_silent",
    "misfit_of",
    "options_of",
    "signature_of",
    "spelled",
    "without_silent",
]

# Options, and values of them, that say nothing of a result which is a value of its own.
_SILENT: dict[str, tuple[Any, ...]] = {
    "out": (None,),
    "dtype": (None,),
    "where": (True,),
    "casting": ("same_kind",),
    "subok": (True, False),
    "order": (None, "C", "K"),
    "overwrite_input": (True, False),
    "weights": (None,),
    "copy": (None,),
    "device": (None, "cpu"),
}


def without_silent(func: Any, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """The arguments without the options that say nothing, such as ``out=None``."""
    parameters = signature_of(func).parameters
    first: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in signature_of(func).bind(*args, **kwargs).arguments.items():
        parameter = parameters[name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            first += value
        elif parameter.kind is parameter.VAR_KEYWORD:
            named |= value
        elif parameter.default is parameter.empty:
            first.append(value)
        else:
            named[name] = value
    return first, {name: value for name, value in named.items() if not is_silent(name, value)}


def is_silent(name: str, value: Any) -> bool:
    """Whether an option says nothing by this value."""
    plain = value is None or type(value) in (bool, str)
    return plain and any(value is known or value == known for known in _SILENT.get(name, ()))


# Of what is written in C, older versions of NumPy do not tell the signature.
_IN_C: dict[Any, Callable[..., Any]] = {
    np.concatenate: lambda arrays, axis=0, out=None, *, dtype=None, casting="same_kind": None,
    np.dot: lambda a, b, out=None: None,
    np.inner: lambda a, b: None,
    np.vdot: lambda a, b: None,
    np.where: lambda condition, x=None, y=None: None,
}


def signature_of(func: Any) -> Any:
    """The signature of a function of NumPy, or of an op."""
    import inspect

    return inspect.signature(_IN_C.get(func, func))


def options_of(name: str) -> Any:
    """The names of the arguments of NumPy's function of a name."""
    return signature_of(getattr(np, name)).parameters


def bound(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments that were given, by NumPy's names, without those that say nothing."""
    given = signature_of(func).bind(*args, **kwargs).arguments
    no_value = getattr(np, "_NoValue", None)
    return {
        name: value
        for name, value in given.items()
        if value is not no_value and not is_silent(name, value)
    }


def spelled(func: Any) -> str:
    """A function as users write it: ``np.linalg.norm``, ``scipy.special.gammaln``.

    >>> spelled(np.linalg.norm), spelled(np.hypot)
    ('np.linalg.norm', 'np.hypot')
    """
    name = func.__name__
    # Ufuncs of SciPy, and those of older versions of NumPy, do not know where they come from.
    rooms = (np, sys.modules.get("scipy.special"))
    known = (room.__name__ for room in rooms if room and getattr(room, name, None) is func)
    home = getattr(func, "__module__", None) or next(known, "")
    public = [part for part in home.split(".") if part and not part.startswith("_")]
    return ".".join([*public, name]).replace("numpy", "np", 1)


def misfit_of(func: Any, function: Any, args: Any, kwargs: Any) -> DTypeError | None:
    """The error to raise where the arguments are more than NumPy's function and ours share."""
    signature = signature_of(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return DTypeError(
            f"{spelled(func)}: {error}; on Variables it takes {format_call('', signature)}"
        )
    return None

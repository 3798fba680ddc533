"""Arguments of NumPy's functions: binding by name, and options at their default."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.table.signature import format_call

__all__ = [
    "given_arguments",
    "is_default_option",
    "options_of",
    "public_name",
    "numpy_signature_error",
    "signature_of",
    "without_default_options",
]

# Options, and values of them, that do not change a result that is a new value.
_DEFAULT_OPTIONS: dict[str, tuple[Any, ...]] = {
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


def without_default_options(func: Any, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments without options at their default, such as ``out=None``."""
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
    return first, {
        name: value for name, value in named.items() if not is_default_option(name, value)
    }


def is_default_option(name: str, value: Any) -> bool:
    """True if an option has no effect with this value."""
    plain = value is None or type(value) in (bool, str)
    return plain and any(
        value is known or value == known for known in _DEFAULT_OPTIONS.get(name, ())
    )


# Older versions of NumPy do not provide signatures of functions written in C.
_C_SIGNATURES: dict[Any, Callable[..., Any]] = {
    np.concatenate: lambda arrays, axis=0, out=None, *, dtype=None, casting="same_kind": None,
    np.dot: lambda a, b, out=None: None,
    np.inner: lambda a, b: None,
    np.vdot: lambda a, b: None,
    np.where: lambda condition, x=None, y=None: None,
}


def signature_of(func: Any) -> Any:
    """Return the signature of a NumPy function, or of an op."""
    import inspect

    return inspect.signature(_C_SIGNATURES.get(func, func))


def options_of(name: str) -> Any:
    """Return the parameters of the NumPy function with this name."""
    return signature_of(getattr(np, name)).parameters


def given_arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the given arguments by NumPy's names, without options at their default."""
    given = signature_of(func).bind(*args, **kwargs).arguments
    no_value = getattr(np, "_NoValue", None)
    return {
        name: value
        for name, value in given.items()
        if value is not no_value and not is_default_option(name, value)
    }


def public_name(func: Any) -> str:
    """Return a function's name as users write it: ``np.linalg.norm``, ``scipy.special.gammaln``.

    >>> public_name(np.linalg.norm), public_name(np.hypot)
    ('np.linalg.norm', 'np.hypot')
    """
    name = func.__name__
    # Ufuncs of SciPy, and those of older versions of NumPy, have no __module__.
    rooms = (np, sys.modules.get("scipy.special"))
    known = (room.__name__ for room in rooms if room and getattr(room, name, None) is func)
    home = getattr(func, "__module__", None) or next(known, "")
    public = [part for part in home.split(".") if part and not part.startswith("_")]
    return ".".join([*public, name]).replace("numpy", "np", 1)


def numpy_signature_error(func: Any, function: Any, args: Any, kwargs: Any) -> DTypeError | None:
    """Return the error for arguments that the op does not share with NumPy's function, or None."""
    signature = signature_of(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return DTypeError(
            f"{public_name(func)}: {error}; on Variables it takes {format_call('', signature)}"
        )
    return None

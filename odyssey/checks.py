"""Checks of settings and arguments, and the format of values in messages."""

from __future__ import annotations

import math
import operator
import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.errors import (
    DTypeError,
    LinAlgError,
    OdysseyError,
    OutOfRangeError,
    SettingError,
    ShapeError,
)
from odyssey.floating_point_errors import isolate_errstate

__all__ = [
    "STUMBLES",
    "Text",
    "with_article",
    "few_digits",
    "hides_frame",
    "without_own_frames",
    "check_flag",
    "check_callable",
    "is_importable",
    "is_installed",
    "is_standard_library",
    "error_class_of",
    "check_name",
    "check_number",
    "format_sequence",
    "format_value",
    "describe_type",
    "user_line",
    "user_stacklevel",
    "check_int",
    "check_choice",
]

STUMBLES = (TypeError, ValueError, LookupError, AttributeError, ArithmeticError, RuntimeError)
"""Errors that Python and NumPy raise for an argument that they cannot use.

``FloatingPointError`` is one of them, as an ``ArithmeticError``, but is raised on request only, by
``np.errstate``: code that catches these errors re-raises it.
"""

_WIDTH = 80
_repr = isolate_errstate(repr)  # of arrays, which NumPy prints within an np.errstate

# Maximal length of a number that is shown in full, and of a list that is shown in full.
_LENGTH = 8
_MANY = 8


def error_class_of(error: Exception) -> type[OdysseyError]:
    """Return our error class for an error of Python or NumPy."""
    if isinstance(error, IndexError):
        return OutOfRangeError
    if isinstance(error, np.linalg.LinAlgError):
        return LinAlgError
    if isinstance(error, (TypeError, AttributeError, RecursionError)):
        return DTypeError
    return ShapeError if isinstance(error, ValueError) else OdysseyError


def format_value(value: Any) -> str:
    """Format a value for a message: its ``repr`` on one short line; never raises.

    >>> format_value("a" * 200)[-5:], format_value(10**5000)
    ('aaa..', 'an int')
    """
    try:
        text = " ".join(_repr(value).split())
    except Exception:  # a foreign repr: too deep, too many digits, or broken
        return with_article(type(value).__name__)
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 2]}.."


class Text(str):
    """Text of several lines whose ``repr`` is the text itself, as a notebook shows it.

    >>> Text("two" + chr(10) + "lines")
    two
    lines
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def few_digits(value: Any) -> str:
    """Format a setting for a repr: numbers to six digits, alone or in a list or tuple.

    >>> few_digits(0.1), few_digits(1 / 3), few_digits((0.9, 0.1 + 0.2)), few_digits("mean")
    ('0.1', '0.333333', '(0.9, 0.3)', "'mean'")
    """
    if type(value) in (float, complex):
        text = repr(value)
        return text if len(text) <= _LENGTH else f"{value:.6g}"
    if type(value) in (list, tuple):
        return format_sequence(value, few_digits)
    return format_value(value)


def format_sequence(values: list[Any] | tuple[Any, ...], text_of: Callable[[Any], str]) -> str:
    """Format a list or a tuple as Python does, cut after the first few elements.

    >>> format_sequence((1,), str), format_sequence(list(range(20)), str)
    ('(1,)', '[0, 1, 2, 3, 4, 5, 6, 7, ...]')
    """
    texts = [text_of(value) for value in values[:_MANY]] + ["..."] * (len(values) > _MANY)
    if type(values) is list:
        return f"[{', '.join(texts)}]"
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def with_article(noun: str) -> str:
    """Return ``noun`` with its article, as in ``an int``."""
    return f"{'an' if noun[:1] in 'aeiou' or noun == 'ndarray' else 'a'} {noun}"


def describe_type(value: Any) -> str:
    """Return the type name of a value with its article, as in ``an int``."""
    return with_article(type(value).__name__)


def check_flag(who: str, name: str, value: Any) -> bool:
    """Check a boolean setting; text is refused.

    >>> check_flag("example", "keepdims", np.True_)
    True
    """
    if value is True or value is False:
        return bool(value)
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if isinstance(value, np.bool_) or (isinstance(value, (int, np.integer)) and value in (0, 1)):
        return bool(value)
    raise DTypeError(f"{who}: {name}={format_value(value)} is not a flag; pass True or False")


def check_number(who: str, name: str, value: Any, interval: str = "(-inf, inf)") -> float:
    """Check a real number; return it as a Python float, so that it does not widen a dtype.

    Args:
        who: The function, for the message.
        name: Name of the setting.
        value: A Python or NumPy number, or an object with ``__float__``, but no text.
        interval: Allowed values in mathematical notation: ``"[0, 1)"``; ``"NaN"`` allows
            every number, NaN included.

    Raises:
        DTypeError: if it is not a number. SettingError: if it is outside of the interval, or NaN.

    >>> check_number("example", "rate", 1, "[0, 1]")
    1.0
    """
    found = value if type(value) is float else _as_float(who, name, value, interval)
    if interval == "NaN":
        return found
    low, high = interval[1:-1].split(",")
    least, most = float(low), float(high)
    above = found >= least if interval[0] == "[" else found > least
    below = found <= most if interval[-1] == "]" else found < most
    if not (above and below):
        wanted = _WORDS.get(interval, f"lie in {interval}")
        raise SettingError(f"{who}: {name}={format_value(value)}; it must {wanted}")
    return found


def _as_float(who: str, name: str, value: Any, interval: str) -> float:
    try:
        if isinstance(value, (str, bytes, bytearray)) or np.ndim(value):
            raise TypeError
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except STUMBLES as error:
        if isinstance(error, OdysseyError):
            raise
        where = "" if interval == "NaN" else f" in {interval}"
        raise DTypeError(
            f"{who}: {name}={format_value(value)} is not a number; pass one{where}"
        ) from None


_WORDS = {
    "(-inf, inf)": "be finite",
    "(0, inf)": "be finite and positive",
    "[0, inf)": "be finite, and must not be negative",
    "[0, inf]": "not be negative or NaN",
}


def check_int(who: str, name: str, value: Any, low: int | None = None) -> int:
    """Check an integer, at least ``low``.

    >>> check_int("example", "steps", np.int64(3), 1)
    3
    """
    try:
        found = operator.index(value)
    except STUMBLES as error:
        if isinstance(error, OdysseyError):
            raise
        raise DTypeError(
            f"{who}: {name}={format_value(value)} is not a whole number; pass an int"
        ) from None
    if low is not None and found < low:
        raise SettingError(f"{who}: {name}={format_value(value)}; it must be at least {low}")
    return found


def check_choice(
    who: str,
    name: str,
    value: Any,
    choices: Sequence[str],
    kind: type[OdysseyError] = SettingError,
) -> str:
    """Check a setting that must be one of ``choices``.

    >>> check_choice("example", "mode", "min", ("min", "max"))
    'min'
    """
    if isinstance(value, str) and value in choices:
        return value
    *others, last = map(repr, choices)
    choose = f"{', '.join(others)} or {last}" if others else last
    raise kind(f"{who}: {name}={format_value(value)}; choose {choose}")


def check_name(who: str, value: Any) -> str | None:
    """Check a name: a str, or None."""
    if value is None or isinstance(value, str):
        return value
    raise DTypeError(f"{who}: name={format_value(value)} is not text; pass a str, or leave it out")


def check_callable(who: str, value: Any) -> Callable[..., Any]:
    """Check that a value is callable."""
    if callable(value):
        return value  # type: ignore[no-any-return]
    raise DTypeError(f"{who}: {format_value(value)} cannot be called; pass a function")


_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
# NumPy's functions are between the user and this package if they delegate to our methods.
_INTERNAL_FOLDERS = _PACKAGE, os.path.dirname(os.path.abspath(np.__file__)) + os.sep


def user_line() -> str:
    """Return ``file:line`` of the innermost caller outside this package and NumPy."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INTERNAL_FOLDERS):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def hides_frame(excinfo: Any) -> bool:
    """Return whether pytest hides a frame with this as its local ``__tracebackhide__``.

    pytest hides frames of the library from an error about an argument; IPython, which does not call
    this, hides them from all. Other errors may be faults of the library, whose frames are needed.
    ``pytest --full-trace``, and ``%xmode`` with ``skip_hidden = False`` in IPython, show all.
    """
    return isinstance(getattr(excinfo, "value", None), OdysseyError)


def without_own_frames(error: Exception) -> Exception:
    """Return an error about an argument without its traceback, if only this package is in it.

    The kernel that refused an operand is of no use to the reader; user-defined ops are kept.
    """
    trace = error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_INTERNAL_FOLDERS):
            return error
        trace = trace.tb_next
    return error.with_traceback(None)


def user_stacklevel() -> int:
    """Return the ``stacklevel`` by which a warning of the caller points to the user's line."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INTERNAL_FOLDERS):
        level, frame = level + 1, frame.f_back
    return level


def is_called_by_user() -> bool:
    """Return whether the caller's caller is code outside this package."""
    return not sys._getframe(2).f_code.co_filename.startswith(_PACKAGE)


def is_importable(thing: Any) -> bool:
    """Return whether an object can be pickled by name: its module has it by its qualified name."""
    found = sys.modules.get(str(thing.__module__))
    for name in str(getattr(thing, "__qualname__", "")).split("."):
        found = getattr(found, name, None)
    return found is thing


@lru_cache(maxsize=512)
def is_installed(package: str) -> bool:
    """Return whether a package lies in ``site-packages`` or ``dist-packages``."""
    file = getattr(sys.modules.get(package), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


@lru_cache(maxsize=512)
def is_standard_library(module: str) -> bool:
    """Return whether a module lies in the standard library, and does not only bear such a name."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:  # a module written in C
        return True
    folder = os.path.realpath(os.path.dirname(os.__file__))
    path = os.path.realpath(file)
    return path.startswith(folder + os.sep) and "site-packages" not in path[len(folder) :]


def __dir__() -> list[str]:
    return sorted(__all__)

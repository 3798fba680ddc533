"""In how many threads programs run: what is said of it, for all and for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odyssey.checks import check_int, format_value
from odyssey.errors import SettingError

__all__ = [
    "MAX_THREADS",
    "get_threads",
    "check_thread_count",
    "requested_threads",
    "set_threads",
    "subscribe",
]

MAX_THREADS = 256
"""Threads that there can be."""

# What was said; and who is told of it, which is the native pool, once there is one.
_requested: list[int] = [0]
_subscribers: list[Callable[[int], object]] = []


def set_threads(number: int | None) -> None:
    """Say in how many threads compiled functions run, but those that were given a number.

    Large loops and matrix products are cut into blocks, and a block is computed in the same way
    whoever takes it: results are equal, bit for bit, whatever the number.

    Args:
        number: At least 1. As long as nothing is said, and after None, loops run in one thread, and
            matrix products as the library that NumPy calls does them, which may have threads of its
            own.

    Raises:
        DTypeError: it is no whole number.
        SettingError: it is below 1, or above 256.

    >>> set_threads(2)
    >>> get_threads()
    2
    >>> set_threads(None)
    """
    _requested[0] = 0 if number is None else check_thread_count("set_threads", number)
    for tell_one in _subscribers:
        tell_one(_requested[0])


def get_threads() -> int:
    """In how many threads compiled functions run: what ``set_threads`` said, else 1."""
    return _requested[0] or 1


def check_thread_count(who: str, value: Any) -> int:
    """Check a number of threads."""
    name = "number" if who == "set_threads" else "threads"
    found = check_int(who, name, value, 1)
    if found > MAX_THREADS:
        raise SettingError(f"{who}: {name}={format_value(found)}; it must be at most {MAX_THREADS}")
    return found


def requested_threads() -> int:
    """Return the number of threads that was set; 0 if none was."""
    return _requested[0]


def subscribe(who: Callable[[int], object]) -> None:
    """Tell somebody what is said, now and whenever it changes."""
    _subscribers.append(who)
    who(_requested[0])

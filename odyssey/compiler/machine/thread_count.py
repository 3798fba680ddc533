"""Number of threads of compiled functions: the process-wide setting, and its checks.

Called by ``od.compile`` and ``runtime.thread_pool``.
"""

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
"""The largest number of threads."""

# The setting, 0 for none; and functions that are called when it changes: the thread pool's.
_requested: list[int] = [0]
_subscribers: list[Callable[[int], object]] = []


def set_threads(number: int | None) -> None:
    """Set the number of threads of compiled functions without a number of their own.

    Large loops and matrix products are split into blocks that do not depend on the number of
    threads. So results are equal to the bit for every number.

    Args:
        number: At least 1. By default, and after None, loops run in one thread, and matrix
            products as in NumPy's BLAS library, which may have threads of its own.

    Raises:
        DTypeError: the number is not an integer.
        SettingError: the number is below 1 or above 256.

    >>> set_threads(2)
    >>> get_threads()
    2
    >>> set_threads(None)
    """
    _requested[0] = 0 if number is None else check_thread_count("set_threads", number)
    for notify in _subscribers:
        notify(_requested[0])


def get_threads() -> int:
    """Return the number of threads of compiled functions, 1 by default; see ``set_threads``."""
    return _requested[0] or 1


def check_thread_count(who: str, value: Any) -> int:
    """Return a number of threads; raise DTypeError or SettingError if it is not one."""
    name = "number" if who == "set_threads" else "threads"
    number = check_int(who, name, value, 1)
    if number > MAX_THREADS:
        raise SettingError(
            f"{who}: {name}={format_value(number)}; it must be at most {MAX_THREADS}"
        )
    return number


def requested_threads() -> int:
    """Return the number of threads that was set; 0 if none was."""
    return _requested[0]


def subscribe(callback: Callable[[int], object]) -> None:
    """Call a function with the setting now, and whenever it changes."""
    _subscribers.append(callback)
    callback(_requested[0])

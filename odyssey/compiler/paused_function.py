"""Functions that run inside ``no_grad``, for compiled functions that are called there."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from odyssey.table.scope import no_grad

__all__ = ["PausedFunction"]


class PausedFunction:
    """A function whose calls run inside ``no_grad``.

    Attributes:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        update_wrapper(self, function, updated=())
        self.function = function

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function inside ``no_grad``."""
        with no_grad():
            return self.function(*args, **named)


def __dir__() -> list[str]:
    return sorted(__all__)

"""Functions that run inside a scope, for compiled functions that are called there."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import update_wrapper
from typing import Any

__all__ = ["ScopedFunction", "unscoped_function"]


class ScopedFunction:
    """A function whose calls run inside a scope: ``no_grad``, or one of ``od.autocast``.

    Attributes:
        function: The function.
    """

    def __init__(
        self, function: Callable[..., Any], scope: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        update_wrapper(self, function, updated=())
        self.function = function
        self._scope = scope

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call the function inside the scope."""
        with self._scope():
            return self.function(*args, **named)


def unscoped_function(function: Any) -> Any:
    """Return the function that runs inside of scopes; any other function as it is."""
    while isinstance(function, ScopedFunction):
        function = function.function
    return function


def __dir__() -> list[str]:
    return sorted(__all__)

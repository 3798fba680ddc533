"""Calls of compiled functions whose hidden arguments are attributes; see ``attribute_states``."""

from __future__ import annotations

from operator import is_
from typing import Any

from odyssey.compiler.attribute_states import StatefulFunction
from odyssey.compiler.dispatch.fast_path import CACHE_MISS

__all__ = ["AttributeStates"]


class AttributeStates:
    """A compiled function that reads attributes of objects at each call, and assigns them after it.

    Args:
        function: The function with the attributes as arguments.
        compiled: It, compiled.
        receivers: The leading arguments of its calls, such as ``self``.
    """

    def __init__(
        self, function: StatefulFunction, compiled: Any, receivers: tuple[Any, ...]
    ) -> None:
        self.function, self.compiled, self._receivers = function, compiled, receivers

    def fits(self, args: tuple[Any, ...]) -> bool:
        """Return whether a call is of these receivers."""
        receivers = self._receivers
        return len(args) >= len(receivers) and all(map(is_, args, receivers))

    def fast_path(self, *args: Any) -> Any:
        """Run the latest program, or return CACHE_MISS."""
        values = self.function.values()
        if values is None or not self.fits(args):
            return CACHE_MISS
        answer = self.compiled._fast_path(*args, *values)
        if answer is CACHE_MISS:
            return CACHE_MISS
        result, changed = answer
        if changed:
            self.function.assign(changed)
        return result

    def precompile(self, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Compile the program for such arguments and the present attributes."""
        self.compiled.precompile(*args, *(self.function.values() or ()), **named)

    def call(self, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run a program or the function; return CACHE_MISS if an attribute is missing."""
        values = self.function.values()
        if values is None:
            return CACHE_MISS
        result, changed = self.compiled(*args, *values, **named)
        self.function.assign(changed)
        return result

"""NumPy signatures: op calls with options that only NumPy's function of that name has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["FALLBACKS", "call_with_numpy_signature"]

FALLBACKS: list[Callable[..., Any]] = []
"""Handlers of such calls, registered by ``variable``, which is a layer above the table."""


def call_with_numpy_signature(
    name: str,
    function: Callable[..., Any],
    reads: Callable[..., Any],
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> Any:
    """Call an op with the arguments of NumPy's function of its name, or return NotImplemented.

    Args:
        name: The name of the op.
        function: The op.
        reads: A function with its signature.
        args: Positional arguments.
        named: Keyword arguments, ``tape`` among them.
    """
    import inspect

    plain = {key: value for key, value in named.items() if key != "tape"}
    bind = inspect.signature(reads).bind
    try:
        bind(*args, **plain)
    except TypeError:
        pass
    else:
        return NotImplemented  # the arguments fit: the error had another cause
    for fallback in FALLBACKS:
        return fallback(name, function, bind, args, dict(named))
    return NotImplemented

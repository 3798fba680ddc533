"""Options that NumPy's function has besides, in calls that an op by itself cannot read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = ["FALLBACKS", "call_with_numpy_signature"]

FALLBACKS: list[Callable[..., Any]] = []
"""Who knows NumPy's functions: the room of Variables, which stands above the table."""


def call_with_numpy_signature(
    name: str,
    function: Callable[..., Any],
    reads: Callable[..., Any],
    args: Sequence[Any],
    named: Mapping[str, Any],
) -> Any:
    """Call an op as NumPy's function of its name is called, or return NotImplemented.

    Args:
        name: The name of the op.
        function: What is called.
        reads: What has its signature.
        args: The arguments that came, by position.
        named: Those that came by name, ``tape`` among them.
    """
    import inspect

    plain = {key: value for key, value in named.items() if key != "tape"}
    bind = inspect.signature(reads).bind
    try:
        bind(*args, **plain)
    except TypeError:
        pass
    else:
        return NotImplemented  # it was not the signature that it stumbled over
    for lend in FALLBACKS:
        return lend(name, function, bind, args, dict(named))
    return NotImplemented

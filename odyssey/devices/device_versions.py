"""Device versions: functions that run on a device in the place of one that only the CPU can run.

Code of rows is one for all devices (``table.device_rows``). Where a helper depends on what only
NumPy has, it names the function that stands for it on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

__all__ = ["check_bounds", "device_version", "on_host"]

F = TypeVar("F", bound=Callable[..., Any])


def device_version(function: Callable[..., Any]) -> Callable[[F], F]:
    """Decorate a helper of rows: on a device ``function`` is called in its place."""

    def mark(host: F) -> F:
        host.device_version = function  # type: ignore[attr-defined]
        return host

    return mark


def on_host(function: F) -> F:
    """Decorate a helper of rows, cached or not, that runs on the CPU always.

    On a device its operands are copied to the host and its results back, which waits.
    """
    function.runs_on_host = True  # type: ignore[attr-defined]
    return function


def check_bounds(indices: Any, axis: int | None, size: int) -> None:
    """Raise IndexError if an index of a device's array is out of range; waits for the device.

    There it would wrap, where NumPy raises.
    """
    places = indices.reshape(-1).astype(np.intp, copy=False)
    wrong = (places < -size) | (places >= size)
    if wrong.any():
        k = int(places[wrong][0])
        raise IndexError(f"index {k} is out of bounds for axis {axis} with size {size}")

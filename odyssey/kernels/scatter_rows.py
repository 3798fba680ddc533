"""Rows added by index, in order."""

from __future__ import annotations

from typing import Any

from odyssey.kernels.loops import loop

__all__ = ["add_rows"]


@loop
def add_rows(x: Any, places: Any, skipped: Any, out: Any) -> None:
    """Add row i of ``x`` to row ``places[i]`` of ``out``, except to row ``skipped``."""
    for i in range(x.shape[0]):
        if places[i] != skipped:
            row, to = x[i], out[places[i]]
            for j in range(row.size):
                to[j] += row[j]

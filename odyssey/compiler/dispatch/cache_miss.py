"""What a program answers that did nothing."""

from __future__ import annotations

from typing import Any

__all__ = ["MISSED", "missed"]

MISSED: Any = object()
"""What a program answers that did nothing, since something is not as it was made for."""


def missed(*args: Any) -> Any:
    """The same, in the place of a program where there is none."""
    return MISSED

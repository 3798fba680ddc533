"""The decorator that declares a loss with its test cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from odyssey.table.samples import Reject, Sample

__all__ = ["loss"]

Loss = TypeVar("Loss", bound=Callable[..., Any])


def loss(*, samples: Sequence[Sample], rejects: Sequence[Reject] = ()) -> Callable[[Loss], Loss]:
    """Declare a loss, made of ops or of a row of its own: ``loss(predictions, targets, ...)``.

    Args:
        samples: Cases to test it on: predictions, targets and options.
        rejects: Cases that must fail, with their messages.

    Returns:
        A decorator that returns the function unchanged, without call overhead.
    """

    def declare(function: Loss) -> Loss:
        function.samples, function.rejects = tuple(samples), tuple(rejects)  # type: ignore[attr-defined]
        return function

    return declare

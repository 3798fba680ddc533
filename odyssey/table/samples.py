"""Samples: test cases of rows, composites and losses, and calls that must fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from odyssey.errors import OdysseyError, ShapeError
from odyssey.spec import Array

__all__ = ["NO_BROADCAST", "PAIRS", "Reject", "Sample", "reject", "sample", "singles"]


class Sample(NamedTuple):
    """One call: an array, or the shape of a random one, for each operand; and the options.

    An operand of a composite may be a list. Random values lie between ``low`` and ``high``. With
    ``spread`` they differ by a margin, so that finite differences cross no tie. ``form`` maps
    random arrays to valid operands, such as positive definite matrices.
    """

    operands: tuple[Any, ...]
    options: dict[str, Any]
    low: float = -2.0
    high: float = 2.0
    spread: bool = False
    form: Callable[[Array], Array] | None = None

    def arrays(self, rng: np.random.Generator, dtype: Any = np.float64) -> list[Any]:
        """Draw the operands: tuples are shapes, anything else is an operand."""
        return [self._operand(o, rng, dtype) for o in self.operands]

    def _operand(self, operand: Any, rng: np.random.Generator, dtype: Any) -> Any:
        if isinstance(operand, list):
            return [self._operand(o, rng, dtype) for o in operand]
        return self._draw(operand, rng, dtype) if isinstance(operand, tuple) else operand

    def _draw(self, shape: tuple[int, ...], rng: np.random.Generator, dtype: Any) -> Array:
        size = int(np.prod(shape))
        if self.spread:
            steps = np.linspace(self.low, self.high, size + 2)[1:-1]
            values = rng.permutation(steps).reshape(shape)
        else:
            values = rng.uniform(self.low, self.high, shape)
        if np.dtype(dtype).kind == "c":
            values = values + 1j * rng.uniform(self.low, self.high, shape)
        if self.form is not None:
            values = self.form(values)
        return np.asarray(values).astype(dtype)


class Reject(NamedTuple):
    """One call that must fail, with the error's type and a piece of its message."""

    operands: tuple[Any, ...]
    options: dict[str, Any]
    error: type[OdysseyError]
    match: str


def sample(
    *operands: Any,
    low: float = -2.0,
    high: float = 2.0,
    spread: bool = False,
    form: Callable[[Array], Array] | None = None,
    **options: Any,
) -> Sample:
    """Declare a sample: shapes or arrays, then the op's options."""
    return Sample(operands, options, low, high, spread, form)


def reject(
    *operands: Any, error: type[OdysseyError] = ShapeError, match: str, **options: Any
) -> Reject:
    """Declare a call that must raise ``error`` with ``match`` in its message."""
    return Reject(operands, options, error, match)


def singles(low: float = -2.0, high: float = 2.0, **options: Any) -> tuple[Sample, ...]:
    """Samples of an elementwise op of one operand, with values between ``low`` and ``high``."""
    shapes = [(2, 3), (), (0,), (3, 1, 2)]
    return tuple(sample(shape, low=low, high=high, **options) for shape in shapes)


PAIRS = (
    sample((2, 3), (2, 3)),
    sample((2, 3), (3,)),
    sample((3, 1), (1, 4)),
    sample((), (2,)),
    sample((), ()),
    sample((0, 3), (3,)),
)
"""Samples of an elementwise op of two operands."""

NO_BROADCAST = reject((2, 3), (4,), error=ShapeError, match="do not broadcast")
"""A call that every elementwise op of two operands must reject."""

"""Special functions, those that NumPy does not have.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from typing import Any, overload

from odyssey.table.protocols import Tape
from odyssey.table.signatures import Array, ArrayOrScalar, Binary, Plain, Scalar, Unary, V

__all__ = [
    "digamma",
    "digamma_derivative",
    "erf",
    "erfc",
    "gamma",
    "gammaln",
    "logit",
    "multigammaln",
    "polygamma",
    "xlogy",
]

digamma: Unary
"""Elementwise derivative of the logarithm of the gamma function."""

@overload
def digamma_derivative(x: V, /, *, order: int, tape: Tape | None = None) -> V:
    """Elementwise derivative of the digamma function, of an order from 1 to 100."""
@overload
def digamma_derivative(x: Scalar, /, *, order: int, tape: Tape | None = None) -> Any: ...
@overload
def digamma_derivative(x: Plain, /, *, order: int, tape: Tape | None = None) -> Array: ...
erf: Unary
"""Elementwise error function, ``2 / sqrt(pi)`` times the integral of ``e**-(t**2)`` to x."""
erfc: Unary
"""Elementwise complement of the error function, ``1 - erf(x)``, without cancellation."""
gamma: Unary
"""Elementwise gamma function, ``(x - 1)!`` for whole numbers."""
gammaln: Unary
"""Elementwise logarithm of the size of the gamma function."""
logit: Unary
"""Elementwise logarithm of the odds, ``log(x / (1 - x))``: the inverse of sigmoid."""

@overload
def multigammaln(a: V, d: int, *, tape: Tape | None = None) -> V:
    """Elementwise logarithm of the gamma function of ``d`` dimensions."""
@overload
def multigammaln(a: Plain, d: int, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def polygamma(n: Any, x: V, *, tape: Tape | None = None) -> V:
    """Elementwise derivative of order ``n`` of the digamma function."""
@overload
def polygamma(n: Any, x: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...
xlogy: Binary
"""Elementwise ``x * log(y)``, but 0 where ``x`` is 0 and ``y`` is a number."""

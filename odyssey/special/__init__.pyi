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
    "erfcinv",
    "erfcx",
    "erfinv",
    "gamma",
    "gammaln",
    "inverse_mills_ratio",
    "log_ndtr",
    "logit",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "scaled_erfc_integral",
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
erfcinv: Unary
"""Elementwise inverse of the complement of the error function."""
erfcx: Unary
"""Elementwise ``e**(x**2) * erfc(x)``, which falls as ``1 / x`` does."""
erfinv: Unary
"""Elementwise inverse of the error function."""
gamma: Unary
"""Elementwise gamma function, ``(x - 1)!`` for whole numbers."""
gammaln: Unary
"""Elementwise logarithm of the size of the gamma function."""
inverse_mills_ratio: Unary
"""Elementwise density of a standard normal number over the chance to be below ``x``."""
log_ndtr: Unary
"""Elementwise logarithm of the chance that a standard normal number is below ``x``."""
logit: Unary
"""Elementwise logarithm of the odds, ``log(x / (1 - x))``: the inverse of sigmoid."""

@overload
def multigammaln(a: V, d: int, *, tape: Tape | None = None) -> V:
    """Elementwise logarithm of the gamma function of ``d`` dimensions."""
@overload
def multigammaln(a: Plain, d: int, *, tape: Tape | None = None) -> ArrayOrScalar: ...
ndtr: Unary
"""Elementwise chance that a standard normal number is below ``x``."""
ndtri: Unary
"""Elementwise number below which a standard normal one lies with chance ``x``."""

@overload
def polygamma(n: Any, x: V, *, tape: Tape | None = None) -> V:
    """Elementwise derivative of order ``n`` of the digamma function."""
@overload
def polygamma(n: Any, x: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...

@overload
def scaled_erfc_integral(x: V, /, *, order: int, tape: Tape | None = None) -> V:
    """Elementwise ``e**(x**2)`` times the integral of erfc from x on, repeated ``order`` times."""
@overload
def scaled_erfc_integral(x: Scalar, /, *, order: int, tape: Tape | None = None) -> Any: ...
@overload
def scaled_erfc_integral(x: Plain, /, *, order: int, tape: Tape | None = None) -> Array: ...
xlogy: Binary
"""Elementwise ``x * log(y)``, but 0 where ``x`` is 0 and ``y`` is a number."""

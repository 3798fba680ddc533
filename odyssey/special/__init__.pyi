"""Special functions that NumPy does not have, with the names of SciPy.

Made from the table of ops by ``python -m tools.reference``; do not edit.
"""

from typing import Any, overload

from odyssey.table.protocols import Tape
from odyssey.table.signatures import Array, ArrayOrScalar, Binary, Operand, Plain, Scalar, Unary, V

__all__ = [
    "bessel_j_quotient",
    "bessel_quotient",
    "beta",
    "betainc",
    "betaln",
    "digamma",
    "digamma_derivative",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "exponential_moment",
    "exprel",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "inverse_mills_ratio",
    "j0",
    "j1",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "kl_div",
    "log_ndtr",
    "logit",
    "multigammaln",
    "ndtr",
    "ndtri",
    "polygamma",
    "rel_entr",
    "scaled_erfc_integral",
    "weighted_logsumexp",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "zeta",
]

@overload
def bessel_j_quotient(x: V, /, *, order: int, tape: Tape | None = None) -> V:
    """Elementwise ``J_order(x) / x**order``, of the Bessel functions of the first kind."""
@overload
def bessel_j_quotient(x: Scalar, /, *, order: int, tape: Tape | None = None) -> Any: ...
@overload
def bessel_j_quotient(x: Plain, /, *, order: int, tape: Tape | None = None) -> Array: ...

@overload
def bessel_quotient(x: V, /, *, order: int, scaled: bool = False, tape: Tape | None = None) -> V:
    """Elementwise ``I_order(x) / x**order``; if ``scaled``, times ``e**-abs(x)``."""
@overload
def bessel_quotient(
    x: Scalar, /, *, order: int, scaled: bool = False, tape: Tape | None = None
) -> Any: ...
@overload
def bessel_quotient(
    x: Plain, /, *, order: int, scaled: bool = False, tape: Tape | None = None
) -> Array: ...

@overload
def beta(a: V, b: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise beta function, ``gamma(a) * gamma(b) / gamma(a + b)``; NaN below 0."""
@overload
def beta(a: Plain, b: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def beta(a: Scalar, b: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def beta(a: Plain, b: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def betainc(a: V, b: Operand, x: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise regularized incomplete beta function, the CDF of the beta distribution."""
@overload
def betainc(a: Plain, b: V, x: Operand, /, *, tape: Tape | None = None) -> V: ...
@overload
def betainc(a: Plain, b: Plain, x: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def betainc(a: Scalar, b: Scalar, x: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def betainc(a: Plain, b: Plain, x: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def betaln(a: V, b: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise logarithm of the beta function, also for operands far apart; NaN below 0."""
@overload
def betaln(a: Plain, b: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def betaln(a: Scalar, b: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def betaln(a: Plain, b: Plain, /, *, tape: Tape | None = None) -> Array: ...
digamma: Unary
"""Elementwise digamma function, the derivative of the logarithm of the gamma function."""
psi = digamma

@overload
def digamma_derivative(x: V, /, *, order: int, tape: Tape | None = None) -> V:
    """Elementwise derivative of the digamma function, of order 1 to 100."""
@overload
def digamma_derivative(x: Scalar, /, *, order: int, tape: Tape | None = None) -> Any: ...
@overload
def digamma_derivative(x: Plain, /, *, order: int, tape: Tape | None = None) -> Array: ...
entr: Unary
"""Elementwise entropy term ``-x * log(x)``: 0 at 0, -inf below."""
erf: Unary
"""Elementwise error function, ``2 / sqrt(pi)`` times the integral of ``e**-(t**2)`` to x."""
erfc: Unary
"""Elementwise complementary error function, ``1 - erf(x)``, without cancellation."""
erfcinv: Unary
"""Elementwise inverse of the complementary error function."""
erfcx: Unary
"""Elementwise scaled complementary error function, ``e**(x**2) * erfc(x)``."""
erfinv: Unary
"""Elementwise inverse of the error function."""

@overload
def exponential_moment(x: V, /, *, order: int, tape: Tape | None = None) -> V:
    """Elementwise integral of ``t**order * e**(x t)`` for t from 0 to 1."""
@overload
def exponential_moment(x: Scalar, /, *, order: int, tape: Tape | None = None) -> Any: ...
@overload
def exponential_moment(x: Plain, /, *, order: int, tape: Tape | None = None) -> Array: ...
exprel: Unary
"""Elementwise ``(e**x - 1) / x``; 1 at 0."""
gamma: Unary
"""Elementwise gamma function, ``(x - 1)!`` for positive integers."""

@overload
def gammainc(a: V, x: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise regularized lower incomplete gamma function, CDF of the gamma distribution."""
@overload
def gammainc(a: Plain, x: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def gammainc(a: Scalar, x: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def gammainc(a: Plain, x: Plain, /, *, tape: Tape | None = None) -> Array: ...

@overload
def gammaincc(a: V, x: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise regularized upper incomplete gamma function, ``1 - gammainc(a, x)``."""
@overload
def gammaincc(a: Plain, x: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def gammaincc(a: Scalar, x: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def gammaincc(a: Plain, x: Plain, /, *, tape: Tape | None = None) -> Array: ...
gammaln: Unary
"""Elementwise logarithm of the absolute value of the gamma function."""
lgamma = gammaln
i0: Unary
"""Elementwise modified Bessel function of the first kind of order 0."""
i0e: Unary
"""Elementwise ``e**-abs(x)`` times the modified Bessel function of order 0."""
i1: Unary
"""Elementwise modified Bessel function of the first kind of order 1."""
i1e: Unary
"""Elementwise ``e**-abs(x)`` times the modified Bessel function of order 1."""
inverse_mills_ratio: Unary
"""Elementwise inverse Mills ratio: standard normal density over CDF."""
j0: Unary
"""Elementwise Bessel function of the first kind of order 0."""
j1: Unary
"""Elementwise Bessel function of the first kind of order 1."""
k0: Unary
"""Elementwise modified Bessel function of the second kind of order 0, for positive numbers."""
k0e: Unary
"""Elementwise ``e**x`` times the modified Bessel function ``k0``, for positive numbers."""
k1: Unary
"""Elementwise modified Bessel function of the second kind of order 1, for positive numbers."""
k1e: Unary
"""Elementwise ``e**x`` times the modified Bessel function ``k1``, for positive numbers."""
kl_div: Binary
"""Elementwise divergence term ``x * log(x / y) - x + y``: y at x = 0, inf below 0."""
log_ndtr: Unary
"""Elementwise logarithm of the CDF of the standard normal distribution."""
logit: Unary
"""Elementwise logit, ``log(x / (1 - x))``, the inverse of sigmoid."""

@overload
def multigammaln(a: V, d: int, *, tape: Tape | None = None) -> V:
    """Elementwise logarithm of the multivariate gamma function of dimension ``d``."""
@overload
def multigammaln(a: Plain, d: int, *, tape: Tape | None = None) -> ArrayOrScalar: ...
ndtr: Unary
"""Elementwise CDF of the standard normal distribution."""
ndtri: Unary
"""Elementwise quantile of the standard normal distribution, the inverse of ``ndtr``."""

@overload
def polygamma(n: Any, x: V, *, tape: Tape | None = None) -> V:
    """Elementwise polygamma function, the derivative of order ``n`` of digamma."""
@overload
def polygamma(n: Any, x: Plain, *, tape: Tape | None = None) -> ArrayOrScalar: ...
rel_entr: Binary
"""Elementwise relative entropy term ``x * log(x / y)``: 0 at x = 0, inf below 0."""

@overload
def scaled_erfc_integral(x: V, /, *, order: int, tape: Tape | None = None) -> V:
    """Elementwise ``e**(x**2)`` times the ``order``-fold integral of erfc from x to infinity."""
@overload
def scaled_erfc_integral(x: Scalar, /, *, order: int, tape: Tape | None = None) -> Any: ...
@overload
def scaled_erfc_integral(x: Plain, /, *, order: int, tape: Tape | None = None) -> Array: ...

@overload
def weighted_logsumexp(
    x: V,
    b: Operand,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    return_sign: bool = False,
    tape: Tape | None = None,
) -> V:
    """Logarithm of the sum of ``b * exp(x)`` over ``axis``, without overflow."""
@overload
def weighted_logsumexp(
    x: Plain,
    b: V,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    return_sign: bool = False,
    tape: Tape | None = None,
) -> V: ...
@overload
def weighted_logsumexp(
    x: Plain,
    b: Plain,
    axis: int | tuple[int, ...] | None = None,
    *,
    keepdims: bool = False,
    return_sign: bool = False,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...
xlog1py: Binary
"""Elementwise ``x * log(1 + y)``, but 0 if ``x`` is 0 and ``y`` is not NaN."""
xlogy: Binary
"""Elementwise ``x * log(y)``, but 0 if ``x`` is 0 and ``y`` is not NaN."""
y0: Unary
"""Elementwise Bessel function of the second kind of order 0, for positive numbers."""
y1: Unary
"""Elementwise Bessel function of the second kind of order 1, for positive numbers."""

@overload
def zeta(x: V, q: Operand, /, *, tape: Tape | None = None) -> V:
    """Elementwise Hurwitz zeta function, the sum of ``(k + q)**-x`` over integers k >= 0."""
@overload
def zeta(x: Plain, q: V, /, *, tape: Tape | None = None) -> V: ...
@overload
def zeta(x: Scalar, q: Scalar, /, *, tape: Tape | None = None) -> Any: ...
@overload
def zeta(x: Plain, q: Plain, /, *, tape: Tape | None = None) -> Array: ...
expit: Unary
"""Elementwise logistic function, ``1 / (1 + e**-x)``, without overflow."""
log_expit: Unary
"""Elementwise logarithm of the logistic function, ``-log(1 + e**-x)``, without overflow."""

@overload
def logsumexp(
    x: V,
    /,
    axis: int | tuple[int, ...] | None = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    *,
    tape: Tape | None = None,
) -> V:
    """Logarithm of the sum of exponentials over ``axis``, without overflow; -inf if it is empty."""
@overload
def logsumexp(
    x: Plain,
    /,
    axis: int | tuple[int, ...] | None = None,
    b: Any = None,
    keepdims: bool = False,
    return_sign: bool = False,
    *,
    tape: Tape | None = None,
) -> ArrayOrScalar: ...

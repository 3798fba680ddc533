"""Beta function and its logarithm, with the names of SciPy.

For a large operand, the difference of two close logarithms of gamma functions is expanded
analytically (A. R. DiDonato and A. H. Morris, Algorithm 708, ACM TOMS 18, 1992).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import finfo
from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.spec import Spec
from odyssey.special.error_functions import saturate
from odyssey.special.gamma_function import gamma_scalar, gammaln_scalar, stirling_correction
from odyssey.special.polygamma_functions import digamma
from odyssey.table.declare import op, publish
from odyssey.table.samples import NO_BROADCAST, PAIRS, reject, sample
from odyssey.table.shape_rules import floating_dtype


def _betaln_scalar(a: Any, b: Any) -> Any:
    p, q = select(a < b, a, b), select(a < b, b, a)
    direct = gammaln_scalar(a) + gammaln_scalar(b) - gammaln_scalar(a + b)
    # Below, at least one operand is large enough for Stirling's formula.
    large = select(q < T(2.5), T(2.5), q)
    ratio = p / large
    rest = stirling_correction(large) - stirling_correction(p + large)
    step = math.log1p(ratio)
    one = gammaln_scalar(p) - (large + p - T(0.5)) * step - p * (math.log(large) - T(1))
    middle = (p - T(0.5)) * math.log(ratio / (T(1) + ratio)) - large * step
    both = (
        T(0.5 * math.log(2 * math.pi)) - T(0.5) * math.log(large) + middle + stirling_correction(p)
    )
    asymptotic = select(p < T(2.5), one, both) + rest
    asymptotic = select(q > T(T.max), T(-math.inf), asymptotic)
    value = select(q < T(2.5), direct, asymptotic)
    value = select(p == T(0), select(q > T(T.max), T(math.nan), T(math.inf)), value)
    return select((a >= T(0)) & (b >= T(0)), value, T(math.nan))


def _beta_scalar(a: Any, b: Any) -> Any:
    """Product formula after reducing the smaller operand below 2.5; otherwise ``exp(betaln)``.

    The product avoids the exponential, which would magnify the rounding of the logarithm.
    """
    p, q = select(a < b, a, b), select(a < b, b, a)
    steps, reduced = T(1), p
    for _ in range(6):
        big = (p < T(8.5)) & (reduced >= T(2.5))
        below = reduced - T(1)
        steps = steps * select(big, below / (below + q), T(1))
        reduced = select(big, below, reduced)
    near = gamma_scalar(q) / gamma_scalar(reduced + q) * gamma_scalar(reduced)
    large = select(q < T(2.5), T(2.5), select(q > T(T.max), T(T.max), q))
    exponent = reduced - (large + reduced - T(0.5)) * math.log1p(reduced / large)
    exponent = exponent + (stirling_correction(large) - stirling_correction(reduced + large))
    far = gamma_scalar(reduced) * math.pow(large, -reduced) * math.exp(exponent)
    value = steps * select(q < T(2.5), near, far)
    value = select(q < T(1e-30), T(1) / p + T(1) / q, value)
    value = select(p < T(8.5), value, math.exp(_betaln_scalar(a, b)))
    limit = select(p == T(0), T(math.nan), T(0))
    value = select(q > T(T.max), limit, value)
    return select((a >= T(0)) & (b >= T(0)), value, T(math.nan))


def _betaln_derivative(a: Any, b: Any, a_spec: Spec) -> Any:
    """Derivative of ``betaln`` in a; 0 for infinite a."""
    stopped = saturate(a, float(finfo(floating_dtype(a_spec.dtype)).max))
    return sub(digamma(stopped), digamma(add(stopped, b)))


_PAIRS = [sample(*s.operands, low=0.3, high=5.0) for s in PAIRS]
_REJECTS = [NO_BROADCAST, reject(np.array([1j]), 1.0, error=DTypeError, match="needs real numbers")]
_KINKS = "a difference of digammas, exact to their rounding; also where the result is NaN"


@op(
    elementwise=True,
    scalar=_betaln_scalar,
    vjp={
        "a": lambda g, a, b, a_spec: mul(g, _betaln_derivative(a, b, a_spec)),
        "b": lambda g, a, b, b_spec: mul(g, _betaln_derivative(b, a, b_spec)),
    },
    kinks=_KINKS,
    samples=_PAIRS,
    rejects=_REJECTS,
)
def betaln(a: Any, b: Any, /) -> Any:
    """Elementwise logarithm of the beta function, also for operands far apart; NaN below 0."""
    return on_arrays(_betaln_scalar, a, b)


@op(
    elementwise=True,
    scalar=_beta_scalar,
    vjp={
        "a": lambda g, a, b, out, a_spec: mul(g, mul(out, _betaln_derivative(a, b, a_spec))),
        "b": lambda g, a, b, out, b_spec: mul(g, mul(out, _betaln_derivative(b, a, b_spec))),
    },
    kinks=_KINKS,
    samples=_PAIRS,
    rejects=_REJECTS,
)
def beta(a: Any, b: Any, /) -> Any:
    """Elementwise beta function, ``gamma(a) * gamma(b) / gamma(a + b)``; NaN below 0."""
    return on_arrays(_beta_scalar, a, b)


publish(globals())

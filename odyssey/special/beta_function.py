"""The beta function and its logarithm; names are those of SciPy.

Where an operand is large, two logarithms of gamma functions that are close together are subtracted
on paper (A. R. DiDonato and A. H. Morris, Algorithm 708, ACM TOMS 18, 1992).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.spec import Spec
from odyssey.special.error_functions import within
from odyssey.special.gamma_function import gamma_scalar, gammaln_scalar, stirling_rest
from odyssey.special.polygamma_functions import digamma
from odyssey.table.declare import op, publish
from odyssey.table.samples import NO_BROADCAST, PAIRS, reject, sample
from odyssey.table.shape_rules import floating_dtype


def _betaln_scalar(a: Any, b: Any) -> Any:
    less, more = select(a < b, a, b), select(a < b, b, a)
    direct = gammaln_scalar(a) + gammaln_scalar(b) - gammaln_scalar(a + b)
    # From here on one of them, at least, is so large that Stirling's formula holds.
    large = select(more < T(2.5), T(2.5), more)
    ratio = less / large
    rest = stirling_rest(large) - stirling_rest(less + large)
    step = math.log1p(ratio)
    one = gammaln_scalar(less) - (large + less - T(0.5)) * step - less * (math.log(large) - T(1))
    middle = (less - T(0.5)) * math.log(ratio / (T(1) + ratio)) - large * step
    both = T(0.5 * math.log(2 * math.pi)) - T(0.5) * math.log(large) + middle + stirling_rest(less)
    apart = select(less < T(2.5), one, both) + rest
    apart = select(more > T(T.max), T(-math.inf), apart)
    found = select(more < T(2.5), direct, apart)
    found = select(less == T(0), select(more > T(T.max), T(math.nan), T(math.inf)), found)
    return select((a >= T(0)) & (b >= T(0)), found, T(math.nan))


def _beta_scalar(a: Any, b: Any) -> Any:
    """A product, with the smaller operand below 2.5, as far as a few steps go; then e**betaln.

    So the logarithm, whose rounding an exponential magnifies, is not needed where it is small.
    """
    less, more = select(a < b, a, b), select(a < b, b, a)
    steps, p = T(1), less
    for _ in range(6):
        big = (less < T(8.5)) & (p >= T(2.5))
        below = p - T(1)
        steps = steps * select(big, below / (below + more), T(1))
        p = select(big, below, p)
    near = gamma_scalar(more) / gamma_scalar(p + more) * gamma_scalar(p)
    large = select(more < T(2.5), T(2.5), select(more > T(T.max), T(T.max), more))
    fall = p - (large + p - T(0.5)) * math.log1p(p / large)
    fall = fall + (stirling_rest(large) - stirling_rest(p + large))
    far = gamma_scalar(p) * math.pow(large, -p) * math.exp(fall)
    found = steps * select(more < T(2.5), near, far)
    found = select(more < T(1e-30), T(1) / less + T(1) / more, found)
    found = select(less < T(8.5), found, math.exp(_betaln_scalar(a, b)))
    beyond = select(less == T(0), T(math.nan), T(0))
    found = select(more > T(T.max), beyond, found)
    return select((a >= T(0)) & (b >= T(0)), found, T(math.nan))


def _slope(a: Any, b: Any, a_spec: Spec) -> Any:
    """The slope of the logarithm in a; where a is infinite, it is 0 and not a difference."""
    stopped = within(a, float(np.finfo(floating_dtype(a_spec.dtype)).max))
    return sub(digamma(stopped), digamma(add(stopped, b)))


_PAIRS = [sample(*s.operands, low=0.3, high=5.0) for s in PAIRS]
_REJECTS = [NO_BROADCAST, reject(np.array([1j]), 1.0, error=DTypeError, match="needs real numbers")]
_POSITIVE = "a difference of digammas, exact to their rounding; also where the result is NaN"


@op(
    elementwise=True,
    scalar=_betaln_scalar,
    vjp={
        "a": lambda g, a, b, a_spec: mul(g, _slope(a, b, a_spec)),
        "b": lambda g, a, b, b_spec: mul(g, _slope(b, a, b_spec)),
    },
    kinks=_POSITIVE,
    samples=_PAIRS,
    rejects=_REJECTS,
)
def betaln(a: Any, b: Any, /) -> Any:
    """Elementwise logarithm of the beta function, also of numbers far apart; NaN below 0."""
    return on_arrays(_betaln_scalar, a, b)


@op(
    elementwise=True,
    scalar=_beta_scalar,
    vjp={
        "a": lambda g, a, b, out, a_spec: mul(g, mul(out, _slope(a, b, a_spec))),
        "b": lambda g, a, b, out, b_spec: mul(g, mul(out, _slope(b, a, b_spec))),
    },
    kinks=_POSITIVE,
    samples=_PAIRS,
    rejects=_REJECTS,
)
def beta(a: Any, b: Any, /) -> Any:
    """Elementwise beta function, ``gamma(a) * gamma(b) / gamma(a + b)``; NaN below 0."""
    return on_arrays(_beta_scalar, a, b)


publish(globals())

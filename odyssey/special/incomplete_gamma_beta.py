"""Incomplete gamma and beta functions, computed by SciPy, with its names and signatures.

They need the extra ``odyssey[special]``, which is loaded at the first call: no short scalar formula
is known that is accurate for all operands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.devices.half_dtypes import finfo
from odyssey.errors import DTypeError
from odyssey.ops.elementwise.arithmetic import mul, neg, sub
from odyssey.ops.elementwise.elementary import exp
from odyssey.spec import Spec
from odyssey.special.beta_function import betaln
from odyssey.special.entropy_terms import xlog1py, xlogy
from odyssey.special.error_functions import saturate
from odyssey.special.gamma_function import gammaln
from odyssey.special.scipy_ufuncs import by_scipy
from odyssey.table.declare import op, publish
from odyssey.table.samples import NO_BROADCAST, PAIRS, reject, sample
from odyssey.table.shape_rules import floating_dtype


def _gamma_density(a: Any, x: Any, x_spec: Spec) -> Any:
    """Density of the gamma distribution, the derivative of ``gammainc`` in x; 0 at infinity."""
    stopped = saturate(x, float(finfo(floating_dtype(x_spec.dtype)).max))
    return exp(sub(sub(xlogy(sub(a, 1), stopped), stopped), gammaln(a)))


_NO_RULE = "none in {}, which has no rule; at x = 0 the second in x may be NaN"
_PAIRS = [sample(*s.operands, low=0.5, high=4.0) for s in PAIRS]
_COMPLEX = reject(1.0, np.array([1j]), error=DTypeError, match="needs real numbers")


@op(
    elementwise=True,
    primitive="call",
    vjp={"a": None, "x": lambda g, a, x, x_spec: mul(g, _gamma_density(a, x, x_spec))},
    kinks=_NO_RULE.format("a"),
    samples=_PAIRS,
    rejects=[NO_BROADCAST, _COMPLEX],
)
def gammainc(a: Any, x: Any, /) -> Any:
    """Elementwise regularized lower incomplete gamma function, CDF of the gamma distribution.

    The integral of ``t**(a - 1) * e**-t`` from 0 to x over ``gamma(a)`` (DLMF 8.2.4), for a > 0 and
    x >= 0, by SciPy. The derivative in ``a`` is not implemented: NotDifferentiableError.
    """
    return by_scipy("gammainc", a, x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"a": None, "x": lambda g, a, x, x_spec: neg(mul(g, _gamma_density(a, x, x_spec)))},
    kinks=_NO_RULE.format("a"),
    samples=_PAIRS,
    rejects=[NO_BROADCAST, _COMPLEX],
)
def gammaincc(a: Any, x: Any, /) -> Any:
    """Elementwise regularized upper incomplete gamma function, ``1 - gammainc(a, x)``.

    Computed by SciPy without cancellation; see ``gammainc``.
    """
    return by_scipy("gammaincc", a, x)


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    """Density of the beta distribution, the derivative of ``betainc`` in x."""
    log_powers = sub(xlogy(sub(a, 1), x), xlog1py(sub(1, b), neg(x)))
    return exp(sub(log_powers, betaln(a, b)))


@op(
    elementwise=True,
    primitive="call",
    vjp={"a": None, "b": None, "x": lambda g, a, b, x: mul(g, _beta_density(a, b, x))},
    kinks=_NO_RULE.format("a and b"),
    samples=[
        sample((2, 3), (2, 3), (2, 3), low=0.2, high=0.9),
        sample((3,), (2, 1), (3,), low=0.1, high=0.9),
        sample((), (), (), low=0.3, high=0.7),
        sample((), (2,), (0, 2)),
    ],
    rejects=[
        reject((2,), (2,), (3,), match="do not broadcast"),
        reject(1.0, 1.0, np.array([1j]), error=DTypeError, match="needs real numbers"),
    ],
)
def betainc(a: Any, b: Any, x: Any, /) -> Any:
    """Elementwise regularized incomplete beta function, the CDF of the beta distribution.

    The integral of ``t**(a - 1) * (1 - t)**(b - 1)`` from 0 to x over ``beta(a, b)`` (DLMF 8.17.2),
    for positive a and b and x from 0 to 1, by SciPy. Derivatives in ``a`` and ``b`` are not
    implemented: NotDifferentiableError.
    """
    return by_scipy("betainc", a, b, x)


publish(globals())

"""The incomplete gamma and beta functions, which SciPy computes; names and signatures are its own.

They need the extra ``odyssey[special]``, which they load at their first call: no short program of
numbers is known that gives their values at every size.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.ops.elementwise.arithmetic import mul, neg, sub
from odyssey.ops.elementwise.elementary import exp
from odyssey.spec import Spec
from odyssey.special.beta_function import betaln
from odyssey.special.entropy_terms import xlog1py, xlogy
from odyssey.special.error_functions import within
from odyssey.special.gamma_function import gammaln
from odyssey.special.scipy_ufuncs import by_scipy
from odyssey.table.declare import op, publish
from odyssey.table.samples import NO_BROADCAST, PAIRS, reject, sample
from odyssey.table.shape_rules import floating_dtype


def _density(a: Any, x: Any, x_spec: Spec) -> Any:
    """The slope of the lower part in x; at infinity, where a difference would be NaN, 0."""
    stopped = within(x, float(np.finfo(floating_dtype(x_spec.dtype)).max))
    return exp(sub(sub(xlogy(sub(a, 1), stopped), stopped), gammaln(a)))


_NONE = "none in {}, which has no rule; at x = 0 the second in x may be NaN"
_PAIRS = [sample(*s.operands, low=0.5, high=4.0) for s in PAIRS]
_COMPLEX = reject(1.0, np.array([1j]), error=DTypeError, match="needs real numbers")


@op(
    elementwise=True,
    primitive="call",
    vjp={"a": None, "x": lambda g, a, x, x_spec: mul(g, _density(a, x, x_spec))},
    kinks=_NONE.format("a"),
    samples=_PAIRS,
    rejects=[NO_BROADCAST, _COMPLEX],
)
def gammainc(a: Any, x: Any, /) -> Any:
    """Elementwise regularized lower incomplete gamma function, the gamma distribution's chance.

    The integral of ``t**(a - 1) * e**-t`` from 0 to x over ``gamma(a)`` (DLMF 8.2.4), for a > 0 and
    x >= 0, by SciPy. In ``a`` it has no derivative here: asking raises NotDifferentiableError.
    """
    return by_scipy("gammainc", a, x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"a": None, "x": lambda g, a, x, x_spec: neg(mul(g, _density(a, x, x_spec)))},
    kinks=_NONE.format("a"),
    samples=_PAIRS,
    rejects=[NO_BROADCAST, _COMPLEX],
)
def gammaincc(a: Any, x: Any, /) -> Any:
    """Elementwise regularized upper incomplete gamma function, ``1 - gammainc(a, x)``.

    Without cancellation, by SciPy; see ``gammainc``.
    """
    return by_scipy("gammaincc", a, x)


def _beta_density(a: Any, b: Any, x: Any) -> Any:
    return exp(sub(_log_powers(a, b, x), betaln(a, b)))


def _log_powers(a: Any, b: Any, x: Any) -> Any:
    return sub(xlogy(sub(a, 1), x), xlog1py(sub(1, b), neg(x)))


@op(
    elementwise=True,
    primitive="call",
    vjp={"a": None, "b": None, "x": lambda g, a, b, x: mul(g, _beta_density(a, b, x))},
    kinks=_NONE.format("a and b"),
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
    """Elementwise regularized incomplete beta function, the beta distribution's chance.

    The integral of ``t**(a - 1) * (1 - t)**(b - 1)`` from 0 to x over ``beta(a, b)`` (DLMF 8.17.2),
    for positive a and b and x from 0 to 1, by SciPy. In ``a`` and ``b`` it has no derivative here:
    asking raises NotDifferentiableError.
    """
    return by_scipy("betainc", a, b, x)


publish(globals())

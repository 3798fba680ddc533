"""Bessel functions of orders 0 and 1, with the names and signatures of SciPy.

J, Y and K are computed by SciPy: they need the extra ``odyssey[special]``, which is loaded at their
first call. Their derivatives follow from the recurrences (DLMF 10.6.2, 10.6.3, 10.29.2, 10.29.3).
The modified functions of the first kind, I, are computed here. Near 0, where the derivative of J_1
by its recurrence has a quotient by x whose own derivatives cancel, it is written with the quotients
``J_n(x) / x**n``, as below for I.

The quotients ``I_n(x) / x**n`` (DLMF 10.25.2) are even, smooth and positive, and the derivative of
each is x times the next (DLMF 10.29.4), so no derivative cancels or divides by 0 at 0. For small x
they are computed by their series (DLMF 10.25.2), for large x by the recurrence (DLMF 10.29.1) from
orders 0 and 1. The coefficients below interpolate ``sqrt(x) e**-x I_n(x)`` for these orders as
polynomials of 8 / x for x >= 8, computed with 60 digits, to 4.8e-18.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_flag
from odyssey.devices.half_dtypes import finfo
from odyssey.errors import DTypeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import add, div, mul, neg, sub
from odyssey.ops.elementwise.choice import less, where
from odyssey.ops.elementwise.complex_numbers import absolute, sign
from odyssey.spec import Spec
from odyssey.special.error_functions import saturate
from odyssey.special.scalar_formulas import NO_COMPLEX, order_option, polynomial
from odyssey.special.scipy_ufuncs import by_scipy
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample, singles
from odyssey.table.shape_rules import floating_dtype

_I0_ASYMPTOTIC = [
    *(2.0820835852793106e-11, -5.905024573995148e-11, -1.5066113686101474e-10),
    *(4.4789181847911815e-10, 5.122212147228388e-10, -1.5930354799216344e-09),
    *(-1.1448789558755036e-09, 3.5985362919394714e-09, 2.1053080134403423e-09),
    *(-5.91556056510856e-09, -3.905230623712341e-09, 7.406235049001522e-09),
    *(7.737147033780934e-09, -5.394456734259438e-09, -1.346629294837396e-08),
    *(-6.750552282740284e-09, 7.566352487698237e-09, 2.15488936175863e-08, 3.932437699533459e-08),
    *(8.872214307451732e-08, 2.9735996224521226e-07, 1.4838475687894938e-06),
    *(1.1143033787545386e-05, 0.00013621607439186705, 0.0033605519836678944, 0.4021765094450081),
]
_I1_ASYMPTOTIC = [
    *(-1.9677083272584384e-11, 6.135932778393812e-11, 1.417650842869536e-10),
    *(-4.6561597954216946e-10, -4.798751536934023e-10, 1.657764699456319e-09),
    *(1.0715528639398075e-09, -3.75344338735913e-09, -1.992076551203188e-09),
    *(6.202984113000443e-09, 3.803814960536081e-09, -7.863004697555056e-09),
    *(-7.816968266767898e-09, 5.963645798166707e-09, 1.408852075202545e-08),
    *(6.737493433374833e-09, -8.43880090582137e-09, -2.337446787242448e-08),
    *(-4.312778920167609e-08, -1.0001282610189342e-07, -3.4838567401229716e-07),
    *(-1.8349101357991557e-06, -1.5038547197358572e-05, -0.00021923576383382282),
    *(-0.009749577193235768, 0.38939845902587233),
]
# For higher orders the recurrence loses too many digits.
_MAX_ORDER = 10


def _bessel_series(y: Any, order: int, border: float, sign: float = 1.0) -> Any:
    """Power series of ``I_n(y) / y**n`` for ``y <= border``, summed from the smallest term.

    With ``sign`` -1 it is that of ``J_n(y) / y**n``.
    """
    square = 0.25 * border * border
    terms, size = 1, 1.0
    while size > 1e-18:  # relative to the first term; the sum is larger
        size *= square / (terms * (terms + order))
        terms += 1
    quarter = T(sign * 0.25) * y * y
    total = T(1)
    for k in range(terms - 1, 0, -1):
        total = T(1) + quarter * total / T(k * (k + order))
    return total / T(2.0**order * math.factorial(order))


def _bessel_asymptotic(y: Any, order: int) -> Any:
    """Return ``sqrt(y) e**-y I_n(y)`` for ``y >= 8``."""
    v = T(16) / y - T(1)
    before, now = polynomial(v, _I0_ASYMPTOTIC), polynomial(v, _I1_ASYMPTOTIC)
    for k in range(1, order):
        before, now = now, before - T(2 * k) / y * now
    return now if order else before


def _modified_bessel(x: Any, order: int, scaled: bool, quotient: bool) -> Any:
    """Return ``I_n(y)`` for ``y = abs(x)``, optionally over ``y**n`` and times ``e**-y``."""
    y = abs(x)
    border = 8.0 + 2 * order
    near = _bessel_series(select(y < T(border), y, T(0)), order, border)
    if not quotient:
        for _ in range(order):
            near = near * y
    near = near * math.exp(-y) if scaled else near
    # Above 800 the result is infinite; e**y is split in two factors that do not overflow.
    far = select(y < T(border), T(border), y)
    far = far if scaled else select(far > T(800), T(800), far)
    size = _bessel_asymptotic(far, order) / math.sqrt(far)
    if quotient:
        for _ in range(order):
            size = size / far
    power = math.exp(T(0.5) * far)
    return select(y < T(border), near, size if scaled else power * size * power)


def _bessel_quotient_options(order: Any, scaled: Any) -> tuple[int, bool]:
    n = order_option("bessel_quotient", order, 0, _MAX_ORDER)
    return n, check_flag("bessel_quotient", "scaled", scaled)


def _i0_scalar(x: Any) -> Any:
    return _modified_bessel(x, 0, False, False)


def _i0e_scalar(x: Any) -> Any:
    return _modified_bessel(x, 0, True, False)


def _i1_scalar(x: Any) -> Any:
    return math.copysign(_modified_bessel(x, 1, False, False), x)


def _i1e_scalar(x: Any) -> Any:
    return math.copysign(_modified_bessel(x, 1, True, False), x)


def _bessel_quotient_scalar(x: Any, order: int, scaled: bool) -> Any:
    return _modified_bessel(x, order, scaled, True)


def _finite_factor(x: Any, x_spec: Spec) -> Any:
    """Clip x to finite numbers, as the factor of a function that is 0 at infinity."""
    return saturate(x, float(finfo(floating_dtype(x_spec.dtype)).max))


def _bessel_quotient_vjp(g: Any, x: Any, x_spec: Spec, out: Any, order: int, scaled: bool) -> Any:
    rise = bessel_quotient(x, order=order + 1, scaled=scaled)
    if not scaled:
        return mul(g, mul(x, rise))
    return mul(g, sub(mul(_finite_factor(x, x_spec), rise), mul(sign(x), out)))


def _i1_derivative(x: Any, scaled: bool) -> Any:
    """Derivative of ``I_1``; if ``scaled``, times ``e**-abs(x)``."""
    bent = mul(x, mul(x, bessel_quotient(x, order=2, scaled=scaled)))
    return add(bessel_quotient(x, order=1, scaled=scaled), bent)


def _i1e_vjp(g: Any, x: Any, out: Any) -> Any:
    near = less(absolute(x), 1)
    close, far = where(near, x, 0.0), where(near, 1.0, x)
    # For large x, x**2 may be infinite and its factor 0.
    beyond = sub(i0e(far), div(i1e(far), far))
    slope = where(near, _i1_derivative(close, True), beyond)
    return mul(g, sub(slope, mul(sign(x), out)))


_SAMPLES = (*singles(), sample((5,), low=6.0, high=12.0))
_KINK = "at 0, where it has a corner, the derivative of the function without e**-abs(x)"


@op(
    elementwise=True,
    scalar=_i0_scalar,
    vjp={"x": lambda g, x: mul(g, i1(x))},
    samples=_SAMPLES,
    rejects=[NO_COMPLEX],
)
def i0(x: Any, /) -> Any:
    """Elementwise modified Bessel function of the first kind of order 0."""
    return on_arrays(_i0_scalar, x)


@op(
    elementwise=True,
    scalar=_i1_scalar,
    vjp={"x": lambda g, x: mul(g, _i1_derivative(x, False))},
    samples=_SAMPLES,
    rejects=[NO_COMPLEX],
)
def i1(x: Any, /) -> Any:
    """Elementwise modified Bessel function of the first kind of order 1."""
    return on_arrays(_i1_scalar, x)


@op(
    elementwise=True,
    scalar=_i0e_scalar,
    vjp={"x": lambda g, x, out: mul(g, sub(i1e(x), mul(sign(x), out)))},
    kinks=_KINK,
    samples=_SAMPLES,
    rejects=[NO_COMPLEX],
)
def i0e(x: Any, /) -> Any:
    """Elementwise ``e**-abs(x)`` times the modified Bessel function of order 0."""
    return on_arrays(_i0e_scalar, x)


@op(
    elementwise=True,
    scalar=_i1e_scalar,
    vjp={"x": _i1e_vjp},
    kinks=_KINK,
    samples=_SAMPLES,
    rejects=[NO_COMPLEX],
)
def i1e(x: Any, /) -> Any:
    """Elementwise ``e**-abs(x)`` times the modified Bessel function of order 1."""
    return on_arrays(_i1e_scalar, x)


@op(
    elementwise=True,
    prepare=_bessel_quotient_options,
    scalar=_bessel_quotient_scalar,
    vjp={"x": _bessel_quotient_vjp},
    kinks=f"scaled: {_KINK}",
    samples=[
        *singles(order=1),
        sample((5,), low=9.0, high=14.0, order=2),
        sample((3,), order=0, scaled=True),
        sample((3,), low=9.0, high=20.0, order=3, scaled=True),
    ],
    rejects=[
        reject((3,), order=-1, error=DTypeError, match="from 0 to 10"),
        reject((3,), order=11, error=DTypeError, match="from 0 to 10"),
        reject((3,), order=0.5, error=DTypeError, match="pass an int"),
        reject((3,), order=1, scaled="no", error=DTypeError, match="scaled"),
        reject(np.array([1j]), order=1, error=DTypeError, match="needs real numbers"),
    ],
)
def bessel_quotient(x: Any, /, *, order: int, scaled: bool = False) -> Any:
    """Elementwise ``I_order(x) / x**order``; if ``scaled``, times ``e**-abs(x)``."""
    return on_arrays(_bessel_quotient_scalar, x, options=(order, scaled))


# ------------------------------------------------------------------ computed by SciPy

_AROUND = singles(low=-9.0, high=9.0)
_ABOVE = singles(low=0.5, high=6.0)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: neg(mul(g, j1(x)))},
    samples=_AROUND,
    rejects=[NO_COMPLEX],
)
def j0(x: Any, /) -> Any:
    """Elementwise Bessel function of the first kind of order 0."""
    return by_scipy("j0", x)


def _bessel_j_quotient_scalar(x: Any, order: int) -> Any:
    return _bessel_series(select(abs(x) <= T(1), x, T(0)), order, 1.0, -1.0)


@ignore_fp_errors("over")
def _bessel_j_quotient(x: Any, order: int) -> Any:
    out = np.asarray(on_arrays(_bessel_j_quotient_scalar, x, options=(order,)))
    y = np.asarray(x, np.float64)
    far = ~(np.abs(y) <= 1)
    if np.any(far):
        out[far] = by_scipy("jv", order, y[far]) / y[far] ** order
    return out if out.ndim else out[()]


def _j1_derivative(x: Any) -> Any:
    """Derivative of ``J_1``: ``J_0(x) - J_1(x) / x``, near 0 by quotients."""
    near = less(absolute(x), 1)
    close, far = where(near, x, 0.0), where(near, 1.0, x)
    bent = mul(close, mul(close, bessel_j_quotient(close, order=2)))
    slope = sub(bessel_j_quotient(close, order=1), bent)
    return where(near, slope, sub(j0(far), div(j1(far), far)))


@op(
    elementwise=True,
    primitive="call",
    prepare=lambda order: (order_option("bessel_j_quotient", order, 0, _MAX_ORDER),),
    kernel=_bessel_j_quotient,
    vjp={"x": lambda g, x, order: neg(mul(g, mul(x, bessel_j_quotient(x, order=order + 1))))},
    samples=[*singles(order=1), sample((5,), low=0.5, high=9.0, order=2), sample((3,), order=0)],
    rejects=[
        reject((3,), order=-1, error=DTypeError, match="from 0 to 10"),
        reject((3,), order=0.5, error=DTypeError, match="pass an int"),
        reject(np.array([1j]), order=1, error=DTypeError, match="needs real numbers"),
    ],
)
def bessel_j_quotient(x: Any, /, *, order: int) -> Any:
    """Elementwise ``J_order(x) / x**order``, of the Bessel functions of the first kind."""
    return _bessel_j_quotient(x, order)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: mul(g, _j1_derivative(x))},
    samples=_AROUND,
    rejects=[NO_COMPLEX],
)
def j1(x: Any, /) -> Any:
    """Elementwise Bessel function of the first kind of order 1."""
    return by_scipy("j1", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: neg(mul(g, y1(x)))},
    samples=_ABOVE,
    rejects=[NO_COMPLEX],
)
def y0(x: Any, /) -> Any:
    """Elementwise Bessel function of the second kind of order 0, for positive numbers."""
    return by_scipy("y0", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: mul(g, sub(y0(x), div(y1(x), x)))},
    samples=_ABOVE,
    rejects=[NO_COMPLEX],
)
def y1(x: Any, /) -> Any:
    """Elementwise Bessel function of the second kind of order 1, for positive numbers."""
    return by_scipy("y1", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: neg(mul(g, k1(x)))},
    samples=_ABOVE,
    rejects=[NO_COMPLEX],
)
def k0(x: Any, /) -> Any:
    """Elementwise modified Bessel function of the second kind of order 0, for positive numbers."""
    return by_scipy("k0", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x: neg(mul(g, add(k0(x), div(k1(x), x))))},
    samples=_ABOVE,
    rejects=[NO_COMPLEX],
)
def k1(x: Any, /) -> Any:
    """Elementwise modified Bessel function of the second kind of order 1, for positive numbers."""
    return by_scipy("k1", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x, out: mul(g, sub(out, k1e(x)))},
    samples=_ABOVE,
    rejects=[NO_COMPLEX],
)
def k0e(x: Any, /) -> Any:
    """Elementwise ``e**x`` times the modified Bessel function ``k0``, for positive numbers."""
    return by_scipy("k0e", x)


@op(
    elementwise=True,
    primitive="call",
    vjp={"x": lambda g, x, out: mul(g, sub(sub(out, k0e(x)), div(out, x)))},
    samples=_ABOVE,
    rejects=[NO_COMPLEX],
)
def k1e(x: Any, /) -> Any:
    """Elementwise ``e**x`` times the modified Bessel function ``k1``, for positive numbers."""
    return by_scipy("k1e", x)


publish(globals())

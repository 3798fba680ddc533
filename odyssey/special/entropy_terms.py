"""Entropy and divergence terms, and logit, with the names of SciPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.kernels import T, select
from odyssey.kernels.on_arrays import on_arrays
from odyssey.ops.elementwise.arithmetic import add, div, mul, neg, sub
from odyssey.ops.elementwise.elementary import cast_to_cotangent, log, log1p, reciprocal
from odyssey.ops.reductions.variance import over_length
from odyssey.special.scalar_formulas import NO_COMPLEX
from odyssey.table.declare import op, publish
from odyssey.table.real_operands import promoted, real_dtype, real_floating
from odyssey.table.samples import NO_BROADCAST, PAIRS, sample, singles
from odyssey.table.value import NUMBERS


@op(
    elementwise=True,
    scalar=lambda x: select(
        abs(x - T(0.5)) < T(0.2), T(2) * math.atanh(T(2) * x - T(1)), math.log(x / (T(1) - x))
    ),
    decomposition=lambda x: log(div(x, sub(1, x))),
    # A sum, so that the second derivative has no 0 * inf at 0 and 1.
    vjp={"x": lambda g, x: mul(g, add(reciprocal(x), reciprocal(sub(1, x))))},
    kinks="inf at 0 and 1, -inf at -0.0; outside, where the result is NaN, still this formula",
    samples=singles(low=0.1, high=0.9),
    rejects=[NO_COMPLEX],
)
def logit(x: Any, /) -> Any:
    """Elementwise logit, ``log(x / (1 - x))``, the inverse of sigmoid."""
    x = real_floating(x)
    middle = np.abs(x - 0.5) < 0.2  # where the quotient is close to 1
    out = np.log(np.divide(x, 1 - x, where=~middle, out=np.ones_like(x)))
    return np.where(middle, 2 * np.arctanh(2 * np.where(middle, x, 0.5) - 1), out)[()]


@op(
    elementwise=True,
    decomposition=lambda x, y: mul(x, log(y)),
    scalar=lambda x, y: x * math.log(select((x == T(0)) & (y == y), T(1), y)),
    vjp={
        "x": lambda g, y: mul(g, log(cast_to_cotangent(y, g))),
        "y": lambda g, x, y: mul(g, over_length(x, y)),
    },
    kinks="at (0, 0) -inf in x and 0 in y, the second derivatives there infinite or NaN",
    samples=[sample(*s.operands, low=0.5) for s in PAIRS],
    rejects=[NO_BROADCAST],
    precision="wide",
)
def xlogy(x: Any, y: Any, /) -> Any:
    """Elementwise ``x * log(y)``, but 0 if ``x`` is 0 and ``y`` is not NaN."""
    x, y = promoted(x, y)
    nothing = np.equal(x, 0) & np.equal(y, y)
    # Python numbers take the precision of the other operand, and double if both are.
    weak = type(x) in NUMBERS and type(y) in NUMBERS
    dtype = np.result_type(x, y, np.float64 if weak else np.float16)
    safe = np.where(nothing, 1, y)
    wide = dtype if safe.dtype.kind == "c" else real_dtype(dtype)
    return np.multiply(x, np.log(safe.astype(wide)))


def _log1p_scalar(x: Any, y: Any) -> Any:
    return x * math.log1p(select((x == T(0)) & (y == y), T(0), y))


@op(
    elementwise=True,
    scalar=_log1p_scalar,
    decomposition=lambda x, y: mul(x, log1p(y)),
    vjp={
        "x": lambda g, y: mul(g, log1p(cast_to_cotangent(y, g))),
        "y": lambda g, x, y: mul(g, over_length(x, add(1, cast_to_cotangent(y, g)))),
    },
    kinks="at (0, -1) -inf in x and 0 in y, the second derivatives there infinite or NaN",
    samples=[sample(*s.operands, low=-0.5) for s in PAIRS],
    rejects=[NO_BROADCAST],
    precision="wide",
)
def xlog1py(x: Any, y: Any, /) -> Any:
    """Elementwise ``x * log(1 + y)``, but 0 if ``x`` is 0 and ``y`` is not NaN."""
    return on_arrays(_log1p_scalar, x, y)


def _entr_scalar(x: Any) -> Any:
    positive = -x * math.log(select(x > T(0), x, T(1)))
    return select(x == T(0), T(0), select(x < T(0), T(-math.inf), select(x == x, positive, x)))


@op(
    elementwise=True,
    scalar=_entr_scalar,
    decomposition=lambda x: neg(mul(x, log(x))),
    vjp={"x": lambda g, x: neg(mul(g, add(log(x), 1)))},
    kinks="inf at 0; below, where the result is -inf, NaN, and the second still -1 / x",
    samples=singles(low=0.1),
    rejects=[NO_COMPLEX],
    precision="wide",
)
def entr(x: Any, /) -> Any:
    """Elementwise entropy term ``-x * log(x)``: 0 at 0, -inf below."""
    return on_arrays(_entr_scalar, x)


def _log_quotient(x: Any, y: Any) -> Any:
    """Return log(x / y) without overflow, and whether x / y is close to 1."""
    quotient = x / y
    in_range = (quotient > T(0)) & (quotient <= T(T.max))
    logarithm = select(
        in_range, math.log(select(in_range, quotient, T(1))), math.log(x) - math.log(y)
    )
    return logarithm, (quotient > T(0.5)) & (quotient < T(2))


def _divergence_limits(x: Any, y: Any, inside: Any, at_zero: Any) -> Any:
    """Select ``inside`` in the domain, ``at_zero`` for x = 0, inf outside, and NaN for NaN."""
    out = select((x > T(0)) & (y > T(0)), inside, T(math.inf))
    out = select((x == T(0)) & (y >= T(0)), at_zero, out)
    return select((x == x) & (y == y), out, T(math.nan))


def _rel_entr_scalar(x: Any, y: Any) -> Any:
    far, close = _log_quotient(x, y)
    near = math.log1p(select(close, (x - y) / y, T(0)))
    return _divergence_limits(x, y, x * select(close, near, far), T(0))


def _kl_div_scalar(x: Any, y: Any) -> Any:
    far, close = _log_quotient(x, y)
    # log(x / y) = 2 artanh(s); the first term of its series, which would cancel, is kept apart.
    unit = select(x > T(1), T(0.5), T(1))  # avoids overflow of the sum
    s = (unit * x - unit * y) / (unit * x + unit * y)
    square, total = s * s, T(1 / 37)
    for k in range(35, 2, -2):
        total = total * square + T(1 / k)
    near = x * (T(2) * s * square * total) + (x - y) * s
    return _divergence_limits(x, y, select(close, near, x * far - x + y), y)


_OUTSIDE = "at (0, 0) NaN in x; where the result is inf or NaN still these formulas"


@op(
    elementwise=True,
    scalar=_rel_entr_scalar,
    decomposition=lambda x, y: mul(x, log(div(x, y))),
    vjp={
        "x": lambda g, x, y: mul(
            g, add(sub(log(cast_to_cotangent(x, g)), log(cast_to_cotangent(y, g))), 1)
        ),
        "y": lambda g, x, y: neg(mul(g, over_length(x, y))),
    },
    kinks=f"{_OUTSIDE}, and 0 in y",
    samples=[sample(*s.operands, low=0.2) for s in PAIRS],
    rejects=[NO_BROADCAST],
    precision="wide",
)
def rel_entr(x: Any, y: Any, /) -> Any:
    """Elementwise relative entropy term ``x * log(x / y)``: 0 at x = 0, inf below 0."""
    return on_arrays(_rel_entr_scalar, x, y)


@op(
    elementwise=True,
    scalar=_kl_div_scalar,
    decomposition=lambda x, y: add(sub(mul(x, log(div(x, y))), x), y),
    vjp={
        "x": lambda g, x, y: mul(
            g, sub(log(cast_to_cotangent(x, g)), log(cast_to_cotangent(y, g)))
        ),
        "y": lambda g, x, y: mul(g, sub(1, over_length(x, y))),
    },
    kinks=f"{_OUTSIDE}, and 1 in y",
    samples=[sample(*s.operands, low=0.2) for s in PAIRS],
    rejects=[NO_BROADCAST],
    precision="wide",
)
def kl_div(x: Any, y: Any, /) -> Any:
    """Elementwise divergence term ``x * log(x / y) - x + y``: y at x = 0, inf below 0."""
    return on_arrays(_kl_div_scalar, x, y)


publish(globals())

"""Error function and complementary error function.

The series are in ``kernels.error_functions``, which compiled loops use as well. Measured against 60
digits on the full range, the error is below 1.5 ulp for erf and 6 ulp for erfc, in float32 and in
float64.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.devices.device_versions import device_version
from odyssey.kernels.error_functions import ERRORS, K, Series
from odyssey.ops.elementwise.arithmetic import maximum, minimum, mul, neg, square
from odyssey.ops.elementwise.elementary import exp
from odyssey.spec import Array
from odyssey.special.scalar_formulas import NO_COMPLEX
from odyssey.special.scipy_ufuncs import by_scipy
from odyssey.table.declare import op, publish
from odyssey.table.kernel_selection import scalar_loop
from odyssey.table.real_operands import real_floating
from odyssey.table.samples import singles

_ERF_SLOPE = 2 / math.sqrt(math.pi)
# Elements per block, so that temporaries stay in the cache.
_BLOCK_SIZE = 16384


# Up to this many elements a loop over Python's math.erf is faster: 1.4 us for one number instead
# of 40. Its error is below 0.8 ulp for erf and 2.5 for erfc with glibc.
SCALAR_LOOP_SIZE = 512


def _polynomial_of_array(coefficients: list[float], z: Array) -> Array:
    total = coefficients[0] * z
    for coefficient in coefficients[1:-1]:
        total += coefficient
        total *= z
    total += coefficients[-1]
    return total


def _erfc_tail(x: Array, precision: Series) -> Array:
    """Return erfc(x) for x >= 1."""
    x = np.minimum(x, precision.end)
    # The square of the leading half of the digits is exact; exp would magnify rounding of x**2.
    head = x.astype(precision.half).astype(x.dtype)
    fall = np.exp(-head * head) * np.exp((head - x) * (head + x))
    return fall * (_polynomial_of_array(precision.far, (x - K) / (x + K)) / (1 + 2 * x))


def _erf_block(x: Array, complement: bool, precision: Series) -> Array:
    size = np.abs(x)
    is_near = size <= 1
    # Integer indices: boolean masks took four times as long as all the arithmetic.
    near, far = np.flatnonzero(is_near), np.flatnonzero(~is_near)
    out = np.empty_like(x)
    inner, outer = x.take(near), x.take(far)
    inner += inner * _polynomial_of_array(precision.near, inner * inner)
    tail = _erfc_tail(size.take(far), precision)
    if complement:
        out[near] = 1 - inner
        out[far] = np.where(outer < 0, 2 - tail, tail)
    else:
        out[near] = inner
        out[far] = np.copysign(1 - tail, outer)
    return out


def _error_function_on_device(x: Any, complement: bool) -> Array:
    x = real_floating(x)
    if x.size <= SCALAR_LOOP_SIZE and x.dtype.char in "efd":
        return by_scipy("erfc" if complement else "erf", x)
    return _error_function_by_series(x, complement)


@device_version(_error_function_on_device)
def error_function(x: Any, complement: bool) -> Array:
    """Return erf, or erfc if ``complement``, of an array of real numbers in its dtype."""
    x = real_floating(x)
    if x.size <= SCALAR_LOOP_SIZE and x.dtype.char in "efd":
        one = math.erfc if complement else math.erf
        few = np.fromiter(map(one, x.reshape(-1).tolist()), np.float64, x.size)
        few = few.astype(x.dtype, copy=False)
        few.resize(x.shape, refcheck=False)  # reshape would return a view
        return few if few.ndim else few[()]
    return _error_function_by_series(x, complement)


def _error_function_by_series(x: Array, complement: bool) -> Array:
    single = x.dtype.itemsize <= 4
    precision = ERRORS[np.float32] if single else ERRORS[np.float64]
    flat = x.reshape(-1).astype(np.float32 if single else np.float64, copy=False)
    out = np.empty(x.shape, x.dtype)
    flat_out = out.reshape(-1)
    for start in range(0, flat.size, _BLOCK_SIZE):
        part = slice(start, start + _BLOCK_SIZE)
        flat_out[part] = _erf_block(flat[part], complement, precision)
    return out if out.ndim else out[()]


def saturate(x: Any, end: float) -> Any:
    """Clip ``x`` to ``[-end, end]`` by ops; unlike ``clip`` the derivative at NaN is 0."""
    return minimum(maximum(x, -end), end)


def exp_minus_square(x: Any) -> Any:
    """Return ``e**-(x**2)`` by ops; clipped at 30, where it is 0, so that x**2 cannot overflow."""
    return exp(neg(square(saturate(x, 30.0))))


def _erf_scalar(x: Any) -> Any:
    return math.erf(x)


def _erfc_scalar(x: Any) -> Any:
    return math.erfc(x)


@op(
    elementwise=True,
    kernels=[scalar_loop(_erf_scalar)],
    scalar=_erf_scalar,
    vjp={"x": lambda g, x: mul(g, mul(_ERF_SLOPE, exp_minus_square(x)))},
    samples=[*singles(), *singles(low=0.9, high=4.0)],
    rejects=[NO_COMPLEX],
)
def erf(x: Any, /) -> Any:
    """Elementwise error function, ``2 / sqrt(pi)`` times the integral of ``e**-(t**2)`` to x."""
    return error_function(x, complement=False)


@op(
    elementwise=True,
    kernels=[scalar_loop(_erfc_scalar)],
    scalar=_erfc_scalar,
    vjp={"x": lambda g, x: mul(g, mul(-_ERF_SLOPE, exp_minus_square(x)))},
    samples=[*singles(), *singles(low=0.9, high=4.0)],
    rejects=[NO_COMPLEX],
)
def erfc(x: Any, /) -> Any:
    """Elementwise complementary error function, ``1 - erf(x)``, without cancellation."""
    return error_function(x, complement=True)


publish(globals())

"""Covariance and correlation matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_int, format_value
from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import is_floating
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.linalg.matrix_products import matmul
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import equal, greater, less, logical_not, where
from odyssey.ops.elementwise.clipping import clip
from odyssey.ops.elementwise.complex_numbers import conj, imag, real
from odyssey.ops.elementwise.elementary import sqrt
from odyssey.ops.elementwise.rounding import rint
from odyssey.ops.reductions.moments import average
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.diagonals import diag
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.runtime_assert import demanded
from odyssey.ops.structure.shape import astype, matrix_transpose, reshape, squeeze
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.value import Symbol, Value, array_of


def _covariance_operand(who: str, name: str, x: Any) -> Any:
    """Convert an array-like to an array; Variables and Symbols pass through."""
    return x if isinstance(x, (Value, Symbol)) else as_array(who, name, x)


_COVARIANCES = (
    sample((2, 4)),
    sample((4, 2), rowvar=False),
    sample((4,), (4,)),
    sample((2, 4), (1, 4), bias=True),
    sample((3,)),
)
_NO_COVARIANCE = (
    reject((2, 2, 2), match="two axes"),
    reject((2, 3), (2, 4), match="observations"),
)


def _observations(who: str, m: Any, rowvar: bool) -> Any:
    """Arrange variables in rows and observations in columns, in at least double precision."""
    if len(m.shape) > 2:
        raise ShapeError(f"{who}: {m.shape} came; an array has two axes at most")
    dtype = np.result_type(m.dtype, np.float64)
    m = m if m.dtype == dtype else astype(m, dtype)
    if len(m.shape) < 2:
        return reshape(m, (1, -1))
    return m if rowvar else matrix_transpose(m)


def _delta_degrees(bias: bool, ddof: int | None) -> int:
    """Return ``ddof``, or its default for ``bias``."""
    if ddof is None:
        return 0 if bias else 1
    return check_int("cov", "ddof", ddof)


def _check_weights(who: str, name: str, weights: Any, n: int) -> Any:
    """Return weights of ``n`` observations; raise unless they are real and not negative."""
    w = _covariance_operand(who, name, weights)
    if w.shape != (n,):
        raise ShapeError(f"{who}: {name} has shape {w.shape}; pass one for each, {n} of them")
    if w.dtype.kind == "c":
        raise DTypeError(f"{who}: {name} is of {w.dtype}; pass real numbers")
    concrete = array_of(w)
    if not isinstance(concrete, Symbol):
        if name == "fweights" and np.any(concrete != np.around(concrete)):
            raise DTypeError(
                f"{who}: fweights={format_value(concrete)} are not whole numbers; pass them as "
                "aweights"
            )
        if np.any(concrete < 0):
            raise SettingError(
                f"{who}: {name}={format_value(concrete)} has a number below 0; a weight is 0 or "
                "more"
            )
        return w
    nonnegative = logical_not(less(w, 0))  # NaN passes, as in NumPy
    w = demanded(w, nonnegative, f"{who}: {name} has a number below 0; a weight is 0 or more")
    if name == "fweights" and is_floating(w.dtype):
        message = f"{who}: fweights are counts, and not all are whole; pass them as aweights"
        w = demanded(w, equal(w, rint(w)), message)
    return w


@composite(
    numpy=[np.cov],
    samples=[
        *_COVARIANCES,
        sample((2, 4), ddof=2),
        sample((2, 4), fweights=np.array([1, 2, 1, 3])),
        sample((2, 4), fweights=np.array([1, 2, 1, 3]), aweights=np.array([0.5, 1.0, 2.0, 0.25])),
    ],
    rejects=[
        *_NO_COVARIANCE,
        reject((2, 3), aweights=np.ones(2), match="one for each"),
        reject((2, 3), aweights=np.array([1, -2, 1]), error=SettingError, match="below 0"),
        reject((2, 3), fweights=np.array([1, -2, 1]), error=SettingError, match="below 0"),
        reject((2, 3), fweights=np.array([1.0, 0.5, 1.0]), error=DTypeError, match="as aweights"),
    ],
)
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
) -> Any:
    """Covariance matrix of variables, estimated from observations.

    Args:
        m: Variables in rows and observations in columns, or one variable.
        y: Additional variables with equally many observations.
        rowvar: True if variables are rows, False if they are columns.
        bias: Divide by the number of observations ``n`` instead of ``n - 1``.
        ddof: Divide by ``n - ddof``; overrides ``bias``.
        fweights: Frequency weights: how often each observation is repeated, integers.
        aweights: Relative weight of each observation.

    Returns:
        A matrix with a row and a column for each variable, in at least double precision as in
        NumPy; the variance if there is only one variable.

    Raises:
        ShapeError: for more than two axes, or different numbers of observations.
        SettingError: for negative weights.
        DTypeError: for frequency weights that are not integers.

    >>> cov(np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 7.0]]))
    array([[1.        , 2.5       ],
           [2.5       , 6.33333333]])
    """
    x = _observations("cov", _covariance_operand("cov", "m", m), rowvar)
    if y is not None:
        more = _observations("cov", _covariance_operand("cov", "y", y), rowvar)
        if more.shape[1] != x.shape[1]:
            raise ShapeError(f"cov: {x.shape[1]} and {more.shape[1]} observations; pass as many")
        x = concatenate([x, more], axis=0)
    n = x.shape[1]
    degrees: Any = _delta_degrees(bias, ddof)
    w = None if fweights is None else _check_weights("cov", "fweights", fweights, n)
    if aweights is None:
        degrees = (n if w is None else sum(w)) - degrees
    else:
        a = _check_weights("cov", "aweights", aweights, n)
        w = a if w is None else mul(w, a)
        total = sum(w)
        mean_weight = div(sum(mul(w, a)), total)
        degrees = sub(total, mul(degrees, mean_weight))
    center = average(x, 1, w, keepdims=True)
    x = sub(x, center)
    return squeeze(_normalized_products(x, w, degrees))


@ignore_fp_errors("divide", "invalid")
def _normalized_products(x: Any, w: Any, degrees: Any) -> Any:
    """Return ``x @ (w * x)^H`` divided by the degrees of freedom."""
    adjoint = matrix_transpose(x if w is None else mul(x, w))
    if x.dtype.kind == "c":
        adjoint = conj(adjoint)
    products = matmul(x, adjoint)
    if isinstance(degrees, (Value, Symbol)):
        degrees = where(greater(degrees, 0), degrees, 0.0)
    elif degrees <= 0:  # no degrees of freedom
        degrees = 0.0
    return div(products, degrees)


@composite(
    numpy=[np.corrcoef],
    samples=_COVARIANCES[:3],
    rejects=[reject((2, 2, 2), match="two axes")],
)
def corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    """Correlation matrix (Pearson): covariances divided by both standard deviations.

    Args:
        x: Variables in rows and observations in columns, or one variable.
        y: Additional variables with equally many observations.
        rowvar: True if variables are rows, False if they are columns.

    Returns:
        A matrix with a row and a column for each variable; 1 if there is only one variable.

    Raises:
        ShapeError: for more than two axes, or different numbers of observations.

    >>> corrcoef(np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]]))
    array([[1., 1.],
           [1., 1.]])
    """
    c = cov(x, y, rowvar)
    if not c.shape:
        return div(c, c)
    deviations = sqrt(real(diag(c)))
    n = c.shape[0]
    c = div(c, reshape(deviations, (n, 1)))
    c = div(c, reshape(deviations, (1, n)))
    # Rounding may exceed 1.
    if c.dtype.kind != "c":
        return clip(c, -1, 1)
    re, im = (clip(component(c), -1, 1) for component in (real, imag))
    return add(re, mul(im, 1j))


publish(globals())

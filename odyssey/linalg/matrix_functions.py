"""Matrix exponential and matrix square root.

The upper right block of ``f([[a, t], [0, a]])`` is the derivative of ``f`` at ``a`` along ``t``
(N. J. Higham, Functions of Matrices, SIAM 2008, theorem 3.6). So derivatives of any order are the
ops themselves on matrices twice as large, and need no eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.linalg import lapack
from odyssey.linalg.matrix_shapes import NOT_SQUARE, check_square, positive_definite
from odyssey.ops.elementwise.arithmetic import div, mul
from odyssey.ops.elementwise.choice import equal, where
from odyssey.ops.elementwise.complex_numbers import absolute
from odyssey.ops.elementwise.elementary import exp2, log2
from odyssey.ops.elementwise.rounding import floor
from odyssey.ops.reductions.reduce import max
from odyssey.ops.structure.creation import zeros_like
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import matrix_transpose
from odyssey.spec import Array, Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import sample

# ------------------------------------------------------------------ derivatives


def _block_triangular_derivative(function: Callable[[Any], Any], a: Any, t: Any) -> Any:
    """Derivative of a matrix function at ``a`` along ``t``, by a block triangular matrix."""
    n = a.shape[-1]
    if not a.size:
        return t
    # The result is linear in t, so t is scaled to about 1 by a power of 2, which is exact and has
    # derivative 0.
    largest = max(absolute(t), (-2, -1), keepdims=True)
    scale = exp2(floor(log2(where(equal(largest, 0), 1, largest))))
    upper = concatenate([a, div(t, scale)], -1)
    lower = concatenate([zeros_like(a), a], -1)
    corner = (..., slice(0, n), slice(n, 2 * n))
    return mul(getitem(function(concatenate([upper, lower], -2)), corner), scale)


def _square_spec(who: str) -> Callable[[Any], Spec]:
    """Return the shape rule of a function of square matrices."""
    return lambda a: Spec(getattr(a, "shape", ()), check_square(who, a))


# ------------------------------------------------------------------ exponentials


_PADE = (
    *(64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0),
    *(129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0),
    *(40840800.0, 960960.0, 16380.0, 182.0, 1.0),
)
# Up to this 1-norm the truncation error of the Padé approximant is below float64 rounding.
_NORM_BOUND = 5.371920351148152
# The corresponding bound for roots of norms of powers, and the first omitted term relative to
# float64 rounding.
_POWER_NORM_BOUND = 4.25
_FIRST_OMITTED_TERM = 2.0**53 / 113250775606021113483283660800000000.0


@ignore_fp_errors("over", "invalid")
def _expm(a: Any) -> Any:
    """Scaling and squaring (N. J. Higham, SIAM J. Matrix Anal. Appl. 26, 2005)."""
    dtype = check_square("expm", a)
    if not np.size(a):
        return np.zeros(np.shape(a), dtype)
    a = np.asarray(a, np.result_type(dtype, np.float64))
    steps = _squaring_counts(a)
    out = _pade_approximant(a * np.exp2(-steps)[..., None, None])
    for k in range(int(np.max(steps, initial=0))):
        # Square each matrix as often as it was halved, independently of the others in the batch.
        unfinished = (steps > k)[..., None, None]
        out = np.where(unfinished, np.matmul(out, out), out)
    return np.asarray(out, dtype)


def _one_norm(a: Array) -> Array:
    """1-norm of each matrix."""
    size: Array = np.absolute(a).sum(-2).max(-1)
    return size


def _squaring_counts(a: Array) -> Array:
    """Number of halvings of each matrix, from norms of its powers.

    The norm of the matrix itself would often ask for many extra, which loses digits to the identity
    (A. H. Al-Mohy and N. J. Higham, SIAM J. Matrix Anal. Appl. 31, 2009).
    """
    size = _one_norm(a)
    most = np.ceil(
        np.log2(np.where((size > _NORM_BOUND) & (size < np.inf), size, _NORM_BOUND) / _NORM_BOUND)
    )
    refined = (most > 3) & (
        most <= 190
    )  # few extra halvings are harmless; above 190 powers overflow
    if not refined.any():
        return np.asarray(most)
    half = np.floor(most / 2)
    b = a * np.exp2(-half)[..., None, None]
    b2 = np.matmul(b, b)
    b4 = np.matmul(b2, b2)
    b6 = np.matmul(b4, b2)
    d6, d8, d10 = (
        _one_norm(power) ** (1 / k)
        for power, k in ((b6, 6), (np.matmul(b4, b4), 8), (np.matmul(b4, b6), 10))
    )
    bound = np.minimum(np.maximum(d6, d8), np.maximum(d8, d10)) / _POWER_NORM_BOUND
    steps = np.clip(half + np.ceil(np.log2(np.maximum(bound, 2.0**-200))), 0, most)
    # If elements are large but powers are small, the omitted terms exceed the estimate above.
    halved = np.absolute(a) * np.exp2(-steps)[..., None, None]
    sums = np.ones_like(halved[..., :1, :])
    for _ in range(27):
        sums = np.matmul(sums, halved)
    omitted = sums.max((-2, -1)) / np.maximum(_one_norm(halved), 1) * _FIRST_OMITTED_TERM
    extra = np.ceil(np.log2(np.clip(omitted, 1, np.finfo(float).max)) / 26)
    return np.asarray(np.where(refined, np.minimum(steps + extra, most), most))


def _pade_approximant(a: Array) -> Array:
    """Padé approximant of degree 13 of the matrix exponential."""
    b, eye = _PADE, np.eye(a.shape[-1])
    a2 = np.matmul(a, a)
    a4 = np.matmul(a2, a2)
    a6 = np.matmul(a4, a2)
    odd = np.matmul(a6, b[13] * a6 + b[11] * a4 + b[9] * a2)
    odd = np.matmul(a, odd + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * eye)
    even = np.matmul(a6, b[12] * a6 + b[10] * a4 + b[8] * a2)
    even = even + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * eye
    out: Array = lapack.solve(even - odd, even + odd)
    return out


@op(
    primitive="decompose",
    vmap="leading",
    infer=_square_spec("expm"),
    kernel=_expm,
    vjp={"a": lambda g, a: _block_triangular_derivative(expm, matrix_transpose(a), g)},
    jvp={"a": lambda t, a: _block_triangular_derivative(expm, a, t)},
    samples=[
        sample((3, 3)),
        sample((2, 2, 2)),
        sample((1, 1)),
        sample((0, 0)),
    ],
    rejects=NOT_SQUARE,
    precision="wide",
)
def expm(a: Any, /) -> Any:
    """Matrix exponential, ``sum(a**k / k!)`` over matrix powers."""
    return _expm(a)


# ------------------------------------------------------------------ square roots


def _sqrtm(a: Any) -> Any:
    dtype = check_square("sqrtm", a)
    if not np.size(a):
        return np.zeros(np.shape(a), dtype)
    a = np.asarray(a, np.result_type(dtype, np.float64))
    flat = a.reshape(-1, *a.shape[-2:])
    roots = [_sqrtm_matrix(m) for m in flat]
    return np.asarray(np.stack(roots).reshape(a.shape), dtype)


@ignore_fp_errors()
def _sqrtm_matrix(a: Array) -> Array:
    """Principal square root of one matrix; NaN if it has none."""
    if np.array_equal(a, np.conj(a.T)):
        w, v = lapack.eigh(a)
        # Treat eigenvalues within rounding of 0 as 0.
        w = np.where(np.absolute(w) <= len(w) * np.finfo(w.dtype).eps * np.absolute(w).max(), 0, w)
        root: Array = np.matmul(v * np.sqrt(w), np.conj(v.T))
        return root
    try:
        return _denman_beavers(a)
    except np.linalg.LinAlgError:
        return np.full_like(a, np.nan)


_MAX_ITERATIONS = 60


def _denman_beavers(a: Array) -> Array:
    """Scaled product form of the Denman–Beavers iteration (Higham 2008, equation 6.29)."""
    n, eye = len(a), np.eye(len(a))
    m, x = a, a
    size = float(np.inf)
    for _ in range(_MAX_ITERATIONS):
        inverse = lapack.inv(m)
        sign, log = lapack.slogdet(m)
        far = size > 1e-2
        mu = np.exp(-log / (2 * n)) if far and sign else 1.0
        x = 0.5 * mu * np.matmul(x, eye + inverse / mu**2)
        m = 0.5 * (eye + (mu**2 * m + inverse / mu**2) / 2)
        before, size = size, float(np.linalg.norm(m - eye))
        if size <= n * np.finfo(x.dtype).eps or (size < 1e-10 and size >= before):
            return x
    return np.full_like(a, np.nan)


@op(
    primitive="decompose",
    raises=True,
    vmap="leading",
    infer=_square_spec("sqrtm"),
    kernel=_sqrtm,
    vjp={"a": lambda g, a: _block_triangular_derivative(sqrtm, matrix_transpose(a), g)},
    jvp={"a": lambda t, a: _block_triangular_derivative(sqrtm, a, t)},
    samples=[
        sample((3, 3), form=positive_definite),
        sample((2, 2, 2), form=lambda x: positive_definite(x) + np.triu(x, 1)),
        sample((1, 1), form=positive_definite),
        sample((0, 0)),
    ],
    rejects=NOT_SQUARE,
    precision="wide",
)
def sqrtm(a: Any, /) -> Any:
    """Principal square root of matrices, ``out @ out = a``.

    It exists if no eigenvalue is 0 or negative; Hermitian matrices may have eigenvalues 0. The
    result is NaN otherwise, and so is the derivative if an eigenvalue is 0.
    """
    return _sqrtm(a)


publish(globals())

"""Exponentials and square roots of matrices.

A function of ``[[a, t], [0, a]]`` has, beside that of ``a``, its own derivative along ``t`` (N. J.
Higham, Functions of Matrices, SIAM 2008, theorem 3.6). So these ops are their own derivatives, to
any order, of matrices twice as large, and no eigenvectors are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.linalg import lapack
from odyssey.linalg.matrix_shapes import definite, square
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
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ derivatives


def _along(function: Callable[[Any], Any], a: Any, t: Any) -> Any:
    """The derivative of a function of matrices at ``a`` along ``t``."""
    n = a.shape[-1]
    if not a.size:
        return t
    # Linear in t, which is brought to the size of 1 by a power of 2: to that nothing is rounded,
    # and its derivative is 0.
    largest = max(absolute(t), (-2, -1), keepdims=True)
    scale = exp2(floor(log2(where(equal(largest, 0), 1, largest))))
    upper = concatenate([a, div(t, scale)], -1)
    lower = concatenate([zeros_like(a), a], -1)
    corner = (..., slice(0, n), slice(n, 2 * n))
    return mul(getitem(function(concatenate([upper, lower], -2)), corner), scale)


def _like(who: str) -> Callable[[Any], Spec]:
    return lambda a: Spec(getattr(a, "shape", ()), square(who, a))


_REJECTS = [
    reject((2, 3), match="square matrices"),
    reject((3,), match="square matrices"),
    reject(np.eye(2, dtype=np.float16), error=DTypeError, match="single or double"),
]

# ------------------------------------------------------------------ exponentials


_PADE = (
    *(64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0),
    *(129060195264000.0, 10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0),
    *(40840800.0, 960960.0, 16380.0, 182.0, 1.0),
)
# Up to this 1-norm the approximation errs by less than the rounding of float64.
_REACH = 5.371920351148152
# The same for roots of norms of powers; and the first term that is left out, by that rounding.
_REACH_OF_POWERS = 4.25
_LEFT_OUT = 2.0**53 / 113250775606021113483283660800000000.0


@ignore_fp_errors("over", "invalid")
def _expm(a: Any) -> Any:
    """Scaling and squaring, after N. J. Higham, SIAM J. Matrix Anal. Appl. 26 (2005)."""
    dtype = square("expm", a)
    if not np.size(a):
        return np.zeros(np.shape(a), dtype)
    a = np.asarray(a, np.result_type(dtype, np.float64))
    steps = _halvings(a)
    found = _pade(a * np.exp2(-steps)[..., None, None])
    for k in range(int(steps.max(initial=0))):
        # Each as often as it was halved, so that no matrix depends on the others.
        more = (steps > k)[..., None, None]
        found = np.where(more, np.matmul(found, found), found)
    return np.asarray(found, dtype)


def _size(a: Array) -> Array:
    """The 1-norms of matrices."""
    size: Array = np.absolute(a).sum(-2).max(-1)
    return size


def _halvings(a: Array) -> Array:
    """How often matrices are halved: as often as their powers ask, far less than their size may.

    What is halved too often loses its digits among those of the identity (A. H. Al-Mohy and N. J.
    Higham, SIAM J. Matrix Anal. Appl. 31 (2009)).
    """
    size = _size(a)
    most = np.ceil(np.log2(np.where((size > _REACH) & (size < np.inf), size, _REACH) / _REACH))
    asked = (most > 3) & (most <= 190)  # a few in vain do no harm; beyond, powers are infinite
    if not asked.any():
        return np.asarray(most)
    half = np.floor(most / 2)
    b = a * np.exp2(-half)[..., None, None]
    b2 = np.matmul(b, b)
    b4 = np.matmul(b2, b2)
    b6 = np.matmul(b4, b2)
    d6, d8, d10 = (
        _size(power) ** (1 / k)
        for power, k in ((b6, 6), (np.matmul(b4, b4), 8), (np.matmul(b4, b6), 10))
    )
    wanted = np.minimum(np.maximum(d6, d8), np.maximum(d8, d10)) / _REACH_OF_POWERS
    steps = np.clip(half + np.ceil(np.log2(np.maximum(wanted, 2.0**-200))), 0, most)
    # Where elements are large, but powers are not, more is left out than powers tell.
    halved = np.absolute(a) * np.exp2(-steps)[..., None, None]
    sums = np.ones_like(halved[..., :1, :])
    for _ in range(27):
        sums = np.matmul(sums, halved)
    share = sums.max((-2, -1)) / np.maximum(_size(halved), 1) * _LEFT_OUT
    more = np.ceil(np.log2(np.clip(share, 1, np.finfo(float).max)) / 26)
    return np.asarray(np.where(asked, np.minimum(steps + more, most), most))


def _pade(a: Array) -> Array:
    b, eye = _PADE, np.eye(a.shape[-1])
    a2 = np.matmul(a, a)
    a4 = np.matmul(a2, a2)
    a6 = np.matmul(a4, a2)
    odd = np.matmul(a6, b[13] * a6 + b[11] * a4 + b[9] * a2)
    odd = np.matmul(a, odd + b[7] * a6 + b[5] * a4 + b[3] * a2 + b[1] * eye)
    even = np.matmul(a6, b[12] * a6 + b[10] * a4 + b[8] * a2)
    even = even + b[6] * a6 + b[4] * a4 + b[2] * a2 + b[0] * eye
    found: Array = lapack.solve(even - odd, even + odd)
    return found


@op(
    primitive="decompose",
    infer=_like("expm"),
    kernel=_expm,
    vjp={"a": lambda g, a: _along(expm, matrix_transpose(a), g)},
    jvp={"a": lambda t, a: _along(expm, a, t)},
    samples=[
        sample((3, 3)),
        sample((2, 2, 2)),
        sample((1, 1)),
        sample((0, 0)),
    ],
    rejects=_REJECTS,
)
def expm(a: Any, /) -> Any:
    """Exponentials of square matrices, the sums of their powers over factorials."""
    return _expm(a)


# ------------------------------------------------------------------ square roots


def _sqrtm(a: Any) -> Any:
    dtype = square("sqrtm", a)
    if not np.size(a):
        return np.zeros(np.shape(a), dtype)
    a = np.asarray(a, np.result_type(dtype, np.float64))
    flat = a.reshape(-1, *a.shape[-2:])
    roots = [_root_of_one(m) for m in flat]
    return np.asarray(np.stack(roots).reshape(a.shape), dtype)


@ignore_fp_errors()
def _root_of_one(a: Array) -> Array:
    if np.array_equal(a, np.conj(a.T)):
        w, v = lapack.eigh(a)
        # What rounding made of 0 is none.
        w = np.where(np.absolute(w) <= len(w) * np.finfo(w.dtype).eps * np.absolute(w).max(), 0, w)
        root: Array = np.matmul(v * np.sqrt(w), np.conj(v.T))
        return root
    try:
        return _newton(a)
    except np.linalg.LinAlgError:
        return np.full_like(a, np.nan)


_MOST_STEPS = 60


def _newton(a: Array) -> Array:
    """Denman's and Beavers' iteration, scaled, in products; Higham, chapter 6, (6.29)."""
    n, eye = len(a), np.eye(len(a))
    m, x = a, a
    size = float(np.inf)
    for _ in range(_MOST_STEPS):
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
    infer=_like("sqrtm"),
    kernel=_sqrtm,
    vjp={"a": lambda g, a: _along(sqrtm, matrix_transpose(a), g)},
    jvp={"a": lambda t, a: _along(sqrtm, a, t)},
    samples=[
        sample((3, 3), form=definite),
        sample((2, 2, 2), form=lambda x: definite(x) + np.triu(x, 1)),
        sample((1, 1), form=definite),
        sample((0, 0)),
    ],
    rejects=_REJECTS,
)
def sqrtm(a: Any, /) -> Any:
    """Square roots of matrices, ``out @ out = a``, whose eigenvalues have positive real parts.

    There is one where no eigenvalue is 0 or negative; of Hermitian matrices, 0 may be one as well.
    Elsewhere, and for the derivative where an eigenvalue is 0, NaN shows that there is none.
    """
    return _sqrtm(a)


publish(globals())

"""Composites of the special functions, by mpmath."""

import numpy as np


def by_mpmath(formula):
    """A formula of mpmath's module and numbers, on arrays, in the floating dtype of the result."""

    def function(*operands):
        import mpmath

        dtype = np.result_type(*operands[-1:], np.float16)
        if dtype.kind != "f":
            raise TypeError("needs real numbers")
        with mpmath.workdps(30):
            found = np.vectorize(lambda *x: formula(mpmath, *x), otypes=[object])(*operands)
        return np.asarray(found).astype(np.float64).astype(dtype)[()]

    return function


def polygamma(mpmath, n, x):
    try:
        return mpmath.polygamma(int(n), mpmath.mpf(float(x)))
    except (ValueError, ZeroDivisionError):  # at a pole
        return mpmath.inf if int(n) % 2 else -mpmath.inf if x == 0 else mpmath.nan


def multigammaln(a, d):
    def formula(mpmath, x):
        x = mpmath.mpf(float(x))
        if x <= mpmath.mpf(d - 1) / 2:
            return mpmath.nan
        terms = [mpmath.loggamma(x - mpmath.mpf(j) / 2) for j in range(d)]
        return mpmath.fsum(terms) + mpmath.mpf(d * (d - 1)) / 4 * mpmath.log(mpmath.pi)

    # Truth values less a number have double precision.
    return by_mpmath(formula)(a if d == 1 else a - 0.0)


def weighted_logsumexp(x, b, axis=None, *, keepdims=False, return_sign=False):
    """Of small numbers, where nothing can overflow."""
    if np.iscomplexobj(x):
        raise TypeError("weighs exponentials of real numbers")
    dtype = np.float64 if x.dtype.kind in "biu" else x.dtype
    x = x.astype(np.result_type(dtype, b))
    total = np.sum(np.exp(x) * b, axis, keepdims=keepdims)
    sign, size = np.sign(total), np.abs(total)
    out = np.log(size if return_sign else total)[()]
    return (out, sign) if return_sign else out


FORMULAS = {
    "weighted_logsumexp": weighted_logsumexp,
    "polygamma": by_mpmath(polygamma),
    "multigammaln": multigammaln,
}

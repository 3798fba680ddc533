"""Convolution along several axes by its definition: shifted copies, weighed and added up."""

import numpy as np


def convolved(a, v, mode="full", axes=None):
    """``a`` convolved with ``v`` along ``axes``, by default along all; the others broadcast."""
    if a.dtype.kind in "biu":
        a, v = a.astype(np.float64), v.astype(np.float64)
    along = [axes is None or k in np.arange(a.ndim)[list(axes)] for k in range(a.ndim)]
    pairs = list(zip(a.shape, v.shape, along, strict=True))
    full = [n + m - 1 if on else max(n, m) for n, m, on in pairs]
    out = np.zeros(full, np.result_type(a, v))
    for shift in np.ndindex(*[m if on else 1 for _, m, on in pairs]):
        moved = zip(shift, pairs, strict=True)
        to = tuple(slice(s, s + n if on else None) for s, (n, _, on) in moved)
        moved = zip(shift, along, strict=True)
        out[to] += a * v[tuple(slice(s, s + 1 if on else None) for s, on in moved)]
    wanted = {
        "full": lambda n, m: n + m - 1,
        "same": lambda n, m: n,
        "valid": lambda n, m: abs(n - m) + 1,
    }[mode]
    key = []
    for whole, (n, m, on) in zip(full, pairs, strict=True):
        length = wanted(n, m) if on else whole
        key.append(slice((whole - length) // 2, (whole - length) // 2 + length))
    return out[tuple(key)]

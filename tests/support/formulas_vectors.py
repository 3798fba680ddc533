"""What composites of vectors mean, pair by pair, for walks."""

import itertools

import numpy as np


def _real(*arrays):
    if any(np.iscomplexobj(x) for x in arrays):
        raise TypeError("complex numbers")
    return [x.astype(np.float64) if x.dtype.kind in "biu" else x for x in arrays]


def _norm(x, p, axis=-1):
    x = np.abs(x.astype(np.float64))
    top = x.max(axis, keepdims=True, initial=0.0)
    top = np.where(top == 0, 1.0, top)
    if p == np.inf:
        return np.squeeze(top, axis) * (x.max(axis, initial=0.0) > 0)
    return ((x / top) ** p).sum(axis) ** (1 / p) * np.squeeze(top, axis)


def normalize(x, p=2.0, axis=1, eps=1e-12):
    (x,) = _real(x)
    length = np.maximum(np.expand_dims(_norm(x, p, axis), axis), eps)
    return (x / length).astype(x.dtype)


def cdist(x1, x2, p=2.0, squared=False):
    x1, x2 = _real(x1, x2)
    apart = x1[..., :, None, :] - x2[..., None, :, :]
    lengths = (apart**2).sum(-1) if squared else _norm(apart, p)
    return lengths.astype(apart.dtype)


def pdist(x, p=2.0, squared=False):
    (x,) = _real(x)
    pairs = itertools.combinations(range(len(x)), 2)
    lengths = np.array([_norm(x[i] - x[j], p) for i, j in pairs])
    return (lengths**2 if squared else lengths).astype(x.dtype)


def bilinear(x1, x2, weight, bias=None):
    out = np.zeros((*x1.shape[:-1], len(weight)), np.result_type(x1, x2, weight))
    for i, j in np.ndindex(weight.shape[1:]):
        out = out + x1[..., i, None] * x2[..., j, None] * weight[:, i, j]
    return out if bias is None else out + bias


def local_response_norm(x, size, alpha=1e-4, beta=0.75, k=1.0):
    wide = x.astype(np.float32 if x.dtype == np.float16 else (x / 1).dtype)
    mean = np.zeros(x.shape, wide.dtype)
    for c in range(x.shape[1]):
        low = max(0, c - size // 2)
        mean[:, c] = (wide[:, low : c + (size - 1) // 2 + 1] ** 2).sum(1) / size
    dtype = np.mean(np.ones(1, x.dtype)).dtype
    return (x / (k + alpha * mean) ** beta).astype(dtype)


_ALL = (normalize, cdist, pdist, bilinear, local_response_norm)
FORMULAS = {f.__name__: f for f in _ALL}

"""What composites of neural networks mean, by NumPy's means and variances, for the walks."""

import numpy as np


def _real(*arrays):
    """The arrays in a precision that holds squares, and the dtype of the result."""
    arrays = [v if v is None else np.asarray(v) for v in arrays]
    dtype = np.result_type(np.float16, *[v for v in arrays if v is not None])
    if dtype.kind == "c":
        raise TypeError("complex numbers")
    wide = np.result_type(dtype, np.float32)
    return [v if v is None else v.astype(wide) for v in arrays], dtype


def _affine(x, weight, bias):
    shape = (-1, *[1] * (x.ndim - 2))
    x = x if weight is None else x * weight.reshape(shape)
    return x if bias is None else x + bias.reshape(shape)


def _standardized(x, axis, eps):
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps)


def batch_norm(
    x, running_mean=None, running_var=None, weight=None, bias=None, training=False, eps=1e-5
):
    (x, weight, bias), dtype = _real(x, weight, bias)
    if training:
        out = _standardized(x, (0, *range(2, x.ndim)), eps)
    else:
        shape = (-1, *[1] * (x.ndim - 2))
        mean, var = running_mean.reshape(shape), running_var.reshape(shape)
        out = (x - mean.astype(x.dtype)) * (1 / np.sqrt(var + eps)).astype(x.dtype)
    return _affine(out, weight, bias).astype(dtype)


def group_norm(x, weight=None, bias=None, *, groups, eps=1e-5):
    (x, weight, bias), dtype = _real(x, weight, bias)
    parts = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    out = _standardized(parts, tuple(range(2, parts.ndim)), eps).reshape(x.shape)
    return _affine(out, weight, bias).astype(dtype)


def instance_norm(x, weight=None, bias=None, eps=1e-5):
    (x, weight, bias), dtype = _real(x, weight, bias)
    return _affine(_standardized(x, tuple(range(2, x.ndim)), eps), weight, bias).astype(dtype)


# Of what is drawn at random the samples have no choice.
def random_uniform(shape, low=0.0, high=1.0, dtype=np.float64):
    return np.full(shape, low, dtype)


def random_normal(shape, mean=0.0, std=1.0, dtype=np.float64):
    return np.full(shape, mean, dtype)


def random_integers(shape, low=0, high=1, dtype=np.int64):
    return np.full(shape, low, dtype)


def random_bernoulli(shape, p=0.5):
    return np.full(shape, p, bool)


def random_categorical(logits, axis=-1, shape=None):
    found = np.argmax(logits, axis)
    return found if shape is None else np.broadcast_to(found, shape)


def random_permutation(x, axis=0):
    return np.arange(x) if np.ndim(x) == 0 else x


def random_exponential(shape, scale=1.0, dtype=np.float64):
    return np.full(shape, scale, dtype)


def random_gamma(shape, concentration, scale=1.0, dtype=np.float64):
    return np.full(shape, scale, dtype)


def dropout(x, rate=0.5, training=True):
    if training and rate == 1:
        return np.zeros(x.shape, np.result_type(x, np.float16))
    return x


def embedding_bag(indices, weight, mode="mean"):
    if mode == "max" and weight.dtype.kind == "c":
        raise TypeError("complex numbers")
    return getattr(np, mode)(weight[indices], 1)


_ALL = (
    embedding_bag,
    batch_norm,
    group_norm,
    instance_norm,
    random_uniform,
    random_normal,
    random_integers,
    random_bernoulli,
    random_categorical,
    random_permutation,
    random_exponential,
    random_gamma,
    dropout,
)
FORMULAS = {f.__name__: f for f in _ALL}
FORMULAS |= dict.fromkeys(("dropout1d", "dropout2d", "dropout3d"), dropout)

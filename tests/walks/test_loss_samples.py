"""Walks the losses on their samples: values by formulas in NumPy, dtypes, and what is declared.

Their derivatives, layouts, graphs and refusals are walked with those of the composites.
"""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, losses
from odyssey.errors import DTypeError
from odyssey.losses import gradients
from support.composed import LOSSES, OF_LOSSES, Call, walk
from support.together import together

every_sample = walk(OF_LOSSES)
every_loss = pytest.mark.parametrize("name", LOSSES)


def test_every_public_loss_is_declared_with_samples():
    helpers = {*gradients.__all__}
    assert {*losses.__all__} - helpers == {*LOSSES}
    for name, function in LOSSES.items():
        assert function.samples, f"give {name} samples, in its @loss(...)"


@every_loss
def test_a_loss_is_public_in_both_places(name):
    assert getattr(losses, name) is getattr(od, name) is LOSSES[name]
    assert name in od.__all__


# ------------------------------------------------------------------ values


def squared(d):
    return d * d


def bent(d, border):
    """Half of the squares up to ``border``, then straight."""
    a = np.abs(d)
    return np.where(a <= border, d * d / 2, border * (a - border / 2))


def entropy(p, t):
    return -(t * np.log(p) + (1 - t) * np.log1p(-p))


def logistic(x):
    return 1 / (1 + np.exp(-x))


def focal(x, t, alpha=0.25, gamma=2.0):
    q = np.where(t == 1, logistic(x), logistic(-x))
    share = 1 if alpha is None else np.where(t == 1, alpha, 1 - alpha)
    return -share * (1 - q) ** gamma * np.log(q)


def divergence(x, t, log_target=False):
    log_t = t if log_target else np.log(np.where(t == 0, 1, t))
    t = np.exp(t) if log_target else t
    return np.where(t == 0, 0, t * (log_t - x))


def picked(x, t, axis=-1, ignore_index=None):
    found = -np.take_along_axis(x, np.expand_dims(np.where(t == ignore_index, 0, t), axis), axis)
    return np.where(t == ignore_index, 0, np.squeeze(found, axis))


def softmax_entropy(x, t, axis=-1, label_smoothing=0, ignore_index=None):
    z = x - np.log(np.exp(x).sum(axis, keepdims=True))
    if t.dtype.kind == "i":
        return picked(z, t, axis, ignore_index)
    t = (1 - label_smoothing) * t + label_smoothing / x.shape[axis]
    return -(t * z).sum(axis)


def poisson(x, t, log_input=True, full=False, eps=1e-8):
    found = np.exp(x) - t * x if log_input else x - t * np.log(x + eps)
    n = np.maximum(t, 1)
    stirling = n * np.log(n) - n + np.log(2 * np.pi * n) / 2
    return found + np.where(t > 1, stirling, 0) * full


def gaussian(x, t, v, full=False, eps=1e-6):
    v = np.maximum(v, eps)
    if v.shape and v.shape == x.shape[:-1]:
        v = v[..., None]  # those of rows
    return (np.log(v) + squared(x - t) / v + full * np.log(2 * np.pi)) / 2


def other_classes(x, t, p=1, margin=1.0, axis=-1):
    x = np.moveaxis(x, axis, -1)
    right = np.take_along_axis(x, t[..., None], -1)
    others = np.arange(x.shape[-1]) != t[..., None]
    return (np.maximum(0, margin - right + x) ** p * others).sum(-1) / x.shape[-1]


def listed_classes(x, t, axis=-1):
    """By the sums of the definition, sample by sample."""
    x, t = np.moveaxis(x, axis, -1), np.moveaxis(t, axis, -1)
    found = np.zeros(x.shape[:-1])
    for place in np.ndindex(found.shape):
        ends = np.flatnonzero(t[place] < 0)
        right = t[place][: ends[0] if ends.size else None].tolist()
        others = set(range(x.shape[-1])) - set(right)
        margins = [1 - x[place][y] + x[place][j] for y in right for j in others]
        found[place] = sum(max(0, m) for m in margins) / x.shape[-1]
    return found


def all_ways(x, t, input_lengths=None, target_lengths=None, blank=0):
    """Over all sequences of classes: those that are the labels, without repetitions and blanks."""
    lone = x.ndim == 2
    x = x[:, None] if lone else x
    times, samples, classes = x.shape
    counts = np.full(samples, t.shape[-1]) if target_lengths is None else target_lengths
    lasting = np.full(samples, times) if input_lengths is None else input_lengths
    if t.ndim == 1:
        t = np.split(t, np.cumsum(counts)[:-1])
    found = np.zeros(samples)
    for n in range(samples):
        for path in itertools.product(range(classes), repeat=int(lasting[n])):
            labels = [k for k, _ in itertools.groupby(path) if k != blank]
            if labels == list(t[n][: counts[n]]):
                found[n] += np.exp(sum(x[time, n, k] for time, k in enumerate(path)))
    return -np.log(found)[0] if lone else -np.log(found)


def cosine(x, y):
    return (x * y).sum(-1) / np.sqrt((x * x).sum(-1) * (y * y).sum(-1))


def triplet(a, like, n, margin=1.0, **options):
    def far(x, y, p=2.0, eps=1e-6, swap=False):
        return np.linalg.norm(x - y + eps, p, -1)

    apart = far(a, n, **options)
    if options.get("swap"):
        apart = np.minimum(apart, far(like, n, **options))
    return np.maximum(0, far(a, like, **options) - apart + margin)


FORMULAS = {
    "poisson_nll": poisson,
    "gaussian_nll": gaussian,
    "soft_margin": lambda x, t: np.log1p(np.exp(-t * x)),
    "hinge_embedding": lambda x, t, margin=1.0: np.where(t == 1, x, np.maximum(0, margin - x)),
    "margin_ranking": lambda x, y, t, margin=0.0: np.maximum(0, margin - t * (x - y)),
    "multi_margin": other_classes,
    "multilabel_margin": listed_classes,
    "ctc": all_ways,
    "multilabel_soft_margin": lambda x, t, axis=-1: entropy(logistic(x), t).mean(axis),
    "cosine_embedding": lambda x, y, t, margin=0.0: np.where(
        t == 1, 1 - cosine(x, y), np.maximum(0, cosine(x, y) - margin)
    ),
    "triplet_margin": triplet,
    "mean_squared_error": lambda p, t: squared(p - t),
    "mean_absolute_error": lambda p, t: np.abs(p - t),
    "smooth_l1": lambda p, t, beta=1.0: bent(p - t, beta) / beta if beta else np.abs(p - t),
    "huber": lambda p, t, delta=1.0: bent(p - t, delta),
    "log_cosh": lambda p, t: np.log(np.cosh(p - t)),
    "binary_cross_entropy": lambda p, t, from_logits=False: entropy(
        logistic(p) if from_logits else p, t
    ),
    "cross_entropy": softmax_entropy,
    "nll": picked,
    "kl_divergence": divergence,
    "hinge": lambda p, t: np.maximum(0, 1 - p * t),
    "focal": focal,
}


def by_formula(name, p, t, /, *others, reduction="mean", weights=None, **options):
    found = FORMULAS[name](p, t, *others, **options)
    if weights is not None:
        found = found * weights
    if reduction == "none":
        return found
    ignored = options.get("ignore_index")
    count = {
        "mean": found.size if ignored is None else np.count_nonzero(t != ignored),
        "batchmean": len(p) if p.ndim else 1,
        "sum": 1,
    }[reduction]
    return found.sum() / count


@every_sample
def test_values_are_those_of_the_formula_on_arrays_and_variables(function, sample):
    call = Call(function, sample)
    wanted = by_formula(function.__name__, *call.operands, **sample.options)
    leaves = [Variable(x, requires_grad=True) for x in call.arrays]
    with GradientTape():
        recorded = call(*leaves).numpy()
    for got in (call(*call.arrays), recorded):
        assert np.shape(got) == np.shape(wanted)
        np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-15)


DTYPES = {"float16": "float16", "float32": "float32", "int64": "float64", "bool": "float64"}


@together("dtype", DTYPES)
@every_sample
def test_a_loss_has_the_dtype_of_its_predictions_and_of_whole_ones_is_of_double_precision(
    function, sample, dtype
):
    call = Call(function, sample, dtype)
    if isinstance(sample.options.get("weights"), np.ndarray):  # of double precision
        return
    operands = call.operands
    if len(call.arrays) == 1 and operands[1].dtype.kind == "f":
        operands[1] = operands[1].astype(dtype)
    assert function(*operands, **sample.options).dtype == DTYPES[dtype]


@every_sample
def test_complex_numbers_have_an_absolute_error_and_no_other_loss(function, sample):
    call = Call(function, sample, np.complex128)
    if function.__name__ == "mean_absolute_error":
        assert call(*call.arrays).dtype.kind == "f"
        return
    for arrays in (call.arrays, [call.arrays[0].real.copy(), *call.arrays[1:]]):
        if any(x.dtype.kind == "c" for x in arrays):
            with pytest.raises(DTypeError, match=f"^{function.__name__}: .*real"):
                call(*arrays)

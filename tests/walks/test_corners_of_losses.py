"""Derivatives of losses at zero, infinity and NaN, and of huge and tiny differences."""

import numpy as np
import pytest

from odyssey import losses, ops
from support.composed import LOSSES as DECLARED

pytest.importorskip("mpmath", reason="a test dependency: pip install -e '.[test]'")
import mpmath
from mpmath import mp, mpf
from test_corners import complaint, corners, derivatives, every_dtype, fits

from support.mp_reference import Unary, logistic_slope, of_one, sigmoid, softplus, zero

TARGET = 0.5


@pytest.fixture(autouse=True)
def many_digits():
    with mp.workdps(150), np.errstate(all="ignore"):
        yield


def unreduced(loss, target=TARGET, **options):
    def call(x):
        return loss(x, np.full(x.shape, target, x.dtype), reduction="none", **options)

    return call


def parabola(border, scale):
    """Half of the squared difference up to ``border``, then straight; over ``scale``."""

    def inside(x):
        return abs(x - TARGET) <= border

    def value(x):
        d = abs(x - TARGET)
        return (d * d / 2 if inside(x) else border * (d - mpf(border) / 2)) / scale

    def slope(x):
        return (x - TARGET if inside(x) else border * mpmath.sign(x - TARGET)) / scale

    return Unary(value, slope, lambda x: mpf(inside(x)) / scale)


def focal(gamma):
    """Of the target 1, with the least weight that a probability gets; by many digits."""

    def value(x):
        return sigmoid(-x) ** gamma * softplus(-x) / 4

    def derivative(n):
        def found(x):
            with mp.workdps(700):
                return mpmath.diff(value, x, n)

        return found

    return Unary(value, derivative(1), derivative(2), absolute=True)


def log_cosh(target):
    """By what keeps the digits of the smallest differences, and overflows for none."""

    def value(x):
        d = abs(x - target)
        if d < 1:
            return mpmath.log1p(2 * mpmath.sinh(d / 2) ** 2)
        return d + mpmath.log1p(mpmath.exp(-2 * d)) - mpmath.log(2)

    return Unary(
        value,
        lambda x: mpmath.tanh(x - target),
        lambda x: mpmath.sech(x - target) ** 2,
    )


def against_zero(loss):
    """A loss of classes of two, of which the first is right and the other has the number 0."""

    def call(x):
        numbers = ops.stack([x, np.zeros(x.shape, x.dtype)], axis=-1)
        return loss(numbers, np.zeros(x.shape, int), reduction="none")

    return call


def beside(loss, *others, **options):
    """A loss of several operands, whose first one moves."""

    def call(x):
        full = [np.full(x.shape, other, x.dtype) for other in others]
        return loss(x, *full, reduction="none", **options)

    return call


def beside_one(x):
    return losses.cosine_embedding(
        ops.stack([x, np.ones(x.shape, x.dtype)], axis=-1),
        np.stack([np.ones(x.shape, x.dtype), np.zeros(x.shape, x.dtype)], axis=-1),
        np.full(x.shape, -1),
        margin=-1.0,
        reduction="none",
    )


def from_zero(x):
    """Of the positive x, the negative 2 and the anchor 0, all on a line."""
    numbers = ops.expand_dims(x, -1)
    anchor = np.zeros(numbers.shape, x.dtype)
    negatives = np.full(numbers.shape, 2.0, x.dtype)
    return losses.triplet_margin(anchor, numbers, negatives, eps=0.0, reduction="none")


def hinged(margin=1):
    return Unary(lambda x: max(margin - x, mpf(0)), lambda x: -mpf(x < margin), zero, chooses=True)


def halved(f):
    return Unary(
        lambda x: f.f(x) / 2, lambda x: f.slope(x) / 2, lambda x: f.bend(x) / 2, chooses=True
    )


YES = Unary(lambda x: softplus(-x), lambda x: -sigmoid(-x), logistic_slope, absolute=True)
LOSSES = {
    "soft_margin": (unreduced(losses.soft_margin, 1.0), YES),
    "multilabel_soft_margin": (
        lambda x: losses.multilabel_soft_margin(
            ops.expand_dims(x, -1), np.ones((*x.shape, 1), x.dtype), reduction="none"
        ),
        YES,
    ),
    "hinge_embedding": (unreduced(losses.hinge_embedding, -1.0), hinged()),
    "hinge_embedding of what is alike": (
        unreduced(losses.hinge_embedding, 1.0),
        Unary(lambda x: x, lambda x: mpf(1), zero),
    ),
    "margin_ranking": (beside(losses.margin_ranking, 0.0, 1.0), hinged(0)),
    "multi_margin": (against_zero(losses.multi_margin), halved(hinged())),
    # Of two times, whose other numbers are 0: of both labels, a label and a blank, a blank and one.
    "ctc": (
        lambda x: losses.ctc(
            ops.stack(
                [
                    ops.stack([np.zeros(x.shape, x.dtype), x], axis=-1),
                    np.zeros((*x.shape, 2), x.dtype),
                ]
            ),
            np.ones((*x.shape, 1), int),
            reduction="none",
        ),
        Unary(
            lambda x: -softplus(x + mpmath.log(2)),
            lambda x: -sigmoid(x + mpmath.log(2)),
            lambda x: -logistic_slope(x + mpmath.log(2)),
            absolute=True,
        ),
    ),
    "multilabel_margin": (
        lambda x: losses.multilabel_margin(
            ops.stack([x, np.zeros(x.shape, x.dtype)], axis=-1),
            np.stack([np.zeros(x.shape, int), np.full(x.shape, -1)], axis=-1),
            reduction="none",
        ),
        halved(hinged()),
    ),
    "cosine_embedding": (
        beside_one,
        Unary(
            lambda x: 1 + x / mpmath.sqrt(x * x + 1),
            lambda x: (x * x + 1) ** mpf(-1.5),
            lambda x: -3 * x * (x * x + 1) ** mpf(-2.5),
            absolute=True,
            chooses=True,
        ),
    ),
    "triplet_margin": (
        from_zero,
        Unary(
            lambda x: max(abs(x) - 1, mpf(0)),
            lambda x: mpmath.sign(x) * (abs(x) > 1),
            zero,
            absolute=True,
            chooses=True,
        ),
    ),
    "poisson_nll": (
        unreduced(losses.poisson_nll),
        Unary(lambda x: mpmath.exp(x) - TARGET * x, lambda x: mpmath.exp(x) - TARGET, mpmath.exp),
    ),
    "gaussian_nll": (
        beside(losses.gaussian_nll, TARGET, 2.0),
        Unary(
            lambda x: (mpmath.log(2) + (x - TARGET) ** 2 / 2) / 2,
            lambda x: (x - TARGET) / 2,
            lambda x: mpf(0.5),
        ),
    ),
    "log_cosh": (unreduced(losses.log_cosh), log_cosh(TARGET)),
    "log_cosh of small differences": (unreduced(losses.log_cosh, 0.0), log_cosh(0)),
    "nll": (against_zero(losses.nll), Unary(lambda x: -x, lambda x: mpf(-1), zero)),
    "cross_entropy": (
        against_zero(losses.cross_entropy),
        Unary(
            lambda x: softplus(-x),
            lambda x: -sigmoid(-x),
            lambda x: logistic_slope(x),
            absolute=True,
        ),
    ),
    "mean_absolute_error": (
        unreduced(losses.mean_absolute_error),
        Unary(lambda x: abs(x - TARGET), lambda x: mpmath.sign(x - TARGET), zero),
    ),
    "mean_squared_error": (
        unreduced(losses.mean_squared_error),
        Unary(lambda x: (x - TARGET) ** 2, lambda x: 2 * (x - TARGET), lambda x: mpf(2)),
    ),
    "huber": (unreduced(losses.huber, delta=1.0), parabola(1, 1)),
    "smooth_l1": (unreduced(losses.smooth_l1, beta=2.0), parabola(2, 2)),
    "binary_cross_entropy": (
        unreduced(losses.binary_cross_entropy, from_logits=True),
        Unary(
            lambda x: softplus(x) - x * TARGET,
            lambda x: sigmoid(x) - TARGET,
            logistic_slope,
            absolute=True,
        ),
    ),
    "hinge": (
        unreduced(losses.hinge, 1.0),
        Unary(lambda x: max(1 - x, mpf(0)), lambda x: -mpf(x < 1), zero, chooses=True),
    ),
    "focal": (unreduced(losses.focal, 1.0), focal(2)),
    "focal, gamma 1": (unreduced(losses.focal, 1.0, gamma=1.0), focal(1)),
    "focal, gamma 0.5": (unreduced(losses.focal, 1.0, gamma=0.5), focal(0.5)),
    "kl_divergence": (
        unreduced(losses.kl_divergence),
        Unary(lambda x: (mpmath.log(TARGET) - x) * TARGET, lambda x: mpf(-TARGET), zero),
    ),
    "kl_divergence of nothing": (
        unreduced(losses.kl_divergence, 0.0),
        Unary(zero, zero, zero),
    ),
}


def wrong_at_corners(call, reference, dtype):
    """What a loss has at the corners that is not what the reference has."""
    x = corners(dtype)
    if reference.chooses:
        x = x[~np.isnan(x)]
    out, first, second = derivatives(call, x)
    limits, wrong = np.finfo(dtype), []
    for k, point in enumerate(x.tolist()):
        wanted = of_one(reference, point)
        given = [("value", out, wanted[0])]
        given += [(mode, values, wanted[1]) for (_, mode), values in first.items()]
        given += [(mode, values, wanted[2]) for (*_, mode), values in second.items()]
        for mode, values, want in given:
            # Infinite logits may end in inf - inf, and NaN is then all that is known.
            if np.isnan(values[k]) and not np.isfinite(point):
                continue
            if not fits(values[k], want, limits, 64, 1 if reference.absolute else 0):
                shown = mpmath.nstr(want, 17)
                wrong.append(f"{mode} at {point}: {values[k]}, wanted {shown}")
    return wrong


def with_marks(name):
    """The case of a loss; those of the focal loss take 2 s, and are slow tests."""
    return pytest.param(name, marks=pytest.mark.slow) if name.startswith("focal") else name


@pytest.mark.share(4)
@every_dtype
@pytest.mark.parametrize("name", list(map(with_marks, LOSSES)))
def test_losses_have_their_derivatives_at_the_corners(name, dtype):
    wrong = wrong_at_corners(*LOSSES[name], dtype)
    assert not wrong, complaint(wrong)


def test_the_walk_sees_a_loss_that_bends_wrongly_at_zero_only():
    def by_size(x):
        size = ops.absolute(ops.subtract(x, x.dtype.type(TARGET)))
        return ops.subtract(ops.add(size, ops.softplus(size, beta=-2.0)), np.log(2.0))

    wrong = wrong_at_corners(by_size, log_cosh(TARGET), "float64")
    assert any(" over " in text and "at 0.5" in text for text in wrong)


def test_every_loss_walks_the_corners():
    missing = sorted({*DECLARED} - {name.split()[0].strip(",") for name in LOSSES})
    assert not missing, f"add {missing} to LOSSES here"

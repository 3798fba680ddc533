"""Losses that are made of ops, against formulas in NumPy; kinks, extremes, and what they refuse."""

import math

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import OdysseyError, ShapeError
from odyssey.testing import check_gradients

REDUCTIONS = ["mean", "sum", "none"]


def random(seed=0):
    return np.random.default_rng(seed)


def bent(d, width):
    a = np.abs(d)
    return np.where(a <= width, d * d / (2 * width), a - width / 2)


def focal_formula(x, t, alpha=0.25, gamma=2.0):
    p = 1 / (1 + np.exp(-x))
    q = np.where(t == 1, p, 1 - p)
    a = np.where(t == 1, alpha, 1 - alpha) if alpha is not None else 1.0
    return -a * (1 - q) ** gamma * np.log(q)


def log_rows(rng, shape, axis=-1):
    p = rng.uniform(0.1, 1.0, shape)
    return np.log(p / p.sum(axis, keepdims=True))


def pick(x, targets):
    return -np.take_along_axis(x, targets[..., None], -1)[..., 0]


D = random(1).normal(0, 2, (4, 3))
ZERO_ONE = random(2).integers(0, 2, (4, 3))
TARGETS = random(3).normal(0, 1, (4, 3))
LOGS = log_rows(random(4), (4, 3))
SHARES = np.exp(log_rows(random(5), (4, 3)))
CLASSES = np.array([0, 2, 1, 1])

# loss, predictions, targets, options, unreduced loss by its formula
CASES = {
    "mean_absolute_error": (od.mean_absolute_error, D, TARGETS, {}, np.abs(D - TARGETS)),
    "smooth_l1": (od.smooth_l1, D, TARGETS, {}, bent(D - TARGETS, 1.0)),
    "smooth_l1_narrow": (od.smooth_l1, D, TARGETS, {"beta": 0.3}, bent(D - TARGETS, 0.3)),
    "smooth_l1_sharp": (od.smooth_l1, D, TARGETS, {"beta": 0}, np.abs(D - TARGETS)),
    "huber": (od.huber, D, TARGETS, {}, bent(D - TARGETS, 1.0)),
    "huber_wide": (od.huber, D, TARGETS, {"delta": 2.5}, 2.5 * bent(D - TARGETS, 2.5)),
    "hinge": (od.hinge, D, 2 * ZERO_ONE - 1, {}, np.maximum(0, 1 - (2 * ZERO_ONE - 1) * D)),
    "focal": (od.focal, D, ZERO_ONE, {}, focal_formula(D, ZERO_ONE)),
    "focal_even": (
        od.focal,
        D,
        ZERO_ONE,
        {"alpha": None, "gamma": 0.5},
        focal_formula(D, ZERO_ONE, None, 0.5),
    ),
    "kl_divergence": (od.kl_divergence, LOGS, SHARES, {}, SHARES * (np.log(SHARES) - LOGS)),
    "kl_divergence_logs": (
        od.kl_divergence,
        LOGS,
        np.log(SHARES),
        {"log_target": True},
        SHARES * (np.log(SHARES) - LOGS),
    ),
    "nll": (od.nll, LOGS, CLASSES, {}, pick(LOGS, CLASSES)),
}
cases = pytest.mark.parametrize("case", CASES)


def weights_for(kind, shape):
    rng = random(9)
    return {
        "unweighted": None,
        "full": rng.uniform(0.5, 2.0, shape),
        "last_axis": rng.uniform(0.5, 2.0, shape[-1:]),
        "scalar": 1.75,
    }[kind]


def reduced(losses, reduction, weights):
    losses = losses if weights is None else losses * weights
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / losses.size}[reduction]


def gradient(loss, predictions, *args, **options):
    p = Variable(predictions, requires_grad=True)
    with GradientTape() as tape:
        value = loss(p, *args, **options)
    return tape.gradient(value, p, np.ones(value.shape, value.dtype))


@pytest.mark.parametrize("weights", ["unweighted", "full", "last_axis", "scalar"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@cases
def test_a_loss_equals_its_formula(case, reduction, weights):
    loss, p, t, options, losses = CASES[case]
    w = weights_for(weights, losses.shape)
    got = loss(p, t, reduction=reduction, weights=w, **options)
    np.testing.assert_allclose(got, reduced(losses, reduction, w), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@cases
def test_first_and_second_derivatives_equal_differences(case, reduction):
    loss, p, t, options, losses = CASES[case]
    w = weights_for("full", losses.shape)
    check_gradients(lambda x: loss(x, t, reduction=reduction, weights=w, **options), p)


@pytest.mark.parametrize(
    "case", ["mean_absolute_error", "smooth_l1", "huber", "kl_divergence", "kl_divergence_logs"]
)
def test_derivatives_in_the_targets_equal_differences(case):
    loss, p, t, options, _ = CASES[case]
    check_gradients(lambda x: loss(p, x, **options), t)


@cases
def test_a_compiled_loss_and_gradient_equal_the_eager_ones(case):
    loss, p, t, options, _ = CASES[case]
    w = Variable(p, requires_grad=True)

    def run(t):
        with GradientTape() as tape:
            value = loss(w, t, **options)
        return value.detach(), tape.gradient(value, w)

    for got, expected in zip(od.compile(run)(t), run(t), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=1e-14)


@cases
def test_float32_stays_float32(case):
    loss, p, t, options, losses = CASES[case]
    t = t.astype(np.float32) if t.dtype.kind == "f" else t
    value = loss(p.astype(np.float32), t, **options)
    assert value.dtype == np.float32
    assert value == pytest.approx(losses.mean(), rel=1e-5)
    assert gradient(loss, p.astype(np.float32), t, **options).dtype == np.float32


@cases
def test_predictions_and_targets_of_different_shapes_are_refused(case):
    loss, p, t, options, _ = CASES[case]
    with pytest.raises(ShapeError, match=case.split("_")[0]):
        loss(p, t[:1], **options)


@cases
def test_an_unknown_reduction_is_refused(case):
    loss, p, t, options, _ = CASES[case]
    with pytest.raises(OdysseyError, match="choose 'mean', 'sum' or 'none'"):
        loss(p, t, reduction="average", **options)


@pytest.mark.parametrize("name", ["focal", "hinge", "huber", "kl_divergence", "nll", "smooth_l1"])
def test_losses_are_public_in_both_places(name):
    assert getattr(od, name) is getattr(od.losses, name)


# ------------------------------------------------------------------ kinks and extremes


def test_the_absolute_error_has_slope_0_where_both_are_equal():
    g = gradient(od.mean_absolute_error, np.array([1.0, 2.0, 0.0]), np.ones(3), reduction="sum")
    np.testing.assert_array_equal(g, [0.0, 1.0, -1.0])


@pytest.mark.parametrize(
    ("loss", "options", "height"),
    [(od.smooth_l1, {"beta": 0.5}, 1.0), (od.huber, {"delta": 0.5}, 0.5)],
    ids=["smooth_l1", "huber"],
)
def test_bent_losses_have_one_slope_at_the_bend_and_beyond(loss, options, height):
    p = np.array([-np.inf, -1e200, -0.5, 0.0, 0.5, 1e200, np.inf])
    g = gradient(loss, p, np.zeros(7), reduction="sum", **options)
    np.testing.assert_array_equal(g, height * np.sign(p))


@pytest.mark.parametrize(
    ("loss", "options", "curvature"),
    [(od.smooth_l1, {"beta": 0.5}, 2.0), (od.huber, {"delta": 0.5}, 1.0)],
    ids=["smooth_l1", "huber"],
)
def test_bent_losses_are_parabolas_up_to_the_bend(loss, options, curvature):
    p = Variable([-0.7, -0.5, 0.0, 0.2, 0.5, 0.7], requires_grad=True)
    with GradientTape() as outer:
        with GradientTape() as inner:
            value = loss(p, np.zeros(6), reduction="sum", **options)
        slope = inner.gradient(value, p)
    second = outer.gradient(slope, p, np.ones(6))
    np.testing.assert_array_equal(second, curvature * np.array([0, 1, 1, 1, 1, 0]))


def test_the_hinge_has_slope_0_on_the_margin_and_beyond():
    p, t = np.array([1.0, 2.0, 0.5, -1.0]), np.array([1, 1, 1, -1])
    np.testing.assert_array_equal(gradient(od.hinge, p, t, reduction="sum"), [0, 0, -1, 0])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0, 2.0])
def test_the_focal_loss_of_huge_logits_is_exact(gamma):
    x, t = np.array([1e3, -1e3, 1e3, -1e3]), np.array([1, 0, 0, 1])
    options = {"alpha": None, "gamma": gamma, "reduction": "none"}
    np.testing.assert_array_equal(od.focal(x, t, **options), [0, 0, 1e3, 1e3])
    np.testing.assert_array_equal(gradient(od.focal, x, t, **options), [0, 0, 1, -1])


def test_the_focal_loss_of_easy_examples_keeps_all_its_digits():
    # 1 - q = e**-30 to 14 digits, and so is -log q: the loss is its cube
    loss = od.focal(np.array([30.0]), np.array([1]), alpha=1.0, gamma=2.0)
    assert float(loss) == pytest.approx(math.exp(-90.0), rel=1e-12)


def test_focal_without_heed_is_binary_cross_entropy():
    loss = od.focal(D, ZERO_ONE, alpha=None, gamma=0.0)
    expected = od.binary_cross_entropy(D, ZERO_ONE, from_logits=True)
    assert float(loss) == pytest.approx(float(expected), rel=1e-15)


@pytest.mark.parametrize("log_target", [False, True], ids=["probabilities", "logarithms"])
def test_kl_divergence_ignores_what_the_target_gives_nothing(log_target):
    x = np.array([-np.inf, -1.0, 0.0])
    t = np.array([-np.inf, 0.0, -np.inf]) if log_target else np.array([0.0, 1.0, 0.0])
    options = {"log_target": log_target, "reduction": "none"}
    np.testing.assert_array_equal(od.kl_divergence(x, t, **options), [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(gradient(od.kl_divergence, x, t, **options), [0.0, -1.0, 0.0])
    g = gradient(lambda t: od.kl_divergence(x, t, **options), t)
    np.testing.assert_array_equal(g, [0.0, 2.0, 0.0])


def test_kl_divergence_of_a_batch_divides_by_its_length():
    expected = (SHARES * (np.log(SHARES) - LOGS)).sum() / 4
    got = od.kl_divergence(LOGS, SHARES, reduction="batchmean")
    assert float(got) == pytest.approx(expected, rel=1e-13)


def test_kl_divergence_of_equal_distributions_is_0():
    p = np.exp(LOGS)
    np.testing.assert_allclose(od.kl_divergence(np.log(p), p, reduction="none"), 0, atol=1e-16)


# ------------------------------------------------------------------ class numbers


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_nll_counts_classes_along_any_axis(axis):
    x = log_rows(random(6), (3, 4, 5), axis)
    k = axis % 3
    shape = tuple(n for j, n in enumerate(x.shape) if j != k)
    t = random(7).integers(0, x.shape[k], shape)
    expected = -np.take_along_axis(x, np.expand_dims(t, k), k).squeeze(k)
    np.testing.assert_array_equal(od.nll(x, t, axis=axis, reduction="none"), expected)


def test_nll_of_log_softmax_is_cross_entropy():
    x = random(8).normal(size=(4, 3))
    t = np.array([0, -1, 2, 1])
    got = od.nll(od.ops.log_softmax(x), t, ignore_index=-1)
    assert float(got) == pytest.approx(float(od.cross_entropy(x, t, ignore_index=-1)), rel=1e-14)


@pytest.mark.parametrize("ignored", [-100, 2])
def test_ignored_targets_count_for_nothing(ignored):
    t = np.array([0, ignored, 1, ignored])
    losses = -np.array([LOGS[0, 0], 0, LOGS[2, 1], 0])
    options = {"ignore_index": ignored}
    got = od.nll(LOGS, t, reduction="none", **options)
    np.testing.assert_array_equal(got, losses)
    assert float(od.nll(LOGS, t, **options)) == pytest.approx(losses.sum() / 2, rel=1e-15)
    expected = np.zeros((4, 3))
    expected[0, 0] = expected[2, 1] = -0.5
    np.testing.assert_array_equal(gradient(od.nll, LOGS, t, **options), expected)


def test_a_mean_over_ignored_targets_alone_is_nan_with_slope_0():
    t = np.full(4, -1)
    assert math.isnan(od.nll(LOGS, t, ignore_index=-1))
    np.testing.assert_array_equal(gradient(od.nll, LOGS, t, ignore_index=-1), np.zeros((4, 3)))


@pytest.mark.parametrize("loss", [od.nll, od.cross_entropy], ids=["nll", "cross_entropy"])
@pytest.mark.parametrize("kept", [2, 0])
def test_a_graph_counts_the_targets_of_each_run(loss, kept):
    weights = np.array([1.0, 2.0, 3.0, 4.0])
    mean = od.compile(lambda x, t: loss(x, t, ignore_index=-1, weights=weights))
    mean(LOGS, CLASSES)
    t = np.where(np.arange(4) < kept, CLASSES, -1)
    expected = (pick(LOGS, np.maximum(t, 0)) * weights)[:kept].sum() / kept if kept else np.nan
    np.testing.assert_allclose(mean(LOGS, t), expected, rtol=1e-14)


def test_nll_does_not_look_at_probabilities_of_other_classes():
    x = np.array([[0.0, -np.inf], [-np.inf, 0.0]])
    np.testing.assert_array_equal(od.nll(x, np.array([0, 1]), reduction="none"), [0.0, 0.0])
    g = gradient(od.nll, x, np.array([0, 1]), reduction="sum")
    np.testing.assert_array_equal(g, [[-1.0, 0.0], [0.0, -1.0]])


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: od.nll(LOGS, np.array([0, 1, 2, 3])), ShapeError, "there are 3 classes"),
        (lambda: od.nll(LOGS, np.array([0, 1, 2, -1])), ShapeError, "lie in .-1, 2."),
        (lambda: od.nll(LOGS, np.ones(4)), ShapeError, "want class numbers of shape"),
        (lambda: od.nll(LOGS, CLASSES, axis=2), ShapeError, "does not fit"),
        (lambda: od.hinge(D, ZERO_ONE), OdysseyError, "targets must be -1 or 1"),
        (lambda: od.focal(D, ZERO_ONE, gamma=-1), OdysseyError, "gamma=-1"),
        (lambda: od.focal(D, ZERO_ONE, alpha=1.5), OdysseyError, "alpha=1.5"),
        (lambda: od.huber(D, TARGETS, delta=0), OdysseyError, "delta=0"),
        (lambda: od.huber(D, TARGETS, delta=math.inf), OdysseyError, "delta=inf"),
        (lambda: od.smooth_l1(D, TARGETS, beta=-1), OdysseyError, "beta=-1"),
    ],
    ids=[
        "class_too_large",
        "class_negative",
        "class_not_whole",
        "axis",
        "hinge_targets",
        "focal_gamma",
        "focal_alpha",
        "huber_delta",
        "huber_infinite",
        "smooth_beta",
    ],
)
def test_what_a_loss_cannot_mean_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_examples_with_other_numbers_of_ignored_targets_have_means_of_their_own(reduction):
    logits = np.random.default_rng(0).normal(size=(3, 4, 5))
    targets = np.array([[0, 1, 2, 3], [4, -1, -1, 0], [-1, -1, -1, -1]])

    def loss(z, t):
        return od.losses.cross_entropy(z, t, ignore_index=-1, reduction=reduction)

    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    each = -np.take_along_axis(logs, np.maximum(targets, 0)[..., None], -1)[..., 0]
    each = np.where(targets < 0, 0.0, each)
    with np.errstate(invalid="ignore"):
        means = each.sum(1) / (targets >= 0).sum(1)
    got = od.vmap(loss)(logits, targets)
    wanted = {"none": each, "sum": each.sum(1), "mean": means}[reduction]
    np.testing.assert_allclose(got, wanted, rtol=1e-13)
    slopes = np.exp(logs) - np.eye(5)[np.maximum(targets, 0)]
    slopes *= (targets >= 0)[..., None]
    if reduction == "mean":
        slopes /= np.maximum((targets >= 0).sum(1), 1)[:, None, None]
    got = od.vmap(od.grad(lambda z, t: loss(z, t).sum()))(logits, targets)
    np.testing.assert_allclose(got, slopes, rtol=1e-12, atol=1e-15)

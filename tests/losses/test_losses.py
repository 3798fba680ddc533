"""Losses against formulas in NumPy, and their gradients against the tape's."""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import OdysseyError, ShapeError

REDUCTIONS = ["mean", "sum", "none"]
WEIGHTS = ["unweighted", "full", "row", "column", "scalar"]


def random(seed=0):
    return np.random.default_rng(seed)


def weights_of(kind, shape):
    """Factors that broadcast against an unreduced loss of ``shape``."""
    rng = random(9)
    return {
        "unweighted": lambda: None,
        "full": lambda: rng.uniform(0.5, 2.0, shape),
        "row": lambda: rng.uniform(0.5, 2.0, shape[-1:]),
        "column": lambda: rng.uniform(0.5, 2.0, (*shape[:-1], 1)),
        "scalar": lambda: 1.75,
    }[kind]()


def reduced(losses, reduction, weights):
    """Weights multiply, and a mean divides by the number of elements."""
    losses = losses if weights is None else losses * weights
    return {"none": losses, "sum": losses.sum(), "mean": losses.sum() / losses.size}[reduction]


def tape_gradient(loss, predictions, *args, **options):
    """The tape's gradient of a loss, with ones for the cotangent of an unreduced one."""
    p = Variable(predictions, requires_grad=True)
    with GradientTape() as tape:
        value = loss(p, *args, **options)
    return tape.gradient(value, p, np.ones(value.shape, value.dtype))


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)


# ------------------------------------------------------------------ mean squared error


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_mean_squared_error_equals_its_formula_and_gradient(reduction, weights):
    rng = random(1)
    p, t = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    w = weights_of(weights, (4, 3))
    options = {"reduction": reduction, "weights": w}
    close(od.mean_squared_error(p, t, **options), reduced((p - t) ** 2, reduction, w))
    scale = np.broadcast_to(1.0 if w is None else w, (4, 3)) / (12 if reduction == "mean" else 1)
    expected = 2 * (p - t) * scale
    close(od.compute_mse_gradient(p, t, **options), expected)
    close(tape_gradient(od.mean_squared_error, p, t, **options), expected)
    loss, grad = od.mse_loss_and_grad(p, t, **options)
    close(loss, reduced((p - t) ** 2, reduction, w))
    close(grad, expected)


def test_mean_squared_error_differentiates_in_both_arguments():
    p, t = Variable([1.0, 2.0], True), Variable([3.0, 5.0], True)
    with GradientTape() as tape:
        loss = od.mean_squared_error(p, t)
    gp, gt = tape.gradient(loss, (p, t))
    np.testing.assert_array_equal(gp, [-2.0, -3.0])
    np.testing.assert_array_equal(gt, [2.0, 3.0])


# ------------------------------------------------------------------ binary cross entropy


def binary(p, t):
    return -(t * np.log(p) + (1 - t) * np.log1p(-p))


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("from_logits", [False, True], ids=["probabilities", "logits"])
def test_binary_cross_entropy_equals_its_formula_and_gradient(from_logits, reduction, weights):
    rng = random(2)
    z, t = rng.normal(size=(4, 3)), rng.uniform(size=(4, 3))
    p = 1 / (1 + np.exp(-z))
    w = weights_of(weights, (4, 3))
    options = {"reduction": reduction, "weights": w, "from_logits": from_logits}
    predictions = z if from_logits else p
    expected = reduced(binary(p, t), reduction, w)
    close(od.binary_cross_entropy(predictions, t, **options), expected)
    scale = np.broadcast_to(1.0 if w is None else w, (4, 3)) / (12 if reduction == "mean" else 1)
    slope = (p - t) * scale / (1.0 if from_logits else p * (1 - p))
    close(od.compute_bce_gradient(predictions, t, **options), slope)
    close(tape_gradient(od.binary_cross_entropy, predictions, t, **options), slope)
    loss, grad = od.bce_loss_and_grad(predictions, t, **options)
    close(loss, expected)
    close(grad, slope)


@pytest.mark.parametrize("dtype", ["uint8", "uint32", "int64"])
def test_binary_entropy_of_whole_logits_is_that_of_floating_ones(dtype):
    x, y = np.array([0, 1, 1]).astype(dtype), np.array([1, 0, 1]).astype(dtype)
    expected = od.ops.binary_entropy_with_logits(x.astype("float64"), y.astype("float64"))
    np.testing.assert_allclose(od.ops.binary_entropy_with_logits(x, y), expected, rtol=2e-3)


def test_binary_cross_entropy_of_sure_probabilities_clips_the_logarithm():
    p, t = np.array([0.0, 1.0, 0.0, 1.0]), np.array([0.0, 1.0, 1.0, 0.0])
    loss = od.binary_cross_entropy(p, t, reduction="none")
    np.testing.assert_array_equal(loss, [0.0, 0.0, 100.0, 100.0])
    g = od.compute_bce_gradient(p, t, reduction="sum")
    assert np.isfinite(g).all()
    np.testing.assert_array_equal(np.sign(g), [0.0, 0.0, -1.0, 1.0])
    np.testing.assert_array_equal(tape_gradient(od.binary_cross_entropy, p, t, reduction="sum"), g)


def test_binary_cross_entropy_does_not_clip_small_probabilities():
    p = np.array([1e-30, 1e-20])
    close(od.binary_cross_entropy(p, np.ones(2), reduction="none"), -np.log(p))


def test_binary_cross_entropy_of_large_logits_neither_overflows_nor_rounds_to_zero():
    z, t = np.array([800.0, -800.0, 800.0, -800.0, 40.0]), np.array([1.0, 0.0, 0.0, 1.0, 1.0])
    loss = od.binary_cross_entropy(z, t, from_logits=True, reduction="none")
    np.testing.assert_array_equal(loss[:4], [0.0, 0.0, 800.0, 800.0])
    close(loss[4], np.exp(-40.0))
    g = od.compute_bce_gradient(z, t, from_logits=True, reduction="sum")
    np.testing.assert_array_equal(g[:4], [0.0, 0.0, 1.0, -1.0])


# ------------------------------------------------------------------ cross entropy


def log_softmax(z, axis):
    z = z - z.max(axis, keepdims=True)
    return z - np.log(np.exp(z).sum(axis, keepdims=True))


def one_hot(classes, count, axis):
    return np.moveaxis(np.eye(count)[classes], -1, axis)


def entropy(z, classes, axis, smoothing, ignore):
    """Unreduced losses, their slopes in ``z``, and how many samples count; by loops."""
    q = log_softmax(z, axis)
    count = z.shape[axis]
    losses, slopes, valid = np.zeros(classes.shape), np.zeros(z.shape), 0
    for place in itertools.product(*map(range, classes.shape)):
        c = classes[place]
        if c == ignore:
            continue
        valid += 1
        row = list(place)
        row.insert(axis % z.ndim, slice(None))
        target = np.full(count, smoothing / count)
        target[c] += 1 - smoothing
        losses[place] = -(target * q[tuple(row)]).sum()
        slopes[tuple(row)] = np.exp(q[tuple(row)]) - target
    return losses, slopes, valid


AXES = {"last": ((5, 4), -1), "first": ((4, 5), 0), "middle": ((2, 4, 3), 1)}


@pytest.mark.parametrize("weights", ["unweighted", "full", "row", "scalar"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("ignore", [None, -100, 2], ids=["all", "negative", "class_two"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2], ids=["sharp", "smoothed"])
@pytest.mark.parametrize("axis", AXES)
def test_cross_entropy_equals_its_formula_and_gradient(axis, smoothing, ignore, reduction, weights):
    shape, axis = AXES[axis]
    rng = random(3)
    z = rng.normal(size=shape) * 3
    classes = rng.integers(0, 4, tuple(np.delete(shape, axis)))
    if ignore is not None:
        classes.flat[1] = classes.flat[3] = ignore
    w = weights_of(weights, classes.shape)
    options = {
        "axis": axis,
        "label_smoothing": smoothing,
        "ignore_index": ignore,
        "reduction": reduction,
        "weights": w,
    }
    losses, slopes, valid = entropy(z, classes, axis, smoothing, ignore)
    full = np.broadcast_to(1.0 if w is None else w, classes.shape)
    expected = losses * full
    if reduction != "none":
        expected = expected.sum() / (valid if reduction == "mean" else 1)
    slope = slopes * np.expand_dims(full, axis) / (valid if reduction == "mean" else 1)
    close(od.cross_entropy(z, classes, **options), expected)
    close(od.compute_ce_gradient(z, classes, **options), slope)
    close(tape_gradient(od.cross_entropy, z, classes, **options), slope)
    loss, grad = od.ce_loss_and_grad(z, classes, **options)
    close(loss, expected)
    close(grad, slope)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.2], ids=["sharp", "smoothed"])
@pytest.mark.parametrize("axis", AXES)
def test_one_hot_targets_equal_integer_targets(axis, smoothing, reduction):
    shape, axis = AXES[axis]
    rng = random(4)
    z = rng.normal(size=shape)
    classes = rng.integers(0, 4, tuple(np.delete(shape, axis)))
    options = {"axis": axis, "label_smoothing": smoothing, "reduction": reduction}
    for dtype in (np.float64, np.int64):
        hot = one_hot(classes, 4, axis).astype(dtype)
        close(od.cross_entropy(z, hot, **options), od.cross_entropy(z, classes, **options))
        close(
            od.compute_ce_gradient(z, hot, **options), od.compute_ce_gradient(z, classes, **options)
        )


def test_targets_that_are_probabilities_weigh_the_classes():
    z, t = random(5).normal(size=(3, 4)), random(6).uniform(size=(3, 4))
    q = log_softmax(z, -1)
    close(od.cross_entropy(z, t), -(t * q).sum(-1).mean())
    slope = (np.exp(q) * t.sum(-1, keepdims=True) - t) / 3
    close(od.compute_ce_gradient(z, t), slope)
    close(tape_gradient(od.cross_entropy, z, t), slope)


def test_cross_entropy_of_one_sample_takes_a_single_class():
    z = np.array([1.0, 2.0, 3.0])
    close(od.cross_entropy(z, np.array(2)), -log_softmax(z, 0)[2])
    close(od.compute_ce_gradient(z, np.array(2)), np.exp(log_softmax(z, 0)) - [0, 0, 1])


def test_cross_entropy_of_large_logits_is_exact():
    z = np.array([[1e4, 0.0], [0.0, 1e4]])
    np.testing.assert_array_equal(
        od.cross_entropy(z, np.array([0, 0]), reduction="none"), [0.0, 1e4]
    )


def test_a_logit_of_minus_infinity_is_a_class_that_cannot_be():
    z = np.array([[0.0, -np.inf, 0.0]])
    close(od.cross_entropy(z, np.array([0])), np.log(2.0))
    close(od.compute_ce_gradient(z, np.array([0])), [[-0.5, 0.0, 0.5]])


@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_a_mean_over_ignored_samples_only_is_nan_and_has_gradient_zero(weighted):
    z, classes = random(7).normal(size=(2, 3)), np.array([-1, -1])
    options = {"ignore_index": -1, "weights": np.array([1.0, 2.0]) if weighted else None}
    assert np.isnan(od.cross_entropy(z, classes, **options))
    np.testing.assert_array_equal(od.compute_ce_gradient(z, classes, **options), np.zeros((2, 3)))
    np.testing.assert_array_equal(
        tape_gradient(od.cross_entropy, z, classes, **options), np.zeros((2, 3))
    )


# ------------------------------------------------------------------ what holds for all of them

CASES = {
    "mse": (od.mean_squared_error, od.compute_mse_gradient, od.mse_loss_and_grad),
    "bce": (od.binary_cross_entropy, od.compute_bce_gradient, od.bce_loss_and_grad),
    "ce": (od.cross_entropy, od.compute_ce_gradient, od.ce_loss_and_grad),
}


def arguments(name):
    """Predictions and targets that suit the loss."""
    rng = random(8)
    p = rng.uniform(0.1, 0.9, (4, 3))
    return p, np.array([0, 2, 1, 1]) if name == "ce" else rng.uniform(0.1, 0.9, (4, 3))


@pytest.mark.parametrize("name", CASES)
def test_compute_gradient_finds_the_loss_by_name(name):
    p, t = arguments(name)
    np.testing.assert_array_equal(od.compute_gradient(p, t, loss=name), CASES[name][1](p, t))


def test_compute_gradient_means_mse_and_refuses_other_names():
    p, t = arguments("mse")
    close(od.compute_gradient(p, t), 2 * (p - t) / 12)
    with pytest.raises(OdysseyError, match="loss='banana'; choose one of mse, bce, ce"):
        od.compute_gradient(p, t, loss="banana")


@pytest.mark.parametrize("kind", ["array", "constant", "leaf"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_without_a_tape_are_arrays_whatever_comes(name, kind):
    _, compute, both = CASES[name]
    p, t = arguments(name)
    given = p if kind == "array" else Variable(p, requires_grad=kind == "leaf")
    g = compute(given, t)
    loss, grad = both(given, t)
    assert type(g) is type(grad) is np.ndarray
    assert isinstance(loss, (np.ndarray, np.generic))
    np.testing.assert_array_equal(g, compute(p, t))
    np.testing.assert_array_equal(grad, g)
    targets = Variable(t)
    np.testing.assert_array_equal(compute(given, targets), g)


@pytest.mark.parametrize("name", CASES)
def test_gradients_without_a_tape_record_nothing(name):
    _, compute, both = CASES[name]
    p, t = arguments(name)
    with GradientTape() as tape:
        leaf = Variable(p, requires_grad=True)
        compute(leaf, t)
        both(leaf, t)
    assert len(tape) == 0


@pytest.mark.parametrize("name", CASES)
def test_losses_and_gradients_keep_the_dtype_of_the_predictions(name):
    loss, compute, both = CASES[name]
    p, t = arguments(name)
    p = p.astype(np.float32)
    t = t if name == "ce" else t.astype(np.float32)
    assert compute(p, t).dtype == np.float32
    assert loss(p, t).dtype == np.float32
    assert both(p, t).grad.dtype == np.float32
    assert compute(p, t, weights=np.ones(p.shape[0 if name == "ce" else 1])).dtype == np.float32
    assert tape_gradient(loss, p, t).dtype == np.float32


@pytest.mark.parametrize("name", CASES)
def test_arguments_stay_as_they_are(name):
    loss, compute, both = CASES[name]
    p, t = arguments(name)
    kept = p.copy(), t.copy()
    g = compute(p, t, reduction="sum")
    loss(p, t)
    both(p, t)
    g[...] = 7.0
    np.testing.assert_array_equal(p, kept[0])
    np.testing.assert_array_equal(t, kept[1])


@pytest.mark.parametrize("name", CASES)
def test_an_unknown_reduction_is_refused(name):
    loss, compute, both = CASES[name]
    p, t = arguments(name)
    for fn in (loss, compute, both):
        with pytest.raises(
            OdysseyError, match="reduction='median'; choose 'mean', 'sum' or 'none'"
        ):
            fn(p, t, reduction="median")


@pytest.mark.parametrize("name", ["mse", "bce"])
def test_targets_of_another_shape_are_refused_rather_than_broadcast(name):
    loss, compute, both = CASES[name]
    for fn in (loss, compute, both):
        with pytest.raises(ShapeError, match=r"predictions \(4, 1\) and targets \(4,\) differ"):
            fn(np.full((4, 1), 0.5), np.full(4, 0.5))


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (np.array([0, 1]), r"class numbers of shape \(4,\) or probabilities of shape \(4, 3\)"),
        (np.array([0.0, 1.0, 2.0, 0.0]), "want class numbers"),
        (np.array([0, 1, 2, 3]), r"lie in \[0, 3\], there are 3 classes"),
        (np.array([0, -1, 2, 1]), r"lie in \[-1, 2\].*ignore_index"),
    ],
    ids=["shape", "float", "large", "negative"],
)
def test_class_numbers_that_do_not_fit_are_refused(targets, words):
    for fn in CASES["ce"]:
        with pytest.raises(ShapeError, match=words):
            fn(np.zeros((4, 3)), targets)


def test_losses_of_integers_are_floating():
    assert float(od.mean_squared_error([1, 2], [1, 4])) == 2.0
    np.testing.assert_array_equal(od.compute_mse_gradient([1, 2], [1, 4]), [0.0, -2.0])
    close(od.binary_cross_entropy([0.5, 0.5], [0, 1]), np.log(2.0))
    close(od.cross_entropy([[0, 0]], [1]), np.log(2.0))


@pytest.mark.parametrize("name", CASES)
def test_losses_check_against_differences_to_second_order(name):
    p, t = arguments(name)
    od.testing.check_gradients(lambda p: CASES[name][0](p, t), p)
    od.testing.check_gradients(lambda p: CASES[name][0](p, t, reduction="none"), p)

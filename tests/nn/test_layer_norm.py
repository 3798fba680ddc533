"""Layer norm: at large means and small deviations, at corners, and its second derivative."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.testing import check_gradients

X = np.random.default_rng(0).normal(size=(4, 6))
W = np.random.default_rng(1).normal(size=6)


def exactly(x, axis=-1, eps=1e-5):
    """In long double, whose mean and variance are those of single precision to all its digits."""
    x = x.astype(np.longdouble)
    centred = x - x.mean(axis, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis, keepdims=True) + eps)


@pytest.mark.parametrize("mean", [0.0, 1e2, 1e4, 1e6])
@pytest.mark.parametrize(("dtype", "digits"), [("float32", 1e-7), ("float64", 2e-16)])
def test_a_large_mean_costs_no_more_digits_than_its_rounding(mean, dtype, digits):
    x = (np.random.default_rng(2).normal(size=(3, 257)) + mean).astype(dtype)
    got = ops.layer_norm(x)
    assert np.abs(got - exactly(x)).max() <= 8 * digits * (1 + mean)


@pytest.mark.parametrize("scale", [1e-150, 1e-20, 1e-3, 1e3, 1e150])
def test_without_eps_the_scale_of_x_does_not_matter(scale):
    np.testing.assert_allclose(ops.layer_norm(X * scale, eps=0.0), exactly(X, eps=0.0), rtol=1e-13)
    slope = od.grad(lambda x: ops.sum(ops.layer_norm(x, eps=0.0) ** 3))
    np.testing.assert_allclose(slope(X * scale) * scale, slope(X), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_equal_elements_become_the_bias_and_have_the_slope_of_what_is_centred(dtype):
    x, t = np.full((2, 4), 3.0, dtype), np.array([[1.0, -2.0, 4.0, 1.0]] * 2, dtype)
    bias = np.arange(4, dtype=dtype)
    v = Variable(x, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = ops.layer_norm(v, None, bias, eps=0.25)
    np.testing.assert_array_equal(y.numpy(), np.stack([bias, bias]))
    assert y.dtype == dtype
    np.testing.assert_array_equal(tape.gradient(y, v, t), 2 * (t - 1))
    np.testing.assert_array_equal(tape.jvp(y, v, t), 2 * (t - 1))


def test_half_precision_is_computed_in_single():
    x = (
        np.random.default_rng(3).normal(300.0, 200.0, (2, 64)).astype(np.float16)
    )  # squares overflow
    np.testing.assert_allclose(ops.layer_norm(x), exactly(x), rtol=0, atol=2e-3)
    mixed = ops.layer_norm(x, np.ones(64, np.float32))
    assert mixed.dtype == np.float32
    np.testing.assert_allclose(mixed, exactly(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("corner", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_its_row_nan_and_no_other(corner):
    x = X.copy()
    x[1, 2] = corner
    rest = [0, 2, 3]
    slope = od.grad(lambda x: ops.sum(ops.layer_norm(x, W) * W))
    with np.errstate(all="ignore"):
        y, g = ops.layer_norm(x, W), slope(x)
    assert np.isnan(y[1]).all()
    assert np.isnan(g[1]).all()
    np.testing.assert_array_equal(y[rest], ops.layer_norm(X, W)[rest])
    np.testing.assert_array_equal(g[rest], slope(X)[rest])


def test_second_derivatives_are_right_for_cotangents_that_differ():
    # Equal ones cancel, whatever the rule is.
    c = np.random.default_rng(4).normal(size=X.shape)

    def loss(x, weight, bias):
        return ops.sum(ops.exp(ops.layer_norm(x, weight, bias)) * c)

    check_gradients(loss, X, W, W + 1, order=3)


@pytest.mark.parametrize("shape", [(3, 5), (160, 129)], ids=["small", "large"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_what_is_kept_for_rules_changes_no_bit(monkeypatch, shape, dtype):
    rng = np.random.default_rng(5)
    x, g = (rng.normal(size=shape).astype(dtype) for _ in range(2))
    w, b = (rng.normal(size=shape[1]).astype(dtype) for _ in range(2))

    def found():
        leaves = [Variable(v, requires_grad=True) for v in (x, w, b)]
        with GradientTape(persistent=True) as tape:
            y = ops.layer_norm(*leaves)
        assert ("residual" in tape.nodes[0].saved) == kept
        return [y.numpy(), *tape.gradient(y, leaves, g), tape.jvp(y, leaves, [g, w, b])]

    kept = True
    wanted = found()
    monkeypatch.setattr(ops.OPS["layer_norm"], "with_residual", None)
    kept = False
    for a, b_ in zip(found(), wanted, strict=True):
        np.testing.assert_array_equal(a, b_)


def test_what_broadcasts_to_x_serves_as_weight():
    x = np.random.default_rng(6).normal(size=(2, 3, 4))
    wanted = exactly(x, (0, 2)) * W[:3, None] + W[3:6, None]
    got = ops.layer_norm(x, W[:3, None], W[3:6, None], axis=(0, 2))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("name", "value"), [("layer_norm", 0.0), ("rms_norm", 0.6)])
def test_a_number_without_axes_is_normalized_by_itself(name, value):
    v = Variable(3.0, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = getattr(ops, name)(v, axis=None, eps=16.0)
    assert y.shape == ()
    assert float(y.numpy()) == pytest.approx(value)
    # The derivative of x / sqrt(x**2 + 16).
    slope = {"layer_norm": 0.0, "rms_norm": 16 / 5**3}[name]
    assert float(tape.gradient(y, v)) == pytest.approx(slope)
    assert float(tape.jvp(y, v, np.array(1.0))) == pytest.approx(slope)


NORMS_OF_ROWS = {
    "layer_norm": ops.layer_norm,
    "over the first axis": lambda x: ops.layer_norm(x, axis=0),
    "batch_norm": lambda x: ops.batch_norm(x, training=True),
    "instance_norm": lambda x: ops.instance_norm(x[:, :, None] + np.zeros((1, 1, 9), x.dtype)),
    "group_norm": lambda x: ops.group_norm(x[:, :, None] + np.zeros((1, 1, 9), x.dtype), groups=2),
}


@pytest.mark.parametrize("value", [0.1, 100.1, -3.3e4, 1e5 + 0.1, 1e8 + 0.3, 7e10])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NORMS_OF_ROWS)
def test_rows_of_equal_elements_normalize_to_0(name, dtype, value):
    norm = NORMS_OF_ROWS[name]
    compiled = od.compile(norm)
    for shape in ((6, 10), (2, 1000), (60, 1000)):
        x = np.full(shape, value, dtype)
        np.testing.assert_array_equal(norm(x), 0)
        for _ in range(2):
            got = compiled(x)
        np.testing.assert_array_equal(got, 0)


def test_rows_that_are_almost_constant_are_normalized_as_in_many_digits():
    x = np.full((2, 1000), 1e5, np.float32)
    x[:, ::3] += np.float32(1 / 64)
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(1, keepdims=True)) / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    compiled = od.compile(ops.layer_norm)
    compiled(x)
    # The mean is rounded to 1/128, half of a deviation: no number of the dtype is nearer.
    for out in (ops.layer_norm(x), compiled(x)):
        assert np.abs(out - wanted).max() < 0.6
        assert abs(out.mean()) < 0.5


@pytest.mark.parametrize("shape", [(), (3, 1, 1), (4, 5), (3, 4, 5), (2, 3, 1, 1), (1, 5)])
def test_a_program_normalizes_several_axes_by_rows(shape):
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=shape)
    fn = od.compile(lambda x, w: ops.layer_norm(x, w, None, axis=(2, 3)))
    for _ in range(3):
        got = fn(x, weight)
    centred = x - x.mean((2, 3), keepdims=True)
    wanted = centred / np.sqrt((centred**2).mean((2, 3), keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-14)


def test_a_norm_of_the_last_axes_is_one_loop_nest():
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    fn = od.compile(lambda x: ops.instance_norm(x))
    for _ in range(3):
        fn(x)
    assert "a program of 1 kernels" in str(fn.explain(x))

"""Clipping of gradients by value and by norm."""

import math

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import DTypeError, OdysseyError
from odyssey.optim import SGD, clip_grad_global_norm, clip_grad_norm, clip_grad_value
from support.optimizers import wide

NORMS = {
    "two": (2.0, lambda x: np.sqrt(np.sum(np.abs(x) ** 2))),
    "one": (1.0, lambda x: np.sum(np.abs(x))),
    "three": (3.0, lambda x: np.sum(np.abs(x) ** 3) ** (1 / 3)),
    "largest": (math.inf, lambda x: np.max(np.abs(x), initial=0.0)),
}
norms = pytest.mark.parametrize("norm", NORMS)


def tree(dtype=np.float64):
    """Parameters with gradients in a nest, one without, and a frozen one; and the gradients."""
    rng = np.random.default_rng(3)
    params = {
        "w": Variable(np.zeros((2, 3), dtype), True),
        "b": [Variable(np.zeros((), dtype), True), Variable(np.zeros((0, 2), dtype), True)],
        "c": Variable(np.zeros(4, dtype), True),
        "without": Variable(np.zeros(2, dtype), True),
        "frozen": Variable(np.zeros(2, dtype), True),
    }
    found = [params["w"], *params["b"], params["c"]]
    for p in found:
        values = rng.normal(size=p.shape)
        p.grad = values + 1j * rng.normal(size=p.shape) if p.dtype.kind == "c" else values
    params["frozen"].grad = np.full(2, 1e4)
    params["frozen"].requires_grad = False
    return params, found, [p.grad.copy() for p in found]


@norms
@pytest.mark.parametrize("max_norm", [0.0, 0.5, 100.0])
def test_the_global_norm_is_returned_and_clipped(max_norm, norm):
    norm_type, formula = NORMS[norm]
    params, found, before = tree()
    total = formula(np.concatenate([g.reshape(-1) for g in before]))
    got = clip_grad_global_norm(params, max_norm, norm_type=norm_type)
    assert type(got) is float
    assert got == pytest.approx(total, rel=1e-13)
    factor = min(1.0, max_norm / (total + 1e-6))
    for p, g in zip(found, before, strict=True):
        np.testing.assert_allclose(p.grad, g * factor, rtol=1e-13)
    np.testing.assert_array_equal(params["frozen"].grad, np.full(2, 1e4))
    assert params["without"].grad is None


@norms
def test_the_norm_of_each_is_clipped_by_itself(norm):
    norm_type, formula = NORMS[norm]
    params, found, before = tree()
    assert clip_grad_norm(params, 1.0, norm_type=norm_type) is None
    for p, g in zip(found, before, strict=True):
        np.testing.assert_allclose(p.grad, g * min(1.0, 1.0 / (formula(g) + 1e-6)), rtol=1e-13)
    np.testing.assert_array_equal(params["frozen"].grad, np.full(2, 1e4))


def test_values_are_clipped_on_both_sides():
    params, found, before = tree()
    assert clip_grad_value(params, 0.5) is None
    for p, g in zip(found, before, strict=True):
        np.testing.assert_array_equal(p.grad, np.clip(g, -0.5, 0.5))


@pytest.mark.parametrize("name", ["float16", "float32", "complex64"])
def test_gradients_keep_their_dtype(name):
    params, found, before = tree(np.dtype(name))
    total = clip_grad_global_norm(params, 0.5)
    wide_g = np.concatenate([g.reshape(-1) for g in before]).astype(np.complex128)
    assert total == pytest.approx(np.linalg.norm(wide_g), rel=1e-3)
    for p, g in zip(found, before, strict=True):
        assert p.grad.dtype == g.dtype
        np.testing.assert_allclose(p.grad, g * (0.5 / total), rtol=2e-3)


def test_half_precision_does_not_overflow_in_the_norm():
    w = Variable(np.zeros(2, np.float16), requires_grad=True)
    w.grad = [3000.0, 4000.0]
    assert clip_grad_global_norm([w], 1.0) == pytest.approx(5000.0)
    np.testing.assert_allclose(w.grad, [0.6, 0.8], rtol=1e-3)


@pytest.mark.parametrize("clip", [clip_grad_norm, clip_grad_global_norm])
def test_half_precision_is_scaled_by_factors_that_are_too_small_for_it(clip):
    w = Variable(np.zeros(30_000, np.float16), requires_grad=True)
    w.grad = np.full(w.size, 6e4, np.float16)  # whose factor is 1e-7, of which half has one digit
    clip([w], 1.0)
    assert w.grad.dtype == np.float16
    np.testing.assert_allclose(w.grad, 30_000**-0.5, rtol=1e-3)


def test_a_gradient_within_bounds_keeps_its_bits():
    _, found, before = tree()
    clip_grad_global_norm(found, 1e3)
    clip_grad_norm(found, 1e3)
    clip_grad_value(found, 1e3)
    for p, g in zip(found, before, strict=True):
        np.testing.assert_array_equal(p.grad, g)


def test_gradients_of_a_sweep_are_clipped_and_the_returned_mapping_is_not():
    w = wide([3.0, 4.0])
    with GradientTape() as tape:
        loss = 0.5 * (w * w).sum()
    gradients = tape.backward(loss)
    clip_grad_global_norm([w], 1.0)
    np.testing.assert_array_equal(gradients[w], [3.0, 4.0])
    np.testing.assert_allclose(w.grad, np.array([0.6, 0.8]), rtol=1e-6)


def test_a_norm_that_is_nan_makes_all_gradients_nan():
    a, b = wide([1.0]), wide([1.0])
    a.grad, b.grad = [np.nan], [1.0]
    assert math.isnan(clip_grad_global_norm([a, b], 1.0))
    assert np.isnan(a.grad).all()
    assert np.isnan(b.grad).all()


def test_an_infinite_norm_leaves_finite_gradients_at_0():
    a, b = wide([1.0]), wide([1.0])
    a.grad, b.grad = [np.inf], [1.0]
    with np.errstate(invalid="ignore"):
        assert clip_grad_global_norm([a, b], 1.0) == math.inf
    assert np.isnan(a.grad).all()
    np.testing.assert_array_equal(b.grad, [0.0])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_can_be_refused(value):
    a, b = wide([1.0]), wide([1.0])
    a.grad, b.grad = [value], [1.0]
    with pytest.raises(OdysseyError, match=r"norm of the gradients is (nan|inf)"):
        clip_grad_global_norm([a, b], 0.5, error_if_nonfinite=True)
    np.testing.assert_array_equal(b.grad, [1.0])


def test_nan_stays_nan_when_values_are_clipped():
    w = wide([1.0, 1.0])
    w.grad = [np.nan, np.inf]
    clip_grad_value(w, 2.0)
    np.testing.assert_array_equal(w.grad, [np.nan, 2.0])


def test_no_gradients_have_norm_0():
    assert clip_grad_global_norm([wide(1.0)], 1.0) == 0.0
    assert clip_grad_global_norm([], 1.0) == 0.0


@pytest.mark.parametrize(
    "clip",
    [
        lambda params: clip_grad_global_norm(params, 0.1),
        lambda params: clip_grad_norm(params, 0.1),
        lambda params: clip_grad_value(params, 0.01),
    ],
    ids=["global_norm", "norm", "value"],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_compiled_step_clips_as_an_eager_one(dtype, clip):
    def training():
        rng = np.random.default_rng(0)
        params = [Variable(rng.normal(size=s).astype(dtype), True) for s in ((4, 3), (3,))]
        optimizer = SGD(params, 0.5)

        def train(x):
            with GradientTape() as tape:
                loss = ((x @ params[0] + params[1]) ** 2).mean()
            tape.backward(loss)
            norm = clip(params)
            optimizer.step()
            optimizer.zero_grad()
            return norm

        return train, params

    (eager, expected), (train, params) = training(), training()
    compiled = od.compile(train)
    for k in range(3):
        x = np.random.default_rng(k).normal(size=(8, 4)).astype(dtype)
        norm, got = eager(x), compiled(x)
        if norm is not None:
            assert float(got) == pytest.approx(norm, rel=1e-5)
    for p, q in zip(params, expected, strict=True):
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-5 if dtype == "float32" else 1e-13)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda w: clip_grad_value(w, -1.0), OdysseyError, "clip_grad_value: limit=-1.0"),
        (lambda w: clip_grad_norm(w, math.nan), OdysseyError, "clip_grad_norm: max_norm=nan"),
        (
            lambda w: clip_grad_global_norm(w, -1),
            OdysseyError,
            "clip_grad_global_norm: max_norm=-1",
        ),
        (
            lambda w: clip_grad_norm([np.ones(2)], 1.0),
            DTypeError,
            r"\[0\] is array.*pass Variables",
        ),
        (lambda w: clip_grad_value(w, 1.0), DTypeError, "complex numbers have no order"),
    ],
    ids=["limit", "nan", "negative", "array", "complex"],
)
def test_what_cannot_be_clipped_is_refused(call, error, words):
    w = Variable(np.ones(2, complex), requires_grad=True)
    w.grad = [1.0, 1j]
    with pytest.raises(error, match=words):
        call(w)

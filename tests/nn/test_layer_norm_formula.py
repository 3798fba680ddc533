"""Normalization, with and without a weight: against its formula, peers, and at the corners."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError

mpmath = pytest.importorskip("mpmath", reason="a test dependency: pip install -e '.[test]'")
X = np.random.default_rng(0).normal(size=(2, 3, 4))
W = np.random.default_rng(1).normal(size=4)


def by_formula(x, weight=1.0, axis=-1, eps=1e-6):
    return x / np.sqrt(np.mean(x * x, axis, keepdims=True) + eps) * weight


@pytest.mark.parametrize("axis", [-1, 0, (1, 2), (-2, 0), None])
@pytest.mark.parametrize("weight", [None, W, np.ones((3, 1)), np.array(2.0)])
def test_values_are_those_of_the_formula(axis, weight):
    got = ops.rms_norm(X, weight, axis=axis, eps=0.25)
    wanted = by_formula(X, 1.0 if weight is None else weight, axis, 0.25)
    np.testing.assert_allclose(got, wanted, rtol=1e-14)
    assert od.nn.rms_norm is ops.rms_norm


def test_an_absent_weight_is_one_of_ones_and_has_no_gradient():
    v, w = Variable(X, requires_grad=True), Variable(np.ones(4), requires_grad=True)
    with GradientTape() as tape:
        y = (ops.rms_norm(v) ** 3).sum()
    with GradientTape() as other:
        z = (ops.rms_norm(v, w) ** 3).sum()
    assert repr(tape.nodes[0]).startswith("TapeNode(#2: float64[2, 3, 4] = rms_norm(#1, None)")
    bare, (beside, of_w) = tape.gradient(y, v), other.gradient(z, (v, w))
    np.testing.assert_allclose(bare, beside, rtol=1e-14)
    np.testing.assert_allclose(of_w, 3 * (by_formula(X) ** 3).sum((0, 1)), rtol=1e-13)
    by_hand = od.backward.rms_norm(np.ones_like(X), X, None)
    assert by_hand[1] is None
    np.testing.assert_array_equal(by_hand[0], od.backward.rms_norm(np.ones_like(X), X)[0])
    graph = od.compile(lambda x: ops.rms_norm(x)).lower(X).graph
    assert "rms_norm(%0, None, axis=(2,), eps=1e-06)" in str(graph)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_of_zeros_have_the_derivatives_of_a_product(dtype):
    x, t = np.zeros((2, 3), dtype), np.array([[1.0, -2.0, 4.0]] * 2, dtype)
    v = Variable(x, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = ops.rms_norm(v, eps=0.25)
        g = tape.gradient(y, v, t, create_graph=True)
    np.testing.assert_array_equal(y.numpy(), x)
    np.testing.assert_array_equal(g.numpy(), 2 * t)
    np.testing.assert_array_equal(tape.jvp(y, v, t), 2 * t)
    np.testing.assert_array_equal(tape.gradient(g, v, t), x)  # odd in x


@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-5, 1.0, 1e5, 1e150])
def test_derivatives_are_right_from_the_smallest_to_large_numbers(scale):
    x, c, t = np.array([1.0, -2.0, 4.0]) * scale, np.array([1.0, 0.5, -1.5]), np.ones(3)
    with mpmath.mp.workdps(1000):

        def along(s, direction):
            values = [
                mpmath.mpf(float(a)) + s * mpmath.mpf(float(d))
                for a, d in zip(x, direction, strict=True)
            ]
            root = mpmath.sqrt(sum(v * v for v in values) / 3 + mpmath.mpf(1e-6))
            return sum(mpmath.mpf(float(k)) * v / root for k, v in zip(c, values, strict=True))

        h = mpmath.mpf(10) ** -400
        wanted = [float((along(h, e) - along(-h, e)) / (2 * h)) for e in np.eye(3)]
    v = Variable(x, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = ops.rms_norm(v)
    size = np.abs(wanted).max()
    np.testing.assert_allclose(tape.gradient(y, v, c), wanted, rtol=1e-13, atol=1e-13 * size)
    np.testing.assert_allclose(c @ tape.jvp(y, v, t), np.sum(wanted), rtol=1e-12, atol=1e-12 * size)


@pytest.mark.parametrize("corner", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_makes_its_row_not_finite_and_no_other(corner):
    x = np.array([[1.0, corner, 2.0], [1.0, 3.0, 2.0]])
    with np.errstate(all="ignore"):
        y = ops.rms_norm(x)
        g = od.grad(lambda x: ops.sum(ops.rms_norm(x) * W[:3]))(x)
    assert np.isnan(y[0, 1])
    assert np.isnan(g[0]).any()
    np.testing.assert_array_equal(g[1:], od.grad(lambda x: ops.sum(ops.rms_norm(x) * W[:3]))(x[1:]))


def test_half_precision_squares_in_single():
    x = np.array([300.0, -400.0], np.float16)
    np.testing.assert_allclose(ops.rms_norm(x), by_formula(x.astype(float)), rtol=1e-3)
    g = od.grad(lambda x: ops.sum(ops.rms_norm(x) * np.array([1, 0], np.float16)))(x)
    np.testing.assert_allclose(
        g, od.grad(lambda x: ops.sum(ops.rms_norm(x) * np.array([1.0, 0.0])))(x.astype(float)), 1e-2
    )


def test_options_that_cannot_be_meant_are_refused():
    with pytest.raises(DTypeError, match=r"^rms_norm: eps is .*static, pass a real number"):
        ops.rms_norm(X, eps=np.ones(2))
    with pytest.raises(DTypeError, match=r"has no meaning for complex numbers|needs real numbers"):
        ops.rms_norm(X * 1j)
    with pytest.raises(ShapeError, match=r"rms_norm: weight \(3,\) for x \(2, 3, 4\)"):
        ops.rms_norm(X, np.ones(3))


@pytest.mark.peers
def test_values_and_derivatives_to_second_order_are_those_of_torch():
    torch = pytest.importorskip("torch")
    v, w = Variable(X, requires_grad=True), Variable(W, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = (ops.rms_norm(v, w, eps=0.01) ** 3).sum()
        first = tape.gradient(y, (v, w), create_graph=True)
        z = (first[0] ** 2).sum() + (first[1] ** 2).sum()
    second = tape.gradient(z, (v, w))
    a, b = torch.tensor(X, requires_grad=True), torch.tensor(W, requires_grad=True)
    loss = (torch.nn.functional.rms_norm(a, (4,), b, 0.01) ** 3).sum()
    ours = torch.autograd.grad(loss, (a, b), create_graph=True)
    theirs = torch.autograd.grad((ours[0] ** 2).sum() + (ours[1] ** 2).sum(), (a, b))
    np.testing.assert_allclose(float(y), loss.item(), rtol=1e-12)
    for got, wanted in zip((*first, *second), (*ours, *theirs), strict=True):
        wanted = wanted.detach().numpy()
        np.testing.assert_allclose(
            np.asarray(od.Variable(got).numpy()), wanted, rtol=1e-9, atol=1e-10
        )

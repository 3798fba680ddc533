"""What an op's ``forward`` leaves for its rules: used where it is, missed nowhere."""

import gc
import weakref

import numpy as np
import pytest
from cases import assert_same

import odyssey as od
from odyssey import GradientTape, Variable, losses, ops
from odyssey.errors import ShapeError
from odyssey.ops import OPS
from odyssey.testing import check_gradients, count_kernels

X = np.array([0.5, -1.25, 2.0])


class Product(np.ndarray):
    """An array that can be watched as it goes."""


seen = []


def _forward(x, y):
    if x.size == 0:
        return None
    residual = (x + y).view(Product)
    return x * (x + y), residual


def _rule_x(g, x, y, residual=None):
    seen.append(residual)
    total = ops.add(x, y) if residual is None else np.asarray(residual)
    return ops.mul(g, ops.add(x, total))


@od.op(
    elementwise=True,
    forward=_forward,
    vjp={"x": _rule_x, "y": lambda g, x: ops.mul(g, x)},
)
def grown(x, y, /):
    """``x * (x + y)``."""
    return x * (x + y)


@pytest.fixture(autouse=True)
def nothing_seen():
    seen.clear()


def leaf(data=X):
    return Variable(data, requires_grad=True)


def test_a_rule_gets_the_residual_of_its_call():
    x, y = leaf(), leaf(X + 1)
    with GradientTape(persistent=True) as tape:
        z = grown(x, y)
    assert_same(tape.gradient(z, x, np.ones(3)), 3 * X + 1.0)
    assert [type(r) for r in seen] == [Product]
    assert_same(tape.jvp(z, x, np.ones(3)), 3 * X + 1.0)
    assert [type(r) for r in seen] == [Product] * 2
    assert tape.nodes[0].saved["residual"] is seen[0]


def test_the_kernel_runs_where_forward_gives_nothing():
    x = leaf(np.zeros((0, 2)))
    with count_kernels() as counts, GradientTape() as tape:
        z = grown(x, 1.0)
    assert counts["grown"] == 0  # which counts the table's ops alone
    assert tape.gradient(z, x, np.zeros((0, 2))).shape == (0, 2)
    assert seen == [None]


def test_a_sweep_that_is_recorded_does_without_the_residual():
    x, y = leaf(), leaf(X + 1)
    with GradientTape(persistent=True) as tape:
        z = grown(x, y).sum()
        slope = tape.gradient(z, x, create_graph=True).sum()
    assert seen == [None]
    assert_same(tape.gradient(slope, x), np.full(3, 2.0))
    check_gradients(grown, X, X + 1)


def test_a_manual_record_does_without_one():
    logits, targets = np.ones((2, 3)), np.array([0, 2])
    x = leaf(logits)
    with GradientTape() as tape:
        out = tape.constant(losses.cross_entropy(logits, targets))
        tape.record("softmax_cross_entropy", [x, tape.constant(targets)], out)
        assert "residual" not in tape.nodes[0].saved
    by_hand = tape.gradient(out, x)
    with GradientTape() as tape:
        y = losses.cross_entropy(x, targets)
        assert "residual" in tape.nodes[0].saved
    assert_same(by_hand, tape.gradient(y, x))


def test_residuals_go_with_the_node():
    x, y = leaf(), leaf(X + 1)
    with GradientTape() as tape:
        z = grown(x, y)
    gc.disable()
    try:
        ref = weakref.ref(tape.nodes[0].saved["residual"])
        assert tape.memory().total >= ref().nbytes
        tape.backward(z, np.ones(3))
        seen.clear()
        assert ref() is None
    finally:
        gc.enable()


# ------------------------------------------------------------------ cross entropy


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_the_residual_of_cross_entropy_changes_no_bit(monkeypatch, dtype, reduction):
    rng = np.random.default_rng(3)
    logits = rng.standard_normal((7, 5)).astype(dtype) * 4
    targets = rng.integers(0, 5, 7)
    row = OPS["softmax_cross_entropy"]

    def found():
        x = leaf(logits)
        with GradientTape(persistent=True) as tape:
            y = losses.cross_entropy(x, targets, reduction=reduction)
        assert ("residual" in tape.nodes[0].saved) == (row.forward is not None)
        g = np.linspace(1, 2, y.size, dtype=dtype).reshape(y.shape)
        tangent = rng.standard_normal(logits.shape).astype(dtype) * 0 + 0.5
        return y.numpy(), tape.gradient(y, x, g), tape.jvp(y, x, tangent)

    with_residual = found()
    monkeypatch.setattr(row, "forward", None)
    for a, b in zip(with_residual, found(), strict=True):
        assert_same(a, b)


def test_another_kernel_is_not_passed_by():
    x = leaf(np.ones((2, 3)))
    with count_kernels() as counts, GradientTape() as tape:
        y = losses.cross_entropy(x, np.array([0, 2]))
    assert counts["softmax_cross_entropy"] == 1
    assert "residual" not in tape.nodes[0].saved
    with GradientTape() as tape:
        y = losses.cross_entropy(x, np.array([0, 2]))
    assert "residual" in tape.nodes[0].saved
    tape.backward(y)
    with pytest.raises(ShapeError, match="there are 3 classes"), GradientTape():
        losses.cross_entropy(x, np.array([0, 3]))

"""What an op's ``with_residual`` leaves for its rules: used where it is, missed nowhere."""

import gc
import weakref

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, losses, ops
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.ops import OPS
from odyssey.testing import check_gradients, count_kernels
from support.cases import assert_same

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
    with_residual=_forward,
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


# ------------------------------------------------------------------ declared by others


def test_a_rule_that_takes_no_residual_gets_its_own_specs():
    @od.op(
        with_residual=lambda x, y: (np.asarray(x.sum() * y.sum()), y.sum()),
        vjp={
            "x": lambda g, y, x_spec, residual=None: ops.broadcast_to(
                ops.mul(g, ops.sum(y) if residual is None else residual), x_spec.shape
            ),
            "y": lambda g, x, x_spec, y_spec: ops.broadcast_to(
                ops.mul(g, ops.sum(x)), y_spec.shape
            ),
        },
    )
    def sums(x, y, /):
        return np.asarray(x.sum() * y.sum())

    x, y = leaf(np.ones((2, 3))), leaf(np.ones(3))
    with GradientTape() as tape:
        z = sums(x, y)
    of_x, of_y = tape.gradient(z, [x, y])
    assert_same(of_x, np.full((2, 3), 3.0))
    assert_same(of_y, np.full(3, 6.0))


def test_residual_is_a_name_like_others_where_no_forward_is():
    @od.op(elementwise=True, vjp={"x": lambda g, residual: ops.mul(g, 2.0 if residual else 3.0)})
    def scaled(x, /, residual=True):
        return x * (2.0 if residual else 3.0)

    @od.op(elementwise=True, vjp={"x": lambda g, residual: ops.mul(g, residual), "residual": None})
    def prod(x, residual, /):
        return x * residual

    w = leaf()
    with GradientTape(persistent=True) as tape:
        y, z = scaled(w).sum(), prod(w, X).sum()
    assert_same(tape.gradient(y, w), np.full(3, 2.0))
    assert_same(tape.gradient(z, w), X)
    with pytest.raises(OdysseyError, match="names residual"):
        od.op(elementwise=True, vjp={"x": lambda g, residual=None: g})(lambda x, /: x)


@pytest.mark.parametrize("residual", ["operand", "view", "tuple"])
def test_a_residual_shares_no_memory_with_what_others_may_write_to(residual):
    pick = {"operand": lambda y: y, "view": lambda y: y[:], "tuple": lambda y: (y, y[::-1])}

    def rule(g, y, residual=None):
        if residual is None:
            return ops.mul(g, y)
        return ops.mul(g, residual[0] if type(residual) is tuple else residual)

    @od.op(
        elementwise=True,
        with_residual=lambda x, y: (x * y, pick[residual](y)),
        vjp={"x": rule, "y": lambda g, x: ops.mul(g, x)},
    )
    def prod(x, y, /):
        return x * y

    v, c, w = leaf(np.ones(4)), np.full(4, 3.0), leaf(np.full(4, 3.0))
    with GradientTape() as tape:
        z = prod(v, c).sum()
    c[...] = 100.0
    assert_same(tape.gradient(z, v), np.full(4, 3.0))
    with GradientTape() as tape:
        z = prod(v, w.detach()).sum()
    w.assign(50.0)
    assert_same(tape.gradient(z, v), np.full(4, 3.0))


def test_a_linear_op_moves_forward_beside_its_residual():
    @od.op(
        linear=True,
        with_residual=lambda x, k: (x * k, np.array(k)),
        vjp={"x": lambda g, k, residual=None: ops.mul(g, k)},
    )
    def times(x, /, k=2.0):
        return x * k

    x = leaf(np.ones(3))
    with GradientTape(persistent=True) as tape:
        z = times(x, 3.0)
    assert_same(tape.jvp(z, x, np.ones(3)), np.full(3, 3.0))
    assert_same(tape.gradient(z, x, np.ones(3)), np.full(3, 3.0))


def test_a_rule_may_take_whatever_comes():
    @od.op(elementwise=True, vjp={"x": lambda *a: ops.mul(a[0], 2.0)})
    def doubled(x, /):
        return x * 2.0

    w = leaf()
    with GradientTape() as tape:
        y = doubled(w).sum()
    assert_same(tape.gradient(y, w), np.full(3, 2.0))


def test_a_careful_tape_goes_by_what_it_can_check():
    box = []

    def forward(x):
        box.append(np.cos(x))
        return np.sin(x), box[-1]

    @od.op(
        elementwise=True,
        with_residual=forward,
        vjp={"x": lambda g, x, residual=None: ops.mul(g, ops.cos(x))},
    )
    def sine(x, /):
        return np.sin(x)

    w = leaf()
    with GradientTape(check=True) as tape:
        y = sine(w).sum()
    assert box == []
    assert_same(tape.gradient(y, w), np.cos(X))


def test_forward_cannot_return_what_the_op_refuses():
    @od.op(
        real=True,
        elementwise=True,
        with_residual=lambda x: (x * 2, x),
        vjp={"x": lambda g, residual=None: ops.mul(g, 2.0)},
    )
    def doubled(x, /):
        return x * 2

    with GradientTape(), pytest.raises(DTypeError, match="no meaning for complex"):
        doubled(leaf(X + 1j))


@pytest.mark.parametrize("residual", [None, 2.0, (X, None)], ids=["none", "number", "tuple"])
def test_a_residual_may_be_a_number_or_missing(residual):
    @od.op(
        elementwise=True,
        with_residual=lambda x: (x * 2, residual),
        vjp={"x": lambda g, residual=None: ops.mul(g, 2.0)},
    )
    def doubled(x, /):
        return x * 2

    w = leaf()
    with GradientTape() as tape:
        y = doubled(w).sum()
    assert_same(tape.gradient(y, w), np.full(3, 2.0))


def test_a_residual_that_is_no_array_is_refused():
    @od.op(
        elementwise=True,
        with_residual=lambda x: (x * 2, [1]),
        vjp={"x": lambda g, residual=None: ops.mul(g, 2.0)},
    )
    def doubled(x, /):
        return x * 2

    with GradientTape(), pytest.raises(OdysseyError, match=r"with_residual left list \[1\]"):
        doubled(leaf())


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
        assert ("residual" in tape.nodes[0].saved) == (row.with_residual is not None)
        g = np.linspace(1, 2, y.size, dtype=dtype).reshape(y.shape)
        tangent = rng.standard_normal(logits.shape).astype(dtype) * 0 + 0.5
        return y.numpy(), tape.gradient(y, x, g), tape.jvp(y, x, tangent)

    with_residual = found()
    monkeypatch.setattr(row, "with_residual", None)
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


def test_a_number_for_logits_gets_the_error_that_it_gets_elsewhere():
    with GradientTape(), pytest.raises(ShapeError, match="cross_entropy"):
        ops.softmax_cross_entropy(1.0, Variable(np.array(0)))


def test_the_slope_in_long_double_is_one():
    logits = np.array([[0, -100], [3, 1], [1, 2]], np.longdouble)
    targets = np.array([0, 0, 1])
    x = leaf(logits)
    with GradientTape() as tape:
        y = losses.cross_entropy(x, targets)
    e = np.exp(logits - logits.max(1, keepdims=True))
    wanted = (e / e.sum(1, keepdims=True) - np.eye(2, dtype=np.longdouble)[targets]) / 3
    np.testing.assert_allclose(
        tape.gradient(y, x), wanted, rtol=0, atol=8 * float(np.finfo(np.longdouble).eps)
    )

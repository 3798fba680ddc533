"""Variables of bfloat16: made, printed, indexed, differentiated and drawn as others are."""

import copy
import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def leaf(*shape, seed=0):
    numbers = np.random.default_rng(seed).normal(size=shape)
    return Variable(numbers, requires_grad=True, dtype="bfloat16")


@pytest.mark.parametrize(
    "made",
    [
        lambda: Variable([1.5, 2.0], dtype="bfloat16"),
        lambda: Variable([1.5, 2.0], dtype=ml_dtypes.bfloat16),
        lambda: Variable(np.array([1.5, 2.0], BFLOAT16)),
        lambda: Variable([1.5, 2.0]).astype("bfloat16"),
        lambda: ops.astype(Variable(np.array([1.5, 2.0], np.float16)), BFLOAT16),
        lambda: Variable(ops.astype([1.5, 2.0], "bfloat16")),
        lambda: Variable(ops.full_like([0.0, 0.0], [1.5, 2.0], dtype="bfloat16")),
        lambda: Variable(ops.linspace(1.5, 2.0, 2, dtype="bfloat16")),
        lambda: ops.array([Variable(1.5, dtype="bfloat16"), 2.0]),
        lambda: pickle.loads(pickle.dumps(Variable([1.5, 2.0], dtype="bfloat16"))),
        lambda: copy.deepcopy(Variable([1.5, 2.0], dtype="bfloat16")),
    ],
    ids=[
        *("name", "scalar type", "array", "method", "from float16", "op", "full_like", "linspace"),
        *("array of Variables", "pickle", "copy"),
    ],
)
def test_a_variable_of_bfloat16_is_made_of(made):
    x = made()
    assert x.dtype == x.numpy().dtype == BFLOAT16
    assert x.numpy().tolist() == [1.5, 2.0]


def test_it_is_printed_converted_and_compared():
    x = Variable([[1.5, 2.0]], requires_grad=True, dtype="bfloat16", name="x")
    assert repr(x) == (
        "Variable([[1.5, 2]], shape=(1, 2), dtype=bfloat16, name='x', requires_grad=True)"
    )
    assert "bfloat16" in x._repr_html_()
    assert float(x[0, 0]) == x[0, 0].item() == 1.5
    assert bool(x[0, 1])
    assert (x > 1.75).numpy().tolist() == [[False, True]]
    assert x.astype(np.float32).dtype == np.float32
    assert x.T.shape == (2, 1)
    assert [row.dtype for row in x] == [BFLOAT16]


def test_indexing_assignment_and_steps_keep_it():
    w = leaf(4)
    before = w.numpy()
    with GradientTape() as tape:
        y = w * 2
        y[0] = 3.0
        y[1:3] = w[:2]
        y[3] = np.float32(0.1)
        loss = ops.sum(y)
    assert y.dtype == BFLOAT16
    assert tape.gradient(loss, w).tolist() == [1, 1, 0, 0]
    w.assign(np.full(4, 0.1))
    assert w.dtype == BFLOAT16
    assert w.numpy().tolist() == [0.10009765625] * 4
    w.data = before
    np.testing.assert_array_equal(w.numpy(), before)
    with pytest.raises(DTypeError, match="complex"):
        w.assign(np.ones(4, complex))


def test_functions_of_numpy_on_it_keep_it():
    x = leaf(3, 4)
    for found in (
        np.sin(x),
        np.sum(x, axis=0),
        np.mean(x),
        np.max(x),
        np.std(x, axis=0),
        np.concatenate([x, x]),
        np.where(x > 0, x, 0),
        np.einsum("ij,kj->ik", x, x),
        np.clip(x, -1, 1),
        np.ones((3, 4), BFLOAT16) * x,
        np.float64(2.0).item() * x,
        x.sum(0),
        x.max(),
        x**2,
        2 / x,
        x @ x.T,
        x - np.ones((3, 4), BFLOAT16),
    ):
        assert found.dtype == BFLOAT16
    assert np.sum(x, dtype=np.float32).dtype == np.float32


def test_tapes_of_it_have_all_their_ways():
    w = leaf(3, 3)
    with GradientTape(persistent=True) as tape:
        y = ops.softmax(w @ w, axis=-1)
        loss = ops.sum(ops.square(y))
    assert loss.dtype == BFLOAT16
    assert tape.gradient(loss, w).dtype == BFLOAT16
    assert tape.jvp(y, w, np.ones((3, 3), BFLOAT16)).dtype == BFLOAT16
    assert tape.memory().total == 36  # 2 bytes for each element of w and of y
    tape.backward(loss)
    assert w.grad.dtype == BFLOAT16
    once = np.array(w.grad)
    tape.backward(loss)
    np.testing.assert_array_equal(w.grad, once * BFLOAT16.type(2))
    with GradientTape(check=True) as careful:
        total = ops.sum(ops.exp(w))
    np.testing.assert_allclose(
        careful.gradient(total, w).astype(float), np.exp(w.numpy().astype(float)), rtol=2.0**-8
    )
    with GradientTape() as outer:
        with GradientTape() as inner:
            cube = ops.sum(w**3)
        slope = inner.gradient(cube, w, create_graph=True)
        total = ops.sum(slope)
    np.testing.assert_allclose(
        outer.gradient(total, w).astype(float), 6 * w.numpy().astype(float), rtol=2.0**-7
    )


def test_transforms_of_it_agree_with_float64():
    x = leaf(3)
    exact = x.numpy().astype(float)

    def f(v):
        return ops.tanh(v) * 2

    slope = 2 / np.cosh(exact) ** 2
    value, grad = od.value_and_grad(lambda v: ops.sum(f(v)))(x)
    out, moved = od.jvp(f, (x,), (np.ones(3, BFLOAT16),))
    pulled = od.vjp(f, x)[1](np.ones(3, BFLOAT16))
    checkpointed = od.grad(lambda v: ops.sum(od.checkpoint(f)(v)))(x)
    assert value.dtype == out.dtype == BFLOAT16
    for found in (grad, moved, *pulled, np.diagonal(od.jacobian(f)(x)), checkpointed):
        assert found.dtype == BFLOAT16
        np.testing.assert_allclose(np.asarray(found).astype(float), slope, rtol=2.0**-6)
    od.testing.check_gradients(lambda v: ops.sum(f(v)), x)


def test_control_flow_carries_it():
    x = leaf(3)

    def step(carry, row):
        carry = ops.mul(carry, 0.5) + row * x
        return carry, carry

    with GradientTape() as tape:
        last, rows = od.scan(
            step, Variable(np.zeros(3), dtype="bfloat16"), np.ones((4, 3), BFLOAT16)
        )
        loss = ops.sum(rows)
    assert last.dtype == rows.dtype == BFLOAT16
    np.testing.assert_allclose(tape.gradient(loss, x).astype(float), 6.125, rtol=2.0**-8)
    assert od.cond(np.array(True), lambda v: v * 2, lambda v: v, x).dtype == BFLOAT16
    grown = od.while_loop(lambda v: ops.sum(v) < 10, lambda v: v + 1, x)
    assert grown.dtype == BFLOAT16


def test_random_numbers_and_initial_weights_of_it():
    rng = od.Generator(7)
    u = ops.random_uniform((1000,), low=-1.0, high=1.0, dtype="bfloat16", rng=rng)
    z = ops.random_normal((1000,), dtype=BFLOAT16, rng=rng)
    assert u.dtype == z.dtype == BFLOAT16
    assert abs(float(np.mean(u.astype(float)))) < 0.1
    assert (u >= -1).all()
    assert (u < 1).all()
    assert abs(float(np.std(z.astype(float))) - 1) < 0.1
    assert od.init.he_normal(rng, (64, 64), dtype="bfloat16").dtype == BFLOAT16
    assert od.init.orthogonal(rng, (4, 4), dtype="bfloat16").dtype == BFLOAT16
    dropped = ops.dropout(leaf(100), rate=0.5, rng=rng)
    assert dropped.dtype == BFLOAT16
    assert 0 < int((dropped.numpy() == 0).sum()) < 100


LOSSES = {
    "mean_squared_error": lambda z, p, t: od.losses.mean_squared_error(z, p),
    "mean_absolute_error": lambda z, p, t: od.losses.mean_absolute_error(z, p),
    "huber": lambda z, p, t: od.losses.huber(z, p),
    "cross_entropy": lambda z, p, t: od.losses.cross_entropy(z, t),
    "cross_entropy of probabilities": lambda z, p, t: od.losses.cross_entropy(z, p),
    "label smoothing": lambda z, p, t: od.losses.cross_entropy(z, t, label_smoothing=0.1),
    "binary_cross_entropy": lambda z, p, t: od.losses.binary_cross_entropy(z, p, from_logits=True),
    "kl_divergence": lambda z, p, t: od.losses.kl_divergence(ops.log_softmax(z), p),
    "nll": lambda z, p, t: od.losses.nll(ops.log_softmax(z), t),
    "focal": lambda z, p, t: od.losses.focal(z, ops.round(p)),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=list(LOSSES))
def test_losses_of_it_agree_with_float64(loss):
    z, targets = leaf(3, 4), np.array([0, 3, 1])
    p = np.full((3, 4), 0.25, BFLOAT16)
    wide = Variable(z.numpy().astype(float), requires_grad=True)
    with GradientTape() as tape:
        found = loss(z, p, targets)
    with GradientTape() as wide_tape:
        wanted = loss(wide, p.astype(float), targets)
    assert found.dtype == BFLOAT16
    np.testing.assert_allclose(float(found), float(wanted), rtol=2.0**-7, atol=2.0**-8)
    exact = wide_tape.gradient(wanted, wide)
    np.testing.assert_allclose(
        tape.gradient(found, z).astype(float), exact, rtol=0, atol=2.0**-6 * np.abs(exact).max()
    )


WITHOUT = {
    "Variable": lambda: Variable([1.0], dtype="bfloat16"),
    "astype": lambda: ops.astype(np.ones(3), "bfloat16"),
    "method": lambda: Variable([1.0]).astype("bfloat16"),
    "random": lambda: ops.random_normal((2,), dtype="bfloat16"),
    "init": lambda: od.init.he_normal(None, (4, 4), dtype="bfloat16"),
    "like": lambda: ops.zeros_like(np.ones(3), dtype="bfloat16"),
    "linspace": lambda: ops.linspace(0, 1, 3, dtype="bfloat16"),
    "sum": lambda: np.sum(Variable([1.0]), dtype="bfloat16"),
}


@pytest.mark.parametrize("call", WITHOUT.values(), ids=list(WITHOUT))
def test_without_ml_dtypes_its_name_names_the_extra(monkeypatch, call):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DTypeError, match=r'pip install "odyssey\[half\]"'):
        call()


@pytest.mark.slow
def test_its_name_is_known_before_ml_dtypes_is_imported():
    code = """
import numpy as np, sys
import odyssey as od
assert "ml_dtypes" not in sys.modules
assert od.Variable([1.0], dtype="bfloat16").dtype == "bfloat16"
assert od.ops.linspace(0, 1, 3, dtype="bfloat16").dtype == "bfloat16"
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_programs_without_halves_install_nothing_for_them():
    code = """
import numpy as np, odyssey as od
from odyssey.spec import HALVES
w = od.Variable(np.ones((3, 3), np.float32), requires_grad=True)
optimizer = od.optim.Adam([w], 0.1)
with od.GradientTape() as tape:
    loss = od.losses.cross_entropy(od.ops.gelu(od.ops.layer_norm(w @ w)), np.array([0, 1, 2]))
tape.backward(loss)
optimizer.step()
assert not HALVES
assert not hasattr(od.ops.matmul.row.kernel, "without_halves")
od.ops.add(np.ones(3, np.float16), 1.0)
assert hasattr(od.ops.matmul.row.kernel, "without_halves")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""Batch norm and its running statistics: when they move, by how much, and when not."""

import signal
from contextlib import suppress

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices.array_locks import lock_array
from odyssey.errors import DTypeError, MutationError, ShapeError, TapeError
from odyssey.testing import check_gradients

X = np.random.default_rng(0).normal(2.0, 3.0, (8, 3, 5))
MEAN, VAR = X.mean((0, 2)), X.var((0, 2), ddof=1)


def statistics(channels=3, dtype=np.float64):
    return Variable(np.zeros(channels, dtype)), Variable(np.ones(channels, dtype))


def assert_moved(mean, var, share=0.1):
    np.testing.assert_allclose(mean.numpy(), share * MEAN, rtol=1e-13)
    np.testing.assert_allclose(var.numpy(), 1 - share + share * VAR, rtol=1e-13)


@pytest.mark.parametrize("momentum", [0, 0.1, 0.75, 1])
def test_running_statistics_move_by_momentum_towards_mean_and_unbiased_variance(momentum):
    mean, var = statistics()
    out = ops.batch_norm(X, mean, var, training=True, momentum=momentum)
    assert_moved(mean, var, momentum)
    np.testing.assert_allclose(out.mean((0, 2)), 0, atol=1e-14)
    np.testing.assert_allclose(out.var((0, 2)), 1, rtol=1e-5)


def test_statistics_of_batches_are_those_that_the_evaluation_uses():
    mean, var = statistics()
    ops.batch_norm(X, mean, var, training=True, momentum=1.0)
    shape = (3, 1)
    wanted = (X - MEAN.reshape(shape)) / np.sqrt(VAR.reshape(shape) + 1e-5)
    for given in ((mean, var), (mean.numpy(), var.numpy())):
        np.testing.assert_allclose(ops.batch_norm(X, *given), wanted, rtol=1e-12)
    assert_moved(mean, var, 1.0)


def test_single_precision_stays_so_beside_double_statistics():
    mean, var = statistics()
    x = X.astype(np.float32)
    assert ops.batch_norm(x, mean, var, training=True).dtype == np.float32
    assert ops.batch_norm(x, mean, var).dtype == np.float32
    assert mean.dtype == np.float64


def test_half_precision_batches_are_measured_in_single():
    x = (X * 100).astype(np.float16)  # whose squares overflow
    mean, var = statistics(dtype=np.float32)
    ops.batch_norm(x, mean, var, training=True, momentum=1.0)
    np.testing.assert_allclose(mean.numpy(), x.astype(float).mean((0, 2)), rtol=1e-5)
    np.testing.assert_allclose(var.numpy(), x.astype(float).var((0, 2), ddof=1), rtol=1e-5)


def layer(mean, var):
    return lambda x, w: ops.sum(ops.batch_norm(x, mean, var, w, training=True) ** 3)


@pytest.mark.parametrize("order", ["first", "second", "forward"])
def test_under_a_checkpoint_they_move_once(order):
    mean, var = statistics()
    v, w = (Variable(a, requires_grad=True) for a in (X, np.arange(1.0, 4.0)))
    with GradientTape(persistent=True) as tape:
        y = od.checkpoint(layer(mean, var))(v, w)
        assert_moved(mean, var)
        slope = tape.gradient(y, (v, w), create_graph=order == "second")
        if order == "second":
            tape.gradient(ops.sum(slope[0] ** 2), w)
        elif order == "forward":
            tape.jvp(y, (v, w), (X, np.ones(3)))
    assert_moved(mean, var)


def test_checkpoints_in_checkpoints_move_them_once():
    mean, var = statistics()
    v, w = (Variable(a, requires_grad=True) for a in (X, np.ones(3)))
    inner = od.checkpoint(layer(mean, var))
    with GradientTape() as tape:
        y = od.checkpoint(lambda x, w: inner(x, w) * 2.0)(v, w)
    tape.backward(y)
    assert_moved(mean, var)


def test_a_compiled_step_moves_them_as_the_eager_one():
    found = []
    for wrap in (lambda f: f, od.compile, lambda f: od.compile(od.checkpoint(f))):
        mean, var = statistics()
        step = wrap(layer(mean, var))
        for k in range(3):
            step(X + k, np.ones(3))
        found.append((mean.numpy().copy(), var.numpy().copy()))
    for other in found[1:]:  # but for the order of sums of few numbers
        np.testing.assert_allclose(found[0], other, rtol=1e-14)


def test_the_graph_of_a_step_holds_both_as_states():
    mean, var = statistics()
    step = od.compile(od.value_and_grad(layer(mean, var)))
    lowered = step.lower(X, np.ones(3))
    assert_moved(mean, var, 0.0)
    left = lowered.evaluate(X, np.ones(3))[1]
    step(X, np.ones(3))
    assert sorted(left) == sorted(["mean", "var"])
    np.testing.assert_array_equal(left["mean"], mean.numpy())
    np.testing.assert_array_equal(left["var"], var.numpy())


def test_no_gradient_flows_into_them_and_none_is_missing_elsewhere():
    mean, var = statistics()
    c = np.random.default_rng(1).normal(size=X.shape)

    def loss(x, w, b):
        return ops.sum(ops.batch_norm(x, mean, var, w, b, training=True) ** 2 * c)

    check_gradients(loss, X, np.array([1.0, -2.0, 0.5]), np.zeros(3), order=2)
    v = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        y = loss(v, np.ones(3), np.zeros(3))
    assert tape.gradient(y, (v, mean), unused="none")[1] is None


@pytest.mark.parametrize("which", [0, 1])
def test_both_move_or_none_where_one_cannot_be_written_to(which):
    mean, var = statistics()
    held: dict = {}
    lock_array((mean, var)[which]._array, held)
    with pytest.raises(MutationError, match=r"^batch_norm: .*needed unchanged"):
        ops.batch_norm(X, mean, var, training=True)
    assert_moved(mean, var, 0.0)


def test_ctrl_c_leaves_both_moved_or_none():
    mean, var = statistics(2)
    x = np.array([[1.0, 1.0], [3.0, 3.0]])

    def stop(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, stop)
    torn = 0
    try:
        for k in range(150):
            mean.assign(0.0)
            var.assign(1.0)
            with suppress(KeyboardInterrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, 1e-6 * (k + 1))
                    ops.batch_norm(x, mean, var, training=True)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            torn += (mean.numpy()[0] != 0.0) != (var.numpy()[0] != 1.0)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert torn == 0


def test_an_empty_batch_moves_nothing():
    mean, var = statistics()
    assert ops.batch_norm(np.zeros((0, 3)), mean, var, training=True).shape == (0, 3)
    assert_moved(mean, var, 0.0)


def test_lists_and_integers_are_arrays():
    wanted = ops.batch_norm(np.array([[1.0], [3.0]]), training=True)
    np.testing.assert_array_equal(
        ops.batch_norm([[1], [3]], None, None, [1], training=True), wanted
    )
    assert ops.group_norm([[1, 2], [3, 4]], groups=1).dtype == np.float64


@pytest.mark.parametrize(
    ("made", "error", "match"),
    [
        (lambda a: Variable(a, requires_grad=True), TapeError, "which has a gradient"),
        (lambda a: Variable(a.astype(int)), DTypeError, "is of int64, which cannot hold a mean"),
        (lambda a: a, DTypeError, "is to be updated; pass a Variable"),
        (lambda a: Variable(a[:2]), ShapeError, r"running_mean \(2,\) for x \(8, 3, 5\)"),
    ],
    ids=["trainable", "whole numbers", "array", "shape"],
)
def test_running_statistics_that_cannot_be_updated_are_refused(made, error, match):
    with pytest.raises(error, match=match):
        ops.batch_norm(X, made(np.zeros(3)), Variable(np.ones(3)), training=True)


@pytest.mark.parametrize("name", ["batch_norm", "group_norm", "instance_norm"])
def test_complex_numbers_are_refused(name):
    options = {"batch_norm": {"training": True}, "group_norm": {"groups": 1}}.get(name, {})
    with pytest.raises(DTypeError, match=f"^{name}: x is of complex128; it has"):
        getattr(ops, name)(X * 1j, **options)

"""Dropout: shares, scales, whole channels, and the same mask in every derivative."""

import numpy as np
import pytest

import odyssey as od
from odyssey import Generator, GradientTape, Variable, ops
from odyssey.errors import DTypeError

X = np.random.default_rng(0).normal(size=(50, 40))


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_share_of_zeros_is_the_rate_and_the_rest_makes_up(rate):
    y = ops.dropout(X, rate=rate, rng=Generator(1))
    share = np.mean(y == 0)
    assert abs(share - rate) < 4 * np.sqrt(rate * (1 - rate) / X.size)
    np.testing.assert_allclose(y[y != 0], X[y != 0] / (1 - rate), rtol=1e-15)


def test_the_mask_is_where_the_generator_draws_less_than_the_rate():
    dropped = ops.random_uniform(X.shape, rng=Generator(1)) < 0.3
    np.testing.assert_array_equal(ops.dropout(X, rate=0.3, rng=Generator(1)) == 0, dropped)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("dropout1d", (20, 30, 4)), ("dropout2d", (20, 30, 3, 2)), ("dropout3d", (20, 30, 2, 1, 2))],
)
def test_channels_are_dropped_as_a_whole(name, shape):
    rng = Generator(1)
    y = getattr(ops, name)(np.ones(shape), rate=0.25, rng=rng)
    channels = y.reshape(20, 30, -1)
    assert (channels == channels[:, :, :1]).all()
    assert set(np.unique(channels)) == {0.0, 1 / 0.75}
    assert abs(np.mean(channels == 0) - 0.25) < 4 * np.sqrt(0.25 * 0.75 / 600)
    assert rng.state["state"]["counter"] == 150


@pytest.mark.parametrize("name", ["dropout", "dropout1d", "dropout2d", "dropout3d"])
def test_outside_of_training_nothing_happens_and_nothing_is_drawn(name):
    rng, x = (
        Generator(1),
        Variable(np.ones((2, 3, 2, 2, 2)[: 5 if name == "dropout" else int(name[7]) + 2])),
    )
    for options in ({"training": False}, {"rate": 0}):
        assert getattr(ops, name)(x, rng=rng, **options) is x
    assert (getattr(ops, name)(x, rng=rng, rate=1).numpy() == 0).all()
    assert rng.state == Generator(1).state


def test_both_modes_and_orders_use_the_same_mask():
    v = Variable(X, requires_grad=True)
    factor = ops.dropout(np.ones_like(X), rate=0.3, rng=Generator(1))
    with GradientTape(persistent=True) as tape:
        y = ops.dropout(v**2, rate=0.3, rng=Generator(1))
        g = tape.gradient(y.sum(), v, create_graph=True)
        total = g.sum()
    np.testing.assert_allclose(g.numpy(), 2 * X * factor, rtol=1e-15)
    np.testing.assert_allclose(tape.jvp(y, v, X), 2 * X * X * factor, rtol=1e-15)
    np.testing.assert_allclose(tape.gradient(total, v), 2 * factor, rtol=1e-15)


@pytest.mark.parametrize("wild", [np.nan, np.inf, -np.inf])
def test_what_was_dropped_is_0_whatever_it_was_and_so_is_its_derivative(wild):
    y = ops.dropout(np.full(X.shape, wild), rate=0.5, rng=Generator(1))
    dropped = ops.random_uniform(X.shape, rng=Generator(1)) < 0.5
    np.testing.assert_array_equal(y == 0, dropped)
    # Zeros, at which the slope of the root is infinite.
    slope = od.grad(lambda x: ops.sum(ops.dropout(ops.sqrt(x), rate=0.5, rng=Generator(1))))
    with np.errstate(divide="ignore", invalid="ignore"):
        g = slope(np.zeros(X.shape))
    np.testing.assert_array_equal(g[dropped], 0)
    assert np.isinf(g[~dropped]).all()


def test_a_tape_keeps_the_state_and_no_mask():
    x = Variable(np.ones(100_000), requires_grad=True)
    with GradientTape() as tape:
        ops.dropout(x, rng=Generator(1))
        assert tape.memory().total < 100


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64", "complex128"])
def test_floating_dtypes_stay(dtype):
    x = Variable(np.ones(64, dtype), requires_grad=True)
    with GradientTape() as tape:
        y = ops.dropout(x, rng=Generator(1))
    assert y.dtype == dtype
    assert tape.gradient(y, x, np.ones(64, dtype)).dtype == dtype


def test_lists_and_integers_are_numbers():
    np.testing.assert_array_equal(
        np.unique(ops.dropout([1, 1, 1, 1, 1, 1], rng=Generator(1))), [0, 2]
    )


def test_generators_of_numpy_are_refused():
    with pytest.raises(
        DTypeError, match=r"^dropout: rng is Generator\(PCG64\).*pass an od.Generator"
    ):
        ops.dropout(X, rng=np.random.default_rng(0))

"""Tapes within tapes: higher derivatives, perturbation confusion, forward over reverse."""

import math

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.errors import TapeConsumedError


def leaf(value=3.0):
    return Variable(value, requires_grad=True)


def derivative(fn):
    """The derivative of a scalar function, by a tape of its own; nests."""

    def slope(x):
        with GradientTape() as tape:
            x = tape.watch(x)
            y = fn(x)
        if not isinstance(y, Variable) or not y.requires_grad:
            return 0.0 * x
        return tape.gradient(y, x, unused="zero")

    return slope


def forward(fn):
    """The same by a forward sweep."""

    def slope(x):
        with GradientTape() as tape:
            x = tape.watch(x)
            y = fn(x)
        return tape.jvp(y, x, np.ones(x.shape))

    return slope


# Each with its first to fourth derivative.
FUNCTIONS = {
    "exp": (
        lambda x: ops.exp(2.0 * x),
        [lambda x, n=n: 2.0**n * math.exp(2 * x) for n in range(1, 5)],
    ),
    "log": (
        ops.log,
        [lambda x: 1 / x, lambda x: -1 / x**2, lambda x: 2 / x**3, lambda x: -6 / x**4],
    ),
    "cubic": (
        lambda x: x * x * x - 2.0 * x,
        [lambda x: 3 * x * x - 2, lambda x: 6 * x, lambda x: 6.0, lambda x: 0.0],
    ),
    "reciprocal": (
        lambda x: 1.0 / x,
        [lambda x: -1 / x**2, lambda x: 2 / x**3, lambda x: -6 / x**4, lambda x: 24 / x**5],
    ),
    "root": (
        ops.sqrt,
        [
            lambda x: 0.5 * x**-0.5,
            lambda x: -0.25 * x**-1.5,
            lambda x: 0.375 * x**-2.5,
            lambda x: -0.9375 * x**-3.5,
        ],
    ),
    "tanh": (
        ops.tanh,
        [
            lambda x: 1 - math.tanh(x) ** 2,
            lambda x: -2 * math.tanh(x) * (1 - math.tanh(x) ** 2),
            lambda x: (6 * math.tanh(x) ** 2 - 2) * (1 - math.tanh(x) ** 2),
            lambda x: (1 - math.tanh(x) ** 2) * (16 * math.tanh(x) - 24 * math.tanh(x) ** 3),
        ],
    ),
    "product": (
        lambda x: x * ops.exp(x),
        [lambda x, n=n: (x + n) * math.exp(x) for n in range(1, 5)],
    ),
}


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize(("fn", "expected"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_nested_tapes_give_derivatives_of_every_order(fn, expected, order):
    for _ in range(order):
        fn = derivative(fn)
    assert float(fn(leaf(0.7))) == pytest.approx(expected[order - 1](0.7), rel=1e-11, abs=1e-11)


@pytest.mark.parametrize("modes", ["rf", "fr", "ff", "rrf", "rfr", "frr", "fff", "ffr"])
@pytest.mark.parametrize(("fn", "expected"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_forward_and_reverse_nest_in_any_order(fn, expected, modes):
    for mode in modes:
        fn = derivative(fn) if mode == "r" else forward(fn)
    wanted = expected[len(modes) - 1](0.7)
    assert float(fn(leaf(0.7))) == pytest.approx(wanted, rel=1e-11, abs=1e-11)


def test_the_second_derivative_idiom():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = x * x * x
        slope = inner.gradient(y, x)
    assert float(slope) == 27.0
    assert float(outer.gradient(slope, x)) == 18.0


def test_a_chain_of_recorded_sweeps_on_one_persistent_tape():
    x = leaf(2.0)
    with GradientTape(persistent=True) as tape:
        y = x * x * x * x
    values = []
    for _ in range(4):
        y = tape.gradient(y, x, create_graph=True)
        values.append(float(y))
    assert values == [32.0, 48.0, 48.0, 24.0]


def test_a_recorded_sweep_keeps_a_tape_that_is_not_persistent_until_a_plain_one():
    x = leaf(2.0)
    with GradientTape() as tape:
        y = x * x * x
    slope = tape.gradient(y, x, create_graph=True)
    assert float(tape.gradient(slope, x)) == 12.0
    with pytest.raises(TapeConsumedError):
        tape.gradient(slope, x)


def test_a_hessian_vector_product_forward_over_reverse_equals_reverse_over_forward():
    rng = np.random.default_rng(3)
    a = rng.normal(size=(4, 4))
    point, v = rng.normal(size=4), rng.normal(size=4)
    # f = sum(tanh(a x)); with t = tanh(a x): H = a' diag(-2 t (1 - t²)) a.
    t = np.tanh(a @ point)
    expected = a.T @ (-2 * t * (1 - t * t) * (a @ v))
    x = leaf(point)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = ops.tanh(a @ x).sum()
        slope = inner.gradient(y, x)
    np.testing.assert_allclose(outer.jvp(slope, x, v), expected, rtol=1e-12)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = ops.tanh(a @ x).sum()
        change = inner.jvp(y, x, v)
    np.testing.assert_allclose(outer.gradient(change, x), expected, rtol=1e-12)


# ------------------------------------------------------------------ perturbation confusion


@pytest.mark.parametrize("inner", [derivative, forward], ids=["reverse", "forward"])
@pytest.mark.parametrize("outer", [derivative, forward], ids=["reverse", "forward"])
@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        # d/dx [x * d/dy (x + y) at y = 1] = 1, and with x * y within: 2x.
        (lambda d: lambda x: x * d(lambda y: x + y)(1.0), 1.0),
        (lambda d: lambda x: x * d(lambda y: x * y)(1.0), 6.0),
        # The inner point is the outer variable: d/dx [x * x] and d/dx [2 x * x].
        (lambda d: lambda x: x * d(lambda y: x * y)(x), 6.0),
        (lambda d: lambda x: x * d(lambda y: y * y)(x), 12.0),
        # d/dx [d/dy (x y)² at y = 2] = d/dx 2 x² y = 8 x.
        (lambda d: lambda x: d(lambda y: (x * y) * (x * y))(2.0), 24.0),
        # The inner function ignores its argument, or the outer one.
        (lambda d: lambda x: x * d(lambda y: y * y)(2.0), 4.0),
        # Siskind and Pearlmutter: d/dx (x * d/dy (x * d/dz (x + z + y))) = 2x ... = d/dx x = 1.
        (lambda d: lambda x: x * d(lambda y: y * d(lambda z: x + y + z)(2.0))(1.0), 1.0),
        (lambda d: lambda x: x * d(lambda y: y * d(lambda z: x * y * z)(2.0))(1.0), 12.0),
    ],
    ids=["sum", "product", "same point", "square", "both", "separate", "three sums", "three"],
)
def test_derivatives_do_not_confuse_their_perturbations(outer, inner, fn, expected):
    assert float(outer(fn(inner))(leaf(3.0))) == expected


def test_a_closure_over_the_outer_variable_is_seen_by_both():
    x = leaf(2.0)
    with GradientTape() as outer:
        wx = outer.watch(x)
        with GradientTape() as inner:
            wy = inner.watch(wx)
            z = wx * wx * wy
        partial = inner.gradient(z, wy)  # wx² alone: wy is another name for wx
        assert partial.item() == 4.0
        total = partial * wx
    assert float(outer.gradient(total, wx)) == 12.0


def test_an_inner_sweep_over_the_outer_variable_is_the_total_derivative():
    x = leaf(3.0)
    with GradientTape() as outer:
        h = x * x
        with GradientTape() as inner:
            y = h * x
        slope = inner.gradient(y, x)
    assert float(slope) == 27.0
    assert float(outer.gradient(slope, x)) == 18.0


def test_watching_an_intermediate_cuts_the_inner_sweep_and_not_the_outer():
    x = leaf(3.0)
    with GradientTape() as outer:
        h = x * x
        with GradientTape() as inner:
            w = inner.watch(h)
            y = w * w * x
        to_w = inner.gradient(y, w)
    assert float(to_w) == 2 * 9.0 * 3.0
    assert float(outer.gradient(to_w, x)) == 6 * 9.0  # 2 x³


def test_the_gradient_of_a_watched_leaf_reaches_the_leaf():
    x = leaf(3.0)
    with GradientTape() as tape:
        w = tape.watch(x)
        y = w * w + x
    gradients = tape.backward(y)
    assert (float(gradients[w]), float(x.grad)) == (6.0, 7.0)

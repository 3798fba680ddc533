"""Recurrent layers: scans are their cells step by step, however long, at a flat cost in nodes."""

import tracemalloc

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from support.cases import random_like

GATES = {"rnn": 1, "lstm": 4, "gru": 3}
every_layer = pytest.mark.parametrize("name", GATES)


def weights(name, size, width, dtype=np.float64, seed=0, scale=0.5):
    rng = np.random.default_rng(seed)
    wide = GATES[name] * width
    shapes = [(wide, size), (wide, width), (wide,)] + [(wide,)] * (name == "gru")
    return [(scale * rng.normal(size=shape)).astype(dtype) for shape in shapes]


def by_cells(name, x, state, *given):
    """Step by step, recorded as such."""
    cell = getattr(ops, f"{name}_cell")
    made = []
    for t in range(len(x)):
        state = cell(x[t], state, *given)
        made.append(state[0] if isinstance(state, tuple) else state)
    return ops.stack(made)


def zeros_of(name, *shape):
    return tuple(np.zeros((2, *shape))) if name == "lstm" else np.zeros(shape)


def derivatives(function, numbers, directions):
    """Gradients, a tangent, and the Hessian along a direction."""
    yield od.grad(function, argnums=numbers)
    yield lambda *v: od.jvp(function, v, directions)
    yield lambda *v: od.hvp(lambda p: function(*p), (v,), (directions,))[0]


@pytest.mark.slow
@every_layer
def test_a_layer_is_its_cell_step_by_step_and_so_are_two_derivatives(name):
    given = [np.random.default_rng(1).normal(size=(4, 2, 3)), *weights(name, 3, 2)]

    def total(run):
        def function(*operands):
            out = run(*operands)
            return ops.sum(ops.mul(out, random_like(out, seed=2)))

        return function

    layer = total(lambda x, *w: getattr(ops, name)(x, None, *w)[0])
    cells = total(lambda x, *w: by_cells(name, x, zeros_of(name, 2, 2), *w))
    numbers = tuple(range(len(given)))
    directions = tuple(random_like(x, seed=5) for x in given)
    for of_layer, of_cells in zip(
        derivatives(layer, numbers, directions),
        derivatives(cells, numbers, directions),
        strict=True,
    ):
        for got, want in zip(of_layer(*given), of_cells(*given), strict=True):
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=0, atol=1e-12)


@pytest.mark.slow
@every_layer
def test_ten_thousand_steps_are_few_nodes_and_their_gradient_is_that_of_halves(name):
    steps, width = 10_000, 3
    x = np.random.default_rng(0).normal(size=(steps, 2))
    given = [Variable(w, requires_grad=True) for w in weights(name, 2, width, scale=0.2)]
    layer = getattr(ops, name)

    def gradients(*cuts):
        with GradientTape() as tape:
            state, total = None, 0.0
            for part in np.split(x, cuts):
                out, state = layer(part, state, *given)
                total = total + ops.sum(ops.square(out))
            assert len(tape) < 20 * (len(cuts) + 1)
        return tape.gradient(total, given)

    tracemalloc.start()
    try:
        whole = gradients()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * steps * width * GATES[name] * 8
    for got, want in zip(gradients(5000), whole, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-10)


@every_layer
def test_no_step_leaves_the_state_as_it_was_with_its_gradient(name):
    given = weights(name, 3, 2)
    start = [Variable(np.ones(2) * k, requires_grad=True) for k in range(1 + (name == "lstm"))]
    with GradientTape() as tape:
        state = tuple(start) if name == "lstm" else start[0]
        out, last = getattr(ops, name)(np.ones((0, 3)), state, *given)
        ends = last if name == "lstm" else (last,)
        total = sum(ops.sum(2.0 * end) for end in ends)
    assert out.shape == (0, 2)
    for end, begin in zip(ends, start, strict=True):
        np.testing.assert_array_equal(end.numpy(), begin.numpy())
    for slope in tape.gradient(total, start):
        np.testing.assert_array_equal(slope, [2.0, 2.0])


@every_layer
def test_half_precision_is_computed_in_single(name):
    x = np.random.default_rng(1).normal(size=(50, 3)).astype(np.float16)
    given = weights(name, 3, 4, np.float16)
    out, _ = getattr(ops, name)(x, None, *given)
    wide, _ = getattr(ops, name)(x.astype(float), None, *[w.astype(float) for w in given])
    assert out.dtype == np.float16
    np.testing.assert_allclose(out, wide, rtol=0, atol=4e-3)


@pytest.mark.parametrize("size", [1e3, 1e38])
def test_gates_far_out_overflow_nowhere(size):
    w = np.ones((8, 1), np.float32) * np.float32(size)
    for sign in (1, -1):
        out, (_, c) = ops.lstm(np.full((3, 1), sign, np.float32), None, w, np.zeros((8, 2)))
        assert np.isfinite([*out[-1], *c]).all()
        out, _ = ops.gru(np.full((3, 1), sign, np.float32), None, w[:6], np.zeros((6, 2)))
        assert np.isfinite(out).all()


def by_formulas(name, x, w_x, w_h, *biases):
    """The hidden states, by the formulas of the layers' docstrings; numbers may be complex."""

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    b_x, b_h = (*biases, np.zeros_like(biases[0]))[:2]
    h = c = np.zeros((x.shape[1], w_h.shape[1]), x.dtype)
    made = []
    for products in x @ w_x.T + b_x:
        u = h @ w_h.T + b_h
        if name == "rnn":
            h = np.tanh(products + u)
        elif name == "gru":
            (r, z, n), (u_r, u_z, u_n) = np.split(products, 3, -1), np.split(u, 3, -1)
            n = np.tanh(n + sigmoid(r + u_r) * u_n)
            h = n + sigmoid(z + u_z) * (h - n)
        else:
            i, f, g, o = np.split(products + u, 4, -1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        made.append(h)
    return np.stack(made)


def slope_by_complex_step(name, given, directions, seed):
    """The derivative of the sum of ``seed`` times the states along directions."""
    shifted = [v.astype(complex) + 1e-30j * d for v, d in zip(given, directions, strict=True)]
    return np.sum(seed * by_formulas(name, *shifted)).imag / 1e-30


@pytest.mark.parametrize("kernels", ["cpu", "numpy"])
@every_layer
def test_states_and_two_derivatives_are_those_of_the_formulas(name, kernels):
    x = np.random.default_rng(1).normal(size=(4, 3, 2))
    given = [x, *weights(name, 2, 5)]
    directions = [random_like(v, seed=5) for v in given]
    numbers = tuple(range(len(given)))
    seed = random_like(by_formulas(name, *given), seed=2)

    def total(*operands):
        return ops.sum(getattr(ops, name)(operands[0], None, *operands[1:])[0] * seed)

    def slope(step):
        moved = [v + step * d for v, d in zip(given, directions, strict=True)]
        return slope_by_complex_step(name, moved, directions, seed)

    with ops.use_kernels(kernels):
        states = getattr(ops, name)(x, None, *given[1:])[0]
        gradients = od.grad(total, argnums=numbers)(*given)
        curved = od.hvp(lambda p: total(*p), (tuple(given),), (tuple(directions),))
    np.testing.assert_allclose(states, by_formulas(name, *given), rtol=0, atol=1e-15)
    along = sum(np.sum(g * d) for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(along, slope(0), rtol=1e-12)
    along = sum(np.sum(np.asarray(h) * d) for h, d in zip(curved, directions, strict=True))
    np.testing.assert_allclose(along, (slope(1e-4) - slope(-1e-4)) / 2e-4, rtol=1e-6)


@pytest.mark.parametrize("kernels", ["cpu", "numpy"])
def test_gates_at_infinity_and_nan_are_those_of_the_formulas(kernels):
    x = np.array([[[-np.inf, np.inf, 1.0, np.inf]], [[800.0, -800.0, np.nan, -1e308]]])
    state = np.array([[[0.5]], [[1e200]]])
    with ops.use_kernels(kernels):
        out = ops.recurrent_states(x, state, np.zeros((4, 1)), cell="lstm")
    np.testing.assert_array_equal(out[0, :, 0, 0], [1.0, 1e200])
    np.testing.assert_array_equal(out[1, :, 0, 0], [np.nan, np.nan])


def test_a_tape_swept_twice_gives_the_gates_derivatives_twice():
    given = [Variable(w, requires_grad=True) for w in weights("lstm", 2, 3)]
    with GradientTape(persistent=True) as tape:
        out, _ = ops.lstm(np.ones((4, 2)), None, *given)
    first, second = (tape.gradient(out, given, np.full((4, 3), s)) for s in (1.0, 2.0))
    for once, twice in zip(first, second, strict=True):
        np.testing.assert_allclose(2 * once, twice, rtol=1e-15)


# ------------------------------------------------------------------ turned positions


def rotation(dim, position, base=10000.0):
    """The matrix that turns elements k and k + dim / 2."""
    half = dim // 2
    turned = np.zeros((dim, dim))
    for k in range(half):
        angle = position * base ** (-2 * k / dim)
        turned[k, k] = turned[k + half, k + half] = np.cos(angle)
        turned[k, k + half], turned[k + half, k] = -np.sin(angle), np.sin(angle)
    return turned


def test_rope_multiplies_by_rotations():
    x = np.random.default_rng(0).normal(size=(5, 6))
    places = np.array([0, 3, 1, 100, -2])
    wanted = np.stack([rotation(6, p) @ row for p, row in zip(places, x, strict=True)])
    np.testing.assert_allclose(ops.rope(x, places), wanted, rtol=0, atol=1e-14)


def test_products_of_turned_vectors_depend_on_their_distance_alone():
    q, k = np.random.default_rng(0).normal(size=(2, 1, 8))
    near = ops.rope(q, np.array([7])) @ ops.rope(k, np.array([4])).T
    far = ops.rope(q, np.array([1007])) @ ops.rope(k, np.array([1004])).T
    np.testing.assert_allclose(near, far, rtol=0, atol=1e-12)


def test_far_positions_are_as_exact_in_single_precision_and_unsigned_ones_turn_back():
    x = np.random.default_rng(0).normal(size=(1, 64)).astype(np.float32)
    far = np.array([1_000_003], np.uint32)
    exact = ops.rope(x.astype(float), far.astype(float))
    np.testing.assert_allclose(ops.rope(x, far), exact, rtol=0, atol=1e-6)
    leaf = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        out = ops.rope(leaf, far)
    (slope,) = tape.gradient(out, [leaf], out.numpy())
    np.testing.assert_allclose(slope, x, rtol=0, atol=1e-6)

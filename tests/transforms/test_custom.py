"""custom_vjp: rules of one's own, for solvers that no op knows, and for better derivatives."""

from typing import Any, NamedTuple

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import UntrackedError


def leaf(value):
    return Variable(value, requires_grad=True)


# ------------------------------------------------------------------ a linear solver of NumPy's


@od.custom_vjp
def solve(a, b):
    """x with a x = b."""
    return np.linalg.solve(a, b)


def solve_forward(a, b):
    x = solve(a, b)
    return x, (a, x)


def solve_backward(residuals, g):
    a, x = residuals
    u = solve(ops.transpose(ops.conj(a)), g)
    return -ops.reshape(u, (-1, 1)) * ops.conj(x), u


solve.defvjp(solve_forward, solve_backward)


def matrix(rng, n=3):
    return rng.normal(size=(n, n)) + 4.0 * np.eye(n)


def test_a_linear_solver_has_derivatives_of_second_order_in_both_modes():
    rng = np.random.default_rng(0)
    od.testing.check_gradients(solve, matrix(rng), rng.normal(size=3))


def test_a_complex_linear_solver_has_them_too():
    rng = np.random.default_rng(1)
    a, b = matrix(rng) + 1j * rng.normal(size=(3, 3)), rng.normal(size=3) + 1j * rng.normal(size=3)
    od.testing.check_gradients(solve, a, b)


def test_gradients_of_a_linear_solver_equal_analysis():
    rng = np.random.default_rng(2)
    a, b, c = matrix(rng), *rng.normal(size=(2, 3))
    inverse = np.linalg.inv(a)
    g_a, g_b = od.grad(lambda a, b: (c * solve(a, b)).sum(), argnums=(0, 1))(a, b)
    np.testing.assert_allclose(g_b, inverse.T @ c, rtol=1e-12)
    np.testing.assert_allclose(g_a, -np.outer(inverse.T @ c, inverse @ b), rtol=1e-12)
    np.testing.assert_allclose(od.jacobian(lambda b: solve(a, b))(b), inverse, rtol=1e-12)
    np.testing.assert_allclose(od.jvp(solve, (a, b), (0 * a, c))[1], inverse @ c, rtol=1e-12)


def test_hessians_of_and_through_a_solver_are_symmetric_and_equal_analysis():
    rng = np.random.default_rng(3)
    a, b = matrix(rng), rng.normal(size=3)
    inverse = np.linalg.inv(a)
    # f = |a⁻¹ b|² in b: H = 2 a⁻ᵀ a⁻¹
    np.testing.assert_allclose(
        od.hessian(lambda b: (solve(a, b) * solve(a, b)).sum())(b),
        2 * inverse.T @ inverse,
        rtol=1e-12,
    )
    # f(s) = c·(s a)⁻¹ b = f(1) / s: derivatives -f, 2 f, -6 f at s = 1
    fn = lambda s: solve(a * s, b).sum()  # noqa: E731
    for factor in (-1.0, 2.0, -6.0):
        fn = od.grad(fn)
        assert float(fn(1.0)) == pytest.approx(factor * (inverse @ b).sum(), rel=1e-11)


# ------------------------------------------------------------------ a fixed point by iteration


@od.custom_vjp
def fixed_point(w, b):
    """y = tanh(w y + b), by plain NumPy iteration."""
    y = np.zeros_like(b)
    for _ in range(200):
        y = np.tanh(w @ y + b)
    return y


def fixed_point_forward(w, b):
    y = fixed_point(w, b)
    return y, (w, y)


def fixed_point_backward(residuals, g):
    w, y = residuals
    d = 1.0 - y * y
    u = d * solve(ops.transpose(np.eye(len(d)) - ops.reshape(d, (-1, 1)) * w), g)
    return ops.reshape(u, (-1, 1)) * y, u


fixed_point.defvjp(fixed_point_forward, fixed_point_backward)


def test_a_fixed_point_has_derivatives_of_second_order_in_both_modes():
    rng = np.random.default_rng(4)
    w = 0.2 * rng.normal(size=(3, 3))
    b = rng.normal(size=3)

    y = np.asarray(fixed_point(w, b))
    np.testing.assert_allclose(y, np.tanh(w @ y + b), rtol=1e-14)
    inverse = np.linalg.inv(np.eye(3) - np.diag(1 - y * y) @ w) @ np.diag(1 - y * y)
    np.testing.assert_allclose(od.jacobian(lambda b: fixed_point(w, b))(b), inverse, rtol=1e-12)
    od.testing.check_gradients(fixed_point, w, b)


# ------------------------------------------------------------------ better derivatives


@od.custom_vjp
def log1pexp(x):
    return ops.log(1.0 + ops.exp(x))


log1pexp.defvjp(lambda x: (log1pexp(x), x), lambda x, g: (g * (1.0 - 1.0 / (1.0 + ops.exp(x))),))


def test_a_stable_derivative_replaces_an_unstable_one():
    with np.errstate(over="ignore"):
        assert float(od.grad(log1pexp)(1000.0)) == 1.0
    assert float(od.grad(od.grad(log1pexp))(0.0)) == pytest.approx(0.25)
    assert float(od.grad(od.grad(od.grad(log1pexp)))(0.0)) == pytest.approx(0.0, abs=1e-15)


def test_a_compiled_function_contains_the_rule():
    def fn(x):
        return (log1pexp(x) * x).sum()

    x = np.array([0.3, -1.0])
    sigmoid = 1 / (1 + np.exp(-x))
    expected = sigmoid * x + np.log1p(np.exp(x))
    np.testing.assert_allclose(od.compile(od.grad(fn))(x), expected, rtol=1e-12)
    np.testing.assert_allclose(od.grad(fn)(x), expected, rtol=1e-12)


def test_it_works_inside_checkpoint_and_the_other_way_round():
    x = np.array([0.3, -1.0])
    expected = 2 / (1 + np.exp(-x))
    inner = od.checkpoint(lambda x: log1pexp(x) * 2.0)
    np.testing.assert_allclose(od.grad(lambda x: inner(x).sum())(x), expected, rtol=1e-12)

    @od.custom_vjp
    def outer(x):
        return inner(x)

    outer.defvjp(lambda x: (outer(x), x), lambda x, g: (g * od.grad(lambda y: inner(y).sum())(x),))
    np.testing.assert_allclose(od.grad(lambda x: outer(x).sum())(x), expected, rtol=1e-12)


# ------------------------------------------------------------------ trees, and what rules see


class State(NamedTuple):
    position: Any
    speed: Any


def test_trees_go_in_and_out_and_none_stands_for_zero():
    @od.custom_vjp
    def step(state, options, dt=1.0):
        return {"state": State(state.position + dt * state.speed, state.speed), "n": options["n"]}

    def forward(state, options, dt):
        return step(state, options, dt), (state.speed, dt)

    def backward(residuals, g):
        speed, dt = residuals
        g = g["state"]
        return State(g.position, g.speed + dt * g.position), None, (g.position * speed).sum()

    step.defvjp(forward, backward)

    def total(state, dt):
        out = step(state, {"n": 3}, dt=dt)
        assert out["n"] == 3
        return (out["state"].position * out["state"].speed).sum()

    state = State(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    g, g_dt = od.grad(total, argnums=(0, 1))(state, 0.5)
    assert isinstance(g, State)
    np.testing.assert_array_equal(g.position, state.speed)
    np.testing.assert_array_equal(g.speed, state.position + 2 * 0.5 * state.speed)
    assert float(g_dt) == 25.0
    assert float(od.grad(lambda dt: total(state, dt))(0.5)) == 25.0


def test_rules_are_given_arrays_that_they_cannot_spoil():
    seen = {}

    @od.custom_vjp
    def double(x, note):
        return 2.0 * x

    def forward(x, note):
        seen["x"] = x
        return double(x, note), None

    def backward(residuals, g):
        assert residuals is None
        seen["g"] = g
        return 2.0 * g, None

    double.defvjp(forward, backward)
    w = leaf(np.ones(3))
    with GradientTape() as tape:
        y = double(w, "text").sum()
    tape.backward(y)
    np.testing.assert_array_equal(w.grad, [2.0, 2.0, 2.0])
    for array in seen.values():
        assert type(array) is np.ndarray
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0


def test_residuals_keep_the_values_that_they_had():
    buffer = np.empty(1000)

    @od.custom_vjp
    def scaled(x):
        return x * 2.0

    def forward(x):
        buffer[...] = 2.0
        return scaled(x), buffer

    scaled.defvjp(forward, lambda scale, g: (g * scale,))
    with GradientTape() as tape:
        x = tape.watch(np.ones(1000))
        y = scaled(x).sum()
        with pytest.raises(ValueError, match="read-only"):
            buffer[...] = 5.0
    np.testing.assert_array_equal(tape.gradient(y, x), np.full(1000, 2.0))
    buffer[...] = 5.0


def test_a_variable_that_is_passed_twice_has_the_sum():
    w = leaf(3.0)

    @od.custom_vjp
    def product(x, y):
        return x * y

    product.defvjp(lambda x, y: (product(x, y), (x, y)), lambda r, g: (g * r[1], g * r[0]))
    with GradientTape() as tape:
        z = product(w, w)
    assert float(tape.gradient(z, w)) == 6.0


def test_where_nothing_records_the_function_itself_runs():
    calls = []

    @od.custom_vjp
    def fn(x):
        calls.append(type(x))
        return np.exp(x)

    fn.defvjp(None, None)
    assert float(fn(0.0)) == 1.0
    assert type(fn(np.zeros(2))) is np.ndarray
    constant = fn(Variable(np.zeros(2)))
    assert isinstance(constant, Variable)
    assert not constant.requires_grad
    w = leaf(np.zeros(2))
    lost = fn(w)
    with od.no_grad():
        assert not fn(w).requires_grad
    with GradientTape() as tape, pytest.raises(UntrackedError):
        lost * 2.0
    assert calls == [float, *[np.ndarray] * 4]
    assert len(tape) == 0


def test_frozen_arguments_need_no_gradient():
    a, b = leaf(np.eye(2)), leaf(np.ones(2))
    a.requires_grad = False
    with GradientTape() as tape:
        y = solve(a, b).sum()
    tape.backward(y)
    assert a.grad is None
    np.testing.assert_array_equal(b.grad, np.ones(2))


class Scaling:
    def __init__(self, factor):
        self.factor = factor

    @od.custom_vjp
    def scale(self, x, power=1.0):
        return x * self.factor**power

    scale.defvjp(
        lambda self, x, power: (x * self.factor**power, self.factor**power),
        lambda slope, g: (None, g * slope, None),
    )


def test_a_rule_of_a_method_is_given_the_object_and_defaults_of_the_function():
    x, scaling = np.array([1.0, 2.0]), Scaling(3.0)
    assert scaling.scale(x).tolist() == [3.0, 6.0]
    assert od.grad(lambda x: scaling.scale(x).sum())(x).tolist() == [3.0, 3.0]
    assert od.grad(lambda x: Scaling.scale(scaling, x).sum())(x).tolist() == [3.0, 3.0]
    for call in (lambda x: scaling.scale(x, 2.0), lambda x: scaling.scale(x, power=2.0)):
        assert od.grad(lambda x, call=call: call(x).sum())(x).tolist() == [9.0, 9.0]
    assert isinstance(Scaling.scale, od.custom_vjp)


# ------------------------------------------------------------------ rules of another library


class Foreign:
    """An array of another library, which a tape of its own may follow."""

    def __init__(self, array, requires_grad=False):
        self.array = array
        self.requires_grad = requires_grad

    def __array__(self, dtype=None, copy=None):
        return self.array


class Described:
    """An array of another library that tells NumPy where its memory lies."""

    def __init__(self, array):
        self.array = array
        self.__array_interface__ = array.__array_interface__

    __array_interface__: Any = None


def calling_out(kind):
    """The sine, as another library computes it, with what it keeps for the derivative."""

    @od.custom_vjp
    def sine(x):
        return kind(np.sin(x))

    sine.defvjp(
        lambda x: (kind(np.sin(x)), {"x": Foreign(x, requires_grad=True), "note": "mine"}),
        lambda kept, g: (Foreign(np.cos(kept["x"].array) * g),),
    )
    return sine


@pytest.mark.parametrize("kind", [Foreign, Described], ids=lambda kind: kind.__name__)
def test_arrays_of_another_library_are_results_with_gradients(kind):
    sine, w = calling_out(kind), leaf([1.0, 2.0])
    with GradientTape() as tape:
        out = sine(w)
        y = (out * 2.0 + w).sum()
    np.testing.assert_array_equal(out.numpy(), np.sin([1.0, 2.0]))
    np.testing.assert_allclose(tape.gradient(y, w), 2 * np.cos([1.0, 2.0]) + 1, rtol=1e-15)


def test_arrays_of_another_library_come_back_as_variables_where_nothing_records():
    out = calling_out(Foreign)(leaf([1.0, 2.0]))
    assert type(out) is Variable
    with GradientTape(), pytest.raises(UntrackedError):
        out * 2.0


@pytest.mark.peers
def test_torch_may_keep_its_own_graph_for_the_derivative():
    torch = pytest.importorskip("torch")

    @od.custom_vjp
    def sine(x):
        return torch.sin(torch.tensor(x))

    def forward(x):
        x = torch.tensor(x, requires_grad=True)
        out = torch.sin(x)
        return out.detach(), (x, out)

    def backward(kept, g):
        x, out = kept
        return (torch.autograd.grad(out, x, torch.tensor(g))[0],)

    sine.defvjp(forward, backward)
    w = leaf([1.0, 2.0])
    with GradientTape() as tape:
        y = (sine(w) * 2.0).sum()
    np.testing.assert_allclose(tape.gradient(y, w), 2 * np.cos([1.0, 2.0]), rtol=1e-15)

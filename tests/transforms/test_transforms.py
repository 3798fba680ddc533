"""Transforms against analysis: values, nesting, modes, trees and what is refused."""

import math
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import IndependentWarning


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Layer:
    w: Any
    b: Any


def is_array(value):
    return isinstance(value, (np.ndarray, np.generic))


def slope(fn):
    """The derivative of a function of one number by forward mode."""
    return lambda x: od.jvp(fn, (x,), (1.0,))[1]


# Each with its first, second and third derivative.
FUNCTIONS = {
    "exp": (
        lambda x: ops.exp(2.0 * x),
        [lambda x, n=n: 2.0**n * math.exp(2 * x) for n in (1, 2, 3)],
    ),
    "cubic": (
        lambda x: x * x * x - 2.0 * x,
        [lambda x: 3 * x * x - 2, lambda x: 6 * x, lambda x: 6.0],
    ),
    "parabola": (lambda x: x * x, [lambda x: 2 * x, lambda x: 2.0, lambda x: 0.0]),
    "constant": (lambda x: 4.0, [lambda x: 0.0, lambda x: 0.0, lambda x: 0.0]),
    "sine": (
        lambda x: x * ops.sin(x),
        [
            lambda x: math.sin(x) + x * math.cos(x),
            lambda x: 2 * math.cos(x) - x * math.sin(x),
            lambda x: -3 * math.sin(x) - x * math.cos(x),
        ],
    ),
    "reciprocal": (
        lambda x: 1.0 / x,
        [lambda x: -1 / x**2, lambda x: 2 / x**3, lambda x: -6 / x**4],
    ),
}
MODES = ["r", "f", "rr", "rf", "fr", "ff", "rrr", "rrf", "rfr", "frr", "ffr", "frf", "rff", "fff"]


@pytest.mark.parametrize("modes", MODES)
@pytest.mark.parametrize(("fn", "expected"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_derivatives_nest_to_third_order_in_every_order_of_modes(fn, expected, modes):
    for mode in modes:
        fn = od.grad(fn) if mode == "r" else slope(fn)
    warned = expected is FUNCTIONS["constant"][1] and "r" in modes
    with pytest.warns(IndependentWarning) if warned else nullcontext():
        got = fn(0.7)
    assert is_array(got)
    assert float(got) == pytest.approx(expected[len(modes) - 1](0.7), rel=1e-12, abs=1e-12)


def test_value_and_grad_gives_what_both_give():
    x = np.array([1.0, 2.0, 3.0])
    value, gradient = od.value_and_grad(lambda x: (x * x).sum())(x)
    assert is_array(value)
    assert f"{value:.1f}" == "14.0"
    assert type(gradient) is np.ndarray
    np.testing.assert_array_equal(gradient, 2 * x)


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [(0, 3.0), (1, 2.0), (-1, 2.0), ((0, 1), (3.0, 2.0)), ([1, 0], (2.0, 3.0)), ((0,), (3.0,))],
    ids=["first", "second", "last", "both", "swapped", "tuple of one"],
)
def test_argnums_say_what_is_differentiated_and_in_which_order(argnums, expected):
    gradient = od.grad(lambda x, y: x * y, argnums=argnums)(2.0, 3.0)
    assert isinstance(gradient, tuple) == isinstance(expected, tuple)
    assert np.array_equal(np.asarray(gradient), np.asarray(expected))


def test_other_arguments_and_keywords_are_passed_on_as_they_are():
    seen = []

    def fn(x, n, flag=False, *, name):
        seen.append((n, flag, name))
        return x**n

    assert float(od.grad(fn)(3.0, 2, flag=True, name="a")) == 6.0
    assert seen == [(2, True, "a")]


def test_aux_is_handed_through_as_arrays():
    def fn(x):
        y = x * x
        return y.sum(), {"y": y, "note": "kept", "none": None}

    x = np.array([1.0, 2.0])
    gradient, aux = od.grad(fn, has_aux=True)(x)
    (value, same), again = od.value_and_grad(fn, has_aux=True)(x)
    out, pullback, third = od.vjp(fn, x, has_aux=True)
    moved_out, tangent, fourth = od.jvp(fn, (x,), (np.ones(2),), has_aux=True)
    product, fifth = od.hvp(fn, (x,), (np.ones(2),), has_aux=True)
    matrix, sixth = od.jacobian(fn, has_aux=True)(x)
    square, seventh = od.hessian(fn, has_aux=True)(x)
    assert float(value) == float(out) == float(moved_out) == 5.0
    assert float(tangent) == 6.0
    for found in (gradient, again, pullback(1.0)[0], matrix):
        np.testing.assert_array_equal(found, [2.0, 4.0])
    np.testing.assert_array_equal(product, [2.0, 2.0])
    np.testing.assert_array_equal(square, 2 * np.eye(2))
    for found in (aux, same, third, fourth, fifth, sixth, seventh):
        assert type(found["y"]) is np.ndarray
        np.testing.assert_array_equal(found["y"], [1.0, 4.0])
        assert found["note"] == "kept"
        assert found["none"] is None


# ------------------------------------------------------------------ trees

TREES = {
    "dict": {"w": np.array([1.0, 2.0]), "b": 3.0},
    "tuple": (np.array([1.0, 2.0]), 3.0),
    "list": [np.array([1.0, 2.0]), 3.0],
    "named tuple": Pair(np.array([1.0, 2.0]), 3.0),
    "dataclass": Layer(np.array([1.0, 2.0]), 3.0),
    "nest": {"a": [Layer(np.array([1.0, 2.0]), 3.0)], "c": (Pair(4.0, np.ones((2, 2))),)},
    "variables": [Variable([1.0, 2.0], requires_grad=True), Variable(3.0)],
    "with none": {"w": np.array([1.0, 2.0]), "b": None},
}


def numbers(tree):
    return [
        np.asarray(getattr(leaf, "_array", leaf))
        for leaf in od.tree.leaves(tree)
        if leaf is not None
    ]


def cubes(tree):
    return sum((leaf * leaf * leaf).sum() for leaf in od.tree.leaves(tree) if leaf is not None)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_gradients_and_products_have_the_tree_of_the_argument(tree):
    direction = od.tree.map_tree(
        lambda leaf: None if leaf is None else 2.0 * np.ones(np.shape(leaf)), tree
    )
    gradient = od.grad(cubes)(tree)
    product = od.hvp(cubes, (tree,), (direction,))
    out, pullback = od.vjp(cubes, tree)
    tangent = od.jvp(cubes, (tree,), (direction,))[1]
    for found in (gradient, product, pullback(1.0)[0]):
        assert type(found) is type(tree)
        assert [p for p, _ in od.tree.paths(found)] == [p for p, _ in od.tree.paths(tree)]
    for x, g, h in zip(numbers(tree), numbers(gradient), numbers(product), strict=True):
        np.testing.assert_allclose(g, 3 * x**2, rtol=1e-14)
        np.testing.assert_allclose(h, 12 * x, rtol=1e-14)
    assert float(tangent) == pytest.approx(sum((6 * x**2).sum() for x in numbers(tree)))
    assert float(out) == pytest.approx(sum((x**3).sum() for x in numbers(tree)))


def test_a_result_may_be_a_tree_of_moving_and_resting_leaves():
    def fn(p, k):
        return {"y": p["w"] * k, "rest": 1.5, "more": (p["w"].sum(), np.arange(3))}

    p, k = {"w": np.array([1.0, 2.0])}, 3.0
    direction = {"w": np.array([1.0, 10.0])}
    out, tangent = od.jvp(fn, (p, k), (direction, 0.5))
    np.testing.assert_array_equal(out["y"], [3.0, 6.0])
    np.testing.assert_array_equal(tangent["y"], [3.5, 31.0])
    assert float(tangent["more"][0]) == 11.0
    assert float(tangent["rest"]) == 0.0
    np.testing.assert_array_equal(tangent["more"][1], np.zeros(3))
    out, pullback = od.vjp(fn, p, k)
    g, g_k = pullback({"y": np.array([1.0, 1.0]), "rest": 7.0, "more": (2.0, np.zeros(3))})
    np.testing.assert_array_equal(g["w"], [5.0, 5.0])
    assert float(g_k) == 3.0


def test_a_leaf_that_is_not_used_has_a_gradient_of_zeros():
    gradient = od.grad(lambda p: p["a"].sum())({"a": np.ones(2), "b": np.ones((3, 1))})
    np.testing.assert_array_equal(gradient["b"], np.zeros((3, 1)))
    with pytest.warns(IndependentWarning):
        g, h = od.grad(lambda x, y: 2.0, argnums=(0, 1))(np.ones(2), 1.0)
    np.testing.assert_array_equal(g, np.zeros(2))
    assert float(h) == 0.0


# ------------------------------------------------------------------ pullbacks and products


def mixing(a):
    return lambda x: ops.tanh(a @ x) * x.sum()


def test_pullback_and_pushforward_are_transposes():
    rng = np.random.default_rng(0)
    a, x, v, c = rng.normal(size=(4, 3)), *rng.normal(size=(2, 3)), rng.normal(size=4)
    out, tangent = od.jvp(mixing(a), (x,), (v,))
    same, pullback = od.vjp(mixing(a), x)
    np.testing.assert_array_equal(out, same)
    (g,) = pullback(c)
    assert float(c @ tangent) == pytest.approx(float(g @ v), rel=1e-13)
    jac = od.jacobian(mixing(a))(x)
    np.testing.assert_allclose(jac @ v, tangent, rtol=1e-12)
    np.testing.assert_allclose(c @ jac, g, rtol=1e-12)


def test_a_pullback_answers_as_often_as_asked_and_nobody_can_spoil_it():
    x = np.array([1.0, 2.0])
    out, pullback = od.vjp(lambda x: ops.exp(x), x)
    expected = np.exp(x)
    out[...] = 0.0
    x[...] = 0.0
    for scale in (1.0, 2.0):
        (g,) = pullback(np.full(2, scale))
        np.testing.assert_array_equal(g, scale * expected)
        g[...] = 0.0


def test_a_pullback_is_differentiated_with_respect_to_its_cotangent():
    _, pullback = od.vjp(lambda x: x * x * x, 2.0)  # outside: 12 c
    assert float(od.grad(lambda c: pullback(c)[0] * c)(5.0)) == 120.0
    assert float(od.jvp(lambda c: pullback(c)[0] * c, (5.0,), (1.0,))[1]) == 120.0
    c = Variable(5.0, requires_grad=True)
    with GradientTape() as tape:
        y = pullback(c)[0] * c
    assert float(tape.gradient(y, c)) == 120.0


def test_a_pullback_inside_a_gradient_is_differentiated_with_respect_to_the_point():
    # d/dx (3 x² · x) = 9 x²
    assert float(od.grad(lambda x: od.vjp(lambda y: y**3.0, x)[1](x)[0])(2.0)) == 36.0


def quartic(a):
    """sum((a x)⁴), whose Hessian is aᵀ diag(12 (a x)²) a."""
    return lambda x: ((a @ x) * (a @ x) * (a @ x) * (a @ x)).sum()


def test_products_with_the_hessian_agree_with_analysis_in_all_ways():
    rng = np.random.default_rng(1)
    a, x, v = rng.normal(size=(5, 4)), rng.normal(size=4), rng.normal(size=4)
    fn = quartic(a)
    h = a.T @ np.diag(12 * (a @ x) ** 2) @ a
    np.testing.assert_allclose(od.hvp(fn, (x,), (v,)), h @ v, rtol=1e-12)
    np.testing.assert_allclose(od.hvp(fn, x, v), h @ v, rtol=1e-12)
    np.testing.assert_allclose(od.jvp(od.grad(fn), (x,), (v,))[1], h @ v, rtol=1e-12)
    np.testing.assert_allclose(od.vjp(od.grad(fn), x)[1](v)[0], h @ v, rtol=1e-12)
    np.testing.assert_allclose(od.grad(lambda y: od.jvp(fn, (y,), (v,))[1])(x), h @ v, rtol=1e-12)
    matrix = od.hessian(fn)(x)
    np.testing.assert_allclose(matrix, h, rtol=1e-12)
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-12)


def test_hvp_of_several_arguments_is_a_tuple_and_mixes_them():
    x, y = np.array([1.0, 2.0]), 3.0
    product = od.hvp(lambda x, y: (x * x).sum() * y, (x, y), (np.array([1.0, 0.0]), 10.0))
    np.testing.assert_array_equal(product[0], [2 * 3.0 + 20.0, 40.0])
    assert float(product[1]) == 2.0


# ------------------------------------------------------------------ Jacobians and Hessians


@pytest.mark.parametrize("rows", [2, 3, 7], ids=["wide", "square", "tall"])
def test_the_jacobian_is_the_matrix_of_a_linear_map_in_both_modes(rows):
    a = np.random.default_rng(2).normal(size=(rows, 3))
    np.testing.assert_allclose(od.jacobian(lambda x: a @ x)(np.ones(3)), a, rtol=1e-15)


@pytest.mark.parametrize(
    ("rows", "sweep"),
    [(2, "gradient"), (3, "gradient"), (7, "jvp")],
    ids=["wide", "square", "tall"],
)
def test_the_jacobian_sweeps_forward_where_inputs_are_fewer(rows, sweep, monkeypatch):
    called = []
    for name in ("gradient", "jvp"):
        real = getattr(GradientTape, name)

        def counting(self, *args, real=real, name=name, **options):
            called.append(name)
            return real(self, *args, **options)

        monkeypatch.setattr(GradientTape, name, counting)
    od.jacobian(lambda x: np.ones((rows, 3)) @ x)(np.ones(3))
    assert called == [sweep]


def test_jacobians_are_trees_of_results_of_trees_of_arguments():
    def fn(p, k):
        return {"outer": ops.reshape(p["w"], (2, 1)) * p["b"] * k, "sum": p["w"].sum()}

    p, k = {"w": np.array([1.0, 2.0]), "b": np.array([3.0, 4.0, 5.0])}, 2.0
    jac = od.jacobian(fn, argnums=(0, 1))(p, k)
    assert list(jac) == ["outer", "sum"]
    tree, to_k = jac["outer"]
    assert tree["w"].shape == (2, 3, 2)
    assert tree["b"].shape == (2, 3, 3)
    expected = np.zeros((2, 3, 2))
    expected[0, :, 0] = expected[1, :, 1] = k * p["b"]
    np.testing.assert_array_equal(tree["w"], expected)
    np.testing.assert_array_equal(to_k, np.outer(p["w"], p["b"]))
    np.testing.assert_array_equal(jac["sum"][0]["w"], np.ones(2))
    np.testing.assert_array_equal(jac["sum"][0]["b"], np.zeros(3))
    bare = od.jacobian(fn)(p, k)
    np.testing.assert_array_equal(bare["outer"]["w"], expected)


def test_hessians_are_trees_of_trees():
    def fn(p):
        return (p["x"] * p["x"]).sum() * p["y"]

    h = od.hessian(fn)({"x": np.array([1.0, 2.0]), "y": 3.0})
    np.testing.assert_array_equal(h["x"]["x"], 6.0 * np.eye(2))
    np.testing.assert_array_equal(h["x"]["y"], [2.0, 4.0])
    np.testing.assert_array_equal(h["y"]["x"], [2.0, 4.0])
    assert float(h["y"]["y"]) == 0.0


def test_the_hessian_of_a_vector_has_an_axis_more():
    x = np.array([1.0, 2.0])
    h = od.hessian(lambda x: x * x * x)(x)
    expected = np.zeros((2, 2, 2))
    expected[0, 0, 0], expected[1, 1, 1] = 6.0, 12.0
    np.testing.assert_array_equal(h, expected)


def test_empty_arrays_have_empty_jacobians():
    assert od.jacobian(lambda x: x * 2.0)(np.zeros(0)).shape == (0, 0)
    assert od.jacobian(lambda x: x.sum())(np.zeros((0, 2))).shape == (0, 2)
    with pytest.warns(IndependentWarning):
        zeros = od.jacobian(lambda x: np.ones(2))(np.ones(3))
    np.testing.assert_array_equal(zeros, np.zeros((2, 3)))


def test_jacobians_and_hessians_nest_in_gradients():
    x = np.array([1.0, 2.0])
    # tr ∂(x³)/∂x = 3 x·x, and the sum of the Hessian of Σx⁴ is 12 x·x.
    np.testing.assert_allclose(od.grad(lambda x: od.jacobian(lambda y: y**3.0)(x).sum())(x), 6 * x)
    hessian_sum = od.grad(lambda x: od.hessian(lambda y: (y**4.0).sum())(x).sum())(x)
    np.testing.assert_allclose(hessian_sum, 24 * x)
    third = od.jacobian(od.hessian(lambda y: (y**3.0).sum()))(x)
    expected = np.zeros((2, 2, 2))
    expected[0, 0, 0] = expected[1, 1, 1] = 6.0
    np.testing.assert_allclose(third, expected, atol=1e-12)


# ------------------------------------------------------------------ perturbation confusion


@pytest.mark.parametrize("inner", [od.grad, slope], ids=["reverse", "forward"])
@pytest.mark.parametrize("outer", [od.grad, slope], ids=["reverse", "forward"])
@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (lambda d: lambda x: x * d(lambda y: x + y)(1.0), 1.0),
        (lambda d: lambda x: x * d(lambda y: x * y)(1.0), 6.0),
        (lambda d: lambda x: x * d(lambda y: x * y)(x), 6.0),
        (lambda d: lambda x: x * d(lambda y: y * y)(x), 12.0),
        (lambda d: lambda x: d(lambda y: (x * y) * (x * y))(2.0), 24.0),
        (lambda d: lambda x: x * d(lambda y: y * d(lambda z: x + y + z)(2.0))(1.0), 1.0),
        (lambda d: lambda x: x * d(lambda y: y * d(lambda z: x * y * z)(2.0))(1.0), 12.0),
    ],
    ids=["sum", "product", "same point", "square", "both", "three sums", "three"],
)
def test_derivatives_do_not_confuse_their_perturbations(outer, inner, fn, expected):
    assert float(outer(fn(inner))(3.0)) == expected

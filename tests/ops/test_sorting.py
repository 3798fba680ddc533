"""Sorting: NumPy's order, and the permutation as derivative."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from support.cases import assert_same, random_like


def test_sorting_puts_nan_last_and_gives_each_element_the_gradient_of_its_place():
    x = np.array([[2.0, np.nan, -1.0, 2.0], [0.0, -np.inf, np.nan, np.inf]])
    g = np.array([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    leaf = Variable(x, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        out = np.sort(leaf)
    assert_same(out.numpy(), np.sort(x))
    # Both 2.0 keep their order.
    wanted = np.array([[2.0, 4.0, 1.0, 3.0], [6.0, 5.0, 8.0, 7.0]])
    assert_same(tape.gradient(out, leaf, g), wanted)
    assert_same(tape.jvp(out, leaf, wanted), g)


@pytest.mark.parametrize("axis", [0, -1, None], ids=str)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_sorting_is_stable_and_its_gradient_the_permutation(axis, dtype):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 3, (40, 5)).astype(dtype)  # many of a kind
    if dtype == "complex128":
        x = x + 1j * rng.integers(0, 2, x.shape)
    order = np.argsort(x, axis=axis, kind="stable")
    leaf = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        out = np.sort(leaf, axis, "stable")
    g = random_like(out, 1)
    wanted = np.zeros(x.shape, dtype)
    if axis is None:
        wanted.reshape(-1)[order] = g
    else:
        np.put_along_axis(wanted, order, g, axis)
    assert_same(out.numpy(), np.take_along_axis(x, order, axis))
    assert_same(tape.gradient(out, leaf, g), wanted)


def test_where_elements_stood_is_a_constant_also_while_a_graph_is_traced():
    x = np.array([3.0, 1.0, 2.0])

    def median(v):
        return ops.take(v, np.argsort(v)[1])

    assert_same(od.compile(median)(x), np.float64(2.0))
    assert_same(od.compile(od.grad(median))(x), np.array([0.0, 0.0, 1.0]))
    assert_same(od.grad(lambda v: ops.sum(ops.sort(v) * x))(x), np.array([2.0, 3.0, 1.0]))


@pytest.mark.parametrize("axis", [0, 1, -1, None])
@pytest.mark.parametrize(
    "kind", ["numbers", "ties", "signed zeros", "NaN", "single", "integers", "unsigned", "small"]
)
def test_large_arrays_are_sorted_as_stably_as_small_ones(kind, axis):
    rng = np.random.default_rng(0)
    x = {
        "numbers": rng.normal(size=(60, 50)),
        "ties": rng.integers(0, 9, (60, 50)).astype(float),
        "signed zeros": rng.choice([0.0, -0.0, 1.0], (60, 50)),
        "NaN": rng.choice([0.0, np.nan, 1.0, -np.inf], (60, 50)),
        "single": rng.integers(0, 99, (60, 50)).astype(np.float32),
        "integers": rng.integers(-99, 99, (60, 50)),
        "unsigned": rng.integers(0, 2**60, (60, 50)).astype(np.uint64) // 2**58,
        "small": rng.integers(0, 99, (60, 50)).astype(np.int8),
    }[kind]
    for laid in (x, np.asfortranarray(x), x[::-1]):
        wanted = np.argsort(laid, axis, kind="stable")
        np.testing.assert_array_equal(ops.argsort(laid, axis), wanted)
        if x.dtype.kind != "f":
            continue
        leaf = od.Variable(laid, requires_grad=True)
        with od.GradientTape() as tape:
            out = ops.sort(leaf, axis)
        np.testing.assert_array_equal(out.numpy(), np.sort(laid, axis))
        c = rng.normal(size=out.shape).astype(x.dtype)
        slopes = np.zeros(laid.shape)
        if axis is None:
            slopes.reshape(-1)[wanted] = c
        else:
            np.put_along_axis(slopes, wanted, c, axis)
        np.testing.assert_array_equal(tape.gradient(out, leaf, c), slopes)

"""Functions of users that write to one workspace in each call: results and gradients stay."""

import sys

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops

sys_counts = pytest.mark.skipif(
    not hasattr(sys, "getrefcount"), reason="an interpreter that does not count references"
)
# Below and above what a tape copies of others.
sizes = pytest.mark.parametrize("n", [3, 1000], ids=["small", "large"])
ways = pytest.mark.parametrize("show", ["itself", "a part", "another shape"])


def double_into(n, show):
    """Twice what comes, computed in a workspace that is shown in one of several ways."""
    space = np.zeros(n if show == "itself" else n + 2)

    def double(x):
        np.multiply(x, 2.0, out=space[:n])
        if show == "itself":
            return space
        return space[:n] if show == "a part" else space[:n].reshape(1, n).T.reshape(n)

    return double


def by_custom_vjp(forward, backward):
    """A function of one array, whose rules are ``forward`` and ``backward``."""
    fn = od.custom_vjp(forward)
    fn.defvjp(lambda x: (forward(x), None), lambda kept, g: (backward(g),))
    return fn


def by_residuals(forward, backward):
    """The same, which keeps its result too, in a list with others."""
    fn = od.custom_vjp(forward)

    def both(x):
        out = forward(x)
        return [out, 1.0], (out, x)

    fn.defvjp(both, lambda kept, g: [backward(g[0])])
    return lambda x: fn(x)[0]


def by_op(forward, backward):
    """The same as an op of the table."""

    @od.op(vjp={"x": lambda g: backward(g) if isinstance(g, np.ndarray) else g * 2.0})
    def twice(x, /):
        """Two times."""
        return forward(x)

    return twice


def by_op_of_two(forward, backward):
    """The first of two results of an op, which are one array."""

    @od.op(
        results=("a", "b"),
        vjp={"x": lambda g_a, g_b: backward(g_a) if isinstance(g_a, np.ndarray) else g_a * 2.0},
    )
    def twice_twice(x, /):
        """Two times, given twice."""
        out = forward(x)
        return out, out

    return lambda x: twice_twice(x)[0]


KINDS = [by_custom_vjp, by_residuals, by_op, by_op_of_two]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__[3:])
def declare(request):
    """Makes a function of a user out of its meaning and its rule."""
    return request.param


@sizes
@ways
def test_results_are_not_overwritten_by_the_next_call(declare, n, show):
    double = declare(double_into(n, show), lambda g: 2.0 * g)
    w = Variable(np.ones(n), requires_grad=True)
    if declare is by_residuals and (n, show) == (1000, "itself"):  # the tape has locked it
        with GradientTape(), pytest.raises(ValueError, match="read-only"):
            double(w), double(w)
        return
    with GradientTape() as tape:
        y, z = double(w), double(w * 3.0)
        loss = ops.sum(y * z)
    np.testing.assert_array_equal(y.numpy(), np.full(n, 2.0))
    np.testing.assert_array_equal(z.numpy(), np.full(n, 6.0))
    np.testing.assert_array_equal(tape.gradient(loss, w), np.full(n, 24.0))


@sizes
@ways
def test_gradients_are_not_overwritten_by_the_next_rule(declare, n, show):
    double = declare(lambda x: 2.0 * x, double_into(n, show))
    w = Variable(np.ones(n), requires_grad=True)
    with GradientTape() as tape:
        loss = ops.sum(double(w) + double(w) * 3.0 + double(w * 2.0))
    np.testing.assert_array_equal(tape.gradient(loss, w), np.full(n, 12.0))


@sizes
def test_what_nothing_records_is_not_overwritten_either(n):
    double = by_custom_vjp(double_into(n, "itself"), lambda g: 2.0 * g)
    w = Variable(np.ones(n))
    y, z = double(w), double(w * 3.0)
    assert (y.numpy()[0], z.numpy()[0]) == (2.0, 6.0)


@sys_counts
def test_results_that_nobody_else_has_are_not_copied(declare):
    made = []

    def sine(x):
        out = np.sin(x)
        made.append(out.ctypes.data)
        return out

    with GradientTape():
        y = declare(sine, lambda g: g)(Variable(np.ones(1000), requires_grad=True))
    # Of two results that are one array, one is a copy.
    assert y._array.ctypes.data == made[-1] or declare is by_op_of_two

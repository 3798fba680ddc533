"""A result is a value of its own: what is written to it leaves what it was made of as it is."""

from contextlib import nullcontext

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable

POINT = np.array([3.0, 2.0, -1.0])

# What hands on a value as it is; in NumPy or in a compiled program the result is another array.
HANDED_ON = {
    "plus": lambda v: +v,
    "np.positive": np.positive,
    "block": np.block,
    "cond": lambda v: od.cond(v[0] > 0, lambda q: q, lambda q: q * 2.0, v),
    "cond of what it closes over": lambda v: od.cond(v[0] > 0, lambda: v, lambda: v * 2.0),
    "scan": lambda v: od.scan(lambda c, x: (c, None), v, np.zeros(2))[0],
    "scan of no steps": lambda v: od.scan(lambda c, x: (c, None), v, np.zeros(0))[0],
    "while_loop": lambda v: od.while_loop(lambda c: c[0] < 0, lambda c: c * 2.0, v),
}
handed_on = pytest.mark.parametrize("hand_on", HANDED_ON.values(), ids=list(HANDED_ON))


def written(hand_on):
    """A function that writes to what was handed on, and is the sum of squares of what it was."""

    def fn(v):
        own = v * 1.0
        result = hand_on(own)
        result[0] = 9.0
        return (own * own).sum() + 0.0 * result.sum()

    return fn


@handed_on
def test_a_write_to_a_result_leaves_the_operand_as_it_is(hand_on):
    value, gradient = od.value_and_grad(written(hand_on))(POINT)
    assert value == 14.0
    np.testing.assert_array_equal(gradient, 2.0 * POINT)
    assert float(written(hand_on)(Variable(POINT))) == 14.0
    with od.no_grad():
        assert float(written(hand_on)(Variable(POINT, requires_grad=True))) == 14.0


@handed_on
def test_so_it_is_in_each_call_of_a_compiled_function(hand_on):
    compiled = od.compile(od.value_and_grad(written(hand_on)))
    for _ in range(3):
        value, gradient = compiled(POINT)
        assert value == 14.0
        np.testing.assert_array_equal(gradient, 2.0 * POINT)


@pytest.mark.parametrize("paused", [False, True], ids=["outside", "paused"])
def test_what_a_checkpointed_function_writes_stays_inside_where_nothing_records(paused):
    @od.checkpoint
    def layer(h, *, k):
        h[0] = 1.0
        k["k"] += 1.0
        return h.sum(), h, k

    h, k = Variable(POINT), Variable(2.0)
    with od.no_grad() if paused else nullcontext():
        total, written_to, tree = layer(h, k={"k": k})
        assert od.checkpoint(lambda h: h)(h) is h
    assert (float(total), float(written_to[0]), float(tree["k"])) == (2.0, 1.0, 3.0)
    np.testing.assert_array_equal(h.numpy(), POINT)
    assert float(k) == 2.0


# ------------------------------------------------------------------ what derivatives hand over


def one_of_two_gradients(v):
    first, second = od.grad(lambda p, q: ((p + q) ** 2).sum(), argnums=(0, 1))(v * 1.0, v * 1.0)
    first[0] = 100.0
    return (second * second).sum() / 16.0


def a_cotangent(v):
    ct = v * 1.0
    pulled = od.vjp(lambda q: q, v * 2.0)[1](ct)[0]
    pulled[0] = 100.0
    return (ct * ct).sum()


def a_tangent(v):
    t = v * 1.0
    moved = od.jvp(lambda q: q, (v * 2.0,), (t,))[1]
    moved[0] = 100.0
    return (t * t).sum()


def what_was_pulled_from(v):
    out, pullback = od.vjp(lambda q: q * q, v * 1.0)
    out[0] = 100.0
    return (pullback(v)[0]).sum() / 2.0


def one_source_asked_for_twice(v):
    with GradientTape() as tape:
        w = tape.watch(v)
        loss = (w * w).sum()
    found = tape.gradient(loss, {"a": w, "b": w}, create_graph=True)
    found["a"][0] = 100.0
    return (found["b"] * found["b"]).sum() / 4.0


def one_of_two_results_beside(v):
    _, (first, second) = od.value_and_grad(lambda a: (a.sum(), (a, a)), has_aux=True)(v * 1.0)[0]
    first[0] = 100.0
    return (second * second).sum()


HANDED_OVER = [
    one_of_two_results_beside,
    one_of_two_gradients,
    a_cotangent,
    a_tangent,
    what_was_pulled_from,
    one_source_asked_for_twice,
]


@pytest.mark.parametrize("fn", HANDED_OVER)
def test_a_write_to_a_derivative_changes_nothing_else(fn):
    assert float(fn(Variable(POINT))) == 14.0
    for whole in (od.value_and_grad(fn), od.compile(od.value_and_grad(fn))):
        for _ in range(2):
            value, gradient = whole(POINT)
            assert float(value) == 14.0
            np.testing.assert_allclose(gradient, 2.0 * POINT, rtol=1e-15)

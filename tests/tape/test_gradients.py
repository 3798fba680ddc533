"""Gradients share memory with nothing, failed sweeps leave no half-truths."""

import copy
import threading
from itertools import combinations

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError, TapeConsumedError


def leaf(value, size=6, name=None):
    return Variable(np.full(size, float(value)), requires_grad=True, name=name)


def assert_apart(arrays):
    for (a, x), (b, y) in combinations(arrays.items(), 2):
        assert not np.shares_memory(x, y), f"{a} and {b} share memory"


PASSING = {
    "add": (lambda a, b: a + b, (6,)),
    "subtract": (lambda a, b: a - b, (6,)),
    "reshape": (lambda a, b: (a + b).reshape(2, 3), (2, 3)),
    "transpose": (lambda a, b: (a.reshape(2, 3) + b.reshape(2, 3)).T, (3, 2)),
    "broadcast": (lambda a, b: ops.broadcast_to(a, (6,)) + ops.broadcast_to(b, (6,)), (6,)),
    "sum": (lambda a, b: (a + b).sum(), ()),
    "mean": (lambda a, b: (a + b).mean(), ()),
    "slice": (lambda a, b: (a + b)[:], (6,)),
    "identity": (lambda a, b: ops.identity(a) + ops.identity(b), (6,)),
    "same leaf": (lambda a, b: a + a + b, (6,)),
}


@pytest.mark.parametrize("persistent", [False, True], ids=["consumed", "persistent"])
@pytest.mark.parametrize(("fn", "shape"), PASSING.values(), ids=PASSING)
def test_gradients_cotangents_and_entries_share_no_memory(fn, shape, persistent):
    a, b = leaf(2), leaf(3)
    with GradientTape(persistent=persistent) as tape:
        h, k = a * 1.0, b * 1.0
        y = fn(h, k)
    g = np.ones(shape)
    gradients = tape.backward(y, g)
    arrays = {"g": g, "a.grad": a.grad, "b.grad": b.grad}
    arrays |= {f"[{n}]": gradients[v] for n, v in zip("abhky", (a, b, h, k, y), strict=True)}
    arrays |= {n: v.data for n, v in zip(("a", "b", "h", "k", "y"), (a, b, h, k, y), strict=True)}
    values = {n: v for n, v in arrays.items() if n in ("a", "b", "g", "a.grad", "b.grad")}
    assert_apart(values | {n: v for n, v in arrays.items() if n.startswith("[")})
    for n in ("a.grad", "b.grad", "[a]", "[b]", "[h]", "[k]", "[y]"):
        for kept in ("h", "k", "y"):
            assert not np.shares_memory(arrays[n], arrays[kept])


@pytest.mark.parametrize(("fn", "shape"), PASSING.values(), ids=PASSING)
def test_results_of_gradient_share_no_memory(fn, shape):
    a, b = leaf(2), leaf(3)
    with GradientTape() as tape:
        h, k = a * 1.0, b * 1.0
        y = fn(h, k)
    g = np.ones(shape)
    results = tape.gradient(y, [a, b, h, k, y, a], g)
    assert_apart({"g": g} | {f"result {n}": r for n, r in enumerate(results)})
    assert all(r.flags.writeable and r.flags.owndata for r in results)


@pytest.mark.parametrize("value", [1.5, 1.0 + 2.0j], ids=["real", "complex"])
def test_the_gradient_of_a_single_number_is_an_array_that_can_be_written_to(value):
    w = Variable(np.array(value), requires_grad=True)
    with GradientTape() as tape:
        y = w * w
    tape.backward(y, np.array(1.0, w.dtype))
    np.testing.assert_allclose(w.grad, np.conj(2 * value))
    w.grad[...] = 0.0
    assert w.grad == 0.0


def test_an_entry_that_outlives_its_mapping_is_not_the_gradient():
    w = leaf(2)
    with GradientTape() as tape:
        y = (w * w).sum()
    entry = tape.backward(y)[w]
    entry[...] = 0.0
    np.testing.assert_array_equal(w.grad, np.full(6, 4.0))


def test_the_mapping_does_not_follow_writes_to_the_gradient_or_the_cotangent():
    w, c = leaf(2), np.ones(6)
    with GradientTape() as tape:
        y = w * 3.0
    gradients = tape.backward(y, c)
    w.grad[...] = 0.0
    c[...] = 7.0
    np.testing.assert_array_equal(gradients[w], np.full(6, 3.0))
    np.testing.assert_array_equal(gradients[y], np.ones(6))
    gradients[w][...] = 5.0
    np.testing.assert_array_equal(w.grad, np.zeros(6))


def test_a_second_sweep_does_not_write_into_what_the_first_handed_out():
    w = leaf(2)
    with GradientTape(persistent=True) as tape:
        y = (w * w).sum()
    first = tape.backward(y)
    early = w.grad
    tape.backward(y)
    np.testing.assert_array_equal(early, np.full(6, 4.0))
    np.testing.assert_array_equal(first[w], np.full(6, 4.0))
    np.testing.assert_array_equal(w.grad, np.full(6, 8.0))


def test_a_hook_that_writes_to_what_it_is_shown_changes_nothing():
    a, b, c = leaf(2), leaf(3), np.ones(6)

    def spoil(g):
        g *= 0.0

    with GradientTape() as tape:
        p, q = a * 1.0, b * 1.0
        y = p + q
    for v in (p, y, a):
        tape.on_gradient(v, spoil)
    tape.backward(y, c)
    np.testing.assert_array_equal(a.grad, np.ones(6))
    np.testing.assert_array_equal(b.grad, np.ones(6))
    np.testing.assert_array_equal(c, np.ones(6))


def test_what_a_hook_saw_or_returned_is_not_the_gradient():
    a, seen, mine = leaf(2), [], np.full(6, 5.0)
    with GradientTape() as tape:
        y = (a * a).sum()

    def swap(g):
        seen.append(g)
        return mine

    tape.on_gradient(a, swap)
    tape.backward(y)
    np.testing.assert_array_equal(a.grad, mine)
    assert_apart({"seen": seen[0], "returned": mine, "grad": a.grad})


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_a_foreign_rule_that_returns_what_was_saved_hands_out_a_copy(mode):
    @od.op(elementwise=True, vjp={"x": lambda g, out: out})
    def odd(x, /):
        return x * 2.0

    a = leaf(2)
    with GradientTape(persistent=True) as tape:
        y = odd(a)
    ask = (
        (lambda: tape.gradient(y, a, np.ones(6)))
        if mode == "reverse"
        else (lambda: tape.jvp(y, a, np.ones(6)))
    )
    ask()[...] = 0.0
    np.testing.assert_array_equal(ask(), np.full(6, 4.0))
    np.testing.assert_array_equal(y.data, np.full(6, 4.0))


@pytest.mark.parametrize("sweep", ["backward", "gradient"])
def test_a_tangent_passed_in_is_not_what_comes_back(sweep):
    a, c = leaf(2), np.ones(6)
    with GradientTape(persistent=True) as tape:
        y = a + 0.0
    assert not np.shares_memory(tape.jvp(y, a, c), c)
    assert not np.shares_memory(tape.jvp(a, a, c), c)
    if sweep == "gradient":
        assert not np.shares_memory(tape.gradient(a, a, c), c)
    else:
        tape.backward(y, c)
        assert not np.shares_memory(a.grad, c)


# ------------------------------------------------------------------ sweeps that fail


@pytest.mark.parametrize("retry", ["same", "other"])
def test_a_sweep_that_numpy_stopped_half_way_answers_nothing_afterwards(retry):
    x = Variable(np.array([0.0, 4.0]), requires_grad=True)
    with GradientTape() as tape:
        y = ops.sqrt(x).sum()
        z = (x * 2.0).sum()
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        tape.backward(y)
    assert x.grad is None
    with pytest.raises(TapeConsumedError):
        tape.backward(y if retry == "same" else z)
    assert x.grad is None
    assert len(tape) == 0


@pytest.mark.parametrize("persistent", [False, True], ids=["consumed", "persistent"])
def test_a_sum_of_gradients_that_numpy_stopped_changes_none(persistent):
    a, b, c = leaf(0.0), leaf(0.0), leaf(0.0)

    def recorded():
        with GradientTape(persistent=persistent) as tape:
            return tape, (a * 1.0 + b * 1e308 + c * 3.0).sum()

    tape, y = recorded()
    tape.backward(y)
    c.zero_grad()
    tape, y = recorded()
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        tape.backward(y)  # the gradient of b overflows, after those of a and c
    assert (set(a.grad), set(b.grad), c.grad) == ({1.0}, {1e308}, None)
    if persistent:
        b.zero_grad()
        tape.backward(y)
        assert (set(a.grad), set(b.grad), set(c.grad)) == ({2.0}, {1e308}, {3.0})
    else:
        with pytest.raises(TapeConsumedError):
            tape.backward(y)


def test_looking_a_gradient_up_keeps_one_array():
    w = leaf(1.0, size=1000)
    with GradientTape() as tape:
        a = w * 2.0
        y = (a * a).sum()
    gradients = tape.backward(y)
    assert gradients[w] is gradients[w] is not w._info.grad
    assert gradients[a] is gradients[a]
    assert gradients._leaves[w] is None
    assert gradients._reached[a.id] is None
    assert w in gradients
    assert a in gradients
    assert list(gradients) == [w]


def test_gradients_that_threads_look_up_at_once_are_conjugated_once():
    for _ in range(4):
        w = Variable(np.full(500_000, 1 + 2j), requires_grad=True)
        with GradientTape() as tape:
            y = w * (2 + 3j)
            z = (y * (1 + 1j)).sum()
        gradients, found, together = tape.backward(z), [], threading.Barrier(3)

        def look(gradients=gradients, y=y, found=found, together=together):
            together.wait()
            found.append(gradients[y])

        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [g[0] for g in found] == [1 - 1j] * 3
        assert found[0] is found[1] is found[2]


def test_a_gradient_that_is_a_trainable_variable_is_added_to_under_a_tape():
    w, u = leaf(1.0), leaf(2.0)
    w.grad = Variable(np.full(6, 10.0), requires_grad=True)
    with GradientTape() as tape:
        y = (w * u).sum()
        tape.backward(y)
    assert set(np.asarray(w.grad.detach())) == {12.0}
    assert set(u.grad) == {1.0}
    assert tape.consumed


def test_a_persistent_tape_outlives_a_delivery_that_numpy_stopped():
    tape = GradientTape(persistent=True)
    w = tape.variable(np.full(2, 1.0))
    w.grad = np.full(2, 1.7e308)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        tape.backward(w, grad=np.full(2, 1.7e308))
    assert not tape.consumed
    assert set(w.grad) == {1.7e308}


def test_a_persistent_tape_survives_a_sweep_that_numpy_stopped():
    x = Variable(np.array([0.0, 4.0]), requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = ops.sqrt(x).sum()
        z = (x * 2.0).sum()
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        tape.backward(y)
    np.testing.assert_array_equal(tape.gradient(z, x), [2.0, 2.0])
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(tape.gradient(y, x), [np.inf, 0.25])


def test_a_hook_that_fails_leaves_gradients_and_nodes_as_they_were():
    a, b = leaf(2), leaf(3)

    def wrong(g):
        return np.ones(2)

    with GradientTape() as tape:
        y = (a * b).sum()
    nodes = len(tape)
    tape.on_gradient(b, wrong)
    for _ in range(2):  # the function is not lost either: without it the gradient would differ
        with pytest.raises(ShapeError, match="on_gradient"):
            tape.backward(y)
        assert (a.grad, b.grad, len(tape)) == (None, None, nodes)
    np.testing.assert_array_equal(tape.gradient(y, a), np.full(6, 3.0))


# ------------------------------------------------------------------ Variables as gradients


@pytest.mark.parametrize("recorded", [False, True], ids=["plain", "recorded"])
def test_a_constant_that_a_hook_returns_becomes_a_gradient_like_others(recorded):
    w, scale = leaf(2.0), Variable(3.0)
    with GradientTape(persistent=True) as tape:
        y = (w * w).sum()
        tape.on_gradient(w, lambda g: Variable(np.ones(6)) * scale)
    found = tape.gradient(y, w, create_graph=recorded)
    assert recorded or type(found) is np.ndarray
    assert np.asarray(found).tolist() == [3.0] * 6


def test_a_parameter_that_a_plain_hook_multiplies_by_leaves_an_array():
    w, scale = leaf(2.0), leaf(3.0)
    with GradientTape() as tape:
        y = (w * w).sum()
        tape.on_gradient(w, lambda g: g * scale)
    tape.backward(y)
    assert type(w.grad) is np.ndarray
    assert w.grad.tolist() == [12.0] * 6


@pytest.mark.parametrize("kind", ["complex128", "complex64"])
def test_a_hook_cannot_change_the_dtype_by_returning_a_variable(kind):
    w = leaf(2.0)
    with GradientTape() as tape:
        y = (w * w).sum()
        tape.on_gradient(w, lambda g: Variable(np.ones(6, kind)))
    with pytest.raises(DTypeError, match="on_gradient: the function returned"):
        tape.backward(y)
    with GradientTape() as tape:
        y = (w * w).sum()
        tape.on_gradient(w, lambda g: Variable(np.ones(6, np.float32)))
    tape.backward(y)
    assert w.grad.dtype == np.float64


def test_a_constant_that_is_given_as_a_gradient_is_copied_and_cast():
    w, other = leaf(2.0), Variable(np.arange(6))
    w.grad = other
    other.assign(np.zeros(6, int))
    assert type(w.grad) is np.ndarray
    assert w.grad.dtype == np.float64
    assert w.grad.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert copy.deepcopy(w).grad.tolist() == w.grad.tolist()
    for wrong in (Variable(np.ones(6) * 1j), Variable(np.ones(6) * 1j, requires_grad=True)):
        with pytest.raises(DTypeError, match="grad: a gradient of dtype complex128 came"):
            w.grad = wrong


@pytest.mark.parametrize(
    "call",
    [lambda w: w + 1.0, lambda w: w.reshape(6), lambda w: w[:, ::-1], lambda w: w, lambda w: -w],
    ids=["as it is", "reshaped", "turned", "the leaf", "negative"],
)
@pytest.mark.parametrize("watched", [True, False], ids=["watched", "leaf"])
def test_a_gradient_shares_no_memory_with_the_cotangent_that_was_given(call, watched):
    w = Variable(np.ones((2, 3)), requires_grad=True)
    with GradientTape() as tape:
        x = tape.watch(w) if watched else w
        y = call(x)
    given = np.arange(6.0).reshape(y.shape)
    before = given.copy()
    found = tape.gradient(y, x, given)
    assert not np.shares_memory(found, given)
    found += 1.0
    np.testing.assert_array_equal(given, before)

"""Loops update the rows of a carry where it lies, in one copy of what they are given."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.runtime import control_flow

ROWS, STEPS = 60, 90  # more steps than are unrolled
X = np.random.default_rng(0).normal(size=(ROWS, 4))


def put(x, row, at):
    return ops.dynamic_update_slice(x, ops.reshape(row, (1, 4)), (at, 0))


def row_of(x, at):
    return ops.dynamic_slice(x, (at, 0), (1, 4))[0]


def scanned(step, *carry):
    """The carries after a scan."""

    def advance(carry, k):
        return step(*carry, k), None

    return od.scan(advance, carry, np.arange(STEPS))[0]


def looped(step, *carry):
    """The carries after a while_loop."""

    def advance(carry):
        *others, k = carry
        return (*step(*others, k), k + 1)

    made = od.while_loop(lambda carry: carry[-1] < STEPS, advance, (*carry, np.array(0)))
    return made[:-1]


def plainly(step, *carry):
    """The carries after a loop of Python on copies."""
    carry = tuple(np.array(x) for x in carry)
    for k in range(STEPS):
        carry = tuple(np.asarray(x) for x in step(*carry, k))
    return carry


def item(x, row, at):
    """Return ``x`` with a row set by an index that may be traced."""
    return ops.put_along_axis(x, np.zeros((1, 4), int) + at, ops.reshape(row, (1, 4)), 0)


IN_PLACE = {
    "a row": (lambda x, k: (put(x, row_of(x, (k + 7) % ROWS) * 0.5, k % ROWS),), {0}),
    "elements": (lambda x, k: (item(x, row_of(x, 3) + 1.0, k % ROWS),), {0}),
    "two rows": (lambda x, k: (item(put(x, X[0], k % ROWS), X[1], (k + 3) % ROWS),), {0}),
    "two carries": (
        lambda x, y, k: (put(x, row_of(y, 5), k % ROWS), put(y, row_of(x, 6), k % ROWS)),
        {0, 1},
    ),
    "one of two": (lambda x, y, k: (x * 0.5 + y, put(y, row_of(x, 1), k % ROWS)), {1}),
}
COPIED = {
    "the old value is read": lambda x, k: (put(x, x.sum(0) * 0.01, k % ROWS) + x * 0.1,),
    "swapped": lambda x, y, k: (put(y, X[0], k % ROWS), put(x, X[1], k % ROWS)),
    "all rows": lambda x, k: (x[::-1] * 0.9,),
    "a host call": lambda x, k: (put(x, ops.sort(row_of(x, (k + 1) % ROWS)), k % ROWS),),
    "a host call of the new value": lambda x, k: (ops.sort(put(x, X[2], k % ROWS), axis=0),),
}


@pytest.fixture
def updated(monkeypatch):
    """Sets of the carries that loops updated in place, as their programs are made."""
    found, init = [], control_flow._NativeLoopState.__init__

    def noting(self, loop, parts):
        init(self, loop, parts)
        found.append(set(self._updated))

    monkeypatch.setattr(control_flow._NativeLoopState, "__init__", noting)
    return found


def check(step, updated, loop):
    """Compare a loop in a program with one of Python, and return what it updated in place."""
    count = step.__code__.co_argcount - 1
    given = [X, X[::-1].copy()][:count]
    before = [x.copy() for x in given]
    wanted = plainly(step, *given)
    compiled = od.compile(lambda *carry: loop(step, *carry), check=True)
    compiled.precompile(*given)
    for _ in range(2):
        got = compiled(*given)
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
        for x, y in zip(given, before, strict=True):  # operands are not written to
            np.testing.assert_array_equal(x, y)
    assert compiled.statistics().native == 2
    states = [od.Variable(x) for x in given]
    compiled = od.compile(
        lambda: [s.assign(x) for s, x in zip(states, loop(step, *states), strict=True)] and None
    )
    compiled.precompile()
    compiled()
    for s, b in zip(states, wanted, strict=True):
        np.testing.assert_allclose(s.numpy(), b, rtol=1e-12)
    return updated


@pytest.mark.parametrize("loop", [scanned, looped])
@pytest.mark.parametrize("name", IN_PLACE)
def test_rows_of_carries_are_written_in_place(name, loop, updated):
    step, carries = IN_PLACE[name]
    assert check(step, updated, loop) == [carries, carries]


@pytest.mark.parametrize("loop", [scanned, looped])
@pytest.mark.parametrize("name", COPIED)
def test_other_carries_have_two_buffers(name, loop, updated):
    assert not any(check(COPIED[name], updated, loop))


def test_one_array_may_be_two_carries():
    def step(x, y, k):
        return put(x, row_of(y, 2), k % ROWS), put(y, row_of(x, 3) * 0.5, k % ROWS)

    compiled = od.compile(lambda x: scanned(step, x, x))
    compiled.precompile(X)
    for a, b in zip(compiled(X), plainly(step, X, X), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_a_loop_without_steps_returns_a_copy():
    compiled = od.compile(
        lambda x, n: od.while_loop(
            lambda c: c[1] < n, lambda c: (put(c[0], X[0], c[1]), c[1] + 1), (x, n * 0)
        )[0]
    )
    compiled.precompile(X, np.array(0))
    for n in (0, 3, 0):
        got = compiled(X, np.array(n))
        np.testing.assert_array_equal(got[:n], np.broadcast_to(X[0], (n, 4)))
        np.testing.assert_array_equal(got[n:], X[n:])
        assert not np.shares_memory(got, X)


def test_eager_loops_leave_their_operands():
    before = X.copy()
    (got,) = scanned(IN_PLACE["a row"][0], X)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_allclose(got, plainly(IN_PLACE["a row"][0], X)[0], rtol=1e-12)


def test_gradients_through_rows_written_in_place_are_those_of_the_loop_of_python():
    def loss(loop, x, w):
        (made,) = loop(lambda y, k: (put(y, row_of(y, (k + 7) % ROWS) * w, k % ROWS),), x)
        return (made * made).sum()

    w = np.full(4, 0.9)
    compiled = od.compile(od.grad(lambda w, x: loss(scanned, x, w)))
    compiled.precompile(w, X)
    got = compiled(w, X)
    for j in range(4):  # central differences, whose error is below 1e-7 of the gradient
        ends = [
            sum(float((y * y).sum()) for y in plainly(lambda y, k, v=v: (_put_row(y, v, k),), X))
            for v in (w + 1e-5 * np.eye(4)[j], w - 1e-5 * np.eye(4)[j])
        ]
        np.testing.assert_allclose(got[j], (ends[0] - ends[1]) / 2e-5, rtol=1e-6)


def _put_row(y, w, k):
    y = y.copy()
    y[k % ROWS] = y[(k + 7) % ROWS] * w
    return y

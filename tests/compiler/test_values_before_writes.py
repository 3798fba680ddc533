"""Values that a compiled function took from a Variable before it wrote to it keep their numbers."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.tree import leaves


def length_of_a_step(w, c, t, optimizer, x):
    before = w.detach()
    with GradientTape() as tape:
        loss = ((w * x) ** 2).sum()
    tape.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return before * 1.0, w.detach() - before, loss


def read_late(w, c, t, optimizer, x):
    d = w.detach()
    w.assign(w * 2 + x)
    c.assign(c + 1)
    return d + x, d * w


def exchanged(w, c, t, optimizer, x):
    d = w.detach()
    w.assign(c + 1)
    c.assign(d * 0.5)
    return d.sum()


def views(w, c, t, optimizer, x):
    a = t.T
    t.assign(t * 2 + 1)
    b = ops.reshape(t, (-1,))
    t[0] = x
    return a * 1.0, b * 1.0, a.sum() + b.sum()


def products(w, c, t, optimizer, x):
    old = t.detach()
    t.assign(t * 0.5 + x)
    return old @ x, t @ x, old.T @ t


def made_inside(w, c, t, optimizer, x):
    u = Variable(np.zeros(len(x)))
    first = u.detach()
    u.assign(u + x)
    second = u.detach()
    u.assign(u * 2)
    return first + 1, second * 1, u * 1


def many_writes(w, c, t, optimizer, x):
    total = 0.0
    for k in range(4):
        d = c.detach()
        c.assign(ops.tanh(c) + x * k)
        total = total + (d * c).sum()
    return total


def in_a_branch(w, c, t, optimizer, x):
    d = c.detach()
    c.assign(c + 1)
    return od.cond(x.sum() > 6, lambda: d * 2, lambda: c * 3)


def in_a_loop(w, c, t, optimizer, x):
    d = c.detach()
    c.assign(c * 0.5)
    return od.scan(lambda s, e: (s + d * e, s), x * 0, x)


FUNCTIONS = [
    length_of_a_step,
    read_late,
    exchanged,
    views,
    products,
    made_inside,
    many_writes,
    in_a_branch,
    in_a_loop,
]


def left(fn, wrap, size):
    """What calls return, and leave in Variables."""
    w = Variable(np.arange(1.0, 1.0 + size), requires_grad=True)
    c, t = Variable(np.arange(size) * 1.0), Variable(np.ones((2, size)))
    optimizer = od.optim.SGD([w], 0.1, momentum=0.9)
    call, found = wrap(lambda x: fn(w, c, t, optimizer, x)), []
    for k in range(5):
        result = call(np.full(size, 1.0 + k))
        found.append(list(map(np.array, leaves((result, w.detach(), c.detach(), t.detach())))))
    return found, call


@pytest.mark.share(2)
@pytest.mark.parametrize("size", [3, 70])
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
def test_a_value_from_before_a_write_keeps_its_numbers_natively(fn, size):
    eager, _ = left(fn, lambda f: f, size)
    compiled, call = left(fn, od.compile, size)
    for one, other in zip(eager, compiled, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-12)
    assert call.statistics().native == 4


def test_the_length_of_a_step_is_that_of_gradient_descent():
    w = Variable(np.array([1.0, -2.0]), requires_grad=True)
    optimizer = od.optim.SGD([w], 0.25)

    @od.compile
    def step(x):
        before = w.detach()
        with GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return w.detach() - before

    for _ in range(4):
        np.testing.assert_allclose(step(np.array([4.0, 8.0])).numpy(), [-1.0, -2.0])
    np.testing.assert_allclose(w.numpy(), [-3.0, -10.0])
    assert step.statistics().native == 3

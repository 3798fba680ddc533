"""Leaves that only one branch of a ``cond`` reads have a gradient where they have one eagerly."""

from functools import partial

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import CompileWarning, MissingGradientError, TapeError

ORDER = [True, True, False, True, False, False]


def within(p, a, b):
    both = od.cond(p, lambda: (a * 2.0, b * 2.0), lambda: (b * 3.0, a * 3.0))
    return both[0]


def nested(p, a, b):
    inner = lambda: od.cond(p, lambda: a * 2.0, lambda: b * 2.0)  # noqa: E731
    return od.cond(p, inner, lambda: b * 3.0)


# Losses by what the branches read: the gradients that are left differ from run to run.
PARTIAL = {
    "captured": lambda p, a, b: od.cond(p, lambda: a * 2.0, lambda: b * 3.0),
    "one captured": lambda p, a, b: od.cond(p, lambda: a * b, lambda: a * 3.0),
    "operands": lambda p, a, b: od.cond(p, lambda x, y: x * 2.0, lambda x, y: y * 3.0, a, b * 1.0),
    "unread operand": lambda p, a, b: od.cond(p, lambda x, y: x, lambda x, y: x * 3.0, a, b),
    "one of two outputs": within,
    "nested": nested,
    "times another": lambda p, a, b: od.cond(p, lambda: a * 2.0, lambda: b * 3.0) * a,
    "detached": lambda p, a, b: od.cond(p, lambda: a * b.detach(), lambda: a * b),
}
# The same gradients whichever branch runs.
TOTAL = {
    "both": lambda p, a, b: od.cond(p, lambda: a * b, lambda: a + b),
    "outside too": lambda p, a, b: od.cond(p, lambda: a * 2.0, lambda: b * 3.0) + a * b,
    "operands": lambda p, a, b: od.cond(p, lambda x, y: x * y, lambda x, y: x - y, a, b * 1.0),
    "output": lambda p, a, b: od.cond(p, lambda x: (x, b * 2.0), lambda x: (x * 2.0, b), a)[0] * b,
    "nested": lambda p, a, b: od.cond(
        p, lambda: od.cond(p, lambda: a * b, lambda: b + a), lambda: b * a
    ),
}


def left(compiled, loss, clear=True):
    """The gradients of two leaves after each call, in an order of branches."""
    a, b = (Variable(x, requires_grad=True, name=n) for x, n in ((2.0, "a"), (3.0, "b")))

    def step(p):
        with GradientTape() as tape:
            value = loss(p, a, b)
        tape.backward(value)
        return value

    call, found = compiled(step), []
    for p in ORDER:
        if clear:
            a.zero_grad()
            b.zero_grad()
        call(np.array(p))
        found.append([None if v.grad is None else float(v.grad) for v in (a, b)])
    return found, call


@pytest.mark.parametrize("loss", [*PARTIAL.values(), *TOTAL.values()], ids=[*PARTIAL, *TOTAL])
@pytest.mark.parametrize("clear", [True, False])
def test_a_leaf_has_a_gradient_after_the_branches_that_give_it_one(loss, clear):
    quiet = lambda fn: od.compile(fn, warn=False)  # noqa: E731
    assert left(quiet, loss, clear)[0] == left(lambda fn: fn, loss, clear)[0]


@pytest.mark.parametrize("loss", PARTIAL.values(), ids=PARTIAL)
def test_gradients_of_one_branch_alone_are_a_named_reason_to_run_eagerly(loss):
    with pytest.warns(CompileWarning, match="not every branch of cond gives a gradient of [ab]"):
        left(od.compile, loss)


@pytest.mark.parametrize("loss", TOTAL.values(), ids=TOTAL)
def test_gradients_of_every_branch_are_compiled(loss):
    _, call = left(lambda fn: od.compile(fn, fullgraph=True), loss)
    assert call.statistics().native == len(ORDER) - 1


def test_gradients_that_were_there_before_are_added_to_by_a_program():
    a, b = (Variable(x, requires_grad=True) for x in (2.0, 3.0))
    a.grad, b.grad = np.array(0.5), np.array(0.25)

    @partial(od.compile, fullgraph=True)
    def step(p):
        with GradientTape() as tape:
            loss = od.cond(p, lambda: a * 2.0, lambda: b * 3.0)
        tape.backward(loss)

    for p in ORDER:
        step(np.array(p))
    assert (float(a.grad), float(b.grad)) == (6.5, 9.25)
    assert step.statistics().native == len(ORDER) - 1


@pytest.mark.parametrize("allow", [False, True])
def test_a_step_leaves_a_leaf_of_the_branch_that_did_not_run_alone_or_names_it(allow):
    def left(compiled):
        a, b = (Variable(x, requires_grad=True) for x in (2.0, 3.0))
        optimizer = od.optim.SGD([a, b], 0.1, momentum=0.9, weight_decay=0.1)

        def step(p):
            optimizer.zero_grad()
            with GradientTape() as tape:
                loss = od.cond(p, lambda: a * 2.0, lambda: b * 3.0)
            tape.backward(loss)
            optimizer.step(allow_missing=allow)

        call, found = compiled(step), []
        for p in ORDER:
            try:
                call(np.array(p))
            except MissingGradientError as error:
                found.append(type(error))
            found.append([float(a), float(b)])
        return found

    assert left(lambda fn: od.compile(fn, warn=False)) == left(lambda fn: fn)


@pytest.mark.parametrize("unused", ["error", "zero", "none"])
def test_gradients_that_are_asked_for_are_absent_where_they_are_eagerly(unused):
    def left(compiled):
        a, b = (Variable(x, requires_grad=True) for x in (2.0, 3.0))

        def fn(p):
            with GradientTape() as tape:
                loss = od.cond(p, lambda: a * 2.0, lambda: b * 3.0)
            return tape.gradient(loss, [a, b], unused=unused)

        call, found = compiled(fn), []
        for p in ORDER:
            try:
                result = call(np.array(p))
                found.append([None if g is None else float(g) for g in result])
            except TapeError as error:
                found.append(type(error))
        return found, call

    found, call = left(lambda fn: od.compile(fn, warn=False))
    assert found == left(lambda fn: fn)[0]
    if unused == "zero":
        assert call.statistics().native == len(ORDER) - 1

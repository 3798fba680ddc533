"""A handler of signals, or a finalizer, may record, sweep or clear in the midst of anything.

What it recorded, and what it interrupted, have their gradients, or are refused by name.
"""

import itertools

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.errors import OdysseyError
from odyssey.table.scope import scopes
from support.faults import between

RECORDED = {
    "tanh": ops.tanh,
    "multiply": lambda x: x * x,
    "sum": lambda x: x.sum(0, keepdims=True),
    "getitem": lambda x: x[1:],
}


@pytest.mark.parametrize("event", ["line", "opcode"])
@pytest.mark.parametrize("op", RECORDED)
def test_what_a_handler_records_in_the_midst_of_an_op_has_its_gradients_and_the_op_too(op, event):
    w = Variable(np.array([1.0, 2.0, 3.0]), requires_grad=True)
    v = Variable(np.array([1.0, -2.0, 0.5]), requires_grad=True)
    for n in itertools.count(1, 1 if event == "line" else 3):
        kept = []

        def act(kept=kept):
            for _ in range(3):
                middle = v * 1.5
                square = middle * middle
                kept.append((middle, square, square.sum()))

        with GradientTape(persistent=True) as tape:
            with between(n, act, event) as fired:
                y = RECORDED[op](w)
            loss = (y * y).sum()
        if not fired:
            break
        asked = [(loss, y, 2 * y.numpy())]
        asked += [(total, square, np.ones(3)) for _, square, total in kept]
        asked += [(total, middle, 2 * middle.numpy()) for middle, _, total in kept]
        for output, source, slope in asked:
            found = tape.gradient(output, source, unused="zero")
            np.testing.assert_allclose(found, slope, rtol=1e-15, err_msg=str(fired))
    assert n > 10


def clearing(tape, w):
    tape.clear()


def entering(tape, w):
    with tape:
        (w * w).sum()


def joining(tape, w):
    with GradientTape(persistent=True) as inner:
        y = (w * w).sum()
    inner.gradient(y, w)


def sweeping(tape, w):
    with GradientTape() as other:
        y = (np.ones((300, 1)) * w).sum()
    other.backward(y)


@pytest.mark.slow
@pytest.mark.parametrize("act", [clearing, entering, joining, sweeping])
@pytest.mark.parametrize("nested", [False, True], ids=["alone", "nested"])
def test_what_a_handler_does_to_tapes_leaves_right_gradients_or_a_refusal(act, nested):
    x, slope = np.arange(900.0).reshape(300, 3) / 900, None
    for n in itertools.count(1, 3 if nested else 1):
        w = Variable(np.array([1.0, 2.0, 3.0]), requires_grad=True)
        tape = GradientTape(persistent=True)

        def train(tape=tape, w=w):
            with tape:
                h = ops.tanh(x * w)
                y = (h * h).sum()
            return tape.gradient(y, w)

        def train_nested(train=train, w=w):
            with GradientTape() as outer:
                found = train()
                z = (found * found).sum()
            outer.gradient(z, w)
            return found.detach().numpy()

        slope = train() if slope is None else slope
        tape.clear()
        with between(n, lambda tape=tape, w=w: act(tape, w)) as fired:
            try:
                np.testing.assert_allclose(
                    train_nested() if nested else train(), slope, rtol=1e-13, err_msg=str(fired)
                )
            except OdysseyError:
                # A tape that recorded by itself before does not join another one.
                assert act is clearing or (act is entering and nested), fired
        if not fired:
            break
        assert scopes() == (None,), fired
        assert not tape.enabled, fired
        tape.clear()
        assert x.flags.writeable, fired
        np.testing.assert_allclose(train(), slope, rtol=1e-13)
    assert n > 300

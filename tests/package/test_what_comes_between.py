"""A handler of signals, or a finalizer, may record, sweep or clear in the midst of anything.

What it recorded, and what it interrupted, have their gradients, or are refused by name.
"""

import itertools

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
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

"""A rule on plain arrays calls kernels: the same numbers as with ops, and the kernels counted."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError
from odyssey.ops import OPS
from odyssey.tape import queries
from support.cases import (
    NO_HALF,
    assert_same,
    draw,
    every_differentiable_sample,
    random_like,
    tracked,
)
from support.together import together

PAIRS = [
    row
    for row in OPS.values()
    if row.elementwise and len(row.arrays) == 2 and not row.options and any(row.vjp.values())
]


def gradients(call, operands, positions):
    leaves = {k: Variable(operands[k], requires_grad=True) for k in positions}
    with GradientTape() as tape:
        out = call(*[leaves.get(k, operand) for k, operand in enumerate(operands)])
    return tape.gradient(out, list(leaves.values()), random_like(out, seed=1))


def both_ways(monkeypatch, call, operands, positions):
    """Gradients by rules on kernels, and by the same rules on ops."""
    fast = gradients(call, operands, positions)
    with monkeypatch.context() as patch:
        patch.setattr(queries, "PLAIN", frozenset())  # so that no cotangent passes for an array
        return fast, gradients(call, operands, positions)


@together("dtype", ["float64", "float32", "float16"])
@every_differentiable_sample
def test_rules_give_the_same_on_kernels_as_on_ops(monkeypatch, row, sample, dtype):
    def call(*operands):
        return row.call(*operands, **sample.options)

    operands = draw(sample, dtype)
    if dtype == "float16" and row.module in NO_HALF:
        with pytest.raises(DTypeError, match="wanted are single or double precision"):
            call(*operands)
        return
    with np.errstate(all="ignore"):
        fast, slow = both_ways(monkeypatch, call, operands, tracked(row, sample))
    for a, b in zip(fast, slow, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("number", [2, 0.5], ids=["int", "float"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row.name)
def test_a_python_number_as_an_operand_stays_weak(monkeypatch, row, dtype, number):
    x = np.array([0.25, 0.75], dtype)
    for k, name in enumerate(row.arrays):
        if row.vjp[name] is None:
            continue
        operands = [number, number]
        operands[k] = x
        with np.errstate(all="ignore"):
            fast, slow = both_ways(monkeypatch, row.call, operands, [k])
        assert_same(fast[0], slow[0])
        assert fast[0].dtype == dtype


def test_kernels_that_rules_call_are_counted():
    x = Variable(np.ones(3), requires_grad=True)
    with GradientTape() as tape:
        y = ops.tanh(x)
    with od.testing.count_kernels() as counts:
        tape.gradient(y, x, np.ones(3))
    assert counts == {"multiply": 2, "subtract": 1}
    with GradientTape() as tape:
        y = ops.tanh(x)
    before = dict(counts)
    tape.gradient(y, x, np.ones(3))
    assert counts == before

"""Random programs give the same bits compiled as eager: values, gradients, Hessian products."""

import numpy as np
import pytest
from programs import seeded

import odyssey as od
from odyssey import GradientTape, Variable, ops


def assert_same_bits(compiled, eager):
    for a, b in zip(compiled, eager, strict=True):
        a, b = (np.asarray(v.numpy() if isinstance(v, Variable) else v) for v in (a, b))
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def directions(program, seed):
    rng = np.random.default_rng(seed)
    outputs = program.run(ops, program.leaves)
    cotangents = [rng.uniform(-1.0, 1.0, np.shape(y)) for y in outputs]
    return cotangents, [rng.uniform(-1.0, 1.0, x.shape) for x in program.leaves]


@pytest.mark.parametrize("chunk", range(4), ids=lambda k: f"programs from {k * 100}")
def test_compiled_programs_and_their_derivatives_have_the_bits_of_the_eager_ones(chunk):
    for seed in range(chunk * 100, (chunk + 1) * 100):
        program = seeded(seed)
        cotangents, tangents = directions(program, seed)
        leaves = [Variable(x, requires_grad=True) for x in program.leaves]

        def values(*xs, program=program):
            return program.run(ops, xs)

        def derivatives(cotangents, tangents, program=program, leaves=leaves):
            with GradientTape(persistent=True) as outer:
                with GradientTape() as inner:
                    outputs = program.run(ops, leaves)
                first = inner.gradient(outputs, leaves, cotangents, unused="zero")
                moving = [g + 0.0 * x for g, x in zip(first, leaves, strict=True)]
            return [*first, *outer.jvp(moving, leaves, tangents)]

        assert_same_bits(od.compile(values)(*program.leaves), values(*program.leaves))
        compiled = od.compile(derivatives)
        assert_same_bits(compiled(cotangents, tangents), derivatives(cotangents, tangents))
        for leaf in leaves:
            leaf.assign(0.9 * leaf.numpy())
        assert_same_bits(compiled(cotangents, tangents), derivatives(cotangents, tangents))


@pytest.mark.parametrize("rule", [od.optim.SGD, od.optim.AdamW], ids=["SGD", "AdamW"])
def test_steps_on_parameters_that_came_column_by_column_have_the_same_bits(rule):
    rng = np.random.default_rng(0)
    values = [np.asfortranarray(rng.normal(size=(7, 5))), rng.normal(size=(7, 10))[:, ::2]]
    x = rng.normal(size=(6, 7))

    def trained(compiled):
        params = [Variable(value, requires_grad=True) for value in values]
        optimizer = rule(params, learning_rate=0.1)

        def step(x):
            with GradientTape() as tape:
                loss = sum(ops.sum(ops.tanh(x @ p @ p.T)) for p in params)
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        step = od.compile(step) if compiled else step
        return [*(step(x) for _ in range(10)), *params]

    assert_same_bits(trained(compiled=True), trained(compiled=False))

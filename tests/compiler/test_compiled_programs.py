"""Random programs give the same bits compiled as eager: values, gradients, Hessian products."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from support.programs import seeded
from support.seeds import SEED


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


def walk(seeds):
    for seed in seeds:
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
        graph = compiled.lower(cotangents, tangents)
        for leaf in leaves:
            leaf.assign(0.9 * leaf.numpy())
        expected = derivatives(cotangents, tangents)
        assert_same_bits(compiled(cotangents, tangents), expected)
        found, left = graph.evaluate(cotangents, tangents)
        assert_same_bits(found, expected)
        assert not left


@pytest.mark.slow
def test_compiled_programs_and_their_derivatives_have_the_bits_of_the_eager_ones():
    walk(range(40))


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(4), ids=lambda k: f"programs from {k * 100}")
def test_400_compiled_programs_and_their_derivatives_have_the_bits_of_the_eager_ones(chunk):
    walk(range(SEED + chunk * 100, SEED + (chunk + 1) * 100))


@pytest.mark.parametrize("rule", [od.optim.SGD, od.optim.AdamW], ids=["SGD", "AdamW"])
def test_steps_on_parameters_that_came_column_by_column_are_the_eager_ones(rule):
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

    for got, wanted in zip(trained(compiled=True), trained(compiled=False), strict=True):
        bound = 1e-12 * np.abs(wanted.numpy()).max()
        np.testing.assert_allclose(got.numpy(), wanted.numpy(), rtol=0, atol=bound)


CASES = {
    "SGD": lambda p: od.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda p: od.optim.Adam(p, 0.01),
    "AdamW": lambda p: od.optim.AdamW(p, 0.01, amsgrad=True),
    "Lion": lambda p: od.optim.Lion(p, 0.01),
    "RMSprop": lambda p: od.optim.RMSprop(p, 0.01, momentum=0.9),
    "LARS": lambda p: od.optim.LARS(p, 0.1),
}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
@pytest.mark.parametrize("zeroing", [True, False], ids=["zeroed", "added up"])
def test_the_graph_of_a_step_says_what_the_step_leaves(make, zeroing):
    rng = np.random.default_rng(0)
    w = Variable(rng.normal(size=(4, 3)), requires_grad=True, name="w")
    mean = Variable(np.zeros(3), name="mean")
    optimizer = make([w])

    def step(x, y):
        with GradientTape() as tape:
            loss = od.mean_squared_error(ops.tanh(x @ w), y)
        tape.backward(loss)
        od.optim.clip_grad_global_norm([w], 0.5)
        optimizer.step()
        if zeroing:
            optimizer.zero_grad()
        mean.assign(mean * 0.9 + ops.mean(y, 0) * 0.1)
        mean[0] = mean[1]
        return {"loss": loss, "batch": [x]}

    for _ in range(3):
        x, y = rng.normal(size=(8, 4)), rng.normal(size=(8, 3))
        result, left = od.compile(step).lower(x, y).evaluate(x, y)
        before = w.numpy().copy()
        expected = step(x, y)
        assert not np.array_equal(before, w.numpy())
        np.testing.assert_allclose(result["loss"], expected["loss"].item(), rtol=1e-14)
        np.testing.assert_array_equal(result["batch"][0], x)
        seen = {"w": w.numpy(), "mean": mean.numpy(), "w.grad": w.grad}
        seen |= {f"w.{k}": v for k, v in optimizer.state_dict()["state"][0].items()}
        assert left.keys() == seen.keys()
        for name, value in seen.items():
            if value is None:
                assert left[name] is None
            else:
                np.testing.assert_allclose(left[name], value, rtol=1e-12, atol=1e-15)

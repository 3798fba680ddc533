"""``memory_budget``: values are computed again where that lets a program hold less."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler.pipeline import plan
from odyssey.compiler.schedule.buffer_assignment import held_bytes
from odyssey.compiler.schedule.verify import verify
from odyssey.errors import DeviceMemoryError, DTypeError, SettingError
from support.node_graphs import CALM, alike, graphs, nodes_of
from support.node_values import Machine, evaluated

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

X = np.random.default_rng(1).normal(size=(200, 32))


class Deep:
    """A network of equal layers, whose activations are what its training holds."""

    def __init__(self, layers=10, dtype=np.float64):
        rng = np.random.default_rng(0)
        self.weights = [
            Variable((rng.normal(size=(32, 32)) / 6).astype(dtype), requires_grad=True)
            for _ in range(layers)
        ]

    def step(self, x):
        with GradientTape() as tape:
            h = x
            for w in self.weights:
                h = ops.tanh(h @ w) * 0.9 + 0.05
            loss = ops.sum(h**2)
        gradients = tape.gradient(loss, self.weights)
        for w, g in zip(self.weights, gradients, strict=True):
            w.assign(w - 0.001 * g)
        return loss

    def left(self):
        return [w.numpy().tobytes() for w in self.weights]


def run(deep, x, **settings):
    """The losses of four steps, what is left, the bytes that are held, and the program."""
    compiled = od.compile(deep.step, check=True, **settings)
    losses = [np.asarray(compiled(x).numpy()).tobytes() for _ in range(4)]
    assert compiled.statistics().native == 3, compiled.explain(x)
    return losses, deep.left(), compiled.estimate_memory_requirements(x)["cpu"], compiled


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("share", [0.9, 0.7, 0.6])
def test_a_program_within_its_budget_leaves_the_same_bits(share, dtype):
    x = X.astype(dtype)
    losses, left, full, _ = run(Deep(dtype=dtype), x)
    budget = int(share * full)
    again = run(Deep(dtype=dtype), x, memory_budget=budget)
    assert again[:2] == (losses, left)
    assert again[2] <= budget


@pytest.mark.slow
def test_a_program_within_its_budget_holds_what_it_says():
    deep = Deep()
    _, _, said, compiled = run(deep, X, memory_budget=700_000)
    (program,) = [made for case in compiled._known.values() for _, made in case.programs]
    assert held_bytes(program.executable.plan) == said <= 700_000
    # What is measured is the same program.
    measured = [k.what for k in compiled.profile(X, runs=1).kernels if k.kind == "product"]
    kernels = program.executable.plan.fused.kernels
    assert len(measured) == sum(kernel.kind == "product" for kernel in kernels)
    assert f"arena: {program.executable.plan.arena:,} bytes" in compiled.explain(X)


@pytest.mark.slow
def test_less_memory_takes_more_arithmetic_and_what_fits_none():
    def flops(**settings):
        return sum(k.flops for k in run(Deep(), X, **settings)[3].profile(X, runs=1).kernels)

    full = run(Deep(), X)[2]
    assert flops(memory_budget=full) == flops()
    assert flops() < flops(memory_budget=int(0.75 * full)) < flops(memory_budget=int(0.58 * full))
    # A layer is computed twice, and not more often: a third more than forward and backward.
    assert flops(memory_budget=int(0.58 * full)) < 1.4 * flops()


def test_a_budget_that_fits_changes_nothing_of_a_program():
    texts = [run(Deep(), X, **s)[3].code(X) for s in ({}, {"memory_budget": 10**9})]
    assert texts[0] == texts[1]


def test_a_budget_that_cannot_be_met_is_refused_before_anything_runs():
    deep, called = Deep(), []
    before = deep.left()

    def step(x):
        called.append(type(x) is np.ndarray)
        return deep.step(x)

    compiled = od.compile(step, memory_budget=100_000)
    with pytest.raises(
        DeviceMemoryError, match="the limit is 100,000; the largest buffers are %"
    ) as info:
        compiled(X)
    assert "raise memory_budget, since all values that can be recomputed already are" in str(
        info.value
    )
    assert deep.left() == before
    assert not any(called)


def test_budgets_that_are_no_bytes_are_refused_by_name():
    with pytest.raises(DTypeError, match="compile: memory_budget='1 MB' is not a whole number"):
        od.compile(np.exp, memory_budget="1 MB")
    for name in ("memory_budget", "memory_limit"):
        with pytest.raises(SettingError, match=f"{name}=-1; it must be at least 0"):
            od.compile(np.exp, **{name: -1})


def test_a_limit_below_the_budget_counts():
    with pytest.raises(DeviceMemoryError, match="the limit is 1,000"):
        od.compile(Deep().step, memory_budget=10**9, memory_limit=1000)(X)


def check(found, share):
    """Raise AssertionError unless a plan of less memory does what its graph means."""
    graph, roots, updates = found
    outputs = nodes_of(roots)
    wanted = evaluated([*outputs, *updates.values()], graph.leaves)
    full = plan(graph.lowered(outputs, updates), {})
    made = plan(graph.lowered(outputs, updates), {}, int(share * held_bytes(full)))
    verify(made)
    assert held_bytes(made) <= held_bytes(full)
    machine = Machine(made, graph.leaves)
    assert machine.run()
    got = machine.outputs()
    got += [machine.state(k, graph.leaves["state", k]) for k in updates]
    alike(got, wanted)
    return held_bytes(made) < held_bytes(full)


@pytest.mark.slow
@settings(max_examples=60, **CALM)
@given(graphs(most=40), st.sampled_from([0.0, 0.5, 0.8]))
def test_plans_of_less_memory_give_what_their_graphs_mean(found, share):
    check(found, share)


@pytest.mark.soak
@settings(max_examples=500, **CALM)
@given(graphs(most=80), st.sampled_from([0.0, 0.5, 0.8]))
def test_500_plans_of_less_memory_give_what_their_graphs_mean(found, share):
    check(found, share)


@pytest.mark.slow
def test_some_plans_of_random_graphs_hold_less():
    from support.node_graphs import Graph

    less = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        graph = Graph(lambda options, rng=rng: list(options)[rng.integers(len(options))], True)
        graph.write(60)
        less += check((graph, graph.pairs[-6:], {}), 0.0)
    assert less > 3

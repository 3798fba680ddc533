"""What a program takes is known before it runs, and may be limited."""

import tracemalloc

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DeviceMemoryError, DTypeError

X = np.linspace(-1.0, 1.0, 40_000).reshape(200, 200)


def chained(x):
    return ops.tanh(x @ x) @ ops.exp(x) + x


def test_the_bytes_that_are_estimated_are_those_that_the_program_holds():
    compiled = od.compile(chained, check=True)
    wanted = compiled.estimate_memory_requirements(X)["cpu"]
    compiled(X)
    compiled(X)
    tracemalloc.start()
    try:
        fresh = od.compile(chained)
        fresh(X)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        result = fresh(X)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert fresh.statistics().native == 1
    assert 0 <= peak - before - wanted < 400_000  # what Python takes to make the program
    assert wanted >= result.nbytes


def test_a_program_beyond_its_limit_is_refused_before_anything_runs():
    w = Variable(np.ones((200, 200)), requires_grad=True)
    calls = []

    @od.compile(memory_limit=100_000)
    def step(x):
        with GradientTape() as tape:
            loss = (ops.tanh(w @ x) ** 2).sum()
        tape.backward(loss)
        calls.append(1)
        return loss

    said = "the limit is 100,000; the largest buffers are"
    with pytest.raises(DeviceMemoryError, match=said) as error:
        step(X)
    assert "(200, 200)" in str(error.value)
    assert w.grad is None
    assert od.compile(chained, memory_limit=10_000_000)(X).shape == (200, 200)


def test_a_limit_is_a_number_of_bytes():
    with pytest.raises(DTypeError, match="memory_limit"):
        od.compile(chained, memory_limit="1 MB")
    with pytest.raises(DTypeError, match="check"):
        od.compile(chained, check="yes")


def within(depth, fn):
    """Call a function with so many frames below it."""
    return fn() if depth == 0 else within(depth - 1, fn)


def wide(x):
    """A sum of 400 functions of one array, none of which needs to be in memory."""
    total = x
    for k in range(400):
        total = total + ops.tanh(x * (0.1 + k))
    return total


def long(x):
    """A chain of 600 ops."""
    for _ in range(300):
        x = x * 0.5 + 0.25
    return x


@pytest.mark.slow
@pytest.mark.parametrize("fn", [wide, long])
def test_long_programs_are_made_by_callers_who_took_most_of_the_stack(fn):
    compiled, x = od.compile(fn, check=True), np.linspace(-1.0, 1.0, 30)
    for _ in range(3):
        got = within(500, lambda: compiled(x))
    np.testing.assert_allclose(got, fn(x), rtol=1e-12)
    assert compiled.statistics().native == 2, compiled.explain(x)
    (program,) = [made for case in compiled._known.values() for _, made in case.programs]
    # LLVM's time grows faster than a function does.
    assert max(len(kernel.nodes) for kernel in program.executable.plan.fused.kernels) <= 300

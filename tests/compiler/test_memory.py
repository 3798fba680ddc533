"""What a program is said to hold is what it holds, on each workload of the benchmarks."""

import gc
import runpy
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DeviceMemoryError

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NUMPY = [tracemalloc.DomainFilter(True, np.lib.tracemalloc_domain)]
# Addresses, where the arena is aligned to, and words that are watched, many for each parameter.
TABLES, A_PARAMETER = 8192, 640


def held():
    """Bytes of NumPy's arrays that were made since tracemalloc was started."""
    found = tracemalloc.take_snapshot().filter_traces(NUMPY).statistics("filename")
    return sum(one.size for one in found)


def measured(compiled, args, after_first=False):
    """Bytes that a program holds when it has run, and the most that a run adds to them.

    With ``after_first`` without what the first call made, such as the states of an optimizer.
    """
    for _ in range(after_first):
        compiled(*args)
    gc.collect()
    tracemalloc.start()
    try:
        for _ in range(2 - after_first):
            compiled(*args)  # which makes a program, and runs it
        gc.collect()
        kept = held()
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        compiled(*args)
        peak = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert compiled.statistics().native == 2, compiled.explain(*args)
    return kept, peak


LARGE = [pytest.param(name, marks=pytest.mark.soak) for name in ("W3", "W4", "W4m", "W6", "deep")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["W1", "W2", "W7", "digits", "small", *LARGE])
def test_a_workload_holds_what_was_said_before_it_ran(monkeypatch, name):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from harness.compiled_cases import batches_of, parameters_of

    step_of = runpy.run_path(str(BENCHMARKS / "peers" / "compiled_odyssey.py"))["step_of"]

    parameters = parameters_of(name)
    compiled = od.compile(step_of(name, parameters))
    args = batches_of(name)[0]
    said = compiled.estimate_memory_requirements(*args)["cpu"]
    kept, peak = measured(compiled, args, after_first=True)
    assert said <= kept + peak <= said + TABLES + A_PARAMETER * len(parameters)


def chained(x):
    """Seven products, no two of which are needed with a third."""
    for _ in range(7):
        x = ops.tanh(x @ x)
    return x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "shape"),
    [
        (chained, (120, 120)),
        (lambda x: (x.T @ x, x @ x.T, x.sum(axis=0)), (90, 90)),
        (lambda x: ops.cumsum(ops.exp(x) * 2.0, axis=0) @ x, (100, 100)),
        (lambda x: ops.pad(x, ((0, 50), (0, 0))) * np.arange(100.0), (50, 100)),
        (
            lambda x: ops.take(x, np.arange(0, 60, 2), axis=0) + np.arange(3000.0).reshape(30, 100),
            (60, 100),
        ),
    ],
    ids=["chain", "several results", "scan", "whole with a hole", "constants"],
)
def test_a_function_holds_what_was_said_before_it_ran(fn, shape):
    compiled, x = od.compile(fn), np.random.default_rng(0).normal(size=shape)
    said = compiled.estimate_memory_requirements(x)["cpu"]
    kept, peak = measured(compiled, (x,))
    assert said <= kept + peak <= said + TABLES


def test_a_chain_of_products_holds_two_of_them_and_the_result():
    x = np.zeros((120, 120))
    said = od.compile(chained).estimate_memory_requirements(x)["cpu"]
    # Of x itself nothing; of a product, its tangent and the next product two are there at a time.
    assert 2 * x.nbytes <= said <= 3 * x.nbytes


@pytest.mark.slow
def test_derivatives_of_parts_that_are_read_twice_add_up_in_one_whole():
    x = np.ones((30, 1000))

    def neighbours(x):
        leaf = Variable(x, requires_grad=True)
        with GradientTape() as tape:
            total = sum((leaf[t] * leaf[t + 1]).sum() for t in range(29))
        return tape.gradient(total, leaf)

    compiled = od.compile(neighbours)
    kept, peak = measured(compiled, (x,))
    # The result, and what all of its rows together may be computed in; not a whole for each.
    assert kept + peak <= 3 * x.nbytes
    np.testing.assert_array_equal(compiled(x)[[0, 1, 29], 0], [1.0, 2.0, 1.0])


def test_what_calls_of_python_give_is_counted():
    x = np.random.default_rng(0).normal(size=(64, 64)) + 64 * np.eye(64)
    compiled = od.compile(lambda x: ops.pinv(x * 2.0) @ x)
    said = compiled.estimate_memory_requirements(x)["cpu"]
    # What is inverted, the inverse, and the result.
    assert said == 3 * x.nbytes
    kept, _ = measured(compiled, (x,))
    assert 2 * x.nbytes <= kept <= said + TABLES


def test_a_limit_of_what_is_held_is_kept_and_one_byte_less_is_refused():
    x = np.zeros((50, 50))
    said = od.compile(chained).estimate_memory_requirements(x)["cpu"]
    assert od.compile(chained, memory_limit=said)(x).shape == (50, 50)
    with pytest.raises(DeviceMemoryError, match=f"needs {said:,} bytes"):
        od.compile(chained, memory_limit=said - 1)(x)


def test_nothing_is_run_and_nothing_made_to_say_what_is_held():
    called = []
    v = od.Variable(np.zeros((40, 40)))

    def step(x):
        called.append(0) if type(x) is np.ndarray else None
        v.assign(v + x @ x)

    compiled = od.compile(step)
    said = compiled.estimate_memory_requirements(np.ones((40, 40)))
    assert said == {"cpu": 0}  # the product is added where it is kept
    assert not called
    assert compiled.statistics() == (0, 0, 0)
    assert not v.numpy().any()

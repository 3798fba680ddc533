"""CUDA programs of whole training steps, run on the CPU, leave what NumPy leaves in float64."""

import sys
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.optim import SGD
from support.cuda_programs import run_on_host, run_step
from support.cuda_rows import FLOAT64, read_table

RNG = np.random.default_rng(0)
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def training_step():
    """A step of a small network for classes, and arguments for it, by dtype of the parameters."""
    x = RNG.standard_normal((8, 6)).astype("f4")
    y = RNG.integers(0, 3, 8)
    start = [RNG.standard_normal(s).astype("f4") for s in ((6, 5), (5,), (5, 3), (3,))]

    def build(dtype):
        p = [
            od.Variable(a.astype(dtype), requires_grad=True, name=f"p{k}")
            for k, a in enumerate(start)
        ]
        optimizer = SGD(p, 0.1, momentum=0.9)

        def step(x, y):
            with od.GradientTape() as tape:
                loss = od.losses.cross_entropy(ops.tanh(x @ p[0] + p[1]) @ p[2] + p[3], y)
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    return build, (x, y)


def assert_as_float64(build, batch):
    """Check the loss and all states, in both orders, against NumPy's in float64.

    NumPy's own float32 is no reference: its products alone are up to 5e-7 from float64.
    """
    graph, runs = run_step(build("f4"), *batch)
    runs.assert_equal_bits()
    wide = [a.astype("f8") if a.dtype == np.float32 else a for a in batch]
    loss, exact = od.compile(build("f8")).lower(*wide).evaluate(*wide)
    found = runs.states(graph)
    assert len(found) > 0
    assert found.keys() == {k for k in exact if not k.endswith(".grad")}
    np.testing.assert_allclose(runs.run.outputs()[0], loss, rtol=3e-7)
    for label, state in found.items():
        scale = max(float(np.abs(exact[label]).max(initial=0)), 1e-30)
        np.testing.assert_allclose(state, exact[label], rtol=0, atol=3e-7 * scale, err_msg=label)
    return runs


def test_a_training_step_leaves_what_float64_leaves():
    build, batch = training_step()
    runs = assert_as_float64(build, batch)
    assert runs.run.truths == [True]


def test_a_check_that_fails_is_seen():
    build, (x, y) = training_step()
    graph, runs = run_step(build("f4"), x, y)
    y = y.copy()
    y[3] = 7
    assert run_on_host(graph, [x, y]).truths == [False]
    assert runs.run.truths == [True]


def test_each_kernel_of_the_table_with_float64_has_a_reason():
    double = {name.partition(":")[0] for name, line in read_table()[1].items() if line.float64}
    assert double == FLOAT64.keys()


def workload(name):
    """A workload of the benchmarks, small enough for threads of Python."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        from harness import compiled_cases
        from peers import compiled_odyssey
    finally:
        sys.path.remove(str(BENCHMARKS))
    return compiled_cases, compiled_odyssey


@pytest.mark.slow
@pytest.mark.parametrize("name", ["W1", "W2", "W3", "digits", "W4", "W4m", "W6", "W7"])
def test_workloads_leave_what_float64_leaves(name, monkeypatch):
    cases, peer = workload(name)
    for module in (cases, peer):
        monkeypatch.setattr(module, "BATCH", 1)
        monkeypatch.setattr(module, "TIMES", 64)
        monkeypatch.setattr(module, "HEADS", 1)
    batch = cases.batches_of(name)[0]
    rows = {"W3": 32, "W7": 2, "W4": 100_000, "W4m": 100_000}.get(name)
    batch = tuple(x[:rows] for x in batch)
    parameters = [p[: rows if name in ("W4", "W4m") else None] for p in cases.parameters_of(name)]

    def build(dtype):
        return peer.step_of(name, [p.astype(dtype) for p in parameters])

    assert_as_float64(build, batch)

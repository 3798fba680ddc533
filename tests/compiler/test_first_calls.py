"""First calls, before there is a program: by NumPy alone, where numba is not loaded yet."""

import subprocess
import sys

import numpy as np
import pytest

import odyssey as od
from odyssey.table import kernel_selection

PROGRAM = """
import sys
import numpy as np, odyssey as od
from odyssey import nn, ops

rng = np.random.default_rng(0)
w, v = [od.Variable(rng.normal(size=s) * 0.02, requires_grad=True) for s in [(64, 640), (640, 10)]]
q = od.Variable(rng.normal(size=(4, 8, 3, 3)), requires_grad=True)
optimizer = od.optim.Adam([w, v, q], learning_rate=1e-3)

@od.compile
def step(x, images, y):
    optimizer.zero_grad()
    with od.GradientTape() as tape:
        h = nn.gelu(nn.layer_norm(x @ w))
        loss = od.cross_entropy(h @ v, y) + (nn.softmax(h) ** 2).sum()
        loss = loss + nn.max_pool2d(nn.conv2d(images, q), window=2).sum() * 1e-6
    tape.backward(loss)
    optimizer.step()
    return loss

args = rng.normal(size=(256, 64)), rng.normal(size=(16, 8, 30, 30)), rng.integers(0, 10, 256)
losses = [float(step(*args)) for _ in range(3)]
assert losses[2] < losses[0], losses
assert "numba" not in sys.modules
"""


@pytest.mark.slow
def test_a_training_step_of_large_arrays_is_compiled_without_numba():
    pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")
    end = "assert step.statistics() == (1, 2, 1), step.statistics()"
    subprocess.run([sys.executable, "-c", PROGRAM + end], check=True)


@pytest.mark.slow
def test_steps_as_written_run_the_kernels_after_a_first_compiled_one():
    end = """
optimizer.zero_grad()
with od.GradientTape() as tape:
    loss = (nn.gelu(w) ** 2).sum() + (v**2).sum() + (q**2).sum()
tape.backward(loss)
optimizer.step()
assert "numba" in sys.modules
"""
    pytest.importorskip("numba")
    subprocess.run([sys.executable, "-c", PROGRAM + end], check=True)


@pytest.mark.slow
def test_of_ever_new_shapes_only_the_first_runs_do_without_kernels():
    pytest.importorskip("numba")
    program = """
import sys
import numpy as np, odyssey as od
from odyssey import nn

look = od.compile(lambda x: nn.gelu(x))
loaded = []
for k in range(6):
    look(np.ones((300, 1000 + k)))
    loaded.append("numba" in sys.modules)
assert loaded == [False] * 3 + [True] * 3, loaded
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.slow
def test_ops_that_load_as_they_are_first_asked_of_a_closed_over_module_are_no_effect():
    pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")
    program = """
import numpy as np, odyssey as od

def layer():
    nn, linalg = od.nn, od.linalg
    return od.compile(lambda x: nn.linear(nn.celu(x), linalg.matrix_power(x, 2)).sum())

f = layer()
for _ in range(3):
    f(np.ones((3, 3)))
assert f.statistics() == (1, 2, 1), f.explain(np.ones((3, 3)))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.fixture
def unloaded(monkeypatch):
    """As if numba had not been loaded."""
    monkeypatch.delitem(sys.modules, "numba", raising=False)


def test_a_function_that_no_program_stands_for_is_not_brief(unloaded):
    seen = []

    @od.compile
    def look(x):
        seen.insert(len(seen), kernel_selection.is_numba_avoided())  # no program repeats it
        return x * 2.0

    for _ in range(3):
        look(np.ones(3))
    assert seen == [False] * 3


def test_an_error_ends_it(unloaded):
    found = []

    def fail():
        found.append(kernel_selection.is_numba_avoided())
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        kernel_selection.without_numba(fail)
    assert found == [True]
    assert not kernel_selection.is_numba_avoided()


def test_what_numpy_computes_in_a_first_call_is_what_kernels_compute(unloaded):
    x = np.random.default_rng(1).normal(size=(64, 1024))

    def both(v):
        y, pull = od.vjp(lambda u: od.nn.gelu(od.nn.softmax(u, axis=-1) * 40.0), v)
        return y, pull(np.ones(y.shape))[0]

    first = kernel_selection.without_numba(both, x)
    assert "numba" not in sys.modules
    for a, b in zip(first, both(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)

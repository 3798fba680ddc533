"""Compiled functions of arrays on a device: they run eagerly there, and say why."""

import numpy as np
import pytest

import odyssey as od

pytestmark = pytest.mark.usefixtures("standin")


def trained(device, compiled):
    w = od.Variable(np.linspace(-1, 1, 12).reshape(3, 4), requires_grad=True, device=device)
    x = od.Variable(np.linspace(0, 1, 15).reshape(5, 3), device=device)
    optimizer = od.optim.Adam([w], 0.1)

    def step(x):
        with od.GradientTape() as tape:
            loss = (od.ops.tanh(x @ w) ** 2).mean()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step = od.compile(step) if compiled else step
    return [*[step(x).item() for _ in range(3)], *w.numpy().ravel()]


def test_a_compiled_step_on_a_device_warns_and_computes_what_the_eager_one_computes():
    with pytest.warns(od.errors.CompileWarning, match="an argument lies on cuda:0, and programs"):
        found = trained("cuda", compiled=True)
    assert found == trained("cuda", compiled=False) == trained("cpu", compiled=False)


def test_fullgraph_makes_an_error_of_an_argument_on_a_device():
    step = od.compile(lambda x: od.ops.tanh(x) * 2, fullgraph=True)
    with pytest.raises(od.errors.CompileError, match="an argument lies on cuda:0"):
        step(od.Variable(np.ones(3), device="cuda"))


def test_a_parameter_on_a_device_is_named_where_nothing_else_lies_there():
    w = od.Variable(np.ones(3), name="w", requires_grad=True, device="cuda")
    step = od.compile(lambda: (w * w).sum())
    with pytest.warns(od.errors.CompileWarning, match="w lies on cuda:0, and programs"):
        found = [step().item() for _ in range(3)]
    assert found == [3.0, 3.0, 3.0]

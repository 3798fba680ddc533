"""Whoever holds data and gradients is asked in one place, so that another may hold them."""

from contextvars import copy_context
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.table.store import MEMORY, Memory, set_store, store

PACKAGE = Path(od.__file__).parent


class Aside(Memory):
    """A store that is neither memory nor a graph: what a program writes is kept aside."""

    def __init__(self):
        self.data = {}
        self.grads = {}
        self.made = {}

    def operand(self, value):
        return self.data.get(value.id, value._array)

    read = operand

    def write(self, leaf, value):
        self.data[leaf.id] = np.array(np.broadcast_to(value, leaf.shape), leaf.dtype)

    def become(self, value, result):
        self.data[value.id] = result._array

    def gradient(self, leaf):
        return self.grads.get(leaf.id)

    def set_gradient(self, leaf, grad):
        self.grads[leaf.id] = grad

    def call_once(self, owner, make):
        return self.made.setdefault(id(owner), make())

    adopt = operand

    def run(self, fn):
        def inside():
            set_store(self)
            return fn()

        return copy_context().run(inside)


class Net:
    """Two layers, an optimizer, and a constant that is written to by index."""

    def __init__(self, make):
        rng = np.random.default_rng(7)
        shapes = {"w1": (5, 4), "b1": (4,), "w2": (4, 3)}
        self.params = {
            name: Variable(rng.normal(size=shape), requires_grad=True, name=name)
            for name, shape in shapes.items()
        }
        self.running = Variable(np.zeros(2), name="running")
        self.optimizer = make(self.params)
        self.x, self.y = rng.normal(size=(6, 5)), rng.integers(0, 3, 6)

    def step(self):
        p = self.params
        with GradientTape() as tape:
            hidden = ops.relu(self.x @ p["w1"] + p["b1"])
            loss = od.losses.cross_entropy(hidden @ p["w2"], self.y)
        tape.backward(loss)
        od.optim.clip_grad_global_norm(p, 0.5)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.running[0] = self.running[0] * 0.5 + 1.0
        p["b1"][1] = 0.25
        return loss.data


MAKERS = {
    "sgd": lambda params: od.optim.SGD(params, learning_rate=0.1, momentum=0.9),
    "adam": lambda params: od.optim.Adam(params, learning_rate=0.01),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_training_step_runs_in_another_store_which_nobody_needs_to_know(make):
    net, plain = Net(make), Net(make)
    before = {name: p.numpy().copy() for name, p in net.params.items()}
    aside = Aside()
    for _ in range(2):
        loss = aside.run(net.step)
        assert np.asarray(loss).tobytes() == np.asarray(plain.step()).tobytes()
    for name, p in plain.params.items():
        kept = aside.data[net.params[name].id]
        np.testing.assert_allclose(kept, p.numpy(), rtol=1e-14, atol=1e-15)
        assert aside.grads[net.params[name].id] is None
    assert aside.data[net.running.id].tolist() == plain.running.numpy().tolist() == [1.5, 0.0]
    # Memory is as it was.
    for name, p in net.params.items():
        assert p.numpy().tobytes() == before[name].tobytes()
        assert p.grad is None
        assert p._info.version == 0
    assert net.running.numpy().tolist() == [0.0, 0.0]
    assert net.optimizer.state_dict()["state"] == [{}, {}, {}]


def test_a_store_ends_with_the_context_that_it_was_set_in():
    aside = Aside()
    w = Variable([1.0], requires_grad=True)

    def fail():
        w.assign([2.0])
        assert w.data.tolist() == [2.0]
        raise KeyError

    with pytest.raises(KeyError):
        aside.run(fail)
    assert store() is MEMORY
    assert w.data.tolist() == [1.0]


def test_nobody_but_the_stores_asks_which_graph_is_traced():
    asking = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if "ContextVar(" in file.read_text(encoding="utf-8")
    }
    assert asking == {
        "table/scope.py",
        "table/store.py",
        "table/rng_replay.py",
        "table/kernel_selection.py",
        "tree_objects.py",  # the objects that a trace read; it asks for no graph
    }
    naming = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if "import Trace\n" in file.read_text(encoding="utf-8")
    }
    rooms = {name.partition("/")[0] for name in naming}
    assert rooms == {"compiler", "optim", "transforms"}  # who begin a trace

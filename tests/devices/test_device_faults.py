"""Out of memory, and Ctrl-C, at each allocation on a device: nothing is lost, and a retry works."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DeviceMemoryError
from support import standin as device
from support.on_device import DEVICE, host, leaf

pytestmark = pytest.mark.usefixtures("standin")

MAKES = [
    pytest.param(lambda params: od.optim.SGD(params, 0.1, momentum=0.9), id="sgd"),
    pytest.param(lambda params: od.optim.Adam(params, 0.1), id="adam", marks=pytest.mark.slow),
]


class Faults:
    """A pool whose allocations fail: all from number ``first`` on, or that one alone."""

    def __init__(self, monkeypatch):
        self.first = self.kind = self.held = None
        self.count = 0
        add = device.Pool.add

        def counted(pool, elements):
            if elements.base is None and id(elements) not in pool.blocks:
                self.count += 1
                if self.kind is MemoryError and self.count >= self.first:
                    raise device.OutOfMemoryError("Out of memory")
                if self.kind is KeyboardInterrupt and self.count == self.first:
                    raise KeyboardInterrupt
            add(pool, elements)

        monkeypatch.setattr(device.Pool, "add", counted)

    def run(self, n, kind, phase):
        """Run with a fault at allocation ``n``; return whether it came to that.

        The error is held, and with its traceback all that the run had made.
        """
        self.count, self.first, self.kind = 0, n, kind
        wanted = DeviceMemoryError if kind is MemoryError else kind
        try:
            phase()
        except wanted as error:
            self.held = error
            return True
        finally:
            self.kind = None
        return False


class Run:
    """A model on a device with a parameter on the host, after one step of its optimizer."""

    def __init__(self, make):
        rng = np.random.RandomState(1)
        self.x = Variable(rng.standard_normal((6, 4)), device=DEVICE)
        self.classes = Variable(np.array([0, 1, 2, 0, 1, 2]), device=DEVICE)
        shapes = ((4, 5), (5,), (5, 3))
        self.params = [leaf(rng.standard_normal(shape), DEVICE) for shape in shapes]
        self.params.append(leaf([0.5, 0.25, -1.0], "cpu"))
        self.optimizer = make(self.params)
        self.forward()
        self.backward()
        self.step()
        self.optimizer.zero_grad()

    def forward(self):
        a, b, c, d = self.params
        with GradientTape() as self.tape:
            h = ops.tanh(self.x @ a + b)
            self.loss = od.losses.cross_entropy(h @ c + d.to(DEVICE), self.classes)

    def backward(self):
        self.tape.backward(self.loss)

    def step(self):
        self.optimizer.step()

    def clip(self):
        od.optim.clip_grad_global_norm(self.params, 0.01)

    def load(self):
        self.optimizer.load_state_dict(self.optimizer.state_dict())

    def assign(self):
        self.params[0].assign(np.zeros((4, 5), np.float32))

    def snapshot(self):
        """The bits of all parameters, gradients and states."""
        found = [host(p) for p in self.params]
        found += [None if p.grad is None else host(p.grad) for p in self.params]
        states = self.optimizer.state_dict()["state"]
        found += [np.asarray(one[name]) for one in states for name in sorted(one)]
        return [None if array is None else array.tobytes() for array in found]


PHASES = ("forward", "backward", "clip", "step", "load", "assign")


@pytest.mark.parametrize("kind", [MemoryError, KeyboardInterrupt], ids=["memory", "interrupt"])
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("make", MAKES)
def test_a_fault_at_any_allocation_leaves_all_as_it_was_and_a_retry_works(
    monkeypatch, make, phase, kind
):
    faults = Faults(monkeypatch)

    def begun():
        run = Run(make)
        for name in PHASES[: PHASES.index(phase)] if phase in PHASES[:4] else ():
            getattr(run, name)()
        return run

    reference = begun()
    getattr(reference, phase)()
    wanted, n, failed = reference.snapshot(), 0, True
    while failed:
        n += 1
        run = begun()
        before = run.snapshot()
        failed = faults.run(n, kind, getattr(run, phase))
        if failed:
            assert run.snapshot() == before, n
            getattr(run, phase)() if phase != "backward" else (run.forward(), run.backward())
        assert run.snapshot() == wanted, n
        assert n < 300
    assert n > 2


def test_a_move_that_finds_no_memory_leaves_its_source(monkeypatch):
    faults = Faults(monkeypatch)
    x, home = leaf([1.0, 2.0], DEVICE), leaf([1.0, 2.0], "cpu")
    for move in (
        lambda: x.to("cuda:0"),
        lambda: home.to(DEVICE),
        lambda: Variable(home, device=DEVICE),
    ):
        assert faults.run(1, MemoryError, move)
        move()
    np.testing.assert_array_equal([host(x), host(home)], [[1.0, 2.0]] * 2)

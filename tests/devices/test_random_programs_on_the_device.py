"""Random training steps, compiled on the device, leave what they leave eagerly on the host.

Each step is held to what its graph allows; see ``support.compiled_rows``.
"""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import odyssey as od
from odyssey import Variable
from support.compiled_programs import Stepped, meet, spelled, take_over
from support.compiled_rows import plain, ways_to_outputs
from support.on_device import host
from support.programs import seeded
from support.seeds import DERANDOMIZE

pytestmark = pytest.mark.usefixtures("standin")

DEVICE = "cuda:0"
"""The current device, where a number times a gradient is computed."""

CALM = {"deadline": None, "derandomize": DERANDOMIZE, "database": None}
CALM |= {"suppress_health_check": [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]}


class Placed(Stepped):
    """A program with all of its arrays on one device, as Variables."""

    def __init__(self, program, seed, dtype, device):
        super().__init__(program, seed, dtype)
        self.device = device
        self.leaves = [
            x if place == "argument" else self.variable(plain(x), place == "trained", name=f"v{k}")
            for k, (x, place) in enumerate(zip(self.leaves, self.places, strict=True))
        ]
        self.memory = self.variable(np.zeros((2, 3), dtype), name="memory")
        self.weights = [self.variable(w) for w in self.weights]
        self.run = spelled(program, self.variable)

    def variable(self, array, trained=False, name=None):
        return Variable(array, trained, name=name, device=self.device)

    def arguments(self, seed):
        return [self.variable(x) for x in super().arguments(seed)]

    def seen(self):
        found = {v.name: v.numpy() for v in self.states}
        grads = {f"{p.name}.grad": p.grad for p in self.trained}
        return found | {name: None if g is None else host(g) for name, g in grads.items()}


def run(seed, longest, dtype=np.float64, steps=3):
    """Step a program eagerly on the host and compiled on the device, from the same numbers."""
    program = seeded(seed, longest)
    eager, other = (Placed(program, seed, dtype, device) for device in ("cpu", DEVICE))
    compiled = od.compile(other.step, warn=False)
    for k in range(steps):
        args, its = (world.arguments(100 * seed + k) for world in (eager, other))
        graph = od.compile(eager.step).lower(args, 0.01).graph
        ways, left = ways_to_outputs(graph, [plain(x) for x in args])
        outputs, loss = eager.step(args, 0.01)
        found, its_loss = compiled(its, 0.01)
        for got, wanted, way in zip((*found, its_loss), (*outputs, loss), ways, strict=True):
            meet(np.asarray(host(got)), np.asarray(plain(wanted)), way, (seed, k))
        one, two = eager.seen(), other.seen()
        for name, wanted in one.items():
            if wanted is None or two[name] is None:
                assert wanted is two[name], (seed, k, name)
            else:
                meet(two[name], wanted, left.get(name), (seed, k, name))
        take_over(eager, one)
        take_over(other, one)
    return compiled


@pytest.mark.parametrize("seed", [18, 25])
def test_a_random_step_leaves_on_the_device_what_it_leaves_on_the_host(seed):
    assert run(seed, 12).statistics().native == 2


@pytest.mark.slow
@settings(max_examples=12, **CALM)
@given(st.integers(0, 2**16), st.sampled_from([np.float64, np.float32]))
def test_random_steps_leave_on_the_device_what_they_leave_on_the_host(seed, dtype):
    run(seed, 40, dtype)


@pytest.mark.slow
def test_most_random_steps_run_as_programs_of_the_device():
    native = [run(seed, 25).statistics().native > 0 for seed in range(12)]
    assert sum(native) > 9  # the rest return what they were given


@pytest.mark.soak
@settings(max_examples=200, **CALM)
@given(st.integers(0, 2**16), st.sampled_from([np.float64, np.float32]))
def test_200_random_steps_leave_on_the_device_what_they_leave_on_the_host(seed, dtype):
    run(seed, 100, dtype, steps=4)

"""Hostile calls of the whole public API end in an answer or in an error with a name."""

import numpy as np
import pytest

import odyssey as od
from odyssey import losses, optim
from odyssey.errors import DTypeError
from support.hostile import called, fault, storm
from support.more_doors import all_doors
from support.seeds import SEED

DOORS = all_doors()

# What takes no argument of a stranger's, or is made by others only.
WITHOUT_DOOR = {
    "Gradients", "LossAndGrad", "TapeNode", "backward", "devices", "distributed", "errors", "fft",
    "linalg", "losses", "nn", "get_threads", "no_grad", "ops", "optim", "special", "testing",
    "Optimizer", "Group", "Rule", "Schedule", "init", "tree",
}  # fmt: skip


def test_every_public_name_has_a_door():
    behind = {name.split(".")[-1] for name in DOORS}
    names = {*od.__all__, *optim.__all__, *losses.__all__, *od.ops.OPS, *od.ops.COMPOSITES}
    missing = {name for name in names - behind - WITHOUT_DOOR if not name.startswith("softmax_")}
    assert missing <= {row.name for row in od.ops.OPS.values() if not row.samples}


def test_some_hostile_calls_raise_named_errors_and_leave_nothing_behind():
    assert storm(DOORS, 300, 4) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_hostile_calls_raise_named_errors_and_leave_nothing_behind(seed):
    assert storm(DOORS, 1500, seed) == []


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 120))
def test_100_000_hostile_calls(seed):
    assert storm(DOORS, 5000, SEED + seed) == []


# ------------------------------------------------------------------ the judge itself


def stumble():
    od.spec.spec_of(3)


def fall(error):
    try:
        raise error
    except Exception as caught:
        return fault(caught)


def door_to(call, *args):
    return lambda rng: (call, args, {}, False)


def test_an_error_from_inside_is_a_fault_with_its_line():
    found, _, _ = called(door_to(stumble), np.random.default_rng(0))
    assert [wrong.split(":")[0] for wrong in found] == ["AttributeError in spec.py"]


def test_errors_of_ours_and_of_the_call_are_no_faults():
    assert fall(DTypeError("ours")) is None
    assert fall(MemoryError()) is None
    for call in (lambda: od.grad(), lambda: od.Variable(1.0, nonsense=3)):
        found, _, _ = called(door_to(call), np.random.default_rng(0))
        assert found == []


def test_what_is_left_locked_or_entered_or_changed_is_a_fault():
    w, x = od.Variable(np.ones(1000), True), np.ones(1000)
    tape = od.GradientTape()

    def enter():
        tape.__enter__()
        return w * x

    try:
        found, _, _ = called(door_to(lambda x: enter(), x), np.random.default_rng(0))
    finally:
        tape.__exit__(None, None, None)
        tape.clear()
    assert len(found) == 3

    def write(x):
        x[0] = 3.0

    found, _, _ = called(door_to(write, x), np.random.default_rng(0))
    assert found == ["an array of the caller changed"]

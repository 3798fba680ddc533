"""Guards of a training step: marks, gradients and settings count; data and rates may change."""

import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler.guards.guards import discover_guards
from support.two_worlds import World

X = np.array([3.0, 4.0])


def leaf(value=(1.0, 2.0), name="w"):
    return Variable(np.array(value), requires_grad=True, name=name)


def test_data_and_rates_may_change_and_marks_gradients_and_settings_may_not():
    w = leaf()
    optimizer = od.optim.SGD([w], 0.1, momentum=0.9)

    def step(x):
        with GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step(X)
    guards = discover_guards(step)
    assert guards.reason is None
    assert [id(v) for v in guards.variables] == [id(w)]
    assert guards.groups == optimizer.groups
    step(X)
    w.assign([5.0, 6.0])
    optimizer.learning_rate = 0.5
    assert guards.holds()
    for change in (
        lambda: setattr(w, "grad", [1.0, 1.0]),
        lambda: setattr(w, "requires_grad", False),
        lambda: setattr(optimizer, "momentum", 0.5),
        lambda: optimizer.params.append(leaf()),
        lambda: optimizer.groups.clear(),
    ):
        guards = discover_guards(step)
        assert guards.holds()
        change()
        assert not guards.holds()
        assert not guards.refresh()


def test_a_rate_that_the_function_computes_with_may_not_change():
    w = leaf()
    optimizer = od.optim.SGD([w], 0.1)
    guards = discover_guards(lambda x: (w * x).sum() * optimizer.learning_rate)
    assert guards.holds()
    optimizer.learning_rate = 0.2
    assert not guards.holds()
    assert not guards.refresh()


def test_state_that_is_loaded_into_an_optimizer_without_any_is_noticed():
    w = leaf()
    optimizer, other = od.optim.Adam([w]), od.optim.Adam([leaf()])
    other.params[0].grad = X
    other.step()
    guards = discover_guards(lambda: optimizer.step())
    optimizer.load_state_dict(other.state_dict())
    assert not guards.holds()


def test_an_array_that_a_program_reads_is_compared_no_more_and_a_sealed_one_never():
    table, sealed = np.ones(2), np.ones(20_000)
    sealed.flags.writeable = False
    guards = discover_guards(lambda x: x * table * sealed[0])
    guards.skip_elements({id(table)})
    table += 1.0
    assert guards.holds()
    with warnings.catch_warnings(action="ignore"):  # a newer NumPy warns of it
        table.shape = (2, 1)
    assert not guards.holds()
    guards = discover_guards(lambda x: x * sealed[0])
    sealed.flags.writeable = True
    assert not guards.holds()


def test_rules_that_users_give_are_looked_into():
    slope = [2.0]

    @od.op(vjp={"x": lambda g, x: ops.multiply(g, slope[0])})
    def custom(x, /):
        return x * 2.0

    guards = discover_guards(lambda x: custom(x).sum())
    assert guards.holds()
    slope[0] = 3.0
    assert not guards.holds()

    @od.custom_vjp
    def other(x):
        return x * slope[0]

    guards = discover_guards(od.grad(lambda x: other(x).sum()))
    assert guards.holds()
    slope[0] = 4.0
    assert not guards.holds()


def test_a_constant_that_gets_a_name_or_a_gradient_later_is_known_again():
    c = Variable(np.ones(2))
    guards = discover_guards(lambda x: x * c)
    c.name = "c"
    assert guards.refresh()
    assert guards.holds()
    c.grad = [1.0, 1.0]
    assert not guards.refresh()


def test_state_that_moves_into_other_memory_is_the_same_state():
    w, v = leaf(), leaf(name="v")
    optimizer = od.optim.SGD([w, v], 0.1, momentum=0.9)
    w.grad, v.grad = X, X
    optimizer.step()
    guards = discover_guards(lambda: optimizer.step())
    assert guards.holds()
    optimizer._flatten_params()
    assert guards.refresh()
    assert guards.holds()


@pytest.mark.parametrize("seed", range(6))
def test_guards_of_a_network_hold_from_call_to_call(seed):
    world = World(seed, False)
    x, y = np.ones((2, 3), world.dtype), np.array([0, 1])
    calls = {
        world.accumulate: (x, y),
        world.apply: (),
        world.clipped: (x, y),
        world.checkpointed: (x, y),
        world.careful: (x, y),
        world.hooked: (x, y, 2.0),
        world.predict: (x,),
        world.penalty: (x, 1.0),
        world.remember: (x,),
        world.decay: (0.1,),
    }
    for fn, args in calls.items():
        world.accumulate(x, y)
        fn(*args)
        world.accumulate(x, y)
        guards = discover_guards(fn, *args)
        assert guards.reason is None
        assert guards.holds()
        fn(*args)
        world.accumulate(x, y)
        world.schedule.step()
        world.calls += 1
        world.history.append(1.0)
        assert guards.holds(), guards.describe_change()

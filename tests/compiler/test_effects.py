"""A compiled function is the function, in what it does to Variables, tapes and arguments."""

import math

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import (
    CompileError,
    ShapeError,
    TapeError,
    UntrackedError,
)

X = np.array([3.0, 4.0])


def leaf(value=(1.0, 2.0), name="w"):
    return Variable(np.array(value), requires_grad=True, name=name)


def sweeping(w):
    def sweep(x):
        with GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)
        return loss

    return sweep


# ------------------------------------------------------------------ gradients and leaves


@pytest.mark.parametrize("before", [None, [1.0, 1.0]], ids=["none", "some"])
@pytest.mark.parametrize("later", [None, [5.0, 5.0]], ids=["then none", "then some"])
def test_a_compiled_backward_adds_to_the_gradient_that_is_there_at_each_call(before, later):
    w = leaf()
    w.grad = before
    sweep = od.compile(sweeping(w))
    sweep(X)
    sweep(X)
    assert w.grad.tolist() == [6.0 + (before or [0])[0], 8.0 + (before or [0])[0]]
    w.grad = later
    sweep(X)
    assert w.grad.tolist() == [3.0 + (later or [0])[0], 4.0 + (later or [0])[0]]


def test_a_parameter_that_is_frozen_after_a_first_call_gets_no_gradient_and_a_thawed_one_does():
    w, v = leaf(), leaf(name="v")

    def train(x):
        with GradientTape() as tape:
            loss = (w * v * x).sum()
        tape.backward(loss)

    train = od.compile(train)
    train(X)
    assert v.grad is not None
    v.grad = None
    v.requires_grad = False
    train(X)
    assert v.grad is None
    v.requires_grad = True
    train(X)
    assert v.grad.tolist() == [3.0, 8.0]


@pytest.mark.parametrize("flag", [True, False])
def test_a_leaf_from_before_is_not_frozen_or_thawed_by_a_trial_and_the_error_says_what_to_do(flag):
    w = leaf()
    w.requires_grad = not flag

    def train(x):
        w.requires_grad = flag
        return w * x

    with pytest.raises(TapeError, match=rf"set to {flag} of w .*outside .*test_effects\.py:\d+"):
        od.compile(train)(X)
    assert w.requires_grad is not flag


def of_input(x):
    v = (x * 1.0 if isinstance(x, Variable) else Variable(x) * 1.0).detach()
    v.requires_grad = True
    return v


def of_array(x):
    v = Variable(np.array([5.0, 6.0]))
    v.requires_grad = True
    return v


@pytest.mark.parametrize("make", [of_input, of_array])
def test_what_a_compiled_function_makes_it_may_thaw_and_freeze(make):
    w = leaf()

    def slopes(x):
        v = make(x)
        with GradientTape() as tape:
            loss = (w * v**2).sum()
        slope = tape.gradient(loss, v)
        v.requires_grad = False
        with GradientTape() as tape:
            loss = (w * v**2).sum()
        return slope, tape.gradient(loss, [w, v], unused="none")

    compiled = od.compile(slopes)
    for _ in range(3):
        slope, (of_w, of_v) = compiled(X)
        v = make(X).numpy()
        assert slope.tolist() == (2 * v * [1.0, 2.0]).tolist()
        assert of_w.tolist() == (v**2).tolist()
        assert of_v is None
    assert compiled.statistics().native == 2


def test_an_argument_that_is_thawed_is_thawed_at_each_call():
    def thaw(v):
        v.requires_grad = True

    compiled = od.compile(thaw)
    for _ in range(3):
        v = Variable([1.0, 2.0])
        compiled(v)
        assert v.requires_grad


def test_a_result_of_captured_leaves_is_untracked_as_the_eager_one():
    w = leaf()
    scaled = od.compile(lambda x: w * x)
    for result in (scaled(X), scaled(X)):
        with pytest.raises(UntrackedError), GradientTape():
            result * 2.0
        assert result.numpy().tolist() == [3.0, 8.0]


def test_a_leaf_on_a_tape_that_is_enabled_but_not_entered_is_recorded():
    fn = od.compile(lambda w: w * 3.0)
    tape = GradientTape()
    tape.enable()
    captured = tape.variable([1.0, 2.0])
    for result in (fn(captured), od.compile(lambda: captured * 3.0)()):
        assert result.tape is tape
    assert len(tape) == 2
    again = od.compile(lambda: result * 2.0)
    for _ in range(2):
        again()
    y = again()
    assert tape.gradient(y, captured, np.ones(2)).tolist() == [6.0, 6.0]


def test_a_tape_of_outside_is_swept_once_by_the_function_that_closes_over_it():
    w = leaf()
    with GradientTape() as tape:
        loss = (w * w).sum()
    od.compile(lambda: tape.backward(loss))()
    assert w.grad.tolist() == [2.0, 4.0]
    with GradientTape() as tape:
        loss = (w * w).sum()
    od.compile(lambda: loss.backward())()
    assert w.grad.tolist() == [4.0, 8.0]


def test_a_compiled_function_inside_a_tape_is_recorded_and_refuses_what_it_refuses_outside():
    w = leaf()
    square = od.compile(lambda x: x * x)
    for _ in range(2):
        with GradientTape() as tape:
            loss = square(w).sum()
        assert tape.gradient(loss, w).tolist() == [2.0, 4.0]
    with pytest.raises(TapeError, match="traced"), GradientTape():
        od.compile(lambda x: x * float(w[0]))(X)


def test_a_compiled_step_leaves_no_false_mutation_to_a_tape_that_did_not_use_the_leaf():
    w = leaf()
    double = od.compile(lambda: w.assign(w.detach() * 2.0))
    with GradientTape() as tape:
        with pytest.raises(ShapeError):
            w @ np.ones((3, 3))
        with od.no_grad():
            double()
        loss = (w * w).sum()
    assert tape.gradient(loss, w).tolist() == [4.0, 8.0]


def test_an_assignment_by_a_compiled_function_is_noticed_by_the_tape_that_used_the_leaf():
    w = leaf()
    double = od.compile(lambda: w.assign(w.detach() * 2.0))
    for _ in range(2):
        with GradientTape() as tape:
            loss = (w * w).sum()
        double()
        with pytest.raises(od.errors.MutationError):
            tape.backward(loss)


# ------------------------------------------------------------------ constants and arguments


def test_a_write_to_what_came_back_is_seen_as_the_eager_function_would_show_it():
    table, w = np.array([1.0, 2.0]), Variable([1.0, 2.0])
    fresh = od.compile(lambda: np.zeros(2))
    fresh()[0] = 9.0
    assert fresh().tolist() == [0.0, 0.0]
    same = od.compile(lambda: table)
    assert same() is table
    assert od.compile(lambda: w)() is w
    shifted = od.compile(lambda x: x + table)
    shifted(X)[...] = 0.0
    assert shifted(X).tolist() == [4.0, 6.0]
    table += 10.0
    assert shifted(X).tolist() == [14.0, 16.0]


class Odd:
    """Objects that all pass for the same, and differ."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


@pytest.mark.parametrize(
    "given",
    [
        [0.0, -0.0],
        [1.0, 1, True, np.int64(1), np.float32(1.0), np.True_, 1 + 0j],
        [math.nan, -math.nan, math.inf],
        ["sum", "mean"],
        [Odd(2.0), Odd(3.0)],
        [None, 2.0],
        [[1.0, 2.0], (1.0, 2.0), {"a": 1.0, "b": 2.0}, {"b": 1.0, "a": 2.0}],
    ],
    ids=["zeros", "ones", "nans", "strings", "objects", "none", "containers"],
)
def test_what_equals_an_earlier_argument_is_not_taken_for_it(given):
    def told(x, what):
        if isinstance(what, str):
            return getattr(ops, what)(x)
        if isinstance(what, Odd):
            return x * what.number
        if isinstance(what, (list, tuple)):
            return type(what)([x * part for part in what])
        if isinstance(what, dict):
            return {name: x * part for name, part in what.items()}
        return x if what is None else np.float32(1.0) / (x * 0.0 + what)

    compiled = od.compile(told)
    with np.errstate(all="ignore"):
        for _ in range(2):
            for what in given:
                got, wanted = compiled(X, what), told(X, what)
                assert type(got) is type(wanted)
                for a, b in zip(od.tree.leaves(got), od.tree.leaves(wanted), strict=True):
                    assert a.dtype == b.dtype
                    assert a.tobytes() == b.tobytes()


def test_variables_are_made_of_arguments_and_of_captured_leaves():
    w = leaf()

    def slopes(x):
        c = Variable(x, dtype=np.float32)
        p, q = Variable(x * 2.0, requires_grad=True, name="p"), Variable(w, requires_grad=True)
        with GradientTape() as tape:
            loss = (p * p * q * c).sum()
        tape.backward(loss)
        p.assign(p.detach() - p.grad)
        return p.numpy(), q.grad, c.numpy(), (p * 1.0).detach().numpy()

    compiled = od.compile(slopes)
    for found in (compiled(X), compiled(X), compiled.lower(X).evaluate(X)[0]):
        for got, wanted in zip(found, slopes(X), strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_allclose(got, wanted, rtol=1e-15)
    assert w.grad is None


def test_arguments_come_by_name_and_a_method_is_bound():
    class Net:
        def __init__(self):
            self.w = leaf()

        @od.compile
        def scaled(self, x, *, factor=1.0):
            return (self.w * x * factor).detach().sum()

    net = Net()
    for _ in range(2):
        assert net.scaled(X, factor=2.0).item() == 22.0
        assert net.scaled(x=X).item() == 11.0
    assert Net.scaled(net, X).item() == 11.0
    with pytest.raises(TypeError, match="unexpected keyword"):
        net.scaled(X, scale=1.0)


def test_an_argument_is_written_to_as_the_function_writes():
    def fill(x):
        x += 1.0
        return x

    x = np.zeros(2)
    fill = od.compile(fill)
    assert fill(x) is x
    fill(x)
    assert x.tolist() == [2.0, 2.0]


def test_a_container_that_holds_itself_ends_as_without_compile():
    loop = []
    loop.append(loop)
    count = od.compile(lambda x: len(x))
    assert count(loop) == 1
    assert "cannot be compared" in count.explain(loop)
    with pytest.raises(CompileError, match="cannot be compared"):
        count.precompile(loop)


def test_length_iteration_and_unpacking_of_an_array_argument_work():
    def fold(x):
        first, *others = x
        total = first * len(x)
        for row in others:
            total = total + row
        return total + sum(part for part in x)

    x = np.arange(6.0).reshape(3, 2)
    compiled = od.compile(fold)
    np.testing.assert_array_equal(compiled(x), fold(x))
    np.testing.assert_array_equal(compiled.lower(x).evaluate(x)[0], fold(x))
    for ask in (len, list):
        with pytest.raises(TypeError, match="without axes"):
            od.compile(ask).lower(np.array(1.0))
        with pytest.raises(TypeError):
            od.compile(ask)(np.array(1.0))


@pytest.mark.parametrize("how", ["captured", "argument", "in a container"])
def test_a_variable_from_before_is_named_once_a_call(how):
    w = Variable(np.ones(2), name="w")
    names = []

    def name(v):
        v.name = v.name + "'"
        names.append(v.name)
        return v * 2.0

    calls = {
        "captured": (od.compile(lambda: name(w)), ()),
        "argument": (od.compile(name), (w,)),
        "in a container": (od.compile(lambda tree: name(tree["w"])), ({"w": w},)),
    }
    step, args = calls[how]
    for k in range(1, 5):
        step(*args)
        assert w.name == "w" + "'" * k
        assert names == ["w" + "'" * n for n in range(1, k + 1)]


def test_what_a_compiled_function_makes_it_may_name():
    @od.compile
    def step(x):
        hidden = Variable(x) * 2.0
        hidden.name = "hidden"
        return hidden.detach().numpy() * 3.0

    for k in range(4):
        np.testing.assert_array_equal(step(np.full(2, float(k))), 6.0 * np.full(2, float(k)))
    assert step.statistics().native > 0

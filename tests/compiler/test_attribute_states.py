"""Attribute states: arrays that objects keep from call to call are no constants of a program."""

import gc
import warnings
import weakref

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import CompileError, CompileWarning

X = np.array([0.5, -1.0, 2.0])


class Recurrent:
    """Keeps its hidden state, detached, as recurrent networks do."""

    def __init__(self, compiled=True):
        self.w = Variable(np.array([0.3, 0.2, 0.1]), requires_grad=True)
        self.optimizer = od.optim.Adam([self.w], 0.01)
        self.reset()
        if compiled:
            self.step = od.compile(self.step)

    def reset(self):
        self.h = Variable(np.zeros(3))

    def train(self, x):
        with GradientTape() as tape:
            h = ops.tanh(self.w * x + self.h)
            loss = (h**2).sum()
        tape.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss, h.detach()

    def step(self, x):
        loss, self.h = self.train(x)
        return loss

    def __call__(self, x):
        return self.step(x)


class AssignsOutside(Recurrent):
    def step(self, x):
        return self.train(x)

    def __call__(self, x):
        loss, self.h = self.step(x)
        return loss


class OfArrays(Recurrent):
    def reset(self):
        self.h = np.zeros(3)

    def step(self, x):
        return self.train(x)

    def __call__(self, x):
        loss, h = self.step(x)
        self.h = h.numpy()
        return loss


class OfPair(Recurrent):
    """Has a state of two arrays in a tuple, as an LSTM has."""

    def reset(self):
        self.state, self.h = (Variable(np.zeros(3)), Variable(np.ones(3))), None

    def step(self, x):
        h, c = self.state
        self.h = h
        loss, h = self.train(x)
        self.state = (h, 0.5 * c + h)
        return loss + 0.0 * c.sum()


class Cell:
    def __init__(self):
        self.h = Variable(np.zeros(3))

    def __call__(self, w, x):
        self.h = ops.tanh(w * x + self.h.detach())
        return self.h


class OfCell(Recurrent):
    """Has the state on another object."""

    def reset(self):
        self.cell, self.h = Cell(), np.zeros(3)

    def step(self, x):
        with GradientTape() as tape:
            loss = (self.cell(self.w, x) ** 2).sum()
        tape.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.cell.h = self.cell.h.detach()
        return loss


class FromNone(Recurrent):
    def reset(self):
        self.h = None

    def step(self, x):
        if self.h is None:
            self.h = Variable(np.zeros(3))
        loss, self.h = self.train(x)
        return loss


class OfDict(Recurrent):
    def reset(self):
        self.state, self.h = {"h": Variable(np.zeros(3)), "unused": None}, None

    def step(self, x):
        self.h = self.state["h"]
        loss, self.state["h"] = self.train(x)
        return loss


class OfList(Recurrent):
    def reset(self):
        self.states, self.h = [Variable(np.zeros(3)), Variable(np.ones(3))], None

    def step(self, x):
        self.h = self.states[0]
        loss, self.states[0] = self.train(x)
        self.states[1] = 0.5 * self.states[1]
        return loss


class Decorated(Recurrent):
    def __init__(self, compiled=True):
        super().__init__(compiled=False)
        if not compiled:
            self.step = super().step

    @od.compile
    def step(self, x):
        loss, self.h = self.train(x)
        return loss


KINDS = (
    *(Recurrent, AssignsOutside, OfArrays, OfPair, OfCell, FromNone, OfDict, OfList),
    Decorated,
)


def run(net, count):
    return [float(net(X * (1 + k % 3))) for k in range(count)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_on_self_needs_one_program(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        net, eager = kind(), kind(compiled=False)
        losses = run(net, 12)
        np.testing.assert_allclose(losses, run(eager, 12), rtol=1e-12)
        net.reset()
        eager.reset()
        np.testing.assert_allclose(run(net, 4), run(eager, 4), rtol=1e-12)
    np.testing.assert_allclose(net.w.numpy(), eager.w.numpy(), rtol=1e-12)
    stats = net.step.statistics() if kind is not Decorated else Decorated.step.statistics()
    assert stats.programs <= 2
    assert stats.native >= 10


@pytest.mark.parametrize("kind", [Recurrent, AssignsOutside, OfArrays])
def test_a_state_has_one_program_alone(kind):
    net = kind()
    run(net, 10)
    assert net.step.statistics().programs == 1
    assert "attributes that are inputs: h" in net.step.explain(X)
    assert "%" in net.step.code(X)
    assert net.step.profile(X, runs=1).kernels


def test_what_a_program_assigns_is_what_the_function_assigns():
    net, eager = Recurrent(), Recurrent(compiled=False)
    for k in range(6):
        before = net.h
        kept = before.numpy().copy()
        net(X * k)
        eager(X * k)
        assert type(net.h) is type(eager.h)
        assert net.h is not before
        assert before.numpy().tolist() == kept.tolist()  # nobody writes to an earlier state
        np.testing.assert_allclose(net.h.numpy(), eager.h.numpy(), rtol=1e-12)


def test_a_returned_state_is_the_state():
    class Accumulator:
        def __init__(self):
            self.total = np.zeros(3)

        def add(self, x):
            self.total = self.total + x
            return self.total

    a = Accumulator()
    add = od.compile(a.add)
    for k in range(6):
        assert add(X) is a.total
        np.testing.assert_allclose(a.total, X * (k + 1), rtol=1e-15)
    assert add.statistics()[:2] == (1, 5)


def test_a_state_of_another_shape_has_a_program_of_its_own():
    net, eager = AssignsOutside(), AssignsOutside(compiled=False)
    for one in (net, eager):
        one.results = run(one, 4)
        one.h = Variable(np.zeros((2, 3)))
        one.results += run(one, 4)
    np.testing.assert_allclose(net.results, eager.results, rtol=1e-12)
    assert net.step.statistics().programs == 2


def test_a_state_that_is_a_parameter_is_not_taken_for_a_constant():
    class Doubles:
        def __init__(self):
            self.w = Variable(np.ones(3), requires_grad=True)
            self.h = np.ones(3)

        def step(self, x):
            with GradientTape() as tape:
                loss = (self.w * self.h * x).sum()
            self.h = self.h * 2.0
            return tape.gradient(loss, self.w)

    one, eager = Doubles(), Doubles()
    step = od.compile(one.step)
    for k in range(8):
        if k in (4, 6):
            one.h, eager.h = one.w, eager.w
        elif k in (5, 7):
            one.h, eager.h = np.ones(3), np.ones(3)
        np.testing.assert_allclose(np.asarray(step(X)), np.asarray(eager.step(X)), rtol=1e-15)


@pytest.mark.parametrize("change", ["class", "attribute", "gone"])
def test_other_changes_are_noticed_behind_a_state(change):
    class Net(Recurrent):
        scale = 1.0

        def train(self, x):
            loss, h = super().train(x)
            return loss * self.scale, h

    class Other(Net):
        def train(self, x):
            loss, h = super().train(x)
            return 3.0 * loss, h

    net, eager = Net(), Net(compiled=False)
    run(net, 5), run(eager, 5)
    for one in (net, eager):
        if change == "class":
            one.__class__ = Other
        elif change == "attribute":
            one.scale = 2.0
        else:
            del one.h
    if change == "gone":
        for one in (net, eager):
            with pytest.raises(AttributeError):
                one(X)
            one.reset()
    np.testing.assert_allclose(run(net, 5), run(eager, 5), rtol=1e-12)


def test_an_array_whose_values_python_needs_is_no_argument():
    class Sized:
        def __init__(self):
            self.sizes = np.array([1, 2])

        def step(self, x):
            return x[: int(self.sizes[1])] * 2.0

    one = Sized()
    step = od.compile(one.step)
    for k in range(1, 4):
        for _ in range(3):
            one.sizes = np.array([1, k])
            assert step(X).tolist() == (2.0 * X[:k]).tolist()
    assert step.statistics().programs == 3


def test_identity_is_asked_of_the_object_itself():
    class Resets:
        def __init__(self):
            self.first = self.h = np.zeros(3)

        def step(self, x):
            x = x if self.h is self.first else 2.0 * x
            self.h = self.h + x
            return self.h.sum()

    one, eager = Resets(), Resets()
    step = od.compile(one.step, warn=False)
    for k in range(9):
        if k % 3 == 0:
            one.h, eager.h = one.first, eager.first
        assert step(X) == eager.step(X)


def test_other_writes_are_repeated_beside_a_state():
    class Counts(Recurrent):
        def reset(self):
            super().reset()
            self.count, self.history = 0, []

        def step(self, x):
            self.count += 1
            loss = super().step(x)
            self.history.append(loss)
            return loss

    net, eager = Counts(), Counts(compiled=False)
    np.testing.assert_allclose(run(net, 6), run(eager, 6), rtol=1e-12)
    assert net.count == 6
    np.testing.assert_allclose(*[[float(v) for v in one.history] for one in (net, eager)])
    assert net.step.statistics().programs == 1


def test_what_assigns_a_number_that_it_reads_runs_eagerly_and_says_so():
    class Counts(Recurrent):
        count = 0

        def step(self, x):
            self.count += 1
            return super().step(x * self.count)

    net, eager = Counts(), Counts(compiled=False)
    net.count = eager.count = 0
    with pytest.warns(CompileWarning, match="writes to count, an attribute of a Counts"):
        losses = run(net, 6)
    np.testing.assert_array_equal(losses, run(eager, 6))
    assert net.count == 6


def test_a_class_with_rules_of_assignment_is_asked():
    class Checked(Recurrent):
        def __setattr__(self, name, value):
            self.__dict__["assigned"] = self.__dict__.get("assigned", 0) + 1
            super().__setattr__(name, value)

    net, eager = Checked(), Checked(compiled=False)
    run(net, 5), run(eager, 5)
    assert net.assigned == eager.assigned + 1  # of the compiled step itself


def test_an_error_in_a_program_leaves_the_state():
    class Roots:
        def __init__(self):
            self.h = np.ones(3)

        def step(self, k):
            self.h = self.h + 1.0
            return ops.choose(k, [self.h, 2.0 * self.h, 3.0 * self.h])

    one, eager = Roots(), Roots()
    step = od.compile(one.step)
    for index in (0, 1, 2, 5, 1):
        k = np.array(index)
        outcomes = []
        for call in (step, eager.step):
            try:
                outcomes.append(np.asarray(call(k)).tolist())
            except Exception as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]
        assert one.h.tolist() == eager.h.tolist()


def test_fullgraph_and_precompile_know_states():
    net = Recurrent(compiled=False)
    step = od.compile(net.step, fullgraph=True)
    for _ in range(4):
        step(X)
    assert step.statistics().programs == 1
    other, eager = Recurrent(compiled=False), Recurrent(compiled=False)
    step = od.compile(other.step)
    step.precompile(od.Spec((3,), np.float64))
    assert other.h.numpy().tolist() == [0.0, 0.0, 0.0]
    for _ in range(3):
        np.testing.assert_allclose(float(step(X)), float(eager.step(X)), rtol=1e-12)
    assert step.statistics().programs <= 2
    with pytest.raises(CompileError, match="attribute"):
        od.compile(lambda x: setattr(net, "other", x), fullgraph=True)(X)


def test_a_cleared_or_dropped_function_holds_no_state():
    net = Recurrent()
    run(net, 4)
    net.step.clear_cache()
    assert not net.step._attributes
    run(net, 4)
    held = weakref.ref(net.h._array)
    gc.disable()
    try:
        net.reset()
        net(X)
        assert held() is None or held() is not net.h._array
    finally:
        gc.enable()


def test_a_state_inside_a_scope_is_followed_by_the_tape():
    net, eager = OfCell(), OfCell(compiled=False)
    run(net, 4), run(eager, 4)
    with od.no_grad():
        a, b = net.step(X), eager.step(X)
    np.testing.assert_allclose(float(a), float(b), rtol=1e-12)
    np.testing.assert_allclose(run(net, 3), run(eager, 3), rtol=1e-12)


def test_each_receiver_of_a_decorated_method_has_its_own_state():
    class Sums:
        def __init__(self, start):
            self.h = np.full(3, start)

        @od.compile
        def step(self, x):
            self.h = self.h + x
            return self.h.sum()

    both = [Sums(0.0), Sums(1.0)]
    for k in range(1, 7):
        for start, one in enumerate(both):
            assert one.step(X) == pytest.approx(k * X.sum() + 3 * start, rel=1e-14)
            np.testing.assert_allclose(one.h, start + k * X, rtol=1e-14)
    assert Sums.step.statistics() == (2, 10, 2)
    others = [Sums(float(k)) for k in range(20)]
    with pytest.warns(CompileWarning, match="writes to h"):
        found = [one.step(X) for one in 2 * others]
    assert found[::20] == [X.sum(), 2 * X.sum()]

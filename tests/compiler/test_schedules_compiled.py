"""Schedules that step inside compiled functions do so behind the program, as its last line."""

from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import SettingError
from odyssey.optim import (
    SGD,
    Adam,
    CosineAnnealingLR,
    ExponentialLR,
    MultiStepLR,
    Schedule,
    StepLR,
    WarmupCosineLR,
    WarmupLR,
)
from support import faults
from support.threads import run_in_threads

KINDS = {
    "step": lambda o: StepLR(o, 2, 0.5),
    "steps": lambda o: MultiStepLR(o, [1, 4, 4], 0.5),
    "exponential": lambda o: ExponentialLR(o, 0.8),
    "cosine": lambda o: CosineAnnealingLR(o, 7, 0.01),
    "warmup": lambda o: WarmupLR(o, 5),
    "warmup and cosine": lambda o: WarmupCosineLR(o, 3, 8),
}
X = np.random.default_rng(0).normal(size=(4, 3))


class Net:
    """A parameter, an optimizer, a schedule, and their step, as the tests vary it."""

    def __init__(self, kind, optimizer=lambda w: SGD([w], 0.1, momentum=0.9), order="ws"):
        rng = np.random.default_rng(1)
        self.w = Variable(rng.normal(size=(3, 2)), requires_grad=True, name="w")
        self.optimizer = optimizer(self.w)
        self.schedule = kind(self.optimizer)
        self.order = order
        self.seen = []

    def step(self, x):
        with GradientTape() as tape:
            loss = ((x @ self.w) ** 2).mean()
        tape.backward(loss)
        for what in self.order:
            if what == "w":
                self.optimizer.step()
            else:
                self.schedule.step()
        self.optimizer.zero_grad()
        return loss

    def stands(self):
        groups = [group.settings()["learning_rate"] for group in self.optimizer.groups]
        return self.schedule.steps, groups


def same(one, other):
    assert one.stands() == other.stands()
    # Sums may go in another order, which counts in units of the largest weight.
    np.testing.assert_allclose(one.w.numpy(), other.w.numpy(), rtol=0, atol=1e-14)


def pair(*args, **named):
    return Net(*args, **named), Net(*args, **named)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("make", [lambda w: SGD([w], 0.1), lambda w: Adam([w], 0.1)])
def test_a_schedule_that_steps_last_is_part_of_the_native_step(kind, make):
    eager, net = pair(kind, make)
    compiled = od.compile(net.step, check=True)
    for _ in range(9):
        a, b = eager.step(X), compiled(X)
        np.testing.assert_allclose(float(a), float(b), rtol=1e-13)
        same(eager, net)
    assert compiled.statistics().native == 8
    assert f"then {type(net.schedule).__name__}.step()" in str(compiled.lower(X).graph)


def test_to_lower_explain_or_reckon_steps_no_schedule():
    net = Net(KINDS["step"])
    compiled = od.compile(net.step)
    for _ in range(3):
        compiled(X)
    before = net.stands()
    compiled.lower(X)
    assert f"steps after the program: {net.schedule!r}" in compiled.explain(X)
    compiled.estimate_memory_requirements(X)
    assert net.stands() == before


def test_eager_and_compiled_steps_may_take_turns_and_settings_may_change():
    eager, net = pair(KINDS["exponential"])
    compiled = od.compile(net.step)
    for k in range(12):
        eager.step(X)
        (net.step if k % 3 == 2 else compiled)(X)
        if k == 6:
            eager.schedule.gamma = net.schedule.gamma = 0.5
        if k == 8:
            eager.optimizer.learning_rate = net.optimizer.learning_rate = 0.3
        same(eager, net)
    assert compiled.statistics().native == 7


def test_another_schedule_or_another_optimizer_of_it_is_noticed():
    net = Net(KINDS["step"])
    compiled = od.compile(net.step)
    for _ in range(3):
        compiled(X)
    old, net.schedule = net.schedule, ExponentialLR(net.optimizer, 0.5)
    for _ in range(3):
        compiled(X)
    assert (old.steps, net.schedule.steps) == (3, 3)
    other = SGD([Variable(np.ones(2), requires_grad=True)], 0.25)
    rate, net.schedule.optimizer = net.optimizer.learning_rate, other
    for _ in range(2):
        compiled(X)
    assert net.optimizer.learning_rate == rate
    assert other.learning_rate == 0.25 / 4


def test_two_optimizers_have_their_schedules():
    nets = pair(KINDS["step"])
    others = pair(KINDS["exponential"])

    def both(net, other):
        def step(x):
            first = net.step(x)
            return first, other.step(x)

        return step

    eager = both(nets[0], others[0])
    compiled = od.compile(both(nets[1], others[1]))
    for _ in range(6):
        eager(X)
        compiled(X)
        same(*nets)
        same(*others)
    assert compiled.statistics().native == 5


@pytest.mark.parametrize("order", ["sw", "wsw", "wss"])
def test_where_a_rate_is_read_behind_a_schedule_the_function_runs_as_it_was_written(order):
    eager, net = pair(KINDS["exponential"], order=order)
    compiled = od.compile(net.step)
    for _ in range(5):
        eager.step(X)
        compiled(X)
        same(eager, net)
    assert compiled.statistics().native == 0


def rate(net):
    return net.optimizer.learning_rate


def count(net):
    return net.schedule.steps


def all_of_it(net):
    return net.schedule.state_dict()["steps"]


def by_text(net):
    return getattr(net.schedule, "st" + "eps")


def words(net):
    return repr(net.schedule)


@pytest.mark.parametrize("ask", [rate, count, all_of_it, by_text, words])
def test_what_asks_where_a_schedule_stands_is_told(ask):
    eager, net = pair(KINDS["exponential"])

    def step(net, x):
        net.step(x)
        return ask(net)

    compiled = od.compile(lambda x: step(net, x))
    for _ in range(5):
        assert compiled(X) == step(eager, X)
        same(eager, net)


def test_a_schedule_that_the_function_makes_steps_where_it_stands():
    w = Variable(np.ones(2), requires_grad=True)

    def step(x):
        optimizer = SGD([w], 0.5)
        ExponentialLR(optimizer, 0.5).step()
        return x * optimizer.learning_rate

    def hidden(x):
        optimizer = SGD([w], 0.5)
        ExponentialLR(optimizer, 0.5).step()
        return x * len(str(optimizer))

    for fn in (step, hidden):
        compiled = od.compile(fn)
        for _ in range(4):
            np.testing.assert_array_equal(compiled(np.ones(2)), fn(np.ones(2)))


@pytest.mark.parametrize("order", ["w", "ws"])
@pytest.mark.parametrize("who", [1, 2, 3], ids=["optimizer", "schedule", "group"])
def test_what_is_written_out_says_what_the_rate_is_now(who, order):
    eager, net = pair(KINDS["exponential"], order=order)

    def step(net, x):
        net.step(x)
        return len(
            f"{net.optimizer if who == 'optimizer' else net.schedule}{net.optimizer.groups[0]}"
        )

    compiled = od.compile(lambda x: step(net, x))
    for k in range(5):
        assert compiled(X) == step(eager, X)
        eager.optimizer.learning_rate = net.optimizer.learning_rate = 0.1 + 0.01 ** (k % 2 + 1)


def test_what_reads_a_rate_alone_still_runs_natively():
    net = Net(KINDS["step"], order="w")
    compiled = od.compile(lambda x: net.step(x) * net.optimizer.learning_rate)
    for _ in range(4):
        compiled(X)
    assert compiled.statistics().native == 3


class Own(Schedule):
    def __init__(self, optimizer):
        super().__init__(optimizer)
        self.log = []

    def _next(self, rate, base):
        self.log = [*self.log, rate]
        return base / (1 + self.steps)


def test_schedules_of_users_do_what_they_do():
    eager, net = pair(Own)
    compiled = od.compile(net.step)
    for _ in range(5):
        eager.step(X)
        compiled(X)
        same(eager, net)
        assert eager.schedule.log == net.schedule.log


def test_a_schedule_that_cannot_step_raises_as_the_function_does():
    eager, net = pair(KINDS["exponential"])
    compiled = od.compile(net.step)
    for _ in range(3):
        eager.step(X)
        compiled(X)
    eager.schedule.base_rates = net.schedule.base_rates = [0.1, 0.1]
    for step in (eager.step, compiled):
        with pytest.raises(ValueError, match="zip"):
            step(X)
    same(eager, net)
    eager.schedule.base_rates = net.schedule.base_rates = [0.1]
    eager.schedule.gamma = net.schedule.gamma = -1.0
    for step in (eager.step, compiled):
        with pytest.raises(SettingError, match="learning_rate"):
            step(X)
    same(eager, net)


def test_a_schedule_in_a_checkpoint_or_a_loop_is_that_of_the_eager_call():
    def looped(net, x):
        def body(carry, one):
            net.schedule.step()
            return carry + one.sum(), None

        return od.scan(body, np.zeros(()), x)[0]

    eager, net = pair(KINDS["exponential"])
    compiled = od.compile(lambda x: looped(net, x))
    for _ in range(3):
        outcomes = []
        for call in (lambda: looped(eager, X), lambda: compiled(X)):
            try:
                outcomes.append(float(call()))
            except Exception as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]
        same(eager, net)


def test_programs_for_all_sizes_step_it_too():
    eager, net = pair(KINDS["exponential"])
    compiled = od.compile(net.step, dynamic={"x": {0: od.Dim("rows", 1, 64)}})
    rng = np.random.default_rng(2)
    for rows in (4, 5, 9, 17, 4, 33, 2):
        x = rng.normal(size=(rows, 3))
        eager.step(x)
        compiled(x)
        same(eager, net)
    assert compiled.statistics().native > 2


def test_threads_that_step_together_lose_no_step():
    net = Net(KINDS["exponential"], lambda w: SGD([w], 1e-3))
    compiled = od.compile(net.step)
    for _ in range(3):
        compiled(X)
    run_in_threads(*[lambda: [compiled(X) for _ in range(100)]] * 3)
    assert compiled.statistics().written == 1
    assert net.schedule.steps == 303
    assert net.optimizer.learning_rate == pytest.approx(1e-3 * 0.8**303, rel=1e-9)


PACKAGE = str(Path(od.__file__).parent)


@pytest.mark.parametrize(
    "stride", [pytest.param(1, marks=pytest.mark.soak), pytest.param(5, marks=pytest.mark.slow)]
)
def test_an_interrupt_leaves_the_parameters_and_the_schedule_together(stride):
    def fresh():
        net = Net(KINDS["exponential"])
        compiled = od.compile(net.step)
        for _ in range(2):
            compiled(X)
        return net, compiled

    before, n, finished = fresh()[0], 0, False
    after, compiled = fresh()
    compiled(X)
    while not finished:
        n += stride
        net, compiled = fresh()
        try:
            with faults.interrupt(n, within=PACKAGE):
                compiled(X)
        except KeyboardInterrupt:
            stepped = net.schedule.steps == 3
        else:
            finished = stepped = True
        same(net, after if stepped else before)
        assert net.schedule.steps in (2, 3)
    assert n > 40

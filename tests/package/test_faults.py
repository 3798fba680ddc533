"""Stopped at any place, an action happened or did not, and nothing is left open behind it."""

import itertools
import random
import signal
import sys
from contextlib import ExitStack, suppress

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops, optim
from odyssey.devices.array_locks import locked_bytes
from odyssey.errors import DTypeError, OdysseyError, TapeConsumedError
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store
from support.faults import FAULTS, RAISED, FaultError


@pytest.fixture(autouse=True)
def _nothing_kept_of_ends(monkeypatch):
    """An interrupt in a ``__del__`` is only reported; pytest would keep it, with its frames."""
    monkeypatch.setattr(sys, "unraisablehook", lambda report: None)


class World:
    """Parameters, an optimizer and data that a tape locks, always the same at the start."""

    def __init__(
        self, make=lambda p: optim.SGD(p, learning_rate=0.1, momentum=0.9), reads_rows=False
    ):
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(80, 4))
        self.reads_rows = reads_rows  # of w, whose gradient then is rows
        self.w = Variable(rng.normal(size=(4, 3)), requires_grad=True, sparse_grad=reads_rows)
        self.b = Variable(np.ones(3), requires_grad=True)
        self.c = Variable(np.full((3, 1), 0.5 + 0.25j), requires_grad=True)
        self.params = [self.w, self.b, self.c]
        self.optimizer = make(self.params)
        self.tape = None

    def loss(self):
        if self.reads_rows:
            h = ops.tanh(self.w[np.array([2, 0, 2])] + self.b)
            return ops.real((h @ self.c).sum()) + self.w[np.array([2])].sum()
        h = ops.tanh(ops.matmul(self.x, self.w) + self.b)
        return ops.real((h @ self.c).sum()) + (self.w * self.w).mean()

    def record(self):
        with GradientTape() as self.tape:
            return self.loss()

    def train(self):
        self.tape = None
        loss = self.record()
        self.optimizer.zero_grad()
        self.tape.backward(loss)
        self.optimizer.step()

    def look(self, bits=np.asarray):
        """All that an action may change, as bytes."""
        found = [bits(p.numpy()).tobytes() for p in self.params]
        found += [None if p.grad is None else bits(p.grad).tobytes() for p in self.params]
        saved = self.optimizer.state_dict()
        found += [
            (name, bits(value).tobytes())
            for state in saved["state"]
            for name, value in sorted(state.items())
            if np.any(value)  # no state is the same as that of the start
        ]
        return [*found, repr(saved["settings"]), repr(saved["groups"])]

    def look_at_the_rest(self):
        """The same without gradients, and up to the order of sums, which programs may change."""
        found = self.look(lambda value: np.round(value, 11) + 0)
        return found[:3] + found[6:]

    def assert_closed(self):
        """Nothing is entered, locked or read-only but what a tape that lives still needs."""
        assert store() is MEMORY
        assert scopes() == (None,)
        if self.tape is not None:
            assert not self.tape.enabled
            self.tape.clear()
            self.tape = None
        assert self.x.flags.writeable
        assert locked_bytes() == 0
        assert (self.w + 1.0).tape is None


class ScaledWorld(World):
    """A world with a scaler and a half-precision parameter, whose gradients are scaled."""

    def __init__(self, overflows=False):
        super().__init__(adam)
        self.half = Variable(np.ones(3, np.float16), requires_grad=True)
        self.params = [self.w, self.b, self.half]
        self.optimizer = adam(self.params)
        self.scaler = optim.LossScaler(64.0, interval=1)
        for factor in (1.0, np.inf if overflows else 64.0):
            for p in self.params:
                p.grad = np.full(p.shape, factor)
            if factor == 1:
                self.optimizer.step()  # which gives it a state

    def look(self, bits=np.asarray):
        """Without gradients, which an interrupt may leave divided, and noted to be."""
        found = super().look(bits)
        return [*found[:3], *found[6:], repr(self.scaler.state_dict())]


# ------------------------------------------------------------------ actions


def trained(make=None):
    world = World(make) if make else World()
    world.train()
    return world


def recording():
    world = World()
    return world, world.record


def with_pauses():
    world = World()

    def act():
        with od.no_grad():
            world.loss()
        with GradientTape() as world.tape:
            world.loss()
            with world.tape.no_recording():
                world.loss()

    return world, act


def nested():
    world = World()

    def act():
        with GradientTape() as world.tape:
            with GradientTape() as inner:
                y = (world.w**3).sum()
            slope = inner.gradient(y, world.w)
            z = (slope * slope).sum()
        return world.tape.gradient(z, world.w)

    return world, act


def delivering(before=0, **how):
    world = World()
    for _ in range(before):
        loss = world.record()
        world.tape.backward(loss)
    loss = world.record()
    return world, lambda: world.tape.backward(loss, **how)


def gradient():
    world = World()
    loss = world.record()
    return world, lambda: world.tape.gradient(loss, world.params)


def stepping(make):
    world = trained(make)
    return world, world.optimizer.step


def scaled_stepping(overflows):
    world = ScaledWorld(overflows)
    return world, lambda: world.scaler.step(world.optimizer)


def unscaling():
    world = trained()
    scaler = optim.LossScaler(2.0)

    def act():
        scaler.load_state_dict(scaler.state_dict())
        scaler.unscale(world.optimizer)

    return world, act


def skipping():
    world = trained()
    return world, lambda: world.optimizer.step(where=False)


def stepping_by_rows(make):
    world = World(make, reads_rows=True)
    world.train()
    return world, world.optimizer.step


def delivering_rows(before):
    world = World(reads_rows=True)
    for _ in range(before):
        loss = world.record()
        world.tape.backward(loss)
    loss = world.record()
    return world, lambda: world.tape.backward(loss)


def clipping_rows():
    world, act = delivering_rows(0)
    act()
    return world, lambda: optim.clip_grad_global_norm(world.params, 0.001)


def first_step():
    world = World()
    for p in world.params:
        p.grad = np.ones(p.shape, p.dtype)
    return world, world.optimizer.step


def assigning():
    world = World()
    return world, lambda: world.w.assign(np.arange(12.0).reshape(4, 3))


def freezing():
    world = World()

    def act():
        world.w.requires_grad = False
        world.w.requires_grad = True

    return world, act


def loading(make):
    other = trained(make)
    other.train()
    other.optimizer.learning_rate = 0.25
    saved = other.optimizer.state_dict()
    world = trained(make)
    return world, lambda: world.optimizer.load_state_dict(saved)


def scheduling():
    world = trained()
    groups = [{"params": [world.w]}, {"params": [world.b, world.c]}]
    world.optimizer = optim.SGD(groups, learning_rate=0.5)
    schedule = optim.StepLR(world.optimizer, step_size=1)
    return world, schedule.step


def clipping():
    world = World()
    loss = world.record()
    world.tape.backward(loss)
    return world, lambda: optim.clip_grad_norm(world.params, 0.001)


def compiled():
    world = World()
    step = od.compile(lambda x: _compiled_step(world, x))
    return world, lambda: step(world.x)


def _compiled_step(world, x):
    with GradientTape() as tape:
        loss = (ops.tanh(x @ world.w + world.b)).sum()
    world.optimizer.zero_grad()
    tape.backward(loss)
    world.optimizer.step(allow_missing=True)
    return loss


def closed_rules():
    world = World()

    @od.custom_vjp
    def cube(v):
        return v**3

    cube.defvjp(lambda v: (v**3, v), lambda v, g: (3 * v * v * g,))

    def act():
        with GradientTape() as world.tape:
            y = cube(world.w).sum()
        world.tape.backward(y)

    return world, act


def sgd(params):
    return optim.SGD(params, learning_rate=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)


def adam(params):
    return optim.Adam(params, learning_rate=0.1, amsgrad=True)


def lazy(params):
    return optim.Adam(params, learning_rate=0.1, lazy=True)


def adagrad(params):
    return optim.AdaGrad(params, learning_rate=0.1)


def lars(params):
    return optim.LARS(params, learning_rate=0.1)


ACTIONS = {
    "record": recording,
    "pauses": with_pauses,
    "nested": nested,
    "backward": delivering,
    "backward, kept": lambda: delivering(retain=True),
    "backward, added": lambda: delivering(before=1),
    "gradient": gradient,
    "closed rules": closed_rules,
    "first step": first_step,
    "step of SGD": lambda: stepping(sgd),
    "step of Adam": lambda: stepping(adam),
    "step of LARS": lambda: stepping(lars),
    "step of a scaler": lambda: scaled_stepping(False),
    "step of a scaler that skips": lambda: scaled_stepping(True),
    "unscale": unscaling,
    "skipped step": skipping,
    "step of lazy Adam": lambda: stepping_by_rows(lazy),
    "step of AdaGrad by rows": lambda: stepping_by_rows(adagrad),
    "backward, rows": lambda: delivering_rows(0),
    "backward, rows added": lambda: delivering_rows(1),
    "clip rows": clipping_rows,
    "assign": assigning,
    "freeze and thaw": freezing,
    "load into SGD": lambda: loading(sgd),
    "load into Adam": lambda: loading(adam),
    "schedule": scheduling,
    "clip": clipping,
    "compiled step": compiled,
}


# These do several things, one after the other: each of them whole, as without the compiler.
SEVERAL = {"compiled step"}
LONG = {"compiled step": 41}


def assert_whole(action, fault, n):
    """Act with the ``n``-th fault; return whether it came, after checking what it left."""

    def look(world):
        return world.look_at_the_rest() if action in SEVERAL else world.look()

    expected = ACTIONS[action]()
    looks = [look(expected[0])]
    for _ in range(2):
        with suppress(OdysseyError):  # a tape is swept once
            expected[1]()
        looks.append(look(expected[0]))
    expected[0].assert_closed()
    world, act = ACTIONS[action]()
    with FAULTS[fault](n) as fired:
        try:
            act()
        except RAISED:
            assert fired
    where = f"{action}, {fault} {n}: {fired}"
    if not fired:
        return False
    assert scopes() == (None,), where
    found = look(world)
    assert found in looks[:2], where
    done = found == looks[1]
    try:
        act()
    except OdysseyError:
        assert look(world) == found, where
    else:
        # Where an action changes nothing the second time, once is enough.
        assert look(world) in (looks[2:] if done and looks[0] != looks[1] else looks[1:]), where
    try:
        world.assert_closed()
    except AssertionError as error:
        raise AssertionError(where) from error
    return True


def counted(action, fault, start=1, step=1):
    outcomes = (assert_whole(action, fault, n) for n in itertools.count(start, step))
    return sum(1 for _ in itertools.takewhile(bool, outcomes))


@pytest.mark.parametrize("fault", ["kernel", "allocation"])
@pytest.mark.parametrize("action", ACTIONS)
def test_an_error_in_any_kernel_or_allocation_leaves_a_whole_world(action, fault):
    counted(action, fault)


@pytest.mark.slow
@pytest.mark.parametrize("action", ACTIONS)
def test_an_interrupt_at_many_opcodes_leaves_a_whole_world(action):
    step = 97 * LONG.get(action, 1)
    assert counted(action, "opcode", start=1 + len(action) % 7, step=step) > 0


@pytest.mark.soak
@pytest.mark.parametrize(("fault", "step"), [("line", 1), ("opcode", 5)], ids=["line", "opcode"])
@pytest.mark.parametrize("action", ACTIONS)
def test_an_interrupt_at_any_line_and_every_fifth_opcode_leaves_a_whole_world(action, fault, step):
    assert counted(action, fault, step=step * LONG.get(action, 1)) > 0


# ------------------------------------------------------------------ real signals


class StopError(Exception):
    """What the handler raises."""


def _train_under_signals(count):
    """Train until so many signals came, at random moments; return how many steps were taken."""
    world, clean, rng = World(), World(), random.Random(3)
    wholes, k, came, armed = [clean.look_at_the_rest()], 0, 0, []

    def stop(number, frame):
        if armed:  # a signal may come late, where nothing is tried any more
            armed.clear()
            raise StopError

    before = signal.signal(signal.SIGALRM, stop)
    try:
        while came < count:
            try:
                armed.append(True)
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1e-3))
                world.train()
                armed.clear()
            except (StopError, DTypeError) as error:
                # What is raised while NumPy converts a value is the cause of a DTypeError.
                if StopError not in (type(error), type(error.__cause__)):
                    raise
                came += 1
            if len(wholes) == k + 1:
                clean.train()
                wholes.append(clean.look_at_the_rest())
            found = world.look_at_the_rest()
            assert found in wholes[k : k + 2], (came, k)
            k += found == wholes[k + 1]
            assert scopes() == (None,)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    world.assert_closed()
    return k


no_timers = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")


@no_timers
def test_a_training_loop_under_signals_takes_whole_steps():
    assert _train_under_signals(300) > 0


@no_timers
@pytest.mark.soak
def test_ten_thousand_signals_on_a_training_loop_leave_whole_steps():
    assert _train_under_signals(10_000) > 0


# ------------------------------------------------------------------ what is refused, and how


def test_a_tape_whose_sweep_was_stopped_says_that_nothing_was_handed_over():
    world = World()
    loss = world.record()
    with FAULTS["kernel"](3), pytest.raises(FaultError):
        world.tape.backward(loss)
    assert all(p.grad is None for p in world.params)
    for ask in (world.tape.backward, lambda y: world.tape.gradient(y, world.w)):
        with pytest.raises(TapeConsumedError, match="before it handed over a gradient"):
            ask(loss)
    assert world.x.flags.writeable


@pytest.mark.parametrize("make", [sgd, adam, lars])
def test_an_overflow_that_is_to_raise_moves_no_parameter(make):
    params = [Variable(np.ones(3), requires_grad=True) for _ in range(2)]
    optimizer = make(params)
    for p in params:
        p.grad = np.ones(3)
    optimizer.step()
    params[1].assign([1e308, np.inf, 1.0])
    params[1].grad = np.array([1e308, -np.inf, np.inf])
    before = [p.numpy().copy() for p in params]
    state = optimizer.state_dict()["state"]
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        optimizer.step()
    for p, old in zip(params, before, strict=True):
        np.testing.assert_array_equal(p.numpy(), old)
    for s, old in zip(optimizer.state_dict()["state"], state, strict=True):
        for name, value in s.items():
            np.testing.assert_array_equal(value, old[name])


def test_an_overflow_of_a_step_warns_when_the_step_is_done():
    w = Variable(np.full(3, 1e308), requires_grad=True)
    w.grad = np.full(3, -1e308)
    with pytest.warns(RuntimeWarning, match=r"overflow encountered in SGD\.step"):
        optim.SGD([w], learning_rate=100.0).step()
    assert np.isinf(w.numpy()).all()


def test_an_overflow_that_is_ignored_is_not_told_of():
    w = Variable(np.full(3, 1e308), requires_grad=True)
    w.grad = np.full(3, -1e308)
    with np.errstate(all="ignore"):
        optim.SGD([w], learning_rate=100.0).step()


def test_an_underflow_is_told_of_only_where_numpy_is_to_warn_of_it():
    w = Variable(np.full(3, 1e-300), requires_grad=True)
    w.grad = np.full(3, 1e-300)
    optimizer = optim.SGD([w], learning_rate=1e-100)
    optimizer.step()
    with np.errstate(under="warn"), pytest.warns(RuntimeWarning, match="underflow encountered"):
        optimizer.step()
    optimizer.step()


@pytest.mark.parametrize("where", ["line", "opcode"])
def test_the_first_place_of_exit_may_be_interrupted(where):
    for n in itertools.count(1):
        tape = GradientTape()
        w = Variable(np.ones(3), requires_grad=True)
        with pytest.raises(KeyboardInterrupt) as kept, FAULTS[where](n) as fired:  # noqa: PT012
            with tape:
                pass
            raise KeyboardInterrupt  # it went through
        assert scopes() == (None,), fired
        assert not tape.enabled, fired
        assert not (w * w).is_leaf or (w * w).tape is None
        assert kept.value
        if not fired:
            return


def test_an_exit_stack_leaves_a_tape():
    w = Variable(3.0, requires_grad=True)
    with ExitStack() as stack:
        tape = stack.enter_context(GradientTape())
        y = w * w
    assert scopes() == (None,)
    assert tape.gradient(y, w) == 6.0


def test_no_grad_serves_as_a_decorator_and_more_than_once():
    w, pause = Variable(3.0, requires_grad=True), od.no_grad()
    with GradientTape():
        with pause:
            with pause:
                pass
            assert not (w * w).requires_grad
        assert (w * w).requires_grad
        assert not od.no_grad()(lambda: w * w)().requires_grad

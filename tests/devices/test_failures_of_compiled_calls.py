"""Compiled functions on a device whose calls fail, are interrupted, or run short of memory.

Parameters, the state of the optimizer, step counts and versions are all those of before, or all
those of after.
"""

import signal
from typing import ClassVar

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.cuda.host_launcher import HostLauncher
from odyssey.errors import DeviceError, DeviceMemoryError
from support.threads import run_in_threads

pytestmark = pytest.mark.usefixtures("standin")

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((8, 6)).astype("f4"), RNG.integers(0, 3, 8)
START = [RNG.standard_normal((6, 3)).astype("f4")]


class Faulty(HostLauncher):
    """A launcher that notes what is called, and whose calls fail on demand.

    Attributes:
        made: The names of all calls that were made.
        fault: By name of a method, an error that it raises; of "call k", what the call returns or
            raises.
    """

    made: ClassVar = []
    fault: ClassVar = {}

    def __init__(self):
        super().__init__(has_graphs=True)

    def _wrapped(self, kind, made):
        return _call, kind, made

    def load(self, program):
        self.stop("load")
        return super().load(program)

    def begin_run(self):
        self.stop("begin_run")
        super().begin_run()

    def graph_call(self, calls):
        self.stop("graph_call")
        return self._wrapped("graph", super().graph_call(calls))

    def launch_call(self, *args):
        return self._wrapped("kernel", super().launch_call(*args))

    def product_call(self, *args):
        return self._wrapped("product", super().product_call(*args))

    def download_call(self, target, source, count):
        made = super().download_call(target, source, count)
        return self._wrapped("download" if count else "wait", made)

    def stop(self, name):
        if name in self.fault:
            raise self.fault[name]


def _call(kind, made):
    Faulty.made.append(kind)
    answer = Faulty.fault.get(f"call {len(Faulty.made)}")
    if isinstance(answer, DeviceError):
        return answer
    if answer is not None:
        raise answer
    function, *args = made
    return function(*args)


@pytest.fixture
def faulty(standin, monkeypatch):
    """Let programs run by ``Faulty``."""
    monkeypatch.setattr(standin, "launcher", lambda index: Faulty(), raising=False)
    monkeypatch.setattr(Faulty, "made", [])
    monkeypatch.setattr(Faulty, "fault", {})
    return Faulty


def on(*arrays):
    return [od.Variable(a, device="cuda") for a in arrays]


class Classifier:
    """A compiled training step, and all that it writes."""

    def __init__(self, checked=True):
        self.p = p = [od.Variable(a, requires_grad=True, device="cuda") for a in START]
        self.update = update = od.optim.Adam(p, 0.1)

        def step(x, y):
            with od.GradientTape() as tape:
                out = od.ops.tanh(x @ p[0])
                loss = od.losses.cross_entropy(out, y) if checked else (out * out).mean()
            tape.backward(loss)
            update.step()
            update.zero_grad()
            return loss

        self.function, self.step, self.batch = step, od.compile(step), on(X, Y)

    def state(self):
        """The numbers of all that a step writes."""
        saved = od.tree.leaves(self.update.state_dict())
        return [np.array(one) for one in (*[w.numpy() for w in self.p], *saved)]

    def versions(self):
        return [w._info.version for w in self.p]

    def check_usable(self):
        """Both ways of running go on, and tapes take the parameters."""
        assert all(version == version for version in self.versions())
        ran = self.step.statistics().native
        self.step(*self.batch)
        assert self.step.statistics().native == ran + 1
        self.function(*self.batch)
        with od.GradientTape() as tape:
            loss = (self.p[0] * self.p[0]).sum()
        tape.backward(loss)
        for w in self.p:
            w.grad = None


def equal(one, other):
    """Whether two states are equal, up to roundings: a step changes all numbers by 0.1 or so."""
    return all(np.allclose(a, b, rtol=0, atol=1e-5) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("checked", [False, True], ids=["without checks", "with checks"])
@pytest.mark.parametrize("error", [DeviceError("status 700"), RuntimeError("no status")], ids=str)
def test_the_call_that_fails_is_named_and_no_later_one_is_made(faulty, checked, error):
    c = Classifier(checked)
    for k in range(1, 3):
        c = Classifier(checked)
        c.step(*c.batch)
        faulty.made.clear()
        faulty.fault[f"call {k}"] = error
        with pytest.raises(type(error), match=str(error)) as info:
            c.step(*c.batch)
        if type(error) is DeviceError:
            assert faulty.made[-1] in str(info.value)
        assert len(faulty.made) == k
        faulty.fault.clear()
        assert not any(version != version for version in c.versions())
        c.check_usable()


@pytest.mark.parametrize("what", ["begin_run", "graph_call"])
def test_a_launcher_that_fails_changes_nothing(faulty, what):
    c = Classifier()
    c.step(*c.batch), c.step(*c.batch)
    before, versions = c.state(), c.versions()
    faulty.fault[what] = DeviceError("no more streams")
    if what == "graph_call":  # launched one by one
        expected = Classifier()
        for _ in range(3):
            expected.step(*expected.batch)
        c.step(*c.batch)
        assert equal(c.state(), expected.state())
        assert "launched one by one" in str(c.step.explain(*c.batch))
    else:
        with pytest.raises(DeviceError, match="no more streams"):
            c.step(*c.batch)
        assert equal(c.state(), before)
        assert c.versions() == versions
    faulty.fault.clear()
    c.check_usable()


def test_a_program_that_the_device_refuses_leaves_the_function_eager(faulty):
    faulty.fault["load"] = DeviceError("no kernel image")
    c, eager = Classifier(), Classifier()
    assert c.step(*c.batch).item() == eager.function(*eager.batch).item()
    with pytest.warns(od.errors.CompileWarning, match="Update its driver"):
        c.step(*c.batch)
    eager.function(*eager.batch)
    assert c.step(*c.batch).item() == eager.function(*eager.batch).item()
    assert c.step.statistics() == (0, 0, 3)
    assert "no kernel image" in str(c.step.explain(*c.batch))


def test_waiting_after_each_call_names_the_kernel(faulty, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CUDA_SYNC", "1")
    c = Classifier()
    c.step(*c.batch), c.step(*c.batch)
    assert faulty.made.count("wait") >= len(faulty.made) // 2
    k = faulty.made.index("kernel") + 2  # the wait behind it
    c = Classifier()
    c.step(*c.batch)
    faulty.made.clear()
    faulty.fault[f"call {k}"] = DeviceError("an illegal address")
    with pytest.raises(DeviceError, match=r"kernel .*: an illegal address"):
        c.step(*c.batch)
    faulty.fault.clear()
    c.check_usable()


def test_memory_that_is_short_at_any_line_changes_nothing():
    device = od.devices.cuda()
    c = Classifier()
    c.step(*c.batch), c.step(*c.batch)
    refused = 0
    for room in range(0, 1200, 100):
        before, versions = c.state(), c.versions()
        device.memory_limit = device.memory_stats()["in_use"] + room + 1
        try:
            c.step(*c.batch)
        except DeviceMemoryError:
            refused += 1
            device.memory_limit = None
            assert equal(c.state(), before)
            assert c.versions() == versions
        device.memory_limit = None
    assert refused
    c.check_usable()


class Interrupt(KeyboardInterrupt):
    """What the signal handler of a test raises."""


def interrupt(*_):
    raise Interrupt


@pytest.mark.parametrize(
    ("checked", "count"),
    [(False, 12), pytest.param(True, 60, marks=pytest.mark.slow)],
    ids=["without checks", "with checks"],
)
def test_an_interrupt_finds_a_step_wholly_done_or_not_at_all(checked, count):
    c = Classifier(checked)
    for _ in range(4):
        c.step(*c.batch)
    last, caught, earlier = c.state(), 0, signal.signal(signal.SIGALRM, interrupt)
    expected = Classifier(checked)
    for _ in range(4):
        expected.step(*expected.batch)
    try:
        for k in range(count):
            versions = c.versions()
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + 2e-3 * k / count)
                c.step(*c.batch)
            except Interrupt:
                caught += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            now, done = c.state(), c.versions()
            assert all(version == version for version in done)
            if done == versions:
                assert equal(now, last)
            else:
                expected.step(*expected.batch)
                assert equal(now, expected.state())
            last = now
    finally:
        signal.signal(signal.SIGALRM, earlier)
    assert caught
    c.check_usable()


def test_threads_take_turns_with_one_program():
    c, expected = Classifier(), Classifier()
    for one in (c, c, expected, expected):
        one.step(*one.batch)

    def work():
        for _ in range(2):
            c.step(*on(X, Y))

    run_in_threads(*[work] * 3)
    for _ in range(6):
        expected.step(*expected.batch)
    assert equal(c.state(), expected.state())

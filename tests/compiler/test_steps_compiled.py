"""Training in which eager and compiled steps meet everything that happens between two steps.

Each story is told twice, to a network whose functions are compiled and to one whose are not; at
each pause all that can be seen of the two is the same, but for the order of sums.
"""

import threading
from functools import partial

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.optim import SGD, Adam, AdamW, ExponentialLR, StepLR
from support.compiled_rows import plain
from support.threads import run_in_threads

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)


class Net:
    """A network with its optimizer, whose functions are compiled or not."""

    def __init__(self, compiled, make=lambda p: Adam(p, 0.05), dtype=np.float64):
        rng = np.random.default_rng(0)
        shapes = {"w": (6, 9), "b": (9,), "v": (9, 4)}
        self.layer = {
            name: Variable(rng.normal(0, 0.5, shape).astype(dtype), True, name=name)
            for name, shape in shapes.items()
        }
        self.scale = rng.uniform(0.5, 1.5, 4).astype(dtype)
        self.factor = 1.0
        self.count = Variable(np.zeros((), dtype), name="count")
        self.optimizer = make([*self.layer.values()])
        self.rng = np.random.default_rng(1)
        self.dtype = dtype
        self.compiled = compiled
        self.told = []
        for name in ("step", "accumulate", "apply", "evaluate"):
            setattr(self, name, self.compile(getattr(self, f"eager_{name}")))

    def compile(self, fn):
        return od.compile(fn) if self.compiled else fn

    def batch(self, n=8):
        x = self.rng.normal(size=(n, 6)).astype(self.dtype)
        return x, self.rng.integers(0, 4, n)

    def loss(self, x, y):
        p = self.layer
        logits = ops.tanh(x @ p["w"] + p["b"]) @ p["v"] * self.scale * self.factor
        return od.losses.cross_entropy(logits, y)

    def eager_accumulate(self, x, y):
        with GradientTape() as tape:
            loss = self.loss(x, y)
        tape.backward(loss)
        self.count.assign(self.count + 1.0)
        return loss

    def eager_apply(self):
        self.optimizer.step()
        self.optimizer.zero_grad()

    def eager_step(self, x, y):
        loss = self.eager_accumulate(x, y)
        self.eager_apply()
        return loss

    def eager_evaluate(self, x, y):
        return self.loss(x, y).detach(), self.layer["w"] * 1.0

    def look(self):
        state = self.optimizer.state_dict()
        seen = {name: p.numpy() for name, p in self.layer.items()}
        seen |= {f"{name} grad": p.grad for name, p in self.layer.items()}
        slots = enumerate(state["state"])
        seen |= {f"{k} {n}": value for k, slot in slots for n, value in slot.items()}
        seen |= {"count": self.count.numpy(), "scale": self.scale}
        marks = [(p.requires_grad, p._info.version if p._info else None) for p in self.parts]
        rest = repr((state["settings"], state["groups"], marks, self.factor))
        return {n: v if v is None else np.array(v) for n, v in seen.items()}, rest

    @property
    def parts(self):
        return [*self.layer.values(), self.count]


def assert_alike(got, wanted, tolerance, what):
    if wanted is None or got is None:
        assert got is wanted, what
        return
    a, b = plain(got), plain(wanted)
    assert (type(got), a.dtype, a.shape) == (type(wanted), b.dtype, b.shape), what
    largest = np.abs(b).max(initial=1.0)
    assert np.abs(a - b).max(initial=0.0) <= tolerance * largest, (what, got, wanted)


def tell(story, tolerance=1e-12, **settings):
    """Tell a story to both networks; at each pause compare what it says and what is seen."""
    nets = Net(False, **settings), Net(True, **settings)
    pauses = 0
    for said in zip(*map(story, nets), strict=True):
        pauses += 1
        for a, b in zip(od.tree.leaves(said[1]), od.tree.leaves(said[0]), strict=True):
            assert_alike(a, b, tolerance, ("said", pauses))
        (one, marks), (two, other_marks) = nets[0].look(), nets[1].look()
        assert marks == other_marks, pauses
        assert one.keys() == two.keys()
        for name, wanted in one.items():
            assert_alike(two[name], wanted, tolerance, (name, pauses))
    assert pauses > 3
    return nets


MAKERS = {
    "SGD": lambda p: SGD(p, 0.1),
    "momentum": lambda p: SGD(p, 0.1, momentum=0.9, nesterov=True),
    "Adam": lambda p: Adam(p, 0.05),
    "AdamW in groups": lambda p: AdamW(
        [{"params": p[:1], "learning_rate": 0.01}, {"params": p[1:]}], 0.02
    ),
}
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


# ------------------------------------------------------------------ steps


def alternating(net):
    for k in range(12):
        step = net.eager_step if k % 3 == 1 else net.step
        yield step(*net.batch())
    for k in range(6):  # by halves, the one eager and the other not
        yield (net.eager_accumulate if k % 2 else net.accumulate)(*net.batch())
        yield (net.apply if k % 2 else net.eager_apply)()


def accumulating(net):
    for k in range(4):
        for _ in range(k + 1):
            yield net.accumulate(*net.batch())
        yield net.apply()
    yield net.accumulate(*net.batch())
    yield net.step(*net.batch())  # which adds to what is there
    for p in net.layer.values():
        p.grad = None
    yield net.accumulate(*net.batch())
    net.layer["w"].grad = np.ones((6, 9))
    yield net.accumulate(*net.batch())
    net.layer["b"].zero_grad()
    yield net.accumulate(*net.batch())


def freezing(net):
    for name in ("w", "b", "v", "w"):
        net.layer[name].requires_grad = False
        for _ in range(3):
            yield net.accumulate(*net.batch())
        net.layer[name].requires_grad = True
        for _ in range(3):
            yield net.accumulate(*net.batch())
        yield net.apply()
        for _ in range(3):
            yield net.step(*net.batch())


def scheduled(net):
    schedules = [StepLR(net.optimizer, 2, 0.5), ExponentialLR(net.optimizer, 0.9)]
    for k in range(10):
        yield net.step(*net.batch())
        schedules[k % 2].step()
    for rate in (0.1, 0.0, 1e-3, 1, 0.1):
        net.optimizer.learning_rate = rate
        yield net.step(*net.batch())


def reassigned(net):
    rng = np.random.default_rng(5)
    for k in range(8):
        p = net.layer[("w", "b", "v")[k % 3]]
        value = rng.normal(size=p.shape).astype(net.dtype)
        if k % 4 == 0:
            p.assign(value)
        elif k % 4 == 1:
            p.data = value
        elif k % 4 == 2:
            p[0] = value[0]
        else:
            p.assign(np.asfortranarray(value))
        net.count.assign(float(k))
        yield net.step(*net.batch())
        yield net.evaluate(*net.batch())


def replaced(net):
    """Where the function finds a Variable there is another one now."""
    rng = np.random.default_rng(6)
    for k in range(4):
        yield net.evaluate(*net.batch(5))
        yield net.evaluate(*net.batch(5))
        old = net.layer["w"]
        net.layer["w"] = Variable(rng.normal(size=(6, 9)).astype(net.dtype), k % 2 == 0, name="w")
        yield net.evaluate(*net.batch(5))
        net.layer["w"] = old
        yield net.step(*net.batch(5))
        net.count = Variable(np.asarray(k, net.dtype), name="count")
        yield net.step(*net.batch(5))


def captured_arrays(net):
    rng = np.random.default_rng(7)
    for k in range(6):
        yield net.step(*net.batch())
        net.scale[k % 4] = rng.uniform(0.5, 1.5)
        yield net.step(*net.batch())
        if k == 2:
            net.scale = net.scale * 1.25
        if k == 3:
            net.scale = np.repeat(net.scale, 2)[::2]
        if k == 4:
            net.scale.flags.writeable = False
            net.scale = net.scale.copy()
        yield net.evaluate(*net.batch())
    net.scale[...] = 1.0  # one number, that a graph may fold
    for _ in range(3):
        yield net.step(*net.batch())
    net.scale[1] = 2.0
    yield net.step(*net.batch())


def captured_numbers(net):
    for factor in (1.0, 1.0, 1.0, 2.0, 0.5, 1, np.float32(0.5), 0.0, -0.0, 1.0, True):
        net.factor = factor
        yield net.step(*net.batch())
        yield net.evaluate(*net.batch())


def other_sizes(net):
    for n in (8, 8, 8, 1, 8, 3, 1, 3, 8, 33, 33, 33, 8):
        yield net.step(*net.batch(n))
    for kind in (np.float32, np.float64, np.float16):
        x, y = net.batch()
        for _ in range(3):
            yield net.step(x.astype(kind), y.astype(np.int32))


def saved_and_loaded(net):
    kept = []
    for k in range(9):
        yield net.step(*net.batch())
        if k % 3 == 0:
            values = {name: np.array(p.numpy()) for name, p in net.layer.items()}
            kept.append((values, net.optimizer.state_dict()))
        if k % 3 == 2:
            values, state = kept.pop()
            for name, value in values.items():
                net.layer[name].assign(value)
            net.optimizer.load_state_dict(state)
            yield net.evaluate(*net.batch())


def failing(net):
    """What is refused changes nothing, and the next step is as if it had not been."""
    for k in range(8):
        yield net.step(*net.batch())
        x, y = net.batch()
        bad = [(x[:, :3], y), (x, y + 4), (x, y[:3]), (x, y - 9), (x, None), (x, y * 0.5)][k % 6]
        try:
            net.step(*bad)
        except Exception as error:
            yield np.frombuffer(str((type(error).__name__, str(error))).encode(), np.uint8) * 1.0
        else:
            yield np.zeros(1)


def under_tapes_and_pauses(net):
    for k in range(6):
        x, y = net.batch()
        with GradientTape() as tape:
            extra = ops.sum(net.layer["v"] ** 2)
            loss = net.compile(net.loss)(x, y) + extra
        tape.backward(loss)
        yield loss.detach()
        with od.no_grad():
            yield net.evaluate(x, y)
        yield net.apply()
        if k % 2:
            yield net.step(x, y)


STORIES = [alternating, accumulating, freezing, scheduled, reassigned, replaced, captured_arrays]
STORIES += [captured_numbers, other_sizes, saved_and_loaded, failing, under_tapes_and_pauses]


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_what_happens_between_steps_leads_to_the_same_numbers(story):
    makers = list(MAKERS.values())
    tell(story, make=makers[STORIES.index(story) % len(makers)])


@pytest.mark.soak
@every_maker
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_what_happens_between_steps_leads_to_the_same_numbers_by_every_rule(story, make):
    tell(story, make=make)
    tell(story, 2e-4, make=make, dtype=np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES[::2], ids=lambda story: story.__name__)
def test_what_happens_between_steps_leads_to_the_same_numbers_in_single_precision(story):
    tell(story, 2e-4, make=MAKERS["momentum"], dtype=np.float32)


def test_what_is_seen_of_a_network_shows_every_difference():
    def story(net):
        for k in range(5):
            yield net.step(*net.batch())
            if net.compiled and k == 3:
                net.layer["b"]._array[3] += 1e-9

    with pytest.raises(AssertionError, match="b"):
        tell(story, make=MAKERS["Adam"])

    def forgetful(net):
        for _ in range(5):
            yield net.step(*net.batch())
            if net.compiled:
                net.layer["b"].assign(net.layer["b"].numpy())

    with pytest.raises(AssertionError):
        tell(forgetful, make=MAKERS["Adam"])


# ------------------------------------------------------------------ threads, and many functions


def test_calls_of_several_threads_give_each_its_own_result():
    w = Variable(np.linspace(-1.0, 1.0, 40).reshape(8, 5), requires_grad=True)

    def fn(x):
        return ops.sum(ops.tanh(x @ w) ** 2, axis=1), x * 2.0

    compiled = od.compile(fn)
    found = {}

    def work(seed):
        rng = np.random.default_rng(seed)
        for k in range(30):
            x = rng.normal(size=(4, 8))
            found[seed, k] = (x, *map(plain, compiled(x)))

    run_in_threads(*[partial(work, seed) for seed in range(4)])
    assert len(found) == 120
    for x, sums, doubled in found.values():
        np.testing.assert_allclose(sums, (np.tanh(x @ w.numpy()) ** 2).sum(1), rtol=1e-13)
        np.testing.assert_array_equal(doubled, x * 2.0)


def test_steps_of_several_threads_on_one_state_are_all_done():
    total = Variable(np.zeros(50), name="total")
    add = od.compile(lambda x: total.assign(total + x))
    one = np.ones(50)
    add(one)
    add(one)
    lock = threading.Lock()

    def work():
        for _ in range(25):
            with lock:
                add(one)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(total.numpy(), np.full(50, 102.0))


def test_two_compiled_functions_share_their_states():
    w = Variable(np.ones(7), requires_grad=True)
    grow = od.compile(lambda x: w.assign(w.detach() + x))
    shrink = od.compile(lambda: w.assign(w.detach() * 0.5))
    read = od.compile(lambda: w * 1.0)
    expected = np.ones(7)
    for k in range(6):
        grow(np.full(7, float(k)))
        expected = expected + k
        np.testing.assert_array_equal(plain(read()), expected)
        shrink()
        expected = expected * 0.5
        np.testing.assert_array_equal(plain(read()), expected)
        np.testing.assert_array_equal(w.numpy(), expected)

"""Reads of a trace: what code only holds neither hinders a program nor has guards."""

import heapq
import io
import threading
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappush

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler.guards.guards import discover_guards, named_objects
from odyssey.errors import CompileWarning
from odyssey.graph.trace import Trace

X = np.arange(3.0)


# ------------------------------------------------------------------ trainers


class Trainer:
    """Compiles its step, and holds what others of its methods read."""

    def __init__(self):
        self.w = Variable(np.ones(3), requires_grad=True)
        self.optimizer = od.optim.SGD([self.w], 0.01)
        self.step = od.compile(self._step)

    def _step(self, x):
        with GradientTape() as tape:
            loss = ((self.w * x) ** 2).sum()
        tape.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    def __call__(self):
        return self.step(X)


class OfIterator(Trainer):
    def __init__(self):
        super().__init__()
        self.batches = iter([X + k for k in range(100)])

    def __call__(self):
        return self.step(next(self.batches))


class OfGenerator(Trainer):
    def __init__(self):
        super().__init__()
        self.loader = self._load()

    def _load(self):
        rng = np.random.default_rng(0)
        while True:
            yield rng.normal(size=3)

    def __iter__(self):
        return map(self.step, self.loader)

    def __call__(self):
        return next(iter(self))


class WithLock(Trainer):
    def __init__(self):
        super().__init__()
        self.lock, self.count = threading.Lock(), 0

    def __call__(self):
        with self.lock:
            self.count += 1
        return self.step(X)


class InsideLock(WithLock):
    def __call__(self):
        with self.lock:
            return self.step(X)


class World:
    def __init__(self):
        self.rng, self.state, self.gain = np.random.default_rng(0), np.zeros(3), 0.5

    def __iter__(self):
        self.state = 0.9 * self.state + self.rng.normal(size=3)
        return iter([self.state])


class OfWorld(Trainer):
    """Holds a simulated world with a generator, and both have a state."""

    def __init__(self):
        super().__init__()
        self.world, self.state = World(), np.full(3, 2.0)

    def _step(self, x):
        return super()._step(x * self.state * self.world.gain)

    def __call__(self):
        (x,) = self.world
        return self.step(x)


class Timed(Trainer):
    def __init__(self):
        super().__init__()
        self.log, self.begun = io.StringIO(), time.time()

    def __enter__(self):
        self.begun = time.time()

    def __exit__(self, *details):
        print(time.time() - self.begun, file=self.log)

    def __call__(self):
        with self:
            return self.step(X)


class Bar:
    """A progress bar, which is an iterator."""

    def __init__(self, things):
        self.things, self.count, self.width = iter(things), 0, 2.0

    def __iter__(self):
        return self

    def __next__(self):
        self.count += 1
        return next(self.things)


class WithBar(Trainer):
    def __init__(self):
        super().__init__()
        self.bar = Bar([X] * 100)

    def _step(self, x):
        return super()._step(x * self.bar.width)

    def __call__(self):
        return self.step(next(self.bar))


class Decorated(OfIterator):
    """Compiles the method in the class."""

    def __init__(self):
        super().__init__()
        del self.step

    step = od.compile(Trainer._step)


@dataclass
class Record:
    """A dataclass, all of whose fields count once it is used as such."""

    batches: object = field(default_factory=lambda: iter([X] * 100))
    scale: float = 2.0

    def _step(self, x):
        return x * self.scale

    def __post_init__(self):
        self.step = od.compile(self._step)

    def __call__(self):
        return self.step(next(self.batches))


KINDS = (
    *(OfIterator, OfGenerator, WithLock, InsideLock, OfWorld, Timed, WithBar, Decorated, Record),
)


@pytest.mark.parametrize("kind", KINDS)
def test_what_another_method_reads_does_not_hinder_a_step(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error", CompileWarning)
        trainer = kind()
        losses = [float(trainer().sum()) for _ in range(10)]
    eager = kind()
    eager.step = eager._step
    np.testing.assert_allclose(losses, [float(eager().sum()) for _ in range(10)], rtol=1e-12)
    assert trainer.step.statistics()[:2] == (1, 9)


# ------------------------------------------------------------------ special methods that are called


class Thing:
    """Reads ``rate`` in all its special methods."""

    def __init__(self):
        self.rate, self.inner, self.items = 1.0, None, [self]

    def _read(self, *others):
        return self.rate

    __call__ = __getitem__ = __add__ = __radd__ = __neg__ = __matmul__ = _read
    __eq__ = __lt__ = __abs__ = __float__ = __and__ = _read
    __hash__ = None

    def __enter__(self):
        return self.rate

    def __exit__(self, *details):
        pass

    def __iter__(self):
        yield self.rate
        yield self.rate

    def __len__(self):
        return int(self.rate)

    def __bool__(self):
        return self.rate > 0

    def __contains__(self, x):
        return self.rate > 0

    def __index__(self):
        return int(self.rate)

    @property
    def me(self):
        return self

    @cached_property
    def once(self):
        return self

    def itself(self):
        return self

    @staticmethod
    def first(x):
        return x[0]

    def swapped(self):
        self = [self][0]
        return self[0]

    def held(self, other):
        other.kept = self
        return other.kept[0]

    def nested(self):
        return (lambda: self[0])()

    def listed(self):
        return [self[k] for k in range(2)]

    def plain(self):
        return self.inner


class Child(Thing):
    def __getitem__(self, k):
        return super().__getitem__(k)

    def forward(self):
        return super().swapped()


def _with(x):
    with thing as rate:
        return x * rate


def _unpacked(x):
    a, b = thing
    return x * (a + b)


def _starred(x):
    return x * len([*thing, 1])


def _loop(x):
    for rate in thing:
        x = x * rate
    return x


def _walrus(x):
    return (y := thing)[0] * x + 0 * y.rate


def _match(x):
    match thing:
        case [a, b]:
            return x * (a + b)
    return x


def _augmented(x):
    y = thing
    y += 1
    return x * y


class Holder:
    pass


thing, child = Thing(), Child()
holder = Holder()
holder.thing = thing
holder.inner = Holder()
holder.inner.thing = thing

USES = {
    "called": lambda x: x * thing(),
    "called in place": lambda x: x * holder.thing(),
    "called two steps away": lambda x: x * holder.inner.thing(),
    "indexed": lambda x: x * thing[0],
    "an item's item": lambda x: x * thing.items[0][0],
    "with": _with,
    "unpacked": _unpacked,
    "starred": _starred,
    "loop": _loop,
    "comprehension": lambda x: x * sum([2 * one for one in thing]),
    "sum": lambda x: x * sum(thing),
    "sorted": lambda x: x * sorted(thing)[0],
    "map": lambda x: x * next(map(thing, [1])),
    "length": lambda x: x * len(thing),
    "truth": lambda x: x if thing else -x,
    "not": lambda x: -x if not thing else x,
    "contains": lambda x: x if 1 in thing else -x,
    "sum of two": lambda x: x * (thing + 1),
    "sum from the right": lambda x: x * (1 + thing),
    "negative": lambda x: x * -thing,
    "matmul": lambda x: x * (thing @ 1),
    "equal": lambda x: x * (thing == 1),
    "less": lambda x: x * (thing < 1),
    "abs": lambda x: x * abs(thing),
    "float": lambda x: x * float(thing),
    "index": lambda x: x[[0, 1, 2][thing]],
    "range": lambda x: x * len(range(thing)),
    "walrus": _walrus,
    "augmented": _augmented,
    "chosen": lambda x: x * (thing if True else x)[0],
    "or": lambda x: x * (None or thing)[0],
    "by its attribute": lambda x: x * holder.thing[0],
    "two steps away": lambda x: x * holder.inner.thing[0],
    "local": lambda x: x * (lambda one: one[0])(thing),
    "keyword": lambda x: x * (lambda *, one: one[0])(one=thing),
    "default": lambda x, one=thing: x * one[0],
    "in a list": lambda x: x * [thing][0][0],
    "in a dict": lambda x: x * {"a": holder.thing}["a"][0],
    "getattr": lambda x: x * getattr(holder, "thing")[0],  # noqa: B009
    "property": lambda x: x * thing.me[0],
    "method that returns it": lambda x: x * thing.itself()[0],
    "method by a holder": lambda x: x * holder.thing.itself()[0],
    "static method": lambda x: x * Thing.first(thing),
    "rebound self": lambda x: x * thing.swapped(),
    "kept by another": lambda x: x * thing.held(Holder()),
    "closure": lambda x: x * thing.nested(),
    "comprehension of self": lambda x: x * thing.listed()[0],
    "super": lambda x: x * child[0],
    "super of a method": lambda x: x * child.forward(),
    "named": lambda x: x * thing.__getitem__(0),
    "bound method": lambda x: x * thing.plain.__self__[0],
    "bound method of the class": lambda x: x * Thing.swapped(thing),
    "locals": lambda x: x * (lambda one: locals()["one"][0])(thing),
    "tuple": lambda x: x * max((thing, 1)[:1])[0],
    "zip": lambda x: x * next(zip(thing))[0],
    "match": _match,
}


@pytest.mark.parametrize("name", USES)
def test_an_object_that_code_uses_as_such_has_guards_for_its_special_methods(name):
    guards = discover_guards(USES[name])
    if guards.reason is not None:
        return  # no program is made
    assert guards.holds()
    for one in (thing, child):
        one.rate = 2.0
    try:
        assert not guards.holds()
    finally:
        thing.rate = child.rate = 1.0
    assert guards.holds()


READS = {
    "attribute": lambda x: x if thing.inner is None else -x,
    "method": lambda x: x if thing.plain() is None else -x,
    "by a holder": lambda x: x if holder.inner.thing.plain() is None else -x,
    "class method of it": thing.plain,
}


@pytest.mark.parametrize("name", READS)
def test_an_object_of_which_only_attributes_are_read_has_no_other_guards(name):
    guards = discover_guards(READS[name])
    assert guards.reason is None
    thing.rate = 2.0
    try:
        assert guards.holds()
        thing.inner = 3
        assert not guards.holds()
    finally:
        thing.rate, thing.inner = 1.0, None


def test_a_name_of_one_object_is_not_one_of_another():
    class One:
        state = 1.0

    a, b = One(), Holder()
    a.state = b.state = b.other = 1.0
    guards = discover_guards(lambda x: x * a.state * b.other)
    b.state = 2.0
    assert guards.holds()
    a.state = 2.0
    assert not guards.holds()


# ------------------------------------------------------------------ what does hinder a program


def line_of(method, text):
    import inspect

    lines, first = inspect.getsourcelines(method)
    return f"{__file__}:{first + next(k for k, line in enumerate(lines) if text in line)}"


class Draws:
    """Steps that read what no program can read."""

    def __init__(self):
        self.batches = iter([X + k for k in range(100)])
        self.rng = np.random.default_rng(0)
        self.lock, self.log = threading.Lock(), io.StringIO()
        self.bar = Bar([X + k for k in range(100)])
        self.count, self.scale = 0, 1.0

    def decoy(self):
        return self.batches, self.rng, self.lock, self.log, self.bar, self.count

    def of_iterator(self, x):
        return x * next(self.batches)

    def of_method(self, x):
        return x * self._next()

    def _next(self):
        return next(self.batches)

    def of_loop(self, x):
        for batch in self.batches:
            return x * batch

    def of_bar(self, x):
        return x * next(self.bar)

    def of_lock(self, x):
        with self.lock:
            return x * 2.0

    def of_state(self, x):
        return x * len(self.rng.bit_generator.state)

    def of_file(self, x):
        self.log.write("x")
        return x * 2.0

    def of_count(self, x):
        self.count += 1
        return x * self.count

    def of_clock(self, x):
        self.begun = time.time()
        return x * 2.0


REFUSED = {
    "of_iterator": ("self.batches, an iterator", "of_iterator", "self.batches"),
    "of_method": ("self.batches, an iterator", "_next", "self.batches"),
    "of_loop": ("self.batches, an iterator", "of_loop", "self.batches"),
    "of_bar": ("self.bar, an iterator", "of_bar", "self.bar"),
    "of_lock": ("lock", "of_lock", "self.lock"),
    "of_state": ("state of self.rng", "of_state", "self.rng"),
    "of_file": ("self.log", "of_file", "self.log"),
    "of_count": ("count, an attribute of a Draws", "of_count", "self.count"),
    "of_clock": ("time", "of_clock", "time.time"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_step_does_read_is_named_with_its_line_and_read_once_a_call(name):
    cause, method, text = REFUSED[name]
    draws, eager = Draws(), Draws()
    step = od.compile(getattr(draws, name))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = [step(X) for _ in range(4)]
    expected = [getattr(eager, name)(X) for _ in range(4)]
    np.testing.assert_array_equal(results, expected)
    assert step.statistics().programs == 0
    assert draws.count == eager.count
    (warning,) = [w for w in caught if issubclass(w.category, CompileWarning)]
    assert cause in str(warning.message)
    assert line_of(getattr(Draws, method), text) in str(warning.message)


# ------------------------------------------------------------------ what threads share


class Store:
    def __init__(self):
        self.items, self.table, self.array = [1.0], {"a": 1.0}, np.ones(3)

    def update(self, x):
        return x * 2.0

    def add(self, x):
        return self.update(x) + self.items[0]


store, kept, heap = Store(), [1.0], [1.0]
counts = defaultdict(int, {"a": 1})


def _appended(x):
    items = store.items
    items.append(2.0)
    return x


def _in_place(x):
    array = store.array
    array += 1.0
    return x


def _argument(x, items=kept):
    items += [1]
    return x


def _sometimes_local(x):
    items = []
    if len(kept) > 1:
        items = kept
    items.append(1.0)
    return x


def _of_a_loop(x):
    for items in (store.items, kept):
        items.append(1.0)
    return x


def _stored(x):
    store.table["b"] = x
    return x


def _stored_by_alias(x):
    table = store.table
    table["b"] = x
    return x


def _deleted(x):
    del store.table["a"]
    return x


def _real(x):
    store.array.real = 2.0
    return x


def _shape(x):
    store.array.shape = (3, 1)
    return x


def _new_list(x):
    terms = []
    for k in range(3):
        terms.append(x * k)
    terms[0] = x
    return sum(terms[1:], terms[0])


def _new_dict(x):
    named = {"x": x}
    total = 0.0
    named["y"] = x * 2.0
    for y in named.values():
        total += y
    return total


WRITES = {
    "append": lambda x: store.items.append(1.0) or x,
    "alias": _appended,
    "in place": _in_place,
    "argument": _argument,
    "sometimes local": _sometimes_local,
    "loop": _of_a_loop,
    "item": _stored,
    "item of an alias": _stored_by_alias,
    "deleted": _deleted,
    "global": lambda x: kept.pop() and x,
    "method of the class": lambda x: list.append(store.items, 1.0) or x,
    "bound": lambda x: (lambda f: f(1.0))(store.items.append) or x,
    "map": lambda x: list(map(store.items.append, [1.0])) and x,
    "heap": lambda x: heapq.heappush(heap, 1.0) or x,
    "heap by its name": lambda x: heappush(heap, 1.0) or x,
    "copyto": lambda x: np.copyto(store.array, 1.0) or x,
    "out": lambda x: np.clip(store.array, 0, 1, out=store.array) * x,
    "ufunc": lambda x: np.add(store.array, 1.0, store.array) * x,
    "ufunc at": lambda x: np.add.at(store.array, 0, 1.0) or x,
    "fill": lambda x: store.array.fill(1.0) or x,
    "getattr": lambda x: getattr(store.items, "append")(1.0) or x,  # noqa: B009
    "dynamic": lambda x: getattr(store.items, "app" + "end")(1.0) or x,
    "real": _real,
    "shape": _shape,
    "default": lambda x: x * counts["a"],
    "item of an item": lambda x: [store.items][0].append(1.0) or x,
}
WRITES_NOT = {
    "read": lambda x: x * store.items[0] * store.array,
    "methods": lambda x: store.update(x) + store.add(x),
    "new list": _new_list,
    "new dict": _new_dict,
    "comprehension": lambda x: sum([x * k for k in range(3)]),
    "ops": lambda x: ops.sort(x) + ops.insert(x, 0, 1.0)[:3],
    "keyword": lambda x: ops.sum(x, axis=0),
}


@pytest.mark.parametrize("name", WRITES)
def test_code_that_may_write_to_elements_is_known(name):
    found = named_objects(WRITES[name])
    assert found is None or found.writes_elements


@pytest.mark.parametrize("name", WRITES_NOT)
def test_code_that_writes_to_no_elements_but_new_ones_is_known(name):
    found = named_objects(WRITES_NOT[name])
    assert found is not None
    assert not found.writes_elements


def test_a_trial_that_writes_holds_the_lock_of_what_it_reaches():
    class Shared:
        def __init__(self):
            self.lock, self.held = threading.Lock(), []

        def step(self, x):
            self.held.append(one.lock.locked() if (one := seen[0]) else None)
            return x

    seen = [None]
    shared = Shared()
    od.compile(shared.step)(X)
    assert shared.held == [None]
    assert not shared.lock.locked()


def test_a_lock_that_another_holds_keeps_a_step_that_writes_from_a_trial():
    class Shared:
        def __init__(self):
            self.lock, self.runs = threading.Lock(), []

        def step(self, x):
            runs = self.runs
            runs.append(1)
            return ops.sum(x)

    shared = Shared()
    step = od.compile(shared.step)
    with shared.lock, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            step(X)
    (warning,) = caught
    assert "to which other threads may write: its lock is held" in str(warning.message)
    assert shared.runs == [1] * 3
    od.compile(shared.step)(X)  # a trial, whose write is undone, and the run
    assert shared.runs == [1] * 4
    assert not shared.lock.locked()


def test_a_lock_is_free_again_after_a_trial_that_fails():
    class Shared:
        def __init__(self):
            self.lock = threading.Lock()

        def step(self, x):
            [].append(1)
            raise RuntimeError("no")

    shared = Shared()
    with pytest.raises(RuntimeError):
        od.compile(shared.step)(X)
    assert not shared.lock.locked()


def test_what_another_thread_writes_during_a_trial_stays(monkeypatch):
    class Shared:
        def __init__(self):
            self.lock, self.count, self.scale = threading.Lock(), 0, 2.0

        def step(self, x):
            return x * self.scale

    def slow(self, *args):
        shared.count, shared.scale = shared.count + 1, 3.0  # as another thread might
        return run(self, *args)

    shared, run = Shared(), Trace.run
    monkeypatch.setattr(Trace, "run", slow)
    step = od.compile(shared.step)
    assert step(X).tolist() == [0.0, 3.0, 6.0]
    assert (shared.count, shared.scale) == (1, 3.0)


class Cached:
    """Has a lock, and writes to itself in ways that name no assignment."""

    def __init__(self):
        self.lock, self.scale, self.mark, self.gain = threading.Lock(), 2.0, 0, None

    @cached_property
    def doubled(self):
        return 2.0 * self.scale

    def by_cache(self, x):
        return x * self.doubled

    def by_traced_cache(self, x):
        setattr(self, "gain", x)  # noqa: B010
        return x * self.kept

    @cached_property
    def kept(self):
        return self.gain.sum()

    def by_setattr(self, x):
        setattr(self, "mark", x)  # noqa: B010
        return x * self.scale

    def by_item(self, x):
        vars(self)["mark"] = x
        return x * self.scale


@pytest.mark.parametrize("name", ["by_cache", "by_traced_cache", "by_setattr", "by_item"])
@pytest.mark.parametrize("held", [False, True])
def test_no_traced_value_stays_on_an_object_that_threads_share(name, held):
    shared, eager = Cached(), Cached()
    step = od.compile(getattr(shared, name), warn=False)
    if held:
        shared.lock.acquire()
    for k in range(4):
        expected = getattr(eager, name)(X + k)
        np.testing.assert_array_equal(step(X + k), expected)
        for word, value in vars(eager).items():
            if word != "lock":
                np.testing.assert_array_equal(vars(shared)[word], value)

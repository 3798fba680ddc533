"""Reachability: the side effects and draws of all that a function reaches happen once a call."""

import array
import functools
import queue
import threading
import types
from collections import ChainMap, Counter, OrderedDict, UserDict, defaultdict, deque
from dataclasses import dataclass

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import TapeError
from odyssey.transforms.reachability import reachable

X = np.array([3.0, 4.0])


class Slotted:
    __slots__ = ("__hidden", "n", "rng", "unset")

    def __init__(self):
        self.n = 0
        self.rng = np.random.default_rng(0)
        self.__hidden = 0

    def more(self):
        self.__hidden += 1
        return self.__hidden


@dataclass(slots=True)
class Record:
    n: int = 0


class Counted:
    def __init__(self):
        self._n = 0

    @property
    def n(self):
        return self._n

    @n.setter
    def n(self, value):
        self._n = value


def subclass(kind, *args):
    return type("Own", (kind,), {})(*args)


def function_with_attribute():
    def fn():
        return 0

    fn.n = 0
    return fn


def module():
    made = types.ModuleType("module_of_a_user")
    made.n, made.rng = 0, np.random.default_rng(0)
    return made


def add(thing):
    thing.n += 1
    return thing.n


def appended(thing):
    thing.append(1)
    return len(thing)


def item(thing):
    thing[0] += 1
    return thing[0]


def replaced(members):
    members.remove(min(members))
    members.add(max(members) + 1)
    return sorted(members)


def put_last(items):
    first = next(iter(items))
    items[first] = items.pop(first)
    return list(items)


def set_in(thing):
    thing[len(thing)] = 1
    return len(thing)


# What a function may hold, and something that changes it each time.
HELD = {
    "slots": (Slotted, add),
    "slot that was empty": (Slotted, lambda s: setattr(s, "unset", getattr(s, "unset", 0) + 1)
                            or s.unset),
    "private slot": (Slotted, Slotted.more),
    "dataclass of slots": (Record, add),
    "property": (Counted, add),
    "attribute of a class": (lambda: type("Own", (), {"n": 0}), add),
    "new attribute of a class": (lambda: type("Own", (), {}),
                                 lambda c: setattr(c, "m", getattr(c, "m", 0) + 1) or c.m),
    "attribute of a function": (function_with_attribute, add),
    "attribute of a module": (module, add),
    "list": (lambda: subclass(list), appended),
    "deque": (lambda: subclass(deque, [1]), appended),
    "dict": (lambda: subclass(dict), set_in),
    "set": (lambda: subclass(set, [1, 2]), replaced),
    "as many members": (lambda: {1, 2}, replaced),
    "order": (lambda: {"a": 1, "b": 2}, put_last),
    "order of OrderedDict": (lambda: OrderedDict(a=1, b=2),
                             lambda d: d.move_to_end("a" if next(iter(d)) == "a" else "b")
                             or list(d)),
    "Counter": (Counter, lambda c: c.update("a") or c["a"]),
    "defaultdict": (lambda: defaultdict(int), lambda d: d["new"] + set_in(d)),
    "ChainMap": (lambda: ChainMap({}), set_in),
    "UserDict": (UserDict, set_in),
    "in a mapping proxy": (lambda: types.MappingProxyType({"l": []}), lambda m: appended(m["l"])),
    "bytearray": (lambda: bytearray(b"ab"), appended),
    "array.array": (lambda: array.array("d", [0.0]), appended),
    "memoryview": (lambda: memoryview(bytearray(2)), item),
    "small array": (lambda: np.zeros(3), item),
    "large array": (lambda: np.zeros(20_000), item),
    "view of a large array": (lambda: np.zeros(40_000)[::2], item),
    "cache": (lambda: functools.lru_cache(lambda n: n),
              lambda c: c(1) and sum(c.cache_info()[:2])),
    "queue": (queue.Queue, lambda q: q.put(1) or q.qsize()),
    "simple queue": (queue.SimpleQueue, lambda q: q.put(1) or q.qsize()),
    "what a thread has": (threading.local,
                          lambda t: setattr(t, "n", getattr(t, "n", 0) + 1) or t.n),
    "default": (lambda: lambda held=[]: appended(held), lambda fn: fn()),
    "partial": (lambda: functools.partial(appended, []), lambda fn: fn()),
}  # fmt: skip


class Holder:
    def __init__(self, thing, act, seen):
        self.thing, self.act, self.seen = thing, act, seen

    def __call__(self, x):
        return self.step(x)

    def step(self, x):
        self.seen.append(self.act(self.thing))
        return x * 2.0


def closure(thing, act, seen):
    def fn(x):
        seen.append(act(thing))
        return x * 2.0

    return fn


@pytest.mark.parametrize("way", [closure, Holder], ids=["closure", "object"])
@pytest.mark.parametrize("name", HELD)
def test_effects_of_a_compiled_function_happen_once_a_call(name, way):
    make, act = HELD[name]
    eager, seen = [], []
    plain, compiled = way(make(), act, eager), od.compile(way(make(), act, seen))
    for shape in [(2,), (2,), (3,)]:
        plain(np.ones(shape))
        compiled(np.ones(shape))
    assert seen == eager


def test_a_large_array_can_be_written_to_again_and_in_the_run():
    data, other = np.zeros(20_000), np.zeros(20_000)

    @od.compile
    def step(x):
        other[0] += data[0]
        return x * other[0]

    data[0] = 1.0
    step(X)
    assert data.flags.writeable
    assert other.flags.writeable
    assert other[0] == 1.0
    with pytest.raises(TapeError, match="traced"):
        od.compile(lambda x: x * data[0] if x.sum() > 0 else x)(X)
    assert data.flags.writeable


def test_a_function_that_reaches_more_than_can_be_looked_through_is_only_run():
    crowd, count = [[k] for k in range(11_000)], [0]

    @od.compile
    def step(x):
        count[0] += len(crowd) > 0
        return x

    step(X)
    assert count == [1]


global_rng = np.random.default_rng(0)


def noise():
    return global_rng.normal(size=2)


class Noisy:
    def draw(self):
        return noise()

    def __call__(self, x):
        return x * self.draw()


class OfClass:
    rng = np.random.default_rng(0)

    def __call__(self, x):
        return x * self.rng.normal(size=2)


class ByProperty:
    @property
    def source(self):
        return global_rng

    def __call__(self, x):
        return x * self.source.normal(size=2)


class Inherits(Noisy):
    pass


def in_slot():
    held = Slotted()
    return lambda x: x * held.rng.normal(size=2)


def of_module():
    held = module()
    return lambda x: x * held.rng.normal(size=2)


def wrapped():
    return functools.wraps(noise)(lambda x: x * Noisy().draw())


DRAWS = {
    "method": Noisy,
    "inherited method": Inherits,
    "attribute of a class": OfClass,
    "property": ByProperty,
    "slot": in_slot,
    "module": of_module,
    "wrapped": wrapped,
    "static method": lambda: type("S", (), {"f": staticmethod(lambda x: x * noise())})().f,
}


@pytest.mark.parametrize("name", DRAWS)
def test_random_draws_are_found_by_whatever_way_and_refused_in_graphs(name):
    fn = DRAWS[name]()
    global_rng.bit_generator.state = np.random.default_rng(0).bit_generator.state
    OfClass.rng.bit_generator.state = global_rng.bit_generator.state
    for _ in range(2):
        with pytest.raises(TapeError, match="draws random numbers"):
            od.compile(fn)(X)
    first = np.random.default_rng(0).normal(size=2)
    assert fn(X).tolist() == (X * first).tolist()  # none was drawn


@pytest.mark.parametrize("name", DRAWS)
def test_random_draws_are_found_by_whatever_way_and_made_again_by_checkpoint(name):
    fn = DRAWS[name]()
    global_rng.bit_generator.state = np.random.default_rng(0).bit_generator.state
    OfClass.rng.bit_generator.state = global_rng.bit_generator.state
    slope = od.grad(lambda x: ops.sum(od.checkpoint(fn)(x * x)))(X)
    assert np.allclose(slope, 2 * X * np.random.default_rng(0).normal(size=2), rtol=1e-15)


def test_a_function_that_looks_up_names_by_text_is_only_run():
    draw = od.compile(lambda x: x * globals()["global_rng"].normal(size=2))
    global_rng.bit_generator.state = np.random.default_rng(7).bit_generator.state
    assert draw(X).tolist() == (X * np.random.default_rng(7).normal(size=2)).tolist()


class Polynomial:
    """Its methods bear names of Python's own, by which other functions look things up."""

    def __init__(self):
        self.c = od.Variable([1.0, 2.0, 3.0], requires_grad=True)
        self.losses = []

    def eval(self, x):
        return self.c[0] + x * (self.c[1] + x * self.c[2])

    exec = globals = import_module = environ = eval

    def told(self, x):
        return self.eval(x) * len(vars(self))


@pytest.mark.parametrize("name", ["eval", "exec", "globals", "import_module", "environ"])
def test_a_method_may_be_called_as_python_calls_what_looks_names_up(name):
    made = {"p": Polynomial(), "__name__": "user"}
    fn = od.compile(eval(f"lambda x: p.{name}(x)", made))
    for _ in range(3):
        assert fn(X).numpy().tolist() == [34.0, 57.0]
    assert fn.statistics().native == 2, fn.explain(X)


def test_why_all_is_looked_through_is_told_beside_what_stands_in_the_way():
    p = Polynomial()
    w = od.Variable(1.0, requires_grad=True)
    with od.GradientTape():
        p.losses.append(w * w)
        fn = od.compile(p.told)
    for _ in range(2):
        fn(X)
    why = fn.explain(X)
    assert "losses[0], which is recorded on a tape, so tracing must be able to restore" in why
    assert "it reaches told" in why


INSTALLED = """
import numpy as np

rng = np.random.default_rng(0)

class Net:
    def draw(self):
        return rng.normal(size=2)

    def __call__(self, x):
        return x * self.draw()

def scaled(x, *nets):
    return x * 2.0
"""


def test_packages_that_were_installed_are_looked_through_where_the_function_is_theirs(
    tmp_path, monkeypatch
):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "installed_nets.py").write_text(INSTALLED)
    monkeypatch.syspath_prepend(folder)
    import installed_nets

    with pytest.raises(TapeError, match="draws random numbers"):
        od.compile(installed_nets.Net())(X)
    first = np.random.default_rng(0).normal(size=2)
    assert installed_nets.Net()(X).tolist() == (X * first).tolist()  # none was drawn
    # One that only calls it does not look into all that is there.
    assert len(list(reachable(lambda x: installed_nets.scaled(x)))) < 5


def test_an_object_that_answers_every_name_holds_what_its_slots_hold():
    class Answering:
        __slots__ = ("held",)

        def __getattr__(self, name):
            return object()

    thing = Answering()
    thing.held = [X]
    assert any(one is X for one in reachable(thing))

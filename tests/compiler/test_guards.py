"""Guards hold while nothing changed that a function reads, and fail for each kind of change."""

import functools
import math
import random
import threading
import types
import warnings
from collections import OrderedDict, UserDict, defaultdict, deque
from dataclasses import dataclass
from typing import ClassVar, NamedTuple
from weakref import ref

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable
from odyssey.compiler.guards.guards import discover_guards

X = np.array([3.0, 4.0])


def leaf(value=(1.0, 2.0), name="w"):
    return Variable(np.array(value), requires_grad=True, name=name)


def module(**names):
    made = types.ModuleType("module_of_a_user")
    vars(made).update(names)
    return made


class Net:
    rate = 2.0

    def __init__(self):
        self.w = np.array([1.0, 2.0])
        self.scale = 3.0
        self.training = True
        self.parts = [1.0, 2.0]
        self.unread = 0

    def forward(self, x):
        return x * self.w * self.scale if self.training else x * self.rate

    def __call__(self, x):
        return self.forward(x)

    @property
    def doubled(self):
        return self.scale * 2.0

    @staticmethod
    def shifted(x):
        return x + 1.0

    @classmethod
    def of_class(cls, x):
        return x * cls.rate


class Child(Net):
    def forward(self, x):
        return super().forward(x) + self.parts[0]


class Slotted:
    __slots__ = ("__hidden", "n", "unset")

    def __init__(self):
        self.n = 1.0
        self.__hidden = 2.0

    def product(self, x):
        return x * self.n * self.__hidden + getattr(self, "unset", 0.0)

    def hide(self, value):
        self.__hidden = value


@dataclass
class Settings:
    scale: float = 1.0
    shift: float = 2.0


@dataclass(frozen=True)
class Frozen:
    scale: float


class Pair(NamedTuple):
    a: list
    b: float


class OwnDict(UserDict):
    pass


class Doubled(property):
    factor = 2.0

    def __get__(self, thing, kind=None):
        return self.fget(thing) * self.factor


class Scaled(random.Random):
    scale = 2.0

    def scaled(self):
        return self.scale


class Kind(type):
    def scaled(cls, x):
        return x * cls.scale


class Swapping:
    def __init__(self):
        self.part, self.other = Settings(2.0), Net()

    def swapped(self):
        kept, self.part = self.part, self.other
        found = self.part.scale
        self.part = kept
        return found


class Whole(list):
    pass


global_scale = 2.0


def of_global(x):
    return x * global_scale


def other_code(x):
    return x * 7.0


def with_default(x, scale=2.0, *, shift=1.0):
    return x * scale + shift


def set_global(value):
    global global_scale
    global_scale = value


def in_cell(value):
    """A function of a cell, and what rebinds it."""

    def fn(x):
        return x * value

    def rebind(new):
        nonlocal value
        value = new

    return fn, rebind


def of(thing, act):
    """A function that does ``act(thing, x)``; its code names both."""

    def fn(x):
        return act(thing, x)

    return fn


def reshape_in_place(array, shape):
    with warnings.catch_warnings(action="ignore"):  # a newer NumPy warns of it
        array.shape = shape


def matched(net):
    match net:
        case Net(scale=scale):
            return scale


def copied(function):
    return types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__
    )


# By kind of thing: makes it, computes with it, changes it.
CHANGES = {
    "attribute": (Net, lambda n, x: n.forward(x), lambda n: setattr(n, "scale", 4.0)),
    "attribute that is a flag": (Net, lambda n, x: n(x), lambda n: setattr(n, "training", False)),
    "attribute that hides a method": (
        Net,
        lambda n, x: n.forward(x),
        lambda n: setattr(n, "forward", other_code),
    ),
    "attribute of the class that another hides": (
        Net,
        lambda n, x: x * n.rate,
        lambda n: setattr(n, "rate", 5.0),
    ),
    "class": (Net, lambda n, x: n.forward(x), lambda n: setattr(n, "__class__", Child)),
    "dictionary of an object": (
        Net,
        lambda n, x: n.forward(x),
        lambda n: setattr(n, "__dict__", vars(n) | {"scale": 9.0}),
    ),
    "elements of an attribute": (Net, lambda n, x: n.forward(x), lambda n: n.w.fill(5.0)),
    "list of an attribute": (
        Child,
        lambda n, x: n.forward(x),
        lambda n: n.parts.__setitem__(0, 5.0),
    ),
    "property": (Net, lambda n, x: x * n.doubled, lambda n: setattr(n, "scale", 7.0)),
    "slot": (Slotted, lambda s, x: s.product(x), lambda s: setattr(s, "n", 5.0)),
    "private slot": (Slotted, lambda s, x: s.product(x), lambda s: s.hide(5.0)),
    "empty slot": (Slotted, lambda s, x: s.product(x), lambda s: setattr(s, "unset", 5.0)),
    "dataclass": (Settings, lambda s, x: x * s.scale, lambda s: setattr(s, "scale", 5.0)),
    "named tuple": (
        lambda: Pair([2.0], 1.0),
        lambda p, x: x * p.a[0],
        lambda p: p.a.__setitem__(0, 5.0),
    ),
    "list": (lambda: [2.0], lambda v, x: x * v[0], lambda v: v.__setitem__(0, 3.0)),
    "list that grows": (lambda: [2.0], lambda v, x: x * len(v), lambda v: v.append(3.0)),
    "long list": (lambda: [2.0] * 99, lambda v, x: x * sum(v), lambda v: v.__setitem__(7, 3.0)),
    "list of a user's": (lambda: Whole([2.0]), lambda v, x: x * v[0], lambda v: v.append(1)),
    "nested list": (lambda: [[2.0]], lambda v, x: x * v[0][0], lambda v: v[0].append(3.0)),
    "list in a tuple": (lambda: ([2.0],), lambda v, x: x * v[0][0], lambda v: v[0].clear()),
    "dict": (lambda: {"a": 2.0}, lambda v, x: x * v["a"], lambda v: v.update(a=3.0)),
    "dict that grows": (lambda: {"a": 2.0}, lambda v, x: x * len(v), lambda v: v.update(b=3.0)),
    "dict of numbers": (lambda: {1: 2.0}, lambda v, x: x * v[1], lambda v: v.update({1: 3.0})),
    "key of a dict": (
        lambda: {1: 2.0},
        lambda v, x: x * len(str(next(iter(v)))),
        lambda v: v.update({1.0: v.pop(1)}),
    ),
    "order of a dict": (
        lambda: {"a": 2.0, "b": 3.0},
        lambda v, x: x * next(iter(v.values())),
        lambda v: v.update(a=v.pop("a")),
    ),
    "order of an OrderedDict": (
        lambda: OrderedDict(a=2.0, b=3.0),
        lambda v, x: x * next(iter(v.values())),
        lambda v: v.move_to_end("a"),
    ),
    "defaultdict": (
        lambda: defaultdict(float, a=2.0),
        lambda v, x: x * v["a"],
        lambda v: v.update(a=3.0),
    ),
    "set": (lambda: {2.0}, lambda v, x: x * sum(v), lambda v: v.add(3.0)),
    "equal member": (
        lambda: {2},
        lambda v, x: x * len(str(max(v))),
        lambda v: (v.clear(), v.add(2.0)),
    ),
    "deque": (lambda: deque([2.0]), lambda v, x: x * v[0], lambda v: v.appendleft(3.0)),
    "bytearray": (lambda: bytearray(b"a"), lambda v, x: x * v[0], lambda v: v.__setitem__(0, 1)),
    "mapping proxy": (
        lambda: (inner := {"a": 2.0}) and (types.MappingProxyType(inner), inner),
        lambda v, x: x * v[0]["a"],
        lambda v: v[1].update(a=3.0),
    ),
    "elements": (lambda: np.ones(2), lambda v, x: x * v, lambda v: v.__setitem__(0, 3.0)),
    "sign of a zero": (
        lambda: np.zeros(2),
        lambda v, x: np.copysign(x, v),
        lambda v: v.__setitem__(0, -0.0),
    ),
    "NaN": (
        lambda: np.array([math.nan]),
        lambda v, x: np.copysign(x, v),
        lambda v: np.negative(v, out=v),
    ),
    "elements of many": (lambda: np.ones(20_000), lambda v, x: x * v[7], lambda v: v.fill(2.0)),
    "last of many": (
        lambda: np.ones(20_000),
        lambda v, x: x * v[-1],
        lambda v: v.__setitem__(-1, 2.0),
    ),
    "base of a view": (
        lambda: (lambda b: (b[::2], b))(np.ones(9)),
        lambda v, x: x * v[0][0],
        lambda v: v[1].fill(2.0),
    ),
    "shape": (
        lambda: np.ones((2, 1)),
        lambda v, x: x * v,
        lambda v: reshape_in_place(v, (1, 2)),
    ),
    "module": (lambda: module(n=2.0), lambda m, x: x * m.n, lambda m: setattr(m, "n", 3.0)),
    "function of a module": (
        lambda: module(f=other_code),
        lambda m, x: m.f(x),
        lambda m: setattr(m, "f", of_global),
    ),
    "partial": (
        lambda: functools.partial(with_default, scale=3.0),
        lambda p, x: p(x),
        lambda p: p.keywords.update(scale=4.0),
    ),
    "code": (
        lambda: copied(with_default),
        lambda f, x: f(x, 1.0, shift=0.0),
        lambda f: setattr(f, "__code__", (lambda x, scale, *, shift: x).__code__),
    ),
    "defaults": (
        lambda: copied(with_default),
        lambda f, x: f(x, shift=0.0),
        lambda f: setattr(f, "__defaults__", (5.0,)),
    ),
    "attribute of a function": (
        lambda: (lambda f: (setattr(f, "n", 2.0), f)[1])(copied(other_code)),
        lambda f, x: f(x) * f.n,
        lambda f: setattr(f, "n", 3.0),
    ),
    "broadcast": (
        lambda: (lambda b: (np.broadcast_to(b, (10**6, 10**6, 2)), b))(np.ones(2)),
        lambda v, x: x * v[0][7, 7],
        lambda v: v[1].fill(2.0),
    ),
    "getattr": (Net, lambda n, x: x * n.scale, lambda n: setattr(n, "scale", 2.0)),
    "getattr of a name that is put together": (
        Net,
        lambda n, x: x * getattr(n, "sca" + str(x.dtype.name and "le")),
        lambda n: setattr(n, "scale", 2.0),
    ),
    "format": (
        Net,
        lambda n, x: x * float(f"{n.unread}"),
        lambda n: setattr(n, "unread", 2.0),
    ),
    "match": (Net, lambda n, x: x * matched(n), lambda n: setattr(n, "scale", 2.0)),
    "attribute of a class made from Python's own": (
        lambda: OwnDict(a=1.0),
        lambda d, x: x * d["a"],
        lambda d: setattr(d, "data", {"a": 2.0}),
    ),
    "method of a class of classes": (
        lambda: Kind("Kind_", (), {"scale": 2.0}),
        lambda k, x: x * k.scaled(1.0),
        lambda k: setattr(k, "scale", 3.0),
    ),
    "swapped for a while": (
        Swapping,
        lambda s, x: x * s.swapped(),
        lambda s: setattr(s.other, "scale", 4.0),
    ),
    "frozen dataclass": (
        lambda: Frozen(2.0),
        lambda f, x: x * f.scale,
        lambda f: object.__setattr__(f, "scale", 3.0),
    ),
    "namespace": (
        lambda: types.SimpleNamespace(scale=2.0),
        lambda n, x: x * n.scale,
        lambda n: setattr(n, "scale", 3.0),
    ),
    "attribute of a function that a library made": (
        lambda: (lambda f: (setattr(f, "scale", 2.0), f)[1])(od.grad(lambda x: x)),
        lambda f, x: x * f.scale,
        lambda f: setattr(f, "scale", 3.0),
    ),
    "class made from property": (
        lambda: type("Own", (), {"seen": Doubled(lambda self: 1.0)})(),
        lambda o, x: x * o.seen,
        lambda o: setattr(vars(type(o))["seen"], "factor", 3.0),
    ),
    "class made from a generator": (
        Scaled,
        lambda r, x: x * r.scaled(),
        lambda r: setattr(r, "scale", 3.0),
    ),
    "missing attribute": (
        Net,
        lambda n, x: x * getattr(n, "extra", 2.0),
        lambda n: setattr(n, "extra", 3.0),
    ),
    "missing item": (
        lambda: {"a": 2.0},
        lambda v, x: x * v.get("b", 2.0),
        lambda v: v.update(b=5.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_guards_hold_until_something_changes_that_the_function_reads(name):
    make, act, change = CHANGES[name]
    thing = make()
    guards = discover_guards(of(thing, act))
    assert guards.reason is None
    before = repr(act(thing, X))
    for _ in range(3):
        assert guards.holds()
        assert guards.refresh()
    assert repr(act(thing, X)) == before
    change(thing)
    assert not guards.holds()
    assert guards.describe_change() is not None
    assert not guards.refresh()


class OfClass:
    scale = 2.0
    table: ClassVar = {"a": 1.0}

    def run(self, x):
        return self.part(x) * self.scale + self.table["a"]

    def part(self, x):
        return x


CLASSES = {
    "attribute": lambda c: setattr(c, "scale", 3.0),
    "method": lambda c: setattr(c, "part", lambda self, x: x + 1.0),
    "new method of a child": lambda c: setattr(c, "run", lambda self, x: x),
    "property that hides an attribute of the object": lambda c: setattr(
        c, "own", property(lambda self: 9.0)
    ),
    "method of the base": lambda c: setattr(c.__base__, "part", lambda self, x: x + 1.0),
    "bases": lambda c: setattr(c, "__bases__", (type("Other", (OfClass,), {"part": 1}),)),
    "container": lambda c: c.table.update(a=5.0),
    "special method": lambda c: setattr(c, "__getattribute__", lambda self, n: 1.0),
}


@pytest.mark.parametrize("name", CLASSES)
def test_guards_notice_what_is_done_to_classes(name):
    base = type("Base", (OfClass,), {"table": {"a": 1.0}, "part": OfClass.part})
    thing = type("Derived", (base,), {})()
    thing.own = 1.0
    guards = discover_guards(lambda x: thing.run(x) + thing.own)
    assert guards.reason is None
    assert guards.holds()
    CLASSES[name](type(thing))
    assert not guards.holds()
    assert not guards.refresh()


def test_guards_notice_names_that_are_bound_anew():
    fn, rebind = in_cell(2.0)
    guards = discover_guards(fn)
    rebind(3.0)
    assert guards.describe_change() == "cell value: 2.0 -> 3.0"
    assert not guards.holds()
    guards = discover_guards(of_global)
    try:
        set_global(3.0)
        assert not guards.holds()
    finally:
        set_global(2.0)
    assert guards.refresh()


def test_guards_notice_a_name_of_python_that_a_module_takes():
    space = {"__name__": "of_a_user", "__builtins__": __builtins__}
    exec("def fn(x):\n    return x * len((1, 2))", space)
    guards = discover_guards(space["fn"])
    assert guards.reason is None
    assert guards.holds()
    space["len"] = lambda thing: 5
    assert not guards.holds()


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        (1.5, 3.0 / 2.0, True),
        (0.0, -0.0, False),
        (math.nan, -math.nan, False),
        (math.nan, float("nan"), True),
        (1, True, False),
        (1, 1.0, False),
        (10**20, 10**19 * 10, True),
        ("sum", "".join(["su", "m"]), True),
        (1 + 0.0j, 1 + 1j - 1j, True),
        (complex(1, 0.0), complex(1, -0.0), False),
        ((1.5, "a"), (3.0 / 2.0, "a"), True),
        ((0.0,), (-0.0,), False),
        (np.float32(2.0), np.float32(2.0), True),
        (np.float32(2.0), np.float64(2.0), False),
        ([1.0], [1.0], False),
    ],
)
def test_an_equal_number_or_string_is_taken_for_the_one_before(old, new, same):
    fn, rebind = in_cell(old)
    guards = discover_guards(fn)
    rebind(new)
    assert guards.refresh() is same
    assert guards.holds() is same


def test_what_is_put_back_is_as_it_was():
    fn, rebind = in_cell(1.0)
    guards = discover_guards(fn)
    for _ in range(3):
        rebind(2.0)
        assert not guards.holds()
        assert not guards.refresh()
        rebind(float("1"))
        assert guards.refresh()
        assert guards.holds()


def test_what_no_code_reads_may_change():
    net = Net()
    guards = discover_guards(net.forward)
    net.unread += 1
    net.new = []
    net.parts.append(1)
    Net.unread_of_class = 1
    try:
        assert guards.refresh()
        assert guards.holds()
    finally:
        del Net.unread_of_class


def test_guards_are_asked_by_several_threads_while_a_number_is_bound_anew():
    fn, rebind = in_cell(1.0)
    guards, seen, stop = discover_guards(fn), set(), threading.Event()

    def ask():
        while not stop.is_set():
            seen.add(guards.holds() or guards.refresh())

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(300):
        rebind(float("1.0"))
    stop.set()
    for thread in threads:
        thread.join()
    assert seen == {True}


def test_guards_hold_no_array_that_its_owner_drops_or_resizes():
    space = {"__name__": "of_a_user", "__builtins__": __builtins__, "table": np.ones(3)}
    exec("def fn(x):\n    return x * table", space)
    guards = discover_guards(space["fn"])
    assert guards.holds()
    space["table"].resize(4)  # which NumPy does only where nobody else has it
    assert not guards.holds()
    gone = ref(space["table"])
    del space["table"]
    assert gone() is None
    assert not guards.holds()
    space["table"] = None
    assert not guards.holds()
    assert not guards.refresh()
    assert guards.describe_change() is not None


def test_no_code_of_users_runs_when_guards_are_asked():
    net, called = Net(), []
    guards = discover_guards(lambda x: x * net.scale)
    Net.scale = property(lambda self: called.append(1) or 3.0)
    try:
        for _ in range(2):
            assert not guards.holds()
            assert not guards.refresh()
        assert not called
    finally:
        del Net.scale


def test_a_step_of_what_an_object_has_is_not_a_method_of_the_object():
    class Trainer:
        def __init__(self):
            self.w = Variable(np.ones(2), requires_grad=True)
            self.optimizer = od.optim.SGD([self.w], 0.1)
            self.seen = 0

        def step(self):
            self.seen += 1
            print(self.seen)

        def update(self):
            self.optimizer.step()
            [self.optimizer.zero_grad() for _ in range(2)]

    trainer = Trainer()
    guards = discover_guards(trainer.update)
    assert guards.reason is None
    trainer.seen += 1
    assert guards.holds()
    assert "print" in discover_guards(lambda: [one.step() for one in [trainer]]).reason


def test_a_class_with_rules_of_assignment_is_read_by_names_as_others_are():
    class Module:
        def __init__(self):
            self.scale, self.seen = 2.0, 0

        def __setattr__(self, name, value):
            super().__setattr__(name, value)

        def forward(self, x):
            return x * self.scale * frozen.scale

    one, frozen = Module(), Frozen(1.0)
    guards = discover_guards(one.forward)
    one.seen += 1
    assert guards.holds()
    one.scale = 3.0
    assert not guards.holds()


def test_a_class_whose_child_calls_it_by_super_is_not_made_by_it():
    child = Child()
    guards = discover_guards(child)
    child.unread += 1  # which __init__ names
    assert guards.holds()

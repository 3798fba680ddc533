"""Guards fail after any random change by which a function would give another result."""

import functools
import operator
import random
import types
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odyssey.compiler.guards.guards import discover_guards

NAMES = ("a", "b", "get", "part", "other")


class Plain:
    def __init__(self, **parts):
        vars(self).update(parts)

    def read(self):
        return self.a

    @property
    def seen(self):
        return self.b


class Other(Plain):
    def read(self):
        return self.b

    @property
    def a(self):
        return 11.0


class Missing(Plain):
    def __getattr__(self, name):
        return 13.0


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b

    def read(self):
        return self.a


class Holder:
    """One whose methods are called as those of its parts are."""

    def __init__(self, a, b):
        self.part, self.other = Plain(a=a, b=b), Slotted(b, a)
        self.count = self.made = 0

    def read(self):
        return self.part.read()

    def swap(self):
        kept, self.part = self.part, self.other
        found = self.part.read()
        self.part = kept
        return found

    def each(self):
        return [part.read() for part in (self.part, self.other)]

    def nested(self):
        def inner():
            return self.other.a

        return inner()


@dataclass
class Record:
    a: object
    b: object

    def read(self):
        return self.a


def closing(part):
    def held():
        return part

    return held


def another(part):
    def held():
        return (part, 1.0)[1]

    return held


def with_default(part):
    return types.FunctionType((lambda part=None: part).__code__, globals(), "with_default", (part,))


def module(a, b):
    made = types.ModuleType("module_of_a_user")
    made.a, made.b = a, b
    return made


def own_class(a, b):
    return type("Own", (Plain,), {"a": a, "b": b})


def child_of(a, b):
    """An object whose parts its class has."""
    return own_class(a, b)()


# By kind: makes it of two parts, and the ways to the first and to the second of them.
KINDS = {
    "list": (lambda a, b: [a, b], ("[0]", "[1]", "[-2]")),
    "tuple": (lambda a, b: (a, b), ("[0]", "[1]")),
    "dict": (lambda a, b: {"a": a, "b": b}, ('["a"]', '.get("b")', '.get("c", 5.0)')),
    "object": (lambda a, b: Plain(a=a, b=b), (".a", ".read()", ".seen", ".__dict__['b']")),
    "object that answers": (lambda a, b: Missing(a=a, b=b), (".a", ".other")),
    "slots": (Slotted, (".a", ".b", ".read()")),
    "record": (Record, (".a", ".read()")),
    "module": (module, (".a", ".b")),
    "class": (own_class, (".a", ".b")),
    "object of its own class": (child_of, (".a", ".b", ".read()", ".seen")),
    "holder": (Holder, (".read()", ".swap()", ".each()[0]", ".each()[1]", ".nested()")),
    "function": (lambda a, b: closing(a), ("()",)),
    "default": (lambda a, b: with_default(a), ("()",)),
    "partial": (lambda a, b: functools.partial(operator.getitem, [a, b], 0), ("()",)),
    "method": (lambda a, b: Plain(a=a, b=b).read, ("()", ".__self__.b")),
}


def number(rng):
    return rng.choice([0.0, -0.0, 1, 1.0, True, 2.5, float("nan"), -3, 2**70])


def tree(rng, depth):
    """A random nest, everything in it, and the text that reads one number of it."""
    if not depth:
        if rng.random() < 0.3:
            array = np.array([float(number(rng)) for _ in range(2)])
            return array, [array], "[1].item()"
        return number(rng), [], ""
    make, ways = KINDS[rng.choice(sorted(KINDS))]
    first, parts, way = tree(rng, depth - 1)
    second, others, other = tree(rng, depth - 1)
    thing = make(first, second)
    chosen = rng.choice(ways)
    leads_on = (
        other if any(mark in chosen for mark in ("b", "1", "seen", "swap", "nested")) else way
    )
    inner = [thing.part, thing.other] if isinstance(thing, Holder) else []
    return thing, [*parts, *others, *inner, thing], chosen + leads_on


def change(thing, rng):
    """Something that anybody might do to a thing."""
    new = rng.choice([number(rng), number(rng), [1.0], {"a": 1.0}])
    name = rng.choice(NAMES)
    if isinstance(thing, np.ndarray):
        thing[rng.randrange(2)] = float(number(rng))
    elif isinstance(thing, list):
        rng.choice([
            lambda: thing.__setitem__(0, new), lambda: thing.append(new), thing.reverse, thing.clear
        ])()  # fmt: skip
    elif isinstance(thing, dict):
        rng.choice([
            lambda: thing.update({name: new}), thing.clear, lambda: thing.pop("a"),
            lambda: thing.update(a=thing.pop("a")),
        ])()  # fmt: skip
    elif isinstance(thing, functools.partial):
        thing.__setstate__((operator.getitem, ([new], 0), {}, {}))
    elif isinstance(thing, types.FunctionType):
        rng.choice([
            lambda: setattr(thing, "__code__", another(0).__code__),
            lambda: setattr(thing, "__defaults__", (new,)),
            lambda: setattr(thing.__closure__[0], "cell_contents", new),
        ])()  # fmt: skip
    elif isinstance(thing, (tuple, types.MethodType)):
        change(getattr(thing, "__self__", thing[0] if isinstance(thing, tuple) else None), rng)
    else:
        rng.choice([
            lambda: setattr(thing, name, new),
            lambda: delattr(thing, name),
            lambda: setattr(thing, "read", lambda: new),
            lambda: setattr(thing, "__class__", Other),
            lambda: setattr(thing, "__dict__", {"a": new, "b": new}),
            lambda: setattr(type(thing), "a", property(lambda self: new)),
            lambda: setattr(type(thing), name, new),
        ])()  # fmt: skip


KEPT = {kind: dict(vars(kind)) for kind in (Plain, Other, Missing, Slotted, Holder, Record)}


def put_back():
    for kind, before in KEPT.items():
        for name in set(vars(kind)) - before.keys():
            delattr(kind, name)
        for name, value in before.items():
            if vars(kind).get(name) is not value:
                setattr(kind, name, value)


def result(fn):
    """What a function gives, in all that can be told of it."""
    try:
        found = fn(2.0)
        bits = np.float64(found).tobytes() if isinstance(found, float) else repr(found)
        return type(found).__name__, bits
    except Exception as error:
        return type(error).__name__, str(error)


def function(root, text, way):
    """A function that reads ``root`` and multiplies by what it finds."""
    space = {"__name__": "of_a_user", "root": root}
    if way == "global":
        exec(f"def fn(x):\n    return x * root{text}", space)
    elif way == "cell":
        exec(f"def make(root):\n    return lambda x: x * root{text}\nfn = make(root)", space)
    else:
        exec(f"def fn(x, root=root):\n    return x * root{text}", space)
    return space["fn"]


def run(seed):
    """Change what a random function reads; return whether it came to another result."""
    rng = random.Random(seed)
    root, things, text = tree(rng, rng.randrange(4))
    fn = function(root, text, rng.choice(["global", "cell", "default"]))
    guards = discover_guards(fn)
    before = result(fn)
    assert result(fn) == before
    assert guards.reason is None
    assert guards.holds()
    if before[0].endswith("Error"):  # of which no trace makes a program
        return False
    for _ in range(3):
        if not things:
            break
        try:
            change(rng.choice(things), rng)
        except Exception:  # what cannot be done to such a thing
            continue
        if result(fn) != before:
            assert not guards.holds(), text
            assert not guards.refresh(), text
            return True
    return False


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(st.integers(0, 2**40))
def test_guards_fail_where_the_function_gives_something_else(seed):
    try:
        run(seed)
    finally:
        put_back()


@pytest.mark.slow
def test_the_random_changes_matter_often_enough():
    changed = 0
    for seed in range(300):
        try:
            changed += run(seed)
        finally:
            put_back()
    assert 60 < changed < 240

"""Containers as arguments of compiled functions: extra attributes, and keys of dictionaries."""

from collections import namedtuple
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import pytest

import odyssey as od
from odyssey.tree import leaves
from support.records import Degrees

A = np.arange(1.0, 4.0)
T = TypeVar("T")


@dataclass
class Record:
    x: Any
    y: Any = 2.0


@dataclass
class Box(Generic[T]):
    x: T


@dataclass(slots=True)
class Slotted:
    x: Any


class Noted(Slotted):
    __slots__ = ("scale",)


class Pair(tuple):
    """A tuple with attributes."""


class Layers(list):
    """A list with attributes."""


class Registry(dict):
    """A dictionary with attributes."""


class Point(namedtuple("Point", "x y")):
    """A named tuple with attributes."""


MAKERS = {
    "tuple": lambda x: Pair((x, 2.0)),
    "list": lambda x: Layers([x, 2.0]),
    "dict": lambda x: Registry(a=x),
    "named": lambda x: Point(x, 2.0),
    "record": Record,
    "slots": Noted,
}


def with_scale(make, scale, x=A):
    made = make(x)
    if scale is not None:
        made.scale = scale
    return made


def scaled(one):
    scale = getattr(one, "scale", 10.0)
    return leaves(one)[0] * (scale if not isinstance(scale, list) else scale[0])


# ------------------------------------------------------------------ arguments


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("name", MAKERS)
def test_attributes_of_arguments_are_those_that_came(name, nested):
    fn = (lambda d: scaled(d["k"][1])) if nested else scaled
    compiled = od.compile(fn)
    scales = [None, 3.0, 0.0, -0.0, True, 1, 1.0, np.array([2.0, 3.0, 4.0]), [5.0], None, 3.0]
    for size in (3, 5):
        x = np.arange(1.0, size + 1.0)
        for scale in scales:
            if isinstance(scale, np.ndarray):
                scale = np.resize(scale, size)
            for _ in range(3):
                one = with_scale(MAKERS[name], scale, x)
                one = {"k": [1.0, one]} if nested else one
                wanted, got = fn(one), compiled(one)
                np.testing.assert_array_equal(got, wanted)
                np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


@pytest.mark.parametrize("name", MAKERS)
def test_attributes_that_are_written_to_between_calls(name):
    compiled, scale = od.compile(scaled), np.ones(3)
    one, held = with_scale(MAKERS[name], scale), with_scale(MAKERS[name], [1.0])
    for k in range(1, 6):
        scale[:] = held.scale[0] = k
        np.testing.assert_array_equal(compiled(one), A * k)
        np.testing.assert_array_equal(compiled(held), A * k)
    for k in range(1, 6):
        one.scale = float(k % 2)
        np.testing.assert_array_equal(compiled(one), A * (k % 2))


def test_a_dataclass_is_taken_as_it_is_and_in_a_program():
    for make, wanted in ((Degrees, np.deg2rad(A) * 2.0), (Box[Any], A * 2.0)):
        compiled = od.compile(lambda p: leaves(p)[0] * 2.0)
        for _ in range(5):
            np.testing.assert_array_equal(compiled(make(A)), wanted)
        assert compiled.statistics().native == 4


def test_containers_in_containers_of_their_own_are_told_apart():
    fn = lambda r: r.x[0] * (2.0 if type(r.x) is list else 3.0)  # noqa: E731
    compiled = od.compile(fn)
    for _ in range(4):
        np.testing.assert_array_equal(compiled(Record([A])), A * 2.0)
        np.testing.assert_array_equal(compiled(Record((A,))), A * 3.0)


def test_what_a_property_has_computed_before_is_no_obstacle():
    @dataclass
    class Remembering:
        w: Any

        @cached_property
        def total(self):
            return (self.w * self.w).sum()

    compiled, one = od.compile(lambda p: p.total * 2.0), Remembering(A)
    for _ in range(4):
        assert compiled(one) == 28.0
        assert compiled(Remembering(A + 1.0)) == 58.0


# ------------------------------------------------------------------ results


def test_a_dataclass_is_returned_as_it_was_made():
    compiled = od.compile(lambda x: Degrees(x * 2.0))
    for k in range(1, 6):
        np.testing.assert_allclose(compiled(A * k).angle, np.deg2rad(A * k * 2.0), rtol=1e-15)
    assert compiled.statistics().native == 4


@pytest.mark.parametrize("name", MAKERS)
def test_attributes_of_results_are_of_the_call(name):
    def fn(x, n):
        made = MAKERS[name](x * 2.0)
        made.scale = (x * 3.0 if n > 2.5 else x.sum()) if n > 1.5 else n
        return [made]

    compiled = od.compile(fn)
    for n in (1.0, 0.5, 2.0, 3.0):
        for k in range(1, 5):
            (got,), (wanted,) = compiled(A * k, n), fn(A * k, n)
            assert type(got) is type(wanted)
            np.testing.assert_array_equal(leaves(got)[0], leaves(wanted)[0])
            np.testing.assert_array_equal(got.scale, wanted.scale)


def test_attributes_of_results_that_are_always_the_same_are_no_obstacle():
    held = [1.0]

    def fn(x):
        made = Record(x * 2.0)
        made.held, made.name = held, "mine"
        return made

    compiled = od.compile(fn)
    for k in range(1, 6):
        got = compiled(A * k)
        np.testing.assert_array_equal(got.x, A * k * 2.0)
        assert got.held is held
        assert got.name == "mine"
    assert compiled.statistics().native == 4


# ------------------------------------------------------------------ keys


class Loose:
    """A key that is equal to others, and written like them."""

    def __init__(self, factor):
        self.factor = factor

    def __eq__(self, other):
        return isinstance(other, Loose)

    def __hash__(self):
        return 1

    def __repr__(self):
        return "loose"


class Key(NamedTuple):
    name: str
    factor: Any


class Kind(Enum):
    ONE = 1.0
    THREE = 3.0


def told(key):
    if isinstance(key, tuple):
        return 10.0 * told(key[0]) + told(key[-1])
    return key.factor if isinstance(key, Loose) else float(len(repr(key)))


KEYS = {
    "equal objects": lambda: [Loose(1.0), Loose(2.0), Loose(3.0)],
    "tuples": lambda: [(1, 0), (1.0, 0), (True, 0), (1, 0.0), (1, -0.0), (1, (0, Loose(2.0)))],
    "zeros": lambda: [0, 0.0, -0.0, False, np.float64(-0.0), np.float32(0.0), np.int64(0)],
    "named": lambda: [Key("a", 1), Key("a", 1.0), Key("a", True), ("a", 1)],
    "enums": lambda: [Kind.ONE, Kind.THREE],
    "ranges": lambda: [range(0, 1), range(0, 1, 10)],
}


@pytest.mark.parametrize("kind", [dict, Registry])
@pytest.mark.parametrize("name", KEYS)
def test_equal_keys_that_are_not_the_same_are_told_apart(name, kind):
    fn = lambda d: [v * told(k) for k, v in d.items()]  # noqa: E731
    compiled, keys = od.compile(fn), KEYS[name]()
    for _ in range(4):
        for key in keys:
            np.testing.assert_array_equal(compiled(kind({key: A})), fn({key: A}))
    assert compiled.statistics().native or kind is Registry


def test_numbers_under_keys_that_are_written_alike_are_not_mixed_up():
    class Named:
        def __repr__(self):
            return "named"

    one, other = Named(), Named()
    compiled = od.compile(lambda d, x: (x * d[one], x * d[other], d[one] > 2.5))
    for first, second in [(1.0, 2.0), (2.0, 2.0), (3.0, 2.0), (1.0, 5.0), (4.0, 6.0)] * 2:
        got = compiled({one: first, other: second}, A)
        np.testing.assert_array_equal(got[0], A * first)
        np.testing.assert_array_equal(got[1], A * second)
        assert got[2] is (first > 2.5)

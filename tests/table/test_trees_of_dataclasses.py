"""Dataclasses as trees: they come back with other leaves, and no code of their classes runs."""

from dataclasses import InitVar, dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import pytest

import odyssey as od
from odyssey.tree import leaves, map_tree
from support.records import Degrees, Own, Positive

T = TypeVar("T")


def never(*args):
    raise AssertionError("code of the class runs")


@dataclass
class Halved:
    """Has an attribute that is no field."""

    b: Any

    def __post_init__(self):
        self.half = self.b / 2


@dataclass(frozen=True, slots=True)
class Slotted:
    w: Any
    b: Any = 1.0


@dataclass(slots=True, weakref_slot=True, kw_only=True)
class Weak:
    w: Any


@dataclass
class Child(Halved):
    c: Any = field(init=False, default=4.0)
    start: InitVar[int] = 3
    count: ClassVar[int] = 7

    def __post_init__(self, start):
        super().__post_init__()
        self.start_was = start


@dataclass
class Box(Generic[T]):
    w: T


class Room:
    __slots__ = ("note",)


@dataclass(slots=True)
class Noted(Room):
    w: Any


@dataclass
class Converting:
    """Keeps a field behind a property, whose setter converts."""

    angle: Any

    @property
    def angle(self):
        return self._angle

    @angle.setter
    def angle(self, value):
        self._angle = np.deg2rad(value)


@dataclass
class Turned:
    """Gives out of a field what its setter was given."""

    angle: Any

    @property
    def angle(self):
        return np.rad2deg(self._radians)

    @angle.setter
    def angle(self, value):
        self._radians = np.deg2rad(value)


@dataclass
class Copied:
    """Has its own ways to be copied."""

    w: Any
    __copy__ = __deepcopy__ = __reduce__ = __reduce_ex__ = __getstate__ = never


@dataclass
class Failure(Exception):
    w: Any


@dataclass
class Remembering:
    w: Any

    @cached_property
    def total(self):
        return (self.w * self.w).sum()


A = np.array([30.0, 60.0])


def noted():
    made = Noted(A)
    made.note = "mine"
    return made


def with_extra():
    made = Own(2)
    made.extra = [1.0]
    return made


MAKERS = {
    "converts": lambda: Degrees(A),
    "validates": lambda: Positive(A),
    "own constructor": lambda: Own(2),
    "an attribute": lambda: Halved(A),
    "set from outside": with_extra,
    "frozen with slots": lambda: Slotted(A),
    "weak": lambda: Weak(w=A),
    "inherits": lambda: Child(A, start=5),
    "generic": lambda: Box[Any](A),
    "a slot that is no field": noted,
    "a property that converts": lambda: Converting(A),
    "copies itself": lambda: Copied(A),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_dataclass_comes_back_with_other_leaves_and_the_same_attributes(name):
    tree = MAKERS[name]()
    held, before = leaves(tree), dict(getattr(tree, "__dict__", {}))
    fields = set(type(tree).__dataclass_fields__) | {"_angle"}
    new = map_tree(lambda leaf: -leaf, tree)
    assert type(new) is type(tree)
    for mine, leaf in zip(leaves(new), held, strict=True):
        np.testing.assert_array_equal(mine, -leaf)
    for attribute, value in before.items():
        assert getattr(tree, attribute) is value
        assert attribute in fields or getattr(new, attribute) is value
    assert set(getattr(new, "__dict__", {})) - fields == set(before) - fields
    if name == "a slot that is no field":
        assert new.note == "mine"


def test_a_slot_that_is_empty_stays_empty():
    assert not hasattr(map_tree(abs, Noted(A)), "note")


def test_a_setter_is_called_where_nothing_else_tells_where_a_field_is():
    new = map_tree(lambda leaf: leaf * 2.0, Turned(A))
    np.testing.assert_allclose(new.angle, 2.0 * A, rtol=1e-15)


def test_an_error_that_is_a_dataclass_is_a_tree():
    np.testing.assert_array_equal(map_tree(lambda leaf: -leaf, Failure(A)).w, -A)


def test_what_was_computed_of_other_leaves_is_forgotten():
    tree = Remembering(A)
    assert tree.total == 4500.0
    assert map_tree(lambda leaf: leaf * 2.0, tree).total == 18000.0
    np.testing.assert_array_equal(od.grad(lambda p: p.total)(tree).w, 2.0 * A)
    assert tree.total == 4500.0


def test_a_named_tuple_keeps_its_attributes():
    from collections import namedtuple

    class Point(namedtuple("Point", "x y")):
        """One that takes attributes."""

    point = Point(1.0, 2.0)
    point.scale = 3.0
    made = map_tree(lambda leaf: leaf + 1.0, point)
    assert (made, made.scale) == (Point(2.0, 3.0), 3.0)
    assert od.grad(lambda p: p.x * p.scale)(point).x == 3.0

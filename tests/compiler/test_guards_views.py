"""Guards of views of dictionaries and of abstract classes, which change with other objects."""

import abc
import collections
import numbers
import typing

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable
from odyssey.compiler.guards.guards import discover_guards
from odyssey.errors import TapeError

X = np.array([3.0, 4.0])

VIEWS = {
    "values": lambda made: made.values(),
    "keys": lambda made: made.keys(),
    "items": lambda made: made.items(),
}
DICTIONARIES = [dict, collections.OrderedDict, collections.UserDict, collections.ChainMap]


def numbers_in(view):
    """The numbers that a view shows, or how long the words are."""
    flat = [part for one in view for part in (one if isinstance(one, tuple) else (one,))]
    return sum(len(one) if isinstance(one, str) else one for one in flat)


class TestViewsOfDictionaries:
    @pytest.mark.parametrize("kind", DICTIONARIES)
    @pytest.mark.parametrize("name", VIEWS)
    def test_a_view_that_is_closed_over_shows_what_was_added_since(self, name, kind):
        held = kind({"a": 1.0, "b": 2.0})
        view = VIEWS[name](held)
        step = od.compile(lambda x: x * numbers_in(view))
        for k in range(4):
            for _ in range(3):
                np.testing.assert_array_equal(step(X), X * numbers_in(view))
            held["c" * (k + 1)] = float(k + 5)

    def test_parameters_that_come_later_have_gradients(self):
        layers = {"first": Variable(np.ones(2), requires_grad=True)}
        params = layers.values()

        @od.compile
        def step(x):
            with od.GradientTape() as tape:
                loss = sum((p * x).sum() for p in params)
            tape.backward(loss)
            return loss

        for _ in range(3):
            step(X)
        layers["second"] = late = Variable(np.ones(2), requires_grad=True)
        assert float(step(X)) == 14.0
        np.testing.assert_array_equal(late.grad, X)

    def test_generators_in_a_view_are_found_by_a_checkpoint(self):
        generators = {"a": np.random.default_rng(0)}.values()

        @od.checkpoint
        def noisy(x):
            return x * x * sum(one.normal() for one in generators)

        def plain(x, rng):
            return x * x * rng.normal()

        expected = od.grad(lambda x: plain(x, np.random.default_rng(0)).sum())(X)
        np.testing.assert_allclose(od.grad(lambda x: noisy(x).sum())(X), expected, rtol=1e-14)

    def test_generators_in_a_view_are_refused_in_a_graph(self):
        generators = {"a": np.random.default_rng(0)}.values()
        with pytest.raises(TapeError, match="draws random numbers"):
            od.compile(lambda x: x * sum(one.normal() for one in generators))(X)


def plain_class():
    return type("OfUser", (), {})


def abstract_class():
    return abc.ABCMeta("Abstract", (), {})


class TestAbstractClasses:
    @pytest.mark.parametrize("make", [abstract_class, lambda: numbers.Number])
    @pytest.mark.parametrize("ask", ["isinstance", "issubclass", "match"])
    def test_a_class_may_be_registered_later(self, ask, make):
        kind, abstract = plain_class(), make()
        thing = kind()

        def matched(x):
            match thing:
                case abstract():
                    return x * 2.0
            return x * 3.0

        acts = {
            "isinstance": lambda x: x * 2.0 if isinstance(thing, (abstract, list)) else x * 3.0,
            "issubclass": lambda x: x * 2.0 if issubclass(kind, abstract) else x * 3.0,
            "match": matched,
        }
        step = od.compile(acts[ask])
        for _ in range(3):
            np.testing.assert_array_equal(step(X), X * 3.0)
        abstract.register(kind)
        for _ in range(3):
            np.testing.assert_array_equal(step(X), X * 2.0)

    def test_a_class_of_a_module_that_is_asked_by_its_name(self):
        kind = plain_class()
        thing = kind()
        step = od.compile(lambda x: x * 2.0 if isinstance(thing, collections.abc.Sized) else x)
        for _ in range(3):
            np.testing.assert_array_equal(step(X), X)
        collections.abc.Sized.register(kind)
        np.testing.assert_array_equal(step(X), X * 2.0)

    @pytest.mark.parametrize("whose", ["class", "object"])
    def test_a_protocol_asks_for_what_may_come_later(self, whose):
        @typing.runtime_checkable
        class Scaling(typing.Protocol):
            scale: float

            def run(self): ...

        kind = plain_class()
        thing = kind()
        step = od.compile(lambda x: x * 2.0 if isinstance(thing, Scaling) else x)
        for _ in range(3):
            np.testing.assert_array_equal(step(X), X)
        holder = kind if whose == "class" else thing
        holder.run = holder.scale = lambda *_: 1.0
        np.testing.assert_array_equal(step(X), X * 2.0)

    def test_registrations_are_no_matter_of_who_does_not_ask(self):
        abstract = abstract_class()
        thing = type("Made", (abstract,), {"scale": 2.0})()
        guards = discover_guards(lambda x: x * thing.scale)
        abstract.register(plain_class())
        assert guards.holds()


def test_a_record_shows_the_array_that_it_is_of():
    array = np.zeros(2, [("scale", "f8"), ("name", "U3")])
    record = array[0]
    step = od.compile(lambda x: x * record["scale"])
    for shown in (array[0], array[1], record):
        shown["scale"] += 2.0
        for _ in range(3):
            np.testing.assert_array_equal(step(X), X * array["scale"][0])


def test_options_of_printing_are_asked_in_each_call():
    step = od.compile(lambda x: x * np.get_printoptions()["precision"])
    for precision in (8, 3, 8):
        with np.printoptions(precision=precision):
            np.testing.assert_array_equal(step(X), X * precision)

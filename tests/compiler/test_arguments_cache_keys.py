"""Cache keys: a program is for all that a function may read of its arguments."""

import copy
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import OdysseyError

A = np.arange(1.0, 4.0)
KEPT = [Variable(A), Variable(A)]


class Rate(float):
    """A number that prints like all others of its class."""

    def __repr__(self):
        return "a rate"


class Named(np.ndarray):
    """An array that is more than one."""


def fresh_leaf():
    return Variable(np.array([2.0, 3.0, 4.0]), requires_grad=True)


def spent():
    leaf = fresh_leaf()
    with GradientTape() as tape:
        value = leaf * 2.0
        loss = value.sum()
    tape.backward(loss)
    return value


def twice(value):
    return (value, value)


def apart(value):
    return (value, value.copy())


def of_kind(x):
    return x * 2.0 if isinstance(x, np.ndarray) else x * 3.0


# By name: a function, and makers of the arguments of calls that differ.
CALLS = {
    "keys of a dictionary": (
        lambda d: {k: v * float(k) for k, v in d.items()},
        [lambda: ({1: A},), lambda: ({2: A},), lambda: ({2.5: A},)],
    ),
    "numbers that print alike": (
        lambda x, rate: x * rate,
        [lambda: (A, Rate(2.0)), lambda: (A, Rate(3.0))],
    ),
    "objects at a place that was free again": (
        lambda x, part: x * float(part),
        [lambda k=k: (A, Fraction(k, 3)) for k in range(1, 6)],
    ),
    "ranges": (lambda x, r: x * len(r), [lambda: (A, range(2)), lambda: (A, range(3))]),
    "frozen sets": (
        lambda x, s: x * len(s),
        [lambda: (A, frozenset({1})), lambda: (A, frozenset({1, 2}))],
    ),
    "one array twice": (
        lambda x, y: x * 2.0 if x is y else x * 3.0,
        [lambda: apart(A), lambda: twice(A), lambda: apart(A)],
    ),
    "one Variable twice": (
        lambda v, u: v * 2.0 if v is u else v * 3.0,
        [lambda: twice(Variable(A)), lambda: (Variable(A), Variable(A))],
    ),
    "names": (
        lambda v: v * 2.0 if v.name == "a" else v * 3.0,
        [lambda: (Variable(A, name="a"),), lambda: (Variable(A, name="b"),)],
    ),
    "where Variables come from": (
        lambda v: v * 2.0,
        [
            lambda: (Variable(A),),
            lambda: (fresh_leaf() * 1.0,),
            lambda: (spent(),),
            lambda: (fresh_leaf(),),
        ],
    ),
    "arrays that are more": (
        lambda x: x * 2.0,
        [lambda: (A,), lambda: (A.view(Named),), lambda: (np.ma.array(A, mask=[1, 0, 0]),)],
    ),
    "masks that an op refuses": (
        ops.square,
        [lambda: (A,), lambda: (np.ma.array(A, mask=[1, 0, 0]),), lambda: (A,)],
    ),
    "numbers of NumPy and arrays without axes": (
        lambda x: x * 2.0 if isinstance(x, np.generic) else x * 3.0,
        [lambda: (np.float64(2.0),), lambda: (np.array(2.0),)],
    ),
    "what isinstance says of an array": (of_kind, [lambda: (A,), lambda: (Variable(A),)]),
    "which type an array has": (
        lambda x: x * 2.0 if type(x) is np.ndarray else x * 3.0,
        [lambda: (A,), lambda: (Variable(A),)],
    ),
    "how the type of an array is called": (
        lambda x: x * 2.0 if type(x).__name__ == "ndarray" else x * 3.0,
        [lambda: (A,), lambda: (Variable(A),)],
    ),
    "of which class a result is": (
        lambda x: x * 2.0 if isinstance(x.sum(), np.floating) else x * 3.0,
        [lambda: (A,)],
    ),
    "how a Variable is written": (
        lambda v: [repr(v), v * 2.0],
        [lambda: (Variable(A),), lambda: (Variable(A + 1.0),)],
    ),
    "ids": (
        lambda v: v * float(v.id % 97),
        [lambda: (KEPT[0],), lambda: (KEPT[1],)],
    ),
    "what an array has": (
        lambda x: x * 2.0 if hasattr(x, "flags") else x * 3.0,
        [lambda: (A,)],
    ),
    "of which kind the result is": (
        lambda x, n: (x * 2.0).sum() if n == 0 else Variable(x) * 1.0,
        [lambda: (A, 1), lambda: (A, 0), lambda: (A, 2)],
    ),
}


def said(fn, args):
    """What a call gives, as far as it can be told."""
    try:
        result = fn(*args)
    except OdysseyError as error:
        return type(error), str(error)
    return [
        (
            type(leaf),
            repr(getattr(leaf, "_recording", None)) if isinstance(leaf, Variable) else None,
            leaf
            if isinstance(leaf, str)
            else np.ma.filled(np.asarray(getattr(leaf, "_array", leaf)), -1.0).tolist(),
        )
        for leaf in od.tree.leaves(result)
    ], list(result) if isinstance(result, dict) else None


@pytest.mark.parametrize("name", CALLS)
def test_calls_whose_arguments_differ_in_any_way_get_what_the_function_gives(name):
    fn, makers = CALLS[name]
    compiled = od.compile(fn)
    for make in [*makers, *makers]:
        for _ in range(3):
            wanted = said(fn, make())
            assert said(compiled, make()) == wanted


def test_a_program_takes_the_kinds_of_results_from_the_run_that_it_is_for():
    settings = {"plain": False}
    leaf = fresh_leaf()

    def fn(x):
        return x * 2.0 if settings["plain"] else x * leaf

    compiled = od.compile(fn)
    for _ in range(3):
        assert type(compiled(A)) is Variable
    settings["plain"] = True
    for _ in range(3):
        assert type(compiled(A)) is np.ndarray
    assert compiled.statistics().native == 4  # the calls after the two first ones of a kind


def test_a_function_that_writes_to_its_argument_writes_to_the_one_that_came():
    def count(v):
        v.assign(v + 1.0)
        return v * 2.0

    compiled, c = od.compile(count), Variable(np.zeros(2))
    for k in range(1, 5):
        np.testing.assert_array_equal(compiled(c).numpy(), [2.0 * k, 2.0 * k])
        np.testing.assert_array_equal(c.numpy(), [k, k])


def test_an_argument_that_the_function_also_captures_is_one_with_it():
    c = Variable(np.zeros(2))

    def count(v):
        c.assign(c + 1.0)
        return v * 2.0

    compiled = od.compile(count)
    for _ in range(3):
        compiled(Variable(np.ones(2)))
    assert compiled.statistics().native == 2
    for k in range(4, 7):
        np.testing.assert_array_equal(compiled(c).numpy(), [2.0 * k, 2.0 * k])


def test_what_lets_nobody_look_at_it_is_explained():
    nest: list = []
    nest.append(nest)
    compiled = od.compile(lambda x: 1.0)
    assert "runs as plain Python" in compiled.explain(nest)


class Model:
    """A model that holds its compiled step."""

    def __init__(self):
        self.w = Variable(np.zeros(3), requires_grad=True)
        self.step = od.compile(self.grow)

    def grow(self, x):
        self.w.assign(self.w + x)
        return self.w.sum()


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_a_copy_of_a_model_has_a_step_of_its_own(calls):
    model = Model()
    for _ in range(calls):
        model.step(A)
    twin = copy.deepcopy(model)
    for k in range(1, 4):
        twin.step(A)
        np.testing.assert_array_equal(twin.w.numpy(), (calls + k) * A)
        np.testing.assert_array_equal(model.w.numpy(), calls * A)
    assert twin.step.statistics() == (1, 2, 1)


def test_what_a_function_writes_out_of_its_states_is_what_they_are():
    w = Variable(np.zeros(2), requires_grad=True)
    compiled = od.compile(lambda x: (repr(w), w * x))
    for k in range(1, 5):
        w.assign(np.full(2, k))
        assert compiled(np.ones(2))[0] == repr(w)


# ------------------------------------------------------------------ containers


@dataclass
class Record:
    x: Any
    y: Any = None


def filled(d):
    d["y"] = d["x"] * 2.0
    return d["x"] * 3.0


def lengthened(one):
    one.append(one[0] * 2.0)
    return one[0] * 3.0


def shortened(one):
    return one.pop() * 3.0


def noted(record):
    record.y = 1.0
    return record.x * 3.0


WRITERS = {
    "an item": (filled, lambda: {"x": A}),
    "a longer list": (lengthened, lambda: [A]),
    "a shorter list": (shortened, lambda: [A]),
    "a field": (noted, lambda: Record(A)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_what_is_written_to_a_container_that_was_passed_is_there(name):
    fn, make = WRITERS[name]
    compiled = od.compile(fn)
    for _ in range(4):
        wanted, got = make(), make()
        np.testing.assert_array_equal(compiled(got), fn(wanted))
        assert repr(got) == repr(wanted) != repr(make())


def test_containers_that_a_function_holds_or_is_given_are_returned_themselves():
    held, record, numbers = {"k": [1.0]}, Record(1.0, 2.0), (1.0, 2.0)
    for one in (held, record, numbers):
        compiled = od.compile(lambda x, one=one: one)
        assert all(compiled(A) is one for _ in range(4))
    both = od.compile(lambda x: (x * 2.0, held))
    assert all(both(A)[1] is held for _ in range(4))
    settings = {"n": 1.0}
    back = od.compile(lambda given, x: (given, x * 2.0))
    assert all(back(settings, A)[0] is settings for _ in range(4))


def test_a_container_at_two_places_of_a_result_is_one():
    def fn(x):
        one = [1.0]
        return {"a": one, "b": one, "x": x * 2.0}

    compiled = od.compile(fn)
    for _ in range(4):
        result = compiled(A)
        assert result["a"] is result["b"]

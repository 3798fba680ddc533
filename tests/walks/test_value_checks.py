"""Walks rows, composites and losses: what an eager call raises for a value, a program raises.

A program is made by good calls. Then elements of its arguments are replaced by numbers on both
sides of every range, and wherever the eager call raises, the compiled function must raise too.
"""

import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey.ops import COMPOSITES, OPS
from support.composed import LOSSES
from support.together import each

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

INTEGERS = [-100, -4, -2, -1, 1, 2, 3, 4, 5, 6, 9, 100]
NUMBERS = [-3.0, -1.0, 0.0, 0.5, 1.0, 2.0, 1e9, np.nan, np.inf, -np.inf]
TRIED = {"i": INTEGERS, "u": INTEGERS, "f": NUMBERS, "b": [False, True]}


def calls():
    for row in OPS.values():
        for k, sample in enumerate(row.samples):
            of_arity = row.with_arity(len(sample.operands)) if row.with_arity else row
            yield f"{row.name}-{k}", (of_arity.call, sample)
    for function in (*COMPOSITES.values(), *LOSSES.values()):
        for k, sample in enumerate(function.samples):
            yield f"{function.__name__}-{k}", (function, sample)


def arrays_in(operands, path=()):
    """The arrays among operands, in lists too, with the way to each."""
    for k, operand in enumerate(operands):
        if isinstance(operand, list):
            yield from arrays_in(operand, (*path, k))
        elif isinstance(operand, np.ndarray) and operand.size:
            yield (*path, k), operand


def replaced(operands, path, array):
    first, *rest = path
    return [
        (replaced(one, rest, array) if rest else array) if k == first else one
        for k, one in enumerate(operands)
    ]


def others(operands):
    """The operands with one element, or all of one array, replaced by another number."""
    for path, array in arrays_in(operands):
        for number in TRIED.get(array.dtype.kind, []):
            if np.can_cast(np.min_scalar_type(number), array.dtype, "same_kind"):
                for place in (0, -1, slice(None)):
                    changed = array.copy()
                    changed.reshape(-1)[place] = number
                    yield replaced(operands, path, changed)


def error_of(call, operands):
    try:
        call(*operands)
    except Exception as error:
        return type(error)
    return None


@each(("function", "sample"), dict(calls()))
@pytest.mark.filterwarnings("ignore")
def test_values_that_an_eager_call_refuses_are_refused_by_programs(function, sample):
    operands = sample.arrays(np.random.default_rng(0))

    def call(*operands):
        return function(*operands, **sample.options)

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused = [(bad, error_of(call, bad)) for bad in others(operands)]
        refused = [(bad, error) for bad, error in refused if error is not None]
        compiled = od.compile(call, warn=False)
        if not refused or error_of(compiled, operands):
            return  # what no graph can hold is refused at once
        compiled(*operands)
        for bad, error in refused:
            assert error_of(compiled, bad) is error, bad
            compiled(*operands)
        count = compiled.statistics()
        assert not count.programs or count.native > len(refused)


CHOICES = [np.zeros(3), np.ones(3), np.full(3, 2.0)]


@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8"])
@pytest.mark.parametrize("wrong", [-1, -3, 3, 100])
def test_a_choice_that_there_is_not_is_refused_by_a_program(wrong, dtype):
    compiled = od.compile(lambda a: od.ops.choose(a, CHOICES), fullgraph=True)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(np.array([2, 0, 1], dtype)), [2.0, 0.0, 1.0])
    assert compiled.statistics().native == 2
    with pytest.raises(od.errors.ShapeError, match="out of bounds"):
        compiled(np.array([2, wrong & 255 if dtype[0] == "u" else wrong, 1], dtype))


def test_a_choice_that_there_is_not_is_refused_within_a_loop():
    def picked(places):
        step = lambda carry, a: (carry, od.ops.choose(a, [carry, carry * 2.0]))  # noqa: E731
        return od.scan(step, np.ones(2), places)[1]

    for fn in (picked, od.compile(picked)):
        for _ in range(3):
            assert fn(np.array([0, 1])).tolist() == [[1.0, 1.0], [2.0, 2.0]]
        for wrong in (-1, 2):
            with pytest.raises(od.errors.OdysseyError, match="out of bounds"):
                fn(np.array([0, wrong]))

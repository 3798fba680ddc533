"""Quantities: numbers that only a call knows, computed anew by Python's own operators."""

from __future__ import annotations

import copy
import functools
import math
import operator
import pickle
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odyssey.compiler.symbolic.expressions import compile_expressions
from odyssey.compiler.symbolic.scalars import SymbolicScalars, concrete_number, expression_of

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

_NUMBERS = st.one_of(
    st.integers(-9, 9),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, 2**53 + 1]),
)
_BINARY = ["+", "-", "*", "/", "//", "%"]


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


def _run(lines: list[tuple[str, int, int]], numbers: list[Any]) -> list[Any]:
    """All that the lines compute, each of two of what was there before."""
    known = list(numbers)
    for sign, i, j in lines:
        x, y = known[i % len(known)], known[j % len(known)]
        if sign == "+":
            known.append(x + y)
        elif sign == "-":
            known.append(x - y)
        elif sign == "*":
            known.append(x * y)
        elif sign == "/":
            known.append(x / y)
        elif sign == "//":
            known.append(x // y)
        elif sign == "%":
            known.append(x % y)
        elif sign == "neg":
            known.append(-x)
        elif sign == "pos":
            known.append(+x)
        else:
            known.append(abs(x))
    return known[len(numbers) :]


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.sampled_from([*_BINARY, "neg", "pos", "abs"]), *[st.integers(0, 99)] * 2),
        max_size=12,
    ),
    st.tuples(_NUMBERS, _NUMBERS),
    st.tuples(_NUMBERS, _NUMBERS),
    _NUMBERS,
)
@example([("/", 0, 1)], (1, 2), (1, 0), 3)
@example([("+", 0, 2), ("+", 1, 2)], (1.0, -1), (-0.0, 0), 0.0)
def test_arithmetic_of_other_numbers_is_what_python_computes_of_these(
    lines: list[tuple[str, int, int]], traced: Any, later: Any, fixed: Any
) -> None:
    asked: list[str] = []
    room = SymbolicScalars(lambda one, question: asked.append(question))
    first = [room.named("a", traced[0]), room.named("b", traced[1]), fixed]
    try:
        _run(lines, [*traced, fixed])
    except ArithmeticError as error:
        with pytest.raises(type(error)):
            _run(lines, first)
        return
    results = _run(lines, first)
    assert not asked
    try:
        wanted = _run(lines, [*later, fixed])
    except ArithmeticError as error:
        with pytest.raises(type(error)):
            room.evaluated({"a": later[0], "b": later[1]})
        return
    symbolic = [r for r in results if type(r) not in (int, float)]
    compute = compile_expressions(room.steps, ["a", "b"], list(map(expression_of, symbolic)))
    found = compute(*later)
    known = [w for r, w in zip(results, wanted, strict=True) if type(r) not in (int, float)]
    assert all(map(_same, found, known))


def test_powers_are_computed_anew_and_tell_where_their_class_changes() -> None:
    room = SymbolicScalars()
    b, t = room.named("b", 0.9), room.named("t", 3)
    rate = 1 - b**t
    assert repr(expression_of(rate)) == "1 - (b ** t)"
    assert room.evaluated({"b": 0.5, "t": 7}) == [0.5**7, 1 - 0.5**7]
    n = SymbolicScalars()
    two = 2 ** n.named("n", 3)
    assert expression_of(two).kind is int
    assert n.evaluated({"n": -1}) == [0.5]


def test_equal_expressions_are_one_and_keep_zeros_and_classes_apart() -> None:
    room = SymbolicScalars()
    a = room.named("a", 2.0)
    assert expression_of(a * 2) == expression_of(a * 2)
    for one, other in [(1, 1.0), (1, True), (0.0, -0.0)]:
        assert expression_of(a * one) != expression_of(a * other)
    assert len(room.steps) == 6


def test_deep_expressions_are_told_and_compared_in_little_time() -> None:
    room = SymbolicScalars()
    a = b = room.named("a", 1.0)
    for _ in range(3000):
        a, b = a + a * 0.0, b + b * 0.0
    assert expression_of(a) == expression_of(b)
    assert len(repr(expression_of(a))) < 400
    assert room.evaluated({"a": 2.0})[-1] == 2.0


_QUESTIONS: dict[str, Any] = {
    "if": lambda q: 1 if q else 2,
    "not": lambda q: not q,
    "==": lambda q: q == 3,
    "==, from the right": lambda q: operator.eq(3.0, q),
    "!=": lambda q: q != 3,
    "<": lambda q: q < 3,
    "between": lambda q: 0 <= q <= 3,
    "in": lambda q: q in [1, 2, 3],
    "a key": lambda q: {3: "three"}.get(q),
    "a set": lambda q: {q, 3},
    "max": lambda q: max(q, 2),
    "sorted": lambda q: sorted([q, 1])[0],
    "float": lambda q: float(q),
    "int": lambda q: int(q),
    "complex": lambda q: complex(q),
    "bool": lambda q: bool(q),
    "hash": lambda q: hash(q),
    "repr": lambda q: repr(q),
    "str": lambda q: str(q),
    "an f-string": lambda q: f"{q:.3f}",
    "percent": lambda q: "%.3f" % q,  # noqa: UP031
    "format": lambda q: f"{q}",
    "round": lambda q: round(q, 1),
    "floor": lambda q: math.floor(q),
    "sqrt": lambda q: math.sqrt(q),
    "isnan": lambda q: math.isnan(q),
    "sum": lambda q: sum([0.5, q]),
    "fsum": lambda q: math.fsum([0.5, q]),
    "prod": lambda q: math.prod([0.5, q]),
    "reduce": lambda q: functools.reduce(operator.mul, [q, 2]),
    "operator": lambda q: operator.add(q, 1),
    "divmod": lambda q: divmod(q, 2),
    "divmod, from the right": lambda q: divmod(2, q),
    "is_integer": lambda q: q.is_integer() if hasattr(q, "is_integer") else q.real,
    "real": lambda q: q.real,
    "conjugate": lambda q: q.conjugate(),
    "ratio": lambda q: q.as_integer_ratio(),
    "struct": lambda q: struct.pack("d", q),
    "fraction": lambda q: Fraction(q),
    "by a fraction": lambda q: Fraction(1, 3) * q,
    "by a complex number": lambda q: 1j * q,
    "array": lambda q: np.array(q),
    "array of floats": lambda q: np.array([q, 1.0]),
    "array of objects": lambda q: np.array([q], dtype=object).sum(),
    "asarray": lambda q: np.asarray(q, np.float32),
    "NumPy's number": lambda q: np.float32(q),
    "full": lambda q: np.full(3, q),
    "an element": lambda q: operator.setitem(np.zeros(3), 0, q),
    "deepcopy": lambda q: copy.deepcopy(q),
    "copy": lambda q: copy.copy(q),
    "pickle": lambda q: pickle.dumps(q),
    "match": lambda q: _matched(q),
}


def _matched(q: Any) -> str:
    match q:
        case 3:
            return "three"
        case _:
            return "another"


@pytest.mark.parametrize("number", [3.0, 3], ids=["float", "int"])
@pytest.mark.parametrize("name", list(_QUESTIONS))
def test_questions_are_told_and_answered_as_the_number_answers(name: str, number: Any) -> None:
    asked: list[str] = []
    quantity = SymbolicScalars(lambda one, question: asked.append(question)).named("q", number)
    ask = _QUESTIONS[name]
    found, wanted = ask(quantity), ask(number)
    assert asked
    if name not in ("deepcopy", "copy", "pickle", "a set", "sum", "prod", "reduce", "operator"):
        assert repr(found) == repr(wanted)
    if name == "a set":
        assert len(found) == 1


@pytest.mark.parametrize(
    "ask", [lambda q: q.__index__(), lambda q: range(q), lambda q: [1, 2, 3][q]]
)
def test_whole_numbers_that_count_are_told(ask: Any) -> None:
    asked: list[str] = []
    ask(SymbolicScalars(lambda one, question: asked.append(question)).named("q", 2))
    assert asked


def test_a_float_is_no_index_as_ever() -> None:
    for q in (2.0, SymbolicScalars().named("q", 2.0)):
        with pytest.raises(TypeError):
            [1, 2, 3][q]
        with pytest.raises(TypeError):
            q & 1
        with pytest.raises(TypeError):
            len(q)
        with pytest.raises(AttributeError):
            q.shape  # noqa: B018


def test_what_any_number_of_a_class_answers_alike_is_not_told() -> None:
    asked: list[str] = []
    q = SymbolicScalars(lambda one, question: asked.append(question)).named("q", 2.0)
    assert isinstance(q, float)
    assert not isinstance(q, (int, str, np.ndarray))
    assert not hasattr(q, "shape")
    assert not callable(q)
    assert q is not None
    assert [abs(q), q**2, pow(q, 3)]
    assert not asked
    assert concrete_number(q, "it is stored") == 2.0
    assert asked == ["it is stored"]


def test_what_is_asked_of_a_result_names_all_that_it_is_computed_from() -> None:
    asked: list[Any] = []
    room = SymbolicScalars(lambda one, question: asked.append((sorted(one.names), question)))
    a, b = room.named("a", 1.0), room.named("b", 2)
    assert a + b * 2 > 4
    assert asked == [(["a", "b"], "gt")]


def test_roots_that_are_complex_are_told() -> None:
    asked: list[str] = []
    q = SymbolicScalars(lambda one, question: asked.append(question)).named("q", -2.0)
    assert q**0.5 == (-2.0) ** 0.5
    assert asked == ["pow"]

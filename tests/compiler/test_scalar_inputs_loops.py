"""Scalar inputs that loops and branches carry, return or depend on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import odyssey as od
from odyssey import ops

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

X = np.array([0.5, -1.25, 3.0])
FLOATS = [-0.0, 0.1, 1.5, 1e300, 1e-300, 2.5, 3.0]
SPECIAL = [1.5, math.nan, math.inf, -math.inf]
WHOLE = [0, 1, -3, 7, 2**40]
BEYOND = [2**62, 2**63 - 1, -(2**63), 2**63, 2**70, -(2**64)]


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    """What a call gives, bit by bit but for which NaN and which zero, or how it fails."""
    try:
        with np.errstate(all="ignore"):
            found = fn(*args)
    except Exception as error:
        return type(error), str(error)
    return [seen(leaf) for leaf in od.tree.leaves(found)]


def seen(leaf: Any) -> Any:
    data = np.asarray(leaf)
    if data.dtype.kind not in "fc":
        return type(leaf), data.dtype, data.tolist()
    parts = np.stack([data.real, data.imag])
    parts = np.where(parts != parts, np.nan, parts + 0).astype(parts.dtype)
    return type(leaf), data.dtype, data.shape, parts.tobytes()


def inner(c: Any, x: Any) -> Any:
    return od.scan(lambda t, k: (t * k, t), c, x * np.arange(1.0, 4.0, dtype=x.dtype))


def product(x: Any, c: Any) -> Any:
    return od.scan(lambda s, e: (s * e, s + e), c, x)[1].sum()


LOOPS: dict[str, Callable[..., Any]] = {
    "the first carry": lambda x, c: od.scan(lambda s, e: (s + e, s), c, x),
    "a carry that stays": lambda x, c: od.scan(lambda s, e: (s, e * s), c, x),
    "what a step returns": lambda x, c: od.scan(lambda s, e: (s + e, c * 2 + 1), 0.0, x),
    "a tree": lambda x, c: od.scan(
        lambda s, e: ({"a": s["a"] * e, "n": s["n"] + 1}, s["n"]), {"a": c, "n": 0}, x
    ),
    "steps without arrays": lambda x, c: od.scan(lambda s, _: (s * 0.5, s), c, None, length=4),
    "no steps": lambda x, c: od.scan(lambda s, e: (s + e, c), c, x[:0]),
    "a loop in a loop": lambda x, c: od.scan(lambda s, e: inner(s + c, e * x), c, x),
    "a branch": lambda x, c: od.cond(x.sum() > 0, lambda: c, lambda: 1.0),
    "an operand of branches": lambda x, c: od.cond(
        x.sum() > 9, lambda x, c: x + c, lambda x, c: x * c, x, c
    ),
    "a question": lambda x, c: od.cond(c - 1.5, lambda x: x + 1, lambda x: x * 2, x),
    "a bound": lambda x, c: od.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + c * 0 + 1, s[1] * c), (0.0, x)
    ),
    "until it is large": lambda x, c: od.while_loop(
        lambda s: (abs(s) < 7) & (s != 0), lambda s: s * 1.5, c
    ),
    "a derivative": lambda x, c: od.grad(lambda x: product(x, c))(x),
    "a second derivative": lambda x, c: od.hessian(lambda x: product(x, c))(x),
    "forward": lambda x, c: od.jvp(lambda x: product(x, c), (x,), (x * 2,)),
    "forward through a loop": lambda x, c: od.jvp(
        lambda x: od.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * s[1]), (0, x * c)),
        (x,),
        (x * 2,),
    ),
}


# A number that meets no array is float64: beside single precision the loop as it was written fails.
_ALONE = ("a carry that stays",)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, d) for n in LOOPS for d in ("float64", "float32") if d == "float64" or n not in _ALONE],
)
def test_one_program_serves_all_numbers_that_loops_take(name: str, dtype: str) -> None:
    fn, x = LOOPS[name], X.astype(dtype)
    compiled = od.compile(fn, check=True)
    for c in FLOATS:
        assert outcome(compiled, x, c) == outcome(fn, x, c), c
    beyond = sum(dtype == "float32" and abs(c) > 1e38 for c in FLOATS)
    assert compiled.statistics().programs == 1
    assert compiled.statistics().native >= len(FLOATS) - 1 - beyond


@pytest.mark.parametrize("name", [n for n in LOOPS if "derivative" not in n and n != "forward"])
def test_numbers_that_are_not_finite_are_carried(name: str) -> None:
    compiled = od.compile(LOOPS[name], check=True)
    for c in SPECIAL:
        if name != "until it is large" or c == c:
            assert outcome(compiled, X, c) == outcome(LOOPS[name], X, c), c


DTYPES = ["complex64", "complex128", "float16", "int8", "uint8", "int32", "uint64", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "numbers", [[*FLOATS, *SPECIAL, 65520.0], [*WHOLE, 200, 255, 256, -128, 300]]
)
def test_a_carry_takes_the_dtype_of_what_comes_back(numbers: list[Any], dtype: str) -> None:
    x = np.array([1, 0, 1]).astype(dtype)
    for fn in (
        lambda x, c: od.scan(lambda s, e: (s + e, s), c, x),
        lambda x, c: od.scan(lambda s, e: (e, s), c, x),
        lambda x, c: od.scan(lambda s, e: (s * 1.5, s * e), c, x),
    ):
        compiled = od.compile(fn, check=True)
        for c in numbers:
            assert outcome(compiled, x, c) == outcome(fn, x, c), c


COUNTS: dict[str, Callable[..., Any]] = {
    "counted up": lambda x, n: od.while_loop(
        lambda s: (s[0] < n + 4) & (s[0] < 9), lambda s: (s[0] + 1, s[1] * 2), (n, x)
    ),
    "counted down": lambda x, n: od.while_loop(
        lambda s: (s[0] > 0) & (s[0] < 9), lambda s: (s[0] - 1, s[1] * 2), (n, x)
    ),
    "beside others": lambda x, n: od.scan(lambda s, e: (s + 1, s * e), n, x),
    "twice as many": lambda x, n: od.scan(lambda s, e: (s * 2 // 2, e), n, x),
    "of floats": lambda x, n: od.scan(lambda s, e: (s + e, s * e), n, x),
    "in a branch": lambda x, n: od.cond(x[0] > 9, lambda n: n + 1, lambda n: n * 2, n),
    "asked": lambda x, n: od.cond(n, lambda x: x + 1, lambda x: x * 2, x),
    "returned": lambda x, n: od.scan(lambda s, e: (s + e, n * 2 + 1), 0.0, x),
}


@pytest.mark.parametrize("name", COUNTS)
def test_whole_numbers_are_those_of_int64_or_are_run_as_written(name: str) -> None:
    """Python's have no bounds: the first step of the loop as it was written may go beyond."""
    fn = COUNTS[name]
    compiled = od.compile(fn, check=True)
    for n in [*WHOLE, *BEYOND, 5]:
        assert outcome(compiled, X, n) == outcome(fn, X, n), n
    assert compiled.statistics().programs == 1
    assert compiled.statistics().native >= len(WHOLE)


@pytest.mark.parametrize("first", BEYOND)
def test_a_first_call_beyond_int64_makes_no_program_for_others(first: int) -> None:
    for fn in COUNTS.values():
        compiled = od.compile(fn, check=True)
        for n in [first, 3, 4, first]:
            assert outcome(compiled, X, n) == outcome(fn, X, n), n


def test_what_python_refuses_of_a_first_carry_it_refuses_in_a_program() -> None:
    fn: Callable[..., Any] = lambda x, c: od.scan(lambda s, e: (1 / s, s * e), c, x)  # noqa: E731
    compiled = od.compile(fn, check=True)
    for c in (1.0, 2.0, 0.0, 4.0):
        assert outcome(compiled, X, c) == outcome(fn, X, c)


def test_a_branch_of_python_on_a_carried_number_fixes_it_and_says_so() -> None:
    def fn(x: Any, n: Any) -> Any:
        return od.scan(lambda s, e: (s + (e if n > 2 else 1.0), s), 0.0, x)

    compiled = od.compile(fn, check=True)
    for n in (1, 3, 2, 5):
        assert outcome(compiled, X, n) == outcome(fn, X, n)
    assert "n is fixed: >" in str(compiled.explain(X, 3))


def test_a_captured_state_goes_with_a_carried_number() -> None:
    w = od.Variable(np.array([1.0, 2.0, 3.0]), requires_grad=True)
    other = od.Variable(np.array([1.0, 2.0, 3.0]), requires_grad=True)

    def step(w: Any, x: Any, c: Any) -> Any:
        with od.GradientTape() as tape:
            end, ys = od.scan(lambda s, e: (s + e * ops.sum(w), s), c, x)
            loss = end + ys.sum()
        tape.backward(loss)
        w.assign(w - 0.01 * w.grad)
        w.zero_grad()
        return loss

    compiled = od.compile(lambda x, c: step(w, x, c), check=True)
    for c in FLOATS[:3]:
        assert float(compiled(X, c)) == float(step(other, X, c))
    np.testing.assert_array_equal(w.numpy(), other.numpy())
    assert compiled.statistics().programs == 1

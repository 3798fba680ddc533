"""Scalar inputs: numbers among the arguments serve one program, unless their values are needed."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from support.threads import run_in_threads

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

X = np.linspace(-2.0, 3.0, 7)


def outcome(fn: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """What a call gives, bit by bit, or how it fails."""
    try:
        with np.errstate(all="ignore"):
            found = fn(*args, **named)
    except Exception as error:
        return type(error), str(error)
    return [seen(leaf) for leaf in od.tree.leaves(found)]


def seen(leaf: Any) -> Any:
    data = np.asarray(leaf.numpy() if isinstance(leaf, Variable) else leaf)
    plain = np.where(data != data, np.nan, data) if data.dtype.kind == "f" else data
    return type(leaf), data.dtype, data.shape, plain.astype(data.dtype).tobytes()


def agree(fn: Callable[..., Any], calls: Any, compiled: Any = None) -> Any:
    """Call a function and its compiled self; return the latter."""
    compiled = od.compile(fn, check=True) if compiled is None else compiled
    for args in calls:
        assert outcome(compiled, *args) == outcome(fn, *args), args[1:]
    return compiled


# ------------------------------------------------------------------ what NumPy makes of numbers

DTYPES = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64"),
]
WHOLE = [3, 1, 0, -1, 127, 128, -129, 255, 256, 2**31, 2**53 + 1, 2**60 + 2**36 + 1, 2**63 - 1]
WHOLE += [2**63, -(2**63), 2**64 - 1, 2**64, -(2**70), 10**39, 10**400]
FLOATS = [0.1, 1.0, -0.0, 0.0, math.nan, math.inf, -math.inf, 5e-324, 1e-45, 1e-40, 1e300, -1e39]
FLOATS += [3.4028235e38, 3.40282356e38, 3.4028235677973366e38, 65504.0, 65520.0, 1 + 2**-24]
PAIRS: dict[str, Callable[..., Any]] = {
    "plus": lambda x, n: (x + n, n + x),
    "minus": lambda x, n: (x - n, n - x),
    "times": lambda x, n: (x * n, n * x),
    "over": lambda x, n: (x / n, n / x),
    "compared": lambda x, n: (x < n, n <= x, x == n, n != x),
    "chosen": lambda x, n: ops.where(x > 0, n, x),
    "limited": lambda x, n: (np.maximum(x, n), ops.minimum(n, x)),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fn", PAIRS.values(), ids=PAIRS)
def test_a_number_meets_each_dtype_as_in_numpy(fn: Callable[..., Any], dtype: str) -> None:
    x = np.array([0, 1, 1, 0, 1]) if dtype == "bool" else np.array([0, 1, 2, 3, 100])
    x = x.astype(dtype)
    compiled = od.compile(fn, check=True)
    for numbers in (WHOLE, FLOATS):
        agree(fn, [(x, n) for n in numbers], compiled)
    agree(fn, [(x, n) for n in (True, False, 1 + 2j, True)], compiled)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float32", "float64"])
def test_one_program_serves_all_numbers_that_a_dtype_holds(dtype: str) -> None:
    x = np.arange(5).astype(dtype)
    limits = np.iinfo(dtype) if dtype[0] in "iu" else None
    numbers = [1, 2, 0, 100, 7]
    numbers += [-5, -6] if limits is None or limits.min < 0 else [2**62]
    compiled = agree(PAIRS["plus"], [(x, n) for n in numbers])
    assert compiled.statistics() == (1, len(numbers) - 1, 1)


def test_a_number_of_no_program_is_run_as_it_was_written_and_others_are_not() -> None:
    compiled = agree(PAIRS["plus"], [(np.arange(5, dtype="int8"), n) for n in (1, 2, 300, 3)])
    assert compiled.statistics() == (1, 2, 2)


# ------------------------------------------------------------------ one program


def test_a_decaying_rate_is_one_program() -> None:
    w = Variable(X.copy(), requires_grad=True)
    v = Variable(X.copy(), requires_grad=True)

    def step_of(w: Variable) -> Callable[..., Any]:
        def step(x: Any, rate: float) -> Any:
            with GradientTape() as tape:
                loss = ((w * x - 1.0) ** 2).sum()
            (g,) = tape.gradient(loss, [w])
            w.assign(w - rate * g)
            return w * 1.0

        return step

    eager, compiled = step_of(v), od.compile(step_of(w), check=True)
    for k in range(100):
        rate = 0.1 * 0.97**k
        assert outcome(compiled, X, rate) == outcome(eager, X, rate)
    assert compiled.statistics() == (1, 99, 1)


class Settings(NamedTuple):
    b1: float
    b2: float
    eps: float


def adam(g: Any, m: Any, v: Any, t: int, rate: float, s: Settings) -> Any:
    m = s.b1 * m + (1 - s.b1) * g
    v = s.b2 * v + (1 - s.b2) * g * g
    return m, v, -rate * (m / (1 - s.b1**t)) / (np.sqrt(v / (1 - s.b2**t)) + s.eps)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_count_of_steps_in_a_power_is_one_program(dtype: str) -> None:
    compiled = od.compile(adam, check=True)
    g = X.astype(dtype)
    m, v = np.zeros_like(g), np.zeros_like(g)
    for t in range(1, 60):
        args = (g / t, m, v, t, 0.1 / t, Settings(0.9, 0.999, 1e-8))
        assert outcome(compiled, *args) == outcome(adam, *args)
        m, v, _ = adam(*args)
    assert compiled.statistics() == (1, 58, 1)


def test_what_python_refuses_it_refuses_in_a_program() -> None:
    args = X, 2 * X, 3 * X
    compiled = agree(adam, [(*args, t, 0.1, Settings(0.9, 0.5, 0.0)) for t in (1, 2, 0, 3)])
    assert compiled.statistics().native == 3  # of arrays by 0.0 there is no error
    unused = agree(lambda x, n: (1 / n, x + n)[1], [(X, n) for n in (1, 2, 0, 4, 0.0)])
    assert unused.statistics().native == 2


def test_powers_of_numbers_keep_their_class_or_are_run_as_written() -> None:
    fn = lambda x, a, b: x * a**b  # noqa: E731
    compiled = agree(fn, [(np.arange(4), 2, b) for b in (1, 2, 3, -1, -2, 5, 80, 0)])
    assert compiled.statistics().programs == 1
    agree(fn, [(X, a, b) for a, b in [(2.0, 0.5), (-2.0, 0.5), (-2.0, 2.0), (0.0, -1.0)]])


@dataclass
class Rates:
    fast: float
    slow: int
    name: str = "rates"


def test_numbers_stand_anywhere_in_trees_and_come_by_name() -> None:
    def fn(x: Any, nest: Any, rates: Rates, *rest: float, scale: float = 1.0) -> Any:
        a, (b, c) = nest["a"], nest["b"]
        return x * a + b * c - rates.fast * x / rates.slow + rest[0] - scale

    compiled = od.compile(fn, check=True)
    for k in range(1, 9):
        args = (X, {"a": 0.1 * k, "b": [k, 1.5 * k]}, Rates(0.2 * k, k), 0.3 * k)
        assert outcome(compiled, *args, scale=0.1 * k) == outcome(fn, *args, scale=0.1 * k)
    assert compiled.statistics() == (1, 7, 1)


def test_numbers_may_come_before_arrays_and_twice() -> None:
    fn = lambda a, x, b, y: a * x - b * y  # noqa: E731
    calls = [(a, X, b, X[::-1].copy()) for a, b in [(1.0, 2.0), (2.0, 3.0), (2, 2), (2, 3), (5, 5)]]
    same = 0.5
    calls += [(same, X, same, 2 * X), (same, 2 * X, 0.25, X)]
    agree(fn, calls)


def test_a_class_of_numbers_is_no_other() -> None:
    compiled = agree(
        lambda x, n: x + n, [(np.arange(3), n) for n in (1, 2, 1.0, 2.0, True, 3, 3.5)]
    )
    assert compiled.statistics().programs == 2


def test_calls_of_python_get_the_numbers_of_this_call() -> None:
    parts = [(X.astype(np.complex64), 0.3 * k, k) for k in range(1, 7)]
    compiled = agree(lambda x, a, t: (od.special.xlogy(a, x) + t, x - a * t), parts)
    assert compiled.statistics() == (1, 5, 1)
    assert "not lowered: xlogy" in compiled.explain(*parts[0])


def test_calls_of_libraries_get_what_is_computed_of_numbers() -> None:
    pytest.importorskip("scipy")
    calls = [(abs(X), 0.5 * k, k) for k in range(1, 7)]
    fn = lambda x, a, t: ops.gammainc(a * t, x) * a  # noqa: E731
    assert agree(fn, calls).statistics() == (1, 5, 1)


def test_gradients_and_those_of_gradients_follow_numbers() -> None:
    def fn(x: Any, a: float, n: int) -> Any:
        f = lambda z: (ops.sin(a * z) * z / n + ops.maximum(z, a) * (a / n)).sum()  # noqa: E731
        first = od.grad(f)(x)
        second = od.grad(lambda z: (od.grad(f)(z) * z).sum())(x)
        return first, second

    compiled = od.compile(fn, check=True)
    for k in range(1, 6):
        found, wanted = compiled(X, 0.3 * k, k), fn(X, 0.3 * k, k)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-14)
    assert compiled.statistics() == (1, 4, 1)


def test_threads_with_numbers_of_their_own_do_not_meet() -> None:
    fn = lambda x, a: (x * a).sum() + a  # noqa: E731
    compiled = od.compile(fn)
    x = np.ones(64)
    compiled(x, 1.0)
    compiled(x, 2.0)
    wrong: list[Any] = []

    def work(k: int) -> None:
        for _ in range(2000):
            if compiled(x, float(k)) != 65.0 * k:
                wrong.append(k)

    run_in_threads(*[partial(work, k) for k in (3, 7, 11)])
    assert not wrong


def test_numbers_stand_for_themselves_beside_states_and_gradients() -> None:
    def world() -> Callable[..., Any]:
        w = Variable(X.copy(), requires_grad=True)

        def step(x: Any, a: float, k: int) -> Any:
            with GradientTape() as tape:
                loss = (w * x * a).sum()
            tape.backward(loss)  # adds to what is there
            w.assign(w * (1 - a) + k)
            return w * 1.0, w.grad * 1.0

        return step

    eager, compiled = world(), od.compile(world(), check=True)
    for k in range(8):
        assert outcome(compiled, X, 0.1 * k, k) == outcome(eager, X, 0.1 * k, k)
    assert compiled.statistics().native >= 5


# ------------------------------------------------------------------ random functions


def function_of(rng: np.random.Generator) -> Callable[..., Any]:
    """A random function of two arrays and three numbers, and its text in steps."""
    steps = [
        (rng.choice(list("+-*/%")), int(rng.integers(0, 9)), int(rng.integers(0, 9)))
        for _ in range(rng.integers(2, 12))
    ]

    def fn(x: Any, y: Any, a: Any, b: Any, c: Any) -> Any:
        known = [x, a, b, y, c, 0.5, 3]
        for sign, i, j in steps:
            p, q = known[i % len(known)], known[j % len(known)]
            known.append(OPERATORS[sign](p, q))
        return [one for one in known[7:] if not isinstance(one, (int, float))] or x + 0

    return fn


OPERATORS = {
    "+": lambda p, q: p + q,
    "-": lambda p, q: p - q,
    "*": lambda p, q: p * q,
    "/": lambda p, q: p / q,
    "%": lambda p, q: p % q,
}


@pytest.mark.parametrize("seed", range(24))
def test_random_functions_of_numbers_and_arrays_are_the_eager_ones(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fn = function_of(rng)
    dtypes = rng.choice(["float32", "float64", "int32", "int8"], 2)
    x, y = ((rng.normal(size=5) * 9).astype(dtype) for dtype in dtypes)
    kinds = [rng.choice(["int", "float"]) for _ in range(3)]
    pool: dict[str, list[Any]] = {"int": [1, 2, -3, 7, 0, 40, 2**40, 300], "float": FLOATS}
    calls = []
    for _ in range(12):
        numbers = [pool[kind][rng.integers(len(pool[kind]))] for kind in kinds]
        calls.append((x, y, *numbers))
    compiled = agree(fn, calls)
    assert compiled.statistics().programs <= 1


# ------------------------------------------------------------------ every door

DOORS: dict[str, Callable[..., Any]] = {
    "if": lambda x, n: x * 2 if n > 2 else x * 3,
    "truth": lambda x, n: x * 2 if n else x * 3,
    "==": lambda x, n: x * 2 if n == 3 else x,
    "of a result": lambda x, n: x * 2 if n * 2 - 1 > 3 else x,
    "float": lambda x, n: x * float(n),
    "int": lambda x, n: x * int(n),
    "str": lambda x, n: x * len(str(n)),
    "f-string": lambda x, n: x * len(f"{n:.0f}"),
    "hash": lambda x, n: x * {1: 5.0, 2: 6.0}.get(n, 7.0),
    "in": lambda x, n: x * (n in (1, 2)),
    "sqrt": lambda x, n: x * math.sqrt(n),
    "sum": lambda x, n: x * sum([0.1, n, 0.2]),
    "max": lambda x, n: x * max(n, 2),
    "round": lambda x, n: x * round(n),
    "divmod": lambda x, n: x * divmod(n, 2)[1],
    "reduce": lambda x, n: x * functools.reduce(operator.mul, [n, n, 2]),
    "array": lambda x, n: x * np.array([n, 1.0])[0],
    "NumPy's sine": lambda x, n: x * np.sin(n),
    "NumPy's number": lambda x, n: x * np.float64(n),
    "our sine": lambda x, n: x * ops.sin(n),
    "full": lambda x, n: x + np.full(7, n),
    "an option": lambda x, n: ops.leaky_relu(x, negative_slope=n),
    "a limit": lambda x, n: ops.clip(x, -n, n),
    "a power": lambda x, n: ops.floor(x) ** n,
    "a Variable": lambda x, n: Variable(n) * x,
    "returned": lambda x, n: (x, n),
    "a result returned": lambda x, n: (x, {"n": n * 2}),
    "isinstance": lambda x, n: x * 2 if isinstance(n, float) else x * 3,
    "type": lambda x, n: x * 2 if type(n) is float else x * 3,
    "is": lambda x, n: x * 2 if n is n + 0 else x * n,
    "an attribute": lambda x, n: x * n.real,
    "has": lambda x, n: x * n if hasattr(n, "real") else x,
    "is_integer": lambda x, n: x * float(n).is_integer(),
    "caught": lambda x, n: caught(x, n),
    "matched": lambda x, n: matched(x, n),
    "stored": lambda x, n: stored(x, n),
    "a partial": lambda x, n: functools.partial(operator.mul, n)(x),
    "a comprehension": lambda x, n: x * next(k for k in (1, 2, 3) if k >= n or k == 3),
    "in a slice": lambda x, n: x[: int(n)],
    "a random draw's": lambda x, n: x * math.comb(5, int(n)),
}


def caught(x: Any, n: Any) -> Any:
    try:
        return x * len(float.hex(n))
    except TypeError:
        return x * n


def matched(x: Any, n: Any) -> Any:
    match n:
        case 1:
            return x
        case float() | int():
            return x * n
    return x * 0


HELD: list[Any] = []


def stored(x: Any, n: Any) -> Any:
    HELD.append(n)
    return x * HELD.pop()


@pytest.mark.parametrize("kind", [float, int])
@pytest.mark.parametrize("fn", DOORS.values(), ids=DOORS)
def test_nothing_looks_at_a_number_unnoticed(fn: Callable[..., Any], kind: Any) -> None:
    calls = [(X, kind(n)) for n in (1, 2, 3, 4, 5, 3, 2, 1, 1, 2, 3)]
    compiled = agree(fn, calls)
    assert compiled.statistics().native + compiled.statistics().written == len(calls)


def test_numbers_of_which_something_is_asked_are_fixed_and_others_are_not() -> None:
    def fn(x: Any, rate: float, times: int) -> Any:
        for _ in range(times):
            x = x - rate * x
        return x

    calls = [(X, 0.1 * k, times) for times in (1, 3) for k in range(6)]
    assert agree(fn, calls).statistics() == (2, 10, 2)


def told(x: Any, rate: float, times: int, settings: Any, *more: Any, scale: float = 1.0) -> Any:
    if settings["far"] > 1.0:
        x = x * more[0]
    for _ in range(times):
        x = x - rate * settings["near"] * x
    return x * scale


def test_explain_says_which_numbers_are_inputs_and_what_is_asked_of_others_where() -> None:
    compiled = od.compile(told)
    for _ in range(2):
        compiled(X, 0.1, 2, {"near": 1.0, "far": 2.0}, 3.0, scale=0.5)
    text = compiled.explain(X, 0.2, 2, {"near": 3.0, "far": 2.0}, 4.0, scale=0.25)
    line = told.__code__.co_firstlineno
    assert "scalar inputs: rate, settings['near'], argument 4, scale\n" in text
    assert f"times is fixed: it is used as an index, {__file__}:{line + 3}" in text
    assert f"settings['far'] is fixed: >, {__file__}:{line + 1}" in text


def test_explain_looks_through_numpy_for_the_line() -> None:
    compiled = od.compile(lambda x, n: x + np.full(7, n))
    compiled(X, 1.0), compiled(X, 1.0)
    assert f"n is fixed: an array is made of it, {__file__}:" in compiled.explain(X, 1.0)


@pytest.mark.parametrize("dtype", [one for one in DTYPES if "int" in one])
def test_a_bound_that_no_whole_number_of_a_dtype_can_pass_is_none(dtype: str) -> None:
    limits = np.iinfo(dtype)
    x = np.array([limits.min, 0, 3, limits.max], dtype)
    far = [(-1, 2**70), (-(2**70), 2), (limits.min - 1, limits.max + 1), (0, 300), (-129, 2**31)]
    for low, high in far:
        wanted = [min(max(int(one), low), high) for one in x]
        compiled = od.compile(lambda x, low=low, high=high: np.clip(x, low, high))
        try:
            eager = np.clip(x, low, high)
        except OverflowError:  # NumPy 2.0 refuses what the dtype lacks
            with pytest.raises(OverflowError):
                compiled(x)
            continue
        assert eager.tolist() == wanted
        for _ in range(3):
            found = compiled(x)
            assert found.dtype == eager.dtype
            assert found.tolist() == wanted


class Held(list):  # type: ignore[type-arg]
    """A list with attributes."""


def test_attributes_of_what_is_returned_are_of_this_call() -> None:
    def fn(x: Any, n: float) -> Any:
        made = Held([x * n])
        made.notes = {"n": [n]}  # type: ignore[attr-defined]
        return made

    compiled = od.compile(fn)
    for k in range(5):
        found = compiled(X, 0.5 * k)
        assert found.notes == {"n": [0.5 * k]}
        assert type(found.notes["n"][0]) is float


TRANSFORMS: dict[str, Callable[..., Any]] = {
    "jvp": lambda x, a, n: od.jvp(lambda z: ops.exp(z * a) / n, (x,), (x * 0 + a,))[1],
    "hessian": lambda x, a, n: od.hessian(lambda z: (ops.sin(z * a) * z / n).sum())(x),
    "of a number": lambda x, a, n: od.grad(lambda z, s: (z * s).sum() * n, argnums=1)(x, a),
    "scan": lambda x, a, n: od.scan(lambda c, e: (c * a + e, c * n), x[0] * 1.0, x)[1],
    "checkpoint": lambda x, a, n: od.grad(
        lambda z: od.checkpoint(lambda z, s: (ops.sin(z * s) / n).sum())(z, a)
    )(x),
    "an item": lambda x, a, n: x[n] * a + x,
    "an axis": lambda x, a, n: ops.sum(ops.reshape(x, (7, 1)), axis=n - n) * a,
    "a shift": lambda x, a, n: np.roll(x, n) * a,
    "a fill": lambda x, a, n: ops.full_like(x, a) * n + x,
    "ends": lambda x, a, n: ops.linspace(0.0, a, 7) * n + x,
    "padding": lambda x, a, n: ops.pad(x, 2, constant_values=a)[2:-2] * n,
    "products": lambda x, a, n: (x * a) @ (x / n),
    "a tree of results": lambda x, a, n: {"a": [x * a, (x / n,)], "b": a * n * x},
}


@pytest.mark.parametrize("fn", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms_and_options_take_numbers(fn: Callable[..., Any]) -> None:
    compiled = od.compile(fn, check=True)
    for k in range(1, 7):
        found, wanted = (od.tree.leaves(f(X, 0.3 * k, 1 + k % 4)) for f in (compiled, fn))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-13, atol=1e-13)


def test_what_a_captured_number_does_is_as_it_was() -> None:
    scale = [2.0]
    compiled = od.compile(lambda x, n: x * scale[0] * n)
    for k in range(12):
        scale[0] = 1.0 + k % 3
        np.testing.assert_array_equal(compiled(X, 0.5 * k), X * scale[0] * (0.5 * k))


def test_what_is_written_with_a_number_is_written_once_for_each_call() -> None:
    logs: list[Any] = []

    def fn(x: Any, n: float) -> Any:
        logs.append(n)
        return x * n

    compiled = od.compile(fn)
    for k in range(4):
        compiled(X, float(k))
    assert logs == [0.0, 1.0, 2.0, 3.0]
    assert all(type(one) is float for one in logs)


def test_a_number_is_an_input_although_the_first_call_makes_an_optimizer_s_state() -> None:
    w = Variable(np.ones(7), requires_grad=True)
    optimizer = od.optim.Adam([w], 0.01)

    @od.compile
    def step(scale: float) -> Any:
        with GradientTape() as tape:
            loss = ((w * X) ** 2).sum() * scale
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for k in range(6):
        step(1.0 + k)
    assert step.statistics()[:2] == (1, 5)

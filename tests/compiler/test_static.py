"""Static parameters: fixed by value, each value with programs of its own."""

from __future__ import annotations

import copy
import enum
import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, ops
from odyssey.errors import DTypeError, OutOfRangeError, SettingError
from support.threads import run_in_threads

X = np.linspace(-2.0, 3.0, 7)


def powers(x: Any, n: int, scale: float = 1.0) -> Any:
    for _ in range(n):
        x = x * scale + n
    return x


def test_more_values_than_programs_of_one_function_have_programs() -> None:
    compiled = od.compile(powers, static="n")
    for _ in range(3):
        for n in range(20):
            np.testing.assert_array_equal(compiled(X, n, 0.5 * n), powers(X, n, 0.5 * n))
    assert compiled.statistics() == (20, 40, 20)


@pytest.mark.parametrize(
    "static",
    ["n", 1, ("n",), [1], {"n", 1}, ("n", "scale", 1, 2)],
    ids=["a name", "a place", "a tuple", "a list", "a set", "several"],
)
def test_a_parameter_is_static_by_name_and_by_position(static: Any) -> None:
    compiled = od.compile(powers, static=static)
    for _ in range(2):
        for n in range(1, 11):
            np.testing.assert_array_equal(compiled(X, n, 0.5), powers(X, n, 0.5))
    assert compiled.statistics() == (10, 10, 10)


def test_all_spellings_of_a_call_mean_the_same() -> None:
    compiled = od.compile(powers, static="n")
    for _ in range(2):
        for found in (
            compiled(X, 3, 0.5),
            compiled(X, 3, scale=0.5),
            compiled(X, n=3, scale=0.5),
            compiled(X, scale=0.5, n=3),
            compiled(x=X, n=3, scale=0.5),
            compiled(scale=0.5, n=3, x=X),
        ):
            np.testing.assert_array_equal(found, powers(X, 3, 0.5))
    assert compiled.statistics() == (1, 11, 1)


def several(a: Any, /, b: int, *rest: Any, c: int, d: float = 2.0, **others: Any) -> Any:
    total = a * b + (c > 2) * d
    for one in (*rest, *others.values()):
        total = total + one
    return total


@pytest.mark.parametrize("static", ["b", "c", "d", ("b", "c"), ("d", 1), "a", ("a", "b")], ids=str)
def test_signatures_of_any_kind_keep_their_meaning(static: Any) -> None:
    compiled = od.compile(several, static=static)
    a = 2.5 if "a" in static else X
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((a, 2), {"c": 1}),
        ((a, 2), {"c": 3, "d": 7.0}),
        ((a, 2, X), {"c": 3}),
        ((a, 2, X, 1.5), {"c": 3, "e": X, "f": 0.25}),
        ((a,), {"b": 2, "c": 3}),
        ((a,), {"b": 3, "c": 1, "d": 0.5, "e": 1.0}),
        ((a, 2), {"c": 1, "a": 5.0}),  # which is one of the others
    ]
    for args, named in calls * 3:
        np.testing.assert_array_equal(compiled(*args, **named), several(*args, **named))


def test_what_a_function_does_not_take_it_refuses_as_ever() -> None:
    compiled: Any = od.compile(powers, static="n")
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((X,), {}),
        ((X, 1), {"n": 1}),
        ((X, 1), {"m": 1}),
        ((X, 1, 2, 3), {}),
        ((), {"n": 1}),
    ]
    for args, named in wrong * 2:
        with pytest.raises(TypeError) as eager:
            powers(*args, **named)
        with pytest.raises(TypeError) as found:
            compiled(*args, **named)
        assert str(found.value) == str(eager.value)


class Kind(enum.Enum):
    SUM = 1
    MEAN = 2


@dataclass(frozen=True)
class Config:
    rate: float
    kind: Kind = Kind.SUM


def by_config(x: Any, config: Any) -> Any:
    total = x.sum() if config.kind is Kind.SUM else x.mean()
    return total * config.rate


def test_values_that_are_equal_share_programs() -> None:
    compiled = od.compile(by_config, static=1)
    for _ in range(3):
        for kind in Kind:
            for rate in (0.5, 1.0):
                config = Config(rate, kind)  # another object each time
                np.testing.assert_allclose(compiled(X, config), by_config(X, config), rtol=1e-15)
    assert compiled.statistics() == (4, 8, 4)


@pytest.mark.parametrize(
    "wrapped", [lambda v: v, lambda v: (v, "a"), Config], ids=["bare", "in a tuple", "in a record"]
)
def test_values_of_other_classes_and_signs_are_others(wrapped: Any) -> None:
    def fn(x: Any, v: Any) -> Any:
        v = v[0] if isinstance(v, tuple) else getattr(v, "rate", v)
        return x * v, math.copysign(1.0, v), type(v).__name__

    compiled = od.compile(fn, static="v")
    for _ in range(3):
        for v in (1, 1.0, True, 0.0, -0.0, 0, False, np.float32(1), math.nan):
            found, wanted = compiled(X, wrapped(v)), fn(X, wrapped(v))
            assert found[0].dtype == wanted[0].dtype
            np.testing.assert_array_equal(*np.array([found[0], wanted[0]]))
            assert found[1:] == wanted[1:]


@pytest.mark.parametrize(
    "value",
    [[1], {"a": 1}, {1}, np.ones(2), Variable(1.0), ([1],), (np.ones(2), 1), bytearray(b"a")],
    ids=["list", "dict", "set", "array", "Variable", "in a tuple", "array in one", "bytearray"],
)
def test_what_is_no_value_is_refused_by_the_name_of_its_parameter(value: Any) -> None:
    compiled = od.compile(lambda x, shape: x, static="shape")
    for call in (lambda: compiled(X, value), lambda: compiled(X, shape=value)):
        with pytest.raises(DTypeError, match="compile: static argument shape is"):
            call()


@pytest.mark.parametrize(
    ("static", "error", "message"),
    [
        ("m", SettingError, "'m', which names no parameter of powers; it has x, n, scale"),
        (("n", "m"), SettingError, "'m', which names no parameter"),
        (3, OutOfRangeError, "position 3; powers takes by position x, n, scale"),
        (-1, OutOfRangeError, "position -1"),
        (None.__class__, SettingError, "NoneType"),
        (1.0, SettingError, "1.0, which names no parameter"),
        (True, SettingError, "True, which names no parameter"),
    ],
    ids=str,
)
def test_what_names_no_parameter_is_refused(static: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        od.compile(powers, static=static)


def test_a_function_whose_parameters_nobody_knows_is_refused() -> None:
    with pytest.raises(SettingError, match="are unknown; compile a Python function that calls it"):
        od.compile(min, static=0)


class Net:
    def __init__(self) -> None:
        self.w = Variable(X.copy(), requires_grad=True, name="w")

    @od.compile(static=("times",))
    def forward(self, x: Any, times: int) -> Any:
        for _ in range(times):
            x = x * self.w
        return x


def test_methods_have_static_parameters() -> None:
    one, two = Net(), Net()
    two.w.assign(2 * X)
    for _ in range(3):
        for net, scale in ((one, 1), (two, 2)):
            for times in range(1, 12):
                np.testing.assert_allclose(
                    net.forward(X, times).numpy(), X * (scale * X) ** times, rtol=1e-13
                )


def test_prepared_calls_and_decorated_functions_have_them() -> None:
    fn = partial(powers, scale=2.0)
    compiled = od.compile(fn, static="n")
    for _ in range(2):
        for n in range(1, 10):
            np.testing.assert_array_equal(compiled(X, n), fn(X, n))
    assert compiled.statistics() == (9, 9, 9)


def test_states_gradients_and_numbers_are_as_ever() -> None:
    def world() -> Any:
        w = Variable(X.copy(), requires_grad=True)
        optimizer = od.optim.SGD([w], 0.1, momentum=0.9)

        def step(x: Any, order: int, scale: float) -> Any:
            with od.GradientTape() as tape:
                loss = ops.sum((w * x) ** order) * scale
            tape.backward(loss)
            optimizer.step()
            return loss, w * 1.0

        return step

    eager, compiled = world(), od.compile(world(), static="order", check=True)
    for k in range(12):
        found, wanted = compiled(X / 9, 2 + k % 3, 0.1 * k), eager(X / 9, 2 + k % 3, 0.1 * k)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)
    assert compiled.statistics().native >= 6


def test_globals_that_the_function_reads_are_watched() -> None:
    held = {"scale": 1.0}
    compiled = od.compile(lambda x, n: x * held["scale"] * n, static="n")
    for k in range(9):
        held["scale"] = float(k % 3)
        np.testing.assert_array_equal(compiled(X, 2), X * (k % 3) * 2)


def test_what_is_told_is_of_the_program_for_these_values() -> None:
    compiled = od.compile(powers, static="n")
    assert "not called" in compiled.explain(X, 2)
    for n in (1, 3):
        for _ in range(2):
            compiled(X, n, 0.5)
    assert compiled.explain(X, 3, 0.5).startswith("a program of 1 kernel")
    assert compiled.explain(X, scale=0.5, n=3).startswith("a program of 1 kernel")
    assert str(compiled.lower(X, 3, 0.5).graph).count("multiply") == 3
    assert compiled.profile(X, n=3, scale=0.5, runs=2).runs == 2
    assert "define" in compiled.code(X, 1, 0.5)
    assert compiled.estimate_memory_requirements(X, 1)["cpu"] >= X.nbytes
    assert repr(compiled) == "compile(powers)"
    compiled.clear_cache()
    assert compiled.statistics() == (0, 0, 0)


def test_copies_have_programs_of_their_own() -> None:
    compiled = od.compile(powers, static="n")
    compiled(X, 2), compiled(X, 2)
    other = copy.copy(compiled)
    assert other.statistics() == (0, 0, 0)
    np.testing.assert_array_equal(other(X, 2), powers(X, 2))
    assert compiled.statistics() == (1, 1, 1)


def test_inside_another_trace_it_is_part_of_it() -> None:
    inner = od.compile(powers, static="n")
    outer = od.compile(lambda x, a: inner(x * a, 2).sum())
    for k in range(4):
        np.testing.assert_allclose(outer(X, 0.5 * k), powers(X * (0.5 * k), 2).sum(), rtol=1e-14)
    assert outer.statistics().native == 3


def test_a_limit_of_memory_holds_for_each_value() -> None:
    compiled = od.compile(lambda x, n: ops.repeat(x, n), static=1, memory_limit=4000)
    compiled(X, 2)
    with pytest.raises(od.errors.DeviceMemoryError):
        compiled(X, 1000)


def test_threads_may_come_with_new_values_at_once() -> None:
    compiled = od.compile(powers, static="n")
    wrong: list[int] = []

    def work(first: int) -> None:
        for k in range(60):
            n = 1 + (first + k) % 6
            if not np.array_equal(compiled(X, n, 0.5), powers(X, n, 0.5)):
                wrong.append(n)

    run_in_threads(*[partial(work, k) for k in range(3)])
    assert not wrong

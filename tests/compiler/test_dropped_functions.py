"""A dropped compiled function, and all it captured, die without the garbage collector."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, nn, ops

pytestmark = pytest.mark.filterwarnings("ignore")  # of functions that run eagerly


class Model:
    """An object that is captured."""

    def __init__(self) -> None:
        self.a = np.arange(1.0, 4.0)
        self.w = Variable(np.ones(3), requires_grad=True)
        self.optimizer = od.optim.Adam([self.w], 0.1)
        self.step: Any = None

    def value(self, x: Any) -> Any:
        return (x * self.a).sum()

    def update(self, x: Any, scale: float = 1.0) -> Any:
        with GradientTape() as tape:
            loss = ((self.w * x) ** 2).sum() * scale
        tape.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss


X = np.ones(3)
ROWS = np.ones((5, 3))
ANY_ROWS = {"x": {0: od.Dim("rows")}}


def _closure(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(lambda x: (x * m.a).sum()), [(X,)] * 3


def _method(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(m.value), [(X,)] * 3


def _own_attribute(m: Model) -> tuple[Any, list[Any]]:
    m.step = od.compile(m.update)
    return m.step, [(X,)] * 3


def _training(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(m.update), [(X, 1.0), (X, 2.0), (X, 3.0)]


def _once(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(m.value), [(X,)]


def _containers(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(lambda p: p["x"] * m.a + p["y"][0]), [({"x": X, "y": [X]},)] * 3


def _fixed_numbers(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(lambda x, k: x * m.a if k > 1 else x + m.a), [(X, 2), (X, 2), (X, 0), (X, 0)]


def _static(m: Model) -> tuple[Any, list[Any]]:
    calls = [(X, n) for n in (1, 1, 2, 2)]
    return od.compile(lambda x, n: x * m.a * n, static=("n",)), calls


def _dynamic(m: Model) -> tuple[Any, list[Any]]:
    function = od.compile(lambda x: (x @ m.a).sum(), dynamic=ANY_ROWS)
    return function, [(np.ones((n, 3)),) for n in (3, 3, 4, 5)]


def _scan(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(lambda x: od.scan(lambda c, y: (c * m.a + y, c), x, ROWS)), [(X,)] * 3


def _scan_gradient(m: Model) -> tuple[Any, list[Any]]:
    def loss(x: Any) -> Any:
        return od.scan(lambda c, y: (c * m.a + y, None), x, ROWS)[0].sum()

    return od.compile(od.value_and_grad(loss)), [(X,)] * 3


def _cond(m: Model) -> tuple[Any, list[Any]]:
    function = od.compile(lambda p, x: od.cond(p, lambda: x * m.a, lambda: x))
    return function, [(np.array(flag), X) for flag in (True, True, False)]


def _while_loop(m: Model) -> tuple[Any, list[Any]]:
    function = od.compile(lambda x: od.while_loop(lambda c: c.sum() < 50, lambda c: c + m.a, x))
    return function, [(X,)] * 3


def _host_call(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(lambda x: od.linalg.solve(np.diag(m.a), x)), [(X,)] * 3


def _products(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(lambda x: (np.ones((2, 4, 3, 3)) * x) @ (m.a * np.ones((3, 3)))), [(X,)] * 3


def _scatter(m: Model) -> tuple[Any, list[Any]]:
    def loss(x: Any) -> Any:
        picked = x[np.array([0, 2, 2])]
        return (ops.dynamic_update_slice(x, picked * m.a, [0, 0]) ** 2).sum()

    return od.compile(od.grad(loss)), [(ROWS,)] * 3


def _rows(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(lambda x: nn.softmax(x * m.a, axis=-1).sum(axis=0, keepdims=True)), [
        (np.ones((2, 5, 3)),)
    ] * 3


def _gradient(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(od.grad(m.value)), [(X,)] * 3


def _side_effect(m: Model) -> tuple[Any, list[Any]]:
    def noisy(x: Any) -> Any:
        print(end="")
        return x * m.a

    return od.compile(noisy), [(X,)] * 3


def _value_in_trace(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(lambda x: float((x * m.a).sum())), [(X,)] * 3


def _user_error(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(lambda x: x * m.a + np.ones(7)), [(X,)] * 3


def _error_after_program(m: Model) -> tuple[Any, list[Any]]:
    calls = [(X,), (X,), (X,), (np.ones((2, 4)),), (np.ones((2, 4)),)]
    return od.compile(m.value), calls


def _full_graph(m: Model) -> tuple[Any, list[Any]]:
    return od.compile(lambda x: print(m.a, x), fullgraph=True), [(X,)] * 2


CASES = [
    _closure,
    _method,
    _own_attribute,
    _training,
    _once,
    _containers,
    _fixed_numbers,
    _static,
    _dynamic,
    _scan,
    _scan_gradient,
    _cond,
    _while_loop,
    _host_call,
    _gradient,
    _products,
    _scatter,
    _rows,
    _side_effect,
    _value_in_trace,
    _user_error,
    _error_after_program,
    _full_graph,
]


@pytest.fixture
def collector_off() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _call_all(function: Any, calls: list[Any]) -> None:
    for args in calls:
        with suppress(Exception):
            function(*args)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__[1:])
def test_everything_captured_dies_with_the_last_name(case: Any, collector_off: None) -> None:
    model = Model()
    function, calls = case(model)
    _call_all(function, calls)
    held = [weakref.ref(one) for one in (function, model, model.a, model.w, model.optimizer)]
    model.step = None
    del function, model
    assert [ref() for ref in held] == [None] * 5


@pytest.mark.parametrize("name", ["explain", "lower", "profile", "precompile"])
def test_inspection_keeps_nothing_alive(name: str, collector_off: None) -> None:
    model = Model()
    function = od.compile(model.value)
    _call_all(function, [(X,)] * 3)
    getattr(function, name)(X)
    held = [weakref.ref(one) for one in (function, model, model.a)]
    del function, model
    assert [ref() for ref in held] == [None] * 3


def test_a_refused_lowering_keeps_nothing_alive(collector_off: None) -> None:
    model = Model()
    array = model.a
    _call_all(od.compile(lambda x: float((x * array).sum())).lower, [(X,)])
    _call_all(od.compile(lambda x: x * array + np.ones(7)).lower, [(X,)])
    held = [weakref.ref(one) for one in (model, array)]
    model = array = None  # type: ignore[assignment]
    assert [ref() for ref in held] == [None] * 2


def test_clear_cache_releases_what_programs_captured(collector_off: None) -> None:
    model = Model()
    function = od.compile(lambda p: p["x"] * model.a)
    _call_all(function, [({"x": X},)] * 3)
    assert function.statistics().native == 2
    array = weakref.ref(model.a)
    model.a = np.zeros(3)
    function.clear_cache()
    assert array() is None


def test_a_further_size_of_a_dynamic_dimension_holds_no_trace() -> None:
    model = Model()
    function = od.compile(lambda x: {"y": (x @ model.a) ** 2, "z": x.sum()}, dynamic=ANY_ROWS)
    for n in range(2, 5):
        function(np.ones((n, 3)))
    gc.collect()
    before = len(gc.get_objects())
    for n in range(5, 8):
        function(np.ones((n, 3)))
    gc.collect()
    assert function.statistics().programs == 1
    assert len(gc.get_objects()) - before < 3 * 50

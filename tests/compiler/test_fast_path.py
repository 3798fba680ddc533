"""The fast path: flatteners of pytrees and keywords, each for one structure of arguments."""

from __future__ import annotations

import enum
import gc
import math
import random
import weakref
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable
from odyssey.compiler.arguments import program_arguments, static_values
from odyssey.compiler.dispatch.fast_path import CACHE_MISS, compile_flattener
from odyssey.compiler.native_dispatch import NATIVE_DISPATCH
from odyssey.tree import leaves, paths

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

X = np.linspace(-2.0, 3.0, 7)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Record:
    near: Any
    far: Any = 1.0


class Kind(enum.Enum):
    ONE = 1


class Mine(dict):  # type: ignore[type-arg]
    """A dictionary of users."""


_ODD = [
    "b",
    b"a",
    1j,
    math.sin,
    Kind.ONE,
    Record,
    Variable(1.0),
    np.float64(1.0),
    Mine(a=1),
    (),
    {},
]


def drawn(rng: random.Random, depth: int) -> Any:
    """A random tree."""
    if depth and rng.random() < 0.6:
        parts = [drawn(rng, depth - 1) for _ in range(rng.randrange(4))]
        kind = rng.randrange(5)
        if kind == 0:
            return tuple(parts)
        if kind == 1:
            return parts
        if kind == 2:
            return dict(zip("abcd", parts, strict=False))
        if len(parts) < 2:
            return parts
        return Pair(*parts[:2]) if kind == 3 else Record(*parts[:2])
    return rng.choice(
        [
            np.ones(2),
            np.zeros(1, "f4"),
            1,
            2,
            0.5,
            -0.0,
            0.0,
            math.nan,
            True,
            False,
            None,
            "a",
            *_ODD,
        ]
    )


def others(rng: random.Random, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The same arguments with something else somewhere, or nothing."""
    new = drawn(rng, 1)
    place = rng.randrange(4)

    def changed(tree: Any) -> Any:
        if rng.random() < 0.25:
            return new
        if isinstance(tree, Pair):
            return Pair(*map(changed, tree))
        if type(tree) in (tuple, list):
            return type(tree)(map(changed, tree))
        if type(tree) is dict:
            made = {k: changed(v) for k, v in tree.items()}
            return dict(reversed(list(made.items()))) if place == 0 else made
        if isinstance(tree, Record):
            return Record(changed(tree.near), changed(tree.far))
        return tree

    return tuple(map(changed, args)), {k: changed(v) for k, v in named.items()}


@pytest.mark.parametrize("seed", range(40))
def test_what_is_taken_apart_is_what_is_found_in_any_arguments(seed: int) -> None:
    rng, seen = random.Random(seed), 0
    for _ in range(60):
        args = tuple(drawn(rng, 2) for _ in range(rng.randrange(3)))
        named = {name: drawn(rng, 2) for name in rng.sample(["x", "rate", "z"], rng.randrange(3))}
        everything = leaves((args, named))
        numbers = [k for k, leaf in enumerate(everything) if type(leaf) in (int, float)]
        places = [k for k in numbers if rng.random() < 0.5]
        take = compile_flattener((*args, *named.values()), places)
        if take is None:
            continue
        wanted = program_arguments(places, args, named)
        found = take((*args, *named.values()))
        assert len(found) == len(wanted)
        assert all(one is other for one, other in zip(found, wanted, strict=True))
        for _ in range(6):
            other_args, other_named = others(rng, args, named)
            found = take((*other_args, *other_named.values()))
            # What is no array, or another kind of number, the program itself refuses.
            if found is None or list(map(type, found)) != list(map(type, wanted)):
                continue
            now = program_arguments(places, other_args, other_named)
            assert len(found) == len(now)
            assert all(one is other for one, other in zip(found, now, strict=True))
            free = {path for k, (path, _) in enumerate(paths((args, named))) if k in places}
            before, after = (
                {path: value for path, value in static_values(*given).items() if path not in free}
                for given in ((args, named), (other_args, other_named))
            )
            assert before == after
            seen += 1
    assert seen


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": X, "b": X + 1}, {"b": X + 1, "a": X}),
        ({1: X}, {True: X}),
        ({1: X}, {1.0: X}),
        ([X], (X,)),
        (Pair(X, 1), (X, 1)),
        (Record(X), Record(X, 1)),
        ((X, 0.0), (X, -0.0)),
        ((X, 1), (X, True)),
        ((X, None), (X, 0)),
        ((X, "a"), (X, b"a")),
        ((X, math.nan), (X, 1.0)),
        ({"a": X}, Mine(a=X)),
        ({"a": X}, OrderedDict(a=X)),
        ({"a": X}, defaultdict(list, a=X)),
        ((X, ()), (X, [])),
        ((X, math.sin), (X, math.cos)),
    ],
    ids=lambda v: type(v).__name__,
)
def test_structures_that_differ_are_told_apart(one: Any, other: Any) -> None:
    def fn(tree: Any, scale: float = 2.0) -> Any:
        arrays = [leaf for leaf in leaves(tree) if isinstance(leaf, np.ndarray)]
        return arrays[0] * scale, repr(tree)

    compiled = od.compile(fn)
    for tree in (one, one, one, other, other, other, one, other, one):
        for found, wanted in (
            (compiled(tree), fn(tree)),
            (compiled(tree, scale=3.0), fn(tree, scale=3.0)),
        ):
            np.testing.assert_array_equal(found[0], wanted[0])
            assert found[1] == wanted[1]


def step(batch: Any, state: Any, rate: float = 0.1, mode: str = "a") -> Any:
    m = 0.9 * state["m"] + rate * batch["x"]
    return {"m": m}, (m * batch["y"]).sum() if mode == "a" else m * 2.0


def test_trees_and_names_are_one_program_and_rates_its_inputs() -> None:
    compiled = od.compile(step, check=True)
    for k in range(40):
        batch, state = {"x": X * k, "y": X - k}, {"m": X + k}
        found = compiled(batch, state, rate=0.01 * k)
        wanted = step(batch, state, rate=0.01 * k)
        np.testing.assert_array_equal(found[0]["m"], wanted[0]["m"])
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-14)
    assert compiled.statistics() == (1, 39, 1)
    assert compiled({"x": X, "y": X}, {"m": X}, rate=0.1, mode="b")[1].shape == X.shape
    np.testing.assert_array_equal(
        compiled({"y": X, "x": 2 * X}, {"m": X}, mode="b", rate=0.5)[1],
        step({"y": X, "x": 2 * X}, {"m": X}, mode="b", rate=0.5)[1],
    )


def test_a_tree_of_numbers_behind_arrays_is_taken_apart() -> None:
    compiled = od.compile(lambda x, y, t, s: x * s.first + y * (1 - s.second**t))
    for k in range(1, 9):
        args = X, X + 1.0, k, Pair(0.1 * k, 0.9)
        np.testing.assert_array_equal(
            compiled(*args), X * (0.1 * k) + (X + 1.0) * (1 - 0.9**k), strict=True
        )
    assert compiled.statistics() == (1, 7, 1)
    native = compiled._fast_path(X, X + 1.0, 5, Pair(0.5, 0.9)) is not CACHE_MISS
    assert native is NATIVE_DISPATCH


def test_an_array_that_comes_twice_is_one() -> None:
    def fn(pair: Any, scale: float) -> Any:
        return pair["a"] * scale + (0.0 if pair["a"] is pair["b"] else 1.0) * pair["b"]

    compiled = od.compile(fn)
    other = X + 1.0
    for k, second in enumerate([other, other, X, X, other, X, other]):
        pair = {"a": X, "b": second}
        np.testing.assert_array_equal(compiled(pair, 0.5 * k), fn(pair, 0.5 * k))
        np.testing.assert_array_equal(compiled(pair, scale=0.5), fn(pair, scale=0.5))


class Net:
    def __init__(self) -> None:
        self.w = Variable(X.copy(), requires_grad=True, name="w")
        self.scale = 2.0

    @od.compile
    def forward(self, x: Any, rate: float) -> Any:
        return self.w * x * self.scale * rate


def test_methods_are_of_their_object_and_what_it_holds_is_watched() -> None:
    one, two = Net(), Net()
    two.scale = 3.0
    for k in range(12):
        one.scale = 2.0 if k < 6 else 5.0
        for net in (one, two):
            found = net.forward(X, 0.1 * k)
            np.testing.assert_array_equal(found.numpy(), X * X * net.scale * (0.1 * k))


def test_within_tapes_and_pauses_calls_are_as_written() -> None:
    w = Variable(X.copy(), requires_grad=True)
    compiled = od.compile(lambda tree, rate=1.0: w * tree["x"] * rate)
    tree = {"x": X}
    for _ in range(3):
        compiled(tree, rate=0.5)
    with od.GradientTape() as tape:
        loss = compiled(tree, rate=0.5).sum()
    np.testing.assert_allclose(tape.gradient(loss, w), 0.5 * X)


class Odd:
    """Looks like a record, and refuses to be read."""

    def __init__(self, x: Any) -> None:
        self._x, self.calm = x, True

    @property
    def near(self) -> Any:
        if not self.calm:
            raise RuntimeError("not now")
        return self._x

    far = 1.0


def test_what_raises_when_it_is_read_raises_for_the_function() -> None:
    compiled = od.compile(lambda tree, rate=1.0: tree.near * rate)
    odd = Odd(X)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(odd, rate=0.5), 0.5 * X)
    odd.calm = False
    with pytest.raises(RuntimeError, match="not now"):
        compiled(odd, rate=0.5)


def test_calls_leave_nothing_behind() -> None:
    compiled = od.compile(lambda tree, rate=1.0: tree["x"] * rate)
    tree = {"x": np.ones(5)}
    for k in range(3):
        compiled(tree, rate=0.1 * k)
    array = np.ones(5)
    gone = weakref.ref(array)
    compiled({"x": array}, rate=0.5)
    del array
    gc.collect()
    assert gone() is None
    made = weakref.ref(compiled)
    del compiled
    gc.collect()
    assert made() is None


def test_clearing_closes_the_doors() -> None:
    compiled = od.compile(lambda tree, rate=1.0: tree["x"] * rate)
    for k in range(3):
        compiled({"x": X}, rate=0.1 * k)
    compiled.clear_cache()
    before = compiled.statistics()
    compiled({"x": X}, rate=0.1)
    assert compiled.statistics().written == before.written + 1

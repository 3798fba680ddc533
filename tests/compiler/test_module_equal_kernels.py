"""Kernels that differ in where they read are one function: loops written out compile quickly."""

import re

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops

RNG = np.random.default_rng(5)
STEPS = 24
X = RNG.normal(size=(STEPS, 6, 8))
W = RNG.normal(size=(8, 8)) / 8  # what goes on for long forgets how it was rounded


def walk(x):
    h = x[0]
    for t in range(1, STEPS):
        h = ops.tanh(x[t] + h * 0.5)
    return h


def products(x):
    return sum(ops.matmul(x[t], W) for t in range(STEPS))


def folds(x):
    return ops.stack([x[t].sum(axis=1) for t in range(STEPS)])


def scans(x):
    return ops.stack([ops.cumprod(x[t], axis=0) for t in range(STEPS)])


def gathers(x):
    return ops.stack([ops.take(x[t], np.array([1, 1, -1]), axis=0) for t in range(STEPS)])


def elements(x):
    return ops.stack([x[t, 2, 3] * x[t] for t in range(STEPS)])


def backwards(x):
    return sum(x[t, ::-1, 1::2] * 2.0 for t in range(STEPS))


def halves(x):
    return ops.stack([x[t, :3] * x[t, 3:] for t in range(STEPS)])


def written(x):
    return ops.concatenate([ops.sin(x[t]) for t in range(STEPS)])


FUNCTIONS = [walk, products, folds, scans, gathers, elements, backwards, halves, written]


def gradient(fn):
    def run(x):
        leaf = Variable(x, requires_grad=True)
        with GradientTape() as tape:
            loss = ops.sum(fn(leaf) ** 2)
        return tape.gradient(loss, leaf)

    return run


def kernels_in(compiled, *args):
    return len(re.findall(r"define internal void @k\d+\(", compiled.code(*args)))


@pytest.mark.slow
@pytest.mark.share(1)
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("of", [lambda fn: fn, gradient], ids=["values", "gradients"])
@pytest.mark.parametrize("fn", FUNCTIONS, ids=[fn.__name__ for fn in FUNCTIONS])
def test_steps_at_other_places_are_one_function(fn, of, dtype):
    x = X.astype(dtype)
    fn = of(fn)
    compiled = od.compile(fn, check=True)
    for _ in range(3):
        found = np.asarray(compiled(x))
    assert compiled.statistics().native
    bound = {"float64": 1e-12, "float32": 2e-5, "float16": 2e-1}[dtype]
    np.testing.assert_allclose(found, np.asarray(fn(x)), rtol=bound, atol=bound)
    assert kernels_in(compiled, x) <= STEPS // 2


def test_where_an_array_begins_is_no_matter():
    """States and arguments are read at an offset too, and so is what is written to a state."""
    w, x = Variable(np.zeros((STEPS, 6)), requires_grad=True), X[..., 0]

    def step(x):
        with GradientTape() as tape:
            loss = sum(((w[t] - x[t]) ** 2).sum() for t in range(STEPS))
        w.assign(w - 0.25 * tape.gradient(loss, w))
        return loss

    compiled, wanted = od.compile(step), np.zeros((STEPS, 6))
    for _ in range(6):
        loss = compiled(x)
        np.testing.assert_allclose(loss.item(), ((wanted - x) ** 2).sum(), rtol=1e-12)
        wanted -= 0.5 * (wanted - x)
    np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-12)
    assert compiled.statistics().native


@pytest.mark.slow
def test_a_long_program_is_several_functions_of_linear_length():
    many = 400

    def fn(x):
        for k in range(many):
            x = ops.sin(x @ W) + float(k % 3)
        return x

    x = RNG.normal(size=(6, 8))
    compiled = od.compile(fn)
    for _ in range(3):
        found = compiled(x)
    np.testing.assert_allclose(found, fn(x), rtol=1e-9)
    text = compiled.code(x)
    longest = max(len(part.split("\n")) for part in text.split("\n}\n"))
    assert len(re.findall(r"define internal i64 @part\d+\(", text)) >= 3
    assert longest < many


@pytest.mark.slow
def test_a_check_within_a_part_stops_the_whole():
    def fn(x, index):
        for _ in range(150):
            x = ops.sin(x @ W)
        x = ops.take(x, index, axis=0)
        for _ in range(150):
            x = ops.sin(x @ W)
        return x

    x, index = RNG.normal(size=(6, 8)), np.array([0, 5])
    compiled = od.compile(fn)
    for _ in range(3):
        np.testing.assert_allclose(compiled(x, index), fn(x, index), rtol=1e-9)
    assert compiled.statistics().native
    with pytest.raises(IndexError, match="6"):
        compiled(x, np.array([0, 6]))
    np.testing.assert_allclose(compiled(x, index), fn(x, index), rtol=1e-9)


@pytest.mark.slow
def test_a_long_program_for_all_sizes_is_several_functions_too():
    def fn(x):
        w = Variable(W, requires_grad=True)
        with GradientTape() as tape:
            h = x
            for k in range(60):
                h = ops.sin(h @ w) + x[:1] * float(k % 3)
            loss = ops.sum(h * h)
        return tape.gradient(loss, w)

    compiled = od.compile(fn, dynamic={"x": {0: od.Dim("rows", 2, 4096)}}, check=True)
    for rows in (5, 9, 40, 7, 5):
        x = RNG.normal(size=(rows, 8))
        np.testing.assert_allclose(compiled(x), np.asarray(fn(x)), rtol=1e-9, atol=1e-9)
    assert compiled.statistics().programs == 1
    assert "@part0(" in compiled.code(x)

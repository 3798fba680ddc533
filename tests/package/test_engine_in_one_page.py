"""The essay ``docs/engine_in_one_page.py`` computes what odyssey computes."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

import odyssey as od

ESSAY = Path(__file__).resolve().parents[2] / "docs" / "engine_in_one_page.py"


def load_essay():
    spec = importlib.util.spec_from_file_location("engine_in_one_page", ESSAY)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


essay = load_essay()


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 1.5, shape) for shape in shapes]


# Functions of a module of ops and arrays, which are scalar; with the shapes of the arrays.
PROGRAMS = {
    "a polynomial": (lambda m, x: m.sum(x * x * x + x * 2.0), [(3,)]),
    "operands that are used twice": (lambda m, x, y: m.sum((x + y) * (x * y) / y), [(2, 3)] * 2),
    "broadcast operands": (lambda m, x, y: m.sum(m.exp(x * y) + y), [(3, 1), (4,)]),
    "a scalar among matrices": (lambda m, x, y: m.sum(m.log(x) / y), [(2, 2), ()]),
    "matrix products": (lambda m, x, y: m.sum(m.sin(x @ y) @ m.transpose(y)), [(2, 3), (3, 4)]),
    "a network": (
        lambda m, x, w, b, v: m.sum((m.exp(x @ w + b) / (m.exp(x @ w + b) + 1.0)) @ v),
        [(5, 3), (3, 4), (4,), (4, 1)],
    ),
    "an operand that is not used": (lambda m, x, y: m.sum(m.cos(x)), [(3,), (2,)]),
}
programs = pytest.mark.parametrize(("program", "shapes"), PROGRAMS.values(), ids=PROGRAMS)


@programs
def test_the_gradients_of_the_essay_are_those_of_odyssey(program, shapes):
    points = arrays(*shapes)
    theirs = [od.Variable(x, requires_grad=True) for x in points]
    with od.GradientTape() as tape:
        y = program(od.ops, *theirs)
    expected = tape.gradient(y, theirs, unused="zero")
    ours = [essay.Variable(x, requires_grad=True) for x in points]
    with essay.Tape() as tape:
        y = program(essay, *ours)
    for got, want in zip(tape.gradient(y, ours), expected, strict=True):
        np.testing.assert_allclose(got.data, want, rtol=1e-12)


@programs
def test_gradients_of_gradients_nest_as_in_odyssey(program, shapes):
    first, *others = arrays(*shapes)

    def squared_slope(module, grad):
        def slope(x):
            g = grad(lambda x: program(module, x, *others))(x)
            return module.sum(g * g)

        return grad(slope)

    got = squared_slope(essay, essay.grad)(first).data
    np.testing.assert_allclose(got, squared_slope(od.ops, od.grad)(first), rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_derivatives_of_any_order_are_those_of_odyssey(order):
    mine, theirs = essay.sin, od.ops.sin
    for _ in range(order):
        mine, theirs = essay.grad(mine), od.grad(theirs)
    np.testing.assert_allclose(mine(1.0).data, theirs(1.0), rtol=1e-12)


def test_an_intermediate_result_may_be_a_source():
    x = essay.Variable(2.0, requires_grad=True)
    with essay.Tape() as tape:
        square = x * x
        y = square * square
    assert [g.data for g in tape.gradient(y, [square, x])] == [8.0, 32.0]


def test_a_node_saves_only_what_its_rules_name():
    x = essay.Variable(2.0, requires_grad=True)
    with essay.Tape() as tape:
        essay.exp(x + 1.0) * 3.0
    assert [list(node.saved) for node in tape.nodes] == [[], ["out"], ["y"]]

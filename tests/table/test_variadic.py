"""Ops of any number of operands: declared once, a row for each number, called on a sequence."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.ops import OPS, PASS
from odyssey.spec import Spec

X, Y, Z = np.array([1.0, -2.0]), np.array([0.5, 3.0]), np.array([2.0, 4.0])


def leaf(value):
    return Variable(value, requires_grad=True)


def products(**extra):
    """Elementwise product of any number of arrays of one shape, to a power."""

    def others(g, place, arrays, power):
        for k, x in enumerate(arrays):
            g = ops.mul(g, x if k != place and power == 1 else 1.0)
        return g

    @od.op(
        variadic="arrays",
        infer=lambda *given: given[0],
        vjp={"arrays": others},
        jvp={"arrays": others},
        **extra,
    )
    def product(arrays, /, power=1):
        return np.prod([np.asarray(x) for x in arrays], axis=0) ** power

    return product


# ------------------------------------------------------------------ calls


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_each_operand_has_its_gradient_by_its_place(count):
    product = products()
    arrays = [X, Y, Z, X + 5, Y - 4][:count]
    np.testing.assert_allclose(product(arrays), np.prod(arrays, axis=0))
    leaves = [leaf(x) for x in arrays]
    with GradientTape(persistent=True) as tape:
        y = product(leaves)
    assert [node.op for node in tape.nodes] == ["product"]
    gradients = tape.gradient(y, leaves, np.ones(2))
    for k, g in enumerate(gradients):
        np.testing.assert_allclose(g, np.prod(arrays[:k] + arrays[k + 1 :], axis=0))
    od.testing.check_gradients(lambda *a: product(a), *arrays)


def test_operands_come_in_a_sequence_or_one_by_one_and_options_behind_them():
    product = products()
    for got in (product([X, Y]), product((X, Y), 1), product(X, Y), product(X, Y, power=1)):
        np.testing.assert_array_equal(got, X * Y)
    np.testing.assert_array_equal(product([X, Y], 2), (X * Y) ** 2)
    np.testing.assert_array_equal(product(arrays=[X, Y], power=2), (X * Y) ** 2)
    np.testing.assert_array_equal(product([2.0, 3.0]), 6.0)
    tape = GradientTape()
    tape.enable()
    assert product([leaf(X), Y], tape=tape).tape is tape


def test_constants_among_the_operands_have_no_gradient_and_only_what_is_asked_for_is_kept():
    w = leaf(X)
    with GradientTape() as tape:
        joined = ops.concatenate([Y, w, Z])
        y = products()([w, Y])
    first, second = tape.nodes
    assert [k for k in first.saved if k.startswith("x")] == []
    assert [k for k in second.saved if k.startswith("x")] == ["x0", "x1"]
    assert first.inputs[::2] == (None, None)
    np.testing.assert_array_equal(
        tape.gradient((joined, y), w, (np.arange(6.0), X)), [2 + Y[0], 3 - 2 * 3.0]
    )


def test_a_rule_that_passes_serves_all_operands():
    @od.op(variadic="parts", infer=lambda *s: s[0], vjp={"parts": PASS}, jvp={"parts": PASS})
    def total(parts, /):
        return np.add.reduce(parts)

    leaves = [leaf(X), leaf(Y), leaf(Z)]
    with GradientTape() as tape:
        y = total(leaves)
    for g in tape.gradient(y, leaves, X):
        np.testing.assert_array_equal(g, X)


# ------------------------------------------------------------------ rows


def test_the_row_of_two_stands_in_the_table_and_finds_the_others():
    row = OPS["concatenate"]
    assert row.with_arity(2) is row
    assert row.with_arity(3) is row.with_arity(3)
    assert [len(row.with_arity(k).arrays) for k in (1, 2, 7)] == [1, 2, 7]
    assert {row.with_arity(k).call for k in (1, 2, 7)} == {ops.concatenate}
    assert not row.with_arity(3).foreign
    assert ops.concatenate.row is row


def test_bunches_give_what_one_call_would_and_their_gradients():
    parts = [np.full((2, k % 3), float(k)) for k in range(100)]
    leaves = [leaf(p) for p in parts]
    for axis in (1, None):
        with GradientTape() as tape:
            y = ops.concatenate(leaves, axis)
        assert {len(node.inputs) for node in tape.nodes} <= {32, 4}
        np.testing.assert_array_equal(y.numpy(), np.concatenate(parts, axis))
        c = np.arange(y.size, dtype=float).reshape(y.shape)
        for g, wanted in zip(tape.gradient(y, leaves, c), _split_like(c, parts, axis), strict=True):
            np.testing.assert_array_equal(g, wanted)


def _split_like(c, parts, axis):
    if axis is None:
        ends = np.cumsum([p.size for p in parts])[:-1]
        return [g.reshape(p.shape) for g, p in zip(np.split(c, ends), parts, strict=True)]
    return np.split(c, np.cumsum([p.shape[1] for p in parts])[:-1], axis=1)


@pytest.mark.slow
def test_rows_for_thousands_of_numbers_are_not_kept():
    product = products()
    for count in range(1, 100):
        product([X] * count)
    assert len(product.row.with_arity._made) <= 64
    assert product.row.with_arity(2) is product.row


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda f: f([]), ShapeError, "^product: no arrays came; pass one or more"),
        (lambda f: f(), ShapeError, "^product: no arrays came"),
        (lambda f: f(3.0), DTypeError, "^product: 3.0 came; pass a list of arrays"),
        (lambda f: f(None), DTypeError, "^product: None came; pass a list of arrays"),
        (lambda f: f([X, "text"]), DTypeError, "^product: x1"),
        (lambda f: f([X, None]), DTypeError, "^product: x1"),
        (lambda f: f([X], dtype=float), DTypeError, r"^product: .*'dtype'.*signature is product"),
    ],
)
def test_calls_that_cannot_be_meant_are_refused(call, error, match):
    with pytest.raises(error, match=match):
        call(products())


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"variadic": "parts"}, "op several: variadic='parts'; it must be the only array"),
        ({"variadic": "arrays", "results": ("a", "b")}, "op several: variadic='arrays'; it must"),
        ({"vjp": {"x0": PASS}}, "the rule of 'x0' names x0; known are"),
        ({"vjp": {"arrays": lambda g, x1: g}}, None),
        ({"vjp": {"arrays": lambda g, other: g}}, "the rule of 'arrays' names other; known are"),
        (
            {"vjp": {"arrays": lambda g: g}, "jvp": {"arrays": lambda t, arrays: t}},
            "the forward rule of 'x0' asks for x0, x1, which its reverse rule does not keep",
        ),
    ],
)
def test_declarations_that_cannot_be_meant_are_refused(given, match):
    def declare():
        @od.op(**{"variadic": "arrays", "infer": lambda *s: s[0], **given})
        def several(arrays, /, axis=0):
            return np.concatenate(arrays, axis)

    if match is None:
        declare()
        return
    with pytest.raises(OdysseyError, match=match):
        declare()


def test_an_op_with_other_array_parameters_is_not_variadic():
    with pytest.raises(OdysseyError, match="it must be the only array parameter"):

        @od.op(variadic="arrays")
        def several(arrays, y, /):
            return y


def test_a_graph_holds_one_instruction_for_each_bunch():
    graph = od.compile(lambda x: ops.concatenate([x, x, x])).lower(X).graph
    assert "concatenate(%0, %0, %0, axis=0)" in str(graph)
    assert Spec((6,), np.dtype(float)) in graph.instructions[0].specs

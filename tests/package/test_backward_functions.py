"""Backward functions by hand: of operands that are absent, and of ops declared outside."""

import gc

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError, TapeError

RNG = np.random.default_rng(0)
G, X, W, B = (RNG.normal(size=shape) for shape in [(2, 4), (2, 3), (4, 3), (4,)])


# ------------------------------------------------------------------ operands that are absent


@pytest.mark.parametrize(
    "call",
    [
        lambda: od.backward.linear(G, X, W, None),
        lambda: od.backward.linear(G, X, W),
        lambda: od.backward.linear(G, X, W, bias=None),
        lambda: od.backward.linear(G, x=X, weight=W, bias=None, bias_spec=None),
    ],
    ids=["by position", "left out", "by name", "all by name"],
)
def test_the_gradient_of_an_absent_operand_is_none(call):
    g_x, g_w, g_b = call()
    np.testing.assert_allclose(g_x, G @ W, rtol=1e-15)
    np.testing.assert_allclose(g_w, G.T @ X, rtol=1e-15)
    assert g_b is None


@pytest.mark.parametrize("by", ["value", "spec"])
def test_the_gradient_of_an_operand_that_may_be_absent_has_its_shape_where_it_is_there(by):
    given = {"bias": B} if by == "value" else {"bias_spec": od.spec.spec_of(B)}
    _, _, g_b = od.backward.linear(G, X, W, **given)
    np.testing.assert_allclose(g_b, G.sum(0), rtol=1e-15)


def test_an_absent_operand_that_a_rule_asks_for_comes_to_it_as_none():
    @od.op(
        vjp={
            "x": lambda g, weight: g if weight is None else ops.mul(g, weight),
            "weight": lambda g, x: ops.mul(g, x),
        },
    )
    def scaled(x, weight=None, /):
        return x * 1.0 if weight is None else x * weight

    for given in [(2.0, 3.0), (2.0, 3.0, None)]:
        g_x, g_weight = od.backward.scaled(*given)
        assert (float(g_x), g_weight) == (2.0, None)
    g_x, g_weight = od.backward.scaled(2.0, 3.0, 5.0)
    assert (float(g_x), float(g_weight)) == (10.0, 6.0)


@pytest.mark.parametrize("name", ["x", "weight"])
def test_none_for_an_operand_that_must_be_there_is_refused_by_name(name):
    given = {"x": X, "weight": W} | {name: None}
    with pytest.raises(DTypeError, match=rf"backward\.linear: {name} is a NoneType"):
        od.backward.linear(G, **given)


# ------------------------------------------------------------------ ops from outside


def declared(name, factor, **named):
    def function(x, /):
        return factor * x

    function.__name__ = name
    return od.op(vjp={"x": lambda g: ops.mul(g, factor)}, **named)(function)


def test_an_op_from_outside_has_its_backward_function_by_its_name_and_its_short_names():
    op = declared("tripled", 3.0, aliases=["three_times"])
    assert float(od.backward.tripled(2.0)) == float(od.backward.three_times(2.0)) == 6.0
    assert od.backward.tripled.__name__ == "tripled"
    assert "tripled" not in od.backward.TABLE
    assert op.row.name not in ops.OPS


def test_of_two_ops_of_one_name_the_later_one_is_meant():
    first = declared("scaled_twice", 3.0)
    second = declared("scaled_twice", 5.0)
    assert float(od.backward.scaled_twice(1.0)) == 5.0
    del first
    gc.collect()
    assert float(od.backward.scaled_twice(1.0)) == 5.0
    del second


def test_an_op_that_its_owner_has_dropped_has_no_function_any_more():
    op = declared("short_lived", 3.0)
    function = od.backward.short_lived
    del op
    gc.collect()
    assert float(function(1.0)) == 3.0  # what was taken of it stays
    del function
    gc.collect()
    with pytest.raises(AttributeError, match="has no function 'short_lived'"):
        _ = od.backward.short_lived


def test_an_op_of_the_table_goes_before_one_of_the_same_name_from_outside():
    op = declared("exp", 100.0, aliases=["mul"])
    assert float(od.backward.exp(1.0, 7.0)) == 7.0
    assert od.backward.mul is od.backward.multiply
    assert float(op(1.0)) == 100.0


def test_an_op_from_outside_without_rules_is_refused_by_name():
    @od.op()
    def without_rules(x, /):
        return x * 1.0

    with pytest.raises(AttributeError, match="'without_rules' was declared without rules"):
        _ = od.backward.without_rules
    assert float(without_rules(1.0)) == 1.0


def test_what_a_rule_from_outside_gives_is_checked_as_in_a_sweep():
    @od.op(elementwise=True, vjp={"x": lambda g, x: np.ones(5), "y": lambda g: g})
    def faulty_rules(x, y, /):
        return x + y

    with pytest.raises(ShapeError, match=r"faulty_rules: the rule of x gave .*\(5,\)"):
        od.backward.faulty_rules(np.ones(2), np.ones(2))

    @od.op(elementwise=True, vjp={"x": lambda g, x: None})
    def nothing(x, /):
        return x * 1.0

    with pytest.raises(DTypeError, match="nothing: the rule of x: the result is"):
        od.backward.nothing(np.ones(2), np.ones(2))


def test_an_alias_of_an_op_from_outside_is_text():
    with pytest.raises(DTypeError, match=r"op named_badly: aliases: name=\[1\] is not text"):
        declared("named_badly", 1.0, aliases=[[1]])


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_the_sum_of_gradients_without_axes_is_an_array_that_can_be_written_to(dtype):
    w = Variable(np.array(2, dtype), requires_grad=True)
    for times in (1, 2, 3):
        with GradientTape() as tape:
            loss = np.real(w * 3)
        tape.backward(loss)
        assert type(w.grad) is np.ndarray
        assert w.grad == 3 * times
    w.grad[...] = 0
    assert w.grad == 0


# ------------------------------------------------------------------ compiled


SLOPES = {
    "arrays": lambda x, y: od.backward.multiply(1.0, x, y),
    "a cotangent": lambda x, y: od.backward.exp(y, out=x),
    "complex": lambda x, y: od.backward.multiply(1j * y, x + 1j, y),
    "constants": lambda x, y: od.backward.multiply(y, FROZEN, x),
    "the same by name": lambda x, y: od.backward.TABLE["tanh"](x, out=y),
    "a parameter": lambda x, y: od.backward.multiply(y, TRAINED, x),
    "several results": lambda x, y: od.backward.qr_factors(None, y.T @ y, x, y.T @ x),
}
FROZEN = Variable(np.arange(12.0).reshape(4, 3))
TRAINED = Variable(np.arange(12.0).reshape(4, 3), requires_grad=True)


@pytest.mark.parametrize("fn", SLOPES.values(), ids=SLOPES)
def test_backward_functions_are_parts_of_programs(fn):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    compiled = od.compile(fn)
    for _ in range(3):
        found, wanted = compiled(x, y), fn(x, y)
        assert type(found) is type(wanted)
        for one, other in zip(np.atleast_1d(found), np.atleast_1d(wanted), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
            assert one.dtype == other.dtype
    assert compiled.statistics().native == 2


def test_backward_functions_compiled_refuse_what_a_tape_follows_as_they_do_eagerly():
    leaf = Variable(np.ones(2), requires_grad=True)

    def followed(x):
        with GradientTape() as tape:
            found = od.backward.exp(x, out=leaf * x)
        tape.clear()
        return found

    compiled = od.compile(followed)
    for one in (followed, compiled, compiled, compiled):
        with pytest.raises(TapeError):
            one(np.ones(2))

"""Rules that are made from what a row equals."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import NotDifferentiableError, OdysseyError
from odyssey.spec import Spec
from odyssey.table.derived_rules import derive_rules
from odyssey.testing import check_gradients


def in_ops(g, x, weight, /, axis):
    centred = ops.sub(x, ops.mean(x, axis, keepdims=True))
    size = ops.exp(ops.sum(ops.mul(centred, centred), axis, keepdims=True))
    scaled = g if weight is None else ops.mul(g, weight)
    return ops.mul(scaled, ops.add(size, ops.mul(2.0, centred)))


@od.op(
    decomposition=in_ops, **derive_rules(in_ops), infer=lambda g, x, w, axis: Spec(x.shape, x.dtype)
)
def stretched(g, x, weight=None, /, axis=-1):
    centred = x - x.mean(axis, keepdims=True)
    size = np.exp((centred * centred).sum(axis, keepdims=True))
    return (g if weight is None else g * weight) * (size + 2.0 * centred)


@pytest.mark.parametrize("weighted", [True, False], ids=["weighted", "bare"])
def test_derived_rules_pass_the_check_of_gradients_in_both_modes_and_two_orders(weighted):
    rng = np.random.default_rng(0)
    g, x, w = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)) * 0.3, rng.normal(size=4)
    seed = np.arange(12.0).reshape(3, 4)
    args = (g, x, w) if weighted else (g, x)
    check_gradients(lambda *args: ops.sum(stretched(*args) * seed), *args)


def test_derived_rules_are_traced():
    rng = np.random.default_rng(1)
    g, x = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)) * 0.3
    slope = od.grad(lambda x: ops.sum(stretched(g, x, axis=0) * g))
    np.testing.assert_array_equal(od.compile(slope)(x), slope(x))


def test_what_does_not_depend_on_an_operand_has_zeros():
    def first(x, y, /):
        return ops.mul(x, 2.0)

    rules = derive_rules(first)
    np.testing.assert_array_equal(rules["vjp"]["y"](np.ones(3), np.ones(3), np.ones(3)), 0)
    np.testing.assert_array_equal(rules["jvp"]["y"](np.ones(3), np.ones(3), np.ones(3)), 0)
    np.testing.assert_array_equal(rules["vjp"]["x"](np.ones(3), np.ones(3), np.ones(3)), 2)


def test_operands_are_named_where_nothing_tells_them_and_several_results_are_refused():
    with pytest.raises(OdysseyError, match="derive_rules: <lambda> takes"):
        derive_rules(lambda x: x)
    split = derive_rules(lambda x, /: ops.eigh(x)[0])
    with pytest.raises(OdysseyError, match="eigh: has several results"):
        split["vjp"]["x"](np.ones(2), np.eye(2))


def test_a_step_without_a_rule_is_named():
    rule = derive_rules(lambda x, /: ops.sum(ops.argmax(x, 0)))["vjp"]["x"]
    with pytest.raises(NotDifferentiableError, match="argmax"):
        rule(np.ones(()), np.ones((2, 2)))

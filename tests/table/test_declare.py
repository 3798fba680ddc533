"""Mistakes in declaring an op are told by its name, in the package as outside of it."""

import sys
from types import ModuleType

import numpy as np
import pytest

import odyssey as od
from odyssey.errors import DTypeError, OdysseyError
from odyssey.table import declare, registry
from odyssey.table.kernel_selection import Kernel
from odyssey.table.samples import sample
from support.cases import lacking, samples_of

TEXT = """
@op(**given)
def trialop(x, /):
    '''Third power.'''
    return x * x * x
"""


@pytest.fixture(params=["odyssey.somewhere", "elsewhere"], ids=["ours", "from outside"])
def declared(request, monkeypatch):
    """Declare an op of one operand, in a family of the package or outside of it."""
    monkeypatch.setattr(registry, "OP_MODULES", registry.OP_MODULES | {"odyssey.somewhere"})

    def make(text=TEXT, **given):
        module = ModuleType(request.param)
        monkeypatch.setitem(sys.modules, request.param, module)
        space = vars(module)
        space |= {"op": declare.op, "given": given}
        exec(text, space)
        assert space["trialop"].row.foreign == (request.param == "elsewhere")
        return space["trialop"]

    return make


def rule(g, x):
    return g * x


MISTAKES = {
    "a function for rules": (
        {"vjp": rule},
        "op trialop: vjp=<function .*; pass a dictionary of rules",
    ),
    "a tuple of rules": (
        {"vjp": (rule,)},
        "op trialop: vjp=.*; pass a dictionary of rules by array",
    ),
    "a list of forward rules": ({"jvp": [rule]}, "op trialop: jvp=.*; pass a dictionary of rules"),
    "a rule that is a number": ({"vjp": {"x": 3}}, "op trialop: vjp.'x'.: 3 cannot be called"),
    "a number for samples": ({"samples": 3}, "op trialop: samples=3; pass a list"),
    "a number for kernels": ({"kernels": 3}, "op trialop: kernels=3; pass a list of Kernel"),
    "an option that there is not": (
        {"kernels": [Kernel("it", np.sin, together=("operand", dict))]},
        "op trialop: together='operand' of a kernel; name an option",
    ),
    "a rule of nothing": (
        {"vjp": {"x": lambda: 0}},
        "op trialop: the rule of 'x' takes nothing; it must take the cotangent first",
    ),
    "a forward rule of nothing": (
        {"vjp": {"x": rule}, "jvp": {"x": lambda *, x: x}},
        "op trialop: the rule of 'x' takes nothing; it must take the tangent first",
    ),
    "a rule of nothing of what was chosen": (
        {"vjp": {"x": rule}, "selects": {"x": lambda: 1}},
        "op trialop: the rule of what was chosen of 'x' takes nothing",
    ),
}


@pytest.mark.share(1)
@pytest.mark.parametrize(("given", "match"), MISTAKES.values(), ids=list(MISTAKES))
def test_a_declaration_that_cannot_be_meant_is_refused_in_words(declared, given, match):
    with pytest.raises(OdysseyError, match=f"^{match}"):
        declared(elementwise=True, **given)


def test_a_rule_may_take_all_in_a_tuple(declared):
    op = declared(elementwise=True, vjp={"x": lambda *given: 2.0 * given[0]})
    assert od.backward._backward_of(op.row)(np.ones(2)).tolist() == [2.0, 2.0]


RESULTS = {"a pair": lambda g, x: (g, x), "a list": lambda g, x: [g, x], "None": lambda g, x: None}


@pytest.mark.parametrize("rule", RESULTS.values(), ids=list(RESULTS))
def test_a_backward_function_says_whose_rule_gave_no_array(declared, rule):
    op = declared(elementwise=True, vjp={"x": rule})
    with pytest.raises(DTypeError, match="trialop: the rule of x: the result is a"):
        od.backward._backward_of(op.row)(np.ones(2), np.ones(2))


# ------------------------------------------------------------------ what the walks ask for

UNFIT = {
    "none": ((), r"^op trialop: give samples, in its @op\(\.\.\.\)"),
    "of two operands": (
        [sample((2, 3)), sample((2, 3), (3,))],
        r"^op trialop: samples\[1\] has 2 operands; it takes 1: x",
    ),
    "one, in no list": (sample((2, 3)), r"^op trialop: samples\[0\] is \(\(2, 3\),\); write sam"),
    "a shape": ([(2, 3)], r"^op trialop: samples\[0\] is \(2, 3\); write samples=\[sample"),
}


@pytest.mark.parametrize(("samples", "match"), UNFIT.values(), ids=list(UNFIT))
def test_samples_that_do_not_fit_their_row_are_told_by_its_name(declared, samples, match):
    with pytest.raises(AssertionError, match=match):
        samples_of(declared(elementwise=True, samples=samples).row)


def test_what_a_row_does_not_say_of_itself_is_told_by_its_name(declared):
    bare = declared(TEXT.replace("Third power.", " "), elementwise=True).row
    assert lacking(bare) == "op trialop: give a docstring"
    assert lacking(declared(elementwise=True).row) == (
        "op trialop: say what it means to a compiler: scalar=, decomposition= or primitive="
    )
    assert not lacking(declared(elementwise=True, scalar=lambda x: x * x * x).row)

"""Walks the table: what every row claims is true on every one of its samples."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import OdysseyError
from odyssey.ops import OPS, Symbol
from odyssey.spec import spec_of
from odyssey.table.declare import PASS, rule_arguments
from odyssey.table.result_checks import check_rule
from support.cases import (
    CASES,
    SEVERAL,
    SMOOTH,
    Graph,
    assert_same,
    assert_transposed,
    by_numpy,
    derive,
    derive_sample,
    draw,
    every_differentiable_sample,
    every_row,
    every_sample,
    lacking,
    random_like,
    tracked,
    walk,
)
from support.together import together

REJECTS = {f"{row.name}-{k}": (row, r) for row in OPS.values() for k, r in enumerate(row.rejects)}
DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "int32", "int64", "bool"]
CALLED_LIKE_NUMPY = {
    name: case for name, case in CASES.items() if case[0].ufunc is not None or case[0].numpy
}


def bound(row, sample, dtype=np.float64):
    """Operands and complete options of a sample."""
    operands = draw(sample, dtype)
    return operands, row.bind_arguments(operands, sample.options)[1]


def specs_of(operands):
    """Of an operand that is left out, None."""
    return [None if x is None else spec_of(np.asarray(x)) for x in operands]


# ------------------------------------------------------------------ meaning


@every_sample
def test_kernel_equals_reference(row, sample):
    operands, options = bound(row, sample)
    assert_same(row.kernel(*operands, *options), row.reference(*operands, *options))


@walk(CALLED_LIKE_NUMPY)
@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")
def test_values_are_those_of_the_numpy_function_bit_for_bit(row, sample):
    operands = draw(sample)
    positions = tracked(row, sample)
    for function in (*row.numpy, *([row.ufunc] if row.ufunc else [])):
        wanted = by_numpy(function, operands, sample.options)
        assert_same(row.call(*operands, **sample.options), wanted)
        if positions:
            call = lambda *given: row.call(*given, **sample.options)  # noqa: E731
            assert_same(derive(call, operands, positions).value, wanted)


@walk(CALLED_LIKE_NUMPY)
@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated")
def test_the_numpy_function_on_a_variable_is_the_op(row, sample):
    operands = draw(sample)
    for function in (*row.numpy, *([row.ufunc] if row.ufunc else [])):
        leaves = [Variable(x, requires_grad=x.dtype.kind == "f") for x in operands]
        with GradientTape() as tape:
            out = by_numpy(function, leaves, sample.options)
        assert isinstance(out, Variable)
        assert_same(out.numpy(), by_numpy(function, operands, sample.options))
        # What rounds is recorded as well, so that differentiating through it raises.
        assert [node.op for node in tape.nodes] == ([row.name] if out.dtype.kind in "fc" else [])


@together("dtype", DTYPES)
@every_sample
def test_the_spec_is_predicted_wherever_the_kernel_computes(row, sample, dtype):
    operands, options = bound(row, sample, dtype)
    try:
        with np.errstate(all="ignore"):
            actual = row.call(*operands, **sample.options)
    except (OdysseyError, ValueError):
        assert dtype not in ("float32", "float64")
        return
    assert row.infer(*specs_of(operands), *options) == spec_of(np.asarray(actual))


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "complex64", "complex128", "int32", "bool"]
)
@walk(SEVERAL)
def test_the_specs_of_several_results_are_predicted_wherever_the_kernel_computes(
    row, sample, dtype
):
    operands, options = bound(row, sample, dtype)
    made = row.call(*operands, **sample.options)
    assert row.infer(*specs_of(operands), *options) == tuple(map(spec_of, made))


@pytest.mark.parametrize(("row", "case"), REJECTS.values(), ids=list(REJECTS))
def test_what_must_be_refused_is_refused_in_words(row, case):
    operands = [np.zeros(o) if isinstance(o, tuple) else o for o in case.operands]
    with pytest.raises(case.error, match=f"^[a-z0-9_]+: .*{case.match}"):
        row.call(*operands, **case.options)


@pytest.mark.parametrize(("row", "case"), REJECTS.values(), ids=list(REJECTS))
def test_what_must_be_refused_is_refused_under_a_tape_and_records_nothing(row, case):
    operands = [
        Variable(np.zeros(o), requires_grad=True) if isinstance(o, tuple) else o
        for o in case.operands
    ]
    with GradientTape() as tape:
        with pytest.raises(case.error, match=case.match):
            row.call(*operands, **case.options)
        assert len(tape) == 0


@every_row
def test_rules_ask_only_for_known_names(row):
    known = row.layout.rule_names | set(row.cotangents)
    for rules in (row.vjp, row.jvp):
        assert set(rules) == set(row.arrays)
        for rule in rules.values():
            assert rule is None or set(rule_arguments(rule)) <= known


@every_row
def test_every_row_has_a_docstring_and_a_meaning_and_is_reached_by_name_and_alias(row):
    assert not lacking(row), lacking(row)
    assert all(getattr(od.ops, name) is row.call for name in (row.name, *row.aliases))


@every_row
def test_a_row_that_differentiates_does_so_in_both_modes(row):
    for k, name in enumerate(row.arrays):
        assert (row.pullbacks[k] is None) == (row.vjp[name] is None)
        assert (row.pushforwards[k] is None) == (row.vjp[name] is None)


# ------------------------------------------------------------------ tracing


@every_sample
def test_a_call_on_symbols_is_one_instruction_with_the_predicted_spec(row, sample):
    operands, options = bound(row, sample)
    graph = Graph()
    symbols = [spec and graph.symbol(spec) for spec in specs_of(operands)]
    result = row.call(*symbols, **sample.options)
    assert [instruction[0] for instruction in graph.instructions] == [row]
    actual = row.call(*operands, **sample.options)
    assert isinstance(result, Symbol)
    assert result.spec == spec_of(np.asarray(actual))
    known = {s.id: x for s, x in zip(symbols, operands, strict=True) if s is not None}
    assert_same(graph.run(result, known), row.kernel(*operands, *options))


@every_differentiable_sample
def test_every_rule_runs_on_symbols_and_means_the_same_there(row, sample):
    operands, options = bound(row, sample)
    out = row.kernel(*operands, *options)
    values = [None if v is None else np.asarray(v) for v in (*operands, out)]
    specs = tuple(specs_of(values))
    for k in tracked(row, sample):
        for forward, rule in enumerate((row.pullbacks[k], row.pushforwards[k])):
            if rule is PASS:
                continue
            graph = Graph()
            symbols = [spec and graph.symbol(spec) for spec in specs]
            like = specs[k if forward else -1]
            moving, number = graph.symbol(like), random_like(like, seed=3)
            # Checked as those of rows from outside are, which says whose rule gave what.
            checked = check_rule(row.layout, k, rule, bool(forward))
            eager = checked(number, (*values, *options), specs)
            traced = rule(moving, (*symbols, *options), specs)
            known = {s.id: v for s, v in zip(symbols, values, strict=True) if s is not None}
            result = graph.run(traced, {**known, moving.id: number})
            assert_same(result, eager)
            assert spec_of(traced) == spec_of(np.asarray(eager))


# ------------------------------------------------------------------ derivatives


@pytest.mark.share(1)
@walk(SMOOTH, slow={"recurrent_states", "recurrent_pullback"})
def test_gradients_to_second_order_agree_with_differences_in_both_modes(row, sample):
    operands = draw(sample)
    positions = tracked(row, sample)

    def call(*moving):
        given = list(operands)
        for k, value in zip(positions, moving, strict=True):
            given[k] = value
        return row.call(*given, **sample.options)

    od.testing.check_gradients(call, *[operands[k] for k in positions], tolerance=1e-6)


@every_differentiable_sample
def test_forward_and_reverse_mode_are_transposes_of_each_other(row, sample):
    assert_transposed(derive_sample(row, sample), 1e-13)


@walk({name: case for name, case in SMOOTH.items() if OPS[case[0].name] is case[0]})
def test_the_backward_function_gives_the_gradient_of_the_tape(row, sample):
    operands, options = bound(row, sample)
    positions = tracked(row, sample)
    d = derive_sample(row, sample)
    specs = dict(zip((f"{n}_spec" for n in row.arrays), specs_of(operands), strict=True))
    values = dict(zip((*row.arrays, *row.options), (*operands, *options), strict=True))
    values |= specs | {"out": d.value}
    function = od.backward.TABLE[row.name]
    assert getattr(od.backward, row.name) is function
    others = {name: values[name] for name in row.arrays if name not in row.requested_names}
    results = function(d.cotangent, *[values[name] for name in row.requested_names], **others)
    differentiable = [k for k, name in enumerate(row.arrays) if row.vjp[name] is not None]
    results = results if isinstance(results, tuple) else (results,)
    by_position = dict(zip(differentiable, results, strict=True))
    for k, gradient in zip(positions, d.gradients, strict=True):
        assert_same(by_position[k], gradient)
    static = {*row.options, *specs}  # a spec among the arguments would stand for an array
    options = {name: values[name] for name in row.requested_names if name in static}
    given = {name: values[name] for name in row.requested_names if name not in options} | others
    traced = od.compile(lambda g, given: function(g, **given, **options))
    found, _ = traced.lower(d.cotangent, given).evaluate(d.cotangent, given)
    found = found if isinstance(found, tuple) else (found,)
    for one, other in zip(found, results, strict=True):
        assert one is other is None or assert_same(one, other) is None


@every_row
def test_there_is_a_backward_function_for_every_row_with_a_rule_and_no_other(row):
    has_rule = any(rule is not None for rule in row.vjp.values())
    assert (row.name in od.backward.TABLE) == has_rule


def test_the_gradient_check_catches_a_wrong_rule_in_either_mode_and_order():
    ops = od.ops

    def declare(reverse, forward):
        @od.op(infer=lambda x: x, vjp={"x": reverse}, jvp={"x": forward})
        def cube(x, /):
            return x**3

        return cube

    def right(g, x):
        return ops.mul(g, ops.mul(3.0, ops.square(x)))

    def wrong(g, x):
        return ops.mul(g, ops.mul(3.0, x))

    # Right in value, but with its own derivative lost: the factor is a constant to the tape.
    def wrong_later(g, x):
        factor = x.detach().numpy() if isinstance(x, Variable) else x
        return ops.mul(g, 3.0 * factor**2)

    x = np.array([0.7, 1.3, -0.4])
    od.testing.check_gradients(declare(right, right), x)
    for rules, match in [
        ((wrong, right), "order 1 in reverse"),
        ((right, wrong), "order 1 in forward"),
        ((wrong_later, right), "order 2"),
    ]:
        with pytest.raises(AssertionError, match=match):
            od.testing.check_gradients(declare(*rules), x)

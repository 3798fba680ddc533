"""Decompositions agree with their rows: values, specs, and first and second derivatives."""

import warnings
from contextlib import nullcontext

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.ops import OPS
from odyssey.spec import spec_of
from odyssey.table.samples import sample, singles
from support import scalar_cases
from support.cases import Graph, assert_close, derive, draw, lacking, random_like, tracked
from support.together import together

CASES = {
    f"{row.name}-{k}": (row, case)
    for row in OPS.values()
    if row.decomposition
    for k, case in enumerate(row.samples)
}
every_case = pytest.mark.parametrize(("row", "case"), CASES.values(), ids=list(CASES))
# Sums in another order, and the cancellation of what the rows are there to avoid.
TOLERANCES = {np.dtype("float64"): 1e-14, np.dtype("float32"): 5e-6}


def options_of(row, case, operands):
    return row.bind_arguments(operands, case.options)[1]


def in_ops(row, case):
    """The decomposition of a row as a function of its operands."""
    return in_line(row, lambda *given: row.decomposition(*given, *options_of(row, case, given)))


def in_line(row, call):
    """A function that gives what the row does; several results as one line of numbers."""
    if row.pack_results is None:
        return call
    return lambda *given: ops.concatenate([ops.reshape(r, -1) for r in call(*given)])


def second_derivatives(call, operands, positions):
    """Of a weighted sum of the results: along a direction, and of the gradients' weighted sum."""
    moving = [operands[k] for k in positions]

    def total(*given):
        full = list(operands)
        for k, value in zip(positions, given, strict=True):
            full[k] = value
        out = call(*full)
        return ops.sum(ops.mul(out, random_like(out, seed=1)))

    numbers = tuple(range(len(positions)))
    slope = od.grad(total, argnums=numbers)
    directions = [random_like(x, seed=5 + k) for k, x in enumerate(moving)]

    def weighed(*given):
        pairs = zip(slope(*given), directions, strict=True)
        return sum((ops.sum(ops.mul(g, v)) for g, v in pairs), start=ops.sum(given[0]) * 0.0)

    with warnings.catch_warnings():  # of what is linear
        warnings.simplefilter("ignore", od.errors.IndependentWarning)
        reverse = od.grad(weighed, argnums=numbers)(*moving)
        _, forward = od.jvp(slope, tuple(moving), tuple(directions))
    return [np.asarray(d) for d in (*reverse, *forward)]


def check_equals(row, case, dtype=np.float64):
    """Raise AssertionError unless a row agrees with its decomposition on a sample."""
    operands = draw(case, dtype)
    tolerance, meant = TOLERANCES[np.dtype(dtype)], in_ops(row, case)
    called = in_line(row, lambda *given: row.call(*given, **case.options))
    with np.errstate(divide="ignore", invalid="ignore"):
        assert_close(meant(*operands), called(*operands), tolerance)
    positions = tracked(row, case)
    if not positions:
        return
    pairs = zip(
        derive(meant, operands, positions).flat(),
        derive(called, operands, positions).flat(),
        strict=True,
    )
    for got, wanted in pairs:
        assert_close(got, wanted, tolerance)
    if any(np.size(operands[k]) == 0 for k in positions):
        return
    pairs = zip(
        second_derivatives(meant, operands, positions),
        second_derivatives(called, operands, positions),
        strict=True,
    )
    for got, wanted in pairs:
        assert_close(got, wanted, 10 * tolerance)


def check_trace(row, case):
    """Raise AssertionError unless a decomposition is traced, without the row, to its spec."""
    operands = draw(case)
    options = options_of(row, case, operands)
    graph = Graph()
    symbols = [None if x is None else graph.symbol(spec_of(np.asarray(x))) for x in operands]
    result = row.decomposition(*symbols, *options)
    assert row not in [instruction[0] for instruction in graph.instructions]
    specs = [None if x is None else spec_of(np.asarray(x)) for x in operands]
    found = result.spec if row.pack_results is None else tuple(r.spec for r in result)
    assert found == row.infer(*specs, *options)
    if row.canonical:  # as a graph has the options, from which a compiler takes them
        options = row.canonical(*specs, *options)
        with np.errstate(divide="ignore", invalid="ignore"):
            meant, called = (
                in_line(row, f)(*operands, *options) for f in (row.decomposition, row.kernel)
            )
        assert_close(meant, called, TOLERANCES[np.dtype("float64")])
    return graph


@together("dtype", ["float64", "float32"])
@every_case
def test_a_row_is_what_it_equals_and_so_are_two_derivatives_in_both_modes(row, case, dtype):
    check_equals(row, case, dtype)


@every_case
def test_what_a_row_equals_is_traced_to_other_rows_and_has_its_spec(row, case):
    check_trace(row, case)


@pytest.mark.slow
def test_every_row_comes_down_to_numbers_and_primitives():
    below = {
        row: {
            i[0]
            for k, case in CASES.values()
            if k is row
            for i in check_trace(row, case).instructions
        }
        for row, _ in CASES.values()
    }

    def come_down(row, through):
        assert row not in through, [r.name for r in (*through, row)]
        if not row.scalar and not row.primitive:
            assert row in below, lacking(row)
            for other in below[row]:
                come_down(other, (*through, row))

    for row in OPS.values():
        come_down(row, ())


CORNERS = {name: row for name, (row, _) in scalar_cases.CASES.items() if row.decomposition}


# Where the composition has a number that the row does not, as its ``kinks`` say.
UNLIKE = {"power_slope"}


@pytest.mark.parametrize("name", sorted(CORNERS.keys() - UNLIKE))
def test_where_the_composition_is_defined_the_row_is_it_at_corners_too(name):
    row, options = scalar_cases.CASES[name]
    operands, wanted = scalar_cases.kernel_values(row, options, np.dtype("float64"))
    with np.errstate(all="ignore"):
        got = np.broadcast_to(row.decomposition(*operands, *options), wanted.shape)
        distance = np.abs(got - wanted)
    defined = np.isfinite(got)
    assert defined.any()
    far = defined & ~(distance <= 1e-13 * np.maximum(1.0, np.abs(wanted)))
    k = np.flatnonzero(far)
    assert not k.size, [(*(x[i] for x in operands), got[i], wanted[i]) for i in k[:5]]


# ------------------------------------------------------------------ the walk finds what is wrong


def declared(decomposition, **more):
    @od.op(
        elementwise=True,
        vjp={"x": lambda g, x: ops.mul(g, ops.mul(2.0, x))},
        decomposition=decomposition,
        samples=singles(),
        **more,
    )
    def squared(x, /):
        """``x * x``."""
        return x * x

    return squared.row


def only_in_value(x):
    return ops.mul(x, x if isinstance(x, np.ndarray) else x.detach())


WRONG = {
    "a value": lambda x: ops.mul(x, 2.0),
    "a derivative": only_in_value,
    "a second derivative": lambda x: ops.mul(
        x, ops.add(ops.mul(2.0, x), 0.0) if isinstance(x, np.ndarray) else x
    ),
    "a shape": lambda x: ops.reshape(ops.mul(x, x), -1),
    "a dtype": lambda x: ops.astype(ops.mul(x, x), np.float32),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_what_a_row_does_not_equal_is_noticed(wrong):
    with pytest.raises(AssertionError):
        check_equals(declared(wrong), sample((2, 3)))


def test_a_row_that_equals_itself_is_noticed():
    row = declared(lambda x: row.call(x))
    check_equals(row, sample((2, 3)))
    with pytest.raises(AssertionError):
        check_trace(row, sample((2, 3)))


def test_what_is_right_passes():
    row = declared(lambda x: ops.power(x, 2.0))
    for case in row.samples:
        check_equals(row, case)
        check_trace(row, case)


@pytest.mark.parametrize("wrong", [None, "a value", "a shape"])
def test_what_a_row_of_several_results_equals_is_walked_too(wrong):
    second = ops.exp if wrong == "a value" else ops.cos
    place = -1 if wrong == "a shape" else (2, 3)

    @od.op(
        results=("sine", "cosine"),
        infer=lambda x: (x, x),
        vjp={"x": lambda g_sine, g_cosine, sine, cosine: g_sine * cosine - g_cosine * sine},
        jvp={"x": lambda t, sine, cosine: (t * cosine, -t * sine)},
        decomposition=lambda x: (ops.sin(x), ops.reshape(second(x), place)),
    )
    def turn(x, /):
        """Sine and cosine."""
        return np.sin(x), np.cos(x)

    checks = {"a value": [check_equals], "a shape": [check_trace]}
    for check in checks.get(wrong, [check_equals, check_trace]):
        with pytest.raises(AssertionError) if wrong else nullcontext():
            check(turn.row, sample((2, 3)))

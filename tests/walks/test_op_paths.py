"""One call, one meaning: however its operands lie in memory, and whichever path records it."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import MutationError, OdysseyError
from odyssey.ops import OPS
from odyssey.ops.structure.unbroadcast import unbroadcast
from odyssey.spec import Spec
from odyssey.table import fast_calls
from odyssey.table.call import general
from odyssey.table.declare import PASS
from support.cases import (
    SMOOTH,
    assert_close,
    assert_same,
    derive,
    draw,
    every_differentiable_sample,
    random_like,
    tracked,
    walk,
)
from support.together import together

# Ops of two differentiable operands, and samples in which the operands have one shape.
PAIRS = [
    row
    for row in OPS.values()
    if row.elementwise and len(row.arrays) == 2 and all(row.vjp.values())
]


def alike(row, sample):
    shapes = [sample.operands[k] for k in tracked(row, sample)]
    return len(shapes) > 1 and len(set(shapes)) == 1


ALIKE = {name: case for name, case in SMOOTH.items() if alike(*case)}


def unaligned(x):
    """The same numbers, one byte off where the processor would like them."""
    bytes_ = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:]
    return bytes_.view(x.dtype).reshape(x.shape)


LAYOUTS = {
    "reversed": lambda x: np.flip(np.flip(x).copy()),
    "strided": lambda x: np.repeat(x[..., np.newaxis], 2, axis=-1)[..., 1],
    "fortran": lambda x: np.asfortranarray(x),
    "unaligned": lambda x: unaligned(x),
    "read-only": lambda x: np.broadcast_to(x, x.shape),
}


@pytest.mark.share(9)
@together("layout", LAYOUTS.values(), ids=list(LAYOUTS))
@every_differentiable_sample
def test_strides_change_neither_value_nor_derivatives(row, sample, layout):
    def lay(x):
        return layout(np.asarray(x)) if np.ndim(x) else x

    @od.op(linear=True, infer=lambda x: x, vjp={"x": PASS})
    def laid(x, /):
        return lay(x)

    operands = draw(sample)
    positions = tracked(row, sample)
    call = lambda *given: row.call(*given, **sample.options)  # noqa: E731
    wanted = derive(call, operands, positions)
    assert_close(call(*[lay(o) for o in operands]), wanted.value, 1e-15)
    relaid = [o if k in positions else lay(o) for k, o in enumerate(operands)]
    got = derive(call, relaid, positions, enter=laid, cotangent=lay)
    for g, w in zip(got.flat(), wanted.flat(), strict=True):
        assert_close(g, w, 1e-15)


def subsets(positions):
    """Every choice of one or more of ``positions``."""
    count = len(positions)
    return [[positions[k] for k in range(count) if bits >> k & 1] for bits in range(1, 1 << count)]


def recorded_call(call, operands, positions, intermediate):
    """Value, gradients, tangent and the nodes' saved values of one recorded call."""
    leaves = [Variable(operands[k], requires_grad=True) for k in positions]
    given = list(operands)
    with GradientTape(persistent=True) as tape:
        for k, leaf in zip(positions, leaves, strict=True):
            given[k] = od.ops.identity(leaf) if intermediate else leaf
        out = call(given, tape)
    gradients = tape.gradient(out, leaves, random_like(out, seed=1))
    tangent = tape.jvp(out, leaves, [random_like(leaf, seed=2) for leaf in leaves])
    saved = tape.nodes[-1].saved
    return [out.numpy(), *gradients, tangent], saved


@together("intermediate", [False, True], ids=["leaves", "results"])
@together("dtype", ["float64", "float32"])
@pytest.mark.share(9)
@every_differentiable_sample
def test_the_shortcuts_record_what_the_general_path_records(row, sample, dtype, intermediate):
    operands = draw(sample, dtype)
    options = row.bind_arguments(operands, sample.options)[1]
    for positions in subsets(tracked(row, sample)):
        short, kept = recorded_call(
            lambda given, tape: row.call(*given, **sample.options),
            operands,
            positions,
            intermediate,
        )
        full, kept_by_general = recorded_call(
            lambda given, tape: general(row, given, options),
            operands,
            positions,
            intermediate,
        )
        by_hand, _ = recorded_call(
            lambda given, tape: row.call(*given, **sample.options, tape=tape),
            operands,
            positions,
            intermediate,
        )
        for a, b, c in zip(short, full, by_hand, strict=True):
            assert_same(a, b)
            assert_same(c, b)
        assert list(kept) == list(kept_by_general)
        assert "residual" not in kept or row.with_residual
        for name in kept.keys() & {*row.arrays, "out"}:
            assert_same(kept[name], kept_by_general[name])


@pytest.mark.parametrize("number", [1, 0.5], ids=["int", "float"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("row", PAIRS, ids=lambda row: row.name)
def test_the_shortcuts_take_python_numbers_as_the_general_path_does(row, dtype, number):
    x = np.array([0.25, 0.75], dtype)
    for k in (0, 1):
        operands = [number, number]
        operands[k] = x
        pairs = [
            recorded_call(lambda given, tape, call=call: call(*given), operands, [k], False)
            for call in (row.call, lambda *given: general(row, given, row.defaults))
        ]
        for a, b in zip(pairs[0][0], pairs[1][0], strict=True):
            assert_same(a, b)
            assert a.dtype == dtype


def outcome(row, sample, operands, moving):
    """The result and the gradient of operand ``moving``, or None where ours refuse the call."""
    leaf = Variable(operands[moving], requires_grad=True)
    try:
        with GradientTape() as tape, np.errstate(all="ignore"):
            given = [leaf if j == moving else o for j, o in enumerate(operands)]
            out = row.call(*given, **sample.options)
    except OdysseyError:
        return None
    return out.numpy(), tape.gradient(out, leaf, np.ones(out.shape))


@every_differentiable_sample
def test_a_python_number_beside_an_operand_is_an_array_without_axes(row, sample):
    operands = draw(sample, seed=0)
    for moving in tracked(row, sample):
        for k in set(range(len(operands))) - {moving}:
            one, other = (
                outcome(row, sample, [*operands[:k], x, *operands[k + 1 :]], moving)
                for x in (1.0, np.array(1.0))
            )
            assert (one is None) == (other is None)
            for a, b in zip(one or (), other or (), strict=True):
                assert_same(a, b)


@pytest.mark.parametrize("row", OPS.values(), ids=lambda row: row.name)
def test_a_python_number_is_taken_as_an_array_without_axes(row):
    for sample in row.samples:
        operands, results = draw(sample, seed=0), []
        for x in (0.5, np.array(0.5)):
            try:
                with np.errstate(all="ignore"):
                    results.append(row.call(x, *operands[1:], **sample.options))
            except OdysseyError:
                results.append(None)
        assert (results[0] is None) == (results[1] is None)
        np.testing.assert_array_equal(*results)


@walk(ALIKE)
def test_one_variable_in_every_place_gets_the_sum_of_the_gradients(row, sample):
    positions = tracked(row, sample)
    operands = draw(sample)

    def call(*places):
        given = list(operands)
        for k, value in zip(positions, places, strict=True):
            given[k] = value
        return row.call(*given, **sample.options)

    x = operands[positions[0]]
    one = derive(lambda u: call(*[u] * len(positions)), [x], [0])
    apart = derive(call, [x] * len(positions), range(len(positions)))
    assert_same(one.value, apart.value)
    assert_close(one.gradients[0], sum(apart.gradients), 1e-15)


def test_fit_sums_and_casts_a_cotangent_to_what_it_belongs_to():
    g = np.arange(24.0).reshape(2, 3, 4)
    wanted = g.sum((0, 2)).reshape(3, 1)
    assert_same(unbroadcast(g, Spec((3, 1), g.dtype)), wanted)
    assert_same(unbroadcast(g + 1j, Spec((3, 1), np.dtype("f4"))), wanted.astype("f4"))


@pytest.mark.parametrize("name", ["relu", "exp", "sum", "cumsum"])
def test_a_leaf_that_a_tape_meets_for_the_first_time_goes_the_short_way(name):
    row = OPS[name]

    def refuse(*_):
        raise AssertionError("the general path was taken")

    holders = list(row.kernel_listeners)
    call = (fast_calls.with_options if row.options else fast_calls.unary)(row, refuse)
    row.kernel_listeners[:] = holders
    w = Variable([1.0, 2.0, 3.0], requires_grad=True)
    with GradientTape() as tape:
        y = call(w)
    assert list(tape.backward(y, np.ones(y.shape))) == [w]
    # Where a tape does not record now, the leaf is not taken up behind its back.
    with GradientTape() as tape, tape.no_recording():
        with pytest.raises(AssertionError, match="general path"):
            call(w)
        assert not tape.ids


def test_a_leaf_that_the_short_way_took_up_is_watched_for_writes():
    for op in (ops.exp, ops.sum):
        w = Variable([1.0, 2.0, 3.0], requires_grad=True)
        with GradientTape() as tape:
            y = ops.sum(op(w))
        w.data = [5.0, 5.0, 5.0]
        with pytest.raises(MutationError, match="was assigned after"):
            tape.backward(y)

"""vmap of each row and composite equals a loop: values, and derivatives outside and inside of it.

Each sample runs with each of its arrays mapped alone, and with all of them mapped together. The
examples are draws of a sample of their own, so they are valid operands as its form makes them.
"""

import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import IndependentWarning, OdysseyError
from odyssey.table.samples import sample as sample_of
from support.cases import EVERY, derive, every_row, random_like, tracked
from support.composed import OF_LOSSES, OF_OPS, Call, results
from support.mapped import BATCH, TOLERANCE, Mapped, MappedComposite, assert_near, choices
from support.together import together

TOLERANCES = {"float16": 4e-3, "float32": 2e-5, "complex64": 2e-5}


def check_values(row, sample, dtype="float64", sizes=(BATCH, 1, 0)):
    """Raise AssertionError unless vmap and a loop give the same results of batches of sizes."""
    for chosen in choices(sample):
        for axis in (0, -1):
            for size in sizes:
                case = Mapped(row, sample, chosen, axis, dtype, size)
                try:
                    one = Mapped(row, sample, chosen, axis, dtype, size or 1)
                    calls = [one.call(*one.example(k, one.operands)) for k in range(one.size)]
                except OdysseyError:
                    assert dtype != "float64"
                    return
                wanted = [np.stack(r)[:size] for r in zip(*map(results, calls), strict=True)]
                got = results(od.vmap(case.call, tuple(case.axes))(*case.operands))
                for out, value in zip(got, wanted, strict=True):
                    assert_near(out, value, TOLERANCES.get(value.dtype.name, TOLERANCE))


def second_derivatives(call, operands, positions):
    """Of a weighted sum of the results: along a direction, and of the gradients' weighted sum."""
    moving = [operands[k] for k in positions]

    def total(*given):
        out = call(*put(operands, positions, given))
        return ops.sum(ops.mul(out, random_like(out, seed=1)))

    numbers = tuple(range(len(positions)))
    slope = od.grad(total, argnums=numbers)
    directions = [random_like(x, seed=5 + k) for k, x in enumerate(moving)]

    def weighed(*given):
        pairs = zip(slope(*given), directions, strict=True)
        return sum((ops.sum(ops.mul(g, v)) for g, v in pairs), start=ops.sum(given[0]) * 0.0)

    with warnings.catch_warnings():  # of what is linear
        warnings.simplefilter("ignore", IndependentWarning)
        reverse = od.grad(weighed, argnums=numbers)(*moving)
        _, forward = od.jvp(slope, tuple(moving), tuple(directions))
    return [*reverse, *forward]


def put(operands, positions, given):
    """The operands with others at some positions."""
    full = list(operands)
    for k, value in zip(positions, given, strict=True):
        full[k] = value
    return full


def is_differentiable(case, positions):
    """Whether there is a derivative with respect to operands at positions."""
    if not positions:
        return False
    return case.row.pack_results is not None or case.looped(*case.operands).dtype.kind == "f"


def check_derivatives_outside(row, sample, chosen):
    """Raise AssertionError unless derivatives of vmap and of a loop are equal, to second order."""
    positions = tracked(row, sample)
    for axis in (0, -1):
        case = Mapped(row, sample, chosen, axis)
        if not is_differentiable(case, positions):
            return
        found = [
            [
                *derive(call, case.operands, positions).flat(),
                *second_derivatives(call, case.operands, positions),
            ]
            for call in (case.batched, case.looped)
        ]
        for got, wanted in zip(*found, strict=True):
            assert_near(got, wanted)


def check_derivatives_inside(row, sample, chosen):
    """Raise AssertionError unless vmap of derivatives equals a loop, to second order."""
    positions = tracked(row, sample)
    for axis in (0, -1):
        case = Mapped(row, sample, chosen, axis)
        if not is_differentiable(case, positions):
            return

        def derivatives(*operands, flat=case.flat):
            first = derive_inside(flat, operands, positions)
            return [*first, *second_derivatives(flat, operands, positions)]

        calls = [derivatives(*case.example(k, case.operands)) for k in range(BATCH)]
        found = od.vmap(derivatives, tuple(case.axes))(*case.operands)
        for got, wanted in zip(found, zip(*calls, strict=True), strict=True):
            assert_near(got, np.stack(wanted))


def derive_inside(call, operands, positions):
    """Gradients for a fixed cotangent, and the tangent for fixed directions."""
    moving = [operands[k] for k in positions]
    directions = [random_like(x, seed=2 + k) for k, x in enumerate(moving)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IndependentWarning)
        value, tangent = od.jvp(
            lambda *given: call(*put(operands, positions, given)), tuple(moving), tuple(directions)
        )
        gradients = od.vjp(lambda *given: call(*put(operands, positions, given)), *moving)[1](
            random_like(value, seed=1)
        )
    return [value, tangent, *gradients]


# ------------------------------------------------------------------ rows


# Loops over many steps, of many operands.
LONG = {"recurrent_states", "recurrent_pullback", "attention_pullback"}
LONG |= {"scaled_dot_product_attention"}


def every(names, cases):
    """One test for each case, whose first member is a row; of rows of ``LONG`` it is slow."""
    return pytest.mark.parametrize(
        names,
        [
            pytest.param(*case, id=name, marks=[pytest.mark.slow] if case[0].name in LONG else [])
            for name, case in cases.items()
        ],
    )


DIFFERENTIABLE = {
    "-".join([name, *(case[0].arrays[k] for k in chosen)]): (*case, chosen)
    for name, case in EVERY.items()
    if tracked(*case)
    for chosen in choices(case[1])
}
every_sample = every(["row", "sample"], EVERY)
every_differentiable_sample = every(["row", "sample", "chosen"], DIFFERENTIABLE)


@pytest.mark.share(6)
@every_sample
def test_values_of_batches_of_three_one_and_none_are_those_of_a_loop(row, sample):
    check_values(row, sample)


# Rows whose cotangents are floating numbers.
CALLED_BY_RULES = {"max_pool_pullback", "recurrent_pullback"}


@pytest.mark.share(80)
@together("dtype", ["float32", "complex64", "complex128", "int32", "bool"])
@every_sample
def test_dtypes_and_values_of_other_dtypes_are_those_of_a_loop(row, sample, dtype):
    if row.name in CALLED_BY_RULES and dtype in ("int32", "bool"):
        return
    with np.errstate(all="ignore"):
        check_values(row, sample, dtype, [BATCH])


@pytest.mark.share(50)
@every_differentiable_sample
def test_derivatives_of_vmap_are_those_of_a_loop_to_second_order(row, sample, chosen):
    check_derivatives_outside(row, sample, chosen)


@pytest.mark.share(50)
@every_differentiable_sample
def test_vmap_of_derivatives_is_a_loop_of_them_to_second_order(row, sample, chosen):
    check_derivatives_inside(row, sample, chosen)


# Of each row the first sample, with all of its arrays mapped.
FIRST = {
    f"{row.name}-{len(sample.operands)}": (row, sample, chosen)
    for row, sample, chosen in reversed(DIFFERENTIABLE.values())
    if chosen == list(choices(sample))[-1]
}


@pytest.mark.slow
@every(["row", "sample", "chosen"], FIRST)
def test_derivatives_of_the_first_sample_of_each_row_are_those_of_a_loop(row, sample, chosen):
    check_derivatives_outside(row, sample, chosen)
    check_derivatives_inside(row, sample, chosen)


@every_row
def test_no_row_of_the_library_is_run_by_a_loop(row):
    assert row.vmap != "loop"
    assert row.vmap is not None or row.elementwise or row.decomposition is not None, (
        f"op {row.name}: give it a batch rule, vmap=, beside vjp= and jvp="
    )


# ------------------------------------------------------------------ composites


def check_composite(function, sample):
    """Raise AssertionError unless values and gradients of vmap are those of a loop."""
    count = len(Call(function, sample).arrays)
    for chosen in dict.fromkeys([*((k,) for k in range(count)), tuple(range(count))]):
        for axis in (0, -1):
            case = MappedComposite(function, sample, chosen, axis)
            found, wanted = [evaluate(call, case.arrays) for call in (case.batched, case.looped)]
            for pair in zip(found, wanted, strict=True):
                assert_near(*pair)


def evaluate(call, arrays):
    """Results, and gradients of a weighted sum of the floating ones."""
    out = call(*arrays)
    leaves = [od.Variable(x, requires_grad=True) for x in arrays]
    with od.GradientTape() as tape:
        weighted = [ops.sum(ops.mul(r, random_like(r, 7))) for r in call(*leaves) if is_recorded(r)]
        total = sum(weighted)
    return [*out, *(tape.gradient(total, leaves, unused="zero") if weighted else [])]


def is_recorded(result):
    return result.dtype.kind in "fc" and getattr(result, "requires_grad", False)


COMPOSITE_CASES = {name: case for name, case in (OF_OPS | OF_LOSSES).items() if Call(*case).arrays}


@pytest.mark.share(12)
@pytest.mark.parametrize(
    ("function", "sample"), COMPOSITE_CASES.values(), ids=list(COMPOSITE_CASES)
)
def test_values_and_gradients_of_composites_are_those_of_a_loop(function, sample):
    check_composite(function, sample)


# ------------------------------------------------------------------ the walk finds what is wrong


def declared(rule, total=ops.sum):
    @od.op(
        infer=lambda x, w: x,
        vjp={"x": lambda g, w: g * total(w), "w": lambda g, x, w: total(g * x) + 0.0 * w},
        jvp={"x": lambda t, w: t * total(w), "w": lambda t, x: x * total(t)},
        vmap=rule,
        samples=[sample_of((2, 3), (4,)), sample_of((3,), (3,))],
    )
    def scaled(x, w, /):
        """``x`` times the sum of ``w``."""
        return x * np.sum(w)

    return scaled.row


def declared_sum(rule):
    @od.op(
        infer=lambda x: type(x)((), x.dtype),
        vjp={"x": lambda g, x: ops.broadcast_to(g, x.shape)},
        jvp={"x": lambda t: ops.sum(t)},
        vmap=rule,
    )
    def total(x, /):
        """The sum of all elements."""
        return np.sum(x)

    return total


def factor(batch, x, w):
    """The factor of each example, with axes for those of an example of x."""
    total = ops.sum(w, axis=-1)
    return ops.reshape(total, (-1, *(1,) * batch.ndim(0, x))) if batch.mapped[1] else total


def right(batch, x, w):
    return x * factor(batch, x, w)


def lost(batch, x, w):
    """Right, but half of the derivative with respect to w is missing."""
    constant = w.detach() if isinstance(w, od.Variable) else w
    return (right(batch, x, w) + right(batch, x, constant)) * 0.5


WRONG = {
    "a value": lambda batch, x, w: right(batch, x, w) + (0.0 if batch.mapped[0] else 1e-9),
    "one operand": lambda batch, x, w: right(batch, x, w) * (1.0 if all(batch.mapped) else 2.0),
    "an unmapped result": lambda batch, x, w: x * ops.sum(w),
    "a dtype": lambda batch, x, w: ops.astype(right(batch, x, w), np.float32),
    "no examples": lambda batch, x, w: right(batch, x, w) if batch.size else np.ones((1, 2, 3)),
    "one example": lambda batch, x, w: right(batch, x, w) * (1.0 if batch.size != 1 else 2.0),
}


@pytest.mark.parametrize("wrong", [*WRONG, "order of axes"])
def test_a_rule_of_wrong_values_is_noticed(wrong):
    row = declared(WRONG.get(wrong, lambda batch, x, w: right(batch, x, w)[::-1]))
    with pytest.raises(AssertionError):
        check_values(row, row.samples[0])


def test_a_rule_that_loses_a_derivative_is_noticed():
    row = declared(lost)
    check_values(row, row.samples[0])
    with pytest.raises(AssertionError):
        check_derivatives_outside(row, row.samples[0], (1,))


def test_a_derivative_that_is_batched_wrongly_is_noticed():
    row = declared(right, declared_sum(lambda batch, x: ops.sum(x, tuple(range(1, x.ndim))) * 2.0))
    check_values(row, row.samples[0])
    with pytest.raises(AssertionError):
        check_derivatives_inside(row, row.samples[0], (0, 1))


def test_a_right_rule_passes():
    row = declared(right, declared_sum(lambda batch, x: ops.sum(x, tuple(range(1, x.ndim)))))
    check_values(row, row.samples[0])
    for chosen in choices(row.samples[1]):
        check_derivatives_outside(row, row.samples[1], chosen)
        check_derivatives_inside(row, row.samples[1], chosen)

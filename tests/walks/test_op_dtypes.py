"""Dtypes of values and gradients, and what a gradient means for complex numbers."""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import DTypeError
from support.cases import (
    COMPLEX,
    NO_HALF,
    SMOOTH,
    TO_COMPLEX,
    assert_close,
    assert_transposed,
    derive,
    derive_sample,
    draw,
    every_differentiable_sample,
    tracked,
    walk,
)
from support.together import together

# What writes into an array keeps its dtype.
WRITING = {"setitem", "put_along_axis", "dynamic_update_slice", "update_rows"}
PARTNERED = {name: case for name, case in SMOOTH.items() if len(tracked(*case)) > 1}
# What takes a number in place of an array.
WEAK = {
    name: (row, sample)
    for name, (row, sample) in PARTNERED.items()
    if row.elementwise or row.name == "setitem"
}


def second_gradient(call, operand):
    """A gradient of ``call(operand)``, and one of its product with the operand."""
    leaf = Variable(operand, requires_grad=True)
    with GradientTape() as outer:
        with GradientTape() as inner:
            out = call(leaf)
        first = inner.gradient(out, leaf, np.ones(out.shape, out.dtype))
        total = od.ops.sum(first * leaf)
    return first, outer.gradient(total, leaf)


# ------------------------------------------------------------------ precision


@together("dtype", ["float16", "float32"])
@every_differentiable_sample
def test_low_precision_stays_in_value_gradient_and_tangent(row, sample, dtype):
    if dtype == "float16" and row.module in NO_HALF:
        with pytest.raises(DTypeError, match="wanted are single or double precision"):
            derive_sample(row, sample, dtype)
        return
    with np.errstate(over="ignore"):  # poles of polygamma are beyond float16
        d = derive_sample(row, sample, dtype)
    asked = np.dtype(sample.options.get("dtype", dtype))
    if row.name in TO_COMPLEX:
        asked = np.result_type(asked, np.complex64)
    assert d.value.dtype == asked
    assert d.tangent.dtype == asked
    assert [g.dtype for g in d.gradients] == [dtype] * len(d.gradients)


@every_differentiable_sample
def test_float32_derivatives_are_those_of_float64_rounded(row, sample):
    rough = derive_sample(row, sample, np.float32)
    operands = [
        o.astype(np.float64) if isinstance(s, tuple) else o
        for o, s in zip(draw(sample, np.float32), sample.operands, strict=True)
    ]
    fine = derive(lambda *a: row.call(*a, **sample.options), operands, tracked(row, sample))
    # The random cotangent and directions were rounded as well.
    for a, b in zip(rough.flat(), fine.flat(), strict=True):
        assert_close(a.astype(np.result_type(a, np.float64)), b, 2e-6)


@together("number", [0.5, 1], ids=["float", "int"])
@together("dtype", ["float32", "complex64"])
@walk(WEAK)
def test_python_numbers_raise_no_precision(row, sample, dtype, number):
    if dtype == "complex64" and row.name not in {row.name for row, _ in COMPLEX.values()}:
        dtype = "float32"
    operands, positions = draw(sample, dtype), tracked(row, sample)
    for k in positions if row.elementwise else positions[:1]:
        given = [number if p in positions and p != k else o for p, o in enumerate(operands)]
        d = derive(lambda *a: row.call(*a, **sample.options), given, [k])
        assert {a.dtype for a in d.flat()} == {np.dtype(dtype)}

        def call(x, k=k, given=given):
            return row.call(*given[:k], x, *given[k + 1 :], **sample.options)

        first, second = second_gradient(call, given[k])
        assert first.dtype == second.dtype == dtype


@together("dtypes", list(itertools.permutations(["float16", "float32", "float64"], 2)))
@walk(PARTNERED)
def test_gradients_have_the_dtypes_of_mixed_operands(row, sample, dtypes):
    positions = tracked(row, sample)
    operands = draw(sample)
    by_turns = list(itertools.islice(itertools.cycle(dtypes), len(positions)))
    for k, dtype in zip(positions, by_turns, strict=True):
        operands[k] = operands[k].astype(dtype)
    if "float16" in by_turns and row.module in NO_HALF:
        with pytest.raises(DTypeError, match="wanted are single or double precision"):
            row.call(*operands, **sample.options)
        return
    d = derive(lambda *a: row.call(*a, **sample.options), operands, positions)
    assert [g.dtype for g in d.gradients] == by_turns
    assert d.tangent.dtype == d.value.dtype
    assert d.value.dtype == (dtypes[0] if row.name in WRITING else np.result_type(*dtypes))


@walk(WEAK)
def test_integer_operands_are_constants_beside_a_variable(row, sample):
    positions = tracked(row, sample)
    for k in positions if row.elementwise else positions[:1]:
        operands = draw(sample)
        for other in positions:
            if other != k:
                operands[other] = np.ones(operands[other].shape, int)
        as_floats = [o.astype(float) if np.asarray(o).dtype == int else o for o in operands]
        call = lambda *a: row.call(*a, **sample.options)  # noqa: E731
        for got, wanted in zip(
            derive(call, operands, [k]).flat(), derive(call, as_floats, [k]).flat(), strict=True
        ):
            assert_close(got, wanted, 1e-15)


def test_numpy_scalars_are_strong_and_gradients_still_have_the_dtype_of_their_operand():
    x = np.array([1.0, 2.0], np.float32)
    d = derive(lambda v: v * np.float64(3.0), [x], [0])
    assert d.value.dtype == np.float64
    assert d.gradients[0].dtype == np.float32
    np.testing.assert_array_equal(d.gradients[0], (3.0 * d.cotangent).astype(np.float32))


# ------------------------------------------------------------------ complex numbers


@walk(COMPLEX)
def test_complex_derivatives_to_second_order_agree_with_differences(row, sample):
    operands, positions = draw(sample, np.complex128), tracked(row, sample)

    def call(*moving):
        given = list(operands)
        for k, value in zip(positions, moving, strict=True):
            given[k] = value
        return row.call(*given, **sample.options)

    od.testing.check_gradients(call, *[operands[k] for k in positions], tolerance=1e-6)


@walk(COMPLEX)
def test_complex_forward_and_reverse_mode_are_transposes_of_each_other(row, sample):
    assert_transposed(derive_sample(row, sample, np.complex128), 1e-13)


@walk({name: case for name, case in PARTNERED.items() if name in COMPLEX})
def test_a_real_operand_beside_a_complex_one_has_a_real_gradient(row, sample):
    positions = tracked(row, sample)
    for real in positions if row.name not in WRITING else positions[1:]:
        operands = draw(sample, np.complex128)
        operands[real] = operands[real].real.copy()

        def call(*moving, operands=operands):
            given = list(operands)
            for k, value in zip(positions, moving, strict=True):
                given[k] = value
            return row.call(*given, **sample.options)

        d = derive(lambda *a: row.call(*a, **sample.options), operands, positions)
        assert [g.dtype.kind for g in d.gradients] == ["f" if k == real else "c" for k in positions]
        assert_transposed(d, 1e-13)
        od.testing.check_gradients(call, *[operands[k] for k in positions], tolerance=1e-6)


@walk(COMPLEX)
def test_complex64_stays_in_gradients(row, sample):
    d = derive_sample(row, sample, np.complex64)
    assert [g.dtype for g in d.gradients] == [np.complex64] * len(d.gradients)


Z = np.array([1.0 + 2.0j, -0.5 + 0.25j, 3.0 - 1.0j])


def gradient_at(f, z, grad=None):
    leaf = Variable(z, requires_grad=True)
    with GradientTape() as tape:
        out = f(leaf)
    return tape.gradient(out, leaf, grad)


@pytest.mark.parametrize(
    ("f", "wanted"),
    {
        "squared modulus": (lambda z: od.ops.sum(abs(z) ** 2), 2 * Z),
        "product with conjugate": (lambda z: od.ops.sum((z * z.conj()).real), 2 * Z),
        "modulus": (lambda z: od.ops.sum(abs(z)), Z / np.abs(Z)),
        "real part": (lambda z: od.ops.sum(z.real), np.ones(3, complex)),
        "imaginary part": (lambda z: od.ops.sum(z.imag), np.full(3, 1j)),
        "real part of exp": (lambda z: od.ops.sum(od.ops.exp(z).real), np.conj(np.exp(Z))),
        "squared modulus of exp": (
            lambda z: od.ops.sum(abs(od.ops.exp(z)) ** 2),
            2 * np.exp(2 * Z.real) + 0j,
        ),
    }.values(),
    ids=lambda case: "" if not callable(case) else None,
)
def test_the_gradient_of_a_real_loss_is_steepest_ascent(f, wanted):
    np.testing.assert_allclose(gradient_at(f, Z), wanted, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("grad", [None, np.array([1.0])], ids=["one element", "given 1"])
def test_the_gradient_of_a_holomorphic_function_is_the_conjugate_of_its_derivative(grad):
    z = Z[:1]
    np.testing.assert_allclose(gradient_at(od.ops.exp, z, grad), np.conj(np.exp(z)), rtol=1e-15)
    np.testing.assert_allclose(gradient_at(lambda z: z**3, z, grad), np.conj(3 * z**2), rtol=1e-14)


def test_descending_along_the_gradient_finds_the_complex_minimum():
    goal, z = 1.0 - 2.0j, np.array(0.3 + 0.1j)
    for _ in range(60):
        z = z - 0.25 * gradient_at(lambda z: abs(z - goal) ** 2, z)
    assert abs(z - goal) < 1e-12


# What orders its operands, and what is defined for probabilities and real scores.
REAL_ONLY = {
    *("relu", "maximum", "minimum", "max", "min", "softmax", "log_softmax"),
    *("binary_entropy", "binary_entropy_with_logits", "softmax_cross_entropy"),
    *("arctan2", "hypot", "mod", "fmod", "exp2", "cbrt", "clip", "erf", "erfc"),
    *("relu6", "leaky_relu", "prelu", "elu", "selu", "hard_sigmoid", "hard_swish", "hard_tanh"),
    *("log_sigmoid", "softplus", "silu", "mish", "softsign", "gelu"),
}


@pytest.mark.parametrize("name", sorted(REAL_ONLY))
def test_ops_of_real_numbers_refuse_complex_ones(name):
    row = od.ops.OPS[name]
    operands = row.samples[0].arrays(np.random.default_rng(0), np.complex128)
    with pytest.raises(od.errors.DTypeError, match=name):
        row.call(*operands, **row.samples[0].options)


def _mean_of_squares(x):
    return od.losses.mean_squared_error(x, np.zeros(x.shape, x.dtype))


def _entropy_of_classes(x):
    return od.losses.cross_entropy(x, np.zeros(len(x), int))


def _entropy_of_probabilities(x):
    return od.losses.cross_entropy(x, np.full(x.shape, 0.5, x.dtype))


MEANS = {
    "mean": (od.ops.mean, (70_000,), lambda x, n: (x.mean(), 1 / n)),
    "squares": (_mean_of_squares, (70_000,), lambda x, n: ((x * x).mean(), 2 * x / n)),
    "classes": (
        _entropy_of_classes,
        (70_000, 2),
        lambda x, n: (np.log(2), np.array([-0.5, 0.5]) / n),
    ),
    "probabilities": (_entropy_of_probabilities, (70_000, 2), lambda x, n: (np.log(2), 0 / n)),
}


@pytest.mark.parametrize(("mean", "shape", "wanted"), MEANS.values(), ids=list(MEANS))
def test_means_over_more_elements_than_float16_can_count(mean, shape, wanted):
    x = np.full(shape, 0.25, np.float16)
    w = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        y = mean(w)
    value, slope = wanted(x.astype(np.float64), len(x))
    assert y.dtype == np.float16
    np.testing.assert_allclose(float(y), value, rtol=2e-3)
    # Numbers this small lie on a grid of 2**-24; three of its steps for three roundings.
    np.testing.assert_allclose(
        tape.gradient(y, w), np.broadcast_to(slope, shape), rtol=0, atol=3 * 2.0**-24
    )

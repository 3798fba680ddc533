"""Rows on float16 and bfloat16: computed in float32, rounded once."""

import ml_dtypes
import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices.half_dtypes import finfo, is_inexact
from odyssey.errors import DTypeError
from odyssey.ops import OPS
from odyssey.table.half_kernels import moves_elements
from support.cases import CASES, NO_HALF, SMOOTH, draw, random_like, tracked, walk

BFLOAT16, FLOAT16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float16)
EACH_HALF = pytest.mark.parametrize("dtype", [BFLOAT16, FLOAT16], ids=str)


def halves_of(sample, dtype):
    """Operands of a sample in a half; those that are float16 in it, too."""
    drawn = draw(sample, dtype)
    return [v.astype(dtype) if getattr(v, "dtype", None) == FLOAT16 else v for v in drawn]


def as_wide(value, dtype, wide=np.float64):
    return value.astype(wide) if getattr(value, "dtype", None) == dtype else value


def numbers(value):
    return value.numpy() if isinstance(value, Variable) else np.asarray(value)


def assert_near(found, wanted, bound, scale=0.0):
    """Equal to a bound relative to the largest number, or to ``scale``."""
    found, wanted = numbers(found), numbers(wanted)
    if not is_inexact(wanted.dtype):
        np.testing.assert_array_equal(found, wanted)
        return
    finite = np.abs(wanted)[np.isfinite(wanted)]
    scale = max(scale, finite.max(initial=0.0))
    wide = complex if wanted.dtype.kind == "c" else float
    np.testing.assert_allclose(found.astype(wide), wanted.astype(wide), rtol=0, atol=bound * scale)


def record(row, operands, options, positions):
    leaves = {k: Variable(operands[k], requires_grad=True) for k in positions}
    with GradientTape(persistent=True) as tape:
        out = row.call(*[leaves.get(k, v) for k, v in enumerate(operands)], **options)
    return tape, list(leaves.values()), out


@walk({name: case for name, case in CASES.items() if case[0].module not in NO_HALF})
def test_values_of_bfloat16_agree_with_float64(row, sample):
    operands = halves_of(sample, BFLOAT16)
    with np.errstate(all="ignore"):
        found = row.call(*operands, **sample.options)
        wanted = row.call(*[as_wide(v, BFLOAT16) for v in operands], **sample.options)
    assert_near(found, wanted, 2.0**-7)


@walk(
    {name: case for name, case in SMOOTH.items() if case[0].module not in NO_HALF},
    slow=("recurrent_pullback",),
)
def test_derivatives_of_bfloat16_agree_with_float64(row, sample):
    operands = halves_of(sample, BFLOAT16)
    positions = tracked(row, sample)
    with np.errstate(all="ignore"):
        tape, leaves, out = record(row, operands, sample.options, positions)
        wide = [as_wide(v, BFLOAT16) for v in operands]
        wide_tape, wide_leaves, wide_out = record(row, wide, sample.options, positions)
        if not is_inexact(out.dtype):
            return
        g = np.asarray(random_like(out, seed=1)).astype(out.dtype)
        tangents = [np.asarray(random_like(v, seed=2)).astype(v.dtype) for v in leaves]
        found, moved = tape.gradient(out, leaves, g), tape.jvp(out, leaves, tangents)
        wanted = wide_tape.gradient(wide_out, wide_leaves, g.astype(wide_out.dtype))
        moving = [as_wide(t, BFLOAT16) for t in tangents]
        wanted_moved = wide_tape.jvp(wide_out, wide_leaves, moving)
    # Rules read a result that is rounded, so errors are relative to the cotangent as well.
    scale = np.abs(g.astype(complex)).max(initial=0.0)
    for k, a, b in zip(positions, found, wanted, strict=True):
        assert a.dtype == operands[k].dtype
        assert_near(a, b, 2.0**-7, scale)
    assert_near(moved, wanted_moved, 2.0**-7, scale)


def second_derivatives(row, operands, options, positions):
    """The gradient of the sum of the gradients; None where that is a constant."""
    values = list(operands)
    leaves = [Variable(operands[k], requires_grad=True) for k in positions]
    for k, leaf in zip(positions, leaves, strict=True):
        values[k] = leaf
    with GradientTape() as outer:
        with GradientTape() as inner:
            out = row.call(*values, **options)
        if not is_inexact(out.dtype):
            return None
        g = np.asarray(random_like(out, seed=1)).astype(BFLOAT16).astype(out.dtype)
        slopes = inner.gradient(out, leaves, g, create_graph=True, unused="zero")
        total = sum(ops.sum(ops.astype(slope, np.float64)) for slope in slopes)
    if not isinstance(total, Variable) or total.is_leaf:
        return None
    return outer.gradient(total, leaves, unused="zero")


@walk(
    {name: case for name, case in SMOOTH.items() if case[0].module not in NO_HALF},
    slow=("recurrent_states", "scaled_dot_product_attention", "scaled_erfc_integral"),
)
def test_second_derivatives_of_bfloat16_agree_with_float64(row, sample):
    operands = halves_of(sample, BFLOAT16)
    positions = tracked(row, sample)
    with np.errstate(all="ignore"):
        found = second_derivatives(row, operands, sample.options, positions)
        wide = [as_wide(v, BFLOAT16) for v in operands]
        wanted = second_derivatives(row, wide, sample.options, positions)
    assert (found is None) == (wanted is None)
    for k, a, b in zip(positions, found or (), wanted or (), strict=False):
        assert a.dtype == operands[k].dtype
        finite = np.isfinite(b)  # slopes at poles are not halves
        # First derivatives are rounded, and second ones computed from them.
        assert_near(a[finite], b[finite], 2.0**-4, scale=1.0)


@walk({name: case for name, case in CASES.items() if case[0].module not in NO_HALF})
def test_values_of_float16_are_those_of_float32_rounded_once(row, sample):
    operands = halves_of(sample, FLOAT16)
    with np.errstate(all="ignore"):
        found = numbers(row.call(*operands, **sample.options))
        wide = [as_wide(v, FLOAT16, np.float32) for v in operands]
        wanted = numbers(row.call(*wide, **sample.options))
        if found.dtype != FLOAT16:
            assert_near(found, wanted, 2.0**-10)
            return
        if row.name == "nan_to_num":  # the largest number is that of the dtype
            wanted = np.clip(wanted, -65504, 65504)
        rounded = wanted.astype(FLOAT16)
        unit = np.spacing(np.abs(rounded))
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(found[~finite], rounded[~finite])
    far = np.abs(found[finite].astype(float) - rounded[finite].astype(float))
    assert (far <= unit[finite]).all()


@EACH_HALF
def test_large_elementwise_calls_give_the_bits_of_small_ones(dtype):
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(300, 200)).astype(dtype) for _ in range(2))
    mask = x > 0
    for call in (
        lambda x, y, m: ops.add(x, y),
        lambda x, y, m: ops.mul(x, 3.0),
        lambda x, y, m: ops.gelu(x),
        lambda x, y, m: ops.greater(x, y),
        lambda x, y, m: ops.clip(x, -0.5, 0.5),
        lambda x, y, m: ops.power(ops.absolute(x), 0.5),
        lambda x, y, m: ops.keep_where(x, m),
    ):
        whole = call(x, y, mask)
        rows = np.stack([call(x[k], y[k], mask[k]) for k in range(300)])
        assert whole.dtype == rows.dtype
        wanted = rows if rows.dtype == bool else rows.astype(np.float64)
        unit = 0 if rows.dtype == bool else 2.0 * float(finfo(dtype).eps)
        # Compiled loops of large arrays may differ from NumPy's in the last place of float32.
        np.testing.assert_allclose(whole.astype(wanted.dtype), wanted, rtol=unit, atol=0)


@EACH_HALF
def test_sums_of_halves_count_beyond_their_digits(dtype):
    ones = np.ones(4096, dtype)
    assert float(ops.sum(ones)) == 4096
    assert ops.sum(ones).dtype == dtype
    assert float(np.sum(Variable(ones))) == 4096
    assert float(ops.matmul(ones, ones)) == 4096
    product = ops.matmul(ones.reshape(64, 64), ones.reshape(64, 64))
    assert product.dtype == dtype
    assert (product == 64).all()
    assert (Variable(ones.reshape(64, 64)) @ ones.reshape(64, 64)).dtype == dtype


PROMOTIONS = {
    "a Python int": (2, BFLOAT16),
    "a Python float": (0.1, BFLOAT16),
    "a Python bool": (True, BFLOAT16),
    "bool": (np.ones(3, bool), BFLOAT16),
    "int8": (np.ones(3, np.int8), BFLOAT16),
    "int16": (np.ones(3, np.int16), np.float32),
    "int64": (np.ones(3, np.int64), np.float64),
    "float32": (np.ones(3, np.float32), np.float32),
    "float64": (np.ones(3), np.float64),
    "complex64": (np.ones(3, np.complex64), np.complex64),
    "bfloat16": (np.ones(3, BFLOAT16), BFLOAT16),
}


@pytest.mark.parametrize(("other", "wanted"), PROMOTIONS.values(), ids=list(PROMOTIONS))
def test_bfloat16_is_promoted_as_numpy_promotes_float16(other, wanted):
    x = Variable(np.ones(3), dtype="bfloat16")
    for call in (ops.add, ops.mul, ops.sub, ops.div):
        assert call(x, other).dtype == wanted
        assert call(other, x).dtype == wanted
        assert call(x.numpy(), other).dtype == wanted
    assert (x * other).dtype == (other * x).dtype == wanted
    if not isinstance(other, np.ndarray):
        return
    assert ops.concatenate([x, other]).dtype == wanted
    assert ops.where(np.array([True, False, True]), x, other).dtype == wanted
    assert (np.ones(3, FLOAT16) + other).dtype == (FLOAT16 if wanted == BFLOAT16 else wanted) or (
        other.dtype == BFLOAT16
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: ops.add(x, y),
        lambda x, y: Variable(x) * y,
        lambda x, y: ops.matmul(x, y),
        lambda x, y: ops.concatenate([x, y]),
        lambda x, y: ops.where(x > 0, x, y),
        lambda x, y: od.losses.mean_squared_error(Variable(x), y),
        lambda x, y: ops.average(x, weights=y),
    ],
    ids=["add", "operator", "matmul", "concatenate", "where", "loss", "composite"],
)
def test_bfloat16_with_float16_is_refused_by_name(call):
    with pytest.raises(DTypeError, match="float16 and bfloat16 have no common half; cast one"):
        call(np.ones(3, BFLOAT16), np.ones(3, FLOAT16))


def test_ops_that_need_lapack_refuse_bfloat16_by_name():
    for name in ("inv", "cholesky", "solve"):
        operands = [np.eye(2, dtype=BFLOAT16)] * len(OPS[name].arrays)
        with pytest.raises(DTypeError, match="of bfloat16; wanted are single or double"):
            OPS[name].call(*operands)


@pytest.mark.parametrize(
    "dtype", ["V2", [("a", "f4")], ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2], ids=str
)
def test_other_dtypes_of_its_kind_stay_refused(dtype):
    with pytest.raises(DTypeError):
        Variable(np.zeros(3, dtype))
    with pytest.raises(DTypeError):
        ops.sin(np.zeros(3, dtype))


def test_rows_that_move_elements_keep_views_and_payloads():
    bits = np.array([0x7FA5, 0x8000, 0x0001, 0x3F80], np.uint16)
    x = bits.view(BFLOAT16)
    for call in (
        lambda x: ops.reshape(x, (2, 2)),
        lambda x: ops.concatenate([x[:2], x[2:]]),
        lambda x: ops.take(x, np.arange(4)),
        lambda x: ops.where(np.ones(4, bool), x, x),
        lambda x: ops.roll(ops.roll(x, 1), -1),
    ):
        np.testing.assert_array_equal(call(x).reshape(-1).view(np.uint16), bits)
    assert np.shares_memory(ops.reshape(x, (2, 2)), x)
    assert moves_elements(OPS["reshape"])
    assert not moves_elements(OPS["sum"])


@EACH_HALF
def test_second_derivatives_of_halves_agree_with_float64(dtype):
    x = np.array([0.5, -0.25, 1.5])

    def f(v):
        return ops.sum(ops.mul(ops.tanh(v), ops.exp(ops.mul(v, 0.5))))

    wanted = od.hessian(f)(x)
    found = od.hessian(f)(Variable(x, dtype=dtype))
    assert found.dtype == dtype
    assert_near(found, wanted, 2.0**-6)
    half = od.hvp(f, Variable(x, dtype=dtype), np.ones(3, dtype))
    assert_near(half, wanted.sum(0), 2.0**-6)


def test_gradients_have_the_dtype_of_their_leaf_where_dtypes_are_mixed():
    w = Variable(np.ones((3, 2)), requires_grad=True, dtype="bfloat16")
    b = Variable(np.zeros(2, np.float32), requires_grad=True)
    with GradientTape() as tape:
        loss = ops.sum(ops.square(np.ones((4, 3), np.float32) @ w + b))
    assert loss.dtype == np.float32
    of_w, of_b = tape.gradient(loss, [w, b])
    assert (of_w.dtype, of_b.dtype) == (BFLOAT16, np.float32)
    np.testing.assert_array_equal(of_w, np.full((3, 2), 24, BFLOAT16))


def test_a_sum_of_gradients_over_a_batch_is_taken_in_float32():
    b = Variable(np.zeros(1), requires_grad=True, dtype="bfloat16")
    x = np.ones((4096, 1), BFLOAT16)
    with GradientTape() as tape:
        y = x * b
    assert float(tape.gradient(y, b, x)[0]) == 4096


@EACH_HALF
def test_non_finite_halves_become_the_largest_number_of_their_dtype(dtype):
    x = np.array([np.nan, 1.5, np.inf, -np.inf], dtype)
    largest = float(finfo(dtype).max)
    assert ops.nan_to_num(x).tolist() == [0.0, 1.5, largest, -largest]
    assert ops.nan_to_num(x, nan=2.0, posinf=3.0).tolist() == [2.0, 1.5, 3.0, -largest]
    assert np.nan_to_num(Variable(x)).dtype == dtype


@EACH_HALF
def test_kernels_are_counted_once_a_call(dtype):
    x = np.ones((300, 200), dtype)
    with od.testing.count_kernels() as counts:
        ops.exp(x)
        ops.matmul(x, x.T)
    assert counts == {"exp": 1, "matmul": 1}


def test_kernels_are_the_same_objects_after_blocks_of_other_kernels():
    x = np.ones((4, 300), FLOAT16)
    usual = OPS["softmax"].kernel
    with od.ops.use_kernels():
        inside = ops.softmax(x)
    assert OPS["softmax"].kernel is usual
    np.testing.assert_allclose(inside, ops.softmax(x), rtol=1e-3)


def test_floating_point_errors_of_large_halves_are_raised_as_of_small_ones():
    for shape in ((3,), (300, 300)):
        x = np.full(shape, 300.0, FLOAT16)
        with np.errstate(over="raise"), pytest.raises(FloatingPointError, match="overflow"):
            ops.mul(x, x)
        with np.errstate(over="ignore"):
            assert np.isinf(ops.mul(x, x)).all()

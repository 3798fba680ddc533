"""What the elementwise ops are far out, at their corners, and with their options."""

import math

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, SettingError
from odyssey.table.real_operands import real_floating

INF = np.inf
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


def value_and_gradient(op, x, **options):
    leaf = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        out = op(leaf, **options)
    return out.numpy(), tape.gradient(out, leaf, np.ones(out.shape, out.dtype))


def slope(op, x, **options):
    return value_and_gradient(op, x, **options)[1]


# ------------------------------------------------------------------ the error function


def units_off(got, wanted, dtype):
    """The largest error in units in the last place of what was wanted."""
    wanted = np.asarray(wanted, np.float64)
    unit = np.spacing(np.abs(wanted.astype(dtype))).astype(np.float64)
    return np.max(np.abs(got.astype(np.float64) - wanted) / unit)


def spread_out(dtype, end):
    """Numbers of every size and sign, many around the places where the formulas change."""
    rng = np.random.default_rng(5)
    smallest = np.log10(np.finfo(dtype).tiny)
    parts = [
        rng.uniform(-end, end, 4000),
        rng.uniform(0.98, 1.02, 1000) * rng.choice([-1, 1], 1000),
        10 ** rng.uniform(smallest, 0, 1000) * rng.choice([-1, 1], 1000),
        np.array([0.0, 1.0, np.nextafter(1, 2), np.nextafter(1, 0)]),
    ]
    return np.concatenate(parts).astype(dtype)


@DTYPES
def test_erf_errs_by_less_than_two_units_on_the_whole_range(dtype):
    x = spread_out(dtype, 7)
    # The C library's erf is itself up to one unit off.
    allowed = 2 if dtype == np.float32 else 3
    assert units_off(ops.erf(x), [math.erf(v) for v in x], dtype) < allowed


def test_erfc_of_float32_errs_by_less_than_six_units_on_the_whole_range():
    x = spread_out(np.float32, 9.1)
    assert units_off(ops.erfc(x), [math.erfc(v) for v in x], np.float32) < 6


@pytest.mark.peers
def test_erf_and_erfc_of_float64_agree_with_forty_digits_on_the_whole_range():
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(40):
        for op, reference, end, allowed in (
            (ops.erf, mpmath.erf, 7, 2),
            (ops.erfc, mpmath.erfc, 26.4, 6),
        ):
            x = spread_out(np.float64, end)
            exact = [reference(mpmath.mpf(float(v))) for v in x]
            rounded = np.array([float(e) for e in exact])
            error = [float(mpmath.mpf(float(g)) - e) for g, e in zip(op(x), exact, strict=True)]
            assert np.max(np.abs(error) / np.spacing(np.abs(rounded))) < allowed


@DTYPES
def test_erf_and_erfc_reach_their_limits_and_pass_nan_on(dtype):
    x = np.array([-INF, -1e30, -40, -0.0, 0.0, 40, 1e30, INF, np.nan], dtype)
    np.testing.assert_array_equal(ops.erf(x), np.array([-1, -1, -1, 0, 0, 1, 1, 1, np.nan], dtype))
    np.testing.assert_array_equal(ops.erfc(x), np.array([2, 2, 2, 1, 1, 0, 0, 0, np.nan], dtype))
    assert np.signbit(ops.erf(x)[3:5]).tolist() == [True, False]
    at_0 = dtype(2 / math.sqrt(math.pi))
    np.testing.assert_array_equal(slope(ops.erf, x[:-1]), [0, 0, 0, at_0, at_0, 0, 0, 0])
    np.testing.assert_array_equal(slope(ops.erfc, x[:-1]), [0, 0, 0, -at_0, -at_0, 0, 0, 0])


def test_erf_takes_arrays_longer_than_one_block_and_of_any_layout():
    x = np.random.default_rng(0).normal(size=(3, 70_000))
    whole = ops.erf(x)
    np.testing.assert_array_equal(whole[:, ::7], ops.erf(x[:, ::7]))
    np.testing.assert_array_equal(whole.T, ops.erf(x.T))


# ------------------------------------------------------------------ far out

FAR = np.array([-INF, -1e30, -1000.0, 1000.0, 1e30, INF])
BOUNDED = {
    # name: (values to the left and right where constant, None where x itself; slopes)
    "sigmoid": (0, 1, 0, 0),
    "tanh": (-1, 1, 0, 0),
    "log_sigmoid": (None, 0, 1, 0),
    "softplus": (0, None, 0, 1),
    "silu": (0, None, 0, 1),
    "mish": (0, None, 0, 1),
    "gelu": (0, None, 0, 1),
    "relu6": (0, 6, 0, 0),
    "elu": (-1, None, 0, 1),
    "hard_sigmoid": (0, 1, 0, 0),
    "hard_swish": (0, None, 0, 1),
    "hard_tanh": (-1, 1, 0, 0),
}


@DTYPES
@pytest.mark.parametrize("name", BOUNDED)
def test_activations_far_out_are_their_limits_without_a_warning(name, dtype):
    left, right, slope_left, slope_right = BOUNDED[name]
    x = FAR.astype(dtype)
    value, gradient = value_and_gradient(getattr(ops, name), x)
    wanted = [v if left is None else left for v in x[:3]]
    wanted += [v if right is None else right for v in x[3:]]
    np.testing.assert_array_equal(value, np.array(wanted, dtype))
    np.testing.assert_array_equal(gradient, np.array([slope_left] * 3 + [slope_right] * 3, dtype))
    assert value.dtype == gradient.dtype == dtype


def test_the_approximate_gelu_and_selu_and_softsign_reach_their_limits_as_well():
    value, gradient = value_and_gradient(ops.gelu, FAR, approximate="tanh")
    np.testing.assert_array_equal(value, [0, 0, 0, *FAR[3:]])
    np.testing.assert_array_equal(gradient, [0, 0, 0, 1, 1, 1])
    value, gradient = value_and_gradient(ops.selu, FAR)
    np.testing.assert_allclose(value[:3], -1.7580993408473766, rtol=1e-15)
    np.testing.assert_allclose(gradient, [0] * 3 + [1.0507009873554805] * 3, rtol=1e-15)
    value, gradient = value_and_gradient(ops.softsign, [-1e300, 1e300])
    assert (value.tolist(), gradient.tolist()) == ([-1, 1], [0, 0])


# The standard normal distribution function and its density at -10, to 20 digits.
BELOW, DENSITY = 7.6198530241605260660e-24, 7.6945986267064193463e-23
SMALL = math.exp(-50)
TAILS = {
    # name: (op, x, value, slope), to which the next term of the series adds nothing in 16 digits
    "log_sigmoid": (ops.log_sigmoid, 50.0, -SMALL, SMALL),
    "softplus": (ops.softplus, -50.0, SMALL, SMALL),
    "silu": (ops.silu, -50.0, -50 * SMALL, -49 * SMALL),
    "mish": (ops.mish, -50.0, -50 * SMALL, -49 * SMALL),
    "elu": (ops.elu, -50.0, -1.0, SMALL),
    "expm1": (ops.expm1, -50.0, -1.0, SMALL),
    "gelu": (ops.gelu, -10.0, -10 * BELOW, BELOW - 10 * DENSITY),
    "erfc": (ops.erfc, 10.0, math.erfc(10), -2 / math.sqrt(math.pi) * math.exp(-100)),
    "log1p": (ops.log1p, 1e-20, 1e-20, 1.0),
    "expm1 near 0": (ops.expm1, 1e-20, 1e-20, 1.0),
}


@pytest.mark.parametrize("case", TAILS.values(), ids=list(TAILS))
def test_small_values_and_slopes_keep_their_digits(case):
    op, x, value, expected = case
    got, gradient = value_and_gradient(op, x)
    # An exponent of -50 or -x**2, rounded once, is that many times its rounding off in its power.
    tolerance = np.finfo(np.float64).eps * max(4, x * x if op in (ops.gelu, ops.erfc) else 50)
    np.testing.assert_allclose(got, value, rtol=tolerance)
    np.testing.assert_allclose(gradient, expected, rtol=tolerance)


EXTREME = {
    "arctan": (ops.arctan, [1e200], [0.0]),
    "arctan, one digit left": (ops.arctan, [1e150], [1e-300]),
    "arcsinh": (ops.arcsinh, [1e200, -1e200], [1e-200, 1e-200]),
    "arccosh": (ops.arccosh, [1e200], [1e-200]),
    "rsqrt": (ops.rsqrt, [1e-200, 1e200], [-5e299, -5e-301]),
}


@pytest.mark.parametrize("case", EXTREME.values(), ids=list(EXTREME))
def test_derivatives_of_huge_and_tiny_numbers_neither_overflow_nor_warn(case):
    op, x, wanted = case
    np.testing.assert_allclose(slope(op, x), wanted, rtol=1e-14)


@pytest.mark.parametrize("size", [1e300, 1e-300], ids=["huge", "tiny"])
def test_hypot_and_arctan2_of_huge_and_tiny_points_have_their_derivatives(size):
    y, x = (Variable(s * size, requires_grad=True) for s in (3.0, -4.0))
    with GradientTape(persistent=True) as tape:
        length, angle = ops.hypot(y, x), ops.arctan2(y, x)
    np.testing.assert_allclose(tape.gradient(length, [y, x]), [0.6, -0.8], rtol=1e-15)
    # Scaled before the sweep: the derivatives themselves are 0.16 / size.
    scaled = tape.gradient(angle, [y, x], np.array(min(size, 1.0)))
    np.testing.assert_allclose(scaled, np.array([-0.16, -0.12]) * min(1.0, 1 / size), rtol=1e-15)


CUTS = {
    "arcsin": [1.5 + 0.1j, 1.5 - 0.1j, -1.5 + 0.1j, -1.5 - 0.1j],
    "arccos": [1.5 + 0.1j, 1.5 - 0.1j, -1.5 + 0.1j, -1.5 - 0.1j],
    "arccosh": [0.5 + 0.1j, 0.5 - 0.1j, -2.0 + 0.1j, -2.0 - 0.1j],
    "arctanh": [1.5 + 0.1j, 1.5 - 0.1j, -1.5 + 0.1j, -1.5 - 0.1j],
    "arcsinh": [1.5j + 0.1, 1.5j - 0.1, -1.5j + 0.1, -1.5j - 0.1],
    "arctan": [1.5j + 0.1, 1.5j - 0.1, -1.5j + 0.1, -1.5j - 0.1],
}


@pytest.mark.parametrize("name", CUTS)
def test_complex_inverse_functions_have_their_derivative_on_both_sides_of_the_cuts(name):
    od.testing.check_gradients(getattr(ops, name), np.array(CUTS[name]))


# ------------------------------------------------------------------ steps

ROUNDING = {
    "floor": ops.floor,
    "ceil": ops.ceil,
    "rint": ops.rint,
    "trunc": ops.trunc,
    "fix": ops.fix,
    "round": lambda x: ops.round(x, 1),
    "floor_divide": lambda x: ops.floor_divide(x, 2.0),
    "floor_divide, divisor": lambda x: ops.floor_divide(2.0, x),
    "sign": ops.sign,
}


@pytest.mark.parametrize("name", ROUNDING)
def test_what_rounds_has_the_derivative_0_at_its_steps_too_and_for_any_cotangent(name):
    x = Variable([1.2, -1.7, 2.0, 4.0], requires_grad=True)
    cotangent = np.array([1.0, INF, 2.0, np.nan])
    with GradientTape(persistent=True) as tape:
        y = ROUNDING[name](x)
    assert tape.gradient(y, x, cotangent).tolist() == [0.0] * 4
    assert tape.jvp(y, x, cotangent).tolist() == [0.0] * 4


@pytest.mark.parametrize("name", ROUNDING)
def test_what_rounds_is_a_constant_factor_to_any_order(name):
    x = Variable([1.2, -1.7, 2.0, 4.0], requires_grad=True)
    with GradientTape(persistent=True) as outer:
        with GradientTape() as tape:
            y = ROUNDING[name](x) * x
        slope = tape.gradient(y, x, np.ones(4))
    assert slope.numpy().tolist() == ROUNDING[name](x.numpy()).tolist()
    assert outer.gradient(slope, x, np.ones(4)).tolist() == [0.0] * 4
    assert outer.jvp(slope, x, np.ones(4)).tolist() == [0.0] * 4


def test_a_rounded_value_added_as_a_detached_step_lets_the_gradient_straight_through():
    x = Variable([1.25, -1.75], requires_grad=True)
    with GradientTape() as tape:
        y = x + ops.round(x.detach()) - x.detach()
    assert y.numpy().tolist() == [1.0, -2.0]
    assert tape.gradient(y, x, np.ones(2)).tolist() == [1.0, 1.0]


def test_mod_is_straight_between_its_jumps_so_its_second_derivatives_are_zero():
    x, y = Variable([5.5, -5.5], requires_grad=True), Variable([2.0, 2.0], requires_grad=True)
    with GradientTape() as outer:
        with GradientTape() as inner:
            out = ops.mod(x, y)
        first = inner.gradient(out, [x, y], np.ones(2))
        total = sum(ops.sum(g * v) for g, v in zip(first, (x, y), strict=True))
    assert out.numpy().tolist() == [1.5, 0.5]
    assert [g.numpy().tolist() for g in first] == [[1, 1], [-2, 3]]
    # total = x - floor(x / y) y, with the quotient constant.
    assert [g.tolist() for g in outer.gradient(total, [x, y])] == [[1, 1], [-2, 3]]


def test_the_derivative_of_fmod_counts_whole_quotients_where_their_floats_round_up():
    x, y = np.float64(7.7), np.float64(1.1)
    assert x / y == 7  # rounded: the quotient is a little less
    assert od.grad(ops.fmod, 1)(x, y) == -6
    assert od.grad(ops.fmod, 1)(-x, y) == 6


FMODS = {
    "integers": (np.int8, [-128, 127, -7, 7, 5, 0], [-1, 2, 3, -3, 0, 5]),
    "unsigned": (np.uint8, [255, 7, 5], [2, 3, 0]),
    "floats": (np.float32, [5.5, -5.5, -0.0, INF, 1, 2, -6], [2, -2, 3, 1, INF, 0, 3]),
    "halves": (np.float16, [5.5, -5.5, -0.0, 65504], [2, 2, 3, 0.3]),
}


@pytest.mark.parametrize("kind", FMODS)
def test_fmod_compiled_is_numpys_with_its_sign(kind):
    dtype, *numbers = FMODS[kind]
    x, y = (np.array(n, dtype) for n in numbers)
    compiled = od.compile(ops.fmod)
    with np.errstate(all="ignore"):
        wanted = np.fmod(x, y)
        outs = [compiled(x, y) for _ in range(3)]
    for out in outs:
        assert out.dtype == wanted.dtype
        assert out.tobytes() == wanted.tobytes() or np.array_equal(out, wanted, equal_nan=True)
        assert np.signbit(out)[wanted == 0].tolist() == np.signbit(wanted)[wanted == 0].tolist()
    assert compiled.statistics().native == 2


def test_positive_is_a_value_of_its_own_as_numpys():
    x = np.array([1.0, -0.0])
    assert not np.shares_memory(ops.positive(x), x)
    assert od.grad(lambda x: ops.sum(np.positive(x) * 3))(x).tolist() == [3, 3]


@pytest.mark.parametrize("name", ["isfinite", "isnan", "isinf"])
def test_tests_of_numbers_are_constants_that_nothing_records(name):
    x = Variable([1.0, INF, np.nan], requires_grad=True)
    with GradientTape() as tape:
        out = getattr(ops, name)(x)
        assert len(tape) == 0
    assert out.numpy().tolist() == getattr(np, name)([1.0, INF, np.nan]).tolist()
    assert not out.requires_grad


# ------------------------------------------------------------------ clip


def test_clip_takes_both_of_numpys_spellings_of_its_bounds():
    x = np.array([-2.0, 0.5, 3.0])
    for clipped in (
        ops.clip(x, -1, 1),
        ops.clip(x, a_min=-1, a_max=1),
        ops.clip(x, min=-1, max=1),
        ops.clip(x, -1, max=1),
    ):
        assert clipped.tolist() == [-1.0, 0.5, 1.0]
    assert ops.clip(x, None, 1).tolist() == [-2.0, 0.5, 1.0]
    assert ops.clip(x, min=0).tolist() == [0.0, 0.5, 3.0]
    same = ops.clip(x)
    assert same.tolist() == x.tolist()
    assert not np.shares_memory(same, x)


def test_clip_with_array_bounds_sums_the_gradient_back_to_its_operand():
    x = Variable([0.0, 2.0], requires_grad=True)
    with GradientTape() as tape:
        y = np.clip(x, np.array([[-1.0], [1.0], [2.0]]), 3.0)
    assert y.numpy().tolist() == [[0, 2], [1, 2], [2, 2]]
    assert tape.gradient(y, x, np.ones((3, 2))).tolist() == [1.0, 3.0]


def test_bounds_that_their_owner_changes_later_do_not_change_the_gradient():
    x, bound = Variable([0.0, 2.0], requires_grad=True), np.array([1.0, 3.0])
    with GradientTape() as tape:
        y = ops.clip(x, None, bound)
    bound[:] = -5.0
    assert tape.gradient(y, x, np.ones(2)).tolist() == [1.0, 1.0]


# ------------------------------------------------------------------ options and operands


def test_a_weight_of_prelu_belongs_to_the_second_axis_as_in_pytorch():
    x = -np.arange(1.0, 9.0).reshape(2, 2, 2)
    leaf, weight = Variable(x, requires_grad=True), Variable([0.5, 2.0], requires_grad=True)
    with GradientTape() as tape:
        y = ops.prelu(leaf, weight)
    assert y.numpy().tolist() == [[[-0.5, -1], [-6, -8]], [[-2.5, -3], [-14, -16]]]
    of_x, of_weight = tape.gradient(y, [leaf, weight], np.ones((2, 2, 2)))
    assert of_x[:, 0].tolist() == [[0.5, 0.5], [0.5, 0.5]]
    assert of_weight.tolist() == [-(1 + 2 + 5 + 6), -(3 + 4 + 7 + 8)]


def test_an_infinite_weight_of_prelu_leaves_positive_numbers_as_they_are():
    x = np.array([2.0, -1.0, np.inf, -np.inf])
    assert ops.prelu(x, np.inf).tolist() == [2.0, -np.inf, np.inf, -np.inf]
    np.testing.assert_array_equal(ops.prelu(x, np.nan), [2.0, np.nan, np.inf, np.nan])


def test_the_weight_of_prelu_may_be_a_number():
    x = np.array([-2.0, 3.0], np.float32)
    assert ops.prelu(x, 0.25).tolist() == [-0.5, 3.0]
    assert ops.prelu(x, 0.25).dtype == np.float32
    assert slope(lambda v: ops.prelu(v, 0.25), x).tolist() == [0.25, 1.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, c: ops.leaky_relu(x, negative_slope=c),
        lambda x, c: ops.elu(x, alpha=c),
        lambda x, c: ops.softplus(x, beta=c),
        lambda x, c: ops.hard_tanh(x, max_val=c),
    ],
    ids=["leaky_relu", "elu", "softplus", "hard_tanh"],
)
def test_an_option_raises_no_precision_and_a_variable_is_no_option(call):
    x = np.array([-0.5, 0.25], np.float32)
    for option in (0.5, np.float64(0.5), np.array(0.5), 1):
        assert call(x, option).dtype == np.float32
        assert slope(lambda v, c=option: call(v, c), x).dtype == np.float32
    with pytest.raises(DTypeError, match="static, pass a real number"):
        call(x, Variable(0.5))


def test_gelu_takes_pytorchs_two_words_only():
    with pytest.raises(SettingError, match="choose 'none' or 'tanh'"):
        ops.gelu(1.0, approximate="erf")


ALIASES = {
    "swish": "silu",
    "logsigmoid": "log_sigmoid",
    "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish",
    "hardtanh": "hard_tanh",
    "remainder": "mod",
    "positive": "identity",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "atan2": "arctan2",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
}


def test_other_names_are_the_same_ops():
    assert {a: getattr(ops, a).row.name for a in ALIASES} == ALIASES


INTEGERS = {"int8": "float16", "int16": "float32", "int32": "float64", "bool": "float16"}


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_become_the_floats_that_numpys_functions_make_of_them(dtype):
    assert np.exp(np.ones(1, dtype)).dtype == INTEGERS[dtype]
    assert real_floating(np.ones(1, dtype)).dtype == INTEGERS[dtype]
    for name in ("erf", "silu", "gelu", "mish", "softplus", "log_sigmoid", "softsign", "selu"):
        assert getattr(ops, name)(np.ones(1, dtype)).dtype == INTEGERS[dtype]


@pytest.mark.parametrize("name", ["silu", "gelu", "erf", "elu", "hard_swish"])
def test_python_numbers_stay_weak(name):
    out = getattr(ops, name)(0.5)
    assert type(out) is float


# ------------------------------------------------------------------ relu, in all its lengths


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f8", "int64"])
@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 16384, 16385, 20480, 100_003])
def test_relu_of_any_length_is_the_larger_of_each_and_zero(size, dtype):
    x = (np.random.default_rng(size).standard_normal(size) * 5).astype(dtype)
    before = x.copy()
    if x.dtype.kind == "f" and size > 9:
        x[[0, 3, -2, -1]] = before[[0, 3, -2, -1]] = np.nan, INF, -INF, np.nan
    got = ops.relu(x)
    assert got.dtype == x.dtype.newbyteorder("=")
    np.testing.assert_array_equal(got, np.where(x < 0, 0, x).astype(dtype))
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("layout", ["columns first", "every other", "backwards", "broadcast"])
def test_relu_of_any_layout_is_the_larger_of_each_and_zero(layout):
    x = np.random.default_rng(0).standard_normal((130, 260))
    view = {
        "columns first": np.asfortranarray(x),
        "every other": x[:, ::2],
        "backwards": x[::-1, ::-1],
        "broadcast": np.broadcast_to(x[0], (130, 260)),
    }[layout]
    np.testing.assert_array_equal(ops.relu(view), np.where(view < 0, 0, view))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "elu", "celu", "selu"])
def test_rectifiers_of_negative_zero_are_zero_eager_and_compiled(name, dtype):
    function, x = getattr(ops, name), np.array([-0.0, 0.0] * 9, dtype)
    compiled = od.compile(lambda x: function(x))
    for out in (function(x), compiled(x), compiled(x)):
        assert not np.signbit(out).any()
    assert not np.signbit(ops.prelu(x, dtype(0.25))).any()


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.uint8, np.int32])
def test_integer_operands_of_entropies_and_quantiles_are_floats_before_they_are_combined(dtype):
    limits = np.iinfo(dtype)
    y = np.array([limits.min, limits.max, 1], dtype)
    p = np.ones(3, dtype)
    for function in (ops.binary_entropy, ops.binary_entropy_with_logits):
        wanted = function(p.astype(float), y.astype(float))
        compiled = od.compile(lambda p, y, f=function: f(p, y))
        for out in (function(p, y), compiled(p, y), compiled(p, y)):
            np.testing.assert_allclose(out, wanted.astype(out.dtype), rtol=4e-3, atol=1)
    ends = np.array([limits.min, limits.max], dtype)
    for q in (0.25, [0.5, 0.75]):
        wanted = np.quantile(ends.astype(float), q)
        np.testing.assert_allclose(ops.quantile(ends, q), wanted, rtol=1e-9)
        np.testing.assert_allclose(ops.percentile(ends, np.multiply(q, 100)), wanted, rtol=1e-9)

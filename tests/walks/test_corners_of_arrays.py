"""Derivatives of folds, losses and products at the corners: right, and NaN where there is none."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.ops import OPS
from support import formulas_linalg
from support.cases import SMOOTH, derive, tracked, walk

pytest.importorskip("mpmath", reason="a test dependency: pip install -e '.[test]'")
import mpmath
from mpmath import mp, mpf
from test_corners import ELSEWHERE

from support.mp_reference import BINARY, SLOPES, UNARY

INF, NAN = np.inf, np.nan


every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


@pytest.fixture(autouse=True)
def no_warnings():
    with np.errstate(all="ignore"):
        yield


# ------------------------------------------------------------------ the functions in many digits


def exponentials(x):
    e = [mpmath.exp(v - max(x)) for v in x]
    return e, mpmath.fsum(e)


def softmax(x):
    e, total = exponentials(x)
    return [v / total for v in e]


def log_softmax(x):
    _, total = exponentials(x)
    return [v - max(x) - mpmath.log(total) for v in x]


def logsumexp(x):
    return [mpmath.log(exponentials(x)[1]) + max(x)]


def cross_entropy(x):
    return [-log_softmax(x)[1]]


def smoothed(x):
    z = log_softmax(x)
    return [-(mpf(0.5) * z[1] + mpf(0.5) * mpmath.fsum(z) / 3)]


def var(x, ddof=0):
    mean = mpmath.fsum(x) / len(x)
    return [mpmath.fsum((v - mean) ** 2 for v in x) / (len(x) - ddof)]


def std(x):
    return [mpmath.sqrt(var(x, 1)[0])]


def prod(x):
    return [mpmath.fprod(x)]


def others(x):
    return [mpmath.fprod(x[:k] + x[k + 1 :]) for k in range(len(x))]


def squared(x):
    return [mpmath.fsum((v - w) ** 2 for v, w in zip(x, TARGET, strict=True)) / 3]


def running(x):
    return [mpmath.fsum(x[: k + 1]) for k in range(len(x))]


def running_product(x):
    return [mpmath.fprod(x[: k + 1]) for k in range(len(x))]


def in_a_line(x):
    return ops.reshape(x, (1, 1, 3))


SHARES = [0.25, 0.5, 0.25]


def shares(x):
    return np.array(SHARES, x.dtype)


def pulled(x):
    mean = mpmath.fsum(s * v for s, v in zip(SHARES, x, strict=True))
    return [s * (v - mean) for s, v in zip(SHARES, x, strict=True)]


def pulled_to_logarithms(x):
    return [v - s * mpmath.fsum(x) for s, v in zip(SHARES, x, strict=True)]


def recurrence(x):
    out = [x[0]]
    for v in x[1:]:
        out.append(v + v * out[-1])
    return out


# Away from the numbers that are tried; where lines meet, the slope is stated with the kinks.
POINTS, HEIGHTS = [-0.75, 0.25, 1.75, 3.25, 5.5], [1.0, -2.0, 0.5, 4.0, 3.0]


def lines(x):
    return [line(v) for v in x]


def line(v):
    if not POINTS[0] < v < POINTS[-1]:
        return mpf(HEIGHTS[0] if v < 0 else HEIGHTS[-1])
    k = max(k for k in range(4) if POINTS[k] < v)
    rise = mpf(HEIGHTS[k + 1] - HEIGHTS[k]) / (POINTS[k + 1] - POINTS[k])
    return HEIGHTS[k] + (v - POINTS[k]) * rise


def crossed(x):
    a, b, c = TARGET
    return [x[1] * c - x[2] * b, x[2] * a - x[0] * c, x[0] * b - x[1] * a]


def slope_of_entropy(x):
    s = softmax(x)
    return [s[0], s[1] - 1, s[2]]


def layer(x):
    return [2 * x[0] - 3 * x[2] + 1, x[0] + x[1] + x[2] - 1]


TARGET = [0.5, -1.0, 2.0]
FUNCTIONS = {
    "softmax": (ops.softmax, softmax),
    "log_softmax": (ops.log_softmax, log_softmax),
    "logsumexp": (ops.logsumexp, logsumexp),
    "softmax_cross_entropy": (lambda x: ops.softmax_cross_entropy(x, np.array(1)), cross_entropy),
    "softmax_cross_entropy, rows": (
        lambda x: ops.softmax_cross_entropy(ops.reshape(x, (1, 3)), np.array([1])),
        cross_entropy,
    ),
    "softmax_cross_entropy, smoothed": (
        lambda x: ops.softmax_cross_entropy(x, np.array(1), label_smoothing=0.5),
        smoothed,
    ),
    "var": (ops.var, var),
    "std": (lambda x: ops.std(x, ddof=1), std),
    "prod": (ops.prod, prod),
    "prod_others": (ops.prod_others, others),
    "squared_error_mean": (lambda x: ops.squared_error_mean(x, np.array(TARGET, x.dtype)), squared),
    "sum": (ops.sum, lambda x: [mpmath.fsum(x)]),
    "mean": (ops.mean, lambda x: [mpmath.fsum(x) / len(x)]),
    "softmax_cross_entropy_slope": (
        lambda x: ops.softmax_cross_entropy_slope(x, np.array(1)),
        slope_of_entropy,
    ),
    "linear": (
        lambda x: ops.linear(
            x, np.array([[2, 0, -3], [1, 1, 1]], x.dtype), np.array([1, -1], x.dtype)
        ),
        layer,
    ),
    "contract": (
        lambda x: ops.contract(x, x, "a,a->"),
        lambda x: [mpmath.fsum(v * v for v in x)],
    ),
    "cross": (lambda x: ops.cross(x, np.array(TARGET, x.dtype)), crossed),
    "convolve": (
        lambda x: ops.convolve(x, np.array([2.0, -1.0], x.dtype), "valid"),
        lambda x: [2 * x[1] - x[0], 2 * x[2] - x[1]],
    ),
    "convolve, with itself": (
        lambda x: ops.convolve(x, x, "same"),
        lambda x: [2 * x[0] * x[1], 2 * x[0] * x[2] + x[1] * x[1], 2 * x[1] * x[2]],
    ),
    "cumsum": (ops.cumsum, running),
    "cumprod": (ops.cumprod, running_product),
    "softmax_pullback": (lambda x: ops.softmax_pullback(x, shares(x)), pulled),
    "log_softmax_pullback": (
        lambda x: ops.log_softmax_pullback(x, np.log(shares(x))),
        pulled_to_logarithms,
    ),
    "conv1d": (
        lambda x: ops.ravel(ops.conv1d(in_a_line(x), np.array([[[2.0, -1.0]]], x.dtype))),
        lambda x: [2 * x[0] - x[1], 2 * x[1] - x[2]],
    ),
    "convolution_input": (
        lambda x: ops.convolution_input(in_a_line(x), np.array([[[2.0, -1.0]]], x.dtype), (4,))[
            0, 0, :3
        ],
        lambda x: [2 * x[0], 2 * x[1] - x[0], 2 * x[2] - x[1]],
    ),
    "convolution_weight": (
        lambda x: ops.ravel(
            ops.convolution_weight(np.array([[[2.0, -1.0]]], x.dtype), in_a_line(x), (2,))
        ),
        lambda x: [2 * x[0] - x[1], 2 * x[1] - x[2]],
    ),
    "linear_recurrence": (lambda x: ops.linear_recurrence(x, x), recurrence),
    "linear_recurrence, reverse": (
        lambda x: ops.flip(
            ops.linear_recurrence(ops.flip(x), ops.roll(ops.flip(x), 1), reverse=True)
        ),
        recurrence,
    ),
    "piecewise_linear": (
        lambda x: ops.piecewise_linear(x, np.array(POINTS, x.dtype), np.array(HEIGHTS, x.dtype)),
        lines,
    ),
    "matmul": (lambda x: ops.matmul(x, x), lambda x: [mpmath.fsum(v * v for v in x)]),
}


# Exponentials of 900 digits take long; and what they give is around 1, or 0.
EXPONENTIAL = {name for name in FUNCTIONS if "softmax" in name or name == "logsumexp"}


def digits(name):
    """How many are enough for the smallest numbers beside the largest."""
    return 320 if name in EXPONENTIAL else 1200


# ------------------------------------------------------------------ at the corners


def points(dtype):
    limits = np.finfo(dtype)
    root, tiny = float(limits.max) ** 0.5, float(limits.tiny)
    rows = [
        [0.0, 0.0, 0.0],
        [2.0, 2.0, 2.0],
        [1.0, 2.0, 4.0],
        [0.0, -0.0, 1.0],
        [0.0, 2.0, 3.0],
        [-INF, 0.0, 1.0],
        [1.0, -INF, 0.0],
        [-INF, -INF, 0.0],
        [-INF, -INF, -INF],
        [INF, 0.0, 1.0],
        [INF, INF, 0.0],
        [NAN, 0.0, 1.0],
        [800.0, -800.0, 0.0],
        [8 * root, -8 * root, 4 * root],
        [tiny**0.5 / 8, tiny**0.5 / 4, -(tiny**0.5)],
        [float(limits.smallest_subnormal), 0.0, 1.0],
        [4 * tiny, 16 * tiny, 0.0],
    ]
    return [np.array(row, dtype) for row in rows]


def derivatives(call, x, cotangent, direction):
    """The result, its gradient, tangent and second derivatives along a direction, by modes."""
    v = Variable(x, requires_grad=True)
    with GradientTape(persistent=True) as outer:
        with GradientTape(persistent=True) as inner:
            out = call(v)
        c = cotangent[: out.size].reshape(out.shape)
        back, move = inner.gradient(out, v, c), inner.jvp(out, v, direction)
    got = {"gradient": back.numpy(), "tangent": np.atleast_1d(move.numpy())}
    if back.requires_grad:
        got["reverse over reverse"] = outer.gradient(back, v, direction)
        got["forward over reverse"] = outer.jvp(back, v, direction)
    if move.requires_grad:
        got["reverse over forward"] = outer.gradient(move, v, c)
    return out.numpy(), got


def finite(x):
    """Numbers so far out that more would change nothing, for infinite ones."""
    x = x.tolist()
    far = max([abs(v) for v in x if np.isfinite(v)] + [1]) * 1e4
    return [mpf(v) if np.isfinite(v) else mpf(v > 0 or -1) * far for v in x]


def differences(name, x, cotangent, direction):
    """Gradient, tangent and second derivative along the direction, in many digits."""
    f, x = FUNCTIONS[name][1], finite(x)
    h = mpf(10) ** (-30 if name in EXPONENTIAL else -200)
    if name == "std":  # whose second derivatives grow as the numbers get small
        h = mpf(10) ** -30 * min([abs(v) for v in x if v] + [mpf(1)])

    def slope(x):
        return [central(lambda s, k=k: total(moved(x, s, k))) for k in range(len(x))]

    def moved(x, s, k):
        return [v + s * (i == k) for i, v in enumerate(x)]

    def total(x):
        return mpmath.fsum(c * v for c, v in zip(cotangent.tolist(), f(x), strict=False))

    def along(s):
        return [v + s * d for v, d in zip(x, direction.tolist(), strict=True)]

    def central(function):
        return (function(h) - function(-h)) / (2 * h)

    tangent = [(a - b) / (2 * h) for a, b in zip(f(along(h)), f(along(-h)), strict=True)]
    bend = [(a - b) / (2 * h) for a, b in zip(slope(along(h)), slope(along(-h)), strict=True)]
    return slope(x), tangent, bend


def exact(name, x, cotangent, direction):
    """The same; NaN in what depends on a number that is NaN."""
    with mp.workdps(digits(name)):
        if not np.isnan(x).any():
            return differences(name, x, cotangent, direction)
        both = (
            differences(name, np.where(np.isnan(x), v, x), cotangent, direction)
            for v in (1.25, 2.5)
        )
        return [
            [a if abs(a - b) < 1e-20 else mp.nan for a, b in zip(*parts, strict=True)]
            for parts in zip(*both, strict=True)
        ]


def stated(name, x, mode):
    """What ``kinks`` promises where there is no derivative, or None."""
    if name == "std" and len(set(x.tolist())) == 1 and np.isfinite(x).all():
        return NAN if "over" in mode else 0.0
    return 0.0 if name == "logsumexp" and (x == -INF).all() else None


def fits(got, want, size, x, dtype, name):
    limits = np.finfo(dtype)
    if np.isnan(got) or mpmath.isnan(want):
        return np.isnan(got) and bool(mpmath.isnan(want))
    if np.isinf(got):
        # Far out stands for infinity.
        most = 1000 if np.isinf(x).any() else float(limits.max) * 0.999
        return abs(want) > most and mpmath.sign(want) == np.sign(got)
    rounding = 1e-3 if np.isinf(x).any() else 64 * float(limits.eps)
    least = 1e-60 if name in EXPONENTIAL else 16 * float(limits.tiny)
    return abs(got - want) <= rounding * size + least


@pytest.mark.share(4)
@every_dtype
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_arrays_have_their_derivatives_at_the_corners(name, dtype):
    cotangent = np.array([1.5, -0.75, 0.5], dtype)
    direction = np.array([0.5, 1.25, -1.0], dtype)
    wrong = []
    for x in points(dtype):
        out, got = derivatives(FUNCTIONS[name][0], x, cotangent, direction)
        gradient, tangent, bend = exact(name, x, cotangent, direction)
        # Where a result is infinite or NaN the rules may end in inf - inf.
        open_ended = not np.isfinite(out).all()
        for mode, values in got.items():
            wanted = {"gradient": gradient, "tangent": tangent}.get(mode, bend)
            promised = stated(name, x, mode)
            wanted = wanted if promised is None else [mpf(promised)] * len(wanted)
            size = max([abs(v) for v in wanted if not mpmath.isnan(v)], default=0)
            for value, want in zip(values.tolist(), wanted, strict=True):
                if np.isnan(value) and (open_ended or np.isnan(x).any()):
                    continue
                if not fits(value, want, size, x, dtype, name):
                    shown = [mpmath.nstr(v, 9) for v in wanted]
                    wrong.append(f"{mode} at {x}: {values}, wanted {shown}")
                    break
    assert not wrong, "\n".join(wrong)


# ------------------------------------------------------------------ what only moves numbers

MOVING = {"take", "add_taken", "take_along_axis", "add_along_axis", "setitem", "concatenate"}
MOVING |= {"put_along_axis", "dynamic_slice", "dynamic_update_slice", "update_rows"}
MOVING |= {"demanded"}
MOVING |= {"dft", "real_dft", "inverse_real_dft"}  # which multiply by numbers of their own
CORNERS = np.array([0.0, -0.0, INF, -INF, NAN, 5e-324, 1.7e308, 1.0])
MOVED = {k: case for k, case in SMOOTH.items() if case[0].linear or case[0].name in MOVING}


@walk(MOVED)
def test_rows_that_are_linear_have_their_derivatives_whatever_the_numbers(row, sample):
    def call(*operands):
        return row.call(*operands, **sample.options)

    operands = sample.arrays(np.random.default_rng(0))
    positions = tracked(row, sample)
    wild = [np.resize(CORNERS, o.shape) if k in positions else o for k, o in enumerate(operands)]
    usual, corner = derive(call, operands, positions), derive(call, wild, positions)
    for got, wanted in zip(corner.gradients, usual.gradients, strict=True):
        np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(corner.tangent, usual.tangent)


# ------------------------------------------------------------------ binary entropy


def test_binary_entropy_is_finite_and_right_up_to_sure_predictions():
    p = np.array([0.0, 1e-300, 1e-13, 1e-9, 0.25, 0.5, 1.0])
    for y in (0.0, 0.25, 1.0):
        out = derive(ops.binary_entropy, [p, np.full(7, y)], [0, 1])
        c = out.cotangent
        np.testing.assert_allclose(
            out.gradients[0] / c, (p - y) / np.maximum(p * (1 - p), 1e-12), rtol=1e-14
        )
        with mp.workdps(50):
            logs = [
                [max(mpmath.log(q), -100) if q > 0 else -100 for q in (mpf(v), 1 - mpf(v))]
                for v in p.tolist()
            ]
        np.testing.assert_allclose(
            out.gradients[1] / c, [float(no - yes) for yes, no in logs], rtol=1e-14
        )


# ------------------------------------------------------------------ the table is walked

# Tested with the other ties and kinks: what they choose, is all that corners change in them.
CHOICES = {"max", "min", "prelu", "sort", "median", "quantile", "percentile"}
CHOICES |= {"segment_max", "segment_min"}
# Tested at corners of their own: in test_several_results, as matrices, test_normalization,
# test_running, test_dropout.
MATRICES = {
    "eigenvalue_pullback",
    "singular_value_pullback",
    "eigvalsh",
    "layer_norm",
    "philox_dropout",
    "rms_norm",
    "logcumsumexp",
}
# Over more axes what is walked over one.
MATRICES |= {"conv2d", "conv3d", "depthwise_conv2d", "depthwise_separable_conv2d"}
# Attention and pooling, tested in their files.
MATRICES |= {"attention_pullback", "scaled_dot_product_attention", "max_pool1d", "max_pool2d"}
MATRICES |= {"max_pool3d", "max_pool_pullback", "max_pool_pushforward"}
# Rotations, which are linear too, and gates, which are tested far out in test_recurrent.
MATRICES |= {"rope", "recurrent_pullback", "recurrent_states"}
# What normalization calls; rows that are looked up and added, as those of ``take`` are.
MATRICES |= {"norm_pullback", "norm_weight_pullback", "embedding", "embedding_pullback"}
# The softmax of each segment, tested in test_segments.
MATRICES |= {"segment_softmax"}


def test_every_row_that_has_a_derivative_walks_the_corners():
    known = {name.partition(",")[0] for name in (*FUNCTIONS, *UNARY, *BINARY, *SLOPES)}
    known |= {row.name for row, _ in MOVED.values()} | CHOICES | ELSEWHERE | MATRICES
    known |= formulas_linalg.ROWS  # in tests/linalg
    known |= {"recurrent_pullback", "recurrent_states", "rope"}  # in tests/nn
    # Those of several results walk in test_several_results.
    rows = {row.name for row in OPS.values() if any(row.vjp.values()) and not row.pack_results}
    missing = sorted(rows - known)
    assert not missing, f"add {missing} to FUNCTIONS here, or to tests/support/mp_reference.py"

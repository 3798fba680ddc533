"""Derivatives of what is made of ops at the corners: right, or NaN, never made up.

Most composites move and add numbers: their derivatives are the same whatever the numbers. Products
are linear in each operand, so their derivatives are sums of the same products of units and
directions, here by NumPy's own functions in many digits. Spacings divide, and have formulas.
"""

from itertools import islice

import numpy as np
import pytest
from test_composites import namesake, reached

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.table.samples import sample
from support import formulas_linalg
from support.cases import derive
from support.composed import OF_OPS, Call, results, walk

pytest.importorskip("mpmath", reason="a test dependency: pip install -e '.[test]'")
import mpmath
from mpmath import mp, mpf

INF, NAN = np.inf, np.nan
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


@pytest.fixture(autouse=True)
def many_digits():
    with mp.workdps(60), np.errstate(all="ignore"):
        yield


PRODUCTS = {"correlate", "dot", "einsum", "inner", "kron", "outer", "tensordot", "vdot", "vecdot"}
# What reads lines between points is one row, whose corners are walked; spacings have tests below.
ELSEWHERE = {"interp"}
# Products and gates, the corners of which are those of rows.
ELSEWHERE |= {"rnn_cell", "rnn", "lstm_cell", "lstm", "gru_cell", "gru", "multi_head_attention"}
# What chooses numbers by their values, to which corners do nothing else; see test_ordering.
ELSEWHERE |= {"cummax", "cummin", "topk", "kthvalue", "partition", "argpartition", "digitize"}
# What leaves out NaN; tested in test_without_nan.
ELSEWHERE |= {"nanmax", "nanmin", "nanmean", "nansum", "nanprod", "nanvar", "nanstd", "nanmedian"}
ELSEWHERE |= {"nanquantile", "nanpercentile", "nancumsum", "nancumprod"}
# What is made of special functions, each a row whose corners are walked.
ELSEWHERE |= {"polygamma", "multigammaln"}
# A sum, and the logarithm of it; tested beside the special functions.
ELSEWHERE |= {"weighted_logsumexp"}
# A row of products, and a sum.
ELSEWHERE |= {"conv_transpose1d", "conv_transpose2d", "conv_transpose3d"}
# What normalizes is one row as well, of whose corners test_layer_norm tells.
ELSEWHERE |= {"batch_norm", "group_norm", "instance_norm"}
# The largest is a choice: see the row.
ELSEWHERE |= {"embedding_bag"}
# What is dropped is 0 whatever it was: see test_dropout.
ELSEWHERE |= {"dropout", "dropout1d", "dropout2d", "dropout3d"}
# Lengths have tests in test_distances.
ELSEWHERE |= {"cosine_similarity", "pairwise_distance"}
# A product of transforms, right to the largest number: see test_fft.
ELSEWHERE |= {"fftconvolve"}
# Products and powers of elements, each in test_moments_and_polynomials; and a choice by value.
ELSEWHERE |= {"corrcoef", "cov", "polyval", "ptp", "vander"}
# What chooses by values as max does, or is made of rows whose corners are walked: see test_pooling.
ELSEWHERE |= {"adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"}
ELSEWHERE |= {"lp_pool1d", "lp_pool2d", "lp_pool3d", "local_response_norm", "bilinear"}
# What reads images at places: see test_grid_sampling.
ELSEWHERE |= {"grid_sample", "affine_grid"}
# Distances, whose corners test_distances knows.
ELSEWHERE |= {"normalize", "cdist", "pdist"}
ELSEWHERE |= {"glu", "geglu", "swiglu", "softmin", "tanh_shrink"}
SPACED = {name for name, case in OF_OPS.items() if len(Call(*case).arrays) > 1} & {
    name for name in OF_OPS if name.partition("-")[0] in ("average", "gradient", "trapezoid")
}
ELSEWHERE |= formulas_linalg.COMPOSITES  # of which tests/linalg has the corners
MOVING = {
    name: case
    for name, case in OF_OPS.items()
    if Call(*case).arrays
    and case[0].__name__ not in PRODUCTS | ELSEWHERE
    and name not in SPACED
    and case[1].options.get("mode") not in ("maximum", "minimum", "mean", "median", "linear_ramp")
    and case[1].options.get("reflect_type") != "odd"
}
MULTIPLIED = {
    name: case
    for name, case in OF_OPS.items()
    if case[0].__name__ in PRODUCTS and all(x.size for x in Call(*case).arrays)
}

# ------------------------------------------------------------------ what moves and adds numbers

WILD = np.array([0.0, -0.0, INF, -INF, NAN, 5e-324, 1.7e308, 1.0])


@walk(MOVING)
def test_what_moves_and_adds_numbers_has_its_derivatives_whatever_they_are(function, sample):
    call = Call(function, sample)
    wild = [np.resize(np.roll(WILD, k), x.shape) for k, x in enumerate(call.arrays)]
    wanted = call.by(namesake(function), *wild)
    for got, value in zip(results(call(*wild)), results(wanted), strict=True):
        np.testing.assert_array_equal(got, value)
    for place, positions in enumerate(reached(call)):
        if positions:
            part = lambda *v, k=place: results(call(*v))[k]  # noqa: E731
            usual, corner = (derive(part, x, positions) for x in (call.arrays, wild))
            for slope, other in zip(corner.gradients, usual.gradients, strict=True):
                np.testing.assert_array_equal(slope, other)
            np.testing.assert_array_equal(corner.tangent, usual.tangent)
            for bend in bends(part, wild, corner.cotangent):
                np.testing.assert_array_equal(bend, 0)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x: ops.subtract(ops.relu(x), ops.relu(ops.negative(x))),
        lambda x: ops.multiply(x, ops.where(ops.equal(x, 0), 1.0, ops.divide(x, x))),
    ],
    ids=["slope lost at 0", "NaN at infinity"],
)
def test_the_walk_sees_what_is_right_everywhere_but_at_a_corner(wrong):
    def copied(x):
        return wrong(x)

    copied.numpy = [np.array]
    od.testing.check_gradients(copied, np.array([0.5, -1.5]))
    with pytest.raises(AssertionError):
        test_what_moves_and_adds_numbers_has_its_derivatives_whatever_they_are(
            walked={"copied": (copied, sample((8,)))}
        )


def bends(call, arrays, cotangent):
    """How the gradients change, along ones: nothing where no operand has a part in them."""
    sources = [Variable(x, requires_grad=True) for x in arrays]
    with GradientTape() as outer:
        with GradientTape() as inner:
            out = call(*sources)
        slopes = inner.gradient(out, sources, cotangent, unused="zero")
    tracked = [s for s in slopes if isinstance(s, Variable) and s.requires_grad]
    ones = [np.ones(s.shape) for s in tracked]
    return outer.gradient(tracked, sources, ones, unused="zero") if tracked else []


# ------------------------------------------------------------------ products


def fillings(dtype):
    """Corners to fill the operands with, each its own: zeros and ties, tiny, huge, infinite."""
    limits = np.finfo(dtype)
    tiny, root = float(limits.tiny), float(limits.max) ** 0.5
    calm = [0.0, 1.0, -0.0, 2.0, 2.0, -1.5]
    small = [4 * tiny, 0.0, tiny**0.5, -(tiny**0.5), float(limits.smallest_subnormal)]
    large = [root / 64, -root / 64, 1.0, 0.0, root / 32]
    most = [float(limits.max) / 64, 0.0, -float(limits.max) / 64]
    wild = [INF, 1.0, NAN, 0.0, -INF, 2.0]
    rows = [calm, small, large, most, wild]
    pairs = [(calm, row) for row in rows] + [(row, calm) for row in rows[1:]]
    return [*pairs, (small, large), (large, small), (small, most), (large, large), (wild, wild)]


def exactly(x):
    """The same numbers in many digits; infinite ones are far out, and NaN is a number."""
    far = mpf(10) ** 400

    def exact(v):
        return mpf(1) if np.isnan(v) else mpf(v) if np.isfinite(v) else far * int(np.sign(v))

    return np.array(list(map(exact, x.ravel().tolist())), object).reshape(x.shape)


def units(x):
    """The first eight units: corners fill large operands again and again."""
    for place in islice(np.ndindex(x.shape), 8):
        unit = np.full(x.shape, mpf(0), object)
        unit[place] = mpf(1)
        yield unit


class Product:
    """A product of operands in many digits, with its derivatives."""

    def __init__(self, call, arrays, cotangent, directions):
        self.call, self.arrays = call, list(map(exactly, arrays))
        self.cotangent, self.directions = exactly(cotangent), list(map(exactly, directions))

    def of(self, others):
        arrays = [others.get(k, x) for k, x in enumerate(self.arrays)]
        options = {"optimize": False} if self.call.function.__name__ == "einsum" else {}
        out = self.call.by(namesake(self.call.function), *arrays, **options)
        return np.asarray(out, object)

    def total(self, others):
        return mpmath.fsum(np.ravel(self.of(others) * self.cotangent))

    def gradient(self, k):
        return [self.total({k: unit}) for unit in units(self.arrays[k])]

    def tangent(self):
        return list(np.ravel(sum(self.of({k: d}) for k, d in enumerate(self.directions))))

    def bend(self, k):
        others = [m for m in range(len(self.arrays)) if m != k]
        return [
            sum((self.total({k: unit, m: self.directions[m]}) for m in others), mpf(0))
            for unit in units(self.arrays[k])
        ]

    def sizes(self):
        """The same of what is added up, without signs."""
        found = object.__new__(Product)
        found.call = self.call
        found.arrays = [np.asarray(abs(x), object) for x in self.arrays]
        found.cotangent = np.asarray(abs(self.cotangent), object)
        found.directions = [np.asarray(abs(d), object) for d in self.directions]
        return found


def derivatives(call, arrays, cotangent, directions):
    """Gradients, the tangent, and how gradients change along the directions, by modes."""
    sources = [Variable(x, requires_grad=True) for x in arrays]
    with GradientTape(persistent=True) as outer:
        with GradientTape(persistent=True) as inner:
            out = call(*sources)
        back = inner.gradient(out, sources, cotangent)
        moved = inner.jvp(out, sources, directions)
    got = {("gradient", k): g for k, g in enumerate(back)} | {("tangent", 0): moved}
    if len(sources) > 1:
        bent = outer.gradient(back, sources, directions)
        got |= {("reverse over reverse", k): b for k, b in enumerate(bent)}
        bent = outer.gradient(moved, sources, cotangent)
        got |= {("reverse over forward", k): b for k, b in enumerate(bent)}
        for k, g in enumerate(back):
            others = [m for m in range(len(sources)) if m != k]
            along = [directions[m] for m in others]
            got["forward over reverse", k] = outer.jvp(g, [sources[m] for m in others], along)
    return {name: v.numpy() if isinstance(v, Variable) else v for name, v in got.items()}


def fits(got, want, size, limits, scale):
    """Whether it is right to the rounding of what is added up, of numbers of size ``scale``."""
    most = float(limits.max)
    if not np.isfinite(got):
        if np.isnan(got):
            return size > most / 4 or scale > most
        return size > most / 4 or scale > most
    least = 64 * float(limits.smallest_subnormal) * max(scale, 1)
    return abs(mpf(float(got)) - want) <= 64 * float(limits.eps) * size + least


@every_dtype
@walk(MULTIPLIED)
def test_products_have_their_derivatives_at_the_corners(function, sample, dtype):
    limits, wrong = np.finfo(dtype), []
    for filling in fillings(dtype):
        call = Call(function, sample, dtype)
        arrays = [
            np.resize(np.array(filling[k % 2]), x.shape).astype(dtype)
            for k, x in enumerate(call.arrays)
        ]
        endless = not all(np.isfinite(x).all() for x in arrays)
        directions = [np.resize(np.array([0.5, 1.25, -1.0]), x.shape).astype(dtype) for x in arrays]
        out = call(*arrays)
        cotangent = np.resize(np.array([1.5, -0.75, 0.5, 2.0]), out.shape).astype(dtype)
        exact = Product(call, arrays, cotangent, directions)
        sizes = exact.sizes()
        scale = mpmath.fprod(max([mpf(2), *np.ravel(abs(exactly(x)))]) for x in arrays)
        for (mode, k), values in derivatives(call, arrays, cotangent, directions).items():
            name = mode if " " not in mode else "bend"
            wanted, size = (
                p.tangent() if name == "tangent" else getattr(p, name)(k) for p in (exact, sizes)
            )
            for got, want, most in zip(np.ravel(values), wanted, size, strict=False):
                if endless and np.isnan(got):
                    continue
                if not fits(got, want, most, limits, scale):
                    shown = mpmath.nstr(want, 9)
                    wrong.append(f"{mode} {k} of {filling}: {got}, wanted {shown}")
    assert not wrong, "\n".join(wrong[:10])


# ------------------------------------------------------------------ spacings


def trapezoids(numbers):
    """Of three heights and their places."""
    y, x = numbers[:3], numbers[3:]
    return [sum((y[k] + y[k + 1]) * (x[k + 1] - x[k]) / 2 for k in (0, 1))]


def slopes(numbers):
    """Of three heights and their places: of the first line, of the parabola, of the last line."""
    f, x = numbers[:3], numbers[3:]
    p, q = x[1] - x[0], x[2] - x[1]
    first, last = (f[1] - f[0]) / p, (f[2] - f[1]) / q
    return [first, (first * q + last * p) / (p + q), last]


SPACINGS = {
    "trapezoid": (lambda y, x: ops.trapezoid(y, x), trapezoids),
    "gradient": (lambda f, x: ops.gradient(f, x), slopes),
}
# Heights and places.
POINTS = [
    ([0.0, 1.0, 4.0], [0.0, 1.0, 3.0]),
    ([2.0, 2.0, 2.0], [-1.0, 0.0, 1.0]),
    ([0.0, -0.0, 0.0], [0.0, 0.5, 2.0]),
    ([1e-30, -2e-30, 3e-30], [1e-9, 2e-9, 5e-9]),
    ([1e15, -2e15, 3e15], [-1e6, 0.0, 1e6]),
]


def differences(function, numbers, cotangent, direction):
    """The gradient, the tangent, and how the gradient changes, in many digits."""
    h = mpf(10) ** -100
    places = range(len(numbers))

    def total(x):
        return mpmath.fsum(c * v for c, v in zip(cotangent, function(x), strict=True))

    def central(of):
        return (of(h) - of(-h)) / (2 * h)

    def along(x, s):
        return [v + s * d for v, d in zip(x, direction, strict=True)]

    def gradient(x):
        return [
            central(lambda s, k=k: total([v + s * (i == k) for i, v in enumerate(x)]))
            for k in places
        ]

    near, far = (gradient(along(numbers, s)) for s in (-h, h))
    return {
        "gradient": gradient(numbers),
        "tangent": [central(lambda s: total(along(numbers, s)))],
        "bend": [(b - a) / (2 * h) for a, b in zip(near, far, strict=True)],
    }


@every_dtype
@pytest.mark.parametrize("name", SPACINGS)
def test_spacings_have_their_derivatives_at_the_corners(name, dtype):
    call, function = SPACINGS[name]
    limits = np.finfo(dtype)
    directions = [np.array([0.5, 1.25, -1.0], dtype), np.array([-0.5, 0.25, 1.5], dtype)]
    for points in POINTS:
        arrays = [np.array(part, dtype) for part in points]
        out = call(*arrays)
        cotangent = np.array([1.5, -0.75, 0.5], dtype)[: out.size].reshape(out.shape)
        found = derivatives_of_both(call, arrays, cotangent, directions)
        numbers = [v for x in arrays for v in x.tolist()]
        with mp.workdps(600):
            wanted = differences(
                function,
                list(map(mpf, numbers)),
                [mpf(v) for v in cotangent.ravel().tolist()],
                [mpf(v) for d in directions for v in d.tolist()],
            )
        for mode, values in found.items():
            want = wanted["bend" if " " in mode else mode]
            size = max(map(abs, want))
            for got, w in zip(values, want, strict=True):
                assert abs(mpf(float(got)) - w) <= 256 * float(limits.eps) * size, (mode, points)


def fourth(c):
    """The cotangent that asks for the fourth slope; of an integral, for all of it."""
    return np.array([0.0, 0.0, 0.0, 1.0, 0.0]) if c.ndim else c


@pytest.mark.parametrize("bad", [INF, -INF, NAN])
@pytest.mark.parametrize("name", SPACINGS)
def test_beside_a_height_or_a_place_that_is_no_number_slopes_are_those_without_it(name, bad):
    heights, places = np.array([1.0, 2.0, 4.0, 3.0, 5.0]), np.array([0.0, 1.0, 3.0, 4.0, 6.0])
    call, found = SPACINGS[name][0], []
    for value in (heights[0], bad):
        heights[0] = value
        found.append(derive(call, [heights, places], [0, 1], cotangent=fourth))
    usual, corner = found
    # The slope at the fourth height reads the third to the fifth; the integral's, its neighbours.
    np.testing.assert_array_equal(corner.gradients[0][3:], usual.gradients[0][3:])
    np.testing.assert_array_equal(corner.gradients[1][3:], usual.gradients[1][3:])


def derivatives_of_both(call, arrays, cotangent, directions):
    sources = [Variable(x, requires_grad=True) for x in arrays]
    with GradientTape(persistent=True) as outer:
        with GradientTape(persistent=True) as inner:
            out = call(*sources)
        back = inner.gradient(out, sources, cotangent)
        moved = inner.jvp(out, sources, directions)
    return {
        "gradient": np.concatenate([g.numpy() for g in back]),
        "tangent": [np.vdot(cotangent, moved.numpy())],
        "reverse over reverse": np.concatenate(outer.gradient(back, sources, directions)),
        "reverse over forward": np.concatenate(outer.gradient(moved, sources, cotangent)),
        "forward over reverse": np.concatenate([outer.jvp(g, sources, directions) for g in back]),
    }

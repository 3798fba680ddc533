"""Pooling against loops over windows: ties, NaN, padding, indices, dtypes, and compiled loops."""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError
from odyssey.nn.pooling.max_pooling import max_pool
from odyssey.ops import OPS
from support.cases import assert_same

INF, NAN = np.inf, np.nan
CASES = [
    {"window": 2},
    {"window": 3, "stride": 1, "padding": 1},
    {"window": (2, 3), "stride": (1, 2), "padding": (1, 0)},
    {"window": 2, "stride": 3, "dilation": (2, 3)},
    {"window": (3, 1), "stride": 2, "padding": (1, 0), "dilation": (1, 2)},
]
every_case = pytest.mark.parametrize("options", CASES, ids=str)


def both(value):
    return value if isinstance(value, tuple) else (value, value)


def windows(shape, window, stride=None, padding=0, dilation=1):
    """For each window its place and the places of its elements in an image."""
    k, s, p, d = map(both, (window, window if stride is None else stride, padding, dilation))
    counts = [
        (n + 2 * q - (m - 1) * e - 1) // t + 1
        for n, m, t, q, e in zip(shape, k, s, p, d, strict=True)
    ]
    for place in np.ndindex(*counts):
        lines = [
            [v for a in range(m) if 0 <= (v := i * t - q + a * e) < n]
            for i, n, m, t, q, e in zip(place, shape, k, s, p, d, strict=True)
        ]
        yield place, list(itertools.product(*lines))


def expected_max(image, g, options):
    """Maxima, the first places of them, and the gradient, window by window."""
    every = list(windows(image.shape, **options))
    shape = tuple(np.array(every[-1][0]) + 1)
    out, places = np.empty(shape, image.dtype), np.empty(shape, int)
    slope = np.zeros(image.shape)
    for place, elements in every:
        values = np.array([image[e] for e in elements])
        best = values.max()
        hits = np.isnan(values) if np.isnan(best) else values == best
        out[place] = best
        places[place] = np.ravel_multi_index(elements[int(hits.argmax())], image.shape)
        for element, hit in zip(elements, hits, strict=True):
            slope[element] += g[place] / hits.sum() if hit else 0.0
    return out, places, slope


def images(seed):
    """Numbers with ties; and with infinities and NaN among them."""
    rng = np.random.default_rng(seed)
    yield rng.integers(0, 4, (5, 7)).astype(float)
    yield rng.choice(
        [-INF, INF, NAN, -0.0, 0.0, 1.0, 2.0], (5, 7), p=[0.3, *[0.1] * 3, *[0.4 / 3] * 3]
    )
    yield np.full((5, 7), -INF)


@every_case
def test_maxima_their_places_and_gradients_are_those_of_each_window(options):
    for image in images(1):
        w = Variable(image, requires_grad=True)
        with GradientTape() as tape:
            out, places = ops.max_pool2d(w, return_indices=True, **options)
        g = np.random.default_rng(2).normal(size=out.shape)
        value, numbers, slope = expected_max(image, g, options)
        np.testing.assert_array_equal(out.numpy(), value)
        np.testing.assert_array_equal(places.numpy(), numbers)
        np.testing.assert_allclose(tape.gradient(out, w, g), slope, rtol=0, atol=1e-14)


@every_case
def test_a_tangent_of_maxima_is_the_mean_over_those_that_share_them(options):
    for image in images(3):
        w = Variable(image, requires_grad=True)
        with GradientTape(persistent=True) as tape:
            out = ops.max_pool2d(w, **options)
        t = np.random.default_rng(4).normal(size=image.shape)
        moved = tape.jvp(out, w, t)
        for place in np.ndindex(out.shape):
            unit = np.zeros(out.shape)
            unit[place] = 1.0
            slope = expected_max(image, unit, options)[2]
            np.testing.assert_allclose(moved[place], (slope * t).sum(), rtol=0, atol=1e-14)


@pytest.mark.parametrize("cotangent", [INF, NAN])
def test_what_is_no_maximum_gets_nothing_of_an_infinite_cotangent(cotangent):
    image = np.array([[[1.0, 2.0], [0.0, -1.0]]])
    got = od.backward.max_pool2d(np.full((1, 1, 1), cotangent), image, 2)
    assert_same(got, np.array([[[0.0, cotangent], [0.0, 0.0]]]))


def test_a_pool_of_logarithms_keeps_what_was_not_chosen_out_of_both_derivatives():
    x = Variable([[0.0, 1.0, 0.5, 4.0]], requires_grad=True)
    with np.errstate(all="ignore"), GradientTape() as outer:
        with GradientTape() as inner:
            out = ops.max_pool1d(ops.log(x), window=2)
        slope = inner.gradient(out, x, np.ones((1, 2)))
    assert slope.numpy().tolist() == [[0.0, 1.0, 0.0, 0.25]]
    with np.errstate(all="ignore"):
        bend = outer.gradient(slope, x, np.ones((1, 4)))
    assert bend.tolist() == [[0.0, -1.0, 0.0, -1 / 16]]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool"])
def test_maxima_of_integers_stay_integers_whatever_is_padded(dtype):
    image = np.zeros((1, 3, 3), dtype)
    image[0, 1, 1] = 1
    if np.dtype(dtype).kind == "i":
        image -= 5
    out = ops.max_pool2d(image, window=3, stride=2, padding=1)
    assert out.dtype == image.dtype
    np.testing.assert_array_equal(out, np.full((1, 2, 2), image[0, 1, 1]))


@pytest.mark.parametrize("pool", [ops.max_pool1d, ops.avg_pool1d])
def test_windows_that_hold_nothing_but_padding_are_refused(pool):
    with pytest.raises(ShapeError, match="half of the window"):
        pool(np.ones(5), window=2, padding=2)
    with pytest.raises(ShapeError, match="nothing but padding"):
        ops.max_pool1d(np.ones(2), window=2, padding=1, dilation=3)
    with pytest.raises(ShapeError, match="does not fit"):
        pool(np.ones(0), window=2)


def test_numbers_and_words_in_the_place_of_windows_are_refused_by_name():
    for wrong in (2.0, "2", None, [2.5, 2], np.ones(2)):
        with pytest.raises(DTypeError, match=r"^max_pool2d: window"):
            ops.max_pool2d(np.ones((4, 4)), window=wrong)
    with pytest.raises(DTypeError, match="return_indices"):
        ops.max_pool2d(np.ones((4, 4)), window=2, return_indices="yes")
    with pytest.raises(DTypeError, match="complex"):
        ops.max_pool2d(np.ones((4, 4), complex), window=2)


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("options", [c for c in CASES if "dilation" not in c], ids=str)
def test_means_and_their_gradients_are_those_of_each_window(options, count_include_pad):
    image = np.random.default_rng(5).normal(size=(5, 7))
    w = Variable(image, requires_grad=True)
    with GradientTape() as tape:
        out = ops.avg_pool2d(w, count_include_pad=count_include_pad, **options)
    g = np.random.default_rng(6).normal(size=out.shape)
    slope = np.zeros(image.shape)
    for place, elements in windows(image.shape, **options):
        count = np.prod(both(options["window"])) if count_include_pad else len(elements)
        np.testing.assert_allclose(
            out.numpy()[place], sum(image[e] for e in elements) / count, rtol=1e-14, atol=1e-15
        )
        for e in elements:
            slope[e] += g[place] / count
    np.testing.assert_allclose(tape.gradient(out, w, g), slope, rtol=0, atol=1e-14)


def test_half_precision_is_summed_in_single():
    x = np.full((1, 256), 300.0, np.float16)  # whose sum is beyond its largest number
    assert ops.avg_pool1d(x, window=256).tolist() == [[300.0]]
    g = od.backward.avg_pool1d(np.ones((1, 1), np.float16), od.spec.spec_of(x), 256)
    assert (g.dtype, g.shape) == (np.float16, (1, 256))
    np.testing.assert_array_equal(g, np.float16(1 / 256))


def test_unpooling_puts_maxima_back_where_they_stood():
    image = 1.0 + np.random.default_rng(7).permutation(96).reshape(2, 6, 8)
    for options in ({"window": 2}, {"window": 3, "stride": 2, "padding": 1}):
        out, places = ops.max_pool2d(image, return_indices=True, **options)
        back = ops.max_unpool2d(out, places, output_size=(6, 8), **options)
        hit = back != 0
        np.testing.assert_array_equal(back[hit], image[hit])
        assert set(back[hit].tolist()) == set(out.ravel().tolist())
        np.testing.assert_array_equal(ops.max_pool2d(back, **options), out)


def test_ties_of_adaptive_maxima_share_evenly_across_both_axes():
    w = Variable(np.zeros((1, 3, 3)), requires_grad=True)
    with GradientTape() as tape:
        out = ops.adaptive_max_pool2d(w, size=2)
    slope = tape.gradient(out, w, np.ones((1, 2, 2)))
    np.testing.assert_allclose(slope[0], [[1, 2, 1], [2, 4, 2], [1, 2, 1]] / np.array(4.0))


KERNELS = ["max_pool2d", "max_pool_pullback", "avg_pool2d", "avg_pool_pullback"]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every_case
def test_the_compiled_way_back_of_maxima_is_the_usual_one(options, dtype):
    pytest.importorskip("numba", reason="numba compiles the loops")
    row = OPS["max_pool_pullback"]
    for image in images(8):
        x = np.stack([image, image[::-1]]).astype(dtype)
        options_of = OPS["max_pool2d"].bind_arguments((x,), options)[1]
        shape = ops.max_pool2d(x, **options).shape
        g = np.random.default_rng(9).normal(size=shape).astype(dtype)
        (kernel,) = (kernel for kernel in row.kernels if kernel.device == "cpu")
        assert kernel.takes(od.spec.spec_of(g), od.spec.spec_of(x), *options_of)
        usual = row.reference(g, x, *options_of)
        np.testing.assert_allclose(kernel.run(g, x, *options_of), usual, rtol=4e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@every_case
def test_compiled_maxima_are_the_usual_ones_bit_for_bit(options, dtype):
    pytest.importorskip("numba", reason="numba compiles the loops")
    row = OPS["max_pool2d"]
    (kernel,) = (kernel for kernel in row.kernels if kernel.device == "cpu")
    for image in images(10):
        x = np.stack([image, image[::-1]]).astype(dtype)
        options_of = row.bind_arguments((x,), options)[1]
        usual = max_pool("max_pool2d", x, *options_of)
        np.testing.assert_array_equal(kernel.run(x, *options_of), usual)


@pytest.mark.slow
@pytest.mark.parametrize("dilation", [1, 2, 3, (1, 2), (3, 1)], ids=str)
def test_windows_of_four_with_gaps_are_no_quarters(dilation):
    pytest.importorskip("numba", reason="numba compiles the loops")
    x = np.random.default_rng(12).normal(size=(2, 8, 12))
    maxima, slopes = [], []
    for device in ("cpu", "numpy"):
        w = Variable(x, requires_grad=True)
        with ops.use_kernels(device):
            with GradientTape() as tape:
                out = ops.max_pool2d(w, window=2, dilation=dilation)
            slopes.append(tape.gradient(out, w, np.arange(out.size).reshape(out.shape)))
        maxima.append(out.numpy())
    np.testing.assert_array_equal(*maxima)
    np.testing.assert_array_equal(*slopes)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_takes_no_call_whose_shapes_do_not_fit(name):
    row = OPS[name]
    sample = row.samples[0]
    operands = sample.arrays(np.random.default_rng(0))
    options = row.bind_arguments(operands, sample.options)[1]
    (kernel,) = (kernel for kernel in row.kernels if kernel.device == "cpu")
    specs = [od.spec.spec_of(x) for x in operands]
    assert kernel.takes(*specs, *options)
    wrong = od.spec.Spec((3, *specs[0].shape[:-1], 5), specs[0].dtype)
    assert not kernel.takes(wrong, *specs[1:], *options)


def test_few_elements_keep_their_maxima_for_the_way_back_and_many_do_not():
    for side, keeps in ((8, True), (256, False)):
        x = Variable(np.random.default_rng(0).normal(size=(side, side)), requires_grad=True)
        with GradientTape() as tape:
            y = od.nn.max_pool2d(x, window=2)
        assert (tape.nodes[-1].saved.get("residual") is not None) is keeps
        tape.backward(y, np.ones(y.shape))
        wide = x.data.reshape(side // 2, 2, side // 2, 2)
        wanted = wide == wide.max((1, 3), keepdims=True)
        assert np.array_equal(x.grad, wanted.reshape(side, side).astype(float))

"""Convolution against its definition, by loops; and what of it is computed, and what refused."""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.nn.convolution import im2col
from support import by_loops
from support.seeds import SEED

CONV = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}


def some(rng, *values):
    return values[rng.integers(len(values))]


def random_case(seed, n):
    """Arrays and options of a convolution over ``n`` axes, with every option at work."""
    rng = np.random.default_rng(seed)
    groups = some(rng, 1, 1, 2, 3)
    window = tuple(int(k) for k in rng.integers(1, 4, n))
    dilation = tuple(int(d) for d in rng.integers(1, 3, n))
    spans = [1 + d * (k - 1) for d, k in zip(dilation, window, strict=True)]
    size = [span + int(rng.integers(0, 4)) for span in spans]
    pads = tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (n, 2)))
    stride = tuple(int(s) for s in rng.integers(1, 4, n))
    if rng.random() < 0.2:
        pads, stride = "same", (1,) * n
    x = rng.normal(size=(rng.integers(1, 4), groups * rng.integers(1, 3), *size))
    weight = rng.normal(size=(groups * rng.integers(1, 3), x.shape[1] // groups, *window))
    bias = rng.normal(size=len(weight)) if rng.random() < 0.5 else None
    options = {"stride": stride, "padding": pads, "dilation": dilation, "groups": groups}
    return x, weight, bias, options


def check(seed, n):
    """Values, and gradients by the sums of products that the definition has."""
    x, weight, bias, options = random_case(seed, n)
    wanted = by_loops.convolution(x, weight, bias, **options)
    sources = [Variable(v, requires_grad=True) for v in (x, weight, bias) if v is not None]
    with GradientTape() as tape:
        out = CONV[n](*sources, **options)
    np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-12, atol=1e-12)
    g = np.random.default_rng(seed + 1).normal(size=wanted.shape)
    found = tape.gradient(out, sources, g)
    pads = by_loops.pairs(options["padding"], weight.shape[2:], options["dilation"])
    links = by_loops.links(
        x.shape,
        weight.shape,
        wanted.shape[2:],
        options["groups"],
        stride=options["stride"],
        dilation=options["dilation"],
        pads=pads,
    )
    slopes = [np.zeros(v.shape) for v in (x, weight)]
    for r, i, w in links:
        slopes[0][i] += g[r] * weight[w]
        slopes[1][w] += g[r] * x[i]
    if bias is not None:
        slopes.append(g.sum((0, *range(2, g.ndim))))
    for got, value in zip(found, slopes, strict=True):
        np.testing.assert_allclose(got, value, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_values_and_gradients_are_the_sums_of_products_of_the_definition(seed, n):
    check(seed, n)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_images_and_their_rows_may_be_taken_some_at_a_time(n, monkeypatch):
    for block, few in itertools.product((1, 40, 200), (1, 1000)):
        monkeypatch.setattr(im2col, "_BLOCK", block)
        monkeypatch.setattr(im2col, "_FEW", few)
        for seed in (100, 101, 102):
            check(seed, n)


def test_windows_of_one_element_read_what_they_stand_on_whatever_the_padding_and_stride():
    x, weight = np.array([[[1.0, 2.0]]]), np.array([[[10.0]]])
    y = ops.conv1d(x, weight, stride=2, padding=1)
    np.testing.assert_array_equal(y, [[[0.0, 20.0]]])
    for seed in (1019, 1027, 1035, 1158):
        check(seed, 1)
    for seed in (1004, 1193):
        check(seed, 2)


@pytest.mark.soak
@pytest.mark.parametrize("n", [1, 2, 3])
def test_values_and_gradients_of_300_random_convolutions(n):
    for seed in range(SEED + 1000, SEED + 1300):
        check(seed, n)


# ------------------------------------------------------------------ what is computed


def kernels_of(frozen, op=ops.conv2d):
    x, weight = np.ones((1, 2, 4, 4)), np.ones((2, 2, 3, 3))
    operands = [Variable(v, requires_grad=k not in frozen) for k, v in enumerate((x, weight))]
    with od.testing.count_kernels() as counts, GradientTape() as tape:
        y = ops.sum(op(*operands, np.zeros(2)))
    with od.testing.count_kernels() as counts:
        tape.backward(y)
    return {name for name in counts if name.startswith("conv")}


def test_no_gradient_is_computed_for_what_needs_none():
    assert kernels_of(frozen=[0]) == {"convolution_weight"}
    assert kernels_of(frozen=[1]) == {"convolution_input"}
    assert kernels_of(frozen=[]) == {"convolution_input", "convolution_weight"}


def test_the_gradient_of_the_weight_alone_can_be_asked_for_by_hand():
    rng = np.random.default_rng(0)
    x, weight, g = (rng.normal(size=s) for s in ((2, 3, 5, 5), (4, 3, 3, 3), (2, 4, 3, 3)))
    wanted = od.backward.conv2d(g, x, weight)[1]
    with od.testing.count_kernels() as counts:
        alone = ops.convolution_weight(g, x, window=3)
    np.testing.assert_array_equal(alone, wanted)
    assert dict(counts) == {"convolution_weight": 1}


def test_a_separable_convolution_keeps_what_is_between_its_steps():
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=s) for s in ((1, 2, 4, 4), (4, 1, 3, 3), (3, 4, 1, 1), (3,))]
    sources = [Variable(v, requires_grad=True) for v in arrays]
    with GradientTape() as tape:
        y = ops.depthwise_separable_conv2d(*sources, padding=1)
    found = tape.gradient(y, sources, np.ones(y.shape))
    x, depthwise, pointwise, bias = sources
    with GradientTape() as tape:
        z = ops.conv2d(ops.depthwise_conv2d(x, depthwise, padding=1), pointwise, bias)
    for got, wanted in zip(found, tape.gradient(z, sources, np.ones(z.shape)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-13)


# ------------------------------------------------------------------ options and dtypes


def test_half_of_an_odd_padding_is_before_the_image_and_the_larger_half_behind():
    x = np.arange(1.0, 5.0).reshape(1, 1, 4)
    for window, wanted in ((2, [3, 5, 7, 4]), (4, [6, 10, 9, 7])):
        y = ops.conv1d(x, np.ones((1, 1, window)), padding="same")
        np.testing.assert_array_equal(y[0, 0], wanted)


def test_half_precision_is_summed_in_single():
    x, weight = np.full((1, 512, 3, 3), 8.0, np.float16), np.ones((1, 512, 3, 3), np.float16)
    x[0, 0, 0, 0] = 9.0
    assert ops.conv2d(x, weight).item() == np.float16(36865)
    y = ops.conv2d(x / 100, weight)
    assert (y.dtype, y.shape) == (np.float16, (1, 1, 1, 1))
    np.testing.assert_allclose(y.item(), (x / 100).astype(float).sum(), rtol=5e-4)


def test_whole_numbers_and_complex_ones_are_what_they_are():
    rng = np.random.default_rng(0)
    x, weight = rng.integers(-9, 9, (1, 2, 4, 4)), rng.integers(-9, 9, (2, 2, 2, 2))
    y = ops.conv2d(x, weight)
    assert y.dtype == np.int64
    np.testing.assert_array_equal(y, by_loops.convolution(x, weight))
    z = ops.conv2d(x * (1 + 2j), weight * (3 - 1j))
    np.testing.assert_allclose(z, y * (1 + 2j) * (3 - 1j), rtol=1e-14)
    assert ops.conv2d(x > 0, weight > 0).dtype == bool


def test_a_transposed_convolution_undoes_the_sizes_of_a_convolution():
    rng = np.random.default_rng(0)
    for size, window, stride, padding in itertools.product((7, 8), (2, 3), (1, 2), (0, 1)):
        x, weight = rng.normal(size=(1, 2, size)), rng.normal(size=(3, 2, window))
        y = ops.conv1d(x, weight, stride=stride, padding=padding)
        left = (size + 2 * padding - window) % stride
        back = ops.conv_transpose1d(y, weight, stride=stride, padding=padding, output_padding=left)
        assert back.shape == x.shape
        g = rng.normal(size=y.shape)
        pulled = ops.convolution_input(g, weight, size, stride, padding)
        assert np.isclose(np.vdot(g, y), np.vdot(pulled, x))


def test_folding_what_was_unfolded_counts_how_many_windows_an_element_is_in():
    x = np.arange(1.0, 31.0).reshape(1, 1, 5, 6)
    options = {"window": (2, 3), "stride": (1, 2), "padding": 1}
    columns = ops.unfold(x, **options)
    counts = ops.fold(np.ones_like(columns), size=(5, 6), **options)
    np.testing.assert_array_equal(ops.fold(columns, size=(5, 6), **options), x * counts)


IMAGES, FILTERS = np.ones((1, 2, 4, 4)), np.ones((2, 2, 3, 3))
STRANGE = {
    "a word": ({"padding": "full"}, SettingError, "choose 'same' or 'valid'"),
    "a float": ({"stride": 1.5}, DTypeError, "stride=1.5 is not a whole number"),
    "a negative padding": ({"padding": -1}, SettingError, "must be at least 0"),
    "a pair for one axis": ({"padding": ((1, 1),)}, ShapeError, "for 2 spatial axes"),
    "a pair and a number": ({"padding": ((1, 1), 1)}, ShapeError, "a pair"),
    "too many strides": ({"stride": (1, 1, 1)}, ShapeError, r"stride=\(1, 1, 1\) for 2"),
    "None": ({"dilation": None}, DTypeError, "dilation=None"),
    "no groups": ({"groups": 0}, SettingError, "at least 1"),
    "three groups": ({"groups": 3}, ShapeError, "do not divide"),
}


@pytest.mark.parametrize(("options", "error", "match"), STRANGE.values(), ids=list(STRANGE))
def test_strange_options_are_refused_by_name(options, error, match):
    for op in (ops.conv2d, ops.depthwise_conv2d):
        if op is ops.depthwise_conv2d and "groups" in options:
            continue
        weight = FILTERS if op is ops.conv2d else FILTERS[:, :1]
        with pytest.raises(error, match=rf"^{op.__name__}: .*{match}"):
            op(IMAGES, weight, **options)


def test_images_of_no_elements_have_results_of_their_shapes_and_gradients_of_zeros():
    for samples, channels, out in ((0, 2, 3), (2, 0, 3), (2, 2, 0)):
        arrays = [np.ones((samples, channels, 4, 4)), np.ones((out, channels, 3, 3)), np.ones(out)]
        sources = [Variable(v, requires_grad=True) for v in arrays]
        with GradientTape() as tape:
            y = ops.conv2d(*sources)
        assert y.shape == (samples, out, 2, 2)
        np.testing.assert_array_equal(y.numpy(), 1.0)
        found = tape.gradient(y, sources, np.ones(y.shape))
        for got, v in zip(found, arrays, strict=True):
            assert got.shape == v.shape
        np.testing.assert_array_equal(found[2], samples * 4)

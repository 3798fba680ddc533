"""The compiled ways of convolution: what NumPy's way gives, wherever they are taken."""

import importlib.util
import itertools

import numpy as np
import pytest

from odyssey import ops
from odyssey.nn.convolution import compiled, im2col
from odyssey.nn.sliding_windows import fits_winograd, window_grid
from support.seeds import SEED

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba, which compiles kernels, is missing"
)


def case(seed, size, window, stride, pads, part, each, groups, dtype=np.float64, images=4):
    """Images, a weight, a bias, a cotangent, and where windows stand, over three axes."""
    rng = np.random.default_rng(seed)
    grid = window_grid("test", tuple(size), window, stride, pads, 1).to_3d()
    samples = int(rng.integers(1, images))
    x = rng.normal(size=(samples, part * groups, *grid.size)).astype(dtype)
    weight = rng.normal(size=(each * groups, part, *grid.window)).astype(dtype)
    bias = rng.normal(size=each * groups).astype(dtype) if rng.random() < 0.5 else None
    g = rng.normal(size=(samples, each * groups, *grid.counts)).astype(dtype)
    return x, weight, bias, g, grid


def close(got, wanted, tolerance=1e-13):
    assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
    scale = np.abs(wanted).max(initial=1.0)
    assert np.abs(got - wanted).max(initial=0.0) <= tolerance * scale


def drawn(rng, *values):
    return values[rng.integers(len(values))]


def check_rows(seed):
    rng = np.random.default_rng(seed)
    window = (int(rng.integers(1, 6)), drawn(rng, 3, 5))
    stride = int(drawn(rng, 1, 1, 2, 3))
    pads = tuple(tuple(map(int, rng.integers(0, k + 2, 2))) for k in window)
    size = [k + int(rng.integers(0, 12)) for k in window]
    part, each, groups = (int(rng.integers(1, most)) for most in (4, 7, 4))
    compare_rows(*case(seed, size, window, stride, pads, part, each, groups), groups)


def check_each(seed):
    rng = np.random.default_rng(seed)
    size, groups = [int(n) for n in rng.integers(1, 20, 2)], int(rng.integers(1, 6))
    compare_rows(*case(seed, size, 3, 1, ((1, 1), (1, 1)), 1, 1, groups), groups)


def check_halves(seed):
    rng = np.random.default_rng(seed)
    size = [int(n) for n in rng.integers(1, 14, 2)]
    pads = tuple(tuple(map(int, rng.integers(0, 5, 2))) for _ in size)
    pads = tuple((a, max(b, 3 - a - n)) for (a, b), n in zip(pads, size, strict=True))
    groups, dtype = int(rng.integers(1, 6)), drawn(rng, np.float32, np.float64)
    x, weight, bias, g, grid = case(seed, size, 3, 2, pads, 1, 1, groups, dtype)
    assert compiled._fits_depthwise_s2(grid, 1, 1)
    compare_rows(x, weight, bias, g, grid, groups, 1e-13 if dtype is np.float64 else 1e-5)


def compare_rows(x, weight, bias, g, grid, groups, tolerance=1e-13):
    assert compiled.fits_rows(grid)
    got = compiled.convolve_rows(x, weight, bias, grid, groups)
    close(got, im2col.convolve(x, weight, bias, grid, groups), tolerance)
    got = compiled.rows_input_vjp(g, weight, grid, groups)
    halves = compiled._fits_depthwise_s2(grid, weight.shape[1], len(weight) // groups)
    if grid.transposed() is None and not halves:
        assert got is None
    else:
        close(got, im2col.conv_input_vjp(g, weight, grid, groups), tolerance)
    got = compiled.rows_weight_vjp(g, x, grid, groups)
    close(got, im2col.conv_weight_vjp(g, x, grid, groups), tolerance)


def check_tiles(seed):
    rng = np.random.default_rng(seed)
    pads = tuple(tuple(map(int, rng.integers(0, 3, 2))) for _ in range(2))
    size = [3 + int(n) for n in rng.integers(0, 20, 2)]
    part, each = (int(n) for n in rng.integers(1, 5, 2))
    compare_tiles(*case(seed, size, 3, 1, pads, part, each, 1))


def check_small_tiles(seed):
    rng = np.random.default_rng(seed)
    pads = tuple(tuple(map(int, rng.integers(0, 3, 2))) for _ in range(2))
    size = [max(1, 3 - sum(p)) + int(rng.integers(0, 6)) for p in pads]
    part, each = (int(n) for n in rng.integers(1, 4, 2))
    compare_tiles(*case(seed, size, 3, 1, pads, part, each, 1, images=40))


def compare_tiles(x, weight, bias, g, grid):
    assert fits_winograd(grid)
    close(
        compiled.convolve_winograd(x, weight, bias, grid),
        im2col.convolve(x, weight, bias, grid, 1),
    )
    close(
        compiled.winograd_input_vjp(g, weight, grid),
        im2col.conv_input_vjp(g, weight, grid, 1),
    )
    close(
        compiled.winograd_weight_vjp(g, x, grid),
        im2col.conv_weight_vjp(g, x, grid, 1),
    )


def check_columns(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    axes = int(rng.integers(1, 4))
    window, stride, dilation = (tuple(map(int, rng.integers(1, 4, axes))) for _ in range(3))
    pads = tuple(tuple(map(int, rng.integers(0, k + 1, 2))) for k in window)
    long = [d * (k - 1) + 1 for d, k in zip(dilation, window, strict=True)]
    size = tuple(n + int(rng.integers(0, 9)) for n in long)
    grid = window_grid("test", size, window, stride, pads, dilation).to_3d()
    samples, each, part, groups = map(int, rng.integers(1, 5, 4))
    dtype = drawn(rng, np.float32, np.float64)
    # Whole numbers, whose sums are exact in any order.
    x = rng.integers(-9, 10, (samples, part * groups, *grid.size)).astype(dtype)
    weight = rng.integers(-9, 10, (each * groups, part, *grid.window)).astype(dtype)
    g = rng.integers(-9, 10, (samples, each * groups, *grid.counts)).astype(dtype)
    monkeypatch.setattr(im2col, "_BLOCK", int(drawn(rng, 1, 300, 1 << 20)))
    monkeypatch.setattr(im2col, "_FEW", int(drawn(rng, 1, 256)))
    add = compiled._col2im
    got = im2col.conv_input_vjp(g, weight, grid, groups, add)
    assert (got.shape, got.dtype) == (x.shape, x.dtype)
    assert (got * x).sum() == (im2col.convolve(x, weight, None, grid, groups) * g).sum()
    g = rng.normal(size=g.shape).astype(dtype)
    wanted = im2col.conv_input_vjp(g, weight, grid, groups)
    np.testing.assert_array_equal(im2col.conv_input_vjp(g, weight, grid, groups, add), wanted)


@pytest.mark.slow
def test_columns_are_added_up_as_by_numpy_to_the_bit(monkeypatch):
    monkeypatch.setattr(compiled, "_MANY", 0)
    monkeypatch.setattr(im2col, "_FEW_READ", 0)
    monkeypatch.setattr(im2col, "_SMALL", 0)
    for seed in range(300):
        check_columns(seed, monkeypatch)


@pytest.mark.slow
def test_rows_are_what_products_of_matrices_are():
    for seed in range(300):
        check_rows(seed)


@pytest.mark.slow
def test_sums_of_each_channel_are_what_products_of_matrices_are():
    for seed in range(100):
        check_each(seed)


@pytest.mark.slow
def test_sums_of_halves_are_what_products_of_matrices_are():
    for seed in range(300):
        check_halves(seed)


@pytest.mark.slow
def test_tiles_are_what_products_of_matrices_are():
    for seed in range(300):
        check_tiles(seed)


def test_tiles_of_small_images_are_what_products_of_matrices_are():
    for seed in range(8):
        check_small_tiles(seed)


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [(1, 1), (2, 1), (3, 40), (8, 128), (64, 64)], ids=str)
def test_any_number_of_small_images_are_transformed_together(monkeypatch, lanes):
    monkeypatch.setattr(compiled, "_LANES", lanes[0])
    monkeypatch.setattr(compiled, "_LANE_TILES", lanes[1])
    for least in (1, 20, 128):
        monkeypatch.setattr(compiled, "_BLOCK", 1)
        monkeypatch.setattr(compiled, "_LEAST", least)
        monkeypatch.setattr(compiled, "_LEAST_OF_WEIGHT", least)
        for seed in range(100, 120):
            check_small_tiles(seed)


@pytest.mark.slow
def test_tiles_may_be_taken_some_at_a_time(monkeypatch):
    for block, least in itertools.product((1, 200, 2000), (1, 10)):
        monkeypatch.setattr(compiled, "_BLOCK", block)
        monkeypatch.setattr(compiled, "_LEAST", least)
        for seed in range(100, 106):
            check_tiles(seed)


@pytest.mark.soak
def test_rows_and_tiles_of_thousands_of_random_convolutions():
    for seed in range(SEED + 1000, SEED + 4000):
        check_rows(seed)
        check_each(seed)
        check_halves(seed)
        check_tiles(seed)
        check_small_tiles(seed)


LARGE = {
    "rows": ((2, 3, 40, 33), (5, 3, 5, 5), {"padding": 2}),
    "each channel": ((2, 8, 21, 30), (8, 1, 3, 3), {"padding": 1, "stride": 2, "groups": 8}),
    "each channel as it lies": ((2, 8, 21, 30), (8, 1, 3, 3), {"padding": 1, "groups": 8}),
    "tiles": ((1, 32, 30, 29), (33, 32, 3, 3), {"padding": 1}),
    "tiles of small images": ((17, 32, 4, 3), (33, 32, 3, 3), {"padding": 1}),
    "tiles of few channels": ((17, 16, 3, 4), (18, 16, 3, 3), {"padding": 1}),
    "matrices": ((1, 16, 20, 20), (32, 16, 3, 3), {"stride": 2}),
    "one element": ((2, 16, 20, 20), (8, 16, 1, 1), {}),
}


def three(x, weight, g, options):
    """What runs by itself on arrays of such sizes, in both directions."""
    size, window = x.shape[2:], weight.shape[2:]
    return [
        ops.conv2d(x, weight, **options),
        ops.convolution_input(g, weight, size, **options),
        ops.convolution_weight(g, x, window, **options),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "filters", "options"), LARGE.values(), ids=list(LARGE))
def test_in_single_precision_each_way_is_as_exact_as_a_sum_of_products(shape, filters, options):
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=shape), rng.normal(size=filters)
    with ops.use_kernels("numpy"):
        y = ops.conv2d(x, weight, **options)
        g = rng.normal(size=y.shape)
        exact = three(x, weight, g, options)
    single = [v.astype(np.float32) for v in (x, weight, g)]
    with ops.use_kernels():
        found = three(*single, options)
    with ops.use_kernels("numpy"):
        usual = three(*single, options)
    for got, own, wanted in zip(found, usual, exact, strict=True):
        assert got.dtype == np.float32
        size = np.abs(wanted).max()
        error = max(np.abs(own - wanted).max(), 4 * np.finfo(np.float32).eps * size)
        assert np.abs(got - wanted).max() <= 4 * error


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize(("shape", "filters", "options"), LARGE.values(), ids=list(LARGE))
def test_what_is_no_number_reaches_what_it_is_a_part_of_and_nothing_else(
    shape, filters, options, number
):
    rng = np.random.default_rng(0)
    x, weight = (rng.normal(size=s).astype(np.float32) for s in (shape, filters))
    g = rng.normal(size=ops.conv2d(x, weight, **options).shape).astype(np.float32)
    for array in (x, weight, g):
        before, array.flat[array.size // 2] = array.flat[array.size // 2], number
        with np.errstate(all="ignore"):
            with ops.use_kernels():
                found = three(x, weight, g, options)
            with ops.use_kernels("numpy"):
                wanted = three(x, weight, g, options)
        array.flat[array.size // 2] = before
        for got, want in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))


def test_images_without_lines_are_padding_alone():
    x, weight, bias = np.zeros((2, 6, 0, 3)), np.ones((6, 1, 1, 3)), np.arange(6.0)
    with ops.use_kernels():
        out = ops.conv2d(x, weight, bias, padding=(2, 1), groups=6)
        slope = ops.convolution_weight(out, x, (1, 3), padding=(2, 1), groups=6)
    np.testing.assert_array_equal(out, np.broadcast_to(bias[:, None, None], (2, 6, 4, 3)))
    np.testing.assert_array_equal(slope, np.zeros((6, 1, 1, 3)))


def test_the_same_call_gives_the_same_bits():
    rng = np.random.default_rng(0)
    for shape, filters, options in LARGE.values():
        x, weight = (rng.normal(size=s).astype(np.float32) for s in (shape, filters))
        with ops.use_kernels():
            first, second = (ops.conv2d(x, weight, **options) for _ in range(2))
        np.testing.assert_array_equal(first, second)


def test_each_way_is_taken_where_it_is_meant(monkeypatch):
    taken = []

    def noting(name):
        found = getattr(compiled, name)

        def noted(*values):
            taken.append(name)
            return found(*values)

        monkeypatch.setattr(compiled, name, noted)

    for name in ("convolve_rows", "convolve_winograd"):
        noting(name)
    with ops.use_kernels():
        for shape, filters, options in LARGE.values():
            ops.conv2d(np.ones(shape), np.ones(filters), **options)
    assert taken == ["convolve_rows"] * 3 + ["convolve_winograd"] * 3


@pytest.mark.parametrize(("stride", "size"), [(2, 28), (1, 14)], ids=["strided", "large weight"])
def test_many_columns_are_added_up_in_a_loop_and_few_by_numpy(monkeypatch, stride, size):
    taken = []
    loop = compiled.col2im_loop
    monkeypatch.setattr(compiled, "col2im_loop", lambda *given: taken.append(loop(*given)))
    rng = np.random.default_rng(0)
    for channels, times in ((64, 1), (4, 1)):
        y = rng.normal(size=(1, 2 * channels, size // stride, size // stride)).astype("f")
        weight = rng.normal(size=(2 * channels, channels, 3, 3)).astype("f")
        with ops.use_kernels():
            ops.convolution_input(y, weight, size, stride, 1)
        assert len(taken) == times

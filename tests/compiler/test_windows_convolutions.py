"""Convolutions in native programs: windows are read where they lie, as what they mean."""

import itertools

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.codegen import register_tiles
from odyssey.compiler.ir.views import View
from odyssey.compiler.native_dispatch.entry import CHECK_FAILED, RAN
from odyssey.compiler.runtime.kernel_work import kernel_work
from odyssey.table.kernel_selection import are_kernels_compiled
from support.executables import run

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

RNG = np.random.default_rng(0)
CONVOLUTIONS = {1: ops.conv1d, 2: ops.conv2d, 3: ops.conv3d}

# Shapes of the images and of the weight, and options.
CASES = [
    ((2, 3, 9, 7), (4, 3, 3, 2), {}),
    ((2, 3, 9, 37), (5, 3, 3, 4), {"padding": 2}),
    ((3, 4, 6, 18), (6, 2, 2, 3), {"groups": 2, "padding": ((1, 0), (0, 2))}),
    ((2, 4, 8, 9), (4, 1, 3, 3), {"groups": 4, "dilation": (1, 2)}),
    ((2, 2, 9, 8), (3, 2, 3, 3), {"stride": (2, 1), "padding": 1}),
    ((2, 2, 9, 8), (3, 2, 3, 3), {"stride": 2}),
    ((2, 4, 41, 75), (4, 1, 3, 3), {"stride": 2, "padding": 1, "groups": 4}),
    ((2, 2, 8, 37), (3, 2, 2, 4), {"stride": (3, 2), "padding": (0, 1)}),
    ((1, 1, 200), (2, 1, 3), {"stride": 2}),
    ((2, 2, 9, 17), (20, 2, 3, 3), {"stride": 2}),
    ((1, 1, 9, 40), (2, 1, 3, 3), {"stride": (1, 3)}),
    ((1, 1, 70), (2, 1, 5), {"padding": "same"}),
    ((2, 3, 5), (7, 3, 5), {}),
    ((2, 2, 4, 5, 6), (3, 2, 2, 1, 3), {"padding": 1}),
    ((2, 3, 5, 1), (4, 3, 3, 1), {"padding": (1, 0)}),
    ((33, 1, 20, 19), (2, 1, 3, 5), {}),
    ((1, 130, 4, 5), (3, 130, 3, 2), {}),
]


def whole(fn, *args):
    """What a program without calls gives, and the program."""
    answer, got, made = run(fn, *args)
    assert answer == RAN
    assert not made.calls
    return got, made


def by_definition(x, weight, stride, pads, dilation, groups):
    """At each place the sum of a window of all channels of a group times a weight, in float64."""
    x, weight = x.astype(float), weight.astype(float)
    x = np.pad(x, ((0, 0), (0, 0), *pads))
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    counts = [(n - span) // s + 1 for n, span, s in zip(x.shape[2:], spans, stride, strict=True)]
    out = np.zeros((len(x), len(weight), *counts))
    outs, channels = len(weight) // groups, weight.shape[1]
    for at in itertools.product(*map(range, weight.shape[2:])):
        key = tuple(
            slice(k * d, k * d + s * (n - 1) + 1, s)
            for k, d, s, n in zip(at, dilation, stride, counts, strict=True)
        )
        for g in range(groups):
            part = x[:, g * channels : (g + 1) * channels][(..., *key)]
            factor = weight[(slice(g * outs, (g + 1) * outs), slice(None), *at)]
            out[:, g * outs : (g + 1) * outs] += np.einsum("nc...,oc->no...", part, factor)
    return out


# Few channels or tiles, and windows that are larger or lie apart, run in a program's own loops.
WINOGRAD = {
    "many": ((8, 64, 4, 4), (64, 64, 3, 3), {"padding": 1}, False),
    "small": ((64, 64, 2, 2), (48, 64, 3, 3), {"padding": 1}, True),
    "few channels": ((64, 32, 4, 4), (32, 32, 3, 3), {"padding": 1}, False),
    "strided": ((64, 64, 4, 4), (64, 64, 3, 3), {"padding": 1, "stride": 2}, False),
    "one element": ((64, 64, 1, 1), (64, 64, 3, 3), {"padding": 1}, False),
}


@pytest.mark.slow
@pytest.mark.skipif(not are_kernels_compiled(), reason="numba, which compiles kernels, is missing")
@pytest.mark.parametrize(
    ("shape", "weight", "options", "called"), WINOGRAD.values(), ids=list(WINOGRAD)
)
def test_products_of_many_channels_and_tiles_are_winograd_calls(shape, weight, options, called):
    x, w = (RNG.integers(-4, 5, s).astype("f4") for s in (shape, weight))
    _, (got,), made = run(lambda x, w: ops.conv2d(x, w, **options), x, w)
    np.testing.assert_array_equal(got, by_definition(x, w, *settled(shape, weight, options)))
    assert bool(made.calls) == called
    y = RNG.integers(-4, 5, got.shape).astype("f4")
    for op, other in ((ops.convolution_input, w), (ops.convolution_weight, x)):
        size = shape[2:] if other is w else weight[2:]
        _, _, made = run(lambda y, other, op=op, size=size: op(y, other, size, **options), y, other)
        assert bool(made.calls) == called


@pytest.mark.parametrize(("images", "out"), [((2, 0, 30, 29), 3), ((2, 3, 30, 29), 0)], ids=str)
def test_windows_are_not_unfolded_for_products_without_elements(images, out):
    x, w = np.ones(images), np.ones((out, images[1], 21, 21))

    def both(x, w):
        return od.value_and_grad(lambda x, w: (ops.conv2d(x, w, padding=10) + 1.0).sum(), (0, 1))(
            x, w
        )

    answer, (value, *slopes), made = run(both, x, w)
    assert answer == RAN
    assert value == 2 * out * 30 * 29
    assert all(not g.any() and g.shape == a.shape for g, a in zip(slopes, (x, w), strict=True))
    assert made.plan.arena <= 16 * 2 * 3 * 30 * 29


def settled(shape, weight, options):
    """The options as numbers for each axis."""
    n = len(shape) - 2
    dilation = options.get("dilation", 1)
    dilation = (dilation,) * n if isinstance(dilation, int) else dilation
    stride = options.get("stride", 1)
    stride = (stride,) * n if isinstance(stride, int) else stride
    pads = options.get("padding", 0)
    if pads == "same":
        pads = tuple(((k - 1) // 2, k // 2) for k in weight[2:])
    pads = (pads,) * n if isinstance(pads, int) else pads
    pads = tuple((p, p) if isinstance(p, int) else p for p in pads)
    return stride, pads, dilation, options.get("groups", 1)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("shape", "weight", "options"), CASES, ids=str)
def test_convolutions_are_what_they_are_defined_as(shape, weight, options, dtype):
    # Whole numbers, whose sums are exact in any order.
    x, w = (RNG.integers(-4, 5, s).astype(dtype) for s in (shape, weight))
    conv = CONVOLUTIONS[len(shape) - 2]
    (got,), _ = whole(lambda x, w: conv(x, w, **options), x, w)
    wanted = by_definition(x, w, *settled(shape, weight, options))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize(("shape", "weight", "options"), CASES, ids=str)
def test_tiles_of_other_processors_give_the_same(shape, weight, options, bits, monkeypatch):
    monkeypatch.setattr(register_tiles, "registers", lambda: register_tiles.Registers(bits, 15))
    x, w = (RNG.integers(-4, 5, s).astype("f4") for s in (shape, weight))
    conv = CONVOLUTIONS[len(shape) - 2]
    wanted = by_definition(x, w, *settled(shape, weight, options))

    def fn(x, w, y):
        out = conv(x, w, **options)
        return out, ops.convolution_weight(y, x, w.shape[2:], **options)

    (got, of_w), _ = whole(fn, x, w, wanted.astype("f4"))
    np.testing.assert_array_equal(got, wanted)
    assert np.vdot(of_w.astype(float), w) == np.vdot(wanted, wanted)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("shape", "weight", "options"), CASES, ids=str)
def test_their_derivatives_are_their_transposes(shape, weight, options, dtype):
    x, w = (RNG.integers(-3, 4, s).astype(dtype) for s in (shape, weight))
    conv = CONVOLUTIONS[len(shape) - 2]
    out = by_definition(x, w, *settled(shape, weight, options))
    g = RNG.integers(-3, 4, out.shape).astype(dtype)

    def fn(x, w, g):
        return od.grad(lambda x, w: ops.sum(conv(x, w, **options) * g), argnums=(0, 1))(x, w)

    (of_x, of_w), _ = whole(fn, x, w, g)
    for k, (given, got) in enumerate([(x, of_x), (w, of_w)]):
        # A linear map and its transpose: <g, A v> = <A' g, v>.
        v = RNG.integers(-3, 4, given.shape)
        pair = (v, w) if k == 0 else (x, v)
        pushed = by_definition(*pair, *settled(shape, weight, options))
        assert np.vdot(g.astype(float), pushed) == np.vdot(got.astype(float), v)
    one_x, one_w = (np.zeros_like(a) for a in (x, w))
    for given, got, one in ((x, of_x, one_x), (w, of_w, one_w)):
        for at in [(0,) * one.ndim, tuple(n - 1 for n in one.shape)]:
            one[at] = 1
            pair = (one, w) if given is x else (x, one)
            assert got[at] == np.vdot(g, by_definition(*pair, *settled(shape, weight, options)))
            one[at] = 0


def test_windows_are_not_copied_for_products():
    x, w = RNG.normal(size=(8, 4, 20, 20)).astype("f4"), RNG.normal(size=(4, 4, 5, 5)).astype("f4")

    def fn(x, w):
        return od.grad(lambda x, w: ops.sum(ops.conv2d(x, w) ** 2), argnums=(0, 1))(x, w)

    _, made = whole(fn, x, w)
    columns = 4 * 8 * 4 * 25 * 16 * 16
    assert made.plan.arena < columns // 4
    counted = [
        kernel_work(made.plan, k).flops for k in made.plan.fused.kernels if k.kind == "product"
    ]
    there, back = 2 * 8 * 4 * 4 * 25 * 16 * 16, 2 * 8 * 4 * 4 * 25 * 20 * 20
    assert sorted(counted) == [there, there, back]


@pytest.mark.parametrize(
    ("shape", "weight"),
    [((64, 1, 34, 34), (2, 1, 3, 3)), ((1, 400, 6, 6), (2, 400, 5, 5))],
    ids=str,
)
def test_long_sums_err_as_sums_of_sums(shape, weight):
    # All of one size and sign, where roundings would pile up: the bound is that of sums of at most
    # 512, of which there are at most 512.
    x, w = (RNG.uniform(0.5, 1, s).astype("f4") for s in (shape, weight))

    def fn(x, w):
        out = ops.conv2d(x, w)
        return out, od.grad(lambda w: ops.sum(ops.conv2d(x, w)))(w)

    (got, of_w), _ = whole(fn, x, w)
    wanted = by_definition(x, w, (1, 1), ((0, 0), (0, 0)), (1, 1), 1)
    bound = 600 * float(np.finfo("f4").eps) / 2
    assert abs(got / wanted - 1).max() < bound
    counts = wanted.shape[2:]
    for at in itertools.product(*map(range, weight[2:])):
        part = x[:, :, at[0] : at[0] + counts[0], at[1] : at[1] + counts[1]].astype(float)
        assert abs(of_w[(0, slice(None), *at)] / part.sum((0, 2, 3)) - 1).max() < bound


@pytest.mark.parametrize("stride", [1, 2])
def test_infinite_weights_make_no_nan_of_zeros_around(stride):
    # Few results, which eager calls take by products and not by loops.
    g, w = RNG.normal(size=(1, 2, 3, 3)), RNG.normal(size=(2, 1, 3, 3))
    size = 2 * stride + 3
    options = {"size": (size, size), "stride": stride, "groups": 2}

    def fn(g, w):
        return ops.convolution_input(g, w, **options)

    assert run(fn, g, w)[0] == RAN
    w[0, 0, 0, 0] = np.inf
    assert run(fn, g, w)[0] == CHECK_FAILED
    compiled = od.compile(fn)
    with np.errstate(all="ignore"):
        for _ in range(3):
            np.testing.assert_array_equal(compiled(g, w), fn(g, w))


def test_windows_are_views_as_numpy_slides_them():
    x = RNG.normal(size=(3, 11, 9))
    seen = View.dense(x.shape).windows((3, 2), (2, 1), (1, 3))
    wanted = np.lib.stride_tricks.sliding_window_view(x, (3, 4), (1, 2))[:, ::2, :, :, ::3]
    wanted = wanted.transpose(0, 3, 4, 1, 2)
    assert seen.shape == wanted.shape
    shown = np.lib.stride_tricks.as_strided(x, seen.shape, [8 * s for s in seen.strides])
    np.testing.assert_array_equal(shown, wanted)

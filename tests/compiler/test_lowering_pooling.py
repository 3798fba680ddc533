"""Windows in native programs: however large they are, the program is as short."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.native_dispatch.entry import RAN
from support.executables import run

# Ordinary runs take one case in three, and soaks the others.
pytestmark = pytest.mark.share(3)

RNG = np.random.default_rng(0)

# The shape of x, and a function of it and of the window's size.
CALLS = {
    "side by side": ((2, 3, 60), lambda x, n: ops.avg_pool1d(x, window=n)),
    "side by side on images": ((2, 60, 60), lambda x, n: ops.avg_pool2d(x, window=n)),
    "close together": ((2, 60, 60), lambda x, n: ops.avg_pool2d(x, window=n, stride=2, padding=1)),
    "without padding": (
        (60, 61),
        lambda x, n: ops.avg_pool2d(x, window=n, stride=3, padding=2, count_include_pad=False),
    ),
    "beyond": ((60, 61), lambda x, n: ops.avg_pool2d(x, window=n, stride=7, ceil_mode=True)),
    "in space": ((20, 20, 20), lambda x, n: ops.avg_pool3d(x, window=n // 2, stride=4)),
    "powers": ((2, 3, 60), lambda x, n: ops.lp_pool1d(x, p=2, window=n)),
    "largest": ((2, 60, 60), lambda x, n: ops.max_pool2d(x, window=n)),
    "folded": (
        (2, 3 * 60, 60),
        lambda x, n: ops.fold(x[:, : 3 * n, : 120 // n], size=(120,), window=n, stride=n),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_a_larger_window_takes_no_more_kernels_and_gives_what_the_op_gives(call):
    shape, pooled = CALLS[call]
    x = RNG.uniform(0.5, 1.5, shape)
    kernels = []
    for n in (30, 20):
        weight = RNG.normal(size=pooled(x, n).shape)

        def both(x, weight, n=n):
            return od.value_and_grad(lambda x: (pooled(x, n) * weight).sum())(x)

        answer, (value, gradient), made = run(both, x, weight)
        assert answer == RAN
        wanted_value, wanted = both(x, weight)
        np.testing.assert_allclose(value, wanted_value, rtol=1e-12)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-12, atol=1e-15)
        kernels.append(len(made.plan.fused.kernels))
    assert kernels[0] == kernels[1] < 12


@pytest.mark.slow
@pytest.mark.parametrize("window", [2, 6])
def test_windows_have_one_program_for_all_sizes_whether_they_cover_the_image_or_not(window):
    def both(x):
        return od.value_and_grad(lambda x: (ops.avg_pool2d(x, window=window) ** 2).sum())(x)

    compiled = od.compile(both, dynamic={"x": {2: od.Dim("height", 1, 4096)}})
    for height in (18, 24, 25, 36, 61) * 2:
        x = RNG.normal(size=(2, 3, height, 12))
        for got, wanted in zip(compiled(x), both(x), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-12)
    assert compiled.statistics().programs == 1


@pytest.mark.parametrize("window", [(2, 2), (2, 3), (1, 4)], ids=str)
@pytest.mark.parametrize("shape", [(3, 8, 12), (2, 9, 13), (0, 4, 12)], ids=str)
def test_the_gradient_of_means_of_windows_side_by_side_is_written_once(shape, window):
    y = RNG.integers(-9, 10, (shape[0], shape[1] // window[0], shape[2] // window[1])) * 6.0
    spec = od.Spec(shape, np.dtype(float))
    answer, (got,), made = run(lambda y: od.backward.avg_pool2d(y, spec, window), y)
    assert answer == RAN
    wanted = np.zeros(shape)
    for i, j in np.ndindex(shape[1] // window[0] * window[0], shape[2] // window[1] * window[1]):
        wanted[:, i, j] = y[:, i // window[0], j // window[1]] / (window[0] * window[1])
    np.testing.assert_array_equal(got, wanted)
    assert made.plan.arena <= y.nbytes + wanted.nbytes + 128

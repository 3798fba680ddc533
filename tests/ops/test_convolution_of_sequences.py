"""Convolution against NumPy at every pair of lengths, and by transforms against exact sums."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import DTypeError
from odyssey.ops.reductions import convolution

MODES = ("full", "same", "valid")
METHODS = ("direct", "fft")


def drawn(rng, n, kind):
    x = rng.normal(size=n)
    return x + 1j * rng.normal(size=n) if kind == "c" else x


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["f", "c"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_every_pair_of_lengths_and_mode_gives_numpys_sums(name, kind, method):
    rng = np.random.default_rng(0)
    for n in range(1, 8):
        for m in range(1, 8):
            a, v = drawn(rng, n, kind), drawn(rng, m, kind)
            for mode in MODES:
                got = getattr(ops, name)(a, v, mode, method=method)
                wanted = getattr(np, name)(a, v, mode)
                assert got.dtype == wanted.dtype
                np.testing.assert_allclose(got, wanted, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("mode", MODES)
def test_derivatives_convolve_fft_agree_with_differences_in_both_modes(mode):
    rng = np.random.default_rng(0)
    for n, m in ((6, 3), (3, 6), (4, 4)):
        od.testing.check_gradients(
            lambda a, v: ops.convolve(a, v, mode, method="fft"),
            drawn(rng, n, "c"),
            drawn(rng, m, "f"),
        )


def test_long_sequences_are_transformed_and_right_to_the_rounding_of_the_largest_sum():
    rng = np.random.default_rng(0)
    n = convolution._SHORT
    # Whole numbers, of which the sums are exact.
    a, v = (rng.integers(-9, 10, size) for size in (2 * n + 7, n))
    exact = np.convolve(a, v)
    for dtype in ("float64", "float32", "complex128"):
        got = ops.convolve(a.astype(dtype), v.astype(dtype))
        assert got.dtype == dtype
        assert not np.array_equal(got, exact)  # or transforms were not tried
        bound = 4 * np.finfo(dtype).eps * np.linalg.norm(a) * np.linalg.norm(v)
        assert np.abs(got - exact).max() <= bound
    np.testing.assert_array_equal(ops.convolve(a, v), exact)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 1e308])
def test_what_transforms_would_spread_over_all_of_the_result_stays_where_numpy_has_it(bad):
    a, v = np.ones(3000), np.ones(1500)
    a[10] = a[11] = bad
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(ops.convolve(a, v), np.convolve(a, v))


def test_the_derivative_in_a_short_sequence_is_not_made_by_long_transforms(monkeypatch):
    def refuse(*given):
        raise AssertionError("transformed")

    monkeypatch.setattr(convolution, "_convolve_fft", refuse)
    rng = np.random.default_rng(0)
    a, v, c = rng.normal(size=5000), rng.normal(size=3), rng.normal(size=5002)
    _, pull = od.vjp(lambda v: ops.convolve(a, v), v)
    wanted = [c[k : k + 5000] @ a for k in range(3)]
    np.testing.assert_allclose(pull(c)[0], wanted, rtol=1e-12)


def test_whole_numbers_are_not_transformed():
    with pytest.raises(DTypeError, match=r"^convolve: method='fft' for int64"):
        ops.convolve(np.arange(3), np.arange(3), method="fft")


def test_lengths_to_transform_have_no_prime_factor_above_five():
    powers = np.arange(13)
    smooth = np.sort(np.ravel(2 ** powers[:, None, None] * 3 ** powers[:8, None] * 5 ** powers[:6]))
    for n in range(1, 4097):
        assert convolution.next_fast_length(n) == smooth[np.searchsorted(smooth, n)]


def test_a_signal_is_recovered_from_its_echoes_by_the_gradient_of_a_convolution():
    rng = np.random.default_rng(0)
    kernel, signal = np.array([1.0, 0.4, 0.2]), rng.normal(size=8)
    heard = ops.convolve(signal, kernel)
    w = np.zeros(8)
    loss = od.value_and_grad(lambda x: ops.sum(ops.square(ops.convolve(x, kernel) - heard)))
    for _ in range(300):
        _, g = loss(w)
        w = w - 0.25 * g
    np.testing.assert_allclose(w, signal, rtol=0, atol=1e-9)

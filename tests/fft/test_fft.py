"""Discrete Fourier transforms against matrices, and what their gradients count."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError
from odyssey.fft.primitives import NORMS
from support.convolved import convolved

LENGTHS = [1, 2, 3, 6, 7]
SCALES = {"backward": lambda n: 1, "ortho": lambda n: n**-0.5, "forward": lambda n: 1 / n}
every_length = pytest.mark.parametrize("n", LENGTHS)
every_norm = pytest.mark.parametrize("norm", NORMS)


def matrix(n, norm="backward", sign=-1):
    """The transform as a matrix; by whole numbers of turns, so that no digit is lost."""
    turns = np.outer(np.arange(n), np.arange(n)) % n
    return SCALES[norm](n) * np.exp(sign * 2j * np.pi * turns / n)


def half_to_real(n, norm="backward"):
    """The matrices that the real and imaginary parts of half a spectrum are multiplied by."""
    m = n // 2 + 1
    # Conjugates fill the other half; of numbers that are their own, the real part alone counts.
    full = matrix(n, {"backward": "forward", "ortho": "ortho", "forward": "backward"}[norm], 1)
    own = [k for k in range(m) if 2 * k % n == 0]
    twice = np.where(np.isin(np.arange(m), own), 1, 2)
    return (twice * full[:, :m]).real, -(twice * full[:, :m]).imag


def gradient_of(call, x, cotangent):
    leaf = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        out = call(leaf)
    return out.numpy(), tape.gradient(out, leaf, cotangent)


def drawn(rng, *shape):
    return rng.normal(size=shape) + 1j * rng.normal(size=shape)


# ------------------------------------------------------------------ against matrices


@every_norm
@every_length
def test_fft_is_its_matrix_and_the_gradient_the_adjoint_matrix(n, norm):
    rng = np.random.default_rng(n)
    x, c = drawn(rng, n), drawn(rng, n)
    for call, m in ((od.fft.fft, matrix(n, norm)), (od.fft.ifft, np.linalg.inv(matrix(n, norm)))):
        out, gradient = gradient_of(lambda v, call=call: call(v, norm=norm), x, c)
        np.testing.assert_allclose(out, m @ x, rtol=0, atol=1e-13)
        np.testing.assert_allclose(gradient, m.conj().T @ c, rtol=0, atol=1e-13)


@every_norm
@every_length
def test_the_gradient_of_rfft_counts_half_of_the_spectrum_once(n, norm):
    rng = np.random.default_rng(n)
    m = matrix(n, norm)[: n // 2 + 1]
    x, c = rng.normal(size=n), drawn(rng, n // 2 + 1)
    out, gradient = gradient_of(lambda v: od.fft.rfft(v, norm=norm), x, c)
    np.testing.assert_allclose(out, m @ x, rtol=0, atol=1e-13)
    np.testing.assert_allclose(gradient, (m.conj().T @ c).real, rtol=0, atol=1e-13)


@every_norm
@every_length
def test_the_gradient_of_irfft_counts_both_halves_and_reads_no_idle_imaginary_part(n, norm):
    rng = np.random.default_rng(n)
    of_real, of_imag = half_to_real(n, norm)
    x, c = drawn(rng, n // 2 + 1), rng.normal(size=n)
    out, gradient = gradient_of(lambda v: od.fft.irfft(v, n, norm=norm), x, c)
    np.testing.assert_allclose(out, of_real @ x.real + of_imag @ x.imag, rtol=0, atol=1e-13)
    np.testing.assert_allclose(gradient, of_real.T @ c + 1j * (of_imag.T @ c), rtol=0, atol=1e-13)
    assert gradient[0].imag == 0


def test_the_energy_of_a_signal_is_that_of_its_spectrum_and_so_is_the_gradient():
    x = np.random.default_rng(0).normal(size=(3, 8))

    def energy(v):
        spectrum = od.fft.fftn(v, norm="ortho")
        return ops.sum(ops.real(spectrum * ops.conj(spectrum)))

    value, gradient = od.value_and_grad(energy)(x)
    np.testing.assert_allclose(value, (x * x).sum(), rtol=1e-14)
    np.testing.assert_allclose(gradient, 2 * x, rtol=1e-13, atol=1e-14)


def test_the_second_derivative_of_a_power_spectrum_is_that_of_its_matrix():
    x = np.random.default_rng(0).normal(size=5)
    m = matrix(5)[:3]

    def power(v):
        spectrum = od.fft.rfft(v)
        return ops.sum(ops.real(spectrum * ops.conj(spectrum)) ** 2)

    y = m @ x
    rows = 2 * (m.conj() * y[:, None]).real  # the gradient of each |y|**2
    wanted = 2 * rows.T @ rows
    for row, energy in zip(m, np.abs(y) ** 2, strict=True):
        wanted += 2 * energy * 2 * np.outer(row.conj(), row).real
    np.testing.assert_allclose(od.hessian(power)(x), wanted, rtol=1e-12, atol=1e-10)


# ------------------------------------------------------------------ what a stranger hands in


def test_an_axis_that_is_named_twice_is_transformed_twice_as_by_numpy():
    x = drawn(np.random.default_rng(0), 3, 4)
    for name in ("fftn", "ifftn"):
        got = getattr(od.fft, name)(x, axes=(0, 1, 0))
        np.testing.assert_array_equal(got, getattr(np.fft, name)(x, axes=(0, 1, 0)))


def test_without_axes_nothing_is_transformed_and_half_a_transform_is_refused():
    x = np.ones((2, 3))
    np.testing.assert_array_equal(od.fft.fftn(x, axes=()), x)
    with pytest.raises(ShapeError, match=r"^irfftn: .*one axis or more"):
        od.fft.irfftn(x, axes=())


def test_sizes_alone_are_those_of_the_last_axes():
    x = np.random.default_rng(0).normal(size=(2, 3, 4))
    np.testing.assert_array_equal(od.fft.fftn(x, (5, 2)), np.fft.fftn(x, (5, 2), axes=(1, 2)))
    with pytest.raises(ShapeError, match=r"^rfftn: s=\(2, 2\)"):
        od.fft.rfftn(np.ones(3), (2, 2))


def test_infinite_and_missing_numbers_reach_what_they_reach_in_numpy():
    for bad in (np.inf, -np.inf, np.nan):
        x = np.array([1.0, bad, 2.0, 3.0])
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(od.fft.rfft(x), np.fft.rfft(x))
        np.testing.assert_array_equal(gradient_of(od.fft.fft, x, np.ones(4))[1], [4, 0, 0, 0])


def test_what_was_not_chosen_before_a_transform_has_no_part_in_it():
    x = np.array([-1.0, 0.5, 2.0, 3.0])
    with np.errstate(invalid="ignore"):
        _, gradient = gradient_of(
            lambda v: od.fft.fft(ops.where(v > 0, ops.sqrt(v), 0.0)), x, np.ones(4, complex)
        )
    # Ones for a cotangent ask for the first number alone, four times: no other may be lost by it.
    np.testing.assert_array_equal(gradient, [0, 0, 0, 0])
    with np.errstate(invalid="ignore"):
        _, gradient = gradient_of(
            lambda v: od.fft.fft(ops.where(v > 0, ops.sqrt(v), 0.0)), x, np.array([1, 0, 0, 0])
        )
    np.testing.assert_allclose(gradient, np.r_[0, 0.5 / np.sqrt(x[1:])], rtol=1e-15)


def test_numpys_functions_mean_ours_on_variables_and_record():
    v = Variable(np.arange(6.0).reshape(2, 3), requires_grad=True)
    for name in ("fft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifftn", "fftshift"):
        with GradientTape() as tape:
            out = getattr(np.fft, name)(v)
        assert isinstance(out, Variable)
        assert tape.gradient(out, v, np.ones(out.shape, out.dtype)).shape == v.shape


def test_the_spacing_of_frequencies_has_a_gradient():
    d = Variable(0.5, requires_grad=True)
    with GradientTape() as tape:
        total = ops.sum(ops.square(od.fft.fftfreq(4, d)))
    # The frequencies are 0, 1, -2, -1 over 4 d.
    np.testing.assert_allclose(tape.gradient(total, d), -2 * 6 / 16 / 0.5**3, rtol=1e-15)


def test_a_number_is_shifted_onto_itself_and_numbers_have_no_transform():
    assert od.fft.fftshift(3.0) == 3.0
    for call in (od.fft.fft, od.fft.irfft, od.fft.rfft):
        with pytest.raises(ShapeError, match="does not fit"):
            call(3.0)


def test_other_words_and_halves_of_numbers_are_refused_by_name():
    with pytest.raises(DTypeError, match=r"^fft: n=2\.5 is not a whole number"):
        od.fft.fft(np.ones(3), 2.5)
    with pytest.raises(DTypeError, match=r"^ifftn: axes='01'"):
        od.fft.ifftn(np.ones((3, 3)), axes="01")
    with pytest.raises(DTypeError, match=r"^rfft: a is a masked array"):
        od.fft.rfft(np.ma.masked_array([1.0, 2.0], [True, False]))


# ------------------------------------------------------------------ convolution


def test_a_picture_is_blurred_as_by_sums_and_its_kernel_is_found_by_the_gradient():
    rng = np.random.default_rng(0)
    picture, kernel = rng.normal(size=(40, 50)), rng.normal(size=(5, 4))
    for mode in ("full", "same", "valid"):
        wanted = convolved(picture, kernel, mode)
        found = od.fft.fftconvolve(picture, kernel, mode)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-13)
    # Of a sum of squares a step of Newton's method ends at the kernel.
    blurred = convolved(picture, kernel)

    def loss(k):
        return ops.sum(ops.square(od.fft.fftconvolve(picture, k) - blurred))

    start = np.zeros((5, 4))
    slope, bend = od.grad(loss)(start), od.hessian(loss)(start).reshape(20, 20)
    found = np.linalg.solve(bend, -slope.ravel()).reshape(5, 4)
    np.testing.assert_allclose(found, kernel, rtol=1e-9, atol=1e-11)

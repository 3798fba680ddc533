"""Elementwise functions of NumPy that users miss first: names, options, and complex numbers."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError
from support.cases import assert_same, derive

INF, NAN = np.inf, np.nan
X = np.array([[0.5, -1.5, 2.0], [0.25, 3.0, -0.75]])

# NumPy's name, the op's name, further arguments.
NAMES = {
    "logaddexp": ("logaddexp", (X.T.copy().reshape(2, 3),)),
    "logaddexp2": ("logaddexp2", (0.5,)),
    "fmax": ("fmax", (0.3,)),
    "fmin": ("fmin", (0.3,)),
    "fabs": ("fabs", ()),
    "sinc": ("sinc", ()),
    "nan_to_num": ("nan_to_num", ()),
    "deg2rad": ("deg2rad", ()),
    "radians": ("deg2rad", ()),
    "rad2deg": ("rad2deg", ()),
    "degrees": ("rad2deg", ()),
    "angle": ("angle", (True,)),
}


@pytest.mark.parametrize("name", NAMES)
def test_numpys_name_and_ours_are_one_op_on_arrays_and_on_variables(name):
    row_name, more = NAMES[name]
    theirs, ours = getattr(np, name), getattr(ops, name)
    w = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        out, same = theirs(w, *more), ours(w, *more)
    assert [node.op for node in tape.nodes] == [row_name, row_name]
    for got in (out.numpy(), same.numpy(), ours(X, *more)):
        assert_same(got, theirs(X, *more))


@pytest.mark.parametrize("name", NAMES)
def test_integers_give_what_numpy_gives_of_them(name):
    x = np.array([-3, 0, 2])
    more = NAMES[name][1][:1] if name == "angle" else [2] * len(NAMES[name][1])
    assert_same(getattr(ops, name)(x, *more), getattr(np, name)(x, *more))
    assert_same(getattr(ops, name)(Variable(x), *more).numpy(), getattr(np, name)(x, *more))


# ------------------------------------------------------------------ sinc


def test_sinc_is_smooth_at_zero_in_all_derivatives():
    # sinc(x) = sum of (-1)**k (pi x)**(2 k) / (2 k + 1)!, so these are its derivatives at 0.
    wanted = [1.0, 0.0, -(np.pi**2) / 3, 0.0, np.pi**4 / 5, 0.0, -(np.pi**6) / 7]
    f, got = ops.sinc, []
    for _ in wanted:
        got.append(float(f(np.float64(0.0))))
        f = od.grad(f)
    np.testing.assert_allclose(got, wanted, rtol=1e-14)


@pytest.mark.parametrize("order", range(5))
def test_sine_quotients_have_sixteen_digits_where_the_two_formulas_meet(order):
    mpmath = pytest.importorskip("mpmath")
    border = order + 2.0
    x = np.concatenate([np.linspace(0.01, 3 * border, 60), [border, np.nextafter(border, 0)]])
    with mpmath.workdps(50):
        half = mpmath.mpf(1) / 2
        wanted = [
            float(
                mpmath.sqrt(mpmath.pi / (2 * mpmath.mpf(v)))
                * mpmath.besselj(order + half, mpmath.mpf(v))
                / mpmath.mpf(v) ** order
            )
            for v in x.tolist()
        ]
    got = ops.sine_quotient(x, order=order)
    # The largest is at 0; beyond, zeros are met to the rounding of their neighbours.
    scale = np.maximum(np.abs(wanted), 1 / np.prod(np.arange(1, 2 * order + 2, 2)) / x**order / 50)
    assert np.max(np.abs(got - wanted) / scale) < 2e-14


def test_a_sine_quotient_of_integers_is_a_floating_number():
    assert_same(ops.sine_quotient(np.array([0, 1]), order=0), np.array([1.0, np.sin(1.0)]))


# ------------------------------------------------------------------ angles of complex numbers


def test_the_gradient_of_an_angle_is_steepest_ascent():
    z = np.array([2 + 0j, 3 + 4j, -1j, -2 + 1e-3j])
    w = Variable(z, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        out = np.angle(w)
    assert out.dtype == np.float64
    np.testing.assert_allclose(tape.gradient(out, w, np.ones(4)), 1j / z.conj(), rtol=1e-15)
    t = np.array([1j, 1 + 1j, 2, -1j])
    np.testing.assert_allclose(tape.jvp(out, w, t), (t / z).imag, rtol=1e-15)


def test_the_angle_at_the_origin_has_no_second_derivative():
    z = Variable(np.array([0j, 1 + 1j]), requires_grad=True)
    with GradientTape(persistent=True) as outer, np.errstate(invalid="ignore"):
        with GradientTape() as inner:
            out = ops.angle(z)
        slope = inner.gradient(out, z, np.ones(2))
    with np.errstate(invalid="ignore"):
        bend = outer.gradient(slope, z, np.ones(2, complex))
        assert np.isnan(bend[0])
        # The gradient is i / conj(z); that of its real part, of -i / z, is conj(i / z**2).
        np.testing.assert_allclose(bend[1], np.conj(1j / (1 + 1j) ** 2), atol=1e-15)
    assert slope.numpy()[0] == 0


def test_a_pole_before_the_angle_of_real_numbers_gives_nothing():
    w = Variable([0.0, 1.0], requires_grad=True)
    with np.errstate(divide="ignore"), GradientTape() as tape:
        out = ops.angle(ops.log(w))
    with np.errstate(divide="ignore", invalid="ignore"):
        assert tape.gradient(out, w, np.ones(2)).tolist() == [0.0, 0.0]


# ------------------------------------------------------------------ numbers for what is none


@pytest.mark.parametrize("mode", ["gradient", "jvp"])
def test_what_was_replaced_has_no_derivative_even_behind_a_pole(mode):
    w = Variable([0.0, 1.0, -1.0], requires_grad=True)
    with np.errstate(all="ignore"), GradientTape() as tape:
        out = np.nan_to_num(ops.log(w), nan=5.0)
        got = getattr(tape, mode)(out, w, np.ones(3))
    assert out.numpy()[[1, 2]].tolist() == [0.0, 5.0]
    assert got.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("mode", ["gradient", "jvp"])
def test_complex_numbers_are_replaced_by_part(mode):
    z = np.array([complex(NAN, 1), complex(1, INF), complex(-INF, NAN), 1 + 1j])
    w = Variable(z, requires_grad=True)
    with GradientTape() as tape:
        out = ops.nan_to_num(w, posinf=7.0)
    assert_same(out.numpy(), np.nan_to_num(z, posinf=7.0))
    got = getattr(tape, mode)(out, w, np.full(4, 2 + 3j))
    np.testing.assert_array_equal(got, [3j, 2, 0, 2 + 3j])


def test_a_replacement_in_place_is_refused():
    with pytest.raises(DTypeError, match="copy=False is refused"):
        np.nan_to_num(Variable(X, requires_grad=True), copy=False)


# ------------------------------------------------------------------ larger and smaller than NaN


@pytest.mark.parametrize("op", [ops.fmax, ops.fmin], ids=["fmax", "fmin"])
@pytest.mark.parametrize("slot", [0, 1])
def test_a_nan_that_was_passed_over_hides_the_pole_before_it(op, slot):
    w = Variable([-1.0, 4.0], requires_grad=True)
    with np.errstate(invalid="ignore"):
        with GradientTape() as tape:
            root = ops.sqrt(w)
            out = op(*[(root, 7.0), (7.0, root)][slot])
        got = tape.gradient(out, w, np.ones(2))
    chosen = 0.25 if op is ops.fmin else 0.0
    assert got.tolist() == [0.0, chosen]


def test_sums_of_exponentials_are_exact_far_apart_and_far_out():
    x = np.array([1e300, 1000.0, -1000.0, 3.0])
    y = np.array([1e300, -1000.0, 1000.0, 3.0])
    d = derive(ops.logaddexp, [x, y], [0, 1])
    np.testing.assert_array_equal(d.gradients[0] / d.cotangent, [0.5, 1.0, 0.0, 0.5])
    np.testing.assert_array_equal(d.gradients[1] / d.cotangent, [0.5, 0.0, 1.0, 0.5])


# ------------------------------------------------------------------ as NumPy far out

SPECIAL = np.array([-INF, -2.5, -1.0, -0.0, 0.0, 1e-300, 0.5, 1.0, 1e300, INF, NAN])


@pytest.mark.parametrize("name", ["sinc", "nan_to_num", "angle", "cumprod"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_nan_and_infinity_go_through_as_through_numpy(name, dtype):
    with np.errstate(all="ignore"):
        x = SPECIAL.astype(dtype)
        x = x + 1j * SPECIAL[::-1] if dtype == "complex128" else x
        wanted = getattr(np, name)(x)
        if (name, dtype) == ("sinc", "float16"):  # NumPy rounds pi * x to float16, ours once
            wanted = np.sinc(x.astype(np.float32)).astype(dtype)
        assert_same(getattr(ops, name)(Variable(x, requires_grad=True)).numpy(), wanted)
        assert_same(getattr(np, name)(Variable(x)).numpy(), wanted)

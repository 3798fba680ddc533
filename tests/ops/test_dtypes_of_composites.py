"""Composites give the dtypes that NumPy gives, of Python's numbers beside arrays too."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, losses, ops
from odyssey.errors import DTypeError, ShapeError

NARROW = ["int8", "float16", "float32", "complex64"]
JOINED = [
    ([0, 2], "int8", "int8"),
    ([0, 2], "uint8", "uint8"),
    ([0, 2.5], "float32", "float32"),
    ([2.5, 0], "float16", "float16"),
    ([0, True], "float32", "float32"),
    ([0, 1j], "float32", "complex64"),
    ([0, 2.5], "int8", "float64"),
    ([0, [2.5]], "float32", "float64"),
    ([0, np.float64(2.5)], "float32", "float64"),
]


@pytest.mark.parametrize(("parts", "dtype", "wanted"), JOINED)
def test_numbers_take_the_dtype_of_the_arrays_they_are_joined_to_on_one_axis(parts, dtype, wanted):
    x = np.ones((2, 1), dtype)
    plain = [x if type(p) is int and p == 0 else p for p in parts]
    expected = np.concatenate(plain, axis=None)
    assert expected.dtype == wanted
    for of in (x, Variable(x)):
        given = [of if part is x else part for part in plain]
        for out in (ops.concatenate(given, axis=None), np.concatenate([*given, Variable(x)], None)):
            assert out.dtype == wanted
            np.testing.assert_array_equal(np.asarray(out)[: len(expected)], expected)
    compiled = od.compile(
        lambda v: ops.concatenate([v if part is x else part for part in plain], axis=None)
    )
    for _ in range(3):
        out = compiled(x)
        assert out.dtype == wanted
        np.testing.assert_array_equal(out, expected)


def test_elsewhere_numbers_that_are_joined_are_double_as_in_numpy():
    x = Variable(np.ones(2, np.float32))
    for call in (np.append, lambda a, b: np.hstack([a, b]), lambda a, b: np.stack([a[0], b])):
        assert call(x, 2.5).dtype == call(x.numpy(), 2.5).dtype == np.float64


def test_numbers_beyond_the_dtype_of_the_arrays_are_refused():
    with pytest.raises(DTypeError, match=r"concatenate: .*-1 out of bounds for uint8"):
        ops.concatenate([np.ones(2, np.uint8), -1], axis=None)
    with pytest.raises(DTypeError, match=r"select: -1 does not fit into .* uint8"):
        ops.select([np.array([True])], [np.ones(1, np.uint8)], -1)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("number", [2, 2.5, True])
def test_numbers_among_the_choices_of_select_are_weak(dtype, number):
    x, first = np.array([1, 2, 3], dtype), np.array([True, False, False])
    wanted = np.select([first, ~first], [x, number])
    out = ops.select([first, ~first], [Variable(x), number])
    assert out.dtype == wanted.dtype
    np.testing.assert_array_equal(out, wanted)


ENDS = [
    ("int8", "float32", "float32"),
    ("float16", "int8", "float16"),
    ("bool", "float32", "float32"),
    ("int8", "complex64", "complex64"),
    ("int64", "float32", "float64"),
    ("int8", "int8", "float64"),
]


@pytest.mark.parametrize(("start", "stop", "wanted"), ENDS)
def test_linspace_is_in_the_common_dtype_of_its_ends(start, stop, wanted):
    ends = np.array([0, 1], start), np.array([3, 5], stop)
    expected = np.linspace(*ends, 4)
    assert expected.dtype == wanted
    out = ops.linspace(Variable(ends[0]), Variable(ends[1]), 4)
    assert out.dtype == wanted
    np.testing.assert_allclose(out, expected, rtol=1e-3 if wanted == "float16" else 1e-6)


def test_unwrapped_small_integers_stay_small():
    p = np.array([0, 3, 6, 1], np.int8)
    out = ops.unwrap(Variable(p), period=4)
    assert out.dtype == np.unwrap(p, period=4).dtype == np.int8
    np.testing.assert_array_equal(out, np.unwrap(p, period=4))


def test_full_like_refuses_complex_numbers_in_real_arrays():
    x = Variable(np.ones(2, np.float32))
    for fill in (1j, np.array([1j, 2]), Variable(1j)):
        with pytest.raises(DTypeError, match="full_like: fill_value is complex128, whose"):
            np.full_like(x, fill)
        assert np.full_like(x, fill, dtype=complex).dtype == complex


# ------------------------------------------------------------------ beside


@pytest.mark.parametrize("call", [ops.nanquantile, ops.nanpercentile])
def test_which_quantile_without_nan_is_asked_for_is_static(call):
    x, q = np.array([1.0, np.nan, 3.0]), Variable(0.5, requires_grad=True)
    with GradientTape(), pytest.raises(DTypeError, match=r"q is .* it is static"):
        call(x, q)
    with pytest.raises(DTypeError, match="it is static"):
        od.grad(lambda q: call(x, q))(0.5)
    assert call(x, q.detach()) == call(x, 0.5)
    with pytest.raises(DTypeError, match="pass real numbers"):
        call(x, 0.5j)


def test_variances_of_gaussian_nll_without_the_last_axis_are_those_of_rows():
    # log v / 2 + d ** 2 / (2 v), with d = 1
    x, v = np.ones((3, 3)), np.array([1.0, 2.0, 4.0])
    rows = np.log(v) / 2 + 1 / (2 * v)
    out = losses.gaussian_nll(x, np.zeros((3, 3)), v, reduction="none")
    np.testing.assert_allclose(out, np.repeat(rows[:, None], 3, 1), rtol=1e-15)
    out = losses.gaussian_nll(x, np.zeros((3, 3)), v[None], reduction="none")
    np.testing.assert_allclose(out, np.repeat(rows[None], 3, 0), rtol=1e-15)
    slopes = od.grad(lambda v: losses.gaussian_nll(x, np.zeros((3, 3)), v, reduction="sum"))(v)
    np.testing.assert_allclose(slopes, 3 * (1 / (2 * v) - 1 / (2 * v * v)), rtol=1e-14)
    for shape in ((2,), (3, 2), (1, 3, 3)):
        with pytest.raises(ShapeError, match="variances"):
            losses.gaussian_nll(x, np.zeros((3, 3)), np.ones(shape))

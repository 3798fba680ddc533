"""Folds that leave out NaN: NumPy's values, and gradients as if it were not there."""

import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops

NAN = np.nan
X = np.array([[1.0, NAN, 3.0, 2.0], [NAN, NAN, 5.0, -1.0], [0.5, 4.0, 2.5, -2.0]])
FOLDS = {
    "nansum": {}, "nanprod": {}, "nanmean": {}, "nanvar": {"ddof": 1}, "nanstd": {},
    "nanmax": {}, "nanmin": {}, "nanmedian": {}, "nanquantile": {"q": 0.3},
    "nanpercentile": {"q": 85},
}  # fmt: skip
PLAIN = {"nanmedian": "median", "nanquantile": "quantile", "nanpercentile": "percentile"}


def gradient(call, x):
    leaf = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        out = call(leaf)
    return tape.gradient(out, leaf, np.ones(out.shape))


@pytest.mark.filterwarnings("ignore:Degrees of freedom")
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1)], ids=str)
@pytest.mark.parametrize("name", FOLDS)
def test_values_are_numpys_where_there_is_nan(name, axis):
    wanted = getattr(np, name)(X, axis=axis, **FOLDS[name])
    got = getattr(ops, name)(X, axis=axis, **FOLDS[name])
    np.testing.assert_allclose(got, wanted, rtol=1e-14)


@pytest.mark.parametrize("name", FOLDS)
def test_gradients_are_those_of_the_fold_of_what_is_left(name):
    plain = getattr(ops, name.removeprefix("nan"))
    got = gradient(lambda v: getattr(ops, name)(v, axis=1, **FOLDS[name]), X)
    for row, slopes in zip(X, got, strict=True):
        left = ~np.isnan(row)
        assert (slopes[~left] == 0).all()
        wanted = gradient(lambda v: plain(v, **FOLDS[name]), row[left])
        np.testing.assert_allclose(slopes[left], wanted, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", FOLDS)
def test_of_nothing_but_nan_the_result_is_numpys(name):
    x = np.array([[NAN, NAN], [1.0, 2.0]])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)
        wanted = getattr(np, name)(x, axis=1, **FOLDS[name])
        got = getattr(ops, name)(x, axis=1, **FOLDS[name])
        slopes = gradient(lambda v: getattr(ops, name)(v, axis=1, **FOLDS[name]), x)
    np.testing.assert_allclose(got, wanted, rtol=1e-14)
    assert np.isfinite(slopes[1]).all()


def test_running_folds_pass_over_nan():
    for name in ("nancumsum", "nancumprod"):
        np.testing.assert_array_equal(getattr(ops, name)(X, 1), getattr(np, name)(X, 1))
        slopes = gradient(lambda v, name=name: getattr(ops, name)(v, 1), X)
        assert (slopes[np.isnan(X)] == 0).all()
        assert np.isfinite(slopes).all()


def test_several_quantiles_stand_on_a_first_axis():
    got = ops.nanquantile(X, [0.1, 0.5, 1.0], axis=1, keepdims=True)
    np.testing.assert_allclose(
        got, np.nanquantile(X, [0.1, 0.5, 1.0], axis=1, keepdims=True), rtol=1e-14
    )


def test_infinities_are_numbers():
    x = np.array([np.inf, NAN, -np.inf, 1.0])
    assert ops.nanmedian(x) == 1
    assert ops.nanmax(x) == np.inf
    with np.errstate(invalid="ignore"):
        assert ops.nanquantile(np.array([np.inf, 1.0, NAN, np.inf, np.inf]), 1.0) == np.inf


@pytest.mark.parametrize("name", ["nanvar", "nanstd"])
def test_deviations_of_infinities_are_no_numbers(name):
    x = np.array([[np.inf, NAN, np.inf], [-np.inf, 1.0, NAN], [1.0, 3.0, NAN]])
    compiled = od.compile(lambda x: getattr(ops, name)(x, axis=1))
    with np.errstate(invalid="ignore"):
        for fold in (lambda x: getattr(ops, name)(x, axis=1), compiled, compiled):
            np.testing.assert_array_equal(fold(x), [NAN, NAN, 1.0])
        slopes = gradient(lambda v: getattr(np, name)(v, axis=1), x)
    np.testing.assert_array_equal(np.isnan(slopes).any(axis=1), [True, True, False])


@pytest.mark.parametrize("deviation", [ops.nanstd, np.nanstd], ids=["op", "NumPy's"])
def test_a_deviation_of_equals_has_slope_zero_in_both_modes(deviation):
    x = np.array([[2.0, NAN, 2.0], [1.0, 3.0, NAN]])
    slopes = gradient(lambda v: deviation(v, axis=1), x)
    np.testing.assert_array_equal(slopes, [[0, 0, 0], [-0.5, 0.5, 0]])
    moved = od.jvp(lambda v: deviation(v, axis=1), (x,), (np.ones(x.shape),))[1]
    np.testing.assert_array_equal(moved, [0, 0])

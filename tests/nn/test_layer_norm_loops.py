"""Compiled loops of normalization against NumPy's way, in every layout that they take."""

import importlib.util

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.table import kernel_selection

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba, which compiles loops, is missing"
)
CALLS = {
    "rows": ((40, 900), (900,), lambda x, w, b: ops.layer_norm(x, w, b)),
    "rows of several axes": (
        (30, 40, 30),
        (40, 30),
        lambda x, w, b: ops.layer_norm(x, w, b, axis=(1, 2)),
    ),
    "weights of rows": ((8, 6, 800), (6, 1), lambda x, w, b: ops.layer_norm(x, w, b)),
    "no weights": ((40, 900), (900,), lambda x, w, b: ops.layer_norm(x) * w + b),
    "root mean square": ((40, 900), (900,), lambda x, w, b: ops.rms_norm(x, w) + b),
    "a batch": (
        (8, 6, 30, 30),
        (6,),
        lambda x, w, b: ops.batch_norm(x, None, None, w, b, training=True),
    ),
    "groups": ((8, 6, 30, 30), (6,), lambda x, w, b: ops.group_norm(x, w, b, groups=3)),
    "images": ((8, 6, 30, 30), (6,), lambda x, w, b: ops.instance_norm(x, w, b)),
}


def derivatives(shape, of_weights, call, dtype):
    rng = np.random.default_rng(0)
    x, g = (rng.normal(1.0, 2.0, shape).astype(dtype) for _ in range(2))
    leaves = [
        Variable(v, requires_grad=True)
        for v in (x, *(rng.normal(size=of_weights).astype(dtype) for _ in range(2)))
    ]
    with GradientTape(persistent=True) as tape:
        y = call(*leaves)
    tangents = [v.numpy()[..., ::-1].copy() for v in leaves]
    return [y.numpy(), *tape.gradient(y, leaves, g), tape.jvp(y, leaves, tangents)]


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 3e-5), ("float64", 3e-14)])
@pytest.mark.parametrize("name", CALLS)
def test_values_and_derivatives_of_large_arrays_are_those_of_numpy(monkeypatch, name, dtype, bound):
    ran = []
    monkeypatch.setattr("odyssey.kernels.normalization.row_norm", noting(ran, "row_norm"))
    monkeypatch.setattr("odyssey.kernels.normalization.channel_norm", noting(ran, "channel_norm"))
    looped = derivatives(*CALLS[name], dtype)
    assert ran == ["channel_norm" if name == "a batch" else "row_norm"]
    monkeypatch.setattr(kernel_selection, "SIZE_FACTOR", [float("inf")])
    wanted = derivatives(*CALLS[name], dtype)
    for got, value in zip(looped, wanted, strict=True):
        assert (got.dtype, got.shape) == (value.dtype, value.shape)
        assert np.abs(got - value).max() <= bound * np.abs(value).max()


def noting(ran, name):
    from odyssey.kernels import normalization

    loop = getattr(normalization, name)

    def run(*given):
        ran.append(name)
        return loop(*given)

    return run


@pytest.mark.parametrize("corner", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_row(corner):
    x = np.random.default_rng(0).normal(size=(40, 900))
    wanted = ops.layer_norm(x)
    x[3, 5] = corner
    with np.errstate(all="ignore"):
        found = ops.layer_norm(x)
    assert np.isnan(found[3]).all()
    np.testing.assert_array_equal(np.delete(found, 3, 0), np.delete(wanted, 3, 0))


@pytest.mark.parametrize("operand", ["weight", "bias"])
@pytest.mark.parametrize("corner", [np.nan, np.inf, -3e38])
@pytest.mark.parametrize("name", ["rows", "weights of rows", "a batch"])
def test_weights_that_are_no_numbers_or_too_large_are_taken_as_by_numpy(
    monkeypatch, name, corner, operand
):
    shape, of_weights, call = CALLS[name]
    rng = np.random.default_rng(0)
    # Of deviations of .1 the weight over one is too large where its products are not.
    x, w, b = ((0.1 * rng.normal(size=n)).astype("f") for n in (shape, of_weights, of_weights))
    (w if operand == "weight" else b).flat[3] = corner
    with np.errstate(all="ignore"):
        found = call(x, w, b)
        monkeypatch.setattr(kernel_selection, "SIZE_FACTOR", [float("inf")])
        wanted = call(x, w, b)
    assert np.isfinite(wanted).any()
    assert not np.isfinite(wanted).all() or corner == -3e38
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_sums_of_a_million_numbers_of_single_precision_are_exact_to_the_last_places():
    x = (np.random.default_rng(0).normal(size=(1, 1 << 20)) + 100).astype(np.float32)
    exact = x.astype(np.float64)
    exact = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-5)
    # x itself is known to 2**-18 of its deviation, its mean to as much.
    assert np.abs(ops.layer_norm(x) - exact).max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1e-6), ("float64", 1e-14)])
def test_running_statistics_of_large_batches_are_exact(dtype, bound):
    x = np.random.default_rng(0).normal(3.0, 2.0, (8, 6, 30, 30)).astype(dtype)
    mean, var = Variable(np.zeros(6, dtype)), Variable(np.zeros(6, dtype))
    ops.batch_norm(x, mean, var, training=True, momentum=1.0)
    exact = x.astype(np.longdouble)
    np.testing.assert_allclose(mean.numpy(), exact.mean((0, 2, 3)), rtol=bound)
    np.testing.assert_allclose(var.numpy(), exact.var((0, 2, 3), ddof=1), rtol=bound)

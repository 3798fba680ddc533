"""Softmax, its logarithm and cross entropy in compiled loops: as exact for far logits."""

import importlib.util

import numpy as np
import pytest

import odyssey as od

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("numba"), reason="numba, which compiles kernels, is missing"
)


def far_logits(dtype, offset, classes):
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(64, classes)) * 3 + offset).astype(dtype)
    wide = x.astype(np.longdouble)
    wide -= wide.max(1, keepdims=True)
    return x, rng.integers(0, classes, len(x)), wide - np.log(np.exp(wide).sum(1, keepdims=True))


def assert_exact(got, wanted):
    assert np.abs(got - wanted).max() <= 4 * np.finfo(got.dtype).eps * np.abs(wanted).max()


@pytest.mark.slow
@pytest.mark.parametrize("classes", [3, 10, 300])
@pytest.mark.parametrize("offset", [0.0, 1e4, -1e6])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_all_logits_have_in_common_costs_no_digits(dtype, offset, classes):
    x, targets, wanted = far_logits(dtype, offset, classes)
    with od.ops.use_kernels():
        assert_exact(od.nn.log_softmax(x), wanted)
        assert_exact(od.nn.softmax(x), np.exp(wanted))
        losses = od.losses.cross_entropy(x, targets, reduction="none")
    assert_exact(losses, -np.take_along_axis(wanted, targets[:, None], 1)[:, 0])

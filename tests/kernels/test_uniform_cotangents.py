"""A cotangent of one number over and over gives a rule's loop the bits of ones written out."""

import importlib.util

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="loops are compiled by numba"
)


def _gradient(fn, x, g=None):
    leaf = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        y = fn(leaf)
        out = y if g is not None else y.sum()
    return tape.gradient(out, leaf, g)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["f4", "f8"])
@pytest.mark.parametrize("name", ["sigmoid", "softplus", "log_sigmoid"])
@pytest.mark.parametrize("shape", [(40_007,), (3, 8192), (7,), ()], ids=str)
def test_a_sum_gives_the_bits_of_ones(name, kind, shape):
    x = np.random.default_rng(0).normal(size=shape).astype(kind)
    fn = getattr(ops, name)
    with od.ops.use_kernels():
        found, wanted = _gradient(fn, x), _gradient(fn, x, np.ones(shape, kind))
    assert found.dtype == x.dtype
    assert np.array_equal(found, wanted)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (4, 0)], ids=str)
def test_no_elements_have_gradients_without_elements(shape):
    with od.ops.use_kernels():
        assert _gradient(ops.sigmoid, np.zeros(shape)).shape == shape


def test_a_mean_gives_its_share_to_each_element():
    x = np.random.default_rng(1).normal(size=(5, 20_000))
    leaf = Variable(x, requires_grad=True)
    with od.ops.use_kernels(), GradientTape() as tape:
        out = ops.sigmoid(leaf).mean()
    s = 1 / (1 + np.exp(-x))
    assert np.allclose(tape.gradient(out, leaf), s * (1 - s) / x.size, rtol=1e-13, atol=0)

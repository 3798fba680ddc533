"""Means are NumPy's, bit for bit."""

import warnings

import numpy as np
import pytest

from odyssey import ops


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "g", "c8", "i4", "?"])
@pytest.mark.parametrize("shape", [(), (1,), (3,), (7, 11), (1000, 37), (0,)], ids=str)
def test_the_mean_of_all_has_the_bits_and_the_type_of_numpys(kind, shape):
    x = np.asarray(np.random.default_rng(3).normal(size=shape) * 100).astype(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of no elements NumPy warns
        found, wanted = ops.mean(x), np.mean(x)
        kept = ops.mean(x, keepdims=True)
    assert type(found) is type(wanted)
    assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()
    assert kept.shape == (1,) * len(shape)


def test_counts_that_single_precision_rounds_are_numpys_too():
    x = np.broadcast_to(np.float32(1.5), ((1 << 24) + 1,))
    assert ops.mean(x) == np.mean(x)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "g", "c8", "i4", "?"])
@pytest.mark.parametrize("shape", [(3,), (7, 11), (1000, 7), (2, 3, 4), (0, 3)], ids=str)
def test_means_over_one_axis_have_the_bits_and_the_type_of_numpys(kind, shape):
    x = np.asarray(np.random.default_rng(4).normal(size=shape) * 100).astype(kind)
    for given in (x, x[::-1], x.T):
        for axis in range(-x.ndim, x.ndim):
            for keepdims in (False, True):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    found = ops.mean(given, axis, keepdims=keepdims)
                    wanted = np.mean(given, axis, keepdims=keepdims)
                assert type(found) is type(wanted)
                assert found.dtype == wanted.dtype
                assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()

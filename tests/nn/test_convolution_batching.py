"""Convolutions of a batch of examples run as one convolution."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import ShapeError

RNG = np.random.default_rng(0)
IMAGES, WEIGHT = RNG.normal(size=(5, 2, 4, 6, 6)), RNG.normal(size=(4, 2, 3, 3))


def loss(weight, x):
    return ops.square(ops.conv2d(x, weight, stride=2, padding=1, groups=2)).sum()


def test_gradients_of_each_example_are_one_call_and_equal_a_loop():
    per_example = od.vmap(od.grad(loss), (None, 0))
    with od.testing.count_kernels() as counts:
        got = per_example(WEIGHT, IMAGES)
    assert (counts["conv2d"], counts["convolution_weight"]) == (1, 1)
    wanted = np.stack([od.grad(loss)(WEIGHT, x) for x in IMAGES])
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


def test_the_batch_may_be_empty_where_examples_are_groups():
    assert od.vmap(od.grad(loss), (None, 0))(WEIGHT, IMAGES[:0]).shape == (0, 4, 2, 3, 3)
    weights = np.zeros((0, *WEIGHT.shape))
    assert od.vmap(lambda w: ops.conv2d(IMAGES[0], w, groups=2))(weights).shape == (0, 2, 4, 4, 4)


@pytest.mark.parametrize("own", ["weight", "bias", "both"])
def test_a_weight_or_bias_of_each_example_equals_a_loop(own):
    weights, biases = RNG.normal(size=(5, *WEIGHT.shape)), RNG.normal(size=(5, 4))
    w = weights if own != "bias" else WEIGHT
    b = biases if own != "weight" else biases[0]
    axes = (None, 0 if own != "bias" else None, 0 if own != "weight" else None)
    got = od.vmap(lambda x, w, b: ops.conv2d(x, w, b, groups=2), axes)(IMAGES[0], w, b)
    for k in range(5):
        one = ops.conv2d(
            IMAGES[0], weights[k] if axes[1] == 0 else w, biases[k] if axes[2] == 0 else b, groups=2
        )
        np.testing.assert_allclose(got[k], one, rtol=1e-12, atol=1e-12)


def test_an_error_names_the_shapes_of_one_example():
    with pytest.raises(ShapeError, match=r"x \(2, 3, 6, 6\) has 3 channels, weight \(4, 2, 3, 3\)"):
        od.vmap(lambda x: ops.conv2d(x, WEIGHT))(np.zeros((5, 2, 3, 6, 6)))

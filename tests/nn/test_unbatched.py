"""One image without an axis of samples: what comes is what comes of a batch of one."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import ShapeError

RNG = np.random.default_rng(0)
CALLS = {
    "conv1d": [(2, 6), (3, 2, 3), (3,)],
    "conv2d": [(2, 6, 5), (3, 2, 3, 2), (3,)],
    "conv3d": [(2, 3, 4, 3), (3, 2, 2, 2, 2), (3,)],
    "depthwise_conv2d": [(2, 5, 4), (4, 1, 3, 2), (4,)],
    "depthwise_separable_conv2d": [(2, 5, 4), (2, 1, 3, 2), (3, 2, 1, 1), (3,)],
    "conv_transpose1d": [(3, 4), (3, 2, 3), (2,)],
    "conv_transpose2d": [(3, 4, 3), (3, 2, 3, 2), (2,)],
    "conv_transpose3d": [(3, 2, 3, 2), (3, 2, 2, 2, 2), (2,)],
}
every_call = pytest.mark.parametrize("name", CALLS)


def slopes(call, *arrays):
    leaves = [Variable(x, requires_grad=True) for x in arrays]
    with GradientTape() as tape:
        out = call(*leaves)
    return out.numpy(), tape.gradient(out, leaves, np.ones(out.shape))


@every_call
def test_one_image_has_the_result_and_the_gradients_of_a_batch_of_one(name):
    call = getattr(ops, name)
    x, *others = [RNG.normal(size=shape) for shape in CALLS[name]]
    (one, gradients), (batch, wanted) = slopes(call, x, *others), slopes(call, x[None], *others)
    np.testing.assert_array_equal(one, batch[0])
    np.testing.assert_array_equal(gradients[0], wanted[0][0])
    for got, want in zip(gradients[1:], wanted[1:], strict=True):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(call(x, *others, stride=1), batch[0])
    traced = od.compile(call).lower(x, *others).evaluate(x, *others)[0]
    np.testing.assert_allclose(traced, one, rtol=1e-14)


@every_call
def test_a_tape_that_is_passed_records_one_image(name):
    x, *others = [RNG.normal(size=shape) for shape in CALLS[name]]
    tape = GradientTape()
    tape.enable()
    out = getattr(ops, name)(Variable(x, requires_grad=True), *others, tape=tape)
    assert out.tape is tape


@every_call
def test_fewer_axes_still_are_refused_by_name(name):
    x, *others = [RNG.normal(size=shape) for shape in CALLS[name]]
    with pytest.raises(ShapeError, match=r"conv.*: x .*wanted"):
        getattr(ops, name)(x[0], *others)

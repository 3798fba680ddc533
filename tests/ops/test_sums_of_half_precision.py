"""Sums within ops and rules of half precision have room for more than 2048 equal numbers."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from support.cases import assert_close

N = 5000
HALF = np.float16


def derived(call, *operands):
    """The result and its gradients, in half precision and in double."""
    found = []
    for dtype in (HALF, np.float64):
        leaves = [Variable(x.astype(HALF).astype(dtype), requires_grad=True) for x in operands]
        with GradientTape() as tape:
            y = call(*leaves)
        g = np.linspace(0.25, 1.0, y.size).reshape(y.shape).astype(HALF).astype(dtype)
        found.append([y.detach().numpy(), *tape.gradient(y, leaves, g)])
        assert all(x.dtype == dtype for x in found[-1])
    return found


def assert_as_double(call, *operands):
    for got, wanted in zip(*derived(call, *operands), strict=True):
        assert_close(got.astype(np.float64), wanted, 1e-2 * min(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp"])
def test_many_classes_share_what_there_is(name, axis):
    x = np.zeros((N, 2) if axis == 0 else (2, N))
    assert_as_double(lambda x: getattr(ops, name)(x, axis=axis), x)


@pytest.mark.parametrize("count", [N, 70_000])
def test_cross_entropy_counts_every_class(count):
    targets = np.array([0, 2])
    for options in ({"reduction": "none"}, {}):
        assert_as_double(
            lambda x, options=options: od.losses.cross_entropy(x, targets, **options),
            np.zeros((2, count)),
        )


@pytest.mark.parametrize("shape", [(3,), (1, 3), (), (1, 1)], ids=str)
def test_what_was_broadcast_gets_all_of_its_gradient(shape):
    assert_as_double(lambda b: ops.broadcast_to(b, (N, 3)), np.ones(shape))
    assert_as_double(lambda x, b: x + b, np.zeros((N, 3)), np.ones(shape))

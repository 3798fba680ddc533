"""Bounds of clip that have a gradient, or that a compiled program is given."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError

_CLIPPED = np.array([-2.0, -1.0, 0.0, 1.0, 2.0, np.nan, 3.0, 3.0])
_LOWER = np.array([-1.0, -1.0, np.nan, -1.0, -1.0, -1.0, 2.0, 0.0])
_UPPER = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, -5.0, np.nan])


@pytest.mark.parametrize("call", [ops.clip, np.clip, np._core.umath.clip])
@pytest.mark.parametrize("compiled", [False, True])
def test_beyond_a_bound_of_clip_the_bound_has_the_gradient(call, compiled):
    # As torch.clamp with tensors for bounds; the upper one leads where they cross.
    given = _CLIPPED, _LOWER, _UPPER
    slopes = od.grad(lambda *leaves: call(*leaves).sum(), argnums=(0, 1, 2))
    run = od.compile(slopes) if compiled else slopes
    for _ in range(2):
        of_x, of_lower, of_upper = run(*given)
        assert of_x.tolist() == [0, 1, 0, 1, 0, 0, 0, 0]
        assert of_lower.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
        assert of_upper.tolist() == [0, 0, 0, 0, 1, 0, 1, 0]
    leaf = Variable(_LOWER, requires_grad=True)
    with GradientTape():
        np.testing.assert_array_equal(call(_CLIPPED, leaf, _UPPER).data, np.clip(*given))


def test_one_program_clips_within_all_bounds_that_are_arguments():
    clip = od.compile(lambda x, low, high: ops.clip(x, low, high))
    for dtype in (np.float64, np.float16, np.int8):
        x = np.arange(-3, 4).astype(dtype)
        for high in (2.0, 1.0, 0.5, -1.0):
            for bounds in ((-2, high), (np.full(7, -1, dtype), np.float32(high))):
                expected = np.clip(x, *bounds)
                found = clip(x, *bounds)
                assert found.dtype == expected.dtype
                assert found.tolist() == expected.tolist()
    assert clip.statistics().programs == 6


def test_bounds_of_clip_that_do_not_fit_are_refused_where_they_have_a_gradient():
    x = np.array([-2.0, 3.0])
    low = Variable(-1.0, requires_grad=True)
    assert ops.clip(x, low.detach(), 1.0).tolist() == [-1.0, 1.0]
    with pytest.raises(ShapeError, match=r"^clip: shapes do not broadcast, .* a_max \(3,\)"):
        ops.clip(x, low, np.zeros(3))
    with pytest.raises(DTypeError, match="pass real"):
        ops.clip(x, low, 1j)
    with pytest.raises(DTypeError, match="both a_min and min"):
        ops.clip(x, low, min=low)
    with pytest.raises(DTypeError, match=r"is static here; use od\.ops\.clip"):
        od.backward.clip(np.ones(2), x, low)

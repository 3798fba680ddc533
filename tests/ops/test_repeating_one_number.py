"""Broadcasting one number is spelled out, and means what NumPy's function means."""

import numpy as np
import pytest

from odyssey import ops
from odyssey.errors import ShapeError


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "g", "c8", "c16", "i4", "u1"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)], ids=str)
def test_one_number_is_repeated_in_its_own_dtype_and_cannot_be_written_to(kind, shape):
    x = np.ones((), kind)[()]
    out = ops.broadcast_to(x, shape)
    assert out.shape == shape
    assert out.dtype == x.dtype
    assert (out == 1).all()
    assert not out.flags.writeable


def test_a_negative_length_is_refused():
    with pytest.raises((ShapeError, ValueError)):
        ops.broadcast_to(np.float64(1.0), (-1,))

"""Options of ops: their owner may write to them while a tape keeps them."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops


class Places(np.ndarray):
    """A subclass that adds nothing, as memory maps do."""


class Foreign:
    """An array of another library, which gives NumPy its own memory."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


OPTIONS = {
    "index array": (lambda x, o: x[o], np.array([0, 0, 2]), np.array([1, 1, 1])),
    "index list": (lambda x, o: x[o], [0, 0, 2], [1, 1, 1]),
    "mask": (lambda x, o: x[o], np.array([True, False, True]), np.array([False, True, True])),
    "index in a tuple": (
        lambda x, o: x[(o, slice(0, 2))],
        np.array([0, 0, 2]),
        np.array([1, 1, 1]),
    ),
    "written index": (lambda x, o: ops.setitem(x, 5.0, o), np.array([0]), np.array([2])),
    "axes": (lambda x, o: ops.transpose(x.reshape(3, 2, 2), o), [1, 2, 0], [2, 0, 1]),
    "axes array": (
        lambda x, o: ops.transpose(x.reshape(3, 2, 2), o),
        np.array([1, 2, 0]),
        np.array([2, 0, 1]),
    ),
    "shape": (lambda x, o: ops.reshape(x, o), [2, 6], [6, 2]),
    "target shape": (lambda x, o: ops.broadcast_to(x, o), [2, 3, 4], [5, 3, 4]),
    "bound": (lambda x, o: x[:o], np.array(2), 1),
    "step": (lambda x, o: x[:, ::o], np.array(2), 3),
    "index of a class": (lambda x, o: x[:, o], np.array([0, 2]).view(Places), [1, 3]),
    "index of another library": (lambda x, o: x[Foreign(o), 0], np.array([0, 2]), [1, 1]),
    "axis in a tuple": (lambda x, o: ops.prod(x, (o,)), np.array(0), 1),
    "axes in a tuple": (lambda x, o: ops.transpose(x, (o, 0)), np.array(1), 0),
    "margins in a tuple": (
        lambda x, o: od.nn.unfold(x.reshape(1, 1, 3, 4), window=2, padding=((1, 0), o)),
        [0, 1],
        [1, 0],
    ),
}


@pytest.mark.parametrize(("fn", "option", "later"), OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_options_may_be_written_to_after_recording(fn, option, later, mode):
    rng = np.random.default_rng(1)
    x = Variable(rng.normal(size=(3, 4)), requires_grad=True)
    results = []
    for write in (False, True):
        given = option.copy()
        with GradientTape() as tape:
            y = fn(x, given)
        if write:
            given[... if isinstance(given, np.ndarray) else slice(None)] = later
        c = np.arange(1.0, 1.0 + y.size).reshape(y.shape)
        t = np.arange(1.0, 13.0).reshape(3, 4)
        results.append(tape.gradient(y, x, c) if mode == "reverse" else tape.jvp(y, x, t))
    np.testing.assert_array_equal(results[0], results[1])

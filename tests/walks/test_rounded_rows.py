"""Gradients of all rows on tapes that store what nodes save in half precision."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable
from odyssey.errors import NotDifferentiableError
from odyssey.table.registry import OPS
from odyssey.tape import rounding

ROWS = [
    name for name, row in sorted(OPS.items()) if any(rule is not None for rule in row.pullbacks)
]


def _gradients(row, sample, tape):
    """Results of a call on intermediate values, and the gradients of a sum over them."""
    arrays = sample.arrays(np.random.default_rng(1), np.float32)
    rng = np.random.default_rng(2)
    leaves, values = [], []
    with tape:
        for array in arrays:
            if isinstance(array, np.ndarray) and array.dtype == np.float32:
                leaves.append(Variable(array, requires_grad=True))
                array = leaves[-1] + np.float32(0.0)
            values.append(array)
        out = row.call(*values, **sample.options)
        out = [
            v
            for v in (out if isinstance(out, tuple) else [out])
            if isinstance(v, Variable) and v.tape is not None
        ]
    weights = [rng.uniform(0.5, 1.5, v.shape).astype(v.dtype) for v in out]
    try:
        found = tape.gradient(out, leaves, weights, unused="zero") if out else []
    except NotDifferentiableError:
        found = []
    return [v.numpy() for v in out], found


@pytest.mark.parametrize("name", ROWS)
def test_results_are_equal_and_gradients_within_the_rounding(name, monkeypatch):
    monkeypatch.setattr(rounding, "SMALL", 0)
    row = OPS[name]
    for sample in row.samples:
        with np.errstate(all="ignore"):
            values, expected = _gradients(row, sample, GradientTape())
            rounded_values, found = _gradients(row, sample, GradientTape(saved="bfloat16"))
        for a, b in zip(values, rounded_values, strict=True):
            np.testing.assert_array_equal(a, b)
        # Numbers of a rule cancel: the gradient of softmax is a difference of products of its
        # values, up to 1, with cotangents, up to 1.5, each within 2**-8 of what it was.
        scale = max((np.abs(g[np.isfinite(g)]).max(initial=0) for g in expected), default=0)
        scale = max(scale, 2.0**-4 * 1.5)
        for g, r in zip(expected, found, strict=True):
            assert (g.dtype, g.shape) == (r.dtype, r.shape)
            np.testing.assert_allclose(r, g, rtol=0, atol=2.0**-4 * scale)

"""Loops of many elements, which programs take in blocks, give what all elements give."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.machine.jit import unavailable_reason

pytestmark = pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason()))


def compiled(fn, *args):
    """What a program gives in two threads, and in one."""
    made = od.compile(fn, check=True)
    made(*args)
    found = []
    for threads in (1, 2):
        od.set_threads(threads)
        found.append([np.array(leaf) for leaf in od.tree.leaves(made(*args))])
    od.set_threads(None)
    assert made.statistics().native == 2
    assert all(a.tobytes() == b.tobytes() for a, b in zip(*found, strict=True))
    return found[0]


def test_extremes_and_products_of_many_halves_are_those_of_all_blocks():
    rng = np.random.default_rng(6)
    for _ in range(3):
        x = rng.normal(size=200_003).astype("float16")
        (largest, least) = compiled(lambda x: (ops.max(x), ops.min(x)), x)
        assert (largest, least) == (x.max(), x.min())
    x = 1 + rng.normal(size=200_003) * 1e-3
    (product,) = compiled(lambda x: ops.prod(x), x.astype("float16"))
    # Single precision rounds 2 x 10^5 products by less than 10^-2 in all.
    expected = np.prod(x.astype("float16").astype("float64"))
    assert abs(product - expected) < 2e-2 * expected


@pytest.mark.parametrize("shape", [(3, 40_001), (1, 20_001), (5, 8193)], ids=str)
def test_what_rows_have_once_is_summed_once_however_long_they_are(shape):
    rng = np.random.default_rng(7)
    x, y = rng.integers(-4, 5, shape).astype("d"), rng.integers(-4, 5, (shape[0], 1)).astype("d")

    def fn(x, y):
        z = y * 2.0
        return ops.sum(x * z), ops.sum(z), ops.max(z), ops.sum(x * z, axis=0), ops.sum(z * z)

    for a, b in zip(compiled(fn, x, y), fn(x, y), strict=True):
        assert np.array_equal(a, b)  # whole numbers: exact in any order

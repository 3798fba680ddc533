"""How loops of native programs are taken: several vectors at a time, long sums in blocks."""

import numpy as np
import pytest

from odyssey import ops
from odyssey.compiler.entry import RAN
from support.executables import run

RNG = np.random.default_rng(0)


def whole(fn, *args):
    """What a program without calls gives, and its text."""
    answer, got, made = run(fn, *args)
    assert answer == RAN
    assert not made.calls
    return got, made.module.text


def several(x):
    return ops.exp(ops.tanh(ops.sin(x)))


@pytest.mark.parametrize("size", [127, 128, 129, 4096, 4099, 8200])
def test_chains_of_functions_take_several_vectors_at_a_time(size):
    x = RNG.normal(size=size).astype("f4")
    (got,), text = whole(several, x)
    assert ("!llvm.loop !4" in text) == (size >= 128)
    # The same numbers, where a vector is all that there is.
    for k in (0, size // 2, size - 1):
        (alone,), text = whole(several, x[k : k + 1].copy())
        assert "!llvm.loop" not in text
        assert got[k] == alone[0]


def test_one_function_in_a_loop_leaves_it_to_llvm():
    _, text = whole(ops.exp, RNG.normal(size=4096).astype("f4"))
    assert "!llvm.loop" not in text

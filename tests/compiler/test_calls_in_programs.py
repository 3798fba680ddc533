"""Functions in native code: copied into loops, where they vectorise, and called elsewhere."""

import numpy as np
import pytest

from support.executables import RAN, run

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")


def compiled(function, *arrays):
    answer, results, executable = run(function, *arrays)
    assert answer == RAN
    calls = [
        line for line in executable.module.text.splitlines() if "call double @odyssey.pow" in line
    ]
    return results[0], [line.endswith("noinline") for line in calls]


def test_a_power_of_numbers_is_called_and_one_of_elements_is_copied_into_the_loop():
    x, s, t = np.array([1.0, 2.0, 4.0]), np.array(2.0), np.array(3.0)
    found, called = compiled(lambda s, t: s**t, s, t)
    assert (found, called) == (8.0, [True])
    found, called = compiled(lambda x, t: x**t, x, t)
    assert (found.tolist(), called) == ([1.0, 8.0, 64.0], [False])
    found, called = compiled(lambda x, s, t: x ** (s**t), x, s, t)
    assert found.tolist() == [1.0, 256.0, 65536.0]
    assert sorted(called) == [False, True]

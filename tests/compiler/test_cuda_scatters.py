"""CUDA kernels of scatters combine equal positions in order, without atomics."""

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="llvmlite, which compiles, is missing")

from odyssey import GradientTape, Variable, ops
from odyssey.compiler.cuda import scatters
from odyssey.compiler.cuda.program import Launch
from odyssey.spec import Spec
from support.cuda_programs import run_step

RNG = np.random.default_rng(0)


@pytest.fixture(params=["compared", "radix"])
def sorting(request, monkeypatch):
    """Both ways to sort rows."""
    if request.param == "radix":
        monkeypatch.setattr(scatters, "_COMPARED_ROWS", 1)
        monkeypatch.setattr(scatters, "_DIGIT", 3)
        monkeypatch.setattr(scatters, "_CHUNK_ROWS", 7)
    return request.param


def outputs_of(fn, *args):
    _, runs = run_step(fn, *args)
    runs.assert_equal_bits()
    assert "atom" not in runs.run.program.text
    return runs.run.outputs(), runs.run.program


def added_at(shape, key, x):
    """``x`` added to zeros at a key in row-major order, in the dtype of ``x``."""
    expected = np.zeros(shape, x.dtype)
    np.add.at(expected, key, x)
    return expected


@pytest.mark.parametrize("length", [1, 2, 9, 64, 65, 200])
def test_rows_at_equal_positions_are_added_in_order_to_the_bit(length, sorting):
    key, x = RNG.integers(0, 5, length), RNG.normal(size=(length, 3)).astype("f4")
    spec = Spec((5, 3), np.dtype("f4"))
    (found,), _ = outputs_of(lambda x: ops.add_at(x, (key,), spec), x)
    np.testing.assert_array_equal(found, added_at((5, 3), key, x))


@pytest.mark.parametrize("dtype", ["f2", "f8", "i4", "c8"])
def test_elements_of_each_dtype_are_added(dtype, sorting):
    key, x = RNG.integers(0, 4, 30), RNG.integers(-9, 9, 30).astype(dtype)
    spec = Spec((4,), np.dtype(dtype))
    (found,), _ = outputs_of(lambda x: ops.add_at(x, (key,), spec), x)
    np.testing.assert_array_equal(found, added_at((4,), key, x))


def test_several_indices_make_one_position(sorting):
    i, j, x = RNG.integers(0, 3, 40), RNG.integers(-5, 5, 40), RNG.normal(size=40)
    spec = Spec((3, 2, 5), np.dtype("f8"))
    (found,), _ = outputs_of(lambda x: ops.add_at(x, (i, 1, j), spec), x)
    np.testing.assert_array_equal(found, added_at((3, 2, 5), (i, 1, j), x))


def test_the_last_element_at_a_position_is_the_one_that_is_set(sorting):
    x, key, new = RNG.normal(size=(6, 4)), RNG.integers(0, 6, 30), RNG.normal(size=(30, 4))

    def write(x, key, new):
        v = Variable(x)
        v[key] = new
        return v

    (found,), _ = outputs_of(write, x, key, new)
    expected = x.copy()
    for k, row in zip(key, new, strict=True):
        expected[k] = row
    np.testing.assert_array_equal(found, expected)


def test_gradients_of_gathered_rows_are_scattered(sorting):
    w, key = RNG.normal(size=(7, 3)), RNG.integers(0, 7, 50)

    def gradient(w, key):
        v = Variable(w, requires_grad=True)
        with GradientTape() as tape:
            loss = (v[key] ** 3).sum()
        return tape.gradient(loss, [v])[0]

    (found,), _ = outputs_of(gradient, w, key)
    np.testing.assert_allclose(found, added_at((7, 3), key, 3 * w[key] ** 2), rtol=1e-14)


def test_only_axes_with_an_index_are_sorted():
    x, key = RNG.normal(size=(10, 4)), RNG.integers(0, 6, 10)
    spec = Spec((6, 4), np.dtype("f8"))
    _, program = outputs_of(lambda x: ops.add_at(x, (key,), spec), x)
    ranks = [s for s in program.steps if isinstance(s, Launch)]
    numbers = [k for k in program.kernels if "x i32" in k.body or "load i32" in k.body]
    assert len(ranks) == 4  # zeros, keys, ranks and rows
    assert program.scratch <= 4 * 64  # four lists of ten numbers
    assert numbers


def test_elements_that_cannot_meet_are_written_by_one_kernel():
    x = RNG.normal(size=(4, 3))
    spec = Spec((8, 6), np.dtype("f8"))
    key = (slice(None, None, 2), slice(1, 4))
    (found,), program = outputs_of(lambda x: ops.add_at(x, key, spec), x)
    expected = np.zeros((8, 6))
    expected[key] = x
    np.testing.assert_array_equal(found, expected)
    assert program.scratch == 0

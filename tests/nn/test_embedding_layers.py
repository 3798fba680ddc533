"""Embedding: rows looked up and added in order; the padding row is a constant."""

import importlib.util

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import OutOfRangeError
from odyssey.spec import Spec

needs_numba = pytest.mark.skipif(
    importlib.util.find_spec("numba") is None, reason="numba, which compiles loops, is missing"
)
INDICES = np.array([[3, 0, 3], [1, 3, 0]])
W = np.random.default_rng(0).normal(size=(5, 4))
G = np.random.default_rng(1).normal(size=(2, 3, 4))


def by_hand(padding=None):
    out = np.zeros_like(W)
    for place in np.ndindex(INDICES.shape):
        if INDICES[place] != padding:
            out[INDICES[place]] += G[place]
    return out


@pytest.mark.parametrize(("given", "row"), [(None, None), (3, 3), (-2, 3), (2, 2), (-5, 0)])
def test_values_are_rows_and_gradients_their_sums_but_for_the_padding_row(given, row):
    w = Variable(W, requires_grad=True)
    with GradientTape() as tape:
        y = ops.embedding(INDICES, w, padding_index=given)
    np.testing.assert_array_equal(y.numpy(), W[INDICES])
    np.testing.assert_array_equal(tape.gradient(y, w, G), by_hand(row))


def test_the_padding_row_moves_in_neither_mode_and_in_no_second_derivative():
    w = Variable(W, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = ops.embedding(INDICES, w, padding_index=3)
        slope = tape.gradient((y**3).sum(), w, create_graph=True)
        total = (slope**2).sum()
    moved = tape.jvp(y, w, np.ones_like(W))
    np.testing.assert_array_equal(moved[..., 0], INDICES != 3)
    bend = tape.gradient(total, w)
    assert (bend[3] == 0).all()
    counts = np.bincount(INDICES.ravel(), minlength=5)[:, None] * (np.arange(5) != 3)[:, None]
    np.testing.assert_allclose(bend, 2 * (3 * W**2 * counts) * (6 * W * counts), rtol=1e-13)


def test_a_weight_that_is_looked_up_and_used_elsewhere_too_has_both_gradients():
    def loss(w):
        return ops.sum(ops.embedding(INDICES, w, padding_index=0) @ w.T)

    od.testing.check_gradients(lambda w: loss(ops.concatenate([np.zeros((1, 4)), w])), W[1:])


@pytest.mark.parametrize("wrong", [5, -1, 2**40])
def test_a_row_that_is_not_there_is_refused_whatever_its_side(wrong):
    for w in (W, Variable(W, requires_grad=True)):
        with (
            GradientTape(),
            pytest.raises(
                OutOfRangeError, match=rf"^embedding: index {wrong} is out of range for 5 rows"
            ),
        ):
            ops.embedding(np.array([0, wrong]), w)


@needs_numba
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("padding", [None, 7])
def test_large_gradients_are_added_in_order_by_the_loop_as_by_numpy(dtype, padding):
    rng = np.random.default_rng(2)
    g, indices = rng.normal(size=(2000, 24)).astype(dtype), rng.integers(0, 50, 2000)
    spec = Spec((50, 24), np.dtype(dtype))
    got = ops.embedding_pullback(g, indices, padding_index=padding, spec=spec)
    wanted = np.zeros((50, 24), dtype)
    for row, place in zip(g, indices, strict=True):
        if place != padding:
            wanted[place] += row
    np.testing.assert_array_equal(got, wanted)
    again = ops.embedding_pullback(g, indices, padding_index=padding, spec=spec)
    np.testing.assert_array_equal(got, again)


def test_lists_and_small_integers_are_indices():
    wanted = W[[1, 0]]
    for indices in ([1, 0], np.array([1, 0], np.uint8), Variable(np.array([1, 0]))):
        found = ops.embedding(indices, W)
        np.testing.assert_array_equal(
            found.numpy() if isinstance(found, Variable) else found, wanted
        )

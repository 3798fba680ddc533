"""Gradients of indexing: rows and numbers added where they were read, however often."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.ops.structure.scatter import normalize_indices, scatter_add_rows
from odyssey.spec import Spec

LIMITS = {"e": 1e-3, "f": 1e-6, "d": 1e-15, "F": 1e-6, "D": 1e-15}


def places_of(kind, rng, rows, count):
    if kind == "one place":
        return np.full(rows, count - 1)
    if kind == "one place and some others":
        return np.where(rng.random(rows) < 0.7, min(3, count - 1), rng.integers(0, count, rows))
    if kind == "each once":
        return rng.permutation(max(rows, count))[:rows] % count
    return rng.integers(0, count, rows)


def summed(x, places, count):
    """The same, one row after the other, in a wider dtype."""
    wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    out, sizes = np.zeros((count, x.shape[1]), wide), np.zeros((count, x.shape[1]))
    for row, place in zip(x, places, strict=True):
        out[place] += row
        sizes[place] += np.abs(row)
    return out, sizes


@pytest.mark.parametrize("length", [0, 1, 7, 40])
@pytest.mark.parametrize(
    "kind", ["one place", "one place and some others", "each once", "at random"]
)
@pytest.mark.parametrize("dtype", LIMITS)
def test_rows_add_up_where_they_belong_to_the_rounding_of_their_sum(dtype, kind, length):
    rng = np.random.default_rng(0)
    for rows, count in ((0, 5), (1, 1), (5, 300), (257, 300), (400, 30)):
        places = places_of(kind, rng, rows, count) if rows else np.zeros(0, np.intp)
        x = rng.standard_normal((rows, 2 * length)).astype(dtype)[:, ::2]  # not contiguous
        if dtype in "FD":
            x = (x + 1j * x[:, ::-1]).astype(dtype)
        for given in (x, np.ascontiguousarray(x)):
            out = scatter_add_rows(given, places, count)
            assert out.dtype == dtype
            assert out.shape == (count, length)
            expected, sizes = summed(x, places, count)
            # n roundings of a sum of n numbers, each relative to the sum of their sizes
            n = np.bincount(places, minlength=1).max() + 1
            assert (np.abs(out - expected) <= n * LIMITS[dtype] * sizes).all()


def test_sums_are_the_same_in_every_run_and_for_every_length():
    rng = np.random.default_rng(1)
    x, places = rng.standard_normal((500, 64)), rng.integers(0, 40, 500)
    first = scatter_add_rows(x, places, 40)
    assert (scatter_add_rows(x, places, 40) == first).all()
    # A row is summed by itself, so part of it sums to that part.
    np.testing.assert_allclose(
        scatter_add_rows(x[:, :5].copy(), places, 40), first[:, :5], rtol=1e-13
    )


def test_integers_and_booleans_add_up_as_in_numpy():
    places = np.array([0, 2, 0])
    assert scatter_add_rows(np.array([[1], [2], [3]]), places, 3).tolist() == [[4], [0], [2]]
    assert scatter_add_rows(np.array([[True], [True], [True]]), places, 3).tolist() == [
        [1],
        [0],
        [1],
    ]


def test_millions_of_places_are_told_apart():
    count = (1 << 16) + 3  # so that places differ in their upper bits
    places = np.array([1, (1 << 16) + 1, 1, 0, (1 << 16) + 1, 2])
    out = scatter_add_rows(np.arange(1.0, 7.0)[:, None] * np.ones(20), places, count)
    assert out[[0, 1, 2, (1 << 16) + 1], 0].tolist() == [4.0, 4.0, 6.0, 7.0]
    assert out.sum() == 21 * 20


KEYS = {
    "numbers": np.array([0, 3, 3, -1, 0]),
    "numbers of an axis": (slice(None), np.array([1, 1, -1])),
    "numbers beside a step": (slice(None, None, -2), np.array([[1, 1], [0, -5]])),
    "numbers of each axis": (np.array([[0], [-1], [-1]]), np.array([2, 2, -5]), 1),
    "numbers and a new axis": (np.array([1, 1]), None, slice(1, 3)),
    "a mask beside a slice": (slice(None), np.array([True, False, True, True, False])),
    "a mask and numbers": (np.array([True, False, True, True]), np.array([0, 0, -1])),
    "two masks": (np.arange(4) % 2 == 0, np.arange(5) % 3 == 0),
    "True": (True, slice(1, 2)),
    "True beside numbers": (True, np.array([1, 1]), np.array([0, 0])),
    "dots": (..., np.array([1, 1])),
    "nothing": np.zeros((0, 2), np.intp),
    "small integers": np.array([0, 1, 1], np.int8),
    "unsigned integers": np.array([0, 1, 1], np.uint64),
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_the_gradient_of_indexing_counts_how_often_each_element_was_read(key):
    x = np.random.default_rng(0).standard_normal((4, 5, 3))
    cotangent = np.random.default_rng(1).standard_normal(x[key].shape)
    w = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        y = w[key]
    tape.backward(y, cotangent)
    expected = np.zeros(x.shape)
    np.add.at(expected, key, cotangent)
    np.testing.assert_allclose(w.grad, expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("axis", [0, 1, -1, None])
def test_the_gradient_of_take_along_axis_is_that_of_picking_one_by_one(axis):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 5))
    indices = rng.integers(-5, 5, 30 if axis is None else (6, 5))
    with GradientTape() as tape:
        v = tape.watch(x)
        y = ops.take_along_axis(v, indices, axis)
    assert (y.numpy() == np.take_along_axis(x, indices, axis)).all()
    cotangent = rng.standard_normal(y.shape)
    expected = np.zeros(x.shape)
    for place in np.ndindex(indices.shape):
        n = indices[place]
        if axis is None:
            expected.reshape(-1)[n] += cotangent[place]
        else:
            expected[(n, place[1]) if axis == 0 else (place[0], n)] += cotangent[place]
    np.testing.assert_allclose(tape.gradient(y, v, cotangent), expected, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("shape", [(2, 0), (0, 2), (0, 0)], ids=str)
def test_nothing_is_taken_from_nothing_along_an_axis(shape):
    w = Variable(np.zeros(shape), requires_grad=True)
    with GradientTape() as tape:
        y = ops.take_along_axis(w, np.zeros(shape, np.intp), -1)
    tape.backward(y, np.zeros(shape))
    assert y.shape == w.grad.shape == shape


def test_places_that_the_array_lacks_are_refused_by_the_sums_as_by_reading():
    spec = Spec((4, 3), np.dtype(float))
    for key in (np.array([4]), np.array([-5]), (np.array([0]), np.array([3]))):
        with pytest.raises(IndexError, match="out of bounds"):
            ops.add_at(np.ones(1) if isinstance(key, tuple) else np.ones((1, 3)), key, spec)
    with pytest.raises(IndexError, match="out of bounds"):
        ops.take_along_axis(np.zeros((4, 3)), np.full((4, 1), 3), -1)
    with pytest.raises(IndexError, match="out of bounds"):
        ops.take_along_axis(np.zeros((4, 3)), np.full((4, 1), -4), -1)


def test_a_gathered_sum_is_differentiated_twice():
    indices = np.array([0, 2, 2, 1, 2])

    def f(x):
        return ops.sum(ops.take(x, indices, 0) ** 3)

    x = np.array([2.0, 3.0, 5.0])
    times = np.array([1, 1, 3])
    np.testing.assert_allclose(od.grad(f)(x), 3 * times * x**2, rtol=1e-15)
    np.testing.assert_allclose(od.hessian(f)(x), np.diag(6 * times * x), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int64", "uint8", "uint64"])
def test_negative_places_count_from_the_end_whatever_their_dtype(dtype):
    places = np.array([0, 5, 120], dtype)
    np.testing.assert_array_equal(normalize_indices(places, 300), places)
    if np.dtype(dtype).kind == "i":
        np.testing.assert_array_equal(normalize_indices(-places - 1, 300), [299, 294, 179])
        with pytest.raises(IndexError, match="index -121"):
            normalize_indices(-places - 1, 100)
    with pytest.raises(IndexError, match="index 120"):
        normalize_indices(places, 100)
    x = np.arange(600.0).reshape(2, 300)
    for given in (places, -places - 1) if np.dtype(dtype).kind == "i" else (places,):
        both = np.stack([given, given])
        wanted = np.take_along_axis(x, both, 1)
        np.testing.assert_array_equal(ops.take_along_axis(x, both, 1), wanted)
        np.testing.assert_array_equal(ops.take(x, given, 1), x[:, given])
        leaf = Variable(x, requires_grad=True)
        with GradientTape() as tape:
            out = ops.take_along_axis(leaf, both, 1)
        hits = np.zeros(x.shape)
        np.put_along_axis(hits, both, 1.0, 1)
        np.testing.assert_array_equal(tape.gradient(out, leaf, np.ones(out.shape)), hits)
        for mode in ("wrap", "clip"):
            np.testing.assert_array_equal(
                ops.take(x, given, 1, mode=mode), x.take(given.astype(int), 1, None, mode)
            )

"""Segments without slices, slices without a segment, ties, and numbers of segments."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError

INF = np.inf
IDS = np.array([0, 2, 0, -1, 2, 9])
X = np.array([1.0, 5.0, 4.0, 100.0, 5.0, -100.0])


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("segment_sum", [5, 0, 10]),
        ("segment_mean", [2.5, 0, 5]),
        ("segment_max", [4, -INF, 5]),
        ("segment_min", [1, INF, 5]),
    ],
)
def test_slices_of_no_segment_are_left_out_and_segments_may_have_none(name, wanted):
    call = getattr(ops, name)
    np.testing.assert_array_equal(call(X, IDS, num_segments=3), wanted)
    leaf = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        out = call(leaf, IDS, num_segments=3)
    slopes = tape.gradient(out, leaf, np.ones(3))
    assert slopes[3] == slopes[5] == 0
    if name in ("segment_max", "segment_min"):  # ties share
        assert slopes[1] == slopes[4] == 0.5
    empty = call(np.zeros((0, 2)), np.zeros(0, int))
    assert empty.shape == (0, 2)


def test_extremes_of_no_integers_are_the_ends_of_their_range():
    x, ids = np.array([3, 4], np.int8), np.array([0, 0])
    np.testing.assert_array_equal(ops.segment_max(x, ids, num_segments=2), [4, -128])
    np.testing.assert_array_equal(ops.segment_min(x, ids, num_segments=2), [3, 127])
    np.testing.assert_array_equal(ops.segment_max(x > 3, ids, num_segments=2), [True, False])


def test_a_nan_is_the_extreme_of_its_segment():
    x = np.array([1.0, np.nan, 2.0])
    out = ops.segment_max(x, np.array([0, 0, 1]))
    np.testing.assert_array_equal(out, [np.nan, 2])


def test_a_graph_must_be_told_how_many_segments_there_are():
    for name in ("segment_sum", "segment_mean", "segment_max", "segment_min"):
        call = getattr(ops, name)
        np.testing.assert_array_equal(
            od.compile(lambda x, i, call=call: call(x, i, num_segments=3))(X, IDS),
            call(X, IDS, num_segments=3),
        )
        with pytest.raises(DTypeError, match="pass num_segments"):
            od.compile(call).lower(X, IDS)


def test_means_of_halves_count_in_single_precision():
    x, ids = np.full(3000, 1.0, np.float16), np.zeros(3000, int)
    assert ops.segment_mean(x, ids) == 1


@pytest.mark.parametrize("dtype", ["int8", "uint8", "uint64", "int32"])
@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_numbers_of_segments_have_any_dtype_of_integers(name, dtype):
    call, x = getattr(ops, f"segment_{name}"), np.array([1.0, 5.0, 2.0])
    ids = np.array([0, 100, 0])
    for count in (None, 101, 300):
        wanted = call(x, ids, num_segments=count)
        got = call(x, ids.astype(dtype), num_segments=count)
        np.testing.assert_array_equal(got, wanted)
    if dtype[0] == "i":
        np.testing.assert_array_equal(call(x, np.array([-1, -7, 0], dtype)), [2.0])
        np.testing.assert_array_equal(call(x, np.array([-1, -7, -1], dtype)), [])


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int64])
def test_a_softmax_of_segments_is_that_of_each_segment(dtype):
    rng = np.random.default_rng(0)
    x, ids = (rng.normal(size=(9, 3)) * 3).astype(dtype), np.array([2, 0, 2, 5, -1, 0, 7, 2, 3])
    got = ops.segment_softmax(x, ids, num_segments=6)
    wanted = np.zeros(x.shape)
    for k in range(6):
        part = np.exp(x[ids == k].astype(float))
        wanted[ids == k] = part / part.sum(0, keepdims=True)
    assert got.dtype == (np.float64 if dtype == np.int64 else dtype)
    tolerance = {np.float16: 1e-3, np.float32: 1e-6}.get(dtype, 1e-14)
    np.testing.assert_allclose(got, wanted, rtol=tolerance)


def test_a_softmax_of_segments_does_not_overflow_and_weighs_its_gradients():
    x = Variable(np.array([1000.0, 1001.0, -1000.0]), requires_grad=True)
    with GradientTape() as tape:
        out = ops.segment_softmax(x, np.array([1, 1, 0]))
        loss = (out * np.array([1.0, 2.0, 3.0])).sum()
    p = 1 / (1 + np.e)
    np.testing.assert_allclose(out.numpy(), [p, 1 - p, 1.0], rtol=1e-14)
    slope = p * (1 - p)
    np.testing.assert_allclose(tape.gradient(loss, x), [-slope, slope, 0.0], rtol=1e-12, atol=1e-15)

"""Distances and cosines of vectors of any length, and where they have no derivative."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError

A, B = np.array([3.0, 4.0, 0.0]), np.array([1.0, 2.0, 2.0])
COSINE = 11 / 15


def gradients(call, *arrays):
    leaves = [Variable(x, requires_grad=True) for x in arrays]
    with GradientTape() as tape:
        out = call(*leaves)
    return out.numpy(), tape.gradient(out, leaves, np.ones(out.shape, out.dtype))


@pytest.mark.parametrize("size", [1e-300, 1e-100, 1.0, 1e100, 1e300])
def test_a_cosine_is_that_of_the_directions_however_long_the_vectors_are(size):
    value, (of_a, of_b) = gradients(
        lambda a, b: ops.cosine_similarity(a, b, eps=0.0), A * size, B / size
    )
    np.testing.assert_allclose(value, COSINE, rtol=1e-15)
    # The part of the one direction across the other, over the length of that.
    np.testing.assert_allclose(of_a, (B / 3 - COSINE * A / 5) / 5 / size, rtol=1e-14)
    np.testing.assert_allclose(of_b, (A / 5 - COSINE * B / 3) / 3 * size, rtol=1e-14)


@pytest.mark.parametrize("size", [1e-40, 1e-30, 1e30])
def test_in_single_precision_squares_neither_overflow_nor_vanish(size):
    a = (A * size).astype(np.float32)
    if size > 1e-38:
        value = ops.cosine_similarity(a, B.astype(np.float32), eps=0.0)
        np.testing.assert_allclose(value, COSINE, rtol=3e-7)
        assert value.dtype == np.float32
    distance = ops.pairwise_distance(a, np.zeros(3, np.float32), eps=0.0)
    np.testing.assert_allclose(distance, np.linalg.norm(a.astype(float)), rtol=3e-7, atol=2e-45)


def test_vectors_shorter_than_eps_are_divided_by_it_and_zeros_have_a_cosine_of_0():
    value, (of_zero, _) = gradients(ops.cosine_similarity, np.zeros(3), B)
    assert value == 0
    np.testing.assert_allclose(of_zero, B / 3 / 1e-8, rtol=1e-14)
    half, (of_short, _) = gradients(lambda a, b: ops.cosine_similarity(a, b, eps=10.0), A, B)
    np.testing.assert_allclose(half, 11 / 100, rtol=1e-15)
    np.testing.assert_allclose(of_short, B / 100, rtol=1e-15)


def test_zeros_of_half_precision_have_a_cosine_of_0_too():
    value, slopes = gradients(ops.cosine_similarity, np.zeros(3, np.float16), B.astype(np.float16))
    assert value == 0
    assert np.isfinite(slopes[0]).all()
    assert value.dtype == np.float16
    np.testing.assert_array_equal(slopes[1], 0)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, np.inf])
def test_the_distance_of_a_vector_from_itself_is_0_and_so_is_its_derivative(p):
    value, slopes = gradients(lambda a, b: ops.pairwise_distance(a, b, p=p, eps=0.0), A, A)
    assert value == 0
    np.testing.assert_array_equal(slopes, 0)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, np.inf])
@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_a_distance_grows_with_the_vectors_and_its_derivative_does_not(p, size):
    first, (slope, _) = gradients(lambda a, b: ops.pairwise_distance(a, b, p=p, eps=0.0), A, B)
    value, (scaled, _) = gradients(
        lambda a, b: ops.pairwise_distance(a, b, p=p, eps=0.0), A * size, B * size
    )
    np.testing.assert_allclose(first, np.linalg.norm(A - B, p), rtol=1e-15)
    np.testing.assert_allclose(value / size, first, rtol=1e-14)
    np.testing.assert_allclose(scaled, slope, rtol=1e-13, atol=1e-15)


def test_infinite_and_missing_numbers_show():
    for bad in (np.inf, np.nan):
        with np.errstate(invalid="ignore"):
            assert np.isnan(ops.cosine_similarity(np.array([1.0, bad]), np.ones(2)))
            assert ops.pairwise_distance(np.array([1.0, np.inf]), np.ones(2)) == np.inf
            assert np.isnan(ops.pairwise_distance(np.array([1.0, np.nan]), np.ones(2)))


def test_all_pairs_come_by_broadcasting():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    found = ops.cosine_similarity(x[:, None], y[None])
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y)]
    np.testing.assert_allclose(found, unit[0] @ unit[1].T, rtol=1e-13, atol=1e-15)


def test_embedding_losses_refuse_what_is_no_vector_and_what_is_no_sign():
    with pytest.raises(ShapeError, match=r"^pairwise_distance: numbers came"):
        ops.pairwise_distance(1.0, 2.0)
    with pytest.raises(DTypeError, match=r"^cosine_similarity: x2 is of complex128"):
        ops.cosine_similarity(A, B + 1j)
    with pytest.raises(od.errors.OdysseyError, match=r"^cosine_embedding: the targets must be -1"):
        od.losses.cosine_embedding(A[None], B[None], np.array([0]))


POINTS = np.array([[1.0, 2.0], [1.0, 2.0], [4.0, 5.0]])
SQUARES_AT_0 = {
    "cdist": lambda x: ops.cdist(x, POINTS[:1]) ** 2,
    "pairwise_distance": lambda x: ops.pairwise_distance(x, POINTS[:1], eps=0.0) ** 2,
    "kernel": lambda x: ops.exp(-(ops.cdist(x, POINTS[:1]) ** 2)),
}


@pytest.mark.parametrize("name", SQUARES_AT_0)
def test_second_derivatives_of_squared_distances_at_0_are_not_wrong_but_nan(name):
    with np.errstate(all="ignore"):
        got = od.hessian(lambda x: ops.sum(SQUARES_AT_0[name](x)))(POINTS).reshape(6, 6)
    assert np.isnan(np.diag(got)[:4]).all()  # 2 for a square: 2 d d'', of which d'' is infinite
    if name != "kernel":
        np.testing.assert_allclose(got[4:], 2 * np.eye(6)[4:], atol=1e-14)


SQUARED = {
    "cdist": lambda x: ops.cdist(x, POINTS[:1], squared=True),
    "cdist of one set": lambda x: ops.cdist(x, x, squared=True),
    "pdist": lambda x: ops.pdist(x, squared=True),
    "pairwise_distance": lambda x: ops.pairwise_distance(x, POINTS[:1], eps=0.0, squared=True),
}
# By hand: 2 I of a point from a fixed one, and 2 (n I - 1) of n points from one another, twice
# where each pair counts twice.
FROM_ONE_ANOTHER = np.kron(2 * (3 * np.eye(3) - np.ones((3, 3))), np.eye(2))
HESSIANS = {
    "cdist": 2 * np.eye(6),
    "cdist of one set": 2 * FROM_ONE_ANOTHER,
    "pdist": FROM_ONE_ANOTHER,
    "pairwise_distance": 2 * np.eye(6),
}


def test_squared_distances_without_a_root_have_their_hessians_also_at_0():
    for name, distance in SQUARED.items():
        f = lambda x, distance=distance: ops.sum(distance(x))  # noqa: E731
        for hessian in (od.hessian(f), od.compile(od.hessian(f)), od.jacobian(od.grad(f))):
            np.testing.assert_allclose(
                hessian(POINTS).reshape(6, 6), HESSIANS[name], atol=1e-14, err_msg=name
            )


def test_a_kernel_of_squared_distances_has_its_mixed_derivative_where_points_are_equal():
    def kernel(x, y):
        return ops.sum(ops.exp(-ops.cdist(x, y, squared=True)))

    point = np.array([[1.0, 2.0]])
    mixed = od.jacobian(od.grad(kernel), argnums=1)(point, point).reshape(2, 2)
    np.testing.assert_allclose(mixed, 2 * np.eye(2), atol=1e-15)


def test_squared_distances_are_the_squares_of_distances():
    x, y = np.random.default_rng(1).normal(size=(2, 4, 3))
    for squared, plain in (
        (ops.cdist(x, y, squared=True), ops.cdist(x, y)),
        (ops.pdist(x, squared=True), ops.pdist(x)),
        (ops.pairwise_distance(x, y, squared=True), ops.pairwise_distance(x, y)),
    ):
        np.testing.assert_allclose(squared, plain**2, rtol=1e-14)
    half = np.full((1, 4096), 0.5, np.float16)  # summed in half precision this would be 512
    assert ops.cdist(half, 0 * half, squared=True) == 1024
    assert ops.cdist(half, 0 * half, squared=True).dtype == np.float16
    far = np.array([[1e200, 0.0]])
    with np.errstate(over="ignore"):
        assert ops.cdist(far, -far, squared=True) == np.inf


def test_second_derivatives_of_the_distances_in_one_set_leave_out_each_vector_itself():
    x = np.random.default_rng(0).normal(size=(3, 2))

    def by_differences(x):
        apart = ops.expand_dims(x, 1) - ops.expand_dims(x, 0)
        return ops.sum(ops.exp(-ops.sum(apart**2, -1)))

    for p in (1, 1.5, 2, np.inf):
        f = lambda x, p=p: ops.sum(ops.exp(-(ops.cdist(x, x, p=p) ** 2)))  # noqa: E731
        od.testing.check_gradients(f, x)
    got = od.hessian(lambda x: ops.sum(ops.exp(-(ops.cdist(x, x) ** 2))))(x)
    np.testing.assert_allclose(got, od.hessian(by_differences)(x), atol=1e-14)
    assert (np.diag(ops.cdist(Variable(x), Variable(x)).numpy()) == 0).all()


def test_a_vector_of_zeros_that_is_normalized_by_eps_has_a_second_derivative_of_0():
    got = od.hessian(lambda x: ops.sum(ops.normalize(x) ** 2))(np.zeros((1, 2)))
    np.testing.assert_allclose(got.reshape(2, 2), 2e24 * np.eye(2))

"""Sums of half precision, on the way to results that it holds, stop at 2048 and end at 65,504."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, losses, ops

MANY = 70_000
# Numbers whose sums are wrong along the first axis of a matrix, as along a row.
X = np.where(np.arange(MANY)[:, None] % 2, 1.0, [1.0, 2.0]).astype(np.float16)

CALLS = {
    "mean": lambda x: ops.mean(x, 0),
    "mean of all": lambda x: ops.mean(x),
    "logsumexp": lambda x: ops.logsumexp(x, 0),
    "softmax": lambda x: ops.softmax(x, 0),
    "log_softmax": lambda x: ops.log_softmax(x.T, -1),
    "mean squared error": lambda x: losses.mean_squared_error(x, x * 0),
    "mean absolute error": lambda x: losses.mean_absolute_error(x, x * 0),
    "cross entropy": lambda x: losses.cross_entropy(x, np.zeros(MANY, int)),
    "cross entropy of many classes": lambda x: losses.cross_entropy(x.T, np.zeros(2, int)),
    "attention": lambda x: ops.scaled_dot_product_attention(x[:2] * 0, x * 0, x),
    "segment_mean": lambda x: ops.segment_mean(x, np.zeros(MANY, int), 1),
    "avg_pool1d": lambda x: ops.avg_pool1d(x.T, window=5000),
    "adaptive_avg_pool1d": lambda x: ops.adaptive_avg_pool1d(x.T, size=7),
    "masked mean": lambda x: np.mean(Variable(x), 0, where=np.ones((MANY, 2), bool)).numpy(),
}

LONG = {
    "var": lambda x: ops.var(x, 0),
    "std": lambda x: ops.std(x + x.T[:1].T, 0),
    "norm": lambda x: ops.norm(x, axis=0),
    "cubic norm": lambda x: ops.vector_norm(x, axis=0, ord=3),
    "sum of sizes": lambda x: ops.norm(x[:9000], 1),
    "average": lambda x: ops.average(x, 0, weights=x[:, 1]),
    "normalize": lambda x: ops.normalize(x, axis=0) * 100,
    "pairwise_distance": lambda x: ops.pairwise_distance(x.T, x.T * 0),
    "cosine_similarity": lambda x: ops.cosine_similarity(x, x.T[::-1].T, axis=0),
    "logcumsumexp": lambda x: ops.logcumsumexp(x, 0)[-1],
    "weighted logsumexp": lambda x: ops.logsumexp(x, 0, b=x),
}
CALLS |= LONG


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_what_many_halves_sum_up_to_is_what_doubles_give_compiled_too(call):
    wanted = call(X.astype(np.float64))
    compiled = od.compile(call)
    for found in (call(X), *[compiled(X) for _ in range(3)]):
        assert found.dtype == np.float16
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=4e-3, atol=1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("call", LONG.values(), ids=LONG)
def test_so_are_its_gradients_and_tangents(call):
    def both(x):
        out, pull = od.vjp(call, x)
        _, moved = od.jvp(call, (x,), (np.ones_like(x),))
        return pull(np.ones(out.shape, out.dtype))[0], moved

    x = X[:5000]
    compiled = od.compile(both)
    for found in (both(x), *[compiled(x) for _ in range(2)]):
        for got, want in zip(found, both(x.astype(np.float64)), strict=True):
            assert got.dtype == np.float16
            size = np.abs(want).max()
            np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-2, atol=2e-2 * size)


BIG = np.array([[300.0, -400.0]], np.float16)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ops.norm(x),
        lambda x: ops.norm(x, axis=1),
        lambda x: ops.vector_norm(x, ord=3),
        lambda x: ops.var(x * 0.7),
        lambda x: ops.std(x, 1),
        lambda x: ops.normalize(x * 100),
        lambda x: ops.lp_pool1d(abs(x), p=3, window=2),
        lambda x: ops.local_response_norm(x, size=2),
        lambda x: ops.pairwise_distance(x, x * 0, p=4),
    ],
    ids=[
        "norm",
        "rows",
        "cubic",
        "var",
        "std",
        "normalize",
        "lp_pool",
        "local_response",
        "distance",
    ],
)
def test_what_holds_squares_beyond_half_precision_on_its_way_is_what_doubles_give(call):
    compiled = od.compile(call)
    for found in (call(BIG), *[compiled(BIG) for _ in range(3)]):
        assert found.dtype == np.float16
        wanted = call(BIG.astype(np.float64))
        np.testing.assert_allclose(found.astype(np.float64), wanted, rtol=2e-3)


def test_a_mean_of_large_halves_is_one_of_them_compiled():
    x = np.full(4, 60000.0, np.float16)
    compiled = od.compile(lambda x: ops.mean(x))
    assert [float(compiled(x)) for _ in range(3)] == [60000.0] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "call",
    [
        lambda v: ops.max(v, 0),
        lambda v: ops.min(v),
        lambda v: ops.nanmax(v, 0),
        lambda v: ops.segment_max(v, np.zeros(len(v), int), 1),
        lambda v: ops.median(v, 0),
        lambda v: ops.median(v),
        lambda v: ops.quantile(v, 0.3, 0),
        lambda v: ops.percentile(v, 30.0, method="lower"),
    ],
    ids=[
        *("max", "min of all", "nanmax", "segment_max"),
        *("median", "median of all", "quantile", "percentile of all"),
    ],
)
@pytest.mark.parametrize("count", [5000, MANY])
def test_as_many_equal_halves_as_there_are_share_the_gradient_of_an_extreme(call, count):
    def both(x):
        w = Variable(x, requires_grad=True)
        with GradientTape(persistent=True) as tape:
            out = call(w)
        tangent = tape.jvp(out, w, np.ones_like(x))
        return tape.gradient(out, w, np.ones(out.shape, np.float16)), tangent

    x = np.ones((count, 2), np.float16)
    sharing = count if call(x).size > 1 else 2 * count
    compiled = od.compile(both)
    for gradient, tangent in (both(x), *[compiled(x) for _ in range(3)]):
        assert gradient.dtype == tangent.dtype == np.float16
        np.testing.assert_allclose(gradient.astype(np.float64), 1 / sharing, rtol=4e-3)
        np.testing.assert_array_equal(tangent, 1)

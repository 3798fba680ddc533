"""The largest and the k-th elements at ties and NaN; what falls into bins."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError

NAN = np.nan
TIES = np.array([2.0, 3.0, 3.0, 1.0, 3.0, 2.0])


def test_of_equal_elements_the_first_come_first():
    np.testing.assert_array_equal(ops.topk(TIES, 4).indices, [1, 2, 4, 0])
    np.testing.assert_array_equal(ops.topk(TIES, 4, largest=False).indices, [3, 0, 5, 1])
    assert ops.kthvalue(TIES, 3).indices == 5
    for whole in (np.array([0, 255, 7], np.uint8), np.array([-128, 127, 0], np.int8)):
        np.testing.assert_array_equal(ops.topk(whole, 3).values, np.sort(whole)[::-1])
    np.testing.assert_array_equal(ops.topk(np.array([False, True]), 1).indices, [1])


@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint8"])
@pytest.mark.parametrize("axis", [0, 1])
def test_few_of_many_are_those_of_a_stable_sort(axis, dtype):
    rng = np.random.default_rng(1)
    x = rng.integers(0, 30, (90, 80)).astype(dtype)
    lines = np.moveaxis(x, axis, -1)
    for k in (1, 5, 9):
        for largest in (True, False):
            keys = -lines.astype(float) if largest else lines
            wanted = np.argsort(keys, -1, kind="stable")[..., :k]
            got = ops.topk(x, k, axis, largest=largest)
            np.testing.assert_array_equal(np.moveaxis(got.indices, axis, -1), wanted)
            np.testing.assert_array_equal(got.values, np.take_along_axis(x, got.indices, axis))


def test_nan_counts_as_the_largest():
    x = np.array([1.0, NAN, 5.0, NAN])
    np.testing.assert_array_equal(ops.topk(x, 3).indices, [1, 3, 2])
    np.testing.assert_array_equal(ops.topk(x, 3, largest=False).indices, [0, 2, 1])
    assert np.isnan(ops.kthvalue(x, 3).values)


def test_what_is_taken_has_the_gradient():
    leaf = Variable(TIES, requires_grad=True)
    with GradientTape() as tape:
        values = ops.topk(leaf, 3).values
    np.testing.assert_array_equal(tape.gradient(values, leaf, [1.0, 2.0, 4.0]), [0, 1, 2, 0, 4, 0])


def test_a_graph_orders_what_comes():
    call = od.compile(lambda x: ops.topk(x, 2).values)
    for x in (TIES, TIES[::-1].copy(), -TIES):
        np.testing.assert_array_equal(call(x), np.sort(x)[::-1][:2])


# ------------------------------------------------------------------ bins

RNG = np.random.default_rng(3)
A = np.concatenate([RNG.normal(size=200), [-1.0, 0.0, 1.0, 2.0, NAN][:4]])
W = RNG.normal(size=A.size)
OPTIONS = [
    {}, {"bins": 7, "range": (-1.0, 2.0)}, {"bins": [-1.0, 0.0, 0.5, 2.0]}, {"bins": "sqrt"},
    {"bins": 5, "density": True}, {"bins": np.linspace(-1, 1, 6), "density": True},
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_histograms_are_numpys(options):
    for got, wanted in zip(ops.histogram(A, **options), np.histogram(A, **options), strict=True):
        np.testing.assert_array_equal(got, wanted)
    if isinstance(options.get("bins"), str):
        return
    got, wanted = (f(A, weights=W, **options)[0] for f in (ops.histogram, np.histogram))
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("density", [False, True])
def test_histograms_are_differentiable_in_their_weights(density):
    def call(w):
        return ops.histogram(A[:20], bins=4, range=(-1, 1), weights=w, density=density)[0]

    od.testing.check_gradients(call, W[:20] ** 2 + 0.5)
    v = Variable(W[:20], requires_grad=True)
    with GradientTape():
        assert np.histogram(A[:20], weights=v)[0].requires_grad
        np.testing.assert_array_equal(np.bincount(np.arange(20), v).numpy(), W[:20])


def test_the_gradient_of_unique_values_goes_to_where_each_stands_first():
    v = Variable(np.array([[2.0, 1.0, 2.0], [3.0, 1.0, 0.5]]), requires_grad=True)
    with GradientTape() as tape:
        values, where, which, counts = np.unique(v, True, True, True)
    np.testing.assert_array_equal(values.numpy(), [0.5, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(where.numpy(), [5, 1, 0, 3])
    np.testing.assert_array_equal(counts.numpy(), [1, 2, 2, 1])
    np.testing.assert_array_equal(np.ravel(which.numpy()), [2, 1, 2, 3, 1, 0])
    assert not any(part.requires_grad for part in (where, which, counts))
    gradient = tape.gradient(values, v, np.array([1.0, 2.0, 3.0, 4.0]))
    np.testing.assert_array_equal(gradient, [[3, 2, 0], [4, 0, 1]])
    lines = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.5]])
    od.testing.check_gradients(lambda x: ops.unique(x, axis=0), lines)


def test_unique_values_of_what_a_graph_does_not_know_are_refused_by_name():
    with pytest.raises(DTypeError, match="unique: ar has no values while a graph is traced"):
        od.compile(ops.unique).lower(np.arange(3.0))


def test_counts_of_variables_are_constants():
    counts = ops.bincount(Variable(np.array([0, 2, 2])))
    np.testing.assert_array_equal(counts.numpy(), [1, 0, 2])
    assert not counts.requires_grad
    hist = ops.histogram(Variable(A, requires_grad=True), 3).hist
    np.testing.assert_array_equal(hist.numpy(), np.histogram(A, 3)[0])


def test_bins_of_what_a_graph_does_not_know_are_refused_by_name():
    for call in (
        lambda x: ops.bincount(ops.astype(x, int)),
        lambda x: ops.histogram(x)[0],
    ):
        compiled = od.compile(call)
        with pytest.raises(DTypeError, match="while a graph is traced"):
            compiled.lower(np.arange(3.0))
        np.testing.assert_array_equal(compiled(np.arange(3.0)), call(np.arange(3.0)))
        assert f"({__file__}:{call.__code__.co_firstlineno})" in compiled.explain(np.arange(3.0))


@pytest.mark.parametrize("right", [False, True])
@pytest.mark.parametrize("call", [ops.digitize, np.digitize])
def test_one_program_numbers_bins_that_are_arguments(call, right):
    x = np.array([[-2.0, -1.0, 0.0, 1.0], [2.0, NAN, 3.0, np.inf]])
    compiled = od.compile(lambda x, bins: call(od.ops.add(x, 0.0), bins, right))
    for bins in (
        [-1.0, 0.0, 1.0], [1.0, 0.0, -1.0], [1.0, 1.0, 1.0], [-1.0, -1.0, np.inf],
        [2.0, 1.0, -np.inf],
    ):  # fmt: skip
        np.testing.assert_array_equal(compiled(x, np.array(bins)), np.digitize(x, bins, right))
    assert compiled.statistics() == (1, 4, 1)
    for bins in ([0.0, 1.0, 0.0], [0.0, NAN, 1.0]):
        with pytest.raises(ShapeError, match="must rise or fall"):
            od.compile(ops.digitize)(x, np.array(bins))

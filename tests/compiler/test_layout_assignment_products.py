"""Products that BLAS takes and others read as parts, turned or joined: what lies where is NumPy's.

All numbers are whole and small, so that products are exact in any order.
"""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")

# Large enough for BLAS, each matrix of a batch too.
M, N, BATCH = 40, 24, 5
KEYS = {
    "rows backward": np.s_[..., ::-1, :],
    "columns backward": np.s_[..., ::-1],
    "all backward": np.s_[::-1, ..., ::-1],
    "every second row": np.s_[..., ::2, :],
    "every second column": np.s_[..., ::2],
    "every second column backward": np.s_[..., ::-2],
    "some columns": np.s_[..., 3:-4],
    "the batch backward": np.s_[::-1],
}
TURNS = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(float)


def assert_native(fn, *arrays, **settings):
    use = od.compile(fn, check=True, **settings)
    for k in range(3):
        given = [a + k for a in arrays]
        np.testing.assert_array_equal(use(*given), fn(*given))
    assert use.statistics().native == 2, use.explain(*arrays)


@pytest.mark.parametrize("sizes", ["fixed", "varying"])
@pytest.mark.parametrize("batch", [(), (BATCH,)], ids=["a matrix", "a batch"])
@pytest.mark.parametrize("key", KEYS)
def test_gradients_of_a_part_that_is_multiplied_lie_at_its_place(key, batch, sizes):
    shape = KEYS[key]
    weight = numbers(np.empty((*batch, M, N))[shape].shape[-1], N, seed=1)

    def fn(x):
        return od.grad(lambda v: ((v[shape] @ weight) ** 2).sum() + (v * v).sum())(x)

    declared = {"dynamic": {"x": {0: od.Dim("rows")}}} if sizes == "varying" else {}
    assert_native(fn, numbers(*batch, M, N), **declared)


@pytest.mark.parametrize("kind", ["products", "products by one matrix", "joined", "joined columns"])
@pytest.mark.parametrize("axes", TURNS, ids=str)
def test_products_whose_axes_readers_want_in_another_order_are_copied_where_they_must_be(
    axes, kind
):
    many, one = numbers(BATCH, N, N, seed=1), numbers(N, N, seed=2)

    def made(x):
        if kind == "products by one matrix":
            return x @ one
        if kind == "products":
            return x @ many
        return ops.concatenate([x @ many, x @ one], axis=0 if kind == "joined" else 2)

    def fn(x):
        turned = ops.transpose(made(x), axes)
        return ops.reshape(turned, (turned.shape[0], -1)) * 2.0

    assert_native(fn, numbers(BATCH, M, N))


def places(shape):
    """Where a state of a shape may lie, by name: an array, as a part of what is larger."""
    yield "backward", np.zeros(shape)[..., ::-1, :]
    yield "columns backward", np.zeros(shape)[..., ::-1]
    yield "every second column", np.zeros((*shape[:-1], 2 * shape[-1]))[..., ::2]
    yield "turned", np.zeros(shape[::-1]).T


@pytest.mark.parametrize("batch", [(), (BATCH,)], ids=["a matrix", "a batch"])
@pytest.mark.parametrize("place", range(4), ids=[name for name, _ in places((1, 1))])
def test_a_state_that_is_a_product_is_written_where_its_elements_lie(place, batch):
    state = od.Variable([array for _, array in places((*batch, M, N))][place])
    weight = numbers(N, N, seed=1)

    def fn(x):
        state.assign(x @ weight)
        return x.sum()

    use = od.compile(fn, check=True)
    for k in range(3):
        x = numbers(*batch, M, N, seed=k)
        use(x)
        np.testing.assert_array_equal(state.numpy(), x @ weight)
    assert use.statistics().native == 2

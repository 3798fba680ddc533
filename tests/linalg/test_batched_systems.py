"""Systems and decompositions of a batch of examples."""

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import LinAlgError, ShapeError

RNG = np.random.default_rng(0)
MATRICES = RNG.normal(size=(4, 3, 3)) + 3 * np.eye(3)


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2)], ids=["vectors", "columns"])
def test_examples_that_share_the_matrix_are_columns_of_one_system(shape):
    right = RNG.normal(size=shape)
    with od.testing.count_kernels() as counts:
        got = od.vmap(lambda b: ops.solve(MATRICES[0], b))(right)
    assert counts["solve"] == 1
    np.testing.assert_allclose(got, [np.linalg.solve(MATRICES[0], b) for b in right], rtol=1e-12)


def test_vectors_with_a_matrix_each_equal_a_loop():
    right = RNG.normal(size=(4, 3))
    got = od.vmap(ops.solve)(MATRICES, right)
    wanted = [np.linalg.solve(a, b) for a, b in zip(MATRICES, right, strict=True)]
    np.testing.assert_allclose(got, wanted, rtol=1e-12)


@pytest.mark.parametrize("name", ["det", "inv", "cholesky", "expm", "lu", "eigvalsh"])
def test_examples_that_are_vectors_are_not_taken_for_rows_of_a_matrix(name):
    with pytest.raises(ShapeError, match=r"shape \(3,\)"):
        od.vmap(getattr(ops, name))(np.eye(3))


def test_the_rank_of_examples_that_are_vectors_is_that_of_vectors():
    rows = np.array([[0.0, 0.0], [0.0, 2.0]])
    assert od.vmap(ops.matrix_rank)(rows).tolist() == [0, 1]


def test_one_singular_example_raises_as_a_loop_does():
    with pytest.raises(LinAlgError, match="Singular"):
        od.vmap(ops.inv)(np.stack([np.eye(2), np.zeros((2, 2))]))

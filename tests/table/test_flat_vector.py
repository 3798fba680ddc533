"""Trees as one vector: values, dtypes, gradients in both directions, refusals."""

import math
import pickle
import weakref
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import DTypeError, ShapeError


@dataclass
class Layer:
    w: object
    b: object


Pair = namedtuple("Pair", "low high")

TREES = {
    "array": np.arange(6.0).reshape(2, 3),
    "number": 2.5,
    "dict": {"w": np.ones((2, 2)), "b": np.zeros(3)},
    "nest": {"layers": [Layer(np.ones((1, 2)), 3.0), Layer(np.ones((2, 1)), 4.0)], "s": (1.0,)},
    "named tuple": Pair(np.arange(3.0), np.float64(7.0)),
    "empty arrays": [np.zeros((0, 3)), np.ones(2), np.zeros(0)],
    "strides": [np.arange(12.0).reshape(3, 4).T, np.arange(9.0)[::-2], np.arange(8.0)[::3]],
    "many": [np.full((k,), float(k)) for k in range(9)],
}


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in od.tree.leaves(tree)])


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_the_vector_has_all_elements_in_order_and_unravel_returns_the_tree(tree):
    vector, unravel = od.tree.ravel(tree)
    assert type(vector) is np.ndarray
    np.testing.assert_array_equal(vector, flat(tree), strict=True)
    back = unravel(vector)
    for (path, leaf), (again, value) in zip(od.tree.paths(tree), od.tree.paths(back), strict=True):
        assert path == again
        assert type(value) is (float if type(leaf) is float else np.ndarray)
        np.testing.assert_array_equal(value, leaf)
        if type(value) is np.ndarray:
            assert value.flags.writeable
            assert not np.shares_memory(value, vector)


def test_the_vector_is_of_the_promoted_dtype_and_leaves_return_to_theirs():
    tree = {
        "w": np.ones(2, np.float32),
        "n": np.array([3, 4], np.int16),
        "z": np.array(1 + 2j, np.complex64),
        "flag": True,
    }
    vector, unravel = od.tree.ravel(tree)
    assert vector.dtype == np.complex64
    np.testing.assert_array_equal(vector, [1, 1, 3, 4, 1 + 2j, 1])
    back = unravel(vector)
    assert [back[name].dtype for name in "wnz"] == [np.float32, np.int16, np.complex64]
    assert back["flag"] is True
    assert od.tree.ravel({"w": np.ones(2, np.float16)})[0].dtype == np.float16


def test_a_tree_without_leaves_is_a_vector_of_no_elements():
    vector, unravel = od.tree.ravel({"a": [], "b": {}})
    assert vector.shape == (0,)
    assert unravel(vector) == {"a": [], "b": {}}


def weights(n):
    return np.arange(1.0, n + 1)


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_gradients_flow_through_the_vector_to_the_leaves(tree):
    n = flat(tree).size
    found = od.grad(lambda t: od.tree.ravel(t)[0] ** 2 @ weights(n))(tree)
    np.testing.assert_array_equal(flat(found), 2 * flat(tree) * weights(n))


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_gradients_flow_from_the_tree_back_to_the_vector(tree):
    vector, unravel = od.tree.ravel(tree)

    def fn(v):
        leaves = [leaf for leaf in od.tree.leaves(unravel(v)) if math.prod(leaf.shape)]
        return sum((k + 1) * (leaf**2).sum() for k, leaf in enumerate(leaves))

    sizes = [np.size(leaf) for leaf in od.tree.leaves(tree) if np.size(leaf)]
    expected = 2 * vector * np.repeat(weights(len(sizes)), sizes)
    np.testing.assert_array_equal(od.grad(fn)(vector), expected)
    tangent = weights(len(vector))
    assert od.jvp(fn, (vector,), (tangent,))[1] == pytest.approx(expected @ tangent, rel=1e-14)
    np.testing.assert_array_equal(
        od.hessian(fn)(vector), np.diag(2 * np.repeat(weights(len(sizes)), sizes))
    )


def test_compiled_functions_ravel_and_unravel_natively():
    tree = {"w": np.ones((2, 2)), "b": np.array([3.0])}
    vector, unravel = od.tree.ravel(tree)
    through = od.compile(od.grad(lambda t: (od.tree.ravel(t)[0] ** 3).sum()))
    back = od.compile(od.grad(lambda v: (unravel(v)["w"] ** 3).sum() + unravel(v)["b"][0]))
    for _ in range(3):
        np.testing.assert_array_equal(flat(through(tree)), 3 * vector**2)
        np.testing.assert_array_equal(back(vector), [3, 3, 3, 3, 1])
    assert through.statistics().native
    assert back.statistics().native


def test_leaves_get_gradients_on_a_tape():
    w, b = Variable([1.0, 2.0], requires_grad=True), Variable(3.0, requires_grad=True)
    with GradientTape() as tape:
        vector, unravel = od.tree.ravel({"w": w, "b": b})
        tree = unravel(vector * vector)
        loss = tree["w"].sum() + 10.0 * tree["b"]
    tape.backward(loss)
    assert w.grad.tolist() == [2.0, 4.0]
    assert float(b.grad) == 60.0


def test_unravel_keeps_no_leaf_alive_and_later_changes_of_the_tree_do_not_matter():
    tree = {"w": np.ones(3)}
    gone = weakref.ref(tree["w"])
    _, unravel = od.tree.ravel(tree)
    del tree["w"]
    tree["other"] = 1.0
    assert gone() is None
    assert list(unravel(np.zeros(3))) == ["w"]
    assert list(pickle.loads(pickle.dumps(unravel))([1.0, 2.0, 3.0])) == ["w"]


@pytest.mark.parametrize(
    "leaf", [None, "text", object(), np.array(["a"])], ids=["None", "text", "object", "array"]
)
def test_a_leaf_that_is_no_array_of_numbers_is_named_by_its_path(leaf):
    with pytest.raises(DTypeError, match=r"tree\.ravel: \['a'\]\[1\] is "):
        od.tree.ravel({"a": [1.0, leaf]})


@pytest.mark.parametrize("shape", [(2,), (4,), (3, 1), ()], ids=str)
def test_a_vector_of_another_length_is_refused(shape):
    _, unravel = od.tree.ravel([np.ones(2), 1.0])
    for vector in (np.ones(shape), Variable(np.ones(shape))):
        with pytest.raises(ShapeError, match=r"this tree has 3 elements"):
            unravel(vector)

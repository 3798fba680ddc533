"""Reading and writing by index: whatever NumPy accepts, its values, and exact gradients."""

from array import array
from collections import deque

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, OutOfRangeError, ShapeError
from odyssey.spec import Spec, spec_of
from support.cases import Graph, assert_same

X = np.arange(1.0, 25.0).reshape(2, 3, 4)
MASK = X % 3 == 0
KEYS = {
    "int": 1,
    "numpy int": np.int64(-1),
    "zero-dimensional": np.array(1),
    "unsigned": np.array([1, 0], np.uint8),
    "slice": slice(None, None, -2),
    "slices backward": (slice(None, None, -1), slice(2, None, -2)),
    "ellipsis": (..., 1),
    "newaxis": (None, 1, ..., np.newaxis),
    "True": True,
    "numpy True": np.True_,
    "False": False,
    "mask": MASK,
    "mask of rows": np.array([True, False]),
    "mask of an axis": (slice(None), np.array([True, False, True])),
    "mask and array": (MASK[:, :, 0], np.array([0, 0, 3])[:1]),
    "array": np.array([[0, 1], [1, 1]]),
    "list": [1, 1, 0],
    "list of masks": [True, False],
    "empty list": [],
    "pairs": ([0, 1, 0], [2, 2, 2]),
    "crossed": (np.array([[0], [1]]), np.array([2, 2])),
    "array, slice, array": ([0, 1, 1], slice(1, 3), [3, 0, 0]),
    "array and newaxis": (None, [0, 0], ..., slice(0, 2)),
    "int and array": (0, slice(None), [1, 1]),
    "nested tuple": (slice(None), (0, 0, 2)),
    "nothing": (),
    "all": ...,
    "empty slice": (slice(1, 1), 0),
    "Variable": Variable(np.array([1, 1])),
    "Variable in a slice": slice(Variable(np.array(1)), None),
    "Variable in a tuple": (slice(None), Variable(np.array(2))),
}


def plain(key):
    if isinstance(key, tuple):
        return tuple(plain(part) for part in key)
    if isinstance(key, slice):
        return slice(plain(key.start), plain(key.stop), plain(key.step))
    return key.numpy() if isinstance(key, Variable) else key


every_key = pytest.mark.parametrize("key", KEYS.values(), ids=list(KEYS))


@every_key
def test_an_index_reads_what_numpy_reads_and_its_gradient_adds_up_there(key):
    value = X[plain(key)]
    g = np.arange(1.0, 1.0 + value.size).reshape(value.shape)
    wanted = np.zeros(X.shape)
    np.add.at(wanted, plain(key), g)
    leaf = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        out = leaf[key]
    assert_same(out.numpy(), value)
    assert_same(tape.gradient(out, leaf, g), wanted)
    assert_same(ops.add_at(g, key, spec_of(X)), wanted)


@every_key
def test_an_index_writes_what_numpy_writes_and_the_last_writer_has_the_gradient(key):
    value = -np.arange(1.0, 1.0 + X[plain(key)].size).reshape(X[plain(key)].shape)
    wanted = X.copy()
    wanted[plain(key)] = value
    leaves = Variable(X, requires_grad=True), Variable(value, requires_grad=True)
    with GradientTape() as tape:
        out = ops.setitem(*leaves, key)
    assert_same(out.numpy(), wanted)
    g = np.arange(1.0, 25.0).reshape(X.shape)
    g_x, g_v = tape.gradient(out, leaves, g)
    # Where a value arrived is where its number stands; values are distinct and negative.
    arrived = np.array([g[wanted == v].sum() for v in value.ravel()]).reshape(value.shape)
    assert_same(g_x, np.where(wanted < 0, 0.0, g))
    assert_same(g_v, arrived)


@every_key
def test_an_index_differentiates_twice(key):
    od.testing.check_gradients(lambda x: ops.square(x)[key], X / 10)


@pytest.mark.parametrize("key", [(0, 3), (2,), ([0, 2],), (..., -5)], ids=str)
def test_an_index_outside_is_an_index_error(key):
    for call in (ops.getitem, lambda x, key: ops.setitem(x, 0.0, key)):
        with pytest.raises((OutOfRangeError, ShapeError), match="out of bounds"):
            call(X, key)


def test_indices_that_are_operands_are_read_anew_when_a_traced_graph_runs():
    table, graph = X[0], Graph()
    spec = Spec((2,), np.dtype(np.intp))
    x, at = graph.symbol(spec_of(table)), graph.symbol(spec)
    out = ops.take(x, at, axis=0)
    along = ops.take_along_axis(out, ops.reshape(at, (2, 1)), axis=1)
    classes = ops.one_hot(at, 3)
    for places in (np.array([0, 2]), np.array([1, 1])):
        known = {x.id: table, at.id: places}
        taken = table[places]
        assert_same(graph.run(out, known), taken)
        assert_same(graph.run(along, known), np.take_along_axis(taken, places[:, None], 1))
        assert_same(graph.run(classes, known), np.eye(3)[places])


def test_the_gradient_of_a_lookup_adds_up_however_often_a_row_is_read():
    rng = np.random.default_rng(0)
    table, ids = rng.normal(size=(7, 3)), rng.integers(-7, 7, (4, 5))
    g = rng.integers(-9, 9, (4, 5, 3)).astype(float)
    wanted = np.zeros((7, 3))
    for place in np.ndindex(4, 5):
        wanted[ids[place]] += g[place]
    for call in (lambda v: ops.take(v, ids, 0), lambda v: v[ids], lambda v: v[ids, :]):
        leaf = Variable(table, requires_grad=True)
        with GradientTape() as tape:
            out = call(leaf)
        assert_same(tape.gradient(out, leaf, g), wanted)


def test_indices_that_are_no_integers_are_refused():
    for call in (lambda x: ops.take(x, [0.5]), lambda x: x[np.array([0.5])]):
        with pytest.raises(DTypeError, match="integers"):
            call(Variable(X))


@pytest.mark.parametrize(("shape", "axis"), [((2, 0), 0), ((0, 2), 1), ((2, 0, 3), -3)])
@pytest.mark.parametrize("indices", [[0, 1], [[1], [0]], []])
def test_taking_from_an_axis_beside_an_empty_one_has_an_empty_gradient(shape, axis, indices):
    leaf = Variable(np.zeros(shape), requires_grad=True)
    indices = np.array(indices, int)
    with GradientTape(persistent=True) as tape:
        out = ops.take(leaf, indices, axis=axis)
    assert out.shape == np.take(leaf.numpy(), indices, axis).shape
    assert tape.gradient(out, leaf, np.ones(out.shape)).shape == shape
    assert tape.jvp(out, leaf, np.ones(shape)).shape == out.shape


def test_indices_that_wrap_round_often_take_no_longer():
    x = np.arange(6.0).reshape(2, 3)
    far = np.array([2**62, -(2**62) + 1, 7])
    for axis in (None, 0, 1):
        length = 6 if axis is None else x.shape[axis]
        expected = np.take(x, [int(k) % length for k in far], axis)
        np.testing.assert_array_equal(ops.take(x, far, axis, mode="wrap"), expected)


@pytest.mark.parametrize("nothing", [range(0), deque(), [], array("l")], ids=repr)
def test_a_sequence_of_nothing_is_an_index(nothing):
    x = np.arange(6.0).reshape(2, 3)
    v = Variable(x, requires_grad=True)
    with GradientTape() as tape:
        w = v * 1.0
        got = w[nothing, 1:]
        w[nothing] = 7.0
    assert got.shape == x[nothing, 1:].shape == (0, 2)
    np.testing.assert_array_equal(tape.gradient(w, v, np.ones((2, 3))), np.ones((2, 3)))


def test_an_empty_array_of_floats_is_none():
    with pytest.raises(DTypeError, match="an index array has dtype float64"):
        Variable([1.0, 2.0])[np.zeros(0)]


class Index:
    """A whole number of another library."""

    def __init__(self, number):
        self.number = number

    def __index__(self):
        return self.number


@pytest.mark.parametrize("key", [1, (slice(None), 1), slice(1, 3), slice(None, None, 2)], ids=repr)
def test_whole_numbers_of_other_libraries_index_as_they_do_in_numpy(key):
    def foreign(part):
        if isinstance(part, tuple):
            return tuple(map(foreign, part))
        if isinstance(part, slice):
            return slice(*[part and foreign(part) for part in (part.start, part.stop, part.step)])
        return Index(part)

    values = np.arange(12.0).reshape(4, 3)
    x, given = Variable(values, requires_grad=True), foreign(key)
    with GradientTape() as tape:
        y = x[given] * 1.0
    np.testing.assert_array_equal(y.numpy(), values[given])
    expected = np.zeros((4, 3))
    expected[key] = 1.0
    np.testing.assert_array_equal(tape.gradient(y, x, np.ones(y.shape)), expected)

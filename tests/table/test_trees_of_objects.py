"""Plain objects as trees: their attributes that hold arrays are children, all else is kept."""

import enum
import threading
from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable
from odyssey.errors import OdysseyError, ShapeError
from odyssey.tree import leaves, map_tree, paths, same_tree, unflatten


class Layer:
    def __init__(self, size):
        self.w = Variable(np.full((size, size), 0.5), requires_grad=True)
        self.b = Variable(np.zeros(size), requires_grad=True)

    def __call__(self, x):
        return x @ self.w + self.b


class Model:
    """A model as users write one: layers, settings, a lock, constants, and a function."""

    made = 0

    def __init__(self):
        type(self).made += 1
        self.size, self.rate, self.name = 2, 0.5, "model"
        self.layers = [Layer(2), Layer(2)]
        self._head = Variable(np.ones(2), requires_grad=True)
        self.mean, self.order = Variable(np.ones(2)), np.arange(2)
        self.activation, self.lock = np.tanh, threading.Lock()

    def __call__(self, x):
        for layer in self.layers:
            x = self.activation(layer(x))
        return (x[..., self.order] - self.mean) @ self._head * self.rate

    @cached_property
    def doubled(self):
        return self._head * 2

    @property
    def first(self):
        raise AssertionError("a property was read")


NAMES = [".layers[0].w", ".layers[0].b", ".layers[1].w", ".layers[1].b", "._head"]


def test_children_are_the_attributes_that_hold_arrays_in_their_order():
    model = Model()
    assert [path for path, _ in paths(model)] == [*NAMES, ".mean", ".order"]
    assert next(path for path, _ in paths({"m": model}, "x")) == "x['m'].layers[0].w"


def test_a_rebuilt_object_has_the_other_attributes_and_no_constructor_runs():
    model = Model()
    made = Model.made
    again = map_tree(lambda leaf: leaf * 2, model)
    assert Model.made == made
    assert type(again) is Model
    assert again.lock is model.lock
    assert again.activation is np.tanh
    assert again.name == "model"
    assert list(vars(again)) == list(vars(model))
    np.testing.assert_array_equal(again._head.numpy(), [2.0, 2.0])
    np.testing.assert_array_equal(model._head.numpy(), [1.0, 1.0])
    assert again.layers is not model.layers


def test_a_cached_property_is_no_child_and_is_forgotten_in_a_copy():
    model = Model()
    assert model.doubled.shape == (2,)
    assert len(leaves(model)) == 7
    again = map_tree(lambda leaf: leaf * 3, model)
    np.testing.assert_array_equal(again.doubled.numpy(), [6.0, 6.0])


class Slotted:
    __slots__ = ("_b", "a", "empty", "kept")

    def __init__(self):
        self.a, self._b, self.kept = np.ones(2), [Variable(2.0)], "kept"


class Both(Slotted):
    def __init__(self):
        super().__init__()
        self.c = np.zeros(1)


@pytest.mark.parametrize(
    ("kind", "names"), [(Slotted, {".a", "._b[0]"}), (Both, {".a", "._b[0]", ".c"})]
)
def test_slots_are_attributes(kind, names):
    thing = kind()
    assert {path for path, _ in paths(thing)} == names
    again = unflatten(thing, [k + 1.0 for k in range(len(names))])
    assert {again.a, again._b[0]} <= {1.0, 2.0, 3.0}
    assert again.kept == "kept"
    assert not hasattr(again, "empty")


class Frozen:
    def __init__(self):
        object.__setattr__(self, "w", np.ones(1))

    def __setattr__(self, name, value):
        raise AttributeError("frozen")


def test_attributes_are_set_without_code_of_the_class():
    assert unflatten(Frozen(), [5.0]).w == 5.0


class Color(enum.Enum):
    RED = np.ones(1)


class Own:
    """An array of its own, as other libraries have."""

    def __init__(self):
        self.data = np.ones(2)

    def __array__(self, dtype=None, copy=None):
        return self.data


class Problem(Exception):
    def __init__(self):
        super().__init__("x")
        self.w = np.ones(1)


class Worker(threading.Thread):
    def __init__(self):
        super().__init__()
        self.w = np.ones(1)


class Empty:
    def __init__(self):
        self.size, self.names, self.waiting = 3, ["a"], deque([np.ones(1)])


class Words(str):
    __slots__ = ("w",)


class Dictless:
    __slots__ = ("w",)

    @property
    def __dict__(self):
        raise AssertionError("its code was called")


def words():
    made = Words("text")
    made.w = np.ones(1)
    return made


def test_other_objects_are_leaves():
    others = [
        *(
            Color.RED,
            Own(),
            Problem(),
            Worker(),
            Empty(),
            words(),
            Dictless(),
            Model,
            np.tanh,
            Model.__call__,
        ),
        *(threading.Lock(), np, od, {1, 2}, deque([np.ones(1)]), object(), iter([np.ones(1)])),
        *(od.Generator(0), od.optim.Adam([Variable(1.0, requires_grad=True)]), (x for x in "ab")),
    ]
    for thing in others:
        (leaf,) = leaves({"x": thing})
        assert leaf is thing, thing


def test_a_class_may_say_that_its_objects_are_leaves():
    class Atom:
        def __init__(self):
            self.w = np.ones(2)

    atom = Atom()
    assert len(leaves([atom])) == 1
    assert leaves([atom])[0] is atom.w
    od.tree.leaf_type(Atom)
    assert leaves([atom])[0] is atom


def installed(monkeypatch, kind):
    """Let a class be of an installed package, which holds arrays that are not ours."""
    monkeypatch.setattr("odyssey.tree_objects.is_installed", lambda package: package == "figures")
    kind.__module__ = "figures"
    return kind()


def test_objects_of_installed_packages_are_trees_only_if_they_hold_a_variable(monkeypatch):
    class Figure:
        def __init__(self):
            self.pixels, self.axes = np.ones(3), []

    figure = installed(monkeypatch, Figure)
    model = Model()
    model.figure = figure
    assert leaves([figure]) == [figure]
    assert ".figure.pixels" not in dict(paths(model))
    figure.axes.append({"w": Variable(1.0)})
    assert [path for path, _ in paths(figure)] == [".pixels", ".axes[0]['w']"]
    assert ".figure.pixels" in dict(paths(model))


def test_an_object_that_holds_itself_is_refused_with_the_path():
    model = Model()
    model.layers[1].parent = {"of": [model]}
    with pytest.raises(OdysseyError, match=r"holds itself: \['m'\]\.layers\[1\]\.parent"):
        leaves({"m": model})
    with pytest.raises(OdysseyError, match=r"\['of'\]\[0\] is \['m'\] again"):
        list(paths({"m": model}))
    with pytest.raises(OdysseyError, match=r"parent\[.of.\]\[0\] is the tree again"):
        unflatten(model, [1.0] * 5000)


def test_trees_of_objects_are_compared_by_attribute():
    model = Model()
    other = map_tree(lambda leaf: leaf, model)
    other.mean = None  # as a gradient may be
    found = same_tree("f", "gradients", model, other)
    assert found[0] is other.layers[0].w
    assert found[5] is None
    del other._head
    with pytest.raises(ShapeError, match=r"the trees differ at \._head"):
        same_tree("f", "gradients", model, other)
    other = map_tree(lambda leaf: leaf, model)
    other.layers[0].more = np.ones(1)
    with pytest.raises(ShapeError, match=r"differ at \.layers\[0\]\.more"):
        same_tree("f", "gradients", model, other)
    with pytest.raises(ShapeError, match="differ at the root"):
        same_tree("f", "gradients", model, np.ones(3))


@dataclass
class Pair:
    left: object
    right: object


def test_objects_and_other_containers_nest():
    tree = Pair({"m": Model()}, (Layer(1), 3))
    names = [path for path, _ in paths(tree)]
    assert names[-3:] == [".right[0].w", ".right[0].b", ".right[1]"]
    vector, unravel = od.tree.ravel(Pair(Layer(1), 3.0))
    again = unravel(np.array([1.0, 2.0, 3.0]))
    assert type(again.left) is Layer
    assert again.left.w == [[1.0]]
    assert again.right == 3.0
    assert vector.shape == (3,)


def test_a_summary_names_attributes():
    rows = od.summary(Model())
    assert [row.path for row in rows] == [*NAMES, ".mean", ".order"]
    assert rows.trainable == 14


def test_batches_of_an_object_are_objects():
    class Data:
        def __init__(self):
            self.x, self.y, self.name = np.arange(6.0).reshape(3, 2), np.arange(3), "train"

    first, second = od.batches(Data(), 2, shuffle=False)
    assert type(first) is Data
    assert second.name == "train"
    np.testing.assert_array_equal(second.x, [[4.0, 5.0]])
    np.testing.assert_array_equal(first.y, [0, 1])

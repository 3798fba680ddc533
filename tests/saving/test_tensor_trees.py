"""Trees in tensor files: ``od.save`` and ``od.load`` by the ending of the path."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import safetensors.numpy

import odyssey as od
from odyssey import Variable
from odyssey.errors import DTypeError, MutationError, SettingError, ShapeError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@dataclass
class Layer:
    weight: Any
    bias: Any


def model(value):
    return {
        "embed": Variable(np.full((3, 2), value), requires_grad=True),
        "layers": [
            Layer(Variable([value, k], requires_grad=True), np.full(2, value + k))
            for k in range(12)
        ],
        "scale": np.float32(value),
        "half": Variable([value], dtype="bfloat16"),
    }


def look(tree):
    return {
        path: (np.asarray(getattr(leaf, "data", leaf)).tolist(), str(leaf.dtype), leaf.shape)
        for path, leaf in od.tree.paths(tree)
    }


def test_a_tree_comes_back_into_its_own_variables(path):
    od.save(path, model(2.0))
    like = model(5.0)
    found = od.load(path, like=like)
    assert look(found) == look(model(2.0))
    assert found["embed"] is like["embed"]
    assert found["layers"][11].weight is like["layers"][11].weight
    assert like["embed"].requires_grad
    assert type(found["layers"][0]) is Layer
    assert type(found["scale"]) is np.float32


def test_other_libraries_find_dotted_names(path):
    tree = model(2.0)
    del tree["half"]
    od.save(path, tree)
    found = safetensors.numpy.load_file(path)
    assert found["layers.11.weight"].tolist() == [2.0, 11.0]
    assert found["scale"].shape == ()
    assert len(found) == 26


def test_without_like_it_is_a_dictionary_by_name(path):
    od.save(path, {"h": [np.ones(1), {"w": np.zeros(2)}]})
    found = od.load(path)
    assert list(found) == ["h.0", "h.1.w"]
    assert found["h.1.w"].tolist() == [0, 0]


def test_files_of_others_are_loaded_into_a_tree(path):
    safetensors.numpy.save_file({"a.0": np.ones(2), "a.1": np.zeros(3), "b": np.arange(2)}, path)
    like = {"a": [Variable(np.zeros(2)), np.ones(3)], "b": np.zeros(2, int)}
    found = od.load(path, like)
    assert like["a"][0].numpy().tolist() == [1, 1]
    assert found["a"][1].tolist() == [0, 0, 0]
    assert found["b"].tolist() == [0, 1]


def test_an_opening_takes_what_the_file_has_there(path):
    tree = {"h": [{"w": np.full(1, k)} for k in range(12)], "n": {"x": np.ones(1, bool)}}
    od.save(path, tree)
    found = od.load(path, like={"h": ..., "n": []})
    assert [layer["w"].tolist() for layer in found["h"]] == [[k] for k in range(12)]
    assert found["n"] == {"x": True}
    assert od.load(path, like={"n": {"x": ...}}, missing="keep") == {"n": {"x": True}}
    assert od.load(path, like={"h": ..., "n": ..., "more": []})["more"] == []
    with pytest.raises(ShapeError, match=r"it has no \['more'\], which like has"):
        od.load(path, like={"h": ..., "n": ..., "more": ...})


def test_an_opening_over_names_that_are_no_tree_is_refused(path):
    od.save_tensors(path, {"a.b": np.ones(1), "a.b.c": np.ones(1)})
    with pytest.raises(ShapeError, match=r"holds no tree: tensor 'a\.b\.c' lies in a leaf; read"):
        od.load(path, like={"a": ...})


def test_parts_are_loaded_and_the_rest_is_kept(path):
    od.save(path, {"encoder": {"w": Variable([1.0, 2.0])}, "head": {"w": Variable([3.0])}})
    marker = object()
    like = {"encoder": {"w": Variable([0.0, 0.0])}, "new": marker}
    found = od.load(path, like, missing="keep")
    assert like["encoder"]["w"].numpy().tolist() == [1, 2]
    assert found["new"] is marker
    with pytest.raises(
        ShapeError, match=r"it has no \['other'\].*; it has encoder.w, head.w, which"
    ):
        od.load(path, {"other": Variable([0.0])}, missing="keep")


@pytest.mark.parametrize(
    ("like", "kind", "match"),
    [
        ({"a": Variable(np.zeros(3)), "b": ...}, ShapeError, r"\['a'\] was of shape \(2,\) when"),
        ({"a": Variable(np.zeros(2), dtype="float32"), "b": ...}, DTypeError, "was of float64"),
        ({"a": Variable([0.0, 0.0])}, ShapeError, "it has b, which like lacks"),
        ({"a": 3, "b": ...}, DTypeError, r"\['a'\] was an array when it was saved, and is an int"),
        ({"a": None, "b": ...}, DTypeError, r"\['a'\] was an array .* and is None"),
        ({"a": ..., "b": ..., "c": 3}, ShapeError, r"it has no \['c'\], which like has"),
        (Variable([0.0, 0.0]), DTypeError, "tensors with names, and this is a Variable"),
        ({"a": ..., "b": ..., 0: ..., "0": ...}, SettingError, "would both be called '0'"),
    ],
)
def test_what_differs_from_the_file_is_refused_and_nothing_changes(path, like, kind, match):
    od.save(path, {"a": Variable([1.0, 2.0]), "b": np.ones(1)})
    leaves = [leaf for leaf in od.tree.leaves(like) if isinstance(leaf, Variable)]
    with pytest.raises(kind, match=f"load: .*{match}"):
        od.load(path, like)
    assert all((leaf.numpy() == 0).all() for leaf in leaves)


def test_one_variable_at_two_paths_is_refused_on_both_sides(path):
    w = Variable([1.0])
    with pytest.raises(SettingError, match=r"save: \['a'\] and \['b'\] are one Variable, and"):
        od.save(path, {"a": w, "b": w})
    assert not path.exists()
    od.save(path, {"a": w, "b": Variable([2.0])})
    with pytest.raises(ShapeError, match="are one Variable in like, and were two"):
        od.load(path, {"a": w, "b": w})
    assert w.numpy() == 1


@pytest.mark.parametrize(
    ("leaf", "text"),
    [
        (3, "an int"),
        (2.5, "a float"),
        ("text", "a str"),
        (None, "a NoneType"),
        (od.optim.SGD([Variable([1.0], True)], 0.1), "an optimizer"),
        (np.random.default_rng(0), "a generator"),
        (od.Generator(0), "a generator"),
        (np.ones(2, complex), "of complex128"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_only_an_archive_holds_is_refused_and_nothing_is_written(path, leaf, text):
    tree = {"w": Variable([1.0]), "x": [leaf]}
    with pytest.raises(DTypeError, match=rf"save: \['x'\]\[0\] is {text}, .*ends in \.npz"):
        od.save(path, tree)
    assert not path.exists()
    od.save(path.with_suffix(".npz"), tree)


def test_a_locked_variable_changes_nothing(path):
    od.save(path, {"a": Variable([1.0]), "b": Variable([2.0])})
    a, b = Variable([0.0]), Variable([0.0], requires_grad=True)
    with od.GradientTape():
        y = np.exp(b)  # the tape holds its result, not b
        assert y.shape == (1,)
        od.load(path, {"a": a, "b": b})
    assert (a.numpy(), b.numpy()) == (1, 2)
    with od.GradientTape() as tape:
        y = b * b
    od.load(path, {"a": a, "b": b})
    with pytest.raises(MutationError):
        tape.gradient(y, b)


@pytest.mark.parametrize("act", ["save", "load"])
def test_other_endings_name_both(act):
    with pytest.raises(
        SettingError, match=r"does not end in \.npz or \.safetensors; pass 'a\.npz'"
    ):
        getattr(od, act)("a", {})


def test_training_resumes_from_tensors_and_an_archive(tmp_path):
    def step(w, optimizer):
        with od.GradientTape() as tape:
            loss = ((w - 1) ** 2).sum()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    w = Variable(np.arange(4.0), requires_grad=True)
    optimizer = od.optim.Adam([w], 0.1)
    step(w, optimizer)
    od.save(tmp_path / "w.safetensors", {"w": w})
    od.save(tmp_path / "o.npz", {"o": optimizer})
    again = Variable(np.zeros(4), requires_grad=True)
    other = od.optim.Adam([again], 0.1)
    od.load(tmp_path / "w.safetensors", {"w": again})
    od.load(tmp_path / "o.npz", {"o": other})
    step(w, optimizer)
    step(again, other)
    assert w.numpy().tolist() == again.numpy().tolist()

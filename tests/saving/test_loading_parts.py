"""Loading into trees that are open, and into parts: ``...``, empty lists, missing="keep"."""

import io
import json
import zipfile
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable
from odyssey.errors import DTypeError, FormatError, SettingError, ShapeError

Point = namedtuple("Point", "x y")


@dataclass
class Layer:
    w: object
    b: object


@pytest.fixture
def path(tmp_path):
    return tmp_path / "saved.npz"


def zeros():
    return Variable(np.zeros(2), requires_grad=True)


# ------------------------------------------------------------------ open places

NESTS = {
    "a list of numbers": [0.5, 0.25, 0.125],
    "a list of texts": ["a", "b"],
    "one": [3],
    "many": list(range(12)),
    "lists": [[1, 2], [3], [4, 5, 6]],
    "dicts": [{"loss": 1.0, "step": 1}, {"loss": 0.5, "step": 2}],
    "quotes": [{"it's": 1, 'say "so"': 2, "a\\b": 3, "]['x']": 4, "é\n": 5}],
}


@pytest.mark.parametrize("open_place", [[], ...], ids=["empty list", "dots"])
@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
def test_an_open_place_takes_what_the_file_has_there(path, nest, open_place):
    od.save(path, {"history": nest, "w": Variable([1.0, 2.0])})
    w = zeros()
    like = {"history": open_place, "w": w}
    found = od.load(path, like)
    assert found["history"] == nest
    assert type(found["history"]) is list
    assert found["w"] is w
    assert w.numpy().tolist() == [1.0, 2.0]
    assert like["history"] is open_place
    assert open_place in ([], ...)


def test_arrays_variables_and_states_come_as_arrays_and_states_at_an_open_place(path):
    rng = np.random.default_rng(0)
    shared = np.arange(3)
    tree = {"a": [Variable([1.0]), shared, shared, np.float32(2)], "o": {"rng": rng, "n": None}}
    od.save(path, tree)
    found = od.load(path, ...)
    assert type(found["a"][0]) is np.ndarray
    assert found["a"][1] is found["a"][2]
    assert type(found["a"][3]) is np.float32
    assert found["o"]["rng"]["state"] == rng.bit_generator.state["state"]
    assert found["o"]["n"] is None
    assert found["a"][1].tolist() == [0, 1, 2]


def test_attributes_and_keys_make_dictionaries_and_indices_lists(path):
    od.save(path, {"layer": Layer(1.0, 2.0), "point": Point(3, (4, 5)), "steps": {0: "a", 5: "b"}})
    assert od.load(path, ...) == {
        "layer": {"w": 1.0, "b": 2.0},
        "point": {"x": 3, "y": [4, 5]},
        "steps": {0: "a", 5: "b"},
    }
    like = {"layer": Layer(..., 0.0), "point": Point(0, ...), "steps": ...}
    found = od.load(path, like)
    assert found["layer"] == Layer(1.0, 2.0)
    assert found["point"] == Point(3, [4, 5])


def test_names_that_begin_alike_are_other_places(path):
    od.save(path, {"a": [1], "ab": [2], "a.b": 3, 1: [4], 10: [5]})
    found = od.load(path, {"a": [], "ab": ..., "a.b": ..., 1: [], 10: []})
    assert found == {"a": [1], "ab": [2], "a.b": 3, 1: [4], 10: [5]}


def test_an_empty_list_stays_empty_where_the_file_has_nothing(path):
    od.save(path, {"history": [], "n": 1})
    assert od.load(path, {"history": [], "n": 0}) == {"history": [], "n": 1}
    with pytest.raises(ShapeError, match=r"it has no \['history'\], which like has"):
        od.load(path, {"history": ..., "n": 0})


def test_a_list_that_is_not_empty_is_matched_leaf_by_leaf(path):
    od.save(path, {"history": [1, 2, 3]})
    with pytest.raises(ShapeError, match=r"it has \['history'\]\[2\], which like lacks"):
        od.load(path, {"history": [0, 0]})


# ------------------------------------------------------------------ parts


def test_what_the_file_lacks_is_kept_and_what_like_lacks_is_left_out(path):
    od.save(path, {"body": {"w": Variable([1.0, 2.0])}, "old": {"w": Variable([9.0])}, "n": 3})
    body, head = zeros(), Variable([7.0], requires_grad=True)
    marker = object()
    like = {"body": {"w": body}, "head": {"w": head, "none": None}, "n": 0, "text": "new"}
    found = od.load(path, like, missing="keep")
    assert found["body"]["w"] is body
    assert found["head"]["w"] is head
    assert body.numpy().tolist() == [1.0, 2.0]
    assert head.item() == 7.0
    assert (found["n"], found["text"], found["head"]["none"]) == (3, "new", None)
    assert od.load(path, {"n": 0, "anything": marker}, missing="keep")["anything"] is marker


def test_one_part_of_a_large_file_is_read_alone(path):
    od.save(path, {"step": 12, "big": np.ones((100, 100)), "history": [0.5, 0.25]})
    assert od.load(path, {"step": ..., "history": []}, missing="keep") == {
        "step": 12,
        "history": [0.5, 0.25],
    }


def test_a_tree_that_shares_no_path_with_the_file_is_refused(path):
    od.save(path, {"w": Variable([1.0, 2.0])})
    w = zeros()
    with pytest.raises(ShapeError, match=r"it has no \['wieght'\].*it has \['w'\]"):
        od.load(path, {"wieght": w}, missing="keep")
    with pytest.raises(ShapeError, match="missing='keep' to load what both have"):
        od.load(path, {"wieght": w})
    assert w.numpy().tolist() == [0.0, 0.0]


def test_what_both_have_must_fit_and_nothing_changes_otherwise(path):
    od.save(path, {"w": Variable([1.0, 2.0]), "b": Variable([3.0]), "n": 1})
    w, b = zeros(), Variable(np.zeros(2))
    with pytest.raises(ShapeError, match=r"\['b'\] was of shape \(1,\)"):
        od.load(path, {"w": w, "b": b, "more": 1}, missing="keep")
    with pytest.raises(DTypeError, match=r"\['n'\] was an int"):
        od.load(path, {"w": w, "n": 1.0}, missing="keep")
    assert w.numpy().tolist() == [0.0, 0.0]


def test_another_word_for_missing_is_refused(path):
    od.save(path, {"n": 1})
    with pytest.raises(SettingError, match="choose 'error' or 'keep'"):
        od.load(path, {"n": 0}, missing="skip")


# ------------------------------------------------------------------ strange files


def rewritten(path, entries):
    """Write another text of entries into a saved file."""
    data = path.read_bytes()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            text = old.read(name)
            if name == "odyssey.json":
                text = json.dumps(json.loads(text) | {"entries": entries}).encode()
            new.writestr(name, text)


@pytest.mark.parametrize(
    "entries",
    [
        {"['a']": 1, "['a']['b']": 2},
        {"['a']['b']": 2, "['a']": 1},
        {"['a'][0]": 1, "['a'][00]": 2},
        {"['a']" + "['b']" * 5000: 1},
        {"['a']['b']": 1, "['a']['b'][0]['c']": 2},
    ],
    ids=["leaf and branch", "branch and leaf", "twice", "deep", "branch in a leaf"],
)
def test_paths_that_contradict_each_other_are_damage(path, entries):
    od.save(path, {"a": 1})
    rewritten(path, entries)
    with pytest.raises(FormatError):
        od.load(path, {"a": ...})


@pytest.mark.parametrize(
    "key", ["'\\x'", "'\\N{none}'", "__import__('os')", "(1, 2)", "1e5", "x[0]"]
)
def test_a_key_is_read_as_text_and_never_evaluated(path, key):
    od.save(path, {"a": 1})
    rewritten(path, {f"['a'][{key}]": 1})
    (found,) = od.load(path, {"a": ...})["a"]
    assert type(found) is str

"""Trees of tensors: names with holes, steps, the rest, and what does not match."""

from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import odyssey as od
from odyssey.errors import DTypeError, OdysseyError, SettingError, ShapeError

SHAPES = {
    "wte": (5, 4),
    **{f"h.{k}.attn.c_attn.weight": (4, 12) for k in range(11)},
    **{f"h.{k}.ln.bias": (4,) for k in range(11)},
    "h.0.attn.bias": (1, 3),
    "h.1.attn.bias": (1, 3),
    **{f"moe.{k}.e.{j}.w": (2, 2) for k in range(2) for j in range(3)},
}


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def path(tmp_path_factory, arrays):
    path = tmp_path_factory.mktemp("names") / "model.safetensors"
    od.save_tensors(path, arrays)
    return path


IGNORED = ["h.{k}.attn.bias", "moe.{k}.e.{j}.w", "not.there"]


# ------------------------------------------------------------------ lists


def test_a_list_selects_names(path, arrays):
    found = od.load_tensors(path, names=["wte", "h.3.ln.bias"])
    assert list(found) == ["wte", "h.3.ln.bias"]
    np.testing.assert_array_equal(found["wte"], arrays["wte"])


def test_a_hole_in_a_list_stands_for_each_number(path):
    found = od.load_tensors(path, names=("h.{layer}.ln.bias", "h.1.ln.bias", "moe.1.e.{k}.w"))
    expected = [f"h.{k}.ln.bias" for k in range(11)] + [f"moe.1.e.{k}.w" for k in range(3)]
    assert list(found) == expected
    assert list(od.load_tensors(path, names={"wte"})) == ["wte"]
    assert od.load_tensors(path, names=[]) == {}


def test_a_hole_that_is_repeated_is_one_number(path):
    assert list(od.load_tensors(path, names=["moe.{k}.e.{k}.w"])) == ["moe.0.e.0.w", "moe.1.e.1.w"]


def test_a_list_lists_the_names_that_the_file_lacks(path):
    with pytest.raises(
        ShapeError, match=r"has no 'wtf' \(did you mean wte\?\), 'x\.\{k\}'; correct"
    ):
        od.load_tensors(path, names=["wte", "wtf", "x.{k}"])


# ------------------------------------------------------------------ trees


def test_a_dictionary_renames(path, arrays):
    found = od.load_tensors(
        path, names={"layers.{layer}.b": "h.{layer}.ln.bias", "table": "wte", "rest": ...}
    )
    assert list(found) == [*(f"layers.{k}.b" for k in range(11)), "table", "rest"]
    np.testing.assert_array_equal(found["layers.10.b"], arrays["h.10.ln.bias"])
    assert set(found["rest"]) == {n for n in SHAPES if not n.endswith("ln.bias")} - {"wte"}


def test_a_list_of_one_is_repeated(path, arrays):
    names = {
        "layers": [{"w": "h.{layer}.attn.c_attn.weight", "b": ("h.{layer}.ln.bias",)}],
        "table": "wte",
        None: IGNORED,
    }
    found = od.load_tensors(path, names=names)
    assert list(found) == ["layers", "table"]
    assert len(found["layers"]) == 11
    for k, layer in enumerate(found["layers"]):
        np.testing.assert_array_equal(layer["w"], arrays[f"h.{k}.attn.c_attn.weight"])
        np.testing.assert_array_equal(layer["b"][0], arrays[f"h.{k}.ln.bias"])


@pytest.mark.parametrize(
    "experts",
    [
        [["moe.{k}.e.{j}.w"]],
        {"{k}": {"{j}": "moe.{k}.e.{j}.w"}},
        [{"{j}": "moe.{k}.e.{j}.w"}],
        {"{k}": ["moe.{k}.e.{j}.w"]},
        {"{k}.{j}": "moe.{k}.e.{j}.w"},
    ],
    ids=["lists", "keys", "keys in lists", "lists in keys", "two in a key"],
)
def test_holes_within_holes_are_filled(path, arrays, experts):
    found = od.load_tensors(path, names={"moe": experts, "rest": ...}, mmap=True)["moe"]
    flat = {od.saving.tensor_saving.dotted_name(p): a for p, a in od.tree.paths(found)}
    assert len(flat) == 6
    for name, array in flat.items():
        k, j = name.split(".")
        np.testing.assert_array_equal(array, arrays[f"moe.{k}.e.{j}.w"])


def test_dataclasses_and_named_tuples_are_trees(path):
    @dataclass
    class Layer:
        bias: Any

    Pair = namedtuple("Pair", "table layers")
    found = od.load_tensors(path, names=[Pair("wte", [Layer("h.{n}.ln.bias")]), {"rest": ...}])
    assert type(found[0]) is Pair
    assert [type(layer) for layer in found[0].layers] == [Layer] * 11
    assert found[0].layers[2].bias.shape == (4,)


def test_a_name_with_braces_is_taken_as_it_is(tmp_path):
    path = tmp_path / "braces.safetensors"
    od.save_tensors(path, {"a.{k}": np.ones(1), "a.0": np.zeros(1)})
    assert od.load_tensors(path, names=["a.{k}"])["a.{k}"] == 1
    assert od.load_tensors(path, names={"x": "a.{k}", "y": "a.0"}) == {"x": 1, "y": 0}


def test_variables_of_a_loaded_tree_share_its_arrays(path):
    tree = od.load_tensors(path, names={"layers": [{"b": "h.{k}.ln.bias"}], "rest": ...}, mmap=True)
    params = od.tree.map_tree(od.Variable, tree["layers"])
    assert np.shares_memory(params[3]["b"].numpy(), tree["layers"][3]["b"])
    trained = od.tree.map_tree(lambda a: od.Variable(a, requires_grad=True), tree["layers"])
    assert not np.shares_memory(trained[3]["b"].numpy(), tree["layers"][3]["b"])


# ------------------------------------------------------------------ steps

QKV = "h.0.attn.c_attn.weight"


@pytest.mark.parametrize(
    ("options", "formula"),
    [
        ({"transpose": True}, lambda w: w.T),
        ({"transpose": (1, 0)}, lambda w: w.T),
        ({"reshape": (2, 2, -1)}, lambda w: w.reshape(2, 2, 12)),
        ({"reshape": -1}, lambda w: w.ravel()),
        ({"split": (1, 2)}, lambda w: w[2:]),
        ({"split": (2, 3, 1)}, lambda w: w[:, 8:]),
        ({"split": (1, 3, -1), "transpose": True}, lambda w: w[:, 4:8].T),
        (
            {"split": (0, 3, 1), "transpose": True, "reshape": (2, 2, 4)},
            lambda w: w[:, :4].T.reshape(2, 2, 4),
        ),
        ({"apply": lambda w: w + 1}, lambda w: w + np.float32(1)),
        ({"split": (0, 2), "apply": np.sum}, lambda w: np.sum(w[:2])),
        ({"apply": lambda w: od.Variable(w).T}, lambda w: w.T),
    ],
)
@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])
def test_steps_are_applied_in_their_order(path, arrays, options, formula, mmap):
    source = od.TensorSource(QKV, **options)
    found = od.load_tensors(path, names={"w": source, "rest": ...}, mmap=mmap)["w"]
    np.testing.assert_array_equal(found, formula(arrays[QKV]))
    assert found.dtype == np.float32
    assert found.flags.writeable is not mmap
    assert mmap or (found.flags.owndata and found.flags.c_contiguous)


def test_steps_of_a_map_are_views_of_it(path):
    source = od.TensorSource(QKV, split=(1, 3, 1), transpose=True)
    found = od.load_tensors(path, names={"w": source, "v": QKV, "rest": ...}, mmap=True)
    assert np.shares_memory(found["w"], found["v"])


def test_arrays_that_are_read_share_nothing(path, arrays):
    source = od.TensorSource(QKV)
    names = {
        **{"a": QKV, "b": source, "c": od.TensorSource(QKV, reshape=(12, 4))},
        **{"d": od.TensorSource(QKV, apply=lambda w: w), "e": QKV, "rest": ...},
    }
    found = od.load_tensors(path, names=names)
    for name in "abcde":
        found[name][...] = ord(name)
    assert [found[name].ravel()[0] for name in "abcde"] == list(map(ord, "abcde"))
    np.testing.assert_array_equal(od.load_tensors(path)[QKV], arrays[QKV])


def test_a_function_joins_several_tensors(path, arrays):
    source = od.TensorSource(
        "h.{k}.ln.bias", "h.{k}.attn.c_attn.weight", apply=lambda b, w: np.vstack([b, w[:, :4]])
    )
    found = od.load_tensors(path, names={"w": [source], "rest": ...})["w"]
    assert len(found) == 11
    np.testing.assert_array_equal(found[4][0], arrays["h.4.ln.bias"])


def test_a_function_sees_the_dtype_that_was_asked_for_and_cannot_write(path):
    seen = []

    def apply(w):
        seen.append(w.dtype)
        with pytest.raises(ValueError, match="read-only"):
            w += 1
        return w + np.asarray(1, w.dtype)

    for mmap in (False, True):
        names = {"w": od.TensorSource("wte", apply=apply), "rest": ...}
        found = od.load_tensors(path, names=names, dtype="float16", mmap=mmap)
        assert found["w"].dtype == np.float16
    assert seen == [np.float16] * 2


def test_dtypes_are_by_the_name_in_the_tree(path):
    found = od.load_tensors(
        path,
        names={"layers": [{"b": "h.{k}.ln.bias"}], "rest": ...},
        dtype={"layers.{k}.b": "float64", "layers.0.b": "float64", "rest.wte": "float16"},
    )
    assert {layer["b"].dtype.name for layer in found["layers"]} == {"float64"}
    assert found["rest"]["wte"].dtype == np.float16
    assert found["rest"][QKV].dtype == np.float32


def test_an_error_of_a_function_says_where_it_was(path):
    source = od.TensorSource("h.{k}.ln.bias", apply=lambda b: 1 // 0)
    with pytest.raises(ZeroDivisionError) as caught:
        od.load_tensors(path, names={"w": [source], "rest": ...})
    assert caught.value.__notes__ == ["load_tensors: in apply= of 'w.0', from h.0.ln.bias"]


@pytest.mark.parametrize(
    ("options", "kind", "match"),
    [
        ({"reshape": (5, 5)}, ShapeError, r"'w' cannot be made from 'wte' of shape \(5, 4\) by"),
        ({"split": (0, 3)}, ShapeError, r"5 rows are not divisible into 3"),
        ({"split": (0, 2, 7)}, ShapeError, "cannot be made from 'wte'"),
        ({"transpose": (0, 0)}, ShapeError, "cannot be made from 'wte'"),
        ({"transpose": (0, 1, 2)}, ShapeError, "cannot be made from 'wte'"),
        ({"apply": lambda w: "text"}, DTypeError, "apply= of 'w' returned a str; return an array"),
        ({"apply": lambda w: None}, DTypeError, "apply= of 'w' returned a NoneType"),
        ({"apply": lambda w: w.astype("S")}, DTypeError, "apply= of 'w' returned an array of"),
    ],
)
def test_a_step_that_does_not_fit_is_refused_by_name(path, options, kind, match):
    with pytest.raises(kind, match=f"load_tensors: .*{match}"):
        od.load_tensors(path, names={"w": od.TensorSource("wte", **options), "rest": ...})


@pytest.mark.parametrize(
    ("args", "options", "kind", "match"),
    [
        ((), {}, SettingError, "it has no name"),
        ((3,), {}, DTypeError, "3 is not the name of a tensor"),
        (("a", "b"), {}, SettingError, "2 names need apply=, a function of 2 arrays"),
        (("a",), {"split": (3, 3)}, SettingError, r"split=\(3, 3\); pass \(k, n\)"),
        (("a",), {"split": (-1, 3)}, SettingError, "with k from 0"),
        (("a",), {"split": (0, 1, 2, 3)}, SettingError, r"pass \(k, n\)"),
        (("a",), {"split": "x"}, DTypeError, "split='x' is not a whole number"),
        (("a",), {"reshape": (2.5,)}, DTypeError, "reshape=2.5 is not a whole number"),
        (("a",), {"transpose": "yes"}, DTypeError, "transpose='yes' is not a whole number"),
        (("a",), {"apply": 3}, DTypeError, "apply: 3 cannot be called"),
    ],
)
def test_sources_that_make_no_sense_are_refused_by_name(args, options, kind, match):
    with pytest.raises(kind, match=f"TensorSource: .*{match}"):
        od.TensorSource(*args, **options)


# ------------------------------------------------------------------ mismatches


def test_one_error_lists_the_unmatched_names_of_both_sides(path):
    names = {"table": "wtf", "layers": [{"b": "h.{k}.ln.bais"}], "v": "nothing.like.it"}
    with pytest.raises(ShapeError) as caught:
        od.load_tensors(path, names=names)
    text = str(caught.value)
    assert text.startswith(f"load_tensors: {str(path)!r} and names= do not match: the file has no ")
    assert "'wtf' (for 'table'; did you mean wte?)" in text
    assert "'nothing.like.it' (for 'v')" in text
    assert "'h.{k}.ln.bais' (did you mean h." in text
    assert "nothing of names= takes 'h.0.attn.bias', 'h.0.attn.c_attn.weight'" in text
    assert f"and {len(SHAPES) - 8} more; correct names=, list what is not needed under" in text


def test_a_number_that_is_left_out_is_named(tmp_path):
    path = tmp_path / "gap.safetensors"
    names = {f"h.{k}.{n}" for k in range(4) for n in "ab"} - {"h.2.b"}
    od.save_tensors(path, dict.fromkeys(names, np.ones(1)))
    with pytest.raises(ShapeError, match=r"has no 'h\.2\.b' \(for 'x\.2\.b'.*\); correct names="):
        od.load_tensors(path, names={"x": [{"a": "h.{k}.a", "b": "h.{k}.b"}]})


def test_a_huge_number_in_a_name_makes_no_huge_tree(tmp_path):
    path = tmp_path / "huge.safetensors"
    od.save_tensors(path, {"h.0": np.ones(1), "h.999999999": np.ones(1)})
    with pytest.raises(ShapeError, match=r"has 2 tensors, and one whose hole \{k\}.* is 999999999"):
        od.load_tensors(path, names={"x": ["h.{k}"]})
    od.save_tensors(path, {"h.0": np.ones(1), f"h.{'9' * 5000}": np.ones(1)})
    assert list(od.load_tensors(path, names={"x": ["h.{k}"], "rest": ...})["rest"]) == [
        f"h.{'9' * 5000}"
    ]


@pytest.mark.parametrize(
    ("names", "kind", "match"),
    [
        ("wte", DTypeError, "names='wte'; pass a list of names, or a tree"),
        (3, DTypeError, "names=3; pass"),
        (od.TensorSource("wte"), DTypeError, "names=TensorSource"),
        ({"a": 3}, DTypeError, "'a' of names= is 3; pass the name of a tensor"),
        ({"a": {"b": None}}, DTypeError, "'a.b' of names= is None"),
        (["wte", 3], DTypeError, "'1' of names= is 3"),
        ({"x": "h.{k}.ln.bias"}, SettingError, r"nothing fills the hole \{k\} of .*, for 'x'"),
        ({"x.{j}": "h.{k}.ln.bias"}, SettingError, r"below the key 'x.\{j\}' .* the hole \{j\}"),
        ({"x.{j}": "wte"}, SettingError, r"no name below the key 'x.\{j\}' of names= has the hole"),
        ({"x": ..., "y": ...}, SettingError, "'x' and 'y' of names= would both take the rest"),
        ({"x.{k}": "h.{k}.ln.bias", "x.0": "wte"}, SettingError, "names= has 'x.0' twice"),
        ({None: 3, "rest": ...}, DTypeError, r"names\[None\]=3; pass a list"),
        ({None: [3], "rest": ...}, DTypeError, "3 is not the name of a tensor"),
        ({}, ShapeError, "nothing of names= takes"),
    ],
)
def test_names_that_make_no_sense_are_refused(path, names, kind, match):
    with pytest.raises(kind, match=f"load_tensors: .*{match}"):
        od.load_tensors(path, names=names)


def test_a_tree_that_holds_itself_is_refused(path):
    names = {}
    names["x"] = names
    with pytest.raises(OdysseyError, match="holds itself"):
        od.load_tensors(path, names=names)


def test_nothing_is_read_before_all_names_match(path, monkeypatch):
    from odyssey.saving.tensor_files import TensorFile

    monkeypatch.setattr(TensorFile, "read_tensor", None)
    with pytest.raises(ShapeError):
        od.load_tensors(path, names={"x": "wte", "y": "no"})
    with pytest.raises(SettingError):
        od.load_tensors(path, names={"x": "wte", "r": ...}, dtype={"no": "float16"})

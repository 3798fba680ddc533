"""What is saved comes back as it was: arrays, numbers, generators, states, in any tree."""

import dataclasses
import io
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections import Counter, OrderedDict, namedtuple
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, optim
from odyssey.errors import (
    DTypeError,
    FileError,
    MutationError,
    OdysseyError,
    SettingError,
    ShapeError,
    TapeError,
    UntrackedError,
)

Point = namedtuple("Point", "x y")


@dataclasses.dataclass(frozen=True)
class Layer:
    weight: object
    bias: object = None


@pytest.fixture
def path(tmp_path):
    return tmp_path / "saved.npz"


def again(path, tree, like=None):
    od.save(path, tree)
    assert os.listdir(path.parent) == [path.name]
    return od.load(path, tree if like is None else like)


def same(one, other):
    """Whether two arrays or numbers are the same to the bit, of one type."""
    if isinstance(one, (np.ndarray, np.generic)):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype.char in "gG":  # whose last bytes mean nothing
            assert repr(one) == repr(other)
        else:
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
    else:
        assert repr(one) == repr(other)
    assert type(one) is type(other)


# ------------------------------------------------------------------ arrays and numbers

DTYPES = [np.dtype(c) for c in "?bhilqBHILQefdgFDG"]


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3, 2)], ids=str)
def test_arrays_of_every_dtype_and_byte_order_come_back_to_the_bit(path, shape):
    rng = np.random.default_rng(0)
    tree = {}
    for dtype in DTYPES:
        for order in "<>":
            wide = rng.normal(size=shape) * 100
            tree[dtype.char, order] = np.asarray(wide).astype(dtype.newbyteorder(order))
    for name, array in again(path, tree).items():
        same(array, tree[name])
        assert not np.shares_memory(array, tree[name])
    for name, array in od.load(path).items():
        same(array, tree[eval(name)[0]])


def test_what_is_not_a_number_comes_back_to_the_bit(path):
    bits = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000000, 1 << 63], "u8")
    quiet = bits.view(np.float64)
    tree = [quiet, *(float(x) for x in quiet), *quiet, *(complex(x, -x) for x in quiet)]
    for one, other in zip(again(path, tree), tree, strict=True):
        same(one, other)
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


LAYOUTS = {
    "reversed": np.arange(24.0)[::-1],
    "every other": np.arange(24.0)[::2],
    "transposed": np.arange(24.0).reshape(2, 3, 4).T,
    "axes in a third order": np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0),
    "broadcast": np.broadcast_to(np.float32(3), (4, 5)),
    "a field": np.array([(1, 2.0), (3, 4.0)], "i4,f8")["f1"],
    "read-only": np.frombuffer(b"12345678", np.int16),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_arrays_of_any_layout_come_back_as_equal_ones_that_can_be_written_to(path, name):
    found = again(path, LAYOUTS[name])
    same(found, np.asarray(LAYOUTS[name]))
    assert found.flags.writeable
    assert found.flags.owndata
    assert found.flags.f_contiguous >= LAYOUTS[name].flags.f_contiguous


NUMBERS = [0, -1, 2**63 - 1, -(2**63), 2**63, -(10**5000), True, False, None, 0.1, -0.0, 5e-324,
           float("inf"), -1.5j, complex("nan"), "", "é\udc80\0\U0001f600", np.float32(0.1),
           np.int8(-3), np.True_, np.complex64(1j), np.longdouble(1) / 3]  # fmt: skip


def test_numbers_text_and_none_come_back_with_their_types(path):
    for one, other in zip(again(path, NUMBERS), NUMBERS, strict=True):
        if type(other) is int:
            assert type(one) is int
            assert one == other
        else:
            same(one, other)


def test_a_tree_keeps_its_containers(path):
    tree = {
        "layers": [Layer(np.ones(2), 1), Layer(np.zeros(2))],
        "point": Point(1.0, (2, [3])),
        "counts": Counter("aab"),
        "ordered": OrderedDict(b=1, a=2),
        "empty": ({}, [], ()),
    }
    found = again(path, tree, like=tree)
    assert repr(found) == repr(tree)
    assert type(found["ordered"]) is OrderedDict
    assert found["layers"] is not tree["layers"]


@pytest.mark.parametrize("leaf", [3, np.ones(2), Variable([1.0])], ids=["int", "array", "Variable"])
def test_a_tree_may_be_a_leaf(path, leaf):
    assert repr(again(path, leaf)) == repr(leaf)
    assert list(od.load(path)) == [""]


# ------------------------------------------------------------------ names

KEYS = ["a.b", "a/b", "a\\b", "..", "../../x", "/etc", "C:\\x", "", " ", "[0]", "']['", '"', "%2F",
        "a%2Fb", "\0", "\n", "\xe9", "e\u0301", "\udc80", "\U0001f600", "1", 1, -1, 1.5, None,
        (1, "1"), b"1", "k" * 300, "k" * 301, "k" * 300 + "\xe9", "odyssey.json", "CON", "a~1",
        "*?<>|"]  # fmt: skip


def test_no_key_collides_with_another_or_leaves_the_folder(path):
    tree = {key: {0.5: np.array(k), key: [np.array(-k)]} for k, key in enumerate(KEYS)}
    found = again(path, tree)
    assert repr(found) == repr(tree)
    assert {int(v) for v in od.load(path).values()} == {
        n for k in range(len(KEYS)) for n in (k, -k)
    }
    names = zipfile.ZipFile(path).namelist()
    assert len(set(names)) == len(names)
    for name in names:
        assert not set(name) & set('/\\:*?"<>|\0\n')
        assert os.path.basename(os.path.normpath(name)) == name
        assert len(os.fsencode(name)) < 255


def test_numpy_reads_the_arrays_by_their_paths(path):
    od.save(path, {"w": [Variable([1.0]), np.asfortranarray(np.ones((2, 3)))], "n": 1})
    with np.load(path, allow_pickle=False) as found:
        assert sorted(found) == ["['w'][0]", "['w'][1]", "odyssey.json"]
        same(found["['w'][0]"], np.ones(1))
        same(found["['w'][1]"], np.ones((2, 3)))
        assert json.loads(found["odyssey.json"])["format"] == 1


def test_the_same_tree_gives_the_same_bytes(path):
    tree = {"w": Variable([1.0]), "rng": np.random.default_rng(0)}
    od.save(path, tree)
    first = path.read_bytes()
    od.save(path, tree)
    assert path.read_bytes() == first


class Alike:
    def __repr__(self):
        return "Alike"


@pytest.mark.parametrize(
    ("tree", "match"),
    [
        pytest.param({Alike(): 1, Alike(): 2}, "two leaves are called", id="alike"),
        pytest.param({object(): 1}, "known by its address", id="address"),
        pytest.param({frozenset("ab"): 1}, "has a set for a key", id="set"),
        pytest.param({(frozenset("ab"), 1): 1}, "has a set for a key", id="set in a tuple"),
    ],
)
def test_keys_that_would_not_be_found_again_are_refused(path, tree, match):
    with pytest.raises(SettingError, match=match):
        od.save(path, tree)
    od.save(path, {"<a object at 0x7f>": 1})


# ------------------------------------------------------------------ what is one stays one


def test_tied_variables_are_saved_once_and_stay_tied(path):
    w = Variable(np.ones((50, 50)), True)
    found = again(path, {"encoder": w, "decoder": w})
    assert found["encoder"] is found["decoder"] is w
    assert path.stat().st_size < 1.5 * w.numpy().nbytes
    one, two = Variable(np.zeros((50, 50)), True), Variable(np.zeros((50, 50)), True)
    od.load(path, {"encoder": one, "decoder": two})
    assert one.numpy().all()
    assert two.numpy().all()


def test_what_was_two_is_not_put_into_one(path):
    w = Variable([0.0])
    od.save(path, {"a": Variable([1.0]), "b": Variable([2.0])})
    with pytest.raises(ShapeError, match=r"\['a'\] and \['b'\] are one Variable in like"):
        od.load(path, {"a": w, "b": w})
    assert w.item() == 0.0


def test_an_array_that_stood_twice_is_one_where_it_is_one_in_like(path):
    x, y = np.ones(3), np.ones(3)
    od.save(path, [x, x])
    one, two = od.load(path, [x, x])
    assert one is two
    one, two = od.load(path, [x, y])
    assert not np.shares_memory(one, two)


# ------------------------------------------------------------------ filling


def test_variables_are_filled_and_stay_what_they_are(path):
    w, b = Variable([1.0, 2.0], True, name="w"), Variable([3, 4])
    od.save(path, {"w": w, "b": b})
    array = np.zeros(2, int)
    v, c = Variable([0.0, 0.0], name="v"), Variable(array)
    v.grad = np.array([5.0, 5.0])
    found = od.load(path, {"b": c, "w": v})
    assert list(found) == ["b", "w"]
    assert found["w"] is v
    assert v.numpy().tolist() == [1.0, 2.0]
    assert (v.name, v.requires_grad, v.grad.tolist()) == ("v", False, [5.0, 5.0])
    assert c.numpy().tolist() == [3, 4]
    assert array.tolist() == [0, 0]  # a constant that is written gets an array of its own


def test_a_tape_that_needs_a_leaf_as_it_was_notices_the_loading(path):
    w = Variable([1.0, 2.0], True)
    od.save(path, w)
    with GradientTape() as tape:
        y = (w * w).sum()
        od.load(path, w)
        z = (w * w).sum()
    with pytest.raises(MutationError):
        tape.gradient(y, w)
    with GradientTape() as tape:
        od.load(path, w)
        z = (w * w).sum()
    assert tape.gradient(z, w).tolist() == [2.0, 4.0]


def test_saving_under_a_tape_records_nothing(path):
    w = Variable([1.0, 2.0], True)
    with GradientTape() as tape:
        y = (w * w).sum()
        od.save(path, w)
    assert len(tape.nodes) == 2
    assert tape.gradient(y, w).tolist() == [2.0, 4.0]


def test_an_array_that_a_tape_holds_locked_is_not_written_to(path):
    held, w = Variable(np.ones(1000)), Variable([1.0, 2.0], True)
    od.save(path, [w, held])
    w.assign([0.0, 0.0])
    x = Variable(np.ones(1000), True)
    with GradientTape() as tape:
        y = (x * held).sum()
    with pytest.raises(MutationError, match=r"load: \[1\]: the array of .* is needed unchanged by"):
        od.load(path, [w, held])
    assert not w.numpy().any()
    tape.gradient(y, x)
    od.load(path, [w, held])
    assert w.numpy().all()


@pytest.mark.parametrize("act", ["save", "load"])
def test_no_graph_holds_a_file(path, act):
    w = Variable([1.0, 2.0], True)
    od.save(path, w)

    @od.compile
    def step(x):
        getattr(od, act)(path, w)
        return x * 2.0

    with pytest.raises(TapeError, match=f"{act}: called while a graph is traced"):
        step(np.ones(2))


GENERATORS = {
    "PCG64": lambda seed: np.random.default_rng(seed),
    "PCG64DXSM": lambda seed: np.random.Generator(np.random.PCG64DXSM(seed)),
    "MT19937": lambda seed: np.random.Generator(np.random.MT19937(seed)),
    "Philox": lambda seed: np.random.Generator(np.random.Philox(seed)),
    "SFC64": lambda seed: np.random.Generator(np.random.SFC64(seed)),
    "RandomState": np.random.RandomState,
    "bare": np.random.PCG64,
}


def draws(generator):
    if isinstance(generator, np.random.BitGenerator):
        return generator.random_raw(5).tolist()
    words = generator.bytes(3)
    return [words, *generator.standard_normal(3).tolist(), generator.bytes(1)]


def test_what_a_generator_spawned_is_not_counted_and_so_stays_as_it_is_in_like(path):
    rng, like = np.random.default_rng(0), np.random.default_rng(0)
    rng.spawn(3)
    like.spawn(1)
    again(path, {"rng": rng}, {"rng": like})
    assert like.bit_generator.seed_seq.n_children_spawned == 1
    assert rng.random() == like.random()


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_go_on_where_they_stood(path, name):
    rng, other = GENERATORS[name](1), GENERATORS[name](2)
    draws(rng)
    od.save(path, {"rng": rng})
    assert od.load(path, {"rng": other})["rng"] is other
    assert draws(other) == draws(rng)
    state = od.load(path)["['rng']"]
    assert state["bit_generator"] in str(type(getattr(rng, "bit_generator", rng))) + "MT19937"


# ------------------------------------------------------------------ what does not fit


def test_entries_that_are_missing_or_too_many_are_named(path):
    od.save(path, {"a": 1, "b": {"c": 2}, **{f"x{k}": 0 for k in range(9)}})
    with pytest.raises(ShapeError) as caught:
        od.load(path, {"a": 1, "b": {"d": 2}})
    text = str(caught.value)
    assert "it has no ['b']['d'], which like has" in text
    assert "it has ['b']['c'], ['x0'], ['x1'], ['x2'] and 6 more, which like lacks" in text
    assert str(path)[:20] in text


W = Variable([1.0, 2.0], True)
OTHERS = {
    "shape": (W, Variable([1.0], True), ShapeError, r"was of shape \(2,\).*is of shape \(1,\)"),
    "broadcast": (Variable(1.0), W, ShapeError, r"was of shape \(\)"),
    "dtype": (W, Variable([1, 2]), DTypeError, "was of float64 .*is of int64"),
    "precision": (W, Variable(np.ones(2, "f4"), True), DTypeError, "is of float32"),
    "array": (W, np.ones(2), DTypeError, "was a Variable when it was saved, and is an array"),
    "Variable": (np.ones(2), W, DTypeError, "was an array when it was saved, and is a Variable"),
    "number": (1, 1.0, DTypeError, "was an int .*and is a float"),
    "none": (None, 1.0, DTypeError, "was None"),
    "flag": (1, True, DTypeError, "was an int .*and is a bool"),
    "scalar": (np.float32(1), 1.0, DTypeError, "was a NumPy number"),
    "scalars": (np.float32(1), np.float64(1), DTypeError, "was of float32"),
    "optimizer": (optim.SGD(W, 0.1), optim.Adam(W), DTypeError, "of class SGD .* of class Adam"),
    "generator": (
        np.random.default_rng(0),
        np.random.Generator(np.random.SFC64()),
        DTypeError,
        r"Generator\(PCG64\)",
    ),
    "schedule": (
        optim.StepLR(optim.SGD(W, 0.1), 1),
        optim.ExponentialLR(optim.SGD(W, 0.1), 0.5),
        DTypeError,
        "StepLR",
    ),
    "parameters": (
        optim.SGD(W, 0.1),
        optim.SGD([W, Variable(1.0, True)], 0.1),
        ShapeError,
        "load_state_dict: state of 1 parameters came for 2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_other_in_like_is_refused_and_nothing_changes(path, name):
    saved, other, kind, match = OTHERS[name]
    before = Variable([7.0])
    od.save(path, {"first": Variable([1.0]), "x": saved, "last": np.random.default_rng(1)})
    rng = np.random.default_rng(5)
    state = rng.bit_generator.state
    with pytest.raises(kind, match=match) as caught:
        od.load(path, {"first": before, "x": other, "last": rng})
    assert "['x']" in str(caught.value)
    assert before.item() == 7.0
    assert rng.bit_generator.state == state


REFUSED = {
    "set": {1, 2},
    "bytes": b"12",
    "function": len,
    "object": object(),
    "text array": np.array(["a"]),
    "objects": np.array([None]),
    "fields": np.zeros(2, "i4,f8"),
    "dates": np.array(["2020-01-01"], "datetime64[D]"),
    "span": np.timedelta64(1, "s"),
    "mask": np.ma.array([1.0], mask=[True]),
    "tape": GradientTape(),
    "range": range(3),
    "int of a class of its own": type("Count", (int,), {})(3),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_saved_is_refused_by_its_path_and_the_old_file_stays(path, name):
    od.save(path, {"x": 1})
    before = path.read_bytes()
    with pytest.raises(DTypeError, match=r"^save: \['x'\]"):
        od.save(path, {"w": W, "x": REFUSED[name]})
    with pytest.raises(DTypeError, match=r"^load: \['x'\]"):
        od.load(path, {"x": REFUSED[name]})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_results_are_neither_saved_nor_filled(path):
    with GradientTape():
        y = W * 2.0
    with pytest.raises(UntrackedError, match=r"save: \['y'\]: .* is a result"):
        od.save(path, {"y": y})
    od.save(path, {"y": y.detach()})
    with pytest.raises(TapeError, match=r"load: \['y'\] of like is .*not a leaf"):
        od.load(path, {"y": y})
    with pytest.raises(TapeError, match="not a leaf"):
        od.load(path, {"y": W * 2.0})


class OwnState(optim.SGD):
    def state_dict(self):
        return super().state_dict() | {"more": 1}


def test_an_optimizer_that_saves_itself_is_refused_and_its_state_is_not(path):
    optimizer = OwnState(W, 0.1)
    with pytest.raises(DTypeError, match="state_dict of its own"):
        od.save(path, optimizer)
    od.save(path, optimizer.state_dict())
    assert od.load(path)["['more']"] == 1


# ------------------------------------------------------------------ paths


@pytest.mark.parametrize("act", ["save", "load"])
@pytest.mark.parametrize(
    ("wrong", "kind", "match"),
    [
        pytest.param("model", SettingError, r"pass 'model\.npz'", id="no ending"),
        pytest.param("model.npz.gz", SettingError, "does not end in .npz", id="another ending"),
        pytest.param("", SettingError, "does not end", id="empty"),
        pytest.param("a\0.npz", SettingError, "null character", id="null"),
        pytest.param("\ud800.npz", SettingError, "cannot be a file's name", id="surrogate"),
        pytest.param(3, DTypeError, "is not a path", id="a number"),
        pytest.param(None, DTypeError, "is not a path", id="None"),
        pytest.param(io.BytesIO(), DTypeError, "is not a path", id="a file"),
        pytest.param("no/such/folder/a.npz", FileError, "No such file", id="no folder"),
        pytest.param("x" * 300 + ".npz", FileError, "too long", id="long"),
    ],
)
def test_paths_that_cannot_be_are_refused_by_name(act, wrong, kind, match):
    with pytest.raises(kind, match=match):
        getattr(od, act)(wrong, W)


@pytest.mark.parametrize("kind", ["folder", "pipe", "file above"])
@pytest.mark.parametrize("act", ["save", "load"])
def test_what_is_not_a_file_is_refused_and_stays(path, act, kind):
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        if not hasattr(os, "mkfifo"):
            pytest.skip("no pipes here")
        os.mkfifo(path)
    else:
        path.write_text("text")
        path = path / "below.npz"
    with pytest.raises(FileError, match=f"^{act}: "):
        getattr(od, act)(path, W)
    assert (path.parent if kind == "file above" else path).exists()


def test_a_missing_file_is_one_to_python_too(path):
    with pytest.raises(FileNotFoundError, match=r"od\.save wrote") as caught:
        od.load(path, W)
    assert isinstance(caught.value, od.errors.MissingFileError)
    assert caught.value.errno == 2


def test_paths_of_any_kind_are_taken(path):
    for name in (str(path), path, os.fsencode(path)):
        od.save(name, 3)
        assert od.load(name, 0) == 3


@pytest.mark.skipif(os.name == "nt", reason="no links or permissions")
def test_a_link_and_the_permissions_stay(path, tmp_path):
    od.save(path, 1)
    path.chmod(0o600)
    link = tmp_path / "link.npz"
    link.symlink_to(path)
    od.save(link, 2)
    assert link.is_symlink()
    assert od.load(path, 0) == 2
    assert path.stat().st_mode & 0o777 == 0o600


def test_importing_the_package_leaves_the_work_for_later():
    program = (
        "import numpy, sys; before = set(sys.modules); import odyssey;"
        "new = set(sys.modules) - before;"
        "sys.exit(bool({'zipfile', 'json', 'odyssey.saving.archive'} & new))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == 0


def test_a_save_beside_a_training_thread_sees_whole_steps(path):
    w = Variable(np.zeros(50_000), True)
    v = Variable(np.zeros(3), True)
    optimizer = optim.SGD([w, v], learning_rate=1.0)
    stop = threading.Event()

    def train():
        while not stop.is_set():
            w.grad, v.grad = np.full(w.shape, -1.0), np.full(3, -1.0)
            optimizer.step()

    thread = threading.Thread(target=train)
    thread.start()
    try:
        for _ in range(20):
            od.save(path, [w, v, optimizer])
            data, small, state = od.load(path).values()
            values = {*data.tolist(), *small.tolist()}
            assert len(values) == 1
            steps = {float(s["steps"]) for s in state["state"] if s}
            assert steps <= values
    finally:
        stop.set()
        thread.join()


def test_errors_of_the_state_name_the_leaf(path):
    od.save(path, {"o": optim.SGD([W, Variable(1.0, True)], 0.1)})
    with pytest.raises(OdysseyError, match=r"^load: \['o'\]: load_state_dict: "):
        od.load(path, {"o": optim.SGD(W, 0.1)})


def test_no_file_of_the_room_evaluates_what_it_reads():
    for file in Path(od.__file__).parent.joinpath("saving").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert not {"pickle", "eval(", "exec(", "np.load("} & set(text.split())
        assert "import pickle" not in text

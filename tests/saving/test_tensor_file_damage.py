"""Damaged, lying and mutated tensor files are refused by file and tensor, in little memory."""

import json
import os
import random
import re
import tracemalloc

import numpy as np
import pytest
import safetensors.numpy

import odyssey as od
from odyssey.errors import DTypeError, FileError, FormatError, MissingFileError, OdysseyError
from support.seeds import SEED

BOTH = pytest.mark.parametrize(
    "read",
    [
        lambda path: od.load_tensors(path),
        lambda path: od.load_tensors(path, mmap=True),
        lambda path: od.list_tensors(path),
        lambda path: od.load(path),
    ],
    ids=["read", "mapped", "listed", "loaded"],
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def entry(dtype="F32", shape=(2,), start=0, stop=8):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


def write(path, header, data=b"", length=None):
    """Write a file of a header: an object, or text."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)


def as_json(header):
    return json.dumps(header).encode()


W, V = entry(), entry(start=8, stop=16)
HUGE = 1 << 62

LIES = {
    "no data": ({"w": W}, 0, "tensor 'w': its data would end"),
    "data beyond the file": ({"w": W, "v": V}, 15, "tensor 'v': its data would end"),
    "size": ({"w": entry(shape=(3,))}, 8, "tensor 'w': F32 of shape .* takes 12 bytes"),
    "dtype": ({"w": entry("F64")}, 8, "tensor 'w': F64 .* takes 16 bytes"),
    "a trillion numbers": ({"w": entry(shape=(1 << 40,))}, 8, "tensor 'w': F32 .* takes"),
    "more than all memory": ({"w": entry(shape=(HUGE, HUGE))}, 8, "tensor 'w': F32 .* takes"),
    "offsets beyond all memory": ({"w": entry(stop=HUGE)}, 8, "tensor 'w': its data would end"),
    "zeros and huge sizes": ({"w": entry(shape=(0, HUGE, HUGE), stop=0)}, 0, "tensor 'w' is of"),
    "overlap": ({"w": W, "v": entry(start=4, stop=12)}, 12, "tensors 'w' and 'v' share bytes"),
    "one place": ({"w": W, "v": W}, 8, "tensors 'w' and 'v' share bytes"),
    "gap": ({"w": W, "v": entry(start=9, stop=17)}, 17, "tensor 'v': 1 bytes before its data"),
    "gap in front": ({"w": entry(start=2, stop=10)}, 10, "tensor 'w': 2 bytes before its data"),
    "more data": ({"w": W}, 9, "1 bytes at its end after tensor 'w' belong to no tensor"),
    "data of none": ({}, 9, "9 bytes at its end belong to no tensor"),
    "end before begin": ({"w": entry(start=8, stop=0)}, 8, "tensor 'w': .* the begin and the end"),
    "negative offsets": ({"w": entry(start=-8, stop=0)}, 8, "tensor 'w': .* the begin and the end"),
    "negative size": ({"w": entry(shape=(-2,))}, 8, "tensor 'w': .* is not a shape"),
    "a broken size": ({"w": entry(shape=(2.0,))}, 8, "tensor 'w': .* is not a shape"),
    "a flag for a size": ({"w": entry(shape=(True,))}, 8, "tensor 'w': .* is not a shape"),
    "a size of 100 digits": ({"w": entry(shape=(10**100,))}, 8, "tensor 'w': .* is not a shape"),
    "a text for a shape": ({"w": {**W, "shape": "2"}}, 8, "tensor 'w': '2' is not a shape"),
    "three offsets": ({"w": {**W, "data_offsets": [0, 8, 8]}}, 8, "tensor 'w': .* the begin"),
    "100 axes": ({"w": entry(shape=(1,) * 100, stop=4)}, 4, "tensor 'w': it has 100 axes"),
    "no dtype": ({"w": {"shape": [2], "data_offsets": [0, 8]}}, 8, "tensor 'w': it has no dtype"),
    "no shape": ({"w": {"dtype": "F32", "data_offsets": [0, 8]}}, 8, "'w': it has no shape"),
    "no offsets": ({"w": {"dtype": "F32", "shape": [2]}}, 8, "'w': it has no data_offsets"),
    "a number for a dtype": ({"w": entry(5)}, 8, "tensor 'w': 5 is not a dtype"),
    "a number for a tensor": ({"w": 5}, 0, "tensor 'w': it is 5, not an object"),
    "metadata of numbers": ({"__metadata__": {"a": 1}}, 0, "__metadata__ is .* texts by name"),
    "a list of metadata": ({"__metadata__": []}, 0, "__metadata__ is .* texts by name"),
    "a name twice": (
        b'{"w":' + as_json(W) + b',"w":' + as_json(entry(start=0, stop=8)) + b"}",
        *(8, "two tensors are called 'w'"),
    ),
    "a name twice, once escaped": (
        b'{"w":' + as_json(W) + b',"\\u0077":' + as_json(V) + b"}",
        *(16, "two tensors are called 'w'"),
    ),
    "a dtype twice": (
        b'{"w":{"dtype":"F64","dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        *(8, "tensor 'w': it has 'dtype' twice"),
    ),
    "metadata twice": (b'{"__metadata__":{"a":"1","a":"2"}}', 0, "__metadata__ has 'a' twice"),
    "a list": (b"[]", 0, "does not begin with {"),
    "a space in front": (b" {}", 0, "does not begin with {"),
    "no JSON": (b"{'w': 1}", 0, "is not JSON"),
    "cut off": (b'{"w":', 0, "is not JSON"),
    "text behind": (b"{} x", 0, "is not JSON"),
    "zeros behind": (b"{}\0\0", 0, "is not JSON"),
    "not UTF-8": (b'{"\xff":1}', 0, "it is not UTF-8"),
    "UTF-16": ("{}".encode("utf-16-le"), 0, "is not JSON"),
    "a deep nest": (b'{"w":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 0, "nested too deep"),
    "a number of many digits": (b'{"w":' + b"9" * 10_000 + b"}", 0, "is not JSON"),
    "a surrogate": (b'{"\\ud800":' + as_json(W) + b"}", 8, "tensor .*: its name has a surrogate"),
    "an unknown dtype": (
        {"w": entry("F99")},
        8,
        "safetensors refuses it: .*F99.* of which tensor 'w' is",
    ),
}


@BOTH
@pytest.mark.parametrize("lie", LIES)
def test_a_header_that_lies_is_refused_by_file_and_tensor(path, lie, read):
    header, size, match = LIES[lie]
    write(path, header, bytes(size))
    if lie == "zeros and huge sizes" and "list" in str(read.__code__.co_names):
        assert read(path)["w"].shape == (0, HUGE, HUGE)  # valid, but NumPy cannot make it
        return
    before = path.read_bytes()
    with pytest.raises(FormatError, match=re.compile(f"{path.name}'.*{match}", re.DOTALL)):
        read(path)
    assert path.read_bytes() == before


@BOTH
@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "is empty; save it again"),
        (b"abc", "ends before the length of the header"),
        ((1 << 40).to_bytes(8, "little"), "header would have 1099511627776 bytes"),
        (((1 << 64) - 1).to_bytes(8, "little") + b"{}", "header would have 18446744073709551615"),
        (b"PK\x03\x04" + bytes(60), r"is a zip archive, .*; od\.load reads .* in \.npz"),
        (bytes(8), "does not begin with {"),
    ],
    ids=["empty", "short", "a terabyte", "all ones", "an archive", "no header"],
)
def test_what_is_no_tensor_file_is_refused(path, data, match, read):
    path.write_bytes(data)
    with pytest.raises(FormatError, match=f"{path.name}'.* {match}"):
        read(path)


def test_a_lying_header_takes_no_memory(path):
    od.list_tensors(write_small(path))  # imports
    for header in (
        {"w": entry(shape=(1 << 40,))},
        {"w": entry("U8", (1 << 40,), 0, 1 << 40)},
        {"w": entry("F4", (1 << 60,), 0, 1 << 59)},
        {"w": entry(shape=(0, 1 << 40), stop=0), "v": entry(shape=(1 << 40,), stop=8)},
    ):
        write(path, header, bytes(8))
        assert peak(path) < 200_000
    write(path, b"{}", length=99_999_999)
    assert peak(path) < 200_000
    path.write_bytes(b"\xff" * 4096)
    assert peak(path) < 200_000


def write_small(path):
    od.save_tensors(path, {"w": np.ones(2)})
    return path


def peak(path):
    """The most memory in bytes that was held while a file was refused."""
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match=path.name):
            od.load_tensors(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@BOTH
def test_a_boolean_of_other_bytes_is_refused(path, read):
    write(path, {"w": entry("BOOL", (3,), 0, 3)}, b"\x00\x01\x02")
    if "list" in str(read.__code__.co_names):
        assert len(read(path)) == 1
        return
    with pytest.raises(FormatError, match="tensor 'w' is of bool, and has bytes that are neither"):
        read(path)


@pytest.mark.parametrize(
    ("code", "shape", "size"),
    [
        *((code, (4,), 4) for code in ("F8_E4M3", "F8_E5M2", "F8_E8M0")),
        *((code, (4,), 3) for code in ("F6_E2M3", "F6_E3M2")),
        ("F4", (2, 4), 4),
    ],
)
def test_a_dtype_that_cannot_be_held_is_refused_when_its_tensor_is_asked_for(
    path, code, shape, size
):
    write(path, {"w": W, "q": entry(code, shape, 8, 8 + size)}, bytes(8 + size))
    match = f"tensor 'q' of .*model.safetensors' is of {code}, which neither NumPy nor odyssey"
    for ask in (
        lambda: od.load_tensors(path),
        lambda: od.load_tensors(path, mmap=True, dtype="float32"),
        lambda: od.load_tensors(path, names=["q"]),
        lambda: od.load_tensors(path, names={"x": ...}),
        lambda: od.load(path),
    ):
        with pytest.raises(DTypeError, match=match):
            ask()
    assert od.load_tensors(path, names=["w"])["w"].tolist() == [0, 0]
    assert list(od.load_tensors(path, names={"w": "w", None: ["q"]})) == ["w"]
    w = od.Variable(np.ones(2, np.float32))
    od.load(path, {"w": w}, missing="keep")
    assert w.numpy().tolist() == [0, 0]
    assert od.list_tensors(path)["q"].dtype == code
    assert od.list_tensors(path)["q"].nbytes == size
    assert od.list_tensors(path)["q"].shape == shape


def test_a_file_that_is_cut_off_while_it_is_read_is_refused(path, monkeypatch):
    from odyssey.saving import tensor_loading

    od.save_tensors(path, {"w": np.ones(1000), "v": np.ones(1000)})
    check = tensor_loading.TargetDtypes.of_all
    for mmap in (False, True):
        od.save_tensors(path, {"w": np.ones(1000), "v": np.ones(1000)})

        def cut(*args):
            os.truncate(path, 9000)
            return check(*args)

        monkeypatch.setattr(tensor_loading.TargetDtypes, "of_all", cut)
        with pytest.raises(FormatError, match="tensor 'w' was cut off while the file was read"):
            od.load_tensors(path, mmap=mmap)
        monkeypatch.undo()


@pytest.mark.parametrize("kind", ["folder", "pipe", "none", "below a file"])
@BOTH
def test_what_is_no_file_is_refused(path, kind, read):
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "below a file":
        path.write_bytes(b"")
        path = path / "x.safetensors"
    with pytest.raises(FileError, match=f"{path.name}'"):
        read(path)


# ------------------------------------------------------------------ names


def test_names_of_any_text_come_back(path):
    names = [
        'q"uote',
        "back\\slash",
        "new\nline",
        "\x00\x1b[31m",
        "é",
        "𝕎",
        " ",
        "{layer}",
        "a.b.",
        "",
    ]
    arrays = {name: np.full(1, k) for k, name in enumerate(names)}
    od.save_tensors(path, arrays)
    assert od.load_tensors(path) == arrays
    assert safetensors.numpy.load_file(path) == arrays
    assert set(od.load_tensors(path, names=names)) == set(names)
    assert "\x1b" not in str(od.list_tensors(path))


def test_names_with_escapes_are_the_texts_that_they_stand_for(path):
    write(path, b'{"\\u0077\\n":' + as_json(W) + b"}", bytes(8))
    assert list(od.load_tensors(path)) == ["w\n"]


# ------------------------------------------------------------------ shards


def write_shards(folder, split=(("a", "h.0.w"), ("b", "h.1.w"), ("b", "n")), extra=None):
    files = {}
    for shard, name in split:
        files.setdefault(f"{shard}.safetensors", {})[name] = np.full((2, 3), len(name) + ord(shard))
    for shard, arrays in files.items():
        od.save_tensors(folder / shard, arrays, {"format": "np", shard: "1"})
    index = {
        "metadata": {"total_size": 144},
        "weight_map": {n: f"{s}.safetensors" for s, n in split},
    }
    index |= extra or {}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder / "model.safetensors.index.json"


@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])
def test_shards_are_read_as_one_file(tmp_path, mmap):
    index = write_shards(tmp_path)
    for path in (index, tmp_path, str(tmp_path), os.fsencode(index)):
        found = od.load_tensors(path, mmap=mmap)
        assert {n: a[0, 0] for n, a in found.items()} == {"h.0.w": 102, "h.1.w": 103, "n": 99}
    listing = od.list_tensors(tmp_path)
    assert [e.file for e in listing.values()] == ["a.safetensors", "b.safetensors", "b.safetensors"]
    assert listing.metadata == {"format": "np", "a.safetensors": "1", "b.safetensors": "1"}
    assert listing.nbytes == 144
    tree = od.load_tensors(index, names={"h": [{"w": "h.{k}.w"}], "n": "n"}, mmap=mmap)
    assert [layer["w"][0, 0] for layer in tree["h"]] == [102, 103]


def _damage(change):
    def act(folder):
        index = write_shards(folder)
        found = json.loads(index.read_text())
        change(folder, found["weight_map"])
        index.write_text(json.dumps(found))

    return act


def _raw(text):
    return lambda folder: write_shards(folder).write_bytes(text)


SHARDS = {
    "missing": (
        lambda f: (write_shards(f), (f / "b.safetensors").unlink()),
        *(MissingFileError, "names 'b.safetensors', the file of tensor 'h.1.w'"),
    ),
    "cut off": (
        lambda f: (write_shards(f), os.truncate(f / "b.safetensors", 300)),
        *(FormatError, "b.safetensors'.*tensor 'n'"),
    ),
    "a name that no shard has": (
        _damage(lambda f, m: m.update(x="a.safetensors")),
        *(FormatError, "index.json' says that tensor 'x' is in 'a.safetensors', which lacks it"),
    ),
    "a name of another shard": (
        _damage(lambda f, m: m.update(n="a.safetensors")),
        *(FormatError, "tensor 'n' is in 'a.safetensors', and it is in 'b.safetensors'"),
    ),
    "a name that the index lacks": (
        _damage(lambda f, m: m.pop("n")),
        *(FormatError, "tensor 'n' is in 'b.safetensors', and the index does not name it"),
    ),
    "a name in two shards": (
        _damage(lambda f, m: od.save_tensors(f / "a.safetensors", {k: np.ones(1) for k in m})),
        *(FormatError, "is in two files, 'a.safetensors' and 'b.safetensors'"),
    ),
    "another folder": (
        _damage(lambda f, m: m.update(x="../a.safetensors")),
        *(FormatError, "tensor 'x' is in '../a.safetensors', which may not be in another folder"),
    ),
    "an absolute path": (
        _damage(lambda f, m: m.update(x="/etc/a.safetensors")),
        *(FormatError, "tensor 'x' is in '/etc/a.safetensors', which may not be"),
    ),
    "a path of Windows": (
        _damage(lambda f, m: m.update(x="..\\a.safetensors")),
        *(FormatError, "which may not be in another folder"),
    ),
    "another file": (_damage(lambda f, m: m.update(x="/etc/passwd")), FormatError, "tensor 'x' is"),
    "a number": (_damage(lambda f, m: m.update(x=3)), FormatError, "tensor 'x' is in 3, which is"),
    "no map": (_raw(b"{}"), FormatError, "it has no weight_map"),
    "a list for a map": (_raw(b'{"weight_map": []}'), FormatError, "it has no weight_map"),
    "a list": (_raw(b"[]"), FormatError, r"the index is \[\], not an object"),
    "no JSON": (_raw(b"{"), FormatError, "the index is not JSON"),
    "a name twice": (
        _raw(b'{"weight_map": {"n": "a.safetensors", "n": "b.safetensors"}}'),
        *(FormatError, "weight_map has tensor 'n' twice"),
    ),
    "two indexes": (
        lambda f: (write_shards(f), (f / "x.safetensors.index.json").write_text("{}")),
        *(FileError, "holds 'model.*json', 'x.*json'; pass the path of the one"),
    ),
    "a file beside the index": (
        lambda f: (write_shards(f), od.save_tensors(f / "all.safetensors", {})),
        *(FileError, "holds 'model.*json', 'all.safetensors'; pass the path of the one"),
    ),
    "nothing": (lambda f: None, MissingFileError, "holds no file that ends in .safetensors"),
}


@pytest.mark.parametrize("fault", SHARDS)
def test_shards_that_disagree_are_refused_by_file_and_tensor(tmp_path, fault):
    act, kind, match = SHARDS[fault]
    act(tmp_path)
    for read in (od.load_tensors, od.list_tensors):
        with pytest.raises(kind, match=match):
            read(tmp_path)


def test_two_files_in_a_folder_are_refused_and_one_is_read(tmp_path):
    od.save_tensors(tmp_path / "a.safetensors", {"w": np.ones(2)})
    assert list(od.load_tensors(tmp_path)) == ["w"]
    od.save_tensors(tmp_path / "b.safetensors", {"w": np.ones(2)})
    with pytest.raises(FileError, match=r"holds 'a.safetensors', 'b.safetensors'; pass the path"):
        od.load_tensors(tmp_path)


def test_an_index_of_no_tensors_is_empty(tmp_path):
    write_shards(tmp_path, split=())
    assert od.load_tensors(tmp_path) == {}


# ------------------------------------------------------------------ mutations


def mutated_text(rng, text):
    """Some bytes changed, removed, repeated, or replaced by what the format uses."""
    data = bytearray(text)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        start = rng.randrange(len(data) + 1)
        stop = min(len(data), start + rng.choice([0, 1, 1, 2, 8, 40]))
        data[start:stop] = rng.choice(
            [
                bytes(rng.randrange(256) for _ in range(rng.randrange(4))),
                *(b"", b'"', b"{", b"}", b",", b"0", b"9" * 25, b"-1", b"1e9", b"null", b"\xff"),
                *(b"F64", b"BOOL", b"F8_E4M3", b"[", b"]", bytes(data[start:stop]) * 2, b"\\u0061"),
            ]
        )
    return bytes(data)


def mutated_header(rng, header):
    """A header in which one value, or one name, is another one."""
    name = rng.choice([n for n in header if n != "__metadata__"])
    node = header[name]
    number = rng.choice([0, 1, 2, 3, 7, 8, 12, 64, 1 << 31, 1 << 40, HUGE, 1 << 63, -1, 2.5, None])
    kind = rng.randrange(8)
    if kind == 0:
        node["dtype"] = rng.choice(
            ["F64", "F32", "U8", "I8", "BOOL", "BF16", "F4", "F8_E5M2", "X", 1]
        )
    elif kind == 1 and node["shape"]:
        node["shape"][rng.randrange(len(node["shape"]))] = number
    elif kind == 2:
        node["shape"] = rng.choice(
            [[], [number], [number, number], [0, number], number, "x", [[1]]]
        )
    elif kind == 3:
        node["data_offsets"][rng.randrange(2)] = number
    elif kind == 4:
        node["data_offsets"] = [n + rng.choice([-4, -1, 1, 4, 8]) for n in node["data_offsets"]]
    elif kind == 5:
        node.pop(rng.choice(list(node)))
    elif kind == 6:
        header[rng.choice(["x", "", "__metadata__", "é"])] = rng.choice([node, number, {}, [], "x"])
    else:
        header[name] = rng.choice([number, [], {}, "x", [node]])
    return header


def original(rng, path):
    """A small file of some dtypes; its bytes."""
    dtypes = ["f4", "f8", "i8", "?", "u1", "F"]
    arrays = {
        rng.choice(["w", "h.{}.w", "é.{}", "bias.{}"]).format(k): np.ones(
            [rng.randrange(4) for _ in range(rng.randrange(4))], rng.choice(dtypes)
        )
        for k in range(rng.randrange(1, 5))
    }
    od.save_tensors(path, arrays, rng.choice([None, {"format": "np"}]))
    return path.read_bytes()


def mutant(rng, path):
    """The bytes of a file that was mutated, and one of these names, if any, is to blame."""
    data = original(rng, path)
    length = int.from_bytes(data[:8], "little")
    header, body = data[8 : 8 + length], data[8 + length :]
    kind = rng.randrange(5)
    if kind == 0:
        return mutated_text(rng, data), None
    if kind == 1:
        return data[: rng.randrange(len(data))], None
    if kind == 2:
        text = mutated_text(rng, header)
        return len(text).to_bytes(8, "little") + text + body, None
    if kind == 3:
        return mutated_text(rng, data[:8]) + header + body, None
    found = mutated_header(rng, json.loads(header))
    text = as_json(found)
    return len(text).to_bytes(8, "little") + text + body, [*found, "__metadata__"]


def read_or_refused(path, size, names=None):
    """Read a mutant in each way; each gives no more than it has, or an error of its name."""
    for read in (
        lambda: od.load_tensors(path),
        lambda: od.load_tensors(path, mmap=True),
        lambda: od.list_tensors(path),
    ):
        error = None
        try:
            found = read()
        except OdysseyError as raised:
            error = raised
        if error is None:
            assert sum(one.nbytes for one in found.values()) <= size
            str(found)
            outcome = None
            continue
        assert path.name in str(error)
        assert len(str(error)) < 1000
        assert names is None or any(name in str(error) for name in names)
        outcome = type(error)
    return outcome


@pytest.mark.share(100)
@pytest.mark.parametrize("part", range(400))
def test_mutated_files_are_read_or_refused_by_name(path, part):
    rng = random.Random(f"{SEED}.{part}")
    outcomes = set()
    for _ in range(50):
        data, names = mutant(rng, path)
        path.write_bytes(data)
        outcomes.add(read_or_refused(path, len(data), names))
    assert FormatError in outcomes


@pytest.mark.slow
def test_mutated_files_take_no_memory_beyond_their_size(path):
    rng = random.Random(f"{SEED}.7")
    read_or_refused(write_small(path), 1000)  # imports
    for _ in range(300):
        data, _ = mutant(rng, path)
        path.write_bytes(data)
        tracemalloc.start()
        try:
            read_or_refused(path, len(data))
            assert tracemalloc.get_traced_memory()[1] < 150_000 + 50 * len(data)
        finally:
            tracemalloc.stop()


@pytest.mark.share(12)
@pytest.mark.parametrize("part", range(24))
def test_mutated_indexes_are_read_or_refused_by_name(tmp_path, part):
    rng = random.Random(f"{SEED}.{part}")
    index = write_shards(tmp_path)
    text = index.read_bytes()
    for _ in range(30):
        index.write_bytes(mutated_text(rng, text))
        message = ""
        try:
            found = od.load_tensors(index)
        except OdysseyError as error:
            message = str(error)
        if message:
            assert re.search(r"index\.json|[ab]\.safetensors", message)
        else:
            assert sum(array.nbytes for array in found.values()) <= 144

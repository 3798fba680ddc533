"""A file that is cut off, damaged, edited, foreign or of a later version is refused by name."""

import io
import json
import math
import pickle
import re
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, optim
from odyssey.errors import FormatError, OdysseyError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "saved.npz"


def tree(seed=0):
    rng = np.random.default_rng(seed)
    w = Variable(rng.normal(size=3), True)
    optimizer = optim.Adam([w], learning_rate=0.1 * (seed + 1))
    w.grad = np.ones(3)
    optimizer.step()
    return {"w": w, "o": optimizer, "rng": rng, "x": np.arange(2 + 3j), "n": seed + 1, "é": 1.5}


def look(found):
    return [
        found["w"].numpy().tobytes(),
        repr(found["o"].state_dict()),
        repr(found["rng"].bit_generator.state),
        repr([found["x"], found["n"], found["é"]]),
    ]


def loaded_or_refused(path, before, after):
    """Load into a tree; return whether that was refused, and left it as it was."""
    like = tree(1)
    try:
        found = od.load(path, like)
    except OdysseyError:
        assert look(like) == before
        return True
    assert look(found) == after
    return False


@pytest.fixture
def saved(path):
    od.save(path, tree())
    after = look(tree())
    return path.read_bytes(), look(tree(1)), after


@pytest.mark.slow
def test_a_file_cut_off_at_any_length_is_refused(path, saved):
    data, before, after = saved
    for length in [*range(0, len(data), 17), *range(len(data) - 40, len(data))]:
        path.write_bytes(data[:length])
        with pytest.raises(FormatError, match="is empty" if not length else "was cut off"):
            od.load(path)
        assert loaded_or_refused(path, before, after)


def flipped(data, k, bit):
    return data[:k] + bytes([data[k] ^ (1 << bit)]) + data[k + 1 :]


def refusals(path, saved, places):
    data, before, after = saved
    count = 0
    for k, bit in places(len(data)):
        path.write_bytes(flipped(data, k, bit))
        count += loaded_or_refused(path, before, after)
    return count


@pytest.mark.slow
def test_a_flipped_bit_is_refused_or_harmless(path, saved):
    rng = np.random.default_rng(0)
    count = refusals(
        path, saved, lambda n: zip(rng.permutation(n)[:500], rng.integers(0, 8, 500), strict=True)
    )
    assert count > 300


@pytest.mark.soak
def test_any_flipped_bit_is_refused_or_harmless(path, saved):
    assert refusals(path, saved, lambda n: ((k, bit) for k in range(n) for bit in range(8))) > 9000


@pytest.mark.parametrize("seed", range(3))
def test_bytes_that_were_overwritten_are_refused_or_harmless(path, saved, seed):
    data, before, after = saved
    rng = np.random.default_rng(seed)
    for _ in range(60):
        start, length = rng.integers(len(data)), rng.integers(1, 200)
        path.write_bytes(data[:start] + rng.bytes(length) + data[start + length :])
        loaded_or_refused(path, before, after)


def test_a_flipped_bit_of_an_array_is_found_by_its_checksum(path):
    x = np.random.default_rng(0).normal(size=100)
    od.save(path, {"x": x})
    data = path.read_bytes()
    start = data.index(x.tobytes())
    path.write_bytes(flipped(data, start + 333, 5))
    with pytest.raises(FormatError, match=r"was cut off, damaged or edited \(.*CRC-32"):
        od.load(path)


# ------------------------------------------------------------------ other files


class Evil:
    def __reduce__(self):
        return (__import__("os")._exit, (3,))


def _npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


FOREIGN = {
    "text": b"hello",
    "null": b"\0" * 5000,
    "npz": _npz(w=np.ones(3)),
    "npy": _npy(np.ones(3)),
    "pickle": pickle.dumps(Evil()),
    "npz with a pickle": _npz(w=np.array([Evil()], object)),
    "empty": b"",
    "zip without members": b"PK\x05\x06" + b"\0" * 18,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_of_another_program_is_refused(path, name):
    path.write_bytes(FOREIGN[name])
    for like in (None, {"w": Variable(np.zeros(3))}):
        with pytest.raises(FormatError, match=r"od\.save|is empty"):
            od.load(path, like)


# ------------------------------------------------------------------ edited files


def edit(path, change, **members):
    """Write a file again with another text, or other members."""
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    text = json.loads(held.pop("odyssey.json"))
    changed = change(text)
    text = text if changed is None else changed
    raw = text if isinstance(text, bytes) else json.dumps(text).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {"odyssey.json": raw, **held, **members}.items():
            archive.writestr(name, data)


X = "['x']"


def setting(*keys):
    """A change of the text: what stands at ``keys`` becomes the last one."""
    *way, last, value = keys

    def change(text):
        for key in way:
            text = text[key]
        text[last] = value

    return change


ARRAY = ("entries", X, "array")
EDITS = {
    "no JSON": lambda text: b"{",
    "not UTF-8": lambda text: b"\xff",
    "a list": lambda text: [],
    "a number": lambda text: 3,
    "deep": lambda text: b"[" * 100_000,
    "many digits": lambda text: b'{"format": ' + b"1" * 5000 + b"}",
    "no format": lambda text: {"entries": {}},
    "format 0": setting("format", 0),
    "format true": setting("format", True),
    "format text": setting("format", "1"),
    "entries list": setting("entries", []),
    "count": setting("arrays", 9),
    "no such member": setting(*ARRAY, "member", "other.npy"),
    "the text as member": setting(*ARRAY, "member", "odyssey.json"),
    "member list": setting(*ARRAY, "member", []),
    "no dtype": setting(*ARRAY, "dtype", None),
    "object dtype": setting(*ARRAY, "dtype", "object"),
    "dtype list": setting(*ARRAY, "dtype", ["i4"]),
    "another dtype": setting(*ARRAY, "dtype", "int64"),
    "big": setting(*ARRAY, "big", True),
    "fortran": setting(*ARRAY, "fortran", True),
    "shape": setting(*ARRAY, "shape", [3]),
    "flat shape": setting(*ARRAY, "shape", [4]),
    "negative shape": setting(*ARRAY, "shape", [-2, -2]),
    "huge shape": setting(*ARRAY, "shape", [10**30, 0]),
    "shape that is huge": setting(*ARRAY, "shape", [10**15]),
    "many axes": setting(*ARRAY, "shape", [1] * 100),
    "shape text": setting(*ARRAY, "shape", "22"),
    "shape float": setting(*ARRAY, "shape", [2.0, 2]),
    "kind": setting("entries", X, {"code": "import os"}),
    "two kinds": setting("entries", X, {"int": "0x1", "array": 2}),
    "no kind": setting("entries", X, {}),
    "same as none": setting("entries", X, {"same": "there"}),
    "same as itself": setting("entries", X, {"same": X}),
    "same as a list": setting("entries", X, {"same": []}),
    "int": setting("entries", X, {"int": "one"}),
    "int of a number": setting("entries", X, {"int": 1}),
    "float": setting("entries", X, {"float": "7ff8"}),
    "float of a number": setting("entries", X, {"float": 2}),
    "complex": setting("entries", X, {"complex": [1]}),
    "dict": setting("entries", X, {"dict": [[1]]}),
    "dict of a list": setting("entries", X, {"dict": [[[1], 2]]}),
    "Variable": setting("entries", X, {"Variable": 3}),
    "optimizer": setting("entries", X, {"optimizer": ["SGD"]}),
    "optimizer class": setting("entries", X, {"optimizer": [3, {}]}),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_file_that_was_edited_is_refused(path, name):
    od.save(path, {"x": np.arange(4.0).reshape(2, 2)})
    edit(path, EDITS[name])
    with pytest.raises(FormatError, match=r"load: '.*' (was cut off, damaged or edited|has an)"):
        od.load(path)
    like = {"x": np.zeros((2, 2))}
    with pytest.raises(OdysseyError):
        od.load(path, like)


def test_a_later_version_says_so(path):
    od.save(path, 1)
    edit(path, setting("format", 2))
    with pytest.raises(FormatError, match=r"is of format 2, and this version .* install a later"):
        od.load(path)


def test_members_that_the_text_does_not_name_are_refused(path):
    od.save(path, 1)
    edit(path, lambda text: None, **{"more.npy": _npy(np.ones(2))})
    with pytest.raises(FormatError, match="other members"):
        od.load(path)


def test_a_member_that_is_another_array_than_the_text_says_is_refused(path):
    od.save(path, {"x": np.ones(4)})
    edit(path, lambda text: None, **{"['x'].npy": _npy(np.ones(4, np.int64))})
    with pytest.raises(FormatError, match="begins as another array"):
        od.load(path)


def test_members_that_are_compressed_are_refused_so_that_none_outgrows_the_file(path):
    od.save(path, {"x": np.zeros(100_000)})
    with zipfile.ZipFile(path) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in held.items():
            archive.writestr(name, data)
    with pytest.raises(FormatError, match="is compressed"):
        od.load(path)


def test_bytes_that_are_no_flags_are_refused(path):
    od.save(path, np.array([True, False, True]))
    member = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".npy")]
        member = archive.read(name)
    edit(path, lambda text: None, **{name: member[:-1] + b"\x07"})
    with pytest.raises(FormatError, match="flags that are neither"):
        od.load(path)


def of_generator(*keys):
    return setting("entries", "['rng']", "generator", 1, "dict", *keys)


GENERATORS = {
    "position": (np.random.MT19937, [1, 1, "dict", 1, 1, 10**6]),
    "position below": (np.random.MT19937, [1, 1, "dict", 1, 1, -1]),
    "position in a buffer": (np.random.Philox, [3, 1, 10**6]),
    "word too large": (np.random.PCG64, [1, 1, "dict", 0, 1, {"int": hex(1 << 130)}]),
    "word below": (np.random.PCG64, [1, 1, "dict", 0, 1, -1]),
    "text": (np.random.PCG64, [1, 1, "dict", 0, 1, "one"]),
    "other generator": (np.random.PCG64, [0, 1, "SFC64"]),
    "no state": (np.random.PCG64, [1, 1, None]),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_a_state_that_a_generator_cannot_have_is_refused(path, name):
    kind, way = GENERATORS[name]
    od.save(path, {"rng": np.random.Generator(kind(1)), "w": Variable([1.0])})
    edit(path, of_generator(*way))
    rng, w = np.random.Generator(kind(2)), Variable([0.0])
    before = repr(rng.bit_generator.state)
    with pytest.raises(FormatError, match=r"load: \['rng'\]: what was saved is not a state"):
        od.load(path, {"rng": rng, "w": w})
    assert repr(rng.bit_generator.state) == before
    assert w.item() == 0.0


STATES = {
    "settings": (["dict", 0, 1], 3),
    "a rate below zero": (["dict", 0, 1, "dict", 0, 1], -1.0),
    "a rate of text": (["dict", 0, 1, "dict", 0, 1], "fast"),
    "no groups": (["dict", 1, 1], []),
    "no state": (["dict", 2, 1], []),
    "state of text": (["dict", 2, 1, 0, "dict", 0, 1], "x"),
    "steps below zero": (["dict", 2, 1, 0, "dict", 0, 1], -3),
    "a list": ([], [1, 2]),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_that_an_optimizer_cannot_have_is_refused(path, name):
    way, value = STATES[name]
    od.save(path, tree())
    count = json.loads(zipfile.ZipFile(path).read("odyssey.json"))["arrays"]
    full = ["entries", "['o']", "optimizer", 1, *way]
    edit(path, setting(*full, value))
    edit(path, setting("arrays", count))
    like = tree(1)
    before = look(like)
    with pytest.raises(OdysseyError, match=r"^load: "):
        od.load(path, like)
    assert look(like) == before


def test_what_numpy_cannot_write_json_can(path):
    od.save(path, [math.inf, 10**400])
    raw = zipfile.ZipFile(path).read("odyssey.json").decode()

    def refuse(name):
        raise AssertionError(name)

    json.loads(raw, parse_constant=refuse)
    assert od.load(path, [1.0, 1]) == [math.inf, 10**400]


def _nested_archive(text, arrays, count):
    """Bytes of an archive whose members each contain all members behind them."""
    names = [f"{k}.npy" for k in range(count)]
    data, entries = arrays, []
    for name in reversed(names):
        local = zipfile.ZipInfo(name)
        local.CRC, local.file_size = zlib.crc32(data), len(data)
        local.compress_size = len(data)
        data = local.FileHeader(zip64=False) + data
        entries.append((local, len(data)))
    first = io.BytesIO()
    with zipfile.ZipFile(first, "w") as archive:
        archive.writestr("odyssey.json", text)
        start = archive.fp.tell()
        archive.fp.write(data)
        archive.start_dir = archive.fp.tell()
        for local, size in entries:
            local.header_offset = start + len(data) - size
            archive.filelist.append(local)
            archive.NameToInfo[local.filename] = local
        archive._didModify = True
    return first.getvalue()


def _peak(load):
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as caught:
            load()
        return str(caught.value), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_members_that_share_bytes_are_refused(path):
    text = json.dumps({"format": 1, "arrays": 300, "entries": {}})
    path.write_bytes(_nested_archive(text, bytes(40_000), 300))
    with zipfile.ZipFile(path) as archive:
        assert len(archive.read("0.npy")) > len(archive.read("299.npy"))
    message, peak = _peak(lambda: od.load(path))
    assert "two members share bytes" in message
    assert peak < 1 << 20


def test_a_member_that_many_entries_name_is_refused(path):
    od.save(path, {"x": np.ones(20_000)})

    def repeat(text):
        (entry,) = text["entries"].values()
        text["entries"] = {f"['{k}']": entry for k in range(200)}

    edit(path, repeat)
    message, peak = _peak(lambda: od.load(path))
    assert re.search(r"two entries are .*\['x'\]\.npy", message)
    assert peak < 10 * path.stat().st_size


def test_a_state_that_names_a_member_many_times_is_refused(path):
    od.save(path, {"x": [np.ones(3)], "y": np.ones(2)})
    edit(
        path,
        lambda text: text["entries"].update(
            {"['y']": {"tuple": [{"array": text["entries"]["['y']"]["array"]} for _ in range(5)]}}
        ),
    )
    with pytest.raises(FormatError, match="two entries are"):
        od.load(path)


def test_paths_that_stand_for_a_later_one_share_its_array(path):
    x = np.ones(20_000)
    od.save(path, {"x": x})

    def repeat(text):
        ((first, entry),) = text["entries"].items()
        others = {f"['{k}']": {"same": first} for k in range(200)}
        text["entries"] = {**others, first: entry}

    edit(path, repeat)
    tracemalloc.start()
    found = od.load(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(map(id, found.values()))) == 1
    assert peak < 10 * path.stat().st_size


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_a_text_that_is_nested_too_deeply_is_refused(path, depth):
    text = '{"format": 1, "arrays": 0, "entries": {"x": ' + "[" * depth + "]" * depth + "}}"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("odyssey.json", text)
    with pytest.raises(FormatError, match="RecursionError"):
        od.load(path)


def test_a_member_that_ends_behind_the_file_is_refused(path):
    od.save(path, {"x": np.ones(4)})
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 1)  # the entry of the array
    data[at + 20 : at + 28] = struct.pack("<II", 1 << 20, 1 << 20)
    path.write_bytes(data)
    with pytest.raises(FormatError, match="ends after the end of the file"):
        od.load(path)

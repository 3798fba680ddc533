"""Tensor files: arrays of every dtype and layout, maps, casts, and what other readers see."""

import gc
import sys
from fractions import Fraction
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

import odyssey as od
from odyssey.errors import (
    DeviceMemoryError,
    DTypeError,
    FileError,
    OdysseyError,
    SettingError,
    UntrackedError,
)

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NATIVE = [np.dtype(c) for c in "?bhilqBHILQefdF"]
DTYPES = [*NATIVE, BFLOAT16]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def numbers(dtype, shape):
    """Any bits, as numbers of a dtype: NaNs and infinities too."""
    size = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    raw = raw % 2 if dtype.kind == "b" else raw
    return raw.view(dtype).reshape(shape)


def bits(array):
    return np.ascontiguousarray(array).tobytes()


def as_stored(path):
    """What the package's reader finds: dtype, shape and bytes by name."""
    return {
        name: (entry["dtype"], tuple(entry["shape"]), bytes(entry["data"]))
        for name, entry in safetensors.deserialize(path.read_bytes())
    }


LAYOUTS = {
    "C": lambda a: a,
    "Fortran": lambda a: np.asfortranarray(a),
    "transposed": lambda a: a.T,
    "backwards": lambda a: a[::-1, ::-1],
    "strided": lambda a: a[1::2, ::3],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "one column": lambda a: a[:, 2],
    "no rows": lambda a: a[:0],
    "one number": lambda a: a[3, 4],
    "0-d": lambda a: a[3:4, 4:5].reshape(()),
    "foreign bytes": lambda a: a if a.dtype == BFLOAT16 else a.astype(a.dtype.newbyteorder(">")),
    "unaligned": lambda a: np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: f"{d.name}-{d.char}")
def test_each_dtype_in_each_layout_comes_back_and_is_read_by_others(path, dtype):
    arrays = {name: layout(numbers(dtype, (6, 8))) for name, layout in LAYOUTS.items()}
    od.save_tensors(path, arrays)
    stored, found, mapped = as_stored(path), od.load_tensors(path), od.load_tensors(path, mmap=True)
    assert stored.keys() == found.keys() == mapped.keys() == arrays.keys()
    for name, array in arrays.items():
        native = np.asarray(array, array.dtype.newbyteorder("="))
        assert stored[name][1:] == (native.shape, bits(native)), name
        for one in (found[name], mapped[name]):
            assert one.dtype == native.dtype
            assert one.dtype.isnative
            assert one.shape == native.shape
            assert bits(one) == bits(native), name
        assert found[name].flags.writeable
        assert not mapped[name].flags.writeable


@pytest.mark.parametrize("mmap", [False, True], ids=["read", "mapped"])
def test_files_of_the_package_are_read(path, mmap):
    arrays = {d.char: numbers(d, (3, 5)) for d in NATIVE} | {
        "0-d": np.array(2.5),
        "é\n": np.ones(0),
    }
    safetensors.numpy.save_file(arrays, path, {"format": "np"})
    found = od.load_tensors(path, mmap=mmap)
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert bits(found[name]) == bits(array)
        assert found[name].shape == array.shape


def test_bytes_are_those_of_the_package(path):
    arrays = {f"{d.name}.{k}": numbers(d, (k, 3)) for d in DTYPES for k in range(3)}
    arrays |= {'q"uo\\te': np.ones(1), "é\n\x07": np.ones((2, 2)), "": np.zeros((0, 5))}
    for metadata in (None, {"a": 'text "\n'}):
        od.save_tensors(path, arrays, metadata)
        assert path.read_bytes() == safetensors.numpy.save(arrays, metadata)


@st.composite
def views(draw):
    """An array that is a view of another one: sliced, reversed, transposed, of any byte order."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 5), max_size=4))
    base = numbers(dtype, tuple(shape))
    if dtype != BFLOAT16 and draw(st.booleans()):
        base = base.astype(dtype.newbyteorder(">"))
    steps = [draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in shape]
    view = base[tuple(slice(None, None, step) for step in steps)]
    return np.transpose(view, draw(st.permutations(range(len(shape)))))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(arrays=st.lists(views(), max_size=4), aliased=st.booleans())
def test_views_of_any_layout_come_back(tmp_path_factory, arrays, aliased):
    path = tmp_path_factory.mktemp("views") / "views.safetensors"
    named = {f"v{k}": array for k, array in enumerate(arrays)}
    named |= {f"w{k}": array for k, array in enumerate(arrays * aliased)}
    od.save_tensors(path, named)
    found, stored = od.load_tensors(path), as_stored(path)
    assert found.keys() == named.keys()
    for name, array in named.items():
        native = array.astype(array.dtype.newbyteorder("="))
        assert found[name].shape == array.shape
        assert bits(found[name]) == bits(native) == stored[name][2]


def test_an_array_with_two_names_is_read_as_two(path):
    x = np.arange(3.0)
    od.save_tensors(path, {"a": x, "b": x, "c": x[::-1]})
    found = od.load_tensors(path)
    found["a"][0] = 7
    assert found["b"].tolist() == [0, 1, 2]
    assert found["c"].tolist() == [2, 1, 0]


def test_names_are_paths_with_dots(path):
    od.save_tensors(path, {"h": [{"w": np.ones(2)}, {"w": od.Variable([2.0])}], 3: np.float32(1)})
    found = od.load_tensors(path)
    assert list(found) == ["3", "h.0.w", "h.1.w"]
    assert found["3"].dtype == np.float32


def test_names_are_in_the_order_of_their_numbers(path):
    od.save_tensors(path, {f"h.{k}.w": np.ones(1) for k in (10, 2, 1)} | {"h": np.ones(1, bool)})
    assert list(od.load_tensors(path)) == ["h", "h.1.w", "h.2.w", "h.10.w"]


# ------------------------------------------------------------------ what cannot be saved


@pytest.mark.parametrize(
    ("tensors", "kind", "match"),
    [
        ({"a": np.ones(1), "n": 3}, DTypeError, r"\['n'\] is an int, and a safetensors file"),
        ({"a": [np.ones(1), "x"]}, DTypeError, r"\['a'\]\[1\] is a str"),
        ({"a": None}, DTypeError, r"\['a'\] is a NoneType"),
        ({"a": np.ones(1, complex)}, DTypeError, r"\['a'\] is of complex128, a dtype that"),
        ({"a": np.ones(1, "datetime64[s]")}, DTypeError, r"\['a'\]"),
        ({"a": np.array([object()])}, DTypeError, r"\['a'\]"),
        ({"a": np.ma.ones(2)}, DTypeError, r"\['a'\]"),
        ({"a": np.ones(1, ml_dtypes.float8_e4m3fn)}, DTypeError, r"\['a'\].* float8_e4m3fn"),
        (np.ones(2), DTypeError, "tensors with names, and this is an ndarray"),
        ({"a.b": np.ones(1), "a": {"b": np.ones(1)}}, SettingError, "both be called 'a.b'"),
        ({0: np.ones(1), "0": np.ones(1)}, SettingError, "both be called '0'"),
        ({"__metadata__": np.ones(1)}, SettingError, "can be called __metadata__"),
        ({"\ud800": np.ones(1)}, SettingError, "not text of Unicode"),
    ],
)
def test_what_no_file_can_hold_is_refused_and_nothing_is_written(path, tensors, kind, match):
    path.write_bytes(b"old")
    with pytest.raises(kind, match=f"save_tensors: .*{match}"):
        od.save_tensors(path, tensors)
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_a_result_that_is_recorded_is_refused(path):
    w = od.Variable([1.0], requires_grad=True)
    with od.GradientTape():
        y = w * 2
    with pytest.raises(UntrackedError, match=r"save_tensors: \['y'\]"):
        od.save_tensors(path, {"y": y})
    assert not path.exists()


@pytest.mark.parametrize("metadata", [{"a": 1}, {1: "a"}, ["a"], "a"], ids=str)
def test_metadata_are_texts(path, metadata):
    with pytest.raises(DTypeError, match="save_tensors: metadata="):
        od.save_tensors(path, {}, metadata)
    with pytest.raises(SettingError, match="not text of Unicode"):
        od.save_tensors(path, {}, {"a": "\ud800"})
    assert not path.exists()


@pytest.mark.parametrize("ending", ["npz", "bin", "safetensors.npz"])
def test_other_endings_are_refused(tmp_path, ending):
    with pytest.raises(SettingError, match=r"does not end in \.safetensors; pass '"):
        od.save_tensors(tmp_path / f"x.{ending}", {})


def test_a_folder_and_a_missing_folder_are_refused(tmp_path):
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(
        FileError, match=r"save_tensors: .*directory; pass the path of a file in it"
    ):
        od.save_tensors(tmp_path / "x.safetensors", {})
    with pytest.raises(FileError, match=r"save_tensors: .*make its folder first"):
        od.save_tensors(tmp_path / "no" / "x.safetensors", {})


def test_a_snapshot_is_saved_while_compiled_steps_run(path):
    w = od.Variable(np.zeros(1000), requires_grad=True)
    optimizer = od.optim.SGD([w], 1.0)

    @od.compile
    def step():
        with od.GradientTape() as tape:
            loss = -w.sum()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    for k in range(1, 6):
        step()
        od.save_tensors(path, {"w": w})
        assert set(od.load_tensors(path)["w"].tolist()) == {float(k)}


# ------------------------------------------------------------------ maps


def test_a_map_is_read_only_and_lives_as_long_as_its_arrays(path):
    od.save_tensors(path, {"w": np.arange(6.0).reshape(2, 3), "b": np.ones(2, np.float32)})
    found = od.load_tensors(path, mmap=True)
    view = found.pop("w")[1:]
    del found
    path.unlink()
    gc.collect()
    assert view.tolist() == [[3, 4, 5]]
    with pytest.raises(ValueError, match="read-only"):
        view[0, 0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        view.flags.writeable = True


def test_a_map_takes_no_memory(path):
    resource = pytest.importorskip("resource")
    od.save_tensors(path, {"w": np.zeros(1 << 22)})  # 32 MB
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    x = np.ones(1 << 10)
    mapped = od.load_tensors(path, mmap=True)["w"]
    assert mapped[:1024] @ x == 0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 4096  # kB


def test_a_variable_and_a_program_read_the_map_where_it_lies(path):
    array = np.arange(12.0).reshape(3, 4)
    od.save_tensors(path, {"w": array})
    mapped = od.load_tensors(path, mmap=True)["w"]
    w = od.Variable(mapped)
    call = od.compile(lambda x: od.ops.tanh(x @ w) + 1)
    x = np.ones((2, 3)) / 64
    for _ in range(4):
        np.testing.assert_allclose(call(x).numpy(), np.tanh(x @ array) + 1, rtol=1e-14)
    assert np.shares_memory(w.numpy(), mapped)
    w.assign(np.zeros((3, 4)))  # gets an array of its own: the file is not written to
    assert not np.shares_memory(w.numpy(), mapped)
    assert od.load_tensors(path)["w"].tolist() == mapped.tolist() == array.tolist()


def test_a_tensor_off_its_boundary_is_copied_from_a_map(path):
    od.save_tensors(path, {"b": np.array([1], np.uint8), "w": np.array([1.5, 2.5])})
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].rstrip() + b" "
    header += b" " * (-(len(header) + 3) % 8)  # ends at 3 modulo 8
    path.write_bytes(len(header).to_bytes(8, "little") + header + data[8 + length :])
    found = od.load_tensors(path, mmap=True)
    assert found["w"].tolist() == [1.5, 2.5]
    assert found["w"].flags.aligned
    assert not found["w"].flags.writeable


# ------------------------------------------------------------------ casts


def nearest(x, dtype):
    """The nearest number of a dtype to a Fraction, ties to the even one; by exact arithmetic."""
    digits, least = {"float16": (11, -24), "bfloat16": (8, -133), "float32": (24, -149)}[dtype]
    if not x:
        return x
    exponent = 0
    while abs(x) / Fraction(2) ** exponent >= Fraction(2) ** digits:
        exponent += 1
    while exponent > least and abs(x) / Fraction(2) ** exponent < Fraction(2) ** (digits - 1):
        exponent -= 1
    return round(x / Fraction(2) ** exponent) * Fraction(2) ** exponent


CORNERS = {
    "float64": [
        *(1 + 2**-8 + 2**-40, 1 + 2**-8, 1 + 3 * 2**-8, 1 - 2**-9 - 2**-50, 2**-24 * 1.5, 0.1),
        *(-(1 + 2**-8 + 2**-40), -(1 + 2**-8 - 2**-40), 1e-40, 2**-130 * 1.1, 65503.9, 3 + 2**-11),
    ],
    "float32": [1 + 2**-8 + 2**-23, 1 + 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, 0.1, 2**-25 * 1.5, -7.7],
    "float16": [1 + 2**-8, 1 + 3 * 2**-8, 0.1, -2.3, 2**-24],
    "bfloat16": [1 + 2**-7, 0.1, -2.3, 2**-24, 2**-25 * 1.5],
    "int64": [2**53 + 1, 2**60 + 2**52 + 1, -(2**60) - 2**52 - 1, 2**60 + 2**52, 3, -(2**63)],
    "uint64": [2**64 - 1, 2**63 + 2**55 + 1, 2**63 + 2**55, 2**56 + 2**48 + 1],
    "int32": [2**24 + 1, 2**30 + 2**22 + 1, 2**30 + 2**22, -3],
}


@pytest.mark.parametrize("target", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("source", CORNERS)
def test_casts_round_once_to_nearest_even(path, source, target):
    array = (
        np.array(CORNERS[source], od.Variable(0.0, dtype="bfloat16").dtype)
        if (source == "bfloat16")
        else np.array(CORNERS[source], source)
    )
    if target == "float16":
        array = array[np.abs(array.astype(np.float64)) < 65504]
    od.save_tensors(path, {"x": array})
    found = od.load_tensors(path, dtype={"x": target}, mmap=len(array) % 2 == 0)["x"]
    assert found.dtype.name == target
    exact = [Fraction(int(v)) if array.dtype.kind in "iu" else Fraction(float(v)) for v in array]
    assert [Fraction(float(v)) for v in found] == [nearest(v, target) for v in exact]


def test_casts_in_blocks_equal_casts_of_all(path, monkeypatch):
    from odyssey.saving import tensor_files

    monkeypatch.setattr(tensor_files, "_CHUNK_BYTES", 56)
    x = np.random.default_rng(0).normal(size=(7, 5, 3)).astype(np.float32)
    od.save_tensors(path, {"x": x})
    assert bits(od.load_tensors(path, dtype="float16")["x"]) == bits(x.astype(np.float16))


def test_one_dtype_casts_floating_tensors_only(path):
    arrays = {"f": np.ones(2, np.float32), "i": np.arange(3), "b": np.ones(1, bool)}
    od.save_tensors(path, {**arrays, "c": np.ones(1, np.complex64), "h": np.ones(1, BFLOAT16)})
    found = od.load_tensors(path, dtype="float64")
    assert {n: a.dtype.name for n, a in found.items()} == {
        **{"f": "float64", "i": "int64", "b": "bool", "c": "complex64", "h": "float64"},
    }
    named = od.load_tensors(path, dtype={"i": "float32", ...: BFLOAT16})
    assert {n: a.dtype.name for n, a in named.items()} == {
        **{"f": "bfloat16", "i": "float32", "b": "bool", "c": "complex64", "h": "bfloat16"},
    }


@pytest.mark.parametrize(
    ("number", "source", "target"),
    [
        (65520.0, "float32", "float16"),
        (-1e300, "float64", "bfloat16"),
        (1e39, "float64", "float32"),
        (300, "int64", "int8"),
        (-1, "int64", "int32"),
        (70000, "int64", "float16"),
    ],
    ids=str,
)
def test_a_number_that_the_dtype_lacks_is_refused_by_name(path, number, source, target):
    od.save_tensors(path, {"x": np.array([1, number], source), "y": np.ones(2)})
    if (number, target) == (-1, "int32"):
        assert od.load_tensors(path, dtype={"x": target})["x"].tolist() == [1, -1]
        return
    with pytest.raises(SettingError, match=rf"tensor 'x' of .*model.safetensors' has .* {target}"):
        od.load_tensors(path, dtype={"x": target})


def test_booleans_are_cast_by_name(path):
    od.save_tensors(path, {"x": np.array([True, False])})
    assert od.load_tensors(path, dtype={"x": "float32"})["x"].tolist() == [1, 0]
    assert od.load_tensors(path, dtype={"x": "bool"})["x"].tolist() == [True, False]


@pytest.mark.parametrize("dtype", [None, "float64"])
def test_a_machine_of_the_other_byte_order_reads_by_swapping(path, monkeypatch, dtype):
    from odyssey.saving import tensor_files

    arrays = {d.char: numbers(d, (3, 4)) for d in DTYPES if d.char not in "ef"}
    arrays["V"] = np.array([1.5, -2.0], BFLOAT16)
    od.save_tensors(path, arrays)
    expected = od.load_tensors(path, dtype=dtype)
    monkeypatch.setattr(tensor_files, "sys", SimpleNamespace(byteorder="big"))
    for mmap in (False, True):
        found = od.load_tensors(path, dtype=dtype, mmap=mmap)
        for name in arrays:
            assert found[name].dtype == expected[name].dtype
            assert bits(found[name]) == bits(expected[name])


def test_a_tensor_that_is_too_large_for_memory_is_refused_by_name(path, monkeypatch):
    from odyssey.saving import tensor_files

    od.save_tensors(path, {"w": np.ones(2)})

    def refuse(*args):
        raise MemoryError

    monkeypatch.setattr(tensor_files.np, "empty", refuse)
    with pytest.raises(DeviceMemoryError, match=r"tensor 'w' of .* takes 16 bytes.*mmap=True"):
        od.load_tensors(path)
    assert od.load_tensors(path, mmap=True)["w"].tolist() == [1, 1]


def test_infinities_and_nans_stay(path):
    x = np.array([np.inf, -np.inf, np.nan])
    od.save_tensors(path, {"x": x})
    for dtype in ("float16", "bfloat16", "float32"):
        found = od.load_tensors(path, dtype=dtype)["x"].astype(float)
        np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize(
    ("dtype", "kind", "match"),
    [
        ("int32", SettingError, "dtype=int32 for all tensors is not a floating dtype"),
        ("float7", DTypeError, "dtype='float7' is not one of numbers"),
        ({"w": "int32"}, DTypeError, "'w' is of float64, which dtype= would cast to int32"),
        ({"v": "float32"}, SettingError, "dtype= names 'v', and no tensor"),
        ({"w": "float32", "{k}": "float16"}, SettingError, r"dtype= names '\{k\}'"),
        ({3: "float32"}, DTypeError, "dtype= has the key 3"),
        ({"n.{k}": "int32", "n.1": "int16"}, SettingError, "gives 'n.1' two dtypes"),
    ],
)
def test_dtypes_that_make_no_sense_are_refused_by_name(path, dtype, kind, match):
    od.save_tensors(path, {"w": np.ones(2), "n": [np.arange(2), np.arange(2)]})
    with pytest.raises(kind, match=f"load_tensors: .*{match}"):
        od.load_tensors(path, dtype=dtype)


# ------------------------------------------------------------------ extras


def test_without_the_package_the_extra_is_named(path, monkeypatch):
    od.save_tensors(path, {"h": np.ones(2, BFLOAT16), "w": np.ones(2)})
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ml_dtypes", None)
        assert list(od.load_tensors(path, names=["w"])) == ["w"]
        with pytest.raises(DTypeError, match=r"'h' of .*bfloat16.*pip install \"odyssey\[files\]"):
            od.load_tensors(path)
        assert od.list_tensors(path)["h"].dtype == "bfloat16"
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for act in (
        lambda: od.load_tensors(path),
        lambda: od.list_tensors(path),
        lambda: od.save_tensors(path, {}),
        lambda: od.save(path, {}),
        lambda: od.load(path),
    ):
        with pytest.raises(OdysseyError, match=r'safetensors.*pip install "odyssey\[files\]"'):
            act()


def test_paths_that_are_no_paths_are_refused():
    with pytest.raises(DTypeError, match="load_tensors: path=3 is not a path"):
        od.load_tensors(3)
    with pytest.raises(SettingError, match="null character"):
        od.list_tensors("a\0")
    with pytest.raises(DTypeError, match="load_tensors: mmap='yes' is not a flag"):
        od.load_tensors("a.safetensors", mmap="yes")


def test_no_graph_reads_files(path):
    od.save_tensors(path, {"w": np.ones(2)})
    with pytest.raises(OdysseyError, match="load_tensors: called"):
        od.compile(lambda x: x + od.load_tensors(path)["w"], fullgraph=True).precompile(np.ones(2))
    with pytest.raises(OdysseyError, match="save_tensors: in a function that vmap runs"):
        od.vmap(lambda x: od.save_tensors(path, {}))(np.ones(2))

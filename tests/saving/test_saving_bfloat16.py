"""Saving of bfloat16, which NumPy's format does not know: its bits, and its name."""

import sys

import ml_dtypes
import numpy as np
import pytest

import odyssey as od
from odyssey.errors import DTypeError

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "halves.npz"


def every_half():
    return np.arange(1 << 16, dtype=np.uint16).view(BFLOAT16)


@pytest.mark.parametrize(
    "array",
    [
        every_half(),
        every_half().reshape(256, 256).T,
        every_half()[::3],
        np.zeros((0, 3), BFLOAT16),
        np.array(1.5, BFLOAT16),
    ],
    ids=["every bit", "Fortran order", "strided", "empty", "scalar"],
)
def test_arrays_of_bfloat16_come_back_bit_by_bit(path, array):
    od.save(path, {"a": array, "w": od.Variable(array)})
    found = od.load(path)
    assert len(found) == 2
    for one in found.values():
        assert one.dtype == BFLOAT16
        assert one.shape == array.shape
        np.testing.assert_array_equal(one.view(np.uint16), array.view(np.uint16))


def test_leaves_of_bfloat16_are_loaded_into_leaves(path):
    saved = {
        "w": od.Variable([1.5, -2.0], requires_grad=True, dtype="bfloat16"),
        "s": BFLOAT16.type(3),
    }
    od.save(path, saved)
    like = {
        "w": od.Variable([0.0, 0.0], requires_grad=True, dtype="bfloat16"),
        "s": BFLOAT16.type(0),
    }
    found = od.load(path, like=like)
    assert found["w"] is like["w"]
    assert found["w"].numpy().tolist() == [1.5, -2.0]
    assert type(found["s"]) is ml_dtypes.bfloat16
    assert found["s"] == 3
    other = {**like, "w": od.Variable([0.0, 0.0], dtype=np.float16)}
    with pytest.raises(DTypeError, match="was of bfloat16 when it was saved, and is of float16"):
        od.load(path, like=other)


def test_numpy_reads_the_bits(path):
    od.save(path, {"a": np.array([1.0, -2.0], BFLOAT16)})
    with np.load(path) as file:
        (member,) = (file[name] for name in file.files if name != "odyssey.json")
    assert member.dtype == np.uint16
    assert member.view(BFLOAT16).tolist() == [1.0, -2.0]


def test_loading_without_ml_dtypes_names_the_extra(path, monkeypatch):
    od.save(path, {"a": np.ones(3, BFLOAT16)})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DTypeError, match=r'halves.npz.*pip install "odyssey\[half\]"'):
        od.load(path)

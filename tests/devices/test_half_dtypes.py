"""Half-precision dtypes, and predicates on dtypes."""

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from odyssey.devices.half_dtypes import (
    bfloat16,
    is_bfloat16,
    is_floating,
    is_half,
    is_inexact,
    is_number_dtype,
    named_dtype,
)
from odyssey.errors import DTypeError

BF16 = np.dtype(ml_dtypes.bfloat16)


def test_bfloat16_is_the_dtype_of_ml_dtypes():
    assert bfloat16() is BF16
    assert named_dtype("bfloat16") is BF16
    assert named_dtype("float32") == "float32"


@pytest.mark.parametrize(
    ("dtype", "bfloat", "half", "floating", "inexact", "number"),
    [
        (BF16, True, True, True, True, True),
        ("e", False, True, True, True, True),
        ("f", False, False, True, True, True),
        ("D", False, False, False, True, True),
        ("i", False, False, False, False, True),
        ("?", False, False, False, False, True),
        ("V2", False, False, False, False, False),
        ("M8[s]", False, False, False, False, False),
        (ml_dtypes.float8_e4m3fn, False, False, False, False, False),
        (">f2", False, True, True, True, True),
    ],
    ids=str,
)
def test_predicates_tell_bfloat16_from_structured_dtypes(
    dtype, bfloat, half, floating, inexact, number
):
    dtype = np.dtype(dtype)
    assert is_bfloat16(dtype) is bfloat
    assert is_half(dtype) is half
    assert is_floating(dtype) is floating
    assert is_inexact(dtype) is inexact
    assert is_number_dtype(dtype) is number


def test_other_dtypes_of_ml_dtypes_are_no_numbers_whatever_their_kind():
    for name in ("float8_e4m3fn", "float8_e5m2", "int4"):
        assert not is_number_dtype(np.dtype(getattr(ml_dtypes, name)))


def test_bfloat16_without_ml_dtypes_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(DTypeError, match=r'pip install "odyssey\[half\]"'):
        bfloat16()


@pytest.mark.slow
def test_import_of_odyssey_does_not_import_ml_dtypes():
    code = "import sys, odyssey; sys.exit('ml_dtypes' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

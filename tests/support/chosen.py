"""What ordinary runs take of walks that soaks take in full: by hashes of names, ever the same."""

from zlib import crc32

import pytest

from odyssey.ops import OPS
from support.cases import EVERY, tracked

FLOATS = ("float64", "float32")
OTHERS = ("float16", "complex64", "complex128", "int32", "int64", "bool")
BY_ROW = {name: {} for name in OPS}
for case, (its_row, its_sample) in EVERY.items():
    BY_ROW[case.rpartition("-")[0]][case] = (its_row, its_sample)


def drawn(name, one_in):
    """Whether a case is among those that are taken."""
    return crc32(name.encode()) % one_in == 0


def picked(name, several):
    """The one of several that a case is walked with."""
    return several[crc32(name.encode()[::-1]) % len(several)]


def _first(names):
    return min(names, key=lambda name: crc32(name.encode()))


DERIVED = {
    row: [case for case, found in cases.items() if tracked(*found)] for row, cases in BY_ROW.items()
}
# One sample of each row; for derivatives, of one row in six.
ONE = {row: _first(cases) for row, cases in BY_ROW.items()}
ONE_DERIVED = {row: _first(cases) for row, cases in DERIVED.items() if cases and drawn(row, 6)}
some_rows = pytest.mark.parametrize("row", [OPS[name] for name in ONE_DERIVED], ids=ONE_DERIVED)

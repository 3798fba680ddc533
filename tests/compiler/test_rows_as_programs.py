"""Every row as a native program is the row: values, and two derivatives.

An ordinary run takes one sample in nine, by a hash of their names, and of these one dtype; a soak
takes all of them.
"""

from zlib import crc32

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.entry import RAN
from support.cases import EVERY, every_row, tracked
from support.compiled_rows import assert_within, derivatives, forward, outcome, plain, same_bits
from support.compiled_rows import ways_to_outputs as ways_to
from support.executables import run

DTYPES = ("float64", "float32")
BY_ROW = {}
for case, (its_row, its_sample) in EVERY.items():
    BY_ROW.setdefault(case.rpartition("-")[0], {})[case] = (its_row, its_sample)


def holds(fn, args, what):
    """Raise AssertionError unless a program gives what the function does; tell the program."""
    with np.errstate(all="ignore"):
        wanted, error = outcome(fn, args)
        if error is not None:
            return None
        answer, got, made = run(fn, *args)
    assert answer == RAN, what
    assert len(got) == len(wanted), what
    if not all(map(same_bits, got, map(plain, wanted))):
        arrays = [a for a in od.tree.leaves(args) if isinstance(a, (np.ndarray, np.generic))]
        ways, _ = ways_to(made.graph, arrays)
        for a, b, way in zip(got, map(plain, wanted), ways, strict=True):
            if not same_bits(a, b):
                assert_within(a, b, way, what)
    return made


def walk(row, made, one_in):
    for name, (called, sample) in BY_ROW[row.name].items():
        if crc32(name.encode()) % one_in:
            continue
        if made is derivatives and not tracked(called, sample):
            continue
        # The same as where rows are compiled: their machine code is there.
        one = DTYPES[crc32(name.encode()[::-1]) % 2]
        for dtype in DTYPES if one_in == 1 else (one,):
            with np.errstate(all="ignore"):
                fn, calls = made(called, sample, dtype)
                holds(fn, calls[0], (name, dtype))


@every_row
def test_a_row_is_the_same_as_a_program(row):
    walk(row, forward, 9)


@every_row
def test_derivatives_of_a_row_are_the_same_as_a_program(row):
    walk(row, derivatives, 9)


@pytest.mark.soak
@every_row
def test_every_sample_of_a_row_is_the_same_as_a_program(row):
    walk(row, forward, 1)
    walk(row, derivatives, 1)

"""Every row as a native program is the row: values, and two derivatives.

An ordinary run takes one sample of each row, and derivatives of one row in four, as where rows are
compiled, and so has their machine code; a soak takes all of them.
"""

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.code.entry import RAN
from support.cases import EVERY, every_row
from support.chosen import BY_ROW, DERIVED, FLOATS, ONE, ONE_DERIVED, picked, some_rows
from support.compiled_rows import assert_within, derivatives, forward, outcome, plain, same_bits
from support.compiled_rows import ways_to_outputs as ways_to
from support.executables import run

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)


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


def walk(name, dtypes, made):
    for dtype in dtypes:
        with np.errstate(all="ignore"):
            fn, calls = made(*EVERY[name], dtype)
            holds(fn, calls[0], (name, dtype))


@every_row
def test_a_row_is_the_same_as_a_program(row):
    name = ONE[row.name]
    walk(name, [picked(name, FLOATS)], forward)


@some_rows
def test_derivatives_of_a_row_are_the_same_as_a_program(row):
    name = ONE_DERIVED[row.name]
    walk(name, [picked(name, FLOATS)], derivatives)


@pytest.mark.soak
@every_row
def test_every_sample_of_a_row_is_the_same_as_a_program(row):
    for name in BY_ROW[row.name]:
        walk(name, FLOATS, forward)
    for name in DERIVED[row.name]:
        walk(name, [picked(name, FLOATS)], derivatives)

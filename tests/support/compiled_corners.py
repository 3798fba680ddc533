"""Scalars compiled, on every combination of special numbers, against the rows they belong to."""

import numpy as np

import odyssey as od
from odyssey.kernels.scalars import program
from support import scalar_cases
from support.compiled_rows import EXACT, copied, outcome, same_bits, ways_to_outputs

DTYPES = ["float64", "float32", "float16", "int64", "int32", "int8", "uint8", "bool"]
HALF = [-np.inf, -6e4, -2.5, -1.0, -6e-8, -0.0, 0.0, 6e-8, 0.5, 1.0, 3.0, 6.0, 6e4, np.inf, np.nan]


def numbers(dtype):
    """Special numbers of a dtype."""
    if dtype == np.float16:
        return np.array(HALF, dtype)
    if dtype.kind in "iu" and dtype.itemsize == 1:
        return np.array([0, 1, 2, 3, 5, 100, 127, np.iinfo(dtype).max], dtype)
    return scalar_cases.numbers(dtype)


def corners(row, dtype):
    """Every combination of special numbers; in another order, and in yet another."""
    dtype = np.dtype(dtype)
    values = numbers(dtype)
    if len(row.arrays) > 2:
        values = values[:: 1 + len(values) // 14]
    grid = [x.ravel() for x in np.meshgrid(*[values] * len(row.arrays), indexing="ij")]
    if row.name in ("reciprocal", "power") and dtype.kind in "iu":
        positive = np.all([x > 0 for x in grid], axis=0)
        grid = [x[positive] for x in grid]
    return [grid, [x[::-1].copy() for x in grid], [np.roll(x, 7) for x in grid]]


def places(row, options):
    """By how many units in the last place a scalar may differ: a function of functions by more."""
    steps = program(row.scalar, len(row.arrays), options).steps
    return 16 if len(steps) < 60 else 1024


def worth_comparing(args, got, wanted):
    """Where nothing is so small that a place of an intermediate is worth many of the result."""
    limits = np.finfo(wanted.dtype)
    small = [(x != 0) & (np.abs(x) < limits.smallest_normal) for x in args if x.dtype.kind == "f"]
    result = np.fmax(np.abs(got), np.abs(wanted))
    small.append((result != 0) & (result < limits.smallest_normal / limits.eps))
    return ~np.any(small, axis=0)


def meet(row, args, got, wanted, ulps):
    """Raise AssertionError where what a scalar gives is too far from what the row gives."""
    assert (type(got), got.dtype, got.shape) == (type(wanted), wanted.dtype, wanted.shape)
    if wanted.dtype == np.float16:  # of two zeros NumPy takes one or the other
        if not ulps:
            np.testing.assert_array_equal(got, wanted)
        return  # what overflows in half precision need not in single
    if ulps and wanted.dtype.kind == "f":
        where = worth_comparing(args, got, wanted)
        args, got, wanted = [x[where] for x in args], got[where], wanted[where]
    scalar_cases.assert_is_kernel(row, got, wanted, args, ulps=ulps)


def check_corners(name, dtype):
    """Raise AssertionError unless the scalar of a name is its row, compiled, in three calls."""
    row, options = scalar_cases.CASES[name]
    op, named = row.call, dict(zip(row.options, options, strict=True))

    def call(*given):
        return op(*given, **named)

    compiled = od.compile(call)
    for args in corners(row, dtype):
        wanted, error = outcome(call, copied(args))
        got, other = outcome(compiled, copied(args))
        assert error == other, (name, dtype)
        if error is None and not same_bits(got[0], wanted[0]):
            ((way,), _) = ways_to_outputs(compiled.lower(*args).graph, args)
            meet(row, args, got[0], wanted[0], 0 if way.kind <= EXACT else places(row, options))

"""The scalars of the table: each with its options, on every pair of special numbers."""

import operator
from functools import cache

import numpy as np

from odyssey.errors import OdysseyError
from odyssey.kernels.scalars import Term, program
from odyssey.ops import OPS

DTYPES = [np.dtype(name) for name in ("float32", "float64", "int32", "int64", "bool")]
SPECIAL = [
    *(-np.inf, -1e300, -1000.0, -3.0, -2.5, -1.5, -1.0, -0.5, -1e-30, -1e-310, -0.0),
    *(0.0, 1e-310, 1e-30, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 6.0, 50.0, 1000.0, 1e300, np.inf, np.nan),
]
# The edges of float32.
NARROW = [-3e38, -1e-40, 1e-40, 3e38]
WHOLE = [-100, -15, -5, -3, -2, -1, 0, 1, 2, 3, 5, 6, 15, 100]

# Differences of numbers that are as exact as the operands, in the kernel too.
CANCELLING = {"binary_entropy", "binary_entropy_with_logits", "logaddexp", "logaddexp2", "betaln"}
CANCELLING |= {"gelu_slope", "mish_slope", "silu_slope"}
# Which of two zeros comes out is a matter of the processor's instructions, in NumPy too.
EITHER_ZERO = {"fmax", "fmin"}
ULPS = 4


def scalar_cases():
    """Name, row and options, for each row with a scalar and each set of options in its samples."""
    found = {}
    for row in OPS.values():
        for sample in row.samples if row.scalar else ():
            operands = sample.arrays(np.random.default_rng(0))
            options = row.bind_arguments(operands, sample.options)[1]
            if not any(isinstance(option, np.ndarray) for option in options):
                found[f"{row.name}{options or ''}"] = (row, options)
    return found


CASES = scalar_cases()


def numbers(dtype):
    rng = np.random.default_rng(0)
    if dtype.kind != "f":
        return np.array([False, True]) if dtype.kind == "b" else np.array(WHOLE, dtype)
    drawn = [*rng.normal(size=8), *20 * rng.normal(size=6)]
    with np.errstate(over="ignore", under="ignore"):
        special = np.array([*SPECIAL, *NARROW]).astype(dtype)
    return np.concatenate([special, np.array(drawn).astype(dtype)])


@cache
def grid(arity, dtype):
    """Every combination of the special numbers, an array for each operand."""
    return [x.ravel() for x in np.meshgrid(*[numbers(dtype)] * arity, indexing="ij")]


def kernel_values(row, options, dtype):
    """Operands, and what the kernel makes of them; None where there is nothing to compare."""
    operands = grid(len(row.arrays), dtype)
    if row.name == "reciprocal" and dtype.kind != "f":  # of 0 NumPy gives what the machine does
        operands = [operands[0][operands[0] != 0]]
    try:
        with np.errstate(all="ignore"):
            values = np.asarray(row.kernel(*operands, *options))
    except (OdysseyError, TypeError, ValueError):
        return None
    return (operands, values) if values.dtype in DTYPES else None


def computed_in(values, dtype):
    """What ``T`` is, for operands of a dtype."""
    return dtype if values.dtype.kind == "b" else values.dtype


def step(name, operands, dtype):
    """One step of a program, by NumPy."""
    if name == "T":
        return np.asarray(operands[0]).astype(dtype)[()]
    if name == "select":
        return np.where(*operands)
    renamed = {"pow": "power", "atan2": "arctan2"}
    if name.startswith("math."):
        name = name.removeprefix("math.")
        if name in OPS and not hasattr(np, name):
            return OPS[name].kernel(*operands)
        if name.startswith("a") and not hasattr(np, renamed.get(name, name)):
            name = f"arc{name[1:]}"
        return getattr(np, renamed.get(name, name))(*operands)
    return getattr(operator, f"{name}_" if name in ("and", "or") else name)(*operands)


def by_numpy(scalar, operands, options, dtype):
    """What a scalar gives on arrays: its program, a step after the other."""
    values = [x.astype(dtype) if (x.dtype.kind, dtype.kind) == ("i", "f") else x for x in operands]
    written = program(scalar, len(operands), options, dtype)
    with np.errstate(all="ignore"):
        for name, given in written.steps:
            found = [values[o.id] if isinstance(o, Term) else o for o in given]
            values.append(step(name, found, dtype))
    result = written.result
    return values[result.id] if isinstance(result, Term) else np.asarray(result)


def assert_is_kernel(row, got, wanted, operands, ulps=ULPS):
    """Equal to so many units in the last place, NaN and the signs of zeros included."""
    wrong = np.isnan(got) != np.isnan(wanted)
    if wanted.dtype.kind == "f":
        with np.errstate(all="ignore"):
            size = np.abs(wanted)
            if row.name in CANCELLING:
                size = np.fmax.reduce([size, *map(np.abs, operands)])
            unit = np.spacing(np.maximum(size, np.finfo(wanted.dtype).tiny).astype(wanted.dtype))
            far = ~(np.abs(got - wanted) <= ulps * unit) & (got != wanted)
        wrong |= far & ~np.isnan(wanted)
        zero = (wanted == 0) & (row.name not in EITHER_ZERO)
        wrong |= zero & (np.signbit(got) != np.signbit(wanted)) & (got == 0)
    else:
        wrong |= got != wanted
    k = np.flatnonzero(wrong)
    assert not k.size, [(*(x[i] for x in operands), got[i], wanted[i]) for i in k[:4]]

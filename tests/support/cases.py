"""What the tests that walk the table share: its samples, and both derivatives of a call."""

from typing import NamedTuple

import numpy as np
import pytest

from odyssey import GradientTape, Variable
from odyssey.errors import DTypeError
from odyssey.ops import OPS, Symbol
from odyssey.spec import spec_of
from odyssey.table.samples import Sample
from support.together import each


def samples_of(row):
    """The samples of a row; AssertionError, in words, where there are none or they do not fit."""
    who = f"op {row.name}: samples"
    assert row.samples, f"op {row.name}: give samples, in its @op(...)"
    for k, s in enumerate(row.samples):
        assert isinstance(s, Sample), f"{who}[{k}] is {s!r}; write samples=[sample((2, 3))]"
        came, count = len(s.operands), len(row.arrays)
        names = ", ".join(row.arrays)
        assert row.with_arity or came == count, (
            f"{who}[{k}] has {came} operands; it takes {count}: {names}"
        )
    return row.samples


def lacking(row):
    """What a row must still say of itself, in words; nothing where it says all."""
    if not row.doc.strip():
        return f"op {row.name}: give a docstring"
    if not (row.scalar or row.decomposition or row.primitive):
        return (
            f"op {row.name}: say what it means to a compiler: scalar=, decomposition= or primitive="
        )
    return ""


EVERY = {
    # Of an op of any number of operands, the row of as many as the sample has.
    f"{row.name}-{k}": (row if row.with_arity is None else row.with_arity(len(s.operands)), s)
    for row in OPS.values()
    for k, s in enumerate(samples_of(row))
}
# Rows of several results have a walk of their own, test_several_results.
CASES = {name: case for name, case in EVERY.items() if case[0].pack_results is None}
SEVERAL = {name: case for name, case in EVERY.items() if case[0].pack_results is not None}


# The oldest NumPy that odyssey runs with lacks a few things.
NEW_NUMPY = np.lib.NumpyVersion(np.__version__) >= "2.2.0"


def by_numpy(function, operands, options):
    """Call NumPy's ``function``; the shape of ``reshape`` has its name since NumPy 2.1."""
    if function is np.reshape and not NEW_NUMPY:
        return function(*operands, *options.values())
    return function(*operands, **options)


def tracked(row, sample):
    """The positions of the operands of a sample that a tape can differentiate."""
    return [
        k
        for k, (name, operand) in enumerate(zip(row.arrays, sample.operands, strict=True))
        if row.vjp[name] is not None and isinstance(operand, tuple)
    ]


def walk(cases, slow=()):
    """Run a test on each of ``cases``, those of a row together; rows named ``slow`` are slow."""
    return each(("row", "sample"), cases, slow)


SMOOTH = {name: case for name, case in CASES.items() if tracked(*case)}


def takes_complex(row, sample):
    """Whether a row has a meaning for complex numbers: if not, it must say so."""
    try:
        with np.errstate(all="ignore"):
            row.call(*sample.arrays(np.random.default_rng(0), np.complex128), **sample.options)
    except DTypeError:
        return False
    return True


COMPLEX = {name: case for name, case in SMOOTH.items() if takes_complex(*case)}
every_sample = walk(CASES)
every_differentiable_sample = walk(SMOOTH)

# NumPy has no half precision there.
NO_HALF = {
    f"odyssey.linalg.{family}"
    for family in (
        *("decompositions", "determinants", "eigenvalues", "hermitian_eigenvalues"),
        *("linear_systems", "matrix_functions", "pseudo_inverses", "singular_values"),
        "triangular_systems",
    )
}
# Complex numbers come of real ones, of the same precision, half precision as single.
TO_COMPLEX = {"dft", "eigvals", "real_dft"}
every_row = pytest.mark.parametrize("row", OPS.values(), ids=list(OPS))


def draw(sample, dtype=np.float64, seed=0):
    """The operands of a sample, the same for the same seed."""
    return sample.arrays(np.random.default_rng(seed), dtype)


def random_like(value, seed):
    """Numbers of both signs, none small and no two alike, of the shape and dtype of ``value``."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(value.dtype)
    numbers = rng.uniform(0.5, 1.5, value.shape) * rng.choice([-1.0, 1.0], value.shape)
    if dtype.kind == "c":
        numbers = numbers + 1j * rng.uniform(-1.0, 1.0, value.shape)
    return np.asarray(numbers).astype(dtype)


class Derivatives(NamedTuple):
    """A value, its gradients for a random cotangent, its tangent for random tangents."""

    value: np.ndarray
    gradients: list
    tangent: np.ndarray
    cotangent: np.ndarray
    directions: list

    def flat(self):
        return [self.value, *self.gradients, self.tangent]


def derive(call, operands, positions, *, enter=lambda leaf: leaf, cotangent=lambda c: c):
    """Differentiate ``call(*operands)`` with respect to the operands at ``positions``.

    ``enter`` makes of each leaf what the call gets; ``cotangent`` lays out the cotangent.
    """
    leaves = [Variable(operands[k], requires_grad=True) for k in positions]
    with GradientTape(persistent=True) as tape:
        given = list(operands)
        for k, leaf in zip(positions, leaves, strict=True):
            given[k] = enter(leaf)
        out = call(*given)
    c = random_like(out, seed=1)
    directions = [random_like(leaf, seed=2 + k) for k, leaf in enumerate(leaves)]
    gradients = tape.gradient(out, leaves, cotangent(c))
    tangent = tape.jvp(out, leaves, directions)
    return Derivatives(np.asarray(out.numpy()), gradients, tangent, c, directions)


def derive_sample(row, sample, dtype=np.float64, **options):
    """``derive`` on a sample of the table."""

    def call(*operands):
        return row.call(*operands, **sample.options)

    return derive(call, draw(sample, dtype), tracked(row, sample), **options)


def assert_same(got, wanted):
    """Equal bit for bit, shape and dtype included; NaN equals NaN."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert spec_of(got) == spec_of(wanted)
    np.testing.assert_array_equal(got, wanted)


def assert_close(got, wanted, tolerance):
    """Equal but for rounding: the difference relative to the largest element."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert spec_of(got) == spec_of(wanted)
    scale = np.abs(wanted).max(initial=1.0)
    assert np.abs(got - wanted).max(initial=0.0) <= tolerance * scale


def assert_transposed(d, tolerance):
    """The inner products <c, J v> and <J^T c, v> agree, J being what both modes multiply by."""
    forward = np.vdot(d.cotangent, d.tangent).real
    reverse = sum(np.vdot(g, v).real for g, v in zip(d.gradients, d.directions, strict=True))
    scale = np.abs(d.cotangent * d.tangent).sum() + 1.0
    assert abs(forward - reverse) <= tolerance * scale


class Graph:
    """A graph of Symbols that can be run afterwards."""

    def __init__(self):
        self.instructions = []
        self.count = 0

    def symbol(self, spec):
        self.count += 1
        return Symbol(spec, self, self.count)

    def emit(self, row, values, options):
        specs = [
            v.spec if isinstance(v, Symbol) else spec_of(v) if hasattr(v, "dtype") else v
            for v in values
        ]
        made = row.infer(*specs, *options)
        results = [self.symbol(spec) for spec in (made if row.pack_results else (made,))]
        self.instructions.append((row, values, options, [result.id for result in results]))
        return row.pack_results(results) if row.pack_results else results[0]

    def run(self, result, known):
        """The value of ``result``, given those of the Symbols that the graph started from."""
        known = dict(known)
        for row, values, options, ids in self.instructions:
            operands = [known[v.id] if isinstance(v, Symbol) else v for v in values]
            made = row.kernel(*operands, *options)
            known.update(zip(ids, made if row.pack_results else (made,), strict=True))
        return known[result.id] if isinstance(result, Symbol) else result

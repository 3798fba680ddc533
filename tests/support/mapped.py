"""Rows and composites on a batch of examples, by vmap and by a loop."""

import numpy as np

import odyssey as od
from odyssey import ops
from odyssey.spec import spec_of
from support.cases import draw
from support.composed import Call, results

BATCH = 3
TOLERANCE = 1e-12

# Operands that a sample gives as they are, and whose elements in another order mean nothing.
FIXED = {
    ("searchsorted", "a"),
    ("bin_numbers", "bins"),
    ("piecewise_linear", "xp"),
}


def batch_of(row, sample, k, dtype=np.float64):
    """The examples of operand ``k``: draws of their own, or rearrangements of a given array."""
    draws = [draw(sample, dtype, seed)[k] for seed in range(BATCH)]
    if not isinstance(sample.operands[k], tuple) and (row.name, row.arrays[k]) not in FIXED:
        draws[1] = np.flip(draws[1])
    return draws


def choices(sample):
    """The sets of operands to map: each array alone, and all together."""
    arrays = [k for k, o in enumerate(sample.operands) if isinstance(o, (tuple, np.ndarray))]
    return dict.fromkeys([*((k,) for k in arrays), tuple(arrays)]) if arrays else {}


def assert_near(got, wanted, tolerance=TOLERANCE):
    """Equal shapes and dtypes, and equal numbers but for rounding; NaN equals NaN."""
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert spec_of(got) == spec_of(wanted)
    if wanted.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, wanted)
        return
    defined = np.isfinite(wanted)
    np.testing.assert_array_equal(got[~defined], wanted[~defined])
    scale = np.abs(wanted[defined]).max(initial=1.0)
    assert np.abs(got - wanted)[defined].max(initial=0.0) <= tolerance * scale


def second_order(call, positions):
    """Return the function that differentiates a call twice, in reverse."""

    def total(*operands):
        out = call(*operands)
        return ops.sum(ops.mul(out, out))

    slope = od.grad(total, argnums=positions)

    def weighed(*operands):
        return sum(ops.sum(ops.mul(g, g)) for g in slope(*operands))

    curve = od.grad(weighed, argnums=positions)
    return lambda *operands: [*slope(*operands), *curve(*operands)]


class Mapped:
    """A row on a sample with operands mapped, on all examples at once and one by one.

    Attributes:
        operands: The operands; those that are mapped hold all examples.
        axes: The axis of the examples in each operand.
        batched: The call by ``vmap``, of the operands.
        looped: The call by a loop, of the operands.
    """

    def __init__(self, row, sample, chosen, axis, dtype=np.float64, size=BATCH):
        self.row, self.sample, self.size = row, sample, size
        self.operands = draw(sample, dtype)
        self.axes = [axis if k in chosen else None for k in range(len(self.operands))]
        for k in chosen:
            examples = batch_of(row, sample, k, dtype)[:size]
            stacked = np.stack(examples or [self.operands[k]], axis)
            self.operands[k] = stacked if examples else np.take(stacked, [], axis)
        self.call = lambda *operands: row.call(*operands, **sample.options)

    def example(self, k, operands):
        """The operands of an example."""
        keys = {0: k, -1: (..., k)}
        pairs = zip(operands, self.axes, strict=True)
        return [x if axis is None else x[keys[axis]] for x, axis in pairs]

    def flat(self, *operands):
        """The floating results of one call, as one line of numbers."""
        out = self.call(*operands)
        if self.row.pack_results is None:
            return out
        return ops.concatenate([ops.reshape(r, -1) for r in out if r.dtype.kind in "fc"])

    def batched(self, *operands):
        return od.vmap(self.flat, tuple(self.axes))(*operands)

    def looped(self, *operands):
        return ops.stack([self.flat(*self.example(k, operands)) for k in range(self.size)])


class MappedComposite:
    """A composite or loss on a sample with arrays mapped, at once and one by one."""

    def __init__(self, function, sample, chosen, axis):
        draws = [Call(function, sample, seed=seed) for seed in range(BATCH)]
        self.call = draws[0]
        self.arrays = list(draws[0].arrays)
        for k in chosen:
            self.arrays[k] = np.stack([d.arrays[k] for d in draws], axis)
        self.axes = [axis if k in chosen else None for k in range(len(self.arrays))]

    example = Mapped.example

    def batched(self, *arrays):
        return results(od.vmap(self.call, tuple(self.axes))(*arrays))

    def looped(self, *arrays):
        calls = [results(self.call(*self.example(k, arrays))) for k in range(BATCH)]
        return [ops.stack(list(column)) for column in zip(*calls, strict=True)]

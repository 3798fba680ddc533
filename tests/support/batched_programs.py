"""Random programs of 30 ops on batches: some of their leaves differ from example to example."""

import itertools

import numpy as np

from odyssey import ops
from support.cases import random_like
from support.compiled_programs import spelled
from support.programs import ROOM, write

LENGTH, EXAMPLES = 30, 3


class BatchedProgram:
    """A program as a function of its leaves, and leaves of which some hold all examples.

    Attributes:
        leaves: The leaves; those that are mapped hold the examples on axis 0.
        axes: 0 for a leaf that is mapped, otherwise None.
        tangents: Directions like the leaves.
    """

    def __init__(self, seed, examples=EXAMPLES):
        rng = np.random.default_rng(seed)
        lengths = list(range(1, LENGTH + 1))

        def choose(options):
            return LENGTH if options == lengths else options[rng.integers(len(options))]

        drawn = (write(choose, (seed, k), LENGTH + ROOM) for k in itertools.count())
        self.program = next(p for p in drawn if len(p.steps) >= LENGTH)  # moves may add no step
        self.examples = examples
        self.axes = [0 if rng.random() < 0.6 else None for _ in self.program.leaves]
        self.axes[rng.integers(len(self.axes))] = 0
        self.leaves = [
            x if axis is None else x + 0.1 * rng.normal(size=(examples, *x.shape))
            for x, axis in zip(self.program.leaves, self.axes, strict=True)
        ]
        self.tangents = [random_like(x, seed=5 + k) for k, x in enumerate(self.leaves)]
        self.run = spelled(self.program)
        outputs = self.run(*self.program.leaves)
        self.weights = [random_like(np.asarray(y), seed=1) for y in outputs]

    def outputs(self, *leaves):
        """All elements of the outputs, as one line of numbers."""
        return ops.concatenate([ops.reshape(y, (-1,)) for y in self.run(*leaves)])

    def loss(self, *leaves):
        """A weighted sum of the outputs: a number."""
        total = 0.0
        for y, w in zip(self.run(*leaves), self.weights, strict=True):
            total = total + ops.sum(y * w)
        return total

    def loop(self, fn, *trees, axes=None):
        """Stack the results of ``fn`` on each example: of leaves, or of leaves and directions."""
        axes = axes or self.axes * (len(trees) // len(self.axes))
        calls = []
        for k in range(self.examples):
            given = [x if a is None else x[k] for x, a in zip(trees, axes, strict=True)]
            out = fn(*given)
            calls.append(out if isinstance(out, (tuple, list)) else [out])
        return [np.stack([np.asarray(r) for r in column]) for column in zip(*calls, strict=True)]

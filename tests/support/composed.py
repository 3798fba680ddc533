"""What the tests that walk composites and losses share: their samples, and calls of them."""

import numpy as np

from odyssey import losses
from odyssey.ops import COMPOSITES
from support.together import each


def every(functions):
    """The samples of functions under their names, as pairs of function and sample."""
    return {f"{f.__name__}-{k}": (f, s) for f in functions for k, s in enumerate(f.samples)}


def walk(cases):
    """Run a test on each of ``cases``, those of a function together."""
    return each(("function", "sample"), cases)


LOSSES = {
    name: function
    for name in losses.__all__
    if hasattr(function := getattr(losses, name), "samples")
}
OF_OPS = every(COMPOSITES.values())
OF_LOSSES = every(LOSSES.values())


def drawn(operand, value):
    """Of a sample's operand and its value: the arrays that were drawn, however deep."""
    if isinstance(operand, list):
        return [x for part in zip(operand, value, strict=True) for x in drawn(*part)]
    return [value] if isinstance(operand, tuple) else []


def put(operand, value, moving):
    """The value with the drawn arrays replaced, in order, by those of an iterator."""
    if isinstance(operand, list):
        return [put(o, v, moving) for o, v in zip(operand, value, strict=True)]
    return next(moving) if isinstance(operand, tuple) else value


class Call:
    """A function on a sample: what was drawn may move, all else is fixed."""

    def __init__(self, function, sample, dtype=np.float64, seed=0):
        self.function, self.sample = function, sample
        self.operands = sample.arrays(np.random.default_rng(seed), dtype)
        self.arrays = drawn(list(sample.operands), self.operands)

    def __call__(self, *moving):
        return self.by(self.function, *moving)

    def by(self, function, *moving, **more):
        """The same call of another function, a NumPy function for instance."""
        operands = put(list(self.sample.operands), self.operands, iter(moving))
        return function(*operands, **self.sample.options, **more)


def results(out):
    """What came out, however deep, as a list."""
    if isinstance(out, (tuple, list)):
        return [result for part in out for result in results(part)]
    return [out]

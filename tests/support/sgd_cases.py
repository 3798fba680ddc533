"""What the tests of SGD share: settings, shapes, and its formulas written out in float64."""

import numpy as np

from odyssey import Variable
from odyssey.optim import SGD

SETTINGS = {
    "plain": {},
    "decay": {"weight_decay": 0.1},
    "momentum": {"momentum": 0.9},
    "dampening": {"momentum": 0.9, "dampening": 0.3},
    "nesterov": {"momentum": 0.8, "nesterov": True},
    "momentum_decay": {"momentum": 0.9, "weight_decay": 0.05},
    "dampening_decay": {"momentum": 0.7, "dampening": 0.5, "weight_decay": 0.05},
    "nesterov_decay": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.05},
}
SHAPES = {
    "small": [(3,), (), (2, 4)],
    "large": [(20_000,)],
    "mixed": [(5,), (130, 130), (), (0, 3), (2, 2)],
}


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


class Formulas:
    """SGD as a textbook writes it, one parameter, in float64."""

    def __init__(self, p, rate, momentum=0.0, dampening=0.0, nesterov=False, weight_decay=0.0):
        self.p = np.array(p, np.float64)
        self.rate, self.momentum, self.dampening = rate, momentum, dampening
        self.nesterov, self.decay = nesterov, weight_decay
        self.v = None

    def step(self, g):
        g = g + self.decay * self.p
        if self.momentum:
            first = self.v is None
            self.v = g if first else self.momentum * self.v + (1 - self.dampening) * g
            g = g + self.momentum * self.v if self.nesterov else self.v
        self.p = self.p - self.rate * g


def same(params, references):
    for p, reference in zip(params, references, strict=True):
        np.testing.assert_allclose(p.numpy(), reference.p, rtol=1e-12, atol=1e-14)


def problem(shapes, rate=0.1, **settings):
    """Parameters, their optimizer and their formulas, from one start."""
    rng = np.random.default_rng(7)
    starts = [rng.normal(size=shape) for shape in shapes]
    params = [wide(start, name=f"p{k}") for k, start in enumerate(starts)]
    return params, SGD(params, rate, **settings), [Formulas(s, rate, **settings) for s in starts]

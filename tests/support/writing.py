"""Programs as data, and a writer that keeps their values calm and away from kinks."""

from typing import Any, NamedTuple

import numpy as np

from odyssey import ops

SHAPES = [(), (1,), (2,), (3,), (2, 3), (3, 1), (1, 2), (2, 1, 2), (0,), (2, 0)]
LARGEST = 12  # elements of a value: dense Jacobians are compared
CALM = 3.0  # values beyond this are squashed
MARGIN = 1e-3  # to a kink, unless a value lies on it, as what relu has cut lies on 0 and stays


class Step(NamedTuple):
    """One call, ``op(*operands, **options)``, or a part of its result.

    An int operand is the number of a value, a list of them a list of values.
    """

    op: str
    operands: tuple
    options: dict
    part: int | None = None

    def uses(self) -> list:
        """The numbers of the values that it takes."""
        flat = [p for o in self.operands for p in (o if type(o) is list else [o])]
        return [o for o in flat if type(o) is int]

    def run(self, ops: Any, values: Any) -> Any:
        """The result, with ``ops.<name>`` for each op."""
        result = getattr(ops, self.op)(*(taken(o, values) for o in self.operands), **self.options)
        return result if self.part is None else result[self.part]


def taken(operand, values):
    """An operand with values in the place of their numbers."""
    if type(operand) is list:
        return [taken(part, values) for part in operand]
    return values[operand] if type(operand) is int else operand


class Program(NamedTuple):
    """Leaves, the steps on them and on one another, and which values come out."""

    leaves: list
    steps: list
    outputs: list

    def run(self, ops: Any, leaves: Any) -> list:
        """The outputs, with ``ops.<name>`` for each op, on arrays or what stands for them."""
        values = list(leaves)
        for step in self.steps:
            values.append(step.run(ops, values))
        return [values[k] for k in self.outputs]


class Writer:
    """Writes a program, one step after the other, with the help of ``choose(list)``."""

    def __init__(self, choose, seed):
        self.choose = choose
        self.rng = np.random.default_rng(seed)
        self.leaves = []
        self.steps = []
        self.values = []
        self.calm = []  # the numbers of the values that later steps may take

    def shape(self, k):
        return self.values[k].shape

    def leaf(self, shape=None):
        """A new leaf, laid out in memory in one way or another."""
        shape = self.choose(SHAPES) if shape is None else shape
        values = self.rng.uniform(-2.0, 2.0, shape)
        layout = self.choose(["C", "Fortran", "strided"])
        if layout == "Fortran":
            values = np.asfortranarray(values).reshape(shape)
        elif layout == "strided":
            values = np.repeat(values[..., None], 2, -1)[..., 0]
        self.leaves.append(values)
        self.values.append(values)
        self.calm.append(len(self.values) - 1)

    def constant(self, shape):
        """A plain array, laid out in memory backwards."""
        return np.flip(self.rng.uniform(-1.5, 1.5, shape))

    def step(self, op, /, *operands, part=None, **options):
        """Append a step; return the number of its result, or None if it does not suit."""
        step = Step(op, operands, options, part)
        if near_a_kink(step, [taken(o, self.values) for o in operands]):
            return None
        value = np.asarray(step.run(ops, self.values))
        if value.size > LARGEST:
            return None
        self.steps.append(step)
        self.values.append(value)
        return len(self.values) - 1

    def call(self, op, /, *operands, **options):
        """Append a step for others to build on; squash its result where it has grown."""
        here = self.step(op, *operands, **options)
        if here is None:
            return
        if np.abs(self.values[here]).max(initial=0.0) > CALM:
            # x / sqrt(1 + x**2) lies between -1 and 1.
            root = self.step("sqrt", self.step("add", self.step("square", here), 1.0))
            here = self.step("divide", here, root)
        self.calm.append(here)

    # -------------------------------------------------------------- values in a range

    def positive(self, k):
        """A value above 0.5, made of value ``k``."""
        return self.step("add", self.step("square", k), 0.5)

    def inside(self, k):
        """A value between -0.9 and 0.9, made of value ``k``."""
        return self.step("multiply", self.step("tanh", k), 0.9)

    def spread(self, k):
        """A value whose elements lie apart, made of value ``k``."""
        shape = self.shape(k)
        ramp = self.rng.permutation(np.arange(np.prod(shape, dtype=int)))
        return self.step("add", k, 8.0 * ramp.reshape(shape))

    def alike(self, fits):
        """The numbers of the values whose shape ``fits``."""
        return [j for j in self.calm if fits(self.shape(j))]


# ------------------------------------------------------------------ kinks

POINTS = {
    **dict.fromkeys(["absolute", "sign", "relu", "leaky_relu", "elu", "selu", "prelu"], (0.0,)),
    **dict.fromkeys(["fabs", "celu"], (0.0,)),
    **dict.fromkeys(["hard_shrink", "soft_shrink"], (-0.5, 0.5)),
    **dict.fromkeys(["copysign", "heaviside"], (0.0,)),
    **dict.fromkeys(["hard_sigmoid", "hard_swish"], (-3.0, 3.0)),
    "binary_entropy_with_logits": (0.0,),
    "relu6": (0.0, 6.0),
    "hard_tanh": (-1.0, 1.0),
}


def near_a_kink(step, operands):
    """Whether a little change of the operands could move one over a kink, or to a jump."""
    return any(
        np.any((np.abs(d) < MARGIN) & ((d != 0) | (step.op in ("mod", "fmod"))))
        for d in distances(step, operands)
    )


def distances(step, operands):
    """Arrays of distances to the kinks of an op."""
    x = operands[0]
    if step.op in POINTS:
        return [x - point for point in POINTS[step.op]]
    if step.op == "clip":
        return [x - bound for bound in step.options.values() if bound is not None]
    if step.op in ("maximum", "minimum", "fmax", "fmin"):
        return [x - operands[1]]
    if step.op in ("max", "min"):
        axis = step.options["axis"]
        x = np.ravel(x) if axis is None else np.moveaxis(x, axis, -1)
        peak = x.max(-1, keepdims=True) if step.op == "max" else x.min(-1, keepdims=True)
        return [x - peak]
    if step.op in ("mod", "fmod"):
        quotient = x / operands[1]
        return [quotient - np.round(quotient)]
    return []

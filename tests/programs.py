"""Random programs over the table's ops, whose values stay in a range where all are smooth enough.

A program is data: leaves, and steps that each name an op, the values it takes and its options.
So the same program runs on any library that has the ops. What it takes for a choice is passed
in: hypothesis draws it, or a seeded generator.
"""

from typing import Any, NamedTuple

import numpy as np

SHAPES = [(), (1,), (2,), (3,), (2, 3), (3, 1), (1, 2), (2, 1, 2), (0,), (2, 0)]
LARGEST = 12  # elements of a value: dense Jacobians are compared
CALM = 3.0  # values beyond this are squashed


class Step(NamedTuple):
    """One call: ``op(*operands, **options)``; an int operand is the number of a value."""

    op: str
    operands: tuple
    options: dict


class Program(NamedTuple):
    """Leaves, the steps on them and on one another, and which values come out."""

    leaves: list
    steps: list
    outputs: list

    def run(self, ops: Any, leaves: Any) -> list:
        """The outputs, with ``ops.<name>`` for each op, on arrays or what stands for them."""
        values = list(leaves)
        for step in self.steps:
            operands = [values[o] if type(o) is int else o for o in step.operands]
            values.append(getattr(ops, step.op)(*operands, **step.options))
        return [values[k] for k in self.outputs]


class Writer:
    """Writes a program, one move after the other, with the help of ``choose(list)``."""

    def __init__(self, choose, seed):
        self.choose = choose
        self.rng = np.random.default_rng(seed)
        self.leaves = []
        self.steps = []
        self.shapes = []
        self.bounds = []
        self.calm = []  # the numbers of the values that later steps may take

    def leaf(self):
        shape = self.choose(SHAPES)
        self.leaves.append(self.rng.uniform(-2.0, 2.0, shape))
        self.shapes.append(shape)
        self.bounds.append(2.0)
        self.calm.append(len(self.shapes) - 1)

    def step(self, op, *operands, shape, bound=np.inf, **options):
        """Append a step; return the number of its result, of absolute value up to ``bound``."""
        self.steps.append(Step(op, operands, options))
        self.shapes.append(tuple(shape))
        self.bounds.append(bound)
        return len(self.shapes) - 1

    def call(self, op, *operands, shape, bound, **options):
        """Append a step for others to build on; squash its result where it may have grown."""
        here = self.step(op, *operands, shape=shape, bound=bound, **options)
        if bound > CALM:
            # x / sqrt(1 + x**2) lies between -1 and 1.
            grown = self.step("square", here, shape=shape)
            grown = self.step("add", grown, 1.0, shape=shape)
            root = self.step("sqrt", grown, shape=shape)
            here = self.step("divide", here, root, shape=shape, bound=1.0)
        self.calm.append(here)

    def constant(self, shape):
        """A plain array, laid out in memory backwards."""
        return np.flip(self.rng.uniform(-1.5, 1.5, shape))

    def positive(self, k):
        """A value between 0.5 and 0.5 + bound**2 made of value ``k``."""
        square = self.step("square", k, shape=self.shapes[k])
        return self.step("add", square, 0.5, shape=self.shapes[k])

    # -------------------------------------------------------------- moves

    def unary(self, k):
        shape, b = self.shapes[k], self.bounds[k]
        op, bound = self.choose(
            [
                *[("negative", b), ("square", b * b), ("exp", np.exp(b)), ("tanh", 1.0)],
                *[("sigmoid", 1.0), ("relu", b), ("absolute", b), ("identity", b)],
            ]
        )
        self.call(op, k, shape=shape, bound=bound)

    def of_positive(self, k):
        op = self.choose(["log", "sqrt", "divide", "power"])
        shape, b = self.shapes[k], self.bounds[k]
        x = self.positive(k)
        if op == "divide":
            self.call(op, k, x, shape=shape, bound=2 * b)
        elif op == "power":
            self.call(op, x, self.choose([k, 2.0, 0.5, -1.0]), shape=shape, bound=50.0)
        else:
            self.call(op, x, shape=shape, bound=b + 1.0)

    def binary(self, k):
        shape, b = self.shapes[k], self.bounds[k]
        fitting = [j for j in self.calm if self.fits(j, shape)]
        kind = self.choose(["value", "number", "array"])
        if kind == "value":
            other = self.choose(fitting)
            shape, bound = np.broadcast_shapes(shape, self.shapes[other]), self.bounds[other]
        else:
            other, bound = (0.75 if kind == "number" else self.constant(shape)), 1.5
        op, bound = self.choose(
            [
                ("add", b + bound),
                ("subtract", b + bound),
                ("multiply", b * bound),
                ("maximum", max(b, bound)),
                ("minimum", max(b, bound)),
            ]
        )
        pair = (k, other) if self.choose([True, False]) else (other, k)
        self.call(op, *pair, shape=shape, bound=bound)

    def fits(self, j, shape):
        try:
            size = np.prod(np.broadcast_shapes(shape, self.shapes[j]))
        except ValueError:
            return False
        return size <= LARGEST

    def where(self, k):
        shape = self.shapes[k]
        alike = [j for j in self.calm if self.shapes[j] == shape]
        other = self.choose(alike)
        mask = self.rng.random(shape) < 0.5
        bound = max(self.bounds[k], self.bounds[other])
        self.call("where", np.asarray(mask), k, other, shape=shape, bound=bound)

    def reduction(self, k):
        shape = self.shapes[k]
        if 0 in shape:
            self.call("sum", k, shape=(), bound=0.0)
            return
        axis = self.choose([None, *range(-len(shape), len(shape))])
        keepdims = self.choose([False, True])
        out = np.sum(np.ones(shape), axis, keepdims=keepdims).shape
        op = self.choose(["sum", "mean", "max", "min"])
        bound = self.bounds[k] * (np.prod(shape) if op == "sum" else 1)
        self.call(op, k, shape=out, bound=bound, axis=axis, keepdims=keepdims)

    def rearrangement(self, k):
        shape, b = self.shapes[k], self.bounds[k]
        op = self.choose(["reshape", "transpose", "matrix_transpose", "broadcast_to"])
        if op == "reshape":
            new = self.choose([(np.prod(shape, dtype=int),), (1, *shape), (*shape, 1), shape[::-1]])
            self.call(op, k, shape=new, bound=b, **{"shape_": new})
        elif op == "transpose":
            axes = tuple(self.rng.permutation(len(shape)).tolist())
            self.call(op, k, shape=[shape[a] for a in axes], bound=b, axes=axes)
        elif op == "matrix_transpose":
            if len(shape) > 1:
                self.call(op, k, shape=(*shape[:-2], shape[-1], shape[-2]), bound=b)
        elif 2 * np.prod(shape) <= LARGEST:
            self.call(op, k, shape=(2, *shape), bound=b, **{"shape_": (2, *shape)})

    def indexing(self, k):
        shape, b = self.shapes[k], self.bounds[k]
        if not shape or 0 in shape:
            keys = [..., (..., None)]
        else:
            last = shape[0] - 1
            repeated = np.array([0, last, 0])
            keys = [0, -1, slice(None, None, -1), slice(1, None), (..., 0), repeated, (None, last)]
            keys.append(np.arange(shape[0]) % 2 == 0)
        key = self.choose(keys)
        part = np.ones(shape)[key].shape
        if self.choose([True, False]):
            if np.prod(part) <= LARGEST:
                self.call("getitem", k, shape=part, bound=b, key=key)
            return
        fitting = {(), part}
        if part and not isinstance(key, np.ndarray):
            fitting.add((1, *part))  # NumPy drops leading axes of length 1
        value = self.choose([0.25, *(j for j in self.calm if self.shapes[j] in fitting)])
        bound = b if type(value) is float else max(b, self.bounds[value])
        self.call("setitem", k, value, shape=shape, bound=bound, key=key)

    def matmul(self, k):
        shape, b = self.shapes[k], self.bounds[k]
        if not shape:
            return
        n = shape[-1]
        partners = [j for j in self.calm if self.contracts(j, n)]
        other = self.choose([*partners, None])
        if other is None:
            other, bound, theirs = self.constant((n, 2)), 1.5, (n, 2)
        else:
            bound, theirs = self.bounds[other], self.shapes[other]
        try:
            out = (np.ones(shape) @ np.ones(theirs)).shape
        except ValueError:
            return
        if np.prod(out) <= LARGEST:
            self.call("matmul", k, other, shape=out, bound=b * bound * max(n, 1))

    def contracts(self, j, n):
        theirs = self.shapes[j]
        return bool(theirs) and theirs[-2 if len(theirs) > 1 else -1] == n

    def softmax(self, k):
        shape = self.shapes[k]
        if not shape or 0 in shape:
            return
        axis = self.choose(list(range(-len(shape), len(shape))))
        op = self.choose(["softmax", "log_softmax"])
        bound = 1.0 if op == "softmax" else 2 * self.bounds[k] + 3.0
        self.call(op, k, shape=shape, bound=bound, axis=axis)

    MOVES = (unary, of_positive, binary, binary, where, reduction, rearrangement, indexing, matmul)
    MOVES = (*MOVES, softmax)


def write(choose, seed):
    """A program of 1 to 3 leaves and 1 to 30 moves."""
    writer = Writer(choose, seed)
    for _ in range(choose([1, 2, 3])):
        writer.leaf()
    for _ in range(choose(list(range(1, 31)))):
        move = choose(Writer.MOVES)
        move(writer, choose(writer.calm))
    leaves = len(writer.leaves)
    if not writer.steps:
        writer.call("tanh", 0, shape=writer.shapes[0], bound=1.0)
    last = writer.calm[-1]
    other = choose([k for k in writer.calm if k >= leaves])
    outputs = [last] if other == last else [other, last]
    return Program(writer.leaves, _named(writer.steps), outputs)


def _named(steps):
    """Steps with the ops' own names of options: ``shape`` is taken by ``call``."""
    return [
        step._replace(options={name.rstrip("_"): o for name, o in step.options.items()})
        for step in steps
    ]


def seeded(seed):
    """The program of a seed."""
    rng = np.random.default_rng(seed)
    return write(lambda options: options[rng.integers(len(options))], seed)

"""The engine in one page: reverse-mode automatic differentiation as odyssey does it, in miniature.

Read this file first. It builds, in order, the three parts on which everything in odyssey rests:

1. a **row**: one op of the table, a NumPy function and a derivative rule for each operand;
2. a **tape**: the list of nodes that calls of ops leave behind;
3. a **sweep**: one loop over that list, last node first, which propagates cotangents.

The rules are written with the ops themselves. So a sweep is again a sequence of op calls, a tape
can record it, and derivatives nest to any order. The names are those of the package, and
``tests/package/test_engine_in_one_page.py`` compares the results with it.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

# ------------------------------------------------------------------ Variable

# A Variable is an array with an identity. The id, not the array, tells a sweep which cotangents
# belong together: two Variables may hold equal arrays. In the package: odyssey/variable, and
# odyssey/table/value.py for the part that ops see.

_ids = itertools.count()


class Variable:
    """An array that a tape can track; ``requires_grad`` makes it a leaf."""

    def __init__(self, data: Any, requires_grad: bool = False) -> None:
        self.data = np.asarray(data)
        self.id = next(_ids)
        self.is_tracked = requires_grad  # results of tracked operands are tracked as well


# ------------------------------------------------------------------ rows: the table of ops


class Row(NamedTuple):
    """One op: its NumPy function, and a VJP rule for each operand, by the operand's name.

    A rule ``lambda g, y: ...`` maps the cotangent ``g`` of the result to that of one operand. It
    names the values that it needs besides ``g``: operands, or the result ``out``. Only these are
    saved on the tape, so ``add`` saves nothing, and ``exp`` its result but not its operand.
    """

    forward: Callable[..., Any]
    vjp: dict[str, Callable[..., Any]]


def op(forward: Callable[..., Any], **vjp: Callable[..., Any]) -> Callable[..., Variable]:
    """Declare an op, and return the function that calls it."""
    row = Row(forward, vjp)
    return lambda *operands, **options: call(row, operands, options)


def saved_names(rule: Callable[..., Any]) -> list[str]:
    """Return the names of the values that a rule needs besides the cotangent."""
    return list(inspect.signature(rule).parameters)[1:]


# ------------------------------------------------------------------ the tape


class Node(NamedTuple):
    """One recorded call: ids for the sweep to follow, and the values that the rules need."""

    row: Row
    output: int
    inputs: list[int | None]  # None for a constant operand
    shapes: list[tuple[int, ...]]
    saved: dict[str, Any]


_open_tapes: list[Tape] = []


class Tape:
    """Records the calls in its ``with`` block; a tape inside another shares its nodes."""

    def __enter__(self) -> Tape:
        self.nodes: list[Node] = _open_tapes[-1].nodes if _open_tapes else []
        _open_tapes.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _open_tapes.pop()

    def gradient(self, output: Variable, sources: Sequence[Variable]) -> list[Variable]:
        """Return the gradients of a scalar ``output``; zeros where it does not depend."""
        cotangents = backward_sweep(self.nodes, output, {x.id for x in sources})
        return [cotangents.get(x.id, Variable(np.zeros_like(x.data))) for x in sources]


def call(row: Row, xs: Sequence[Any], options: dict[str, Any]) -> Variable:
    """Run an op, and record the call if a tape is open and an operand is tracked."""
    operands = [x if isinstance(x, Variable) else Variable(x) for x in xs]
    out = Variable(row.forward(*[x.data for x in operands], **options))
    if _open_tapes and any(x.is_tracked for x in operands):
        out.is_tracked = True
        values = dict(zip(row.vjp, operands, strict=True)) | {"out": out}
        rules = [r for r, x in zip(row.vjp.values(), operands, strict=True) if x.is_tracked]
        saved = {name: values[name] for rule in rules for name in saved_names(rule)}
        inputs = [x.id if x.is_tracked else None for x in operands]
        shapes = [x.data.shape for x in operands]
        _open_tapes[-1].nodes.append(Node(row, out.id, inputs, shapes, saved))
    return out


# ------------------------------------------------------------------ the sweep


def backward_sweep(nodes: list[Node], output: Variable, sources: set[int]) -> dict[int, Variable]:
    """Propagate a cotangent of 1 from ``output`` through the nodes, the last node first.

    The nodes are in topological order, because a call is recorded after the calls that made its
    operands. So when a node is reached, all uses of its result have been visited: its cotangent
    is complete, is taken out of the dictionary, and only the frontier is held in memory.
    """
    cotangents = {output.id: Variable(np.ones_like(output.data))}
    reached: dict[int, Variable] = {}
    for node in nodes[::-1]:  # a copy: an outer tape may append to the list during the sweep
        g = cotangents.pop(node.output, None)
        if g is None:
            continue  # ``output`` does not depend on this call
        if node.output in sources:
            reached[node.output] = g
        for rule, id, shape in zip(node.row.vjp.values(), node.inputs, node.shapes, strict=True):
            if id is None:
                continue
            contribution = rule(g, *[node.saved[n] for n in saved_names(rule)])
            if contribution.data.shape != shape:  # the operand was broadcast
                contribution = sum_to(contribution, shape=shape)
            cotangents[id] = cotangents[id] + contribution if id in cotangents else contribution
    return cotangents | reached


# ------------------------------------------------------------------ ops, with rules made of ops


def _sum_to(x: Any, shape: tuple[int, ...]) -> Any:
    x = x.sum(axis=tuple(range(x.ndim - len(shape))))
    stretched = tuple(k for k, n in enumerate(shape) if n == 1 and x.shape[k] != 1)
    return x.sum(axis=stretched, keepdims=True)


add = op(np.add, x=lambda g: g, y=lambda g: g)
negative = op(np.negative, x=lambda g: -g)
multiply = op(np.multiply, x=lambda g, y: g * y, y=lambda g, x: g * x)
divide = op(np.divide, x=lambda g, y: g / y, y=lambda g, y, out: -(g * out / y))
exp = op(np.exp, x=lambda g, out: g * out)
log = op(np.log, x=lambda g, x: g / x)
sin = op(np.sin, x=lambda g, x: g * cos(x))
cos = op(np.cos, x=lambda g, x: -(g * sin(x)))
matmul = op(np.matmul, x=lambda g, y: g @ transpose(y), y=lambda g, x: transpose(x) @ g)
transpose = op(np.transpose, x=lambda g: transpose(g))

# A sum and a broadcast are transposes of each other, so each is the other's rule.
sum_to = op(_sum_to, x=lambda g, x: broadcast_to(g, shape=x.data.shape))
broadcast_to = op(np.broadcast_to, x=lambda g, x: sum_to(g, shape=x.data.shape))

# The operators of a Variable are ops.
Variable.__add__ = Variable.__radd__ = add
Variable.__mul__ = Variable.__rmul__ = multiply
Variable.__truediv__, Variable.__matmul__, Variable.__neg__ = divide, matmul, negative


def sum(x: Any) -> Variable:
    """Sum of all elements: a composite, which needs no rule of its own."""
    return sum_to(x, shape=())


# ------------------------------------------------------------------ nested derivatives


def grad(f: Callable[[Variable], Variable]) -> Callable[[Any], Variable]:
    """Return the gradient of a scalar function; ``grad(grad(f))`` works, since tapes nest."""

    def gradient(x: Any) -> Variable:
        with Tape() as tape:
            x = add(x, Variable(0.0, requires_grad=True))  # a new, tracked value that depends on x
            y = f(x)
        # While an enclosing tape is open, it records the ops of this sweep.
        return tape.gradient(y, [x])[0]

    return gradient


# The package adds what makes this fast, safe and complete: specs and dtypes, kernels, forward mode,
# checks that no saved array was written to, and pruning of nodes that nothing can reach (tape/);
# rules on plain arrays where nothing records (table/); whole functions as machine code (compiler/).

if __name__ == "__main__":
    w = Variable([[1.0, -2.0], [0.5, 3.0]], requires_grad=True)
    with Tape() as tape:
        loss = sum(exp(w @ w) * w)
    print("gradient:", *tape.gradient(loss, [w])[0].data)

    third = grad(grad(grad(sin)))
    print("sin'''(1):", third(1.0).data, "-cos(1):", -np.cos(1.0))

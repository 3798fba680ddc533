"""Types of elements, and what a scalar is for one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from odyssey.compiler.ir.views import View
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels.scalars import Program, Term, program
from odyssey.spec import Shape

__all__ = [
    "ITEM_SIZES",
    "ScalarProgram",
    "is_single_op",
    "scalar_program",
    "type_code",
    "REDUCTIONS",
    "Node",
    "IRBuilder",
    "random_access_inputs",
    "owns_memory",
    "topological_order",
    "rewrite",
    "substitute",
]


ITEM_SIZES = {
    "f2": 2,
    "f4": 4,
    "f8": 8,
    "c8": 8,
    "c16": 16,
    "b1": 1,
    **{f"{kind}{size}": size for kind in "iu" for size in (1, 2, 4, 8)},
}
"""Bytes of an element in memory, by type; what other types hold is not computed natively."""


def type_code(dtype: DTypeLike) -> str:
    """The letters of a dtype: kind and bytes."""
    return np.dtype(dtype).str[1:]


class ScalarProgram(NamedTuple):
    """A scalar's program for a type, and the text that tells it from others."""

    program: Program
    text: str


@lru_cache(maxsize=2048)
def _cached_program(
    scalar: Any, arity: int, options: tuple[Any, ...], text: str, type: str
) -> ScalarProgram:
    made = program(scalar, arity, options, np.dtype(type if type != "b1" else bool))
    return ScalarProgram(made, f"{type} {made.python_source('scalar')}")


def scalar_program(
    scalar: Callable[..., Any], arity: int, options: tuple[Any, ...], type: str
) -> ScalarProgram:
    """The program of a scalar that computes in ``type``; see ``kernels.scalars.program``."""
    try:
        # The text tells options apart that are equal: 1, 1.0 and True, 0.0 and -0.0.
        return _cached_program(scalar, arity, options, repr(options), type)
    except TypeError:  # an option that is not hashable
        return _cached_program.__wrapped__(scalar, arity, options, "", type)


def is_single_op(program: Program, name: str) -> bool:
    """Whether a scalar is this one step of its two numbers in order, and nothing else."""
    if program.arity != 2 or len(program.steps) != 1:
        return False
    ((step, operands),) = program.steps
    # By numbers: to compare Terms would write a step.
    ids = [o.id if isinstance(o, Term) else None for o in operands]
    return step == name and ids == [0, 1] and getattr(program.result, "id", None) == 2


REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")
"""How folds combine two elements, and scatters, which may ``set`` them as well."""


class Node:
    """A value.

    Attributes:
        kind: ``leaf number index map fold gather scatter scan product view join call part``.
        inputs: The nodes that it is computed from.
        shape: Lengths of its axes.
        type: Of its elements, as in ``SIZES``; of parts of calls any dtype's code.
        detail: What else says what it is; of equal nodes equal.
        work: What is not compared: the Program of a map or a scan, the call of a call.
        id: Its number; that of an input is smaller.
        of: The name of the row that it was first made for, for people; empty of what is given.
        late: Whether it is computed a second time, and as late as it is needed.
    """

    __slots__ = ("detail", "id", "inputs", "kind", "late", "of", "shape", "size", "type", "work")

    def __init__(
        self,
        kind: str,
        inputs: tuple[Node, ...],
        shape: Shape,
        type: str,
        detail: Any,
        work: Any,
        id: int,
        of: str,
    ) -> None:
        self.kind = kind
        self.inputs = inputs
        self.shape = shape
        self.size = math.prod(shape)
        self.type = type
        self.detail = detail
        self.work = work
        self.id = id
        self.of = of
        self.late = False

    def __repr__(self) -> str:
        given = ", ".join(f"n{i.id}" for i in self.inputs)
        return f"n{self.id}: {self.type}{list(self.shape)} = {self.kind}({given})"

    @property
    def owner(self) -> Node:
        """Through views: the node whose memory holds this one's elements."""
        node = self
        while node.kind == "view":
            node = node.inputs[0]
        return node

    @property
    def is_number(self) -> bool:
        """Whether it is one number, computed wherever it is needed."""
        return self.kind == "number" or (self.kind == "map" and self.size == 1)


@ignore_fp_errors()
def _astype(x: Any, dtype: Any) -> Any:
    return x.astype(dtype)


def _identity(x: Any) -> Any:
    return x


class IRBuilder:
    """Makes nodes: equal ones once, and what changes nothing not at all.

    Attributes:
        all: By number.
        of: The name of the row that nodes are made for now; else that of their first input counts.
    """

    def __init__(self) -> None:
        self.all: list[Node] = []
        self.of = ""
        self._known: dict[Any, Node] = {}

    def make(
        self,
        kind: str,
        inputs: Iterable[Node],
        shape: Iterable[int],
        type: str,
        detail: Any = None,
        work: Any = None,
    ) -> Node:
        """The node, or an equal one that is there."""
        inputs, shape = tuple(inputs), tuple(shape)
        key = (kind, tuple([i.id for i in inputs]), shape, type, detail)
        known = self._known.get(key)
        if known is None:
            of = self.of or (inputs[0].of if inputs else "")
            known = Node(kind, inputs, shape, type, detail, work, len(self.all), of)
            self.all.append(known)
            self._known[key] = known
        return known

    def like(self, node: Node, inputs: Sequence[Node]) -> Node:
        """The same node of other inputs."""
        of, self.of = self.of, node.of
        made = self.make(node.kind, inputs, node.shape, node.type, node.detail, node.work)
        self.of = of
        made.late = made.late or node.late
        return made

    # -------------------------------------------------------------- leaves

    def leaf(self, role: str, index: int, shape: Shape, type: str, array: Any = None) -> Node:
        """An array that is there: ``input``, ``state`` or ``constant`` number ``index``."""
        return self.make("leaf", (), shape, type, (role, index), array)

    def number(self, value: Any, type: str) -> Node:
        """A number of a type."""
        value = np.dtype(type if type != "b1" else bool).type(value)
        return self.make("number", (), (), type, value.tobytes(), value)

    def index(self, shape: Shape, axis: int) -> Node:
        """The index along an axis, at each element."""
        column = tuple(n if k == axis else 1 for k, n in enumerate(shape))
        return self.broadcast(self.make("index", (), column, "i8", axis), shape)

    # -------------------------------------------------------------- computing

    def map(self, means: ScalarProgram, inputs: Sequence[Node], shape: Shape, type: str) -> Node:
        """A program on each element of inputs that broadcast to ``shape``."""
        inputs = [_skip_broadcasts(i) for i in inputs]
        if is_single_op(means.program, "mul"):
            for one, other in (inputs, inputs[::-1]):
                if other.type == type and other.shape == shape and _is_literal_one(one):
                    return other
        lifted = _shape_with_unit_axes(inputs, shape)
        if lifted is not None:
            found = [i if i.size == 1 else self._lift(i, lifted) for i in inputs]
            return self.reshape(self._map(means, found, lifted, type), shape)
        return self._map(means, inputs, shape, type)

    def _lift(self, x: Node, shape: Shape) -> Node:
        """A node in a shape with more axes of length 1; a map of what is there is made in it."""
        there = all(i.size == 1 or (i.kind == "leaf" and i.shape == x.shape) for i in x.inputs)
        if x.kind == "map" and there:
            inputs = [i if i.size == 1 else self.reshape(i, shape) for i in x.inputs]
            return self.make("map", inputs, shape, x.type, x.detail, x.work)
        return self.reshape(x, shape)

    def _map(self, means: ScalarProgram, inputs: Sequence[Node], shape: Shape, type: str) -> Node:
        return self.make("map", inputs, shape, type, means.text, means.program)

    def cast(self, x: Node, type: str) -> Node:
        """The same numbers in another type."""
        if x.type == type:
            return x
        if x.kind == "number":
            return self.number(_astype(x.work, type if type != "b1" else bool), type)
        computed = x.type if type == "b1" else type
        return self.map(scalar_program(_identity, 1, (), computed), [x], x.shape, type)

    def copy(self, x: Node, whose: Any = None) -> Node:
        """The same elements in memory of their own; one copy for each of ``whose``."""
        means = scalar_program(_identity, 1, (), x.type)
        source = _skip_broadcasts(x)
        if source.size != 1:  # one number is computed where it is needed, and not read
            source = x
        return self.make("map", [source], x.shape, x.type, (means.text, whose), means.program)

    def fold(self, how: str, x: Node, axes: Iterable[int]) -> Node:
        """Combine the elements along axes, which stay with length 1."""
        long = tuple(sorted(a for a in axes if x.shape[a] != 1))
        if not long:
            return x
        x = self._in_memory(x)
        base = x.inputs[0] if x.kind == "view" and x.detail[0] == "reshape" else x
        longer = base.kind in ("fold", "map") and len(base.shape) > len(x.shape)
        if longer and _squeeze(base.shape) == _squeeze(x.shape):
            # With the axes of length 1 that folds left, it can be one loop with them.
            places = [a for a, n in enumerate(base.shape) if n != 1]
            order = [a for a, n in enumerate(x.shape) if n != 1]
            made = self.fold(how, base, [places[order.index(a)] for a in long])
            return self.reshape(made, [1 if a in long else n for a, n in enumerate(x.shape)])
        shape = [1 if a in long else n for a, n in enumerate(x.shape)]
        return self.make("fold", [x], shape, x.type, (how, long))

    def gather(self, x: Node, places: Sequence[Node]) -> Node:
        """The elements of ``x`` at places along each of its axes, which broadcast to a shape."""
        shape = np.broadcast_shapes(*[i.shape for i in places])
        if x.size <= 1 or not math.prod(shape):
            found = self.reshape(x, ()) if x.size == 1 else self.number(0, x.type)
            return self.broadcast(found, shape)
        inputs = [self._in_memory(x), *map(_skip_broadcasts, places)]
        return self.make("gather", inputs, shape, x.type)

    def scatter(self, how: str, base: Node, x: Node, places: Sequence[Node]) -> Node:
        """What ``base`` becomes where the elements of ``x`` are put at places along its axes.

        Args:
            how: ``set``, or one of ``FOLDS``, by which an element meets what is there. They come
                in row-major order.
            base: What was there before.
            x: The elements.
            places: A node for each axis of ``base``, which broadcast to the shape of ``x``.
        """
        if not x.size or not base.size:
            return base
        inputs = [_skip_broadcasts(base), self._in_memory(x), *map(_skip_broadcasts, places)]
        return self.make("scatter", inputs, base.shape, base.type, how)

    def scan(self, means: ScalarProgram, inputs: Sequence[Node], axis: int) -> Node:
        """Along an axis the first element of ``inputs[0]``, then a program of what came before it.

        The program gets the result before, the element, and, one shorter along the axis, those of
        the other inputs: what leads from one element to the next.
        """
        first = inputs[0]
        if first.size <= 1 or first.shape[axis] == 1:
            return first
        found = [self._in_memory(x) for x in inputs]
        return self.make("scan", found, first.shape, first.type, (means.text, axis), means.program)

    def _in_memory(self, x: Node) -> Node:
        """A node that lies in memory, or can: no index, nor a number that is repeated."""
        repeated = x.size != 1 and x.owner.size == 1
        if x.owner.kind not in ("number", "index") and not repeated:
            return x
        means = scalar_program(_identity, 1, (), x.type)
        return self.make("map", [_skip_broadcasts(x)], x.shape, x.type, means.text, means.program)

    def product(self, a: Node, b: Node) -> Node:
        """Products of matrices; leading axes broadcast."""
        if b.shape[-1] == 1 and _is_literal_one(b.owner) and math.prod(b.shape[:-2]) == 1:
            long = (1,) * (len(b.shape) - len(a.shape)) + a.shape
            return self.fold("sum", self.reshape(a, long), (len(long) - 1,))
        a, b = self._in_memory(a), self._in_memory(b)
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return self.make("product", [a, b], (*batch, a.shape[-2], b.shape[-1]), a.type, ("=", 0.0))

    # -------------------------------------------------------------- views

    def reshape(self, x: Node, shape: Iterable[int]) -> Node:
        """The same elements in row-major order."""
        while x.kind == "view" and x.detail[0] == "reshape":
            x = x.inputs[0]
        shape = tuple(shape)
        if -1 in shape:
            rest = math.prod(n for n in shape if n != -1)
            shape = tuple(x.size // max(rest, 1) if n == -1 else n for n in shape)
        if x.shape == shape:
            return x
        if x.owner.size == 1:
            return self._repeated(x.owner, shape)
        return self.make("view", [x], shape, x.type, ("reshape", shape))

    def _repeated(self, x: Node, shape: Shape) -> Node:
        """A node of one element in any shape."""
        if x.shape == shape:
            return x
        if math.prod(shape) == 1:
            return self.make("view", [x], shape, x.type, ("reshape", shape))
        one = self._repeated(x, ())
        return self.make("view", [one], shape, x.type, ("broadcast", shape))

    def transpose(self, x: Node, axes: Iterable[int]) -> Node:
        """The axes in another order."""
        axes = tuple(axes)
        if x.owner.size == 1:
            return self._repeated(x.owner, tuple(x.shape[a] for a in axes))
        if x.kind == "view" and x.detail[0] == "transpose":
            axes = tuple(x.detail[1][a] for a in axes)
            x = x.inputs[0]
        if axes == tuple(range(len(axes))):
            return x
        return self.make("view", [x], [x.shape[a] for a in axes], x.type, ("transpose", axes))

    def broadcast(self, x: Node, shape: Iterable[int]) -> Node:
        """Repeated along axes of length 1, and new leading ones."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if x.owner.size == 1:
            return self._repeated(x.owner, tuple(shape))
        if x.kind == "view" and x.detail[0] == "broadcast":
            x = x.inputs[0]
        return self.make("view", [x], shape, x.type, ("broadcast", shape))

    def part(self, x: Node, key: tuple[Any, ...]) -> Node:
        """What a tuple of slices, numbers, None and Ellipsis picks."""
        shape = np.broadcast_to(np.zeros((), "i1"), x.shape)[key].shape
        if x.owner.size == 1:
            return self._repeated(x.owner, shape)
        spelled = tuple((k.start, k.stop, k.step) if isinstance(k, slice) else repr(k) for k in key)
        return self.make("view", [x], shape, x.type, ("part", spelled), key)

    def windows(self, x: Node, window: Shape, stride: Shape, dilation: Shape) -> Node:
        """Windows that slide over the last axes: their elements, and then their places."""
        shape = View.dense(x.shape).windows(window, stride, dilation).shape
        if x.owner.size == 1:
            return self._repeated(x.owner, shape)
        return self.make("view", [x], shape, x.type, ("windows", (window, stride, dilation)))

    def join(self, parts: Sequence[tuple[Node, tuple[Any, ...]]], shape: Shape, type: str) -> Node:
        """A whole of parts, each at the place that its key picks; elsewhere 0."""
        keys = tuple(
            tuple((k.start, k.stop, k.step) if isinstance(k, slice) else k for k in key)
            for _, key in parts
        )
        return self.make(
            "join", [part for part, _ in parts], shape, type, keys, tuple(key for _, key in parts)
        )

    def call(self, inputs: Sequence[Node], work: Any, results: Sequence[Any]) -> list[Node]:
        """A call of a row, and a node for each of its results."""
        found = [self._in_memory(i) for i in inputs]
        made = self.make("call", found, (), "", len(self.all), work)
        return [
            self.make("part", [made], spec.shape, type_code(spec.dtype), k)
            for k, spec in enumerate(results)
        ]


def _is_literal_one(x: Node) -> bool:
    return x.kind == "number" and x.type[0] != "c" and bool(x.work == 1)  # (1 + 0j) inf has a NaN


def _skip_broadcasts(x: Node) -> Node:
    """What a broadcast repeats: maps repeat by themselves."""
    while x.kind == "view" and x.detail[0] == "broadcast":
        x = x.inputs[0]
    return x


def _squeeze(shape: Shape) -> list[int]:
    return [n for n in shape if n != 1]


def _shape_with_unit_axes(inputs: Sequence[Node], shape: Shape) -> Shape | None:
    """The shape with more axes of length 1 that some input was computed in, if all can be.

    Sums drop the axis that they fold. What is computed of them with it can be one loop with them.
    """
    found = None
    for x in inputs:
        if x.kind == "view" and x.detail[0] == "reshape" and x.shape == shape and x.size > 1:
            base = x.inputs[0]
            folded = base.kind in ("fold", "map") and len(base.shape) > len(shape)
            if folded and _squeeze(base.shape) == _squeeze(shape):
                found = base.shape
    if found is None or any(x.size > 1 and x.shape != shape for x in inputs):
        return None
    return found


def owns_memory(node: Node) -> bool:
    """Whether a node has memory that belongs to it alone when it is computed."""
    return node.kind in ("map", "fold", "gather", "scatter", "scan", "product", "join")


def random_access_inputs(node: Node) -> tuple[Node, ...]:
    """The inputs that must be whole before the first element of a node is computed."""
    return node.inputs[:1] if node.kind in ("gather", "scatter") else ()


def topological_order(roots: Iterable[Node]) -> list[Node]:
    """What roots are computed from, inputs first."""
    found: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.id not in found:
            found[node.id] = node
            stack += node.inputs
    return [found[k] for k in sorted(found)]


def rewrite(
    nodes: IRBuilder, roots: Sequence[Node], rule: Callable[[Node, list[Node]], Node | None]
) -> list[Node]:
    """Roots whose graph was rewritten.

    Args:
        nodes: What makes nodes.
        roots: What is wanted.
        rule: Given a node and its new inputs, what takes its place; None for the node itself.
    """
    new: dict[int, Node] = {}
    for node in topological_order(roots):
        inputs = [new[i.id] for i in node.inputs]
        made = rule(node, inputs)
        if made is None:
            same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
            made = node if same else nodes.like(node, inputs)
        new[node.id] = made
    return [new[root.id] for root in roots]


def substitute(nodes: IRBuilder, roots: Sequence[Node], new: Mapping[int, Node]) -> dict[int, Node]:
    """By number of each node of a graph what takes its place, where some give way to others.

    Args:
        nodes: What makes nodes.
        roots: What is wanted.
        new: By number of a node, another of the same value; of its inputs, too, some may give way.
    """
    made: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        given = new.get(node.id, node)
        waiting = [i for i in given.inputs if i.id not in made]
        if waiting and node.id not in made:
            stack += waiting
            continue
        stack.pop()
        if node.id not in made:
            inputs = [made[i.id] for i in given.inputs]
            same = all(a is b for a, b in zip(inputs, given.inputs, strict=True))
            made[node.id] = given if same else nodes.like(given, inputs)
    return made

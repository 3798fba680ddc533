"""IR nodes: how each value of a program is computed from others; building and rewriting them.

Kinds of nodes:

* ``leaf``: an array of an argument, a state or a constant
* ``number``: a literal; ``index``: the index along an axis
* ``map``: a scalar program on each element
* ``reduce``: a sum and the like along axes
* ``gather``: elements read at indices; ``scatter``: elements written or combined at indices
* ``scan``: each element combined with those before it along an axis
* ``product``: a matrix product
* ``lapack``: a factorization of matrices, or a solution of systems, see ``codegen.lapack``
* ``view``: the same elements with other shape and strides
* ``join``: an array of members at disjoint slices, and 0 elsewhere
* ``call``: a host call, with a ``result`` node for each of its results

Equal nodes are made once (hash-consing).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.types import HALVES, dtype_of_code
from odyssey.devices.half_dtypes import is_bfloat16
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.kernels.scalars import Program, Term, program
from odyssey.spec import Shape

__all__ = [
    "ITEM_SIZES",
    "REDUCTIONS",
    "IRBuilder",
    "LuLayout",
    "Node",
    "ScalarProgram",
    "is_expensive",
    "is_single_op",
    "lu_layout",
    "owns_memory",
    "random_access_inputs",
    "rewrite",
    "scalar_program",
    "substitute",
    "topological_order",
    "type_code",
]


ITEM_SIZES = {
    "f2": 2,
    "f2b": 2,
    "f4": 4,
    "f8": 8,
    "c8": 8,
    "c16": 16,
    "b1": 1,
    **{f"{kind}{size}": size for kind in "iu" for size in (1, 2, 4, 8)},
}
"""Bytes of an element in memory, by type code; other types are not computed natively."""


def type_code(dtype: DTypeLike) -> str:
    """Return the type code of a dtype: kind and bytes, as in ``f8``; ``f2b`` for bfloat16."""
    dtype = np.dtype(dtype)
    return "f2b" if is_bfloat16(dtype) else dtype.str[1:]


class ScalarProgram(NamedTuple):
    """A scalar function traced for a type, and the text that identifies it."""

    body: Program
    key: str


@lru_cache(maxsize=2048)
def _cached_program(
    scalar: Any, arity: int, options: tuple[Any, ...], text: str, type: str
) -> ScalarProgram:
    body = program(scalar, arity, options, dtype_of_code(type))
    return ScalarProgram(body, f"{type} {body.python_source('scalar')}")


def scalar_program(
    scalar: Callable[..., Any], arity: int, options: tuple[Any, ...], type: str
) -> ScalarProgram:
    """Trace a scalar that computes in ``type``; see ``kernels.scalars.program``."""
    try:
        # The text distinguishes options that are equal: 1, 1.0 and True, 0.0 and -0.0.
        return _cached_program(scalar, arity, options, repr(options), type)
    except TypeError:  # an option that is not hashable
        return _cached_program.__wrapped__(scalar, arity, options, "", type)


def is_single_op(program: Program, name: str) -> bool:
    """Return whether a program is a single op of its two operands in order."""
    if program.arity != 2 or len(program.steps) != 1:
        return False
    ((step, operands),) = program.steps
    # Compare ids, since comparing Terms records a step.
    ids = [o.id if isinstance(o, Term) else None for o in operands]
    return step == name and ids == [0, 1] and getattr(program.result, "id", None) == 2


def is_expensive(node: Node) -> bool:
    """Return whether a map is better stored than recomputed for a second use."""
    steps = node.payload.steps if node.kind == "map" else ()
    return any(name.startswith("math.") or name in ("truediv", "pow") for name, _ in steps)


REDUCTIONS = ("sum", "prod", "max", "min", "any", "all")
"""How reductions combine two elements; scatters may also ``set`` them."""


class Node:
    """A value of a program.

    Attributes:
        kind: ``leaf number index map reduce gather scatter scan product lapack view join call
            result``.
        inputs: Nodes that it is computed from.
        shape: Lengths of its axes.
        type: Type code of its elements, as in ``ITEM_SIZES``; of results of calls any dtype's.
        detail: Everything else that identifies it; equal for equal nodes.
        payload: Data that is not compared: the Program of a map or a scan, the Call of a call.
        id: Its number, larger than those of its inputs.
        op: Name of the row that it was first made for, for people; empty for leaves.
        is_rematerialized: Whether it is computed a second time, as late as it is needed.
    """

    __slots__ = (
        "detail",
        "id",
        "inputs",
        "is_rematerialized",
        "kind",
        "op",
        "payload",
        "shape",
        "size",
        "type",
    )

    def __init__(
        self,
        kind: str,
        inputs: tuple[Node, ...],
        shape: Shape,
        type: str,
        detail: Any,
        payload: Any,
        id: int,
        op: str,
    ) -> None:
        self.kind = kind
        self.inputs = inputs
        self.shape = shape
        self.size = math.prod(shape)
        self.type = type
        self.detail = detail
        self.payload = payload
        self.id = id
        self.op = op
        self.is_rematerialized = False

    def __repr__(self) -> str:
        inputs = ", ".join(f"n{i.id}" for i in self.inputs)
        return f"n{self.id}: {self.type}{list(self.shape)} = {self.kind}({inputs})"

    @property
    def owner(self) -> Node:
        """The node whose memory holds these elements: itself, or what a view shows."""
        node = self
        while node.kind == "view":
            node = node.inputs[0]
        return node

    @property
    def is_number(self) -> bool:
        """True for one number, which is computed wherever it is needed."""
        return self.kind == "number" or (self.kind == "map" and self.size == 1)


@ignore_fp_errors()
def _astype(x: Any, dtype: Any) -> Any:
    return x.astype(dtype)


def _identity(x: Any) -> Any:
    return x


_IDENTITY_OF_FLOAT32 = scalar_program(_identity, 1, (), "f4").key


class IRBuilder:
    """Builder of nodes, which makes equal nodes once and simplifies trivial ones away.

    Attributes:
        nodes: All nodes, by number.
        op: Name of the row that is being lowered; without one nodes inherit it from an input.
        multiplies_halves: Whether the target has products of two matrices of one half precision,
            added up in float32. If not, one of few rows reads one matrix in half precision.
    """

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.op = ""
        self.multiplies_halves = False
        self._unique: dict[Any, Node] = {}

    def make_node(
        self,
        kind: str,
        inputs: Iterable[Node],
        shape: Iterable[int],
        type: str,
        detail: Any = None,
        payload: Any = None,
    ) -> Node:
        """Return a node, which is the existing one if there is an equal node."""
        inputs, shape = tuple(inputs), tuple(shape)
        key = (kind, tuple([i.id for i in inputs]), shape, type, detail)
        node = self._unique.get(key)
        if node is None:
            op = self.op or (inputs[0].op if inputs else "")
            node = Node(kind, inputs, shape, type, detail, payload, len(self.nodes), op)
            self.nodes.append(node)
            self._unique[key] = node
        return node

    def with_inputs(self, node: Node, inputs: Sequence[Node]) -> Node:
        """Return a copy of a node with other inputs."""
        outer, self.op = self.op, node.op
        copy = self.make_node(node.kind, inputs, node.shape, node.type, node.detail, node.payload)
        self.op = outer
        copy.is_rematerialized = copy.is_rematerialized or node.is_rematerialized
        return copy

    # -------------------------------------------------------------- leaves

    def leaf(self, role: str, index: int, shape: Shape, type: str, array: Any = None) -> Node:
        """Return the leaf of an array: ``input``, ``state`` or ``constant`` number ``index``."""
        return self.make_node("leaf", (), shape, type, (role, index), array)

    def literal(self, value: Any, type: str) -> Node:
        """Return a number of a type."""
        value = dtype_of_code(type).type(value)
        return self.make_node("number", (), (), type, value.tobytes(), value)

    def index(self, shape: Shape, axis: int) -> Node:
        """Return the index along an axis, at each element."""
        column = tuple(n if k == axis else 1 for k, n in enumerate(shape))
        return self.broadcast(self.make_node("index", (), column, "i8", axis), shape)

    # -------------------------------------------------------------- elements

    def map(self, program: ScalarProgram, inputs: Sequence[Node], shape: Shape, type: str) -> Node:
        """Apply a program to each element of inputs that broadcast to ``shape``."""
        inputs = [_skip_broadcasts(i) for i in inputs]
        if is_single_op(program.body, "mul"):  # x * 1 -> x
            for one, other in (inputs, inputs[::-1]):
                if other.type == type and other.shape == shape and _is_literal_one(one):
                    return other
        is_copy = program.key == _IDENTITY_OF_FLOAT32 and type == "f4" and inputs[0].shape == shape
        if is_copy and self.half_source(inputs[0]) is not None:  # it has memory of its own
            return inputs[0]
        longer = _shape_with_unit_axes(inputs, shape)
        if longer is not None:
            inputs = [i if i.size == 1 else self._insert_unit_axes(i, longer) for i in inputs]
            node = self.make_node("map", inputs, longer, type, program.key, program.body)
            return self.reshape(node, shape)
        return self.make_node("map", inputs, shape, type, program.key, program.body)

    def _insert_unit_axes(self, x: Node, shape: Shape) -> Node:
        """Return a node in a shape with more axes of length 1; maps of leaves are made in it."""
        from_leaves = all(
            i.size == 1 or (i.kind == "leaf" and i.shape == x.shape) for i in x.inputs
        )
        if x.kind == "map" and from_leaves:
            inputs = [i if i.size == 1 else self.reshape(i, shape) for i in x.inputs]
            return self.make_node("map", inputs, shape, x.type, x.detail, x.payload)
        return self.reshape(x, shape)

    def convert(self, x: Node, type: str) -> Node:
        """Convert elements to another type."""
        if x.type == type:
            return x
        if x.kind == "number":
            return self.literal(_astype(x.payload, dtype_of_code(type)), type)
        source = self.half_source(x) if type in HALVES else None
        if source is not None and source.type == type:
            return source
        computed = x.type if type == "b1" else type
        return self.map(scalar_program(_identity, 1, (), computed), [x], x.shape, type)

    def half_source(self, x: Node) -> Node | None:
        """Return the node of half precision that a float32 node is cast from, with its views."""
        if x.kind == "view":
            source = self.half_source(x.inputs[0])
            if source is None:
                return None
            return self.make_node("view", [source], x.shape, source.type, x.detail, x.payload)
        if x.kind != "map" or x.type != "f4" or x.inputs[0].type not in HALVES:
            return None
        key = x.detail if isinstance(x.detail, str) else x.detail[0]  # of a cast for one reader
        is_cast = key == _IDENTITY_OF_FLOAT32 and x.inputs[0].shape == x.shape
        return x.inputs[0] if is_cast else None

    def copy(self, x: Node, owner: Any = None) -> Node:
        """Copy elements to memory of their own; a separate copy for each ``owner``."""
        program = scalar_program(_identity, 1, (), x.type)
        source = _skip_broadcasts(x)
        if source.size != 1:  # a single number is computed where it is needed, and not read
            source = x
        return self.make_node("map", [source], x.shape, x.type, (program.key, owner), program.body)

    def reduce(self, how: str, x: Node, axes: Iterable[int]) -> Node:
        """Reduce axes, which stay with length 1."""
        long = tuple(sorted(a for a in axes if x.shape[a] != 1))
        if not long:
            return x
        x = self._materializable(x)
        base = x.inputs[0] if x.kind == "view" and x.detail[0] == "reshape" else x
        longer = base.kind in ("reduce", "map") and len(base.shape) > len(x.shape)
        if longer and _squeeze(base.shape) == _squeeze(x.shape):
            # With the unit axes that reductions left, both can be one loop.
            base_axes = [a for a, n in enumerate(base.shape) if n != 1]
            x_axes = [a for a, n in enumerate(x.shape) if n != 1]
            node = self.reduce(how, base, [base_axes[x_axes.index(a)] for a in long])
            return self.reshape(node, [1 if a in long else n for a, n in enumerate(x.shape)])
        shape = [1 if a in long else n for a, n in enumerate(x.shape)]
        return self.make_node("reduce", [x], shape, x.type, (how, long))

    def gather(self, x: Node, indices: Sequence[Node]) -> Node:
        """Return the elements of ``x`` at indices along each of its axes, which broadcast."""
        shape = np.broadcast_shapes(*[i.shape for i in indices])
        if x.size <= 1 or not math.prod(shape):
            element = self.reshape(x, ()) if x.size == 1 else self.literal(0, x.type)
            return self.broadcast(element, shape)
        inputs = [self._materializable(x), *map(_skip_broadcasts, indices)]
        return self.make_node("gather", inputs, shape, x.type)

    def scatter(self, how: str, base: Node, x: Node, indices: Sequence[Node]) -> Node:
        """Return ``base`` with the elements of ``x`` written at indices along its axes.

        Args:
            how: ``set``, or one of ``REDUCTIONS`` to combine with the element there. Elements are
                written in row-major order.
            base: The array before.
            x: The elements.
            indices: A node for each axis of ``base``, which broadcast to the shape of ``x``.
        """
        if not x.size or not base.size:
            return base
        inputs = [_skip_broadcasts(base), self._materializable(x)]
        inputs += map(_skip_broadcasts, indices)
        return self.make_node("scatter", inputs, base.shape, base.type, how)

    def scan(self, program: ScalarProgram, inputs: Sequence[Node], axis: int) -> Node:
        """Return the first element of ``inputs[0]`` along an axis, then running results.

        The program gets the previous result, the element, and those of the other inputs, which are
        one shorter along the axis: operands of the step to the element.
        """
        first = inputs[0]
        if first.size <= 1 or first.shape[axis] == 1:
            return first
        arrays = [self._materializable(x) for x in inputs]
        detail = (program.key, axis)
        return self.make_node("scan", arrays, first.shape, first.type, detail, program.body)

    def _materializable(self, x: Node) -> Node:
        """Return a node that can lie in memory: a copy of an index or of a repeated number."""
        repeated = x.size != 1 and x.owner.size == 1
        if x.owner.kind not in ("number", "index") and not repeated:
            return x
        program = scalar_program(_identity, 1, (), x.type)
        source = [_skip_broadcasts(x)]
        return self.make_node("map", source, x.shape, x.type, program.key, program.body)

    def matmul(self, a: Node, b: Node) -> Node:
        """Return matrix products; leading axes broadcast."""
        # A product with a column of ones is a sum along rows.
        if b.shape[-1] == 1 and _is_literal_one(b.owner) and math.prod(b.shape[:-2]) == 1:
            long = (1,) * (len(b.shape) - len(a.shape)) + a.shape
            return self.reduce("sum", self.reshape(a, long), (len(long) - 1,))
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        shape = (*batch, a.shape[-2], b.shape[-1])
        if not math.prod(shape):  # no operand, which may be large, is computed for it
            return self.broadcast(self.literal(0, a.type), shape)
        a, b = self._materializable(a), self._materializable(b)
        return self.make_node("product", [a, b], shape, a.type, ("=", 0.0))

    def lapack(
        self, name: str, inputs: Sequence[Node], shape: Shape, options: tuple[Any, ...]
    ) -> Node:
        """Return the result of a LAPACK function on matrices; see ``codegen.lapack``."""
        arrays = [self._materializable(i) for i in inputs]
        return self.make_node("lapack", arrays, shape, arrays[0].type, (name, *options))

    # -------------------------------------------------------------- views

    def reshape(self, x: Node, shape: Iterable[int]) -> Node:
        """Return the elements in row-major order in another shape."""
        while x.kind == "view" and x.detail[0] == "reshape":
            x = x.inputs[0]
        shape = tuple(shape)
        if -1 in shape:
            rest = math.prod(n for n in shape if n != -1)
            shape = tuple(x.size // max(rest, 1) if n == -1 else n for n in shape)
        if x.shape == shape:
            return x
        if x.owner.size == 1:
            return self._repeat_element(x.owner, shape)
        return self.make_node("view", [x], shape, x.type, ("reshape", shape))

    def _repeat_element(self, x: Node, shape: Shape) -> Node:
        """Return a view of one element in any shape."""
        if x.shape == shape:
            return x
        if math.prod(shape) == 1:
            return self.make_node("view", [x], shape, x.type, ("reshape", shape))
        one = self._repeat_element(x, ())
        return self.make_node("view", [one], shape, x.type, ("broadcast", shape))

    def transpose(self, x: Node, axes: Iterable[int]) -> Node:
        """Permute the axes."""
        axes = tuple(axes)
        if x.owner.size == 1:
            return self._repeat_element(x.owner, tuple(x.shape[a] for a in axes))
        if x.kind == "view" and x.detail[0] == "transpose":
            axes = tuple(x.detail[1][a] for a in axes)
            x = x.inputs[0]
        if axes == tuple(range(len(axes))):
            return x
        shape = [x.shape[a] for a in axes]
        return self.make_node("view", [x], shape, x.type, ("transpose", axes))

    def broadcast(self, x: Node, shape: Iterable[int]) -> Node:
        """Repeat along axes of length 1 and new leading axes."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if x.owner.size == 1:
            return self._repeat_element(x.owner, tuple(shape))
        if x.kind == "view" and x.detail[0] == "broadcast":
            x = x.inputs[0]
        return self.make_node("view", [x], shape, x.type, ("broadcast", shape))

    def slice(self, x: Node, key: tuple[Any, ...]) -> Node:
        """Return the elements at a key of slices, integers, None and Ellipsis."""
        shape = np.broadcast_to(np.zeros((), "i1"), x.shape)[key].shape
        if x.owner.size == 1:
            return self._repeat_element(x.owner, shape)
        hashable = tuple(
            (k.start, k.stop, k.step) if isinstance(k, slice) else repr(k) for k in key
        )
        return self.make_node("view", [x], shape, x.type, ("slice", hashable), key)

    def windows(self, x: Node, window: Shape, stride: Shape, dilation: Shape) -> Node:
        """Return sliding windows over the last axes: axes of their elements, then of positions."""
        shape = View.dense(x.shape).windows(window, stride, dilation).shape
        if x.owner.size == 1:
            return self._repeat_element(x.owner, shape)
        detail = ("windows", (window, stride, dilation))
        return self.make_node("view", [x], shape, x.type, detail)

    def join(
        self, members: Sequence[tuple[Node, tuple[Any, ...]]], shape: Shape, type: str
    ) -> Node:
        """Return an array of members, each at the slices of its key; 0 elsewhere."""
        keys = tuple([key for _, key in members])
        hashable = tuple(
            tuple((k.start, k.stop, k.step) if isinstance(k, slice) else k for k in key)
            for key in keys
        )
        return self.make_node("join", [x for x, _ in members], shape, type, hashable, keys)

    def call(self, inputs: Sequence[Node], call: Any, results: Sequence[Any]) -> list[Node]:
        """Return a node for each result of a host call."""
        arrays = [self._materializable(i) for i in inputs]
        node = self.make_node("call", arrays, (), "", len(self.nodes), call)
        return [
            self.make_node("result", [node], spec.shape, type_code(spec.dtype), k)
            for k, spec in enumerate(results)
        ]


def _is_literal_one(x: Node) -> bool:
    return (
        x.kind == "number" and x.type[0] != "c" and bool(x.payload == 1)
    )  # (1 + 0j) inf has a NaN


def _skip_broadcasts(x: Node) -> Node:
    """Return the operand of broadcasts, since maps broadcast by themselves."""
    while x.kind == "view" and x.detail[0] == "broadcast":
        x = x.inputs[0]
    return x


def _squeeze(shape: Shape) -> list[int]:
    return [n for n in shape if n != 1]


def _shape_with_unit_axes(inputs: Sequence[Node], shape: Shape) -> Shape | None:
    """Return the shape with more unit axes in which an input was computed, if all inputs can be.

    A reduction without keepdims drops its axes. A map with these axes can share its loop.
    """
    longer = None
    for x in inputs:
        if x.kind == "view" and x.detail[0] == "reshape" and x.shape == shape and x.size > 1:
            base = x.inputs[0]
            reduced = base.kind in ("reduce", "map") and len(base.shape) > len(shape)
            if reduced and _squeeze(base.shape) == _squeeze(shape):
                longer = base.shape
    if longer is None or any(x.size > 1 and x.shape != shape for x in inputs):
        return None
    return longer


def owns_memory(node: Node) -> bool:
    """Return whether a node that is computed has memory of its own."""
    return node.kind in ("map", "reduce", "gather", "scatter", "scan", "product", "lapack", "join")


class LuLayout(NamedTuple):
    """Positions in the line of elements that holds an LU decomposition of a square matrix.

    Row exchanges lie first, integers as LAPACK writes them.

    Attributes:
        n: Rows of the matrix.
        regular: Position of 1 for a regular matrix, or 0 for a singular one.
        factors: Position of the factors, a column-major matrix.
        length: Length of the line.
    """

    n: int
    regular: int
    factors: int
    length: int


def lu_layout(n: int, type: str) -> LuLayout:
    """Return the positions for matrices of ``n`` rows."""
    regular = -(-8 * n // ITEM_SIZES[type])
    return LuLayout(n, regular, regular + 1, regular + 1 + n * n)


def random_access_inputs(node: Node) -> tuple[Node, ...]:
    """Return the inputs that must be complete before the first element of a node is computed."""
    return node.inputs[:1] if node.kind in ("gather", "scatter") else ()


def topological_order(roots: Iterable[Node]) -> list[Node]:
    """Return the live nodes, those that roots are computed from, inputs first."""
    live: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node.id not in live:
            live[node.id] = node
            stack += node.inputs
    return [live[k] for k in sorted(live)]


def rewrite(
    builder: IRBuilder, roots: Sequence[Node], rule: Callable[[Node, list[Node]], Node | None]
) -> list[Node]:
    """Rewrite a graph, inputs first; return its new roots.

    Args:
        builder: Builder of new nodes.
        roots: Roots of the graph.
        rule: Given a node and its new inputs, returns its replacement; None to keep the node.
    """
    new: dict[int, Node] = {}
    for node in topological_order(roots):
        inputs = [new[i.id] for i in node.inputs]
        replacement = rule(node, inputs)
        if replacement is None:
            unchanged = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
            replacement = node if unchanged else builder.with_inputs(node, inputs)
        new[node.id] = replacement
    return [new[root.id] for root in roots]


def substitute(
    builder: IRBuilder, roots: Sequence[Node], new: Mapping[int, Node]
) -> dict[int, Node]:
    """Replace some nodes of a graph; return the replacement of each node, by number.

    Args:
        builder: Builder of new nodes.
        roots: Roots of the graph.
        new: By number of a node, another of the same value; its inputs may be replaced too.
    """
    replacements: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack[-1]
        target = new.get(node.id, node)
        waiting = [i for i in target.inputs if i.id not in replacements]
        if waiting and node.id not in replacements:
            stack += waiting
            continue
        stack.pop()
        if node.id not in replacements:
            inputs = [replacements[i.id] for i in target.inputs]
            unchanged = all(a is b for a, b in zip(inputs, target.inputs, strict=True))
            replacements[node.id] = target if unchanged else builder.with_inputs(target, inputs)
    return replacements

"""From a graph of ops to nodes, by what their rows say of their meaning.

A row that has a ``scalar`` is a map; one with ``native`` says by the verbs of ``Lowering`` what it
does; one with ``equals`` is what it equals. All others are called, as are ops on numbers that no
native code knows (complex ones where more is asked than arithmetic, comparison and places), and
calls that a kernel saves much of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.ir.element_programs import SIZES, Meaning, meaning, type_of
from odyssey.compiler.ir.nodes import Node, Nodes
from odyssey.compiler.llvm.scalar_programs import has_code
from odyssey.compiler.llvm.types import PARTS
from odyssey.compiler.lowering.indexing_ops import Placing
from odyssey.compiler.lowering.reduction_ops import Folding
from odyssey.compiler.lowering.view_ops import Seeing
from odyssey.devices.ownership import is_uniform
from odyssey.errors import DTypeError, OdysseyError
from odyssey.graph.graph import Filled, Given, Graph, Ref
from odyssey.spec import Spec, spec_of
from odyssey.table.canonical_options import plain_options
from odyssey.table.row import Row
from odyssey.table.value import Symbol

__all__ = ["Call", "Lowered", "Lowering", "lower"]


class Call(NamedTuple):
    """A call of a row's kernel: operands are ``(k,)`` for input number k, or what is known now."""

    row: Row
    operands: tuple[Any, ...]
    options: tuple[Any, ...]
    specs: tuple[Spec, ...]


class Lowered(NamedTuple):
    """A graph as nodes.

    Attributes:
        nodes: What made them, and makes more.
        outputs: By place in the result, what is computed; None where the result is no array. Behind
            them, in the order of the states, the gradients that are left.
        updates: By number of a state, what it becomes.
        checks: Truths without which the function must be run as it was written, to fail as it does.
        stays: Calls that are made though nobody reads what they give.
        calls: By name of a row that is called, why.
        given: By number that a call knows, and type, the place of its cell.
        called: The numbers that calls take as they are.
    """

    nodes: Nodes
    outputs: list[Node | None]
    updates: dict[int, Node]
    checks: list[Node]
    stays: list[Node]
    calls: dict[str, str]
    given: dict[tuple[Any, str], int]
    called: list[Any]


class Lowering(Placing, Seeing, Folding):
    """The graph that rows are emitted into while they are lowered; and the verbs of ``native``."""

    def __init__(self, nodes: Nodes | None = None) -> None:
        self.nodes = Nodes() if nodes is None else nodes
        self.fixed = nodes is None  # else sizes vary, and what is done must not hang on them
        self.checks: list[Node] = []
        self.stays: list[Node] = []
        self.calls: dict[str, str] = {}
        self.given: dict[tuple[Any, str], int] = {}
        self.called: list[Any] = []
        self._constants: dict[Any, int] = {}

    # -------------------------------------------------------------- symbols

    def symbol(self, node: Node) -> Symbol:
        """A node, as what ops take."""
        dtype = np.dtype(bool if node.type == "b1" else node.type)
        return Symbol(Spec(node.shape, dtype), self, node.id)

    def node(self, value: Any) -> Node:
        """The node of a Symbol; of an array or a number, one that holds it."""
        if isinstance(value, Symbol):
            return self.nodes.all[value.id]
        array = np.asarray(value)
        type = type_of(array.dtype)
        if type in SIZES and is_uniform(array) and array.size:
            first = self.nodes.number(array[(0,) * array.ndim], type)
            return self.nodes.broadcast(first, array.shape)
        # Equal ones are one, as is what is computed of them. The graph's have numbers from 0 on.
        place = type, array.shape, array.tobytes()
        number = self._constants.setdefault(place, -1 - len(self._constants))
        return self.nodes.leaf("constant", number, array.shape, type, np.array(array))

    # -------------------------------------------------------------- calls of rows

    def emit(self, row: Row, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
        """What a call of a row gives: a Symbol, or what an op of several results makes of them."""
        specs = [_spec(v) for v in values]
        options = plain_options(row, options)
        made = row.infer(*specs, *options)
        made = (made,) if row.pack_results is None else tuple(made)
        if row.canonical is not None:
            options = row.canonical(*specs, *options)
        found = self._meant(row, values, specs, options, made)
        if found is None:
            found = self._called(row, values, options, made)
        symbols = [self.symbol(node) for node in found]
        return symbols[0] if row.pack_results is None else row.pack_results(symbols)

    def _meant(
        self,
        row: Row,
        values: Sequence[Any],
        specs: Sequence[Any],
        options: tuple[Any, ...],
        made: tuple[Spec, ...],
    ) -> list[Node] | None:
        """The results in nodes, by the meaning of the row; None where it has none here."""
        foreign = [spec for spec in (*specs, *made) if not _known(spec)]
        if foreign:
            self.calls.setdefault(row.name, f"{foreign[0]} is not computed natively")
            return None
        if any(spec.dtype.kind == "f" and not _holds(spec.dtype, specs) for spec in made):
            self.calls.setdefault(row.name, "a number is beyond what its dtype holds")
            return None
        if row.raises or (self.fixed and any(k.is_left(*specs, *options) for k in row.kernels)):
            why = "it may raise" if row.raises else "its kernel takes less time, or less memory"
            self.calls.setdefault(row.name, why)
            return None
        if row.requires is not None:
            for truth in row.requires(*values, *options):
                self.checks.append(self.node(truth))
        out: Any = NotImplemented
        given = any(isinstance(v, Given) for v in values)
        if row.lowering is not None and not given:
            out = self._by_verbs(row, values, options)
        elif row.scalar is not None and len(made) == 1:
            out = self._mapped(row, values, specs, options, made[0])
        # What equals a scalar is the same but at corners, where complex numbers may differ.
        alone = row.lowering is None and not (row.scalar and "c" in map(_kind, specs))
        # Kernels make half precision of truths, some of which are masks and not numbers.
        alone = alone and not (_are("e", made) and _are("?", specs) and not _are("e", specs))
        if out is NotImplemented and alone and row.decomposition is not None and not given:
            try:
                out = row.decomposition(*self._floating(row, values, specs, made), *options)
            except (OdysseyError, TypeError, ValueError):  # of dtypes that the kernel alone takes
                out = NotImplemented
        if out is NotImplemented:
            self.calls.setdefault(row.name, _why(row, specs))
            return None
        outs = (out,) if row.pack_results is None else tuple(out)
        return [self._fitted(row, self.node(o), spec) for o, spec in zip(outs, made, strict=True)]

    def _by_verbs(self, row: Row, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
        """What ``native`` gives; a verb refuses complex numbers that it has no code for."""
        checks = len(self.checks)
        try:
            return row.lowering(self, *values, *options) if row.lowering else NotImplemented
        except DTypeError:
            del self.checks[checks:]
            return NotImplemented

    def _fitted(self, row: Row, node: Node, spec: Spec) -> Node:
        if node.shape != spec.shape:
            if np.broadcast_shapes(node.shape, spec.shape) != spec.shape:
                raise OdysseyError(
                    f"{row.name}: its meaning gives shape {node.shape}, its shape rule {spec.shape}"
                )
            node = self.nodes.broadcast(node, spec.shape)
        return self.nodes.cast(node, type_of(spec.dtype))

    def _floating(
        self, row: Row, values: Sequence[Any], specs: Sequence[Any], made: tuple[Spec, ...]
    ) -> list[Any]:
        """Operands of what a row equals: whole numbers are floating, if its result is made so.

        A kernel makes them so first. What has no derivative, as class numbers, stays as it is.
        """
        dtype = made[0].dtype
        if dtype.kind != "f" or len(made) > 1:
            return list(values)
        return [
            self.cast(v, dtype)
            if isinstance(s, Spec) and s.dtype.kind in "iu" and row.vjp.get(name) is not None
            else v
            for v, s, name in zip(values, specs, row.arrays, strict=True)
        ]

    def _mapped(
        self, row: Row, values: Sequence[Any], specs: Sequence[Any], options: Any, made: Spec
    ) -> Any:
        """A scalar on each element; see ``kernels.elementwise.Signature``."""
        dtype = made.dtype
        if any(isinstance(option, np.ndarray) for option in options):
            return NotImplemented
        if dtype.kind == "b" or "c" in map(_kind, specs):
            dtype = np.result_type(*[s.dtype if isinstance(s, Spec) else s for s in specs])
            if not _holds(dtype, specs):  # which is compared with a number that it does not have
                dtype = np.dtype(np.int64 if dtype != np.uint64 else object)
            elif dtype.kind == "f" and "f" not in map(_kind, specs):
                return NotImplemented  # uint64 beside signed ones, which NumPy compares exactly
        if not _holds(dtype, specs):
            return NotImplemented
        given = type_of(dtype)
        if given not in SIZES:
            return NotImplemented
        assert row.scalar is not None
        try:
            means, computed = _means(row.scalar, len(values), options, given)
        except OdysseyError:  # of other numbers than it is written for
            return NotImplemented
        inputs = [
            self._taken(self.node(v), computed)
            if isinstance(s, Spec)
            else self.nodes.cast(self._number(v, given), computed)
            for v, s in zip(values, specs, strict=True)
        ]
        known = [(n.type, n.work.item() if n.kind == "number" else None) for n in inputs]
        if not has_code(means.program, tuple(known)):
            return NotImplemented
        return self.symbol(self.nodes.map(means, inputs, made.shape, type_of(made.dtype)))

    def _number(self, value: Any, type: str) -> Node:
        """A number, as it is or as each call gives it."""
        if not isinstance(value, Given):
            return self.nodes.number(value, type)
        # A float, beside complex numbers and half precision too.
        one = "f8" if type == "f2" else PARTS.get(type, type)
        place = self.given.setdefault((value.expression, one), len(self.given))
        return self.nodes.cast(self.nodes.leaf("given", place, (), one), type)

    def _taken(self, node: Node, type: str) -> Node:
        """An operand of a scalar that computes in ``type``.

        Truths stay, which take a byte; and what would lose, which is looked at as it is.
        """
        given = node.type
        if type in PARTS:
            stays = False
        elif given == "b1" or (given[0] == "f" and type[0] != "f"):
            stays = given[0] == "f" or type[0] == "f"
        else:
            stays = given[0] == type[0] == "f" and SIZES[given] > SIZES[type]
        return node if stays else self.nodes.cast(node, type)

    def _called(
        self, row: Row, values: Sequence[Any], options: tuple[Any, ...], made: tuple[Spec, ...]
    ) -> list[Node]:
        inputs: list[Node] = []
        operands: list[Any] = []
        for value in values:
            if isinstance(value, Given):
                self.called.append(value.expression)
            if isinstance(value, Symbol):
                operands.append((len(inputs),))
                inputs.append(self.node(value))
            else:
                operands.append(value)
        found = self.nodes.call(inputs, Call(row, tuple(operands), options, made), made)
        if row.impure:
            self.stays += found[0].inputs
        return found

    # -------------------------------------------------------------- verbs

    def require(self, truth: Any) -> None:
        """Let the program run only where this is true everywhere."""
        self.checks.append(self.node(truth))

    def cast(self, x: Any, dtype: Any) -> Symbol:
        """The same numbers in another dtype."""
        return self.symbol(self.nodes.cast(self.node(x), type_of(dtype)))

    def elementwise(self, scalar: Callable[..., Any], *values: Any, dtype: Any = None) -> Symbol:
        """A scalar of operands that broadcast, computed in ``dtype`` or that of the first.

        Raises:
            DTypeError: it has no code for complex numbers.
        """
        found = [self.node(v) for v in values]
        made = found[0].type if dtype is None else type_of(dtype)
        means, type = _means(scalar, len(values), (), made)
        shape = np.broadcast_shapes(*[node.shape for node in found])
        inputs = [self.nodes.cast(node, type) for node in found]
        if type in PARTS and not has_code(means.program, tuple([(n.type, None) for n in inputs])):
            raise DTypeError("no native code for this of complex numbers")
        return self.symbol(self.nodes.map(means, inputs, shape, made))


def _means(scalar: Any, arity: int, options: Any, type: str) -> tuple[Meaning, str]:
    """A scalar's program, and the type that it computes in: functions of half precision in single.

    NumPy rounds each step of arithmetic, and takes functions of single precision.
    """
    means = meaning(scalar, arity, options, type)
    if type == "f2" and any(name.startswith("math.") for name, _ in means.program.steps):
        return meaning(scalar, arity, options, "f4"), "f4"
    return means, type


def _why(row: Row, specs: Sequence[Any]) -> str:
    if "c" in map(_kind, specs):
        return "there is no code for complex numbers"
    return f"{row.primitive or 'its scalar'} is called"


def _are(char: str, specs: Sequence[Any]) -> bool:
    """Whether some of the specs have a dtype, by its letter."""
    return any(isinstance(s, Spec) and s.dtype.char == char for s in specs)


def _kind(spec: Any) -> str:
    return (spec.dtype if isinstance(spec, Spec) else np.asarray(spec).dtype).kind


def _spec(value: Any) -> Any:
    if isinstance(value, Given):
        return value.number
    if isinstance(value, Symbol):
        return value.spec
    return spec_of(value) if hasattr(value, "dtype") and hasattr(value, "shape") else value


def _holds(dtype: Any, specs: Sequence[Any]) -> bool:
    """Whether Python's numbers among the operands are numbers of a dtype, up to rounding."""
    numbers = [s for s in specs if isinstance(s, (int, float)) and not isinstance(s, bool)]
    if dtype.kind == "c":
        numbers += [p for s in specs if type(s) is complex for p in (s.real, s.imag)]
    if dtype.kind in "fc":
        largest = float(np.finfo(dtype).max)
        return all(abs(n) <= largest or (isinstance(n, float) and not isfinite(n)) for n in numbers)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return all(n == n // 1 and limits.min <= n <= limits.max for n in numbers)
    return bool(dtype.kind != "O")


def _known(spec: Any) -> bool:
    return not isinstance(spec, Spec) or type_of(spec.dtype) in SIZES


def lower(graph: Graph, nodes: Nodes | None = None) -> Lowered:
    """The nodes of a graph, made by ``nodes``."""
    low = Lowering(nodes)
    known: dict[int, Symbol] = {}
    leaf = low.nodes.leaf
    for k, (id, spec) in enumerate(graph.inputs):
        known[id] = low.symbol(leaf("input", k, spec.shape, type_of(spec.dtype)))
    given = len(graph.inputs)
    for k, state in enumerate(graph.states):
        if state.id >= 0:
            # A gradient is another array in each run, and so comes as an argument does.
            role, index = ("state", k) if state.field == "data" else ("input", given)
            given += role == "input"
            spec = state.spec
            known[state.id] = low.symbol(leaf(role, index, spec.shape, type_of(spec.dtype)))
    for k, (id, array) in enumerate(graph.constants.items()):
        array = np.asarray(array)
        known[id] = low.symbol(leaf("constant", k, array.shape, type_of(array.dtype), array))

    def value(operand: Any) -> Any:
        if isinstance(operand, Ref):
            return known[operand.id]
        if isinstance(operand, Filled):
            type = type_of(operand.number.dtype)
            if type not in SIZES:
                return operand.array()
            number = low.nodes.number(operand.number, type)
            return low.symbol(low.nodes.broadcast(number, operand.shape))
        return operand

    for row, operands, options, ids, _ in graph.instructions:
        low.nodes.of = row.name
        made = low.emit(row, [value(o) for o in operands], options)
        results = (made,) if row.pack_results is None else tuple(made)
        known.update(zip(ids, results, strict=True))
    low.nodes.of = ""
    outputs: list[Node | None] = [
        low.node(value(o)) if isinstance(o, (Ref, Filled)) else None for o in graph.outputs
    ]
    updates = {}
    for k, state in enumerate(graph.states):
        if state.update is not None:
            node = low.node(value(state.update))
            if state.field == "data":
                updates[k] = node
            else:
                outputs.append(node)
    ends = low.checks, low.stays
    return Lowered(low.nodes, outputs, updates, *ends, low.calls, low.given, low.called)

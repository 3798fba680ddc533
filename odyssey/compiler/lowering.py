"""Verbs of ``native`` for what reads, writes and goes along axes by indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.ir.nodes import (
    ITEM_SIZES,
    IRBuilder,
    Node,
    ScalarProgram,
    scalar_program,
    type_code,
)
from odyssey.compiler.llvm.scalar_programs import has_code
from odyssey.compiler.llvm.types import PARTS
from odyssey.devices.ownership import is_uniform
from odyssey.errors import DTypeError, OdysseyError
from odyssey.graph.graph import Filled, Given, Graph, Ref
from odyssey.kernels import T, select
from odyssey.spec import Shape, Spec, spec_of
from odyssey.table.canonical_options import plain_options
from odyssey.table.row import Row
from odyssey.table.value import Symbol

__all__ = ["Placing", "Seeing", "Folding", "Call", "Lowered", "Lowering", "lower"]


def _wrap_negative(i: Any, n: Any) -> Any:
    return select(i < T(0), i + n, i)


class Placing:
    """Verbs that read and write at places."""

    nodes: IRBuilder
    node: Callable[[Any], Node]
    symbol: Callable[[Node], Symbol]
    require: Callable[[Any], None]
    cast: Callable[[Any, Any], Symbol]
    elementwise: Callable[..., Symbol]
    index: Callable[[Shape, int], Symbol]

    def place(self, index: Any, length: int, mode: str = "wrap") -> Any:
        """An index along an axis as a number from 0 to ``length`` - 1, of int64.

        Args:
            index: Whole numbers of any dtype.
            length: Of the axis.
            mode: What is wanted of the numbers. ``wrap``, that there are such places, where
                negative ones count from the end; ``front``, that there are, and none is negative;
                ``clip`` and ``remainder`` take any number, to the nearest and around.
        """
        node = self.node(index)
        if not node.size:
            return self.cast(index, np.int64)
        known = node.work if node.kind == "leaf" and node.detail[0] == "constant" else None
        if known is not None and mode == "wrap" and -length <= known.min() <= known.max() < length:
            # What is known now needs no look when the program runs.
            known = known.astype(np.int64)
            return self.symbol(self.node(np.where(known < 0, known + length, known)))
        if mode in ("wrap", "front"):
            self._require_within(node, 0 if mode == "front" else -length, length)
        found = self.cast(index, np.int64)
        if mode == "wrap" and node.type[0] == "i":
            return self.elementwise(_wrap_negative, found, length)
        if mode == "clip":
            return self.elementwise(
                lambda i, n: select(i < T(0), T(0), select(i < n, i, n - T(1))), found, length
            )
        return self.elementwise(lambda i, n: i % n, found, length) if mode == "remainder" else found

    def _require_within(self, node: Node, low: int, high: int) -> None:
        """Let a program run only where whole numbers are from ``low`` to below ``high``."""
        kind = "u8" if node.type == "u8" else "i8"
        x = self.nodes.cast(node, kind)
        least, most = (self.nodes.number(n, kind) for n in (0 if kind == "u8" else low, high))
        means = scalar_program(lambda x, low, high: (x >= low) & (x < high), 3, (), kind)
        self.require(self.symbol(self.nodes.map(means, [x, least, most], x.shape, "b1")))

    def gather(self, x: Any, places: Sequence[Any]) -> Symbol:
        """The elements at places along each axis, which broadcast to the shape of the result.

        Args:
            x: An array.
            places: For each of its axes what ``place`` or ``index`` gives.
        """
        return self.symbol(self.nodes.gather(self.node(x), [self.node(p) for p in places]))

    def scatter(self, how: str, base: Any, x: Any, places: Sequence[Any]) -> Symbol:
        """``base`` with the elements of ``x`` put at places, in row-major order.

        Args:
            how: ``set``, or one of ``FOLDS``, by which an element meets what is there.
            base: An array, of the dtype of the result.
            x: The elements, of the same dtype.
            places: For each axis of ``base`` what ``place`` or ``index`` gives; they broadcast to
                the shape of ``x``.
        """
        found = [self.node(p) for p in places]
        return self.symbol(self.nodes.scatter(how, self.node(base), self.node(x), found))

    def scan(self, scalar: Callable[..., Any], x: Any, *steps: Any, axis: int) -> Symbol:
        """The first element along an axis, then a scalar of the result before and the element.

        Args:
            scalar: ``scalar(before, element, *steps)``.
            x: An array.
            steps: Arrays of its dtype, one shorter along the axis: what leads to the second
                element, to the third and so on.
            axis: Along which.
        """
        inputs = [self.node(a) for a in (x, *steps)]
        means = scalar_program(scalar, len(inputs) + 1, (), inputs[0].type)
        return self.symbol(self.nodes.scan(means, inputs, axis))

    def zeros(self, shape: Shape, dtype: Any, value: Any = 0) -> Symbol:
        """An array of one number."""
        number = self.node(np.asarray(value, dtype))
        return self.symbol(self.nodes.broadcast(number, shape))


class Seeing:
    """Verbs that move elements, and compute nothing."""

    nodes: IRBuilder
    node: Callable[[Any], Node]
    symbol: Callable[[Node], Symbol]

    def reshape(self, x: Any, shape: Shape) -> Symbol:
        """The elements in row-major order, in another shape."""
        return self.symbol(self.nodes.reshape(self.node(x), shape))

    def transpose(self, x: Any, axes: Iterable[int]) -> Symbol:
        """The axes in another order."""
        return self.symbol(self.nodes.transpose(self.node(x), axes))

    def broadcast(self, x: Any, shape: Shape) -> Symbol:
        """Repeated to a shape."""
        return self.symbol(self.nodes.broadcast(self.node(x), shape))

    def part(self, x: Any, key: Any) -> Symbol:
        """The elements at an index of slices, whole numbers, None and Ellipsis."""
        key = key if isinstance(key, tuple) else (key,)
        if not any(k is Ellipsis for k in key):
            key = (*key, Ellipsis)
        return self.symbol(self.nodes.part(self.node(x), key))

    def windows(self, x: Any, window: Shape, stride: Shape, dilation: Shape) -> Symbol:
        """Windows that slide over the last axes: their elements, and then their places."""
        return self.symbol(self.nodes.windows(self.node(x), window, stride, dilation))

    def join(self, parts: Sequence[tuple[Any, Any]], shape: Shape, dtype: Any) -> Symbol:
        """An array of parts, each at a key of slices and whole numbers; 0 elsewhere.

        No place may be in two of them.
        """
        found = [
            (self.node(part), key if isinstance(key, tuple) else (key,)) for part, key in parts
        ]
        return self.symbol(self.nodes.join(found, shape, type_code(dtype)))

    def index(self, shape: Shape, axis: int) -> Symbol:
        """The index along an axis, at each element of a shape."""
        return self.symbol(self.nodes.index(shape, axis))


class Folding:
    """Verbs that combine elements."""

    nodes: IRBuilder
    node: Callable[[Any], Node]
    symbol: Callable[[Node], Symbol]
    elementwise: Callable[..., Symbol]

    def fold(self, how: str, x: Any, axes: Iterable[int], keepdims: bool = False) -> Symbol:
        """Combine elements along axes; ``how`` is one of ``FOLDS``.

        Raises:
            DTypeError: of complex numbers, whose parts have sums and no more.
        """
        node, axes = self.node(x), set(axes)
        if node.type in PARTS:
            if how != "sum":
                raise DTypeError(f"{how}: no native code for complex numbers")
            parts = [self.fold(how, p, axes, keepdims) for p in self._parts(x)]
            return self.elementwise(_complex_from_parts, *parts, dtype=node.type)
        made = self.nodes.fold(how, node, axes)
        if not keepdims:
            made = self.nodes.reshape(made, [n for a, n in enumerate(node.shape) if a not in axes])
        return self.symbol(made)

    def _parts(self, x: Any) -> list[Symbol]:
        """The real and the imaginary parts of complex numbers."""
        node = self.node(x)
        found = []
        for scalar in (lambda x: x.real, lambda x: x.imag):
            means = scalar_program(scalar, 1, (), node.type)
            made = self.nodes.map(means, [node], node.shape, PARTS[node.type])
            found.append(self.symbol(made))
        return found

    def product(self, a: Any, b: Any) -> Symbol:
        """Products of matrices of one floating or complex dtype; leading axes broadcast."""
        left, right = self.node(a), self.node(b)
        if left.type == "f2":  # as NumPy does, which adds in single precision
            made = self.nodes.product(*(self.nodes.cast(n, "f4") for n in (left, right)))
            return self.symbol(self.nodes.cast(made, "f2"))
        return self.symbol(self.nodes.product(left, right))


def _complex_from_parts(real: Any, imaginary: Any) -> Any:
    return T(real.real, imaginary.real)


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

    nodes: IRBuilder
    outputs: list[Node | None]
    updates: dict[int, Node]
    checks: list[Node]
    stays: list[Node]
    calls: dict[str, str]
    given: dict[tuple[Any, str], int]
    called: list[Any]


class Lowering(Placing, Seeing, Folding):
    """The graph that rows are emitted into while they are lowered; and the verbs of ``native``."""

    def __init__(self, nodes: IRBuilder | None = None) -> None:
        self.nodes = IRBuilder() if nodes is None else nodes
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
        type = type_code(array.dtype)
        if type in ITEM_SIZES and is_uniform(array) and array.size:
            first = self.nodes.number(array[(0,) * array.ndim], type)
            return self.nodes.broadcast(first, array.shape)
        # Equal ones are one, as is what is computed of them. The graph's have numbers from 0 on.
        place = type, array.shape, array.tobytes()
        number = self._constants.setdefault(place, -1 - len(self._constants))
        return self.nodes.leaf("constant", number, array.shape, type, np.array(array))

    # -------------------------------------------------------------- calls of rows

    def emit(self, row: Row, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
        """What a call of a row gives: a Symbol, or what an op of several results makes of them."""
        specs = [_operand_spec(v) for v in values]
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
        foreign = [spec for spec in (*specs, *made) if not _is_native_type(spec)]
        if foreign:
            self.calls.setdefault(row.name, f"{foreign[0]} is not computed natively")
            return None
        if any(spec.dtype.kind == "f" and not _can_hold(spec.dtype, specs) for spec in made):
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
        alone = row.lowering is None and not (row.scalar and "c" in map(_dtype_kind, specs))
        # Kernels make half precision of truths, some of which are masks and not numbers.
        alone = alone and not (
            _has_dtype("e", made) and _has_dtype("?", specs) and not _has_dtype("e", specs)
        )
        if out is NotImplemented and alone and row.decomposition is not None and not given:
            try:
                out = row.decomposition(*self._floating(row, values, specs, made), *options)
            except (OdysseyError, TypeError, ValueError):  # of dtypes that the kernel alone takes
                out = NotImplemented
        if out is NotImplemented:
            self.calls.setdefault(row.name, _host_call_reason(row, specs))
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
        return self.nodes.cast(node, type_code(spec.dtype))

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
        if dtype.kind == "b" or "c" in map(_dtype_kind, specs):
            dtype = np.result_type(*[s.dtype if isinstance(s, Spec) else s for s in specs])
            if not _can_hold(dtype, specs):  # which is compared with a number that it does not have
                dtype = np.dtype(np.int64 if dtype != np.uint64 else object)
            elif dtype.kind == "f" and "f" not in map(_dtype_kind, specs):
                return NotImplemented  # uint64 beside signed ones, which NumPy compares exactly
        if not _can_hold(dtype, specs):
            return NotImplemented
        given = type_code(dtype)
        if given not in ITEM_SIZES:
            return NotImplemented
        assert row.scalar is not None
        try:
            means, computed = _compute_type(row.scalar, len(values), options, given)
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
        return self.symbol(self.nodes.map(means, inputs, made.shape, type_code(made.dtype)))

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
            stays = given[0] == type[0] == "f" and ITEM_SIZES[given] > ITEM_SIZES[type]
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
        return self.symbol(self.nodes.cast(self.node(x), type_code(dtype)))

    def elementwise(self, scalar: Callable[..., Any], *values: Any, dtype: Any = None) -> Symbol:
        """A scalar of operands that broadcast, computed in ``dtype`` or that of the first.

        Raises:
            DTypeError: it has no code for complex numbers.
        """
        found = [self.node(v) for v in values]
        made = found[0].type if dtype is None else type_code(dtype)
        means, type = _compute_type(scalar, len(values), (), made)
        shape = np.broadcast_shapes(*[node.shape for node in found])
        inputs = [self.nodes.cast(node, type) for node in found]
        if type in PARTS and not has_code(means.program, tuple([(n.type, None) for n in inputs])):
            raise DTypeError("no native code for this of complex numbers")
        return self.symbol(self.nodes.map(means, inputs, shape, made))


def _compute_type(scalar: Any, arity: int, options: Any, type: str) -> tuple[ScalarProgram, str]:
    """A scalar's program, and the type that it computes in: functions of half precision in single.

    NumPy rounds each step of arithmetic, and takes functions of single precision.
    """
    means = scalar_program(scalar, arity, options, type)
    if type == "f2" and any(name.startswith("math.") for name, _ in means.program.steps):
        return scalar_program(scalar, arity, options, "f4"), "f4"
    return means, type


def _host_call_reason(row: Row, specs: Sequence[Any]) -> str:
    if "c" in map(_dtype_kind, specs):
        return "there is no code for complex numbers"
    return f"{row.primitive or 'its scalar'} is called"


def _has_dtype(char: str, specs: Sequence[Any]) -> bool:
    """Whether some of the specs have a dtype, by its letter."""
    return any(isinstance(s, Spec) and s.dtype.char == char for s in specs)


def _dtype_kind(spec: Any) -> str:
    return (spec.dtype if isinstance(spec, Spec) else np.asarray(spec).dtype).kind


def _operand_spec(value: Any) -> Any:
    if isinstance(value, Given):
        return value.number
    if isinstance(value, Symbol):
        return value.spec
    return spec_of(value) if hasattr(value, "dtype") and hasattr(value, "shape") else value


def _can_hold(dtype: Any, specs: Sequence[Any]) -> bool:
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


def _is_native_type(spec: Any) -> bool:
    return not isinstance(spec, Spec) or type_code(spec.dtype) in ITEM_SIZES


def lower(graph: Graph, nodes: IRBuilder | None = None) -> Lowered:
    """The nodes of a graph, made by ``nodes``."""
    low = Lowering(nodes)
    known: dict[int, Symbol] = {}
    leaf = low.nodes.leaf
    for k, (id, spec) in enumerate(graph.inputs):
        known[id] = low.symbol(leaf("input", k, spec.shape, type_code(spec.dtype)))
    given = len(graph.inputs)
    for k, state in enumerate(graph.states):
        if state.id >= 0:
            # A gradient is another array in each run, and so comes as an argument does.
            role, index = ("state", k) if state.field == "data" else ("input", given)
            given += role == "input"
            spec = state.spec
            known[state.id] = low.symbol(leaf(role, index, spec.shape, type_code(spec.dtype)))
    for k, (id, array) in enumerate(graph.constants.items()):
        array = np.asarray(array)
        known[id] = low.symbol(leaf("constant", k, array.shape, type_code(array.dtype), array))

    def value(operand: Any) -> Any:
        if isinstance(operand, Ref):
            return known[operand.id]
        if isinstance(operand, Filled):
            type = type_code(operand.number.dtype)
            if type not in ITEM_SIZES:
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

"""Lowering: from a graph of ops to IR nodes, by what each row of the table declares.

A row with ``scalar`` becomes a map. A row with ``lowering`` builds its nodes with the methods of
``Lowering``. A row with ``decomposition`` is lowered as the ops that it equals. All others become
host calls of their kernels, as do ops on dtypes without native code (complex numbers for more than
arithmetic, comparison and indexing), and calls for which the row guesses so, or the plan says so;
see ``ways``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.ir.nodes import (
    ITEM_SIZES,
    IRBuilder,
    Node,
    lu_layout,
    scalar_program,
    type_code,
)
from odyssey.compiler.llvm.scalar_programs import has_native_code
from odyssey.compiler.llvm.types import HALVES, PARTS, dtype_of_code
from odyssey.compiler.ways.alternatives import CALLED, kernel_of_way, lowering_names
from odyssey.compiler.ways.choices import Choices, PlanError
from odyssey.devices.backends import backend_of
from odyssey.devices.half_dtypes import (
    finfo,
    is_bfloat16,
    is_floating,
    is_half,
    is_inexact,
    result_type,
)
from odyssey.devices.ownership import is_uniform
from odyssey.errors import DTypeError, OdysseyError
from odyssey.graph.graph import Graph, Ref, ScalarInput, Splat
from odyssey.graph.subgraphs import Loop, LoopRow
from odyssey.kernels import T, select
from odyssey.kernels.lapack_library import lapack_library
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import stack
from odyssey.spec import Shape, Spec, spec_of
from odyssey.table.canonical_options import plain_options
from odyssey.table.half_kernels import moves_elements
from odyssey.table.kernel_selection import Kernel
from odyssey.table.row import Row
from odyssey.table.value import Symbol

__all__ = ["Call", "Lowered", "Lowering", "is_unrolled", "lower"]


class Call(NamedTuple):
    """A host call of a row's kernel; an operand is ``(k,)`` for input ``k``, or a constant.

    ``kernel`` runs it; None for the kernel that an eager call runs.
    """

    row: Row
    operands: tuple[Any, ...]
    options: tuple[Any, ...]
    specs: tuple[Spec, ...]
    kernel: Kernel | None = None


class Lowered(NamedTuple):
    """A lowered graph.

    Attributes:
        builder: Builder of the nodes.
        outputs: By position in the result, its node; None if the result is no array. Behind them,
            in the order of the states, the gradients that the function leaves.
        updates: By number of a state, its new value.
        checks: Truth values that must hold; else the function runs eagerly, to fail as it does.
        effects: Host calls with side effects, which run even if no result is used.
        host_calls: By name of a row that is called on the host, the reason.
        scalar_slots: By expression and type of a scalar input, its slot.
        host_scalars: Expressions of the scalars that host calls take.
        choices: Ways of the works.
    """

    builder: IRBuilder
    outputs: list[Node | None]
    updates: dict[int, Node]
    checks: list[Node]
    effects: list[Node]
    host_calls: dict[str, str]
    scalar_slots: dict[tuple[Any, str], int]
    host_scalars: list[Any]
    choices: Choices


class Lowering:
    """Lowering in progress; its methods are what a row's ``lowering`` builds nodes with.

    Args:
        builder: Builder for a graph with symbolic sizes, in which nothing may depend on a size;
            None for a graph with static shapes.
        choices: Ways of the works; by default as guessed.
    """

    def __init__(self, builder: IRBuilder | None = None, choices: Choices | None = None) -> None:
        self.builder = IRBuilder() if builder is None else builder
        self.choices = Choices() if choices is None else choices
        self.static_shapes = builder is None
        # Whether programs call LAPACK; those of devices do not, and call the rows that want it.
        self.calls_lapack, self._wants_lapack = True, False
        # Whether a row is lowered that writes some elements of a state, whose update is the result.
        self.writes_state = False
        self.checks: list[Node] = []
        self.effects: list[Node] = []
        self.host_calls: dict[str, str] = {}
        self.scalar_slots: dict[tuple[Any, str], int] = {}
        self.host_scalars: list[Any] = []
        self._constants: dict[Any, int] = {}

    # -------------------------------------------------------------- symbols

    def symbol(self, node: Node) -> Symbol:
        """Return a node as a Symbol, the operand type of ops."""
        return Symbol(Spec(node.shape, dtype_of_code(node.type)), self, node.id)

    def node(self, value: Any) -> Node:
        """Return the node of a Symbol, or a constant node for an array or a number."""
        if isinstance(value, Symbol):
            return self.builder.nodes[value.id]
        if backend_of(value) is not None:
            raise OdysseyError("an array of a device cannot be a constant of a row")
        array = np.asarray(value)
        type = type_code(array.dtype)
        if type in ITEM_SIZES and is_uniform(array) and array.size:
            first = self.builder.literal(array[(0,) * array.ndim], type)
            return self.builder.broadcast(first, array.shape)
        # Equal constants share a leaf. Those of the graph have numbers from 0 on, these negative.
        key = type, array.shape, array.tobytes()
        number = self._constants.setdefault(key, -1 - len(self._constants))
        return self.builder.leaf("constant", number, array.shape, type, np.array(array))

    # -------------------------------------------------------------- rows

    def emit(self, row: Row, values: Sequence[Any], options: tuple[Any, ...]) -> Any:
        """Lower a call of a row; return its Symbol, or its Symbols as the op packs them."""
        specs = [_operand_spec(v) for v in values]
        options = plain_options(row, options)
        results = row.infer(*specs, *options)
        results = (results,) if row.pack_results is None else tuple(results)
        if row.canonical is not None:
            options = row.canonical(*specs, *options)
        nodes, kernel = self._lower_by_choice(row, values, specs, options, results)
        if nodes is None:
            nodes = self._host_call(row, values, options, results, kernel)
        symbols = [self.symbol(node) for node in nodes]
        return symbols[0] if row.pack_results is None else row.pack_results(symbols)

    def _lower_by_choice(
        self,
        row: Row,
        values: Sequence[Any],
        specs: Sequence[Any],
        options: tuple[Any, ...],
        results: tuple[Spec, ...],
    ) -> tuple[list[Node] | None, Kernel | None]:
        """Return the nodes of the results; None, and the kernel of the row if not its own one.

        A host call is the only way for what programs do not compute, or what only a kernel does.
        """
        reason = self._reason_for_host_call(row, specs, results)
        if reason is not None:
            self.host_calls.setdefault(row.name, reason)
            return None, None
        known = tuple(map(_without_bfloat16, specs))
        # Without the nodes of operands, which choices would keep alive.
        numbers = [None if isinstance(s, Spec) else v for v, s in zip(values, specs, strict=True)]
        position = self.choices.position()
        way = self.choices.choose_for_row(
            row,
            known,
            specs,
            options,
            self.static_shapes,
            partial(_can_lower, row, numbers, specs, options, results),
        )
        if way in lowering_names(row):
            nodes = self._lower_natively(row, values, specs, options, results, way)
            if nodes is None:
                why = "it may raise" if row.raises else _host_call_reason(row, specs)
                if self._wants_lapack:
                    why, self._wants_lapack = "a device has no LAPACK", False
                self.choices.refuse(position, row, why)
                self.host_calls.setdefault(row.name, why)
            return nodes, None
        owner = "NumPy" if self.calls_lapack else "the device"
        why = f"{owner}'s kernel takes less time, or less memory"
        why = self.choices.reason(position, row, why)
        self.host_calls.setdefault(row.name, why)
        return None, None if way == CALLED else kernel_of_way(row, known, options, way)

    def _reason_for_host_call(
        self, row: Row, specs: Sequence[Any], results: tuple[Spec, ...]
    ) -> str | None:
        """Return why a call of a row must be a host call; None if it need not."""
        unsupported = [spec for spec in (*specs, *results) if not _is_native_type(spec)]
        if unsupported:
            return f"{unsupported[0]} is not computed natively"
        if any(is_floating(spec.dtype) and not _can_hold(spec.dtype, specs) for spec in results):
            return "a number is out of range for its dtype"
        return "it may raise" if row.raises and row.lowering is None else None

    def _lower_natively(
        self,
        row: Row,
        values: Sequence[Any],
        specs: Sequence[Any],
        options: tuple[Any, ...],
        results: tuple[Spec, ...],
        way: str,
    ) -> list[Node] | None:
        """Return the nodes of the results; None if there is no code for such a call."""
        if row.requires is not None:
            for truth in row.requires(*values, *options):
                self.checks.append(self.node(truth))
        # As in eager calls, ops on halves compute in float32, and their results are rounded once.
        widens = any(map(_is_half, (*specs, *results))) and not moves_elements(row)
        wide_values, wide_options = values, options
        if widens:
            wide_values = [self._half_as_float32(v) for v in values]
            wide_options = tuple([_without_halves(o) for o in options])
        out: Any = NotImplemented
        takes_inputs = any(isinstance(v, ScalarInput) for v in values)
        if row.lowering is not None and not takes_inputs:
            out = self._lower_by_row(row, wide_values, wide_options, way)
        elif row.scalar is not None and len(results) == 1:
            out = self._lower_scalar(row, values, specs, options, results[0], widens)
        # A decomposition equals a scalar but at special complex numbers.
        decomposes = row.lowering is None and not (row.scalar and "c" in map(_dtype_kind, specs))
        # Kernels convert truth values to float16, though some of them are masks and not numbers.
        decomposes = decomposes and not (
            _has_dtype("e", results) and _has_dtype("?", specs) and not _has_dtype("e", specs)
        )
        decomposes = decomposes and not takes_inputs
        if out is NotImplemented and decomposes and row.decomposition is not None:
            try:
                operands = self._integers_to_float(row, wide_values, specs, results)
                out = row.decomposition(*operands, *wide_options)
            except PlanError:
                raise
            except (OdysseyError, TypeError, ValueError):  # for dtypes that only the kernel takes
                out = NotImplemented
        if out is NotImplemented:
            return None
        outs = (out,) if row.pack_results is None else tuple(out)
        pairs = zip(outs, results, strict=True)
        return [self._convert_result(row, self.node(o), spec) for o, spec in pairs]

    def _lower_by_row(
        self, row: Row, values: Sequence[Any], options: tuple[Any, ...], way: str
    ) -> Any:
        """Call the row's ``lowering``; methods raise DTypeError for unsupported dtypes."""
        checks = len(self.checks)
        lowering: Any = row.lowering
        if isinstance(lowering, Mapping):
            lowering = lowering[way]
        try:
            return lowering(self, *values, *options)
        except DTypeError:
            del self.checks[checks:]
            return NotImplemented

    def _convert_result(self, row: Row, node: Node, spec: Spec) -> Node:
        """Broadcast and convert a node to what the row's shape rule says."""
        if node.shape != spec.shape:
            if np.broadcast_shapes(node.shape, spec.shape) != spec.shape:
                raise OdysseyError(
                    f"{row.name}: its meaning gives shape {node.shape}, its shape rule {spec.shape}"
                )
            node = self.builder.broadcast(node, spec.shape)
        return self.builder.convert(node, type_code(spec.dtype))

    def _integers_to_float(
        self, row: Row, values: Sequence[Any], specs: Sequence[Any], results: tuple[Spec, ...]
    ) -> list[Any]:
        """Convert integer operands of a decomposition to a floating result's dtype, as kernels do.

        Operands without a derivative, such as class numbers, stay integers.
        """
        dtype = results[0].dtype
        if not is_floating(dtype) or len(results) > 1:
            return list(values)
        return [
            self.cast(v, dtype)
            if isinstance(s, Spec) and s.dtype.kind in "iu" and row.vjp.get(name) is not None
            else v
            for v, s, name in zip(values, specs, row.arrays, strict=True)
        ]

    def _lower_scalar(
        self,
        row: Row,
        values: Sequence[Any],
        specs: Sequence[Any],
        options: Any,
        result: Spec,
        widens: bool,
    ) -> Any:
        """Return a map of a row's scalar; see ``kernels.elementwise.Signature``.

        With ``widens`` it computes bfloat16 in float32. As in NumPy, each step of float16 is
        rounded; scalars with functions compute in float32. Numbers take the dtype beside them.
        """
        dtype = result.dtype
        if any(isinstance(option, np.ndarray) for option in options):
            return NotImplemented
        if dtype.kind == "b" or "c" in map(_dtype_kind, specs):
            dtype = result_type(*[s.dtype if isinstance(s, Spec) else s for s in specs])
            if not _can_hold(dtype, specs):  # comparison with a number outside of the dtype
                dtype = np.dtype(np.int64 if dtype != np.uint64 else object)
            elif is_floating(dtype) and "f" not in map(_dtype_kind, specs):
                return NotImplemented  # NumPy compares uint64 and signed integers exactly
        if not _can_hold(dtype, specs):
            return NotImplemented
        type = type_code(dtype)
        if type not in ITEM_SIZES:
            return NotImplemented
        assert row.scalar is not None
        computed = "f4" if widens and type == "f2b" else type
        try:
            program = scalar_program(row.scalar, len(values), options, computed)
            if type == "f2" and any(name.startswith("math.") for name, _ in program.body.steps):
                computed = "f4"
                program = scalar_program(row.scalar, len(values), options, computed)
        except OdysseyError:  # the scalar is not defined for this dtype
            return NotImplemented
        inputs = [
            self._scalar_operand(self.node(v), computed)
            if isinstance(s, Spec)
            else self.builder.convert(self._scalar_node(v, type), computed)
            for v, s in zip(values, specs, strict=True)
        ]
        known = [(n.type, n.payload.item() if n.kind == "number" else None) for n in inputs]
        if not has_native_code(program.body, tuple(known)):
            return NotImplemented
        node = self.builder.map(program, inputs, result.shape, type_code(result.dtype))
        return self.symbol(node)

    def _scalar_node(self, value: Any, type: str) -> Node:
        """Return a number as a literal, or as a leaf if it is a scalar input of each call."""
        if not isinstance(value, ScalarInput):
            return self.builder.literal(value, type)
        # Scalar inputs are real, and not halves.
        slot_type = "f8" if type in HALVES else PARTS.get(type, type)
        slot = self.scalar_slots.setdefault((value.expression, slot_type), len(self.scalar_slots))
        return self.builder.convert(self.builder.leaf("given", slot, (), slot_type), type)

    def _scalar_operand(self, node: Node, type: str) -> Node:
        """Convert an operand of a scalar to the type that it computes in.

        Truth values stay, which take one byte, and so do numbers that would lose digits.
        """
        old = node.type
        if type in PARTS:
            keeps_type = False
        elif old == "b1" or (old[0] == "f" and type[0] != "f"):
            keeps_type = old[0] == "f" or type[0] == "f"
        else:
            keeps_type = old[0] == type[0] == "f" and ITEM_SIZES[old] > ITEM_SIZES[type]
        return node if keeps_type else self.builder.convert(node, type)

    def _half_as_float32(self, value: Any) -> Any:
        """Convert an operand of half precision to float32; return all else as it is."""
        if not is_half(getattr(value, "dtype", _FLOAT32)):
            return value
        return self.symbol(self.builder.convert(self.node(value), "f4"))

    def _host_call(
        self,
        row: Row,
        values: Sequence[Any],
        options: tuple[Any, ...],
        results: tuple[Spec, ...],
        kernel: Kernel | None = None,
    ) -> list[Node]:
        inputs: list[Node] = []
        operands: list[Any] = []
        for value in values:
            if isinstance(value, ScalarInput):
                self.host_scalars.append(value.expression)
            if isinstance(value, Symbol):
                operands.append((len(inputs),))
                inputs.append(self.node(value))
            else:
                operands.append(value)
        call = Call(row, tuple(operands), options, results, kernel)
        nodes = self.builder.call(inputs, call, results)
        if row.impure:
            self.effects += nodes[0].inputs
        return nodes

    # -------------------------------------------------------------- building: elements

    def add_check(self, truth: Any) -> None:
        """Add a check: the program runs only if a truth value holds at every element."""
        self.checks.append(self.node(truth))

    def cast(self, x: Any, dtype: Any) -> Symbol:
        """Convert elements to a dtype."""
        return self.symbol(self.builder.convert(self.node(x), type_code(dtype)))

    def elementwise(self, scalar: Callable[..., Any], *values: Any, dtype: Any = None) -> Symbol:
        """Apply a scalar to operands that broadcast, computed in ``dtype`` or that of the first.

        Raises:
            DTypeError: if it has no code for complex numbers.
        """
        nodes = [self.node(v) for v in values]
        type = nodes[0].type if dtype is None else type_code(dtype)
        program = scalar_program(scalar, len(values), (), type)
        shape = np.broadcast_shapes(*[node.shape for node in nodes])
        inputs = [self.builder.convert(node, type) for node in nodes]
        if type in PARTS and not has_native_code(
            program.body, tuple([(n.type, None) for n in inputs])
        ):
            raise DTypeError("no native code for this of complex numbers")
        return self.symbol(self.builder.map(program, inputs, shape, type))

    def full(self, shape: Shape, dtype: Any, value: Any = 0) -> Symbol:
        """Return an array filled with one number."""
        number = self.node(np.asarray(value, dtype))
        return self.symbol(self.builder.broadcast(number, shape))

    def index(self, shape: Shape, axis: int) -> Symbol:
        """Return the index along an axis, at each element of a shape."""
        return self.symbol(self.builder.index(shape, axis))

    # -------------------------------------------------------------- building: views

    def reshape(self, x: Any, shape: Shape) -> Symbol:
        """Return the elements in row-major order in another shape."""
        return self.symbol(self.builder.reshape(self.node(x), shape))

    def transpose(self, x: Any, axes: Iterable[int]) -> Symbol:
        """Permute the axes."""
        return self.symbol(self.builder.transpose(self.node(x), axes))

    def broadcast(self, x: Any, shape: Shape) -> Symbol:
        """Broadcast to a shape."""
        return self.symbol(self.builder.broadcast(self.node(x), shape))

    def slice(self, x: Any, key: Any) -> Symbol:
        """Return the elements at a key of slices, integers, None and Ellipsis."""
        key = key if isinstance(key, tuple) else (key,)
        if not any(k is Ellipsis for k in key):
            key = (*key, Ellipsis)
        return self.symbol(self.builder.slice(self.node(x), key))

    def windows(self, x: Any, window: Shape, stride: Shape, dilation: Shape) -> Symbol:
        """Return sliding windows over the last axes: axes of their elements, then of positions."""
        return self.symbol(self.builder.windows(self.node(x), window, stride, dilation))

    def join(self, members: Sequence[tuple[Any, Any]], shape: Shape, dtype: Any) -> Symbol:
        """Return an array of members at disjoint keys of slices and integers; 0 elsewhere."""
        pairs = [(self.node(x), key if isinstance(key, tuple) else (key,)) for x, key in members]
        return self.symbol(self.builder.join(pairs, shape, type_code(dtype)))

    # -------------------------------------------------------------- building: indexing

    def normalize_index(self, index: Any, length: int, mode: str = "wrap") -> Any:
        """Return indices along an axis as int64 numbers from 0 to ``length - 1``.

        Args:
            index: Integers of any dtype.
            length: Length of the axis.
            mode: ``wrap`` checks that indices are in range, negative ones counted from the end;
                ``front`` checks that they are in range and not negative; ``clip`` and
                ``remainder`` take any integer, to the nearest index or modulo the length.
        """
        node = self.node(index)
        if not node.size:
            return self.cast(index, np.int64)
        known = node.payload if node.kind == "leaf" and node.detail[0] == "constant" else None
        if known is not None and mode == "wrap" and -length <= known.min() <= known.max() < length:
            # Constants need no check at run time.
            known = known.astype(np.int64)
            return self.symbol(self.node(np.where(known < 0, known + length, known)))
        if mode in ("wrap", "front"):
            self._require_within(node, 0 if mode == "front" else -length, length)
        result = self.cast(index, np.int64)
        if mode == "wrap" and node.type[0] == "i":
            return self.elementwise(_wrap_negative, result, length)
        if mode == "clip":
            return self.elementwise(
                lambda i, n: select(i < T(0), T(0), select(i < n, i, n - T(1))), result, length
            )
        if mode == "remainder":
            return self.elementwise(lambda i, n: i % n, result, length)
        return result

    def _require_within(self, node: Node, low: int, high: int) -> None:
        """Add a check that integers are at least ``low`` and below ``high``."""
        kind = "u8" if node.type == "u8" else "i8"
        x = self.builder.convert(node, kind)
        bounds = (0 if kind == "u8" else low, high)
        least, most = (self.builder.literal(n, kind) for n in bounds)
        program = scalar_program(lambda x, low, high: (x >= low) & (x < high), 3, (), kind)
        self.add_check(self.symbol(self.builder.map(program, [x, least, most], x.shape, "b1")))

    def gather(self, x: Any, indices: Sequence[Any]) -> Symbol:
        """Return the elements at indices along each axis, which broadcast to the result's shape.

        Args:
            x: An array.
            indices: For each axis the result of ``normalize_index`` or ``index``.
        """
        return self.symbol(self.builder.gather(self.node(x), [self.node(i) for i in indices]))

    def scatter(self, how: str, base: Any, x: Any, indices: Sequence[Any]) -> Symbol:
        """Return ``base`` updated with the elements of ``x`` at indices, in row-major order.

        Args:
            how: ``set``, or one of ``REDUCTIONS`` to combine with the element there.
            base: An array, of the dtype of the result.
            x: The elements, of the same dtype.
            indices: For each axis of ``base`` the result of ``normalize_index`` or ``index``; they
                broadcast to the shape of ``x``.
        """
        nodes = [self.node(i) for i in indices]
        return self.symbol(self.builder.scatter(how, self.node(base), self.node(x), nodes))

    # -------------------------------------------------------------- building: along axes

    def scan(self, scalar: Callable[..., Any], x: Any, *steps: Any, axis: int) -> Symbol:
        """Return the running results of a scalar along an axis; the first is the first element.

        Args:
            scalar: ``scalar(previous result, element, *steps)``.
            x: An array.
            steps: Arrays of its dtype, one shorter along the axis: operands of the steps to the
                second element, to the third and so on.
            axis: The axis.
        """
        inputs = [self.node(a) for a in (x, *steps)]
        program = scalar_program(scalar, len(inputs) + 1, (), inputs[0].type)
        return self.symbol(self.builder.scan(program, inputs, axis))

    def reduce(self, how: str, x: Any, axes: Iterable[int], keepdims: bool = False) -> Symbol:
        """Reduce axes; ``how`` is one of ``REDUCTIONS``.

        Raises:
            DTypeError: for complex numbers, unless ``how`` is ``sum``.
        """
        node, axes = self.node(x), set(axes)
        if node.type in PARTS:
            if how != "sum":
                raise DTypeError(f"{how}: no native code for complex numbers")
            sums = [self.reduce(how, p, axes, keepdims) for p in self._real_and_imaginary(x)]
            return self.elementwise(_complex_from_parts, *sums, dtype=node.type)
        result = self.builder.reduce(how, node, axes)
        if not keepdims:
            shape = [n for a, n in enumerate(node.shape) if a not in axes]
            result = self.builder.reshape(result, shape)
        return self.symbol(result)

    def _real_and_imaginary(self, x: Any) -> list[Symbol]:
        node = self.node(x)
        results = []
        for scalar in (lambda x: x.real, lambda x: x.imag):
            program = scalar_program(scalar, 1, (), node.type)
            result = self.builder.map(program, [node], node.shape, PARTS[node.type])
            results.append(self.symbol(result))
        return results

    def matmul(self, a: Any, b: Any) -> Symbol:
        """Return matrix products of one floating or complex dtype; leading axes broadcast."""
        return self.symbol(self.builder.matmul(self.node(a), self.node(b)))

    # -------------------------------------------------------------- building: LAPACK

    def cholesky_factor(self, a: Any, upper: bool) -> Symbol:
        """Return Cholesky factors, and check that the matrices are positive definite.

        This result and those of the following methods are of double precision.

        Raises:
            DTypeError: if NumPy's LAPACK library cannot be called, or sizes are symbolic.
        """
        node = self._lapack_operand(a)
        factor = self.symbol(self.builder.lapack("potrf", [node], node.shape, (upper,)))
        if node.size:
            # The library marks a failure in the first element.
            corner = self._real(self.slice(factor, (..., 0, 0)))
            self.add_check(self._compare(lambda x, y: ~(x < y), corner, 0.0))
        return factor

    def triangular_solution(
        self, a: Any, b: Any, trans: str, lower: bool, unit_diagonal: bool
    ) -> Symbol:
        """Return the solutions of triangular systems, and check that the diagonals have no 0.

        Args:
            a: Square matrices.
            b: Matrices of columns, with all batch axes, of the same dtype.
            trans: ``"N"``, ``"T"`` or ``"C"``, for ``a``, its transpose, or its adjoint.
            lower: Whether to read the lower triangle.
            unit_diagonal: Whether to take the diagonal as ones.

        Raises:
            DTypeError: if NumPy's LAPACK library cannot be called, or sizes are symbolic.
        """
        matrix, columns = self._lapack_operand(a), self._lapack_operand(b)
        n = matrix.shape[-1]
        if not unit_diagonal and matrix.size and 0 not in columns.shape[:-2]:
            flat = self.reshape(self.symbol(matrix), (*matrix.shape[:-2], n * n))
            diagonal = self.slice(flat, (..., slice(0, n * n, n + 1)))
            self.add_check(self._compare(lambda x, y: x != y, diagonal, 0.0))
        if trans == "C" and matrix.type not in PARTS:
            trans = "T"
        options = trans, lower, unit_diagonal
        node = self.builder.lapack("trtrs", [columns, matrix], columns.shape, options)
        return self.symbol(node)

    def solution(self, a: Any, b: Any, checked: bool) -> Symbol:
        """Return the solutions of linear systems by LU decomposition.

        Those of one matrix share one decomposition. A transpose is decomposed anew, as in an eager
        call, so that the bits are equal.

        Args:
            a: Square matrices.
            b: Matrices of columns, with all batch axes, of the same dtype.
            checked: Whether to check that all matrices are regular; else solutions for singular
                ones are NaN.

        Raises:
            DTypeError: if NumPy's LAPACK library cannot be called, or sizes are symbolic.
        """
        matrix, columns = self._lapack_operand(a), self._lapack_operand(b)
        batch, n = matrix.shape[:-2], matrix.shape[-1]
        layout = lu_layout(n, matrix.type)
        line = self.builder.lapack("getrf", [matrix], (*batch, 1, layout.length), ())
        if checked:
            flag = self._real(self.slice(self.symbol(line), (..., 0, layout.regular)))
            self.add_check(self._compare(lambda x, y: x != y, flag, 0.0))
        # Each solution is a row, since LAPACK reads and writes columns.
        axes = (*range(len(columns.shape) - 2), len(columns.shape) - 1, len(columns.shape) - 2)
        rows = self.builder.transpose(columns, axes)
        solved = self.builder.lapack("getrs", [rows, line], rows.shape, ())
        return self.symbol(self.builder.transpose(solved, axes))

    def _lapack_operand(self, x: Any) -> Node:
        """Return matrices in double precision, which NumPy computes singles in as well."""
        node = self.node(x)
        type = _DOUBLES.get(node.type)
        self._wants_lapack |= not self.calls_lapack
        able = self.static_shapes and self.calls_lapack
        if type is None or not able or lapack_library() is None:
            raise DTypeError("no LAPACK function for this")
        return self.builder.convert(node, type)

    def _real(self, x: Symbol) -> Symbol:
        return self._real_and_imaginary(x)[0] if self.node(x).type in PARTS else x

    def _compare(self, scalar: Callable[..., Any], x: Symbol, number: float) -> Symbol:
        """Return truth values of a scalar of ``x`` and a number."""
        node = self.node(x)
        program = scalar_program(scalar, 2, (), node.type)
        inputs = [node, self.builder.literal(number, node.type)]
        return self.symbol(self.builder.map(program, inputs, node.shape, "b1"))


_FLOAT32 = np.dtype(np.float32)
_FLOAT16 = np.dtype(np.float16)


def _can_lower(
    row: Row,
    numbers: Sequence[Any],
    specs: Sequence[Any],
    options: tuple[Any, ...],
    results: tuple[Spec, ...],
    way: str,
) -> bool:
    """Return whether a call of a row can be lowered by one of its lowerings."""
    low = Lowering()
    values = [
        low.symbol(low.builder.leaf("input", k, spec.shape, type_code(spec.dtype)))
        if isinstance(spec, Spec)
        else number
        for k, (number, spec) in enumerate(zip(numbers, specs, strict=True))
    ]
    return low._lower_natively(row, values, specs, options, results, way) is not None


def _is_half(spec: Any) -> bool:
    return isinstance(spec, Spec) and is_half(spec.dtype)


def _without_halves(option: Any) -> Any:
    """Return an option, if it is a spec or an array, with float32 instead of half precision."""
    if isinstance(option, (np.ndarray, np.generic)) and is_half(option.dtype):
        return option.astype(_FLOAT32)
    return Spec(option.shape, _FLOAT32) if _is_half(option) else option


def _without_bfloat16(spec: Any) -> Any:
    """Return a spec with float16, which is promoted alike, instead of bfloat16."""
    is_replaced = isinstance(spec, Spec) and is_bfloat16(spec.dtype)
    return Spec(spec.shape, _FLOAT16) if is_replaced else spec


_DOUBLES = {"f4": "f8", "f8": "f8", "c8": "c16", "c16": "c16"}


def _wrap_negative(i: Any, n: Any) -> Any:
    return select(i < T(0), i + n, i)


def _complex_from_parts(real: Any, imaginary: Any) -> Any:
    return T(real.real, imaginary.real)


def _host_call_reason(row: Row, specs: Sequence[Any]) -> str:
    if "c" in map(_dtype_kind, specs):
        return "there is no code for complex numbers"
    return f"{row.primitive or 'its scalar'} is called"


def _has_dtype(char: str, specs: Sequence[Any]) -> bool:
    """Return whether one of the specs has a dtype, given by its character."""
    return any(isinstance(s, Spec) and s.dtype.char == char for s in specs)


def _dtype_kind(spec: Any) -> str:
    dtype = spec.dtype if isinstance(spec, Spec) else np.asarray(spec).dtype
    return "f" if is_bfloat16(dtype) else dtype.kind


def _operand_spec(value: Any) -> Any:
    if isinstance(value, ScalarInput):
        return value.number
    if isinstance(value, Symbol):
        return value.spec
    return spec_of(value) if hasattr(value, "dtype") and hasattr(value, "shape") else value


def _can_hold(dtype: Any, specs: Sequence[Any]) -> bool:
    """Return whether a dtype can hold the Python numbers among the operands, up to rounding."""
    numbers = [s for s in specs if isinstance(s, (int, float)) and not isinstance(s, bool)]
    if dtype.kind == "c":
        numbers += [p for s in specs if type(s) is complex for p in (s.real, s.imag)]
    if is_inexact(dtype):
        largest = float(finfo(_FLOAT32 if is_bfloat16(dtype) else dtype).max)
        return all(abs(n) <= largest or (isinstance(n, float) and not isfinite(n)) for n in numbers)
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return all(n == n // 1 and limits.min <= n <= limits.max for n in numbers)
    return bool(dtype.kind != "O")


def _is_native_type(spec: Any) -> bool:
    return not isinstance(spec, Spec) or type_code(spec.dtype) in ITEM_SIZES


# Kinds of rows that write some elements of their first operand, or show it in another shape.
_WRITES = ("scatter", "view")
# Calls of ops that the steps of a scan may become in a program.
_MAX_UNROLLED = 64


def _resolve(low: Lowering, symbols: Mapping[int, Any], operand: Any) -> Any:
    """Return the value of an operand of an instruction."""
    if isinstance(operand, Ref):
        return symbols[operand.id]
    if isinstance(operand, Splat):
        type = type_code(operand.number.dtype)
        if type not in ITEM_SIZES:
            return operand.array()
        number = low.builder.literal(operand.number, type)
        return low.symbol(low.builder.broadcast(number, operand.shape))
    return operand


def _lower_instructions(
    low: Lowering, graph: Graph, symbols: dict[int, Any], writes: Container[int] = ()
) -> None:
    """Lower the instructions of a graph, and add their results to ``symbols``.

    Args:
        low: Lowering in progress.
        graph: The graph.
        symbols: By number of a value its Symbol.
        writes: Values that are states with some elements written; see ``_partial_writes``.
    """
    for row, operands, options, ids, _ in graph.instructions:
        low.builder.op = row.name
        low.writes_state = ids[0] in writes
        values = [_resolve(low, symbols, o) for o in operands]
        if low.static_shapes and isinstance(row, LoopRow) and is_unrolled(row, low.choices):
            results = _unroll_scan(low, row.loop, values)
        else:
            result = low.emit(row, values, options)
            results = (result,) if row.pack_results is None else tuple(result)
        symbols.update(zip(ids, results, strict=True))


def _partial_writes(graph: Graph) -> set[int]:
    """Return the values that lead from a state to its update by writes of some elements each."""
    made = {one.ids[0]: one for one in graph.instructions if one.row.primitive in _WRITES}
    found: set[int] = set()
    for state in graph.states:
        chain: list[int] = []
        value = state.update
        while isinstance(value, Ref) and value.id in made and value.id != state.id:
            chain.append(value.id)
            value = made[value.id].operands[0]
        if isinstance(value, Ref) and value.id == state.id and state.field == "data":
            found.update(chain)
    return found


def is_unrolled(row: Row, choices: Choices | None = None) -> bool:
    """Return whether a program contains the steps of a scan, and calls no loop.

    The call of a loop takes 10 us before its first step. Steps with host calls stay in a loop.

    Args:
        row: The row of the scan.
        choices: Ways of the works of the program.
    """
    if not isinstance(row, LoopRow) or row.loop.kind != "scan":
        return False
    (step,) = row.loop.subgraphs
    size = row.loop.steps * max(len(step.instructions), 1)
    if not 0 < size <= _MAX_UNROLLED:
        return False
    return not lower(step, choices=None if choices is None else Choices(choices.plan)).host_calls


def _unroll_scan(low: Lowering, loop: Loop, values: Sequence[Any]) -> tuple[Any, ...]:
    """Lower each step of a scan; return its results."""
    (step,) = loop.subgraphs
    ends = loop.carries, loop.carries + loop.columns
    carry, columns, captured = values[: ends[0]], values[ends[0] : ends[1]], values[ends[1] :]
    rows: dict[int, Sequence[Any]] = {}
    for k in loop.order:
        given = (*carry, *[getitem(column, k) for column in columns], *captured)
        symbols = {id: low.node(array) for id, array in step.constants.items()}
        known: dict[int, Any] = {id: low.symbol(node) for id, node in symbols.items()}
        known |= {id: value for (id, _), value in zip(step.inputs, given, strict=False)}
        _lower_instructions(low, step, known)
        outs = [low.symbol(low.node(_resolve(low, known, o))) for o in step.outputs]
        carry, rows[k] = outs[: loop.carries], outs[loop.carries :]
    stacked = zip(*[rows[k] for k in range(loop.steps)], strict=True)
    results = [*carry, *[stack(list(parts)) for parts in stacked]]
    # As a loop's, they are arrays of their own, also where the steps pass an operand on. Without a
    # copy a scatter may be written over the state that it updates.
    owner = "scan", len(low.builder.nodes)
    nodes = list(map(low.node, results))
    nodes = [
        node if node.kind == "scatter" else low.builder.copy(node, (*owner, k))
        for k, node in enumerate(nodes)
    ]
    return tuple(map(low.symbol, nodes))


def lower(
    graph: Graph,
    builder: IRBuilder | None = None,
    choices: Choices | None = None,
    calls_lapack: bool = True,
) -> Lowered:
    """Lower a graph to nodes, made by ``builder`` if its sizes are symbolic.

    Args:
        graph: The graph.
        builder: Builder for symbolic sizes.
        choices: Ways of the works; by default as guessed.
        calls_lapack: Whether the program may call LAPACK, which devices do not have.
    """
    low = Lowering(builder, choices)
    low.calls_lapack = calls_lapack
    symbols: dict[int, Symbol] = {}
    leaf = low.builder.leaf
    for k, (id, spec) in enumerate(graph.inputs):
        symbols[id] = low.symbol(leaf("input", k, spec.shape, type_code(spec.dtype)))
    next_input = len(graph.inputs)
    for k, state in enumerate(graph.states):
        if state.id >= 0:
            # A gradient is another array in each run, so it is passed as an argument is.
            role, index = ("state", k) if state.field == "data" else ("input", next_input)
            next_input += role == "input"
            spec = state.spec
            symbols[state.id] = low.symbol(leaf(role, index, spec.shape, type_code(spec.dtype)))
    for k, (id, array) in enumerate(graph.constants.items()):
        array = array if backend_of(array) is not None else np.asarray(array)
        symbols[id] = low.symbol(leaf("constant", k, array.shape, type_code(array.dtype), array))

    _lower_instructions(low, graph, symbols, _partial_writes(graph))
    low.builder.op = ""
    outputs: list[Node | None] = [
        low.node(_resolve(low, symbols, o)) if isinstance(o, (Ref, Splat)) else None
        for o in graph.outputs
    ]
    updates = {}
    for k, state in enumerate(graph.states):
        if state.update is not None:
            node = low.node(_resolve(low, symbols, state.update))
            if state.field == "data":
                updates[k] = node
            else:
                outputs.append(node)
    return Lowered(
        low.builder,
        outputs,
        updates,
        low.checks,
        low.effects,
        low.host_calls,
        low.scalar_slots,
        low.host_scalars,
        low.choices,
    )

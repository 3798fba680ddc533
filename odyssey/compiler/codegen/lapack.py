"""LAPACK calls in LLVM IR: factorizations of matrices, and solutions of systems with factors.

A kernel copies its first operand into the result, which LAPACK overwrites; if both are one buffer,
nothing is copied. Each matrix of a batch is one call. Functions are those of Fortran: arguments are
passed by address, and matrices are column-major, so a row-major matrix is its transpose to them.

Functions, by the name in ``Node.detail``, which the other entries of ``detail`` follow:

* ``potrf``, upper: Cholesky factor with zeros in the other triangle. If the matrix is not positive
  definite, the first element is -1, which no factor begins with.
* ``trtrs``, trans, lower, unit diagonal: solution of ``op(a) @ x = b`` for operands ``b``, ``a``;
  the diagonal must not contain 0.
* ``getrf``: LU factors in one line; see ``lu_layout``.
* ``getrs``: solutions, one a row, for operands ``b``, likewise, and a result of ``getrf``;
  NaN if the matrix is singular.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from odyssey.compiler.codegen.kernel_function import KernelFunction
from odyssey.compiler.ir.nodes import lu_layout
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.builder import LLVMValue
from odyssey.compiler.llvm.types import LLVM, PARTS
from odyssey.compiler.schedule.buffer_assignment import Buffer, Plan
from odyssey.compiler.schedule.fusion import Kernel
from odyssey.compiler.schedule.work_partition import lapack_work
from odyssey.kernels.lapack_library import LAPACK_ARGUMENTS

__all__ = ["LAPACK_DECLARATIONS", "LapackCall"]

_LETTERS = {"f8": "d", "c16": "z"}

LAPACK_DECLARATIONS = {
    f"ody_{letter}{name}": f"declare void @ody_{letter}{name}({', '.join(['ptr'] * count)})"
    for letter in _LETTERS.values()
    for name, count in LAPACK_ARGUMENTS.items()
}
"""Declarations of the functions by name."""

# From this many multiplications on the library may use its own threads.
_THREADS_WORK = 1 << 17


class LapackCall(KernelFunction):
    """Code generator of a LAPACK node.

    Args:
        plan: Plan of the program.
        kernel: Kernel with one LAPACK node.
        single_threaded: Whether to leave the library's threads as they are.
    """

    def __init__(self, plan: Plan, kernel: Kernel, single_threaded: bool = False) -> None:
        super().__init__(plan, kernel, single_threaded)
        node = kernel.nodes[0]
        self._node, self._type = node, node.type
        self._letter = _LETTERS[node.type]
        self._cells: dict[tuple[str, str], str] = {}
        out = plan.allocations[node.id]
        self._out, self._out_pointer = out.view, self.pointer(out.buffer)
        self._out_buffer: Buffer = out.buffer
        self._batch = node.shape[:-2]
        name, *options = node.detail
        emit: Callable[..., None] = getattr(self, f"_emit_{name}")
        self._emit_unshared(lambda: self.emit_loops(self._batch, lambda k: emit(k, *options)))

    def _emit_unshared(self, emit_all: Callable[[], None]) -> None:
        """Generate calls that use one thread if a number of threads was set, as products do."""
        if self.single_threaded or lapack_work(self._node) < _THREADS_WORK:
            emit_all()
            return
        code = self.code
        threads = code.op("i8", f"call i64 @ody_enter(i64 {self.thread_limit().text})")
        entered = code.op("b1", f"icmp ne i64 {threads.text}, 0")
        emit_all()
        code.line(f"br i1 {entered.text}, label %leave, label %left")
        code.label("leave")
        code.line("call void @ody_leave()")
        code.line("br label %left")
        code.label("left")

    # -------------------------------------------------------------- functions

    def _emit_potrf(self, batch: list[LLVMValue], upper: bool) -> None:
        """Factor as NumPy does, to the bit: the triangle lies in column-major order meanwhile."""
        n, code, zero = self._node.shape[-1], self.code, self.code.const(self._type, 0.0)
        source, rows = self.plan.allocation(self._node.inputs[0]), self._is_row_major(self._out)
        in_place = source.buffer is self._out_buffer
        origin = self._out_pointer if in_place else self.pointer(source.buffer)
        view = self._out if in_place else source.view.broadcast(self._node.shape)
        start = self._matrix_pointer(self._out_pointer, self._out, batch)

        def address(i: LLVMValue, j: LLVMValue) -> str:
            return self._in_matrix(start, self._out, *((j, i) if rows else (i, j)))

        def read(i: LLVMValue, j: LLVMValue) -> None:
            value = code.load(self._type, self._element(origin, view, [*batch, i, j]))
            code.store(value, address(i, j))

        def move_back(i: LLVMValue, j: LLVMValue) -> None:
            if rows:
                place = self._in_matrix(start, self._out, i, j)
                code.store(code.load(self._type, address(i, j)), place)
            code.store(zero, self._in_matrix(start, self._out, j, i))

        if not in_place:
            self.emit_loop(n, lambda i: read(i, i))
        if rows or not in_place:
            self._emit_triangle(n, upper, read)
        info = self._info()
        triangle = self._letter_cell("U" if upper else "L")
        self._call("potrf", triangle, *self._sizes(n), start, *self._step(), info)
        self._emit_triangle(n, upper, move_back)
        corner = code.load(self._type, start)
        failed = code.select(self._nonzero(info), code.const(self._type, -1.0), corner)
        code.store(failed, start)

    def _emit_triangle(
        self, n: int, upper: bool, body: Callable[[LLVMValue, LLVMValue], None]
    ) -> None:
        """Generate loops over the elements of a triangle without its diagonal."""

        def emit_line(k: LLVMValue) -> None:
            self.emit_loop(k, lambda m: body(*((m, k) if upper else (k, m))))

        self.emit_loop(n, emit_line)

    def _emit_trtrs(
        self, batch: list[LLVMValue], trans: str, lower: bool, unit_diagonal: bool
    ) -> None:
        self._copy_operand(batch)
        matrix = self.plan.allocation(self._node.inputs[1])
        view = matrix.view.broadcast((*self._batch, *matrix.view.shape[-2:]))
        start = self._matrix_pointer(self.pointer(matrix.buffer), view, batch)
        rows = self._is_row_major(view)
        # ``op`` of the matrix as Fortran sees it; J is its conjugate.
        op = {"N": "T", "T": "N", "C": "J"}[trans] if rows else {"C": "H"}.get(trans, trans)
        x = self._matrix_pointer(self._out_pointer, self._out, batch)
        self._solve(start, self._leading(view), op, lower == rows, unit_diagonal, x)

    def _emit_getrf(self, batch: list[LLVMValue]) -> None:
        code, layout = self.code, lu_layout(self._node.inputs[0].shape[-1], self._type)
        n = layout.n
        line = self._matrix_pointer(self._out_pointer, self._out, batch)
        factors = self.offset_pointer(self._type, line, str(layout.factors))
        source = self.plan.allocation(self._node.inputs[0])
        pointer = self.pointer(source.buffer)

        def copy(at: list[LLVMValue]) -> None:
            j, i = at
            value = code.load(self._type, self._element(pointer, source.view, [*batch, i, j]))
            place = self.element_pointer(self._type, factors, [(j, n), (i, 1)], 0)
            code.store(value, place)

        self.emit_loops((n, n), copy)
        info, (size, step) = self._info(), self._sizes(n, max(n, 1))
        self._call("getrf", size, size, factors, step, line, info)
        zero, one = (code.const(self._type, k) for k in (0.0, 1.0))
        regular = self.offset_pointer(self._type, line, str(layout.regular))
        code.store(code.select(self._nonzero(info), zero, one), regular)

    def _emit_getrs(self, batch: list[LLVMValue]) -> None:
        code = self.code
        self._copy_operand(batch)
        packed = self.plan.allocation(self._node.inputs[1])
        columns, n = self._node.shape[-2:]
        layout = lu_layout(n, self._type)
        view = packed.view.broadcast((*self._batch, *packed.view.shape[-2:]))
        line = self._matrix_pointer(self.pointer(packed.buffer), view, batch)
        factors = self.offset_pointer(self._type, line, str(layout.factors))
        x = self._matrix_pointer(self._out_pointer, self._out, batch)
        regular = code.load(self._type, self.offset_pointer(self._type, line, str(layout.regular)))
        real = regular.real if self._type in PARTS else regular
        solvable = real == code.const(real.type, 1.0)
        sizes, step = self._sizes(n, columns), self._sizes(max(n, 1))
        letter = self._letter_cell("N")
        self._call("getrs", letter, *sizes, factors, *step, line, x, *self._step(), self._info())

        def mark(at: list[LLVMValue]) -> None:
            place = self._in_matrix(x, self._out, *at)
            value = code.load(self._type, place)
            code.store(code.select(solvable, value, code.const(self._type, math.nan)), place)

        self.emit_loops((columns, n), mark)

    def _solve(self, a: str, leading: int, op: str, upper: bool, unit: bool, x: str) -> None:
        """Solve with a triangle of a column-major matrix; ``op`` is N, T, H or J (conjugate)."""
        n, columns = self._node.shape[-2:]
        triangle, diagonal = (
            self._letter_cell(letter) for letter in ("U" if upper else "L", "U" if unit else "N")
        )
        lda = self._cell("i64", max(leading, n, 1))
        if columns == 1 and op != "J":
            stride = self._cell("i64", self._out.strides[-2] if n > 1 else 1)
            letter = self._letter_cell({"H": "C"}.get(op, op))
            self._call("trsv", triangle, letter, diagonal, *self._sizes(n), a, lda, x, stride)
            return
        rows = self._is_row_major(self._out)
        if rows:  # the transposed system, from the right
            op = {"N": "T", "T": "N", "J": "H"}[op]
        assert op != "J", "the layout of this result cannot be solved for"
        sizes = self._sizes(columns, n) if rows else self._sizes(n, columns)
        self._call(
            "trsm",
            *(self._letter_cell("R" if rows else "L"), triangle),
            *(self._letter_cell({"H": "C"}.get(op, op)), diagonal),
            *(*sizes, self._unit_cell(), a, lda, x, *self._step()),
        )

    # -------------------------------------------------------------- memory

    def _copy_operand(self, batch: list[LLVMValue]) -> None:
        """Copy the matrix of the first operand into the result, unless it is there already."""
        source = self.plan.allocation(self._node.inputs[0])
        if source.buffer is self._out_buffer:
            return
        view = source.view.broadcast(self._node.shape)
        pointer, code = self.pointer(source.buffer), self.code

        def copy(at: list[LLVMValue]) -> None:
            indices = [*batch, *(at if self._is_row_major(self._out) else at[::-1])]
            value = code.load(self._type, self._element(pointer, view, indices))
            code.store(value, self._element(self._out_pointer, self._out, indices))

        lengths = self._node.shape[-2:]
        self.emit_loops(lengths if self._is_row_major(self._out) else lengths[::-1], copy)

    def _element(self, pointer: str, view: View, indices: list[LLVMValue]) -> str:
        terms = list(zip(indices, view.strides, strict=True))
        return self.element_pointer(self._type, pointer, terms, view.offset)

    def _matrix_pointer(self, pointer: str, view: View, batch: list[LLVMValue]) -> str:
        """Return the address of the first element of a matrix of the batch."""
        terms = list(zip(batch, view.strides, strict=False))
        return self.element_pointer(self._type, pointer, terms, view.offset)

    def _in_matrix(self, start: str, view: View, i: LLVMValue, j: LLVMValue) -> str:
        terms = [(i, view.strides[-2]), (j, view.strides[-1])]
        return self.element_pointer(self._type, start, terms, 0)

    @staticmethod
    def _is_row_major(view: View) -> bool:
        (m, n), (row, column) = view.shape[-2:], view.strides[-2:]
        return (column == 1 or n == 1) and (m == 1 or row >= n)

    def _leading(self, view: View) -> int:
        """Return the leading dimension of a matrix."""
        (m, n), (row, column) = view.shape[-2:], view.strides[-2:]
        if self._is_row_major(view):
            return row if m > 1 else n
        return column if n > 1 else m

    # -------------------------------------------------------------- arguments

    def _call(self, name: str, *pointers: str) -> None:
        arguments = ", ".join(f"ptr {pointer}" for pointer in pointers)
        self.code.line(f"call void @ody_{self._letter}{name}({arguments})")

    def _cell(self, llvm_type: str, value: object) -> str:
        """Return the address of a constant argument."""
        key = llvm_type, str(value)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = self.alloca_of(llvm_type)
            self._entry.append(f"  store {llvm_type} {value}, ptr {cell}")
        return cell

    def _sizes(self, *sizes: int) -> list[str]:
        return [self._cell("i64", size) for size in sizes]

    def _step(self) -> list[str]:
        """Return the leading dimension of the result as an argument."""
        return self._sizes(max(self._leading(self._out), 1))

    def _letter_cell(self, letter: str) -> str:
        return self._cell("i8", ord(letter))

    def _unit_cell(self) -> str:
        """Return the address of the number 1."""
        if self._type in PARTS:
            return f"@ody_1_{self._type}"
        return self._cell(LLVM[self._type], "1.0")

    def _info(self) -> str:
        """Return the address of a status, set to 0 before the call."""
        cell = self.alloca_of("i64")
        self.code.line(f"store i64 0, ptr {cell}")
        return cell

    def _nonzero(self, cell: str) -> LLVMValue:
        # Functions with 32-bit integers write the lower half.
        status = self.code.op("i4", f"load i32, ptr {cell}")
        return self.code.op("b1", f"icmp ne i32 {status.text}, 0")

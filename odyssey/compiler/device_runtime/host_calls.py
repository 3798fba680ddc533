"""Host calls of a device's program: kernels of rows that Python calls between two segments.

The kernel is that of an eager call. It reads views of the program's memory, and its results are
arrays of the device, whose addresses the segments behind it read. The host does not wait, unless
the kernel itself does: it runs in the stream of the segments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from odyssey.compiler.device_runtime.control_flow import DeviceLoop
from odyssey.compiler.ir.nodes import Node
from odyssey.compiler.llvm.types import dtype_of_code
from odyssey.devices.ownership import may_alias, memory_span
from odyssey.devices.same_device import array_copy
from odyssey.errors import ShapeError
from odyssey.graph.graph import Graph, ScalarInput
from odyssey.graph.subgraphs import LoopRow
from odyssey.spec import Spec, spec_of

if TYPE_CHECKING:
    from odyssey.compiler.lowering import Call

__all__ = ["DeviceHostCall"]


class DeviceHostCall:
    """Call of a row's kernel on a device; ``runtime.host_calls.HostCall`` is that of the CPU.

    Args:
        executable: Program that contains the call.
        node: Node of the call.
        compile_part: Compiles a subgraph of control flow.

    Attributes:
        parts: Compiled subgraphs of control flow by title; empty for other kernels.

    Raises:
        UnsupportedKernelError: a subgraph has no program for the device.
    """

    def __init__(self, executable: Any, node: Node, compile_part: Callable[[Graph], Any]) -> None:
        self._call: Call = node.payload
        row = self._call.row
        self._backend: Any = executable.device.backend
        self._index = executable.device.index
        # The ways of a plan name kernels of the CPU, so it is the row's own one in any case.
        self._kernel: Callable[..., Any] = row.kernel
        self.parts: dict[str, Any] = {}
        self._loop: DeviceLoop | None = None
        if isinstance(row, LoopRow):
            self._loop = DeviceLoop(row.loop, executable.device, compile_part)
            self._kernel, self.parts = self._loop.run, self._loop.programs()
        self._operands = list(map(self._place_constant, self._call.operands))
        self._views = [_OperandView(executable, i) for i in node.inputs]
        users = executable.plan.fused.users.get(node.id, [])
        self._results: list[tuple[int, int]] = [(user.detail, user.id) for user in users]

    def run(self, executable: Any) -> None:
        """Call the kernel, and give its results to a program.

        The program is passed, and not held, since it holds this call: a cycle would keep what the
        function captured until the garbage collector runs.
        """
        row, _, options, specs, _ = self._call
        with self._backend.on(self._index):
            arrays = [view.array(executable) for view in self._views]
        if row.foreign:  # a foreign kernel may keep its operands longer than the program does
            arrays = list(map(array_copy, arrays))
        known = executable.numbers.known
        given = [
            arrays[o[0]]
            if type(o) is tuple
            else (known[o.expression] if isinstance(o, ScalarInput) else o)
            for o in self._operands
        ]
        made = self._kernel(*given, *options)
        made = (made,) if row.pack_results is None else tuple(made)
        if row.foreign and list(map(_spec_of_result, made)) != list(specs):
            executable.contract_broken = True
            raise ShapeError(
                f"{row.name}: the specs of its results differ from those that infer= returned"
            )
        for place, id in self._results:
            array = self._as_contiguous(made[place], specs[place])
            # Loops return arrays of their own.
            if self._loop is None and may_alias(array, arrays):
                array = array_copy(array, order="C")  # the operand's memory will be reused
            executable.keep_result(id, array)

    def _as_contiguous(self, result: Any, spec: Spec) -> Any:
        """Return a result as a contiguous array of the device, of the dtype that was inferred."""
        backend, index = self._backend, self._index
        if not isinstance(result, backend.array_type):  # of a call without an array of the device
            host = np.ascontiguousarray(result, spec.dtype).reshape(spec.shape)
            return backend.call("compile", index, backend.to_device, host, index)
        if result.dtype == spec.dtype and result.flags.c_contiguous:
            return result if result.shape == spec.shape else result.reshape(spec.shape)
        convert = backend.namespace.ascontiguousarray
        return backend.call("compile", index, convert, result, spec.dtype).reshape(spec.shape)

    def _place_constant(self, operand: Any) -> Any:
        """Copy an operand that is an array of the host to the device."""
        if not isinstance(operand, (np.ndarray, np.generic)):
            return operand
        backend, index = self._backend, self._index
        return backend.call("compile", index, backend.to_device, np.asarray(operand), index)

    def describe_waits(self) -> list[str]:
        """Return lines for ``explain`` on what the host waits for in this call."""
        if self._loop is None or self._loop.kind == "scan":
            return []
        when = "before each step" if self._loop.kind == "while_loop" else "once"
        return [f"  the CPU reads the condition of a {self._loop.kind} {when}, and waits for it"]


def _spec_of_result(result: Any) -> Spec:
    return spec_of(result if hasattr(result, "dtype") else np.asarray(result))


class _OperandView:
    """View of a value of the program as an array of the device."""

    def __init__(self, executable: Any, node: Node) -> None:
        self._backend: Any = executable.device.backend
        self._dtype = dtype_of_code(node.type)
        view, size = executable.plan.allocation(node).view, self._dtype.itemsize
        self._shape = tuple(map(int, view.shape))
        self._strides = tuple([int(stride) * size for stride in view.strides])
        self._offset = int(view.offset) * size
        # The result of another host call, or a region and the cell of the first byte there.
        self._result = node.owner.id if node.owner.kind == "result" else None
        if self._result is None and 0 not in self._shape:
            self._region, self._cell = executable.operand_place(node)

    def array(self, executable: Any) -> Any:
        """Return the array, without a copy."""
        xp = self._backend.namespace
        if 0 in self._shape:
            return xp.zeros(self._shape, self._dtype)
        if self._result is not None:
            base, start = executable.host_results[self._result], self._offset
        else:
            base = executable.region_array(self._region)
            if not base.flags.c_contiguous:
                base = self._memory_of_state(base)
            start = (self._cell.value or 0) - self._backend.pointer(base)
        memory = base.reshape(-1).view(np.dtype(np.uint8))
        first = memory[start : start + self._dtype.itemsize].view(self._dtype)
        return xp.lib.stride_tricks.as_strided(first, self._shape, self._strides)

    def _memory_of_state(self, array: Any) -> Any:
        """Return the memory of an array of any strides from the lowest address on, uncopied."""
        ahead = array[tuple(slice(None, None, -1 if step < 0 else 1) for step in array.strides)]
        start, end = memory_span(array)
        count, strides = (end - start) // array.itemsize, (array.itemsize,)
        return self._backend.namespace.lib.stride_tricks.as_strided(ahead, (count,), strides)

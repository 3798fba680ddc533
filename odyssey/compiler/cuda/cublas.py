"""Matrix products by cuBLAS: arguments from the views of a plan, and the library by ctypes.

CuPy refuses cuBLAS while a stream is captured into a graph. So the library is called directly, with
a handle and a workspace of its own: one workspace and one stream give equal bits at each run.

``gemm_calls`` needs no library: arguments follow from shapes and strides alone. ``emulate`` reads
the same arguments as cuBLAS does, on host memory, by which transposes, leading dimensions and
strides are tested without a device, and by which programs run on the CPU.
"""

from __future__ import annotations

import ctypes
import importlib
import math
from collections.abc import Iterator, Mapping
from itertools import pairwise, product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.compiler.ir.nodes import ITEM_SIZES, Node
from odyssey.compiler.ir.views import View
from odyssey.compiler.llvm.types import dtype_of_code
from odyssey.compiler.passes.windows import product_axes
from odyssey.compiler.schedule.buffer_assignment import Plan
from odyssey.errors import DeviceError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.spec import Array

__all__ = [
    "Cublas",
    "CublasStatus",
    "GemmCall",
    "emulate",
    "gemm_call",
    "gemm_calls",
    "load_cublas",
    "status_error",
]

DATA_TYPES: Mapping[str, int] = MappingProxyType(
    {"f4": 0, "f8": 1, "f2": 2, "c8": 4, "c16": 5, "f2b": 14}
)
"""The ``cudaDataType_t`` of each type of elements."""

COMPUTE_TYPES: Mapping[str, int] = MappingProxyType(
    {"f4": 68, "f8": 70, "f2": 68, "c8": 68, "c16": 70, "f2b": 68}
)
"""The ``cublasComputeType_t`` of each type of elements; 68 is float32 without TF32."""

_FAST_TF32 = 77  # CUBLAS_COMPUTE_32F_FAST_TF32

_DOUBLE = ("f8", "c16")
WORKSPACE_BYTES = 32 << 20
"""Size of the workspace that NVIDIA recommends for Hopper; other devices need less."""

# More calls for one product would take longer than what they compute.
_MOST_CALLS = 1024


class GemmCall(NamedTuple):
    """Arguments of ``cublasGemmStridedBatchedEx``, in its order, for column-major matrices.

    Row-major ``c = a @ b`` is column-major ``c' = b' @ a'``. So the library's first operand is the
    product's second one.

    Attributes:
        transposes: Whether the first, and the second operand are transposed.
        sizes: Rows and columns of the result, and length of the sums.
        leading: Leading dimensions of first operand, second operand and result, in elements.
        steps: Distances of the matrices of a batch, in elements.
        batch: Number of matrices.
        starts: Bytes from the buffers' starts to their first elements.
        types: Types of the operands, and of the result.
        beta: Factor of what the result holds before.
        swapped: Whether the library's first operand is the first one of the product, and not the
            second: the result is column-major itself.
        tf32: Whether float32 operands may be rounded to TF32, 10 bits of mantissa.
    """

    transposes: tuple[int, int]
    sizes: tuple[int, int, int]
    leading: tuple[int, int, int]
    steps: tuple[int, int, int]
    batch: int
    starts: tuple[int, int, int]
    types: tuple[str, str]
    beta: float
    swapped: bool = False
    tf32: bool = False


def gemm_calls(plan: Plan, node: Node, tf32: bool = False) -> list[GemmCall]:
    """Return the calls that compute a product of a plan, in order; usually one.

    Args:
        plan: The plan.
        node: The product; what it is added to is in the memory of its result already.
        tf32: Whether a product of float32 may round its operands to TF32, as inside of
            ``od.autocast("tf32")``. No other product is affected.

    Raises:
        UnsupportedKernelError: cuBLAS cannot compute the product where operands and result lie.
    """
    left, right = node.inputs[:2]
    if node.type not in DATA_TYPES or left.type != right.type or left.type not in DATA_TYPES:
        raise UnsupportedKernelError(
            f"cuda: cuBLAS has no product of {left.type} and {right.type} to {node.type}"
        )
    if product_axes(node) is not None:
        raise UnsupportedKernelError("cuda: cuBLAS has no product with sliding windows")
    a, b = (plan.allocation(i).view for i in node.inputs[:2])
    c = plan.allocations[node.id].view
    sums_batch = node.detail[0] == "sum"
    try:
        if sums_batch:
            a, b, c = _batch_as_inner_axis(a, b, c)
            sums_batch = False
        elif len(b.shape) == 2 and len(a.shape) > 2:
            a, c = _batch_as_rows(a, c)
    except ValueError:  # each matrix of the batch is added by a call of its own
        c = c.reshape(c.shape[-2:])
    batch = a.shape[:-2] if sums_batch else c.shape[:-2]
    a, b = (view.broadcast((*batch, *view.shape[-2:])) for view in (a, b))
    if sums_batch:
        c = View((*batch, *c.shape), (*[0] * len(batch), *c.strides), c.offset)
    beta = float(node.detail[1])
    found: list[GemmCall] = []
    for k, views in enumerate(_uniform_batches((a, b, c), sums_batch)):
        if k == _MOST_CALLS:
            raise UnsupportedKernelError(f"cuda: a product needs more than {k} calls of cuBLAS")
        call = _gemm_call(*views, (left.type, node.type), 1.0 if sums_batch and k else beta)
        if call is not None:
            found.append(call._replace(tf32=tf32 and call.types == ("f4", "f4")))
    return found


def _batch_as_inner_axis(a: View, b: View, c: View) -> tuple[View, View, View]:
    """Return a batch sum of products as one product with a long inner axis."""
    rows, columns = a.shape[-2], b.shape[-1]
    batch = len(a.shape) - 2
    a = a.transpose((batch, *range(batch), batch + 1)).reshape((rows, -1))
    return a, b.reshape((-1, columns)), c.reshape((rows, columns))


def _batch_as_rows(a: View, c: View) -> tuple[View, View]:
    """Return a batch times one matrix as one product with more rows, if both can be read so."""
    try:
        tall = a.reshape((-1, a.shape[-1])), c.reshape((-1, c.shape[-1]))
    except ValueError:
        return a, c
    return tall if all(map(_leading_dimension, tall)) else (a, c)


def _uniform_batches(
    views: tuple[View, View, View], one_by_one: bool
) -> Iterator[tuple[View, View, View]]:
    """Yield views with at most one batch axis; the outer axes are gone through."""
    shape = views[2].shape[:-2]
    for outer in range(len(shape) + 1):
        if one_by_one and outer < len(shape):
            continue
        inner = [_merge_batch(view, outer) for view in views]
        if all(view is not None for view in inner):
            break
    for index in product(*map(range, shape[:outer])):
        found = [_merge_batch(view.slice((*index, Ellipsis)), 0) for view in views]
        a, b, c = (view for view in found if view is not None)
        yield a, b, c


def _merge_batch(view: View, first: int) -> View | None:
    """Return a view with its batch axes from ``first`` on as one axis; None if none can be that."""
    lengths = list(zip(view.shape[first:-2], view.strides[first:-2], strict=True))
    axes = [(n, step) for n, step in lengths if n != 1]
    for (_, outer), (n, step) in pairwise(axes):
        if outer != n * step:
            return None
    step = axes[-1][1] if axes else 0
    if step < 0:
        return None
    count = math.prod(n for n, _ in lengths)
    return View((count, *view.shape[-2:]), (step, *view.strides[-2:]), view.offset)


def _leading_dimension(view: View) -> tuple[int, int] | None:
    """Return whether a row-major library would transpose the last two axes, and their distance."""
    (rows, columns), (row, column) = view.shape[-2:], view.strides[-2:]
    if not (rows and columns):  # nothing is read
        return 0, max(columns, 1)
    if (column == 1 or columns == 1) and (rows == 1 or row >= max(columns, 1)):
        return 0, max(row if rows > 1 else columns, 1)
    if (row == 1 or rows == 1) and (columns == 1 or column >= max(rows, 1)):
        return 1, max(column if columns > 1 else rows, 1)
    return None


def _gemm_call(a: View, b: View, c: View, types: tuple[str, str], beta: float) -> GemmCall | None:
    """Return the call for a batch of products; None if the result has no elements."""
    if c.size == 0:
        return None
    swapped = False
    found = _leading_dimension(c)
    if found is None:
        raise UnsupportedKernelError("cuda: cuBLAS cannot write a result with such strides")
    if found[0]:  # the transposed product: c' = b' @ a'
        swapped, order = True, (0, 2, 1)
        a, b, c = b.transpose(order), a.transpose(order), c.transpose(order)
    readable = [_leading_dimension(view) for view in (b, a)]
    first, second = readable
    if first is None or second is None:
        raise UnsupportedKernelError("cuda: cuBLAS cannot read an operand with such strides")
    size, own = ITEM_SIZES[types[0]], ITEM_SIZES[types[1]]
    return GemmCall(
        (first[0], second[0]),
        (c.shape[-1], c.shape[-2], a.shape[-1]),
        (first[1], second[1], found[1]),
        (b.strides[0], a.strides[0], c.strides[0]),
        c.shape[0],
        (b.offset * size, a.offset * size, c.offset * own),
        types,
        beta,
        swapped,
    )


# ------------------------------------------------------------------ on host memory


# Memory of any length: ctypes would make a class for each length, which only the collector frees.
_Memory: Any = ctypes.c_char * (1 << 47)


@ignore_fp_errors()  # devices do not warn
def emulate(call: GemmCall, first: int, second: int, out: int) -> None:
    """Compute on host memory what cuBLAS would for a call, in float64, and round it once.

    Args:
        call: The arguments.
        first: Address of the first operand, as for cuBLAS.
        second: Address of the second operand.
        out: Address of the result.
    """
    rows, columns, length = call.sizes
    type, result = map(dtype_of_code, call.types)
    shapes = [(rows, length), (length, columns), (rows, columns)]
    turned = (*call.transposes, 0)
    matrices = []
    for k, (at, shape) in enumerate(zip((first, second, out), shapes, strict=True)):
        shape = shape[::-1] if turned[k] else shape
        dtype = result if k == 2 else type
        matrix = _column_major(at, shape, call.leading[k], call.steps[k], call.batch, dtype)
        matrices.append(matrix.swapaxes(1, 2) if turned[k] else matrix)
    a, b, c = matrices
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    made = a.astype(wide) @ b.astype(wide)
    c[...] = made + call.beta * c if call.beta else made


def _column_major(
    at: int, shape: tuple[int, int], leading: int, step: int, batch: int, dtype: np.dtype[Any]
) -> Array:
    rows, columns = shape
    if 0 in shape:
        return np.zeros((batch, *shape), dtype)
    assert leading >= max(rows, 1), f"leading dimension {leading} of {rows} rows"
    size = (batch - 1) * step + (columns - 1) * leading + rows
    flat = np.frombuffer(_Memory.from_address(at), dtype, size)
    strides = [dtype.itemsize * each for each in (step, 1, leading)]
    return as_strided(flat, (batch, rows, columns), strides)


# ------------------------------------------------------------------ the library


_STATUS = {
    1: "not initialized",
    3: "allocation failed",
    7: "invalid value",
    8: "architecture mismatch",
    11: "mapping error",
    13: "execution failed",
    14: "internal error",
    15: "not supported",
}
_NAMES = ("libcublas.so.13", "libcublas.so.12", "cublas64_13.dll", "cublas64_12.dll")


def _numbers(beta: float, type: str) -> tuple[Any, Any]:
    """Return 1 and ``beta`` as the library reads them: in the type it computes in."""
    kind: Any = (ctypes.c_double if type in _DOUBLE else ctypes.c_float) * 2
    return kind(1.0, 0.0), kind(beta, 0.0)


class CublasStatus(ctypes.c_int):
    """Status of a function of cuBLAS, which no status of the driver is an instance of."""


def status_error(who: str, status: int) -> DeviceError:
    """Return the error for a status of cuBLAS."""
    why = _STATUS.get(status, "an unknown status")
    return DeviceError(f"cuda: {who} gave status {status}, {why}, of cuBLAS")


class Cublas:
    """A handle of cuBLAS with a workspace of its own.

    Args:
        library: The library, as ctypes loads it.
        workspace: Address of ``WORKSPACE_BYTES`` of the device's memory.

    Attributes:
        handle: The handle, which ``cublasDestroy_v2`` of the library releases.
    """

    def __init__(self, library: Any, workspace: int) -> None:
        self._library = library
        self.handle = ctypes.c_void_p()
        self._workspace = workspace
        self._check("cublasCreate", library.cublasCreate_v2(ctypes.byref(self.handle)))

    def use_stream(self, stream: int) -> None:
        """Let the next calls run in a stream."""
        library = self._library
        answer = library.cublasSetStream_v2(self.handle, ctypes.c_void_p(stream))
        self._check("cublasSetStream", answer)
        # Another stream takes the workspace away.
        room = ctypes.c_void_p(self._workspace), ctypes.c_size_t(WORKSPACE_BYTES)
        self._check("cublasSetWorkspace", library.cublasSetWorkspace_v2(self.handle, *room))

    def _check(self, what: str, status: int) -> None:
        if status:
            raise status_error(what, status)


def gemm_call(
    library: Any,
    handle: ctypes.c_void_p,
    product: GemmCall,
    first: ctypes.c_void_p,
    second: ctypes.c_void_p,
    out: ctypes.c_void_p,
) -> tuple[Any, ...]:
    """Return the function of cuBLAS that computes a batch of products, and its arguments.

    Args:
        library: The library, as ctypes loads it.
        handle: The handle, which is read when the call is made; so are the addresses.
        product: Shapes, strides and types.
        first: Address of the first operand, as for ``emulate``, in the device's memory.
        second: Address of the second operand.
        out: Address of the result.
    """
    function = library.cublasGemmStridedBatchedEx
    function.restype = CublasStatus
    one, beta = _numbers(product.beta, product.types[1])
    kind, result = (DATA_TYPES[type] for type in product.types)
    compute_type = _FAST_TF32 if product.tf32 else COMPUTE_TYPES[product.types[1]]
    (lda, ldb, ldc), wide = product.leading, map(ctypes.c_longlong, product.steps)
    return (
        *(function, handle, *product.transposes, *product.sizes, ctypes.byref(one)),
        *(first, kind, lda, next(wide)),
        *(second, kind, ldb, next(wide), ctypes.byref(beta)),
        *(out, result, ldc, next(wide)),
        *(product.batch, compute_type, -1),
    )


def load_cublas() -> Any:
    """Load cuBLAS from where CuPy's wheels put it, or from the system.

    Its functions keep Python's lock. So no other thread comes between two launches of one product,
    of which the first writes to the workspace what the second reads.

    Raises:
        DeviceError: it is not installed.
    """
    tried: list[str] = []
    for name in _NAMES:
        try:
            return ctypes.PyDLL(name)
        except OSError as error:
            tried.append(str(error))
    try:
        pathfinder: Any = importlib.import_module("cuda.pathfinder")

        return ctypes.PyDLL(pathfinder.load_nvidia_dynamic_lib("cublas").abs_path)
    except Exception as error:  # it is not installed, or finds nothing: its own error says what
        tried.append(f"{type(error).__name__}: {error}")
    raise DeviceError(
        f"cuda: cuBLAS cannot be loaded ({tried[-1]}); `pip install nvidia-cublas`, or install the "
        "CUDA toolkit"
    )

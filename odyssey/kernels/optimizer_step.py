"""A step of an optimizer on many arrays, in one launch on the GPU.

A table has the addresses of the arrays of each parameter, and the numbers of its step. Blocks take
chunks of one length, so arrays of any sizes give an even load. Each element is read, updated and
written by one thread: the results are those of the lines below, in their order, but that a GPU may
round a product and a sum once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from odyssey.devices.backends import backend_of
from odyssey.kernels import cuda as device
from odyssey.kernels import numba_module

__all__ = ["SIMULATED_CHUNK", "StepSource", "bind_step_kernel", "cuda_step"]

# Elements that a block updates at a time: some for each thread, and few enough that models of a
# million parameters fill a card.
_CHUNK = 1 << 11
SIMULATED_CHUNK = 32
"""The elements of a chunk in the simulator."""

# A row of the table: the number of chunks up to the end of the array, the size of the array,
# addresses, and numbers, which ``numbers``, the same memory, has as float64.
_TEXT = """
def update(table, numbers, count):
    for chunk in range(cuda.blockIdx.x, table[(count - 1) * WIDTH], cuda.gridDim.x):
        low, high = 0, count - 1
        while low < high:
            middle = (low + high) // 2
            if table[middle * WIDTH] <= chunk:
                low = middle + 1
            else:
                high = middle
        row = low * WIDTH
        before = table[row - WIDTH] if low > 0 else 0
        first = (chunk - before) * CHUNK
        end = first + CHUNK if first + CHUNK < table[row + 1] else table[row + 1]
        {heads}
        for i in range(first + cuda.threadIdx.x, end, cuda.blockDim.x):
            {lines}
"""


class StepSource(NamedTuple):
    """Statements of a step on one element of a parameter.

    Attributes:
        arrays: Names of the arrays that it reads and writes; whether each has the dtype of the
            parameter, and not that of computing.
        numbers: Names of numbers; whether each is a truth value.
        lines: Statements on ``name[i]`` of arrays, and on numbers. ``T`` is the dtype of
            computing, ``S`` that of the parameter; ``select(c, x, y)`` and ``sqrt`` are known.
    """

    arrays: tuple[tuple[str, bool], ...]
    numbers: tuple[tuple[str, bool], ...]
    lines: tuple[str, ...]


def bind_step_kernel(source: StepSource, dtype: np.dtype[Any]) -> Any:
    """Return the kernel of a step for parameters of a dtype, as a plain function."""
    numba = numba_module()
    computed = device.computing_dtype(dtype)
    heads = [
        f"{name} = {'stored' if stored else 'computed'}(table[row + {k}], table[row + 1])"
        for k, (name, stored) in enumerate(source.arrays, 2)
    ]
    for k, (name, truth) in enumerate(source.numbers, 2 + len(source.arrays)):
        number = f"numbers[row + {k}]"
        heads.append(f"{name} = {number} != 0.0" if truth else f"{name} = T({number})")
    scope: dict[str, Any] = {
        "T": numba.from_dtype(computed),
        "S": numba.from_dtype(dtype),
        "WIDTH": 2 + len(source.arrays) + len(source.numbers),
        "CHUNK": SIMULATED_CHUNK if device.simulated() else _CHUNK,
        "stored": _elements(dtype),
        "computed": _elements(computed),
        "select": _choose_number
        if device.simulated()
        else numba_module("cuda").jit(device=True)(_choose_number),
        "sqrt": np.sqrt if device.simulated() else math.sqrt,
        **device.kernel_globals(),
    }
    exec(
        _TEXT.format(heads="\n        ".join(heads), lines="\n            ".join(source.lines)),
        scope,
    )
    return scope["update"]


def _choose_number(condition: Any, x: Any, y: Any) -> Any:
    return x if condition else y


def _elements(dtype: np.dtype[Any]) -> Any:
    """Return a function of an address and a size, for kernels: the elements of a dtype there."""
    if device.simulated():
        return lambda address, size: device.simulated_memory(address, size, dtype)
    types = numba_module("types")
    pointer = types.CPointer(numba_module().from_dtype(dtype))

    def elements(typing: Any, address: Any, size: Any) -> Any:
        def emit_pointer(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(pointer))

        return pointer(types.int64, types.int64), emit_pointer

    return numba_module("extending").intrinsic(elements)


@lru_cache(maxsize=32)
def _step_kernel(source: StepSource, dtype: np.dtype[Any]) -> Any:
    return device.build(bind_step_kernel(source, dtype))


def cuda_step(
    source: StepSource, rows: Sequence[tuple[Sequence[Any], Sequence[float]]], dtype: np.dtype[Any]
) -> None:
    """Update the arrays of many parameters on one device, in one launch.

    Args:
        source: The statements.
        rows: For each parameter its arrays, contiguous and of one size, in the order of
            ``source.arrays``; and its numbers.
        dtype: The dtype of the parameters.

    Raises:
        DeviceError: There is neither a usable GPU nor the simulator.
    """
    rows = [row for row in rows if row[0][0].size]
    if not rows:
        return
    kernel = _step_kernel(source, dtype)
    chunk = SIMULATED_CHUNK if device.simulated() else _CHUNK
    backend = backend_of(rows[0][0][0])
    assert backend is not None
    addresses = [[backend.pointer(array) for array in arrays] for arrays, _ in rows]
    sizes = np.array([arrays[0].size for arrays, _ in rows])
    ends = np.cumsum(-(-sizes // chunk))
    numbers = np.array([numbers for _, numbers in rows], np.float64).reshape(len(rows), -1)
    table = np.hstack([ends[:, None], sizes[:, None], np.array(addresses), numbers.view(np.int64)])
    there = device.copy_beside(rows[0][0][0], table.reshape(-1))
    device.launch(kernel, int(ends[-1]), [there, there.view(np.float64)], (), (len(rows),))

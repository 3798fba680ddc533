"""Sizes from which on a compiler does otherwise, for a block: small programs take the large ways.

Each entry is a few constants of the compiler, or what a function of its answers; a seed chooses one
for each, the shipped ones among them. None of them may change what a program gives.
"""

import random
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

import odyssey as od
from odyssey.compiler import lowering, pipeline
from odyssey.compiler.codegen import kernel_function, loops, matmul, module, register_tiles, scan
from odyssey.compiler.passes import simplify, windows
from odyssey.compiler.runtime import control_flow
from odyssey.compiler.schedule import fusion, work_partition
from odyssey.compiler.ways import products
from odyssey.nn import sliding_windows
from odyssey.nn.convolution import conv
from odyssey.ops.reductions import reduce

__all__ = ["CHOICES", "forced"]

_PARTITION = (
    "_MIN_PARALLEL_SECONDS",
    "_BLOCK_SECONDS",
    "_CACHE_LINE",
    "_MAX_BLOCKS",
    "_MAX_ROW_BLOCKS",
    "_MIN_PARALLEL_GEMM",
    "_GEMM_TILE",
)


def _set(module, *names):
    """Settings of some constants of a module, one for each tuple of values."""
    return lambda *values: [
        {(module, name): value for name, value in zip(names, each, strict=True)} for each in values
    ]


CHOICES = {
    "blocks": _set(work_partition, *_PARTITION)(
        (1e-15, 1e-13, 1, 5, 3, 1, 1), (1e-15, 1e-13, 1, 64, 8, 1, 1), (1e-15, 1e-13, 4, 7, 7, 1, 2)
    ),
    "short sums": _set(loops, "BLOCK")((1,), (3,)),
    "products": _set(products, "SMALL", "LONGEST", "_LEAST_FEW_ROWS")(
        (-1, 32, 0), (1 << 40, 1 << 20, 1 << 40)
    ),
    "lone products": _set(matmul, "_BLAS_THREADS_WORK")((0,)),
    "steps written in": _set(lowering, "_MAX_UNROLLED")((0,), (10**4,)),
    "lines": _set(scan, "_LINES")((1,), (3,)),
    "depth": _set(loops, "_MAX_RECURSION")((0,)),
    "vectors at a time": _set(kernel_function, "_INTERLEAVED_CALLS", "_INTERLEAVED_LENGTHS")(
        (0, {2: 1, 4: 3})
    ),
    "without the lock": _set(module, "_GIL_RELEASE_SECONDS")((-1.0,)),
    "nodes": _set(fusion, "_MAX_KERNEL_NODES")((1,), (3,)),
    "waiting": _set(fusion, "_MAX_DELAYED")((0,), (3,), (10**9,)),
    "numbers": _set(fusion, "_MAX_SCALAR_STEPS")((-1,), (2,), (10**4,)),
    "loops joined": _set(fusion, "_SMALL_LOOP")((0,), (10**9,)),
    "rows on the stack": _set(fusion, "_MAX_ROW_BYTES")((0,), (16,)),
    "windows summed": [
        {(m, "MAX_SUM_LENGTH"): n for m in (windows, register_tiles)} for n in (1, 3)
    ],
    "windows": _set(products, "_MAX_WEIGHT", "_MAX_WEIGHT_STRIDED")((0, 0), (1 << 40, 1 << 40)),
    "tiles": _set(register_tiles, "_TILE_VECTORS", "_TILE_ROWS", "_DOT_COLUMNS")(
        (2, 1, 1), (4, 3, 1)
    ),
    "registers": _set(register_tiles, "registers")(
        (lambda: register_tiles.Registers(128, 15),), (lambda: register_tiles.Registers(256, 15),)
    ),
    "products added": _set(simplify, "_MIN_GEMM_SIZE")((0,), (10**9,)),
    "transposes": _set(conv, "_FEW")((0,), (10**9,)),
    "Winograd": _set(
        sliding_windows,
        "_MANY_CHANNELS",
        "_MANY_TILES",
        "_FEWER_CHANNELS",
        "_FEWER_TILES",
        "_FEW_PAIRS",
        "_PROGRAM_TILES",
    )((1, 1, 1, 1, 0, 1)),
    "extremes": _set(reduce, "_NUMPY_MINIMUM_BYTES", "_NUMPY_MINIMUM_LENGTH")(
        (0, 1), (1 << 40, 1 << 40)
    ),
    "steps": _set(control_flow, "_STEPS_PER_CALL")((2,)),
}


@contextmanager
def forced(seed):
    """Let the compiler choose as a seed says; also how many threads, and how often to recompute."""
    choose = random.Random(seed)
    with ExitStack() as stack:
        for settings in CHOICES.values():
            for (module, name), value in choose.choice([*settings, {}]).items():
                stack.enter_context(patch.object(module, name, value))
        if choose.choice([True, False, False]):  # whatever can be is computed again
            plan = pipeline.plan
            again = patch.object(
                pipeline, "plan", lambda low, strides, *rest: plan(low, strides, 1)
            )
            stack.enter_context(again)
        od.set_threads(choose.choice([None, 1, 2, 3]))
        try:
            yield
        finally:
            od.set_threads(None)

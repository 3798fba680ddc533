"""Fused rules: the reverse rule of an elementwise op as one compiled loop, for large arrays.

A rule is a function of ops, and nearly all ops in the rule of an elementwise row are elementwise.
The rule is traced on Symbols, and the scalar functions of its ops are fused to one loop, which
reads the arrays once instead of once an op.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import numpy as np

from odyssey.errors import DeviceError, OdysseyError
from odyssey.kernels.sizes import SIZES
from odyssey.spec import Spec
from odyssey.table.kernel_selection import SIZE_FACTOR, is_numba_avoided
from odyssey.table.signature import Rule, rule_arguments
from odyssey.table.steps import Steps
from odyssey.table.value import NUMBERS, Symbol

__all__ = ["fuse_rule"]


def fuse_rule(row: Any, rule: Rule, usual: Rule) -> Rule:
    """Return a rule that runs as one loop from the size at which the op runs compiled kernels.

    Args:
        row: An elementwise row named in ``SIZES``.
        rule: The declared rule of one operand.
        usual: The array rule, for calls without a loop.
    """
    least = SIZES[row.name]
    names = rule_arguments(rule)
    arrays = [k for k, name in enumerate(names) if name in (*row.arrays, *row.results)]
    others = [k for k in range(len(names)) if k not in arrays]
    loops: dict[Any, Any] = {}

    @wraps(usual)
    def run(g: Any, *values: Any) -> Any:
        left = (
            len(values) > len(names) and type(values[-1]) is tuple
        )  # the kernel left slopes as residual
        if left or g.size < least * SIZE_FACTOR[0] or is_numba_avoided():
            return usual(g, *values)
        given = [g, *[values[k] for k in arrays]]
        dtype, shape = g.dtype, g.shape
        if dtype.char not in "fd" or any(
            type(x) is not np.ndarray or x.dtype != dtype or x.shape != shape for x in given
        ):
            return usual(g, *values)
        key = (dtype, repr([values[k] for k in others]))
        if key not in loops:
            loops[key] = _compile_rule_loop(row, rule, arrays, values[: len(names)], dtype)
        if loops[key] is None:
            return usual(g, *values)
        out = np.empty(shape, dtype)
        flat = [x.reshape(-1) for x in given[1:]]
        if any(g.strides) or not g.size:
            loops[key](g.reshape(-1), *flat, out.reshape(-1))
        else:
            _run_in_chunks(loops[key], g, flat, out.reshape(-1))
        return out

    return run


# Elements of a chunk: it fits in the first-level cache, and calls of the loop cost little.
_CHUNK = 8192


def _run_in_chunks(loop: Any, g: Any, given: list[Any], out: Any) -> None:
    """Run a loop on a broadcast scalar cotangent, as sums and means give it, chunk by chunk.

    Materializing it took half the time of the loop.
    """
    part = np.full(min(_CHUNK, out.size), g[(0,) * g.ndim], g.dtype)
    for start in range(0, out.size, _CHUNK):
        stop = start + _CHUNK
        to = out[start:stop]
        loop(part[: to.size], *[x[start:stop] for x in given], to)


def _compile_rule_loop(
    row: Any, rule: Rule, arrays: list[int], values: tuple[Any, ...], dtype: np.dtype[Any]
) -> Any:
    """Compile the loop of a rule; None if an op in it is not elementwise, or numba is missing."""
    from odyssey.kernels import numba_module
    from odyssey.kernels.generated import elementwise_loop_of_steps

    try:
        numba_module()
        steps, result = _trace_rule(row, rule, arrays, values, dtype)
        return elementwise_loop_of_steps(
            f"rule of {row.name}", steps, result, len(arrays) + 1, dtype
        )
    except (DeviceError, OdysseyError, TypeError, ValueError):
        return None


def _trace_rule(
    row: Any, rule: Rule, arrays: list[int], values: tuple[Any, ...], dtype: np.dtype[Any]
) -> tuple[list[Any], int]:
    """Trace a rule; return its scalar calls and the index of the result."""
    graph, spec = Steps(), Spec((2,), dtype)
    symbols = [graph.symbol(spec) for _ in range(len(arrays) + 1)]
    given = list(values)
    for k, symbol in zip(arrays, symbols[1:], strict=True):
        given[k] = symbol
    out = rule(symbols[0], *given)
    places = {symbol.id: n for n, symbol in enumerate(symbols)}
    steps = []
    for step in graph.steps:
        if step.row.scalar is None or step.out.shape != (2,):
            raise TypeError(f"{step.row.name} is not elementwise")
        operands = [_step_operand(o, places) for o in step.operands]
        places[step.out.id] = len(places)
        steps.append((step.row.scalar, operands, step.options))
    if not isinstance(out, Symbol) or out.dtype != dtype:
        raise TypeError(f"{row.name}: its rule gives no array of {dtype}")
    return steps, places[out.id]


def _step_operand(value: Any, places: dict[int, int]) -> Any:
    """Return the index of a Symbol as ``(index,)``, or a number."""
    if isinstance(value, Symbol):
        return (places[value.id],)
    if type(value) not in NUMBERS:
        raise TypeError("an array among the steps")
    return value

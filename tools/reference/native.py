"""The page of what compiled functions compute natively, ``docs/native.md``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from odyssey.compiler.ir.nodes import type_code
from odyssey.compiler.lowering import Lowering
from odyssey.describe.entries import entries
from odyssey.errors import OdysseyError
from odyssey.ops import Row

__all__ = ["calls_of", "native", "way_of"]

_HEAD = """\
# Native code of ops

Generated from the table of ops by `python -m tools.reference`; do not edit.

A compiled function runs as one native program. This page lists how each row of the table is
compiled, for real numbers, integers and booleans, as in the row's samples; and which rows are
compiled for complex numbers. The rows in the last list, and rows on other dtypes, are host calls:
they are called in Python, with the same results and in the time of an eager call. In half precision
(float16 and bfloat16) each op is computed in single precision, and its results are rounded once;
plain arithmetic of float16 is rounded at each step, as in NumPy.

Some calls are host calls because these are faster: convolutions with 3 by 3 windows and 32 channels
or more, argmax and argmin of more than 2 MB, products of all other elements (64 or more,
of 64 elements or more), and attention whose scores would take 256 MB or more.
"""

_WAYS = {
    "scalar": "Elementwise loops, from scalars",
    "lowering": "Lowering rules: loops, products and views",
    "decomposition": "Decompositions into other rows",
}
_REASONS = {
    "decompose": "LAPACK",
    "call": "a library function",
    "product": "a transform or convolution of a library",
    "gather": "sorting",
    "scatter": "sorting",
    "random": "a library's generator",
}


def native() -> str:
    """Return the page: rows by the way in which they are compiled, and reasons for host calls."""
    ways: dict[str, list[str]] = {way: [] for way in _WAYS}
    called: dict[str, dict[str, str]] = {}
    for name, entry in entries().items():
        if entry.row is None:
            continue
        calls = calls_of(entry.row)
        if calls:
            called[name] = calls
        else:
            ways[way_of(entry.row)].append(name)
    lines = [_HEAD]
    for way, names in ways.items():
        lines += [f"## {_WAYS[way]}", "", ", ".join(f"`{name}`" for name in names), ""]
    parts = [name for names in ways.values() for name in names if _takes_complex(name)]
    lines += ["## Complex numbers", "", ", ".join(f"`{name}`" for name in parts), ""]
    lines += ["## Host calls", "", *_called_lines(called)]
    return "\n".join(lines) + "\n"


def _called_lines(called: dict[str, dict[str, str]]) -> Iterator[str]:
    for name, calls in called.items():
        if name in calls:
            yield f"* `{name}`: {calls[name]}"
        else:
            yield f"* `{name}`, by its calls of {', '.join(f'`{c}`' for c in calls)}"


def way_of(row: Row) -> str:
    """Return the way in which a row is compiled: ``scalar``, ``lowering`` or ``decomposition``."""
    if row.lowering is not None:
        return "lowering"
    return "scalar" if row.scalar is not None else "decomposition"


def calls_of(row: Row) -> dict[str, str]:
    """Return the rows that compiled samples of ``row`` call in Python, with the reason."""
    from odyssey.ops import OPS

    found: dict[str, str] = {}
    alone = False
    for sample in row.samples:
        low = Lowering()
        operands = [_operand(low, k, operand) for k, operand in enumerate(sample.operands)]
        try:
            row.call(*operands, **sample.options)
        except (OdysseyError, TypeError, ValueError):  # of a sequence of operands, for instance
            continue
        alone = alone or row.name not in low.host_calls
        for name, why in low.host_calls.items():
            # Of a dtype that programs do not compute, what has another meaning is called, too.
            if "natively" not in why or not _means(OPS[name]):
                found[name] = _reason(OPS[name])
    if not alone and _means(row) and row.samples and row.name not in found:
        found[row.name] = "its results are complex"
    return found


def _takes_complex(name: str) -> bool:
    """Return whether the samples of a row compile without host calls for complex operands."""
    from odyssey.ops import OPS

    some = False
    for sample in OPS[name].samples:
        if not any(isinstance(operand, tuple) for operand in sample.operands):
            continue
        low = Lowering()
        operands = [_operand(low, k, operand, "c16") for k, operand in enumerate(sample.operands)]
        try:
            OPS[name].call(*operands, **sample.options)
        except (OdysseyError, TypeError, ValueError):
            continue
        if low.host_calls:
            return False
        some = True
    return some


def _means(row: Row) -> bool:
    return row.lowering is not None or row.scalar is not None or row.decomposition is not None


def _reason(row: Row) -> str:
    if row.raises and row.decomposition is not None:
        return "it raises errors that its decomposition does not"
    if row.lowering is not None:
        return "faster than its decomposition" if row.decomposition else "an indexing op"
    return _REASONS.get(row.primitive or "", "a kernel of odyssey")


def _operand(low: Lowering, k: int, operand: Any, kind: str = "f8") -> Any:
    """Return a sample's operand as a program's argument; a drawn one has dtype ``kind``."""
    if isinstance(operand, tuple):
        return low.symbol(low.builder.leaf("input", k, operand, kind))
    if isinstance(operand, np.ndarray) and operand.dtype.kind in "biuf":
        return low.symbol(low.builder.leaf("input", k, operand.shape, type_code(operand.dtype)))
    return operand

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

__all__ = ["native"]

_HEAD = """\
# What is native

Made from the table of ops by `python -m tools.reference`; do not edit.

A compiled function runs as one native program. Here stands what a program has for each row of the
table, of real numbers, integers and truth values, as the samples of the row use it; and which rows
it has for complex numbers. Other rows of these are called in Python, and so is what is listed last;
a call is right, and takes the time that it takes in an eager call. Of half precision each step of
arithmetic is rounded, as NumPy does it; functions, sums and products are those of single precision.
Where they are large, and so a call is the faster, called are convolutions of 3 by 3 windows of 32
channels and more, the places of extremes in lines of 256 elements and more, and 64 products of all
others of 64 elements and more; and attention whose scores would take 256 MB and more.
"""

_WAYS = {
    "scalar": "Loops over elements, from their scalars",
    "lowering": "Loops, products and views of their own",
    "decomposition": "By their decomposition into other rows",
}
_REASONS = {
    "decompose": "LAPACK's",
    "call": "a function of a library",
    "product": "a transform or a convolution of a library",
    "gather": "sorting",
    "scatter": "sorting",
    "random": "a generator of a library",
}


def native() -> str:
    """Return the page: rows by the way in which they are native, and why others are called."""
    ways: dict[str, list[str]] = {way: [] for way in _WAYS}
    called: dict[str, dict[str, str]] = {}
    for name, entry in entries().items():
        if entry.row is None:
            continue
        calls = _calls(entry.row)
        if calls:
            called[name] = calls
        else:
            ways[_way(entry.row)].append(name)
    lines = [_HEAD]
    for way, names in ways.items():
        lines += [f"## {_WAYS[way]}", "", ", ".join(f"`{name}`" for name in names), ""]
    parts = [name for names in ways.values() for name in names if _takes_complex(name)]
    lines += ["## Of complex numbers too", "", ", ".join(f"`{name}`" for name in parts), ""]
    lines += ["## Called in Python", "", *_called_lines(called)]
    return "\n".join(lines) + "\n"


def _called_lines(called: dict[str, dict[str, str]]) -> Iterator[str]:
    for name, calls in called.items():
        if name in calls:
            yield f"* `{name}`: {calls[name]}"
        else:
            yield f"* `{name}`, in which are called: {', '.join(f'`{c}`' for c in calls)}"


def _way(row: Row) -> str:
    if row.lowering is not None:
        return "lowering"
    return "scalar" if row.scalar is not None else "decomposition"


def _calls(row: Row) -> dict[str, str]:
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
    """Whether programs compute the samples of a row whose operands are complex."""
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
        return "errors that its decomposition would not raise"
    if row.lowering is not None:
        return (
            "it takes less time than its decomposition"
            if row.decomposition
            else "an index of its own"
        )
    return _REASONS.get(row.primitive or "", "a kernel of this library")


def _operand(low: Lowering, k: int, operand: Any, kind: str = "f8") -> Any:
    """A sample's operand as an argument of a program; where it is drawn, of a kind."""
    if isinstance(operand, tuple):
        return low.symbol(low.builder.leaf("input", k, operand, kind))
    if isinstance(operand, np.ndarray) and operand.dtype.kind in "biuf":
        return low.symbol(low.builder.leaf("input", k, operand.shape, type_code(operand.dtype)))
    return operand

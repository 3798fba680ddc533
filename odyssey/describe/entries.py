"""Entries: one record of documentation for each op and composite."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np

from odyssey.errors import OdysseyError
from odyssey.floating_point_errors import ignore_fp_errors, isolate_errstate
from odyssey.suggestions import MISSING_OPS, did_you_mean
from odyssey.table.declare import COMPOSITES, OPS, REQUIRED, Row
from odyssey.table.signature import format_call
from odyssey.variable import numpy_calls

__all__ = [
    "Entry",
    "dtypes_of",
    "entries",
    "find",
    "public_name",
    "signature_of",
]

_DTYPES = ("float32", "float64", "complex64", "complex128", "int64", "bool")


@dataclass(frozen=True)
class Entry:
    """One function of ``odyssey.ops``.

    Attributes:
        name: Its name.
        aliases: Its other names.
        module: The module of its family, as ``odyssey.ops.elementwise.elementary``.
        function: The public function.
        row: Its row of the table; None for a composite, which calls other ops.
    """

    name: str
    aliases: tuple[str, ...]
    module: str
    function: Callable[..., Any]
    row: Row | None

    @property
    def family(self) -> str:
        """Return the name of the family's module, without its package."""
        return self.module.rpartition(".")[2]

    @property
    def meaning(self) -> str:
        """Return the first line of the docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    @property
    def differentiable(self) -> tuple[str, ...]:
        """Return the operands that have a derivative rule; none for a composite."""
        return tuple(name for name, rule in self.row.vjp.items() if rule) if self.row else ()

    @property
    def numpy(self) -> tuple[str, ...]:
        """Return the NumPy functions that call this op when they are called on Variables."""
        return tuple(f"np.{name}" for name, op in numpy_calls.OP_NAMES.items() if op == self.name)

    @property
    def signature(self) -> str:
        """Return the call signature, with ``tape=`` and without annotations."""
        return format_call(self.name, signature_of(self))


def public_name(function: Any) -> str:
    """Return the name of a function of NumPy without ``np.``, as ``linalg.norm``."""
    module = getattr(function, "__module__", None) or "numpy"
    inner = module.removeprefix("numpy").lstrip(".")
    return f"{inner}.{function.__name__}" if inner else str(function.__name__)


def signature_of(entry: Entry) -> inspect.Signature:
    """Return the signature with ``tape``; arrays are positional-only in the rows of the table."""
    function: Callable[..., Any] = entry.function
    if hasattr(function, "__wrapped__"):  # the table wrapped it for the reference
        function = function.__wrapped__
    signature = inspect.signature(function)
    parameters = [
        p.replace(default=p.empty) if p.default is REQUIRED else p
        for p in signature.parameters.values()
    ]
    if "tape" not in signature.parameters:
        parameters.append(inspect.Parameter("tape", inspect.Parameter.KEYWORD_ONLY, default=None))
    return signature.replace(parameters=parameters)


# ------------------------------------------------------------------ finding entries


@cache
def entries() -> Mapping[str, Entry]:
    """Return all entries by name: family by family, rows before composites."""
    rows = [Entry(r.name, r.aliases, r.module, r.call, r) for r in OPS.values()]
    composites = [
        Entry(f.__name__, f.aliases, f.__module__, f, None)  # type: ignore[attr-defined]
        for f in COMPOSITES.values()
    ]
    ordered = sorted([*rows, *composites], key=lambda entry: entry.module)  # stable
    return MappingProxyType({entry.name: entry for entry in ordered})


def find(name: str) -> Entry:
    """Return the entry of an op by its name or one of its other names.

    Raises:
        OdysseyError: if no op has the name; the message suggests similar names.

    >>> find("mul").name
    'multiply'
    """
    names = {other: e for e in entries().values() for other in (e.name, *e.aliases)}
    if name not in names:
        guess = did_you_mean(name, names) or "; 'python -m odyssey ops' lists all"
        hint = f"; {MISSING_OPS[name]}" if name in MISSING_OPS else guess
        raise OdysseyError(f"there is no op {name!r}{hint}")
    return names[name]


# ------------------------------------------------------------------ dtypes


def dtypes_of(row: Row) -> dict[str, str]:
    """Return the dtype of the result for each operand dtype that all samples accept.

    >>> dtypes_of(OPS["absolute"])["complex64"]
    'float32'
    """
    result_dtypes = {}
    # Samples with fixed arrays say nothing about other dtypes.
    drawn = [s for s in row.samples if any(isinstance(o, tuple) for o in s.operands)]
    if not drawn:
        dtypes = {str(np.result_type(*s.operands)): s for s in row.samples}
        return {dtype: _result_dtype(row, s, dtype) or "refused" for dtype, s in dtypes.items()}
    for dtype in _DTYPES:
        results = {_result_dtype(row, sample, dtype) for sample in drawn}
        if None not in results:
            result_dtypes[dtype] = " or ".join(sorted(str(result) for result in results))
    return result_dtypes


@ignore_fp_errors()
def _result_dtype(row: Row, sample: Any, dtype: str) -> str | None:
    operands = sample.arrays(isolate_errstate(np.random.default_rng)(0), np.dtype(dtype))
    try:
        result = row.call(*operands, **sample.options)
        results = (result,) if row.pack_results is None else result
        return " and ".join(dict.fromkeys(str(np.asarray(r).dtype) for r in results))
    except (OdysseyError, TypeError, ValueError):
        return None

"""Works: a call of a row, or a matrix product, as text that is equal in every process."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np

from odyssey.compiler.symbolic.dims import SymbolicDim
from odyssey.spec import Shape, Spec
from odyssey.table.row import Row

__all__ = ["Work", "format_lengths", "format_spec", "row_work", "varying_work"]


class Work(NamedTuple):
    """A call of a row, or a matrix product.

    A program may have it several times, and so may other programs.

    Attributes:
        row: Name of the row; ``product`` and ``window product`` for matrix products of the IR.
        specs: Specs of the operands. A length that varies from call to call is ``*``.
        options: Canonical options, by name.

    >>> print(Work("sum", ("float32[2, 3]",), "axis=(0,), keepdims=False"))
    sum(float32[2, 3]; axis=(0,), keepdims=False)
    """

    row: str
    specs: tuple[str, ...]
    options: str = ""

    def __str__(self) -> str:
        options = f"; {self.options}" if self.options else ""
        return f"{self.row}({', '.join(self.specs)}{options})"

    @property
    def key(self) -> str:
        """A hash of the text, equal in every process."""
        return sha256(str(self).encode()).hexdigest()[:24]


def row_work(row: Row, specs: Sequence[Any], options: tuple[Any, ...]) -> Work:
    """Return the work of a call of a row with canonical options."""
    # The value of a number is no part of a work: it may be another one in each call.
    texts = [
        format_spec(spec.shape, spec.dtype) if isinstance(spec, Spec) else type(spec).__name__
        for spec in specs
    ]
    if not options:
        return Work(row.name, tuple(texts))
    named = [
        f"{name}={option!r}" if type(option) in _PLAIN else f"{name}={_format_option(option)}"
        for name, option in zip(row.options, options, strict=False)
    ]
    return Work(row.name, tuple(texts), ", ".join(named))


def varying_work(works: Sequence[Work]) -> Work:
    """Return the work of calls that differ in lengths, which are ``*`` in it."""
    texts = zip(*[(*work.specs, work.options) for work in works], strict=True)
    *specs, options = map(_with_stars, texts)
    return Work(works[0].row, tuple(specs), options)


def _with_stars(texts: tuple[str, ...]) -> str:
    """Return a text with ``*`` for each number in which several texts differ."""
    if len(set(texts)) == 1:
        return texts[0]
    columns = zip(*[re.split(r"(\d+)", text) for text in texts], strict=True)
    return "".join([parts[0] if len(set(parts)) == 1 else "*" for parts in columns])


def format_spec(shape: Shape, dtype: Any) -> str:
    """Format a spec; lengths that vary are ``*``."""
    return f"{_dtype_name(dtype)}[{format_lengths(shape)}]"


@lru_cache(64)
def _dtype_name(dtype: np.dtype[Any]) -> str:
    return str(dtype)  # takes 3 us


def format_lengths(lengths: Sequence[int]) -> str:
    """Format lengths; those that vary are ``*``."""
    return ", ".join(["*" if isinstance(n, SymbolicDim) else str(n) for n in lengths])


_PLAIN = frozenset({bool, int, float, complex, str, bytes, type(None), type(...)})


def _format_option(option: Any) -> str:
    """Format an option without addresses, and arrays by their contents."""
    if isinstance(option, SymbolicDim):
        return "*"
    if type(option) in _PLAIN:
        return repr(option)
    if isinstance(option, (tuple, list)):
        comma = "," if len(option) == 1 else ""
        return f"({', '.join(map(_format_option, option))}{comma})"
    if isinstance(option, slice):
        parts = [_format_option(part) for part in (option.start, option.stop, option.step)]
        return f"slice({', '.join(parts)})"
    if isinstance(option, Spec):
        return format_spec(option.shape, option.dtype)
    if isinstance(option, (np.ndarray, np.generic)):
        array = np.ascontiguousarray(option)
        digest = sha256(array.tobytes()).hexdigest()[:12]
        return f"{format_spec(array.shape, array.dtype)}:{digest}"
    if isinstance(option, np.dtype):
        return str(option)
    named = option if hasattr(option, "__qualname__") else type(option)
    return f"{named.__module__}.{named.__qualname__}"

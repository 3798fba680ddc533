"""Elementwise loops generated from scalars, each a Python file cached with its machine code.

A file is named by a hash of its content, so it is written once, and numba finds the machine code
that it stores beside it, in a folder that only this user can write to, see ``cache_folders``. If
there is none, as with ``ODYSSEY_CACHE=off``, each process compiles its loops again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from odyssey.atomic_replace import replace_file
from odyssey.kernels import elementary, error_functions, formulas, series
from odyssey.kernels.cache_folders import (
    is_private_folder,
    is_regular_and_owned,
    kernel_folder,
)
from odyssey.kernels.loops import Loop
from odyssey.kernels.scalars import VECTORIZING, Program, Step, chain_scalars, program

__all__ = ["elementwise_loop", "elementwise_loop_of_steps", "import_source"]

_FILE = '''"""{name}, of {dtype}, element by element."""

from __future__ import annotations

from math import *  # noqa: F403

from numpy import {dtype} as T
from numpy import dtype as _dtype

from odyssey.kernels.elementary import fast as _fast
from odyssey.kernels.loops import fma, loop
from odyssey.kernels.scalars import select

globals().update(_fast(_dtype(T)))


{scalars}


@loop
def elements({names}, {outs}):
    for i in range(out0.size):
        {lines}
'''

# Loops call functions of these files, whose changes numba does not notice.
_CALLED = tuple(str(m.__file__) for m in (elementary, error_functions, formulas, series))


def elementwise_loop(
    scalar: Callable[..., Any],
    arity: int,
    dtype: np.dtype[Any],
    options: tuple[Any, ...] = (),
    second: Callable[..., Any] | None = None,
) -> Loop:
    """Return the loop ``fn(*inputs, out)`` that applies a scalar to all elements.

    Exponentials, logarithms and error functions are those of ``elementary``; a product and a sum
    may be rounded once.

    Args:
        scalar: see ``scalars``.
        arity: Number of inputs.
        dtype: Dtype of all arrays, float32 or float64.
        options: Arguments after the elements.
        second: Another scalar, which the loop writes into a second output.
    """
    scalars = [scalar] if second is None else [scalar, second]
    return _build_loop(*[program(one, arity, options, dtype) for one in scalars])


def elementwise_loop_of_steps(
    name: str, steps: Sequence[Step], result: int, arity: int, dtype: np.dtype[Any]
) -> Loop:
    """Return the loop of a chain of scalars, which may take each other's results.

    Args:
        name: Name of the loop.
        steps: A scalar, its operands and its options. An operand is a number, or ``(k,)`` for
            input ``k`` or the result of step ``k - arity``.
        result: Index of the value that the loop writes.
        arity: Number of inputs.
        dtype: Dtype of all arrays.
    """
    return _build_loop(chain_scalars(name, steps, result, arity, dtype))


def _build_loop(*programs: Program) -> Loop:
    """Return the loop that writes the result of each program into its own output."""
    first = programs[0]
    inputs = [f"x{k}" for k in range(first.arity)]
    read = ", ".join(f"v{k}" for k in range(first.arity))
    texts = [_vectorized_source(traced, f"scalar{k}") for k, traced in enumerate(programs)]
    # All reads come before the writes, so that common subexpressions are computed once.
    lines = [f"v{k} = {x}[i]" for k, x in enumerate(inputs)]
    lines += [f"out{k}[i] = scalar{k}({read})" for k in range(len(programs))]
    text = _FILE.format(
        name=first.name,
        dtype=first.dtype.name,
        scalars="\n\n\n".join(f"@loop(contract=True)\n{text}" for text in texts),
        names=", ".join(inputs),
        outs=", ".join(f"out{k}" for k in range(len(programs))),
        lines="\n        ".join(lines),
    )
    elements: Loop = import_source(text).elements
    return elements


def _vectorized_source(traced: Program, name: str) -> str:
    forms = dict(VECTORIZING)
    for step, operands in traced.steps:
        if step.startswith("math."):
            forms[step] = f"{step[5:]}({', '.join(['{}'] * len(operands))})"
    return traced.python_source(name, forms).replace("math.", "")


def import_source(text: str) -> ModuleType:
    """Import source text as a module: from a file, so that machine code is cached, if possible."""
    name = f"odyssey_loop_{sha256((text + _sources()).encode()).hexdigest()[:24]}"
    if name in sys.modules:
        return sys.modules[name]
    filename = _write_source(name, text) or f"<{name}>"
    module = ModuleType(name)
    module.__file__ = filename
    exec(compile(text, filename, "exec"), module.__dict__)
    return sys.modules.setdefault(name, module)  # numba looks it up there


def _write_source(name: str, text: str) -> str | None:
    """Write a source file, unless it is there; return its path, or None if it cannot be kept."""
    folder = kernel_folder()
    if folder is None:
        return None
    path = folder / f"{name}.py"
    with suppress(OSError, ValueError):  # no space, no permission
        if not is_private_folder(folder, "code of kernels", create=True):
            return None
        try:
            written = is_regular_and_owned(os.lstat(path))
        except FileNotFoundError:
            written = False
        if not written:
            data = text.encode()
            replace_file(str(path), lambda file: file.write(data), 0o600, durable=False)
        return str(path)
    return None


@cache
def _sources() -> str:
    return "".join(Path(path).read_text(encoding="utf-8") for path in _CALLED)

"""Loops made of scalars: each a small file of Python, kept on disk with its machine code.

The file is named by what it does, so it is never written twice, and numba, which keeps machine code
beside the file of its source, finds it again. ``NUMBA_CACHE_DIR`` says where; else the user's own
cache does. Where nothing can be written, loops are compiled in each process anew.
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

from odyssey.kernels import elementary, error_functions, formulas, series
from odyssey.kernels.loops import Loop
from odyssey.kernels.scalars import VECTORIZING, Program, Step, chained, program

__all__ = ["loop_of", "loop_of_steps", "module_of", "place"]

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

# Loops call functions of these files, which numba does not look at.
_CALLED = tuple(str(m.__file__) for m in (elementary, error_functions, formulas, series))


def loop_of(
    scalar: Callable[..., Any],
    arity: int,
    dtype: np.dtype[Any],
    options: tuple[Any, ...] = (),
    beside: Callable[..., Any] | None = None,
) -> Loop:
    """The loop ``fn(*inputs, out)`` that writes a scalar of all elements into ``out``.

    Its exponentials, logarithms and error functions are those of ``elementary``, and a product and
    a sum may be rounded once.

    Args:
        scalar: see ``scalars``.
        arity: How many inputs it has.
        dtype: Of all arrays, float32 or float64.
        options: What comes behind the elements.
        beside: Another scalar, which the loop writes into an array behind ``out``.
    """
    scalars = [scalar] if beside is None else [scalar, beside]
    return _loop(*[program(one, arity, options, dtype) for one in scalars])


def loop_of_steps(
    name: str, steps: Sequence[Step], result: int, arity: int, dtype: np.dtype[Any]
) -> Loop:
    """The same of several scalars, each of which gets what others gave.

    Args:
        name: What the whole is called.
        steps: A scalar, its operands and its options: numbers, or ``(k,)`` for input number ``k``,
            or what step ``k - arity`` gave.
        result: The number of what the loop writes.
        arity: How many inputs it has.
        dtype: Of all arrays.
    """
    return _loop(chained(name, steps, result, arity, dtype))


def _loop(*programs: Program) -> Loop:
    """The loop that writes what each program gives into an array of its own."""
    first = programs[0]
    inputs = [f"x{k}" for k in range(first.arity)]
    read = ", ".join(f"v{k}" for k in range(first.arity))
    texts = [_text(made, f"scalar{k}") for k, made in enumerate(programs)]
    # All is read before anything is written, so that what programs share is computed once.
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
    found: Loop = module_of(text).elements
    return found


def _text(made: Program, name: str) -> str:
    forms = dict(VECTORIZING)
    for step, operands in made.steps:
        if step.startswith("math."):
            forms[step] = f"{step[5:]}({', '.join(['{}'] * len(operands))})"
    return made.text(name, forms).replace("math.", "")


def place() -> Path:
    """The folder of generated files."""
    given = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME")
    if not given and sys.platform == "win32":
        given = os.environ.get("LOCALAPPDATA")
    return (Path(given) if given else Path.home() / ".cache") / "odyssey"


def module_of(text: str) -> ModuleType:
    """The text as a module: of a file, so that machine code is kept; else of no file."""
    name = f"odyssey_loop_{sha256((text + _sources()).encode()).hexdigest()[:24]}"
    if name in sys.modules:
        return sys.modules[name]
    where = f"<{name}>"
    with suppress(OSError, RuntimeError):  # no home, no room, no permission
        path = place() / f"{name}.py"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)
        where = str(path)
    module = ModuleType(name)
    module.__file__ = where
    exec(compile(text, where, "exec"), module.__dict__)
    return sys.modules.setdefault(name, module)  # where numba looks for it


@cache
def _sources() -> str:
    return "".join(Path(path).read_text(encoding="utf-8") for path in _CALLED)

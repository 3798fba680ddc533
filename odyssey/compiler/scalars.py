"""Programs of scalars as LLVM IR: their steps, one after the other, on Words.

What comes out is what NumPy's kernels give, where these are made of + - * / and roots; functions
are those of ``elementary``, or libm's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from odyssey.compiler.arithmetic import power
from odyssey.compiler.elementary import name_of
from odyssey.compiler.ir_types import LIBM, code_of
from odyssey.compiler.words import Code, Word, alike
from odyssey.errors import DTypeError
from odyssey.kernels.scalars import Program, Term

__all__ = ["evaluate", "function"]

_OPERATORS: dict[str, Callable[..., Any]] = {
    **{f"{name}": getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv")},
    **{
        f"{name}": getattr(operator, name) for name in ("mod", "pow", "xor", "neg", "abs", "invert")
    },
    **{f"{name}": getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "and": operator.and_,
    "or": operator.or_,
}
# By their names in ``math``: what LLVM itself has, and what libm calls otherwise.
_INTRINSICS = {
    **{name: name for name in ("sqrt", "fabs", "floor", "ceil", "trunc", "copysign", "fma")},
}
_RENAMED = {"gamma": "tgamma"}


def evaluate(code: Code, program: Program, inputs: Sequence[Word]) -> Word:
    """Write down what a scalar does.

    Args:
        code: Where.
        program: What the scalar does; see ``odyssey.kernels.scalars``.
        inputs: What it is given; integers are taken in the program's dtype where that is floating.

    Returns:
        What it gives, in the type that it has: that of the program, or a truth value.

    Raises:
        DTypeError: there is no native code for one of its steps.
    """
    kind = code_of(program.dtype)
    whole = program.dtype.kind == "f"
    values = [code.cast(w, kind) if whole and w.type[0] in "iu" else w for w in inputs]
    for name, operands in program.steps:
        given = [values[o.id] if isinstance(o, Term) else o for o in operands]
        values.append(_step(code, kind, name, given))
    result = program.result
    return values[result.id] if isinstance(result, Term) else code.const(kind, result)


def _step(code: Code, kind: str, name: str, given: list[Any]) -> Word:
    if name == "T":
        (value,) = given
        return code.cast(value, kind) if isinstance(value, Word) else code.const(kind, value)
    if name == "select":
        condition, *answers = given
        if not any(isinstance(w, Word) for w in answers):
            answers = [code.const(kind, w) for w in answers]
        return code.select(condition, *answers)
    if name.startswith("math."):
        words = [w if isinstance(w, Word) else code.const(kind, w) for w in given]
        return function(code, name.removeprefix("math."), *words)
    found: Word = _OPERATORS[name](*given)
    return found


def function(code: Code, name: str, *words: Word) -> Word:
    """A function of floating numbers, by its name in ``math``; integers become float64.

    Raises:
        DTypeError: there is none of this name.
    """
    first = words[0]
    for word in words[1:]:
        first, _ = alike(code, first, word)
    kind = first.type if first.type[0] == "f" else "f8"
    if kind == "f2":
        wide = function(code, name, *[code.cast(w, "f4") for w in words])
        return code.cast(wide, "f2")
    given = [code.cast(w, kind) for w in words]
    if name == "pow":
        return power(given[0], given[1])
    if name in _INTRINSICS:
        return code.intrinsic(_INTRINSICS[name], *given)
    ours = name_of(name, kind)
    if ours:
        return code.call(kind, ours, *given)
    libm = _RENAMED.get(name, name)
    if libm not in LIBM:
        raise DTypeError(f"math.{name}: no native code; write it with functions of libm")
    return code.call(kind, libm + "f" * (kind == "f4"), *given)

"""Programs of scalars as LLVM IR: their steps, one after the other, on Words.

What comes out is what NumPy's kernels give, where these are made of + - * / and roots; functions
are those of ``elementary``, or libm's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from odyssey.compiler.llvm.arithmetic import power, size
from odyssey.compiler.llvm.builder import Code, Word
from odyssey.compiler.llvm.complex import FUNCTIONS
from odyssey.compiler.llvm.elementary import name_of
from odyssey.compiler.llvm.types import FLOATING, LIBM, PARTS, code_of
from odyssey.errors import DTypeError
from odyssey.kernels.scalars import Program, Term

__all__ = ["evaluate", "function", "has_code"]

_OPERATORS: dict[str, Callable[..., Any]] = {
    **{f"{name}": getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv")},
    **{
        f"{name}": getattr(operator, name) for name in ("mod", "pow", "xor", "neg", "abs", "invert")
    },
    **{f"{name}": getattr(operator, name) for name in ("lt", "le", "gt", "ge", "eq", "ne")},
    "and": operator.and_,
    "or": operator.or_,
    **{name: operator.attrgetter(name) for name in ("real", "imag")},
    "conjugate": operator.methodcaller("conjugate"),
}
# By their names in ``math``: what LLVM itself has, what keeps integers, what libm calls otherwise.
_INTRINSICS = ("sqrt", "fabs", "floor", "ceil", "trunc", "copysign", "fma")
_OF_WHOLE: dict[str, Callable[..., Any]] = {
    **{"pow": power, "fabs": size},
    **{name: (lambda x: x) for name in ("floor", "ceil", "trunc")},
}
_RENAMED = {"gamma": "tgamma"}


@lru_cache(maxsize=2048)
def has_code(program: Program, inputs: tuple[tuple[str, Any], ...]) -> bool:
    """Whether there is native code for each step of a scalar.

    Args:
        program: What the scalar does.
        inputs: Of each number that it is given the type, and its value where that is known.
    """
    code = Code()
    words = [
        Word(code, type, "%x") if value is None else code.const(type, value)
        for type, value in inputs
    ]
    try:
        evaluate(code, program, words)
    except DTypeError:
        return False
    return True


def evaluate(code: Code, program: Program, inputs: Sequence[Word]) -> Word:
    """Write down what a scalar does.

    Args:
        code: Where.
        program: What the scalar does; see ``odyssey.kernels.scalars``.
        inputs: What it is given; it is taken in the program's dtype, as NumPy casts all operands
            first, but for what is of a wider one, or floating where the program is not.

    Returns:
        What it gives, in the type that it has: that of the program, or a truth value.

    Raises:
        DTypeError: there is no native code for one of its steps.
    """
    kind = code_of(program.dtype)
    values = [_taken(code, kind, word) for word in inputs]
    for name, operands in program.steps:
        given = [values[o.id] if isinstance(o, Term) else o for o in operands]
        values.append(_step(code, kind, name, given))
    result = program.result
    return values[result.id] if isinstance(result, Term) else code.const(kind, result)


def _taken(code: Code, kind: str, word: Word) -> Word:
    if kind in PARTS or word.type in PARTS:
        known = bool if word.type == "b1" else word.type
        return code.cast(word, code_of(np.result_type(known, bool if kind == "b1" else kind)))
    if word.type in FLOATING and kind not in FLOATING:
        return word
    if kind not in FLOATING or word.type in FLOATING:
        wide = code_of(np.result_type(word.type, kind))
        # What holds uint64 and signed numbers is floating, and rounds them: their bits stay.
        kind = wide if (wide in FLOATING) == (kind in FLOATING) else kind
    return code.cast(word, kind)


def _step(code: Code, kind: str, name: str, given: list[Any]) -> Word:
    if name == "T":
        (value,) = given
        return code.cast(value, kind) if isinstance(value, Word) else code.const(kind, value)
    if name == "pair":
        one = PARTS[kind]
        real, imaginary = (w if isinstance(w, Word) else code.const(one, w) for w in given)
        return code.pair(kind, code.cast(real, one), code.cast(imaginary, one))
    if name == "select":
        condition, *answers = given
        if not any(isinstance(w, Word) for w in answers):
            answers = [code.const(kind, w) for w in answers]
        return code.select(condition, *answers)
    if name.startswith("math."):
        parts = kind in PARTS and any(isinstance(w, Word) and w.type not in PARTS for w in given)
        kind = PARTS[kind] if parts else kind  # numbers beside parts of complex ones are parts
        words = [w if isinstance(w, Word) else code.const(kind, w) for w in given]
        return function(code, name.removeprefix("math."), *words)
    found: Word = _OPERATORS[name](*given)
    return found


def function(code: Code, name: str, *words: Word) -> Word:
    """A function of ``math``, by its name; integers become float64, but where it keeps them whole.

    Raises:
        DTypeError: there is none of this name, or of complex numbers; or it is a power of integers,
            see ``power``.
    """
    kind = code_of(np.result_type(*[w.type for w in words]))
    if kind in PARTS:
        if name == "pow":
            base, exponent = [code.cast(w, kind) for w in words]
            return power(base, exponent)
        if name not in FUNCTIONS or len(words) > 1:
            raise DTypeError(f"math.{name}: no native code for complex numbers")
        made: Word = FUNCTIONS[name](words[0], partial(function, code))
        return made
    if kind not in FLOATING and name in _OF_WHOLE:
        found: Word = _OF_WHOLE[name](*[code.cast(w, kind) for w in words])
        return found
    if kind == "f2":
        wide = function(code, name, *[code.cast(w, "f4") for w in words])
        return code.cast(wide, "f2")
    kind = kind if kind in FLOATING else "f8"
    given = [code.cast(w, kind) for w in words]
    if name == "pow":
        return power(given[0], given[1])
    if name in _INTRINSICS:
        return code.intrinsic(name, *given)
    ours = name_of(name, kind)
    if ours:
        return code.call(kind, ours, *given)
    libm = _RENAMED.get(name, name)
    if libm not in LIBM:
        raise DTypeError(f"math.{name}: no native code; write it with functions of libm")
    return code.call(kind, libm + "f" * (kind == "f4"), *given)

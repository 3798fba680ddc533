"""Scalar programs as LLVM IR: their steps in order, on LLVM values.

What comes out is what NumPy's kernels give, where these are made of + - * / and roots; functions
are those of ``elementary``, or libm's.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from odyssey.compiler.llvm.arithmetic import absolute, power
from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.complex import COMPLEX_FUNCTIONS
from odyssey.compiler.llvm.elementary import formula_symbol
from odyssey.compiler.llvm.types import FLOATING, LIBM, PARTS, type_code
from odyssey.errors import DTypeError
from odyssey.kernels.scalars import Program, Term

__all__ = ["emit_scalar_program", "call_math", "has_native_code"]

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
_INTEGER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{"pow": power, "fabs": absolute},
    **{name: (lambda x: x) for name in ("floor", "ceil", "trunc")},
}
_LIBM_NAMES = {"gamma": "tgamma"}


@lru_cache(maxsize=2048)
def has_native_code(program: Program, inputs: tuple[tuple[str, Any], ...]) -> bool:
    """Whether there is native code for each step of a scalar.

    Args:
        program: What the scalar does.
        inputs: Of each number that it is given the type, and its value where that is known.
    """
    code = FunctionBuilder()
    words = [
        LLVMValue(code, type, "%x") if value is None else code.const(type, value)
        for type, value in inputs
    ]
    try:
        emit_scalar_program(code, program, words)
    except DTypeError:
        return False
    return True


def emit_scalar_program(
    code: FunctionBuilder, program: Program, inputs: Sequence[LLVMValue]
) -> LLVMValue:
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
    kind = type_code(program.dtype)
    values = [_cast_input(code, kind, word) for word in inputs]
    for name, operands in program.steps:
        given = [values[o.id] if isinstance(o, Term) else o for o in operands]
        values.append(_emit_step(code, kind, name, given))
    result = program.result
    return values[result.id] if isinstance(result, Term) else code.const(kind, result)


def _cast_input(code: FunctionBuilder, kind: str, word: LLVMValue) -> LLVMValue:
    if kind in PARTS or word.type in PARTS:
        known = bool if word.type == "b1" else word.type
        return code.cast(word, type_code(np.result_type(known, bool if kind == "b1" else kind)))
    if word.type in FLOATING and kind not in FLOATING:
        return word
    if kind not in FLOATING or word.type in FLOATING:
        wide = type_code(np.result_type(word.type, kind))
        # What holds uint64 and signed numbers is floating, and rounds them: their bits stay.
        kind = wide if (wide in FLOATING) == (kind in FLOATING) else kind
    return code.cast(word, kind)


def _emit_step(code: FunctionBuilder, kind: str, name: str, given: list[Any]) -> LLVMValue:
    if name == "T":
        (value,) = given
        return code.cast(value, kind) if isinstance(value, LLVMValue) else code.const(kind, value)
    if name == "pair":
        one = PARTS[kind]
        real, imaginary = (w if isinstance(w, LLVMValue) else code.const(one, w) for w in given)
        return code.pair(kind, code.cast(real, one), code.cast(imaginary, one))
    if name == "select":
        condition, *answers = given
        if not any(isinstance(w, LLVMValue) for w in answers):
            answers = [code.const(kind, w) for w in answers]
        return code.select(condition, *answers)
    if name.startswith("math."):
        parts = kind in PARTS and any(
            isinstance(w, LLVMValue) and w.type not in PARTS for w in given
        )
        kind = PARTS[kind] if parts else kind  # numbers beside parts of complex ones are parts
        words = [w if isinstance(w, LLVMValue) else code.const(kind, w) for w in given]
        return call_math(code, name.removeprefix("math."), *words)
    found: LLVMValue = _OPERATORS[name](*given)
    return found


def call_math(code: FunctionBuilder, name: str, *words: LLVMValue) -> LLVMValue:
    """A function of ``math``, by its name; integers become float64, but where it keeps them whole.

    Raises:
        DTypeError: there is none of this name, or of complex numbers; or it is a power of integers,
            see ``power``.
    """
    kind = type_code(np.result_type(*[w.type for w in words]))
    if kind in PARTS:
        if name == "pow":
            base, exponent = [code.cast(w, kind) for w in words]
            return power(base, exponent)
        if name not in COMPLEX_FUNCTIONS or len(words) > 1:
            raise DTypeError(f"math.{name}: no native code for complex numbers")
        made: LLVMValue = COMPLEX_FUNCTIONS[name](words[0], partial(call_math, code))
        return made
    if kind not in FLOATING and name in _INTEGER_FUNCTIONS:
        found: LLVMValue = _INTEGER_FUNCTIONS[name](*[code.cast(w, kind) for w in words])
        return found
    if kind == "f2":
        wide = call_math(code, name, *[code.cast(w, "f4") for w in words])
        return code.cast(wide, "f2")
    kind = kind if kind in FLOATING else "f8"
    given = [code.cast(w, kind) for w in words]
    if name == "pow":
        return power(given[0], given[1])
    if name in _INTRINSICS:
        return code.intrinsic(name, *given)
    ours = formula_symbol(name, kind)
    if ours:
        return code.call(kind, ours, *given)
    libm = _LIBM_NAMES.get(name, name)
    if libm not in LIBM:
        raise DTypeError(f"math.{name}: no native code; write it with functions of libm")
    return code.call(kind, libm + "f" * (kind == "f4"), *given)

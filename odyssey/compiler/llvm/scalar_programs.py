"""Scalar programs as LLVM IR: their steps in order, on LLVM values.

Called by code generation for the body of a loop. Results equal those of NumPy's kernels to the bit
for + - * / and roots; other functions are those of ``elementary``, or those of libm.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from odyssey.compiler.llvm.arithmetic import absolute, power
from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue
from odyssey.compiler.llvm.complex import COMPLEX_FUNCTIONS
from odyssey.compiler.llvm.declarations import LIBM
from odyssey.compiler.llvm.elementary import formula_symbol
from odyssey.compiler.llvm.types import FLOATING, HALVES, PARTS, common_type, type_code
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
# By name in ``math``: LLVM's intrinsics, functions that keep integers, other names in libm.
_INTRINSICS = ("sqrt", "fabs", "floor", "ceil", "trunc", "copysign", "fma")
_INTEGER_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{"pow": power, "fabs": absolute},
    **{name: (lambda x: x) for name in ("floor", "ceil", "trunc")},
}
_LIBM_NAMES = {"gamma": "tgamma"}


@lru_cache(maxsize=2048)
def has_native_code(program: Program, inputs: tuple[tuple[str, Any], ...]) -> bool:
    """Return whether there is native code for each step of a scalar program.

    Args:
        program: The scalar program.
        inputs: Type of each input, and its value if that is constant, else None.
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
    """Generate the code of a scalar program.

    Args:
        code: Builder of the function.
        program: The scalar program; see ``odyssey.kernels.scalars``.
        inputs: Operands. They are cast to the program's dtype first, as NumPy does; an operand of
            a wider dtype, or a floating-point operand of an integer program, is not.

    Returns:
        The result, of the program's dtype or a bool.

    Raises:
        DTypeError: there is no native code for a step.
    """
    kind = type_code(program.dtype)
    values = [_cast_input(code, kind, word) for word in inputs]
    for name, operands in program.steps:
        step_operands = [values[o.id] if isinstance(o, Term) else o for o in operands]
        values.append(_emit_step(code, kind, name, step_operands))
    result = program.result
    return values[result.id] if isinstance(result, Term) else code.const(kind, result)


def _cast_input(code: FunctionBuilder, kind: str, word: LLVMValue) -> LLVMValue:
    if kind in PARTS or word.type in PARTS:
        return code.cast(word, common_type(word.type, kind))
    if word.type in FLOATING and kind not in FLOATING:
        return word
    if kind not in FLOATING or word.type in FLOATING:
        wide = common_type(word.type, kind)
        # NumPy promotes uint64 and signed integers to float64, which rounds: keep their bits.
        kind = wide if (wide in FLOATING) == (kind in FLOATING) else kind
    return code.cast(word, kind)


def _emit_step(code: FunctionBuilder, kind: str, name: str, operands: list[Any]) -> LLVMValue:
    if name == "T":
        (value,) = operands
        return code.cast(value, kind) if isinstance(value, LLVMValue) else code.const(kind, value)
    if name == "pair":
        part = PARTS[kind]
        real, imaginary = (w if isinstance(w, LLVMValue) else code.const(part, w) for w in operands)
        return code.pair(kind, code.cast(real, part), code.cast(imaginary, part))
    if name == "select":
        condition, *choices = operands
        if not any(isinstance(w, LLVMValue) for w in choices):
            choices = [code.const(kind, w) for w in choices]
        return code.select(condition, *choices)
    if name.startswith("math."):
        of_parts = kind in PARTS and any(
            isinstance(w, LLVMValue) and w.type not in PARTS for w in operands
        )
        kind = PARTS[kind] if of_parts else kind  # constants beside parts of complex numbers
        words = [w if isinstance(w, LLVMValue) else code.const(kind, w) for w in operands]
        return call_math(code, name.removeprefix("math."), *words)
    result: LLVMValue = _OPERATORS[name](*operands)
    return result


def call_math(code: FunctionBuilder, name: str, *words: LLVMValue) -> LLVMValue:
    """Call a function of ``math`` by name; integers become float64 unless it keeps integers.

    Raises:
        DTypeError: there is no native code for this name, or for complex numbers; or it is a power
            of integers, see ``power``.
    """
    kind = common_type(*[w.type for w in words])
    if kind in PARTS:
        if name == "pow":
            base, exponent = [code.cast(w, kind) for w in words]
            return power(base, exponent)
        if name not in COMPLEX_FUNCTIONS or len(words) > 1:
            raise DTypeError(f"math.{name}: no native code for complex numbers")
        result: LLVMValue = COMPLEX_FUNCTIONS[name](words[0], partial(call_math, code))
        return result
    if kind not in FLOATING and name in _INTEGER_FUNCTIONS:
        integer: LLVMValue = _INTEGER_FUNCTIONS[name](*[code.cast(w, kind) for w in words])
        return integer
    if kind in HALVES:
        wide = call_math(code, name, *[code.cast(w, "f4") for w in words])
        return code.cast(wide, kind)
    kind = kind if kind in FLOATING else "f8"
    operands = [code.cast(w, kind) for w in words]
    if name == "pow":
        return power(operands[0], operands[1])
    if name in _INTRINSICS:
        return code.intrinsic(name, *operands)
    symbol = formula_symbol(name, kind)
    if symbol:
        return code.call(kind, symbol, *operands)
    libm = _LIBM_NAMES.get(name, name)
    if libm not in LIBM:
        raise DTypeError(f"math.{name}: no native code; write it with functions of libm")
    return code.call(kind, libm + "f" * (kind == "f4"), *operands)

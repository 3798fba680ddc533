"""LLVM IR as text: the builder of a function, and the values in it.

Called by code generation. An ``LLVMValue`` is a number that is known when the code runs. Arithmetic
on it appends instructions::

    code = FunctionBuilder()
    x = LLVMValue(code, "f4", "%x")
    y = x * x + 1  # "%v1 = fmul float %x, %x", "%v2 = fadd float %v1, 0x3FF0000000000000"

Types have the letters that NumPy gives them, see ``types``. Arithmetic is NumPy's to the bit:
nothing raises, integers wrap, integer division rounds towards minus infinity, and division by zero
gives zero. Half precision, ``f2`` and ``f2b``, is in a register as a float32 whose value is one of
float16 or bfloat16: every result is rounded to it. A complex number is a pair, in a register and in
memory.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from odyssey.compiler.llvm import arithmetic
from odyssey.compiler.llvm.bfloat16 import load_bfloat16, round_to_bfloat16, store_bfloat16
from odyssey.compiler.llvm.complex import (
    complex_component,
    complex_constant,
    imaginary_address,
    make_complex,
)
from odyssey.compiler.llvm.types import (
    FLOATING,
    HALVES,
    LLVM,
    MEMORY,
    PARTS,
    SUFFIXES,
    common_type,
    dtype_of_code,
    type_code,
)
from odyssey.floating_point_errors import ignore_fp_errors

__all__ = ["FunctionBuilder", "LLVMValue", "promote"]


@ignore_fp_errors()
def _rounded(type: str, value: Any) -> float:
    return float(dtype_of_code(type).type(value))


class FunctionBuilder:
    """Builder of the body of one function.

    Attributes:
        lines: The lines of the body so far.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def line(self, text: str) -> None:
        """Append an instruction without a value."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")

    def op(self, type: str, text: str) -> LLVMValue:
        """Append an instruction and return its value."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return LLVMValue(self, type, name)

    def const(self, type: str, value: Any) -> LLVMValue:
        """Return a constant, rounded or wrapped to the type."""
        if type == "b1":
            return LLVMValue(self, type, "true" if value else "false")
        if type in PARTS:
            return LLVMValue(self, type, complex_constant(self, type, complex(value)))
        if type not in FLOATING:
            bits = 8 * int(type[1])
            wrapped = (int(value) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
            return LLVMValue(self, type, str(wrapped))
        number = _rounded(type, value)
        return LLVMValue(self, type, f"0x{struct.pack('>d', number).hex().upper()}")

    def load(self, type: str, pointer: str, notes: str = "") -> LLVMValue:
        """Load a number.

        Args:
            type: Type of the number.
            pointer: Name of a pointer.
            notes: Text after the instruction, such as ``, !alias.scope !1``.
        """
        if type in PARTS:  # two loads: LLVM vectorizes no load of a pair
            one = PARTS[type]
            real = self.load(one, pointer, notes)
            return self.pair(
                type, real, self.load(one, imaginary_address(self, one, pointer), notes)
            )
        value = self.op(type, f"load {MEMORY[type]}, ptr {pointer}{notes}")
        if type == "b1":
            return self.op(type, f"icmp ne i8 {value.text}, 0")
        if type == "f2b":
            extended: LLVMValue = load_bfloat16(self, value.text)
            return extended
        return self.op(type, f"fpext half {value.text} to float") if type == "f2" else value

    def store(self, word: LLVMValue, pointer: str, notes: str = "") -> None:
        """Store a number, as ``load`` reads it."""
        if word.type in PARTS:
            self.store(word.real, pointer, notes)
            self.store(word.imag, imaginary_address(self, PARTS[word.type], pointer), notes)
            return
        text = word.text
        if word.type == "b1":
            text = self.op("u1", f"zext i1 {text} to i8").text
        if word.type == "f2":
            text = self.op("f2", f"fptrunc float {text} to half").text
        if word.type == "f2b":
            text = store_bfloat16(self, text)
        self.line(f"store {MEMORY[word.type]} {text}, ptr {pointer}{notes}")

    def pair(self, type: str, real: LLVMValue, imaginary: LLVMValue) -> LLVMValue:
        """Return a complex number from its two parts."""
        value: LLVMValue = make_complex(type, real, imaginary)
        return value

    def call(self, type: str, name: str, *words: LLVMValue) -> LLVMValue:
        """Append a call of a function and return its result."""
        args = ", ".join(f"{LLVM[w.type]} {w.text}" for w in words)
        return self.op(type, f"call {LLVM[type]} @{name}({args})")

    def intrinsic(self, name: str, *words: LLVMValue) -> LLVMValue:
        """Append a call of an LLVM intrinsic: ``fma`` is ``llvm.fma.f32`` for float32."""
        kind = words[0].type
        return self.rounded(self.call(kind, f"llvm.{name}.{SUFFIXES[kind]}", *words))

    def select(self, condition: LLVMValue, x: Any, y: Any) -> LLVMValue:
        """Return one of two numbers, both of which are computed."""
        first, second = promote(self, x, y)
        condition = self.cast(condition, "b1")
        if first.type in PARTS:
            real = self.select(condition, first.real, second.real)
            return self.pair(first.type, real, self.select(condition, first.imag, second.imag))
        kind = LLVM[first.type]
        text = f"select i1 {condition.text}, {kind} {first.text}, {kind} {second.text}"
        return self.op(first.type, text)

    def bitcast(self, word: LLVMValue, type: str) -> LLVMValue:
        """Reinterpret the bits of a value as another type of its size."""
        if LLVM[type] == LLVM[word.type]:
            return LLVMValue(self, type, word.text)
        return self.op(type, f"bitcast {LLVM[word.type]} {word.text} to {LLVM[type]}")

    def cast(self, word: LLVMValue, type: str) -> LLVMValue:
        """Convert a value as NumPy's ``astype`` does.

        NaN and floating-point numbers out of range become integers as they do on the processor in
        NumPy's loops: the least integer of 32 or 64 bits, truncated to the type.
        """
        source = word.type
        if source == type:
            return word
        if type == "b1":
            return word != 0
        if type in PARTS:
            one = PARTS[type]
            return self.pair(type, self.cast(word.real, one), self.cast(word.imag, one))
        if source in PARTS:
            return self.cast(word.real, type)
        if type in FLOATING:
            return self._to_floating(word, type)
        if source in FLOATING:
            return self._to_integer(word, type)
        if LLVM[source] == LLVM[type]:
            return LLVMValue(self, type, word.text)
        narrower = source != "b1" and int(source[1]) > int(type[1])
        extension = "sext" if source[0] == "i" else "zext"
        return self._convert("trunc" if narrower else extension, word, type)

    def _convert(self, instruction: str, word: LLVMValue, type: str) -> LLVMValue:
        return self.op(type, f"{instruction} {LLVM[word.type]} {word.text} to {LLVM[type]}")

    def _to_floating(self, word: LLVMValue, type: str) -> LLVMValue:
        source = word.type
        if source in HALVES and type == "f4":
            return LLVMValue(self, type, word.text)
        if source not in FLOATING:
            value = self._convert("sitofp" if source[0] == "i" else "uitofp", word, type)
        elif type == "f8":
            value = self._convert("fpext", word, type)
        elif source == "f4" or source in HALVES:
            value = LLVMValue(self, type, word.text)
        else:
            value = self._convert("fptrunc", word, "f4")
            if type == "f2":
                value = self._round_to_odd(value, word)
            # As in ml_dtypes, float64 is rounded to float32 first, and then to bfloat16.
            value = LLVMValue(self, type, value.text)
        return self.rounded(value)

    def _round_to_odd(self, nearest: LLVMValue, exact: LLVMValue) -> LLVMValue:
        """Round a float64 to float32 with the last bit set if inexact, for a second rounding.

        See S. Boldo and G. Melquiond, When double rounding is odd, 2005.
        """
        back = self.cast(nearest, "f8")
        # ``one`` is an ordered comparison: false for NaN.
        inexact = self.op("b1", f"fcmp one double {back.text}, {exact.text}")
        bits = self.bitcast(nearest, "i4")
        bits = bits - self.cast(inexact & (abs(back) > abs(exact)), "i4")
        return self.bitcast(bits | self.cast(inexact, "i4"), "f4")

    def rounded(self, word: LLVMValue) -> LLVMValue:
        """Round a value of type ``f2`` or ``f2b`` to half precision; return others unchanged."""
        if word.type not in HALVES:
            return word
        if word.type == "f2b":
            rounded: LLVMValue = round_to_bfloat16(word)
            return rounded
        half = self.op("f2", f"fptrunc float {word.text} to half")
        return self.op("f2", f"fpext half {half.text} to float")

    def _to_integer(self, word: LLVMValue, type: str) -> LLVMValue:
        word = self.cast(word, "f4") if word.type == "f2b" else word
        if type == "u8":
            end = self.const(word.type, 2.0**63)
            above = word >= end
            low = self._to_integer(self.select(above, word - end, word), "i8")
            high = self.select(above, self.const("i8", -(2**63)), self.const("i8", 0))
            return self.bitcast(low ^ high, type)
        wide = "i8" if type in ("i8", "u4") else "i4"
        least = self.const(word.type, -(2.0 ** (8 * int(wide[1]) - 1)))
        # Out of range the result of fptosi is undefined. The select also takes the least integer
        # itself, for which that is right.
        safe = self.select(abs(word) < -least, word, least)
        return self.cast(self._convert("fptosi", safe, wide), type)


class LLVMValue:
    """Scalar in LLVM IR.

    Attributes:
        code: Builder that operators append instructions to.
        type: One of ``TYPES``.
        text: Name of the value, or the text of a constant.
    """

    __slots__ = ("code", "text", "type")

    # NumPy's scalars leave arithmetic with an LLVMValue to it.
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]  # equality is an LLVMValue

    def __init__(self, code: FunctionBuilder, type: str, text: str) -> None:
        self.code = code
        self.type = type
        self.text = text

    def __repr__(self) -> str:
        return f"{self.type} {self.text}"

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} is known when the code runs; choose by select(condition, x, y)")

    @property
    def number(self) -> float | int | bool | None:
        """Return the value of a real constant; None for other values.

        >>> FunctionBuilder().const("f4", 0.5).number
        0.5
        """
        if self.text.startswith(("%", "@")) or self.type in PARTS:
            return None
        if self.type == "b1":
            return self.text == "true"
        if self.type in FLOATING:
            value: float = struct.unpack(">d", bytes.fromhex(self.text[2:]))[0]
            return value
        integer = int(self.text)
        return integer % (1 << 8 * int(self.type[1])) if self.type[0] == "u" else integer

    def view(self, type: Any) -> LLVMValue:
        """Reinterpret the bits as another type, named by letters or as NumPy names it."""
        return self.code.bitcast(self, type if isinstance(type, str) else type_code(type))

    @property
    def real(self) -> LLVMValue:
        """Return the real part; a real number is its own."""
        return complex_component(self, 0) if self.type in PARTS else self

    @property
    def imag(self) -> LLVMValue:
        """Return the imaginary part; 0 for a real number."""
        return complex_component(self, 1) if self.type in PARTS else self.code.const(self.type, 0)

    def conjugate(self) -> LLVMValue:
        """Return the complex conjugate."""
        type = self.type
        return self.code.pair(type, self.real, -self.imag) if type in PARTS else self

    # ------------------------------------------------------------------ arithmetic

    def __add__(self, other: Any) -> LLVMValue:
        return arithmetic.add_sub_mul("add", *promote(self.code, self, other))

    def __radd__(self, other: Any) -> LLVMValue:
        return arithmetic.add_sub_mul("add", *promote(self.code, other, self))

    def __sub__(self, other: Any) -> LLVMValue:
        return arithmetic.add_sub_mul("sub", *promote(self.code, self, other))

    def __rsub__(self, other: Any) -> LLVMValue:
        return arithmetic.add_sub_mul("sub", *promote(self.code, other, self))

    def __mul__(self, other: Any) -> LLVMValue:
        return arithmetic.add_sub_mul("mul", *promote(self.code, self, other))

    def __rmul__(self, other: Any) -> LLVMValue:
        return arithmetic.add_sub_mul("mul", *promote(self.code, other, self))

    def __truediv__(self, other: Any) -> LLVMValue:
        return arithmetic.divide(*promote(self.code, self, other))

    def __rtruediv__(self, other: Any) -> LLVMValue:
        return arithmetic.divide(*promote(self.code, other, self))

    def __floordiv__(self, other: Any) -> LLVMValue:
        return arithmetic.floor_divmod(*promote(self.code, self, other))[0]

    def __rfloordiv__(self, other: Any) -> LLVMValue:
        return arithmetic.floor_divmod(*promote(self.code, other, self))[0]

    def __mod__(self, other: Any) -> LLVMValue:
        return arithmetic.floor_divmod(*promote(self.code, self, other))[1]

    def __rmod__(self, other: Any) -> LLVMValue:
        return arithmetic.floor_divmod(*promote(self.code, other, self))[1]

    def __pow__(self, other: Any) -> LLVMValue:
        return arithmetic.power(*promote(self.code, self, other))

    def __rpow__(self, other: Any) -> LLVMValue:
        return arithmetic.power(*promote(self.code, other, self))

    def __and__(self, other: Any) -> LLVMValue:
        return arithmetic.bitwise("and", *promote(self.code, self, other))

    def __rand__(self, other: Any) -> LLVMValue:
        return arithmetic.bitwise("and", *promote(self.code, other, self))

    def __or__(self, other: Any) -> LLVMValue:
        return arithmetic.bitwise("or", *promote(self.code, self, other))

    def __ror__(self, other: Any) -> LLVMValue:
        return arithmetic.bitwise("or", *promote(self.code, other, self))

    def __xor__(self, other: Any) -> LLVMValue:
        return arithmetic.bitwise("xor", *promote(self.code, self, other))

    def __rxor__(self, other: Any) -> LLVMValue:
        return arithmetic.bitwise("xor", *promote(self.code, other, self))

    def __lshift__(self, other: Any) -> LLVMValue:
        return arithmetic.shift("left", *promote(self.code, self, other))

    def __rlshift__(self, other: Any) -> LLVMValue:
        return arithmetic.shift("left", *promote(self.code, other, self))

    def __rshift__(self, other: Any) -> LLVMValue:
        return arithmetic.shift("right", *promote(self.code, self, other))

    def __rrshift__(self, other: Any) -> LLVMValue:
        return arithmetic.shift("right", *promote(self.code, other, self))

    def __lt__(self, other: Any) -> LLVMValue:
        return arithmetic.compare("lt", *promote(self.code, self, other))

    def __le__(self, other: Any) -> LLVMValue:
        return arithmetic.compare("le", *promote(self.code, self, other))

    def __gt__(self, other: Any) -> LLVMValue:
        return arithmetic.compare("gt", *promote(self.code, self, other))

    def __ge__(self, other: Any) -> LLVMValue:
        return arithmetic.compare("ge", *promote(self.code, self, other))

    def __eq__(self, other: Any) -> LLVMValue:  # type: ignore[override]
        return arithmetic.compare("eq", *promote(self.code, self, other))

    def __ne__(self, other: Any) -> LLVMValue:  # type: ignore[override]
        return arithmetic.compare("ne", *promote(self.code, self, other))

    def __neg__(self) -> LLVMValue:
        return arithmetic.negate(self)

    def __abs__(self) -> LLVMValue:
        return arithmetic.absolute(self)

    def __invert__(self) -> LLVMValue:
        return arithmetic.invert(self)


def promote(code: FunctionBuilder, x: Any, y: Any) -> tuple[LLVMValue, LLVMValue]:
    """Convert two numbers to their common type by NumPy's promotion; Python numbers are weak."""
    if not isinstance(x, LLVMValue):
        if not isinstance(y, LLVMValue):  # both are Python numbers
            x = code.const(type_code(np.asarray(x).dtype), x)
            return promote(code, x, y)
        y_, x_ = promote(code, y, x)
        return x_, y_
    if not isinstance(y, LLVMValue):
        kind = x.type
        if isinstance(y, (complex, np.complexfloating)) and kind not in PARTS:
            kind = "c8" if kind in (*HALVES, "f4") else "c16"
        elif isinstance(y, (float, np.floating)) and kind not in (*FLOATING, *PARTS):
            kind = "f8"
        elif kind == "b1" and not isinstance(y, (bool, np.bool_)):
            kind = "i8"
        return code.cast(x, kind), code.const(kind, y)
    if x.type == y.type:
        return x, y
    kind = common_type(x.type, y.type)
    return code.cast(x, kind), code.cast(y, kind)

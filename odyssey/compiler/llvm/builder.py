"""LLVM IR as text: the builder of a function, and the values in it.

A ``LLVMValue`` is a number that will be known when the code runs. Arithmetic with it appends
lines::

    code = FunctionBuilder()
    x = LLVMValue(code, "f4", "%x")
    y = x * x + 1  # "%v1 = fmul float %x, %x", "%v2 = fadd float %v1, 0x3FF0000000000000"

Types have the letters that NumPy gives them: ``f4`` is float32, ``u1`` uint8, ``b1`` a truth
value. Arithmetic is NumPy's, bit by bit: nothing is raised, integers wrap, are divided towards
minus infinity and by zero to zero. Half precision, ``f2``, lies in a register as a float32 whose
value is one of float16: every result is rounded to it. A complex number is a pair, in a register
and in memory.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from odyssey.compiler.llvm import arithmetic
from odyssey.compiler.llvm.complex import (
    complex_component,
    complex_constant,
    imaginary_address,
    make_complex,
)
from odyssey.compiler.llvm.types import FLOATING, LLVM, MEMORY, PARTS, SUFFIXES, type_code
from odyssey.floating_point_errors import ignore_fp_errors

__all__ = ["FunctionBuilder", "LLVMValue", "promote"]


@ignore_fp_errors()
def _rounded(type: str, value: Any) -> float:
    return float(np.dtype(type).type(value))


class FunctionBuilder:
    """The lines of one function's body.

    Attributes:
        lines: As they are; join them by line breaks.
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def line(self, text: str) -> None:
        """Append an instruction that gives nothing."""
        self.lines.append(f"  {text}")

    def label(self, name: str) -> None:
        """Begin a block."""
        self.lines.append(f"{name}:")

    def op(self, type: str, text: str) -> LLVMValue:
        """Append an instruction, and give what it computes."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return LLVMValue(self, type, name)

    def const(self, type: str, value: Any) -> LLVMValue:
        """A number that is known now, rounded or wrapped into the type."""
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
        """Read a number.

        Args:
            type: Of the number.
            pointer: The name of a pointer.
            notes: What stands behind the instruction, such as ``, !alias.scope !1``.
        """
        if type in PARTS:  # one by one, as loops of vectors want it
            one = PARTS[type]
            real = self.load(one, pointer, notes)
            return self.pair(
                type, real, self.load(one, imaginary_address(self, one, pointer), notes)
            )
        found = self.op(type, f"load {MEMORY[type]}, ptr {pointer}{notes}")
        if type == "b1":
            return self.op(type, f"icmp ne i8 {found.text}, 0")
        return self.op(type, f"fpext half {found.text} to float") if type == "f2" else found

    def store(self, word: LLVMValue, pointer: str, notes: str = "") -> None:
        """Write a number, as ``load`` reads it."""
        if word.type in PARTS:
            self.store(word.real, pointer, notes)
            self.store(word.imag, imaginary_address(self, PARTS[word.type], pointer), notes)
            return
        text = word.text
        if word.type == "b1":
            text = self.op("u1", f"zext i1 {text} to i8").text
        if word.type == "f2":
            text = self.op("f2", f"fptrunc float {text} to half").text
        self.line(f"store {MEMORY[word.type]} {text}, ptr {pointer}{notes}")

    def pair(self, type: str, real: LLVMValue, imaginary: LLVMValue) -> LLVMValue:
        """A complex number of two parts."""
        found: LLVMValue = make_complex(type, real, imaginary)
        return found

    def call(self, type: str, name: str, *words: LLVMValue) -> LLVMValue:
        """Append a call of a function and return its result."""
        given = ", ".join(f"{LLVM[w.type]} {w.text}" for w in words)
        return self.op(type, f"call {LLVM[type]} @{name}({given})")

    def intrinsic(self, name: str, *words: LLVMValue) -> LLVMValue:
        """Append a call of an LLVM intrinsic: ``fma`` is ``llvm.fma.f32`` for float32."""
        kind = words[0].type
        return self.rounded(self.call(kind, f"llvm.{name}.{SUFFIXES[kind]}", *words))

    def select(self, condition: LLVMValue, x: Any, y: Any) -> LLVMValue:
        """One of two numbers, both of which are computed."""
        first, second = promote(self, x, y)
        condition = self.cast(condition, "b1")
        if first.type in PARTS:
            real = self.select(condition, first.real, second.real)
            return self.pair(first.type, real, self.select(condition, first.imag, second.imag))
        kind = LLVM[first.type]
        question = condition.text
        text = f"select i1 {question}, {kind} {first.text}, {kind} {second.text}"
        return self.op(first.type, text)

    def bitcast(self, word: LLVMValue, type: str) -> LLVMValue:
        """Reinterpret the bits of a value as another type of its size."""
        if LLVM[type] == LLVM[word.type]:
            return LLVMValue(self, type, word.text)
        return self.op(type, f"bitcast {LLVM[word.type]} {word.text} to {LLVM[type]}")

    def cast(self, word: LLVMValue, type: str) -> LLVMValue:
        """Convert a value as NumPy's ``astype`` does.

        Floating numbers that no integer is near, and NaN, become what the processor makes of them
        in NumPy's loops: the least integer of 32 or 64 bits, cut to size.
        """
        given = word.type
        if given == type:
            return word
        if type == "b1":
            return word != 0
        if type in PARTS:
            one = PARTS[type]
            return self.pair(type, self.cast(word.real, one), self.cast(word.imag, one))
        if given in PARTS:
            return self.cast(word.real, type)
        if type in FLOATING:
            return self._to_floating(word, type)
        if given in FLOATING:
            return self._to_whole(word, type)
        if LLVM[given] == LLVM[type]:
            return LLVMValue(self, type, word.text)
        narrower = given != "b1" and int(given[1]) > int(type[1])
        extended = "sext" if given[0] == "i" else "zext"
        return self._converted("trunc" if narrower else extended, word, type)

    def _converted(self, how: str, word: LLVMValue, type: str) -> LLVMValue:
        return self.op(type, f"{how} {LLVM[word.type]} {word.text} to {LLVM[type]}")

    def _to_floating(self, word: LLVMValue, type: str) -> LLVMValue:
        given = word.type
        if given == "f2" and type == "f4":
            return LLVMValue(self, type, word.text)
        if given not in FLOATING:
            found = self._converted("sitofp" if given[0] == "i" else "uitofp", word, type)
        elif type == "f8":
            found = self._converted("fpext", word, type)
        elif given == "f4":
            found = LLVMValue(self, type, word.text)
        else:
            found = self._converted("fptrunc", word, "f4")
            if type == "f2":
                found = LLVMValue(self, type, self._odd(found, word).text)
        return self.rounded(found)

    def _odd(self, found: LLVMValue, exact: LLVMValue) -> LLVMValue:
        """A float32 of a float64, with the last bit set if it is not exact: it can be rounded on.

        See S. Boldo and G. Melquiond, When double rounding is odd, 2005.
        """
        back = self.cast(found, "f8")
        # Not for NaN, to which nothing is unequal here.
        off = self.op("b1", f"fcmp one double {back.text}, {exact.text}")
        bits = self.bitcast(found, "i4")
        bits = bits - self.cast(off & (abs(back) > abs(exact)), "i4")
        return self.bitcast(bits | self.cast(off, "i4"), "f4")

    def rounded(self, word: LLVMValue) -> LLVMValue:
        """A number of ``f2`` in the digits that it has."""
        if word.type != "f2":
            return word
        half = self.op("f2", f"fptrunc float {word.text} to half")
        return self.op("f2", f"fpext half {half.text} to float")

    def _to_whole(self, word: LLVMValue, type: str) -> LLVMValue:
        if type == "u8":
            end = self.const(word.type, 2.0**63)
            above = word >= end
            low = self._to_whole(self.select(above, word - end, word), "i8")
            high = self.select(above, self.const("i8", -(2**63)), self.const("i8", 0))
            return self.bitcast(low ^ high, type)
        wide = "i8" if type in ("i8", "u4") else "i4"
        least = self.const(word.type, -(2.0 ** (8 * int(wide[1]) - 1)))
        # Out of range LLVM promises nothing. The least number itself is chosen, and is right.
        safe = self.select(abs(word) < -least, word, least)
        return self.cast(self._converted("fptosi", safe, wide), type)


class LLVMValue:
    """A scalar while code is made.

    Attributes:
        code: Where what is computed with it is written down.
        type: One of ``TYPES``.
        text: Its name, or its value where that is known.
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
        """Its value, if that is known now, and real.

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
        found = int(self.text)
        return found % (1 << 8 * int(self.type[1])) if self.type[0] == "u" else found

    def view(self, type: Any) -> LLVMValue:
        """Reinterpret the bits as another type, named by letters or as NumPy names it."""
        return self.code.bitcast(self, type if isinstance(type, str) else type_code(type))

    @property
    def real(self) -> LLVMValue:
        """The first part of a complex number; another is its own."""
        return complex_component(self, 0) if self.type in PARTS else self

    @property
    def imag(self) -> LLVMValue:
        """The second part of a complex number; 0 of another, in its type."""
        return complex_component(self, 1) if self.type in PARTS else self.code.const(self.type, 0)

    def conjugate(self) -> LLVMValue:
        """The number with the other sign of its second part."""
        one = self.type
        return self.code.pair(one, self.real, -self.imag) if one in PARTS else self

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
    """Two numbers in the type to which NumPy promotes them; Python's take that of the other."""
    if not isinstance(x, LLVMValue):
        if not isinstance(y, LLVMValue):  # numbers both: the first has the type that NumPy gives it
            x = code.const(type_code(np.asarray(x).dtype), x)
            return promote(code, x, y)
        y_, x_ = promote(code, y, x)
        return x_, y_
    if not isinstance(y, LLVMValue):
        kind = x.type
        if isinstance(y, (complex, np.complexfloating)) and kind not in PARTS:
            kind = "c8" if kind in ("f2", "f4") else "c16"
        elif isinstance(y, (float, np.floating)) and kind not in (*FLOATING, *PARTS):
            kind = "f8"
        elif kind == "b1" and not isinstance(y, (bool, np.bool_)):
            kind = "i8"
        return code.cast(x, kind), code.const(kind, y)
    if x.type == y.type:
        return x, y
    kind = type_code(np.result_type(x.type, y.type))
    return code.cast(x, kind), code.cast(y, kind)

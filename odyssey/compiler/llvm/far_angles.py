"""Angles of any size, less a multiple of pi / 2, by integers.

See M. H. Payne and R. N. Hanek, Radian reduction for trigonometric functions, 1983: of the digits
of 2 / pi only those matter that make less than four quarters of a turn, and no more of them than
tell how near the angle is to a multiple. Of float64, none is nearer than 2**-62.
"""

from __future__ import annotations

from itertools import pairwise

from odyssey.compiler.llvm.builder import FunctionBuilder, LLVMValue

__all__ = ["TWO_OVER_PI_TABLE", "reduce_far_angle"]

_DIGITS = (
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e0"
    "06492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484e99c7026b45f7e413991d639835339f4"
    "9c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d"
    "7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d"
)
# 64 zeros stand before the point, for angles that need them.
_WORDS = [0, *(int(_DIGITS[k : k + 16], 16) for k in range(0, len(_DIGITS), 16))]

TWO_OVER_PI_TABLE = (
    f"@odyssey_two_over_pi = internal constant [{len(_WORDS)} x i64] "
    f"[{', '.join(f'i64 {word}' for word in _WORDS)}]\n"
)
"""The global of LLVM's that the code reads."""


def reduce_far_angle(code: FunctionBuilder, x: LLVMValue) -> tuple[LLVMValue, LLVMValue, LLVMValue]:
    """Reduce an angle of 2**-10 or more to quarter turns, modulo 4, and a remainder.

    Args:
        code: Where it is written down.
        x: The angle; what is given for infinity means nothing.

    Returns:
        An integer, and the rest, at most half a quarter to either side, in two parts.
    """
    bits = x.view("i8")
    fraction = (bits & ((1 << 52) - 1)) | (1 << 52)
    start = ((bits >> 52) & 2047) - (1075 - 62)  # of the digits that matter
    turns = _quarter_turns(
        code, fraction, _two_over_pi_digits(code, start)
    )  # 2 bits, and 126 behind the point
    quarter = _emit_low_word(
        code, f"lshr i128 {_emit_i128(code, f'add i128 {turns}, {1 << 125}')}, 126"
    )
    whole = _emit_i128(
        code, f"shl i128 {_emit_i128(code, f'zext i64 {quarter.text} to i128')}, 126"
    )
    left = _emit_i128(code, f"sub i128 {turns}, {whole}")
    below = code.op("b1", f"icmp slt i128 {left}, 0")
    turned = _emit_i128(code, f"sub i128 0, {left}")
    size = _emit_i128(code, f"select i1 {below.text}, i128 {turned}, i128 {left}")
    first, second = _in_radians(code, *_to_float_pair(code, size))
    return quarter, code.select(below, -first, first), code.select(below, -second, second)


def _emit_i128(code: FunctionBuilder, text: str) -> str:
    """Return the name of a 128-bit integer, a type that no LLVMValue has."""
    return code.op("i8", text).text


def _emit_low_word(code: FunctionBuilder, text: str) -> LLVMValue:
    """The last 64 bits of one."""
    return code.op("i8", f"trunc i128 {_emit_i128(code, text)} to i64")


def _two_over_pi_digits(code: FunctionBuilder, start: LLVMValue) -> list[LLVMValue]:
    """192 digits of 2 / pi, in three words."""
    place, surplus = start >> 6, start & 63
    words = []
    for k in range(4):
        index = (place + k).text
        at = code.op("ptr", f"getelementptr i64, ptr @odyssey_two_over_pi, i64 {index}")
        words.append(code.load("i8", at.text))
    return [code.call("i8", "llvm.fshl.i64", x, y, surplus) for x, y in pairwise(words)]


def _quarter_turns(code: FunctionBuilder, fraction: LLVMValue, window: list[LLVMValue]) -> str:
    """The product with the fraction of the angle, of which the last 64 bits are left out."""
    factor = _emit_i128(code, f"zext i64 {fraction.text} to i128")
    first, second, third = (
        _emit_i128(code, f"mul i128 {factor}, {_emit_i128(code, f'zext i64 {word.text} to i128')}")
        for word in window
    )
    first = _emit_i128(code, f"shl i128 {first}, 64")
    third = _emit_i128(code, f"lshr i128 {third}, 64")
    return _emit_i128(code, f"add i128 {_emit_i128(code, f'add i128 {first}, {second}')}, {third}")


def _to_float_pair(code: FunctionBuilder, size: str) -> tuple[LLVMValue, LLVMValue]:
    """An integer, divided by 2**126, as the sum of two numbers."""
    zeros = _emit_i128(code, f"call i128 @llvm.ctlz.i128(i128 {size}, i1 false)")
    leading = _emit_i128(code, f"shl i128 {size}, {zeros}")
    high = _emit_low_word(code, f"lshr i128 {leading}, 64")
    low = _emit_low_word(code, f"lshr i128 {leading}, 11")  # 11 bits of the first word, and 53
    count = code.op("i8", f"trunc i128 {zeros} to i64")
    scale = ((1023 - 62) - count << 52).view("f8")
    rest = code.cast(low.view("u8"), "f8") * (scale * 2.0**-53)
    return code.cast((high & ~2047).view("u8"), "f8") * scale, rest


def _in_radians(
    code: FunctionBuilder, high: LLVMValue, low: LLVMValue
) -> tuple[LLVMValue, LLVMValue]:
    """Quarters of a turn, times pi / 2."""
    half_pi, rest = (code.const("f8", v) for v in (1.5707963267948966, 6.123233995736766e-17))
    first = high * half_pi
    second = code.intrinsic("fma", high, half_pi, -first) + (high * rest + low * half_pi)
    sum = first + second
    return sum, (first - sum) + second

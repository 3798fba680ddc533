"""Conversions of half precision for processors without them: compiler-rt functions in LLVM IR.

Called by ``machine.jit``. On such processors LLVM calls functions of a compiler's runtime library,
which Python may have been built without. These are written with integer operations alone. They
round to nearest, ties to even, as ``numpy.float16`` does; NaN stays NaN, and keeps the part of its
payload that fits.
"""

from __future__ import annotations

__all__ = ["NAMES", "TEXT"]

NAMES = ("__extendhfsf2", "__truncsfhf2", "__truncdfhf2")


def _truncation(name: str, real: str, bits: int, mantissa: int, bias: int) -> str:
    """Return a function that rounds a number of type ``real`` to half precision.

    One of three results is selected. Too large numbers and NaN become infinity and NaN. For usual
    numbers, half a unit in the last place is added, and the exponent is rebiased. Below 2**-14,
    addition of a number whose last place is 2**-24 rounds.
    """
    word, lost = f"i{bits}", mantissa - 10
    one = bias << mantissa
    limit = (bias + 15 << mantissa) + (0x3FF << lost) + (1 << lost - 1)  # 65520
    small = bias - 14 << mantissa
    anchor = bias + mantissa - 24 << mantissa
    sign, quiet = 1 << bits - 1, 1 << 9
    return f"""
define half @{name}({real} %x) {{
  %u = bitcast {real} %x to {word}
  %a = and {word} %u, {sign - 1}
  %minus = lshr {word} %u, {bits - 16}
  %minus16 = trunc {word} %minus to i16
  %sign = and i16 %minus16, -32768
  %isnan = icmp ugt {word} %a, {(2 * bias + 1) << mantissa}
  %cut = lshr {word} %a, {lost}
  %cut16 = trunc {word} %cut to i16
  %payload = and i16 %cut16, {quiet - 1}
  %nan = or i16 %payload, {0x7C00 | quiet}
  %isbig = icmp uge {word} %a, {limit}
  %odd = and {word} %cut, 1
  %more = add {word} %odd, {(1 << lost - 1) - 1}
  %up = add {word} %a, %more
  %moved = sub {word} %up, {one - (15 << mantissa)}
  %usual = lshr {word} %moved, {lost}
  %usual16 = trunc {word} %usual to i16
  %issmall = icmp ult {word} %a, {small}
  %plus = bitcast {word} %a to {real}
  %anchor = bitcast {word} {anchor} to {real}
  %sum = fadd {real} %plus, %anchor
  %sumbits = bitcast {real} %sum to {word}
  %places = sub {word} %sumbits, {anchor}
  %small16 = trunc {word} %places to i16
  %finite = select i1 %issmall, i16 %small16, i16 %usual16
  %number = select i1 %isbig, i16 {0x7C00}, i16 %finite
  %all = select i1 %isnan, i16 %nan, i16 %number
  %signed = or i16 %all, %sign
  %made = bitcast i16 %signed to half
  ret half %made
}}
"""


_EXTENSION = """
define float @__extendhfsf2(half %x) {
  %u16 = bitcast half %x to i16
  %u = zext i16 %u16 to i32
  %a = and i32 %u, 32767
  %minus = and i32 %u, 32768
  %sign = shl i32 %minus, 16
  %moved = shl i32 %a, 13
  %usual = add i32 %moved, 939524096
  %isbig = icmp uge i32 %a, 31744
  %isnan = icmp ugt i32 %a, 31744
  %quiet = select i1 %isnan, i32 2143289344, i32 2139095040
  %big = or i32 %moved, %quiet
  %issmall = icmp ult i32 %a, 1024
  %places = uitofp i32 %a to float
  %small = fmul float %places, 0x3E70000000000000
  %smallbits = bitcast float %small to i32
  %finite = select i1 %issmall, i32 %smallbits, i32 %usual
  %number = select i1 %isbig, i32 %big, i32 %finite
  %signed = or i32 %number, %sign
  %made = bitcast i32 %signed to float
  ret float %made
}
"""

TEXT = (
    _EXTENSION
    + _truncation("__truncsfhf2", "float", 32, 23, 127)
    + _truncation("__truncdfhf2", "double", 64, 52, 1023)
)
"""The functions, as a module."""

"""``fmod`` of CUDA kernels: the exact remainder, by division of integers.

LLVM turns ``frem`` into ``x - trunc(x / y) * y`` for NVPTX. That is wrong where the quotient does
not fit into a mantissa: the result may be larger than ``y``, or of the other sign. Devices do not
have ``fmod`` of the C library either. So kernels call a function of this module for both, also on
the CPU, where it is tested.

``x`` and ``y`` are integers times powers of 2. Shifting the integer of ``x`` to the left by as many
bits as the powers differ, modulo the integer of ``y``, gives the integer of the result. Each step
shifts by as many bits as 64 leave free beside a mantissa: 40 for float32, 11 for float64.
"""

from __future__ import annotations

import re
import struct

import numpy as np

__all__ = ["call_exact_remainders", "define_remainders"]

_FREM = re.compile(r"= frem (float|double) (\S+), (\S+)")
_FMOD = re.compile(r"call (float|double) @fmodf?\(")

# Instructions that give the bits of an operand as i64, and the number of an i64 with its bits.
_BITS = {
    "float": "  %{0}w = bitcast float %{0} to i32\n  %{0}b = zext i32 %{0}w to i64",
    "double": "  %{0}b = bitcast double %{0} to i64",
}
_NUMBER = {
    "float": "  %powerw = trunc i64 %power to i32\n  %unit = bitcast i32 %powerw to float",
    "double": "  %unit = bitcast i64 %power to double",
}

# Its size, and integer m and exponent p: the size is m times a power of 2 that grows with p.
_OPERAND = """  %{0}a = and i64 %{0}b, {size_mask}
  %{0}e = lshr i64 %{0}a, {mantissa}
  %{0}f = and i64 %{0}a, {fraction_mask}
  %{0}o = or i64 %{0}f, {one}
  %{0}n = icmp ne i64 %{0}e, 0
  %{0}m = select i1 %{0}n, i64 %{0}o, i64 %{0}f
  %{0}p = select i1 %{0}n, i64 %{0}e, i64 1"""

_FUNCTION = """define internal {type} @device_fmod_{type}({type} %x, {type} %y) alwaysinline {{
entry:
{x}
{y}
  %finite = icmp ult i64 %xa, {infinity}
  %number = icmp ule i64 %ya, {infinity}
  %nonzero = icmp ne i64 %ym, 0
  %both = and i1 %finite, %number
  %valid = and i1 %both, %nonzero
  br i1 %valid, label %compare, label %invalid
invalid:
  ret {type} 0x7FF8000000000000
compare:
  %smaller = icmp ult i64 %xa, %ya
  br i1 %smaller, label %whole, label %divide
whole:
  ret {type} %x
divide:
  %bits = sub i64 %xp, %yp
  %rest = urem i64 %xm, %ym
  br label %head
head:
  %left = phi i64 [%bits, %divide], [%less, %step]
  %r = phi i64 [%rest, %divide], [%next, %step]
  %more = icmp ne i64 %left, 0
  br i1 %more, label %step, label %exit
step:
  %few = icmp ult i64 %left, {free}
  %shift = select i1 %few, i64 %left, i64 {free}
  %shifted = shl i64 %r, %shift
  %next = urem i64 %shifted, %ym
  %less = sub i64 %left, %shift
  br label %head
exit:
  %integer = uitofp i64 %r to {type}
  %fraction = fmul {type} %integer, {last_place}
  %power = shl i64 %yp, {mantissa}
{number}
  %size = fmul {type} %fraction, %unit
  %signed = call {type} @llvm.copysign.{suffix}({type} %size, {type} %x)
  ret {type} %signed
}}"""


def call_exact_remainders(body: str) -> str:
    """Return instructions in which remainders are calls of the functions of this module."""
    body = _FREM.sub(r"= call \1 @device_fmod_\1(\1 \2, \1 \3)", body)
    return _FMOD.sub(r"call \1 @device_fmod_\1(", body)


def define_remainders(text: str) -> list[str]:
    """Return the definitions of the functions of this module that a text calls."""
    return [_definition(type) for type in _BITS if f"@device_fmod_{type}(" in text]


def _definition(type: str) -> str:
    info = np.finfo("f4" if type == "float" else "f8")
    numbers = {
        "type": type,
        "number": _NUMBER[type],
        "suffix": f"f{info.bits}",
        "mantissa": info.nmant,
        "one": 1 << info.nmant,
        "fraction_mask": (1 << info.nmant) - 1,
        "size_mask": (1 << info.bits - 1) - 1,
        "infinity": (2 * info.maxexp - 1) << info.nmant,
        "free": 63 - info.nmant,
        "last_place": f"0x{struct.pack('>d', 2.0**-info.nmant).hex().upper()}",
    }
    operands = {x: _BITS[type].format(x) + "\n" + _OPERAND.format(x, **numbers) for x in "xy"}
    return _FUNCTION.format(**numbers, **operands)

"""Conversions of bfloat16 in LLVM IR, with integer operations.

Called by ``builder``. In memory a bfloat16 is the upper half of a float32. Numbers are rounded to
nearest, ties to even; NaN becomes the quiet NaN of its sign, as in ml_dtypes. LLVM's own type
``bfloat`` is not used: not every target converts it.
"""

from __future__ import annotations

from typing import Any, TypeVar

__all__ = ["load_bfloat16", "round_to_bfloat16", "store_bfloat16"]

Value = TypeVar("Value", bound=Any)  # LLVMValue of ``builder``, which imports this file

_QUIET_NAN, _SIGN = 0x7FC00000, -(1 << 31)


def load_bfloat16(code: Any, text: str) -> Any:
    """Return the value of an ``i16`` from memory, as a float32."""
    wide = code.op("u4", f"zext i16 {text} to i32")
    bits = code.op("u4", f"shl i32 {wide.text}, 16")
    return code.op("f2b", f"bitcast i32 {bits.text} to float")


def store_bfloat16(code: Any, text: str) -> str:
    """Return the ``i16`` of a float32 whose value is one of bfloat16."""
    bits = code.op("u4", f"bitcast float {text} to i32")
    upper = code.op("u4", f"lshr i32 {bits.text}, 16")
    return str(code.op("u2", f"trunc i32 {upper.text} to i16").text)


def round_to_bfloat16(x: Value) -> Value:
    """Round a float32 to the nearest value of bfloat16."""
    code = x.code
    bits = code.op("u4", f"bitcast float {x.text} to i32").text
    upper = code.op("u4", f"lshr i32 {bits}, 16").text
    odd = code.op("u4", f"and i32 {upper}, 1").text
    carry = code.op("u4", f"add i32 {odd}, {0x7FFF}").text
    nearest = code.op("u4", f"add i32 {bits}, {carry}").text
    sign = code.op("u4", f"and i32 {bits}, {_SIGN}").text
    quiet = code.op("u4", f"or i32 {sign}, {_QUIET_NAN}").text
    is_nan = code.op("b1", f"fcmp uno float {x.text}, {x.text}").text
    chosen = code.op("u4", f"select i1 {is_nan}, i32 {quiet}, i32 {nearest}").text
    cut = code.op("u4", f"and i32 {chosen}, {-(1 << 16)}").text
    rounded: Value = code.op("f2b", f"bitcast i32 {cut} to float")
    return rounded

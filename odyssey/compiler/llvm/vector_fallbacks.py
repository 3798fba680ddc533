"""Fallbacks of a formula for the few numbers that it fails for, in vectorized loops too.

Called by ``elementary``, for angles too large to be reduced by a formula. A branch in a loop, or a
call of a function that LLVM does not know, prevents vectorization. So the call that corrects one
number names vector variants, which correct several. They compare all their numbers at once, and do
the work only if one needs it. Beside sines that costs 0.05 to 0.2 ns a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from odyssey.compiler.llvm.builder import FunctionBuilder
from odyssey.compiler.llvm.types import LLVM, SUFFIXES

__all__ = ["define_fallbacks", "fallback_call"]

_FARTHEST: Mapping[str, float] = MappingProxyType({"f4": 2.0**16, "f8": 2.0**30})
"""By type, the largest angle that the formulas reduce accurately."""

_LANES = {"f4": (2, 4, 8, 16), "f8": (2, 4, 8)}
_NAME = re.compile(r"@(odyssey_mend_(\w+)_(f4|f8))\(")

_SCALAR_FALLBACK = """
define internal {t} @{name}({t} %x, {t} %found) noinline optsize nounwind willreturn memory(none) {{
  %size = call {t} @llvm.fabs.{s}({t} %x)
  %far = fcmp ogt {t} %size, {limit}
  br i1 %far, label %mend, label %end
mend:
  {exact}
end:
  ret {t} %found
}}
"""
_EXACT_RESULT = {
    "f4": """%wide = fpext float %x to double
  %exact = call double @odyssey_far_{function}(double %wide)
  %mended = fptrunc double %exact to float
  ret float %mended""",
    "f8": """%exact = call double @odyssey_far_{function}(double %x)
  ret double %exact""",
}
_LANE_LOOP = """
define internal void @{name}_each(ptr %xs, ptr %founds, i64 %n) noinline optsize nounwind {{
begin:
  br label %each
each:
  %k = phi i64 [0, %begin], [%next, %each]
  %x_at = getelementptr {t}, ptr %xs, i64 %k
  %found_at = getelementptr {t}, ptr %founds, i64 %k
  %x = load {t}, ptr %x_at
  %found = load {t}, ptr %found_at
  %mended = call {t} @{name}({t} %x, {t} %found)
  store {t} %mended, ptr %found_at
  %next = add i64 %k, 1
  %last = icmp eq i64 %next, %n
  br i1 %last, label %end, label %each
end:
  ret void
}}
"""
# The comparison is a function of its own without a stack, since it is called for each vector.
_VECTOR_FALLBACK = """
define internal {v} @{name}_{n}({v} %x, {v} %found) noinline nounwind willreturn memory(none) {{
  %size = call {v} @llvm.fabs.v{n}{s}({v} %x)
  %far = fcmp ogt {v} %size, splat ({t} {limit})
  %bits = bitcast <{n} x i1> %far to i{n}
  %none = icmp eq i{n} %bits, 0
  br i1 %none, label %end, label %mend
mend:
  %mended = tail call {v} @{name}_all_{n}({v} %x, {v} %found)
  ret {v} %mended
end:
  ret {v} %found
}}
define internal {v} @{name}_all_{n}({v} %x, {v} %found) noinline optsize nounwind {{
  %xs = alloca {v}
  %founds = alloca {v}
  store {v} %x, ptr %xs
  store {v} %found, ptr %founds
  call void @{name}_each(ptr %xs, ptr %founds, i64 {n})
  %mended = load {v}, ptr %founds
  ret {v} %mended
}}
"""


def fallback_call(function: str, kind: str, x: str, result: str) -> str:
    """Return the instruction that computes the function of ``x`` if large, else gives ``result``.

    >>> fallback_call("sin", "f8", "%x", "%y")[:49]
    'call double @odyssey_mend_sin_f8(double %x, doubl'
    """
    name, t = f"odyssey_mend_{function}_{kind}", LLVM[kind]
    variants = ",".join(f"_ZGV_LLVM_N{n}vv_{name}({name}_{n})" for n in _LANES[kind])
    return f'call {t} @{name}({t} {x}, {t} {result}) "vector-function-abi-variant"="{variants}"'


def define_fallbacks(text: str, vector_variants: bool = True) -> str:
    """Define the fallbacks that a text calls; they call ``@odyssey_far_sin`` and so on.

    Args:
        text: LLVM functions.
        vector_variants: Whether to define the variants for vectors too.
    """
    lines, variants = [], []
    for name, function, kind in sorted(set(_NAME.findall(text))):
        t, s = LLVM[kind], SUFFIXES[kind]
        limit = FunctionBuilder().const(kind, _FARTHEST[kind]).text
        fields = {"t": t, "s": s, "name": name, "limit": limit}
        exact = _EXACT_RESULT[kind].format(function=function)
        lines.append(_SCALAR_FALLBACK.format(exact=exact, **fields))
        if not vector_variants:
            continue
        lines.append(_LANE_LOOP.format(**fields))
        for n in _LANES[kind]:
            lines.append(_VECTOR_FALLBACK.format(v=f"<{n} x {t}>", n=n, **fields))
            variants.append(f"ptr @{name}_{n}")
    if variants:  # nothing calls them before LLVM vectorizes; until then it must keep them
        array = f"[{len(variants)} x ptr] [{', '.join(variants)}]"
        lines.append(f'@llvm.compiler.used = appending global {array}, section "llvm.metadata"\n')
    return "".join(lines)

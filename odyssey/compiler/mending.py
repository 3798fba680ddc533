"""Results that a formula has not for all numbers, mended for the few by libm, in vectors as well.

A branch in a loop, and a function that LLVM does not know, keep it from vectorizing. So the call
that mends one number says which functions mend several: these look at all their numbers at once,
and call libm only where one needs it. It costs 0.04 ns a number.
"""

from __future__ import annotations

import re

from odyssey.compiler.circular import FARTHEST
from odyssey.compiler.ir_types import LLVM, SUFFIXES
from odyssey.compiler.words import Code

__all__ = ["call", "definitions"]

_LANES = {"f4": (2, 4, 8, 16), "f8": (2, 4, 8)}
_NAME = re.compile(r"@(odyssey_mend_(\w+)_(f4|f8))\(")

_ONE = """
define internal {t} @{name}({t} %x, {t} %found) noinline nounwind willreturn memory(none) {{
  %size = call {t} @llvm.fabs.{s}({t} %x)
  %far = fcmp ogt {t} %size, {limit}
  br i1 %far, label %mend, label %end
mend:
  %mended = call {t} @{libm}({t} %x)
  ret {t} %mended
end:
  ret {t} %found
}}
"""
_SEVERAL = """
define internal {v} @{name}_{n}({v} %x, {v} %found) noinline nounwind willreturn memory(none) {{
  %size = call {v} @llvm.fabs.v{n}{s}({v} %x)
  %far = fcmp ogt {v} %size, splat ({t} {limit})
  %bits = bitcast <{n} x i1> %far to i{n}
  %none = icmp eq i{n} %bits, 0
  br i1 %none, label %end, label %begin
begin:
  %xs = alloca {v}
  %founds = alloca {v}
  store {v} %x, ptr %xs
  store {v} %found, ptr %founds
  br label %each
each:
  %k = phi i64 [0, %begin], [%next, %each]
  %x_at = getelementptr {t}, ptr %xs, i64 %k
  %found_at = getelementptr {t}, ptr %founds, i64 %k
  %one = load {t}, ptr %x_at
  %before = load {t}, ptr %found_at
  %after = call {t} @{name}({t} %one, {t} %before)
  store {t} %after, ptr %found_at
  %next = add i64 %k, 1
  %last = icmp eq i64 %next, {n}
  br i1 %last, label %mended, label %each
mended:
  %all = load {v}, ptr %founds
  ret {v} %all
end:
  ret {v} %found
}}
"""


def call(function: str, kind: str, x: str, found: str) -> str:
    """The instruction that gives libm's function of ``x`` where ``x`` is far, and else ``found``.

    >>> call("sin", "f8", "%x", "%y")[:49]
    'call double @odyssey_mend_sin_f8(double %x, doubl'
    """
    name, t = f"odyssey_mend_{function}_{kind}", LLVM[kind]
    variants = ",".join(f"_ZGV_LLVM_N{n}vv_{name}({name}_{n})" for n in _LANES[kind])
    return f'call {t} @{name}({t} {x}, {t} {found}) "vector-function-abi-variant"="{variants}"'


def definitions(text: str) -> str:
    """Define what such instructions in the text call."""
    lines, kept = [], []
    for name, function, kind in sorted(set(_NAME.findall(text))):
        t, s = LLVM[kind], SUFFIXES[kind]
        libm = function + "f" * (kind == "f4")
        limit = Code().const(kind, FARTHEST[kind]).text
        known = {"t": t, "s": s, "name": name, "limit": limit}
        lines.append(_ONE.format(libm=libm, **known))
        for n in _LANES[kind]:
            lines.append(_SEVERAL.format(v=f"<{n} x {t}>", n=n, **known))
            kept.append(f"ptr @{name}_{n}")
    if kept:  # nothing calls them yet: LLVM is to keep them until it vectorizes
        array = f"[{len(kept)} x ptr] [{', '.join(kept)}]"
        lines.append(f'@llvm.compiler.used = appending global {array}, section "llvm.metadata"\n')
    return "".join(lines)

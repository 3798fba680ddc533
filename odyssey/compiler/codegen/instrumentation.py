"""What each kernel of a program takes, counted by the program: for who asks, in a module apart.

The counts stand in a global, ``odyssey_spent``, in nanoseconds: one for each kernel, one for what
is set to 0 before all, one for what is copied into states behind all, and one for the clock itself.
The last counts runs.
"""

from __future__ import annotations

import time

from odyssey.errors import DeviceError

__all__ = ["MORE", "clock"]

MORE = 4
"""How many counts there are beside those of kernels."""


def clock(kernels: int) -> str:
    """The functions that a program with clocks calls, and its counts.

    Args:
        kernels: How many there are.

    Raises:
        DeviceError: this system has no ``clock_gettime``.
    """
    kind = getattr(time, "CLOCK_MONOTONIC", None)
    if kind is None:
        raise DeviceError(
            "profile: this system has no clock_gettime, by which kernels are timed; time whole "
            "calls of the function instead"
        )
    return f"""@odyssey_spent = global [{kernels + MORE} x i64] zeroinitializer
declare i32 @clock_gettime(i32, ptr)
define internal i64 @odyssey_now() noinline {{
  %at = alloca [2 x i64]
  %failed = call i32 @clock_gettime(i32 {kind}, ptr %at)
  %seconds = load i64, ptr %at
  %beside = getelementptr i64, ptr %at, i64 1
  %more = load i64, ptr %beside
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %more
  ret i64 %now
}}
define internal void @odyssey_begin() noinline {{
  %at = getelementptr i64, ptr @odyssey_spent, i64 {kernels + MORE - 1}
  %before = load i64, ptr %at
  %after = add i64 %before, 1
  store i64 %after, ptr %at
  ret void
}}
define internal void @odyssey_add(i64 %number, i64 %start) noinline {{
  %end = call i64 @odyssey_now()
  %spent = sub i64 %end, %start
  %at = getelementptr i64, ptr @odyssey_spent, i64 %number
  %before = load i64, ptr %at
  %after = add i64 %before, %spent
  store i64 %after, ptr %at
  ret void
}}"""

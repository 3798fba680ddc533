"""How many threads the library of products takes, kept in step with programs, as LLVM's text.

While blocks of a product run, the library takes one thread for each; whoever comes first says so,
and whoever leaves last puts back what was there before. Where nobody said how many threads programs
have, or the library lets nobody say, ``ody_enter`` answers 0, and products are left to it whole.
"""

from __future__ import annotations

__all__ = ["BLAS"]

BLAS = """
@ody_get = global ptr null
@ody_set = global ptr null
@gate = internal global i64 0, align 64
@inside = internal global i64 0
@before = internal global i32 0

define internal void @ody_close() noinline optnone {
entry:
  br label %try
try:
  %got = cmpxchg ptr @gate, i64 0, i64 1 seq_cst seq_cst
  %ok = extractvalue {i64, i1} %got, 1
  br i1 %ok, label %done, label %try
done:
  ret void
}

define i64 @ody_enter(i64 %own) {
  %said = load atomic i64, ptr @ody_said monotonic, align 8
  %none = icmp eq i64 %own, 0
  %threads = select i1 %none, i64 %said, i64 %own
  %set = load ptr, ptr @ody_set
  %get = load ptr, ptr @ody_get
  %mute = icmp eq ptr %set, null
  %silent = icmp eq i64 %threads, 0
  %leave = or i1 %mute, %silent
  br i1 %leave, label %alone, label %in
in:
  call void @ody_close()
  %others = load i64, ptr @inside
  %more = add i64 %others, 1
  store i64 %more, ptr @inside
  %first = icmp eq i64 %others, 0
  br i1 %first, label %keep, label %open
keep:
  %was = call i32 %get()
  store i32 %was, ptr @before
  %one = icmp eq i32 %was, 1
  br i1 %one, label %open, label %change
change:
  call void %set(i32 1)
  br label %open
open:
  store atomic i64 0, ptr @gate seq_cst, align 8
  ret i64 %threads
alone:
  ret i64 0
}

define void @ody_leave() {
  call void @ody_close()
  %inside = load i64, ptr @inside
  %less = sub i64 %inside, 1
  store i64 %less, ptr @inside
  %last = icmp eq i64 %less, 0
  br i1 %last, label %back, label %open
back:
  call void @ody_put_back()
  br label %open
open:
  store atomic i64 0, ptr @gate seq_cst, align 8
  ret void
}

define internal void @ody_put_back() noinline optnone {
  %was = load i32, ptr @before
  %one = icmp eq i32 %was, 1
  br i1 %one, label %done, label %change
change:
  %set = load ptr, ptr @ody_set
  call void %set(i32 %was)
  br label %done
done:
  ret void
}

define void @ody_forked() noinline optnone {
  store atomic i64 0, ptr @gate seq_cst, align 8
  %inside = load i64, ptr @inside
  store i64 0, ptr @inside
  %idle = icmp eq i64 %inside, 0
  br i1 %idle, label %done, label %back
back:
  call void @ody_put_back()
  br label %done
done:
  ret void
}
"""
"""The functions, which ask for ``ody_said`` of the pool."""

"""Thread pool in LLVM IR, and the number of threads of the BLAS library while it is in use.

One job at a time is shared. A program that finds the pool busy runs its blocks alone, and so does a
program that is limited to one thread. A block is an index below ``count``, and its result does not
depend on the thread that runs it, so results do not depend on the number of threads. Waiting
threads spin for a while, without system calls, and then sleep. Functions that run seldom, or wait,
are not optimized, which would take longer than all that they do.

While blocks of a product run, the BLAS library uses one thread for each. ``ody_enter`` of the first
such program sets that, and ``ody_leave`` of the last restores the number from before. Where no
number of threads was set, or the library has no function to set it, ``ody_enter`` returns 0, and
the library chooses its threads.
"""

from __future__ import annotations

from odyssey.compiler.machine.thread_count import MAX_THREADS

__all__ = ["BLAS_THREADS", "SINGLE_THREADED", "thread_pool_text"]


BLAS_THREADS = """
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
"""Functions that limit the threads of the BLAS library; they read ``ody_said`` of the pool."""


# Spins before a thread sleeps, each of some 20 to 60 ns: the pauses between the loops of a program
# are mostly shorter than the 30 microseconds that it takes to wake a thread. Now and then a thread
# that spins yields: on a busy machine it may keep the one that it waits for from running.
_SPINS = 800

# Instructions that tell a processor that a thread spins.
_PAUSES = {
    "x86_64": "call void @llvm.x86.sse2.pause()",
    "amd64": "call void @llvm.x86.sse2.pause()",
    "aarch64": "call void @llvm.aarch64.hint(i32 1)",
    "arm64": "call void @llvm.aarch64.hint(i32 1)",
}

_SINGLE_THREADED = """
@ody_said = global i64 0
define void @ody_parallel(ptr %work, ptr %given, i64 %count, i64 %own) {
  call void %work(ptr %given, i64 0, i64 %count)
  ret void
}
"""

_POOL = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()

@ody_said = global i64 0
@ody_started = global i64 0
@busy = internal global i64 0, align 64
@turn = internal global i64 0, align 64
@next = internal global i64 0, align 64
@tickets = internal global i64 0, align 64
@active = internal global i64 0, align 64
@asleep = internal global i64 0, align 64
@closed = internal global i64 0, align 64
@stop = internal global i64 0, align 64
@holds = internal global i64 0, align 64
@work = internal global ptr null, align 64
@given = internal global ptr null
@count = internal global i64 0
@ids = internal global [@MOST x ptr] zeroinitializer
@mutex = internal global [256 x i8] zeroinitializer, align 64
@condition = internal global [256 x i8] zeroinitializer, align 64

define void @ody_prepare() noinline optnone {
  %a = call i32 @pthread_mutex_init(ptr @mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr @condition, ptr null)
  ret void
}

define internal void @ody_take() {
entry:
  %work = load ptr, ptr @work
  %given = load ptr, ptr @given
  %count = load i64, ptr @count
  br label %head
head:
  %k = atomicrmw add ptr @next, i64 1 seq_cst
  %more = icmp slt i64 %k, %count
  br i1 %more, label %body, label %done
body:
  %after = add i64 %k, 1
  call void %work(ptr %given, i64 %k, i64 %after)
  br label %head
done:
  ret void
}

define internal ptr @ody_worker(ptr %begin) noinline optnone {
entry:
  %first = ptrtoint ptr %begin to i64
  br label %wait
wait:
  %seen = phi i64 [%first, %entry], [%now, %finished]
  br label %spin
spin:
  %looks = phi i64 [0, %wait], [%more, %pause], [%more, %give]
  %there = load atomic i64, ptr @turn seq_cst, align 64
  %same = icmp eq i64 %there, %seen
  br i1 %same, label %still, label %woken
still:
  %more = add i64 %looks, 1
  %long = icmp sgt i64 %more, @LOOKS
  br i1 %long, label %sleep, label %pause
pause:
  @PAUSE
  %often = and i64 %more, 15
  %now_and_then = icmp eq i64 %often, 0
  br i1 %now_and_then, label %give, label %spin
give:
  %g = call i32 @sched_yield()
  br label %spin
sleep:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %s = atomicrmw add ptr @asleep, i64 1 seq_cst
  br label %look
look:
  %here = load atomic i64, ptr @turn seq_cst, align 64
  %alike = icmp eq i64 %here, %seen
  br i1 %alike, label %rest, label %rise
rest:
  %c = call i32 @pthread_cond_wait(ptr @condition, ptr @mutex)
  br label %look
rise:
  %r = atomicrmw sub ptr @asleep, i64 1 seq_cst
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %woken
woken:
  %now = load atomic i64, ptr @turn seq_cst, align 64
  %stop = load atomic i64, ptr @stop seq_cst, align 64
  %end = icmp ne i64 %stop, 0
  br i1 %end, label %out, label %join
join:
  %a = atomicrmw add ptr @active, i64 1 seq_cst
  %ticket = atomicrmw sub ptr @tickets, i64 1 seq_cst
  %may = icmp sgt i64 %ticket, 0
  br i1 %may, label %in, label %finished
in:
  call void @ody_take()
  br label %finished
finished:
  %z = atomicrmw sub ptr @active, i64 1 seq_cst
  br label %wait
out:
  ret ptr null
}

define internal void @ody_call_all() {
  %turn = atomicrmw add ptr @turn, i64 1 seq_cst
  %asleep = load atomic i64, ptr @asleep seq_cst, align 64
  %some = icmp sgt i64 %asleep, 0
  br i1 %some, label %wake, label %done
wake:
  %l = call i32 @pthread_mutex_lock(ptr @mutex)
  %b = call i32 @pthread_cond_broadcast(ptr @condition)
  %u = call i32 @pthread_mutex_unlock(ptr @mutex)
  br label %done
done:
  ret void
}

define internal void @ody_start(i64 %wanted) noinline optnone {
entry:
  %all = alloca [256 x i8], align 64
  %old = alloca [256 x i8], align 64
  %attributes = alloca [256 x i8], align 64
  %there = load i64, ptr @ody_started
  %enough = icmp sge i64 %there, %wanted
  br i1 %enough, label %done, label %some
some:
  call void @llvm.memset.p0.i64(ptr %all, i8 -1, i64 256, i1 false)
  %m = call i32 @pthread_sigmask(i32 @SETMASK, ptr %all, ptr %old)
  %i = call i32 @pthread_attr_init(ptr %attributes)
  %s = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 8388608)
  %turn = load atomic i64, ptr @turn seq_cst, align 64
  %begin = inttoptr i64 %turn to ptr
  br label %more
more:
  %k = phi i64 [%there, %some], [%after, %made]
  %id = getelementptr ptr, ptr @ids, i64 %k
  %failed = call i32 @pthread_create(ptr %id, ptr %attributes, ptr @ody_worker, ptr %begin)
  %fine = icmp eq i32 %failed, 0
  br i1 %fine, label %made, label %over
made:
  %after = add i64 %k, 1
  store i64 %after, ptr @ody_started
  %less = icmp slt i64 %after, %wanted
  br i1 %less, label %more, label %over
over:
  %d = call i32 @pthread_attr_destroy(ptr %attributes)
  %b = call i32 @pthread_sigmask(i32 @SETMASK, ptr %old, ptr null)
  br label %done
done:
  ret void
}

define void @ody_parallel(ptr %work, ptr %given, i64 %count, i64 %own) {
entry:
  %said = load atomic i64, ptr @ody_said monotonic, align 8
  %none = icmp eq i64 %own, 0
  %want = select i1 %none, i64 %said, i64 %own
  %threads = call i64 @llvm.smin.i64(i64 %want, i64 %count)
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %ask, label %alone
ask:
  %closed = load atomic i64, ptr @closed seq_cst, align 64
  %open = icmp eq i64 %closed, 0
  br i1 %open, label %try, label %alone
try:
  %got = cmpxchg ptr @busy, i64 0, i64 1 seq_cst seq_cst
  %ok = extractvalue {i64, i1} %got, 1
  br i1 %ok, label %all, label %alone
all:
  %helpers = sub i64 %threads, 1
  call void @ody_start(i64 %helpers)
  store ptr %work, ptr @work
  store ptr %given, ptr @given
  store i64 %count, ptr @count
  store atomic i64 0, ptr @next seq_cst, align 64
  store atomic i64 %helpers, ptr @tickets seq_cst, align 64
  call void @ody_call_all()
  call void @ody_take()
  %t = atomicrmw xchg ptr @tickets, i64 0 seq_cst
  br label %wait
wait:
  %looks = phi i64 [0, %all], [%more, %on]
  %active = load atomic i64, ptr @active seq_cst, align 64
  %done = icmp eq i64 %active, 0
  br i1 %done, label %end, label %still
still:
  @PAUSE
  %more = add i64 %looks, 1
  %often = and i64 %more, 63
  %long = icmp eq i64 %often, 0
  br i1 %long, label %yield, label %on
yield:
  %y = call i32 @sched_yield()
  br label %on
on:
  br label %wait
end:
  store atomic i64 0, ptr @busy seq_cst, align 64
  ret void
alone:
  call void %work(ptr %given, i64 0, i64 %count)
  ret void
}

define void @ody_hold() noinline optnone {
entry:
  %before = atomicrmw add ptr @holds, i64 1 seq_cst
  %first = icmp eq i64 %before, 0
  br i1 %first, label %close, label %out
close:
  store atomic i64 1, ptr @closed seq_cst, align 64
  br label %try
try:
  %got = cmpxchg ptr @busy, i64 0, i64 1 seq_cst seq_cst
  %ok = extractvalue {i64, i1} %got, 1
  br i1 %ok, label %held, label %again
again:
  %y = call i32 @sched_yield()
  br label %try
held:
  store atomic i64 1, ptr @stop seq_cst, align 64
  call void @ody_call_all()
  br label %head
head:
  %k = load i64, ptr @ody_started
  %some = icmp sgt i64 %k, 0
  br i1 %some, label %join, label %done
join:
  %less = sub i64 %k, 1
  %at = getelementptr ptr, ptr @ids, i64 %less
  %id = load ptr, ptr %at
  %j = call i32 @pthread_join(ptr %id, ptr null)
  store i64 %less, ptr @ody_started
  br label %head
done:
  store atomic i64 0, ptr @stop seq_cst, align 64
  br label %out
out:
  ret void
}

define void @ody_open() noinline optnone {
entry:
  %holds = load atomic i64, ptr @holds seq_cst, align 64
  %held = icmp sgt i64 %holds, 0
  br i1 %held, label %less, label %done
less:
  %before = atomicrmw sub ptr @holds, i64 1 seq_cst
  %last = icmp eq i64 %before, 1
  br i1 %last, label %open, label %done
open:
  store atomic i64 0, ptr @closed seq_cst, align 64
  store atomic i64 0, ptr @busy seq_cst, align 64
  br label %done
done:
  ret void
}

define void @ody_reopen() noinline optnone {
  store atomic i64 0, ptr @holds seq_cst, align 64
  store atomic i64 0, ptr @closed seq_cst, align 64
  store atomic i64 0, ptr @busy seq_cst, align 64
  ret void
}
"""


SINGLE_THREADED = BLAS_THREADS + _SINGLE_THREADED
"""LLVM text of the pool on systems without threads."""


def thread_pool_text(machine: str, set_mask: int) -> str:
    """Return the LLVM text of the pool for a processor.

    Args:
        machine: Name of the processor, as ``platform.machine()`` returns it.
        set_mask: Value of ``SIG_SETMASK`` on this system.
    """
    text = _POOL.replace("@MOST", str(MAX_THREADS)).replace("@LOOKS", str(_SPINS))
    text = text.replace("@SETMASK", str(set_mask))
    pause = _PAUSES.get(machine.lower(), "")
    declared = [
        "declare i64 @llvm.smin.i64(i64, i64)",
        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)",
    ]
    if "x86" in pause:
        declared.append("declare void @llvm.x86.sse2.pause()")
    elif pause:
        declared.append("declare void @llvm.aarch64.hint(i32)")
    return "\n".join([*declared, text.replace("@PAUSE", pause), BLAS_THREADS])

"""Text of LLVM as something to call, against what the same text says by hand."""

import ctypes
import gc
import os
import re
import subprocess
import sys
import time
import weakref

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.machine import jit, target
from odyssey.compiler.machine.elf_loader import is_supported
from odyssey.compiler.machine.jit import (
    MissingSymbolError,
    available,
    builtin,
    load,
    unavailable_reason,
)
from odyssey.errors import DeviceError, OdysseyError, SettingError
from odyssey.kernels import llvm_locks
from support.native_text import SCALED, check_scaled

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")

ADD = """
@count = global i64 40
declare i64 @other(i64)
define i64 @f(i64 %x) {
  %count = load i64, ptr @count
  %y = call i64 @other(i64 %x)
  %z = add i64 %y, %count
  ret i64 %z
}
"""

CALLED = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    return tmp_path / "native"


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def test_two_programs_know_two_functions_by_one_name_and_share_no_globals():
    one, ten = CALLED(lambda x: x + 1), CALLED(lambda x: x + 10)
    first, second = (load(ADD, {"other": address(f)}) for f in (one, ten))
    ctypes.c_int64.from_address(first.address("count")).value = 100
    assert CALLED(first.address("f"))(5) == 5 + 1 + 100
    assert CALLED(second.address("f"))(5) == 5 + 10 + 40


def test_a_second_load_reads_what_the_first_wrote_and_does_not_optimise():
    one = CALLED(lambda x: x + 1)
    cold, warm = (load(ADD, {"other": address(one)}) for _ in range(2))
    assert set(cold.seconds) == {"parse", "optimise", "emit", "write", "link"}
    assert set(warm.seconds) == {"read", "link"}
    assert CALLED(warm.address("f"))(5) == 46


def test_a_name_that_is_nowhere_is_an_error_with_a_reason():
    with pytest.raises(MissingSymbolError, match="'g' is not in this program"):
        load(ADD, {"other": address(CALLED(abs))}).address("g")
    with pytest.raises(KeyError, match="'f' is not in this program"):
        load(ADD).address("f")
    with pytest.raises(OdysseyError, match="LLVM refuses"):
        load("define i64 @f() { ret i32 0 }")


BUILTIN = """
declare ptr @PyLong_FromSsize_t(i64)
define ptr @count(ptr %self, ptr %args, i64 %n) {
  %made = call ptr @PyLong_FromSsize_t(i64 %n)
  ret ptr %made
}
"""


def test_a_builtin_is_called_with_its_arguments_and_keeps_its_code_alive():
    loaded = load(BUILTIN)
    count = builtin(loaded.address("count"), "count", loaded)
    del loaded
    assert [count(), count(1), count(*range(7))] == [0, 1, 7]
    assert count.__name__ == "count"
    with pytest.raises(TypeError, match="count"):
        count(x=1)


FAILING = """
declare void @PyErr_SetNone(ptr)
@PyExc_ZeroDivisionError = external global ptr
define ptr @fail(ptr %self, ptr %args, i64 %n) {
  %kind = load ptr, ptr @PyExc_ZeroDivisionError
  call void @PyErr_SetNone(ptr %kind)
  ret ptr null
}
"""


def test_a_builtin_raises_what_its_code_sets():
    loaded = load(FAILING)
    with pytest.raises(ZeroDivisionError):
        builtin(loaded.address("fail"), "fail", loaded)()


def test_what_a_builtin_keeps_is_let_go_with_it():
    loaded = load(BUILTIN)
    known = weakref.ref(loaded)
    count = builtin(loaded.address("count"), "count", loaded)
    del loaded
    gc.collect()
    assert known() is not None
    del count
    gc.collect()
    assert known() is None


LAST_CALL = """
import gc
from odyssey.compiler.machine.jit import builtin, load

class Trainer:
    def __init__(self, loaded):
        self.count = builtin(loaded.address("count"), "count", loaded)
        self.me = self

    def __del__(self):
        said.append(self.count(1, 2))

said = []
for _ in range(3):
    Trainer(load({text!r}))
    Trainer(load({text!r})).count(1)
gc.collect()
print(said)
"""


@pytest.mark.slow
def test_what_a_collected_cycle_calls_at_its_end_is_still_there():
    program = LAST_CALL.format(text=BUILTIN)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{[2] * 6}\n"


def test_a_thousand_programs_come_and_go_in_the_same_memory():
    resource = pytest.importorskip("resource")
    text = SCALED.format(name="", factor=3)

    def grown(count):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(count):
            check_scaled(load(text), 3)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before

    grown(100)
    assert grown(1000) < 20 << 10  # kB where they are counted so; one program takes 180


# ------------------------------------------------------------------ processors


LEVELS = ["x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"]


def test_code_for_a_lower_level_of_processors_does_without_what_it_lacks(cache):
    text, made, refused = SCALED.format(name="", factor=5), {}, []
    for cpu in ["", *LEVELS]:
        try:
            loaded = load(text, cpu=cpu)
        except SettingError as error:
            refused.append(str(error))
            continue
        check_scaled(loaded, 5)
        made[cpu] = loaded.assembly()
        assert "parse" in loaded.seconds  # not that of another level
        assert len(list(cache.iterdir())) == len(made)
    assert all("lacks" in said or "none of []" in said for said in refused)
    if "x86-64" in made:
        assert "mulps" in made["x86-64"]
        assert "ymm" not in made["x86-64"] + made.get("x86-64-v2", "")
    if "x86-64-v3" in made:
        assert "ymm" in made["x86-64-v3"]
        assert "zmm" not in made["x86-64-v3"]


def test_a_level_that_is_unknown_or_above_this_processor_is_refused(monkeypatch):
    for cpu in ("x86-64-v5", "nonsense", "znver9", "X86-64"):
        with pytest.raises(SettingError, match="is none of"):
            load(BUILTIN, cpu=cpu)
    old = dict.fromkeys([*target._LEVELS["x86-64"], *target._LEVELS["x86-64-v2"]], True)
    target._check_level("x86-64-v2", old)
    with pytest.raises(SettingError, match=r"needs avx, avx2, .* this processor lacks"):
        target._check_level("x86-64-v3", old | {"avx": False})
    with pytest.raises(SettingError, match=r"none of \[\] here"):
        target._check_level("x86-64", {"neon": True})


# ------------------------------------------------------------------ the disk


def test_what_was_damaged_on_disk_is_compiled_again_and_then_read(cache):
    text = SCALED.format(name="", factor=7)
    load(text)
    (path,) = cache.iterdir()
    path.write_bytes(path.read_bytes()[:-1])
    again, warm = load(text), load(text)
    assert "parse" in again.seconds
    assert "read" in warm.seconds
    check_scaled(again, 7)
    check_scaled(warm, 7)


def test_without_a_place_on_disk_programs_are_compiled_each_time(cache, monkeypatch):
    for given in ("off", os.path.join(__file__, "below")):
        monkeypatch.setenv("ODYSSEY_CACHE", given)
        for _ in range(2):
            loaded = load(SCALED.format(name="", factor=7))
            assert "parse" in loaded.seconds
            check_scaled(loaded, 7)
    assert not cache.exists()


def test_code_of_ten_kilobytes_is_loaded_from_disk_within_ten_milliseconds(cache):
    text = "".join(SCALED.format(name=k, factor=k + 2) for k in range(30))
    load(text)
    assert next(cache.iterdir()).stat().st_size > 9000
    taken = []
    for _ in range(5):
        start = time.process_time()
        loaded = load(text)
        loaded.address("scaled3")
        taken.append(time.process_time() - start)
        assert "read" in loaded.seconds
    check_scaled(loaded, 31, 29)
    assert min(taken) < 0.01


TWICE = """
import ctypes, sys
from odyssey.compiler.machine.jit import load

for k in range(12):
    text = f"define i64 @f() {{{{ ret i64 {k} }}}}".format()
    loaded = load(text)
    assert ctypes.CFUNCTYPE(ctypes.c_int64)(loaded.address("f"))() == k
print("read" in loaded.seconds)
"""


@pytest.mark.slow
def test_processes_that_compile_the_same_at_once_are_right_and_leave_quietly(cache):
    children = [
        subprocess.Popen(
            [sys.executable, "-c", TWICE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0, 0], said
    assert [errors for _, errors in said] == ["", ""]
    assert len(list(cache.iterdir())) == 12 + is_supported()  # and what LLVM says of this machine


# ------------------------------------------------------------------ where it cannot be


def test_a_child_left_in_the_middle_of_llvm_says_so(monkeypatch):
    loaded = load(BUILTIN)
    place = loaded.address("count")
    failures = []
    for module in (jit, llvm_locks):
        monkeypatch.setattr(module, "FORK_FAILURES", failures)
    llvm_locks.mark_fork_failure()
    assert not available()
    for ask in (lambda: load(BUILTIN), lambda: loaded.address("g"), loaded.assembly):
        with pytest.raises(DeviceError, match=r"was forked while .*; everything else works"):
            ask()
    assert loaded.address("count") == place  # what is known needs no LLVM


WITHOUT = """
import sys

sys.modules["llvmlite"] = None
from odyssey.compiler.machine.jit import available, load, unavailable_reason
from odyssey.errors import DeviceError
from odyssey.kernels import llvm_locks

assert not available()
assert "pip install llvmlite" in unavailable_reason()
try:
    load("")
except DeviceError as error:
    print(error)
"""


@pytest.mark.slow
def test_without_llvmlite_the_reason_is_told():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(
        "load: machine code cannot be generated: llvmlite cannot be imported"
    )


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("check_jit_execution", OSError(13, "forbidden"), "does not work here .*forbidden"),
        ("initialize_native_target", RuntimeError("broken"), "does not work here .*broken"),
        ("create_lljit_compiler", None, "is too old .*create_lljit_compiler"),
    ],
)
def test_an_llvmlite_that_does_not_work_is_a_reason_too(monkeypatch, name, error, said):
    from llvmlite import binding

    def fail():
        raise error

    if error is None:
        monkeypatch.delattr(binding, name)
    else:
        monkeypatch.setattr(binding, name, fail)
    known = jit._static_unavailable_reason, jit._llvm_failure, target.host_fingerprint
    for one in known:
        one.cache_clear()
    try:
        assert re.search(said, unavailable_reason())
        assert not available()
    finally:
        for one in known:
            one.cache_clear()


@pytest.mark.slow
def test_importing_the_package_and_its_compiler_does_not_import_llvmlite():
    program = "import sys, odyssey.compiler.machine.jit; sys.exit('llvmlite' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_here_it_can_be():
    assert unavailable_reason() is None
    assert available()


def test_a_short_loop_that_calls_the_c_library_is_compiled_without_a_remark(
    capfd, monkeypatch, tmp_path
):
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    x = np.array([0.3, -1.7, 2.9])
    slope = od.grad(lambda x: ops.sum(ops.selu(ops.fmod(x, ops.square(x) + 0.531))))
    compiled = od.compile(slope)
    for _ in range(2):
        found = compiled(x)
    assert compiled.explain(x).startswith("a program")
    np.testing.assert_allclose(found, slope(x), rtol=1e-12)
    assert capfd.readouterr().err == ""

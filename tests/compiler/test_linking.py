"""Code that is put into memory without LLVM is what LLVM would put there; all else is LLVM's."""

import ctypes
import resource
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.machine import elf_loader, jit
from odyssey.compiler.machine.jit import MissingSymbolError, load
from odyssey.compiler.machine.target import target_of

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")
here = pytest.mark.skipif(not elf_loader.is_supported(), reason="LLVM links all programs here")

TEXT = """
@table = global [4 x i64] [i64 1, i64 2, i64 3, i64 4]
@count = global i64 0
@zeros = global [5000 x i64] zeroinitializer
@names = internal constant [3 x ptr] [ptr @table, ptr @count, ptr @bumped]
declare i64 @other(i64)
declare i64 @strlen(ptr)
declare double @llvm.exp.f64(double)
define i64 @bumped() {
  %n = load i64, ptr @count
  %m = add i64 %n, 1
  store i64 %m, ptr @count
  ret i64 %m
}
define i64 @f(i64 %k) {
  %at = getelementptr ptr, ptr @names, i64 0
  %table = load ptr, ptr %at
  %place = getelementptr i64, ptr %table, i64 %k
  %x = load i64, ptr %place
  %last = getelementptr ptr, ptr @names, i64 2
  %call = load ptr, ptr %last
  %n = call i64 %call()
  %y = call i64 @other(i64 %x)
  %z = add i64 %y, %n
  ret i64 %z
}
define double @g(double %x) {
  %y = fmul double %x, 3.14159
  ret double %y
}
define i64 @length(ptr %text) {
  %n = call i64 @strlen(ptr %text)
  ret i64 %n
}
"""

WHOLE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
REAL = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)
LENGTH = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_char_p)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    return tmp_path / "native"


@pytest.fixture
def code(monkeypatch):
    """The object file of TEXT."""
    kept = []

    def link(code, symbols):
        kept.append(code)

    with monkeypatch.context() as patch:
        patch.setattr(jit, "link_object", link)
        load(TEXT, OTHER)
    return kept[0]


TEN_TIMES = WHOLE(lambda x: 10 * x)
OTHER = {"other": ctypes.cast(TEN_TIMES, ctypes.c_void_p).value}


def check(place):
    f, g, length = WHOLE(place("f")), REAL(place("g")), LENGTH(place("length"))
    assert [f(k) for k in range(4)] == [10 + 1, 20 + 2, 30 + 3, 40 + 4]
    assert g(2.0) == 2.0 * 3.14159
    assert length(b"twelve chars") == 12
    assert ctypes.c_int64.from_address(place("count")).value == 4
    zeros = (ctypes.c_int64 * 5000).from_address(place("zeros"))
    assert not any(zeros)
    zeros[4999] = 7


@pytest.mark.parametrize("by", ["here", "llvm"])
def test_code_does_what_its_text_says_whoever_links_it(by, monkeypatch):
    if by == "llvm":
        monkeypatch.setattr(jit, "link_object", lambda code, symbols: None)
    for _ in range(2):  # made, and read from the disk
        loaded = load(TEXT, OTHER)
        assert (loaded._engine is None) is (by == "here" and elf_loader.is_supported())
        check(loaded.address)
        with pytest.raises(MissingSymbolError, match="'nothing' is not in this program"):
            loaded.address("nothing")


@here
def test_programs_share_no_globals(code):
    one, other = (elf_loader.link_object(code, OTHER) for _ in range(2))
    check(one.addresses.__getitem__)
    check(other.addresses.__getitem__)


@here
def test_code_cannot_be_written_and_data_cannot_be_run(code):
    linked = elf_loader.link_object(code, OTHER)
    places = linked.addresses
    rights = {}
    with open("/proc/self/maps") as file:
        for line in file:
            start, end = (int(x, 16) for x in line.split()[0].split("-"))
            for name in ("f", "count", "zeros"):
                if start <= places[name] < end:
                    rights[name] = line.split()[1]
    assert rights == {"f": "r-xp", "count": "rw-p", "zeros": "rw-p"}


@here
def test_memory_is_given_back():
    def size():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0])

    kept = None
    for k in range(400):
        kept = load(TEXT, OTHER)
        check(kept.address)
        if k == 50:
            before = size()
    assert size() - before < 200  # pages; each program has a dozen


@here
def test_what_is_damaged_or_strange_is_left_to_llvm(code):
    assert elf_loader.link_object(code, OTHER) is not None
    assert elf_loader.link_object(code, {}) is None  # a name that is nowhere
    assert elf_loader.link_object(b"", OTHER) is None
    for end in range(0, len(code), 37):
        elf_loader.link_object(code[:end], OTHER)  # nothing is run, and nothing raised
    assert elf_loader.link_object(code[: len(code) // 2], OTHER) is None
    other_machine = code[:18] + struct.pack("<H", 183) + code[20:]
    assert elf_loader.link_object(other_machine, OTHER) is None
    kinds = set()
    (sections,) = struct.unpack_from("<Q", code, 0x28)
    for k in range(struct.unpack_from("<H", code, 0x3C)[0]):
        section = struct.unpack_from("<IIQQQQIIQQ", code, sections + 64 * k)
        if (
            section[1] == 4
            and struct.unpack_from("<IIQQQQIIQQ", code, sections + 64 * section[7])[2] & 4
        ):
            at = section[4] + 8
            changed = bytearray(code)
            kinds.add(struct.unpack_from("<I", code, at)[0])
            struct.pack_into("<I", changed, at, 2)  # a difference of 32 bits
            assert elf_loader.link_object(bytes(changed), OTHER) is None
    assert kinds == {1}


@here
def test_variables_of_threads_are_left_to_llvm():
    text = """
@own = thread_local global i64 3
define ptr @place() {
  %p = call ptr @llvm.threadlocal.address.p0(ptr @own)
  ret ptr %p
}
declare ptr @llvm.threadlocal.address.p0(ptr)
"""
    try:
        loaded = load(text)
    except Exception:  # LLVM has its own reasons
        return
    assert loaded._engine is not None


WARM = """
import sys
import numpy as np
import odyssey as od

x = np.linspace(-1.0, 1.0, 8)
f = od.compile(lambda x: od.ops.exp(od.ops.tanh(x) * 2.0) + x)
for _ in range(4):
    y = f(x)
np.testing.assert_allclose(y, np.exp(np.tanh(x) * 2.0) + x, rtol=1e-14)
assert f.statistics().native == 3
print("llvmlite.binding" in sys.modules)
"""


@pytest.mark.slow
@here
def test_a_program_that_lies_on_disk_needs_no_llvm():
    said = [
        subprocess.run([sys.executable, "-c", WARM], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [one.stdout.strip() for one in said] == ["True", "False"]


@here
def test_a_child_has_globals_of_its_own():
    import os

    loaded = load(TEXT, OTHER)
    f = WHOLE(loaded.address("f"))
    assert f(0) == 11
    child = os.fork()
    if not child:
        f(0)
        f(0)
        os._exit(0)
    os.waitpid(child, 0)
    assert ctypes.c_int64.from_address(loaded.address("count")).value == 1


def test_programs_are_the_same_by_whichever_linker(monkeypatch):
    x = np.linspace(-2.0, 2.0, 1000)
    fn = lambda x: od.ops.sum(od.ops.sin(x * 1e6) * od.ops.exp(x))  # noqa: E731
    found = []
    for link in (jit.link_object, lambda code, symbols: None):
        monkeypatch.setattr(jit, "link_object", link)
        compiled = od.compile(fn)
        found.append([float(compiled(x)) for _ in range(3)][-1])
        assert compiled.statistics().native == 2
    assert found[0] == found[1]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads Linux's /proc")
def test_compilation_leaves_at_most_ten_kilobytes():
    """llvmlite does not dispose of pass managers, of which each holds 30 to 100 kB."""
    assert jit._llvm_failure() is None  # initializes LLVM
    target = target_of("")
    text = "define i64 @f(i64 %x) {\n  %y = add i64 %x, 1\n  ret i64 %y\n}"

    def compile_many(count):
        for _ in range(count):
            with jit._OptimizedModule(text, target, {}):
                pass

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    compile_many(20)
    before = resident()
    compile_many(80)
    assert resident() - before < 80 * 10_000

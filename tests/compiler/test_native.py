"""Text of LLVM as something to call, against what the same text says by hand."""

import ctypes

import pytest

from odyssey.compiler.native import MissingSymbolError, builtin, load
from odyssey.errors import OdysseyError

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
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path / "cache"))


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
    with pytest.raises(MissingSymbolError, match="'g' cannot be had"):
        load(ADD, {"other": address(CALLED(abs))}).address("g")
    with pytest.raises(KeyError, match="'f' cannot be had"):
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

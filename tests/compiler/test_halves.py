"""Numbers of half precision made of integers, and by the processor, against NumPy's."""

import ctypes

import numpy as np
import pytest

from odyssey.compiler.machine.jit import load
from odyssey.errors import SettingError

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")

# By the functions themselves; and by LLVM, which calls them where the processor cannot do it.
OWN = "declare {to} @{name}({of})", "call {to} @{name}({of} %v)"
LLVMS = "", "{word} {of} %v to {to}"

WAYS = {
    "__extendhfsf2": ("fpext", "half", "float", np.float16, np.float32),
    "__truncsfhf2": ("fptrunc", "float", "half", np.float32, np.float16),
    "__truncdfhf2": ("fptrunc", "double", "half", np.float64, np.float16),
}

LOOP = """
define void @convert(ptr %x, ptr %y, i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%j, %loop]
  %p = getelementptr {of}, ptr %x, i64 %i
  %q = getelementptr {to}, ptr %y, i64 %i
  %v = load {of}, ptr %p
  %w = {convert}
  store {to} %w, ptr %q
  %j = add i64 %i, 1
  %c = icmp slt i64 %j, %n
  br i1 %c, label %loop, label %done
done:
  ret void
}}
"""


def numbers(dtype):
    """All halves, what lies in the middle of two and beside that, and any bits."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    if dtype is np.float16:
        return every
    wide = every[np.isfinite(every)].astype(dtype)
    wide = np.append(np.sort(wide), np.array([65520, 65535, 65536, 1e30, np.inf], dtype))
    middles = (wide[1:-1] + wide[:-2]) / 2
    beside = [np.nextafter(middles, dtype(side)) for side in (-np.inf, np.inf)]
    bits = np.random.default_rng(5).integers(0, 256, 200_000 * dtype().itemsize, np.uint8)
    some = np.concatenate([wide, -wide, middles, -middles, *beside, bits.view(dtype)])
    narrow = np.random.default_rng(6).standard_normal(100_000) * 2.0 ** -(np.arange(100_000) % 40)
    return np.append(some, narrow.astype(dtype)).astype(dtype)


@pytest.mark.parametrize("cpu", ["", "x86-64-v2", "x86-64-v3"])
@pytest.mark.parametrize("way", [OWN, LLVMS], ids=["own", "by LLVM"])
@pytest.mark.parametrize("name", WAYS)
def test_every_number_is_converted_as_numpy_does(name, way, cpu, tmp_path, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    word, of, to, source, target = WAYS[name]
    before, convert = (part.format(word=word, of=of, to=to, name=name) for part in way)
    try:
        program = load(before + LOOP.format(of=of, to=to, convert=convert), cpu=cpu)
    except SettingError:
        pytest.skip("not this processor")
    x = numbers(source)
    made = np.empty(x.size, target)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
    run(program.address("convert"))(x.ctypes.data, made.ctypes.data, x.size)
    with np.errstate(all="ignore"):
        expected = x.astype(target)
    missing = np.isnan(expected)
    assert np.array_equal(np.isnan(made), missing)
    assert np.array_equal(np.signbit(made), np.signbit(expected))
    unsigned = f"u{made.itemsize}"
    assert np.array_equal(made[~missing].view(unsigned), expected[~missing].view(unsigned))

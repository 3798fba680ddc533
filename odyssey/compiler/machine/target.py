"""The processor that code is made for, and what of it decides which code on disk is for it.

To ask LLVM for it takes longer than to load a program. So what it said is kept on disk, by what the
system says of this machine and by the library that was asked.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from odyssey.checks import format_value
from odyssey.compiler.machine import disk_cache
from odyssey.compiler.machine.elf_loader import is_supported
from odyssey.errors import SettingError

__all__ = [
    "SPEED",
    "Target",
    "store_host_fingerprint",
    "host_fingerprint",
    "target_of",
    "target_fingerprint",
]

# What is asked of LLVM; code on disk was made by the same.
SPEED = 2
_CODE = 3


class Target(NamedTuple):
    """A processor that code is made for."""

    machine: Any
    words: tuple[str, ...]


# What a processor of each level has that those below it may lack.
_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": ("sse2",),
    "x86-64-v2": ("cx16", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def _check_level(cpu: str, features: Mapping[str, bool]) -> None:
    # LLVM ends the process over a name that it does not know.
    levels = list(_LEVELS) if features.get("sse2") else []
    if cpu not in levels:
        raise SettingError(f"load: cpu={format_value(cpu)} is none of {levels} here; leave it out")
    wanted = [name for level in levels[: levels.index(cpu) + 1] for name in _LEVELS[level]]
    if missing := [name for name in wanted if not features.get(name)]:
        raise SettingError(
            f"load: cpu={format_value(cpu)} needs {', '.join(missing)}, which this processor "
            "lacks; pass a level below, or leave it out"
        )


@cache
def target_of(cpu: str) -> Target:
    """A level of processors, or that of this machine."""
    import llvmlite
    from llvmlite import binding as llvm

    here = llvm.get_host_cpu_features()
    if cpu:
        _check_level(cpu, here)
    name = cpu or llvm.get_host_cpu_name()
    features = "" if cpu else here.flatten()
    triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=name, features=features, opt=_CODE, jit=True
    )
    version = ".".join(map(str, llvm.llvm_version_info))
    recipe = f"O{SPEED} O{_CODE} vectorized unrolled"
    return Target(machine, (llvmlite.__version__, version, triple, name, features, recipe))


# ------------------------------------------------------------------ what LLVM said before

# Of the first processor, what tells one kind from another.
_CPUINFO_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


def target_fingerprint(cpu: str) -> tuple[str, ...]:
    """Return the key of code on disk beside its text: processor and versions."""
    known = None if cpu else host_fingerprint()
    return target_of(cpu).words if known is None else known


@cache
def host_fingerprint() -> tuple[str, ...] | None:
    """The words of this machine, as LLVM said them to an earlier process; None if it did not.

    Raises:
        ImportError: There is no llvmlite.
    """
    key = _host_key()
    found = None if key is None else disk_cache.read_entry(key)
    return None if found is None else tuple(found.decode().split("\0"))


def store_host_fingerprint() -> None:
    """Keep the words of this machine for later processes."""
    key = _host_key()
    if key is not None:
        disk_cache.write_entry(key, "\0".join(target_of("").words).encode())


def _host_key() -> bytes | None:
    """Return a key of the machine and the library; None if they cannot be identified."""
    import llvmlite

    if not is_supported():
        return None
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 14).partition("\n\n")[0].splitlines()
        home = Path(llvmlite.__file__).parent / "binding"
        libraries = sorted(home.glob("*.so"))
        marks = [(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in libraries]
    except OSError:
        return None
    told = [line for line in lines if line.partition(":")[0].strip() in _CPUINFO_FIELDS]
    known = {line.partition(":")[0].strip() for line in told}
    if not marks or not known.issuperset(_CPUINFO_FIELDS):
        return None
    return disk_cache.entry_key(
        ["machine", platform.node(), llvmlite.__version__, repr(marks), *told]
    )

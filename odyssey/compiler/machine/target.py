"""Target of compilation: a processor, and its fingerprint in the keys of the disk cache.

Called by ``jit``. LLVM's detection of the processor takes longer than loading a program. So its
answer is kept in the disk cache, keyed by the system's description of the machine and by the
installed llvmlite.
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

# Optimization levels of the pass pipeline and of the code generator; part of the fingerprint.
SPEED = 2
_CODE = 3


class Target(NamedTuple):
    """Target machine of LLVM, and its fingerprint."""

    machine: Any
    fingerprint: tuple[str, ...]


# By level, features that processors below it may lack.
_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": ("sse2",),
    "x86-64-v2": ("cx16", "popcnt", "sse3", "ssse3", "sse4.1", "sse4.2"),
    "x86-64-v3": ("avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"),
    "x86-64-v4": ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"),
}


def _check_level(cpu: str, features: Mapping[str, bool]) -> None:
    # LLVM ends the process for an unknown name.
    levels = list(_LEVELS) if features.get("sse2") else []
    if cpu not in levels:
        raise SettingError(f"load: cpu={format_value(cpu)} is none of {levels} here; leave it out")
    required = [name for level in levels[: levels.index(cpu) + 1] for name in _LEVELS[level]]
    if missing := [name for name in required if not features.get(name)]:
        raise SettingError(
            f"load: cpu={format_value(cpu)} needs {', '.join(missing)}, which this processor "
            "lacks; pass a level below, or leave it out"
        )


@cache
def target_of(cpu: str) -> Target:
    """Return the target of a level of processors; of this processor if ``cpu`` is empty."""
    import llvmlite
    from llvmlite import binding as llvm

    host_features = llvm.get_host_cpu_features()
    if cpu:
        _check_level(cpu, host_features)
    name = cpu or llvm.get_host_cpu_name()
    features = "" if cpu else host_features.flatten()
    triple = llvm.get_process_triple()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=name, features=features, opt=_CODE, jit=True
    )
    version = ".".join(map(str, llvm.llvm_version_info))
    recipe = f"O{SPEED} O{_CODE} vectorized unrolled"
    return Target(machine, (llvmlite.__version__, version, triple, name, features, recipe))


# ------------------------------------------------------------------ stored fingerprints

# Fields of the first processor that distinguish models.
_CPUINFO_FIELDS = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags")


def target_fingerprint(cpu: str) -> tuple[str, ...]:
    """Return the part of a cache key that is not the text: processor and versions."""
    stored = None if cpu else host_fingerprint()
    return target_of(cpu).fingerprint if stored is None else stored


@cache
def host_fingerprint() -> tuple[str, ...] | None:
    """Return the fingerprint of this machine that an earlier process stored; None if there is none.

    Raises:
        ImportError: llvmlite is not installed.
    """
    key = _host_key()
    entry = None if key is None else disk_cache.read_entry(key)
    return None if entry is None else tuple(entry.decode().split("\0"))


def store_host_fingerprint() -> None:
    """Store the fingerprint of this machine for later processes."""
    key = _host_key()
    if key is not None:
        disk_cache.write_entry(key, "\0".join(target_of("").fingerprint).encode())


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
        versions = [(one.name, one.stat().st_size, one.stat().st_mtime_ns) for one in libraries]
    except OSError:
        return None
    described = [line for line in lines if line.partition(":")[0].strip() in _CPUINFO_FIELDS]
    fields = {line.partition(":")[0].strip() for line in described}
    if not versions or not fields.issuperset(_CPUINFO_FIELDS):
        return None
    return disk_cache.entry_key(
        ["machine", platform.node(), llvmlite.__version__, repr(versions), *described]
    )

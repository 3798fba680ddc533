"""Facts of the machine that decide which way of a work is the fastest.

Called by ``compiler.ways.store`` and ``tuned_sizes``: measurements of one set of facts say nothing
about another.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from odyssey.kernels.lapack_library import numpy_libraries, symbol_address

__all__ = ["blas_thread_count", "machine_facts", "machine_identifier"]

_CPUINFO_FIELDS = ("model name", "cpu family", "model", "stepping")

_CORE_NAMES = (
    "scipy_openblas_get_corename64_",
    "openblas_get_corename64_",
    "openblas_get_corename",
)

_THREAD_COUNTS = tuple(name.replace("get_corename", "get_num_threads") for name in _CORE_NAMES)


@cache
def machine_facts() -> dict[str, Any]:
    """Return processor, flags, cores, caches, BLAS library and its kernels, and versions."""
    info = _cpuinfo()
    return {
        "processor": " ".join(info.get(name, "") for name in _CPUINFO_FIELDS).strip()
        or platform.processor()
        or platform.machine(),
        "flags": _digest(" ".join(sorted(info.get("flags", "").split()))),
        "cores": _core_count(),
        "caches": _caches(),
        "system": f"{platform.system()} {platform.machine()}",
        "blas": f"{_blas_name()} {_blas_kernels()}".strip(),
        "versions": _versions(),
    }


def machine_identifier(facts: Mapping[str, Any]) -> str:
    """Return a hash of facts."""
    text = json.dumps(facts, sort_keys=True, default=str)
    return sha256(text.encode()).hexdigest()[:16]


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8] if text else ""


def _cpuinfo() -> dict[str, str]:
    """Return the fields of the first processor; empty where the system has no such file."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(1 << 14).partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = [line.partition(":") for line in lines]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _core_count() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def _caches() -> str:
    """Return the sizes of the first processor's caches, such as ``32K 32K 512K 32768K``."""
    folders = sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"))
    sizes = []
    for folder in folders:
        try:
            sizes.append((folder / "size").read_text().strip())
        except OSError:
            continue
    return " ".join(sizes)


def _blas_name() -> str:
    try:
        config: Any = np.show_config(mode="dicts")
        blas = config["Build Dependencies"]["blas"]
        return f"{blas.get('name', '')} {blas.get('version', '')}"
    except (AttributeError, KeyError, TypeError):
        return ""


def _blas_kernels() -> str:
    """Return the processor that OpenBLAS chose its kernels for; empty for other libraries."""
    for library in numpy_libraries():
        for name in _CORE_NAMES:
            address = symbol_address(library, name)
            if address:
                found: bytes | None = ctypes.CFUNCTYPE(ctypes.c_char_p)(address)()
                return "" if found is None else found.decode("ascii", "replace")
    return ""


def blas_thread_count() -> int:
    """Return the number of threads that OpenBLAS uses now; 0 for other libraries."""
    for library in numpy_libraries():
        for name in _THREAD_COUNTS:
            address = symbol_address(library, name)
            if address:
                return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())
    return 0


def _versions() -> str:
    """Return the versions of Python, NumPy, and the compilers of kernels."""
    found = [f"python {'.'.join(platform.python_version_tuple()[:2])}", f"numpy {np.__version__}"]
    return ", ".join([*found, *[f"{name} {_version_of(name)}" for name in ("numba", "llvmlite")]])


def _version_of(name: str) -> str:
    """Return the version of an installed package, from the folder beside it.

    The package is not imported, which takes 0.4 s for numba; nor is ``importlib.metadata``.
    """
    spec = find_spec(name)
    home = None if spec is None or spec.origin is None else Path(spec.origin).parents[1]
    folders = [] if home is None else sorted(home.glob(f"{name}-*.dist-info"))
    return folders[-1].stem.removeprefix(f"{name}-") if folders else "-"

"""The machine: one thread, one CPU, its memory, its name."""

import contextlib
import os
import platform
import signal
import sys
from pathlib import Path
from typing import TextIO

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
}
"""Environment of every measured process; the libraries read it once, when they are loaded."""

BLAS_CHOICES = (
    "OPENBLAS_CORETYPE",
    "OPENBLAS_L2_SIZE",
    "MKL_CBWR",
    "MKL_DEBUG_CPU_TYPE",
    "MKL_ENABLE_INSTRUCTIONS",
)
"""Variables that make one BLAS run as on another processor, and so one peer against the others."""


def set_blas_choices_aside() -> str:
    """Take `BLAS_CHOICES` out of the environment; return those that were there."""
    found = [(name, os.environ.pop(name)) for name in BLAS_CHOICES if name in os.environ]
    return ", ".join(f"{name}={value}" for name, value in found)


def pin_to_one_cpu() -> None:
    """Keep this process on the highest CPU that it may use, where the system can pin."""
    if sys.platform == "linux":
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def end_with_parent() -> None:
    """Let this process end as its parent does, however that ends, where the system can do it."""
    if sys.platform == "linux":
        import ctypes

        parent = os.getppid()
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:  # it ended before the call
            raise SystemExit("the process that started this one has ended")


def private_stdout() -> TextIO:
    """Standard output for the answers alone; what a library prints goes to standard error."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


def memory_bytes() -> int | None:
    """Memory of this machine, or None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def resident_bytes(process: int) -> int | None:
    """Memory of a process that is resident, or None where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


class PeakMemory:
    """The highest resident memory since `restart`, above what was resident then."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Start again from the memory that is resident now."""
        with contextlib.suppress(OSError):
            # Linux: forget the peak of the import itself, which would hide later growth.
            Path("/proc/self/clear_refs").write_text("5")
        self._base = _peak_resident_bytes()

    def above_base(self) -> int | None:
        """Bytes, or None where the system does not tell."""
        peak = _peak_resident_bytes()
        return None if peak is None or self._base is None else peak - self._base


def _peak_resident_bytes() -> int | None:
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return _peak_from_rusage()
    # Not ru_maxrss: on Linux a child process inherits the maximum of the parent it came from.
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return _peak_from_rusage()


def _peak_from_rusage() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def hardware() -> dict[str, str | int | None]:
    """What a reader needs in order to place the figures; the load is that of the last minute."""
    return {
        "cpu": _cpu_model(),
        "cpu_count": os.cpu_count(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "load": f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else None,
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()

"""Kernel overrides: blocks in which ops run other kernels, or count their calls."""

from __future__ import annotations

import math
from _thread import RLock
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from odyssey.checks import check_choice
from odyssey.devices.write_guard import FORK_WAITS, hold_during_forks
from odyssey.table.kernel_selection import (
    CUDA_KERNELS,
    DEFAULT_SIZE_FACTOR,
    SIZE_FACTOR,
    first_applicable,
    first_with_residual,
)
from odyssey.table.registry import OPS
from odyssey.table.row import Row
from odyssey.table.scoped_exit import ScopedBlock

__all__ = ["count_kernels", "use_kernels"]


class use_kernels(ScopedBlock):
    """In a block, ops run the compiled kernels that their rows have, on arrays of any size.

    By themselves ops run these, loops that numba compiles, from the sizes on from which they win
    by far, and NumPy below. Within this block they do so always; or never, by
    ``use_kernels("numpy")``. For the whole process, so best around a whole program: results may
    differ in the last places. A loop is compiled when an op is first called on a dtype, which takes
    some tenths of a second, once on a machine: the code is kept on disk. Calls that no such kernel
    can run, and all where numba is missing, run as ever. ``ODYSSEY_KERNELS=numpy`` in the
    environment says for a whole process that nothing is to be compiled by itself.

    Args:
        device: Which kernels: those for the ``"cpu"``; ``"numpy"``, none; or those for ``"cuda"``,
            to which arrays of the host are then copied, and from which results; arrays of a device
            stay there, and a step of an optimizer updates all of one dtype at once.

    Raises:
        DeviceError: on entering, for ``"cuda"`` without a GPU.

    >>> import odyssey as od
    >>> with od.ops.use_kernels():
    ...     print(od.nn.gelu(np.array([-1.0, 0.0, 1.0])).round(4))
    [-0.1587  0.      0.8413]
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.device = check_choice("use_kernels", "device", device, ("cpu", "numpy", "cuda"))

    def _recreate_cm(self) -> use_kernels:
        return use_kernels(self.device)  # as a decorator: a block for each call

    def _begin(self, entry: list[Any]) -> use_kernels:
        if self.device == "cuda":
            from odyssey.kernels.cuda import require_cuda

            require_cuda()
        _open_block(entry, self.device)
        return self

    def _end(self, entry: list[Any]) -> None:
        _close_block(entry)


class count_kernels(ScopedBlock):
    """Count the kernel calls of every op in a block, in the whole process: name to calls.

    >>> import odyssey as od
    >>> with od.testing.count_kernels() as counts:
    ...     _ = od.ops.exp(np.zeros(3))
    >>> dict(counts)
    {'exp': 1}
    """

    def _recreate_cm(self) -> count_kernels:
        return count_kernels()  # as a decorator: a block for each call

    def _begin(self, entry: list[Any]) -> Counter[str]:
        counts: Counter[str] = Counter()
        _open_block(entry, counts)
        return counts

    def _end(self, entry: list[Any]) -> None:
        _close_block(entry)


# Blocks may end in any order, for instance in other threads, so the kernels of rows are computed
# from all open blocks. The second item of an entry is a device or a counter.
_OPEN: list[list[Any]] = []

# The kernels of rows before the first open block.
_DEFAULTS: dict[Row, tuple[Callable[..., Any], Any, dict[Any, Any]]] = {}

# The devices in effect, and whether calls are counted; None during a change, or after an interrupt
# of one.
_APPLIED: list[tuple[tuple[str, ...], bool] | None] = [((), False)]

# Counters of all open blocks.
_COUNTERS: list[tuple[Counter[str], ...]] = [()]

# Held while these change.
_LOCK = RLock()
hold_during_forks(lambda: (_LOCK,), FORK_WAITS)


def _open_block(entry: list[Any], what: str | Counter[str]) -> None:
    rows = list(OPS.values())  # before the lock, since this imports modules
    entry[1] = what
    with _LOCK:
        _OPEN.append(entry)
        _apply_overrides(rows)


def _close_block(entry: list[Any]) -> None:
    with _LOCK:
        _OPEN[:] = [other for other in _OPEN if other is not entry]
        _apply_overrides(list(OPS.values()))


def _apply_overrides(rows: list[Row]) -> None:
    """Set the kernels of all rows by the open blocks, the latest first."""
    asked = [entry[1] for entry in _OPEN]
    latest_first = dict.fromkeys(what for what in reversed(asked) if isinstance(what, str))
    devices = tuple(reversed(latest_first))
    _COUNTERS[0] = tuple([what for what in asked if isinstance(what, Counter)])
    counting = bool(_COUNTERS[0])
    if (devices, counting) == _APPLIED[0]:
        return
    wanted = devices[devices.index("numpy") + 1 :] if "numpy" in devices else devices
    _APPLIED[0] = None
    for row in rows:
        known = [kernel for kernel in row.kernels if kernel.device in wanted]
        if not known and not counting and row not in _DEFAULTS:
            continue
        run, leaving, residuals = _DEFAULTS.setdefault(
            row,
            (row.plain_kernel, row.with_residuals.get(row.plain_kernel), row.with_residuals),
        )
        for device in wanted:
            kernels = [kernel for kernel in known if kernel.device == device]
            if kernels:
                run, leaving = first_applicable(kernels, run), first_with_residual(kernels, leaving)
        row.device_kernels = tuple([k for k in known if k.device == "cuda"])
        row.with_residuals = residuals | {run: leaving} if wanted else residuals
        row.use(run, partial(_count_calls, row.name) if counting else None)
    if not wanted and not counting:
        _DEFAULTS.clear()
    SIZE_FACTOR[0] = (
        0.0 if "cpu" in wanted else math.inf if "numpy" in devices else DEFAULT_SIZE_FACTOR
    )
    CUDA_KERNELS[0] = "cuda" in wanted
    _APPLIED[0] = devices, counting


def _count_calls(name: str, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def kernel_counted(*args: Any) -> Any:
        for counts in _COUNTERS[0]:
            counts[name] += 1
        return kernel(*args)

    return kernel_counted

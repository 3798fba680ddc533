"""Other kernels in the place of the rows' own, for a block; and kernels made of scalars."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import word
from odyssey.devices.guard import GUARD
from odyssey.errors import DeviceError
from odyssey.spec import Spec, spec_of
from odyssey.table.blocks import Block
from odyssey.table.meaning import Kernel
from odyssey.table.published import OPS
from odyssey.table.row import Row

__all__ = ["by_scalar", "use_kernels"]


class use_kernels(Block):
    """In a block, ops run the faster kernels that their rows have beside their own.

    For the whole process, so best around a whole program. On the CPU these are loops that numba
    compiles, when an op is first called on a dtype: importing numba takes a second, each loop some
    tenths. So nothing does this by itself, and results, which may differ in the last places, do
    not change in the middle of a program. Calls that such a kernel cannot run, and all where numba
    is missing, run as ever.

    Args:
        device: Which kernels: those for the ``"cpu"``, or for ``"cuda"``, to which arrays are then
            copied, and from which results.

    Raises:
        DeviceError: on entering, for ``"cuda"`` without a GPU.

    >>> import odyssey as od
    >>> with od.ops.use_kernels():
    ...     print(od.nn.gelu(np.array([-1.0, 0.0, 1.0])).round(4))
    [-0.1587  0.      0.8413]
    """

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.device = word("use_kernels", "device", device, ("cpu", "cuda"))

    def _recreate_cm(self) -> use_kernels:
        return use_kernels(self.device)  # as a decorator: one for each call

    def _begin(self, entry: list[Any]) -> use_kernels:
        if self.device == "cuda":
            from odyssey.kernels.cuda import require

            require()
        rows = list(OPS.values())  # before the lock: to load them is to import
        entry[1] = self.device
        with GUARD:
            _OPEN.append(entry)
            _settle(rows)
        return self

    def _end(self, entry: list[Any]) -> None:
        with GUARD:
            _OPEN[:] = [other for other in _OPEN if other is not entry]
            _settle(list(OPS.values()))


# Blocks may end in any order, in other threads say; so what runs follows from those that are open.
_OPEN: list[list[Any]] = []

# While a block is open: what the rows ran before the first of them.
_USUAL: dict[Row, tuple[Callable[..., Any], Any, dict[Any, Any]]] = {}

# The devices whose kernels run now; None while that is being changed, or an interrupt left it so.
_NOW: list[tuple[str, ...] | None] = [()]


def _settle(rows: list[Row]) -> None:
    """Let rows run the kernels of the devices whose blocks are open, the latest first."""
    devices = tuple(dict.fromkeys(entry[1] for entry in _OPEN))
    if devices == _NOW[0]:
        return
    _NOW[0] = None
    for row in rows:
        known = [kernel for kernel in row.kernels if kernel.device in devices]
        if not known and row not in _USUAL:
            continue
        run, leaving, residuals = _USUAL.setdefault(
            row, (row.kernel, row.with_residual, row.with_residuals)
        )
        for device in devices:
            kernels = [kernel for kernel in known if kernel.device == device]
            if kernels:
                run, leaving = _choosing(kernels, run), _leaving_residuals(kernels, leaving)
        row.with_residuals = residuals | {run: leaving} if devices else residuals
        row.use(run)
    if not devices:
        _USUAL.clear()
    _NOW[0] = devices


def _choosing(kernels: list[Kernel], usual: Callable[..., Any]) -> Callable[..., Any]:
    """The first of some kernels that can run a call; else the usual one."""
    left = list(kernels)

    def run(*values: Any) -> Any:
        while (kernel := _taking(left, values)) is not None:
            try:
                return kernel.run(*values)
            except DeviceError:  # what compiles it, or what it runs on, is not here
                left.remove(kernel)
        return usual(*values)

    return run


def _leaving_residuals(kernels: list[Kernel], usual: Callable[..., Any] | None) -> Any:
    """The same for a recorded call, of which rules use again what was computed on the way."""
    left = list(kernels)

    def forward(*values: Any) -> Any:
        while (kernel := _taking(left, values)) is not None:
            try:
                return None if kernel.with_residual is None else kernel.with_residual(*values)
            except DeviceError:
                left.remove(kernel)
        return None if usual is None else usual(*values)

    return forward if usual or any(kernel.with_residual for kernel in kernels) else None


def _taking(kernels: list[Kernel], values: tuple[Any, ...]) -> Kernel | None:
    if not kernels:
        return None
    specs = [spec_of(v) if type(v) is np.ndarray else v for v in values]
    return next((kernel for kernel in kernels if kernel.takes(*specs)), None)


def by_scalar(scalar: Callable[..., Any], arity: int = 1) -> Kernel:
    """The kernel that numba makes of a row's scalar: one loop over arrays of one shape.

    Args:
        scalar: The row's.
        arity: How many arrays the row has.
    """
    loops: dict[Any, Any] = {}

    def when(*values: Any) -> bool:
        first, *others = values[:arity]
        plain = isinstance(first, Spec) and first.dtype.char in "fd" and first.ndim > 0
        return plain and all(other is first or other == first for other in others)

    def run(*values: Any) -> Any:
        arrays, options = values[:arity], values[arity:]
        dtype = arrays[0].dtype
        key = (dtype, repr(options) if options else "")
        loop = loops.get(key)
        if loop is None:
            from odyssey.kernels.elementwise import cpu_loop

            loop = loops[key] = cpu_loop(scalar, dtype, options=options)
        out = np.empty(arrays[0].shape, dtype)
        loop(*map(_in_a_row, arrays), out.reshape(-1))
        return out

    return Kernel("a compiled loop", run, when=when)


def _in_a_row(array: Any) -> Any:
    """The elements as a compiled loop reads them."""
    if not (array.flags.c_contiguous and array.flags.aligned):
        array = np.array(array, order="C")
    return array.reshape(-1)

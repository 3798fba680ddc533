"""Which kernel runs a call: the row's own, or another that it has beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.errors import DeviceError
from odyssey.kernels.sizes import SIZES
from odyssey.spec import spec_of
from odyssey.table.meaning import Kernel

__all__ = ["COMPILED", "by_size", "first_fitting", "first_leaving"]

Run = Callable[..., Any]

COMPILED = [os.environ.get("ODYSSEY_KERNELS", "") != "numpy"]
"""Whether ops run compiled kernels by themselves."""


def by_size(
    name: str, kernels: Sequence[Kernel], count: int, usual: Run, leaving: Run | None
) -> tuple[Run, Run | None]:
    """What runs the calls of an op, and its recorded ones, where nothing else is said.

    Compiled kernels run the calls of so many elements as ``kernels.sizes`` says. Size and dtype
    decide, and never time, so that a program computes the same bits in each of its steps.

    Args:
        name: Of the op.
        kernels: Of its row.
        count: How many operands it has.
        usual: The row's own kernel.
        leaving: Its ``with_residual``.
    """
    own = [kernel for kernel in kernels if kernel.device == "cpu"]
    least = SIZES.get(name)
    if not own or least is None:
        return usual, leaving
    large = first_fitting(own, usual)

    def few(*values: Any) -> bool:
        size = max([getattr(v, "size", 1) for v in values[:count]])
        return size < least or not COMPILED[0]

    def run(*values: Any) -> Any:
        return (usual if few(*values) else large)(*values)

    def run_one(x: Any, *options: Any) -> Any:  # without a tuple of all: 60 ns less
        return (large if x.size >= least and COMPILED[0] else usual)(x, *options)

    chosen = run_one if count == 1 else run
    large_leaving = first_leaving(own, leaving)
    if large_leaving is None:
        return chosen, None

    def forward(*values: Any) -> Any:
        if few(*values):
            return None if leaving is None else leaving(*values)
        return large_leaving(*values)

    return chosen, forward


def first_fitting(kernels: Sequence[Kernel], usual: Run) -> Run:
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


def first_leaving(kernels: Sequence[Kernel], usual: Run | None) -> Run | None:
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

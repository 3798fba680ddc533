"""Kernel selection: alternative kernels of a row, and the one that runs a call."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

import numpy as np

from odyssey.errors import DeviceError
from odyssey.kernels import has_numba
from odyssey.kernels.sizes import SIZES
from odyssey.kernels.tuned_sizes import sizes_in_use, wait_for_sizes
from odyssey.spec import Spec, spec_of

__all__ = [
    "CUDA_KERNELS",
    "DEFAULT_SIZE_FACTOR",
    "SIZE_FACTOR",
    "Kernel",
    "are_kernels_compiled",
    "first_applicable",
    "first_with_residual",
    "is_numba_avoided",
    "scalar_loop",
    "select_by_size",
]

Run = Callable[..., Any]


class Kernel(NamedTuple):
    """An alternative kernel of a row.

    ``row.use(kernel.run)`` makes it the row's kernel. The record has all that selection needs, and
    the error bound that tests check. Results of the row do not depend on its presence.

    Attributes:
        name: A name unique among the kernels of the row, in words.
        run: ``run(*arrays, *options)``, as the row's reference, and returns a new array.
        device: ``"cpu"`` or ``"cuda"``.
        when: ``when(*specs, *options) -> bool``: the calls it supports; None for all. It reads
            specs only, never data.
        error_bound: Largest error relative to the largest result; None if results are as exact as
            those of the reference, up to the order of sums.
        with_residual: A variant of ``run`` that returns a residual for the row's rules as well.
        pays: ``pays(*specs, *options) -> bool``: the large calls in which it beats NumPy, if
            that depends on more than size; None for all.
        together: For batched host calls: the name of an option in which calls differ that share
            most of their work, and ``together(choices, *arrays, *other_options)``, which returns
            a dictionary of all results.
    """

    name: str
    run: Callable[..., Any]
    device: str = "cpu"
    when: Callable[..., bool] | None = None
    error_bound: float | None = None
    with_residual: Callable[..., tuple[Any, Any] | None] | None = None
    pays: Callable[..., bool] | None = None
    together: tuple[str, Callable[..., dict[Any, Any]]] | None = None

    def takes(self, *specs_and_options: Any) -> bool:
        """Return whether the kernel supports a call with these specs and options."""
        return self.when is None or self.when(*specs_and_options)


DEFAULT_SIZE_FACTOR = math.inf if os.environ.get("ODYSSEY_KERNELS", "") == "numpy" else 1.0

SIZE_FACTOR = [DEFAULT_SIZE_FACTOR]
"""Factor on the sizes from which ops run compiled kernels; infinity for never."""

CUDA_KERNELS = [False]
"""Whether a block of ``use_kernels("cuda")`` is open."""

_BRIEF = ContextVar("_BRIEF", default=False)


def is_numba_avoided() -> bool:
    """Return whether calls here use NumPy rather than import numba for a compiled kernel."""
    return _BRIEF.get() and "numba" not in sys.modules and SIZE_FACTOR[0] > 0


def are_kernels_compiled() -> bool:
    """Return whether large operands run compiled kernels in this process."""
    return math.isfinite(SIZE_FACTOR[0]) and has_numba()


def without_numba(fn: Run, /, *args: Any, **named: Any) -> Any:
    """Call a function without importing numba, since it will not run again.

    The import takes 0.4 s and 75 MB; NumPy computes one call in some milliseconds.
    """
    begun: list[Token[bool]] = []
    try:
        begun.extend(map(_BRIEF.set, [True]))  # one C call: no interrupt comes in between
        return fn(*args, **named)
    finally:
        for token in begun:
            _BRIEF.reset(token)


def select_by_size(
    name: str, kernels: Sequence[Kernel], count: int, usual: Run, leaving: Run | None
) -> tuple[Run, Run | None]:
    """Return the default kernel of an op, and its variant that leaves a residual.

    Calls with at least as many elements as ``kernels.sizes`` says run a compiled kernel; after the
    first of them, as ``kernels.tuned_sizes`` of this machine says. Size and dtype decide, never
    timing, so that every step of a program computes the same bits.

    Args:
        name: The name of the op.
        kernels: The alternative kernels of its row.
        count: The number of operands.
        usual: The row's own kernel.
        leaving: Its ``with_residual``, or None.
    """
    own = [_restrict_to_winning(kernel) for kernel in kernels if kernel.device == "cpu"]
    if not own or name not in SIZES:
        return usual, leaving
    least = SIZES[name]
    compiled = large = first_applicable(own, usual)
    compiled_leaving = first_with_residual(own, leaving)
    large_leaving: Any = compiled_leaving

    def use_sizes(sizes: Mapping[str, int]) -> None:
        nonlocal least, large, large_leaving
        least, large, large_leaving = sizes.get(name, least), compiled, compiled_leaving

    def run_first(*values: Any) -> Any:
        use_sizes(sizes_in_use())
        return chosen(*values)

    def forward_first(*values: Any) -> Any:
        use_sizes(sizes_in_use())
        return forward(*values)

    def all_small(*values: Any) -> bool:
        bound = least * SIZE_FACTOR[0]
        for value in values[:count]:  # noqa: SIM110 (max() or all() took twice as long)
            if getattr(value, "size", 1) >= bound:
                return False
        return True

    def run(*values: Any) -> Any:
        return (usual if all_small(*values) or is_numba_avoided() else large)(*values)

    def run_one(x: Any, *options: Any) -> Any:  # without a tuple of all: 60 ns less
        return (usual if x.size < least * SIZE_FACTOR[0] or is_numba_avoided() else large)(
            x, *options
        )

    chosen = run_one if count == 1 else run
    if wait_for_sizes(use_sizes):
        large = run_first
        large_leaving = forward_first if compiled_leaving is not None else None
    if compiled_leaving is None:
        return chosen, None

    def forward(*values: Any) -> Any:
        if all_small(*values) or is_numba_avoided():
            return None if leaving is None else leaving(*values)
        return large_leaving(*values)

    return chosen, forward


def _restrict_to_winning(kernel: Kernel) -> Kernel:
    """Restrict a kernel to calls where it beats NumPy, unless ``use_kernels`` forces kernels."""
    pays = kernel.pays
    if pays is None:
        return kernel

    def when(*given: Any) -> bool:
        return kernel.takes(*given) and (SIZE_FACTOR[0] == 0 or pays(*given))

    return kernel._replace(when=when)


def first_applicable(kernels: Sequence[Kernel], usual: Run) -> Run:
    """Return a function that runs the first kernel that supports a call, else the usual one."""
    left = list(kernels)

    def run(*values: Any) -> Any:
        while (kernel := _first_supporting(left, values)) is not None:
            try:
                return kernel.run(*values)
            except DeviceError:  # its compiler or its device is missing
                left.remove(kernel)
        return usual(*values)

    return run


def first_with_residual(kernels: Sequence[Kernel], usual: Run | None) -> Run | None:
    """Return the variant of ``first_applicable`` for recorded calls, which leaves a residual."""
    left = list(kernels)

    def forward(*values: Any) -> Any:
        while (kernel := _first_supporting(left, values)) is not None:
            try:
                return None if kernel.with_residual is None else kernel.with_residual(*values)
            except DeviceError:
                left.remove(kernel)
        return None if usual is None else usual(*values)

    return forward if usual or any(kernel.with_residual for kernel in kernels) else None


def _first_supporting(kernels: list[Kernel], values: tuple[Any, ...]) -> Kernel | None:
    if not kernels:
        return None
    specs = [spec_of(v) if type(v) is np.ndarray else v for v in values]
    for kernel in kernels:
        if kernel.takes(*specs):
            return kernel
    return None


def scalar_loop(
    scalar: Callable[..., Any], arity: int = 1, slope: Callable[..., Any] | None = None
) -> Kernel:
    """Return a numba kernel from a row's scalar: one loop over arrays of one shape.

    Args:
        scalar: The scalar function of the row.
        arity: The number of arrays.
        slope: Its derivative, for one array. A recorded call leaves ``(slopes,)`` as residual,
            which saves time if function and derivative share most of their work. A rule that gets
            it reads nothing else.
    """

    def when(*values: Any) -> bool:
        first, *others = values[:arity]
        plain = isinstance(first, Spec) and first.dtype.char in "fd" and first.ndim > 0
        return plain and all(other is first or other == first for other in others)

    loops: dict[Any, Any] = {}

    def run_loop(values: tuple[Any, ...], beside: Any) -> list[Any]:
        arrays, options = values[:arity], values[arity:]
        dtype = arrays[0].dtype
        key = (dtype, repr(options) if options else "", beside)
        loop = loops.get(key)
        if loop is None:
            from odyssey.kernels.generated import elementwise_loop

            loop = loops[key] = elementwise_loop(scalar, arity, dtype, options, beside)
        outs = [np.empty(arrays[0].shape, dtype) for _ in range(1 if beside is None else 2)]
        loop(*[array.reshape(-1) for array in (*arrays, *outs)])
        return outs

    def leaving(*values: Any) -> tuple[Any, Any]:
        out, slopes = run_loop(values, slope)
        return out, (slopes,)

    return Kernel(
        "a compiled loop",
        lambda *values: run_loop(values, None)[0],
        when=when,
        with_residual=None if slope is None else leaving,
    )

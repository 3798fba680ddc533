"""Which kernel runs a call: the row's own, or another that it has beside it."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

import numpy as np

from odyssey.errors import DeviceError
from odyssey.kernels import has_numba
from odyssey.kernels.sizes import SIZES
from odyssey.spec import Spec, spec_of

__all__ = [
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
    """Another way to run a row, beside the kernel that it runs when nothing else is said.

    ``row.use(kernel.run)`` makes it the row's kernel. The record says what whoever chooses must
    know, and what the tests hold it to. A kernel can be left out: the row means the same without.

    Attributes:
        name: What tells it from the row's others, in words.
        run: ``run(*arrays, *options)``, as the row's reference, and returns a new array.
        device: Where it runs: ``"cpu"`` or ``"cuda"``.
        when: ``when(*specs, *options) -> bool``: which calls it can run; None for all. It may look
            at specs only, never at data.
        error_bound: How far its results may lie from the exact ones, relative to the largest; None
            where they are as exact as the reference, up to the order of sums.
        with_residual: The same as ``run``, but returns a residual for the row's rules as well.
        pays: ``pays(*specs, *options) -> bool``: which of the calls that are large enough it wins,
            where that hangs on more than their size; None for all.
        within: ``within(*specs, *options) -> bool``: which calls a compiled function leaves to the
            row's kernel, though it could compute what the row equals: where that saves much.
        together: The name of an option in which calls may differ that have most of their work in
            common; and ``together(choices, *arrays, *other_options)``, which gives a dictionary of
            what they return.
    """

    name: str
    run: Callable[..., Any]
    device: str = "cpu"
    when: Callable[..., bool] | None = None
    error_bound: float | None = None
    with_residual: Callable[..., tuple[Any, Any] | None] | None = None
    pays: Callable[..., bool] | None = None
    within: Callable[..., bool] | None = None
    together: tuple[str, Callable[..., dict[Any, Any]]] | None = None

    def takes(self, *specs_and_options: Any) -> bool:
        """Whether it can run a call on such specs, with such options."""
        return self.when is None or self.when(*specs_and_options)

    def is_left(self, *specs_and_options: Any) -> bool:
        """Whether a compiled function leaves such a call to it."""
        if self.within is None or not self.takes(*specs_and_options):
            return False
        return self.within(*specs_and_options)


DEFAULT_SIZE_FACTOR = math.inf if os.environ.get("ODYSSEY_KERNELS", "") == "numpy" else 1.0

SIZE_FACTOR = [DEFAULT_SIZE_FACTOR]
"""By what the sizes are multiplied from which ops run compiled kernels: infinity is never."""

_BRIEF = ContextVar("_BRIEF", default=False)


def is_numba_avoided() -> bool:
    """Whether NumPy is to do here what kernels would for which numba is not loaded yet."""
    return _BRIEF.get() and "numba" not in sys.modules and SIZE_FACTOR[0] > 0


def are_kernels_compiled() -> bool:
    """Whether large operands have compiled kernels here."""
    return math.isfinite(SIZE_FACTOR[0]) and has_numba()


def without_numba(fn: Run, /, *args: Any, **named: Any) -> Any:
    """Call a function that will not run again, and so is not worth the import of numba.

    That takes 0.4 seconds and 75 MB, where NumPy does the same in some milliseconds.
    """
    begun: list[Token[bool]] = []
    try:
        begun.extend(map(_BRIEF.set, [True]))  # one call of C: no interrupt comes in between
        return fn(*args, **named)
    finally:
        for token in begun:
            _BRIEF.reset(token)


def select_by_size(
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
    own = [_restrict_to_winning(kernel) for kernel in kernels if kernel.device == "cpu"]
    least = SIZES.get(name)
    if not own or least is None:
        return usual, leaving
    large = first_applicable(own, usual)

    def few(*values: Any) -> bool:
        bound = least * SIZE_FACTOR[0]
        for value in values[:count]:  # noqa: SIM110 (max() or all() took twice as long)
            if getattr(value, "size", 1) >= bound:
                return False
        return True

    def run(*values: Any) -> Any:
        return (usual if few(*values) or is_numba_avoided() else large)(*values)

    def run_one(x: Any, *options: Any) -> Any:  # without a tuple of all: 60 ns less
        return (usual if x.size < least * SIZE_FACTOR[0] or is_numba_avoided() else large)(
            x, *options
        )

    chosen = run_one if count == 1 else run
    large_leaving = first_with_residual(own, leaving)
    if large_leaving is None:
        return chosen, None

    def forward(*values: Any) -> Any:
        if few(*values) or is_numba_avoided():
            return None if leaving is None else leaving(*values)
        return large_leaving(*values)

    return chosen, forward


def _restrict_to_winning(kernel: Kernel) -> Kernel:
    """The same, which takes no call that NumPy does sooner, but where all sizes have kernels."""
    pays = kernel.pays
    if pays is None:
        return kernel

    def when(*given: Any) -> bool:
        return kernel.takes(*given) and (SIZE_FACTOR[0] == 0 or pays(*given))

    return kernel._replace(when=when)


def first_applicable(kernels: Sequence[Kernel], usual: Run) -> Run:
    """The first of some kernels that can run a call; else the usual one."""
    left = list(kernels)

    def run(*values: Any) -> Any:
        while (kernel := _first_supporting(left, values)) is not None:
            try:
                return kernel.run(*values)
            except DeviceError:  # what compiles it, or what it runs on, is not here
                left.remove(kernel)
        return usual(*values)

    return run


def first_with_residual(kernels: Sequence[Kernel], usual: Run | None) -> Run | None:
    """The same for a recorded call, of which rules use again what was computed on the way."""
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
    """The kernel that numba makes of a row's scalar: one loop over arrays of one shape.

    Args:
        scalar: The row's.
        arity: How many arrays the row has.
        slope: Its derivative, of one array: a recorded call leaves ``(slopes,)`` for the rule,
            which cost less where the two share most of what is computed.
    """

    def when(*values: Any) -> bool:
        first, *others = values[:arity]
        plain = isinstance(first, Spec) and first.dtype.char in "fd" and first.ndim > 0
        return plain and all(other is first or other == first for other in others)

    loops: dict[Any, Any] = {}

    def made(values: tuple[Any, ...], beside: Any) -> list[Any]:
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
        out, slopes = made(values, slope)
        return out, (slopes,)

    return Kernel(
        "a compiled loop",
        lambda *values: made(values, None)[0],
        when=when,
        with_residual=None if slope is None else leaving,
    )

"""Sizes from which eager calls run compiled kernels: contests of the kernels with NumPy.

Called by ``python -m odyssey tune --ops``. The sizes that are shipped count the import of numba,
which takes 0.4 seconds. In a process that has imported it, kernels win from fewer elements on. The
sizes that are measured here serve calls after the first one that is large by the shipped sizes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import inf
from random import Random
from typing import Any, NamedTuple

import numpy as np

from odyssey import nn, ops
from odyssey.compiler.ways.contest import Contest, hold_contest
from odyssey.floating_point_errors import isolate_errstate
from odyssey.kernels.sizes import SIZES
from odyssey.kernels.tuned_sizes import read_sizes, write_sizes
from odyssey.spec import Array
from odyssey.table.kernel_selection import SIZE_FACTOR
from odyssey.tape import GradientTape
from odyssey.variable import Variable

__all__ = ["tune_sizes"]

# Shipped sizes are halved this many times at most.
_MOST_HALVINGS = 5

# Nanoseconds of a block, and rounds of a contest: a size is right to a factor of two.
_BLOCK, _ROUNDS = 1_000_000, 9

# Factor on sizes with which a call of any size runs a kernel, if it pays for its shape.
_SMALL_FACTOR = 1e-12

Draw = Callable[..., Array]


class _Case(NamedTuple):
    """A call at a size.

    Attributes:
        forward: The op whose kernel runs in the call.
        backward: The ops whose kernels run in the gradients as well.
        make: ``make(n, draw)``: operands with some ``n`` elements in the largest, and the call.
    """

    forward: str
    backward: tuple[str, ...]
    make: Callable[[int, Draw], tuple[list[Any], Callable[..., Any]]]


def tune_sizes(names: Sequence[str], seconds: float) -> Iterator[str]:
    """Measure the sizes of some ops and write them to their file; yield a line for each.

    Args:
        names: Ops in ``SIZES``.
        seconds: Seconds after which no further op is begun.
    """
    end = time.monotonic() + seconds
    known = read_sizes()
    waiting = [name for name in names if _cases_of(name)]
    for name in names:
        if name not in waiting:
            yield f"{name:32s} no case; its size stays {SIZES[name]}"
    for count, name in enumerate(sorted(waiting, key=lambda name: name in known)):
        if time.monotonic() >= end:
            yield f"{len(waiting) - count} ops are left; run it again for those"
            return
        size, ratio = isolate_errstate(_measure)(name)
        known[name] = size
        if not write_sizes(known):
            yield "the sizes were not written; see ODYSSEY_CACHE"
            return
        shipped = f"shipped {SIZES[name]}"
        yield f"{name:32s} {size:10d}, {shipped:20s} x{ratio:.2f} of NumPy's time there"


def _measure(name: str) -> tuple[int, float]:
    """Return the smallest size from which on a kernel wins, and its largest ratio there."""
    size, best = SIZES[name], (SIZES[name], 1.0)
    for step in range(_MOST_HALVINGS + 1):
        contests = [_contest(case, name, size, dtype) for case, dtype in _cases_of(name)]
        if not all(contest.is_won for contest in contests):
            break
        best = size, max(contest.ratio for contest in contests)
        if step == _MOST_HALVINGS or size < 2:
            break
        size //= 2
    return best


def _contest(case: _Case, name: str, size: int, dtype: str) -> Contest:
    """Let the compiled kernels run against NumPy's."""
    rng = np.random.default_rng(0)
    operands, call = case.make(size, lambda *shape: rng.normal(size=shape).astype(dtype))
    run: Callable[[], object] = lambda: call(*operands)  # noqa: E731
    if name != case.forward:
        leaves = [Variable(x, requires_grad=True) for x in operands]
        cotangent = np.ones_like(call(*operands))

        def run() -> object:
            with GradientTape() as tape:
                out = call(*leaves)
            return tape.gradient(out, leaves, cotangent)

    def block(factor: float, count: int) -> None:
        before = SIZE_FACTOR[0]
        try:
            SIZE_FACTOR[0] = factor  # use_kernels takes a millisecond to enter
            for _ in range(count):
                run()
        finally:
            SIZE_FACTOR[0] = before

    champion, challenger = partial(block, inf), partial(block, _SMALL_FACTOR)
    return hold_contest(
        champion, challenger, time.thread_time_ns, Random(0), rounds=_ROUNDS, block=_BLOCK
    )


# ------------------------------------------------------------------ cases


def _cases_of(name: str) -> list[tuple[_Case, str]]:
    """Return the cases in which the kernel of an op runs, with dtypes."""
    found = [case for case in _CASES if name == case.forward or name in case.backward]
    return [(case, dtype) for case in found for dtype in ("float32", "float64")]


def _by_rows(width: int, call: Callable[..., Any]) -> Any:
    """Return a maker of one operand in rows of a width."""
    return lambda n, draw: ([draw(max(1, n // width), width)], call)


def _norm(name: str, width: int, weights: int) -> Any:
    call = getattr(nn, name)
    return lambda n, draw: (
        [draw(max(1, n // width), width), *(draw(width) for _ in range(weights))],
        call,
    )


def _images(name: str, side: int, channels: int, kernel: int, **options: Any) -> Any:
    call = partial(getattr(nn, name), **options)
    deep = 1 if name.startswith("depthwise") else channels
    return lambda n, draw: (
        [
            draw(max(1, n // (channels * side * side)), channels, side, side),
            draw(channels, deep, kernel, kernel),
            draw(channels),
        ],
        call,
    )


def _pools(name: str) -> Any:
    call = partial(getattr(nn, name), window=2)
    return lambda n, draw: ([draw(1, max(1, n // 1024), 32, 32)], call)


def _attention(length: int, width: int) -> Any:
    return lambda n, draw: (
        [draw(max(1, n // (length * width)), length, width) for _ in range(3)],
        nn.scaled_dot_product_attention,
    )


def _recurrence(width: int) -> Any:
    return lambda n, draw: (
        [draw(max(1, n // width), width), 0.5 * draw(max(1, n // width), width)],
        ops.linear_recurrence,
    )


_ELEMENTWISE = (
    *("elu", "erf", "erfc", "gelu", "hard_swish", "leaky_relu", "log_sigmoid", "mish"),
    *("selu", "sigmoid", "silu", "softplus"),
)

_NORM_GRADIENTS = ("norm_pullback", "norm_weight_pullback")

_CONV_GRADIENTS = ("convolution_input", "convolution_weight")

_CASES = (
    *(_Case(name, (), _by_rows(128, getattr(ops, name))) for name in _ELEMENTWISE),
    *(
        _Case(name, (f"{name}_pullback",), _by_rows(width, getattr(ops, name)))
        for name in ("softmax", "log_softmax")
        for width in (10, 128, 2048)
    ),
    *(_Case("layer_norm", _NORM_GRADIENTS, _norm("layer_norm", width, 2)) for width in (16, 512)),
    *(_Case("rms_norm", _NORM_GRADIENTS, _norm("rms_norm", width, 1)) for width in (16, 512)),
    *(
        _Case(name, ("reverse_cumsum",) if name == "cumsum" else (), _by_rows(64, call))
        for name, call in (
            ("cumsum", partial(ops.cumsum, axis=-1)),
            ("cumprod", partial(ops.cumprod, axis=-1)),
        )
    ),
    _Case("linear_recurrence", (), _recurrence(64)),
    _Case("conv2d", _CONV_GRADIENTS, _images("conv2d", 28, 6, 3, padding=1)),
    _Case("conv2d", _CONV_GRADIENTS, _images("conv2d", 8, 16, 3, padding=1)),
    _Case("depthwise_conv2d", (), _images("depthwise_conv2d", 28, 6, 3, padding=1)),
    _Case("max_pool2d", ("max_pool_pullback",), _pools("max_pool2d")),
    _Case("avg_pool2d", ("avg_pool_pullback",), _pools("avg_pool2d")),
    _Case("scaled_dot_product_attention", ("attention_pullback",), _attention(64, 32)),
)

"""Max pooling: the largest element of each window, and the way back to where it stood."""

from __future__ import annotations

import math
from typing import Any

from odyssey.checks import flag
from odyssey.errors import DTypeError, SettingError
from odyssey.kernels.sizes import SIZES
from odyssey.nn.max_pooling_derivatives import (
    max_pool_in_ops,
    max_pool_indices,
    max_pool_pullback,
    max_pool_pushforward,
)
from odyssey.nn.max_windows import max_pool, pull
from odyssey.nn.pool_windows import pooled_shape, prepared
from odyssey.spec import Array, Shape, Spec, spec_of
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.samples import reject, sample

TIES = "elements that share the largest value of a window share its gradient evenly; NaN is largest"

# ------------------------------------------------------------------ rows


def _takes(x: Spec, window: Shape, *options: Any) -> bool:
    from odyssey.kernels.pooling import in_fours, takes

    if options[-1]:  # ceil_mode: the loops know no windows that go beyond
        return False

    # NumPy is as fast with few places within a window, unless windows lie side by side.
    few = math.prod(window) <= 4
    return takes(x, window) and (not few or in_fours(x, window, *options))


def _compiled(x: Array, *all_options: Any) -> Array:
    from odyssey.kernels import pooling

    *options, _ = all_options
    if pooling.in_fours(spec_of(x), *options):
        return pooling.largest_of_four(x, *options)
    return pooling.largest(x, pooled_shape("max_pool2d", x.shape, *options), *options)


# Of fewer elements no loop runs on the way back, and the result is kept for it, to search no more.
_KEPT = SIZES["max_pool_pullback"]


def _rule(
    g: Any,
    x: Any,
    window: Shape,
    stride: Shape,
    padding: Shape,
    dilation: Shape,
    ceil_mode: bool,
    residual: Any = None,
) -> Any:
    """The cotangent of ``x``; the residual is the result."""
    options = window, stride, padding, dilation, ceil_mode
    if residual is None:
        return max_pool_pullback(g, x, *options)
    return pull(g, x, *options, peak=residual)


def _row(dims: int, *samples: Any, small: Any) -> dict[str, Any]:
    """What the rows of so many spatial axes are declared with."""
    who = f"max_pool{dims}d"

    def infer(x: Spec, *options: Any) -> Spec:
        return Spec(pooled_shape(who, x.shape, *options), x.dtype)

    def leaving(x: Any, *options: Any) -> tuple[Any, Any] | None:
        if x.size >= _KEPT or x.dtype.kind != "f":
            return None
        out = max_pool(who, x, *options)
        return out, out

    return {
        "real": True,
        "selects": True,
        "with_residual": leaving,
        "prepare": lambda *options: prepared(who, dims, *options),
        "kernel": lambda x, *options: max_pool(who, x, *options),
        "decomposition": max_pool_in_ops,
        "infer": infer,
        "vjp": {"x": _rule},
        "jvp": {
            "x": lambda t, x, window, stride, padding, dilation, ceil_mode: max_pool_pushforward(
                t, x, window, stride, padding, dilation, ceil_mode
            )
        },
        "kinks": TIES,
        "samples": [*samples, sample((0, *small), window=2)],
        "rejects": [
            reject(small, window=9, match="does not fit"),
            reject(small, window=3, padding=2, match="half of the window"),
            reject((), window=2, match="wanted is"),
            reject(small, window=(2,) * 4, match="spatial axes"),
            reject(small, window=0, error=SettingError, match="at least 1"),
            reject(small, window=2.5, error=DTypeError, match="whole number"),
            reject(small, window=2, ceil_mode="x", error=DTypeError, match="not a flag"),
        ],
    }


def _signature(
    x: Any,
    /,
    *,
    window: int | tuple[int, ...],
    stride: int | tuple[int, ...] | None = None,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """How max pooling is called."""


def _or_indices(pooled: Any) -> Any:
    """The op, which also gives the places of what it found where ``return_indices`` says so.

    A row has one result or several, whatever its options are; so this is asked before it.
    """
    row = pooled.row

    def call(*args: Any, **named: Any) -> Any:
        if "return_indices" not in named:
            return pooled(*args, **named)
        wanted = flag(row.name, "return_indices", named.pop("return_indices"))
        out = pooled(*args, **named)
        if not wanted:
            return out
        tape = named.pop("tape", None)
        operands, options = row.bind(args, named)
        return out, max_pool_indices(*operands, *options, tape=tape)

    call.__name__ = call.__qualname__ = row.name
    call.__module__, call.__doc__ = row.module, row.doc
    call.__wrapped__ = _signature  # type: ignore[attr-defined]
    call.row = row  # type: ignore[attr-defined]
    row.call = call
    return call


@_or_indices
@op(
    **_row(
        1,
        sample((2, 3, 6), window=2, spread=True),
        sample((2, 7), window=3, stride=2, padding=1, spread=True),
        sample((5,), window=2, stride=1, dilation=2, spread=True),
        sample((6,), window=3, stride=2, ceil_mode=True, spread=True),
        small=(2, 4),
    )
)
def max_pool1d(
    x: Any,
    /,
    *,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Largest element of each window over the last axis; NaN if one is NaN.

    As ``max_pool2d``, over one spatial axis.
    """
    return max_pool("max_pool1d", x, window, stride, padding, dilation, ceil_mode)


@_or_indices
@op(
    aliases=["maxpool2d"],
    kernels=[Kernel("a loop over windows", _compiled, when=_takes)],
    **_row(
        2,
        sample((2, 1, 4, 4), window=2, spread=True),
        sample((2, 6), window=2, spread=True),
        sample((1, 5, 4), window=(3, 2), stride=(2, 1), padding=(1, 0), spread=True),
        sample((2, 5, 6), window=2, stride=1, dilation=(1, 3), spread=True),
        sample((1, 5, 5), window=2, spread=True),
        sample((1, 6, 5), window=(3, 2), stride=2, padding=(1, 0), ceil_mode=True, spread=True),
        small=(2, 4, 4),
    ),
)
def max_pool2d(
    x: Any,
    /,
    *,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Largest element of each window over the last two axes; NaN if one is NaN.

    Args:
        x: Images, (..., height, width).
        window: Height and width of the windows, or a number for both.
        stride: From window to window; by default the window, so that they lie side by side.
        padding: So many elements on each side that are below all others.
        dilation: From place to place within a window.
        ceil_mode: Whether a last window may go beyond the padding, if it begins before.
        return_indices: Return a pair: the result, and the number of the first largest element of
            each window, among all elements of its image in row-major order, as integers.

    Returns:
        Images of as many elements as there are windows, or the pair.

    Raises:
        ShapeError: where no window fits, or the padding is more than half of the window.

    >>> x = np.arange(16.0).reshape(1, 4, 4)
    >>> max_pool2d(x, window=2)
    array([[[ 5.,  7.],
            [13., 15.]]])
    >>> max_pool2d(x, window=2, return_indices=True)[1]
    array([[[ 5,  7],
            [13, 15]]])
    """
    return max_pool("max_pool2d", x, window, stride, padding, dilation, ceil_mode)


@_or_indices
@op(
    **_row(
        3,
        sample((1, 2, 4, 2), window=2, spread=True),
        sample((2, 3, 2, 3), window=2, stride=1, padding=(1, 0, 1), spread=True),
        sample((3, 2, 3), window=2, ceil_mode=True, spread=True),
        small=(4, 4, 4),
    )
)
def max_pool3d(
    x: Any,
    /,
    *,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """Largest element of each window over the last three axes; NaN if one is NaN.

    As ``max_pool2d``, over three spatial axes.
    """
    return max_pool("max_pool3d", x, window, stride, padding, dilation, ceil_mode)


publish(globals())

"""Average pooling: the mean of each window, and the way back."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.nn.average_windows import MEAN, averages, spread_back
from odyssey.nn.pool_windows import pooled_shape, prepared, shapes_fit
from odyssey.nn.windows_in_ops import averages_in_ops, spread_in_ops
from odyssey.ops.reductions.broadcast_back import spread
from odyssey.ops.reductions.reduce import mean, over
from odyssey.ops.structure.half_precision import in_single
from odyssey.spec import Array, Shape, Spec
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ compiled


def _in_fours(x: Spec, window: Shape, stride: Shape, padding: Shape, *others: Any) -> bool:
    from odyssey.kernels.pooling import in_fours

    return in_fours(x, window, stride, padding)


def _mean_of_four(x: Array, *options: Any) -> Array:
    from odyssey.kernels.pooling import mean_of_four

    return mean_of_four(x, *options)


def _spread_in_fours(g: Spec, *options: Any) -> bool:
    *windows, _, spec, ceil_mode = options
    # The loop trusts the shapes.
    fits = shapes_fit(g.shape, spec.shape, *windows, (1,) * len(windows[0]), ceil_mode)
    return fits and _in_fours(Spec(spec.shape, g.dtype), *windows)


def _spread_over_four(g: Array, *options: Any) -> Array:
    from odyssey.kernels.pooling import to_fours

    return to_fours(g, options[-2])


# ------------------------------------------------------------------ rows


def _spread_spec(
    g: Spec,
    window: Shape,
    stride: Shape,
    padding: Shape,
    count_include_pad: bool,
    spec: Spec,
    ceil_mode: bool,
) -> Spec:
    options = (window, stride, padding, (1,) * len(window), ceil_mode)
    wanted = pooled_shape("avg_pool_pullback", spec.shape, *options)
    if g.shape != wanted:
        raise ShapeError(
            f"avg_pool_pullback: the cotangent has shape {g.shape}; the windows of {spec} give "
            f"{wanted}"
        )
    return Spec(spec.shape, MEAN(g.dtype))


_OPTIONS = ("window", "stride", "padding", "count_include_pad", "ceil_mode")


def _again(g: Any, window: Shape, *others: Any) -> Any:
    """The op of as many axes as the options have numbers."""
    pooled = (avg_pool1d, avg_pool2d, avg_pool3d)[len(window) - 1]
    return pooled(g, **dict(zip(_OPTIONS, (window, *others), strict=True)))


@op(
    linear=True,
    decomposition=in_single(lambda cotangent, *options: spread_in_ops(cotangent, *options)),
    kernels=[Kernel("a loop over windows of four", _spread_over_four, when=_spread_in_fours)],
    infer=_spread_spec,
    vjp={
        "cotangent": lambda g, window, stride, padding, count_include_pad, ceil_mode: _again(
            g, window, stride, padding, count_include_pad, ceil_mode
        )
    },
    samples=[
        sample(
            (2, 2, 2),
            window=(2, 2),
            stride=(2, 2),
            padding=(0, 0),
            count_include_pad=True,
            spec=Spec((2, 4, 4), np.dtype(np.float64)),
        ),
        sample(
            (1, 3),
            window=(2, 2),
            stride=(2, 2),
            padding=(0, 0),
            count_include_pad=False,
            spec=Spec((2, 6), np.dtype(np.float64)),
        ),
        sample(
            (2, 2, 2),
            window=(2, 2),
            stride=(2, 2),
            padding=(0, 0),
            count_include_pad=True,
            spec=Spec((2, 4, 5), np.dtype(np.float64)),
        ),
        sample(
            (2, 3, 3),
            window=(3, 2),
            stride=(2, 1),
            padding=(1, 0),
            count_include_pad=False,
            spec=Spec((2, 5, 4), np.dtype(np.float64)),
        ),
        sample(
            (4,),
            window=(3,),
            stride=(2,),
            padding=(1,),
            count_include_pad=True,
            spec=Spec((6,), np.dtype(np.float64)),
            ceil_mode=True,
        ),
        sample(
            (2, 1, 2),
            window=(5, 5),
            stride=(5, 5),
            padding=(0, 0),
            count_include_pad=True,
            spec=Spec((2, 5, 10), np.dtype(np.float64)),
        ),
        sample(
            (3, 3),
            window=(5, 4),
            stride=(2, 2),
            padding=(2, 1),
            count_include_pad=False,
            spec=Spec((6, 7), np.dtype(np.float64)),
        ),
        sample(
            (0, 3),
            window=(2,),
            stride=(1,),
            padding=(0,),
            count_include_pad=True,
            spec=Spec((0, 4), np.dtype(np.float64)),
        ),
    ],
    rejects=[
        reject(
            (2, 3),
            window=(2,),
            stride=(2,),
            padding=(0,),
            count_include_pad=True,
            spec=Spec((2, 4), np.dtype(np.float64)),
            match="the cotangent has shape",
        )
    ],
)
def avg_pool_pullback(
    cotangent: Any,
    /,
    window: Shape,
    stride: Shape,
    padding: Shape,
    count_include_pad: bool,
    spec: Spec,
    ceil_mode: bool = False,
) -> Any:
    """Gradient of means over windows of an array of ``spec``: each spread over its window."""
    return spread_back(cotangent, window, stride, padding, count_include_pad, spec, ceil_mode)


def _row(dims: int, *samples: Any, small: Any) -> dict[str, Any]:
    """What the rows of so many spatial axes are declared with."""
    who = f"avg_pool{dims}d"

    def prepare(
        window: Any, stride: Any, padding: Any, count_include_pad: Any, ceil_mode: Any
    ) -> Any:
        *places, _, beyond = prepared(who, dims, window, stride, padding, 1, ceil_mode)
        return *places, count_include_pad, beyond

    def infer(
        x: Spec,
        window: Shape,
        stride: Shape,
        padding: Shape,
        count_include_pad: bool,
        ceil_mode: bool,
    ) -> Spec:
        shape = pooled_shape(who, x.shape, window, stride, padding, (1,) * dims, ceil_mode)
        return Spec(shape, MEAN(x.dtype))

    return {
        "linear": True,
        "prepare": prepare,
        "kernel": lambda x, *options: averages(who, x, *options),
        "decomposition": in_single(averages_in_ops),
        "infer": infer,
        "vjp": {
            "x": lambda g, x_spec, window, stride, padding, count_include_pad, ceil_mode: (
                avg_pool_pullback(g, window, stride, padding, count_include_pad, x_spec, ceil_mode)
            )
        },
        "samples": [*samples, sample((0, *small), window=2)],
        "rejects": [
            reject(small, window=9, match="does not fit"),
            reject(small, window=3, padding=2, match="half of the window"),
            reject((), window=2, match="wanted is"),
            reject(small, window=(2,) * 4, match="spatial axes"),
            reject(small, window=2, stride=0, error=SettingError, match="at least 1"),
            reject(small, window="2", error=DTypeError, match="whole number"),
            reject(small, window=2, ceil_mode="x", error=DTypeError, match="not a flag"),
        ],
    }


@op(
    **_row(
        1,
        sample((2, 3, 6), window=2),
        sample((2, 7), window=3, stride=2, padding=1, count_include_pad=False),
        sample((5,), window=2, stride=1),
        sample((6,), window=3, stride=2, padding=1, ceil_mode=True),
        sample((2, 36), window=18),
        small=(2, 4),
    )
)
def avg_pool1d(
    x: Any,
    /,
    *,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
) -> Any:
    """Mean of each window over the last axis.

    As ``avg_pool2d``, over one spatial axis.
    """
    return averages("avg_pool1d", x, window, stride, padding, count_include_pad, ceil_mode)


@op(
    aliases=["avgpool2d"],
    kernels=[Kernel("a loop over windows of four", _mean_of_four, when=_in_fours)],
    **_row(
        2,
        sample((2, 1, 4, 4), window=2),
        sample((2, 6), window=2),
        sample((1, 5, 4), window=(3, 2), stride=(2, 1), padding=(1, 0)),
        sample((1, 5, 4), window=(3, 2), stride=(2, 1), padding=(1, 1), count_include_pad=False),
        sample((1, 5, 5), window=2),
        sample((6, 5), window=(3, 2), stride=2, padding=(1, 0), ceil_mode=True),
        sample((6, 5), window=3, stride=2, padding=1, count_include_pad=False, ceil_mode=True),
        sample((2, 5, 10), window=5),
        sample((6, 7), window=(5, 4), stride=(2, 1), padding=2, count_include_pad=False),
        small=(2, 4, 4),
    ),
)
def avg_pool2d(
    x: Any,
    /,
    *,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
) -> Any:
    """Mean of each window over the last two axes.

    Args:
        x: Images, (..., height, width).
        window: Height and width of the windows, or a number for both.
        stride: From window to window; by default the window, so that they lie side by side.
        padding: So many zeros on each side.
        count_include_pad: Whether the zeros count as elements of a window, or only add nothing.
        ceil_mode: Whether a last window may go beyond the padding, if it begins before; what is
            beyond does not count.

    Returns:
        Images of as many elements as there are windows.

    Raises:
        ShapeError: where no window fits, or the padding is more than half of the window.

    >>> avg_pool2d(np.arange(16.0).reshape(1, 4, 4), window=2)
    array([[[ 2.5,  4.5],
            [10.5, 12.5]]])
    """
    return averages("avg_pool2d", x, window, stride, padding, count_include_pad, ceil_mode)


@op(
    **_row(
        3,
        sample((1, 2, 4, 2), window=2),
        sample((2, 3, 2, 3), window=2, stride=1, padding=(1, 0, 1), count_include_pad=False),
        small=(4, 4, 4),
    )
)
def avg_pool3d(
    x: Any,
    /,
    *,
    window: Any,
    stride: Any = None,
    padding: Any = 0,
    count_include_pad: bool = True,
    ceil_mode: bool = False,
) -> Any:
    """Mean of each window over the last three axes.

    As ``avg_pool2d``, over three spatial axes.
    """
    return averages("avg_pool3d", x, window, stride, padding, count_include_pad, ceil_mode)


# ------------------------------------------------------------------ of whole images


def _global_spec(x: Spec) -> Spec:
    if x.ndim < 2:
        raise ShapeError(f"global_avg_pool2d: x has shape {x.shape}; wanted is (..., H, W)")
    return Spec((*x.shape[:-2], 1, 1), MEAN(x.dtype))


def _global(x: Any) -> Any:
    if np.ndim(x) < 2:
        raise ValueError("x has no images")
    return np.mean(x, (-2, -1), keepdims=True)


@op(
    linear=True,
    aliases=["global_avgpool2d"],
    kernel=_global,
    decomposition=lambda x: mean(x, (-2, -1), keepdims=True),
    infer=_global_spec,
    vjp={
        "x": lambda g, x_spec: spread(
            over(g, x_spec.shape[-2] * x_spec.shape[-1] or 1), x_spec, (-2, -1), True
        )
    },
    samples=[sample((2, 3, 4, 2)), sample((3, 2)), sample((0, 2, 2)), sample((1, 2, 1, 1))],
    rejects=[reject((3,), match=r"wanted is \(..., H, W\)")],
)
def global_avg_pool2d(x: Any, /) -> Any:
    """Mean of each image over its last two axes, which stay, at length 1.

    >>> global_avg_pool2d(np.arange(8.0).reshape(1, 2, 2, 2))
    array([[[[1.5]],
    <BLANKLINE>
            [[5.5]]]])
    """
    return _global(x)


publish(globals())

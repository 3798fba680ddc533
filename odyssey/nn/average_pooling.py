"""Average pooling: the mean of each window, and the way back."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.nn.pool_windows import Plan, along, plan_for, pooled_shape, prepared
from odyssey.ops.elementwise.arithmetic import add, div
from odyssey.ops.folds.reductions import mean, over, spread
from odyssey.ops.structure.indexing import add_at, getitem
from odyssey.spec import Array, Shape, Spec
from odyssey.table.declare import op, publish
from odyssey.table.operands import real_dtype
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import made_by

_MEAN = made_by(np.mean)

# ------------------------------------------------------------------ on arrays


def _plan(who: str, x: Any, window: Shape, stride: Shape, padding: Shape) -> Plan:
    return plan_for(who, x, window, stride, padding, (1,) * len(window))


def _over(plan: Plan, window: Shape, count_include_pad: bool) -> Any:
    """What the sums of windows are divided by: one number, or one for each window."""
    whole = count_include_pad or len(plan.keys) == 1
    if whole or all((a.filled == n).all() for a, n in zip(plan.axes, window, strict=True)):
        return float(math.prod(window))
    counts: Any = 1.0
    for axis in plan.axes:
        counts = np.multiply.outer(counts, axis.filled)
    return counts


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that sums are made in: half precision would lose too much."""
    return np.dtype(np.float32) if dtype == np.float16 else _MEAN(dtype)


def _averages(
    who: str, x: Any, window: Shape, stride: Shape, padding: Shape, count_include_pad: bool
) -> Array:
    plan = _plan(who, x, window, stride, padding)
    dims, wide, result = len(window), _wide(x.dtype), _MEAN(x.dtype)
    out = x
    for k in reversed(range(dims)):
        axis = plan.axes[k]
        shape = list(out.shape)
        shape[k - dims] = axis.windows
        sums = np.zeros(shape, wide)
        for windows, elements in axis.reads:
            part = sums[along(k, dims, windows)]
            np.add(part, out[along(k, dims, elements)], out=part)
        out = sums
    out /= np.asarray(_over(plan, window, count_include_pad), real_dtype(wide))
    return out.astype(result, copy=False)


def _spread(
    g: Any, window: Shape, stride: Shape, padding: Shape, count_include_pad: bool, spec: Spec
) -> Array:
    plan = _plan("avg_pool_pullback", spec, window, stride, padding)
    if g.shape != spec.shape[: spec.ndim - len(window)] + plan.out:
        raise ValueError("g has another shape than the windows")
    dims, wide, result = len(window), _wide(g.dtype), _MEAN(g.dtype)
    out: Array = g / np.asarray(
        _over(plan, window, count_include_pad), np.zeros(0, wide).real.dtype
    )
    for k in range(dims):
        shape = list(out.shape)
        shape[k - dims] = spec.shape[k - dims]
        parts = np.zeros(shape, wide)
        for windows, elements in plan.axes[k].reads:
            part = parts[along(k, dims, elements)]
            if plan.apart:
                part[...] = out[along(k, dims, windows)]
            else:
                np.add(part, out[along(k, dims, windows)], out=part)
        out = parts
    return out.astype(result, copy=False)


# ------------------------------------------------------------------ in ops


def _averages_in_ops(
    x: Any, window: Shape, stride: Shape, padding: Shape, count_include_pad: bool
) -> Any:
    plan = _plan("avg_pool", x, window, stride, padding)
    counts = _over(plan, window, count_include_pad)
    total: Any = None
    shape = (*x.shape[: len(x.shape) - len(window)], *plan.out)
    dtype = _MEAN(np.dtype(x.dtype))
    for windows, elements in plan.keys:
        part = add_at(div(getitem(x, elements), 1), windows, spec=Spec(shape, dtype))
        total = part if total is None else add(total, part)
    return div(total, np.asarray(counts, real_dtype(dtype)))


def _spread_in_ops(
    g: Any, window: Shape, stride: Shape, padding: Shape, count_include_pad: bool, spec: Spec
) -> Any:
    plan = _plan("avg_pool", spec, window, stride, padding)
    dtype = _MEAN(np.dtype(g.dtype))
    counts = np.asarray(_over(plan, window, count_include_pad), real_dtype(dtype))
    share, total = div(g, counts), None
    for windows, elements in plan.keys:
        part = add_at(getitem(share, windows), elements, spec=Spec(spec.shape, dtype))
        total = part if total is None else add(total, part)
    return total


# ------------------------------------------------------------------ rows


def _spread_spec(
    g: Spec, window: Shape, stride: Shape, padding: Shape, count_include_pad: bool, spec: Spec
) -> Spec:
    ones = (1,) * len(window)
    wanted = pooled_shape("avg_pool_pullback", spec.shape, window, stride, padding, ones)
    if g.shape != wanted:
        raise ShapeError(
            f"avg_pool_pullback: the cotangent has shape {g.shape}; the windows of {spec} give "
            f"{wanted}"
        )
    return Spec(spec.shape, _MEAN(g.dtype))


def _again(g: Any, window: Shape, stride: Shape, padding: Shape, count_include_pad: bool) -> Any:
    """The op of as many axes as the options have numbers."""
    pooled = (avg_pool1d, avg_pool2d, avg_pool3d)[len(window) - 1]
    return pooled(
        g, window=window, stride=stride, padding=padding, count_include_pad=count_include_pad
    )


@op(
    linear=True,
    equals=lambda cotangent, window, stride, padding, count_include_pad, spec: _spread_in_ops(
        cotangent, window, stride, padding, count_include_pad, spec
    ),
    infer=_spread_spec,
    vjp={
        "cotangent": lambda g, window, stride, padding, count_include_pad: _again(
            g, window, stride, padding, count_include_pad
        )
    },
    samples=[
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
) -> Any:
    """Gradient of means over windows of an array of ``spec``: each spread over its window."""
    return _spread(cotangent, window, stride, padding, count_include_pad, spec)


def _row(dims: int, *samples: Any, small: Any) -> dict[str, Any]:
    """What the rows of so many spatial axes are declared with."""
    who = f"avg_pool{dims}d"

    def prepare(window: Any, stride: Any, padding: Any, count_include_pad: Any) -> Any:
        return *prepared(who, dims, window, stride, padding)[:3], count_include_pad

    def infer(
        x: Spec, window: Shape, stride: Shape, padding: Shape, count_include_pad: bool
    ) -> Spec:
        shape = pooled_shape(who, x.shape, window, stride, padding, (1,) * dims)
        return Spec(shape, _MEAN(x.dtype))

    return {
        "linear": True,
        "prepare": prepare,
        "kernel": lambda x, *options: _averages(who, x, *options),
        "equals": _averages_in_ops,
        "infer": infer,
        "vjp": {
            "x": lambda g, x_spec, window, stride, padding, count_include_pad: avg_pool_pullback(
                g, window, stride, padding, count_include_pad, x_spec
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
        ],
    }


@op(
    **_row(
        1,
        sample((2, 3, 6), window=2),
        sample((2, 7), window=3, stride=2, padding=1, count_include_pad=False),
        sample((5,), window=2, stride=1),
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
) -> Any:
    """Mean of each window over the last axis.

    As ``avg_pool2d``, over one spatial axis.
    """
    return _averages("avg_pool1d", x, window, stride, padding, count_include_pad)


@op(
    aliases=["avgpool2d"],
    **_row(
        2,
        sample((2, 1, 4, 4), window=2),
        sample((1, 5, 4), window=(3, 2), stride=(2, 1), padding=(1, 0)),
        sample((1, 5, 4), window=(3, 2), stride=(2, 1), padding=(1, 1), count_include_pad=False),
        sample((1, 5, 5), window=2),
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
) -> Any:
    """Mean of each window over the last two axes.

    Args:
        x: Images, (..., height, width).
        window: Height and width of the windows, or a number for both.
        stride: From window to window; by default the window, so that they lie side by side.
        padding: So many zeros on each side.
        count_include_pad: Whether the zeros count as elements of a window, or only add nothing.

    Returns:
        Images of as many elements as there are windows.

    Raises:
        ShapeError: where no window fits, or the padding is more than half of the window.

    >>> avg_pool2d(np.arange(16.0).reshape(1, 4, 4), window=2)
    array([[[ 2.5,  4.5],
            [10.5, 12.5]]])
    """
    return _averages("avg_pool2d", x, window, stride, padding, count_include_pad)


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
) -> Any:
    """Mean of each window over the last three axes.

    As ``avg_pool2d``, over three spatial axes.
    """
    return _averages("avg_pool3d", x, window, stride, padding, count_include_pad)


# ------------------------------------------------------------------ of whole images


def _global_spec(x: Spec) -> Spec:
    if x.ndim < 2:
        raise ShapeError(f"global_avg_pool2d: x has shape {x.shape}; wanted is (..., H, W)")
    return Spec((*x.shape[:-2], 1, 1), _MEAN(x.dtype))


def _global(x: Any) -> Any:
    if np.ndim(x) < 2:
        raise ValueError("x has no images")
    return np.mean(x, (-2, -1), keepdims=True)


@op(
    linear=True,
    aliases=["global_avgpool2d"],
    kernel=_global,
    equals=lambda x: mean(x, (-2, -1), keepdims=True),
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

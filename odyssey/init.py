"""Initial values of parameters: functions that return arrays drawn from a ``Generator``.

The standard deviation of weights follows from a fan, the number of inputs of a unit (``"in"``), of
its outputs (``"out"``) or their mean (``"avg"``). ``layout`` says which axes these are:

* ``"out_in"``, the default: (out, in), as ``nn.linear`` takes it, and (out, in / groups, *window),
  as convolutions do.
* ``"in_out"``: (in, out), as ``x @ weight`` takes it, and (in, out / groups, *window), as
  transposed convolutions do.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from odyssey import linalg, ops, special
from odyssey.checks import check_number, format_value
from odyssey.errors import SettingError, ShapeError
from odyssey.ops.random.philox import dtype_option, shape_option
from odyssey.spec import Array, Shape

__all__ = [
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "orthogonal",
    "truncated_normal",
    "variance_scaling",
]

Fan = Literal["in", "out", "avg"]
Layout = Literal["out_in", "in_out"]
Distribution = Literal["normal", "truncated_normal", "uniform"]

# The standard deviation of a standard normal variable between -2 and 2.
_TRUNCATED_STD = 0.87962566103423978


def _check_choice(who: str, name: str, value: Any, choices: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise SettingError(
            f"{who}: {name}={format_value(value)}; choose {', '.join(map(repr, choices))}"
        )


def _fan_size(who: str, shape: Shape, fan: str, layout: str) -> float:
    """Return the fan of weights of a shape; raise ShapeError if they have fewer than two axes."""
    _check_choice(who, "fan", fan, ("in", "out", "avg"))
    _check_choice(who, "layout", layout, ("out_in", "in_out"))
    if len(shape) < 2:
        raise ShapeError(
            f"{who}: shape={shape} has no fan; wanted is (out, in, *window), or (in, out, *window) "
            "with layout='in_out'"
        )
    window = math.prod(shape[2:])
    first, second = shape[0] * window, shape[1] * window
    size = {"out_in": {"in": second, "out": first}, "in_out": {"in": first, "out": second}}[layout]
    return size[fan] if fan != "avg" else (first + second) / 2


def _draw_scaled(
    who: str,
    rng: Any,
    shape: Any,
    dtype: Any,
    scale: float,
    fan: str,
    distribution: str,
    layout: str,
) -> Array:
    sizes, kind = shape_option(who, shape), dtype_option(who, dtype)
    size = _fan_size(who, sizes, fan, layout)
    _check_choice(who, "distribution", distribution, ("normal", "truncated_normal", "uniform"))
    std = math.sqrt(check_number(who, "scale", scale, "[0, inf)") / max(size, 1))
    if distribution == "truncated_normal":
        return truncated_normal(rng, sizes, kind, std=std / _TRUNCATED_STD)
    if distribution == "normal":
        return _cast_drawn(ops.random_normal(sizes, std=std, rng=rng), kind)
    limit = math.sqrt(3.0) * std
    return _cast_drawn(ops.random_uniform(sizes, low=-limit, high=limit, rng=rng), kind)


def _cast_drawn(values: Any, dtype: np.dtype[Any]) -> Array:
    """Round float64 numbers once, to the dtype of the result."""
    found: Array = ops.astype(values, dtype)
    return found


def variance_scaling(
    rng: Any,
    shape: int | tuple[int, ...],
    dtype: Any = np.float32,
    *,
    scale: float = 1.0,
    fan: Fan = "in",
    distribution: Distribution = "truncated_normal",
    layout: Layout = "out_in",
) -> Array:
    """Weights with mean 0 and variance ``scale / fan``.

    Args:
        rng: The ``od.Generator`` to draw from; None stands for that of the process.
        shape: Shape of the weights, of two axes or more.
        dtype: float16, bfloat16, float32 or float64; numbers are drawn in float64 and rounded once.
        scale: The numerator of the variance.
        fan: Number of inputs of a unit, ``"in"``; of outputs, ``"out"``; or their mean, ``"avg"``.
        distribution: ``"normal"``, ``"uniform"``, or a normal distribution cut off at two standard
            deviations, ``"truncated_normal"``, whose variance is ``scale / fan`` after the cut.
        layout: Whether the axes are (out, in, *window), ``"out_in"``, or (in, out, *window),
            ``"in_out"``.

    Raises:
        ShapeError: if the shape has fewer than two axes.

    >>> import odyssey as od
    >>> weight = variance_scaling(od.Generator(7), (64, 100), scale=4.0, distribution="normal")
    >>> weight.shape, weight.dtype, weight.std().round(2)
    ((64, 100), dtype('float32'), np.float32(0.2))
    """
    who = "variance_scaling"
    return _draw_scaled(who, rng, shape, dtype, scale, fan, distribution, layout)


def he_normal(
    rng: Any,
    shape: int | tuple[int, ...],
    dtype: Any = np.float32,
    *,
    fan: Fan = "in",
    layout: Layout = "out_in",
) -> Array:
    """He initialization (He et al. 2015), truncated normal with variance ``2 / fan``.

    Keeps the variance of activations through layers with ``relu``. As in JAX, numbers are at most
    two standard deviations of the normal distribution from 0; ``variance_scaling`` with
    ``scale=2.0`` and ``distribution="normal"`` draws PyTorch's ``kaiming_normal_``. The arguments
    are those of ``variance_scaling``.

    >>> import odyssey as od
    >>> he_normal(od.Generator(7), (50, 200)).std().round(2)
    np.float32(0.1)
    """
    return _draw_scaled("he_normal", rng, shape, dtype, 2.0, fan, "truncated_normal", layout)


def he_uniform(
    rng: Any,
    shape: int | tuple[int, ...],
    dtype: Any = np.float32,
    *,
    fan: Fan = "in",
    layout: Layout = "out_in",
) -> Array:
    """He initialization (He et al. 2015), uniform in ``±sqrt(6 / fan)``.

    The arguments are those of ``variance_scaling``.

    >>> import odyssey as od
    >>> abs(he_uniform(od.Generator(7), (50, 600))).max().round(2)
    np.float32(0.1)
    """
    return _draw_scaled("he_uniform", rng, shape, dtype, 2.0, fan, "uniform", layout)


def lecun_normal(
    rng: Any,
    shape: int | tuple[int, ...],
    dtype: Any = np.float32,
    *,
    fan: Fan = "in",
    layout: Layout = "out_in",
) -> Array:
    """LeCun initialization (LeCun et al. 1998), truncated normal with variance ``1 / fan``.

    For ``tanh`` and ``selu``. The arguments are those of ``variance_scaling``.

    >>> import odyssey as od
    >>> lecun_normal(od.Generator(7), (100, 100)).std().round(2)
    np.float32(0.1)
    """
    return _draw_scaled("lecun_normal", rng, shape, dtype, 1.0, fan, "truncated_normal", layout)


def lecun_uniform(
    rng: Any,
    shape: int | tuple[int, ...],
    dtype: Any = np.float32,
    *,
    fan: Fan = "in",
    layout: Layout = "out_in",
) -> Array:
    """LeCun initialization (LeCun et al. 1998), uniform in ``±sqrt(3 / fan)``.

    The arguments are those of ``variance_scaling``.

    >>> import odyssey as od
    >>> abs(lecun_uniform(od.Generator(7), (50, 300))).max().round(2)
    np.float32(0.1)
    """
    return _draw_scaled("lecun_uniform", rng, shape, dtype, 1.0, fan, "uniform", layout)


def glorot_normal(
    rng: Any,
    shape: int | tuple[int, ...],
    dtype: Any = np.float32,
    *,
    layout: Layout = "out_in",
) -> Array:
    """Glorot initialization (Glorot and Bengio 2010), of variance ``2 / (fan_in + fan_out)``.

    Truncated normal; also known by the name Xavier. The arguments are those of
    ``variance_scaling``.

    >>> import odyssey as od
    >>> glorot_normal(od.Generator(7), (50, 150)).std().round(2)
    np.float32(0.1)
    """
    return _draw_scaled("glorot_normal", rng, shape, dtype, 1.0, "avg", "truncated_normal", layout)


def glorot_uniform(
    rng: Any,
    shape: int | tuple[int, ...],
    dtype: Any = np.float32,
    *,
    layout: Layout = "out_in",
) -> Array:
    """Glorot initialization (Glorot and Bengio 2010), in ``±sqrt(6 / (fan_in + fan_out))``.

    Uniform; also known by the name Xavier. The arguments are those of ``variance_scaling``.

    >>> import odyssey as od
    >>> abs(glorot_uniform(od.Generator(7), (200, 400))).max().round(2)
    np.float32(0.1)
    """
    return _draw_scaled("glorot_uniform", rng, shape, dtype, 1.0, "avg", "uniform", layout)


def orthogonal(
    rng: Any,
    shape: int | tuple[int, ...],
    dtype: Any = np.float32,
    *,
    gain: float = 1.0,
) -> Array:
    """Orthogonal matrices (Saxe, McClelland and Ganguli 2014), uniformly distributed.

    Args:
        rng: The ``od.Generator`` to draw from; None stands for that of the process.
        shape: (rows, ...): the axes behind the first are the columns of one matrix. Its rows are
            orthonormal, or its columns, whichever are fewer.
        dtype: float16, bfloat16, float32 or float64; computed in float64 and rounded once.
        gain: Factor of the matrix.

    Raises:
        ShapeError: if the shape has fewer than two axes.

    >>> import odyssey as od
    >>> q = orthogonal(od.Generator(7), (2, 3), np.float64)
    >>> np.allclose(q @ q.T, np.eye(2))
    True
    """
    who = "orthogonal"
    sizes, kind = shape_option(who, shape), dtype_option(who, dtype)
    if len(sizes) < 2:
        raise ShapeError(f"{who}: shape={sizes}; wanted are two axes or more")
    scale = check_number(who, "gain", gain)
    rows, columns = sizes[0], math.prod(sizes[1:])
    normal = ops.random_normal((max(rows, columns), min(rows, columns)), rng=rng)
    # With the signs of R's diagonal Q is uniformly distributed (Mezzadri 2007).
    q, r = linalg.qr(normal)
    q = ops.multiply(q, ops.where(ops.less(ops.diagonal(r), 0), -scale, scale))
    return _cast_drawn(ops.reshape(q if rows >= columns else ops.transpose(q), sizes), kind)


def truncated_normal(
    rng: Any,
    shape: int | tuple[int, ...],
    dtype: Any = np.float32,
    *,
    mean: float = 0.0,
    std: float = 1.0,
    low: float = -2.0,
    high: float = 2.0,
) -> Array:
    """Numbers of a normal distribution that lie between two bounds.

    Args:
        rng: The ``od.Generator`` to draw from; None stands for that of the process.
        shape: Shape of the result, an int or a tuple of ints.
        dtype: float16, bfloat16, float32 or float64; numbers are drawn in float64 and rounded once.
        mean: Mean of the normal distribution before it is cut off.
        std: Its standard deviation, not negative.
        low: Lower bound, in standard deviations from the mean: at most 37, or -inf.
        high: Upper bound, likewise: at least -37, or inf.

    Raises:
        SettingError: if ``low`` is not below ``high``.

    >>> import odyssey as od
    >>> truncated_normal(od.Generator(7), (3,), low=-1.0, high=1.0).round(3)
    array([0.751, 0.494, 0.904], dtype=float32)
    """
    who = "truncated_normal"
    sizes, kind = shape_option(who, shape), dtype_option(who, dtype)
    center, width = check_number(who, "mean", mean), check_number(who, "std", std, "[0, inf)")
    # Beyond 37 deviations probabilities are subnormal numbers, which have few digits.
    lower = max(check_number(who, "low", low, "[-inf, 37]"), -37.0)
    upper = min(check_number(who, "high", high, "[-37, inf]"), 37.0)
    if not lower < upper:
        raise SettingError(f"{who}: low={low!r} must be below high={high!r}")
    # The upper tail is drawn as the lower one: its probabilities keep their digits.
    flipped = lower > 0
    first, last = (-upper, -lower) if flipped else (lower, upper)
    below, above = (math.erfc(-bound / math.sqrt(2.0)) / 2 for bound in (first, last))
    u = ops.random_uniform(sizes, rng=rng)
    z = special.ndtri(ops.add(below, ops.multiply(above - below, u)))
    z = ops.clip(z, first, last)
    return _cast_drawn(ops.add(center, ops.multiply(-width if flipped else width, z)), kind)


def __dir__() -> list[str]:
    return sorted(__all__)

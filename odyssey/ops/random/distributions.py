"""Uniform and normal distributions, drawn from a ``Generator``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_number
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.ops.elementwise.arithmetic import add, minimum, mul, sub
from odyssey.ops.random.generator import draw_state
from odyssey.ops.random.philox import (
    dtype_option,
    philox_normal,
    philox_uniform,
    shape_option,
)
from odyssey.ops.structure.shape import astype
from odyssey.spec import Shape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import Sample, reject, sample
from odyssey.table.value import Symbol, Value


def _distribution_parameter(who: str, name: str, value: Any, shape: Shape) -> Any:
    """Check a parameter of a distribution: a finite number, or an array, Variable or Symbol."""
    if isinstance(value, (Value, Symbol, np.ndarray)) and value.shape != ():
        try:
            fits = np.broadcast_shapes(shape, value.shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise ShapeError(f"{who}: {name} {value.shape} does not broadcast to shape {shape}")
    elif not isinstance(value, (Value, Symbol)):
        if np.ndim(value):
            return _distribution_parameter(who, name, as_array(who, name, value), shape)
        return check_number(who, name, value)
    if value.dtype.kind == "c":
        raise DTypeError(f"{who}: {name} is of {value.dtype}; pass real numbers")
    return value


@ignore_fp_errors("over")
def _is_representable_range(low: float, high: float, kind: np.dtype[Any]) -> bool:
    """Return whether a dtype can represent both numbers and their difference."""
    return bool(np.isfinite(kind.type(high) - kind.type(low)))


def _cast_parameter(dtype: np.dtype[Any], v: Any) -> Any:
    return v if v.dtype == dtype else astype(v, dtype)


@composite(
    samples=[
        Sample((3,), {"low": 0.5, "high": 0.5}),
        Sample(([2, 0],), {}),
        Sample(([2, 3],), {"low": -2.0, "high": -2.0, "dtype": np.float32}),
    ],
    rejects=[
        reject(2, low=1.0, high=0.0, error=SettingError, match="low=1.0 is above high=0.0"),
        reject(2, low=-1e308, high=1e308, error=SettingError, match="is too far for float64"),
        reject(2, high=1e6, dtype=np.float16, error=SettingError, match="is too far for float16"),
        reject(2, low=np.inf, error=SettingError, match="it must be finite"),
        reject(2, high=np.ones(3), match=r"high \(3,\) does not broadcast to shape \(2,\)"),
        reject(2, dtype=np.int64, error=DTypeError, match="choose float16"),
        reject(2, rng=3, error=DTypeError, match="pass an od.Generator"),
    ],
)
def random_uniform(
    shape: Any, *, low: Any = 0.0, high: Any = 1.0, dtype: Any = np.float64, rng: Any = None
) -> Any:
    """Random numbers uniformly distributed in the interval ``[low, high)``.

    Args:
        shape: Shape of the result, an int or a tuple of ints.
        low: Lower end, included; broadcasts to ``shape``; a Variable has a gradient.
        high: Upper end, excluded, likewise.
        dtype: float16, float32 or float64.
        rng: The ``od.Generator`` to draw from; by default that of the process, which has a random
            seed from the system.

    Raises:
        SettingError: if ``low`` is above ``high``.

    >>> import odyssey as od
    >>> random_uniform((2,), low=-1.0, rng=od.Generator(7)).round(3)
    array([0.802, 0.555])
    """
    who = "random_uniform"
    sizes, kind = shape_option(who, shape), dtype_option(who, dtype)
    low, high = (
        _distribution_parameter(who, n, v, sizes) for n, v in (("low", low), ("high", high))
    )
    plain = type(low) is float and type(high) is float
    if plain and low > high:
        raise SettingError(f"{who}: low={low} is above high={high}")
    if plain and not _is_representable_range(low, high, kind):
        raise SettingError(f"{who}: from low={low} to high={high} is too far for {kind}")
    state = draw_state(who, rng, math.prod(sizes))
    u = philox_uniform(state, shape=sizes, dtype=kind)
    if plain and (low, high) == (0.0, 1.0):
        return u
    out = _cast_parameter(kind, add(mul(u, sub(high, low)), low))
    if not plain or low == high:
        return out
    return minimum(out, np.nextafter(kind.type(high), kind.type(low)))


@composite(
    samples=[
        sample(3, mean=0.5, std=0.0),
        sample([2, 0]),
        sample([2, 3], mean=-2.0, std=0, dtype=np.float32),
    ],
    rejects=[
        reject(2, std=-1.0, error=SettingError, match="must not be negative"),
        reject(2, mean=np.nan, error=SettingError, match="it must be finite"),
        reject(2, std=np.ones(3), match=r"std \(3,\) does not broadcast to shape \(2,\)"),
        reject(-2, error=SettingError, match="shape=-2"),
        reject(2, rng=np.ones(2), error=DTypeError, match="pass an od.Generator"),
    ],
)
def random_normal(
    shape: Any, *, mean: Any = 0.0, std: Any = 1.0, dtype: Any = np.float64, rng: Any = None
) -> Any:
    """Random numbers normally distributed with a mean and a standard deviation.

    Args:
        shape: Shape of the result, an int or a tuple of ints.
        mean: The mean; broadcasts to ``shape``; a Variable has a gradient.
        std: The standard deviation, not negative, likewise.
        dtype: float16, float32 or float64.
        rng: The ``od.Generator`` to draw from; by default that of the process, which has a random
            seed from the system.

    >>> import odyssey as od
    >>> random_normal((2,), rng=od.Generator(7)).round(3)
    array([ 0.369, -2.118])
    """
    who = "random_normal"
    sizes, kind = shape_option(who, shape), dtype_option(who, dtype)
    mean, std = (
        _distribution_parameter(who, n, v, sizes) for n, v in (("mean", mean), ("std", std))
    )
    if type(std) is float:
        check_number(who, "std", std, "[0, inf)")
    state = draw_state(who, rng, math.prod(sizes))
    z = philox_normal(state, shape=sizes, dtype=kind)
    if type(mean) is float and type(std) is float and (mean, std) == (0.0, 1.0):
        return z
    return _cast_parameter(kind, add(mul(z, std), mean))


publish(globals())

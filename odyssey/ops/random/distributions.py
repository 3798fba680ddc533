"""Random numbers of common distributions, drawn from a ``Generator``."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_int, check_number
from odyssey.devices.arrays import ARRAYS, as_array
from odyssey.devices.same_device import place_beside
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.ops.elementwise.arithmetic import add, maximum, minimum, mul, neg, sub
from odyssey.ops.elementwise.choice import less
from odyssey.ops.elementwise.elementary import log, log1p
from odyssey.ops.random.generator import draw_state
from odyssey.ops.random.philox import (
    dtype_option,
    integer_dtype_option,
    integer_range,
    philox_gamma,
    philox_integers,
    philox_normal,
    philox_uniform,
    shape_option,
)
from odyssey.ops.reductions.reduce import argmax
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.shape import astype, moveaxis, shape_of
from odyssey.ops.structure.sorting import argsort
from odyssey.spec import Shape
from odyssey.table.declare import composite, publish
from odyssey.table.samples import Sample, reject, sample
from odyssey.table.shape_rules import normalize_axes
from odyssey.table.value import Symbol, Value


def _distribution_parameter(who: str, name: str, value: Any, shape: Shape) -> Any:
    """Check a parameter of a distribution: a finite number, or an array, Variable or Symbol."""
    if isinstance(value, (Value, Symbol, *ARRAYS)) and value.shape != ():
        try:
            fits = np.broadcast_shapes(shape, value.shape) == shape
        except ValueError:
            fits = False
        if not fits:
            raise ShapeError(f"{who}: {name} {value.shape} does not broadcast to shape {shape}")
    elif not isinstance(value, (Value, Symbol)):
        if not isinstance(value, ARRAYS) and np.ndim(value):
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
        dtype: float16, bfloat16, float32 or float64.
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
    state = place_beside(draw_state(who, rng, math.prod(sizes)), low, high)
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
        dtype: float16, bfloat16, float32 or float64.
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
    state = place_beside(draw_state(who, rng, math.prod(sizes)), mean, std)
    z = philox_normal(state, shape=sizes, dtype=kind)
    if type(mean) is float and type(std) is float and (mean, std) == (0.0, 1.0):
        return z
    return _cast_parameter(kind, add(mul(z, std), mean))


@composite(
    samples=[
        Sample((3,), {"low": 2, "high": 3}),
        Sample(([2, 0],), {"high": 5}),
        Sample(([2, 3],), {"low": -1, "high": 0, "dtype": np.int8}),
    ],
    rejects=[
        reject(2, low=1, high=1, error=SettingError, match="low=1 must be below high=1"),
        reject(2, high=300, dtype=np.uint8, error=SettingError, match="is too far for uint8"),
        reject(2, high=2.5, error=DTypeError, match="high=2.5"),
        reject(2, high=2, dtype=np.float64, error=DTypeError, match="choose an integer dtype"),
        reject(2, high=2, rng=3, error=DTypeError, match="pass an od.Generator"),
    ],
)
def random_integers(
    shape: Any, *, low: int = 0, high: int, dtype: Any = np.int64, rng: Any = None
) -> Any:
    """Random integers uniformly distributed from ``low`` up to ``high - 1``.

    Args:
        shape: Shape of the result, an int or a tuple of ints.
        low: Smallest integer.
        high: Upper end, excluded.
        dtype: An integer dtype that holds all of them.
        rng: The ``od.Generator`` to draw from; by default that of the process.

    >>> import odyssey as od
    >>> random_integers((5,), low=1, high=7, rng=od.Generator(7))
    array([6, 5, 6, 1, 6])
    """
    who = "random_integers"
    sizes, kind = shape_option(who, shape), integer_dtype_option(who, dtype)
    first, last = integer_range(who, low, high, kind)
    state = draw_state(who, rng, math.prod(sizes))
    return philox_integers(state, shape=sizes, low=first, high=last, dtype=kind)


@composite(
    samples=[sample(3, p=0.0), sample([2, 0]), sample([2, 3], p=1)],
    rejects=[
        reject(2, p=1.5, error=SettingError, match="p=1.5"),
        reject(2, p=np.ones(3), match=r"p \(3,\) does not broadcast to shape \(2,\)"),
        reject(2, rng=3, error=DTypeError, match="pass an od.Generator"),
    ],
)
def random_bernoulli(shape: Any, *, p: Any = 0.5, rng: Any = None) -> Any:
    """Random booleans, True with a probability.

    Args:
        shape: Shape of the result, an int or a tuple of ints.
        p: Probability of True, in [0, 1]; broadcasts to ``shape``. It has no gradient.
        rng: The ``od.Generator`` to draw from; by default that of the process.

    >>> import odyssey as od
    >>> random_bernoulli((4,), p=0.8, rng=od.Generator(7))
    array([False,  True, False,  True])
    """
    who = "random_bernoulli"
    sizes = shape_option(who, shape)
    chance = _distribution_parameter(who, "p", p, sizes)
    if type(chance) is float:
        check_number(who, "p", chance, "[0, 1]")
    state = place_beside(draw_state(who, rng, math.prod(sizes)), chance)
    return less(philox_uniform(state, shape=sizes), chance)


_ONE_POSSIBLE = np.array([[-np.inf, 0.0, -np.inf], [2.0, -np.inf, -np.inf]])


@composite(
    samples=[
        sample(_ONE_POSSIBLE),
        sample(_ONE_POSSIBLE.T, axis=0, shape=(2,)),
        sample(_ONE_POSSIBLE, shape=(3, 2)),
    ],
    rejects=[
        reject((), match=r"logits \(\) has no axis"),
        reject((2, 0), match=r"logits \(2, 0\) has no categories"),
        reject((2, 3), shape=(3,), match=r"\(2,\), does not broadcast to shape \(3,\)"),
        reject((2, 3), rng=3, error=DTypeError, match="pass an od.Generator"),
    ],
)
def random_categorical(logits: Any, *, axis: int = -1, shape: Any = None, rng: Any = None) -> Any:
    """Random indices along an axis, with the probabilities ``softmax(logits, axis)``.

    The index, a constant, of the largest sum of a logit and a number of the Gumbel distribution.

    Args:
        logits: Logarithms of probabilities, up to a constant; -inf for what is impossible.
        axis: The axis of the categories.
        shape: Shape of the result, to which that of ``logits`` without ``axis`` broadcasts, which
            is the default. More draws come by more axes in front.
        rng: The ``od.Generator`` to draw from; by default that of the process.

    >>> import odyssey as od
    >>> random_categorical(np.log([0.1, 0.2, 0.7]), shape=(8,), rng=od.Generator(7))
    array([2, 1, 2, 2, 2, 2, 1, 2])
    """
    who = "random_categorical"
    found = tuple(shape_of(logits))
    if not found:
        raise ShapeError(f"{who}: logits {found} has no axis of categories")
    (place,) = normalize_axes(who, axis, len(found))
    batch, count = found[:place] + found[place + 1 :], found[place]
    if not count:
        raise ShapeError(f"{who}: logits {found} has no categories along axis {axis}")
    sizes = batch if shape is None else shape_option(who, shape)
    try:
        fits = np.broadcast_shapes(sizes, batch) == sizes
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{who}: logits without axis {axis}, {batch}, does not broadcast to shape {sizes}"
        )
    state = place_beside(draw_state(who, rng, math.prod(sizes) * count), logits)
    u = philox_uniform(state, shape=(*sizes, count))
    gumbel = neg(log(neg(log(maximum(u, 2.0**-54)))))  # of a u of 0 it would be infinite
    return argmax(add(moveaxis(logits, place, -1), gumbel), -1)


@composite(
    samples=[
        sample(1),
        sample(0),
        sample(np.full((3, 2), 2.0)),
        sample(np.zeros((2, 1)), axis=1),
    ],
    rejects=[
        reject(-1, error=SettingError, match="x=-1"),
        reject((2, 3), axis=2, match="axis"),
        reject(4, rng=3, error=DTypeError, match="pass an od.Generator"),
    ],
)
def random_permutation(x: Any, *, axis: int = 0, rng: Any = None) -> Any:
    """Random order of the slices of an array, or of the integers below a number.

    Args:
        x: An array, or an int: then the result is a permutation of ``np.arange(x)``.
        axis: The axis along which slices stand in a new order.
        rng: The ``od.Generator`` to draw from; by default that of the process.

    >>> import odyssey as od
    >>> random_permutation(5, rng=od.Generator(7))
    array([3, 1, 4, 0, 2])
    """
    who = "random_permutation"
    if not isinstance(x, (Value, Symbol)) and not (x.ndim if isinstance(x, ARRAYS) else np.ndim(x)):
        count, place = check_int(who, "x", x, 0), None
    else:
        sizes = tuple(shape_of(x))
        (place,) = normalize_axes(who, axis, len(sizes))
        count = sizes[place]
    state = place_beside(draw_state(who, rng, count), x)
    order = argsort(philox_uniform(state, shape=(count,)))
    return order if place is None else take(x, order, place)


@composite(
    samples=[
        sample(3, scale=0.0),
        sample([2, 0]),
        sample([2, 3], scale=0, dtype=np.float32),
    ],
    rejects=[
        reject(2, scale=-1.0, error=SettingError, match="must not be negative"),
        reject(2, scale=np.ones(3), match=r"scale \(3,\) does not broadcast to shape \(2,\)"),
        reject(2, rng=3, error=DTypeError, match="pass an od.Generator"),
    ],
)
def random_exponential(
    shape: Any, *, scale: Any = 1.0, dtype: Any = np.float64, rng: Any = None
) -> Any:
    """Random numbers of the exponential distribution.

    Args:
        shape: Shape of the result, an int or a tuple of ints.
        scale: The mean, not negative; broadcasts to ``shape``; a Variable has a gradient.
        dtype: float16, bfloat16, float32 or float64; numbers are drawn in float64.
        rng: The ``od.Generator`` to draw from; by default that of the process.

    >>> import odyssey as od
    >>> random_exponential((2,), rng=od.Generator(7)).round(3)
    array([2.31 , 1.503])
    """
    who = "random_exponential"
    sizes, kind = shape_option(who, shape), dtype_option(who, dtype)
    mean = _distribution_parameter(who, "scale", scale, sizes)
    if type(mean) is float:
        check_number(who, "scale", mean, "[0, inf)")
    state = place_beside(draw_state(who, rng, math.prod(sizes)), mean)
    out = neg(log1p(neg(philox_uniform(state, shape=sizes))))
    return _cast_parameter(kind, out if type(mean) is float and mean == 1.0 else mul(out, mean))


@composite(
    samples=[
        sample(3, concentration=2.0, scale=0.0),
        sample([2, 0], concentration=1),
        sample([2, 3], concentration=0.5, scale=0, dtype=np.float32),
    ],
    rejects=[
        reject(2, concentration=-1.0, error=SettingError, match="must not be negative"),
        reject(2, concentration=1.0, scale=-1.0, error=SettingError, match="scale=-1.0"),
        reject(
            2,
            concentration=np.ones(3),
            match=r"concentration \(3,\) does not broadcast to shape \(2,\)",
        ),
        reject(2, concentration=1.0, rng=3, error=DTypeError, match="pass an od.Generator"),
    ],
)
def random_gamma(
    shape: Any,
    *,
    concentration: Any,
    scale: Any = 1.0,
    dtype: Any = np.float64,
    rng: Any = None,
) -> Any:
    """Random numbers of the gamma distribution, by the method of Marsaglia and Tsang (2000).

    Args:
        shape: Shape of the result, an int or a tuple of ints.
        concentration: The parameter that is also called shape or alpha, not negative; broadcasts to
            ``shape``. It has no gradient: NotDifferentiableError.
        scale: Factor of the numbers, not negative; likewise; a Variable has a gradient. The mean is
            ``concentration * scale``.
        dtype: float16, bfloat16, float32 or float64; numbers are drawn in float64.
        rng: The ``od.Generator`` to draw from; by default that of the process.

    >>> import odyssey as od
    >>> random_gamma((2,), concentration=[0.5, 20.0], rng=od.Generator(7)).round(3)
    array([ 1.302, 17.245])
    """
    who = "random_gamma"
    sizes, kind = shape_option(who, shape), dtype_option(who, dtype)
    a, factor = (
        _distribution_parameter(who, n, v, sizes)
        for n, v in (("concentration", concentration), ("scale", scale))
    )
    for name, value in (("concentration", a), ("scale", factor)):
        if type(value) is float:
            check_number(who, name, value, "[0, inf)")
    state = place_beside(draw_state(who, rng, 4 * math.prod(sizes)), a, factor)
    a = place_beside(np.asarray(a), state) if type(a) is float else a
    out = philox_gamma(state, a, shape=sizes)
    return _cast_parameter(
        kind, out if type(factor) is float and factor == 1.0 else mul(out, factor)
    )


publish(globals())

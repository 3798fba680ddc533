"""Random numbers and dropout as functions of a generator's state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_int, check_number, format_value
from odyssey.devices.half_dtypes import finfo, is_bfloat16, named_dtype
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.ops.elementwise.arithmetic import mul, sub
from odyssey.ops.elementwise.choice import less, where
from odyssey.ops.elementwise.elementary import log, sqrt
from odyssey.ops.elementwise.trigonometry import cos, sin
from odyssey.ops.random.generator import DRAWS, random_bits
from odyssey.ops.random.lowering import lower_integers, lower_uniform
from odyssey.ops.structure.batching import align, spread
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import astype, reshape
from odyssey.spec import Array, Shape, Spec, native_form
from odyssey.table.batch import Batch
from odyssey.table.declare import op, publish
from odyssey.table.samples import Sample, reject, sample
from odyssey.table.shape_rules import floating_dtype

_STATE = np.array([1, 2, 3], np.uint64)

# ------------------------------------------------------------------ shapes and options


def _check_state(who: str, state: Any) -> None:
    found = getattr(state, "shape", None), getattr(state, "dtype", None)
    if found != ((3,), np.uint64):
        raise DTypeError(f"{who}: state is {format_value(state)}; wanted are three words of uint64")


def _check_states(who: str, state: Any) -> Shape:
    """Check the states of one generator or several; return the shape of their array."""
    shape: Shape = getattr(state, "shape", ())
    if shape[-1:] != (3,) or state.dtype != np.uint64:
        raise DTypeError(f"{who}: state is {format_value(state)}; wanted are three words of uint64")
    return shape[:-1]


def shape_option(who: str, shape: Any) -> Shape:
    """Return a shape as a tuple of ints."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(check_int(who, "shape", n, 0) for n in sizes)


def dtype_option(who: str, dtype: Any) -> np.dtype[Any]:
    """Return the real floating dtype of random numbers."""
    dtype = named_dtype(dtype)
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if dtype is None or found is None or not (found.char in "efd" or is_bfloat16(found)):
        raise DTypeError(
            f"{who}: dtype={format_value(dtype)}; choose float16, bfloat16, float32 or float64"
        ) from None
    return native_form(found)


def _check_options(who: str) -> Any:
    return lambda shape, dtype: (shape_option(who, shape), dtype_option(who, dtype))


def _draw_infer(who: str, check: Any = _check_state) -> Any:
    def infer(state: Spec, shape: Shape, dtype: Any) -> Spec:
        generators = check(who, state) or ()
        return Spec((*generators, *shape), np.dtype(dtype))

    return infer


# ------------------------------------------------------------------ numbers


def _bits_of_each(state: Array, shape: Shape) -> Array:
    """Return bits for each element of a shape, of one generator or of each of several."""
    count = math.prod(shape)
    if state.ndim == 1:
        return random_bits(state, count).reshape(shape)
    bits = np.empty((*state.shape[:-1], count), np.uint64)
    for index in np.ndindex(state.shape[:-1]):
        bits[index] = random_bits(state[index], count)
    return bits.reshape((*state.shape[:-1], *shape))


def uniform_of(state: Array, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Return uniform numbers in [0, 1): the highest bits, as many as the dtype has digits."""
    digits = finfo(dtype).nmant + 1
    bits = _bits_of_each(state, shape)
    bits >>= np.uint64(64 - digits)
    out = bits.astype(dtype)
    out *= dtype.type(2.0**-digits)
    return out


_SAMPLES = [
    sample(_STATE, shape=(2, 3)),
    sample(_STATE, shape=5, dtype=np.float32),
    sample(_STATE, shape=(), dtype=np.float16),
    sample(_STATE, shape=(0, 2)),
]
_SEVERAL = np.array([[1, 2, 3], [4, 5, 2**64 - 1]], np.uint64)
_REJECTS = [
    reject(_STATE, shape=(-1,), error=SettingError, match="shape=-1"),
    reject(_STATE, shape=(2,), dtype=np.int64, error=DTypeError, match="choose float16"),
    reject(_STATE[:2], shape=(2,), error=DTypeError, match="three words"),
]


@op(
    primitive="random",
    lowering=lower_uniform,
    prepare=_check_options("philox_uniform"),
    canonical=lambda state, shape, dtype: (shape, dtype),
    vmap="leading",
    infer=_draw_infer("philox_uniform", _check_states),
    samples=[*_SAMPLES, sample(_SEVERAL, shape=(5,))],
    rejects=_REJECTS,
)
def philox_uniform(state: Any, /, *, shape: Any, dtype: Any = np.float64) -> Any:
    """Uniform random numbers in [0, 1), from a generator's state.

    Each number is made of the highest of 64 bits, 53 for float64; a shorter dtype has the number of
    float64 rounded down. The number at position n comes from block ``counter + n // 4``. States of
    several generators, ``(..., 3)``, give the numbers of each, ``(..., *shape)``.
    """
    _check_states("philox_uniform", state)
    return uniform_of(state, shape, dtype)


def _box_muller_pairs(count: int) -> int:
    return count + count % 2


def _decompose_normal(state: Any, shape: Any, dtype: Any) -> Any:
    count = math.prod(shape)
    u = reshape(
        philox_uniform(state, shape=(_box_muller_pairs(count),)), (-1, 2) if count else (0, 2)
    )
    radius = sqrt(mul(-2.0, log(sub(1.0, getitem(u, (slice(None), 0))))))
    angle = mul(2.0 * math.pi, getitem(u, (slice(None), 1)))
    z = reshape(stack([mul(radius, cos(angle)), mul(radius, sin(angle))], -1), (-1,))
    return astype(reshape(getitem(z, slice(count)), shape), dtype)


@op(
    decomposition=_decompose_normal,
    prepare=_check_options("philox_normal"),
    canonical=lambda state, shape, dtype: (shape, dtype),
    infer=_draw_infer("philox_normal"),
    samples=_SAMPLES,
    rejects=_REJECTS,
)
def philox_normal(state: Any, /, *, shape: Any, dtype: Any = np.float64) -> Any:
    """Standard normal random numbers, from a generator's state.

    The Box-Muller transform (1958) turns pairs of ``philox_uniform`` into pairs, in float64.
    """
    _check_state("philox_normal", state)
    count = math.prod(shape)
    u = uniform_of(state, (_box_muller_pairs(count),), np.dtype(np.float64)).reshape(-1, 2)
    radius = np.sqrt(-2.0 * np.log(1.0 - u[:, 0]))
    angle = (2.0 * math.pi) * u[:, 1]
    z = np.empty(u.shape, dtype)
    z[:, 0] = radius * np.cos(angle)
    z[:, 1] = radius * np.sin(angle)
    return z.reshape(-1)[:count].reshape(shape)


# ------------------------------------------------------------------ integers


def integer_dtype_option(who: str, dtype: Any) -> np.dtype[Any]:
    """Return the integer dtype of random numbers."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if dtype is None or found is None or found.kind not in "iu":
        raise DTypeError(f"{who}: dtype={format_value(dtype)}; choose an integer dtype") from None
    return found.newbyteorder("=")


def integer_range(who: str, low: Any, high: Any, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the bounds of random integers, of which ``high`` is excluded."""
    first, last = check_int(who, "low", low), check_int(who, "high", high)
    if first >= last:
        raise SettingError(f"{who}: low={first} must be below high={last}, which is excluded")
    info = np.iinfo(dtype)
    if first < info.min or last - 1 > info.max:
        raise SettingError(f"{who}: from low={first} to below high={last} is too far for {dtype}")
    return first, last


def _integers_options(shape: Any, low: Any, high: Any, dtype: Any) -> tuple[Any, ...]:
    who = "philox_integers"
    kind = integer_dtype_option(who, dtype)
    return (shape_option(who, shape), *integer_range(who, low, high, kind), kind)


def _integers_infer(state: Spec, shape: Shape, low: int, high: int, dtype: Any) -> Spec:
    generators = _check_states("philox_integers", state)
    return Spec((*generators, *shape), np.dtype(dtype))


def _multiply_high(x: Array, y: int) -> Array:
    """Return the high 64 bits of the products of 64-bit numbers with one such number."""
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    x0, x1 = x & mask, x >> half
    y0, y1 = np.uint64(y & 0xFFFFFFFF), np.uint64(y >> 32)
    across, other = x0 * y1, x1 * y0
    middle = ((x0 * y0) >> half) + (across & mask) + (other & mask)
    return x1 * y1 + (across >> half) + (other >> half) + (middle >> half)


@op(
    primitive="random",
    lowering=lower_integers,
    prepare=_integers_options,
    canonical=lambda state, shape, low, high, dtype: (shape, low, high, dtype),
    vmap="leading",
    infer=_integers_infer,
    samples=[
        Sample((_STATE,), {"shape": (2, 3), "low": -2, "high": 5}),
        Sample((_STATE,), {"shape": 5, "low": 0, "high": 250, "dtype": np.uint8}),
        Sample((_STATE,), {"shape": (), "low": -(2**63), "high": 2**63}),
        Sample((_STATE,), {"shape": (0, 2), "low": 0, "high": 1}),
        Sample((_SEVERAL,), {"shape": (3,), "low": 0, "high": 7}),
    ],
    rejects=[
        reject(_STATE, shape=(-1,), low=0, high=2, error=SettingError, match="shape=-1"),
        reject(_STATE, shape=2, low=2, high=2, error=SettingError, match="low=2 must be below"),
        reject(
            _STATE, shape=2, low=0, high=300, dtype=np.int8, error=SettingError, match="too far"
        ),
        reject(_STATE, shape=2, low=0, high=2, dtype=float, error=DTypeError, match="an integer"),
        reject(_STATE[:2], shape=(2,), low=0, high=2, error=DTypeError, match="three words"),
    ],
)
def philox_integers(
    state: Any, /, *, shape: Any, low: int = 0, high: int = 2, dtype: Any = np.int64
) -> Any:
    """Uniform random integers from ``low`` up to ``high - 1``, from a generator's state.

    Each is ``low`` plus the high word of the product of 64 bits and ``high - low`` (Lemire 2019,
    without rejection): probabilities differ by less than ``2**-64``.
    """
    _check_states("philox_integers", state)
    bits = _bits_of_each(state, shape)
    if high - low < 1 << 64:
        bits = _multiply_high(bits, high - low)
    bits += np.uint64(low % (1 << 64))
    return bits.astype(dtype)


# ------------------------------------------------------------------ gamma distribution


def _gamma_infer(state: Spec, concentration: Spec, shape: Shape) -> Spec:
    shape = (*_check_states("philox_gamma", state), *shape)
    _check_concentration(shape, concentration)
    return Spec(shape, np.dtype(np.float64))


def _batch_gamma(batch: Batch, state: Any, concentration: Any, shape: Shape) -> Any:
    ndim = batch.ndim(0, state) - 1 + len(shape)
    aligned = align(concentration, batch.mapped[1], ndim)
    return philox_gamma(spread(batch, 0, state), aligned, shape=shape)


def _check_concentration(shape: Shape, concentration: Any) -> None:
    try:
        fits = np.broadcast_shapes(shape, concentration.shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"philox_gamma: concentration {concentration.shape} does not broadcast to shape {shape}"
        )
    if concentration.dtype.kind not in "fiu":
        raise DTypeError(f"philox_gamma: concentration is of {concentration.dtype}; pass reals")


@op(
    primitive="random",
    prepare=lambda shape: (shape_option("philox_gamma", shape),),
    canonical=lambda state, concentration, shape: (shape,),
    vmap=_batch_gamma,
    infer=_gamma_infer,
    vjp={"concentration": None},
    samples=[
        sample(_STATE, np.array([0.5, 2.0, 30.0]), shape=(2, 3)),
        sample(_STATE, np.array(0.1), shape=()),
        sample(_STATE, np.array(3.0), shape=(0, 2)),
        sample(_SEVERAL, np.array([0.5, 2.0, 30.0]), shape=(3,)),
    ],
    rejects=[
        reject(_STATE, np.ones(2), shape=(3,), match=r"concentration \(2,\) does not broadcast"),
        reject(_STATE, np.ones(2, complex), shape=2, error=DTypeError, match="pass reals"),
        reject(_STATE, np.ones(2), shape=-1, error=SettingError, match="shape=-1"),
        reject(_STATE[:2], np.ones(2), shape=2, error=DTypeError, match="three words"),
    ],
)
def philox_gamma(state: Any, concentration: Any, /, *, shape: Any) -> Any:
    """Random numbers of the gamma distribution with scale 1, from a generator's state.

    Marsaglia and Tsang 2000: a cubed normal number is accepted with a probability above 0.95; below
    a concentration of 1, that of ``concentration + 1`` is multiplied by ``u**(1/concentration)``.
    The number at position n comes from block ``counter + n``, of which each trial has others. A
    negative concentration gives NaN.
    """
    concentration = np.asarray(concentration)
    generators = _check_states("philox_gamma", state)
    result_shape = (*generators, *shape)
    _check_concentration(result_shape, concentration)
    if not generators:
        return _draw_gamma(state, concentration, shape)
    out = np.empty(result_shape)
    each = np.broadcast_to(concentration, result_shape)
    for index in np.ndindex(generators):
        out[index] = _draw_gamma(state[index], each[index], shape)
    return out


@ignore_fp_errors("divide", "invalid", "over", "under")
def _draw_gamma(state: Any, concentration: Array, shape: Shape) -> Array:
    a = np.broadcast_to(concentration.astype(np.float64), shape).reshape(-1)
    boosted = a < 1
    d = np.where(boosted, a + 1, a) - 1 / 3
    out = np.where((a == 0) | (a == np.inf), a, np.nan)
    left = np.flatnonzero((a > 0) & (a < np.inf))
    trial = 0
    while left.size:
        first = left[0]
        start = state + np.array([0, 0, first], np.uint64)
        bits = random_bits(start, 4 * (int(left[-1]) + 1 - int(first)), DRAWS, trial)
        u = (bits.reshape(-1, 4)[left - first] >> np.uint64(11)) * 2.0**-53
        x = np.sqrt(-2.0 * np.log(1.0 - u[:, 0])) * np.cos(2.0 * math.pi * u[:, 1])
        own = d[left]
        root = 1.0 + x / np.sqrt(9.0 * own)
        v = root * root * root
        limit = 0.5 * x * x + own * (1.0 - v + np.log(v))
        taken = (v > 0) & (np.log(1.0 - u[:, 2]) < limit)
        places = left[taken]
        out[places] = own[taken] * v[taken]
        small = boosted[places]
        if small.any():
            lowered = places[small]
            out[lowered] *= np.power(1.0 - u[taken, 3][small], 1.0 / a[lowered])
        left, trial = left[~taken], trial + 1
    return out.reshape(shape)


# ------------------------------------------------------------------ dropout


def _dropout_options(rate: Any, shared: Any) -> tuple[float, int]:
    return (
        check_number("philox_dropout", "rate", rate, "[0, 1]"),
        check_int("philox_dropout", "shared", shared, 0),
    )


def drawn_shape(shape: Shape, shared: int) -> Shape:
    """Return the shape of a dropout mask: the last ``shared`` axes have length 1."""
    return (*shape[: len(shape) - shared], *[1] * shared)


def _check_shared(shape: Shape, shared: int) -> None:
    if shared > len(shape):
        raise ShapeError(f"philox_dropout: shared={shared} axes of x, which has shape {shape}")


def _dropout_spec(x: Spec, state: Spec, rate: float, shared: int) -> Spec:
    _check_state("philox_dropout", state)
    _check_shared(x.shape, shared)
    return Spec(x.shape, floating_dtype(x.dtype))


def _dropout_scale(rate: float) -> float:
    return 1.0 / (1.0 - rate) if rate < 1.0 else 1.0


def _dropout_mask(state: Array, shape: Shape, rate: float) -> Array:
    """Return where ``philox_uniform`` is below ``rate``, by comparing bits."""
    count = math.prod(shape)
    least = math.ceil(rate * 2.0**53) << 11
    if least >= 1 << 64:
        return np.ones(shape, bool)
    return np.less(random_bits(state, count), np.uint64(least)).reshape(shape)


def _decompose_dropout(x: Any, state: Any, rate: float, shared: int) -> Any:
    u = philox_uniform(state, shape=drawn_shape(x.shape, shared))
    return where(less(u, rate), 0, mul(x, _dropout_scale(rate)))


@op(
    selects=True,
    decomposition=_decompose_dropout,
    prepare=_dropout_options,
    canonical=lambda x, state, rate, shared: (rate, shared),
    infer=_dropout_spec,
    vjp={
        "x": lambda g, state, rate, shared: philox_dropout(g, state, rate=rate, shared=shared),
    },
    jvp={
        "x": lambda t, state, rate, shared: philox_dropout(t, state, rate=rate, shared=shared),
    },
    kinks="0 where it is left out, whatever the number and the cotangent",
    samples=[
        sample((3, 4), _STATE),
        sample((2, 3, 2), _STATE, rate=0.3, shared=1),
        sample((), _STATE, rate=0.25),
        sample((0, 3), _STATE, rate=0.9),
        sample((2, 3), _STATE, rate=1.0),
    ],
    rejects=[
        reject((3,), _STATE, rate=-0.1, error=SettingError, match="rate=-0.1"),
        reject((3,), _STATE, shared=2, match="shared=2 axes"),
        reject((3,), _STATE[:1], error=DTypeError, match="three words"),
    ],
)
def philox_dropout(x: Any, state: Any, /, *, rate: float = 0.5, shared: int = 0) -> Any:
    """Dropout: 0 where ``philox_uniform`` is below ``rate``, elsewhere ``x / (1 - rate)``.

    Elements along the last ``shared`` axes are dropped or kept together. The state is the only
    residual of the derivative.
    """
    x = np.asarray(x)
    _check_state("philox_dropout", state)
    _check_shared(x.shape, shared)
    dtype = floating_dtype(x.dtype)
    scaled = x.astype(dtype, copy=False) * dtype.type(_dropout_scale(rate))
    return np.where(_dropout_mask(state, drawn_shape(x.shape, shared), rate), dtype.type(0), scaled)


publish(globals())

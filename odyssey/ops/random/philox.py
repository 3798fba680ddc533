"""Random bits, uniform and normal numbers and dropout as functions of a generator's state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import check_int, check_number, format_value
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import mul, sub
from odyssey.ops.elementwise.choice import less, where
from odyssey.ops.elementwise.elementary import log, sqrt
from odyssey.ops.elementwise.trigonometry import cos, sin
from odyssey.ops.random.generator import random_bits
from odyssey.ops.random.lowering import lower_uniform
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import astype, reshape
from odyssey.spec import Array, Shape, Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype

_STATE = np.array([1, 2, 3], np.uint64)

# ------------------------------------------------------------------ shapes and options


def _check_state(who: str, state: Any) -> None:
    found = getattr(state, "shape", None), getattr(state, "dtype", None)
    if found != ((3,), np.uint64):
        raise DTypeError(f"{who}: state is {format_value(state)}; wanted are three words of uint64")


def shape_option(who: str, shape: Any) -> Shape:
    """Return a shape as a tuple of ints."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(check_int(who, "shape", n, 0) for n in sizes)


def dtype_option(who: str, dtype: Any) -> np.dtype[Any]:
    """Return the real floating dtype of random numbers."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if dtype is None or found is None or found.char not in "efd":
        raise DTypeError(
            f"{who}: dtype={format_value(dtype)}; choose float16, float32 or float64"
        ) from None
    return found.newbyteorder("=")


def _check_options(who: str) -> Any:
    return lambda shape, dtype: (shape_option(who, shape), dtype_option(who, dtype))


def _draw_infer(who: str) -> Any:
    def infer(state: Spec, shape: Shape, dtype: Any) -> Spec:
        _check_state(who, state)
        return Spec(shape, np.dtype(dtype))

    return infer


# ------------------------------------------------------------------ numbers


def uniform_of(state: Array, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """Return uniform numbers in [0, 1): the highest bits, as many as the dtype has digits."""
    digits = np.finfo(dtype).nmant + 1
    bits = random_bits(state, math.prod(shape))
    bits >>= np.uint64(64 - digits)
    out = bits.astype(dtype)
    out *= dtype.type(2.0**-digits)
    return out.reshape(shape)


_SAMPLES = [
    sample(_STATE, shape=(2, 3)),
    sample(_STATE, shape=5, dtype=np.float32),
    sample(_STATE, shape=(), dtype=np.float16),
    sample(_STATE, shape=(0, 2)),
]
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
    infer=_draw_infer("philox_uniform"),
    samples=_SAMPLES,
    rejects=_REJECTS,
)
def philox_uniform(state: Any, /, *, shape: Any, dtype: Any = np.float64) -> Any:
    """Uniform random numbers in [0, 1), from a generator's state.

    Each number is made of the highest of 64 bits, 53 for float64; a shorter dtype has the number of
    float64 rounded down. The number at position n comes from block ``counter + n // 4``.
    """
    _check_state("philox_uniform", state)
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

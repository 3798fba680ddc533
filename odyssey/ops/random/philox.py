"""The rows of random numbers: functions of a state, a key and a counter."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import number, shown, whole
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import mul, sub
from odyssey.ops.elementwise.choice import less, where
from odyssey.ops.elementwise.elementary import log, sqrt
from odyssey.ops.elementwise.trigonometry import cos, sin
from odyssey.ops.random.generator import bits_of
from odyssey.ops.random.lowering import uniform_natively
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import stack
from odyssey.ops.structure.shape import astype, reshape
from odyssey.spec import Array, Shape, Spec
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating

_STATE = np.array([1, 2, 3], np.uint64)

# ------------------------------------------------------------------ shapes and options


def _check_state(who: str, state: Any) -> None:
    found = getattr(state, "shape", None), getattr(state, "dtype", None)
    if found != ((3,), np.uint64):
        raise DTypeError(f"{who}: state is {shown(state)}; wanted are three words of uint64")


def shape_option(who: str, shape: Any) -> Shape:
    """A shape as a tuple of ints."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(whole(who, "shape", n, 0) for n in sizes)


def dtype_option(who: str, dtype: Any) -> np.dtype[Any]:
    """A dtype of real floating numbers that random bits are made into."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        found = None
    if dtype is None or found is None or found.char not in "efd":
        raise DTypeError(
            f"{who}: dtype={shown(dtype)}; choose float16, float32 or float64"
        ) from None
    return found.newbyteorder("=")


def _options(who: str) -> Any:
    return lambda shape, dtype: (shape_option(who, shape), dtype_option(who, dtype))


def _spec_of(who: str) -> Any:
    def infer(state: Spec, shape: Shape, dtype: Any) -> Spec:
        _check_state(who, state)
        return Spec(shape, np.dtype(dtype))

    return infer


# ------------------------------------------------------------------ numbers


def uniform_of(state: Array, shape: Shape, dtype: np.dtype[Any]) -> Array:
    """As many of the highest bits as the dtype has digits, behind the point."""
    digits = np.finfo(dtype).nmant + 1
    bits = bits_of(state, math.prod(shape))
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
    lowering=uniform_natively,
    prepare=_options("philox_uniform"),
    canonical=lambda state, shape, dtype: (shape, dtype),
    infer=_spec_of("philox_uniform"),
    samples=_SAMPLES,
    rejects=_REJECTS,
)
def philox_uniform(state: Any, /, *, shape: Any, dtype: Any = np.float64) -> Any:
    """Numbers from 0 up to 1, all multiples of a power of 2 alike, from a generator's state.

    A number is the highest bits of 64, 53 for float64: in a shorter dtype it is the same, rounded
    down. That of the place n is made of the block ``counter + n // 4``.
    """
    _check_state("philox_uniform", state)
    return uniform_of(state, shape, dtype)


def _pairs(count: int) -> int:
    return count + count % 2


def _normal_in_ops(state: Any, shape: Any, dtype: Any) -> Any:
    count = math.prod(shape)
    u = reshape(philox_uniform(state, shape=(_pairs(count),)), (-1, 2) if count else (0, 2))
    radius = sqrt(mul(-2.0, log(sub(1.0, getitem(u, (slice(None), 0))))))
    angle = mul(2.0 * math.pi, getitem(u, (slice(None), 1)))
    z = reshape(stack([mul(radius, cos(angle)), mul(radius, sin(angle))], -1), (-1,))
    return astype(reshape(getitem(z, slice(count)), shape), dtype)


@op(
    decomposition=_normal_in_ops,
    prepare=_options("philox_normal"),
    canonical=lambda state, shape, dtype: (shape, dtype),
    infer=_spec_of("philox_normal"),
    samples=_SAMPLES,
    rejects=_REJECTS,
)
def philox_normal(state: Any, /, *, shape: Any, dtype: Any = np.float64) -> Any:
    """Numbers of mean 0 and deviation 1, normally distributed, from a generator's state.

    Two of ``philox_uniform`` make two of these (Box and Muller, 1958), in float64.
    """
    _check_state("philox_normal", state)
    count = math.prod(shape)
    u = uniform_of(state, (_pairs(count),), np.dtype(np.float64)).reshape(-1, 2)
    radius = np.sqrt(-2.0 * np.log(1.0 - u[:, 0]))
    angle = (2.0 * math.pi) * u[:, 1]
    z = np.empty(u.shape, dtype)
    z[:, 0] = radius * np.cos(angle)
    z[:, 1] = radius * np.sin(angle)
    return z.reshape(-1)[:count].reshape(shape)


# ------------------------------------------------------------------ dropping


def _drop_options(rate: Any, shared: Any) -> tuple[float, int]:
    return (
        number("philox_dropout", "rate", rate, "[0, 1]"),
        whole("philox_dropout", "shared", shared, 0),
    )


def drawn_shape(shape: Shape, shared: int) -> Shape:
    """The shape of what is dropped or kept as one: the last ``shared`` axes have length 1."""
    return (*shape[: len(shape) - shared], *[1] * shared)


def _check_shared(shape: Shape, shared: int) -> None:
    if shared > len(shape):
        raise ShapeError(f"philox_dropout: shared={shared} axes of x, which has shape {shape}")


def _drop_spec(x: Spec, state: Spec, rate: float, shared: int) -> Spec:
    _check_state("philox_dropout", state)
    _check_shared(x.shape, shared)
    return Spec(x.shape, floating(x.dtype))


def _factor(rate: float) -> float:
    return 1.0 / (1.0 - rate) if rate < 1.0 else 1.0


def _below(state: Array, shape: Shape, rate: float) -> Array:
    """Where ``philox_uniform`` is below ``rate``, told by its bits."""
    count = math.prod(shape)
    least = math.ceil(rate * 2.0**53) << 11
    if least >= 1 << 64:
        return np.ones(shape, bool)
    return np.less(bits_of(state, count), np.uint64(least)).reshape(shape)


def _drop_in_ops(x: Any, state: Any, rate: float, shared: int) -> Any:
    u = philox_uniform(state, shape=drawn_shape(x.shape, shared))
    return where(less(u, rate), 0, mul(x, _factor(rate)))


@op(
    selects=True,
    decomposition=_drop_in_ops,
    prepare=_drop_options,
    canonical=lambda x, state, rate, shared: (rate, shared),
    infer=_drop_spec,
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
    """``x`` over ``1 - rate``, with 0 where ``philox_uniform`` from a state is below ``rate``.

    Of the last ``shared`` axes all is dropped or kept as one. The state is all that is kept for
    the derivative.
    """
    x = np.asarray(x)
    _check_state("philox_dropout", state)
    _check_shared(x.shape, shared)
    dtype = floating(x.dtype)
    scaled = x.astype(dtype, copy=False) * dtype.type(_factor(rate))
    return np.where(_below(state, drawn_shape(x.shape, shared), rate), dtype.type(0), scaled)


publish(globals())

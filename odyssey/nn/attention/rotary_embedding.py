"""Rotary position embedding (RoPE), Su et al. 2021."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_number
from odyssey.devices.half_dtypes import is_floating
from odyssey.errors import DTypeError, ShapeError
from odyssey.ops.elementwise.arithmetic import add, mul, sub
from odyssey.ops.elementwise.trigonometry import cos, sin
from odyssey.ops.structure.batching import align, example_specs, spread
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import astype, expand_dims
from odyssey.spec import Array, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import op, publish
from odyssey.table.real_operands import real_floating
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype


def _infer_rope(x: Any, positions: Any, base: float) -> Spec:
    shape, places = (getattr(v, "shape", ()) for v in (x, positions))
    if not shape or shape[-1] % 2:
        raise ShapeError(f"rope: x {shape}; wanted is (..., length, dim) with an even dim")
    dtype = np.dtype(getattr(positions, "dtype", type(positions)))
    if dtype.kind not in "biuf":
        raise DTypeError(f"rope: positions are of {dtype}; pass integers, or real numbers")
    try:
        fits = np.broadcast_shapes(shape[:-1], places) == shape[:-1]
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"rope: positions {places} for x {shape}; they must broadcast to its axes "
            f"but the last, {shape[:-1]}"
        )
    return Spec(shape, floating_dtype(x.dtype))


def _pair_frequencies(dim: int, base: float) -> Array:
    """Return the rotation of each pair from one position to the next, in radians."""
    return base ** (np.arange(dim // 2) * (-2.0 / dim))


def _rope_decomposition(x: Any, positions: Any, base: float) -> Any:
    x = x if is_floating(x.dtype) else astype(x, floating_dtype(x.dtype))
    half = x.shape[-1] // 2
    # In double precision: angles are large, and only their remainder modulo a turn matters.
    positions = positions if hasattr(positions, "dtype") else np.asarray(positions)
    angles = mul(expand_dims(astype(positions, np.float64), -1), _pair_frequencies(2 * half, base))
    c, s = (astype(f(angles), x.dtype) for f in (cos, sin))
    a, b = getitem(x, (..., slice(half))), getitem(x, (..., slice(half, None)))
    return concatenate([sub(mul(a, c), mul(b, s)), add(mul(b, c), mul(a, s))], -1)


def _batch_rope(batch: Batch, x: Any, positions: Any, base: float) -> Any:
    _infer_rope(*example_specs(batch, (x, positions), base))
    x = spread(batch, 0, x)
    return rope(x, align(positions, batch.mapped[1], x.ndim - 2), base=base)


@op(
    real=True,
    prepare=lambda base: (check_number("rope", "base", base, "(0, inf)"),),
    infer=_infer_rope,
    vmap=_batch_rope,
    decomposition=_rope_decomposition,
    vjp={
        "x": lambda g, positions, base: rope(g, mul(positions, -1.0), base=base),
        "positions": None,
    },
    jvp={"x": lambda t, positions, base: rope(t, positions, base=base)},
    samples=[
        sample((3, 4), np.arange(3)),
        sample((2, 3, 2), np.array([[5], [0]]), base=100.0),
        sample((2, 2, 1, 6), np.array([0.5])),
        sample((2,), np.array(7)),
        sample((0, 2), np.zeros(0, int)),
    ],
    rejects=[
        reject((3, 5), np.arange(3), match="even dim"),
        reject((3, 4), np.arange(4), match="must broadcast"),
        reject((3, 4), np.ones((2, 3)), match="must broadcast"),
        reject((3, 4), 1j * np.arange(3), error=DTypeError, match="real numbers"),
    ],
)
def rope(x: Any, positions: Any, /, *, base: float = 10000.0) -> Any:
    """Rotary position embedding: rotate pairs of elements by angles that grow with the position.

    J. Su et al., RoFormer: Enhanced Transformer with Rotary Position Embedding, 2021. The pairs are
    elements k and k + dim / 2, as in the models of Hugging Face and GPT-NeoX; weights of a model
    that pairs neighbours need their columns reordered. Pair k is rotated by ``position * base**(-2
    * k / dim)``; the product of a rotated query and key depends on their distance only.

    Args:
        x: (..., length, dim), with an even dim.
        positions: Integers, or real numbers, that broadcast to (..., length); constants.
        base: The larger, the slower the last pairs rotate.

    Raises:
        ShapeError: For an odd dim, and positions that do not fit.

    >>> rope(np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([0, 1])).round(3)
    array([[1.   , 0.   ],
           [0.54 , 0.841]])
    """
    x, positions = real_floating(x), np.asarray(positions)
    _infer_rope(x, positions, base)
    half = x.shape[-1] // 2
    angles = positions[..., None] * _pair_frequencies(2 * half, base)
    c, s = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    a, b = x[..., :half], x[..., half:]
    out = np.empty_like(x)
    np.subtract(a * c, b * s, out=out[..., :half])
    np.add(b * c, a * s, out=out[..., half:])
    return out


publish(globals())

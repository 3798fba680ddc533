"""Scaled dot-product attention.

On arrays a tile of scores is computed at a time: memory grows with length, not with its square. A
tile has some queries and all keys that these attend to, so its softmax is complete, nothing is
rescaled, and the backward pass recomputes a tile instead of keeping it. The order of all sums
depends on the shapes only. The decomposition in ops holds all scores; a long causal call is
computed in slices of the queries, each with the keys it may attend to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import check_choice, check_number
from odyssey.devices.half_dtypes import is_floating
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.linalg.matrix_products import matmul
from odyssey.nn.shared import SharedPullback
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import equal, logical_and, where
from odyssey.ops.elementwise.elementary import exp
from odyssey.ops.reductions.reduce import max as largest
from odyssey.ops.reductions.reduce import sum, sum_to
from odyssey.ops.structure.batching import align, example_specs, spread
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.half_precision import compute_in_float32
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import astype, matrix_transpose, reshape, shape_of
from odyssey.spec import Array, Shape, Spec, spec_of
from odyssey.table.batch import Batch
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.derived_rules import derive_rules
from odyssey.table.kernel_selection import are_kernels_compiled
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype


def mask_dtype(mask: Any) -> np.dtype[Any]:
    """Return the dtype of a spec, an array, or a Python number."""
    return np.dtype(getattr(mask, "dtype", type(mask)))


def score_scale(q: Any, scale: float | None) -> float:
    """Return the factor of the scores: ``scale``, or one over the root of the dim."""
    return 1 / math.sqrt(q.shape[-1] or 1) if scale is None else scale


def _as_real(x: Any) -> Any:
    return x if is_floating(x.dtype) else astype(x, floating_dtype(x.dtype))


def repeat_heads(x: Any, q: Any) -> Any:
    """Return keys or values repeated for each query head of a group."""
    if len(q.shape) < 3 or len(x.shape) < 3:
        return x
    heads, own = q.shape[-3], x.shape[-3]
    if own == heads or 1 in (own, heads):
        return x
    return take(x, np.arange(heads) // (heads // own), axis=-3)


def _sum_to_operand(total: Any, x: Any) -> Any:
    """Sum a cotangent over what ``repeat_heads`` repeated: the transpose of it."""
    if len(x.shape) > 2 and 1 < x.shape[-3] < total.shape[-3]:
        own, each = x.shape[-3], total.shape[-3] // x.shape[-3]
        total = sum(reshape(total, (*total.shape[:-3], own, each, *total.shape[-2:])), -3)
    return sum_to(total, x.shape)


def attention_weights(
    q: Any, k: Any, mask: Any, causal: bool, scale: float | None, first: int = 0
) -> Any:
    """Return the softmax of the scores; 0 in a row without a key to attend to.

    Args:
        q: Queries, of which the first is number ``first`` of all of them.
        k: Keys.
        mask: Of these queries and keys.
        causal: Whether later keys are left out.
        scale: What products are multiplied by.
        first: See ``q``.
    """
    scores = mul(matmul(q, matrix_transpose(repeat_heads(k, q))), score_scale(q, scale))
    allowed = np.tri(q.shape[-2], k.shape[-2], first, dtype=bool) if causal else None
    if mask is not None and mask_dtype(mask).kind == "b":
        allowed = mask if allowed is None else logical_and(allowed, mask)
    elif mask is not None:
        scores = add(scores, mask)
    if not k.shape[-2]:
        return scores
    if allowed is not None:
        scores = where(allowed, scores, -np.inf)
    top = largest(scores, -1, keepdims=True)
    powers = exp(sub(scores, where(equal(top, -np.inf), 0, top)))
    total = sum(powers, -1, keepdims=True)
    return div(powers, where(equal(total, 0), 1, total))


def attention_decomposition(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None
) -> Any:
    """Scaled dot-product attention in ops."""
    q, k, v = map(_as_real, (q, k, v))
    k, v, mask = _drop_unreachable_keys(q, k, v, mask, causal)
    made = []
    for part in _query_slices(q, k, v, mask, causal):
        weights = attention_weights(part.q, part.k, part.mask, causal, scale, part.rows.start)
        made.append(matmul(weights, repeat_heads(part.v, q)))
    return made[0] if len(made) == 1 else concatenate(made, -2)


def attention_pullback_decomposition(
    cotangent: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    causal: bool,
    scale: float | None,
    operand: str,
) -> Any:
    """VJP of attention in ops."""
    whole = {"k": k, "v": v, "mask": mask}.get(operand)
    q, k, v = map(_as_real, (q, k, v))
    k, v, mask = _drop_unreachable_keys(q, k, v, mask, causal)
    made: Any = None
    for part in reversed(list(_query_slices(q, k, v, mask, causal and operand != "mask"))):
        moved = _axis_slice(cotangent, -2, part.rows) if part.is_slice else cotangent
        found = _slice_pullback(moved, part, causal, scale, operand)
        made = found if made is None else _join_cotangents(found, made, operand)
    return made if whole is None else _pad_unreachable(made, shape_of(whole))


def _join_cotangents(found: Any, behind: Any, operand: str) -> Any:
    """Join the cotangents of an operand for a slice of the queries and for those after it."""
    if operand == "q":
        return concatenate([found, behind], -2)
    if found.shape == behind.shape:
        return add(found, behind)
    count = found.shape[-2]
    both = add(found, _axis_slice(behind, -2, slice(count)))
    return concatenate([both, _axis_slice(behind, -2, slice(count, behind.shape[-2]))], -2)


class _QuerySlice(NamedTuple):
    """Some queries and the keys they may attend to; ``is_slice`` unless these are all."""

    rows: slice
    q: Any
    k: Any
    v: Any
    mask: Any
    is_slice: bool


# From so many scores of one head on, a causal call is computed in so many slices of the queries:
# each has kernels of its own, which take time to compile.
_PARTS = {1 << 18: 4, 1 << 20: 8}


def _query_slices(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Iterator[_QuerySlice]:
    count, keys = q.shape[-2], k.shape[-2]
    number = max([parts for least, parts in _PARTS.items() if count * keys >= least], default=1)
    # A program for symbolic sizes must be the same for all.
    static_shapes = getattr(getattr(q, "graph", None), "static_shapes", True)
    if not causal or not static_shapes or not 1 < number <= count:
        yield _QuerySlice(slice(0, count), q, k, v, mask, False)
        return
    ends = [count * (n + 1) // number for n in range(number)]
    for first, last in zip([0, *ends[:-1]], ends, strict=True):
        rows, reach = slice(first, last), slice(min(last, keys))
        part = _axis_slice(_axis_slice(mask, -2, rows), -1, reach)
        yield _QuerySlice(
            rows,
            _axis_slice(q, -2, rows),
            _axis_slice(k, -2, reach),
            _axis_slice(v, -2, reach),
            part,
            True,
        )


def _axis_slice(x: Any, axis: int, part: slice) -> Any:
    """Slice an operand along an axis, if it has that axis and is not broadcast along it."""
    shape = shape_of(x)
    if len(shape) < -axis or shape[axis] == 1:
        return x
    return getitem(x, (..., part, *(slice(None),) * (-1 - axis)))


def _drop_unreachable_keys(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> tuple[Any, Any, Any]:
    """Return keys, values and mask without the keys after the last query of a causal call."""
    count, keys = q.shape[-2], k.shape[-2]
    if not causal or keys <= count:
        return k, v, mask
    if shape_of(mask)[-1:] == (keys,):
        mask = getitem(mask, (..., slice(count)))
    return (*(getitem(x, (..., slice(count), slice(None))) for x in (k, v)), mask)


def _pad_unreachable(made: Any, shape: Shape) -> Any:
    """Pad a cotangent with zeros for the keys that ``_drop_unreachable_keys`` dropped."""
    for axis in (-2, -1):
        if made.shape != shape and made.shape[axis] != shape[axis]:
            rest = list(made.shape)
            rest[axis] = shape[axis] - made.shape[axis]
            made = concatenate([made, np.zeros(rest, made.dtype)], axis)
    return made


def _slice_pullback(
    cotangent: Any, part: _QuerySlice, causal: bool, scale: float | None, operand: str
) -> Any:
    _, q, k, v, mask, _ = part
    weights = attention_weights(q, k, mask, causal, scale, part.rows.start)
    if operand == "v":
        return _sum_to_operand(matmul(matrix_transpose(weights), cotangent), v)
    moved = softmax_derivative(matmul(cotangent, matrix_transpose(repeat_heads(v, q))), weights)
    if operand == "mask":
        return sum_to(moved, shape_of(mask))
    if operand == "q":
        made = sum_to(matmul(moved, repeat_heads(k, q)), q.shape)
    else:
        made = _sum_to_operand(matmul(matrix_transpose(moved), q), k)
    return mul(made, score_scale(q, scale))


def softmax_derivative(t: Any, weights: Any) -> Any:
    """Apply the derivative of the softmax, which is symmetric and serves both modes."""
    return mul(weights, sub(t, sum(mul(t, weights), -1, keepdims=True)))


# Scores of one tile: the fastest of 2^14 to 2^20 for 128 to 4096 keys, half a megabyte in float32.
_MOST = 1 << 17
# Rows of a causal tile: fewer rows skip more masked scores, more rows multiply faster.
_CAUSAL_ROWS = 128


class TilePasses(NamedTuple):
    """Passes over each tile, matrices (keys, queries), between its products.

    Queries lie side by side: so sums over keys add rows to rows, of which processors take several
    elements at once.
    """

    exponentiate: Callable[[Array], Array]
    """In place: the powers of each column, over that of the largest; 0 in one that is all -inf.

    What it returns, (..., 1, queries), makes weights of them: 1 over their sum, or over 1 for 0.
    """
    softmax_vjp: Callable[[Array, Array, Array], None]
    """From powers, what makes weights of them, and, in place, the weights' cotangents: those of the
    scores, before they too are multiplied by what makes weights."""


def _exponentiate_scores(scores: Array) -> Array:
    top = scores.max(-2, keepdims=True)
    top[top == -np.inf] = 0
    scores -= top
    np.exp(scores, scores)
    total = np.add.reduce(scores, -2, keepdims=True)
    total[total == 0] = 1
    return np.divide(1, total, total)


def _softmax_vjp_scores(powers: Array, inverse: Array, moved: Array) -> None:
    moved -= np.add.reduce(powers * moved, -2, keepdims=True) * inverse
    moved *= powers


PASSES = TilePasses(_exponentiate_scores, _softmax_vjp_scores)


class ScoreTile(NamedTuple):
    """Position of a tile: slices of the leading axes, of the queries, and of the keys."""

    lead: tuple[slice, ...]
    rows: slice
    keys: slice


class TiledAttention:
    """One call of attention on arrays, computed a tile of scores at a time.

    With grouped heads, key heads get an axis of length 1 after their own, and query heads an axis
    for the members of each group; so broadcasting does the rest.
    """

    def __init__(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None,
        causal: bool,
        scale: float,
        passes: TilePasses = PASSES,
    ) -> None:
        self.causal, self.passes = causal, passes
        self.shapes = {"q": q.shape, "k": k.shape, "v": v.shape}
        dtypes = [np.dtype(np.float16), q.dtype, k.dtype, v.dtype]
        if mask is not None:
            self.shapes["mask"] = mask.shape
            dtypes += [mask.dtype] if mask.dtype.kind != "b" else []
        self.dtype = np.result_type(*dtypes)
        # Half precision can hold neither the scores nor their sums.
        work = np.result_type(self.dtype, np.float32)
        heads, *others = [x.shape[-3] if x.ndim > 2 else 1 for x in (q, k, v)]
        shared = max(others)
        self.groups = shared if 1 < shared < heads else 0
        self.q, self.k, self.v = (self._in_groups(x.astype(work, copy=False)) for x in (q, k, v))
        self.scale = self.q.dtype.type(scale)
        self.mask = None
        if mask is not None:
            mask = mask if mask.dtype.kind == "b" else mask.astype(work, copy=False)
            self.mask = self._in_groups(mask.reshape((1,) * (2 - mask.ndim) + mask.shape))
        leads = [x.shape[:-2] for x in (self.q, self.k, self.v, self.mask) if x is not None]
        self.lead: Shape = np.broadcast_shapes(*leads)
        self.queries, self.keys = q.shape[-2], k.shape[-2]

    def _in_groups(self, x: Array) -> Array:
        if not self.groups or x.ndim < 3:
            return x
        heads = x.shape[-3]
        split = (self.groups, heads // self.groups) if heads > 1 else (1, 1)
        return x.reshape(*x.shape[:-3], *split, *x.shape[-2:])

    # -------------------------------------------------------------- tiles

    def tiles(self) -> Iterator[ScoreTile]:
        """Yield the tiles; those with the same keys are consecutive."""
        rows = self.queries
        if rows * self.keys > _MOST:
            rows = max(1, _MOST // self.keys)
        if self.causal:
            rows = min(rows, _CAUSAL_ROWS)
        rows = max(rows, 1)
        room = _MOST // max(rows * self.keys, 1) if rows >= self.queries else 1
        steps = []
        for n in reversed(self.lead):
            steps.append(max(1, min(n, room)))
            room //= max(n, 1)
        starts = [range(0, n, s) for n, s in zip(self.lead, reversed(steps), strict=True)]
        for *lead, first in product(*starts, range(0, self.queries, rows)):
            last = min(first + rows, self.queries)
            keys = min(last, self.keys) if self.causal else self.keys
            yield ScoreTile(
                tuple(slice(a, a + s) for a, s in zip(lead, reversed(steps), strict=True)),
                slice(first, last),
                slice(keys),
            )

    def _tile_slice(
        self, x: Array, tile: ScoreTile, rows: slice, columns: slice = slice(None)
    ) -> Array:
        """Return the slice of an operand in a tile; all of an axis that is broadcast."""
        skipped = len(self.lead) + 2 - x.ndim
        wanted = (*tile.lead, rows, columns)[skipped:]
        return x[tuple(slice(None) if n == 1 else s for n, s in zip(x.shape, wanted, strict=True))]

    def tile_exponentials(self, tile: ScoreTile, spare: Array | None = None) -> tuple[Array, Array]:
        """Return the exponentials of a tile, (..., keys, queries), and their inverse sums."""
        q = self._tile_slice(self.q, tile, tile.rows)
        # Contiguous rows of transposed queries are multiplied in half of the time of strided
        # columns.
        turned = np.multiply(q.swapaxes(-1, -2), self.scale, order="C")
        scores = _product_into(self._tile_slice(self.k, tile, tile.keys), turned, spare)
        if self.mask is not None:
            mask = self._tile_slice(self.mask, tile, tile.rows, tile.keys)
            scores = _apply_mask(scores, mask.swapaxes(-1, -2))
        if self.causal and tile.keys.stop > tile.rows.start:
            # Only the last square of scores has keys after a query.
            late = np.arange(tile.rows.start, tile.keys.stop)[:, None] > np.arange(
                tile.rows.start, tile.rows.stop
            )
            np.copyto(scores[..., tile.rows.start :, :], -np.inf, where=late)
        return scores, self.passes.exponentiate(scores) if scores.size else np.ones(
            (1, 1), scores.dtype
        )

    # -------------------------------------------------------------- forward

    def forward(self, keep: bool = False) -> tuple[Array, list[Array]]:
        """Return the result and, with ``keep``, the exponentials of all tiles, if not too many.

        They are kept if they take no more memory than the operands and the result.
        """
        shape = (*self.lead, self.queries, self.v.shape[-1])
        if len(shape) == self.q.ndim:  # laid out as the queries are, which heads may be axes of
            out = np.empty_like(self.q, shape=shape)
        else:
            out = np.empty(shape, self.q.dtype)
        operands = self.q.size + self.k.size + self.v.size + out.size
        keep = keep and math.prod(self.lead) * self.queries * self.keys <= operands
        kept: list[Array] = []
        powers = None
        for tile in self.tiles():
            powers, inverse = self.tile_exponentials(tile, None if keep else powers)
            part = self._tile_slice(out, tile, tile.rows)
            v = self._tile_slice(self.v, tile, tile.keys)
            np.matmul(powers.swapaxes(-1, -2), v, out=part)
            part *= inverse.swapaxes(-1, -2)
            if keep:
                kept += [powers, inverse]
        if self.groups:
            out = out.reshape(*out.shape[:-4], out.shape[-4] * out.shape[-3], *out.shape[-2:])
        return out.astype(self.dtype, copy=False), kept

    # -------------------------------------------------------------- backward

    def backward(
        self, g: Array, wanted: tuple[str, ...], kept: Sequence[Array] = ()
    ) -> dict[str, Array]:
        """Return the cotangents of the operands ``wanted``, by name, for that of the result."""
        g = self._in_groups(g.astype(self.q.dtype, copy=False))
        found = {name: np.zeros_like(getattr(self, name)) for name in wanted}
        powers = moved = None
        for n, tile in enumerate(self.tiles()):
            powers, inverse = (
                kept[2 * n : 2 * n + 2] if kept else self.tile_exponentials(tile, powers)
            )
            per_query = inverse.swapaxes(-1, -2)
            part = self._tile_slice(g, tile, tile.rows)
            if "v" in found:
                # Contiguous rows are multiplied in 0.8 of the time.
                self._accumulate(found["v"], tile, tile.keys, powers, _scaled_rows(part, per_query))
            if found.keys() == {"v"}:
                continue
            v = self._tile_slice(self.v, tile, tile.keys)
            moved = _product_into(v, np.ascontiguousarray(part.swapaxes(-1, -2)), moved)
            if moved.size:
                self.passes.softmax_vjp(powers, inverse, moved)
            if "mask" in found:
                cotangents = (moved * inverse).swapaxes(-1, -2)
                _add_reduced(
                    self._tile_slice(found["mask"], tile, tile.rows, tile.keys), cotangents
                )
            if "q" in found:
                k = self._tile_slice(self.k, tile, tile.keys)
                self._accumulate(found["q"], tile, tile.rows, moved.swapaxes(-1, -2), k, per_query)
            if "k" in found:
                q = _scaled_rows(self._tile_slice(self.q, tile, tile.rows), per_query)
                self._accumulate(found["k"], tile, tile.keys, moved, q)
        for name in found.keys() & {"q", "k"}:
            found[name] *= self.scale
        return {
            name: total.reshape(self.shapes[name]).astype(self.dtype, copy=False)
            for name, total in found.items()
        }

    def _accumulate(
        self,
        total: Array,
        tile: ScoreTile,
        rows: slice,
        a: Array,
        b: Array,
        scale: Array | None = None,
    ) -> None:
        """Add ``a @ b`` to a slice of a cotangent, or write it if nothing was added before."""
        part = self._tile_slice(total, tile, rows)
        first = rows is tile.rows or tile.rows.start == 0
        if first and total.shape[:-2] == self.lead:
            np.matmul(a, b, out=part)
            if scale is not None:
                part *= scale
        else:
            made = np.matmul(a, b)
            _add_reduced(part, made if scale is None else made * scale)


def _scaled_rows(x: Array, scale: Array) -> Array:
    return np.multiply(x, scale, order="C")


def _product_into(a: Array, b: Array, spare: Array | None) -> Array:
    """Return ``a @ b``, written over ``spare`` if it fits: new pages of memory take time.

    In C order, which the passes need: NumPy by itself chooses the layout of the operands.
    """
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    fits = spare is not None and spare.shape == shape
    return np.matmul(a, b, out=spare if fits else np.empty(shape, a.dtype))


def _apply_mask(scores: Array, mask: Array) -> Array:
    """Return the scores with a mask, broadcast to the shape of both."""
    shape = np.broadcast_shapes(scores.shape, mask.shape)
    if shape != scores.shape:
        scores = np.array(np.broadcast_to(scores, shape), order="C")  # as ``_product_into``
    if mask.dtype.kind == "b":
        np.copyto(scores, -np.inf, where=~mask)
    else:
        scores += mask
    return scores


def _add_reduced(total: Array, part: Array) -> None:
    """Add ``part``, summed over the axes that ``total`` lacks or has with length 1, in place."""
    if part.shape == total.shape:
        total += part
        return
    part = part.sum(tuple(range(part.ndim - total.ndim)))
    axes = tuple(k for k, n in enumerate(total.shape) if n == 1 and part.shape[k] != 1)
    total += part.sum(axes, keepdims=True) if axes else part


_WHO, _BACK = "scaled_dot_product_attention", "attention_pullback"

# ------------------------------------------------------------------ shapes and options


def _infer_attention(
    q: Spec, k: Spec, v: Spec, mask: Any, causal: bool, scale: float | None
) -> Spec:
    shapes: list[Any] = [getattr(x, "shape", ()) for x in (q, k, v)]
    came = f"q {shapes[0]}, k {shapes[1]}, v {shapes[2]}"
    if len(min(shapes, key=len)) < 2:
        raise ShapeError(f"{_WHO}: {came}; wanted are (..., heads, length, dim)")
    if shapes[0][-1] != shapes[1][-1]:
        raise ShapeError(f"{_WHO}: {came}; queries and keys must be of one dim, the last axis")
    if shapes[1][-2] != shapes[2][-2]:
        raise ShapeError(f"{_WHO}: {came}; keys and values must be of one length, axis -2")
    lead = _leading_shape(shapes, came)
    dtype = np.result_type(*(floating_dtype(x.dtype) for x in (q, k, v)))
    if mask is not None:
        lead = _masked_leading_shape((*lead, shapes[0][-2], shapes[1][-2]), mask)
        if is_floating(mask_dtype(mask)):
            dtype = np.result_type(dtype, mask_dtype(mask))
    return Spec((*lead, shapes[0][-2], shapes[2][-1]), dtype)


def _leading_shape(shapes: list[Any], came: str) -> Shape:
    """Return the axes before length and dim, of which the last are the heads."""
    heads, *others = [shape[-3] if len(shape) > 2 else 1 for shape in shapes]
    shared = others[0] if others[1] == 1 else others[1]
    grouped = 1 < shared < heads and heads % shared == 0
    fits = grouped or 1 in (heads, shared) or heads == shared
    leads = [(*s[:-3], heads) if grouped and len(s) > 2 else s[:-2] for s in shapes]
    try:
        if not fits or (1 not in others and others[0] != others[1]):
            raise ValueError
        return np.broadcast_shapes(*leads)
    except ValueError:
        raise ShapeError(
            f"{_WHO}: {came}; leading axes must broadcast, and the heads of q be those of k and v, "
            "or a multiple of them"
        ) from None


def _masked_leading_shape(scores: Shape, mask: Any) -> Shape:
    shape = getattr(mask, "shape", ())
    if mask_dtype(mask).kind not in "bf":
        raise DTypeError(
            f"{_WHO}: mask is of {mask_dtype(mask)}; pass truth values, True where a query may "
            "attend, or floating numbers, which are added to the scores"
        )
    try:
        whole = np.broadcast_shapes(scores, shape)
    except ValueError:
        whole = ()
    if whole[-2:] != scores[-2:]:
        raise ShapeError(f"{_WHO}: mask {shape} for scores {scores}; it must broadcast to them")
    return whole[:-2]


def _attention_options(causal: bool, scale: Any) -> tuple[bool, float | None]:
    return causal, None if scale is None else check_number(_WHO, "scale", scale)


# ------------------------------------------------------------------ batch rules


def _aligned_operands(batch: Batch, operands: Sequence[Any]) -> tuple[list[Any], int]:
    """Return operands with an axis of heads, and the number of axes of their examples."""
    ndim = max([3, *[batch.ndim(k, x) for k, x in enumerate(operands)]])
    aligned = [
        x if x is None else align(x, m, ndim) for x, m in zip(operands, batch.mapped, strict=True)
    ]
    return aligned, ndim


def _batch_attention(
    batch: Batch, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None
) -> Any:
    shape = _infer_attention(*example_specs(batch, (q, k, v, mask), causal, scale)).shape
    operands, _ = _aligned_operands(batch, (q, k, v, mask))
    out = scaled_dot_product_attention(*operands, causal=causal, scale=scale)
    return reshape(out, (batch.size, *shape))


def _batch_attention_pullback(
    batch: Batch,
    cotangent: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    causal: bool,
    scale: float | None,
    operand: str,
) -> Any:
    given, which = (q, k, v, mask), ("q", "k", "v", "mask").index(operand)
    specs = example_specs(batch, (cotangent, *given))
    shape = _infer_attention_pullback(*[*specs, causal, scale, operand]).shape
    # The operand has a cotangent in each example, and so the batch.
    mapped = [m or k == which for k, m in enumerate(batch.mapped[1:])]
    own = [spread(batch, k + 1, x) if k == which else x for k, x in enumerate(given)]
    operands, ndim = _aligned_operands(Batch(batch.size, mapped), own)
    cotangent = align(spread(batch, 0, cotangent), True, ndim)
    options = {"causal": causal, "scale": scale, "operand": operand}
    return reshape(attention_pullback(cotangent, *operands, **options), (batch.size, *shape))


# ------------------------------------------------------------------ rules


def _operand_rule(operand: str) -> Callable[..., Any]:
    def rule(
        g: Any,
        q: Any,
        k: Any,
        v: Any,
        mask: Any,
        causal: bool,
        scale: float | None,
        residual: Any = None,
    ) -> Any:
        if operand == "mask" and mask_dtype(mask).kind == "b":
            return np.zeros(shape_of(mask), g.dtype)
        if residual is None or operand == "mask":
            return attention_pullback(g, q, k, v, mask, causal=causal, scale=scale, operand=operand)
        shared, pull, *kept = residual
        if not callable(pull):  # a device has a rule of its own, which calls its own functions
            pull = partial(_pull_exponentials, pull)
        return shared.cotangent(operand, g, lambda: pull(kept, g, q, k, v, mask, causal, scale))

    return rule


def _q_jvp(t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    scores = mul(matmul(t, matrix_transpose(repeat_heads(k, q))), score_scale(q, scale))
    return _scores_jvp(scores, q, k, v, mask, causal, scale)


def _k_jvp(t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    scores = mul(matmul(q, matrix_transpose(repeat_heads(t, q))), score_scale(q, scale))
    return _scores_jvp(scores, q, k, v, mask, causal, scale)


def _scores_jvp(
    t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None
) -> Any:
    """Return the tangent of the result for that of the scores."""
    weights = attention_weights(q, k, mask, causal, scale)
    return matmul(softmax_derivative(t, weights), repeat_heads(v, q))


# ------------------------------------------------------------------ rows


def _tiled_call(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    causal: bool,
    scale: float | None,
    passes: TilePasses = PASSES,
) -> TiledAttention:
    """Return the checked call on arrays."""
    q, k, v = map(np.asarray, (q, k, v))
    mask = None if mask is None else np.asarray(mask)
    _infer_attention(spec_of(q), spec_of(k), spec_of(v), mask, causal, scale)
    return TiledAttention(q, k, v, mask, causal, score_scale(q, scale), passes)


def _forward_with_residual(passes: TilePasses, *given: Any) -> tuple[Any, Any]:
    """Return the result, and the residual that the rules share."""
    q, k, v, mask, causal, scale = given
    out, kept = _tiled_call(q, k, v, mask, causal, scale, passes).forward(keep=True)
    return out, (SharedPullback(), passes, *kept)


def _pull_exponentials(
    passes: TilePasses, kept: Sequence[Array], g: Array, *given: Any
) -> dict[str, Array]:
    """Return the cotangents of queries, keys and values, from the exponentials that are kept."""
    q, k, v, mask, causal, scale = given
    call = _tiled_call(q, k, v, mask, causal, scale, passes)
    return call.backward(g, ("q", "k", "v"), kept)


def _pullback_arrays(
    passes: TilePasses, operands: Sequence[str], cotangent: Any, given: Sequence[Any]
) -> dict[str, Any]:
    """Return the cotangents of some operands, by name."""
    q, k, v, mask, causal, scale = given
    call = _tiled_call(q, k, v, mask, causal, scale, passes)
    cotangent = np.asarray(cotangent)
    wanted = {
        name: _infer_attention_pullback(cotangent, q, k, v, mask, causal, scale, name)
        for name in operands
    }
    found = call.backward(cotangent, tuple(operands))
    return {name: found[name].astype(spec.dtype, copy=False) for name, spec in wanted.items()}


def _compiled_passes() -> TilePasses:
    from odyssey.kernels.attention import exponentiate_scores, softmax_vjp_scores

    return TilePasses(exponentiate_scores, softmax_vjp_scores)


def _fastest_passes() -> TilePasses:
    return _compiled_passes() if are_kernels_compiled() else PASSES


def _fits_kernel(q: Any, k: Any, v: Any, mask: Any, *options: Any) -> bool:
    """Return whether compiled passes support a call, which must have several queries."""
    floats = [getattr(x, "dtype", None) for x in (q, k, v)]
    if mask is not None and mask_dtype(mask).kind != "b":
        floats.append(mask_dtype(mask))
    known = all(dtype in (np.float32, np.float64) for dtype in floats)
    return known and q.ndim > 1 and q.shape[-2] > 1


# From so many bytes of scores on compiled functions compute tiles as well.
_LARGE = 1 << 28


def _guess_attention(q: Any, k: Any, v: Any, mask: Any, causal: bool, *rest: Any) -> str:
    """Return the guessed way: tiles of a host call if all scores would take much memory."""
    out = _infer_attention(q, k, v, mask, causal, None)
    count = math.prod(out.shape[:-1]) * k.shape[-2]
    is_large = count * out.dtype.itemsize >= _LARGE
    return "called" if is_large and _fits_kernel(q, k, v, mask) else "compiled"


def _guess_attention_pullback(cotangent: Any, *given: Any) -> str:
    fits = _fits_kernel(cotangent, *given[1:])
    return _guess_attention(*given) if fits else "compiled"


_KERNEL = Kernel(
    "compiled passes over tiles",
    lambda *given: _forward_with_residual(_compiled_passes(), *given)[0],
    when=_fits_kernel,
    with_residual=lambda *given: _forward_with_residual(_compiled_passes(), *given),
)
_KERNEL_BACK = Kernel(
    "compiled passes over tiles",
    lambda g, *given: _pullback_arrays(_compiled_passes(), given[-1:], g, given[:-1])[given[-1]],
    when=lambda cotangent, *given: _fits_kernel(*given) and _fits_kernel(cotangent, *given[1:]),
    together=(
        "operand",
        lambda operands, g, *given: _pullback_arrays(_fastest_passes(), operands, g, given),
    ),
)


def _attention_on_cuda(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any) -> Any:
    from odyssey.kernels.attention import cuda_attention

    return cuda_attention(q, k, v, mask, causal, score_scale(q, scale))


def _attention_pullback_on_cuda(
    g: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any, operand: str
) -> Any:
    from odyssey.kernels.attention import cuda_attention_pullback

    options = causal, score_scale(q, scale)
    return cuda_attention_pullback(g, q, k, v, mask, *options, [operand])[operand]


def _attention_with_logs_on_cuda(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any
) -> tuple[Any, Any]:
    from odyssey.kernels.attention import cuda_attention_with_logs

    out, logs = cuda_attention_with_logs(q, k, v, mask, causal, score_scale(q, scale))
    # A tape with saved= rounds float32 to halves; the exponential would magnify that error.
    return out, (SharedPullback(), _pull_logs_on_cuda, out, logs.astype(np.float64))


def _pull_logs_on_cuda(
    kept: Sequence[Any], g: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any
) -> dict[str, Any]:
    """Return the cotangents of queries, keys and values, from the result and its logarithms."""
    from odyssey.kernels.attention import cuda_attention_pullback
    from odyssey.kernels.cuda import computing_dtype

    # Rules of halves pass all but the residual in single precision.
    g, out = [x.astype(q.dtype, copy=False) for x in (g, kept[0])]
    logs = kept[1].astype(computing_dtype(q.dtype), copy=False)
    options = causal, score_scale(q, scale)
    return cuda_attention_pullback(g, q, k, v, mask, *options, ["q", "k", "v"], (out, logs))


def _fits_cuda_tiles(*given: Any) -> bool:
    from odyssey.kernels.attention import fits_cuda_attention

    return fits_cuda_attention(*given)


def _pullback_fits_cuda_tiles(g: Any, q: Any, k: Any, v: Any, mask: Any, *options: Any) -> bool:
    # A mask that broadcasts leading axes would need a sum: tiles do not write its cotangent.
    fits = options[-1] != "mask" and g.dtype == q.dtype and _fits_cuda_tiles(q, k, v, mask)
    return fits and g.shape == (*q.shape[:-1], v.shape[-1])


_CUDA_KERNEL = Kernel(
    "tiles with a running softmax",
    _attention_on_cuda,
    "cuda",
    when=_fits_cuda_tiles,
    with_residual=_attention_with_logs_on_cuda,
)
_CUDA_KERNEL_BACK = Kernel(
    "tiles of weights computed again",
    _attention_pullback_on_cuda,
    "cuda",
    when=_pullback_fits_cuda_tiles,
)
_LOWER = np.tri(3, 4, dtype=bool)
_VALUES = np.arange(16, dtype=np.float16).reshape(2, 4, 2)
_NONE_IN_A_ROW = np.array([[True, False, True], [False, False, False]])
_REJECTS = (
    reject((3,), (2, 3), (2, 3), None, match=r"wanted are \(..., heads"),
    reject((2, 3), (2, 4), (2, 3), None, match="one dim"),
    reject((2, 3), (4, 3), (2, 3), None, match="as many|one length"),
    reject((3, 2, 4), (2, 2, 4), (2, 2, 4), None, match="a multiple of them"),
    reject((4, 2, 4), (2, 2, 4), (4, 2, 4), None, match="a multiple of them"),
    reject((2, 3), (4, 3), (4, 3), (2, 3), match="must broadcast to them"),
    reject((2, 3), (4, 3), (4, 3), np.ones(4, int), error=DTypeError, match="True where"),
    reject((2, 3), (4, 3), (4, 3), None, scale=np.inf, error=SettingError, match="finite"),
)


@op(
    real=True,
    prepare=_attention_options,
    infer=_infer_attention,
    vmap=_batch_attention,
    decomposition=compute_in_float32(attention_decomposition, 3),
    guess=_guess_attention,
    canonical=lambda q, k, v, mask, causal, scale: (causal, score_scale(q, scale)),
    with_residual=lambda *given: _forward_with_residual(PASSES, *given),
    kernels=[_KERNEL, _CUDA_KERNEL],
    vjp={name: _operand_rule(name) for name in ("q", "k", "v", "mask")},
    jvp={
        "q": _q_jvp,
        "k": _k_jvp,
        "v": lambda t, q, k, mask, causal, scale: scaled_dot_product_attention(
            q, k, t, mask, causal=causal, scale=scale
        ),
        "mask": lambda t, q, k, v, mask, causal, scale: _scores_jvp(
            t, q, k, v, mask, causal, scale
        ),
    },
    kinks="0, as is its derivative, where a query may attend to no key; NaN where a score is inf",
    samples=[
        sample((2, 3), (4, 3), (4, 2), None),
        sample((2, 3, 4), (2, 3, 4), (2, 3, 4), None, causal=True),
        sample((2, 4, 3, 2), (2, 4, 2), (2, 4, 2), _LOWER),
        sample((2, 2, 3), (3, 3), (2, 3, 2), (2, 1, 3), causal=True, scale=0.3),
        sample((2, 3), (3, 3), (3, 2), _NONE_IN_A_ROW),
        sample((2, 3), (0, 3), (0, 2), None),
    ],
    rejects=_REJECTS,
    precision="low",
)
def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Any:
    """Scaled dot-product attention, ``softmax(scale * q @ k.T + mask) @ v``.

    A. Vaswani et al., Attention Is All You Need, 2017. Scores are computed, and recomputed for the
    gradient, a tile at a time: memory grows with length, not with its square. Second derivatives
    and forward mode hold all scores; so do compiled functions, if these take less than 256 MB.

    Args:
        q: Queries, (..., heads, length, dim), or without heads.
        k: Keys, (..., heads, other length, dim). If they have fewer heads than ``q``, each serves a
            group of consecutive query heads.
        v: Values, (..., heads, other length, width).
        mask: An array that broadcasts to the scores, (..., heads, length, other length): booleans,
            True where a query may attend to a key; or numbers, which are added to the scores, and
            have a gradient.
        causal: Query i attends to keys up to i only; with a mask, to those of them that it allows.
        scale: The factor of the products; ``1 / sqrt(dim)`` by default.

    Returns:
        (..., heads, length, width); 0, as is the gradient, for a query that may attend to no key.

    Raises:
        ShapeError: If shapes do not fit.
        DTypeError: For complex numbers, and masks of integers.

    >>> q = k = np.eye(2) * 100.0
    >>> scaled_dot_product_attention(q, k, np.array([[1.0], [5.0]])).round(3)
    array([[1.],
           [5.]])
    >>> scaled_dot_product_attention(q * 0, k, np.array([[1.0], [5.0]]), causal=True)
    array([[1.],
           [3.]])
    """
    return _tiled_call(q, k, v, mask, causal, scale).forward()[0]


def _pullback_options(causal: bool, scale: Any, operand: Any) -> tuple[bool, float | None, str]:
    return *_attention_options(causal, scale), check_choice(
        _BACK, "operand", operand, ("q", "k", "v", "mask")
    )


def _infer_attention_pullback(
    cotangent: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any, operand: str
) -> Spec:
    out = _infer_attention(q, k, v, mask, causal, scale)
    came = getattr(cotangent, "shape", ())
    if came != out.shape:
        raise ShapeError(f"{_BACK}: cotangent {came}; the result is {out.shape}")
    x = {"q": q, "k": k, "v": v, "mask": mask}[operand]
    if x is None or (x is mask and mask_dtype(mask).kind == "b"):
        raise DTypeError(f"{_BACK}: operand='mask', which is {mask}; it has no gradient")
    return Spec(
        getattr(x, "shape", ()), np.result_type(out.dtype, floating_dtype(mask_dtype(cotangent)))
    )


@op(
    real=True,
    prepare=_pullback_options,
    infer=_infer_attention_pullback,
    vmap=_batch_attention_pullback,
    decomposition=compute_in_float32(attention_pullback_decomposition, 4),
    guess=_guess_attention_pullback,
    canonical=lambda cotangent, q, k, v, mask, causal, scale, operand: (
        causal,
        score_scale(q, scale),
        operand,
    ),
    kernels=[_KERNEL_BACK, _CUDA_KERNEL_BACK],
    **derive_rules(attention_pullback_decomposition, "cotangent", "q", "k", "v", "mask"),
    kinks="as scaled_dot_product_attention",
    samples=[
        sample((2, 2), (2, 3), (4, 3), (4, 2), None, operand="q"),
        sample((4, 3, 2), (4, 3, 2), (2, 4, 2), (1, 4, 2), (3, 4), operand="k"),
        sample((4, 3, 2), (4, 3, 2), (2, 4, 2), _VALUES, (4, 1, 4), operand="v"),
        sample((3, 2, 2), (2, 3), (3, 3), (3, 3, 2), (1, 3), causal=True, operand="mask"),
        sample((2, 2), (2, 3), (0, 3), (0, 2), None, scale=0.5, operand="k"),
    ],
    rejects=[
        reject((2, 3), (2, 3), (4, 3), (4, 2), None, operand="q", match="the result is"),
        reject(
            (2, 2), (2, 3), (4, 3), (4, 2), None, operand="mask", error=DTypeError, match="None"
        ),
        reject((2, 2), (2, 3), (4, 3), (4, 2), None, operand="o", error=SettingError, match="'o'"),
    ],
    precision="low",
)
def attention_pullback(
    cotangent: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    operand: str,
) -> Any:
    """VJP of ``scaled_dot_product_attention`` in one operand."""
    given = q, k, v, mask, causal, scale
    return _pullback_arrays(PASSES, (operand,), cotangent, given)[operand]


publish(globals())

"""Attention written in other ops, with all scores at once: what its rows mean.

Of a long causal call they are computed in a few parts of the queries, each with the keys that these
may attend to: of the scores above the diagonal most are never made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from odyssey.checks import number, word
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.linalg.matrix_products import matmul
from odyssey.nn.shared import SharedPullback
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import equal, logical_and, where
from odyssey.ops.elementwise.elementary import exp
from odyssey.ops.reductions.reduce import max as largest
from odyssey.ops.reductions.reduce import sum, sum_to
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.half_precision import compute_in_float32
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import astype, matrix_transpose, reshape, shape_of
from odyssey.spec import Array, Shape, Spec, spec_of
from odyssey.table.declare import Kernel, op, publish
from odyssey.table.derived_rules import derive_rules
from odyssey.table.kernel_selection import are_kernels_compiled
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating_dtype


def dtype_of(mask: Any) -> np.dtype[Any]:
    """Of a spec, an array, or a number, which is an array without axes."""
    return np.dtype(getattr(mask, "dtype", type(mask)))


def scale_of(q: Any, scale: float | None) -> float:
    """What scores are multiplied by, where it is not said."""
    return 1 / math.sqrt(q.shape[-1] or 1) if scale is None else scale


def _real(x: Any) -> Any:
    return x if x.dtype.kind == "f" else astype(x, floating_dtype(x.dtype))


def per_head(x: Any, q: Any) -> Any:
    """Keys or values with a copy for each query head, where these are grouped."""
    if len(q.shape) < 3 or len(x.shape) < 3:
        return x
    heads, own = q.shape[-3], x.shape[-3]
    if own == heads or 1 in (own, heads):
        return x
    return take(x, np.arange(heads) // (heads // own), axis=-3)


def _onto(total: Any, x: Any) -> Any:
    """The transpose of ``per_head``: a cotangent summed over what ``x`` was repeated for."""
    if len(x.shape) > 2 and 1 < x.shape[-3] < total.shape[-3]:
        own, each = x.shape[-3], total.shape[-3] // x.shape[-3]
        total = sum(reshape(total, (*total.shape[:-3], own, each, *total.shape[-2:])), -3)
    return sum_to(total, x.shape)


def weights_of(q: Any, k: Any, mask: Any, causal: bool, scale: float | None, first: int = 0) -> Any:
    """The softmax of the scores; 0 where a row has no key to attend to.

    Args:
        q: Queries, of which the first is number ``first`` of all of them.
        k: Keys.
        mask: Of these queries and keys.
        causal: Whether later keys are left out.
        scale: What products are multiplied by.
        first: See ``q``.
    """
    scores = mul(matmul(q, matrix_transpose(per_head(k, q))), scale_of(q, scale))
    allowed = np.tri(q.shape[-2], k.shape[-2], first, dtype=bool) if causal else None
    if mask is not None and dtype_of(mask).kind == "b":
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


def in_ops(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """What ``scaled_dot_product_attention`` equals."""
    q, k, v = map(_real, (q, k, v))
    k, v, mask = _reached(q, k, v, mask, causal)
    made = []
    for part in _parts(q, k, v, mask, causal):
        weights = weights_of(part.q, part.k, part.mask, causal, scale, part.rows.start)
        made.append(matmul(weights, per_head(part.v, q)))
    return made[0] if len(made) == 1 else concatenate(made, -2)


def pullback_in_ops(
    cotangent: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    causal: bool,
    scale: float | None,
    operand: str,
) -> Any:
    """What ``attention_pullback`` equals."""
    whole = {"k": k, "v": v, "mask": mask}.get(operand)
    q, k, v = map(_real, (q, k, v))
    k, v, mask = _reached(q, k, v, mask, causal)
    made: Any = None
    for part in reversed(list(_parts(q, k, v, mask, causal and operand != "mask"))):
        moved = _cut(cotangent, -2, part.rows) if part.cut else cotangent
        found = _slice_pullback(moved, part, causal, scale, operand)
        made = found if made is None else _joined(found, made, operand)
    return made if whole is None else _with_unreached(made, shape_of(whole))


def _joined(found: Any, behind: Any, operand: str) -> Any:
    """The cotangent of an operand, of a part of the queries and of those behind it."""
    if operand == "q":
        return concatenate([found, behind], -2)
    if found.shape == behind.shape:
        return add(found, behind)
    count = found.shape[-2]
    both = add(found, _cut(behind, -2, slice(count)))
    return concatenate([both, _cut(behind, -2, slice(count, behind.shape[-2]))], -2)


class _Part(NamedTuple):
    """Some queries, and the keys that they may attend to; ``cut`` unless it is all there is."""

    rows: slice
    q: Any
    k: Any
    v: Any
    mask: Any
    cut: bool


# Scores of one head from which on a causal call is computed in parts, and how many these are: each
# has kernels of its own, which take their time to compile.
_PARTS = {1 << 18: 4, 1 << 20: 8}


def _parts(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Iterator[_Part]:
    count, keys = q.shape[-2], k.shape[-2]
    number = max([parts for least, parts in _PARTS.items() if count * keys >= least], default=1)
    # A program for all sizes does the same at each.
    fixed = getattr(getattr(q, "graph", None), "fixed", True)
    if not causal or not fixed or not 1 < number <= count:
        yield _Part(slice(0, count), q, k, v, mask, False)
        return
    ends = [count * (n + 1) // number for n in range(number)]
    for first, last in zip([0, *ends[:-1]], ends, strict=True):
        rows, reach = slice(first, last), slice(min(last, keys))
        part = _cut(_cut(mask, -2, rows), -1, reach)
        yield _Part(rows, _cut(q, -2, rows), _cut(k, -2, reach), _cut(v, -2, reach), part, True)


def _cut(x: Any, axis: int, part: slice) -> Any:
    """A part of an operand along an axis, where it has that and does not repeat one element."""
    shape = shape_of(x)
    if len(shape) < -axis or shape[axis] == 1:
        return x
    return getitem(x, (..., part, *(slice(None),) * (-1 - axis)))


def _reached(q: Any, k: Any, v: Any, mask: Any, causal: bool) -> tuple[Any, Any, Any]:
    """Keys, values and mask without the keys behind the last query, which may be of any value."""
    count, keys = q.shape[-2], k.shape[-2]
    if not causal or keys <= count:
        return k, v, mask
    if shape_of(mask)[-1:] == (keys,):
        mask = getitem(mask, (..., slice(count)))
    return (*(getitem(x, (..., slice(count), slice(None))) for x in (k, v)), mask)


def _with_unreached(made: Any, shape: Shape) -> Any:
    """A cotangent of what ``_reached`` left, with 0 for what it left out."""
    for axis in (-2, -1):
        if made.shape != shape and made.shape[axis] != shape[axis]:
            rest = list(made.shape)
            rest[axis] = shape[axis] - made.shape[axis]
            made = concatenate([made, np.zeros(rest, made.dtype)], axis)
    return made


def _slice_pullback(
    cotangent: Any, part: _Part, causal: bool, scale: float | None, operand: str
) -> Any:
    _, q, k, v, mask, _ = part
    weights = weights_of(q, k, mask, causal, scale, part.rows.start)
    if operand == "v":
        return _onto(matmul(matrix_transpose(weights), cotangent), v)
    moved = softmax_moved(matmul(cotangent, matrix_transpose(per_head(v, q))), weights)
    if operand == "mask":
        return sum_to(moved, shape_of(mask))
    if operand == "q":
        made = sum_to(matmul(moved, per_head(k, q)), q.shape)
    else:
        made = _onto(matmul(matrix_transpose(moved), q), k)
    return mul(made, scale_of(q, scale))


def softmax_moved(t: Any, weights: Any) -> Any:
    """The derivative of the softmax, which is symmetric and so serves both modes."""
    return mul(weights, sub(t, sum(mul(t, weights), -1, keepdims=True)))


# Scores of one tile: the fastest of 2^14 to 2^20 from 128 to 4096 keys, half a megabyte in float32.
_MOST = 1 << 17
# Rows of a causal tile: shorter ones skip more of what is left out, longer ones multiply faster.
_CAUSAL_ROWS = 128


class Passes(NamedTuple):
    """What is done with each tile, matrices (keys, queries), between its products.

    Queries lie side by side: so sums over keys add rows to rows, of which processors take several
    elements at once.
    """

    weigh: Callable[[Array], Array]
    """In place: the powers of each column, over that of the largest; 0 in one that is all -inf.

    What it returns, (..., 1, queries), makes weights of them: 1 over their sum, or over 1 for 0.
    """
    pull: Callable[[Array, Array, Array], None]
    """From powers, what makes weights of them, and, in place, the weights' cotangents: those of the
    scores, before they too are multiplied by what makes weights."""


def _weigh(scores: Array) -> Array:
    top = scores.max(-2, keepdims=True)
    top[top == -np.inf] = 0
    scores -= top
    np.exp(scores, scores)
    total = np.add.reduce(scores, -2, keepdims=True)
    total[total == 0] = 1
    return np.divide(1, total, total)


def _pull(powers: Array, inverse: Array, moved: Array) -> None:
    moved -= np.add.reduce(powers * moved, -2, keepdims=True) * inverse
    moved *= powers


PASSES = Passes(_weigh, _pull)


class Tile(NamedTuple):
    """Where a tile is: slices of the leading axes, of the queries, and of the keys."""

    lead: tuple[slice, ...]
    rows: slice
    keys: slice


class Attention:
    """One call: its operands as tiles are cut out of them.

    Key heads that serve several query heads get an axis of length 1 behind their own, the query
    heads one for the members of each group; so what follows knows of broadcasting alone.
    """

    def __init__(
        self,
        q: Array,
        k: Array,
        v: Array,
        mask: Array | None,
        causal: bool,
        scale: float,
        passes: Passes = PASSES,
    ) -> None:
        self.causal, self.passes = causal, passes
        self.shapes = {"q": q.shape, "k": k.shape, "v": v.shape}
        dtypes = [np.dtype(np.float16), q.dtype, k.dtype, v.dtype]
        if mask is not None:
            self.shapes["mask"] = mask.shape
            dtypes += [mask.dtype] if mask.dtype.kind != "b" else []
        self.dtype = np.result_type(*dtypes)
        # Half precision could hold neither the scores nor their sums.
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

    def tiles(self) -> Iterator[Tile]:
        """Where the tiles are, those of the same keys one after another."""
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
            yield Tile(
                tuple(slice(a, a + s) for a, s in zip(lead, reversed(steps), strict=True)),
                slice(first, last),
                slice(keys),
            )

    def _cut(self, x: Array, tile: Tile, rows: slice, columns: slice = slice(None)) -> Array:
        """The part of an operand in a tile; all of an axis that is broadcast."""
        skipped = len(self.lead) + 2 - x.ndim
        wanted = (*tile.lead, rows, columns)[skipped:]
        return x[tuple(slice(None) if n == 1 else s for n, s in zip(x.shape, wanted, strict=True))]

    def powers(self, tile: Tile, spare: Array | None = None) -> tuple[Array, Array]:
        """What ``weigh`` makes of a tile's scores, (..., keys, queries); over ``spare`` if fit."""
        q = self._cut(self.q, tile, tile.rows)
        # As rows of their own, not as columns, the queries are multiplied in half of the time.
        turned = np.multiply(q.swapaxes(-1, -2), self.scale, order="C")
        scores = _product(self._cut(self.k, tile, tile.keys), turned, spare)
        if self.mask is not None:
            mask = self._cut(self.mask, tile, tile.rows, tile.keys)
            scores = _masked(scores, mask.swapaxes(-1, -2))
        if self.causal and tile.keys.stop > tile.rows.start:
            # Only the square at the end has keys that come after a query.
            late = np.arange(tile.rows.start, tile.keys.stop)[:, None] > np.arange(
                tile.rows.start, tile.rows.stop
            )
            np.copyto(scores[..., tile.rows.start :, :], -np.inf, where=late)
        return scores, self.passes.weigh(scores) if scores.size else np.ones((1, 1), scores.dtype)

    # -------------------------------------------------------------- forward

    def forward(self, keep: bool = False) -> tuple[Array, list[Array]]:
        """The result; and, to ``keep``, the powers of all tiles, if they are not too many.

        They may take as much memory as the operands and the result do.
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
            powers, inverse = self.powers(tile, None if keep else powers)
            part = self._cut(out, tile, tile.rows)
            v = self._cut(self.v, tile, tile.keys)
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
        """Cotangents of the operands that are ``wanted``, by name, from that of the result."""
        g = self._in_groups(g.astype(self.q.dtype, copy=False))
        found = {name: np.zeros_like(getattr(self, name)) for name in wanted}
        powers = moved = None
        for n, tile in enumerate(self.tiles()):
            powers, inverse = kept[2 * n : 2 * n + 2] if kept else self.powers(tile, powers)
            per_query = inverse.swapaxes(-1, -2)
            part = self._cut(g, tile, tile.rows)
            if "v" in found:
                # Rows behind one another in memory are multiplied in 0.8 of the time.
                self._gather(found["v"], tile, tile.keys, powers, _rows(part, per_query))
            if found.keys() == {"v"}:
                continue
            v = self._cut(self.v, tile, tile.keys)
            moved = _product(v, np.ascontiguousarray(part.swapaxes(-1, -2)), moved)
            if moved.size:
                self.passes.pull(powers, inverse, moved)
            if "mask" in found:
                cotangents = (moved * inverse).swapaxes(-1, -2)
                _add(self._cut(found["mask"], tile, tile.rows, tile.keys), cotangents)
            if "q" in found:
                k = self._cut(self.k, tile, tile.keys)
                self._gather(found["q"], tile, tile.rows, moved.swapaxes(-1, -2), k, per_query)
            if "k" in found:
                q = _rows(self._cut(self.q, tile, tile.rows), per_query)
                self._gather(found["k"], tile, tile.keys, moved, q)
        for name in found.keys() & {"q", "k"}:
            found[name] *= self.scale
        return {
            name: total.reshape(self.shapes[name]).astype(self.dtype, copy=False)
            for name, total in found.items()
        }

    def _gather(
        self, total: Array, tile: Tile, rows: slice, a: Array, b: Array, scale: Array | None = None
    ) -> None:
        """Add ``a @ b`` to a part of a cotangent, or write it there if nothing can have been."""
        part = self._cut(total, tile, rows)
        first = rows is tile.rows or tile.rows.start == 0
        if first and total.shape[:-2] == self.lead:
            np.matmul(a, b, out=part)
            if scale is not None:
                part *= scale
        else:
            made = np.matmul(a, b)
            _add(part, made if scale is None else made * scale)


def _rows(x: Array, scale: Array) -> Array:
    return np.multiply(x, scale, order="C")


def _product(a: Array, b: Array, spare: Array | None) -> Array:
    """``a @ b``, written over ``spare`` if that fits: pages of memory that are new take time.

    In the order of C, which passes count on: by itself NumPy lays leading axes as operands do.
    """
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    fits = spare is not None and spare.shape == shape
    return np.matmul(a, b, out=spare if fits else np.empty(shape, a.dtype))


def _masked(scores: Array, mask: Array) -> Array:
    """The scores with a mask, of the shape of both."""
    shape = np.broadcast_shapes(scores.shape, mask.shape)
    if shape != scores.shape:
        scores = np.array(np.broadcast_to(scores, shape), order="C")  # as ``_product``
    if mask.dtype.kind == "b":
        np.copyto(scores, -np.inf, where=~mask)
    else:
        scores += mask
    return scores


def _add(total: Array, part: Array) -> None:
    """Add ``part``, summed over the axes that ``total`` has none or one of, in place."""
    if part.shape == total.shape:
        total += part
        return
    part = part.sum(tuple(range(part.ndim - total.ndim)))
    axes = tuple(k for k, n in enumerate(total.shape) if n == 1 and part.shape[k] != 1)
    total += part.sum(axes, keepdims=True) if axes else part


_WHO, _BACK = "scaled_dot_product_attention", "attention_pullback"

# ------------------------------------------------------------------ shapes and options


def _out_spec(q: Spec, k: Spec, v: Spec, mask: Any, causal: bool, scale: float | None) -> Spec:
    shapes: list[Any] = [getattr(x, "shape", ()) for x in (q, k, v)]
    came = f"q {shapes[0]}, k {shapes[1]}, v {shapes[2]}"
    if len(min(shapes, key=len)) < 2:
        raise ShapeError(f"{_WHO}: {came}; wanted are (..., heads, length, dim)")
    if shapes[0][-1] != shapes[1][-1]:
        raise ShapeError(f"{_WHO}: {came}; queries and keys must be of one dim, the last axis")
    if shapes[1][-2] != shapes[2][-2]:
        raise ShapeError(f"{_WHO}: {came}; keys and values must be of one length, axis -2")
    lead = _lead(shapes, came)
    dtype = np.result_type(*(floating_dtype(x.dtype) for x in (q, k, v)))
    if mask is not None:
        lead = _masked_lead((*lead, shapes[0][-2], shapes[1][-2]), mask)
        if dtype_of(mask).kind == "f":
            dtype = np.result_type(dtype, dtype_of(mask))
    return Spec((*lead, shapes[0][-2], shapes[2][-1]), dtype)


def _lead(shapes: list[Any], came: str) -> Shape:
    """The axes before length and dim, of which the last are the heads."""
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


def _masked_lead(scores: Shape, mask: Any) -> Shape:
    shape = getattr(mask, "shape", ())
    if dtype_of(mask).kind not in "bf":
        raise DTypeError(
            f"{_WHO}: mask is of {dtype_of(mask)}; pass truth values, True where a query may "
            "attend, or floating numbers, which are added to the scores"
        )
    try:
        whole = np.broadcast_shapes(scores, shape)
    except ValueError:
        whole = ()
    if whole[-2:] != scores[-2:]:
        raise ShapeError(f"{_WHO}: mask {shape} for scores {scores}; it must broadcast to them")
    return whole[:-2]


def _options(causal: bool, scale: Any) -> tuple[bool, float | None]:
    return causal, None if scale is None else number(_WHO, "scale", scale)


# ------------------------------------------------------------------ rules


def _rule(operand: str) -> Callable[..., Any]:
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
        if operand == "mask" and dtype_of(mask).kind == "b":
            return np.zeros(shape_of(mask), g.dtype)
        if residual is None or operand == "mask":
            return attention_pullback(g, q, k, v, mask, causal=causal, scale=scale, operand=operand)
        shared, passes, *kept = residual

        def answers() -> dict[str, Any]:
            call = _call(q, k, v, mask, causal, scale, passes)
            return call.backward(g, ("q", "k", "v"), kept)

        return shared.cotangent(operand, g, answers)

    return rule


def _q_push(t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    scores = mul(matmul(t, matrix_transpose(per_head(k, q))), scale_of(q, scale))
    return _pushed(scores, q, k, v, mask, causal, scale)


def _k_push(t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    scores = mul(matmul(q, matrix_transpose(per_head(t, q))), scale_of(q, scale))
    return _pushed(scores, q, k, v, mask, causal, scale)


def _pushed(t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """The tangent of the result for that of the scores."""
    weights = weights_of(q, k, mask, causal, scale)
    return matmul(softmax_moved(t, weights), per_head(v, q))


# ------------------------------------------------------------------ rows


def _call(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None, passes: Passes = PASSES
) -> Attention:
    """The call on arrays, checked."""
    q, k, v = map(np.asarray, (q, k, v))
    mask = None if mask is None else np.asarray(mask)
    _out_spec(spec_of(q), spec_of(k), spec_of(v), mask, causal, scale)
    return Attention(q, k, v, mask, causal, scale_of(q, scale), passes)


def _leaving(passes: Passes, *given: Any) -> tuple[Any, Any]:
    """The result, and what the rules share."""
    q, k, v, mask, causal, scale = given
    out, kept = _call(q, k, v, mask, causal, scale, passes).forward(keep=True)
    return out, (SharedPullback(), passes, *kept)


def _pullback_arrays(
    passes: Passes, operands: Sequence[str], cotangent: Any, given: Sequence[Any]
) -> dict[str, Any]:
    """The cotangents of some operands, by name."""
    q, k, v, mask, causal, scale = given
    call = _call(q, k, v, mask, causal, scale, passes)
    cotangent = np.asarray(cotangent)
    wanted = {
        name: _pullback_spec(cotangent, q, k, v, mask, causal, scale, name) for name in operands
    }
    found = call.backward(cotangent, tuple(operands))
    return {name: found[name].astype(spec.dtype, copy=False) for name, spec in wanted.items()}


def _compiled() -> Passes:
    from odyssey.kernels.attention import pull, weigh

    return Passes(weigh, pull)


def _fastest() -> Passes:
    return _compiled() if are_kernels_compiled() else PASSES


def _many(q: Any, k: Any, v: Any, mask: Any, *options: Any) -> bool:
    """Whether compiled passes can take a call, and have several queries to take at once."""
    floats = [getattr(x, "dtype", None) for x in (q, k, v)]
    if mask is not None and dtype_of(mask).kind != "b":
        floats.append(dtype_of(mask))
    known = all(dtype in (np.float32, np.float64) for dtype in floats)
    return known and q.ndim > 1 and q.shape[-2] > 1


# Bytes of scores from which on they are made a tile at a time in compiled functions too.
_LARGE = 1 << 28


def _is_large(q: Any, k: Any, v: Any, mask: Any, causal: bool, *rest: Any) -> bool:
    out = _out_spec(q, k, v, mask, causal, None)
    count = math.prod(out.shape[:-1]) * k.shape[-2]
    return count * out.dtype.itemsize >= _LARGE


_KERNEL = Kernel(
    "compiled passes over tiles",
    lambda *given: _leaving(_compiled(), *given)[0],
    when=_many,
    with_residual=lambda *given: _leaving(_compiled(), *given),
    within=_is_large,
)
_KERNEL_BACK = Kernel(
    "compiled passes over tiles",
    lambda g, *given: _pullback_arrays(_compiled(), given[-1:], g, given[:-1])[given[-1]],
    when=lambda cotangent, *given: _many(*given) and _many(cotangent, *given[1:]),
    within=lambda cotangent, *given: _is_large(*given),
    together=(
        "operand",
        lambda operands, g, *given: _pullback_arrays(_fastest(), operands, g, given),
    ),
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
    prepare=_options,
    infer=_out_spec,
    decomposition=compute_in_float32(in_ops, 3),
    canonical=lambda q, k, v, mask, causal, scale: (causal, scale_of(q, scale)),
    with_residual=lambda *given: _leaving(PASSES, *given),
    kernels=[_KERNEL],
    vjp={name: _rule(name) for name in ("q", "k", "v", "mask")},
    jvp={
        "q": _q_push,
        "k": _k_push,
        "v": lambda t, q, k, mask, causal, scale: scaled_dot_product_attention(
            q, k, t, mask, causal=causal, scale=scale
        ),
        "mask": lambda t, q, k, v, mask, causal, scale: _pushed(t, q, k, v, mask, causal, scale),
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
    """Values averaged by how well keys fit queries, ``softmax(scale * q @ k.T + mask) @ v``.

    A. Vaswani et al., Attention Is All You Need, 2017. Scores are made, and made again for the
    gradient, a tile at a time: memory grows with length, not with its square. Second derivatives,
    and forward mode, hold all scores; so do compiled functions, where these take less than 256 MB.

    Args:
        q: Queries, (..., heads, length, dim), or without heads.
        k: Keys, (..., heads, other length, dim). Where there are fewer heads than those of ``q``,
            each serves as many of these, one after another.
        v: Values, (..., heads, other length, width).
        mask: Of a shape that broadcasts to the scores, (..., heads, length, other length): truth
            values, True where a query may attend to a key; or numbers, which are added to the
            scores, and have a gradient.
        causal: Query number i attends to keys up to number i only; with a mask, to those of them
            that it allows.
        scale: What the products are multiplied by; 1 over the root of dim by default.

    Returns:
        (..., heads, length, width); 0, as the gradient is, for a query that may attend to no key.

    Raises:
        ShapeError: where shapes do not fit.
        DTypeError: for complex numbers, and masks of integers.

    >>> q = k = np.eye(2) * 100.0
    >>> scaled_dot_product_attention(q, k, np.array([[1.0], [5.0]])).round(3)
    array([[1.],
           [5.]])
    >>> scaled_dot_product_attention(q * 0, k, np.array([[1.0], [5.0]]), causal=True)
    array([[1.],
           [3.]])
    """
    return _call(q, k, v, mask, causal, scale).forward()[0]


def _operand(causal: bool, scale: Any, operand: Any) -> tuple[bool, float | None, str]:
    return *_options(causal, scale), word(_BACK, "operand", operand, ("q", "k", "v", "mask"))


def _pullback_spec(
    cotangent: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any, operand: str
) -> Spec:
    out = _out_spec(q, k, v, mask, causal, scale)
    came = getattr(cotangent, "shape", ())
    if came != out.shape:
        raise ShapeError(f"{_BACK}: cotangent {came}; the result is {out.shape}")
    x = {"q": q, "k": k, "v": v, "mask": mask}[operand]
    if x is None or (x is mask and dtype_of(mask).kind == "b"):
        raise DTypeError(f"{_BACK}: operand='mask', which is {mask}; it has no gradient")
    return Spec(
        getattr(x, "shape", ()), np.result_type(out.dtype, floating_dtype(dtype_of(cotangent)))
    )


@op(
    real=True,
    prepare=_operand,
    infer=_pullback_spec,
    decomposition=compute_in_float32(pullback_in_ops, 4),
    canonical=lambda cotangent, q, k, v, mask, causal, scale, operand: (
        causal,
        scale_of(q, scale),
        operand,
    ),
    kernels=[_KERNEL_BACK],
    **derive_rules(pullback_in_ops, "cotangent", "q", "k", "v", "mask"),
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
    """The cotangent of one operand of ``scaled_dot_product_attention``, for that of its result."""
    given = q, k, v, mask, causal, scale
    return _pullback_arrays(PASSES, (operand,), cotangent, given)[operand]


publish(globals())

"""Attention on arrays, a tile of scores at a time: memory grows with length, not with its square.

A tile has some of the queries, and all of the keys that these attend to: so its softmax is whole,
nothing need be rescaled, and the backward pass computes a tile again instead of keeping it. The
order of everything is fixed by the shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from odyssey.spec import Array, Shape

__all__ = ["PASSES", "Attention", "Passes"]

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

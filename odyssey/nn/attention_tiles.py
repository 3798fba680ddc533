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
    """What is done with each tile, rows of a matrix, between its products."""

    weigh: Callable[[Array], None]
    """In place: the softmax of each row, 0 in a row that is all -inf."""
    pull: Callable[[Array, Array], None]
    """In place of the second: from the weights and their cotangents, those of the scores."""


def _weigh(scores: Array) -> None:
    top = scores.max(-1, keepdims=True)
    top[top == -np.inf] = 0
    scores -= top
    np.exp(scores, scores)
    total = np.add.reduce(scores, -1, keepdims=True)
    total[total == 0] = 1
    scores /= total


def _pull(weights: Array, moved: Array) -> None:
    moved -= np.einsum("...j,...j->...", weights, moved)[..., None]
    moved *= weights


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

    def weights(self, tile: Tile) -> Array:
        """The softmax of the scores in a tile."""
        # In rows of their own, not columns, the keys are multiplied in half of the time.
        k = self._cut(self.k, tile, tile.keys)
        turned = np.multiply(k.swapaxes(-1, -2), self.scale, order="C")
        q = self._cut(self.q, tile, tile.rows)
        scores = np.matmul(q, turned)
        if self.mask is not None:
            scores = self._masked(scores, self._cut(self.mask, tile, tile.rows, tile.keys))
        if self.causal and tile.keys.stop > tile.rows.start:
            # Only the square at the end has keys that come after a query.
            square = np.arange(tile.rows.start, tile.rows.stop)[:, None] < np.arange(
                tile.rows.start, tile.keys.stop
            )
            np.copyto(scores[..., tile.rows.start :], -np.inf, where=square)
        if scores.size:
            self.passes.weigh(scores)
        return scores

    def _masked(self, scores: Array, mask: Array) -> Array:
        if np.broadcast_shapes(scores.shape, mask.shape) != scores.shape:
            scores = np.array(
                np.broadcast_to(scores, np.broadcast_shapes(scores.shape, mask.shape))
            )
        if mask.dtype.kind == "b":
            np.copyto(scores, -np.inf, where=~mask)
        else:
            scores += mask
        return scores

    # -------------------------------------------------------------- forward

    def forward(self, keep: bool = False) -> tuple[Array, list[Array]]:
        """The result; and, to ``keep``, the weights of all tiles, if they are not too many.

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
        for tile in self.tiles():
            weights = self.weights(tile)
            v = self._cut(self.v, tile, tile.keys)
            np.matmul(weights, v, out=self._cut(out, tile, tile.rows))
            if keep:
                kept.append(weights)
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
        for k, tile in enumerate(self.tiles()):
            weights = self.weights(tile) if not kept else kept[k]
            part = self._cut(g, tile, tile.rows)
            if "v" in found:
                given = np.matmul(weights.swapaxes(-1, -2), part)
                _add(self._cut(found["v"], tile, tile.keys), given)
            if found.keys() == {"v"}:
                continue
            v = self._cut(self.v, tile, tile.keys)
            moved = np.matmul(part, np.ascontiguousarray(v.swapaxes(-1, -2)))
            if moved.size:
                self.passes.pull(weights, moved)
            if "mask" in found:
                _add(self._cut(found["mask"], tile, tile.rows, tile.keys), moved)
            if "q" in found:
                k_part = self._cut(self.k, tile, tile.keys)
                _add(self._cut(found["q"], tile, tile.rows), np.matmul(moved, k_part))
            if "k" in found:
                q = self._cut(self.q, tile, tile.rows)
                _add(self._cut(found["k"], tile, tile.keys), np.matmul(moved.swapaxes(-1, -2), q))
        for name in found.keys() & {"q", "k"}:
            found[name] *= self.scale
        return {
            name: total.reshape(self.shapes[name]).astype(self.dtype, copy=False)
            for name, total in found.items()
        }


def _add(total: Array, part: Array) -> None:
    """Add ``part``, summed over the axes that ``total`` has none or one of, in place."""
    part = part.sum(tuple(range(part.ndim - total.ndim)))
    axes = tuple(k for k, n in enumerate(total.shape) if n == 1 and part.shape[k] != 1)
    total += part.sum(axes, keepdims=True) if axes else part

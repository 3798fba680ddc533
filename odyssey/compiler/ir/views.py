"""Strided views: shape, strides and offset of an array in memory, counted in elements.

>>> rows = View.dense((2, 3))
>>> rows.transpose((1, 0)).slice((slice(None), 1))
View(shape=(3,), strides=(1,), offset=3)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from odyssey.spec import Shape

__all__ = ["View"]


class View(NamedTuple):
    """A strided view of memory.

    Attributes:
        shape: Lengths of the axes.
        strides: Distance of neighbours along each axis.
        offset: Position of the first element.
    """

    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def dense(shape: Shape, axes: Sequence[int] | None = None) -> View:
        """Return a contiguous view; ``axes`` go from the largest to the smallest stride."""
        strides, step = [0] * len(shape), 1
        for a in reversed(range(len(shape)) if axes is None else axes):
            strides[a] = step
            step *= shape[a]
        return View(tuple(shape), tuple(strides))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def transpose(self, axes: Sequence[int]) -> View:
        """Permute the axes."""
        shape = tuple(self.shape[a] for a in axes)
        return View(shape, tuple(self.strides[a] for a in axes), self.offset)

    def broadcast(self, shape: Shape) -> View:
        """Repeat along axes of length 1 and new leading axes."""
        extra = len(shape) - len(self.shape)
        pairs = zip(self.shape, self.strides, shape[extra:], strict=True)
        strides = [0] * extra + [s if n == to else 0 for n, s, to in pairs]
        return View(tuple(shape), tuple(strides), self.offset)

    def slice(self, key: tuple[Any, ...]) -> View:
        """Return the elements at slices, integers, None and at most one Ellipsis."""
        indexed = sum(k is not None and k is not Ellipsis for k in key)
        rest = (slice(None),) * (len(self.shape) - indexed)
        dots = next((i for i, k in enumerate(key) if k is Ellipsis), len(key))
        shape, strides, offset, axis = [], [], self.offset, 0
        for k in (*key[:dots], *rest, *key[dots + 1 :]):
            if k is None:
                shape.append(1)
                strides.append(0)
                continue
            length, stride = self.shape[axis], self.strides[axis]
            axis += 1
            if isinstance(k, slice):
                indices = range(length)[k]
                shape.append(len(indices))
                strides.append(stride * indices.step)
                offset += stride * indices.start if indices else 0
            else:
                offset += stride * (int(k) % length)
        return View(tuple(shape), tuple(strides), offset)

    def windows(
        self, window: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
    ) -> View:
        """Return sliding windows over the last axes: axes of their elements, then of positions.

        >>> View.dense((4,)).windows((2,), (1,), (1,))
        View(shape=(2, 3), strides=(1, 1), offset=0)
        """
        n = len(self.shape) - len(window)
        options = list(zip(self.shape[n:], window, stride, dilation, strict=True))
        counts = [max((size - d * (k - 1) - 1) // s + 1, 0) for size, k, s, d in options]
        steps = [step * d for step, d in zip(self.strides[n:], dilation, strict=True)]
        steps += [step * s for step, s in zip(self.strides[n:], stride, strict=True)]
        shape = (*self.shape[:n], *window, *counts)
        return View(shape, (*self.strides[:n], *steps), self.offset)

    def reshape(self, shape: Sequence[int]) -> View:
        """Return the elements in row-major order in another shape; one length may be -1.

        Raises:
            ValueError: if no strides can do that, so that a copy would be needed.
        """
        if -1 in shape:
            rest = math.prod(n for n in shape if n != -1)
            shape = [self.size // max(rest, 1) if n == -1 else n for n in shape]
        if self.size <= 1:
            return View(tuple(shape), (0,) * len(shape), self.offset)
        strides: list[int] = []
        rest_shape = list(shape)
        for length, stride in self._contiguous_axes():
            step = length
            while step > 1 or (rest_shape and rest_shape[0] == 1):
                n = rest_shape.pop(0)
                if step % n:
                    raise ValueError("the elements do not lie in that order")
                step //= n
                strides.append(step * stride)
        return View(tuple(shape), (*strides, *[0] * (len(shape) - len(strides))), self.offset)

    def is_matrix(self) -> bool:
        """Return whether BLAS can read or write the matrices of the last two axes in place."""
        (m, n), (row, column) = self.shape[-2:], self.strides[-2:]
        if column == 1 or n == 1:
            return m == 1 or row >= n
        return (row == 1 or m == 1) and column >= m

    def _contiguous_axes(self) -> list[tuple[int, int]]:
        """Return lengths and strides, with axes that are contiguous to each other merged."""
        merged: list[tuple[int, int]] = []
        for length, stride in zip(self.shape, self.strides, strict=True):
            if length == 1:
                continue
            if merged and merged[-1][1] == length * stride:
                merged[-1] = (merged[-1][0] * length, stride)
            else:
                merged.append((length, stride))
        return merged

"""Batch rules of convolutions.

Examples that share the weight are more images of one convolution. Examples with a weight each are
groups of channels of one convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.ops.structure.batching import spread
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import moveaxis, reshape
from odyssey.table.batch import Batch

__all__ = ["batch_images", "batch_weight"]

Convolution = Callable[[Any, Any, int], Any]
"""A function of two operands and the number of groups, linear in each operand."""


def batch_images(convolve: Convolution, batch: Batch, x: Any, weight: Any, groups: int) -> Any:
    """Return the images that ``convolve`` makes of images and a weight, for all examples."""
    if batch.mapped[1]:
        return _by_groups(convolve, batch, x, weight, groups, _weight_to_groups)
    out = convolve(reshape(x, (batch.size * x.shape[1], *x.shape[2:])), weight, groups)
    return reshape(out, (batch.size, x.shape[1], *out.shape[1:]))


def batch_weight(convolve: Convolution, batch: Batch, y: Any, x: Any, groups: int) -> Any:
    """Return the weight that ``convolve`` makes of a cotangent and images, for all examples."""
    return _by_groups(convolve, batch, y, x, groups, _images_to_groups)


def _by_groups(
    convolve: Convolution,
    batch: Batch,
    images: Any,
    other: Any,
    groups: int,
    to_groups: Callable[[Any], Any],
) -> Any:
    if not batch.size:  # there are no 0 groups: the result of one example, without it
        images, other = (
            concatenate([v, np.zeros((1, *v.shape[1:]), v.dtype)]) if mapped else v
            for v, mapped in zip((images, other), batch.mapped, strict=False)
        )
        one = Batch(1, batch.mapped)
        return getitem(_by_groups(convolve, one, images, other, groups, to_groups), slice(0, 0))
    images, other = spread(batch, 0, images), spread(batch, 1, other)
    out = convolve(_images_to_groups(images), to_groups(other), batch.size * groups)
    if to_groups is _images_to_groups:  # the result is a weight
        return reshape(out, (batch.size, out.shape[0] // batch.size, *out.shape[1:]))
    split = reshape(out, (out.shape[0], batch.size, out.shape[1] // batch.size, *out.shape[2:]))
    return moveaxis(split, 1, 0)


def _images_to_groups(x: Any) -> Any:
    """Return images (examples, images, channels, ...) as (images, examples * channels, ...)."""
    x = moveaxis(x, 0, 1)
    return reshape(x, (x.shape[0], x.shape[1] * x.shape[2], *x.shape[3:]))


def _weight_to_groups(weight: Any) -> Any:
    return reshape(weight, (weight.shape[0] * weight.shape[1], *weight.shape[2:]))

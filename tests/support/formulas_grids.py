"""Images read at places of a grid, and the grids of affine maps, by the words of their definitions.

For the walk over composites.
"""

import itertools

import numpy as np


def grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False):
    """Place by place: the sum of all elements by how near they are."""
    if {x.dtype.kind, grid.dtype.kind} != {"f"}:
        raise TypeError("floating numbers are wanted")
    lengths = x.shape[2:]
    dtype = x.dtype if mode == "nearest" else np.result_type(x, grid)
    out = np.zeros((*x.shape[:2], *grid.shape[1:-1]), dtype)
    for sample, *spot in np.ndindex(grid.shape[:-1]):
        spots = [float(p) for p in reversed(grid[(sample, *spot)])]
        moved = [
            _onto(p, n, padding_mode, align_corners) for p, n in zip(spots, lengths, strict=True)
        ]
        for place in itertools.product(*map(range, lengths)):
            share = np.prod([_share(p - k, p, k, mode) for p, k in zip(moved, place, strict=True)])
            out[(sample, slice(None), *spot)] += share * x[(sample, slice(None), *place)]
    return out


def _share(distance, place, k, mode):
    return float(round(place) == k) if mode == "nearest" else max(0.0, 1 - abs(distance))


def _onto(place, length, padding_mode, align_corners):
    """Where a number from -1 to 1 stands among elements."""
    whole = length - 1 if align_corners else length
    place = ((place + 1) * whole - (length - whole == 0)) / 2
    if padding_mode == "zeros":
        return place
    if padding_mode == "reflection":
        low, high = (0, length - 1) if align_corners else (-0.5, length - 0.5)
        while high > low and not low <= place <= high:
            place = 2 * low - place if place < low else 2 * high - place
        place = low if high == low else place
    return min(max(place, 0), length - 1)


def affine_grid(theta, size, align_corners=False):
    if theta.dtype.kind != "f":
        raise TypeError("floating numbers are wanted")
    lengths = size[2:]
    out = np.zeros((size[0], *lengths, len(lengths)), theta.dtype)
    for sample, *place in np.ndindex(out.shape[:-1]):
        spots = [
            (0 if n == 1 else 2 * k / (n - 1) - 1) if align_corners else (2 * k + 1) / n - 1
            for k, n in zip(place, lengths, strict=True)
        ]
        out[(sample, *place)] = theta[sample] @ np.array([*reversed(spots), 1], theta.dtype)
    return out


FORMULAS = {"grid_sample": grid_sample, "affine_grid": affine_grid}

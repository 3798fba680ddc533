"""Winograd convolution F(2x2, 3x3).

Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), after Winograd: ``Y = A'
[(G g G') * (B' d B)] A``, for a tile ``d`` of 4 by 4 elements and a window ``g``, has 16
elementwise products where the sums of windows have 36. The products of all tiles and channels are
16 matrix products. The matrices are

    B' = 1  0 -1  0     G = 1    0    0     A' = 1 1  1  0
         0  1  1  0         1/2  1/2  1/2        0 1 -1 -1
         0 -1  1  0         1/2 -1/2  1/2
         0  1  0 -1         0    0    1

These loops transform images to tiles and back. The elements of even and odd rows and columns are
first split, so that loops run over contiguous memory. They compute up to a multiple of 8 elements,
whose excess is overwritten later: so narrow images vectorize. Several small images are transformed
together: an element of a line is then ``lanes`` elements, one of each image. Indices are unsigned,
as in ``conv_rows``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.kernels.loops import loop

__all__ = ["output_transform", "cotangent_transform", "input_transform"]

_0, _1, _2, _4, _8 = map(np.uint64, (0, 1, 2, 4, 8))


@loop
def split_parity(
    x: Any, row: Any, lines: Any, top: Any, left: Any, pitch: Any, offset: Any, out: Any
) -> None:
    """Copy lines of an image, after zeros, from line 2 * row - top on, split by parity.

    Even lines come first, odd ones from ``offset`` on; of a line the even elements, ``pitch`` of
    them, then the odd ones.
    """
    zero, height, width = x.dtype.type(0), np.uint64(x.shape[0]), np.uint64(x.shape[1])
    for k in range(lines):
        b = (k % _2) * offset + (k // _2) * (pitch + pitch)
        for f in range(pitch + pitch):
            out[b + f] = zero
        line = row + row + k - top  # unsigned: above the image it is larger than any height
        if line < height:
            for parity in range(_0, _2):
                start = (left + _1 - parity) // _2 if left > parity else _0
                column = start + start + parity - left
                at = b + parity * pitch + start
                if column < width:
                    count = min((width - column + _1) // _2, pitch - start)
                    for f in range(count):
                        out[at + f] = x[line, column + f + f]


@loop
def find_places(
    height: Any, width: Any, top: Any, left: Any, line_steps: Any, steps: Any, out: Any
) -> None:
    """Write where each element of an image is in lines that are split by parity.

    Steps lead from an even line, or element of a line, to the odd one after it, and to the next
    even one.
    """
    for y in range(height):
        for f in range(width):
            line, column = y + top, f + left
            place = (line % _2) * line_steps[0] + (line // _2) * line_steps[1]
            out[y * width + f] = place + (column % _2) * steps[0] + (column // _2) * steps[1]


@loop
def split_lanes(x: Any, b: Any, count: Any, step: Any, lanes: Any, places: Any, out: Any) -> None:
    """Copy a channel of ``lanes`` images, ``step`` elements apart, to its places in lines."""
    for lane in range(lanes):
        for j in range(count):
            out[places[j] + lane] = x[b + j]
        b += step


@loop
def merge_lanes(
    lines: Any, b: Any, count: Any, step: Any, lanes: Any, places: Any, out: Any
) -> None:
    """Copy a channel from pairs at places in lines to ``lanes`` images, ``step`` elements apart."""
    for lane in range(lanes):
        for j in range(count):
            out[b + j] = lines[places[j] + lane + lane]
        b += step


@loop(reassociate=True)
def times_zero(x: Any, b: Any, count: Any) -> Any:
    """Return 0 if ``count`` numbers are finite, else NaN."""
    total = x.dtype.type(0)
    for f in range(count):
        total += x[b + f] * x.dtype.type(0)
    return total


@loop
def input_transform(
    x: Any, first: Any, last: Any, lanes: Any, row: Any, rows: Any, columns: Any, top: Any,
    left: Any, spacing: Any, out_places: Any, out_lines: Any, out: Any,
) -> None:  # fmt: skip
    """Write B' d B of each tile of some images.

    Args:
        x: (images, channels, height, width).
        first: The first image.
        last: The image after the last.
        lanes: The number of images that are transformed together, which divides their number.
        row: The first row of tiles of each.
        rows: Rows of tiles.
        columns: Tiles in a row.
        top: Lines of zeros above an image.
        left: Zeros before each line, up to 2.
        spacing: Distance between the 16 elements of a tile in ``out``.
        out_places: Room for the places of height * width elements, if lanes > 1.
        out_lines: Room for 4 * (rows + 1) + 8 * rows lines of lanes * (columns + 1), and 16
            elements.
        out: Flat; for each element of a tile (channels, images / lanes, rows, columns, lanes), and
            8 more.
    """
    channels, pitch = np.uint64(x.shape[1]), (columns + _1) * lanes
    length, tiles, wide_row = rows * pitch, (last - first) * rows * columns, columns * lanes
    offset = (rows + _1) * _2 * pitch  # lines of even ones, then those of odd ones
    height, width, flat = np.uint64(x.shape[2]), np.uint64(x.shape[3]), x.reshape(-1)
    size = height * width
    if lanes > _1:
        line_steps = offset, pitch + pitch
        find_places(height, width, top, left, line_steps, (pitch, lanes), out_places)
        for f in range(offset + offset):
            out_lines[f] = x.dtype.type(0)
    for c in range(channels):
        for n in range(first, last, lanes):
            if lanes > _1:
                b, apart = (n * channels + c) * size, channels * size
                split_lanes(flat, b, size, apart, lanes, out_places, out_lines)
            else:
                lines = rows + rows + _2
                split_parity(x[n, c], row, lines, top, left, pitch, offset, out_lines)
            # Lines of even and of odd columns take turns, so both are one loop.
            e, o, q = _0, offset, offset + offset
            step, wide = pitch + pitch, length + length
            for f in range(wide):
                s, t = out_lines[e + f], out_lines[o + f]
                u, v = out_lines[e + step + f], out_lines[o + step + f]
                out_lines[q + f] = s - u
                out_lines[q + wide + f] = t + u
                out_lines[q + wide + wide + f] = u - t
                out_lines[q + wide + wide + wide + f] = t - v
            for i in range(_0, _4):
                for k in range(rows):
                    b = q + i * wide + k * step
                    d = b + pitch
                    to = _4 * i * spacing + c * tiles + (n - first) * rows * columns + k * wide_row
                    to1, to2, to3 = (
                        to + spacing,
                        to + spacing + spacing,
                        to + spacing + spacing + spacing,
                    )
                    for f in range((wide_row + _8 - _1) // _8 * _8):
                        s, t = out_lines[b + f], out_lines[d + f]
                        u, v = out_lines[b + f + lanes], out_lines[d + f + lanes]
                        out[to + f] = s - u
                        out[to1 + f] = t + u
                        out[to2 + f] = u - t
                        out[to3 + f] = t - v


@loop
def output_transform(
    m: Any, bias: Any, first: Any, last: Any, lanes: Any, row: Any, rows: Any, columns: Any,
    spacing: Any, out_places: Any, out_lines: Any, out: Any,
) -> Any:  # fmt: skip
    """Write A' m A of each tile, and add a bias.

    Args:
        m: Products, laid out as ``input_transform`` does.
        bias: A number for each channel; empty for none.
        first: See ``input_transform``, as for the next ones.
        last: The image after the last.
        lanes: The number of images that are transformed together.
        row: The first row of tiles.
        rows: Rows of tiles.
        columns: Tiles in a row.
        spacing: Distance between the 16 elements of a tile in ``m``.
        out_places: As for ``input_transform``.
        out_lines: Room for 4 * rows lines of columns * lanes + 8 elements.
        out: (images, channels, height, width).

    Returns:
        0 if all results are finite, else NaN.
    """
    nonfinite = out.dtype.type(0)
    height, width = np.uint64(out.shape[2]), np.uint64(out.shape[3])
    wide_row, tiles = columns * lanes, (last - first) * rows * columns
    length = (wide_row + _8 - _1) // _8 * _8
    b2, b3 = spacing + spacing, spacing + spacing + spacing
    channels, size, flat = np.uint64(out.shape[1]), height * width, out.reshape(-1)
    if lanes > _1:
        line_steps = length + length, _4 * length
        find_places(height, width, _0, _0, line_steps, (_1, lanes + lanes), out_places)
    for c in range(channels):
        shift = bias[c] if bias.size else out.dtype.type(0)
        for n in range(first, last, lanes):
            for k in range(rows):
                p0 = c * tiles + (n - first) * rows * columns + k * wide_row
                p1, p2, p3 = p0 + _4 * spacing, p0 + _8 * spacing, p0 + (_8 + _4) * spacing
                even = _0 if lanes == _1 else _4 * k * length
                odd = even + length + length
                for f in range(length):
                    u0, u1, u2, u3 = m[p1 + f], m[p1 + spacing + f], m[p1 + b2 + f], m[p1 + b3 + f]
                    v0, v1, v2, v3 = m[p2 + f], m[p2 + spacing + f], m[p2 + b2 + f], m[p2 + b3 + f]
                    s0, t0 = m[p0 + f] + u0 + v0, u0 - v0 - m[p3 + f]
                    s1, t1 = m[p0 + spacing + f] + u1 + v1, u1 - v1 - m[p3 + spacing + f]
                    s2, t2 = m[p0 + b2 + f] + u2 + v2, u2 - v2 - m[p3 + b2 + f]
                    s3, t3 = m[p0 + b3 + f] + u3 + v3, u3 - v3 - m[p3 + b3 + f]
                    out_lines[even + f + f] = s0 + s1 + s2 + shift
                    out_lines[even + f + f + _1] = s1 - s2 - s3 + shift
                    out_lines[odd + f + f] = t0 + t1 + t2 + shift
                    out_lines[odd + f + f + _1] = t1 - t2 - t3 + shift
                nonfinite += times_zero(out_lines, even, wide_row + wide_row)
                nonfinite += times_zero(out_lines, odd, wide_row + wide_row)
                if lanes == _1:
                    y = (row + k) * _2
                    for f in range(width):
                        out[n, c, y, f] = out_lines[f]
                    if y + _1 < height:
                        for f in range(width):
                            out[n, c, y + _1, f] = out_lines[odd + f]
            if lanes > _1:
                b, apart = (n * channels + c) * size, channels * size
                merge_lanes(out_lines, b, size, apart, lanes, out_places, flat)
    return nonfinite


@loop
def cotangent_transform(
    y: Any, first: Any, last: Any, lanes: Any, row: Any, rows: Any, columns: Any, spacing: Any,
    out_places: Any, out_lines: Any, out: Any,
) -> None:  # fmt: skip
    """Write A y A' of each tile of 2 by 2 elements.

    Args:
        y: (images, channels, height, width).
        first: See ``input_transform``, as for the next ones.
        last: The image after the last.
        lanes: The number of images that are transformed together.
        row: The first row of tiles.
        rows: Rows of tiles.
        columns: Tiles in a row.
        spacing: Distance between the 16 elements of a tile in ``out``.
        out_places: As for ``input_transform``.
        out_lines: Room for 12 * rows * columns * lanes + 16 elements.
        out: As for ``input_transform``.
    """
    channels, wide_row = np.uint64(y.shape[1]), columns * lanes
    length, tiles = (wide_row + _8 - _1) // _8 * _8, (last - first) * rows * columns
    offset = rows * (wide_row + wide_row)
    height, width, flat = np.uint64(y.shape[2]), np.uint64(y.shape[3]), y.reshape(-1)
    size = height * width
    if lanes > _1:
        line_steps = offset, wide_row + wide_row
        find_places(height, width, _0, _0, line_steps, (wide_row, lanes), out_places)
        for f in range(offset + offset):
            out_lines[f] = y.dtype.type(0)
    for c in range(channels):
        for n in range(first, last, lanes):
            if lanes > _1:
                b, apart = (n * channels + c) * size, channels * size
                split_lanes(flat, b, size, apart, lanes, out_places, out_lines)
            else:
                split_parity(y[n, c], row, rows + rows, _0, _0, columns, offset, out_lines)
            # Two steps, as in input_transform: one loop that writes 16 lines does not vectorize.
            q, wide = offset + offset, offset
            for f in range(wide):
                s, u = out_lines[f], out_lines[offset + f]
                out_lines[q + f] = s
                out_lines[q + wide + f] = s + u
                out_lines[q + wide + wide + f] = s - u
                out_lines[q + wide + wide + wide + f] = -u
            for i in range(_0, _4):
                for k in range(rows):
                    b = q + i * wide + k * (wide_row + wide_row)
                    to = _4 * i * spacing + c * tiles + (n - first) * rows * columns + k * wide_row
                    to1, to2, to3 = (
                        to + spacing,
                        to + spacing + spacing,
                        to + spacing + spacing + spacing,
                    )
                    for f in range(length):
                        s, t = out_lines[b + f], out_lines[b + wide_row + f]
                        out[to + f] = s
                        out[to1 + f] = s + t
                        out[to2 + f] = s - t
                        out[to3 + f] = -t

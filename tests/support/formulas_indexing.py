"""What composites that read and write at indices mean: loops over places, for the walks."""

import numpy as np


def gather(x, indices, axis):
    out = np.empty(indices.shape, x.dtype)
    for place in np.ndindex(indices.shape):
        out[place] = x[_instead(place, axis, indices[place])]
    return out


def _instead(place, axis, index):
    axis %= len(place)
    return (*place[:axis], index, *place[axis + 1 :])


def scatter(x, indices, source, axis):
    out = x.copy()
    for place in np.ndindex(indices.shape):
        out[_instead(place, axis, indices[place])] = source[place]
    return out


def scatter_add(x, indices, source, axis):
    out = x.copy()
    for place in np.ndindex(indices.shape):
        out[_instead(place, axis, indices[place])] += source[place]
    return out


def index_select(x, indices, axis):
    return (
        np.stack([np.take(x, k, axis) for k in np.atleast_1d(indices)], axis)
        if np.size(indices)
        else np.take(x, indices, axis)
    )


def index_add(x, indices, source, axis, alpha=1):
    out = np.moveaxis(x.copy(), axis, 0)
    source = source if alpha == 1 else source * alpha
    for k, part in zip(indices, np.moveaxis(source, axis, 0), strict=True):
        out[k] += part
    return np.moveaxis(out, 0, axis)


def index_copy(x, indices, source, axis):
    out = np.moveaxis(x.copy(), axis, 0)
    wanted = (len(indices), *out.shape[1:])
    source = np.broadcast_to(source, wanted) if not source.shape else np.moveaxis(source, axis, 0)
    for k, part in zip(indices, source, strict=True):
        out[k] = part
    return np.moveaxis(out, 0, axis)


def put(a, ind, v, mode="raise"):
    out = a.copy()
    np.put(out, ind, v, mode)
    return out


def masked_fill(x, mask, value):
    wide, mask, value = np.broadcast_arrays(x, mask, value)
    out = wide.astype(x.dtype)
    out[mask] = value[mask]
    return out


def masked_select(x, mask):
    wide, mask = np.broadcast_arrays(x, mask)
    return np.array([v for v, m in zip(wide.flat, mask.flat, strict=True) if m], x.dtype)


def _segments(data, segment_ids, num_segments):
    count = segment_ids.max(initial=-1) + 1 if num_segments is None else num_segments
    return [data[segment_ids == k] for k in range(count)]


def segment_sum(data, segment_ids, num_segments=None):
    parts = _segments(data, segment_ids, num_segments)
    return np.array([np.add.reduce(p, 0, data.dtype) for p in parts], data.dtype)


def segment_mean(data, segment_ids, num_segments=None):
    parts = _segments(data, segment_ids, num_segments)
    dtype = np.float64 if data.dtype.kind in "bi" else data.dtype
    means = [p.mean(0) if len(p) else np.zeros(data.shape[1:]) for p in parts]
    return np.array(means, dtype)


def cummax(x, axis=-1):
    return _running(x, axis, np.maximum)


def cummin(x, axis=-1):
    return _running(x, axis, np.minimum)


def _running(x, axis, extreme):
    if x.dtype.kind == "c":
        raise TypeError("complex numbers have no order")
    lines = np.moveaxis(x, axis, -1)
    values, indices = np.empty(lines.shape, x.dtype), np.empty(lines.shape, np.intp)
    for line in np.ndindex(lines.shape[:-1]):
        found = 0
        for k, v in enumerate(lines[line]):
            best = lines[line][found]
            if v != v or (best == best and extreme(v, best) == v):
                found = k
            values[line][k], indices[line][k] = lines[line][found], found
    return np.moveaxis(values, -1, axis), np.moveaxis(indices, -1, axis)


def topk(x, k, axis=-1, largest=True):
    if x.dtype.kind == "c":
        raise TypeError("complex numbers have no order")
    keys = -x.astype(float) if largest else x
    indices = np.take(np.argsort(keys, axis, kind="stable"), np.arange(k), axis)
    return np.take_along_axis(x, indices, axis), indices


def kthvalue(x, k, axis=-1, keepdims=False):
    values, indices = topk(x, k, axis, largest=False)
    places = [k - 1] if keepdims else k - 1
    return np.take(values, places, axis), np.take(indices, places, axis)


def partition(a, kth, axis=-1):
    return np.sort(a, axis)


def argpartition(a, kth, axis=-1):
    return np.argsort(a, axis, kind="stable")


def of_real(function):
    """A function of NumPy's, which orders complex numbers and knows no quantiles of booleans."""

    def call(a, *options, **named):
        if a.dtype.kind == "c":
            raise TypeError("complex numbers have no order")
        return function(
            a.astype(float)
            if a.dtype.kind == "b" and options == () and named.get("q") is not None
            else a,
            *options,
            **named,
        )

    return call


def pad(array, pad_width, mode="constant", **named):
    if array.dtype.kind == "c" and mode in ("maximum", "minimum", "median"):
        raise TypeError("complex numbers have no order")
    return np.pad(array, pad_width, mode, **named)


ORDERED = {
    f.__name__: of_real(f)
    for f in (np.nanmax, np.nanmin, np.nanmedian, np.nanquantile, np.nanpercentile)
}
FORMULAS = ORDERED | {
    f.__name__: f
    for f in (
        gather,
        scatter,
        scatter_add,
        index_select,
        pad,
        index_add,
        index_copy,
        put,
        masked_fill,
        masked_select,
        topk,
        kthvalue,
        partition,
        argpartition,
        segment_sum,
        segment_mean,
        cummax,
        cummin,
    )
}

"""What composites of pooling, resampling and gates mean, one element after another, for walks."""

import itertools
import math

import numpy as np


def _floating(x):
    return np.asarray(x).astype(np.result_type(x, np.float16))


def _tuple(size, given):
    sizes = size if isinstance(size, tuple) else (size,) * len(given)
    return tuple(n if m is None else m for m, n in zip(sizes, given, strict=True))


def _pieces(x, dims, size):
    """For each window its place among windows, and a key of its elements."""
    given = x.shape[x.ndim - dims :]
    wanted = _tuple(size, given)
    for place in np.ndindex(wanted):
        key = tuple(
            slice(i * n // m, math.ceil((i + 1) * n / m))
            for i, n, m in zip(place, given, wanted, strict=True)
        )
        yield (..., *place), (..., *key)


def adaptive(dims, fold, floats):
    axes = tuple(range(-dims, 0))

    def pooled(x, size):
        if not floats and x.dtype.kind == "c":
            raise TypeError("complex numbers have no order")
        sizes = _tuple(size, x.shape[x.ndim - dims :])
        dtype = np.mean(np.ones(1, x.dtype)).dtype if floats else x.dtype
        out = np.empty((*x.shape[: x.ndim - dims], *sizes), dtype)
        for place, key in _pieces(x, dims, size):
            out[place] = fold(x[key], axis=axes)
        return out

    return pooled


def _cubic(t):
    t, a = abs(t), -0.75
    if t <= 1:
        return (a + 2) * t**3 - (a + 3) * t**2 + 1
    return a * (t - 1) * (t - 2) ** 2 if t < 2 else 0.0


def _hat(t):
    return max(0.0, 1 - abs(t))


def _taps(n, m, step, mode, align_corners):
    """What each of ``m`` new elements takes of ``n`` old ones: places and shares."""
    for i in range(m):
        if mode.startswith("nearest"):
            middle = (i + (0.5 if mode == "nearest-exact" else 0.0)) * step
            yield [(min(math.floor(middle), n - 1), 1)]
            continue
        at = i * (n - 1) / max(m - 1, 1) if align_corners else (i + 0.5) * step - 0.5
        if mode != "bicubic":
            at = min(max(at, 0), n - 1)
        shares = [
            (min(max(k, 0), n - 1), _cubic(at - k) if mode == "bicubic" else _hat(at - k))
            for k in range(math.floor(at) - 2, math.floor(at) + 4)
        ]
        yield [(k, share) for k, share in shares if share]


def interpolate(x, size=None, scale=None, mode="nearest", align_corners=False):
    given = x.shape[2:]
    if mode == "area":
        return adaptive(len(given), np.mean, True)(x, size)
    scales = (None,) * len(given) if scale is None else _tuple(scale, given)
    sizes = (
        _tuple(size, given)
        if scale is None
        else [int(n * s) for n, s in zip(given, scales, strict=True)]
    )
    dtype = x.dtype if mode.startswith("nearest") else np.result_type(x, np.float16)
    out = x.astype(complex) if x.dtype.kind == "c" else x.astype(float)
    if out.size == 0:
        return np.zeros((*x.shape[:2], *sizes), dtype)
    for k, (n, m, s) in enumerate(zip(given, sizes, scales, strict=True)):
        taps = _taps(n, m, n / m if s is None else 1 / s, mode, align_corners)
        out = np.moveaxis(out, k + 2, 0)
        rows = [sum(out[j] * share for j, share in of_one) for of_one in taps]
        out = np.moveaxis(np.array(rows), 0, k + 2)
    return out.astype(dtype)


def pixel_shuffle(x, upscale_factor):
    r = upscale_factor
    c, h, w = x.shape[-3:]
    out = np.empty((*x.shape[:-3], c // r**2, h * r, w * r), x.dtype)
    for i, j in itertools.product(range(r), repeat=2):
        out[..., i::r, j::r] = x[..., i * r + j :: r * r, :, :]
    return out


def pixel_unshuffle(x, downscale_factor):
    r = downscale_factor
    c, h, w = x.shape[-3:]
    out = np.empty((*x.shape[:-3], c * r**2, h // r, w // r), x.dtype)
    for i, j in itertools.product(range(r), repeat=2):
        out[..., i * r + j :: r * r, :, :] = x[..., i::r, j::r]
    return out


def channel_shuffle(x, groups):
    each = x.shape[1] // groups
    return x[:, [g * each + k for k in range(each) for g in range(groups)]]


def unpool(dims):
    def unpooled(x, indices, window, stride=None, padding=0, output_size=None):
        given = x.shape[x.ndim - dims :]
        window, stride = (_tuple(w, given) for w in (window, window if stride is None else stride))
        if output_size is None:
            output_size = tuple(
                (n - 1) * s - 2 * padding + k for n, s, k in zip(given, stride, window, strict=True)
            )
        sizes = _tuple(output_size, given)
        head = x.shape[: x.ndim - dims]
        out = np.zeros((*head, math.prod(sizes)), (x[:0] / 1).dtype)
        for place in np.ndindex(head):
            for number in np.unique(indices[place]):
                named = x[place][indices[place] == number]
                out[(*place, number)] = named.sum() / named.size
        return out.reshape(*head, *sizes)

    return unpooled


def power_sums(dims):
    def pooled(x, p, window, stride=None):
        powers = np.power(x, float(p))
        step = window if stride is None else stride
        views = np.lib.stride_tricks.sliding_window_view(
            powers, (window,) * dims, tuple(range(-dims, 0))
        )
        views = views[(..., *[slice(None, None, step)] * dims, *[slice(None)] * dims)]
        return views.sum(tuple(range(-dims, 0))) ** (1 / p)

    return pooled


# ------------------------------------------------------------------ gates


def gated(gate):
    def unit(x, axis=-1):
        if gate is not _sigmoid and x.dtype.kind == "c":
            raise TypeError("complex numbers")
        a, b = np.split(x, 2, axis)
        return a * gate(_floating(b))

    return unit


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _gelu(x):
    chance = np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)), otypes=[float])
    return (x * chance(x)).astype(x.dtype)


def softmin(x, axis=-1):
    if x.dtype.kind in "cb":
        raise TypeError("neither ordered nor with a sign")
    e = np.exp(-_floating(x) + x.min(axis, keepdims=True, initial=0))
    return e / e.sum(axis, keepdims=True)


def tanh_shrink(x):
    return x - np.tanh(x)


FORMULAS = {
    "glu": gated(_sigmoid),
    "geglu": gated(_gelu),
    "swiglu": gated(lambda x: x * _sigmoid(x)),
    "softmin": softmin,
    "tanh_shrink": tanh_shrink,
    "interpolate": interpolate,
    "pixel_shuffle": pixel_shuffle,
    "pixel_unshuffle": pixel_unshuffle,
    "channel_shuffle": channel_shuffle,
    **{f"max_unpool{d}d": unpool(d) for d in (1, 2, 3)},
    **{f"lp_pool{d}d": power_sums(d) for d in (1, 2, 3)},
    **{f"adaptive_avg_pool{d}d": adaptive(d, np.mean, True) for d in (1, 2, 3)},
    **{f"adaptive_max_pool{d}d": adaptive(d, np.max, False) for d in (1, 2, 3)},
}

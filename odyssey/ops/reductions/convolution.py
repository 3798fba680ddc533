"""One-dimensional convolution and correlation, direct or by FFT."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_choice
from odyssey.devices.half_dtypes import result_type
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.elementwise.choice import keep_where
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.batching import example_specs, loop_over_examples, spread
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.half_precision import widen_half
from odyssey.ops.structure.indexing import getitem
from odyssey.ops.structure.joining import concatenate
from odyssey.ops.structure.shape import as_operand, astype, reshape, shape_of
from odyssey.spec import Array, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import composite, op, publish
from odyssey.table.row import Row
from odyssey.table.samples import reject, sample

_MODES = ("full", "same", "valid")
_METHODS = ("auto", "direct", "fft")

# Least shorter length, and least number of results, for the FFT. From 512 to 1000 the FFT is 0.8 to
# 2.5 times as fast, in float64 and complex128 more than in float32; from 1000 on 1.4 times or more,
# and 190 times where both lengths are 30,000.
_SHORT = 1000


def _as_vector(x: Any) -> Any:
    """Return an operand as a vector; a scalar has one element."""
    return x if shape_of(x) else reshape(x, (1,))


# ------------------------------------------------------------------ kernels


def _convolve(a: Any, v: Any, mode: str, method: str) -> Any:
    a, v = np.asarray(a), np.asarray(v)
    dtype = result_type(a, v)
    if method == "fft" and dtype.kind not in "fc":
        raise DTypeError(
            f"convolve: method='fft' for {dtype}; transforms round: pass floating numbers"
        )
    least = min(a.size, v.size)
    # Two long sequences may have few results, as in the derivative in a short operand.
    wanted = abs(a.size - v.size) + 1 if mode == "valid" else least
    short = min(least, wanted) < _SHORT
    if method == "direct" or dtype.kind not in "fc" or (method == "auto" and short):
        return np.convolve(a, v, mode)
    out = _convolve_fft(a.reshape(-1), v.reshape(-1), dtype)
    if not np.isfinite(out).all():
        # The FFT spreads NaN and infinity over the result, and may overflow internally.
        return np.convolve(a, v, mode)
    first = {"full": 0, "same": (least - 1) // 2, "valid": least - 1}[mode]
    return out[first : out.size - first - (mode == "same" and least % 2 == 0)]


@ignore_fp_errors("over", "invalid")
def _convolve_fft(a: Array, v: Array, dtype: np.dtype[Any]) -> Array:
    n = a.size + v.size - 1
    m = next_fast_length(n)
    out: Array
    if dtype.kind == "c":
        out = np.fft.ifft(np.fft.fft(a, m) * np.fft.fft(v, m))
    else:
        out = np.fft.irfft(np.fft.rfft(a, m) * np.fft.rfft(v, m), m)
    return out[:n].astype(dtype, copy=False)


def next_fast_length(n: int) -> int:
    """Return the least length from ``n`` up without prime factors above 5, for fast transforms.

    >>> next_fast_length(1), next_fast_length(7), next_fast_length(1021), next_fast_length(65537)
    (1, 8, 1024, 65610)
    """
    best = 1 << (n - 1).bit_length()
    fives = 1
    while fives < best:
        odd = fives
        while odd < best:
            least = odd << (-(-n // odd) - 1).bit_length()
            best = min(best, least)
            odd *= 3
        fives *= 5
    return best


# ------------------------------------------------------------------ rules


def _mode_and_method(mode: Any, method: Any) -> tuple[str, str]:
    return check_choice("convolve", "mode", mode, _MODES), check_choice(
        "convolve", "method", method, _METHODS
    )


def _convolve_spec(a: Spec, v: Spec, mode: str, method: str) -> Spec:
    for name, x in (("a", a), ("v", v)):
        if x.ndim > 1 or not x.size:
            raise ShapeError(
                f"convolve: {name} has shape {x.shape}; wanted is one axis with an element or more"
            )
    dtype = result_type(a.dtype, v.dtype)
    longer, shorter = max(a.size, v.size), min(a.size, v.size)
    lengths = {"full": longer + shorter - 1, "same": longer, "valid": longer - shorter + 1}
    return Spec((lengths[mode],), dtype)


def _reverse_vector(x: Any) -> Any:
    return getitem(x, slice(None, None, -1))


def _convolve_vjp(g: Any, other: Any, own: Spec, mode: str, method: str) -> Any:
    """Return the cotangent of one operand: ``g`` correlated with the other, without conjugates."""
    other = _as_vector(other)
    n, m = own.size, other.shape[0]
    if mode == "valid":
        if n >= m:
            return convolve(g, _reverse_vector(other), "full", method=method)
        return convolve(_reverse_vector(other), g, "valid", method=method)
    if mode == "same":
        before = (min(n, m) - 1) // 2
        after = n + m - 1 - max(n, m) - before
        ends = [np.zeros(k, g.dtype) for k in (before, after)]
        g = concatenate([ends[0], g, ends[1]])
    return convolve(g, _reverse_vector(other), "valid", method=method)


# Largest number of products of an example that the batch rule computes side by side. Beyond it the
# kernel takes longer than its call, and a loop over examples keeps its speed and memory.
_MANY_PRODUCTS = 1 << 14


def _convolve_batch(batch: Batch, a: Any, v: Any, mode: str, method: str) -> Any:
    a, v = as_operand("convolve", "a", a), as_operand("convolve", "v", v)
    specs = example_specs(batch, [a, v])
    dtype = _convolve_spec(specs[0], specs[1], mode, method).dtype
    (a, n), (v, m) = sorted(
        [(spread(batch, 0, a), specs[0].size), (spread(batch, 1, v), specs[1].size)],
        key=lambda pair: -pair[1],
    )
    if method == "fft" or n * m > _MANY_PRODUCTS:
        return loop_over_examples(_CONVOLVE, Batch(batch.size, (True, True)), a, v, mode, method)
    a, v = reshape(a, (batch.size, n)), reshape(v, (batch.size, 1, m))
    ahead = {"full": m - 1, "same": m // 2, "valid": 0}[mode]
    count = {"full": n + m - 1, "same": n, "valid": n - m + 1}[mode]
    places = np.arange(count)[:, None] - ahead + np.arange(m)
    inside = (places >= 0) & (places < n)
    a, v = widen_half(a), widen_half(v)
    windows = take(a, np.where(inside, places, 0), 1)
    if not inside.all():
        windows = keep_where(windows, inside)
    return astype(sum(mul(windows, getitem(v, (..., slice(None, None, -1)))), -1), dtype)


@op(
    primitive="product",
    kernel=_convolve,
    numpy=[np.convolve],
    prepare=_mode_and_method,
    infer=_convolve_spec,
    vjp={
        "a": lambda g, v, a_spec, mode, method: _convolve_vjp(g, v, a_spec, mode, method),
        "v": lambda g, a, v_spec, mode, method: _convolve_vjp(g, a, v_spec, mode, method),
    },
    jvp={
        "a": lambda t, v, mode, method: convolve(t, v, mode, method=method),
        "v": lambda t, a, mode, method: convolve(a, t, mode, method=method),
    },
    vmap=_convolve_batch,
    samples=[
        sample((4,), (3,)),
        sample((2,), (5,), mode="same"),
        sample((5,), (3,), mode="same"),
        sample((5,), (2,), mode="valid"),
        sample((2,), (4,), mode="valid"),
        sample((), (3,)),
    ],
    rejects=[
        reject((2, 2), (2,), match="one axis"),
        reject((2,), (0,), match="an element or more"),
        reject((2,), (2,), mode="whole", error=SettingError, match="choose 'full'"),
        reject((2,), (2,), method="slow", error=SettingError, match="choose 'auto'"),
    ],
    precision="low",
)
def convolve(a: Any, v: Any, /, mode: str = "full", *, method: str = "auto") -> Any:
    """Convolution of two sequences: ``sum(a[k] v[n - k])`` over k.

    With ``method="fft"``, which is chosen for long floating operands, the error is relative to the
    largest results: small ones may have fewer correct digits than by the direct method.
    """
    return np.convolve(a, v, mode)


_CONVOLVE: Row = convolve.row  # type: ignore[attr-defined]

# ------------------------------------------------------------------ correlation


@composite(
    numpy=[np.correlate],
    samples=[
        sample((5,), (3,)),
        sample((2,), (4,)),
        sample((4,), (3,), mode="full"),
        sample((3,), (4,), mode="same"),
        sample((5,), (2,), mode="same"),
        sample((2,), (3,), mode="same"),
    ],
    rejects=[
        reject((2,), (), match="one axis"),
        reject((0,), (2,), match="an element or more"),
        reject((2,), (2,), mode="whole", error=SettingError, match="choose 'full'"),
    ],
)
def correlate(a: Any, v: Any, mode: str = "valid", *, method: str = "auto") -> Any:
    """Cross-correlation of two sequences: ``sum(a[n + k] conj(v[n]))`` over n, for each k.

    Args:
        a: The first sequence.
        v: The second sequence, which is conjugated.
        mode: ``"valid"`` for complete overlap, ``"full"`` for any overlap, ``"same"`` for the
            middle of that, as long as the longer sequence.
        method: ``"direct"``, ``"fft"`` or, the default, ``"auto"`` for the faster one; see
            ``convolve``.

    Raises:
        ShapeError: if an operand is empty or has more than one axis.

    >>> correlate(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.5]), "full")
    array([0.5, 2. , 3.5, 3. , 0. ])
    """
    mode = check_choice("correlate", "mode", mode, _MODES)
    a, v = _correlate_operand("a", a), _correlate_operand("v", v)
    if v.dtype.kind == "c":
        v = conj(v)
    turned = getitem(v, slice(None, None, -1))
    n, m = a.shape[0], v.shape[0]
    if mode == "same" and n < m:
        # NumPy swaps the operands, which shifts the middle of an even length.
        full = convolve(a, turned, method=method)
        return getitem(full, slice(n // 2, n // 2 + m))
    return convolve(a, turned, mode, method=method)


def _correlate_operand(name: str, x: Any) -> Any:
    x = as_operand("correlate", name, x)
    if len(x.shape) != 1 or not x.shape[0]:
        raise ShapeError(
            f"correlate: {name} has shape {x.shape}; wanted is one axis with an element or more"
        )
    return x


publish(globals())

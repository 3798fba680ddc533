"""Primitive discrete Fourier transforms along one axis.

With ``w = exp(-2 pi i / n)`` the transform of ``n`` numbers multiplies them by the symmetric matrix
``w**(j k)``, so it is its own transpose. For real numbers the second half of the spectrum is
redundant: it is the reversed conjugate of the first. Each number of the first half stands for
itself and its conjugate, except the first, and for even ``n`` the last, which are their own
conjugates: hence the weights 1/2 and 2 in the rules.

NumPy keeps single precision, and computes half precision in single. These rows are not declared
``linear``, because that flag means that a row moves elements: gradient masks would then transform
an array of ones, whose transform is 0 except for one number.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_choice, check_int, format_value
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.elementwise.complex_numbers import conj
from odyssey.spec import Array, Spec
from odyssey.table.canonical_options import one_axis
from odyssey.table.declare import op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes

NORMS = ("backward", "ortho", "forward")
"""Position of the factor ``1 / n``: in the inverse, its root in both, or in the transform."""

OPPOSITE_NORM = dict(zip(NORMS, reversed(NORMS), strict=True))


def norm_option(who: str, norm: Any) -> str:
    """Return the validated norm; None means "backward"."""
    return "backward" if norm is None else check_choice(who, "norm", norm, NORMS)


def axis_index(who: str, axis: Any, ndim: int) -> int:
    """Return one axis, counted from the front."""
    (k,) = normalize_axes(who, check_int(who, "axis", axis), ndim)
    return k


def _check_length(who: str, length: int) -> None:
    if length < 1:
        raise ShapeError(f"{who}: {length} points came to transform; pass 1 or more")


def _transform_dtype(who: str, function: Any, x: Any) -> np.dtype[Any]:
    """Return the dtype of the result of a NumPy transform."""
    try:
        return np.dtype(function(np.ones(1, x.dtype)).dtype)
    except TypeError:
        raise DTypeError(
            f"{who}: {format_value(x)} came; the transform of real numbers takes real ones, dft "
            "takes complex ones"
        ) from None


def _canonical_options(x: Spec, *options: Any) -> tuple[Any, ...]:
    return *options[:-2], one_axis(options[-2], x.ndim), options[-1]


# ------------------------------------------------------------------ complex transform


def _dft_options(inverse: bool, axis: Any, norm: Any) -> tuple[Any, ...]:
    return inverse, check_int("dft", "axis", axis), norm_option("dft", norm)


def _dft_spec(x: Spec, inverse: bool, axis: int, norm: str) -> Spec:
    _check_length("dft", x.shape[axis_index("dft", axis, x.ndim)])
    return Spec(x.shape, _transform_dtype("dft", np.fft.fft, x))


def _dft(x: Any, inverse: bool, axis: int, norm: Any) -> Any:
    return (np.fft.ifft if inverse else np.fft.fft)(x, axis=axis, norm=norm)


@op(
    primitive="product",
    kernel=_dft,
    prepare=_dft_options,
    canonical=_canonical_options,
    vmap="along",
    infer=_dft_spec,
    vjp={"x": lambda g, inverse, axis, norm: dft(g, inverse, axis, norm=norm)},
    jvp={"x": lambda t, inverse, axis, norm: dft(t, inverse, axis, norm=norm)},
    samples=[
        sample((4,)),
        sample((3, 5), axis=0, norm="ortho"),
        sample((2, 3, 2), inverse=True, axis=-2),
        sample((1, 2), inverse=True, axis=0, norm="forward"),
        sample((0, 3)),
    ],
    rejects=[
        reject((2, 3), axis=2, match="does not fit"),
        reject((), match="does not fit"),
        reject((3, 0), match="pass 1 or more"),
        reject((3,), norm="unit", error=SettingError, match="choose 'backward'"),
    ],
    precision="wide",
)
def dft(x: Any, /, inverse: bool = False, axis: int = -1, *, norm: str = "backward") -> Any:
    """Discrete Fourier transform of complex numbers along an axis, or its inverse."""
    return _dft(x, inverse, axis, norm)


# ------------------------------------------------------------------ real transforms


def _half_spectrum_weights(g: Any, n: int, axis: int, inside: float) -> Array:
    """Weights of half a spectrum of ``n`` points: ``inside``, but 1 at the self-conjugate ends."""
    m = n // 2 + 1
    weights = np.full(m, inside, np.empty(0, g.dtype).real.dtype)
    weights[0] = 1
    if n % 2 == 0:
        weights[-1] = 1
    return weights.reshape([m if k == axis % g.ndim else 1 for k in range(g.ndim)])


def _real_dft_options(axis: Any, norm: Any) -> tuple[Any, ...]:
    return check_int("real_dft", "axis", axis), norm_option("real_dft", norm)


def _real_dft_spec(x: Spec, axis: int, norm: str) -> Spec:
    k = axis_index("real_dft", axis, x.ndim)
    n = x.shape[k]
    _check_length("real_dft", n)
    shape = (*x.shape[:k], n // 2 + 1, *x.shape[k + 1 :])
    return Spec(shape, _transform_dtype("real_dft", np.fft.rfft, x))


def _real_dft(x: Any, axis: int, norm: Any) -> Any:
    return np.fft.rfft(x, axis=axis, norm=norm)


def _real_dft_vjp(g: Any, x_spec: Spec, axis: int, norm: str) -> Any:
    n = x_spec.shape[axis]
    half = mul(conj(g), _half_spectrum_weights(g, n, axis, 0.5))
    return inverse_real_dft(half, n, axis, norm=OPPOSITE_NORM[norm])


@op(
    primitive="product",
    kernel=_real_dft,
    prepare=_real_dft_options,
    canonical=_canonical_options,
    vmap="along",
    infer=_real_dft_spec,
    vjp={"x": _real_dft_vjp},
    jvp={"x": lambda t, axis, norm: real_dft(t, axis, norm=norm)},
    samples=[
        sample((4,)),
        sample((5, 2), axis=0, norm="ortho"),
        sample((2, 3), norm="forward"),
        sample((2, 1, 2), axis=1),
        sample((0, 2)),
    ],
    rejects=[
        reject((2, 3), axis=2, match="does not fit"),
        reject((3, 0), match="pass 1 or more"),
        reject(np.ones(2, complex), error=DTypeError, match="takes real ones"),
        reject((3,), norm="unit", error=SettingError, match="choose 'backward'"),
    ],
    precision="wide",
)
def real_dft(x: Any, /, axis: int = -1, *, norm: str = "backward") -> Any:
    """First half of the discrete Fourier transform of real numbers."""
    return _real_dft(x, axis, norm)


def _inverse_real_dft_options(n: Any, axis: Any, norm: Any) -> tuple[Any, ...]:
    who = "inverse_real_dft"
    return check_int(who, "n", n), check_int(who, "axis", axis), norm_option(who, norm)


def _inverse_real_dft_spec(x: Spec, n: int, axis: int, norm: str) -> Spec:
    who = "inverse_real_dft"
    k = axis_index(who, axis, x.ndim)
    _check_length(who, n)
    if x.shape[k] != n // 2 + 1:
        raise ShapeError(
            f"{who}: x {x.shape} for n={n} points; half of their spectrum has {n // 2 + 1} "
            f"numbers along axis {axis}"
        )
    return Spec((*x.shape[:k], n, *x.shape[k + 1 :]), _transform_dtype(who, _irfft_of_one, x))


def _irfft_of_one(x: Any) -> Any:
    return np.fft.irfft(x, 1)


def _inverse_real_dft(x: Any, n: int, axis: int, norm: Any) -> Any:
    if np.shape(x)[axis] != n // 2 + 1:
        raise ValueError("the shape rule raises the error")
    return np.fft.irfft(x, n, axis, norm)


def _inverse_real_dft_vjp(g: Any, n: int, axis: int, norm: str) -> Any:
    half = conj(real_dft(g, axis, norm=OPPOSITE_NORM[norm]))
    return mul(half, _half_spectrum_weights(half, n, axis, 2.0))


@op(
    primitive="product",
    kernel=_inverse_real_dft,
    prepare=_inverse_real_dft_options,
    canonical=_canonical_options,
    vmap="along",
    infer=_inverse_real_dft_spec,
    vjp={"x": _inverse_real_dft_vjp},
    jvp={"x": lambda t, n, axis, norm: inverse_real_dft(t, n, axis, norm=norm)},
    samples=[
        sample((3,), n=4),
        sample((3, 2), n=5, axis=0, norm="ortho"),
        sample((2, 2), n=2, norm="forward"),
        sample((2, 1, 2), n=1, axis=1),
        sample((0, 2), n=3),
    ],
    rejects=[
        reject((3,), n=6, match="half of their spectrum has 4"),
        reject((2, 3), n=4, axis=2, match="does not fit"),
        reject((2, 0), n=0, match="pass 1 or more"),
        reject((3,), n=4, norm="unit", error=SettingError, match="choose 'backward'"),
    ],
    precision="wide",
)
def inverse_real_dft(x: Any, /, n: int, axis: int = -1, *, norm: str = "backward") -> Any:
    """Inverse of ``real_dft``: ``n`` real numbers from half a spectrum.

    The imaginary part of the first number, and for even ``n`` of the last, is ignored.
    """
    return _inverse_real_dft(x, n, axis, norm)


publish(globals())

"""Softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.errors import DTypeError
from odyssey.ops.elementwise.arithmetic import div, mul, neg, sub
from odyssey.ops.elementwise.elementary import exp, log
from odyssey.ops.reductions.reduce import max, sum
from odyssey.ops.structure.batching import flatten_examples, shift_axes, spread
from odyssey.ops.structure.half_precision import compute_in_float32
from odyssey.ops.structure.shape import reshape
from odyssey.spec import Spec
from odyssey.table.batch import Batch
from odyssey.table.canonical_options import canonical_axes
from odyssey.table.declare import Kernel, composite, op, publish
from odyssey.table.derived_rules import derive_rules
from odyssey.table.real_operands import real_floating
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import axis_rule, floating_dtype

# ------------------------------------------------------------------ softmax


_NO_AXES = reject((), axis=-1, match="does not fit a number")


def _softmax_pullback_decomposition(t: Any, s: Any, /, axis: int) -> Any:
    return mul(s, sub(t, sum(mul(t, s), axis, keepdims=True)))


def _log_softmax_pullback_decomposition(t: Any, z: Any, /, axis: int) -> Any:
    return sub(t, mul(exp(z), sum(t, axis, keepdims=True)))


def _subtract_max(x: Any, axis: int) -> Any:
    if not x.ndim:
        raise ValueError("a number without axes has no softmax")
    # Subtracting the largest element keeps exp from overflowing. An axis of no elements has none.
    if x.dtype.kind in "biu":
        x = x.astype(np.result_type(x, np.float16))
    if x.dtype.char == "e":  # whose sums stop growing at 2048, and end at 65504
        x = x.astype(np.float32)
    return x - (np.maximum.reduce(x, axis, keepdims=True) if x.size else x)


def _softmax_decomposition(x: Any, axis: int) -> Any:
    e = exp(sub(x, max(x, axis, keepdims=True)))
    return div(e, sum(e, axis, keepdims=True))


def _log_softmax_decomposition(x: Any, axis: int) -> Any:
    z = sub(x, max(x, axis, keepdims=True))
    return sub(z, log(sum(exp(z), axis, keepdims=True)))


def _fits_rows(x: Spec, axis: int) -> bool:
    along_last = x.ndim > 0 and axis in (-1, x.ndim - 1)
    return along_last and x.dtype.char in "fd" and x.size > 0


def _pair_fits_rows(t: Spec, s: Spec, axis: int) -> bool:
    return _fits_rows(s, axis) and t == s


def _row_kernel(name: str) -> Callable[..., Any]:
    """Return a function that runs a loop of ``kernels.softmax_rows`` on the rows of its arrays."""

    def run(*values: Any) -> Any:
        from odyssey.kernels import softmax_rows

        arrays = values[:-1]
        out = np.empty(arrays[0].shape, arrays[0].dtype)
        rows = [array.reshape(-1, out.shape[-1]) for array in (*arrays, out)]
        getattr(softmax_rows, name)(*rows)
        return out

    return run


def _cuda_softmax(x: Any, axis: int) -> Any:
    from odyssey.kernels import cuda as device
    from odyssey.kernels import cuda_softmax

    out = device.new_array(x, x.shape, x.dtype)
    rows = (x.size // x.shape[-1], x.shape[-1])
    cuda_softmax(device.contiguous(x).reshape(rows), out.reshape(rows))
    return out


def _axis_sum(x: Any, axis: int) -> Any:
    """Return sums along an axis; half precision is summed in single."""
    return np.add.reduce(x, axis, np.float32 if x.dtype.char == "e" else None, keepdims=True)


def _cast_softmax(out: Any, x: Any) -> Any:
    """Return a result in the dtype of the op, which may be half."""
    return out if out.dtype == x.dtype else out.astype(floating_dtype(x.dtype), copy=False)


def softmax_arrays(x: Any, axis: int) -> Any:
    """Softmax of an array, for kernels."""
    e = _subtract_max(x, axis)
    np.exp(e, e)
    e /= np.add.reduce(e, axis, keepdims=True)
    return _cast_softmax(e, x)


def log_softmax_arrays(x: Any, axis: int) -> Any:
    """Logarithm of the softmax of an array, for kernels."""
    z = _subtract_max(x, axis)
    z -= np.log(np.add.reduce(np.exp(z), axis, keepdims=True))
    return _cast_softmax(z, x)


@op(
    real=True,
    canonical=canonical_axes,
    infer=axis_rule("softmax", floating_dtype),
    decomposition=compute_in_float32(_softmax_decomposition),
    kernels=[
        Kernel("a compiled loop over rows", _row_kernel("softmax_rows"), when=_fits_rows),
        Kernel(
            "a block for each row, or part of a long one", _cuda_softmax, "cuda", when=_fits_rows
        ),
    ],
    # The Jacobian diag(s) - s s^T is symmetric, so it serves both directions.
    vjp={"x": lambda g, out, axis: softmax_pullback(g, out, axis)},
    jvp={"x": lambda t, out, axis: softmax_pullback(t, out, axis)},
    vmap="along",
    kinks="NaN where an element is inf, or all are -inf, as the result is",
    samples=[sample((2, 3)), sample((2, 3), axis=0), sample((4,)), sample((0, 3))],
    rejects=[reject((2, 3), axis=2, match="does not fit"), _NO_AXES],
    precision="wide",
)
def softmax(x: Any, /, axis: int = -1) -> Any:
    """Softmax: exponentials along ``axis`` divided by their sum."""
    return softmax_arrays(x, axis)


@op(
    real=True,
    canonical=canonical_axes,
    infer=axis_rule("log_softmax", floating_dtype),
    decomposition=compute_in_float32(_log_softmax_decomposition),
    kernels=[Kernel("a compiled loop over rows", _row_kernel("log_softmax_rows"), when=_fits_rows)],
    vjp={"x": lambda g, out, axis: log_softmax_pullback(g, out, axis)},
    jvp={"x": lambda t, out, axis: sub(t, sum(mul(t, exp(out)), axis, keepdims=True))},
    vmap="along",
    kinks="NaN where an element is inf, or all are -inf, as the result is",
    samples=[sample((2, 3)), sample((2, 3), axis=0), sample((4,)), sample((0, 3))],
    rejects=[reject((2, 3), axis=2, match="does not fit"), _NO_AXES],
    precision="wide",
)
def log_softmax(x: Any, /, axis: int = -1) -> Any:
    """Logarithm of the softmax, without rounding small probabilities to zero."""
    return log_softmax_arrays(x, axis)


# ------------------------------------------------------------------ their pullbacks


def _pullback_batch(
    pullback: Callable[..., Any], batch: Batch, t: Any, s: Any, axis: int | None
) -> Any:
    t, s = spread(batch, 0, t), spread(batch, 1, s)
    if axis is None:
        return reshape(pullback(flatten_examples(t), flatten_examples(s), 1), s.shape)
    return pullback(t, s, shift_axes(axis, len(s.shape) - 1))


_PULLBACK: dict[str, Any] = {
    "real": True,
    "infer": lambda t, s, axis: Spec(
        s.shape, np.result_type(floating_dtype(t.dtype), floating_dtype(s.dtype))
    ),
    "canonical": lambda t, s, axis: canonical_axes(s, axis),
    "samples": [
        sample((2, 3), (2, 3)),
        sample((2, 3), (2, 3), axis=0),
        sample((4,), (4,)),
        sample((0, 3), (0, 3)),
    ],
}


@op(
    **_PULLBACK,
    **derive_rules(_softmax_pullback_decomposition),
    vmap=lambda batch, t, s, axis: _pullback_batch(softmax_pullback, batch, t, s, axis),
    decomposition=compute_in_float32(_softmax_pullback_decomposition, 2),
    kernels=[
        Kernel(
            "a compiled loop over rows", _row_kernel("softmax_pullback_rows"), when=_pair_fits_rows
        )
    ],
)
def softmax_pullback(t: Any, s: Any, /, axis: int = -1) -> Any:
    """The cotangent of what ``softmax`` was given, of that of its result, ``t``, and its result."""
    t, s = real_floating(t), real_floating(s)
    moved = t * s
    return (s * (t - _axis_sum(moved, axis))).astype(moved.dtype, copy=False)


@op(
    **_PULLBACK,
    **derive_rules(_log_softmax_pullback_decomposition),
    vmap=lambda batch, t, z, axis: _pullback_batch(log_softmax_pullback, batch, t, z, axis),
    decomposition=compute_in_float32(_log_softmax_pullback_decomposition, 2),
    kernels=[
        Kernel(
            "a compiled loop over rows",
            _row_kernel("log_softmax_pullback_rows"),
            when=_pair_fits_rows,
        )
    ],
)
def log_softmax_pullback(t: Any, z: Any, /, axis: int = -1) -> Any:
    """VJP of ``log_softmax``, from its result ``z``."""
    t, z = real_floating(t), real_floating(z)
    return (t - np.exp(z) * _axis_sum(t, axis)).astype(np.result_type(t, z), copy=False)


@composite(
    samples=[sample((2, 3)), sample((2, 3), axis=0), sample((0, 3))],
    rejects=[
        reject((2, 3), axis=2, match="does not fit"),
        reject(np.array([1j]), error=DTypeError, match="complex"),
    ],
)
def softmin(x: Any, axis: int = -1) -> Any:
    """Softmin: exponentials of ``-x`` along ``axis`` divided by their sum.

    Args:
        x: Real numbers.
        axis: Along which they sum to 1.

    Raises:
        ShapeError: where the axis is not there.

    >>> softmin(np.array([0.0, 0.0, 1000.0]))
    array([0.5, 0.5, 0. ])
    """
    return softmax(neg(x), axis)


publish(globals())

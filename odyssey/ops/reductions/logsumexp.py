"""Logarithm of a sum of exponentials."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from odyssey.checks import check_flag
from odyssey.devices.half_dtypes import is_half
from odyssey.errors import DTypeError
from odyssey.floating_point_errors import ignore_fp_errors
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import equal, isfinite, where
from odyssey.ops.elementwise.complex_numbers import real
from odyssey.ops.elementwise.elementary import exp, log
from odyssey.ops.reductions.broadcast_back import broadcast_back, reduction_size
from odyssey.ops.reductions.reduce import max, sum
from odyssey.ops.structure.half_precision import compute_in_float32
from odyssey.ops.structure.shape import astype, reshape
from odyssey.spec import Spec
from odyssey.table.canonical_options import canonical_axes
from odyssey.table.declare import op, publish, set_op_metadata
from odyssey.table.registry import COMPOSITES
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import reduced_shape, reduction_rule

_FOLDS = (
    sample((2, 3)),
    sample((2, 3), axis=1),
    sample((2, 3, 4), axis=(0, -1), keepdims=True),
    sample((4, 1), axis=0),
)
NO_AXIS = reject((2, 3), axis=2, match="does not fit an array of 2 axes")


def _softmax_weights(x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    """Return the softmax over ``axis``, ``exp(x - out)``; 0 where all elements are -inf."""
    if is_half(x_spec.dtype):  # float16 sums stop growing at 2048
        x, out = astype(x, np.float32), astype(out, np.float32)
    # -inf - -inf is NaN; where the result is -inf, any finite number instead gives 0.
    finite = where(equal(out, -np.inf), 0, out)
    shares = exp(sub(x, broadcast_back(finite, x_spec, axis, keepdims)))
    # The rounding of a large result exceeds the precision of the weights; their sum corrects it.
    total = sum(shares, axis, keepdims=True)
    return div(shares, where(equal(total, 0), 1, total))


def _logsumexp_rule(g: Any, x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    return mul(
        broadcast_back(g, x_spec, axis, keepdims), _softmax_weights(x, out, x_spec, axis, keepdims)
    )


def _logsumexp_forward(t: Any, x: Any, out: Any, x_spec: Spec, axis: Any, keepdims: bool) -> Any:
    return sum(mul(t, _softmax_weights(x, out, x_spec, axis, keepdims)), axis, keepdims=keepdims)


def _logsumexp(x: Any, axis: Any, keepdims: bool) -> Any:
    x = np.asarray(x)
    if x.dtype.kind in "biu":
        x = x.astype(np.float64)
    # Subtracting the largest keeps exp from overflowing; inf - inf is avoided.
    top = np.max(x.real, axis, keepdims=True, initial=-np.inf)
    top = np.where(np.isfinite(top), top, x.real.dtype.type(0))
    out = _log_sum_shifted(x, top, axis)
    return out.reshape(reduced_shape("logsumexp", x.shape, axis, keepdims))[()]


@ignore_fp_errors("divide", "over")
def _log_sum_shifted(x: Any, top: Any, axis: Any) -> Any:
    wide = np.float32 if x.dtype.char == "e" else None  # float16 overflows at 65504
    total = np.add.reduce(np.exp(x - top), axis, wide, keepdims=True)
    return (np.log(total) + top).astype(x.dtype, copy=False)


def _decompose_logsumexp(x: Any, axis: Any, keepdims: bool) -> Any:
    if x.dtype.kind in "biu":
        x = astype(x, np.float64)
    top: Any = 0.0
    if reduction_size(x, axis):
        top = max(real(x) if x.dtype.kind == "c" else x, axis, keepdims=True)
        top = where(isfinite(top), top, 0)
    out = add(log(sum(exp(sub(x, top)), axis, keepdims=True)), top)
    return reshape(out, reduced_shape("logsumexp", x.shape, axis, keepdims))


def _call_signature(
    x: Any, /, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """Signature of ``logsumexp``, as SciPy's."""


def _with_weights(plain: Any) -> Any:
    """Wrap the op: calls with weights or ``return_sign`` go to ``weighted_logsumexp``.

    That composite is in ``odyssey.special``, a layer above, and is looked up at its first use.
    """
    row = plain.row

    def weighted(
        x: Any,
        /,
        axis: Any = None,
        b: Any = None,
        keepdims: bool = False,
        return_sign: bool = False,
        *,
        tape: Any = None,
    ) -> Any:
        if b is None and not check_flag("logsumexp", "return_sign", return_sign):
            return plain(x, axis, keepdims=keepdims, tape=tape)
        options = {"keepdims": keepdims, "return_sign": return_sign, "tape": tape}
        return COMPOSITES["weighted_logsumexp"](x, 1.0 if b is None else b, axis, **options)

    called = inspect.signature(weighted)

    def call(*args: Any, **named: Any) -> Any:
        if len(args) < 3 and "b" not in named and "return_sign" not in named:
            return plain(*args, **named)
        try:
            bound = called.bind(*args, **named)
        except TypeError as error:
            raise DTypeError(f"logsumexp: {error}") from None
        return weighted(*bound.args, **bound.kwargs)

    row.call = set_op_metadata(call, row)
    row.call.__wrapped__ = _call_signature
    return row.call


@_with_weights
@op(
    kernel=_logsumexp,
    canonical=canonical_axes,
    decomposition=compute_in_float32(_decompose_logsumexp),
    infer=reduction_rule(
        "logsumexp",
        lambda dtype: np.dtype(np.float64) if dtype.kind in "biu" else dtype,
        lone=False,
    ),
    vjp={"x": _logsumexp_rule},
    jvp={"x": _logsumexp_forward},
    vmap="along",
    kinks="0 where all elements are -inf; NaN where one is inf",
    samples=[*_FOLDS, sample((0, 3), axis=1)],
    rejects=[NO_AXIS],
    precision="wide",
)
def logsumexp(x: Any, /, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Logarithm of the sum of exponentials over ``axis``, without overflow; -inf if it is empty.

    Args:
        x: The exponents.
        axis: One axis or several; None for all.
        b: Weights of the exponentials, which may be negative and depend on a leaf; as SciPy's.
        keepdims: Whether the reduced axes stay, with length 1.
        return_sign: Return a pair: the logarithm of the sum's absolute value, and its sign.

    Returns:
        The logarithm, or the pair; with weights, NaN where the sum is negative.

    Raises:
        DTypeError: for complex numbers with weights or with ``return_sign``.

    >>> logsumexp(np.array([999.0, 999.0]), b=np.array([3.0, -1.0])).round(6)
    np.float64(999.693147)
    """
    return _logsumexp(x, axis, keepdims)


publish(globals())

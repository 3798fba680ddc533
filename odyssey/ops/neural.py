"""Softmax and fused losses: ops that do in one pass what composition does in many."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.errors import DTypeError, OdysseyError, ShapeError
from odyssey.ops.activations import sigmoid
from odyssey.ops.arithmetic import div, maximum, mul, neg, sub
from odyssey.ops.elementary import log
from odyssey.ops.reductions import reduced_shape, spread, sum
from odyssey.ops.samples import reject, sample
from odyssey.ops.shape import normalize_axes
from odyssey.ops.table import op, publish
from odyssey.spec import Spec

# ------------------------------------------------------------------ softmax


def _softmax_rule(g: Any, out: Any, axis: int) -> Any:
    """The Jacobian diag(s) - s s^T is symmetric, so it serves both directions."""
    return mul(out, sub(g, sum(mul(g, out), axis, keepdims=True)))


def _axis_checked(who: str) -> Any:
    def infer(x: Spec, axis: int) -> Spec:
        normalize_axes(who, axis, x.ndim)
        return Spec(x.shape, np.result_type(x.dtype, np.float16))

    return infer


def _shifted(x: Any, axis: int) -> Any:
    # Subtracting the largest element keeps exp from overflowing. An axis of no elements has none.
    if x.dtype.kind in "biu":
        x = x.astype(np.result_type(x, np.float16))
    return x - (np.maximum.reduce(x, axis, keepdims=True) if x.size else x)


def _softmax(x: Any, axis: int) -> Any:
    e = _shifted(x, axis)
    np.exp(e, e)
    e /= np.add.reduce(e, axis, keepdims=True)
    return e


def _log_softmax(x: Any, axis: int) -> Any:
    z = _shifted(x, axis)
    z -= np.log(np.add.reduce(np.exp(z), axis, keepdims=True))
    return z


@op(
    real=True,
    infer=_axis_checked("softmax"),
    vjp={"x": _softmax_rule},
    jvp={"x": lambda t, out, axis: _softmax_rule(t, out, axis)},
    samples=[sample((2, 3)), sample((2, 3), axis=0), sample((4,)), sample((0, 3))],
    rejects=[reject((2, 3), axis=2, match="does not fit")],
)
def softmax(x: Any, /, axis: int = -1) -> Any:
    """Exponentials along ``axis`` divided by their sum."""
    return _softmax(x, axis)


@op(
    real=True,
    infer=_axis_checked("log_softmax"),
    vjp={
        "x": lambda g, x, axis: sub(g, mul(softmax(x, axis), sum(g, axis, keepdims=True))),
    },
    jvp={
        "x": lambda t, x, axis: sub(t, sum(mul(t, softmax(x, axis)), axis, keepdims=True)),
    },
    samples=[sample((2, 3)), sample((2, 3), axis=0), sample((4,)), sample((0, 3))],
    rejects=[reject((2, 3), axis=2, match="does not fit")],
)
def log_softmax(x: Any, /, axis: int = -1) -> Any:
    """Logarithm of the softmax, without rounding small probabilities to zero."""
    return _log_softmax(x, axis)


# ------------------------------------------------------------------ mean squared error


def _squared_error_spec(x: Spec, y: Spec) -> Spec:
    if x.shape != y.shape:
        raise ShapeError(
            f"mean_squared_error: predictions {x.shape} and targets {y.shape} differ; "
            "reshape one, broadcasting here is nearly always a mistake"
        )
    return Spec((), np.result_type(x.dtype, y.dtype, np.float16))


def _squared_error_rule(g: Any, x: Any, y: Any) -> Any:
    return mul(mul(g, 2 / (x.size or 1)), sub(x, y))


def _squared_error_forward(t: Any, x: Any, y: Any) -> Any:
    return mul(sum(mul(t, sub(x, y))), 2 / (x.size or 1))


@op(
    infer=_squared_error_spec,
    vjp={
        "x": _squared_error_rule,
        "y": lambda g, x, y: neg(_squared_error_rule(g, x, y)),
    },
    jvp={
        "x": _squared_error_forward,
        "y": lambda t, x, y: neg(_squared_error_forward(t, x, y)),
    },
    samples=[sample((2, 3), (2, 3)), sample((), ()), sample((4,), (4,))],
    rejects=[reject((2, 3), (3,), match="differ")],
)
def squared_error_mean(x: Any, y: Any, /) -> Any:
    """Mean of ``(x - y)**2`` over all elements of real arrays of one shape."""
    if np.shape(x) != np.shape(y):
        raise _failure_of(_squared_error_spec, x, y)
    d = np.subtract(x, y)
    if d.dtype.kind not in "f":
        raise DTypeError(f"mean_squared_error: needs real floating numbers, came {d.dtype}")
    flat = d.reshape(-1)
    return d.dtype.type(flat.dot(flat) / max(d.size, 1))


def _failure_of(infer: Any, *arrays: Any) -> OdysseyError:
    try:
        infer(*(Spec(np.shape(a), np.asarray(a).dtype) for a in arrays))
    except OdysseyError as error:
        return error
    raise AssertionError("the spec rule accepted what the kernel refused")


# ------------------------------------------------------------------ binary cross entropy


def _clipped_logs(p: Any) -> tuple[Any, Any]:
    """Logarithms of ``p`` and ``1 - p``, at least -100, so that a sure mistake stays finite."""
    # e**-100 is 3.7e-44; the inner bound keeps log from warning of 0.
    yes, no = (log(maximum(q, 3.7e-44)) for q in (p, sub(1, p)))
    return maximum(yes, -100.0), maximum(no, -100.0)


def _alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Both in their common dtype: a Python number must not turn float32 into float64."""
    dtype = np.result_type(x, y)
    return np.asarray(x, dtype), np.asarray(y, dtype)


def _binary_p_rule(g: Any, p: Any, y: Any) -> Any:
    return mul(g, div(sub(p, y), maximum(mul(p, sub(1, p)), 1e-12)))


def _binary_y_rule(g: Any, p: Any) -> Any:
    yes, no = _clipped_logs(p)
    return mul(g, sub(no, yes))


_PROBABLE = (
    sample((2, 3), (2, 3), low=0.1, high=0.9),
    sample((3,), (3,), low=0.1, high=0.9),
    sample((), (), low=0.1, high=0.9),
)


@op(
    real=True,
    elementwise=True,
    vjp={"p": _binary_p_rule, "y": _binary_y_rule},
    kinks="the logarithms are clipped at -100, and p (1 - p) in the derivative at 1e-12",
    samples=_PROBABLE,
)
def binary_entropy(p: Any, y: Any, /) -> Any:
    """Elementwise ``-(y log p + (1 - y) log(1 - p))`` for probabilities ``p``."""
    p, y = _alike(p, y)
    with np.errstate(divide="ignore"):
        yes, no = np.maximum(np.log(p), -100), np.maximum(np.log(1 - p), -100)
    return -(y * yes + (1 - y) * no)


@op(
    real=True,
    elementwise=True,
    vjp={
        "x": lambda g, x, y: mul(g, sub(sigmoid(x), y)),
        "y": lambda g, x: neg(mul(g, x)),
    },
    samples=[sample((2, 3), (2, 3)), sample((3,), (3,)), sample((), ())],
)
def binary_entropy_with_logits(x: Any, y: Any, /) -> Any:
    """Elementwise binary cross entropy of ``sigmoid(x)``, without overflow for any ``x``."""
    x, y = _alike(x, y)
    return np.maximum(x, 0) - x * y + np.log1p(np.exp(-np.abs(x)))


# ------------------------------------------------------------------ cross entropy


def _class_axis(logits: Any, axis: int) -> int:
    return normalize_axes("cross_entropy", axis, len(logits.shape))[0]


def _target_spec(logits: Any, targets: Any, axis: int) -> bool:
    """Whether targets are class numbers, not probabilities; raises where they are neither."""
    k = _class_axis(logits, axis)
    folded = reduced_shape("cross_entropy", logits.shape, axis, False)
    if targets.dtype.kind in "iu" and targets.shape == folded:
        return True
    if targets.shape == logits.shape and targets.dtype.kind in "fbiu":
        return False
    raise ShapeError(
        f"cross_entropy: logits {logits.shape} with {logits.shape[k]} classes on axis {axis} want "
        f"class numbers of shape {folded} or probabilities of shape {logits.shape}; "
        f"targets are {targets.dtype}{list(targets.shape)}"
    )


def _target_probabilities(
    logits: Any, targets: Any, axis: int, smoothing: float, ignore_index: int | None
) -> Any:
    """The distribution that the softmax is to match; zero where the target is ignored."""
    k = _class_axis(logits, axis)
    classes, dtype = logits.shape[k], np.result_type(logits.dtype, np.float16)
    if not _target_spec(logits, targets, axis):
        p = targets.astype(dtype)
        return p * (1 - smoothing) + smoothing / classes if smoothing else p
    safe, ignored = _checked_classes(targets, classes, ignore_index)
    p = np.full(logits.shape, smoothing / classes if smoothing else 0, dtype)
    np.put_along_axis(
        p, np.expand_dims(safe, k), 1 - smoothing + (smoothing / classes if smoothing else 0), k
    )
    if ignored is not None:
        p *= ~np.expand_dims(ignored, k)
    return p


def _checked_classes(targets: Any, classes: int, ignore_index: int | None) -> tuple[Any, Any]:
    """Class numbers with 0 in place of the ignored ones, and where those are."""
    ignored = None
    if ignore_index is not None:
        mask = targets == ignore_index
        if mask.any():
            ignored, targets = mask, np.where(mask, 0, targets)
    if targets.size and (targets.min() < 0 or targets.max() >= classes):
        raise ShapeError(
            f"cross_entropy: class numbers lie in [{targets.min()}, {targets.max()}], "
            f"there are {classes} classes; mark missing targets by ignore_index"
        )
    return targets, ignored


def _is_commonest(logits: Any, targets: Any, axis: int, smoothing: Any, ignored: Any) -> bool:
    """Whether this is a matrix of logits with one class number for each row, and nothing else."""
    return (
        logits.ndim == 2
        and targets.ndim == 1
        and targets.dtype.kind in "iu"
        and axis in (-1, 1)
        and not smoothing
        and ignored is None
        and logits.shape[0] == targets.shape[0] > 0
        # As unsigned numbers negative ones are too large as well: one reduction finds both.
        and np.maximum.reduce(targets.astype(np.uint64)) < logits.shape[1]
    )


def _counted(samples: int, targets: Any, ignore_index: int | None, by_class: bool) -> int:
    """How many of the samples a mean counts: those whose class is not ignored."""
    if by_class and ignore_index is not None:
        return int(np.count_nonzero(targets != ignore_index))
    return samples


def _entropy_spec(
    logits: Spec, targets: Spec, axis: int, smoothing: float, ignore_index: Any, reduction: str
) -> Spec:
    _target_spec(logits, targets, axis)
    shape = reduced_shape("cross_entropy", logits.shape, axis, False)
    return Spec(shape if reduction == "none" else (), np.result_type(logits.dtype, np.float16))


def _entropy_rule(
    g: Any,
    logits: Any,
    targets: Any,
    logits_spec: Spec,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
) -> Any:
    options = (axis, label_smoothing, ignore_index, reduction)
    slope = softmax_cross_entropy_slope(logits, targets, *options)
    return mul(spread(g, logits_spec, axis, False) if reduction == "none" else g, slope)


def _entropy_forward(
    t: Any,
    logits: Any,
    targets: Any,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
) -> Any:
    options = (axis, label_smoothing, ignore_index, reduction)
    slope = softmax_cross_entropy_slope(logits, targets, *options)
    return sum(mul(t, slope), axis if reduction == "none" else None)


_ENTROPY_SAMPLES = (
    sample((4, 3), np.array([0, 2, 1, 1])),
    sample((4, 3), np.array([0, 2, -1, 1]), ignore_index=-1),
    sample((2, 3, 4), np.array([[0, 1, 2, 0], [2, 2, 1, 0]]), axis=1, reduction="sum"),
    sample((3,), np.array(1), reduction="none"),
    sample((2, 3), np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]]), label_smoothing=0.1),
    sample((2, 3), np.array([1, 0]), label_smoothing=0.2, reduction="none"),
)
_ENTROPY_REJECTS = (
    reject((4, 3), np.array([0, 1]), match="want class numbers of shape"),
    reject((2, 3), np.array([0, 3]), match="there are 3 classes"),
)


@op(
    real=True,
    infer=_entropy_spec,
    vjp={"logits": _entropy_rule},
    jvp={"logits": _entropy_forward},
    samples=_ENTROPY_SAMPLES,
    rejects=_ENTROPY_REJECTS,
)
def softmax_cross_entropy(
    logits: Any,
    targets: Any,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """Cross entropy of class numbers or probabilities against the softmax of ``logits``."""
    targets = np.asarray(targets)
    if _is_commonest(logits, targets, axis, label_smoothing, ignore_index):
        z = logits - np.maximum.reduce(logits, 1, keepdims=True)
        chosen = z[np.arange(len(z)), targets]
        losses = np.log(np.add.reduce(np.exp(z, z), 1)) - chosen
        if reduction == "none":
            return losses
        total = np.add.reduce(losses)
        return total.dtype.type(total / len(z)) if reduction == "mean" else total
    by_class = _target_spec(logits, targets, axis)
    z = _log_softmax(logits, axis)
    if by_class and not label_smoothing:
        k = _class_axis(logits, axis)
        safe, ignored = _checked_classes(targets, logits.shape[k], ignore_index)
        losses = -np.take_along_axis(z, np.expand_dims(safe, k), k).reshape(safe.shape)
        if ignored is not None:
            losses = np.where(ignored, losses.dtype.type(0), losses)
    else:
        p = _target_probabilities(logits, targets, axis, label_smoothing, ignore_index)
        # A probability of 0 has no say, even where the logit is -inf.
        losses = -np.add.reduce(np.where(p == 0, p, p * z), axis)
    if reduction == "none":
        return losses
    total = np.add.reduce(losses, None)
    if reduction == "sum":
        return total
    n = _counted(losses.size, targets, ignore_index, by_class)
    return total.dtype.type(total / n) if n else total.dtype.type(np.nan)


def _slope_spec(logits: Spec, targets: Spec, *options: Any) -> Spec:
    _target_spec(logits, targets, options[0])
    return Spec(logits.shape, np.result_type(logits.dtype, np.float16))


def _slope_rule(
    g: Any,
    logits: Any,
    targets: Any,
    logits_spec: Spec,
    axis: int,
    label_smoothing: float,
    ignore_index: int | None,
    reduction: str,
) -> Any:
    options = (axis, label_smoothing, ignore_index, reduction)
    scale = softmax_cross_entropy_mass(targets, logits_spec, *options)
    s = softmax(logits, axis)
    return mul(scale, mul(s, sub(g, sum(mul(g, s), axis, keepdims=True))))


@op(
    real=True,
    infer=_slope_spec,
    vjp={"logits": _slope_rule},
    jvp={"logits": _slope_rule},
    samples=_ENTROPY_SAMPLES,
    rejects=_ENTROPY_REJECTS,
)
def softmax_cross_entropy_slope(
    logits: Any,
    targets: Any,
    /,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """Derivative of ``softmax_cross_entropy`` in the logits: softmax minus target, over n."""
    targets = np.asarray(targets)
    s = _softmax(logits, axis)
    if _is_commonest(logits, targets, axis, label_smoothing, ignore_index):
        s[np.arange(len(s)), targets] -= 1
        if reduction == "mean":
            s /= len(s)
        return s
    by_class = _target_spec(logits, targets, axis)
    n = _counted(s.size // max(s.shape[axis], 1), targets, ignore_index, by_class)
    p = _target_probabilities(logits, targets, axis, label_smoothing, ignore_index)
    s *= np.add.reduce(p, axis, keepdims=True)
    s -= p
    if reduction == "mean" and n:
        s /= n
    return s


def _mass_spec(targets: Spec, logits_spec: Spec, axis: int, *options: Any) -> Spec:
    shape = reduced_shape("cross_entropy", logits_spec.shape, axis, True)
    return Spec(shape, logits_spec.dtype)


@op(infer=_mass_spec)
def softmax_cross_entropy_mass(
    targets: Any,
    /,
    logits_spec: Spec,
    axis: int = -1,
    label_smoothing: float = 0.0,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> Any:
    """Weight of each sample in ``softmax_cross_entropy``: its total target, over n for a mean."""
    targets = np.asarray(targets)
    by_class = _target_spec(logits_spec, targets, axis)
    p = _target_probabilities(logits_spec, targets, axis, label_smoothing, ignore_index)
    mass = np.add.reduce(p, axis, keepdims=True)
    n = _counted(mass.size, targets, ignore_index, by_class)
    return mass / logits_spec.dtype.type(n) if reduction == "mean" and n else mass


publish(globals())

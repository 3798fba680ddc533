"""Attention: values averaged by weights, which are the softmax of how queries and keys agree."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from odyssey.checks import number, word
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.linalg.products import matmul
from odyssey.nn.attention_tiles import PASSES, Attention
from odyssey.nn.shared import Shared
from odyssey.ops.elementwise.arithmetic import add, div, mul, sub
from odyssey.ops.elementwise.choice import equal, logical_and, where
from odyssey.ops.elementwise.elementary import exp
from odyssey.ops.folds.reductions import max, sum, sum_to
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.shape import astype, matrix_transpose, reshape, shape_of
from odyssey.spec import Shape, Spec, spec_of
from odyssey.table.declare import op, publish
from odyssey.table.derived import derived
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import floating

_WHO, _BACK = "scaled_dot_product_attention", "attention_pullback"

# ------------------------------------------------------------------ shapes and options


def _out_spec(q: Spec, k: Spec, v: Spec, mask: Any, causal: bool, scale: float | None) -> Spec:
    shapes: list[Any] = [getattr(x, "shape", ()) for x in (q, k, v)]
    came = f"q {shapes[0]}, k {shapes[1]}, v {shapes[2]}"
    if len(min(shapes, key=len)) < 2:
        raise ShapeError(f"{_WHO}: {came}; wanted are (..., heads, length, dim)")
    if shapes[0][-1] != shapes[1][-1]:
        raise ShapeError(f"{_WHO}: {came}; queries and keys must be of one dim, the last axis")
    if shapes[1][-2] != shapes[2][-2]:
        raise ShapeError(f"{_WHO}: {came}; keys and values must be of one length, axis -2")
    lead = _lead(shapes, came)
    dtype = np.result_type(*(floating(x.dtype) for x in (q, k, v)))
    if mask is not None:
        lead = _masked_lead((*lead, shapes[0][-2], shapes[1][-2]), mask)
        if _dtype_of(mask).kind == "f":
            dtype = np.result_type(dtype, _dtype_of(mask))
    return Spec((*lead, shapes[0][-2], shapes[2][-1]), dtype)


def _lead(shapes: list[Any], came: str) -> Shape:
    """The axes before length and dim, of which the last are the heads."""
    heads, *others = [shape[-3] if len(shape) > 2 else 1 for shape in shapes]
    shared = others[0] if others[1] == 1 else others[1]
    grouped = 1 < shared < heads and heads % shared == 0
    fits = grouped or 1 in (heads, shared) or heads == shared
    leads = [(*s[:-3], heads) if grouped and len(s) > 2 else s[:-2] for s in shapes]
    try:
        if not fits or (1 not in others and others[0] != others[1]):
            raise ValueError
        return np.broadcast_shapes(*leads)
    except ValueError:
        raise ShapeError(
            f"{_WHO}: {came}; leading axes must broadcast, and the heads of q be those of k and v, "
            "or a multiple of them"
        ) from None


def _dtype_of(mask: Any) -> np.dtype[Any]:
    """Of a spec, an array, or a number, which is an array without axes."""
    return np.dtype(getattr(mask, "dtype", type(mask)))


def _masked_lead(scores: Shape, mask: Any) -> Shape:
    shape = getattr(mask, "shape", ())
    if _dtype_of(mask).kind not in "bf":
        raise DTypeError(
            f"{_WHO}: mask is of {_dtype_of(mask)}; pass truth values, True where a query may "
            "attend, or floating numbers, which are added to the scores"
        )
    try:
        whole = np.broadcast_shapes(scores, shape)
    except ValueError:
        whole = ()
    if whole[-2:] != scores[-2:]:
        raise ShapeError(f"{_WHO}: mask {shape} for scores {scores}; it must broadcast to them")
    return whole[:-2]


def _options(causal: bool, scale: Any) -> tuple[bool, float | None]:
    return causal, None if scale is None else number(_WHO, "scale", scale)


def _scale_of(q: Any, scale: float | None) -> float:
    return 1 / math.sqrt(q.shape[-1] or 1) if scale is None else scale


# ------------------------------------------------------------------ the same in other ops


def _real(x: Any) -> Any:
    return x if x.dtype.kind == "f" else astype(x, floating(x.dtype))


def _per_head(x: Any, q: Any) -> Any:
    """Keys or values with a copy for each query head, where these are grouped."""
    if len(q.shape) < 3 or len(x.shape) < 3:
        return x
    heads, own = q.shape[-3], x.shape[-3]
    if own == heads or 1 in (own, heads):
        return x
    return take(x, np.arange(heads) // (heads // own), axis=-3)


def _onto(total: Any, x: Any) -> Any:
    """The transpose of ``_per_head``: a cotangent summed over what ``x`` was repeated for."""
    if len(x.shape) > 2 and 1 < x.shape[-3] < total.shape[-3]:
        own, each = x.shape[-3], total.shape[-3] // x.shape[-3]
        total = sum(reshape(total, (*total.shape[:-3], own, each, *total.shape[-2:])), -3)
    return sum_to(total, x.shape)


def _weights(q: Any, k: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """The softmax of the scores; 0 where a row has no key to attend to."""
    scores = mul(matmul(q, matrix_transpose(_per_head(k, q))), _scale_of(q, scale))
    allowed = np.tri(q.shape[-2], k.shape[-2], dtype=bool) if causal else None
    if mask is not None and _dtype_of(mask).kind == "b":
        allowed = mask if allowed is None else logical_and(allowed, mask)
    elif mask is not None:
        scores = add(scores, mask)
    if not k.shape[-2]:
        return scores
    if allowed is not None:
        scores = where(allowed, scores, -np.inf)
    top = max(scores, -1, keepdims=True)
    powers = exp(sub(scores, where(equal(top, -np.inf), 0, top)))
    total = sum(powers, -1, keepdims=True)
    return div(powers, where(equal(total, 0), 1, total))


def _in_ops(q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    q, k, v = map(_real, (q, k, v))
    return matmul(_weights(q, k, mask, causal, scale), _per_head(v, q))


def _pullback_in_ops(
    cotangent: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    causal: bool,
    scale: float | None,
    operand: str,
) -> Any:
    q, k, v = map(_real, (q, k, v))
    weights = _weights(q, k, mask, causal, scale)
    if operand == "v":
        return _onto(matmul(matrix_transpose(weights), cotangent), v)
    moved = _softmax_moved(matmul(cotangent, matrix_transpose(_per_head(v, q))), weights)
    if operand == "mask":
        return sum_to(moved, shape_of(mask))
    if operand == "q":
        made = sum_to(matmul(moved, _per_head(k, q)), q.shape)
    else:
        made = _onto(matmul(matrix_transpose(moved), q), k)
    return mul(made, _scale_of(q, scale))


def _softmax_moved(t: Any, weights: Any) -> Any:
    """The derivative of the softmax, which is symmetric and so serves both modes."""
    return mul(weights, sub(t, sum(mul(t, weights), -1, keepdims=True)))


# ------------------------------------------------------------------ rules


def _rule(operand: str) -> Callable[..., Any]:
    def rule(
        g: Any,
        q: Any,
        k: Any,
        v: Any,
        mask: Any,
        causal: bool,
        scale: float | None,
        residual: Any = None,
    ) -> Any:
        if operand == "mask" and _dtype_of(mask).kind == "b":
            return np.zeros(shape_of(mask), g.dtype)
        if residual is None or operand == "mask":
            return attention_pullback(g, q, k, v, mask, causal=causal, scale=scale, operand=operand)
        shared, passes, *kept = residual

        def answers() -> dict[str, Any]:
            call = _call(q, k, v, mask, causal, scale, passes)
            return call.backward(g, ("q", "k", "v"), kept)

        return shared.cotangent(operand, g, answers)

    return rule


def _q_push(t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    scores = mul(matmul(t, matrix_transpose(_per_head(k, q))), _scale_of(q, scale))
    return _pushed(scores, q, k, v, mask, causal, scale)


def _k_push(t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    scores = mul(matmul(q, matrix_transpose(_per_head(t, q))), _scale_of(q, scale))
    return _pushed(scores, q, k, v, mask, causal, scale)


def _pushed(t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """The tangent of the result for that of the scores."""
    weights = _weights(q, k, mask, causal, scale)
    return matmul(_softmax_moved(t, weights), _per_head(v, q))


# ------------------------------------------------------------------ rows


def _call(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None, passes: Any = PASSES
) -> Attention:
    """The call on arrays, checked."""
    q, k, v = map(np.asarray, (q, k, v))
    mask = None if mask is None else np.asarray(mask)
    _out_spec(spec_of(q), spec_of(k), spec_of(v), mask, causal, scale)
    return Attention(q, k, v, mask, causal, _scale_of(q, scale), passes)


def _with_shared(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None
) -> tuple[Any, Any]:
    out, kept = _call(q, k, v, mask, causal, scale).forward(keep=True)
    return out, (Shared(), PASSES, *kept)


_LOWER = np.tri(3, 4, dtype=bool)
_VALUES = np.arange(16, dtype=np.float16).reshape(2, 4, 2)
_NONE_IN_A_ROW = np.array([[True, False, True], [False, False, False]])
_REJECTS = (
    reject((3,), (2, 3), (2, 3), None, match=r"wanted are \(..., heads"),
    reject((2, 3), (2, 4), (2, 3), None, match="one dim"),
    reject((2, 3), (4, 3), (2, 3), None, match="as many|one length"),
    reject((3, 2, 4), (2, 2, 4), (2, 2, 4), None, match="a multiple of them"),
    reject((4, 2, 4), (2, 2, 4), (4, 2, 4), None, match="a multiple of them"),
    reject((2, 3), (4, 3), (4, 3), (2, 3), match="must broadcast to them"),
    reject((2, 3), (4, 3), (4, 3), np.ones(4, int), error=DTypeError, match="True where"),
    reject((2, 3), (4, 3), (4, 3), None, scale=np.inf, error=SettingError, match="finite"),
)


@op(
    real=True,
    prepare=_options,
    infer=_out_spec,
    equals=_in_ops,
    canonical=lambda q, k, v, mask, causal, scale: (causal, _scale_of(q, scale)),
    with_residual=_with_shared,
    vjp={name: _rule(name) for name in ("q", "k", "v", "mask")},
    jvp={
        "q": _q_push,
        "k": _k_push,
        "v": lambda t, q, k, mask, causal, scale: scaled_dot_product_attention(
            q, k, t, mask, causal=causal, scale=scale
        ),
        "mask": lambda t, q, k, v, mask, causal, scale: _pushed(t, q, k, v, mask, causal, scale),
    },
    kinks="0, as is its derivative, where a query may attend to no key; NaN where a score is inf",
    samples=[
        sample((2, 3), (4, 3), (4, 2), None),
        sample((2, 3, 4), (2, 3, 4), (2, 3, 4), None, causal=True),
        sample((2, 4, 3, 2), (2, 4, 2), (2, 4, 2), _LOWER),
        sample((2, 2, 3), (3, 3), (2, 3, 2), (2, 1, 3), causal=True, scale=0.3),
        sample((2, 3), (3, 3), (3, 2), _NONE_IN_A_ROW),
        sample((2, 3), (0, 3), (0, 2), None),
    ],
    rejects=_REJECTS,
)
def scaled_dot_product_attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
) -> Any:
    """Values averaged by how well keys fit queries, ``softmax(scale * q @ k.T + mask) @ v``.

    A. Vaswani et al., Attention Is All You Need, 2017. Scores are made, and made again for the
    gradient, a tile at a time: memory grows with length, not with its square. Second derivatives,
    and forward mode, hold all scores.

    Args:
        q: Queries, (..., heads, length, dim), or without heads.
        k: Keys, (..., heads, other length, dim). Where there are fewer heads than those of ``q``,
            each serves as many of these, one after another.
        v: Values, (..., heads, other length, width).
        mask: Of a shape that broadcasts to the scores, (..., heads, length, other length): truth
            values, True where a query may attend to a key; or numbers, which are added to the
            scores, and have a gradient.
        causal: Query number i attends to keys up to number i only; with a mask, to those of them
            that it allows.
        scale: What the products are multiplied by; 1 over the root of dim by default.

    Returns:
        (..., heads, length, width); 0, as the gradient is, for a query that may attend to no key.

    Raises:
        ShapeError: where shapes do not fit.
        DTypeError: for complex numbers, and masks of integers.

    >>> q = k = np.eye(2) * 100.0
    >>> scaled_dot_product_attention(q, k, np.array([[1.0], [5.0]])).round(3)
    array([[1.],
           [5.]])
    >>> scaled_dot_product_attention(q * 0, k, np.array([[1.0], [5.0]]), causal=True)
    array([[1.],
           [3.]])
    """
    return _call(q, k, v, mask, causal, scale).forward()[0]


def _operand(causal: bool, scale: Any, operand: Any) -> tuple[bool, float | None, str]:
    return *_options(causal, scale), word(_BACK, "operand", operand, ("q", "k", "v", "mask"))


def _pullback_spec(
    cotangent: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: Any, operand: str
) -> Spec:
    out = _out_spec(q, k, v, mask, causal, scale)
    came = getattr(cotangent, "shape", ())
    if came != out.shape:
        raise ShapeError(f"{_BACK}: cotangent {came}; the result is {out.shape}")
    x = {"q": q, "k": k, "v": v, "mask": mask}[operand]
    if x is None or (x is mask and _dtype_of(mask).kind == "b"):
        raise DTypeError(f"{_BACK}: operand='mask', which is {mask}; it has no gradient")
    return Spec(getattr(x, "shape", ()), np.result_type(out.dtype, floating(_dtype_of(cotangent))))


@op(
    real=True,
    prepare=_operand,
    infer=_pullback_spec,
    equals=_pullback_in_ops,
    canonical=lambda cotangent, q, k, v, mask, causal, scale, operand: (
        causal,
        _scale_of(q, scale),
        operand,
    ),
    **derived(_pullback_in_ops, "cotangent", "q", "k", "v", "mask"),
    kinks="as scaled_dot_product_attention",
    samples=[
        sample((2, 2), (2, 3), (4, 3), (4, 2), None, operand="q"),
        sample((4, 3, 2), (4, 3, 2), (2, 4, 2), (1, 4, 2), (3, 4), operand="k"),
        sample((4, 3, 2), (4, 3, 2), (2, 4, 2), _VALUES, (4, 1, 4), operand="v"),
        sample((3, 2, 2), (2, 3), (3, 3), (3, 3, 2), (1, 3), causal=True, operand="mask"),
        sample((2, 2), (2, 3), (0, 3), (0, 2), None, scale=0.5, operand="k"),
    ],
    rejects=[
        reject((2, 3), (2, 3), (4, 3), (4, 2), None, operand="q", match="the result is"),
        reject(
            (2, 2), (2, 3), (4, 3), (4, 2), None, operand="mask", error=DTypeError, match="None"
        ),
        reject((2, 2), (2, 3), (4, 3), (4, 2), None, operand="o", error=SettingError, match="'o'"),
    ],
)
def attention_pullback(
    cotangent: Any,
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    /,
    *,
    causal: bool = False,
    scale: float | None = None,
    operand: str,
) -> Any:
    """The cotangent of one operand of ``scaled_dot_product_attention``, for that of its result."""
    call = _call(q, k, v, mask, causal, scale)
    cotangent = np.asarray(cotangent)
    wanted = _pullback_spec(cotangent, q, k, v, mask, causal, scale, operand)
    return call.backward(cotangent, (operand,))[operand].astype(wanted.dtype, copy=False)


publish(globals())

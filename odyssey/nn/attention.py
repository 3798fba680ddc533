"""Attention: values averaged by weights, which are the softmax of how queries and keys agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odyssey.checks import number, word
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.linalg.matrix_products import matmul
from odyssey.nn.attention_in_ops import (
    dtype_of,
    in_ops,
    per_head,
    pullback_in_ops,
    scale_of,
    softmax_moved,
    weights_of,
)
from odyssey.nn.attention_tiles import PASSES, Attention, Passes
from odyssey.nn.shared import Shared
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.structure.half_precision import in_single
from odyssey.ops.structure.shape import matrix_transpose, shape_of
from odyssey.spec import Shape, Spec, spec_of
from odyssey.table.choosing import are_kernels_compiled
from odyssey.table.declare import Kernel, op, publish
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
        if dtype_of(mask).kind == "f":
            dtype = np.result_type(dtype, dtype_of(mask))
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


def _masked_lead(scores: Shape, mask: Any) -> Shape:
    shape = getattr(mask, "shape", ())
    if dtype_of(mask).kind not in "bf":
        raise DTypeError(
            f"{_WHO}: mask is of {dtype_of(mask)}; pass truth values, True where a query may "
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
        if operand == "mask" and dtype_of(mask).kind == "b":
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
    scores = mul(matmul(t, matrix_transpose(per_head(k, q))), scale_of(q, scale))
    return _pushed(scores, q, k, v, mask, causal, scale)


def _k_push(t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    scores = mul(matmul(q, matrix_transpose(per_head(t, q))), scale_of(q, scale))
    return _pushed(scores, q, k, v, mask, causal, scale)


def _pushed(t: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None) -> Any:
    """The tangent of the result for that of the scores."""
    weights = weights_of(q, k, mask, causal, scale)
    return matmul(softmax_moved(t, weights), per_head(v, q))


# ------------------------------------------------------------------ rows


def _call(
    q: Any, k: Any, v: Any, mask: Any, causal: bool, scale: float | None, passes: Passes = PASSES
) -> Attention:
    """The call on arrays, checked."""
    q, k, v = map(np.asarray, (q, k, v))
    mask = None if mask is None else np.asarray(mask)
    _out_spec(spec_of(q), spec_of(k), spec_of(v), mask, causal, scale)
    return Attention(q, k, v, mask, causal, scale_of(q, scale), passes)


def _leaving(passes: Passes, *given: Any) -> tuple[Any, Any]:
    """The result, and what the rules share."""
    q, k, v, mask, causal, scale = given
    out, kept = _call(q, k, v, mask, causal, scale, passes).forward(keep=True)
    return out, (Shared(), passes, *kept)


def _pulled(
    passes: Passes, operands: Sequence[str], cotangent: Any, given: Sequence[Any]
) -> dict[str, Any]:
    """The cotangents of some operands, by name."""
    q, k, v, mask, causal, scale = given
    call = _call(q, k, v, mask, causal, scale, passes)
    cotangent = np.asarray(cotangent)
    wanted = {
        name: _pullback_spec(cotangent, q, k, v, mask, causal, scale, name) for name in operands
    }
    found = call.backward(cotangent, tuple(operands))
    return {name: found[name].astype(spec.dtype, copy=False) for name, spec in wanted.items()}


def _compiled() -> Passes:
    from odyssey.kernels.attention import pull, weigh

    return Passes(weigh, pull)


def _fastest() -> Passes:
    return _compiled() if are_kernels_compiled() else PASSES


def _many(q: Any, k: Any, v: Any, mask: Any, *options: Any) -> bool:
    """Whether compiled passes can take a call, and have several queries to take at once."""
    floats = [getattr(x, "dtype", None) for x in (q, k, v)]
    if mask is not None and dtype_of(mask).kind != "b":
        floats.append(dtype_of(mask))
    known = all(dtype in (np.float32, np.float64) for dtype in floats)
    return known and q.ndim > 1 and q.shape[-2] > 1


# Bytes of scores from which on they are made a tile at a time in compiled functions too.
_LARGE = 1 << 28


def _is_large(q: Any, k: Any, v: Any, mask: Any, causal: bool, *rest: Any) -> bool:
    out = _out_spec(q, k, v, mask, causal, None)
    count = math.prod(out.shape[:-1]) * k.shape[-2]
    return count * out.dtype.itemsize >= _LARGE


_KERNEL = Kernel(
    "compiled passes over tiles",
    lambda *given: _leaving(_compiled(), *given)[0],
    when=_many,
    with_residual=lambda *given: _leaving(_compiled(), *given),
    within=_is_large,
)
_KERNEL_BACK = Kernel(
    "compiled passes over tiles",
    lambda g, *given: _pulled(_compiled(), given[-1:], g, given[:-1])[given[-1]],
    when=lambda cotangent, *given: _many(*given) and _many(cotangent, *given[1:]),
    within=lambda cotangent, *given: _is_large(*given),
    together=("operand", lambda operands, g, *given: _pulled(_fastest(), operands, g, given)),
)
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
    decomposition=in_single(in_ops, 3),
    canonical=lambda q, k, v, mask, causal, scale: (causal, scale_of(q, scale)),
    with_residual=lambda *given: _leaving(PASSES, *given),
    kernels=[_KERNEL],
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
    and forward mode, hold all scores; so do compiled functions, where these take less than 256 MB.

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
    if x is None or (x is mask and dtype_of(mask).kind == "b"):
        raise DTypeError(f"{_BACK}: operand='mask', which is {mask}; it has no gradient")
    return Spec(getattr(x, "shape", ()), np.result_type(out.dtype, floating(dtype_of(cotangent))))


@op(
    real=True,
    prepare=_operand,
    infer=_pullback_spec,
    decomposition=in_single(pullback_in_ops, 4),
    canonical=lambda cotangent, q, k, v, mask, causal, scale, operand: (
        causal,
        scale_of(q, scale),
        operand,
    ),
    kernels=[_KERNEL_BACK],
    **derived(pullback_in_ops, "cotangent", "q", "k", "v", "mask"),
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
    given = q, k, v, mask, causal, scale
    return _pulled(PASSES, (operand,), cotangent, given)[operand]


publish(globals())

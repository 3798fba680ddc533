"""Vectors brought to length 1, all distances between two sets of them, and products of pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from odyssey.checks import number, whole
from odyssey.devices.arrays import as_array
from odyssey.errors import DTypeError, SettingError, ShapeError
from odyssey.linalg.einstein_summation import einsum
from odyssey.nn.average_pooling import avg_pool1d
from odyssey.nn.distances import pairwise_distance
from odyssey.ops.elementwise.arithmetic import add, div, maximum, mul, square
from odyssey.ops.elementwise.elementary import power
from odyssey.ops.structure.gathering import take
from odyssey.ops.structure.padding import pad
from odyssey.ops.structure.shape import astype, expand_dims, moveaxis, shape_of, swapaxes
from odyssey.table.declare import composite, publish
from odyssey.table.samples import reject, sample
from odyssey.table.shape_rules import normalize_axes


def _array(who: str, name: str, x: Any) -> Any:
    return x if hasattr(x, "dtype") else as_array(who, name, x)


@composite(
    samples=[
        sample((2, 3)),
        sample((2, 3), axis=-1, p=1),
        sample((3, 2), axis=0, p=3.5),
        sample((2, 3, 2), p=math.inf, eps=0.5),
        sample((4,), axis=0),
        sample((0, 3)),
    ],
    rejects=[
        reject((2, 3), axis=2, match="does not fit"),
        reject((2, 3), p=0.5, error=SettingError, match="p=0.5"),
        reject(np.ones((1, 2), complex), error=DTypeError, match="real numbers"),
    ],
)
def normalize(
    x: Any, *, p: float = 2.0, axis: int = 1, eps: float = 1e-12, tape: Any = None
) -> Any:
    """Vectors over their p-norms, which they have at length 1 then.

    Args:
        x: Real vectors along ``axis``.
        p: Which norm, 1 or more, infinity among them.
        axis: Along which axis.
        eps: The least norm; shorter vectors are divided by it.
        tape: The tape to record on.

    Raises:
        ShapeError: where the axis is not there. SettingError: for ``p`` below 1.

    >>> normalize(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    x = _array("normalize", "x", x)
    if x.dtype.kind == "c":
        raise DTypeError(f"normalize: x is of {x.dtype}; pass real numbers")
    eps = number("normalize", "eps", eps, "[0, inf)")
    p = number("normalize", "p", p, "[1, inf]")
    (k,) = normalize_axes("normalize", axis, len(shape_of(x)))
    if x.dtype == np.float16:
        single = astype(x, np.float32, tape=tape)
        found = normalize(single, p=p, axis=axis, eps=eps, tape=tape)
        return astype(found, np.float16, tape=tape)
    nothing = np.zeros((), x.dtype)
    turned = swapaxes(x, k, -1, tape=tape)
    length = pairwise_distance(turned, nothing, p=p, eps=0.0, keepdims=True, tape=tape)
    return div(x, maximum(swapaxes(length, k, -1, tape=tape), eps, tape=tape), tape=tape)


@composite(
    samples=[
        sample((2, 3), (4, 3)),
        sample((2, 1, 3), (2, 2, 3), p=1),
        sample((2, 3), (3, 4, 3), p=3.5),
        sample((2, 2), (1, 2), p=math.inf),
        sample((0, 2), (3, 2)),
    ],
    rejects=[
        reject((2, 3), (2, 4), match="do not broadcast"),
        reject((3,), (2, 3), match="sets of vectors"),
        reject((2, 3), (2, 3), p=0, error=SettingError, match="p=0"),
    ],
)
def cdist(x1: Any, x2: Any, *, p: float = 2.0, tape: Any = None) -> Any:
    """Distance of each vector of one set from each of another.

    The derivative is 0 where the distance is 0.

    Args:
        x1: Real vectors, (..., n, d).
        x2: Others, (..., m, d).
        p: Of which norm, 1 or more, infinity among them.
        tape: The tape to record on.

    Returns:
        An array (..., n, m).

    Raises:
        ShapeError: for shapes that do not broadcast. SettingError: for ``p`` below 1.

    >>> cdist(np.array([[0.0, 0.0]]), np.array([[3.0, 4.0], [0.0, 1.0]]))
    array([[5., 1.]])
    """
    x1, x2 = _array("cdist", "x1", x1), _array("cdist", "x2", x2)
    if min(len(shape_of(x1)), len(shape_of(x2))) < 2:
        raise ShapeError(
            f"cdist: x1 {shape_of(x1)} and x2 {shape_of(x2)}; "
            "wanted are sets of vectors, (..., n, d)"
        )
    p = number("cdist", "p", p, "[1, inf]")
    x1, x2 = expand_dims(x1, -2, tape=tape), expand_dims(x2, -3, tape=tape)
    return pairwise_distance(x1, x2, p=p, eps=0.0, tape=tape)


@composite(
    samples=[sample((4, 3)), sample((3, 2), p=1), sample((3, 2), p=3.5), sample((1, 3))],
    rejects=[
        reject((3,), match="a matrix"),
        reject((2, 3), p=0, error=SettingError, match="p=0"),
    ],
)
def pdist(x: Any, *, p: float = 2.0, tape: Any = None) -> Any:
    """Distance of each row of a matrix from each one behind it, pair by pair.

    The derivative is 0 where the distance is 0.

    Args:
        x: Real vectors, (n, d).
        p: Of which norm, 1 or more, infinity among them.
        tape: The tape to record on.

    Returns:
        The distances (0, 1), (0, 2) ... (n - 2, n - 1), as SciPy orders them.

    Raises:
        ShapeError: for what is no matrix. SettingError: for ``p`` below 1.

    >>> pdist(np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]]))
    array([5., 4., 3.])
    """
    x = _array("pdist", "x", x)
    shape = shape_of(x)
    if len(shape) != 2:
        raise ShapeError(f"pdist: x has shape {shape}; wanted is a matrix, (n, d)")
    p = number("pdist", "p", p, "[1, inf]")
    firsts, seconds = (take(x, rows, 0, tape=tape) for rows in np.triu_indices(shape[0], 1))
    return pairwise_distance(firsts, seconds, p=p, eps=0.0, tape=tape)


@composite(
    samples=[
        sample((2, 3), (2, 4), (5, 3, 4)),
        sample((2, 3), (2, 4), (5, 3, 4), (5,)),
        sample((3,), (2,), (1, 3, 2), (1,)),
        sample((0, 2), (0, 2), (3, 2, 2)),
    ],
    rejects=[
        reject((2, 3), (2, 4), (5, 4, 3), match="wanted are"),
        reject((2, 3), (3, 4), (5, 3, 4), match="wanted are"),
        reject((2, 3), (2, 4), (5, 3, 4), (4,), match="bias"),
    ],
)
def bilinear(x1: Any, x2: Any, weight: Any, bias: Any = None, *, tape: Any = None) -> Any:
    """Products of the elements of two vectors, pair by pair, summed with weights.

    Args:
        x1: Vectors, (..., n).
        x2: As many others, (..., m).
        weight: For each result a matrix, (out, n, m).
        bias: What is added, (out,).
        tape: The tape to record on.

    Returns:
        Vectors, (..., out).

    Raises:
        ShapeError: for shapes that do not go together.

    >>> bilinear(np.array([1.0, 2.0]), np.array([3.0]), np.ones((1, 2, 1)))
    array([9.])
    """
    shapes = [tuple(shape_of(v)) for v in (x1, x2, weight)]
    first, second, matrices = shapes
    fits = len(matrices) == 3 and first and second and first[:-1] == second[:-1]
    if not fits or (first[-1], second[-1]) != matrices[1:]:
        raise ShapeError(
            f"bilinear: x1 {first}, x2 {second}, weight {matrices}; wanted are (..., n), (..., m) "
            "and (out, n, m)"
        )
    out = einsum("...i,oij,...j->...o", x1, weight, x2, tape=tape)
    if bias is None:
        return out
    if tuple(shape_of(bias)) != matrices[:1]:
        raise ShapeError(f"bilinear: bias {shape_of(bias)}; wanted is {matrices[:1]}")
    return add(out, bias, tape=tape)


@composite(
    samples=[
        sample((2, 5, 3), size=3),
        sample((2, 4, 2), size=2, alpha=0.5, beta=0.5, k=2.0),
        sample((1, 3), size=7, alpha=1.0),
        sample((0, 3, 2), size=3),
    ],
    rejects=[
        reject((3,), size=3, match="channels"),
        reject((1, 3), size=0, error=SettingError, match="at least 1"),
    ],
)
def local_response_norm(
    x: Any,
    *,
    size: int,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
    tape: Any = None,
) -> Any:
    """``x`` over ``(k + alpha * m)**beta``, with m the mean square over the channels around.

    A. Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural Networks, 2012.

    Args:
        x: Any samples, their channels on axis 1.
        size: Over how many channels; beyond the first and the last there are zeros.
        alpha: The weight of the mean.
        beta: The power.
        k: What is added.
        tape: The tape to record on.

    Raises:
        ShapeError: for what has no channels. SettingError: for a size below 1.

    >>> local_response_norm(np.array([[3.0, 4.0]]), size=1, alpha=1.0, beta=0.5, k=0.0)
    array([[1., 1.]])
    """
    who = "local_response_norm"
    size = whole(who, "size", size, 1)
    alpha, beta, k = (number(who, n, v) for n, v in (("alpha", alpha), ("beta", beta), ("k", k)))
    x = _array(who, "x", x)
    ndim = len(shape_of(x))
    if ndim < 2:
        raise ShapeError(f"{who}: x has shape {shape_of(x)}; wanted is (samples, channels, ...)")
    if x.dtype == np.float16:  # whose squares end at 65,504
        options = {"size": size, "alpha": alpha, "beta": beta, "k": k, "tape": tape}
        found = local_response_norm(astype(x, np.float32, tape=tape), **options)
        return astype(found, np.float16, tape=tape)
    squares = moveaxis(square(x, tape=tape), 1, -1, tape=tape)
    widths = [(0, 0)] * (ndim - 1) + [(size // 2, (size - 1) // 2)]
    padded = pad(squares, widths, tape=tape)
    mean = moveaxis(avg_pool1d(padded, window=size, stride=1, tape=tape), -1, 1, tape=tape)
    return div(x, power(add(mul(mean, alpha, tape=tape), k, tape=tape), beta, tape=tape), tape=tape)


publish(globals())

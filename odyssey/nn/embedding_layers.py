"""Embedding: rows of a matrix by index, and bags of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from odyssey.checks import check_choice, check_int
from odyssey.errors import DTypeError, OutOfRangeError, SettingError, ShapeError
from odyssey.kernels.scatter import scatter_add_slices
from odyssey.ops.elementwise.arithmetic import add
from odyssey.ops.elementwise.choice import (
    equal,
    greater_equal,
    keep_where,
    less,
    logical_and,
    not_equal,
    where,
)
from odyssey.ops.reductions.reduce import max, mean, sum
from odyssey.ops.structure.batching import example_specs, spread
from odyssey.ops.structure.scatter import scatter_add_rows, set_shape
from odyssey.ops.structure.shape import astype, expand_dims, moveaxis, reshape
from odyssey.spec import Array, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import Kernel, composite, op, publish
from odyssey.table.samples import reject, sample

# ------------------------------------------------------------------ shapes and options


def _embedding_options(padding_index: Any, *rest: Any) -> tuple[Any, ...]:
    if padding_index is not None:
        padding_index = check_int("embedding", "padding_index", padding_index)
    return (padding_index, *rest)


def _padding_row(padding_index: int | None, rows: int) -> int | None:
    """Return the index of the padding row, counted from the first."""
    if padding_index is None:
        return None
    if not -rows <= padding_index < rows:
        raise SettingError(f"embedding: padding_index={padding_index}; weight has {rows} rows")
    return padding_index % rows


def _check_indices(indices: Any) -> None:
    dtype = indices.dtype if hasattr(indices, "dtype") else np.result_type(indices)
    if dtype.kind not in "iu":
        raise DTypeError(f"embedding: indices are of {dtype}; pass integers")


def _infer_embedding(indices: Any, weight: Spec, padding_index: int | None) -> Spec:
    _check_indices(indices)
    shape: Any = getattr(weight, "shape", ())
    if len(shape) != 2:
        raise ShapeError(f"embedding: weight has shape {shape}; wanted is (rows, dim)")
    _padding_row(padding_index, shape[0])
    return Spec((*getattr(indices, "shape", ()), shape[1]), weight.dtype)


def _infer_embedding_pullback(
    cotangent: Spec, indices: Any, padding_index: int | None, spec: Spec
) -> Spec:
    _check_indices(indices)
    _check_cotangent(cotangent, indices, spec)
    return Spec(spec.shape, cotangent.dtype)


def _check_cotangent(cotangent: Any, indices: Any, spec: Spec) -> None:
    wanted = (*getattr(indices, "shape", ()), spec.shape[1])
    if getattr(cotangent, "shape", ()) != wanted:
        raise ShapeError(
            f"embedding_pullback: cotangent has shape {cotangent.shape}; wanted is {wanted}"
        )


def _row_indices(indices: Any, rows: int) -> Array:
    """Return the indices of rows on one axis; raise if one is out of range."""
    _check_indices(indices)
    places = np.asarray(indices).reshape(-1)
    if places.size:
        low, high = int(places.min()), int(places.max())
        if low < 0 or high >= rows:
            raise IndexError(f"index {low if low < 0 else high} is out of range for {rows} rows")
    return places.astype(np.intp, copy=False)


# ------------------------------------------------------------------ rules


def _tangent_rows(t: Any, indices: Any, padding_index: int | None) -> Any:
    """Return the rows of a tangent, with zeros for the padding row, which is a constant."""
    found = embedding(indices, t)
    if padding_index is None:
        return found
    row = padding_index % t.shape[0]
    return keep_where(found, expand_dims(not_equal(indices, row), -1))


def _rows_of_examples(indices: Any, rows: int) -> Any:
    """Return mapped indices as rows of the matrices of all examples, one below the other.

    An index out of range becomes -1, which is out of range there, too.
    """
    size = indices.shape[0]
    starts = (np.arange(size) * rows).reshape((-1,) + (1,) * (len(indices.shape) - 1))
    indices = astype(indices, np.intp)
    inside = logical_and(greater_equal(indices, 0), less(indices, rows))
    return where(inside, add(indices, starts), -1)


def _embedding_batch(batch: Batch, indices: Any, weight: Any, padding_index: int | None) -> Any:
    _infer_embedding(*example_specs(batch, [indices, weight], padding_index))
    if not batch.mapped[1]:
        return embedding(indices, weight, padding_index=padding_index)
    size, rows, dim = weight.shape
    if batch.mapped[0] and padding_index is None:
        places = _rows_of_examples(indices, rows)
        return embedding(places, reshape(weight, (size * rows, dim)))
    if batch.mapped[0]:  # a read of all rows makes the padding row of each example a constant
        shared = Batch(size, (False, True))
        weight = _embedding_batch(shared, np.arange(rows), weight, padding_index)
        return embedding(_rows_of_examples(indices, rows), reshape(weight, (size * rows, dim)))
    wide = reshape(moveaxis(weight, 0, 1), (rows, size * dim))
    out = embedding(indices, wide, padding_index=padding_index)
    return moveaxis(reshape(out, (*out.shape[:-1], size, dim)), -2, 0)


def _embedding_pullback_batch(
    batch: Batch, cotangent: Any, indices: Any, padding_index: int | None, spec: Spec
) -> Any:
    _infer_embedding_pullback(*example_specs(batch, [cotangent, indices], padding_index, spec))
    rows, dim = spec.shape
    size = batch.size
    if batch.mapped[1]:
        cotangent = spread(batch, 0, cotangent)
        padding = _padding_row(padding_index, rows) if size else None
        tall = Spec((size * rows, dim), spec.dtype)
        places = _rows_of_examples(indices, rows)
        if padding is not None:  # all padding goes to the padding row of the first example
            places = where(equal(indices, padding), padding, places)
        out = embedding_pullback(cotangent, places, padding_index=padding, spec=tall)
        return reshape(out, (size, rows, dim))
    cotangent = moveaxis(cotangent, 0, -2)
    wide = Spec((rows, size * dim), spec.dtype)
    out = embedding_pullback(
        reshape(cotangent, (*cotangent.shape[:-2], size * dim)),
        indices,
        padding_index=padding_index,
        spec=wide,
    )
    return moveaxis(reshape(out, (rows, size, dim)), 1, 0)


# ------------------------------------------------------------------ kernels


def _scatter_rows(
    g: Any, indices: Any, padding_index: int | None, spec: Spec, add_rows: Any = scatter_add_rows
) -> Array:
    _check_cotangent(g, indices, spec)
    rows, dim = spec.shape
    places = _row_indices(indices, rows)
    x = np.asarray(g).reshape(len(places), dim)
    out: Array = add_rows(x, places, rows)
    padding = _padding_row(padding_index, rows)
    if padding is not None:
        out[padding] = 0
    return out.astype(x.dtype, copy=False)


def _scatter_rows_in_loops(g: Any, indices: Any, padding_index: int | None, spec: Spec) -> Array:
    def add_rows(x: Array, places: Array, rows: int) -> Array:
        dim = x.shape[1]
        return set_shape(scatter_add_slices(x, places, 1, rows, dim), (rows, dim))

    return _scatter_rows(g, indices, padding_index, spec, add_rows)


def _fits_loop(g: Spec, indices: Any, padding_index: int | None, spec: Spec) -> bool:
    # Rows of 8 numbers take 1.2 of NumPy's time, rows of 16 and more 0.3 to 0.7.
    return g.dtype.char in "fd" and spec.shape[1] >= 16 and hasattr(indices, "dtype")


def _scatter_rows_on_cuda(g: Any, indices: Any, padding_index: int | None, spec: Spec) -> Any:
    from odyssey.kernels.cuda_scatter import cuda_scatter_add

    _check_cotangent(g, indices, spec)
    _check_indices(indices)
    rows, dim = spec.shape
    padding = _padding_row(padding_index, rows)
    x = g.reshape(1, indices.size, dim)
    skipped = -1 if padding is None else padding
    return cuda_scatter_add(x, indices, (1, rows, dim), skipped, lowest=0).reshape(rows, dim)


def _fits_cuda_rows(g: Spec, indices: Any, *options: Any) -> bool:
    return g.dtype.char in "efd" and hasattr(indices, "dtype")


# ------------------------------------------------------------------ lowering


def _row_positions(build: Any, indices: Any, spec: Any) -> list[Any]:
    rows = reshape(build.normalize_index(indices, spec.shape[0], "front"), (*np.shape(indices), 1))
    return [rows, build.index((*np.shape(indices), spec.shape[1]), np.ndim(indices))]


def _lower_embedding(build: Any, indices: Any, weight: Any, padding_index: int | None) -> Any:
    return build.gather(weight, _row_positions(build, indices, weight))


def _lower_pullback(
    build: Any, cotangent: Any, indices: Any, padding_index: int | None, spec: Spec
) -> Any:
    padding = _padding_row(padding_index, spec.shape[0])
    if padding is not None:
        cotangent = keep_where(cotangent, expand_dims(not_equal(indices, padding), -1))
    zeros, places = build.full(spec.shape, cotangent.dtype), _row_positions(build, indices, spec)
    return build.scatter("sum", zeros, cotangent, places)


# ------------------------------------------------------------------ ops

_ROWS = np.array([[3, 0], [0, 1]])
_SPEC = Spec((4, 3), np.dtype(np.float64))
_LONG = Spec((4, 17), np.dtype(np.float64))


@op(
    primitive="gather",
    lowering=_lower_embedding,
    rearranges=True,
    prepare=_embedding_options,
    canonical=lambda indices, weight, padding: (_padding_row(padding, weight.shape[0]),),
    infer=_infer_embedding,
    vjp={
        "weight": lambda g, indices, weight_spec, padding_index: embedding_pullback(
            g, indices, padding_index=padding_index, spec=weight_spec
        )
    },
    jvp={"weight": lambda t, indices, padding_index: _tangent_rows(t, indices, padding_index)},
    vmap=_embedding_batch,
    samples=[
        sample(_ROWS, (4, 3)),
        sample(np.array([3, 3, 1]), (4, 2), padding_index=2),
        sample(np.array(2, np.uint8), (4, 3), padding_index=-1),
        sample(np.zeros((2, 0), int), (4, 3)),
        sample(_ROWS, (4, 0)),
    ],
    rejects=[
        reject(np.array([4]), (4, 3), error=OutOfRangeError, match="index 4 is out of range for 4"),
        reject(np.array([-1]), (4, 3), error=OutOfRangeError, match="index -1 is out of range"),
        reject(np.array([0.5]), (4, 3), error=DTypeError, match="pass integers"),
        reject(np.array([True]), (4, 3), error=DTypeError, match="pass integers"),
        reject(np.array([0]), (4,), match=r"wanted is \(rows, dim\)"),
        reject(_ROWS, (4, 3), padding_index=4, error=SettingError, match="padding_index=4"),
        reject(_ROWS, (4, 3), padding_index=0.5, error=DTypeError, match="not a whole number"),
    ],
)
def embedding(indices: Any, weight: Any, /, *, padding_index: int | None = None) -> Any:
    """The rows of ``weight`` that ``indices`` name.

    Args:
        indices: Whole numbers of any shape, from 0 to rows - 1.
        weight: A matrix, (rows, dim).
        padding_index: The number of a row that is a constant: nothing of its gradient is counted.

    Returns:
        An array of the shape of ``indices``, and ``dim``.

    Raises:
        OutOfRangeError: for a row that is not there. Negative numbers do not count from the end.

    >>> embedding(np.array([2, 0]), np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    array([[4., 5.],
           [0., 1.]])
    """
    weight = np.asarray(weight)
    _infer_embedding(indices, weight, padding_index)
    places = _row_indices(indices, weight.shape[0])
    return weight.take(places, 0).reshape(*np.shape(indices), weight.shape[1])


@op(
    primitive="scatter",
    lowering=_lower_pullback,
    rearranges=True,
    prepare=_embedding_options,
    canonical=lambda g, indices, padding, spec: (_padding_row(padding, spec.shape[0]), spec),
    infer=_infer_embedding_pullback,
    kernel=_scatter_rows,
    kernels=[
        Kernel("rows added in order", _scatter_rows_in_loops, when=_fits_loop),
        Kernel("rows added in order of index", _scatter_rows_on_cuda, "cuda", when=_fits_cuda_rows),
    ],
    vjp={
        "cotangent": lambda g, indices, padding_index: _tangent_rows(g, indices, padding_index),
    },
    jvp={
        "cotangent": lambda t, indices, padding_index, spec: embedding_pullback(
            t, indices, padding_index=padding_index, spec=spec
        )
    },
    vmap=_embedding_pullback_batch,
    samples=[
        sample((3, 17), np.array([0, 2, 0]), spec=_LONG),
        sample((2, 2, 17), _ROWS, padding_index=0, spec=_LONG),
        sample((2, 2, 3), _ROWS, spec=_SPEC),
        sample((3, 3), np.array([0, 0, 3]), padding_index=0, spec=_SPEC),
        sample((0, 3), np.zeros(0, int), padding_index=-1, spec=_SPEC),
    ],
    rejects=[
        reject((2, 3), np.array([0, 4]), spec=_SPEC, error=OutOfRangeError, match="out of range"),
        reject((2, 3), np.array([0]), spec=_SPEC, match=r"wanted is \(1, 3\)"),
    ],
)
def embedding_pullback(
    cotangent: Any, indices: Any, /, *, padding_index: int | None = None, spec: Spec
) -> Any:
    """A cotangent of ``embedding``, added up in rows of a matrix like ``spec``, in its order."""
    _check_cotangent(cotangent, indices, spec)
    cotangent, out = np.asarray(cotangent), np.zeros(spec.shape, np.asarray(cotangent).dtype)
    padding = _padding_row(padding_index, spec.shape[0])
    places = _row_indices(indices, spec.shape[0])
    for place, row in zip(places, cotangent.reshape(len(places), spec.shape[1]), strict=True):
        if place != padding:
            out[place] += row
    return out


@composite(
    samples=[
        sample(_ROWS, (4, 3)),
        sample(_ROWS, (4, 3), mode="sum"),
        sample(np.array([[3, 0, 1]]), (4, 2), mode="max"),
    ],
    rejects=[
        reject(np.array([0, 1]), (4, 3), match=r"wanted is \(bags, length\)"),
        reject(_ROWS, (4, 3), mode="least", error=SettingError, match="mode='least'"),
        reject(_ROWS, (2, 3), error=OutOfRangeError, match="index 3 is out of range for 2"),
    ],
)
def embedding_bag(indices: Any, weight: Any, *, mode: str = "mean") -> Any:
    """The mean, the sum or the largest, by element, of the rows that each bag of indices names.

    Args:
        indices: Whole numbers, (bags, length).
        weight: A matrix, (rows, dim).
        mode: ``"mean"``, ``"sum"`` or ``"max"``.

    Returns:
        An array of shape (bags, dim).

    >>> embedding_bag(np.array([[0, 2]]), np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]))
    array([[2., 3.]])
    """
    fold: Any = {"mean": mean, "sum": sum, "max": max}[
        check_choice("embedding_bag", "mode", mode, ("mean", "sum", "max"))
    ]
    if np.ndim(indices) != 2:
        raise ShapeError(
            f"embedding_bag: indices have shape {np.shape(indices)}; wanted is (bags, length)"
        )
    return fold(embedding(indices, weight), 1)


publish(globals())

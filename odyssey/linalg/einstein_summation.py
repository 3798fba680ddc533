"""Einstein summation (einsum): products of arrays summed over labeled axes.

The pairwise contraction is a row whose derivatives are contractions again. Diagonals and sums of a
single operand are taken first, before any product.
"""

from __future__ import annotations

import math
import string
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.devices.arrays import as_array
from odyssey.devices.half_dtypes import is_inexact, result_type
from odyssey.errors import ShapeError
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.diagonals import diagonal
from odyssey.ops.structure.shape import astype, reshape, shape_of, transpose
from odyssey.spec import Shape, Spec
from odyssey.table.batch import Batch
from odyssey.table.declare import OPS, composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.value import Symbol, Value

# ------------------------------------------------------------------ pairwise contraction


@lru_cache(maxsize=512)
def _contraction_plan(subscripts: str) -> Any:
    """Return the parsed plan of a pairwise contraction."""
    from odyssey.linalg.einsum_subscripts import parse_contraction  # loaded when first needed

    return parse_contraction(subscripts)


def _contract_spec(x: Spec, y: Spec, subscripts: str) -> Spec:
    *terms, out = _contraction_plan(subscripts).terms
    shapes: list[Shape] = [getattr(spec, "shape", ()) for spec in (x, y)]
    lengths: dict[str, int] = {}
    for name, term, shape in zip("xy", terms, shapes, strict=True):
        if len(term) != len(shape):
            raise ShapeError(
                f"contract: {name} has shape {shape}, but {len(term)} axes in {subscripts!r}"
            )
        for letter, n in zip(term, shape, strict=True):
            if lengths.setdefault(letter, n) != n:
                raise ShapeError(
                    f"contract: {subscripts!r} of x {shapes[0]} and y {shapes[1]}: "
                    f"the axes {letter!r} differ in length"
                )
    return Spec(tuple(lengths[c] for c in out), result_type(x.dtype, y.dtype))


def _canonical_letters(x: Any, y: Any, subscripts: str) -> tuple[str]:
    """Relabel the axes alphabetically in order of appearance."""
    names: dict[str, str] = {}
    alphabet = iter(string.ascii_letters)
    for letter in filter(str.isalpha, subscripts):
        if letter not in names:
            names[letter] = next(alphabet)
    return ("".join(names.get(c, c) for c in subscripts),)


def _batch_contract(batch: Batch, x: Any, y: Any, subscripts: str) -> Any:
    """Label the axis of the examples by a letter of its own."""
    terms = _contraction_plan(subscripts).terms
    for k, operand in enumerate((x, y)):  # the letters must be those of one example
        if batch.ndim(k, operand) != len(terms[k]):
            raise ShapeError(f"contract: an operand does not have the axes of {subscripts!r}")
    letter = next(c for c in string.ascii_letters if c not in subscripts)
    left, right = ((letter if m else "") + t for m, t in zip(batch.mapped, terms, strict=False))
    return contract(x, y, f"{left},{right}->{letter}{terms[2]}")


def _contract_arrays(x: Any, y: Any, subscripts: str) -> Any:
    product = _contraction_plan(subscripts)
    lengths, others = x.shape, y.shape
    fits = len(lengths) == len(product.terms[0]) and len(others) == len(product.terms[1])
    for i, j in product.shared_axes if fits else ():
        fits = fits and lengths[i] == others[j]
    if not fits:
        _contract_spec(x, y, subscripts)  # raises
    first, second, last = product.permutations
    a = x if first is None else x.transpose(first)
    b = y if second is None else y.transpose(second)
    if product.is_matmul:
        out = a.dot(b) if a.size <= 65536 else np.matmul(a, b)  # see the kernel of matmul
    else:
        out = _batched_matmul(a, b, *product.letter_counts)
    return out if last is None else out.transpose(last)


def _batched_matmul(a: Any, b: Any, batch: int, left: int, summed: int) -> Any:
    """Contract axes (batch, left, summed) with (batch, summed, right) by ``matmul``."""
    heads, rows, inner = a.shape[:batch], a.shape[batch : batch + left], a.shape[batch + left :]
    columns = b.shape[batch + summed :]
    if not summed:
        broadcast_a = a.reshape((*heads, *rows, *(1,) * len(columns)))
        return broadcast_a * b.reshape((*heads, *(1,) * left, *columns))
    n, m, k, p = map(math.prod, (heads, rows, inner, columns))
    if batch:
        out = np.matmul(a.reshape(n, m, k), b.reshape(n, k, p))
    else:
        out = np.matmul(a.reshape(m, k), b.reshape(k, p))
    return out.reshape((*heads, *rows, *columns))[()]


def _lower_contract(build: Any, x: Any, y: Any, subscripts: str) -> Any:
    dtype = result_type(x.dtype, y.dtype)
    product = _contraction_plan(subscripts)
    first, second, last = product.permutations
    a, b = build.cast(x, dtype), build.cast(y, dtype)
    a = a if first is None else build.transpose(a, first)
    b = b if second is None else build.transpose(b, second)
    if product.is_matmul:
        batch, left, summed = 0, a.ndim - 1, 1
    else:
        batch, left, summed = product.letter_counts
    heads, rows, inner = a.shape[:batch], a.shape[batch : batch + left], a.shape[batch + left :]
    columns = b.shape[batch + summed :]
    if not summed or not is_inexact(dtype):
        broadcast_a = build.reshape(a, (*heads, *rows, *inner, *(1,) * len(columns)))
        products = mul(broadcast_a, build.reshape(b, (*heads, *(1,) * left, *inner, *columns)))
        summed_axes = range(batch + left, batch + left + summed)
        out = build.reduce("sum", products, summed_axes) if summed else products
    else:
        n, m, k, p = map(math.prod, (heads, rows, inner, columns))
        batch_axis = (n,) if batch else ()
        flat_out = build.matmul(
            build.reshape(a, (*batch_axis, m, k)), build.reshape(b, (*batch_axis, k, p))
        )
        out = build.reshape(flat_out, (*heads, *rows, *columns))
    return out if last is None else build.transpose(out, last)


def _x_cotangent_subscripts(subscripts: str) -> str:
    """Subscripts of the contraction of ``g`` and ``y`` that gives the cotangent of ``x``."""
    x, y, out = _contraction_plan(subscripts).terms
    return f"{out},{y}->{x}"


def _y_cotangent_subscripts(subscripts: str) -> str:
    """Subscripts of the contraction of ``x`` and ``g`` that gives the cotangent of ``y``."""
    x, y, out = _contraction_plan(subscripts).terms
    return f"{x},{out}->{y}"


@op(
    canonical=_canonical_letters,
    primitive="product",
    lowering=_lower_contract,
    vmap=_batch_contract,
    infer=_contract_spec,
    vjp={
        "x": lambda g, y, subscripts: contract(g, y, _x_cotangent_subscripts(subscripts)),
        "y": lambda g, x, subscripts: contract(x, g, _y_cotangent_subscripts(subscripts)),
    },
    jvp={
        "x": lambda t, y, subscripts: contract(t, y, subscripts),
        "y": lambda t, x, subscripts: contract(x, t, subscripts),
    },
    samples=[
        sample((2, 3), (3, 4), subscripts="ab,bc->ac"),
        sample((3, 2), (4, 3), subscripts="ab,ca->cb"),
        sample((3,), (3,), subscripts="a,a->"),
        sample((2,), (3,), subscripts="a,b->ba"),
        sample((2, 3), (3, 2), subscripts="ab,ba->ba"),
        sample((2, 3, 4), (4, 2, 5), subscripts="abc,cad->bda"),
        sample((2, 3, 4), (3, 2), subscripts="abc,ba->c"),
        sample((2, 3), (4, 3, 2), subscripts="ab,cba->bc"),
        sample((), (2, 3), subscripts=",ab->ba"),
        sample((), (), subscripts=",->"),
        sample((2, 0), (0, 3), subscripts="ab,bc->ac"),
        sample((0, 2), (0, 2), subscripts="ab,ab->a"),
    ],
    rejects=[
        reject((2, 3), (4, 5), subscripts="ab,bc->ac", match="'b' differ in length"),
        reject((2, 3), (3,), subscripts="ab,bc->ac", match=r"y has shape \(3,\), but 2 axes"),
        reject((2, 3), (3,), subscripts="ab,b->", match="in two terms"),
        reject((2, 2), (2,), subscripts="aa,a->a", match="once in a term"),
        reject((2,), (2,), subscripts="a,a", match="write 'ab,bc->ac'"),
    ],
    precision="low",
)
def contract(x: Any, y: Any, /, subscripts: str) -> Any:
    """Contraction of two arrays: products summed over the axes missing from the result."""
    return _contract_arrays(x, y, subscripts)


# ------------------------------------------------------------------ any number of operands


def _promote_operands(operands: list[Any]) -> list[Any]:
    """Cast operands to the common dtype; Python numbers are not weak here, as in NumPy."""
    arrays = [
        x if isinstance(x, (Value, Symbol)) else as_array("einsum", "an operand", x)
        for x in operands
    ]
    dtype = result_type(*[x.dtype for x in arrays])
    return [x if x.dtype == dtype else astype(x, dtype) for x in arrays]


def _reduce_operand(x: Any, steps: Any) -> Any:
    """Take the diagonals and sums that involve one operand only."""
    if steps.shape is not None:
        x = reshape(x, steps.shape)
    for i, j in steps.diagonals:
        x = diagonal(x, 0, i, j)
    if not steps.sums:
        return x
    total = sum(x, steps.sums)
    # Sums of small integers are promoted to a wider dtype.
    return total if total.dtype == x.dtype else astype(total, x.dtype)


@composite(
    numpy=[np.einsum],
    samples=[
        sample("ij,jk->ik", (2, 3), (3, 4)),
        sample("...ij,jk", (2, 1, 2), (2, 3)),
        sample("ii->i", (3, 3)),
        sample("iij,ij->", (2, 2, 3), (2, 3)),
        sample("i,ij,j", (2,), (2, 3), (3,)),
        sample(",", (), ()),
        sample("ij->ji", (0, 3)),
    ],
    rejects=[reject("ij,jk", (2, 3), (4, 2), match="j")],
)
def einsum(subscripts: Any, /, *operands: Any, optimize: Any = "greedy") -> Any:
    """Einstein summation: products of arrays summed over the axes missing from the result.

    Letters label the axes. A letter repeated within an operand takes its diagonal, ``...`` stands
    for all unlabeled axes, and axes of length 1 broadcast.

    Args:
        subscripts: The axes of each operand and, after ``->``, of the result, as in
            ``"ij,jk->ik"``; without ``->`` the letters that occur once, in alphabetical order.
        operands: The arrays. Alternatively, each array is followed by a list of integers that
            label its axes, with the list of the result last: ``einsum(a, [0, 1], b, [1, 2])``.
        optimize: Contraction order, as for ``np.einsum_path``: ``"greedy"``, ``"optimal"``, or a
            path that it returned; False for left to right.

    Returns:
        A new array of the common dtype, or a view for a pure transpose.

    Raises:
        ShapeError: if the subscripts do not fit the operands.

    >>> a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 1.0])
    >>> einsum("ij,j->i", a, b), float(einsum("ii", a))
    (array([12., 34.]), 5.0)
    """
    # Loaded when first needed.
    from odyssey.linalg.einsum_subscripts import plan_einsum, subscripts_as_text

    text, arrays_in = subscripts_as_text(subscripts, operands)
    if not arrays_in or not operands:
        raise ShapeError("einsum: no operands came; pass subscripts and one array or more")
    arrays = _promote_operands(arrays_in)
    plan = plan_einsum(text, tuple(map(shape_of, arrays)), optimize)
    if plan.products and all(type(x) is np.ndarray for x in arrays):
        return _einsum_arrays(arrays, plan)
    arrays = [_reduce_operand(x, steps) for x, steps in zip(arrays, plan.operands, strict=True)]
    for i, j, product in plan.products:
        y, x = arrays.pop(j), arrays.pop(i)
        arrays.append(contract(x, y, product))
    return arrays[0] if plan.products else transpose(arrays[0], plan.order)


def _einsum_arrays(arrays: list[Any], plan: Any) -> Any:
    """Evaluate an einsum plan on plain arrays; calling ops would dominate small products."""
    reduced = []
    for x, steps in zip(arrays, plan.operands, strict=True):
        x = x if steps.shape is None else x.reshape(steps.shape)
        for i, j in steps.diagonals:
            x = x.diagonal(0, i, j)
        reduced.append(np.add.reduce(x, steps.sums, x.dtype) if steps.sums else x)
    kernel = OPS["contract"].kernel
    for i, j, product in plan.products:
        y, x = reduced.pop(j), reduced.pop(i)
        reduced.append(kernel(x, y, product))
    return reduced[0]


publish(globals())

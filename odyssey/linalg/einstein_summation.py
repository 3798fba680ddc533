"""Einstein's sums: products of any number of arrays, summed over the axes that letters name.

The product of two is a row, whose derivatives are such products again. What else there is to do
to an operand, its diagonals and sums, is done to it alone and first.
"""

from __future__ import annotations

import math
import string
from functools import lru_cache
from typing import Any

import numpy as np

from odyssey.devices.arrays import as_array
from odyssey.errors import ShapeError
from odyssey.ops.elementwise.arithmetic import mul
from odyssey.ops.reductions.reduce import sum
from odyssey.ops.structure.diagonals import diagonal
from odyssey.ops.structure.shape import astype, reshape, shape_of, transpose
from odyssey.spec import Shape, Spec
from odyssey.table.declare import OPS, composite, op, publish
from odyssey.table.samples import reject, sample
from odyssey.table.value import Symbol, Value

# ------------------------------------------------------------------ two operands


@lru_cache(maxsize=512)
def _product(subscripts: str) -> Any:
    """How to make this product; see ``subscripts.Product``."""
    from odyssey.linalg.einsum_subscripts import product_of  # not needed by every program

    return product_of(subscripts)


def _contract_spec(x: Spec, y: Spec, subscripts: str) -> Spec:
    *terms, out = _product(subscripts).terms
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
    return Spec(tuple(lengths[c] for c in out), np.result_type(x.dtype, y.dtype))


def _spelled_letters(x: Any, y: Any, subscripts: str) -> tuple[str]:
    """Letters in the order of the alphabet, as axes come."""
    names: dict[str, str] = {}
    alphabet = iter(string.ascii_letters)
    for letter in filter(str.isalpha, subscripts):
        if letter not in names:
            names[letter] = next(alphabet)
    return ("".join(names.get(c, c) for c in subscripts),)


def _contract(x: Any, y: Any, subscripts: str) -> Any:
    product = _product(subscripts)
    lengths, others = x.shape, y.shape
    fits = len(lengths) == len(product.terms[0]) and len(others) == len(product.terms[1])
    for i, j in product.shared if fits else ():
        fits = fits and lengths[i] == others[j]
    if not fits:
        _contract_spec(x, y, subscripts)  # raises
    first, second, last = product.orders
    a = x if first is None else x.transpose(first)
    b = y if second is None else y.transpose(second)
    if product.plain:
        out = a.dot(b) if a.size <= 65536 else np.matmul(a, b)  # see the kernel of matmul
    else:
        out = _by_matrices(a, b, *product.counts)
    return out if last is None else out.transpose(last)


def _by_matrices(a: Any, b: Any, batch: int, left: int, summed: int) -> Any:
    """The product of axes (batch, left, summed) with (batch, summed, right)."""
    heads, rows, inner = a.shape[:batch], a.shape[batch : batch + left], a.shape[batch + left :]
    columns = b.shape[batch + summed :]
    if not summed:
        tall = a.reshape((*heads, *rows, *(1,) * len(columns)))
        return tall * b.reshape((*heads, *(1,) * left, *columns))
    n, m, k, p = map(math.prod, (heads, rows, inner, columns))
    if batch:
        out = np.matmul(a.reshape(n, m, k), b.reshape(n, k, p))
    else:
        out = np.matmul(a.reshape(m, k), b.reshape(k, p))
    return out.reshape((*heads, *rows, *columns))[()]


def _contracted_natively(build: Any, x: Any, y: Any, subscripts: str) -> Any:
    dtype = np.result_type(x.dtype, y.dtype)
    product = _product(subscripts)
    first, second, last = product.orders
    a, b = build.cast(x, dtype), build.cast(y, dtype)
    a = a if first is None else build.transpose(a, first)
    b = b if second is None else build.transpose(b, second)
    if product.plain:
        batch, left, summed = 0, a.ndim - 1, 1
    else:
        batch, left, summed = product.counts
    heads, rows, inner = a.shape[:batch], a.shape[batch : batch + left], a.shape[batch + left :]
    columns = b.shape[batch + summed :]
    if not summed or dtype.kind not in "fc":
        tall = build.reshape(a, (*heads, *rows, *inner, *(1,) * len(columns)))
        wide = mul(tall, build.reshape(b, (*heads, *(1,) * left, *inner, *columns)))
        folded = range(batch + left, batch + left + summed)
        out = build.fold("sum", wide, folded) if summed else wide
    else:
        n, m, k, p = map(math.prod, (heads, rows, inner, columns))
        whole = (n,) if batch else ()
        found = build.product(build.reshape(a, (*whole, m, k)), build.reshape(b, (*whole, k, p)))
        out = build.reshape(found, (*heads, *rows, *columns))
    return out if last is None else build.transpose(out, last)


def _for_x(subscripts: str) -> str:
    """The contraction of the cotangent with ``y`` that is the cotangent of ``x``."""
    x, y, out = _product(subscripts).terms
    return f"{out},{y}->{x}"


def _for_y(subscripts: str) -> str:
    x, y, out = _product(subscripts).terms
    return f"{x},{out}->{y}"


@op(
    canonical=_spelled_letters,
    primitive="product",
    lowering=_contracted_natively,
    infer=_contract_spec,
    vjp={
        "x": lambda g, y, subscripts: contract(g, y, _for_x(subscripts)),
        "y": lambda g, x, subscripts: contract(x, g, _for_y(subscripts)),
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
)
def contract(x: Any, y: Any, /, subscripts: str) -> Any:
    """Products summed over axes of both that the result lacks; letters name the axes."""
    return _contract(x, y, subscripts)


# ------------------------------------------------------------------ any number of operands


def _in_one_dtype(operands: list[Any], tape: Any) -> list[Any]:
    """Operands in the dtype of the result, to which numbers count as arrays, as in NumPy."""
    arrays = [
        x if isinstance(x, (Value, Symbol)) else as_array("einsum", "an operand", x)
        for x in operands
    ]
    dtype = np.result_type(*[x.dtype for x in arrays])
    return [x if x.dtype == dtype else astype(x, dtype, tape=tape) for x in arrays]


def _alone(x: Any, steps: Any, tape: Any) -> Any:
    if steps.shape is not None:
        x = reshape(x, steps.shape, tape=tape)
    for i, j in steps.diagonals:
        x = diagonal(x, 0, i, j, tape=tape)
    if not steps.sums:
        return x
    total = sum(x, steps.sums, tape=tape)
    # Sums of small integers have more bits than their elements.
    return total if total.dtype == x.dtype else astype(total, x.dtype, tape=tape)


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
def einsum(subscripts: Any, /, *operands: Any, optimize: Any = "greedy", tape: Any = None) -> Any:
    """Products of arrays summed over the axes that the result lacks; letters name the axes.

    A letter that an operand has twice is its diagonal, ``...`` stands for all axes that have no
    letter, and axes of length 1 broadcast.

    Args:
        subscripts: The axes of each operand, and behind ``->`` those of the result, as in
            ``"ij,jk->ik"``; without ``->`` the letters that stand once, in alphabetical order.
        operands: The arrays. Also, each may come with a list of numbers behind it that stand for
            its axes, and the list of the result at the end: ``einsum(a, [0, 1], b, [1, 2])``.
        optimize: In which order pairs are multiplied, as ``np.einsum_path`` takes it or found it:
            ``"greedy"``, ``"optimal"``, or a path; False for the order in which they came.
        tape: The tape to record on.

    Returns:
        An array of the common dtype; a new one, but for a mere transpose.

    Raises:
        ShapeError: where the subscripts do not fit the operands.

    >>> a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([10.0, 1.0])
    >>> einsum("ij,j->i", a, b), float(einsum("ii", a))
    (array([12., 34.]), 5.0)
    """
    from odyssey.linalg.einsum_subscripts import as_text, program_of  # see above

    text, given = as_text(subscripts, operands)
    if not given or not operands:
        raise ShapeError("einsum: no operands came; pass subscripts and one array or more")
    arrays = _in_one_dtype(given, tape)
    program = program_of(text, tuple(map(shape_of, arrays)), optimize)
    if program.products and tape is None and all(type(x) is np.ndarray for x in arrays):
        return _on_arrays(arrays, program)
    arrays = [_alone(x, steps, tape) for x, steps in zip(arrays, program.operands, strict=True)]
    for i, j, product in program.products:
        y, x = arrays.pop(j), arrays.pop(i)
        arrays.append(contract(x, y, product, tape=tape))
    return arrays[0] if program.products else transpose(arrays[0], program.order, tape=tape)


def _on_arrays(arrays: list[Any], program: Any) -> Any:
    """The same without ops, of which small products have several times their own cost."""
    found = []
    for x, steps in zip(arrays, program.operands, strict=True):
        x = x if steps.shape is None else x.reshape(steps.shape)
        for i, j in steps.diagonals:
            x = x.diagonal(0, i, j)
        found.append(np.add.reduce(x, steps.sums, x.dtype) if steps.sums else x)
    kernel = OPS["contract"].kernel
    for i, j, product in program.products:
        y, x = found.pop(j), found.pop(i)
        found.append(kernel(x, y, product))
    return found[0]


publish(globals())

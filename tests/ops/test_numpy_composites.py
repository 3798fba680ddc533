"""Functions that are made of ops: NumPy's values by either name, and derivatives of two orders."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, OdysseyError, OutOfRangeError, ShapeError
from odyssey.spec import spec_of
from support.cases import Graph, assert_close, assert_same
from support.together import together

# The shapes of the operands, and the call: the same for NumPy's function as for ours.
CASES = {
    "append": ([(2, 3), (2,)], lambda m, x, y: m.append(x, y)),
    "append, axis": ([(2, 3), (1, 3)], lambda m, x, y: m.append(x, y, axis=-2)),
    "append, by position": ([(2, 0), (2, 3)], lambda m, x, y: m.append(x, y, 1)),
    "append, numbers": ([(), ()], lambda m, x, y: m.append(x, y)),
    "append, twice the same": ([(2,)], lambda m, x: m.append(x, x)),
    "atleast_1d": ([()], lambda m, x: m.atleast_1d(x)),
    "atleast_1d, as it is": ([(2, 0)], lambda m, x: m.atleast_1d(x)),
    "atleast_1d, several": ([(), (2,)], lambda m, x, y: m.atleast_1d(x, y)),
    "atleast_2d": ([()], lambda m, x: m.atleast_2d(x)),
    "atleast_2d, vector": ([(3,)], lambda m, x: m.atleast_2d(x)),
    "atleast_2d, several": ([(), (2,), (2, 1, 2)], lambda m, *v: m.atleast_2d(*v)),
    "atleast_3d": ([()], lambda m, x: m.atleast_3d(x)),
    "atleast_3d, vector": ([(3,)], lambda m, x: m.atleast_3d(x)),
    "atleast_3d, several": ([(2, 3), (2, 1, 2, 1)], lambda m, *v: m.atleast_3d(*v)),
    "column_stack": ([(3,), (3,)], lambda m, *v: m.column_stack(v)),
    "column_stack, matrix": ([(3, 2), (3,)], lambda m, *v: m.column_stack(list(v))),
    "column_stack, numbers": ([(), ()], lambda m, *v: m.column_stack(v)),
    "column_stack, more axes": ([(2, 1, 2), (2, 3, 2)], lambda m, *v: m.column_stack(v)),
    "dstack": ([(3,), (3,)], lambda m, *v: m.dstack(v)),
    "dstack, axes": ([(2, 3), (2, 3, 2)], lambda m, *v: m.dstack(v)),
    "hsplit": ([(2, 4)], lambda m, x: m.hsplit(x, 2)),
    "hsplit, vector": ([(4,)], lambda m, x: m.hsplit(x, [1, 2, 9])),
    "vsplit": ([(4, 2)], lambda m, x: m.vsplit(x, [-1])),
    "dsplit": ([(1, 2, 4)], lambda m, x: m.dsplit(x, 2)),
    "flipud": ([(2, 3)], lambda m, x: m.flipud(x)),
    "flipud, vector": ([(3,)], lambda m, x: m.flipud(x)),
    "fliplr": ([(2, 3, 2)], lambda m, x: m.fliplr(x)),
    "fliplr of nothing": ([(2, 0)], lambda m, x: m.fliplr(x)),
    "rot90": ([(2, 3)], lambda m, x: m.rot90(x)),
    "rot90, none": ([(2, 3)], lambda m, x: m.rot90(x, 0)),
    "rot90, half": ([(2, 3, 2)], lambda m, x: m.rot90(x, 2, (1, 2))),
    "rot90, back": ([(2, 3, 2)], lambda m, x: m.rot90(x, k=-1, axes=(0, -1))),
    "rot90, three": ([(2, 3, 2)], lambda m, x: m.rot90(x, 7, axes=[-1, 0])),
    "rollaxis": ([(2, 3, 4)], lambda m, x: m.rollaxis(x, 2)),
    "rollaxis, last": ([(2, 3, 4)], lambda m, x: m.rollaxis(x, 0, 3)),
    "rollaxis, negative": ([(2, 3, 4)], lambda m, x: m.rollaxis(x, -1, start=-2)),
    "rollaxis, in its place": ([(2, 3)], lambda m, x: m.rollaxis(x, 1, 2)),
    "diagonal": ([(3, 3)], lambda m, x: m.diagonal(x)),
    "diagonal, above": ([(2, 4)], lambda m, x: m.diagonal(x, 1)),
    "diagonal, far above": ([(2, 4)], lambda m, x: m.diagonal(x, offset=3)),
    "diagonal, below": ([(4, 2)], lambda m, x: m.diagonal(x, -1)),
    "diagonal, beyond": ([(2, 3)], lambda m, x: m.diagonal(x, -2)),
    "diagonal, far beyond": ([(2, 3)], lambda m, x: m.diagonal(x, 9)),
    "diagonal, columns first": ([(2, 3)], lambda m, x: m.diagonal(x, 1, axis1=1, axis2=0)),
    "diagonal, first axes": ([(3, 2, 4)], lambda m, x: m.diagonal(x, -1)),
    "diagonal, last axes": ([(2, 3, 4)], lambda m, x: m.diagonal(x, 1, -2, -1)),
    "diagonal, apart": ([(2, 4, 3)], lambda m, x: m.diagonal(x, 0, -1, 0)),
    "diagonal, far apart": ([(2, 2, 1, 3)], lambda m, x: m.diagonal(x, 1, 0, 3)),
    "diagonal of nothing": ([(0, 3)], lambda m, x: m.diagonal(x)),
    "diag of a matrix": ([(2, 3)], lambda m, x: m.diag(x)),
    "diag of a matrix, above": ([(3, 3)], lambda m, x: m.diag(x, 1)),
    "diag of a matrix, below": ([(3, 2)], lambda m, x: m.diag(x, k=-1)),
    "diag of a vector": ([(3,)], lambda m, x: m.diag(x)),
    "diag of a vector, above": ([(2,)], lambda m, x: m.diag(x, 2)),
    "diag of a vector, below": ([(2,)], lambda m, x: m.diag(x, -1)),
    "diag of nothing": ([(0,)], lambda m, x: m.diag(x)),
    "diag of nothing, above": ([(0,)], lambda m, x: m.diag(x, 2)),
    "trace": ([(3, 3)], lambda m, x: m.trace(x)),
    "trace, below": ([(3, 2)], lambda m, x: m.trace(x, -1)),
    "trace, of nothing": ([(2, 3)], lambda m, x: m.trace(x, 5)),
    "trace, axes": ([(2, 3, 4)], lambda m, x: m.trace(x, 1, axis1=-1, axis2=1)),
    "tril": ([(3, 3)], lambda m, x: m.tril(x)),
    "tril, above": ([(2, 4)], lambda m, x: m.tril(x, 1)),
    "tril, many": ([(2, 3, 2)], lambda m, x: m.tril(x, k=-1)),
    "tril of a vector": ([(3,)], lambda m, x: m.tril(x)),
    "tril of nothing": ([(0, 3)], lambda m, x: m.tril(x)),
    "triu": ([(3, 3)], lambda m, x: m.triu(x)),
    "triu, above": ([(4, 2)], lambda m, x: m.triu(x, 1)),
    "triu, many": ([(2, 3, 2)], lambda m, x: m.triu(x, -1)),
    "triu of a vector": ([(3,)], lambda m, x: m.triu(x, 1)),
    "kron": ([(2, 2), (1, 3)], lambda m, x, y: m.kron(x, y)),
    "kron, vectors": ([(2,), (3,)], lambda m, x, y: m.kron(x, y)),
    "kron, fewer axes": ([(2,), (2, 1, 2)], lambda m, x, y: m.kron(x, y)),
    "kron, more axes": ([(2, 1, 2), (3, 1)], lambda m, x, y: m.kron(x, y)),
    "kron, number": ([(), (2, 2)], lambda m, x, y: m.kron(x, y)),
    "kron, nothing": ([(0, 2), (2, 1)], lambda m, x, y: m.kron(x, y)),
    "kron with itself": ([(2, 2)], lambda m, x: m.kron(x, x)),
}
# Subscripts, and the shapes of their operands.
SUMS = {
    "ij,jk": [(2, 3), (3, 4)],
    "ij,jk->ki": [(2, 3), (3, 4)],
    "ij , kj -> ": [(2, 3), (1, 3)],
    "ba": [(2, 3)],
    "bA": [(2, 3)],
    "ij->": [(2, 3)],
    "ijk->j": [(2, 3, 2)],
    "ii": [(3, 3)],
    "ii->i": [(3, 3)],
    "iij->ji": [(2, 2, 3)],
    "iijj->ji": [(2, 2, 3, 3)],
    "iiii": [(2, 2, 2, 2)],
    "aab,bcc->ac": [(2, 2, 3), (3, 2, 2)],
    "i,j": [(2,), (3,)],
    "i,i": [(3,), (3,)],
    "i,i->i": [(3,), (3,)],
    "bi,bi->b": [(2, 3), (2, 3)],
    "bij,bjk->bik": [(2, 2, 3), (2, 3, 1)],
    "abc,cad->bda": [(2, 3, 2), (2, 2, 3)],
    ",ij": [(), (2, 3)],
    ",->": [(), ()],
    "": [()],
    "...": [(2, 3)],
    "...i->...": [(2, 3)],
    "i->...i": [(3,)],
    "...ij,...jk": [(3, 1, 2, 2), (2, 2, 3)],
    "...ij,jk->ki...": [(2, 2, 3), (3, 2)],
    "a...,...a->...": [(2, 3), (3, 2)],
    "...,...": [(2, 3), (3,)],
    "ij,jk->k": [(2, 1), (3, 2)],
    "ij,ij->ij": [(1, 3), (2, 1)],
    "i,i->": [(1,), (3,)],
    "ij,j->i": [(0, 3), (3,)],
    "ij,jk->ik": [(2, 0), (0, 3)],
    "ij,jk,kl": [(2, 3), (3, 2), (2, 2)],
    "i,ij,j": [(2,), (2, 3), (3,)],
    "i,i,i->i": [(1,), (3,), (3,)],
    "ij,ij,ij->j": [(2, 2), (2, 2), (2, 2)],
    "i,j,k->kji": [(2,), (1,), (3,)],
    "ab,bc,ca,abc": [(2, 2), (2, 2), (2, 2), (1, 2, 2)],
}


def summed(text):
    return lambda m, *v: m.einsum(text, *v)


CASES |= {f"einsum {text}: {shapes}": (shapes, summed(text)) for text, shapes in SUMS.items()}
every_case = pytest.mark.parametrize(("shapes", "call"), CASES.values(), ids=list(CASES))


def whole(shape, dtype=np.float64):
    """Small whole numbers without order, on which sums and products are exact."""
    n = int(np.prod(shape))
    return np.asarray((np.arange(n) * 7 % 11 - 3).reshape(shape)).astype(dtype)


def results(out):
    return list(out) if isinstance(out, (tuple, list)) else [out]


# ------------------------------------------------------------------ values


@together("dtype", ["float16", "float32", "float64", "complex64", "int32", "bool"])
@every_case
def test_values_and_dtypes_are_numpys_on_arrays_and_variables_by_either_name(shapes, call, dtype):
    arrays = [whole(shape, dtype) for shape in shapes]
    wanted = results(call(np, *arrays))
    for got, value in zip(results(call(ops, *arrays)), wanted, strict=True):
        assert_same(got, value)
    leaves = [Variable(x, requires_grad=x.dtype.kind in "fc") for x in arrays]
    with GradientTape():
        for module in (np, ops):
            out = call(module, *leaves)
            assert type(out) is type(call(np, *arrays)) or isinstance(out, Variable)
            for got, value in zip(results(out), wanted, strict=True):
                assert isinstance(got, Variable)
                assert got.requires_grad == (got.dtype.kind in "fc")
                assert_same(got.numpy(), value)


@every_case
def test_of_constants_they_are_constants_and_nothing_is_recorded(shapes, call):
    arrays = [whole(shape) for shape in shapes]
    with GradientTape() as tape:
        for out in results(call(np, *map(Variable, arrays))):
            assert isinstance(out, Variable)
            assert not out.requires_grad
    assert len(tape) == 0


@pytest.mark.parametrize("module", [np, ops], ids=["np", "ops"])
@every_case
def test_what_comes_out_is_no_part_of_what_a_variable_holds(module, shapes, call):
    leaves = [Variable(whole(shape), requires_grad=True) for shape in shapes]
    with GradientTape():
        found = [out.numpy() for out in results(call(module, *leaves))]
    for out in found:
        parts = [leaf for leaf in leaves if np.shares_memory(out, leaf.numpy())]
        assert not (parts and out.flags.writeable)


LAYOUTS = {
    "columns first": lambda x: np.asfortranarray(x) if x.ndim else x,
    "reversed": lambda x: x[(slice(None, None, -1),) * x.ndim],
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
@every_case
def test_the_layout_of_operands_does_not_matter(shapes, call, layout):
    arrays = [layout(whole(shape)) for shape in shapes]
    wanted = results(call(np, *[x.copy() for x in arrays]))
    for got, value in zip(results(call(ops, *arrays)), wanted, strict=True):
        assert_same(got, value)


# ------------------------------------------------------------------ derivatives


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@every_case
def test_derivatives_of_two_orders_agree_with_differences_in_both_modes(shapes, call, dtype):
    rng = np.random.default_rng(0)
    arrays = [rng.normal(size=shape).astype(dtype) for shape in shapes]
    if dtype == "complex128":
        arrays = [x + 1j * rng.normal(size=x.shape) for x in arrays]
    od.testing.check_gradients(
        lambda *v: [ops.square(out) for out in results(call(ops, *v))], *arrays
    )


@every_case
def test_gradients_have_the_dtype_and_shape_of_what_they_belong_to(shapes, call):
    leaves = [Variable(whole(shape, np.float32), requires_grad=True) for shape in shapes]
    with GradientTape() as tape:
        found = results(call(np, *leaves))
    cotangents = [np.ones(out.shape) for out in found]
    for gradient, leaf in zip(tape.gradient(found, leaves, cotangents), leaves, strict=True):
        assert (gradient.dtype, gradient.shape) == (np.float32, leaf.shape)


@every_case
def test_functions_run_on_symbols_and_the_graph_gives_the_values(shapes, call):
    graph, arrays = Graph(), [whole(shape) for shape in shapes]
    symbols = [graph.symbol(spec_of(x)) for x in arrays]
    known = dict(zip((s.id for s in symbols), arrays, strict=True))
    found, wanted = results(call(ops, *symbols)), results(call(np, *arrays))
    for out, value in zip(found, wanted, strict=True):
        assert out.spec == spec_of(np.asarray(value))
        assert_same(graph.run(out, known), value)


@every_case
def test_compiled_they_have_the_same_values_and_gradients(shapes, call):
    def total(operands):
        return sum(ops.sum(ops.square(out)) for out in results(call(np, *operands)))

    arrays = [whole(shape) for shape in shapes]
    step = od.value_and_grad(total)
    compiled, (wanted, slopes) = od.compile(step), step(arrays)
    of_the_graph, _ = compiled.lower(arrays).evaluate(arrays)
    for value, gradients in (compiled(arrays), of_the_graph):
        assert_same(value, wanted)
        for got, slope in zip(gradients, slopes, strict=True):
            assert_same(got, slope)


@every_case
def test_a_tape_passed_by_hand_records_what_they_are_made_of(shapes, call):
    leaves = [Variable(whole(shape), requires_grad=True) for shape in shapes]
    tape = GradientTape()
    tape.enable()

    class ByHand:
        def __getattr__(self, name):
            return lambda *args, **named: getattr(ops, name)(*args, **named, tape=tape)

    for out in results(call(ByHand(), *leaves)):
        assert out.tape is tape


# ------------------------------------------------------------------ what each promises


def test_a_triangle_of_infinite_slopes_and_nan_is_zero_beyond_its_diagonal():
    x = np.array([[1.0, 0.0], [4.0, -1.0]])
    assert_same(ops.tril(np.array([[1.0, np.nan], [np.inf, 2.0]])), [[1.0, 0.0], [np.inf, 2.0]])
    leaf = Variable(x, requires_grad=True)
    with GradientTape(persistent=True) as tape, np.errstate(all="ignore"):
        out = ops.tril(ops.log(leaf), -1)
    np.testing.assert_array_equal(out.numpy(), [[0.0, 0.0], [np.log(4.0), 0.0]])
    with np.errstate(all="ignore"):
        assert_same(tape.gradient(out, leaf, np.ones((2, 2))), [[0.0, 0.0], [0.25, 0.0]])
        assert_same(tape.jvp(out, leaf, np.ones((2, 2))), [[0.0, 0.0], [0.25, 0.0]])


def test_a_trace_sums_in_the_dtype_that_is_asked_for():
    x = np.full((3, 3), 100, np.int8)
    assert_same(ops.trace(x), np.trace(x))
    assert_same(ops.trace(x, dtype=np.int8), np.trace(x, dtype=np.int8))
    leaf = Variable(np.ones((2, 2), np.float32), requires_grad=True)
    with GradientTape() as tape:
        out = np.trace(leaf, 0, 0, 1, np.float64)
    assert out.dtype == np.float64
    assert_same(tape.gradient(out, leaf), np.eye(2, dtype=np.float32))


@pytest.mark.parametrize(
    "method",
    [
        lambda v: v.diagonal(),
        lambda v: v.diagonal(1, axis1=1, axis2=0),
        lambda v: v.trace(),
        lambda v: v.trace(-1, 1, 0, np.float32),
        lambda v: v.argsort(),
        lambda v: v.argsort(axis=None, kind="stable"),
    ],
    ids=["diagonal", "diagonal, below", "trace", "trace, dtype", "argsort", "argsort of all"],
)
def test_methods_are_numpys(method):
    x = whole((3, 3))
    with GradientTape():
        out = method(Variable(x, requires_grad=True))
    assert out.requires_grad == (out.dtype.kind == "f")
    assert_same(out.numpy(), method(x))


def test_lists_and_numbers_pass_for_arrays():
    assert_same(ops.diag([1, 2]), np.diag([1, 2]))
    assert_same(ops.tril([[1, 2], [3, 4]]), np.tril([[1, 2], [3, 4]]))
    assert_same(ops.atleast_2d([1.0, 2.0]), np.atleast_2d([1.0, 2.0]))
    assert_same(ops.append([1, 2], 3), np.append([1, 2], 3))
    assert_same(ops.kron(2, [1.0, 2.0]), np.kron(2, [1.0, 2.0]))
    assert_same(ops.column_stack(([1, 2], [3.0, 4.0])), np.column_stack(([1, 2], [3.0, 4.0])))
    assert ops.atleast_1d() == np.atleast_1d() == ()


@pytest.mark.parametrize(
    ("call", "error", "words"),
    {
        "append": (lambda x: ops.append(x, x[0], 0), ShapeError, "concatenate: .*differ"),
        "column_stack": (lambda x: ops.column_stack([x, x[0]]), ShapeError, "differ on another"),
        "column_stack of nothing": (lambda x: ops.column_stack([]), ShapeError, "no arrays"),
        "column_stack of a number": (lambda x: ops.column_stack(5), DTypeError, "column_stack: "),
        "hsplit": (lambda x: ops.hsplit(x, 2), ShapeError, "not 2 equal parts"),
        "hsplit of a number": (lambda x: ops.hsplit(1.0, 1), ShapeError, "hsplit: needs 1 axes"),
        "vsplit": (lambda x: ops.vsplit(x[0], 1), ShapeError, r"vsplit: .*shape \(3,\)"),
        "dsplit": (lambda x: ops.dsplit(x, 1), ShapeError, "dsplit: needs 3 axes"),
        "flipud": (lambda x: ops.flipud(1.0), ShapeError, "flipud: needs an axis"),
        "fliplr": (lambda x: ops.fliplr(x[0]), ShapeError, r"fliplr: .*shape \(3,\)"),
        "rot90 by half": (lambda x: ops.rot90(x, 0.5), DTypeError, "rot90: k=0.5 is not a whole"),
        "rot90, one axis": (lambda x: ops.rot90(x, axes=(0,)), ShapeError, "rot90: .*two axes"),
        "rot90, twice one": (lambda x: ops.rot90(x, axes=(0, -2)), ShapeError, "distinct"),
        "rollaxis": (lambda x: ops.rollaxis(x, 2), ShapeError, "rollaxis: .*does not fit"),
        "rollaxis, start": (lambda x: ops.rollaxis(x, 0, 3), ShapeError, "rollaxis: start=3"),
        "diagonal": (lambda x: ops.diagonal(x[0]), ShapeError, "diagonal: needs two axes"),
        "diagonal, twice one": (lambda x: ops.diagonal(x, 0, 1, -1), ShapeError, "distinct"),
        "diagonal, offset": (lambda x: ops.diagonal(x, 0.5), DTypeError, "diagonal: offset=0.5"),
        "diag": (lambda x: ops.diag(x[None]), ShapeError, "diag: .*vector or a matrix"),
        "diag of a number": (lambda x: ops.diag(1.0), ShapeError, r"diag: v has shape \(\)"),
        "trace": (lambda x: ops.trace(x, 0, 0, 2), ShapeError, "trace: .*does not fit"),
        "trace as text": (lambda x: ops.trace(x, dtype="text"), DTypeError, "'text'"),
        "tril": (lambda x: ops.tril(1.0), ShapeError, "tril: m is a number"),
        "triu": (lambda x: ops.triu(x, 0.5), DTypeError, "triu: k=0.5 is not a whole number"),
        "kron": (lambda x: ops.kron(x, "ab"), OdysseyError, "kron: |multiply: "),
        "cross": (lambda x: np.cross(Variable(x), x[:, :2]), ShapeError, r"cross: y .*\(2, 2\)"),
        "sort": (lambda x: np.sort(Variable(x), kind="bogo"), OdysseyError, "sort: kind='bogo'"),
        "a keyword": (lambda x: np.trace(Variable(x), out=x), DTypeError, r"np\.trace: .*'out'"),
        "beyond": (lambda x: ops.take_along_axis(x, np.array([[9]])), OutOfRangeError, "bounds"),
    }.values(),
    ids=lambda value: "",
)
def test_what_cannot_be_done_is_refused_in_words(call, error, words):
    with pytest.raises(error, match=words):
        call(np.ones((2, 3)))


# ------------------------------------------------------------------ arrays of Variables


def test_an_array_of_recorded_variables_is_refused_and_the_message_says_what_makes_one():
    v, w = (Variable(x, requires_grad=True) for x in (1.0, 2.0))
    with GradientTape() as tape:
        for make in (lambda: np.array([v, w]), lambda: np.asarray([[v * 2, w]])):
            with pytest.raises((OdysseyError, ValueError)) as caught:
                make()
            told = f"{caught.value} {caught.value.__cause__}"
            assert "ops.stack" in told
            assert "ops.array" in told
        out = ops.array([[v, w * 3], [4, v]])
    assert_same(out.numpy(), np.array([[1.0, 6.0], [4.0, 1.0]]))
    gradients = tape.gradient(out, [v, w], np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert_close(np.stack(gradients), np.array([5.0, 6.0]), 0.0)

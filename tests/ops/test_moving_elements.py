"""Ops that move, join, pick and fold elements: NumPy's calls, NumPy's values, exact gradients."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, OdysseyError, OutOfRangeError, SettingError, ShapeError
from odyssey.ops import COMPOSITES, Symbol
from odyssey.spec import spec_of
from support.cases import NEW_NUMPY, Graph, assert_same

PLACES = np.array([[2, 0], [-1, 2]])
ROWS = np.array([[0, 3, 1]])

# Linear functions, called alike as NumPy's and as ours: shape of the operand, and the call.
LINEAR = {
    "reshape": ((2, 3), lambda m, v: m.reshape(v, (3, -1))),
    "reshape, columns first": ((2, 3, 2), lambda m, v: m.reshape(v, (4, 3), order="F")),
    "ravel": ((2, 3), lambda m, v: m.ravel(v)),
    "ravel, columns first": ((2, 3), lambda m, v: m.ravel(v, "F")),
    "ravel of a number": ((), lambda m, v: m.ravel(v)),
    "swapaxes": ((2, 3, 4), lambda m, v: m.swapaxes(v, -1, 0)),
    "moveaxis": ((2, 3, 4), lambda m, v: m.moveaxis(v, 0, -1)),
    "moveaxis, several": (
        (2, 3, 4),
        lambda m, v: m.moveaxis(v, source=[0, -1], destination=(1, 0)),
    ),
    "squeeze": ((1, 3, 1), lambda m, v: m.squeeze(v)),
    "squeeze, one": ((1, 3, 1), lambda m, v: m.squeeze(v, axis=-1)),
    "squeeze, none there": ((2, 3), lambda m, v: m.squeeze(v, ())),
    "expand_dims": ((2, 3), lambda m, v: m.expand_dims(v, 1)),
    "expand_dims, several": ((2, 3), lambda m, v: m.expand_dims(v, axis=(0, -1))),
    "flip": ((2, 3), lambda m, v: m.flip(v)),
    "flip, some": ((2, 3, 2), lambda m, v: m.flip(v, axis=(0, -1))),
    "flip of nothing": ((0, 3), lambda m, v: m.flip(v, 1)),
    "roll": ((2, 3), lambda m, v: m.roll(v, 4)),
    "roll, several": ((2, 3), lambda m, v: m.roll(v, (1, -1), axis=(0, 1))),
    "roll, one axis twice": ((2, 3), lambda m, v: m.roll(v, (1, 1), axis=(1, 1))),
    "tile": ((2, 3), lambda m, v: m.tile(v, 2)),
    "tile, more axes": ((2, 1), lambda m, v: m.tile(v, reps=(2, 1, 3))),
    "tile, fewer": ((2, 3, 1), lambda m, v: m.tile(v, (2, 2))),
    "tile, never": ((2, 3), lambda m, v: m.tile(v, (0, 1))),
    "tile, once": ((2, 3), lambda m, v: m.tile(v, 1)),
    "repeat": ((2, 3), lambda m, v: m.repeat(v, 2)),
    "repeat, axis": ((2, 3), lambda m, v: m.repeat(v, 3, axis=-1)),
    "repeat, each": ((2, 3), lambda m, v: m.repeat(v, [2, 0, 1], axis=1)),
    "repeat, never": ((2, 3), lambda m, v: m.repeat(v, 0, axis=0)),
    "pad": ((2, 3), lambda m, v: m.pad(v, ((1, 0), (2, 1)))),
    "pad, one width": ((2, 3), lambda m, v: m.pad(v, 1, mode="constant")),
    # A dictionary, which the oldest NumPy does not take.
    "pad, by axis": (
        (2, 3),
        lambda m, v: m.pad(v, {-1: (0, 2)} if NEW_NUMPY or m is not np else ((0, 0), (0, 2))),
    ),
    "pad, nothing": ((2, 3), lambda m, v: m.pad(v, 0)),
    "pad, edge": ((2, 3), lambda m, v: m.pad(v, ((1, 0), (2, 1)), "edge")),
    "pad, edge, nothing": ((2, 3), lambda m, v: m.pad(v, 0, "edge")),
    "pad, reflect": ((2, 3), lambda m, v: m.pad(v, ((1, 0), (4, 1)), "reflect")),
    "pad, symmetric": ((2, 3), lambda m, v: m.pad(v, (1, 5), "symmetric")),
    "pad, wrap": ((2, 3), lambda m, v: m.pad(v, [(0, 3), (1, 1)], mode="wrap")),
    "concatenate": ((2, 3), lambda m, v: m.concatenate([v, v], axis=1)),
    "concatenate, by position": ((2, 3), lambda m, v: m.concatenate((v, v, v), -1)),
    "concatenate, flat": ((2, 3), lambda m, v: m.concatenate((v, v, v), axis=None)),
    "concatenate, an array": ((2, 3, 2), lambda m, v: m.concatenate(v, 1)),
    "concatenate, one": ((2, 3), lambda m, v: m.concatenate([v])),
    "concatenate, many": ((1, 2), lambda m, v: m.concatenate([v] * 70)),
    "concatenate, many, flat": ((2, 1), lambda m, v: m.concatenate([v] * 70, None)),
    "stack": ((2, 3), lambda m, v: m.stack([v, v])),
    "stack, last": ((2, 3), lambda m, v: m.stack((v, v, v), axis=-1)),
    "stack of numbers": ((), lambda m, v: m.stack((v, v, v))),
    "vstack": ((3,), lambda m, v: m.vstack([v, v])),
    "hstack": ((3,), lambda m, v: m.hstack([v, v])),
    "hstack, numbers": ((), lambda m, v: m.hstack([v, v])),
    "hstack, matrices": ((2, 3), lambda m, v: m.hstack((v, v))),
    "split": ((4, 3), lambda m, v: m.split(v, 2)[1]),
    "split, places": ((4, 3), lambda m, v: m.split(v, [1, 2], axis=1)[-1]),
    "split, beyond": ((4, 3), lambda m, v: m.split(v, [2, 9])[1]),
    "array_split": ((5, 3), lambda m, v: m.array_split(v, 3)[2]),
    "array_split, the number an array": ((5, 3), lambda m, v: m.array_split(v, np.array(3))[2]),
    "split, the places an array": ((5,), lambda m, v: m.split(v, np.array([1, 3]))[1]),
    "array_split, more than there are": ((2,), lambda m, v: m.array_split(v, 3)[2]),
    "take": ((4, 3), lambda m, v: m.take(v, PLACES)),
    "take, axis": ((4, 3), lambda m, v: m.take(v, PLACES, axis=-1)),
    "take, one": ((4, 3), lambda m, v: m.take(v, 2, 0)),
    "take, wrap": ((4, 3), lambda m, v: m.take(v, [5, -9], 1, mode="wrap")),
    "take, clip": ((4, 3), lambda m, v: m.take(v, [5, -9], 1, mode="clip")),
    "take_along_axis": ((4, 3), lambda m, v: m.take_along_axis(v, ROWS, axis=0)),
    "take_along_axis, flat": ((4, 3), lambda m, v: m.take_along_axis(v, ROWS[0], axis=None)),
    "cumsum": ((2, 3), lambda m, v: m.cumsum(v)),
    "cumsum, axis": ((2, 3, 2), lambda m, v: m.cumsum(v, axis=-2)),
    "cumsum, last": ((2, 3), lambda m, v: m.cumsum(v, -1)),
    "cumsum of nothing": ((2, 0), lambda m, v: m.cumsum(v, -1)),
    "sum": ((2, 3, 2), lambda m, v: m.sum(v, axis=(0, -1), keepdims=True)),
    "outer": ((2, 2), lambda m, v: m.outer(v, np.arange(3.0))),
    "dot": ((2, 3), lambda m, v: m.dot(v, np.arange(3.0))),
    "dot, vector first": ((3,), lambda m, v: m.dot(v, np.arange(6.0).reshape(3, 2))),
    "dot, number": ((2, 3), lambda m, v: m.dot(np.float32(2), v)),
    "dot, more axes": ((2, 2, 3), lambda m, v: m.dot(v, np.arange(12.0).reshape(2, 3, 2))),
    "dot, vector last": ((2, 2, 3), lambda m, v: m.dot(v, np.arange(3.0))),
    "vdot": ((2, 3), lambda m, v: m.vdot(v, np.arange(6.0))),
    "inner": ((2, 3), lambda m, v: m.inner(v, np.arange(12.0).reshape(2, 2, 3))),
    "inner, number": ((2, 3), lambda m, v: m.inner(v, np.float32(2))),
    "tensordot": ((2, 3), lambda m, v: m.tensordot(v, np.arange(12.0).reshape(2, 3, 2))),
    "tensordot, pairs": (
        (2, 3),
        lambda m, v: m.tensordot(np.arange(12.0).reshape(2, 3, 2), v, axes=([0, 1], [0, 1])),
    ),
    "tensordot, one": ((2, 3), lambda m, v: m.tensordot(v, np.arange(4.0).reshape(2, 2), (0, 1))),
    "tensordot, no axes": ((2, 2), lambda m, v: m.tensordot(v, np.arange(2.0), 0)),
}
if hasattr(np, "unstack"):
    LINEAR["unstack"] = ((2, 3), lambda m, v: m.unstack(v, axis=-1)[1])

linear_case = pytest.mark.parametrize(("shape", "call"), LINEAR.values(), ids=list(LINEAR))


def whole(shape, dtype=np.float64, start=1):
    """Small whole numbers, on which sums are exact."""
    return np.arange(start, start + int(np.prod(shape)), dtype=dtype).reshape(shape)


def jacobian_of(call, shape):
    """The matrix of NumPy's linear function, from its values on unit arrays."""
    size = int(np.prod(shape))
    columns = [np.ravel(call(np, unit.reshape(shape))) for unit in np.eye(size)]
    return np.stack(columns, -1) if size else np.zeros((np.size(call(np, np.zeros(shape))), 0))


def gradients(call, operands, grad=None, **options):
    """The result of ``call`` on leaves of these values, and its gradients."""
    leaves = [Variable(x, requires_grad=True) for x in operands]
    with GradientTape() as tape:
        out = call(*leaves)
    g = np.ones(out.shape, out.dtype) if grad is None else grad
    return out, tape.gradient(out, leaves, g, **options)


# ------------------------------------------------------------------ NumPy's calls


@linear_case
def test_values_are_numpys_on_arrays_and_on_variables_by_either_name(shape, call):
    x = whole(shape)
    wanted = call(np, x)
    assert_same(call(ops, x), wanted)
    with GradientTape():
        for module in (np, ops):
            out = call(module, Variable(x, requires_grad=True))
            assert out.requires_grad
            assert_same(out.numpy(), wanted)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
@linear_case
def test_gradients_are_the_transposes_of_numpys_functions_exactly(shape, call, dtype):
    matrix = jacobian_of(call, shape)
    g = whole(np.shape(call(np, np.zeros(shape))), dtype, 3)
    _, (gradient,) = gradients(lambda v: call(ops, v), [whole(shape, dtype)], g)
    if call is LINEAR["vdot"][1]:
        g = np.conj(g)
    assert_same(gradient, (matrix.T @ np.ravel(g)).reshape(shape).astype(dtype))


@linear_case
def test_tangents_are_numpys_functions_of_the_directions(shape, call):
    leaf = Variable(whole(shape), requires_grad=True)
    with GradientTape() as tape:
        out = call(ops, leaf)
    direction = whole(shape, start=-2)
    assert_same(tape.jvp(out, leaf, direction), call(np, direction))


@linear_case
def test_float32_stays(shape, call):
    out, (gradient,) = gradients(
        lambda v: call(ops, v), [whole(shape, np.float32)], whole(np.shape(call(np, whole(shape))))
    )
    takes_float64 = call(np, whole(shape, np.float32)).dtype == np.float64
    assert out.dtype == (np.float64 if takes_float64 else np.float32)
    assert gradient.dtype == np.float32


def test_a_python_number_in_a_product_counts_as_an_array_as_in_numpy():
    x = whole((2, 3), np.float32)
    assert ops.dot(2.0, x).dtype == np.dot(2.0, x).dtype == np.float64
    assert ops.inner(x, 2.0).dtype == np.inner(x, 2.0).dtype == np.float64


LAYOUTS = {
    "reversed": lambda x: x[tuple([slice(None, None, -1)] * x.ndim)],
    "every second": lambda x: np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x,
    "columns first": np.asfortranarray,
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
@linear_case
def test_the_layout_of_the_operand_does_not_matter(shape, call, layout):
    x = layout(whole(shape))
    assert_same(call(ops, x), call(np, x.copy()))


@linear_case
def test_functions_run_on_symbols_and_the_graph_gives_the_value(shape, call):
    x, graph = whole(shape), Graph()
    symbol = graph.symbol(spec_of(x))
    if call is LINEAR["concatenate, an array"][1]:
        return  # an array without data has no parts to join
    out = call(ops, symbol)
    assert isinstance(out, Symbol)
    wanted = call(np, x)
    assert out.spec == spec_of(wanted)
    assert_same(graph.run(out, {symbol.id: x}), wanted)


@linear_case
def test_results_are_no_views_of_what_a_variable_holds_that_could_be_written(shape, call):
    leaf = Variable(whole(shape), requires_grad=True)
    before = leaf.numpy().copy()
    with GradientTape():
        out = call(ops, leaf).numpy()
    assert not out.flags.writeable or not np.shares_memory(out, leaf.numpy())
    np.testing.assert_array_equal(leaf.numpy(), before)


COMPOSED = ["swapaxes", "moveaxis", "ravel", "squeeze", "expand_dims", "flip", "tile", "repeat"]
COMPOSED += ["pad", "pad, edge", "stack", "vstack", "hstack", "split", "array_split", "outer"]
COMPOSED += ["concatenate", "concatenate, many", "dot", "dot, more axes", "vdot", "inner"]


@pytest.mark.parametrize("name", COMPOSED)
def test_a_tape_passed_by_hand_records_what_a_composite_is_made_of(name):
    shape, call = LINEAR[name]
    leaf, tape = Variable(whole(shape), requires_grad=True), GradientTape()
    tape.enable()

    class ByHand:
        def __getattr__(self, name):
            return lambda *args, **named: getattr(ops, name)(*args, **named, tape=tape)

    out = call(ByHand(), leaf)
    assert out.tape is tape
    assert tape.gradient(out, leaf, np.ones(out.shape)).shape == shape


@pytest.mark.parametrize(
    ("call", "error", "words"),
    {
        "swapaxes": (lambda x: ops.swapaxes(x, 0, 2), ShapeError, "swapaxes: .*does not fit"),
        "moveaxis": (lambda x: ops.moveaxis(x, 0, (0, 1)), ShapeError, "moveaxis: .*as many"),
        "moveaxis twice": (lambda x: ops.moveaxis(x, (0, 0), (0, 1)), ShapeError, "distinct"),
        "squeeze": (lambda x: ops.squeeze(x, 0), ShapeError, "squeeze: .*length 2, not 1"),
        "expand_dims": (lambda x: ops.expand_dims(x, 4), ShapeError, "expand_dims: .*not fit"),
        "flip": (lambda x: ops.flip(x, 2), ShapeError, "flip: .*does not fit"),
        "tile": (lambda x: ops.tile(x, -1), ShapeError, "tile: .*negative"),
        "split at words": (lambda x: ops.split(x, "edge"), DTypeError, "split: .*='edge' is not"),
        "stack of a number": (lambda x: ops.stack(5), DTypeError, r"stack: .*stack\("),
        "likes of no dtype": (lambda x: ops.zeros_like(x, dtype=5), DTypeError, "_like: .*'5'"),
        "tensordot of words": (lambda x: ops.tensordot(x, x, "ab"), ShapeError, "tensordot: "),
        "one too many": (lambda x: ops.squeeze(x, 0, 1, 2), DTypeError, r"squeeze: .*squeeze\("),
        "tile by halves": (lambda x: ops.tile(x, 0.5), DTypeError, "tile: .*ints were wanted"),
        "repeat": (lambda x: ops.repeat(x, [1, 2], 1), ShapeError, "repeat: 2 repeats for 3"),
        "pad": (lambda x: ops.pad(x, -1), ShapeError, "pad: .*negative"),
        "pad axes": (lambda x: ops.pad(x, ((1, 1),) * 3), ShapeError, "pad: .*does not fit 2"),
        "pad mode": (lambda x: ops.pad(x, 1, "slope"), SettingError, "pad: mode='slope'"),
        "pad by halves": (lambda x: ops.pad(x, 0.5), DTypeError, "pad: .*must hold ints only"),
        "concatenate": (lambda x: ops.concatenate([]), ShapeError, "concatenate: no arrays"),
        "concatenate numbers": (lambda x: ops.concatenate([1.0, 2.0]), ShapeError, "an axis"),
        "concatenate three": (lambda x: ops.concatenate([x, x, x[:, :2]]), ShapeError, "differ"),
        "concatenate axis": (lambda x: ops.concatenate([x], axis="0"), DTypeError, "axis is '0'"),
        "stack": (lambda x: ops.stack([x, x[0]]), ShapeError, "stack: needs arrays of one shape"),
        "stack of nothing": (lambda x: ops.stack([]), ShapeError, "stack: needs"),
        "split": (lambda x: ops.split(x, 2, 1), ShapeError, "split: .*not 2 equal parts"),
        "array_split": (lambda x: ops.array_split(x, 0), ShapeError, "array_split: 0 parts"),
        "take": (lambda x: ops.take(x, 6), OutOfRangeError, "take: .*out of bounds"),
        "take by halves": (lambda x: ops.take(x, 0.5), DTypeError, "take: .*pass integers"),
        "tensordot": (lambda x: ops.tensordot(x, x, 1), ShapeError, "tensordot: .*differ"),
        "dot": (lambda x: ops.dot(x, x), ShapeError, "inner sizes differ"),
        "one_hot": (lambda x: ops.one_hot(x, 3), DTypeError, "one_hot: .*pass integers"),
        "argmax": (lambda x: ops.argmax(x[:0]), ShapeError, "argmax: .*no elements"),
    }.values(),
    ids=lambda value: "",
)
def test_what_does_not_fit_is_refused_in_words(call, error, words):
    with pytest.raises(error, match=words):
        call(np.ones((2, 3)))


@pytest.mark.parametrize(
    "call",
    [
        lambda v: np.concatenate([v, v], dtype=np.float32),
        lambda v: np.sum(v, 0, None, np.zeros(())),
        lambda v: np.max(v, where=np.array([True, False])),
        lambda v: np.ravel(v, order="A"),
        lambda v: np.take(v, 0, out=np.zeros(())),
        lambda v: np.pad(v, 1, lambda *given: None),
    ],
    ids=["dtype", "out by position", "where alone", "order", "out", "a mode of one's own"],
)
def test_options_of_numpy_that_have_no_counterpart_are_refused(call):
    with GradientTape() as tape, pytest.raises(OdysseyError):
        call(Variable(np.ones(2), requires_grad=True))
    assert len(tape) == 0


def test_shape_questions_of_numpy_are_answered():
    v = Variable(np.ones((2, 3)), requires_grad=True)
    with GradientTape():
        assert (np.shape(v), np.ndim(v), np.size(v), np.size(v, 1)) == ((2, 3), 2, 6, 3)


METHODS = {
    "ravel": lambda v: v.ravel(),
    "ravel, columns first": lambda v: v.ravel("F"),
    "flatten": lambda v: v.flatten(order="C"),
    "squeeze": lambda v: v[None].squeeze(0),
    "swapaxes": lambda v: v.swapaxes(0, -1),
    "reshape": lambda v: v.reshape(3, 2, order="F"),
    "clip": lambda v: v.clip(2, max=4.5),
    "var": lambda v: v.var(0, ddof=1),
    "std": lambda v: v.std(axis=1, keepdims=True),
    "prod": lambda v: v.prod(-1),
    "cumsum": lambda v: v.cumsum(1),
    "argmin": lambda v: v.argmin(axis=1, keepdims=True),
    "any": lambda v: (v > 2.0).any(0),
    "all": lambda v: (v > 0.0).all(),
    "dot": lambda v: v.dot(np.arange(3.0)),
    "repeat": lambda v: v.repeat(2, axis=0),
    "take": lambda v: v.take([0, 5]),
}


@pytest.mark.parametrize("method", METHODS.values(), ids=list(METHODS))
def test_methods_are_numpys(method):
    x = whole((2, 3))
    with GradientTape():
        out = method(Variable(x, requires_grad=True))
    assert isinstance(out, Variable)
    assert out.requires_grad == (out.dtype.kind == "f")
    assert_same(out.numpy(), method(x))


def test_every_composite_is_reached_by_name_and_takes_a_tape():
    for name, function in COMPOSITES.items():
        assert getattr(ops, name) is function
        assert "tape" in function.__kwdefaults__


# ------------------------------------------------------------------ joining


def test_joined_arrays_have_the_common_dtype_and_each_gradient_its_own():
    parts = [whole(2, np.float32), whole(3, np.float64), whole(1, np.float16)]
    g = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    out, grads = gradients(lambda *v: ops.concatenate(v), parts, g)
    assert_same(out.numpy(), np.concatenate(parts))
    for gradient, part, wanted in zip(grads, parts, ([1, 2], [3, 4, 5], [6]), strict=True):
        assert_same(gradient, np.asarray(wanted, part.dtype))


def test_plain_arrays_numbers_and_constants_join_without_a_gradient():
    w = Variable([1.0, 2.0], requires_grad=True)
    with GradientTape() as tape:
        y = np.concatenate([np.array([5]), w, [3.0], Variable([4.0])])
        z = np.stack([w, [7, 8]])
    assert_same(y.numpy(), np.array([5.0, 1.0, 2.0, 3.0, 4.0]))
    assert_same(z.numpy(), np.array([[1.0, 2.0], [7.0, 8.0]]))
    assert_same(tape.gradient([y, z], w, [np.arange(5.0), np.ones((2, 2))]), np.array([2.0, 3.0]))


def test_a_list_of_lists_of_recorded_values_raises_rather_than_losing_their_gradient():
    w = Variable([1.0, 2.0], requires_grad=True)
    with GradientTape(), pytest.raises(OdysseyError, match="carry no gradient"):
        ops.concatenate([[w[0], w[1]], [w[0]]])


def test_arrays_may_come_one_by_one_as_the_row_has_them():
    x, y = whole((2, 2)), whole((1, 2))
    assert_same(ops.concatenate(x, y), np.concatenate([x, y]))
    assert_same(ops.concatenate(x, x, axis=1), np.concatenate([x, x], 1))
    assert_same(ops.concatenate(x, x, 1), np.concatenate([x, x], 1))


@pytest.mark.parametrize("count", [1, 2, 3, 33])
@pytest.mark.parametrize("axis", [0, -1, None], ids=str)
def test_any_number_of_arrays_differentiates_to_second_order(count, axis):
    rng = np.random.default_rng(0)
    parts = [rng.normal(size=(2, 2)) for _ in range(count)]
    od.testing.check_gradients(lambda *v: ops.square(ops.concatenate(v, axis=axis)), *parts)


@pytest.mark.parametrize("count", [1, 2, 30, 100])
def test_arrays_that_are_stacked_take_few_nodes_however_many_they_are(count):
    parts = [Variable(whole((2, 3), start=k), requires_grad=True) for k in range(count)]
    weights = whole((count, 2, 3))
    with GradientTape() as tape:
        out = ops.stack(parts)
    assert len(tape) <= 2 + (count > 32) * 4
    tape.backward(out, weights)
    assert np.array_equal(out.numpy(), np.stack([p.numpy() for p in parts]))
    for part, wanted in zip(parts, weights, strict=True):
        assert np.array_equal(part.grad, wanted)
        assert part.grad.base is None


def test_splitting_and_joining_is_the_identity():
    x = whole((5, 4))
    for axis in (0, 1):
        pieces = ops.array_split(x, 3, axis)
        assert_same(ops.concatenate(pieces, axis), x)
        assert all(piece.base is None for piece in pieces)
        assert_same(ops.stack(ops.unstack(x, axis=axis), axis), x)


@pytest.mark.parametrize("number", [1, 1.5, True, np.float64(1.5)], ids=repr)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "c8"])
def test_numbers_among_choices_are_as_weak_as_in_numpy(number, dtype):
    places, x = np.array([0, 1]), np.array([2, 3], dtype)
    wanted = np.choose(places, [x, number])
    found = np.choose(places, [Variable(x), number])
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found.numpy(), wanted)

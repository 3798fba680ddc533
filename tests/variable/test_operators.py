"""Variables in NumPy's hands: operators, functions, indexing, and the array protocols."""

import operator
import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import DTypeError, OdysseyError, ShapeError, TapeError
from support.cases import NEW_NUMPY

X = np.array([[0.5, 1.5], [2.0, 3.0]])
OTHERS = {
    "ndarray": np.array([[2.0, 3.0], [0.5, 1.0]]),
    "row": np.array([2.0, 0.5]),
    "python_int": 2,
    "python_float": 1.5,
    "numpy_scalar": np.float64(2.5),
    "zero_dim": np.array(1.5),
    "constant": Variable(np.array([[2.0, 3.0], [0.5, 1.0]])),
}
# op: derivative of op(a, b) in a, and in b
BINARY = {
    "add": (operator.add, lambda a, b: 1.0, lambda a, b: 1.0),
    "sub": (operator.sub, lambda a, b: 1.0, lambda a, b: -1.0),
    "mul": (operator.mul, lambda a, b: b, lambda a, b: a),
    "truediv": (operator.truediv, lambda a, b: 1 / b, lambda a, b: -a / b**2),
    "pow": (operator.pow, lambda a, b: b * a ** (b - 1), lambda a, b: a**b * np.log(a)),
}


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


def plain(value):
    return value.numpy() if isinstance(value, Variable) else value


# ------------------------------------------------------------------ operators


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", BINARY)
def test_operators_work_with_everything_on_either_side(name, other, side):
    apply, slope_a, slope_b = BINARY[name]
    other = OTHERS[other]
    w = wide(X)
    with GradientTape() as tape:
        y = apply(w, other) if side == "left" else apply(other, w)
    b = plain(other)
    assert isinstance(y, Variable)
    if side == "left":
        value, slope = apply(X, b), slope_a(X, b)
    else:
        value, slope = apply(b, X), slope_b(b, X)
    np.testing.assert_array_equal(y.numpy(), value)
    g = tape.gradient(y, w, np.ones((2, 2)))
    np.testing.assert_allclose(g, np.broadcast_to(slope, (2, 2)), rtol=1e-14)


@pytest.mark.parametrize("side", ["left", "right"])
def test_matmul_works_with_an_array_on_either_side(side):
    a, w = np.array([[2.0, 3.0], [0.5, 1.0]]), wide(X)
    ones = np.ones((2, 2))
    with GradientTape() as tape:
        y = w @ a if side == "left" else a @ w
    np.testing.assert_array_equal(y.numpy(), X @ a if side == "left" else a @ X)
    expected = ones @ a.T if side == "left" else a.T @ ones
    np.testing.assert_array_equal(tape.gradient(y, w, ones), expected)


def test_unary_operators():
    w = wide([-2.0, 3.0])
    with GradientTape() as tape:
        y = -w * 2.0 + abs(w) + (+w)
    np.testing.assert_array_equal(y.numpy(), [4.0, 0.0])
    np.testing.assert_array_equal(tape.gradient(y, w, np.ones(2)), [-2.0, 0.0])


def test_conditions_join_by_the_operators_of_bits():
    w = wide([-1.0, 0.5, 2.0])
    inside = (w > 0) & (w < 1)
    assert not inside.requires_grad
    np.testing.assert_array_equal(inside.numpy(), [False, True, False])
    np.testing.assert_array_equal((~inside | (w > 1)).numpy(), [True, False, True])
    mask = np.array([True, True, False])
    np.testing.assert_array_equal((mask & inside).numpy(), [False, True, False])
    np.testing.assert_array_equal((mask ^ inside).numpy(), [True, False, False])
    np.testing.assert_array_equal((5 | Variable([2, 4])).numpy(), [7, 5])
    with pytest.raises(DTypeError, match=r"bitwise_and: takes whole numbers and truth values"):
        _ = w & w


def test_a_complex_scalar_on_either_side_promotes():
    w = wide([1.0, 2.0])
    with GradientTape():
        assert (w * 1j).dtype == (1j * w).dtype == np.complex128


def test_numpy_arrays_give_way_to_variables():
    w = wide([1.0, 2.0])
    with GradientTape():
        for y in (np.ones(2) + w, np.float32(1) * w, np.ones((2, 2)) @ w, 1 - w):
            assert type(y) is Variable
            assert y.requires_grad


def test_adding_in_place_to_an_array_raises_rather_than_losing_the_gradient():
    w, total = wide([1.0, 2.0]), np.zeros(2)
    with GradientTape(), pytest.raises(DTypeError, match=r"np\.add with out="):
        total += w
    np.testing.assert_array_equal(total, np.zeros(2))


@pytest.mark.parametrize("other", ["text", object(), [object()]], ids=["text", "object", "list"])
def test_operators_refuse_what_is_no_number(other):
    w = wide([1.0, 2.0])
    with GradientTape() as tape, pytest.raises(DTypeError, match="add: y is a"):
        _ = w + other
    assert len(tape) == 0


def test_operators_take_lists_of_numbers():
    w = wide([1.0, 2.0])
    with GradientTape() as tape:
        y = (w * [3.0, 4.0]).sum()
    np.testing.assert_array_equal(tape.gradient(y, w), [3.0, 4.0])


# ------------------------------------------------------------------ methods and functions


@pytest.mark.parametrize(
    ("method", "reference"),
    [
        (lambda v: v.sum(), lambda x: x.sum()),
        (lambda v: v.sum(0), lambda x: x.sum(0)),
        (lambda v: v.sum(axis=-1, keepdims=True), lambda x: x.sum(axis=-1, keepdims=True)),
        (lambda v: v.mean(), lambda x: x.mean()),
        (lambda v: v.mean((0, 1)), lambda x: x.mean((0, 1))),
        (lambda v: v.max(), lambda x: x.max()),
        (lambda v: v.max(1), lambda x: x.max(1)),
        (lambda v: v.min(axis=0), lambda x: x.min(axis=0)),
        (lambda v: v.argmax(1), lambda x: x.argmax(1)),
        (lambda v: v.reshape(4), lambda x: x.reshape(4)),
        (lambda v: v.reshape(1, -1), lambda x: x.reshape(1, -1)),
        (lambda v: v.reshape((4, 1)), lambda x: x.reshape((4, 1))),
        (lambda v: v.transpose(), lambda x: x.transpose()),
        (lambda v: v.transpose(1, 0), lambda x: x.transpose(1, 0)),
        (lambda v: v.transpose((1, 0)), lambda x: x.transpose((1, 0))),
        (lambda v: v.T, lambda x: x.T),
        (lambda v: v.astype(np.float32), lambda x: x.astype(np.float32)),
        (lambda v: v.conj(), lambda x: x.conj()),
        (lambda v: v.real, lambda x: x.real),
        (lambda v: v.imag, lambda x: x.imag),
    ],
    ids=[
        "sum",
        "sum_axis",
        "sum_keepdims",
        "mean",
        "mean_axes",
        "max",
        "max_axis",
        "min",
        "argmax",
        "reshape",
        "reshape_lengths",
        "reshape_tuple",
        "transpose",
        "transpose_axes",
        "transpose_tuple",
        "T",
        "astype",
        "conj",
        "real",
        "imag",
    ],
)
def test_methods_equal_numpys(method, reference):
    with GradientTape():
        y = method(wide(X))
    expected = reference(X)
    assert y.dtype == expected.dtype
    np.testing.assert_array_equal(y.numpy(), expected)


def test_a_complex_number_is_true_for_either_part():
    x = np.array([0.0, 0.5j, 0.5, complex(0.0, np.nan)])
    step = od.compile(lambda v: v.astype(bool))
    for got in (Variable(x).astype(bool), step(Variable(x)), step(Variable(x))):
        assert got.numpy().tolist() == [False, True, True, True]
    for dtype in (bool, np.int32, np.float32, np.complex64):
        got = Variable(x[:3]).astype(dtype).numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that imaginary parts are lost
            np.testing.assert_array_equal(got, x[:3].astype(dtype), strict=True)


@pytest.mark.parametrize(
    ("fn", "slope"),
    [
        (np.exp, np.exp),
        (np.log, lambda x: 1 / x),
        (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
        (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
        (np.square, lambda x: 2 * x),
        (np.negative, lambda x: -np.ones_like(x)),
        (np.absolute, np.sign),
        (lambda v: np.add(v, 1.0), np.ones_like),
        (lambda v: np.multiply(3.0, v), lambda x: np.full_like(x, 3.0)),
        (lambda v: np.power(v, 2), lambda x: 2 * x),
        (lambda v: np.maximum(v, 1.7), lambda x: (x > 1.7) * 1.0),
        (lambda v: np.where(x_above_one(), v, 0.0), lambda x: (x > 1) * 1.0),
    ],
    ids=[
        "exp",
        "log",
        "sqrt",
        "tanh",
        "square",
        "negative",
        "absolute",
        "add",
        "multiply",
        "power",
        "maximum",
        "where",
    ],
)
def test_numpy_functions_on_variables_are_recorded(fn, slope):
    w = wide(X)
    with GradientTape() as tape:
        y = fn(w)
    assert y.tape is tape
    np.testing.assert_array_equal(y.numpy(), fn(X))
    np.testing.assert_allclose(tape.gradient(y, w, np.ones((2, 2))), slope(X), rtol=1e-14)


def x_above_one():
    return X > 1


@pytest.mark.parametrize(
    "fn",
    [
        np.sum,
        lambda v: np.sum(v, axis=1, keepdims=True),
        lambda v: np.sum(v, 0),
        np.mean,
        lambda v: np.max(v, axis=0),
        np.min,
        np.transpose,
        lambda v: np.reshape(v, (4,)),
        lambda v: np.matmul(v, X),
    ],
    ids=["sum", "sum_keepdims", "sum_axis", "mean", "max", "min", "transpose", "reshape", "matmul"],
)
def test_numpy_reductions_and_shapes_on_variables_are_recorded(fn):
    w = wide(X)
    with GradientTape() as tape:
        y = fn(w)
    assert y.tape is tape
    np.testing.assert_array_equal(y.numpy(), fn(X))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda v: np.spacing(v), "spacing"),
        (lambda v: np.nextafter(v, 0.5), "nextafter"),
        (lambda v: np.add.accumulate(v), r"add\.accumulate"),
        (lambda v: np.multiply.reduce(v), r"multiply\.reduce"),
        (lambda v: np.add(v, v, out=np.zeros((2, 2))), "add with out="),
        (lambda v: np.setdiff1d(v, v), "setdiff1d"),
        (lambda v: np.trim_zeros(v), "trim_zeros"),
    ],
    ids=[
        "spacing",
        "nextafter",
        "accumulate",
        "reduce",
        "out",
        "setdiff1d",
        "trim_zeros",
    ],
)
def test_functions_that_the_table_lacks_raise_and_name_themselves(call, name):
    w = wide(X)
    with GradientTape() as tape, pytest.raises(DTypeError, match=rf"np\.{name}.*detach\(\)"):
        call(w)
    assert len(tape) == 0


def test_a_function_of_a_part_of_numpy_is_named_with_it():
    with pytest.raises(DTypeError, match=r"^np\.lib\.stride_tricks\.sliding_window_view is not in"):
        np.lib.stride_tricks.sliding_window_view(wide(np.eye(2)), 2, 0)


def test_options_of_numpy_that_an_op_lacks_are_refused():
    w = wide(X)
    with GradientTape(), pytest.raises(OdysseyError, match=r"sum: .*out"):
        np.sum(w, out=np.zeros(()))


# ------------------------------------------------------------------ becoming an array


def test_what_a_tape_follows_does_not_become_an_array():
    w = wide(X)
    with GradientTape():
        y = w * 2.0
        for value in (w, y):
            with pytest.raises(TapeError, match=r"\.detach\(\)\.numpy\(\)"):
                np.asarray(value)
        with od.no_grad():
            np.testing.assert_array_equal(np.asarray(y), X * 2.0)
    np.testing.assert_array_equal(y.detach().numpy(), X * 2.0)


def test_constants_and_leaves_off_the_tape_become_arrays():
    np.testing.assert_array_equal(np.asarray(Variable(X)), X)
    np.testing.assert_array_equal(np.asarray(wide(X)), X)
    assert np.asarray(Variable(X), np.float32).dtype == np.float32


def test_the_array_of_a_leaf_cannot_be_written_through():
    w = wide(X)
    array = np.asarray(w)
    assert not (array.flags.writeable and np.shares_memory(array, w.data))


def test_dlpack_hands_over_detached_values_only():
    w = wide(X)
    with GradientTape():
        y = w * 2.0
    np.testing.assert_array_equal(np.from_dlpack(Variable(X.copy())), X)
    if NEW_NUMPY:  # an older one hands over no arrays that are read-only
        np.testing.assert_array_equal(np.from_dlpack(y.detach()), 2.0 * X)
    for value in (w, y, w * 2.0):
        with pytest.raises(TapeError, match=r"__dlpack__: detach\(\)"):
            np.from_dlpack(value)


# ------------------------------------------------------------------ indexing

KEYS = {
    "int": 1,
    "negative": -1,
    "slice": slice(None, None, -2),
    "tuple": (1, slice(0, 2)),
    "ellipsis": (..., 0),
    "newaxis": (None, 1),
    "list": [0, 2, 2],
    "array": np.array([[0, 1], [2, 2]]),
    "mask": np.arange(12).reshape(3, 4) % 3 == 0,
    "row_mask": np.array([True, False, True]),
    "mixed": (np.array([0, 2, 0]), slice(1, 3)),
    "pairs": (np.array([0, 2, 0]), np.array([1, 1, 1])),
    "numpy_int": np.int64(2),
    "empty": slice(1, 1),
    "everything": (),
}


@pytest.mark.parametrize("name", KEYS)
def test_indexing_equals_numpys_and_repeated_places_add_up(name):
    key, x = KEYS[name], np.arange(12.0).reshape(3, 4)
    w = wide(x)
    with GradientTape() as tape:
        y = w[key]
    np.testing.assert_array_equal(y.numpy(), x[key])
    g = np.arange(1.0, 1.0 + y.size).reshape(y.shape)
    expected = np.zeros((3, 4))
    np.add.at(expected, key, g)
    np.testing.assert_array_equal(tape.gradient(y, w, g), expected)


@pytest.mark.parametrize("name", KEYS)
def test_indexing_gives_values_never_aliases(name):
    w = wide(np.arange(12.0).reshape(3, 4))
    with GradientTape():
        y = w[KEYS[name]]
    assert not np.shares_memory(y.data, w.data)
    before = y.numpy().copy()
    w.assign(-1.0)
    np.testing.assert_array_equal(y.numpy(), before)


def test_a_constant_variable_is_an_index():
    w = wide([1.0, 2.0, 3.0])
    with GradientTape() as tape:
        y = w[Variable(np.array([0, 2]))].sum() + w[Variable(np.array(1))]
    np.testing.assert_array_equal(tape.gradient(y, w), [1.0, 1.0, 1.0])


def test_an_index_that_is_written_to_later_does_not_move_the_gradient():
    w, key = wide([1.0, 2.0, 3.0]), np.array([0, 1])
    with GradientTape() as tape:
        y = w[key].sum()
    key[:] = 2
    np.testing.assert_array_equal(tape.gradient(y, w), [1.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("key", "error", "words"),
    [
        (7, ShapeError, r"getitem: .*out of bounds.*\(3, 4\)"),
        ((0, 0, 0), ShapeError, "getitem: .*too many indices"),
        (np.array([0.5]), DTypeError, "index array has dtype float64"),
        (np.array([True]), ShapeError, "getitem: .*boolean"),
    ],
    ids=["range", "too_many", "float", "mask_size"],
)
def test_what_cannot_index_is_refused(key, error, words):
    w = wide(np.arange(12.0).reshape(3, 4))
    with GradientTape() as tape, pytest.raises(error, match=words):
        _ = w[key]
    assert len(tape) == 0


def test_remainder_and_floor_division_work_from_both_sides():
    w = Variable([5.5, -5.5], requires_grad=True)
    with GradientTape():
        assert (w % 2.0).numpy().tolist() == [1.5, 0.5]
        assert (7.0 % w).numpy().tolist() == [1.5, -4.0]
        assert (w // 2.0).numpy().tolist() == [2.0, -3.0]
        assert (7.0 // w).numpy().tolist() == [1.0, -2.0]
        assert w.round().numpy().tolist() == [6.0, -6.0]

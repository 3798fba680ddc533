"""What is more than an array is refused by name, or keeps the lead: nothing is stripped."""

import operator
import warnings
from itertools import product

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, grad, jacobian, jvp, ops, value_and_grad, vjp
from odyssey.errors import DTypeError, OdysseyError
from odyssey.losses import (
    compute_ce_gradient,
    compute_mse_gradient,
    cross_entropy,
    mean_squared_error,
    mse_loss_and_grad,
)
from odyssey.ops import OPS
from support.cases import CASES, draw, random_like, tracked, walk


def matrix(rows):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.matrix(rows)


class Metres(np.ndarray):
    """A subclass with arithmetic of its own."""

    def __mul__(self, other):
        return np.ndarray.__mul__(self, other).view(Metres)


class Sparse:
    """What scipy.sparse looks like from outside."""

    def toarray(self):
        return np.ones(2)


Sparse.__module__ = "scipy.sparse._csr"


class Tensor:
    """A tensor of another library, which becomes an array where its gradient is not asked."""

    def __init__(self, requires_grad):
        self.requires_grad = requires_grad

    def __array__(self, dtype=None, copy=None):
        return np.array([3.0, 4.0], dtype)


class Labelled:
    """A container with arithmetic of its own, as those of xarray and pint are."""

    def __init__(self, inner):
        self.inner = inner

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.inner, dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, **named):
        return Labelled(ufunc(*[x.inner if isinstance(x, Labelled) else x for x in inputs]))

    def _apply(self, other, op):
        return Labelled(op(other, self.inner))

    def __radd__(self, other):
        return self._apply(other, lambda x, y: x + y)

    def __rsub__(self, other):
        return self._apply(other, lambda x, y: x - y)

    def __rmul__(self, other):
        return self._apply(other, lambda x, y: x * y)

    def __rtruediv__(self, other):
        return self._apply(other, lambda x, y: x / y)

    def __rpow__(self, other):
        return self._apply(other, lambda x, y: x**y)

    def __rmatmul__(self, other):
        return self._apply(other, lambda x, y: x @ y)

    def __gt__(self, other):  # what Python asks for ``other < self``
        return self._apply(other, lambda x, y: x < y)

    def __eq__(self, other):
        return self._apply(other, lambda x, y: x == y)

    __hash__ = None


class Unfriendly:
    """A container that knows nothing of others, and answers no operator."""

    __array_ufunc__ = staticmethod(lambda *args, **named: NotImplemented)

    def __array__(self, dtype=None, copy=None):
        return np.ones(2, dtype)


REFUSED = {
    "masked": (np.ma.array([1.0, 2.0], mask=[True, False]), "mask would be lost"),
    "masked constant": (np.ma.masked, "mask would be lost"),
    "matrix": (matrix([[1.0, 2.0]]), "those of matrices"),
    "objects": (np.array([1.0, 2.0], object), "Python objects"),
    "structured": (np.zeros(2, [("a", "f8")]), "has the fields a"),
    "records": (np.zeros(2, [("a", "f8")]).view(np.recarray), "has the fields a"),
    "sparse": (Sparse(), "toarray"),
    "subclass": (np.ones(2).view(Metres), "arithmetic of its own"),
    "durations": (np.ones(2, "m8[s]"), "timedelta64"),
    "dates": (np.zeros(2, "M8[s]"), "datetime64"),
    "text": (np.array(["a", "b"]), "dtype <U1"),
    "labelled": (Labelled(np.ones(2)), "labels or units would be lost"),
    "with a gradient": (Tensor(True), "requires a gradient"),
    "nest of masked": ([np.ma.array([1.0, 2.0], mask=[True, False])], "mask would be lost"),
    "nest of objects": ([1.0, None], "object"),
}


def leaf():
    return Variable([1.0, 2.0], requires_grad=True)


def squared():
    w = leaf()
    with GradientTape(persistent=True) as tape:
        y = w * w
    return w, y, tape


def hook(value):
    w, y, tape = squared()
    tape.on_gradient(w, lambda g: value)
    tape.backward(y, np.ones(2))


def load(value):
    optimizer = od.optim.SGD([leaf()], learning_rate=0.1, momentum=0.9)
    optimizer.params[0].grad = np.ones(2)
    optimizer.step()
    saved = optimizer.state_dict()
    name = next(name for name in saved["state"][0] if name != "steps")
    saved["state"][0][name] = value
    optimizer.load_state_dict(saved)


def custom(forward, backward):
    @od.custom_vjp
    def double(x):
        return x * 2

    double.defvjp(forward, backward)
    grad(lambda x: double(x).sum())(np.ones(2))


def own_op(kernel, rule):
    @od.op(vjp={"x": rule})
    def strange(x, /):
        return kernel(x)

    w = leaf()
    with GradientTape() as tape:
        y = strange(w)
    tape.gradient(y, w, np.ones(2))


def recorded_by_hand(value):
    w = leaf()
    with GradientTape() as tape:
        tape.record("multiply", (w, w), tape.constant(np.ones(2)), x=value)


def watched(value):
    with GradientTape() as tape:
        tape.watch(value)


TWO = np.ones(2)
DOORS = {
    "Variable": Variable,
    "trainable": lambda v: Variable(v, requires_grad=True),
    "assign": lambda v: leaf().assign(v),
    "grad": lambda v: setattr(leaf(), "grad", v),
    "setitem of a leaf": lambda v: leaf().__setitem__(slice(None), v),
    "setitem": lambda v: ops.setitem(TWO, v, slice(None)),
    "index": lambda v: leaf()[v],
    "unary op": ops.exp,
    "binary op, right": lambda v: ops.multiply(leaf(), v),
    "binary op, left": lambda v: ops.multiply(v, leaf()),
    "binary op of arrays": lambda v: ops.multiply(TWO, v),
    "comparison": lambda v: ops.less(leaf(), v),
    "op with options": ops.sum,
    "op of many": lambda v: ops.concatenate([leaf(), v]),
    "where": lambda v: ops.where(v, leaf(), 0.0),
    "take": lambda v: ops.take(leaf(), v),
    "linear": lambda v: ops.linear(np.ones((1, 2)), np.ones((2, 2)), v),
    "clip": lambda v: ops.clip(leaf(), v, None),
    "full_like": lambda v: ops.full_like(TWO, v),
    "pad": lambda v: ops.pad(TWO, 1, constant_values=v),
    "one_hot": lambda v: ops.one_hot(v, 3),
    "where=": lambda v: np.sum(leaf(), where=v),
    "seed of backward": lambda v: (lambda w, y, tape: tape.backward(y, v))(*squared()),
    "seed of gradient": lambda v: (lambda w, y, tape: tape.gradient(y, w, v))(*squared()),
    "tangent": lambda v: (lambda w, y, tape: tape.jvp(y, w, v))(*squared()),
    "watch": watched,
    "tape.variable": lambda v: GradientTape().variable(v),
    "tape.constant": lambda v: GradientTape().constant(v),
    "hook": hook,
    "load_state_dict": load,
    "prediction": lambda v: mean_squared_error(v, TWO),
    "target": lambda v: mean_squared_error(TWO, v),
    "classes": lambda v: cross_entropy(np.ones((2, 2)), v),
    "weights": lambda v: mean_squared_error(TWO, TWO, weights=v),
    "compute_gradient": lambda v: compute_mse_gradient(TWO, v),
    "compute_gradient weights": lambda v: compute_mse_gradient(TWO, TWO, weights=v),
    "compute_ce weights": lambda v: compute_ce_gradient(np.eye(2), np.array([0, 1]), weights=v),
    "loss_and_grad": lambda v: mse_loss_and_grad(v, TWO),
    "backward function, g": lambda v: od.backward.multiply(v, TWO, TWO),
    "backward function, x": lambda v: od.backward.multiply(TWO, v, TWO),
    "grad(f)": lambda v: grad(lambda x: ops.sum(x))(v) if not isinstance(v, list) else Variable(v),
    "value_and_grad": lambda v: value_and_grad(lambda x: ops.sum(x))((v,)),
    "vjp": lambda v: vjp(lambda x: x, (v,)),
    "pullback": lambda v: vjp(lambda x: x * 2, TWO)[1](v),
    "jvp": lambda v: jvp(lambda x: x * 2, (TWO,), (v,)),
    "jacobian": lambda v: jacobian(lambda x: x)((v,)),
    "compile": lambda v: od.compile(lambda x: ops.exp(x))(v if not isinstance(v, list) else v[0]),
    "custom_vjp, gradient": lambda v: custom(lambda x: (x * 2, ()), lambda r, g: (v,)),
    "own op": lambda v: own_op(lambda x: v, lambda g: g),
    "own rule": lambda v: own_op(lambda x: x * 1, lambda g: v),
    "record": recorded_by_hand,
    "check_gradients": lambda v: od.testing.check_gradients(lambda x: x * 1.0, v),
}
TREES = ("value_and_grad", "vjp", "jacobian", "compile")  # where None is a leaf like others
PAIRS = {
    f"{kind} as {door}": (take, value)
    for door, take in DOORS.items()
    for kind, (value, _) in REFUSED.items()
    if not (door in TREES and kind == "nest of objects")
}


@pytest.mark.parametrize(("door", "value"), PAIRS.values(), ids=list(PAIRS))
def test_what_is_more_than_an_array_is_refused_by_name_wherever_it_comes_in(door, value):
    with pytest.raises(DTypeError) as caught:
        door(value)
    error = caught.value
    assert error.__context__ is None or error.__suppress_context__


@pytest.mark.parametrize("kind", REFUSED)
def test_the_refusal_says_what_came_and_what_to_do(kind):
    value, words = REFUSED[kind]
    with pytest.raises(DTypeError, match=rf"multiply: y .*{words}"):
        ops.multiply(leaf(), value)


@pytest.mark.parametrize("kind", ["masked", "matrix", "objects", "structured", "text", "durations"])
@pytest.mark.parametrize("recording", [True, False], ids=["recorded", "alone"])
def test_a_refused_operand_records_nothing_and_loses_no_mask(kind, recording):
    value, _ = REFUSED[kind]
    w = leaf()
    with GradientTape() as tape:
        w * 2.0
        if not recording:
            tape.disable()
        for refused in (
            lambda: w * value,
            lambda: w + value,
            lambda: w < value,
            lambda: np.multiply(w, value),
            lambda: np.multiply(value, w),
        ):
            with pytest.raises(OdysseyError):
                refused()
        assert len(tape) == 1


# ------------------------------------------------------------------ containers that keep the lead

OPERATORS = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": lambda x, y: x / y,
    "**": lambda x, y: x**y,
    "@": lambda x, y: x @ y,
    "<": lambda x, y: x < y,
    "==": lambda x, y: x == y,
    "np.multiply": np.multiply,
    "np.hypot": np.hypot,
}


@pytest.mark.parametrize("apply", OPERATORS.values(), ids=list(OPERATORS))
def test_a_container_with_arithmetic_of_its_own_keeps_the_lead_and_the_gradient(apply):
    w, numbers = leaf(), np.array([3.0, 4.0])
    with GradientTape() as tape:
        got, wanted = apply(w, Labelled(numbers)), apply(w, numbers)
        assert type(got) is Labelled
        assert type(got.inner) is Variable
        np.testing.assert_array_equal(got.inner.detach(), wanted.detach())
        if wanted.dtype == float:
            loss = ops.sum(got.inner * got.inner)
    if wanted.dtype == float:
        assert np.all(tape.gradient(loss, w) != 0)


def test_in_place_operators_give_way_too():
    w = leaf()
    with GradientTape():
        y = w * 1.0
        y *= Labelled(np.array([3.0, 4.0]))
    assert type(y) is Labelled


def answering(name, **named):
    """A class that answers every operator with the name of its method."""
    signs = "eq ne lt le gt ge radd rsub rmul rtruediv rfloordiv rmod rpow rmatmul rand ror rxor"
    methods = [f"__{sign}__" for sign in [*signs.split(), "rdivmod"]]
    answers = {m: lambda self, other, m=m: m for m in methods}
    return type(name, (), {**answers, "__hash__": None, **named})


def as_numbers(self, dtype=None, copy=None):
    return np.array([3.0, 4.0], dtype)


OPTING_OUT = {
    "no ufuncs": answering("Opted", __array_ufunc__=None),
    "no ufuncs, array": answering("Opted", __array_ufunc__=None, __array__=as_numbers),
    "priority": answering("First", __array_priority__=1e6),
    "priority, array": answering("First", __array_priority__=1e6, __array__=as_numbers),
}
SIGNS = ["eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod"]
SIGNS += ["pow", "matmul", "and_", "or_", "xor"]
TURNED = {"lt": "__gt__", "le": "__ge__", "gt": "__lt__", "ge": "__le__"}


@pytest.mark.parametrize("kind", OPTING_OUT)
@pytest.mark.parametrize("sign", [*SIGNS, "divmod"])
def test_what_asks_numpy_for_its_turn_has_it_beside_variables_too(kind, sign):
    other, apply = OPTING_OUT[kind](), getattr(operator, sign, divmod)
    same = sign in ("eq", "ne")
    wanted = TURNED.get(sign, f"__{'' if same else 'r'}{sign.rstrip('_')}__")
    assert apply(np.ones(2), other) == wanted
    w = leaf()
    with GradientTape() as tape:
        assert apply(w, other) == wanted
        assert apply(Variable([1, 2]), other) == wanted
        assert not len(tape)
    compiled = od.compile(lambda x: apply(x, other))
    assert [compiled(np.ones(2)) for _ in range(3)] == [wanted] * 3


def test_an_object_of_no_higher_priority_is_taken_as_the_array_that_it_gives():
    other = answering("Last", __array_priority__=1, __array__=as_numbers)()
    np.testing.assert_array_equal((Variable([1.0, 2.0]) + other).numpy(), [4.0, 6.0])


@pytest.mark.parametrize("named", [{"__array_ufunc__": None}, {"__array_priority__": 1e6}])
def test_equality_with_what_has_none_of_its_own_is_refused_and_not_answered_by_identity(named):
    other = type("Silent", (), named)()
    for apply in (operator.eq, operator.ne):
        with pytest.raises(DTypeError, match="equal: y is a Silent"):
            apply(Variable([1.0, 2.0]), other)


def test_a_container_that_answers_no_operator_is_refused_and_not_stripped():
    w = leaf()
    with GradientTape() as tape:
        for apply in ("+", "-", "*", "/", "**", "@", "<", "np.multiply"):
            with pytest.raises(TypeError):
                OPERATORS[apply](w, Unfriendly())
        with pytest.raises(DTypeError, match="labels or units"):
            w.__rmul__(Unfriendly())
        assert not len(tape)


def test_a_function_of_ops_refuses_the_container_and_says_what_to_pass():
    with pytest.raises(
        DTypeError, match=r"multiply: y is a test_variable_foreign_arrays\.Labelled.*\.values"
    ):
        ops.multiply(leaf(), Labelled(np.ones(2)))


# ------------------------------------------------------------------ what passes for an array


class Plain(np.ndarray):
    """A subclass that adds nothing to arithmetic."""


def test_memory_maps_and_plain_subclasses_are_arrays(tmp_path):
    stored = np.memmap(tmp_path / "x.bin", np.float64, "w+", shape=(2,))
    stored[:] = 3.0, 4.0
    reading = np.memmap(tmp_path / "x.bin", np.float64, "r", shape=(2,))
    for operand in (stored, reading, np.array([3.0, 4.0]).view(Plain)):
        w = leaf()
        with GradientTape() as tape:
            y = w * operand
        assert type(y.detach().numpy()) is np.ndarray
        np.testing.assert_array_equal(tape.gradient(y, w, np.ones(2)), [3.0, 4.0])
        assert type(Variable(operand).numpy()) is np.ndarray


def test_a_write_to_a_memory_map_after_its_use_does_not_reach_the_gradient(tmp_path):
    stored = np.memmap(tmp_path / "x.bin", np.float64, "w+", shape=(1000,))
    stored[:] = 3.0
    w = Variable(np.ones(1000), requires_grad=True)
    with GradientTape() as tape:
        y = w * stored
    stored[:] = 9.0
    np.testing.assert_array_equal(tape.gradient(y, w, np.ones(1000)), np.full(1000, 3.0))


def test_a_tensor_without_a_gradient_is_an_array():
    w = leaf()
    with GradientTape() as tape:
        y = w * Tensor(False)
    np.testing.assert_array_equal(tape.gradient(y, w, np.ones(2)), [3.0, 4.0])


def test_a_container_whose_conversion_fails_is_refused_with_its_reason():
    class Broken:
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("on another device")

    with pytest.raises(DTypeError, match=r"exp: x is not an array .*on another device"):
        ops.exp(Broken())


# ------------------------------------------------------------------ byte order and dtypes


def swapped(value):
    """The same numbers in the byte order of other machines."""
    if isinstance(value, np.ndarray) and value.dtype.itemsize > 1:
        return value.astype(value.dtype.newbyteorder("S"))
    return value


def assert_native(got, wanted):
    assert np.asarray(got).dtype == np.asarray(wanted).dtype
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


def differentiated(row, operands, options, positions, change):
    args = list(operands)
    for k in positions:
        args[k] = Variable(args[k], requires_grad=True)
    leaves = [args[k] for k in positions]
    with GradientTape(persistent=True) as tape:
        out = row.call(*args, **options)
    c = change(random_like(out, seed=1))
    directions = [change(random_like(w, seed=2 + k)) for k, w in enumerate(leaves)]
    tape.backward(out, c)
    return [
        out.detach().numpy(),
        *tape.gradient(out, leaves, c),
        tape.jvp(out, leaves, directions),
        *[w.grad for w in leaves],
    ]


@walk(CASES)
def test_operands_of_foreign_byte_order_are_brought_to_native_order(row, sample):
    operands = draw(sample, np.float32)
    foreign = [swapped(operand) for operand in operands]
    options = {name: swapped(option) for name, option in sample.options.items()}
    assert_native(row.call(*foreign, **options), row.call(*operands, **sample.options))
    every = tracked(row, sample)
    for positions in {tuple(every), *[(k,) for k in every]} - {()}:
        got = differentiated(row, foreign, options, positions, swapped)
        wanted = differentiated(row, operands, sample.options, positions, lambda x: x)
        for one, other in zip(got, wanted, strict=True):
            assert_native(one, other)


@pytest.mark.parametrize("letter", ["e", "f", "d", "g", "F", "D", "G"])
def test_foreign_byte_order_is_gone_wherever_an_array_is_taken_in(letter):
    numbers = swapped(np.array([1.0, 2.0], letter))
    assert not numbers.dtype.isnative
    w = Variable(numbers, requires_grad=True)
    assert w.dtype == w.data.dtype == np.dtype(letter)
    assert Variable(numbers).data.dtype.isnative
    assert Variable([1.0], dtype=numbers.dtype).data.dtype.isnative
    w.assign(numbers)
    w.grad = numbers
    assert w.dtype.isnative
    assert w.grad.dtype.isnative
    with GradientTape(persistent=True) as tape:
        v = tape.watch(numbers)
        y = w * numbers + ops.exp(v) * v
        z = ops.astype(y, numbers.dtype)
    assert z.data.dtype.isnative
    found = tape.gradient(z, [w, v], numbers)
    assert [g.dtype for g in found] == [np.dtype(letter)] * 2
    out, pull = vjp(lambda x: x * x, numbers)
    assert out.dtype.isnative
    assert pull(numbers)[0].dtype.isnative
    assert grad(lambda x: ops.sum(ops.real(x * x)))(numbers).dtype.isnative


MIXED = [
    (name, kind, constant)
    for name, row in OPS.items()
    if row.elementwise and len(row.arrays) == 2 and all(row.vjp.values())
    for kind in ("float16", "float32", "float64")
    for constant in ("bool", "int8", "uint8", "int16", "float16", "float32")
    if np.result_type(kind, constant) == np.dtype(kind)
]


@pytest.mark.parametrize(("name", "kind", "constant"), MIXED)
def test_a_gradient_has_the_dtype_of_its_variable_beside_constants_of_any_dtype(
    name, kind, constant
):
    row = OPS[name]
    options = row.samples[0].options
    least = -128 if constant in ("int8", "int16", "float16", "float32") else 0
    for place, numbers in product((0, 1), ([0, 1, 3], [least, 100, 127])):
        numbers = np.array(numbers).astype(constant)
        found = []
        for dtype, beside in ((kind, numbers), ("float64", numbers.astype(np.float64))):
            w = Variable(np.array([0.7, 1.3, 0.9], kind), True, dtype=dtype)
            operands = (w, beside) if place == 0 else (beside, w)
            with np.errstate(all="ignore"):
                with GradientTape(persistent=True) as tape:
                    y = row.call(*operands, **options)
                tape.backward(y, np.ones(3, y.dtype))
                found.append((w.grad, tape.jvp(y, w, np.ones(3, w.dtype))))
        tolerance = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-12}[kind]
        for got, wanted in zip(*found, strict=True):
            assert got.dtype == np.dtype(kind)
            with np.errstate(over="ignore", under="ignore"):
                np.testing.assert_allclose(got, wanted.astype(kind), tolerance, tolerance)


@pytest.mark.parametrize("exponents", [[-128, 100, 127], [0, 1, 2]], ids=["int8", "small"])
def test_the_exponents_of_a_power_do_not_wrap_round_in_its_rule(exponents):
    w = Variable(np.array([1.01, 0.99, 1.02], np.float32), requires_grad=True)
    kind = np.int8 if exponents[0] else np.uint8
    with GradientTape() as tape:
        y = w ** np.array(exponents, kind)
    got = tape.gradient(y, w, np.ones(3, np.float32))
    n = np.array(exponents, np.float64)
    np.testing.assert_allclose(got, n * w.data.astype(np.float64) ** (n - 1), rtol=1e-4)


# ------------------------------------------------------------------ the libraries themselves


@pytest.mark.peers
def test_xarray_keeps_its_container_and_the_gradient():
    xarray = pytest.importorskip("xarray")
    array = xarray.DataArray([3.0, 4.0], dims="x")
    for apply in (lambda w: w * array, lambda w: array * w, lambda w: np.multiply(w, array)):
        w = leaf()
        with GradientTape() as tape:
            product = apply(w)
            assert type(product) is xarray.DataArray
            loss = ops.sum(product.data)
        np.testing.assert_array_equal(tape.gradient(loss, w), [3.0, 4.0])
    with pytest.raises(DTypeError, match=r"xarray\.DataArray, whose labels"):
        ops.multiply(w, array)


@pytest.mark.peers
def test_pandas_keeps_the_lead_in_operators_and_gives_its_numbers_to_functions():
    pandas = pytest.importorskip("pandas")
    series = pandas.Series([3.0, 4.0])
    w = leaf()
    with GradientTape() as tape:
        for refused in (lambda: w * series, lambda: series * w):
            with pytest.raises(OdysseyError):
                refused()
        y = ops.multiply(w, series)
    np.testing.assert_array_equal(tape.gradient(y, w, np.ones(2)), [3.0, 4.0])
    np.testing.assert_array_equal(Variable(series), [3.0, 4.0])


@pytest.mark.peers
def test_tensors_of_torch_that_require_a_gradient_are_refused():
    torch = pytest.importorskip("torch")
    followed = torch.tensor([3.0, 4.0], requires_grad=True)
    w = leaf()
    with GradientTape() as tape:
        for refused in (lambda: w * followed, lambda: followed * w, lambda: Variable(followed * 2)):
            with pytest.raises(DTypeError, match="requires a gradient"):
                refused()
        y = w * followed.detach()
    np.testing.assert_array_equal(tape.gradient(y, w, np.ones(2)), [3.0, 4.0])


def test_an_array_as_the_dtype_of_a_ufunc_is_refused_by_name():
    w = Variable(np.ones(3), requires_grad=True)
    for dtype in (np.ones(2), np.zeros(2, [("a", "f8"), ("b", "i8")])):
        with pytest.raises(DTypeError, match="dtype="):
            np.add(w, 1.0, dtype=dtype)
        with pytest.raises(DTypeError, match=r"np\.add with out, dtype="):
            np.add(w, 1.0, out=GradientTape(), dtype=dtype)

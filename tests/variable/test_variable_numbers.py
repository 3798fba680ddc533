"""Numbers out of Variables: refused where a gradient would be lost, free everywhere else."""

import array
import asyncio
import cmath
import copy
import json
import math
import operator
import statistics
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, no_grad, ops
from odyssey.errors import DTypeError, ShapeError, TapeError, UntrackedError

# ------------------------------------------------------------------ the doors

NUMBERS = {
    "float": float,
    "int": int,
    "complex": complex,
    "complex, imaginary": lambda v: complex(1.0, v),
    "index": operator.index,
    "range": range,
    "list index": lambda v: [1, 2, 3][v],
    "slice": lambda v: [1, 2, 3][:v],
    "array slice": lambda v: np.zeros(3)[:v],
    "percent": lambda v: "%.2f" % v,  # noqa: UP031
    "percent d": lambda v: "%d" % v,  # noqa: UP031
    "math.exp": math.exp,
    "math.pow": lambda v: math.pow(2.0, v),
    "math.floor": math.floor,
    "math.ceil": math.ceil,
    "math.trunc": math.trunc,
    "math.fsum": lambda v: math.fsum([v]),
    "math.isclose": lambda v: math.isclose(v, 1.0),
    "math.dist": lambda v: math.dist([v], [1.0]),
    "cmath.exp": cmath.exp,
    "fmean": lambda v: statistics.fmean([v, v]),
    "array module": lambda v: array.array("d", [v]),
}

# What NumPy does with it: some wrap the error in one of their own.
ARRAYS = {
    "item": lambda v: operator.setitem(np.zeros(3), 0, v),
    "item of an object": lambda v: operator.setitem(np.zeros(3), (0,), v),
    "item of integers": lambda v: operator.setitem(np.zeros(3, int), 0, v),
    "item of complex": lambda v: operator.setitem(np.zeros(3, complex), 0, v),
    "item of float16": lambda v: operator.setitem(np.zeros(3, np.float16), 0, v),
    "slice": lambda v: operator.setitem(np.zeros(3), slice(0, 2), v),
    "mask": lambda v: operator.setitem(np.zeros(3), np.array([True, False, True]), v),
    "add to an item": lambda v: operator.setitem(np.zeros(3), 0, np.ones(3)[0] + v),
    "in place": lambda v: operator.iadd(np.zeros(3), v),
    "fill": lambda v: np.zeros(3).fill(v),
    "put": lambda v: np.zeros(3).put(0, v),
    "np.put": lambda v: np.put(np.zeros(3), 0, v),
    "np.copyto": lambda v: np.copyto(np.zeros(3), v),
    "np.full": lambda v: np.full(3, v),
    "np.full_like": lambda v: np.full_like(np.zeros(3), v),
    "fromiter": lambda v: np.fromiter([v], float),
    "array": lambda v: np.array([v, v]),
    "array of floats": lambda v: np.array([v, v], float),
    "array of a nest": lambda v: np.asarray([[v, 1.0], [2.0, v]]),
    "asarray": np.asarray,
    "array of objects": lambda v: np.array([v], object).astype(float),
    "structured": lambda v: np.array([(v,)], [("a", float)]),
    "float64": np.float64,
    "float32": np.float32,
    "int64": np.int64,
    "complex128": np.complex128,
    "initial": lambda v: np.sum(np.zeros(3), initial=v),
    "initial of a method": lambda v: np.zeros(3).sum(initial=v),
    "pad": lambda v: np.pad(np.zeros(3), 1, constant_values=v),
    "fill_diagonal": lambda v: np.fill_diagonal(np.zeros((2, 2)), v),
    "random": lambda v: np.random.default_rng(0).normal(v, 1.0),
    "vectorize": lambda v: np.vectorize(lambda a: a * v)(np.zeros(3)),
    "frompyfunc": lambda v: np.frompyfunc(lambda a: a * v, 1, 1)(np.ones(3)).astype(float),
    "arange": lambda v: np.arange(0, v),
    "searchsorted": lambda v: np.arange(3.0).searchsorted(v),
    "interp": lambda v: np.interp(0.5, [0, 1], [0, v]),
    "polyval": lambda v: np.polyval([1.0, v], 2.0),
    "r_": lambda v: np.r_[1.0, v],
    "dlpack": np.from_dlpack,
}

# These put an error of their own in the place of ours.
OWN_WORDS = {
    "struct": lambda v: struct.pack("d", v),
    "flat": lambda v: operator.setitem(np.zeros(3).flat, 0, v),
}

# Python refuses these by itself, with or without a tape.
OTHERS = {
    "statistics.mean": lambda v: statistics.mean([v, v]),
    "Decimal": Decimal,
    "Fraction": Fraction,
    "json": json.dumps,
    "memoryview": memoryview,
    "bytes": bytes,
}

# These keep the gradient, or say in so many words that they do not.
FREE = {
    "item": lambda v: v.item(),
    "detached array": lambda v: v.detach().numpy(),
    "detached float": lambda v: float(v.detach()),
    "format": lambda v: f"{v}",
    "format with a spec": lambda v: f"{v:.3f}",
    "str.format": lambda v: "{:.3f}".format(v),  # noqa: UP032
    "percent s": lambda v: "%s" % v,  # noqa: UP031
    "repr": repr,
    "str": str,
    "bool": bool,
    "if": lambda v: 1 if v > 0 else 2,
    "sorted": lambda v: sorted([v, v]),
    "max": lambda v: max(v, 1.0),
    "hash": hash,
    "stop_gradient": lambda v: float(od.stop_gradient(v)),
}


# ------------------------------------------------------------------ who is followed


def intermediate(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape():
        return use(w * 1.0)


def leaf(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape():
        return use(w)


def watched(use):
    with GradientTape() as tape:
        return use(tape.watch(2.0))


def enabled(use):
    """An intermediate of a tape that is not entered but on."""
    tape = GradientTape()
    tape.enable()
    w = Variable(2.0, requires_grad=True)
    return use(ops.multiply(w, 1.0, tape=tape))


def at_home(use):
    """A leaf that its own tape records, entered or not."""
    tape = GradientTape()
    tape.enable()
    return use(tape.variable(2.0))


def in_a_transform(use):
    found = []
    od.grad(lambda v: (found.append(use(v * 1.0)), v * v)[1])(2.0)
    return found[0]


def of_an_inner_tape_that_was_left(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape():
        with GradientTape():
            y = w * 1.0
        return use(y)


def complex_leaf(use):
    w = Variable(2.0 + 0j, requires_grad=True)
    with GradientTape():
        return use(w)


def one_by_one(use):
    w = Variable([[2.0]], requires_grad=True)
    with GradientTape():
        return use(w * 1.0)


def on_an_enclosing_tape(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape() as outer:
        y = w * 1.0
        with GradientTape(), outer.no_recording():
            return use(y)


FOLLOWED = [
    intermediate,
    leaf,
    watched,
    enabled,
    at_home,
    in_a_transform,
    of_an_inner_tape_that_was_left,
    on_an_enclosing_tape,
]


def outside(use):
    return use(Variable(2.0, requires_grad=True))


def untracked(use):
    return use(Variable(2.0, requires_grad=True) * 1.0)


def left(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        y = w * 1.0
    result = use(y)
    assert float(tape.gradient(y, w)) == 1.0
    return result


def left_beside_another(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        y = w * 1.0
    with GradientTape():
        result = use(y)
    assert float(tape.gradient(y, w)) == 1.0
    return result


def swept(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        y = w * 1.0
        tape.backward(y)
        return use(y)


def disabled(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        y = w * 1.0
        tape.disable()
        return use(y)


def in_no_grad(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape():
        y = w * 1.0
        with no_grad():
            return use(y)


def leaf_in_no_grad(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape(), no_grad():
        return use(w)


def in_a_pause(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        y = w * 1.0
        with tape.no_recording():
            return use(y)


def leaf_in_a_pause(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape() as tape, tape.no_recording():
        return use(w)


def constant(use):
    with GradientTape():
        return use(Variable(2.0))


def frozen(use):
    w = Variable(2.0, requires_grad=True)
    w.requires_grad = False
    with GradientTape():
        return use(w)


def detached(use):
    w = Variable(2.0, requires_grad=True)
    with GradientTape():
        return use((w * 1.0).detach())


UNFOLLOWED = [
    outside,
    untracked,
    left,
    left_beside_another,
    swept,
    disabled,
    in_no_grad,
    leaf_in_no_grad,
    in_a_pause,
    leaf_in_a_pause,
    constant,
    frozen,
    detached,
]


def named(functions):
    return pytest.mark.parametrize("kind", functions, ids=lambda kind: kind.__name__)


def door(table):
    return pytest.mark.parametrize("use", table.values(), ids=table)


@named([*FOLLOWED, one_by_one])
@door(NUMBERS)
def test_a_number_of_what_a_recording_follows_is_refused_and_item_is_named(kind, use):
    with pytest.raises(TapeError, match=r"follows Variable\(.*\.item\(\) if a number is meant"):
        kind(use)


@named(FOLLOWED)
@door(ARRAYS)
def test_no_array_takes_what_a_recording_follows_without_its_gradient(kind, use):
    with pytest.raises((TapeError, DTypeError, ValueError)) as refused:
        kind(use)
    error = refused.value
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert isinstance(causes[-1], (TapeError, DTypeError))
    assert ".item()" in str(causes[-1]) or "detach()" in str(causes[-1])


@named(FOLLOWED)
@door(OWN_WORDS)
def test_what_has_errors_of_its_own_refuses_as_well(kind, use):
    with pytest.raises((struct.error, ValueError)):
        kind(use)


@named([outside, left, constant])
@door(OWN_WORDS)
def test_what_has_errors_of_its_own_takes_what_no_recording_follows(kind, use):
    kind(use)


def test_a_nest_of_variables_is_refused_and_array_is_named():
    for nest in ([1.0], [[1.0, 2.0], [3.0, 4.0]]):
        w = Variable(2.0, requires_grad=True)
        with GradientTape():
            v = [[w * x for x in row] if type(row) is list else w * row for row in nest]
            with pytest.raises(TapeError, match=r"ops\.array"):
                np.array(v)
            with pytest.raises(TapeError, match=r"ops\.array"):
                np.asarray(v, float)


@named([intermediate, leaf, complex_leaf])
@pytest.mark.parametrize("convert", [float, int, complex, operator.index], ids=lambda f: f.__name__)
def test_complex_values_are_refused_alike(kind, convert):
    with pytest.raises(TapeError, match=r"\.item\(\) if a number is meant"):
        kind(convert)


@named(FOLLOWED)
@door(FREE)
def test_what_loses_no_gradient_unnoticed_is_free(kind, use):
    kind(use)


def test_what_is_free_gives_the_value():
    assert intermediate(lambda v: v.item()) == 2.0
    assert intermediate(lambda v: f"{v:.3f}") == "2.000"
    assert intermediate(lambda v: f"{v}").startswith("Variable(2.")
    assert intermediate(bool) is True


@named(UNFOLLOWED)
@pytest.mark.parametrize(
    ("convert", "value"),
    [
        (float, 2.0),
        (int, 2),
        (complex, 2 + 0j),
        (math.exp, math.exp(2.0)),
        (math.floor, 2),
        (math.ceil, 2),
        (math.trunc, 2),
        (lambda v: "%.1f" % v, "2.0"),  # noqa: UP031
        (lambda v: np.fromiter([v], float)[0], 2.0),
        (lambda v: f"{v:.1f}", "2.0"),
    ],
    ids=["float", "int", "complex", "exp", "floor", "ceil", "trunc", "percent", "iter", "format"],
)
def test_a_value_that_no_recording_follows_is_free(kind, convert, value):
    assert kind(convert) == value


CONVERSIONS = {
    "asarray": np.asarray,
    "array": np.array,
    "asarray of a dtype": lambda v: np.asarray(v, np.float32),
    "list": lambda v: np.array([v, v])[0],
    "list of a dtype": lambda v: np.asarray([v, v], float)[1],
    "mixed list": lambda v: np.array([1.0, v])[1],
    "nest": lambda v: np.array([[v, 1.0], [2.0, v]])[1, 1],
    "tuple": lambda v: np.array((v,))[0],
    "objects": lambda v: np.array([v], object).astype(float)[0],
    "item": lambda v: operator.setitem(a := np.zeros(3), 0, v) or a[0],
    "slice": lambda v: operator.setitem(a := np.zeros(3), slice(0, 2), v) or a[1],
    "full": lambda v: np.full(3, v)[2],
    "concatenate": lambda v: np.r_[1.0, v][1],
    "copy": lambda v: copy.copy(v).item(),
    "deep copy": lambda v: copy.deepcopy({"loss": v})["loss"].item(),
    "json": lambda v: json.loads(json.dumps([v], default=float))[0],
}


@named(UNFOLLOWED)
@door(CONVERSIONS)
def test_a_value_that_no_recording_follows_becomes_an_array(kind, use):
    assert kind(use) == 2.0


@pytest.mark.parametrize("shape", [(2, 3), (0, 4), (1,)], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_swept_and_untracked_results_are_arrays_of_their_shape_and_dtype(shape, dtype):
    data = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    w = Variable(data, requires_grad=True)
    with GradientTape() as tape:
        y = w * 2
    tape.backward(y, np.ones(shape, dtype))
    results = [(y, data * 2), (w * 2, data * 2), ((w * 2)[::-1], data[::-1] * 2)]
    results += [((w * 2).T, data.T * 2), (copy.copy(y), data * 2)]
    for value, expected in results:
        np.testing.assert_array_equal(np.asarray(value), expected, strict=True)
        np.testing.assert_array_equal(np.array([value, value])[1], expected, strict=True)


def test_a_result_that_became_an_array_cannot_be_written_through():
    w = Variable([1.0, 2.0], requires_grad=True)
    with GradientTape() as tape:
        y = w * w
    array = np.asarray(y)
    assert not array.flags.writeable
    np.array(y)[0] = 9.0
    assert tape.gradient(y, w, np.ones(2)).tolist() == [2.0, 4.0]
    assert y.numpy().tolist() == [1.0, 4.0]


@named([intermediate, watched, enabled, in_a_transform])
@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_a_copy_of_what_a_recording_follows_is_refused(kind, make):
    with pytest.raises(UntrackedError, match="history cannot be copied"):
        kind(make)


def test_a_copy_of_a_result_owns_its_data_and_is_refused_under_a_tape_as_the_result_is():
    w = Variable([1.0, 2.0], requires_grad=True)
    with GradientTape() as tape:
        y = w * w
    made = copy.copy(y)
    assert not np.shares_memory(made.numpy(), y.numpy())
    with GradientTape() as other, pytest.raises(UntrackedError):
        made * w
    with pytest.raises(UntrackedError):
        tape.gradient(made, w)
    assert len(other) == 0


@named([outside, in_no_grad, left, constant])
def test_a_float_is_no_index_anywhere(kind):
    with pytest.raises(DTypeError, match="cannot be an index"):
        kind(operator.index)


@door(OTHERS)
@named([intermediate, outside])
def test_python_refuses_what_is_no_number_to_it(kind, use):
    with pytest.raises((TypeError, TapeError)):
        kind(use)


def test_an_untracked_value_is_no_number_under_a_tape():
    u = Variable(2.0, requires_grad=True) * 1.0
    with GradientTape():
        with pytest.raises(UntrackedError, match=r"while nothing recorded.*\.item\(\)"):
            float(u)
        assert u.item() == 2.0
    assert float(u) == 2.0


def test_integers_are_numbers_everywhere():
    with GradientTape():
        n = Variable(3)
        assert [float(n), int(n), operator.index(n), [0, 1, 2, 7][n]] == [3.0, 3, 3, 7]
        assert math.floor(Variable(2**60 + 1)) == 2**60 + 1


def test_what_has_several_elements_is_no_number():
    w = Variable([1.0, 2.0], requires_grad=True)
    for convert in (float, int, complex, bool, math.floor):
        with pytest.raises(ShapeError, match=r"shape \(2,\) is not a single number"):
            convert(w)
    with GradientTape(), pytest.raises((ShapeError, TapeError)):
        float(w)


def test_numpy_wraps_the_error_and_keeps_ours_as_the_cause():
    w = Variable([1.0, 2.0], requires_grad=True)
    y = np.zeros(2)
    with GradientTape():
        v = w * 2.0
        with pytest.raises(ValueError, match="sequence") as refused:
            y[0] = v[0]
    assert isinstance(refused.value.__cause__, TapeError)
    assert y.tolist() == [0.0, 0.0]


# ------------------------------------------------------------------ closed-over values


@pytest.mark.parametrize("convert", [float, int, complex, math.exp], ids=lambda f: f.__name__)
def test_a_rule_of_a_custom_vjp_takes_no_number_of_what_it_closes_over(convert):
    w = Variable(2.0, requires_grad=True)

    @od.custom_vjp
    def scale(x):
        return x * convert(w)

    scale.defvjp(lambda x: (x * convert(w), None), lambda residuals, g: (g,))
    with pytest.raises(TapeError, match=r"closes over .* whose gradient would be lost"):
        od.grad(scale)(3.0)


def test_tasks_and_their_tapes_do_not_disturb_one_another():
    w = Variable(2.0, requires_grad=True)
    inside, checked = asyncio.Event(), asyncio.Event()

    async def records():
        with GradientTape():
            inside.set()
            await checked.wait()
            with pytest.raises(TapeError, match=r"\.item\(\)"):
                float(w)

    async def reads():
        await inside.wait()
        assert float(w) == 2.0
        checked.set()

    async def both():
        await asyncio.gather(records(), reads())

    asyncio.run(both())


# ------------------------------------------------------------------ what became ops


def test_round_of_a_variable_is_ops_round():
    w = Variable([1.26, -2.54], requires_grad=True)
    with GradientTape():
        v = round(w * 1.0, 1)
        n = round(w)
    assert v.numpy().tolist() == [1.3, -2.5]
    assert n.numpy().tolist() == [1.0, -3.0]


def test_divmod_is_floor_divide_and_mod():
    w = Variable([7.5, -7.5], requires_grad=True)
    with GradientTape(persistent=True) as tape:
        quotient, rest = divmod(w, 2.0)
        back = divmod(15.0, w)[1]
        of_array = divmod(np.array([15.0, 15.0]), w)[1]
    assert quotient.numpy().tolist() == [3.0, -4.0]
    assert rest.numpy().tolist() == [1.5, 0.5]
    assert tape.gradient(rest, w, np.ones(2)).tolist() == [1.0, 1.0]
    for value in (back, of_array):
        assert tape.gradient(value, w, np.ones(2)).tolist() == [-2.0, 2.0]


def test_a_sum_of_a_list_of_variables_keeps_the_gradient():
    w = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        y = sum([w * w, w])
    assert float(tape.gradient(y, w)) == 5.0


@pytest.mark.parametrize(
    ("use", "slope"),
    [
        (lambda v: np.linspace(0, v, 3), [0.0, 0.5, 1.0]),
        (lambda v: np.append(np.zeros(2), v), [0.0, 0.0, 1.0]),
    ],
    ids=["linspace", "append"],
)
def test_functions_that_make_an_array_of_a_value_keep_its_gradient(use, slope):
    v = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        made = use(v)
    np.testing.assert_allclose(tape.jvp(made, v, 1.0), slope, rtol=1e-15)

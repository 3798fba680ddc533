"""Transforms among Variables, tapes and compiled functions; and what they refuse."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import (
    DTypeError,
    MutationError,
    ShapeError,
    TapeError,
    TapeMismatchError,
    UntrackedError,
)


def is_array(value):
    return isinstance(value, (np.ndarray, np.generic))


# ------------------------------------------------------------------ Variables and tapes


def test_trainable_variables_as_arguments_and_in_closures_keep_their_grad():
    w, b = Variable([1.0, 2.0], requires_grad=True), Variable(3.0, requires_grad=True)
    w.grad = np.array([7.0, 7.0])
    gradient = od.grad(lambda w, x: (w * x * b).sum())(w, np.array([1.0, 10.0]))
    np.testing.assert_array_equal(gradient, [3.0, 30.0])
    np.testing.assert_array_equal(w.grad, [7.0, 7.0])
    assert b.grad is None
    # The argument is a variable of its own: what the closure does with w is constant.
    np.testing.assert_array_equal(od.grad(lambda v: (v * w).sum())(w), [1.0, 2.0])


def test_results_are_variables_of_the_tape_around_and_reach_its_leaves():
    w = Variable([1.0, 2.0], requires_grad=True)
    fn = lambda x: (x * x * x * w).sum()  # noqa: E731
    with GradientTape(persistent=True) as tape:
        h = w * 1.0
        value, gradient = od.value_and_grad(fn)(h)
        out, pullback = od.vjp(fn, h)
        tangent = od.jvp(fn, (h,), (np.ones(2),))[1]
        found = [value, gradient, out, pullback(1.0)[0], tangent, od.jacobian(fn)(h)]
        found += [od.hvp(fn, (h,), (np.ones(2),)), od.hessian(fn)(h)]
        totals = [v.sum() for v in found]
    assert all(isinstance(v, Variable) for v in found)
    # f = w⁴; f' = 3 w² · w; f'' = 6 w · w
    expected = [4 * w.data**3, 9 * w.data**2, 4 * w.data**3, 9 * w.data**2, 9 * w.data**2]
    expected += [9 * w.data**2, 12 * w.data, 12 * w.data]
    for total, wanted in zip(totals, expected, strict=True):
        np.testing.assert_allclose(tape.gradient(total, w), wanted, rtol=1e-13)
    assert w.grad is None


def test_under_no_grad_results_are_arrays_inside_a_tape_too():
    w = Variable(2.0, requires_grad=True)
    with GradientTape():
        h = w * w
        with od.no_grad():
            assert is_array(od.grad(lambda x: x * x)(h))
            assert float(od.grad(lambda x: x * x)(3.0)) == 6.0


def test_where_nothing_records_variables_count_as_their_values():
    w = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        recorded = w * w
    untracked = w * w
    for value in (recorded, untracked):
        assert float(od.grad(lambda x, y: x * y)(value, value)) == 4.0
    assert float(tape.gradient(recorded, w)) == 4.0
    with GradientTape(), pytest.raises(UntrackedError):
        od.grad(lambda x: x * x)(untracked)
    with pytest.raises(TapeMismatchError):
        od.grad(lambda x: x * recorded)(1.0)


def test_an_error_inside_leaves_the_tape_around_intact():
    w = Variable(3.0, requires_grad=True)
    with GradientTape() as tape:
        h = w * w
        with pytest.raises(ShapeError, match="shape"):
            od.grad(lambda x: x * np.ones(2))(h)
        with pytest.raises(ZeroDivisionError):
            od.grad(lambda x: 1 / 0)(h)
        y = h * w
    assert float(tape.gradient(y, w)) == 27.0


def test_stop_gradient_makes_constants_of_a_tree():
    assert float(od.grad(lambda x: x * od.stop_gradient({"a": x * x})["a"])(3.0)) == 9.0
    tree = {"a": np.ones(2), "b": "text"}
    assert od.stop_gradient(tree)["a"] is tree["a"]
    assert float(od.jvp(lambda x: od.stop_gradient(x) * 2.0, (3.0,), (1.0,))[1]) == 0.0


def test_complex_arguments_have_the_gradient_of_a_tape():
    z = np.array([1.0 + 2.0j, -1.0j])
    np.testing.assert_allclose(od.grad(lambda z: (z * ops.conj(z)).real.sum())(z), 2 * z)
    _, tangent = od.jvp(lambda z: z * z, (z,), (1j * np.ones(2),))
    np.testing.assert_allclose(tangent, 2j * z)


def test_dtypes_are_those_of_the_arguments():
    x = np.ones(3, np.float32)
    value, gradient = od.value_and_grad(lambda x: (x * 2.0).sum())(x)
    assert value.dtype == gradient.dtype == np.float32
    assert od.jacobian(lambda x: x * 2.0)(x).dtype == np.float32
    assert od.hvp(lambda x: (x**3.0).sum(), x, x).dtype == np.float32


# ------------------------------------------------------------------ compile

COMPILED = {
    "value_and_grad": lambda f: lambda x: od.value_and_grad(f)(x),
    "grad of grad": lambda f: od.grad(lambda x: od.grad(f)(x).sum()),
    "hvp": lambda f: lambda x: od.hvp(f, (x,), (x * 2.0,)),
    "vjp": lambda f: lambda x: od.vjp(od.grad(f), x)[1](x),
    "jacobian": lambda f: od.jacobian(lambda x: x * f(x)),
    "hessian": lambda f: od.hessian(f),
    "checkpoint": lambda f: od.grad(od.checkpoint(f)),
}


@pytest.mark.parametrize("transform", COMPILED.values(), ids=COMPILED)
def test_a_compiled_transform_gives_what_the_eager_one_gives(transform):
    w = Variable([0.3, -0.7, 1.1], requires_grad=True)
    fn = transform(lambda x: (ops.tanh(x * w) * x).sum())
    x, more = np.random.default_rng(3).normal(size=(2, 3))
    compiled = od.compile(fn)
    for point in (x, more):
        for got, wanted in zip(
            od.tree.leaves(compiled(point)), od.tree.leaves(fn(point)), strict=True
        ):
            np.testing.assert_allclose(got, wanted, rtol=1e-12)
    w.assign(2.0 * w.data)
    for got, wanted in zip(od.tree.leaves(compiled(x)), od.tree.leaves(fn(x)), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12)
    assert w.grad is None


def test_a_compiled_function_is_differentiated():
    compiled = od.compile(lambda x: (x * x * x).sum())
    x = np.array([1.0, 2.0])
    assert float(compiled(x)) == 9.0
    np.testing.assert_array_equal(od.grad(compiled)(x), 3 * x**2)
    np.testing.assert_array_equal(od.hessian(compiled)(x), np.diag(6 * x))


# ------------------------------------------------------------------ what is refused

square = lambda x: (x * x).sum()  # noqa: E731

REFUSED = {
    "vector": (lambda: od.grad(lambda x: x * x)(np.ones(3)), ShapeError, r"shape \(3,\)"),
    "tuple result": (
        lambda: od.grad(lambda x: (x, x))(1.0),
        DTypeError,
        "returned a tuple.*has_aux",
    ),
    "integer result": (lambda: od.grad(lambda x: ops.argmax(x))(np.ones(2)), DTypeError, "int64"),
    "no pair": (lambda: od.grad(lambda x: x, has_aux=True)(1.0), DTypeError, r"pair \(result, aux"),
    "integer leaf": (
        lambda: od.grad(square)({"w": [np.ones(2), np.arange(3)]}),
        DTypeError,
        r"grad: argument 0\['w'\]\[1\] is an ndarray of int64",
    ),
    "python integer": (
        lambda: od.grad(lambda x: x)(3),
        DTypeError,
        "argument 0 is an int of int64",
    ),
    "text leaf": (
        lambda: od.vjp(lambda a, b: a, 1.0, {"n": "x"}),
        DTypeError,
        r"argument 1\['n'\]",
    ),
    "ragged leaf": (
        lambda: od.jvp(square, ({1, 2},), ({1, 2},)),
        DTypeError,
        "argument 0 is a set",
    ),
    "too few arguments": (
        lambda: od.grad(square, argnums=2)(1.0, 2.0),
        DTypeError,
        "argument 2, but 2 positional arguments came",
    ),
    "keyword only": (lambda: od.grad(lambda x: x)(x=1.0), DTypeError, "0 positional arguments"),
    "twice": (lambda: od.grad(square, argnums=(0, -1))(1.0), DTypeError, "names an argument twice"),
    "argnums text": (lambda: od.grad(square, argnums="x"), DTypeError, "pass an int or a tuple"),
    "argnums empty": (lambda: od.jacobian(square, argnums=()), DTypeError, "argnums is empty"),
    "tangent shape": (
        lambda: od.jvp(square, (np.ones(3),), (np.ones(2),)),
        ShapeError,
        r"tangent has shape \(2,\), its value \(3,\)",
    ),
    "tangent count": (lambda: od.jvp(square, (1.0,), ()), ShapeError, "1 primals came with 0"),
    "tangent alone": (
        lambda: od.hvp(square, (1.0,), 1.0),
        ShapeError,
        "1 primals came with a single",
    ),
    "tangent tree": (
        lambda: od.jvp(square, ({"a": 1.0},), ({"b": 1.0},)),
        ShapeError,
        r"the trees differ at argument 0\['a'\]",
    ),
    "tangent kind": (lambda: od.jvp(square, (1.0,), (1j,)), DTypeError, "complex128.*float64"),
    "cotangent shape": (
        lambda: od.vjp(lambda x: x, np.ones(2))[1](np.ones(3)),
        ShapeError,
        r"cotangent has shape \(3,\)",
    ),
    "cotangent tree": (
        lambda: od.vjp(lambda x: {"a": x}, 1.0)[1]({"a": 1.0, "b": 1.0}),
        ShapeError,
        r"2 leaves for one of 1.*\['b'\]",
    ),
    "complex jacobian": (
        lambda: od.jacobian(lambda x: x * 1j)(np.ones(2)),
        DTypeError,
        "the result is of complex128.*vjp and jvp",
    ),
    "integer jacobian": (
        lambda: od.jacobian(lambda x: {"n": np.arange(2)})(np.ones(2)),
        DTypeError,
        r"the result\['n'\] is of int64",
    ),
}


@pytest.mark.parametrize(("call", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_calls_say_what_came_and_what_was_wanted(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_tape_says_what_its_forward_sweep_takes_for_unused():
    x = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        y, z = x * x, tape.watch(1.0) * 2.0
    with pytest.raises(TapeError, match="does not depend"):
        tape.jvp([y, z], x, 1.0)
    with pytest.raises(TapeError, match="choose 'error', 'zero' or 'none'"):
        tape.jvp([y, z], x, 1.0, unused="nothing")
    first, second = tape.jvp([y, z], x, 1.0, unused="zero")
    assert (float(first), float(second)) == (4.0, 0.0)
    first, second = tape.jvp([y, z], x, 1.0, unused="none")
    assert (float(first), second) == (4.0, None)


class Bag(dict):
    """A container of a class of its own."""


@pytest.mark.parametrize("own", [dict, Bag, OrderedDict], ids=lambda kind: kind.__name__)
def test_gradients_come_in_the_places_of_what_was_passed_in_whatever_it_was(own):
    params = own(a=np.array([1.0, 2.0]), b=None, c=[3.0, Variable(4.0), (), {}], d=np.float32(5.0))

    def fn(p):
        assert type(p) is own
        assert p["b"] is None
        return (p["a"] * p["a"]).sum() * p["c"][0] + p["c"][1] * p["d"]

    value, gradient = od.value_and_grad(fn)(params)
    assert float(value) == 35.0
    assert type(gradient) is own
    assert gradient["a"].tolist() == [6.0, 12.0]
    assert gradient["b"] is None
    assert gradient["c"] == [5.0, 5.0, (), {}]
    assert gradient["d"] == 4.0
    assert gradient["d"].dtype == np.float32


def test_gradients_and_arguments_share_no_memory_with_one_another():
    x = np.array([1.0, 2.0])
    seen = []

    def fn(p):
        seen.append(p)
        return (p[0] + p[1]).sum()

    first, second = od.grad(fn)((x, x))
    first[0] = 7.0
    assert second.tolist() == [1.0, 1.0]
    assert x.tolist() == [1.0, 2.0]
    assert not np.shares_memory(seen[0][0].numpy(), x)
    x[0] = 9.0
    assert seen[0][0].numpy().tolist() == [1.0, 2.0]


def test_the_argument_itself_is_a_result_of_its_own():
    x = np.array(3.0)
    value, gradient = od.value_and_grad(lambda v: v)(x)
    assert (float(value), float(gradient)) == (3.0, 1.0)
    (left, right), aux = od.grad(lambda p: (p[0], p), has_aux=True)((x, x))
    assert (float(left), float(right)) == (1.0, 0.0)
    assert [float(v) for v in aux] == [3.0, 3.0]


def test_a_leaf_that_is_written_to_by_the_function_of_it_is_noticed():
    w = Variable([3.0, 1.0], requires_grad=True)

    def fn(v):
        w.assign([5.0, 1.0])
        return (v * v).sum()

    with pytest.raises(MutationError, match="was assigned after"):
        od.grad(fn)(w)


def test_what_is_beside_the_arguments_takes_no_part_in_their_gradients():
    w = Variable([3.0, 1.0], requires_grad=True)

    def fn(v):
        return ops.sum(v * w) + ops.sum(ops.exp(w))

    assert od.grad(fn)(np.array([1.0, 2.0])).tolist() == [3.0, 1.0]
    assert od.jacobian(lambda v: v * w)(np.array([1.0, 2.0])).tolist() == [[3.0, 0.0], [0.0, 1.0]]
    assert w.grad is None


# ------------------------------------------------------------------ pickles


@od.custom_vjp
def doubled(x):
    return x * 2.0


@od.checkpoint
def tripled(x):
    """Three of them."""
    return x * 3.0


class Holder:
    @od.custom_vjp
    def halved(self, x):
        return x / 2.0

    @od.checkpoint
    def squared(self, x):
        return x * x


DECORATED = [doubled, tripled, Holder.halved, Holder.squared]


@pytest.mark.parametrize("fn", DECORATED, ids=["rules", "piece", "method", "piece of a method"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_was_decorated_is_pickled_by_its_name(fn, protocol):
    assert pickle.loads(pickle.dumps(fn, protocol)) is fn
    assert copy.copy(fn) is copy.deepcopy(fn) is fn


def test_rules_of_a_function_under_another_name_are_copied_with_it():
    other = od.custom_vjp(tripled)
    other.defvjp(lambda x: (x * 3.0, None), lambda residuals, g: (g * 30.0,))
    found = copy.deepcopy(other)
    assert found is not other
    assert float(od.grad(found)(1.0)) == 30.0

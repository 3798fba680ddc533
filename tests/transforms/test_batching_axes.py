"""vmap: axes of arguments and results, what is shared, chunks, and what is refused."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, OdysseyError, SettingError, ShapeError, TapeError
from odyssey.tree import leaves, unflatten

RNG = np.random.default_rng(38)
X = RNG.normal(size=(4, 3))
CUBE = RNG.normal(size=(4, 3, 2))
W = RNG.normal(size=3)


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Layer:
    w: Any
    b: Any


class Plain:
    def __init__(self, w):
        self.w = w
        self.name = "plain"


def close(got, wanted, tolerance=1e-12):
    np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=tolerance, atol=tolerance)
    assert np.asarray(got).dtype == np.asarray(wanted).dtype


# ------------------------------------------------------------------ axes of arguments


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_the_axis_of_the_examples_may_be_any_axis(axis):
    seen = []

    def fn(x):
        seen.append(x.shape)
        return ops.cumsum(x, axis=0) * 2.0

    examples = np.moveaxis(CUBE, axis, 0)
    found = od.vmap(fn, axis)(CUBE)
    assert seen == [examples.shape[1:]]
    close(found, np.cumsum(examples, axis=1) * 2.0)


def test_an_axis_for_each_argument_and_none_for_what_is_shared():
    def fn(x, y, z):
        return x * y + z.sum()

    found = od.vmap(fn, (0, None, -1))(X, W, CUBE.transpose(1, 2, 0))
    close(found, X * W + CUBE.sum(axis=(1, 2))[:, None])
    close(od.vmap(fn, [0, None, np.int64(0)])(X, W, CUBE), found)


def test_one_axis_is_that_of_all_arguments():
    close(od.vmap(lambda x, y: x @ y, 1)(X.T, X.T), np.sum(X * X, axis=1))


TREE = {"a": X, "b": [CUBE, W], "c": None}
TREES = {
    "an axis for a tree": (0, {"a": X, "b": [CUBE, X]}),
    "a tree like the argument": ({"a": 0, "b": [1, None]}, {"a": X, "b": [CUBE.swapaxes(0, 1), W]}),
    "a tree like its upper part": ({"a": None, "b": 0}, {"a": W, "b": [CUBE, X]}),
    "a tuple for a list": ({"a": 0, "b": (0, None)}, {"a": X, "b": [CUBE, W]}),
    "a leaf that is None": (0, {"a": X, "b": [CUBE, X], "c": None}),
}


@pytest.mark.parametrize(("axes", "tree"), TREES.values(), ids=list(TREES))
def test_axes_may_be_trees(axes, tree):
    found = od.vmap(lambda t: (t["a"] * 2.0).sum() + t["b"][0].sum() + t["b"][1].sum(), (axes,))(
        tree
    )
    first = np.broadcast_to(tree["a"], (4, 3))
    cube = np.moveaxis(tree["b"][0], tree["b"][0].shape.index(4), 0)
    last = np.broadcast_to(tree["b"][1], (4, 3))
    close(found, 2.0 * first.sum(1) + cube.sum((1, 2)) + last.sum(1))


CONTAINERS = {
    "a dict": {"w": X, "b": CUBE},
    "a tuple": (X, CUBE),
    "a list": [X, CUBE],
    "a named tuple": Pair(X, CUBE),
    "a dataclass": Layer(X, CUBE),
    "nested": {"layers": [Layer(X, CUBE), Pair(CUBE, {"w": X})]},
}


@pytest.mark.parametrize("tree", CONTAINERS.values(), ids=list(CONTAINERS))
def test_arguments_and_results_are_trees_of_all_containers(tree):
    found = od.vmap(lambda t: unflatten(t, [x * 2.0 for x in leaves(t)]))(tree)
    assert type(found) is type(tree)
    for got, wanted in zip(leaves(found), leaves(tree), strict=True):
        close(got, wanted * 2.0)


def test_plain_objects_are_arguments_and_results():
    def fn(layer):
        assert layer.w.shape == (3,)
        layer = Plain(layer.w * 2.0)
        return layer

    found = od.vmap(fn)(Plain(X))
    assert (type(found), found.name) == (Plain, "plain")
    close(found.w, X * 2.0)


def test_keyword_arguments_are_shared():
    def fn(x, *, scale, power=1.0):
        return (x * scale).sum() ** power

    close(od.vmap(fn)(X, scale=W, power=2.0), (X * W).sum(1) ** 2)


# ------------------------------------------------------------------ axes of results


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_the_axis_of_the_examples_in_the_result_may_be_any_axis(axis):
    found = od.vmap(lambda x: x * 2.0, out_axes=axis)(CUBE)
    close(found, np.moveaxis(CUBE * 2.0, 0, axis))


def test_results_have_axes_by_trees_and_none_returns_what_is_shared_once():
    def fn(x):
        return {"all": [x, x.sum()], "one": W * 2.0}

    axes = {"all": [1, 0], "one": None}
    found = od.vmap(fn, out_axes=axes)(X)
    close(found["all"][0], X.T)
    close(found["all"][1], X.sum(1))
    close(found["one"], W * 2.0)


def test_a_result_that_does_not_depend_on_the_example_is_repeated():
    found = od.vmap(lambda x: (W, ops.sum(W), 2.0, 3, True))(X)
    wanted = (W, W.sum(), 2.0, 3, True)
    for got, one in zip(found, wanted, strict=True):
        close(got, np.stack([np.asarray(one)] * 4))
    found = od.vmap(lambda x: W, out_axes=1)(X)
    close(found, np.stack([W] * 4, axis=1))


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "complex64", "complex128", "int32", "uint8", "bool"]
)
def test_results_are_plain_arrays_of_the_dtype_of_one_example(dtype):
    x = np.abs(X).astype(dtype)
    found = od.vmap(lambda x: (x, x + x, x * 2, x[0], ops.sum(x), ops.exp(x), 0.5 * x[0]))(x)
    with np.errstate(all="ignore"):
        wanted = [x, x + x, x * 2, x[:, 0], x.sum(1), np.exp(x), 0.5 * x[:, 0]]
    for got, one in zip(found, wanted, strict=True):
        assert type(got) is np.ndarray
        close(got, one, 1e-2 if dtype == "float16" else 1e-6)


def test_results_that_are_numbers_of_python_have_the_dtype_of_their_array():
    found = od.vmap(lambda x: (1, 1.0, 1j, True))(X)
    assert [r.dtype.kind for r in found] == ["i", "f", "c", "b"]


ALIASES = {
    "the argument": lambda x: x,
    "twice": lambda x: (x, x),
    "a view": lambda x: (x[1:], ops.reshape(x, (3, 1))),
    "what is shared": lambda x: (W, W),
    "a transpose": lambda x: (ops.reshape(x, (1, 3)), x),
    "an array made outside, of all examples": lambda x: ops.broadcast_to(W, (2, 3)),
}


@pytest.mark.parametrize("out_axes", [0, 1, -1])
@pytest.mark.parametrize("fn", ALIASES.values(), ids=list(ALIASES))
def test_results_alias_neither_arguments_nor_each_other(fn, out_axes):
    x, w = X.copy(), W.copy()
    found = leaves(od.vmap(fn, out_axes=out_axes)(x))
    wanted = [value.copy() for value in found]
    for k, value in enumerate(found):
        value[...] = 7.0
        for other, saved in list(zip(found, wanted, strict=True))[k + 1 :]:
            np.testing.assert_array_equal(other, saved)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(w, W)


def test_a_shared_result_is_not_the_array_from_outside():
    w = W.copy()
    found = od.vmap(lambda x: w, out_axes=None)(X)
    assert not np.shares_memory(found, w)


# ------------------------------------------------------------------ chunks


def grams(x):
    return {"gram": ops.outer(x, x), "norm": ops.sqrt(x @ x), "shared": W * 2.0}


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 100])
@pytest.mark.parametrize("out_axes", [0, {"gram": 1, "norm": 0, "shared": None}])
def test_chunks_give_the_results_of_the_batch(chunk, out_axes):
    wanted = od.vmap(grams, out_axes=out_axes)(X)
    found = od.vmap(grams, out_axes=out_axes, chunk=chunk)(X)
    for name, value in wanted.items():
        close(found[name], value)


def test_chunks_bound_the_number_of_examples_at_a_time():
    sizes = []

    @od.op(infer=lambda x: x, vmap=lambda batch, x: sizes.append(batch.size) or x)
    def sized(x, /):
        """The array."""
        return x

    close(od.vmap(lambda x: sized(x), 1, chunk=2)(CUBE), CUBE.swapaxes(0, 1))
    assert sizes == [2, 1]


def test_chunks_of_no_examples_and_gradients_through_chunks():
    assert od.vmap(grams, chunk=2)(X[:0])["gram"].shape == (0, 3, 3)
    x = Variable(X, requires_grad=True)
    with GradientTape() as tape:
        loss = od.vmap(lambda x: ops.sum(x * x), chunk=3)(x).sum()
    close(tape.gradient(loss, x), 2 * X)


@pytest.mark.parametrize("size", [0, 1])
def test_batches_of_none_and_of_one(size):
    def fn(x, y):
        return ops.tanh(x @ W) * y, x[1:], ops.max(x)

    found = od.vmap(fn)(X[:size], X[:size, 0])
    assert [r.shape for r in found] == [(size,), (size, 2), (size,)]
    close(found[0], (np.tanh(X @ W) * X[:, 0])[:size])
    slope = od.vmap(od.grad(lambda x: ops.sum(ops.exp(x))))(X[:size])
    close(slope, np.exp(X)[:size])


# ------------------------------------------------------------------ Variables and tapes


def test_the_gradient_of_a_leaf_by_a_tape_outside_is_the_sum_over_examples():
    w = Variable(W, requires_grad=True)
    with GradientTape() as tape:
        losses = od.vmap(lambda x: ops.sin(x @ w))(X)
        assert isinstance(losses, Variable)
        loss = losses.sum()
    close(tape.gradient(loss, w), (np.cos(X @ W)[:, None] * X).sum(0))


def test_the_gradient_of_a_leaf_by_a_tape_inside_is_that_of_each_example():
    w = Variable(W, requires_grad=True)

    def slope(x):
        with GradientTape() as tape:
            loss = ops.sin(x @ w)
        return tape.gradient(loss, w)

    close(od.vmap(slope)(X), np.cos(X @ W)[:, None] * X)
    assert w.grad is None


def test_intermediate_variables_of_a_tape_outside_are_shared_and_get_gradients():
    w = Variable(W, requires_grad=True)
    with GradientTape() as tape:
        double = w * 2.0
        loss = od.vmap(lambda x: ops.sin(x @ double))(X).sum()
    close(tape.gradient(loss, w), (2.0 * np.cos(X @ W * 2.0)[:, None] * X).sum(0))


def test_both_tapes_see_their_own_derivatives_of_a_leaf():
    w = Variable(W, requires_grad=True)

    def slope(x):
        with GradientTape() as tape:
            loss = ops.sin(x @ w)
        return tape.gradient(loss, w, create_graph=True)

    with GradientTape() as outside:
        total = od.vmap(slope)(X).sum()
    wanted = (-np.sin(X @ W) * X.sum(1))[:, None] * X
    close(outside.gradient(total, w), wanted.sum(0))


@pytest.mark.parametrize("axis", [0, 1])
def test_variables_are_mapped_and_the_result_is_a_variable(axis):
    x = Variable(X if axis == 0 else X.T.copy(), requires_grad=True)
    with GradientTape() as tape:
        y = od.vmap(lambda x: ops.exp(x) * W, axis, axis)(x)
    assert isinstance(y, Variable)
    assert y.shape == x.shape
    gradient = tape.gradient(y, x, np.ones(x.shape))
    close(gradient if axis == 0 else gradient.T, np.exp(X) * W)


def test_a_variable_that_is_mapped_is_a_variable_of_one_example_inside():
    def fn(x):
        assert isinstance(x, Variable)
        assert x.shape == (3,)
        return x * 2.0

    close(od.vmap(fn)(Variable(X)), X * 2.0)


STOPPED = {
    "detach": lambda w, x: (w * 1.0).detach() @ x,
    "stop_gradient": lambda w, x: od.stop_gradient(w * 2.0) @ x,
}


@pytest.mark.parametrize("fn", STOPPED.values(), ids=list(STOPPED))
@pytest.mark.parametrize("mapped", [True, False])
def test_no_gradient_flows_to_a_tape_outside_where_it_is_stopped(fn, mapped):
    w = Variable(np.stack([W] * 4) if mapped else W, requires_grad=True)
    with GradientTape() as tape:
        loss = od.vmap(lambda w, x: fn(w, x) + 0.0 * w.sum(), (0 if mapped else None, 0))(w, X)
        total = loss.sum()
    close(tape.gradient(total, w), np.zeros(w.shape))


def test_no_gradient_flows_where_recording_is_paused_inside():
    w = Variable(W, requires_grad=True)

    def fn(x):
        with od.no_grad():
            constant = w * x
        return ops.sum(constant + w)

    with GradientTape() as tape:
        total = od.vmap(fn)(X).sum()
    close(tape.gradient(total, w), np.full(3, 4.0))


def test_integers_are_refused_by_gradients_as_without_vmap():
    with pytest.raises(DTypeError) as plain:
        od.grad(lambda x: ops.sum(x * x))(np.arange(3))
    with pytest.raises(DTypeError) as mapped:
        od.vmap(od.grad(lambda x: ops.sum(x * x)))(np.arange(12).reshape(4, 3))
    assert str(mapped.value) == str(plain.value)


# ------------------------------------------------------------------ per-example gradients


def test_gradients_of_each_example_of_a_network_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    sizes = [(5, 8), (8, 3)]
    params = [{"w": rng.normal(size=s) * 0.5, "b": rng.normal(size=s[1:])} for s in sizes]
    x, y = rng.normal(size=(6, 5)), rng.integers(0, 3, 6)

    def loss(params, x, y):
        hidden = ops.tanh(x @ params[0]["w"] + params[0]["b"])
        return od.cross_entropy(hidden @ params[1]["w"] + params[1]["b"], y)

    gradient = od.grad(loss)
    found = od.vmap(gradient, (None, 0, 0))(params, x, y)
    calls = [gradient(params, a, b) for a, b in zip(x, y, strict=True)]
    for k, layer in enumerate(found):
        for name, value in layer.items():
            close(value, np.stack([call[k][name] for call in calls]))
    mean = od.grad(lambda p: od.vmap(loss, (None, 0, 0))(p, x, y).mean())(params)
    for k, layer in enumerate(found):
        for name, value in layer.items():
            close(mean[k][name], value.mean(0))


# ------------------------------------------------------------------ what is refused


def refuse(fn, kind, match, *args, **named):
    with pytest.raises(kind, match=match) as caught:
        fn(*args, **named)
    assert isinstance(caught.value, OdysseyError)
    close(od.vmap(lambda x: x * 2.0)(X), X * 2.0)  # nothing is left behind


REFUSED = {
    "sizes that differ": (
        lambda: od.vmap(lambda x, y: x)(X, X[:2]),
        ShapeError,
        r"vmap: argument 0 has 4, argument 1 has 2 examples along the mapped axes",
    ),
    "sizes that differ in a tree": (
        lambda: od.vmap(lambda t: t)({"a": X, "b": [X[:3]]}),
        ShapeError,
        r"vmap: .*\['a'\] has 4, .*\['b'\]\[0\] has 3 examples",
    ),
    "nothing mapped": (
        lambda: od.vmap(lambda x: x, None)(X),
        ShapeError,
        "vmap: nothing is mapped; give an argument an axis in in_axes",
    ),
    "no arguments": (lambda: od.vmap(lambda: 1.0)(), ShapeError, "vmap: nothing is mapped"),
    "only keyword arguments": (
        lambda: od.vmap(lambda x: x)(x=X),
        ShapeError,
        "vmap: nothing is mapped",
    ),
    "None alone": (lambda: od.vmap(lambda x: x)(None), ShapeError, "vmap: nothing is mapped"),
    "an empty tree": (lambda: od.vmap(lambda x: x)([]), ShapeError, "vmap: nothing is mapped"),
    "an axis out of range": (
        lambda: od.vmap(lambda x: x, 2)(X),
        ShapeError,
        r"vmap: argument 0 has shape \(4, 3\), which has no axis 2 to map over",
    ),
    "a negative axis out of range": (
        lambda: od.vmap(lambda x: x, (-3,))(X),
        ShapeError,
        r"vmap: argument 0 has shape \(4, 3\), which has no axis -3",
    ),
    "an array without axes": (
        lambda: od.vmap(lambda x: x)(np.array(1.0)),
        ShapeError,
        r"vmap: argument 0 has shape \(\), which has no axis 0",
    ),
    "a number": (
        lambda: od.vmap(lambda x, y: x)(X, 2.0),
        DTypeError,
        "vmap: argument 1 is .*, which has no axis to map over; pass an array, or None",
    ),
    "a string": (
        lambda: od.vmap(lambda x, y: x)(X, {"name": "mean"}),
        DTypeError,
        r"vmap: .*\['name'\] is .*, which has no axis to map over",
    ),
    "too few axes": (
        lambda: od.vmap(lambda x, y: x, (0,))(X, X),
        ShapeError,
        "vmap: in_axes has 1 entries for 2 positional arguments",
    ),
    "axes of another tree": (
        lambda: od.vmap(lambda t: t["a"], ({"a": 0, "c": None},))({"a": X, "b": X}),
        ShapeError,
        r"vmap: in_axes has .* for argument 0, .*the trees must have the same containers",
    ),
    "axes of a tree for an array": (
        lambda: od.vmap(lambda x: x, ([0, 0],))(X),
        ShapeError,
        r"vmap: in_axes has \[0, 0\] for argument 0",
    ),
    "a truth value as an axis": (
        lambda: od.vmap(lambda x: x, True)(X),
        DTypeError,
        "vmap: in_axes has True for argument 0; pass an int, None, or a tree",
    ),
    "a number as an axis": (
        lambda: od.vmap(lambda x: x, 0.0)(X),
        DTypeError,
        r"vmap: in_axes has 0\.0 for argument 0; pass an int, None, or a tree",
    ),
    "a string as an axis": (
        lambda: od.vmap(lambda x: x, "batch")(X),
        DTypeError,
        "vmap: in_axes has 'batch' for argument 0; pass an int",
    ),
    "what is not a function": (
        lambda: od.vmap(X),
        DTypeError,
        "vmap: .*function",
    ),
    "an axis of the result out of range": (
        lambda: od.vmap(lambda x: x, out_axes=2)(X),
        ShapeError,
        "vmap: the result of all examples has 2 axes, and out_axes says 2",
    ),
    "axes of results of another tree": (
        lambda: od.vmap(lambda x: {"a": x}, out_axes={"b": 0})(X),
        ShapeError,
        "vmap: out_axes has .* for the result, .*the trees must have the same",
    ),
    "too many axes of results": (
        lambda: od.vmap(lambda x: (x, x), out_axes=(0, 0, 0))(X),
        ShapeError,
        r"vmap: out_axes has \(0, 0, 0\) for the result",
    ),
    "a truth value as an axis of the result": (
        lambda: od.vmap(lambda x: x, out_axes=False)(X),
        DTypeError,
        "vmap: out_axes has False for the result; pass an int",
    ),
    "a mapped result without an axis": (
        lambda: od.vmap(lambda x: x, out_axes=None)(X),
        ShapeError,
        "vmap: the result has out_axes None, but each example has its own; pass an axis",
    ),
    "a result that is a string": (
        lambda: od.vmap(lambda x: (x, "mean"))(X),
        DTypeError,
        "vmap: result 1 of the function is a str",
    ),
    "a function of NumPy that is not an op": (
        lambda: od.vmap(lambda x: np.spacing(x))(X),
        DTypeError,
        "np.spacing is not in odyssey's table",
    ),
    "no examples at a time": (
        lambda: od.vmap(lambda x: x, chunk=0),
        SettingError,
        "vmap: chunk=0; it must be at least 1",
    ),
    "a fraction of an example at a time": (
        lambda: od.vmap(lambda x: x, chunk=1.5),
        DTypeError,
        r"vmap: chunk=1\.5",
    ),
}


@pytest.mark.parametrize(("call", "kind", "match"), REFUSED.values(), ids=list(REFUSED))
def test_bad_input_is_refused_in_words(call, kind, match):
    refuse(call, kind, match)


def branch(x):
    return x if x > 0 else -x


def write(x):
    x[0] = 1.0
    return x


VALUES = {
    "a branch": (branch, "ops.where"),
    "float()": (lambda x: float(x) * 2.0, "ops.where"),
    "int()": (lambda x: int(x), "ops.where"),
    "an index": (lambda x: [1.0, 2.0][ops.astype(x, int)], "ops.take"),
    "a range": (lambda x: sum(range(ops.astype(x, int))), "ops.take"),
    "np.asarray": (lambda x: np.asarray(x), "ops.where"),
    "item()": (lambda x: x.item(), "ops.where"),
    "tolist()": (lambda x: np.asarray(x).tolist(), "ops.where"),
    "math": (math.sin, "ops.where"),
}


@pytest.mark.parametrize("variable", [False, True])
@pytest.mark.parametrize(("fn", "instead"), VALUES.values(), ids=list(VALUES))
def test_a_value_that_each_example_has_its_own_of_is_not_read(fn, instead, variable):
    x = X[:, 0].copy()
    refuse(od.vmap(fn), TapeError, f"vmap: .*{instead}", Variable(x) if variable else x)


def test_the_message_names_the_line():
    with pytest.raises(TapeError, match=r"test_batching_axes\.py:\d+"):
        od.vmap(branch)(X[:, 0])


def test_values_that_all_examples_share_may_be_read():
    def fn(x, w):
        factor = 2.0 if w[0] > -100 else 3.0
        return x * factor * float(w[1]) + np.asarray(w).sum()

    close(od.vmap(fn, (0, None))(X, W), X * 2.0 * W[1] + W.sum())


def test_an_array_of_examples_is_not_written_to():
    x = X.copy()
    refuse(od.vmap(write), TapeError, "vmap: .*ops.setitem", x)
    np.testing.assert_array_equal(x, X)


LATER = {
    "an op": lambda x: x + 1.0,
    "an op of another call": lambda x: od.vmap(lambda y: y + x)(X),
    "a function of NumPy": lambda x: np.exp(x),
    "a tape": lambda x: od.grad(lambda y: ops.sum(y * x))(W),
}


@pytest.mark.parametrize("use", LATER.values(), ids=list(LATER))
def test_a_value_that_was_kept_is_of_no_use_later(use):
    kept = []
    od.vmap(lambda x: kept.append(x * 2.0) or x)(X)
    refuse(lambda: use(kept[0]), TapeError, "a call of vmap that has ended")


def test_an_error_of_an_op_tells_the_shapes_of_one_example():
    with pytest.raises(ShapeError, match=r"matmul: .*\(3,\) @ y \(4,\)"):
        od.vmap(lambda x: ops.matmul(x, np.ones(4)))(X)


def test_the_function_has_the_name_and_the_docstring_of_the_function():
    def energy(x):
        """The energy."""
        return x

    mapped = od.vmap(energy)
    assert "energy" in mapped.__name__
    assert "The energy." in (mapped.__doc__ or "")

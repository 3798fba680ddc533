"""Results that are one object, views of one another, arguments, or captured objects, as eagerly."""

import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, ops
from odyssey.tree import containers, leaves


class Model:
    pass


def twice(x):
    y = x * 2.0
    return {"a": y, "b": y}


def transposed(x):
    y = x * 2.0
    return y, y.T


def transposed_first(x):
    y = x.T * 2.0
    return [y, y.T, y.T[1:]]


def sliced(x):
    y = x + 1.0
    return y[1:], y, y[::-1], y[:, ::-2]


def reshaped(x):
    y = x + 1.0
    return y.reshape(-1), y, {"again": y}


def of_variable(x):
    y = Variable(x) * 2.0
    return y, y, y.reshape(-1)


def mixed(x):
    y = x * 2.0
    return y, x, y[0], x[1]


def diagonal(x):
    y = x * 2.0
    return y, np.diagonal(y)


def gradients(x):
    parameters = {"b": x[0] * 1.0, "c": x[0] * 2.0}
    loss = lambda p: ((x * 3.0 + p["b"] + p["c"]) ** 2).sum()  # noqa: E731
    return od.value_and_grad(loss)(parameters)


OF_ONE_ARRAY = {
    **{f.__name__: f for f in (twice, transposed, transposed_first, sliced, reshaped)},
    **{f.__name__: f for f in (of_variable, mixed, diagonal, gradients)},
    "argument": lambda x: x,
    "argument twice": lambda x: (x, [x]),
    "argument beside": lambda x: {"x": x, "y": x * 2.0},
    "argument's row": lambda x: (x[1], x * 2.0),
    "argument's columns": lambda x: x[:, ::-2],
    "argument transposed": lambda x: (x.T, x),
    "argument reshaped": lambda x: x.reshape(-1),
    "argument broadcast": lambda x: (ops.broadcast_to(x, (2, *x.shape)), x * 2.0),
    "argument times one": lambda x: (x * 1.0, x + 0.0, 1.0 * x),
    "argument flattened": lambda x: (x.flatten(), x.ravel()),
}
LAYOUTS = {
    "contiguous": lambda: np.arange(12.0).reshape(4, 3),
    "float32": lambda: np.arange(12, dtype=np.float32).reshape(4, 3),
    "complex": lambda: np.arange(12.0).reshape(4, 3) * (1 + 2j),
    "transposed": lambda: np.arange(12.0).reshape(3, 4).T,
    "strided": lambda: np.arange(48.0).reshape(8, 6)[::2, ::-2],
    "read-only": lambda: np.broadcast_to(np.arange(3.0), (4, 3)),
    "frozen": lambda: frozen(np.arange(12.0).reshape(4, 3)),
    "empty": lambda: np.zeros((2, 0)),
}


def frozen(array):
    array.flags.writeable = False
    return array


def data(thing):
    return thing._array if isinstance(thing, Variable) else thing


def effects(fn, inputs, calls=4, captured=()):
    """Return which leaves are one object, and what each shows when the others are written to."""
    found = []
    for k in range(calls):
        given = inputs()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", od.errors.CompileWarning)
            result = fn(*given)
        things = [*leaves(result), *leaves(given), *captured]
        found.append([type(one) for one in things])
        objects = [one for one in things if not isinstance(one, np.generic)]
        found.append([[a is b for a in objects] for b in objects])
        boxes = [one for one, _ in containers(result)]
        found.append([[a is b for a in (*boxes, *captured)] for b in boxes])
        arrays = [data(one) for one in things if isinstance(data(one), np.ndarray)]
        found.append([np.array(a) for a in arrays])
        plain = [one for one in things if isinstance(one, np.ndarray) and one.size]
        found.append([array.flags.writeable for array in plain])
        for n, array in enumerate(plain):
            if array.flags.writeable:
                array[(-1,) * array.ndim] = 100 * k + n
                found.append([np.array(a) for a in arrays])
    return found


def same(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        if one and isinstance(one[0], np.ndarray):
            for a, b in zip(one, other, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)
        else:
            assert one == other


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("fn", OF_ONE_ARRAY.values(), ids=OF_ONE_ARRAY)
def test_results_are_one_object_or_views_where_they_are_eagerly(fn, layout):
    if layout().dtype.kind == "c" and fn is gradients:
        pytest.skip("its loss is complex")
    inputs = lambda: (layout(),)  # noqa: E731
    same(effects(od.compile(fn), inputs), effects(fn, inputs))


@pytest.mark.parametrize("fn", OF_ONE_ARRAY.values(), ids=OF_ONE_ARRAY)
def test_functions_whose_results_are_aliases_are_compiled(fn):
    compiled = od.compile(fn, fullgraph=True)
    for _ in range(4):
        compiled(np.arange(12.0).reshape(4, 3))
    assert compiled.statistics().native == 3


@pytest.mark.parametrize("fn", OF_ONE_ARRAY.values(), ids=OF_ONE_ARRAY)
def test_a_program_of_contiguous_arguments_does_not_answer_for_other_layouts(fn):
    """Reshaping copies an array of one layout, and shows one of another."""
    kinds = [LAYOUTS[name] for name in ("contiguous", "transposed", "contiguous", "strided")]

    def left(fn):
        found = []
        for layout in (*kinds[:1] * 3, *kinds):
            found += effects(fn, lambda layout=layout: (layout(),), 1)
        return found

    same(left(od.compile(fn)), left(fn))


SHOWN_BY_LAYOUT = {
    "argument": lambda x: (x.reshape(-1), x * 2.0),
    "result": reshaped,
    "Variable": lambda x: (lambda y: (y, y.reshape(-1)))(Variable(x) * 2.0),
}


@pytest.mark.parametrize("fn", SHOWN_BY_LAYOUT.values(), ids=SHOWN_BY_LAYOUT)
@pytest.mark.parametrize("first", ["transposed", "strided", "contiguous"])
def test_a_first_call_with_another_layout_does_not_decide_what_is_a_view(first, fn):

    def left(fn):
        found = []
        for name in (first, first, "contiguous", "contiguous", first, "contiguous"):
            found += effects(fn, lambda name=name: (LAYOUTS[name](),), 1)
        return found

    same(left(od.compile(fn)), left(fn))


OF_TWO = {
    "product": lambda a, b: a * b,
    "both": lambda a, b: (a, b, a * b),
    "rows": lambda a, b: (a[1:], b[:1], a + b),
    "one of them": lambda a, b: [b, b * 2.0],
}


@pytest.mark.parametrize("fn", OF_TWO.values(), ids=OF_TWO)
def test_one_argument_may_be_passed_twice_or_two_lie_in_one_array(fn):
    def inputs():
        x, whole = np.arange(3.0), np.arange(4.0)
        yield x, x
        yield np.arange(3.0), np.arange(3.0)
        yield whole[:3], whole[1:]
        yield x, x
        yield Variable(x), Variable(np.ones(3))

    def left(fn):
        found = []
        for _ in range(3):
            for given in inputs():
                found += effects(fn, lambda given=given: given, 1)
        return found

    same(left(od.compile(fn)), left(fn))


@pytest.mark.parametrize("trains", [False, True])
def test_a_variable_that_is_passed_comes_back_itself(trains):
    fn = lambda v: (v, v * 2.0, [v])  # noqa: E731
    inputs = lambda: (Variable(np.ones(3), requires_grad=trains),)  # noqa: E731
    same(effects(od.compile(fn), inputs), effects(fn, inputs))
    kept = inputs()
    compiled = od.compile(fn, fullgraph=True)
    for _ in range(4):
        assert compiled(*kept)[0] is kept[0]
    assert compiled.statistics().native == 3


def test_scalars_that_are_passed_come_back():
    fn = lambda a, b: (a, a, b * 2.0)  # noqa: E731
    for kind in (np.float64, np.array):
        inputs = lambda kind=kind: (kind(2.0), np.ones(2))  # noqa: E731
        same(effects(od.compile(fn), inputs), effects(fn, inputs))


# ------------------------------------------------------------------ captured objects


def captured_things():
    model = Model()
    model.a = np.arange(6.0).reshape(2, 3)
    model.by_name = {"w": np.ones(2), "more": [1, "mean", None, np.zeros(2)]}
    model.items = [np.ones(2), (np.zeros(1), 2.0)]
    return model


CAPTURED = {
    "array": lambda m: lambda x: (m.a, x * 2.0),
    "array alone": lambda m: lambda x: m.a,
    "array twice": lambda m: lambda x: (m.a, x * 2.0, m.a),
    "row of an array": lambda m: lambda x: (m.a[1], x * 2.0),
    "row and array": lambda m: lambda x: (m.a[1], m.a, x * 2.0),
    "dictionary": lambda m: lambda x: (m.by_name, x * 2.0),
    "dictionary twice": lambda m: lambda x: (m.by_name, x * 2.0, {"again": m.by_name}),
    "dictionary alone": lambda m: lambda x: m.by_name,
    "item of a dictionary": lambda m: lambda x: (m.by_name["w"], x * 2.0),
    "list within": lambda m: lambda x: {"y": x * 2.0, "items": m.by_name["more"]},
    "list and its array": lambda m: lambda x: [m.items, m.items[0], x * 2.0],
    "tuple": lambda m: lambda x: (m.items[1], x * 2.0),
}


@pytest.mark.parametrize("make", CAPTURED.values(), ids=CAPTURED)
def test_captured_objects_come_back_themselves(make):
    def left(compiled):
        model = captured_things()
        captured = [model.a, model.by_name, model.items, model.by_name["more"], model.items[0]]
        return effects(compiled(make(model)), lambda: (np.ones(2),), captured=captured)

    same(left(od.compile), left(lambda fn: fn))


@pytest.mark.parametrize("make", CAPTURED.values(), ids=CAPTURED)
def test_functions_that_return_captured_objects_are_compiled(make):
    compiled = od.compile(make(captured_things()), fullgraph=True)
    for _ in range(4):
        compiled(np.ones(2))
    assert compiled.statistics().native == 3


def replace_array(m):
    m.a = m.a.copy()


def replace_item(m):
    m.by_name["w"] = m.by_name["w"].copy()


def replace_deep_item(m):
    m.items[0] = m.items[0].copy()


def replace_dictionary(m):
    m.by_name = dict(m.by_name)


def replace_one_of_two(m):
    m.b = m.a.copy()


REPLACED = {f.__name__: f for f in (replace_array, replace_item, replace_deep_item)}
REPLACED |= {f.__name__: f for f in (replace_dictionary, replace_one_of_two)}


@pytest.mark.parametrize("replace", REPLACED.values(), ids=REPLACED)
@pytest.mark.parametrize("make", CAPTURED.values(), ids=CAPTURED)
def test_the_present_object_comes_back_after_another_took_its_place(make, replace):
    """Equal elements let a program run on, and must not let it return the object of before."""

    def left(compiled):
        model = captured_things()
        model.b = model.a
        fn, found = compiled(make(model)), []
        for k in range(5):
            if k > 1:
                replace(model)
            captured = [model.a, model.b, model.by_name, model.items]
            captured += [*leaves(model.by_name), *leaves(model.items)]
            captured = [one for one in captured if isinstance(one, (np.ndarray, dict, list))]
            found += effects(fn, lambda: (np.ones(2),), 1, captured)
        return found

    same(left(od.compile), left(lambda fn: fn))


def test_an_array_that_is_replaced_at_each_call_keeps_its_program():
    model = captured_things()
    compiled = od.compile(lambda x: (model.a, x * 2.0), fullgraph=True)
    for _ in range(12):
        assert compiled(np.ones(2))[0] is model.a
        model.a = model.a.copy()
    assert compiled.statistics()[:2] == (1, 11)


def test_an_array_under_two_names_comes_back_under_the_name_that_is_returned():
    model = captured_things()
    model.b = model.a
    compiled = od.compile(lambda x: (model.b, model.a * x))
    for k in range(6):
        assert compiled(1.0)[0] is model.b
        if k % 2:
            model.a = model.a.copy()
        else:
            model.b = model.b.copy()


# ------------------------------------------------------------------ other sizes, threads, errors


def test_one_object_twice_is_so_for_all_sizes():
    compiled = od.compile(twice, dynamic={"x": {0: od.Dim("n", 2, 64)}})
    for n in (3, 4, 5, 6, 7, 8):
        result = compiled(np.ones(n))
        assert result["a"] is result["b"]
        np.testing.assert_array_equal(result["a"], np.full(n, 2.0))
    assert compiled.statistics().native >= 3


def test_views_of_results_are_right_for_all_sizes():
    compiled = od.compile(sliced, dynamic={"x": {0: od.Dim("n", 2, 64)}}, warn=False)
    for n in (3, 4, 5, 6, 7, 8):
        inputs = lambda n=n: (np.arange(3.0 * n).reshape(n, 3),)  # noqa: E731
        same(effects(compiled, inputs, 1), effects(sliced, inputs, 1))


def test_a_gradient_that_is_delivered_and_returned_twice_is_one_object():
    w = Variable(np.ones(3), requires_grad=True)

    @od.compile
    def step(x):
        with od.GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)
        gradient = w.grad
        w.zero_grad()
        w.grad = gradient
        return loss, w.grad, w.grad

    for _ in range(4):
        _, first, second = step(np.ones(3))
        assert first is second is w.grad


SEEN = {
    "view": lambda w: w.grad.reshape(-1),
    "view and gradient": lambda w: [w.grad.T, w.grad],
    "row": lambda w: (w.grad[0], 1.0),
}


@pytest.mark.parametrize("clears", [False, True])
@pytest.mark.parametrize("show", SEEN.values(), ids=SEEN)
def test_a_view_of_the_gradient_that_a_leaf_has_shows_it(show, clears):
    def left(compiled):
        w = Variable(np.ones((2, 3)), requires_grad=True)

        def fn(x):
            if clears:
                w.zero_grad()
            with od.GradientTape() as tape:
                loss = (w * x).sum()
            tape.backward(loss)
            return loss, show(w)

        call, found = compiled(fn), []
        for _ in range(4):
            seen = leaves(call(np.arange(3.0)))[1]
            found.append(np.shares_memory(seen, w.grad))
            seen[...] = 7.0
            found.append(w.grad.tolist())
        return found

    assert left(lambda fn: od.compile(fn, warn=False)) == left(lambda fn: fn)

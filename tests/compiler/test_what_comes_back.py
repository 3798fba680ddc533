"""What a compiled function returns of leaves and gradients is what the function would return."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.tree import leaves

X = np.array([3.0, 4.0])


def leaf():
    return Variable(np.array([1.0, 2.0]), requires_grad=True)


# ------------------------------------------------------------------ what leaves hold


def scaled(w):
    return lambda: w.assign(w.detach() * 2.0)


def stepped(w):
    optimizer = od.optim.SGD([w], learning_rate=0.5)

    def step():
        w.grad = np.ones(2)
        optimizer.step()

    return step


def averaged(w):
    var = Variable(np.ones(2))
    return lambda: od.nn.batch_norm(X[:, None] * np.ones(2), w, var, training=True)


SHOWN = {
    "detached": lambda w: w.detach(),
    "stopped": od.stop_gradient,
    "reshaped": lambda w: w.detach().reshape(2, 1),
    "beside": lambda w: (w.detach() + 1.0, {"w": w.detach()}),
}


@pytest.mark.parametrize("show", SHOWN.values(), ids=SHOWN)
@pytest.mark.parametrize(
    ("write", "trains"),
    [(scaled, True), (scaled, False), (stepped, True), (averaged, False)],
    ids=["assign", "assign-constant", "step", "batch_norm"],
)
def test_what_came_back_of_a_leaf_keeps_the_numbers_of_its_call(write, trains, show):
    def left(compiled):
        w = Variable(np.array([1.0, 2.0]), requires_grad=trains)
        writes = write(w)

        def fn():
            writes()
            return show(w)

        call = compiled(fn)
        return numbers([list(map(np.asarray, leaves(call()))) for _ in range(4)])

    def numbers(found):
        return [[one.tolist() for one in some] for some in found]

    def at_once(compiled):
        w = Variable(np.array([1.0, 2.0]), requires_grad=trains)
        writes = write(w)
        call = compiled(lambda: (writes(), show(w))[1])
        return [numbers([list(map(np.array, leaves(call())))])[0] for _ in range(4)]

    expected = at_once(lambda fn: fn)
    assert left(od.compile) == left(lambda fn: fn) == expected == at_once(od.compile)


def test_what_came_back_of_a_leaf_that_was_moved_since_keeps_its_numbers():
    def left(compiled):
        w = leaf()

        def fn():
            w.assign(w.detach() * 2.0)
            return w.detach()

        call = compiled(fn)
        found = [call()]
        stepped(w)()  # which moves it
        found += [call() for _ in range(3)]
        return [one.numpy().tolist() for one in found]

    assert left(od.compile) == left(lambda fn: fn)
    assert left(od.compile)[0] == [2.0, 4.0]


def test_an_array_in_which_a_variable_lies_keeps_its_elements():
    def left(compiled):
        table, w = np.array([1.0, 2.0]), leaf()
        buffer, shown = Variable(table), w.data

        @compiled
        def fn():
            buffer.assign(buffer * 2.0)
            w.assign(w.detach() * 3.0)
            return table * 1.0, shown[0] * 1.0

        return [[one.tolist() for one in fn()] for _ in range(4)]

    assert left(od.compile) == left(lambda fn: fn) == [[[1.0, 2.0], 1.0]] * 4


def test_a_new_value_that_is_assigned_comes_back_as_itself():
    w = leaf()

    def fn():
        new = w.detach() * 2.0
        w.assign(new)
        return new

    compiled = od.compile(fn)
    assert [compiled().numpy().tolist() for _ in range(3)] == [[2.0, 4.0], [4.0, 8.0], [8.0, 16.0]]
    assert compiled.statistics().native == 2


# ------------------------------------------------------------------ gradients


def clipped(w, loss, tape):
    tape.backward(loss)
    od.optim.clip_grad_norm([w], max_norm=1.0)
    return loss, {"w": w.grad}


def halved(w, loss, tape):
    tape.backward(loss)
    w.grad = w.grad / 2.0
    return w.grad


def asked(w, loss, tape):
    gradient = tape.gradient(loss, w)
    w.grad = gradient
    return w.grad, gradient


def looked_up(w, loss, tape):
    gradients = tape.backward(loss)
    return gradients[w], w.grad


def forgotten(w, loss, tape):
    tape.backward(loss)
    gradient = w.grad
    w.zero_grad()
    return gradient


HANDED = {"clipped": clipped, "halved": halved, "asked": asked, "looked up": looked_up}
HANDED |= {"forgotten": forgotten}


@pytest.mark.parametrize("dynamic", [None, {"x": {0: od.Dim("n", 2, 9)}}], ids=["fixed", "sized"])
@pytest.mark.parametrize("hand", HANDED.values(), ids=HANDED)
def test_a_gradient_that_comes_back_is_the_one_that_the_leaf_has(hand, dynamic):
    def left(compiled):
        w = leaf()

        def fn(x):
            with GradientTape() as tape:
                loss = ((x[:, None] * w) ** 2).sum()
            return hand(w, loss, tape)

        call, found = compiled(fn), []
        for k in range(5):
            arrays = [g for g in leaves(call(X + k)) if isinstance(g, np.ndarray) and g.ndim]
            found.append([g is w.grad for g in arrays])
            arrays[0] *= 0.5
            found.append([g.tolist() for g in (*arrays, w.grad) if g is not None])
        return found

    def compiled(fn):
        return od.compile(fn) if dynamic is None else od.compile(fn, dynamic=dynamic)

    for got, wanted in zip(left(compiled), left(lambda fn: fn), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-14)


def test_a_step_that_returns_its_gradients_is_native():
    w = leaf()

    @od.compile
    def sweep(x):
        with GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)
        return loss, w.grad

    for _ in range(4):
        assert sweep(X)[1] is w.grad
    assert sweep.statistics().native == 3


def test_the_gradient_of_a_leaf_that_a_run_makes_is_native():
    @od.compile
    def slope(x):
        w = Variable(x, requires_grad=True)
        with GradientTape() as tape:
            loss = (w**3).sum()
        tape.backward(loss)
        return w.grad

    for _ in range(3):
        np.testing.assert_allclose(slope(X), 3.0 * X**2, rtol=1e-15)
    assert slope.statistics().native == 2


# ------------------------------------------------------------------ states of optimizers


def test_the_state_of_an_optimizer_that_comes_back_is_that_of_each_call():
    def states(compiled):
        w = leaf()
        optimizer = od.optim.Adam([w], learning_rate=0.1)

        def fn(x):
            with GradientTape() as tape:
                loss = ((w - x) ** 2).sum()
            tape.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            return optimizer.state_dict()

        step = compiled(fn)
        return [step(X)["state"][0] for _ in range(4)]

    for got, wanted in zip(states(od.compile), states(lambda fn: fn), strict=True):
        assert got.keys() == wanted.keys()
        for name, array in wanted.items():
            np.testing.assert_array_equal(got[name], array)


def test_what_takes_the_state_of_an_optimizer_runs_as_it_was_written_and_says_so():
    w = leaf()
    optimizer = od.optim.Adam([w])
    w.grad = X
    optimizer.step()
    compiled = od.compile(lambda: optimizer.state_dict())
    for _ in range(4):
        compiled()
    assert "an optimizer's state_dict reads the values of" in str(compiled.explain())


# ------------------------------------------------------------------ Python's numbers


@pytest.mark.parametrize("dynamic", [None, {"x": {0: od.Dim("rows", 1, 9)}}], ids=["one", "any"])
@pytest.mark.parametrize("kind", ["f8", "f4"])
def test_the_norm_that_clipping_gives_is_pythons_number_at_each_call(kind, dynamic):
    def norms(compiled):
        w = Variable(np.array([1.0, 2.0], kind), requires_grad=True)
        optimizer = od.optim.SGD([w], learning_rate=0.5)

        def step(x):
            with GradientTape() as tape:
                loss = ((w * x) ** 2).mean()
            tape.backward(loss)
            norm = od.optim.clip_grad_global_norm([w], 1.0)
            optimizer.step()
            optimizer.zero_grad()
            return {"norm": norm, "loss": loss.detach()}

        step = od.compile(step, dynamic=dynamic) if compiled else step
        rng = np.random.default_rng(0)
        found = [step(rng.normal(size=(3, 2)).astype(kind))["norm"] for _ in range(4)]
        assert not compiled or step.statistics().native >= 2
        return found

    got, wanted = norms(True), norms(False)
    assert [type(norm) for norm in got] == [float] * 4
    np.testing.assert_allclose(got, wanted, rtol=1e-14 if kind == "f8" else 1e-6)


# ------------------------------------------------------------------ arguments that are handed on

GIVEN = {
    "one": (lambda x, t: x, [()]),
    "beside a result": (lambda x, t: (x * 2.0, x), [(1,)]),
    "both": (lambda x, t: (t["a"], x), [(0,), (1,)]),
    "in a tree": (lambda x, t: {**t, "b": t["b"] + x}, [("a",)]),
    "with a number": (lambda x, t: [x, x * t["n"], t["n"]], [(0,)]),
}


def trees(k):
    return X + k, {"a": np.arange(3.0) + k, "b": np.ones(2), "n": 2.0}


@pytest.mark.parametrize(("fn", "paths"), GIVEN.values(), ids=GIVEN)
def test_an_array_that_a_function_hands_on_is_the_one_that_came_at_each_call(fn, paths):
    compiled = od.compile(fn)
    for k in range(4):
        x, t = trees(k)
        given = {id(leaf) for leaf in leaves((x, t))}
        got, wanted = compiled(x, t), fn(x, t)
        for path in paths:
            one, other = got, wanted
            for key in path:
                one, other = one[key], other[key]
            assert one is other
        for one, other in zip(leaves(got), leaves(wanted), strict=True):
            assert type(one) is type(other)
            assert (id(one) in given) == (id(other) in given)
            np.testing.assert_array_equal(one, other)
    assert compiled.statistics().native == 3


@pytest.mark.parametrize(
    "change",
    [np.asfortranarray, lambda a: a[::-1], lambda a: a.astype(">f8"), lambda a: a.T.copy().T],
)
def test_an_array_is_handed_on_as_it_lies(change):
    compiled = od.compile(lambda x: (x, x + 1.0))
    plain = np.arange(6.0).reshape(2, 3)
    for _ in range(2):
        for x in (plain, change(plain), plain):
            got, more = compiled(x)
            assert got is x
            np.testing.assert_array_equal(more, x + 1.0)


@pytest.mark.parametrize(
    "fn",
    [lambda x: (x, x), lambda x: (x, x[:1]), lambda x: (x.reshape(2, 1), x * 1.0)],
    ids=["twice", "beside a part", "another view"],
)
def test_parts_of_what_was_given_are_parts_at_each_call(fn):
    compiled = od.compile(fn)
    for k in range(4):
        x = X + k
        for got, wanted in zip(compiled(x), fn(x), strict=True):
            assert (got is x) == (wanted is x)
            assert np.shares_memory(got, x) == np.shares_memory(wanted, x)
            np.testing.assert_array_equal(got, wanted)


def test_a_state_that_lies_in_an_argument_is_seen_in_it_when_it_is_handed_on():
    def written(compiled):
        x = np.arange(3.0)
        state = Variable(x)

        def step(a):
            state.assign(state * 2.0)
            return a, a + 0.0

        call = compiled(step)
        found = [call(x) for _ in range(4)]
        assert all(one is x for one, _ in found)
        return [more.tolist() for _, more in found], x.tolist()

    assert written(od.compile) == written(lambda fn: fn)


def test_a_gradient_of_layers_without_parameters_is_native():
    layers = [(np.ones((2, 2)), np.ones(2)), (), {"gain": np.ones(2), "none": ()}]

    def loss(layers):
        (w, b), _, last = layers
        return ((X @ w + b) * last["gain"]).sum()

    step = od.compile(od.value_and_grad(loss))
    for _ in range(3):
        value, (first, second, third) = step(layers)
        assert value == 16.0
        np.testing.assert_array_equal(first[0], [[3.0, 3.0], [4.0, 4.0]])
        np.testing.assert_array_equal(first[1], [1.0, 1.0])
        np.testing.assert_array_equal(third["gain"], [8.0, 8.0])
        assert (second, third["none"]) == ((), ())
    assert step.explain(layers).startswith("a program of")

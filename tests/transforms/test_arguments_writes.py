"""What a function does to its parameter never changes whose derivative is answered."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import MutationError, TapeError

POINT = np.array([3.0, 2.0, -1.0])


# Each write, in a function of a vector (a, b, c); the gradient and the Hessian's diagonal of the
# function at POINT, with respect to what was passed in, by hand. No mixed derivative.


def item(v):
    v[0] = 1.0
    return (v**3).sum()


def item_of_itself(v):
    v[0] = v[1] * v[1]
    return (v**3).sum()


def twice(v):
    v[0] = v[0] * 2.0
    v[0] = v[0] * 5.0
    return (v**3).sum()


def mask(v):
    before = (v * v).sum()
    v[v < 0] = 0.0
    return (v**3).sum() + before


def scaled(v):
    v *= 2.0
    return (v**3).sum()


def everything(v):
    old = v * 1.0
    v[:] = 7.0
    return (v * old * old).sum()


def in_a_pause(v):
    early = (v**3).sum()
    with od.no_grad():
        v[1] = 9.0
    return early + (v * v).sum()


a, b, c = POINT
WRITES = {
    item: ([0.0, 3 * b * b, 3 * c * c], [0.0, 6 * b, 6 * c]),
    item_of_itself: ([0.0, 6 * b**5 + 3 * b * b, 3 * c * c], [0.0, 30 * b**4 + 6 * b, 6 * c]),
    twice: ([3000 * a * a, 3 * b * b, 3 * c * c], [6000 * a, 6 * b, 6 * c]),
    mask: ([3 * a * a + 2 * a, 3 * b * b + 2 * b, 2 * c], [6 * a + 2, 6 * b + 2, 2.0]),
    scaled: (24 * POINT**2, 48 * POINT),
    everything: (14 * POINT, [14.0, 14.0, 14.0]),
    in_a_pause: (3 * POINT**2, 6 * POINT),  # the value written in a pause is a constant
}
every_write = pytest.mark.parametrize("fn", WRITES, ids=lambda fn: fn.__name__)


def directional(fn):
    """The gradient from forward mode, a component at a time."""
    return [od.jvp(fn, (POINT,), (unit,))[1] for unit in np.eye(3)]


def as_rows(fn):
    """The gradient from a Jacobian in forward mode: more results than inputs."""
    return od.jacobian(lambda v: fn(v) * np.ones(5))(POINT)[3]


def through_a_tape(fn):
    with GradientTape() as tape:
        v = tape.watch(POINT)
        y = fn(v)
    return tape.gradient(y, v)


def through_backward(fn):
    with GradientTape() as tape:
        v = tape.watch(POINT)
        y = fn(v)
    return tape.backward(y)[v]


def into_a_leaf(fn):
    w = Variable(POINT, requires_grad=True)
    with GradientTape() as tape:
        y = fn(tape.watch(w))
    tape.backward(y)
    assert w.data.tolist() == POINT.tolist()
    return w.grad


def through_a_hook(fn):
    seen = []
    with GradientTape() as tape:
        v = tape.watch(POINT)
        y = fn(v)
    tape.on_gradient(v, seen.append)
    tape.backward(y)
    (g,) = seen
    return g


def through_tape_jvp(fn):
    with GradientTape(persistent=True) as tape:
        v = tape.watch(POINT)
        y = fn(v)
    return [tape.jvp(y, v, unit) for unit in np.eye(3)]


GRADIENTS = {
    "grad": lambda fn: od.grad(fn)(POINT),
    "grad of a Variable": lambda fn: od.grad(fn)(Variable(POINT, requires_grad=True)),
    "grad in a tree": lambda fn: od.grad(lambda p: fn(p["v"]))({"v": POINT})["v"],
    "grad with aux": lambda fn: od.grad(lambda v: (fn(v), v), has_aux=True)(POINT)[0],
    "value_and_grad": lambda fn: od.value_and_grad(fn)(POINT)[1],
    "vjp": lambda fn: od.vjp(fn, POINT)[1](1.0)[0],
    "jvp": directional,
    "jacobian": lambda fn: od.jacobian(fn)(POINT),
    "jacobian, forward": as_rows,
    "checkpoint": lambda fn: od.grad(lambda v: od.checkpoint(fn)(v * 1.0))(POINT),
    "checkpoint of the argument": lambda fn: od.grad(od.checkpoint(fn))(POINT),
    "watch": through_a_tape,
    "backward": through_backward,
    "watched leaf": into_a_leaf,
    "on_gradient": through_a_hook,
    "tape.jvp": through_tape_jvp,
    "scipy_objective": lambda fn: od.optim.scipy_objective(fn, POINT)(POINT)[1],
}


@every_write
@pytest.mark.parametrize("answer", GRADIENTS.values(), ids=GRADIENTS)
def test_a_gradient_is_that_for_what_was_passed_in(answer, fn):
    np.testing.assert_allclose(answer(fn), WRITES[fn][0], rtol=1e-14)


SECOND = {
    "hessian": lambda fn: np.diag(od.hessian(fn)(POINT)),
    "hvp": lambda fn: od.hvp(fn, (POINT,), (np.ones(3),)),
    "grad of grad": lambda fn: od.grad(lambda v: od.grad(fn)(v).sum())(POINT),
    "jacobian of grad": lambda fn: np.diag(od.jacobian(od.grad(fn))(POINT)),
    "grad of vjp": lambda fn: od.grad(lambda v: od.vjp(fn, v)[1](1.0)[0].sum())(POINT),
    "grad of jvp": lambda fn: od.grad(lambda v: od.jvp(fn, (v,), (np.ones(3),))[1])(POINT),
    "a later pullback": lambda fn: od.jvp(
        od.grad(lambda v: od.grad(od.checkpoint(fn))(v).sum()), (POINT,), (np.zeros(3),)
    )[0],
    "hessp": lambda fn: od.optim.scipy_objective(fn, POINT).hessp(POINT, np.ones(3)),
}


@every_write
@pytest.mark.parametrize("answer", SECOND.values(), ids=SECOND)
def test_a_second_derivative_is_that_for_what_was_passed_in(answer, fn):
    np.testing.assert_allclose(answer(fn), WRITES[fn][1], rtol=1e-13, atol=1e-13)


@every_write
def test_check_gradients_checks_a_function_that_writes_to_its_argument(fn):
    if fn is not in_a_pause:  # whose derivative leaves something out on purpose
        od.testing.check_gradients(fn, POINT)


def test_a_pullback_that_is_followed_later_starts_from_what_was_passed_in():
    _, pullback = od.vjp(item, POINT)
    slope = od.grad(lambda s: (pullback(s * 2.0)[0] * np.array([1.0, 1.0, 10.0])).sum())(1.0)
    assert float(slope) == 2.0 * (3 * b * b + 30 * c * c)


# ------------------------------------------------------------------ containers


def rebinds(p):
    p["w"] = p["w"] * 2.0
    return (p["w"] * p["b"]).sum()


def pops(p):
    b = p.pop("b")
    return (p["w"] * b * 2.0).sum()


def adds(p):
    p["new"] = p["w"] * 2.0
    return (p["new"] * p["b"]).sum()


def empties(p):
    w, b = p["w"], p["b"]
    p.clear()
    return (w * b * 2.0).sum()


@pytest.mark.parametrize("fn", [rebinds, pops, adds, empties], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize(
    "answer",
    [
        lambda fn, p: od.grad(fn)(p),
        lambda fn, p: od.vjp(fn, p)[1](1.0)[0],
        lambda fn, p: od.jacobian(fn)(p),
        lambda fn, p: od.optim.scipy_objective(fn, p).unflatten(
            od.optim.scipy_objective(fn, p)([2.0, 3.0, 5.0, 7.0])[1]
        ),
        lambda fn, p: od.grad(od.checkpoint(fn))(p),
    ],
    ids=["grad", "vjp", "jacobian", "scipy_objective", "checkpoint"],
)
def test_gradients_come_in_the_containers_that_were_passed_in(answer, fn):
    params = {"w": np.array([2.0, 3.0]), "b": np.array([5.0, 7.0])}
    found = answer(fn, params)
    assert list(found) == ["w", "b"]
    np.testing.assert_array_equal(found["w"], [10.0, 14.0])
    np.testing.assert_array_equal(found["b"], [4.0, 6.0])
    assert list(params) == ["w", "b"]
    assert params["w"].tolist() == [2.0, 3.0]


# ------------------------------------------------------------------ whose arrays stay as they are


@pytest.mark.parametrize("kind", ["array", "constant", "leaf"])
def test_what_the_caller_passed_in_is_as_it_was(kind):
    x = POINT.copy() if kind == "array" else Variable(POINT, requires_grad=kind == "leaf")
    for transform in (od.grad, od.value_and_grad, od.jacobian, od.hessian):
        transform(item)(x)
    od.vjp(item, x)[1](1.0)
    od.jvp(item, (x,), (np.ones(3),))
    od.hvp(item, (x,), (np.ones(3),))
    assert np.asarray(x if kind == "array" else x.data).tolist() == POINT.tolist()
    if kind == "leaf":
        assert x.is_leaf
        assert x.grad is None


def test_a_write_to_an_argument_that_is_not_differentiated_is_that_of_a_plain_call():
    def fn(x, y):
        y[0] = x * 2.0
        return (y * y).sum()

    y = Variable([1.0, 3.0])
    assert float(od.grad(fn)(5.0, y)) == 2 * 10.0 * 2.0
    assert y.numpy().tolist() == [10.0, 3.0]
    w = Variable([1.0, 3.0], requires_grad=True)
    with pytest.raises(TapeError, match=r"item assignment: .*leaf under a tape"):
        od.grad(fn)(5.0, w)
    assert w.data.tolist() == [1.0, 3.0]


def test_results_beside_the_answer_show_what_was_written():
    def fn(v):
        v[0] = 1.0
        return (v * v).sum(), v

    gradient, aux = od.grad(fn, has_aux=True)(POINT)
    assert aux.tolist() == [1.0, 2.0, -1.0]
    assert gradient.tolist() == [0.0, 4.0, -2.0]
    out, pullback = od.vjp(lambda v: fn(v)[1], POINT)
    assert out.tolist() == [1.0, 2.0, -1.0]
    assert pullback(np.ones(3))[0].tolist() == [0.0, 1.0, 1.0]


# ------------------------------------------------------------------ asked of a tape


def test_an_intermediate_that_was_not_watched_is_asked_about_as_it_is_now():
    w = Variable(POINT, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        h = w * 1.0
        h[0] = 1.0
        y = (h * h).sum()
    assert tape.gradient(y, h).tolist() == [2.0, 4.0, -2.0]
    assert tape.gradient(y, w).tolist() == [0.0, 4.0, -2.0]


def test_a_watched_variable_as_an_output_is_what_it_is_now():
    with GradientTape(persistent=True) as tape:
        v = tape.watch(POINT)
        v[0] = v[0] * 10.0
    assert tape.gradient(v, v, np.ones(3)).tolist() == [10.0, 1.0, 1.0]
    assert tape.jvp(v, v, np.ones(3)).tolist() == [10.0, 1.0, 1.0]


def test_a_written_watched_variable_is_found_by_its_first_value_in_reports_and_later_sweeps():
    with GradientTape(persistent=True) as tape:
        v = tape.watch(POINT)
        y = (v * v).sum()
        v[0] = 1.0
        z = (v * v).sum()
    assert "multiply -> sum" in tape.explain(y, v)
    assert "setitem -> multiply -> sum" in tape.explain(z, v)
    for _ in range(2):
        assert tape.gradient(y, v).tolist() == [6.0, 4.0, -2.0]
        assert tape.gradient(z, v).tolist() == [0.0, 4.0, -2.0]
        assert tape.backward(y)[v].tolist() == [6.0, 4.0, -2.0]


def test_a_watched_variable_keeps_its_place_through_a_long_recording():
    with GradientTape() as tape:
        v = tape.watch(POINT)
        first = v * 1.0
        v[0] = 1.0
        for _ in range(3000):  # enough for the recording to drop what nobody can ask about
            first * 2.0
        y = (first * v).sum()
    assert tape.gradient(y, v).tolist() == [1.0, 4.0, -2.0]


# ------------------------------------------------------------------ checkpoint and custom_vjp


def test_what_a_checkpointed_function_writes_stays_inside():
    w, k = Variable(POINT, requires_grad=True), Variable(np.ones(3))

    @od.checkpoint
    def layer(h, k):
        h[0] = 1.0
        k[1] = h[2] * 4.0
        return (h * h * k).sum()

    with GradientTape() as tape:
        h = w * 2.0
        y = layer(h, k) + h.sum()
    # 1 + (2 b)² 8 c + (2 c)², and 2 (a + b + c) outside of the layer
    expected = [2.0, 64 * b * c + 2.0, 32 * b * b + 8 * c + 2.0]
    assert tape.gradient(y, w).tolist() == expected
    assert h.numpy().tolist() == [6.0, 4.0, -2.0]
    assert k.numpy().tolist() == [1.0, 1.0, 1.0]


def test_a_checkpointed_function_may_hand_its_argument_through():
    w = Variable(POINT, requires_grad=True)
    with GradientTape():
        h = w * 2.0
        assert od.checkpoint(lambda h: (h, h.sum()))(h)[0] is h


def test_a_write_to_what_a_checkpointed_function_closes_over_is_noticed():
    w = Variable(POINT, requires_grad=True)
    with GradientTape() as tape:
        h = w * 2.0

        @od.checkpoint
        def layer(x):
            h[0] = 1.0
            return (x * h).sum()

        y = layer(w)
    with pytest.raises(MutationError, match="used other Variables"):
        tape.gradient(y, w)


def test_the_rules_of_a_custom_vjp_cannot_write_to_what_they_are_given():
    @od.custom_vjp
    def cube(x):
        return x**3

    def forward(x):
        x[0] = 1.0
        return x**3, x

    cube.defvjp(forward, lambda x, g: (3 * g * x**2,))
    with pytest.raises(ValueError, match="read-only"):
        od.grad(lambda v: cube(v * 1.0).sum())(POINT)

    def backward(x, g):
        g[0] = 5.0
        return (g,)

    cube.defvjp(lambda x: (x**3, x), backward)
    with pytest.raises(ValueError, match="read-only"):
        od.grad(lambda v: cube(v * 1.0).sum())(POINT)


def test_a_rule_of_a_custom_vjp_cannot_spoil_the_next_sweep():
    @od.custom_vjp
    def square(x, k):
        return k * x * x

    def backward(residuals, g):
        _, k, slope = residuals
        slope *= k
        return g * slope, None

    square.defvjp(lambda x, k: (k * x * x, (x, k, 2.0 * x)), backward)
    w = Variable(POINT, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = ops.sum(square(w, 2.0))
    with pytest.raises(ValueError, match="read-only"):
        tape.gradient(y, w)

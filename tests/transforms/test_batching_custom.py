"""custom_vjp in vmap: the rules are those of each example, wherever the tape is."""

import pickle

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, SettingError, ShapeError, TapeError, VmapWarning
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store

RNG = np.random.default_rng(5)
W = RNG.normal(size=3)
X = RNG.normal(size=(4, 3))
A = RNG.normal(size=(3, 3)) + 4 * np.eye(3)
MATRICES = np.stack([A + k * np.eye(3) for k in range(4)])


@od.custom_vjp
def tenfold(w, x):
    """A product whose rules say ten times its gradient, to be told from that of the ops."""
    return ops.sin(w) * x


def _tenfold_forward(w, x):
    return ops.sin(w) * x, (w, x)


def _tenfold_backward(residuals, g):
    w, x = residuals
    return 10 * g * ops.cos(w) * x, 10 * g * ops.sin(w)


tenfold.defvjp(_tenfold_forward, _tenfold_backward)


def solver(vmap):
    """Return a function that leaves odyssey, with rules that do so as well."""

    @od.custom_vjp(vmap=vmap)
    def solve(a, b):
        return np.linalg.solve(np.asarray(a), np.asarray(b))

    def forward(a, b):
        x = solve(a, b)
        return x, (a, x)

    def backward(residuals, g):
        a, x = residuals
        u = np.linalg.solve(np.asarray(a).T, np.asarray(g))
        return -np.outer(u, x), u

    solve.defvjp(forward, backward)
    return solve


SOLVE = solver("loop")


def loss(w, x):
    return (tenfold(w, x) ** 2).sum()


def squared_slope(w, x):
    return (od.grad(loss)(w, x) ** 2).sum()


def slope_on_a_tape(w, x):
    with GradientTape() as tape:
        watched = tape.watch(w)
        y = loss(watched, x)
    return y + (tape.gradient(y, watched) ** 2).sum()


def of_each(fn, xs=X):
    return np.stack([np.asarray(fn(x)) for x in xs])


def assert_equal(found, wanted):
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-11, atol=1e-11)


def compiled(fn, *args):
    program = od.compile(fn)
    program(*args)
    found = program(*args)
    assert program.explain(*args).startswith("a program")
    return found


EAGER_AND_COMPILED = pytest.mark.parametrize(
    "run", [lambda fn, *args: fn(*args), compiled], ids=["eager", "compiled"]
)


# ------------------------------------------------------------------ rules on batches


@EAGER_AND_COMPILED
@pytest.mark.parametrize("which", [0, 1], ids=["shared", "mapped"])
def test_gradients_of_each_example_are_those_of_the_rules(run, which):
    slope = od.grad(loss, which)
    assert_equal(run(od.vmap(slope, (None, 0)), W, X), of_each(lambda x: slope(W, x)))


@EAGER_AND_COMPILED
@pytest.mark.parametrize("which", [0, 1], ids=["shared", "mapped"])
def test_a_tape_outside_sweeps_by_the_rules(run, which):
    total = lambda w, x: od.vmap(loss, (None, 0))(w, x).sum()  # noqa: E731
    wanted = of_each(lambda x: od.grad(loss, which)(W, x))
    assert_equal(run(od.grad(total, which), W, X), wanted if which else wanted.sum(0))


@EAGER_AND_COMPILED
def test_rules_of_what_the_function_closes_over_are_applied_as_well(run):
    total = lambda w: od.vmap(lambda x: loss(w, x))(X).sum()  # noqa: E731
    assert_equal(run(od.grad(total), W), of_each(lambda x: od.grad(loss)(W, x)).sum(0))


@pytest.mark.parametrize("second", [squared_slope, slope_on_a_tape])
def test_second_derivatives_are_those_of_the_rules(second):
    wanted = of_each(lambda x: od.grad(second)(W, x))
    assert_equal(od.vmap(od.grad(second), (None, 0))(W, X), wanted)
    total = lambda w: od.vmap(second, (None, 0))(w, X).sum()  # noqa: E731
    assert_equal(od.grad(total)(W), wanted.sum(0))


def test_forward_derivatives_are_those_of_the_rules():
    direction = (np.ones(3),)
    pushed = lambda w, x: od.jvp(lambda w: loss(w, x), (w,), direction)[1]  # noqa: E731
    wanted = of_each(lambda x: pushed(W, x))
    assert_equal(od.vmap(pushed, (None, 0))(W, X), wanted)
    outside = od.jvp(lambda w: od.vmap(loss, (None, 0))(w, X), (W,), direction)[1]
    assert_equal(outside, wanted)


def test_two_batches_are_summed_or_not_as_a_loop_does():
    ws = np.stack([W, -W])
    wanted = np.stack([of_each(lambda x, w=w: od.grad(loss)(w, x)) for w in ws])
    assert_equal(od.vmap(od.vmap(od.grad(loss), (None, 0)), (0, None))(ws, X), wanted)
    both = lambda ws: od.vmap(od.vmap(loss, (None, 0)), (0, None))(ws, X).sum()  # noqa: E731
    assert_equal(od.grad(both)(ws), wanted.sum(1))
    inner = lambda w: od.vmap(loss, (None, 0))(w, X).sum()  # noqa: E731
    assert_equal(od.vmap(od.grad(inner))(ws), wanted.sum(1))


def test_a_function_that_closes_over_an_example_is_summed_over_examples():
    def scaled(w, x):
        fn = od.custom_vjp(lambda w: w * x)
        fn.defvjp(lambda w: (w * x, None), lambda _, g: (g * x * 7,))
        return (fn(w) ** 2).sum()

    total = lambda w: od.vmap(scaled, (None, 0))(w, X).sum()  # noqa: E731
    assert_equal(od.grad(total)(W), of_each(lambda x: od.grad(scaled)(W, x)).sum(0))


def test_a_gradient_that_all_examples_share_counts_once_for_each():
    fn = od.custom_vjp(lambda w, x: w * x)
    fn.defvjp(lambda w, x: (w * x, None), lambda _, g: (np.ones(3), None))
    total = lambda w: od.vmap(lambda x: fn(w, x).sum())(X).sum()  # noqa: E731
    np.testing.assert_array_equal(od.grad(total)(W), np.full(3, 4.0))


def test_trees_and_integers_pass_through_the_rules():
    fn = od.custom_vjp(lambda p, n: {"y": p["a"] * n, "n": n})
    fn.defvjp(
        lambda p, n: ({"y": p["a"] * n, "n": n}, n), lambda n, g: ({"a": 3 * g["y"] * n}, None)
    )
    numbers = np.arange(4)
    total = lambda a: od.vmap(lambda n: fn({"a": a}, n)["y"].sum())(numbers).sum()  # noqa: E731
    np.testing.assert_array_equal(od.grad(total)(W), np.full(3, 18.0))
    found = od.vmap(lambda n: fn({"a": W}, n))(numbers)
    np.testing.assert_array_equal(found["n"], numbers)


def test_random_numbers_of_a_rule_are_drawn_once():
    rng, other = od.Generator(3), od.Generator(3)
    fn = od.custom_vjp(lambda x: x * rng.uniform(size=3))

    def forward(x):
        noise = rng.uniform(size=3)
        return x * noise, noise

    fn.defvjp(forward, lambda noise, g: (g * noise,))
    found = od.grad(lambda x: od.vmap(lambda x: fn(x).sum())(x).sum())(X)
    np.testing.assert_array_equal(found, np.broadcast_to(other.uniform(size=3), (4, 3)))
    assert rng.state == other.state


def test_a_captured_variable_is_refused_as_without_vmap():
    w = Variable(W, requires_grad=True)
    fn = od.custom_vjp(lambda x: x * w)
    fn.defvjp(lambda x: (x * w, None), lambda _, g: (g,))
    with GradientTape(), pytest.raises(TapeError, match="it closes over"):
        od.vmap(lambda x: fn(x).sum())(X)
    assert (store(), scopes()) == (MEMORY, (None,))


# ------------------------------------------------------------------ functions that leave odyssey


@pytest.mark.parametrize(
    ("in_axes", "args"),
    [((None, 0), (A, X)), ((0, None), (MATRICES, W)), ((0, 0), (MATRICES, X))],
    ids=["vectors", "matrices", "both"],
)
def test_a_loop_over_examples_has_their_values_and_gradients(in_axes, args):
    fn = lambda a, b: (SOLVE(a, b) ** 2).sum()  # noqa: E731
    each = [
        tuple(a if axis is None else a[k] for a, axis in zip(args, in_axes, strict=True))
        for k in range(4)
    ]
    assert_equal(od.vmap(fn, in_axes)(*args), [fn(*one) for one in each])
    for n in range(2):
        wanted = np.stack([od.grad(fn, n)(*one) for one in each])
        assert_equal(od.vmap(od.grad(fn, n), in_axes)(*args), wanted)
        total = lambda *args: od.vmap(fn, in_axes)(*args).sum()  # noqa: E731
        outside = od.grad(total, n)(*args)
        assert_equal(outside, wanted.sum(0) if in_axes[n] is None else wanted)


def test_a_loop_takes_each_example_of_two_batches_and_of_a_jacobian():
    fn = od.grad(lambda a, b: (SOLVE(a, b) ** 2).sum())
    found = od.vmap(od.vmap(fn, (None, 0)), (0, None))(MATRICES, X)
    assert_equal(found, [[fn(a, b) for b in X] for a in MATRICES])
    assert_equal(od.jacobian(lambda b: SOLVE(A, b))(W), np.linalg.inv(A))
    assert_equal(od.vmap(od.jacobian(lambda b: SOLVE(A, b)))(X), [np.linalg.inv(A)] * 4)


def test_a_loop_gives_the_function_plain_arrays_and_calls_it_once_an_example():
    came = []
    fn = od.custom_vjp(lambda x, scale: came.append(type(x)) or {"y": x * scale}, vmap="loop")
    found = od.vmap(lambda x: fn(x, 2.0))(X)
    np.testing.assert_array_equal(found["y"], 2 * X)
    assert came == [np.ndarray] * 4
    came.clear()
    shared = od.vmap(lambda x: fn(W, 2.0)["y"] + x)(X)
    np.testing.assert_array_equal(shared, 2 * W + X)
    assert came == [np.ndarray]


def test_a_function_that_leaves_odyssey_names_the_loop():
    fn = solver(None)
    for call in (
        lambda: od.vmap(lambda b: fn(A, b))(X),
        lambda: od.vmap(od.grad(lambda b: fn(A, b).sum()))(X),
        lambda: od.grad(lambda x: od.vmap(lambda b: fn(A, b).sum())(x).sum())(X),
    ):
        with pytest.raises(
            TapeError, match=r'(?s)custom_vjp\(solve\).*custom_vjp\(fn, vmap="loop"'
        ):
            call()
        assert (store(), scopes()) == (MEMORY, (None,))


def test_results_of_a_loop_are_alike_for_all_examples():
    ragged = od.custom_vjp(lambda x: np.ones(int(x)), vmap="loop")
    with pytest.raises(ShapeError, match=r"shape \(1,\) for the first, and \(2,\) for example 1"):
        od.vmap(ragged)(np.array([1.0, 2.0]))
    text = od.custom_vjp(lambda x: "no", vmap="loop")
    with pytest.raises(DTypeError, match="for each example returned"):
        od.vmap(text)(X)
    with pytest.raises(ShapeError, match="at least one example"):
        od.vmap(lambda b: SOLVE(A, b))(X[:0])


def test_the_loop_is_chosen_by_name_and_a_decorator_is_pickled_by_its_own():
    with pytest.raises(SettingError, match="vmap='each'"):
        od.custom_vjp(vmap="each")
    with pytest.raises(SettingError, match="vmap='each'"):
        od.custom_vjp(abs, vmap="each")
    with pytest.raises(DTypeError, match="cannot be called"):
        od.custom_vjp(None)
    assert pickle.loads(pickle.dumps(tenfold)) is tenfold


# ------------------------------------------------------------------ ops from outside


def sine_op(**options):
    """Return an op of a library that knows plain arrays alone, and the sizes it was called with."""
    sizes = []

    @od.op(infer=lambda x: x, vjp={"x": lambda g, x: g * ops.cos(x)}, **options)
    def library_sine(x, /):
        sizes.append(np.size(x))
        return np.array([np.sin(float(v)) for v in np.ravel(x)]).reshape(np.shape(x))

    return library_sine, sizes


def test_an_op_that_loops_is_called_for_each_example_with_its_gradients():
    fn, sizes = sine_op(vmap="loop")
    assert_equal(od.vmap(fn)(X), np.sin(X))
    assert sizes == [3] * 4
    slope = od.grad(lambda x: (fn(x) ** 2).sum())
    assert_equal(od.vmap(slope)(X), np.sin(2 * X))
    assert_equal(od.vmap(od.grad(lambda x: slope(x).sum()))(X), 2 * np.cos(2 * X))
    total = lambda x: od.vmap(lambda x: (fn(x) ** 2).sum())(x).sum()  # noqa: E731
    assert_equal(od.grad(total)(X), np.sin(2 * X))
    assert_equal(
        od.grad(lambda w: od.vmap(lambda x: fn(w * x).sum())(X).sum())(W),
        (np.cos(W * X) * X).sum(0),
    )
    assert od.vmap(fn)(X[:0]).shape == (0, 3)


def test_an_op_from_outside_without_a_rule_loops_and_warns_once():
    fn, sizes = sine_op()
    with pytest.warns(VmapWarning, match=r'library_sine has no batch rule.*vmap="loop"') as caught:
        assert_equal(od.vmap(fn)(X), np.sin(X))
    assert caught[0].filename == __file__
    assert_equal(od.vmap(fn)(X), np.sin(X))  # warnings are errors here
    assert sizes == [3] * 8

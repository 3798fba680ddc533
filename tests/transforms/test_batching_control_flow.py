"""Control flow in a function that vmap runs gives what a loop over the examples does."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, ShapeError, TapeError
from odyssey.graph.trace import Trace
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store
from odyssey.tree import leaves, unflatten

RNG = np.random.default_rng(38)
W = RNG.normal(size=(3, 3)) * 0.5
X = RNG.normal(size=(4, 3))
XS = RNG.normal(size=(4, 5, 3))
DIRECTION = RNG.normal(size=(3, 3))


def examples_one_by_one(fn, in_axes, *args):
    found = []
    for k in range(4):
        given = [a if axis is None else a[k] for a, axis in zip(args, in_axes, strict=True)]
        found.append(fn(*given))
    columns = zip(*map(leaves, found), strict=True)
    return unflatten(found[0], [np.stack(list(map(np.asarray, column))) for column in columns])


def assert_equal(found, wanted):
    for got, want in zip(leaves(found), leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(got), want, rtol=1e-10, atol=1e-10)


def compiled(fn, *args):
    """Return the result of a program; a function that has none fails the test."""
    program = od.compile(fn)
    program(*args)
    found = program(*args)
    why = program.explain(*args)
    assert why.startswith("a program"), why
    return found


def recurrence(w, xs):
    def step(carry, x):
        count, h = carry
        h = ops.maximum(ops.tanh(h @ w + x), -0.5)
        return (count + 1, h), ops.sin(h) * count

    (count, h), ys = od.scan(step, (0, xs[0]), xs, reverse=True)
    return (h * h).sum() + (ys * ys).sum() + count


def branch(w, x, truth):
    return od.cond(truth > 0, lambda x: ops.sin(x @ w).sum(), lambda x: (x * w[0]).sum() ** 2, x)


def rounds(w, x, n):
    i, h = od.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, ops.tanh(s[1] @ w + x)), (0, x))
    return (h * h).sum() + i


def branches_in_a_scan(w, xs):
    def step(carry, x):
        k, h = carry
        h = od.cond(k % 2 == 0, lambda h: ops.sin(h @ w), lambda h: h * x, h)
        return (k + 1, h), od.cond(h.sum() > 0, lambda: h * h, lambda: x * w[0])

    (_, h), ys = od.scan(step, (np.int64(0), xs[0]), xs)
    return h.sum() + (ys * ys).sum()


def scan_in_a_scan(w, xs):
    def row(carry, x):
        a, b = od.scan(lambda u, v: (ops.sin(u * v + w[0, 0]), u * carry.sum()), x[0], x)
        return ops.tanh(carry @ w + a), b.sum()

    carry, ys = od.scan(row, xs[0], xs)
    return carry.sum() + (ys * ys).sum()


SCANS = {
    "scan": (recurrence, (None, 0), (W, XS)),
    "scan, shared arrays": (lambda w, xs, c: recurrence(w * c, xs), (None, None, 0), (W, XS[0], X)),
    "shared cond": (branch, (None, 0, None), (W, X, np.array(1.0))),
    "mapped cond": (branch, (None, 0, 0), (W, X, np.array([1.0, -1.0, 2.0, -3.0]))),
    "conds in a scan": (branches_in_a_scan, (None, 0), (W, XS)),
    "scan in a scan": (scan_in_a_scan, (None, 0), (W, XS[:, :3])),
}
LOOPS = {**SCANS, "while_loop": (rounds, (None, 0, None), (W, X, np.int64(3)))}


def forward(fn):
    """Return the derivative of ``fn`` by its first argument, in one direction."""
    return lambda w, *rest: od.jvp(lambda w: fn(w, *rest), (w,), (DIRECTION,))[1]


def squared_slope(fn):
    return lambda *args: (od.grad(fn)(*args) ** 2).sum()


ORDERS = {
    "value": lambda fn: fn,
    "grad": od.grad,
    "jvp": forward,
    "grad of grad": lambda fn: od.grad(squared_slope(fn)),
    "jvp of grad": lambda fn: forward(od.grad(fn)),
    "grad of jvp": lambda fn: od.grad(forward(fn)),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SCANS)
def test_derivatives_of_each_example_are_those_of_a_loop(name, order):
    fn, in_axes, args = SCANS[name]
    fn = ORDERS[order](fn)
    wanted = examples_one_by_one(fn, in_axes, *args)
    assert_equal(od.vmap(fn, in_axes)(*args), wanted)


@pytest.mark.parametrize(
    ("name", "order"),
    [
        *[(name, order) for name in SCANS for order in ("value", "grad", "jvp")],
        *[("scan", "jvp of grad"), ("scan", "grad of jvp"), ("mapped cond", "grad of grad")],
    ],
)
def test_compiled_derivatives_of_each_example_are_those_of_a_loop(name, order):
    fn, in_axes, args = SCANS[name]
    fn = ORDERS[order](fn)
    wanted = examples_one_by_one(fn, in_axes, *args)
    assert_equal(compiled(od.vmap(fn, in_axes), *args), wanted)


@pytest.mark.parametrize("name", SCANS)
def test_a_gradient_outside_of_vmap_is_the_sum_over_examples(name):
    fn, in_axes, args = SCANS[name]
    total = lambda *args: od.vmap(fn, in_axes)(*args).sum()  # noqa: E731
    wanted = examples_one_by_one(od.grad(fn), in_axes, *args).sum(0)
    assert_equal(od.grad(total)(*args), wanted)
    assert_equal(compiled(od.grad(total), *args), wanted)


@pytest.mark.parametrize(
    "name", ["scan", "mapped cond", pytest.param("scan in a scan", marks=pytest.mark.soak)]
)
def test_a_gradient_outside_of_per_example_gradients_is_the_sum_over_examples(name):
    fn, in_axes, args = SCANS[name]
    total = lambda *args: (od.vmap(od.grad(fn), in_axes)(*args) ** 2).sum()  # noqa: E731
    wanted = examples_one_by_one(od.grad(squared_slope(fn)), in_axes, *args).sum(0)
    assert_equal(od.grad(total)(*args), wanted)
    assert_equal(compiled(od.grad(total), *args), wanted)


@pytest.mark.parametrize("order", ["value", "jvp"])
def test_a_while_loop_with_a_shared_condition_is_that_of_a_loop(order):
    fn, in_axes, args = LOOPS["while_loop"]
    fn = ORDERS[order](fn)
    wanted = examples_one_by_one(fn, in_axes, *args)
    assert_equal(od.vmap(fn, in_axes)(*args), wanted)
    assert_equal(compiled(od.vmap(fn, in_axes), *args), wanted)


@pytest.mark.parametrize("name", ["scan", "mapped cond", "while_loop"])
def test_vmap_in_vmap_runs_loops_over_both_axes(name):
    fn, in_axes, args = LOOPS[name]
    fn = forward(fn) if name == "while_loop" else od.grad(fn)
    ws = np.stack([W, -W])
    both = od.vmap(od.vmap(fn, in_axes), (0, *[None] * (len(args) - 1)))
    wanted = np.stack([examples_one_by_one(fn, in_axes, w, *args[1:]) for w in ws])
    assert_equal(both(ws, *args[1:]), wanted)
    assert_equal(compiled(both, ws, *args[1:]), wanted)


@pytest.mark.parametrize("name", ["scan", "scan in a scan", "while_loop", "shared cond"])
def test_a_trace_holds_one_instruction_for_a_loop(name):
    fn, in_axes, args = LOOPS[name]
    trace = Trace()
    trace.run(od.vmap(fn, in_axes), args, {})
    loops = [i.row for i in trace.graph.instructions if hasattr(i.row, "loop")]
    assert [row.name for row in loops] == [name.split()[-1]]
    trace.close()


def test_a_long_scan_is_swept_by_a_batch_of_cotangents():
    xs = np.linspace(-1.0, 1.0, 300)
    fn = lambda w: od.scan(lambda c, x: (ops.sin(c * w[0] + x), c * w[1]), 0.1, xs)  # noqa: E731
    by_hand = lambda w: _sine_steps(w, xs)  # noqa: E731
    w = np.array([0.5, 0.3])
    assert_equal(od.jacobian(lambda w: fn(w)[1])(w), od.jacobian(by_hand)(w))


def _sine_steps(w, xs):
    carry, ys = 0.1, []
    for x in xs:
        ys.append(carry * w[1])
        carry = ops.sin(carry * w[0] + x)
    return ops.stack(ys)


def test_scans_of_no_steps_have_empty_results():
    fn = lambda x: od.scan(lambda c, z: (c * x, ops.sin(z) @ W + c), x, np.ones((0, 3)))  # noqa: E731
    for run in (od.vmap(fn), lambda x: compiled(od.vmap(fn), x)):
        carry, ys = run(X)
        np.testing.assert_array_equal(carry, X)
        assert ys.shape == (4, 0, 3)
    slope = od.vmap(od.grad(lambda x: fn(x)[0].sum()))
    np.testing.assert_array_equal(slope(X), np.ones((4, 3)))


# ------------------------------------------------------------------ refusals


@pytest.mark.parametrize("run", [lambda f: f, od.compile], ids=["eager", "compiled"])
def test_a_condition_of_each_example_is_refused_by_while_loop(run):
    fn = od.vmap(lambda x: od.while_loop(lambda c: c.sum() < 3, lambda c: c + 1, x))
    with pytest.raises(TapeError, match=r"(?s)while_loop: .*example of vmap.*use scan.*ops\.where"):
        run(lambda x: fn(x))(X)
    assert store() is MEMORY
    assert scopes() == (None,)


@pytest.mark.parametrize(
    ("other", "kind", "match"),
    [
        (lambda x: x.sum(), ShapeError, "cond: leaf 0"),
        (lambda x: x > 0, DTypeError, "cond: leaf 0"),
        (lambda x: (x, x), DTypeError, "cond: leaf 0"),
        (lambda x: "no", DTypeError, "cond: leaf 0"),
        (lambda x: None, ShapeError, "None in one branch"),
    ],
    ids=["shape", "dtype", "tree", "text", "none"],
)
def test_branches_that_differ_are_refused_where_each_example_chooses(other, kind, match):
    with pytest.raises(kind, match=match):
        od.vmap(lambda x: od.cond(x.sum() > 0, lambda x: x, other, x))(X)


def backward_in_a_branch(x):
    v = Variable(x, requires_grad=True)

    def sweep():
        with GradientTape() as tape:
            y = (v * v).sum()
        tape.backward(y)
        return x

    od.cond(x.sum() > 0, sweep, lambda: x)
    return v.grad


def assign_in_a_branch(x):
    v = Variable(np.zeros(3))
    od.cond(x.sum() > 0, lambda: v.assign(x), lambda: v.assign(-x))
    return v


@pytest.mark.parametrize("fn", [assign_in_a_branch, backward_in_a_branch])
def test_a_write_in_a_branch_that_some_examples_take_is_refused(fn):
    with pytest.raises(TapeError, match=r"a branch, writes to .*vmap"):
        od.vmap(fn)(X)
    assert store() is MEMORY


def test_generators_advance_as_in_the_branch_that_each_example_takes():
    def fn(rng, x):
        def one():
            inner = od.cond(rng.uniform() > 0.5, lambda: x * rng.uniform(), lambda: x * 1.0)
            return inner + rng.uniform()

        return od.cond(x[0] > 0, one, lambda: x * rng.normal())

    alone, together, in_programs = (od.Generator(7).split(4) for _ in range(3))
    program = od.compile(od.vmap(fn))
    for _ in range(3):
        wanted = np.stack([fn(rng, x) for rng, x in zip(alone, X, strict=True)])
        np.testing.assert_array_equal(od.vmap(fn)(together, X), wanted)
        assert_equal(program(in_programs, X), wanted)
    assert program.explain(in_programs, X).startswith("a program")
    states = [[rng.state for rng in rngs] for rngs in (alone, together, in_programs)]
    assert states[0] == states[1] == states[2]


def test_a_predicate_with_axes_is_refused_in_the_shape_of_one_example():
    with pytest.raises(ShapeError, match=r"cond: pred has shape \(3,\)"):
        od.vmap(lambda x: od.cond(x > 0, lambda x: x, lambda x: x, x))(X)


def test_no_gradient_of_a_branch_that_an_example_did_not_take_is_nan():
    fn = od.grad(lambda x: od.cond(x > 0, ops.sqrt, lambda x: x * 0.0, x))
    x = np.array([4.0, 0.0, 1.0])
    with np.errstate(all="ignore"):  # both branches run on all examples
        np.testing.assert_array_equal(od.vmap(fn)(x), [0.25, 0.0, 0.5])
        np.testing.assert_array_equal(compiled(od.vmap(fn), x), [0.25, 0.0, 0.5])

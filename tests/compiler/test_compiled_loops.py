"""Compiled loops and branches stay what they are, and do what they do where they are simply run."""

# ruff: noqa: B023 (steps that close over names which are bound anew are what some tests are about)

import signal
from functools import partial

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, linalg, ops
from odyssey.compiler import lowering
from odyssey.errors import TapeError
from support.threads import run_in_threads

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")


@pytest.fixture(autouse=True)
def loops_are_called(monkeypatch):
    """Short scans too, which programs contain otherwise: see ``test_unrolled_scans``."""
    monkeypatch.setattr(lowering, "_MAX_UNROLLED", 0)


RNG = np.random.default_rng(7)
W, XS, START = RNG.normal(size=(3, 3)) * 0.5, RNG.normal(size=(6, 3)), RNG.normal(size=3)
POLES = np.array([1.0, -2.0, 0.0, 3.0])


def agree(got, wanted, tolerance=1e-12):
    assert type(got) is type(wanted)
    got, wanted = (v.detach() if isinstance(v, Variable) else v for v in (got, wanted))
    if wanted is None:
        return
    got, wanted = np.asarray(got), np.asarray(wanted)
    assert got.dtype == wanted.dtype
    np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance)


def compare(fn, *args, native=True):
    """A compiled function against itself, run as it is written; both must do so natively."""
    compiled = od.compile(fn, check=True)
    with np.errstate(all="ignore"):
        wanted = fn(*args)
        for _ in range(3):
            got = compiled(*args)
    for pair in zip(od.tree.leaves(got), od.tree.leaves(wanted), strict=True):
        agree(*pair)
    assert (compiled.statistics().native == 2) == native, compiled.explain(*args)
    return compiled


# ------------------------------------------------------------------ programs of loops


def recurrent(w, h, x):
    def step(h, x):
        h = ops.tanh(h @ w + x)
        return h, ops.sin(h)

    last, ys = od.scan(step, h, x)
    return (last * last).sum() + (ys**3).sum()


def backwards(w, h, x):
    last, ys = od.scan(lambda c, x: (c * x + w[1], c @ w), h, x * w[0], reverse=True)
    return last.sum() + (ys * ys).sum()


def nested(w, h, x):
    def outer(c, row):
        c, inner = od.scan(lambda a, _: (ops.cos(a * w[0]), a.sum()), c + row, None, 3)
        return c, inner

    last, ys = od.scan(outer, h, x)
    return last.sum() * 2.0 + (ys**2).sum()


def choosing(w, h, x):
    def step(c, x):
        c = od.cond(x.sum() > 0, lambda c: ops.sin(c @ w), lambda c: c * w[0] + x, c)
        return c, c[0]

    last, ys = od.scan(step, h, x)
    return last.sum() + (ys**3).sum()


def trading(w, h, x):
    """Carries that change places, come twice, are reset, and are closed over as well."""

    def step(c, x):
        a, b, n, r = c
        return (b, ops.sin(a * x), n + 1, np.zeros(3)), (a * h, n, r * b, 1.0)

    (a, b, n, r), (ys, ns, rs, ones) = od.scan(step, (h, h, 0, w[0]), x)
    last = (a * b * r + b).sum() * n
    return last + (ys.sum(1) * ns).sum() + rs.sum() + ones.sum()


def with_gradients(w, h, x):
    """Derivatives inside of a step."""

    def step(c, x):
        slope = od.grad(lambda c: (ops.sin(c @ w) * x).sum())(c)
        return c + slope, od.jvp(ops.exp, (x,), (c,))[1]

    last, ys = od.scan(step, h, x)
    return last.sum() + ys.sum()


def with_checkpoints(w, h, x):
    step = od.checkpoint(lambda c, x: (ops.tanh(c @ w * x), ops.exp(c)))
    last, ys = od.checkpoint(lambda h: od.scan(step, h, x))(h)
    return last.sum() + ys.sum()


def stopping(w, h, x):
    """What is stopped in a step, and a rule of one's own."""

    @od.custom_vjp
    def tripled(x):
        return ops.sin(x)

    tripled.defvjp(lambda x: (ops.sin(x), x), lambda x, g: (g * 3.0 * x,))
    last, _ = od.scan(lambda c, x: (tripled(c @ w) + od.stop_gradient(ops.exp(x)), None), h, x)
    return last.sum()


def one_step(w, h, x):
    last, ys = od.scan(lambda c, x: (c @ w * x, c), h, x[:1])
    return last.sum() + (ys * ys).sum()


def falling(w, h, x):
    """A branch of a choice that depends on the data, of several results."""
    a, b = od.cond(h.sum() > x.sum(), lambda w: (w * 2.0, w @ h), lambda w: (w * w, h), w)
    return (a * a).sum() + ops.sin(b).sum()


def halving(w, h, x):
    value = od.while_loop(lambda v: (v * v).sum() > 0.1, lambda v: ops.sin(v * w) * 0.7, w)
    return value.sum() + h.sum()


def waiting(w, h, x):
    """A while_loop in a cond in a scan."""

    def step(c, x):
        def long(c):
            return od.while_loop(lambda v: v.sum() > 1.0, lambda v: v * 0.5 + 0.1 * w[0], c + 3.0)

        return od.cond(x[0] > 0, long, lambda c: c * w[1], c), None

    return od.scan(step, h, x)[0].sum()


LOOPS = [
    recurrent, backwards, nested, choosing, trading, with_gradients, with_checkpoints, one_step,
    falling,
]  # fmt: skip
FORWARD = [*LOOPS, halving, waiting]
EVERYWHERE = (0, 1, 2)
named = {"ids": lambda fn: fn.__name__}


def some(functions):
    """Those that have all in them; the others are soaks."""
    taken = (choosing, trading, waiting)
    return [f if f in taken else pytest.param(f, marks=pytest.mark.soak) for f in functions]


def moved(fn, *args):
    return od.jvp(fn, args, args)[1]


@pytest.mark.parametrize("fn", [*FORWARD, stopping], **named)
def test_values_are_those_of_the_function(fn):
    compare(fn, W, START, XS)


@pytest.mark.parametrize("fn", [*LOOPS, stopping], **named)
def test_gradients_are_those_of_the_function(fn):
    compare(od.grad(fn, EVERYWHERE), W, START, XS)


@pytest.mark.parametrize("fn", FORWARD, **named)
def test_forward_derivatives_are_those_of_the_function(fn):
    compare(lambda *args: od.jvp(fn, args, args), W, START, XS)


@pytest.mark.parametrize("fn", some(LOOPS), **named)
def test_gradients_of_gradients_are_those_of_the_function(fn):
    def squares(*args):
        return sum((g * g).sum() for g in od.grad(fn, EVERYWHERE)(*args))

    compare(od.grad(squares, EVERYWHERE), W, START, XS)


@pytest.mark.parametrize("fn", some(FORWARD), **named)
def test_forward_derivatives_of_forward_derivatives_are_those_of_the_function(fn):
    compare(lambda *args: moved(lambda *a: moved(fn, *a), *args), W, START, XS)


@pytest.mark.slow
@pytest.mark.parametrize("fn", some(LOOPS), **named)
def test_mixed_derivatives_are_those_of_the_function(fn):
    compare(lambda *args: od.grad(lambda *a: moved(fn, *a), EVERYWHERE)(*args), W, START, XS)
    compare(lambda *args: od.jvp(od.grad(fn, EVERYWHERE), args, args)[1], W, START, XS)


INSIDE = {
    "grad": lambda q, z: od.grad(lambda q: (q**3 * z).sum())(q),
    "jvp": lambda q, z: od.jvp(lambda q: q * q * z, (q,), (z,))[1],
    "vjp": lambda q, z: od.vjp(lambda q: q * q * z, q)[1](z)[0],
    "hvp": lambda q, z: od.hvp(lambda q: (q**3 * z).sum(), (q,), (z,)),
}


def chain(inside, start, w, x):
    """A chain that goes along a derivative at each step, as Langevin's does."""

    def step(q, z):
        q = ops.tanh(inside(q, z) + 0.1 * q)
        return q, ops.sin(q * z)

    last, ys = od.scan(step, start, ops.stack([w, 2.0 * x, w]))
    return (last * ys.sum(axis=0) * x).sum()


@pytest.mark.slow
@pytest.mark.parametrize("inside", INSIDE)
def test_derivatives_within_steps_have_derivatives_of_two_orders(inside):
    def total(x, w):
        return chain(INSIDE[inside], x, w, x)

    def twice(x, w):
        return od.grad(lambda x: (od.grad(total)(x, w) * w).sum(), argnums=0)(x)

    compare(od.grad(total, argnums=(0, 1)), START, W[0])
    compare(twice, START, W[0])


@pytest.mark.parametrize("inside", INSIDE)
def test_derivatives_within_steps_of_constants_lose_no_gradient(inside):
    def total(x, w):
        return chain(INSIDE[inside], od.stop_gradient(x), od.stop_gradient(w), x) * (x * w).sum()

    compare(od.grad(total, argnums=(0, 1)), START, W[0])

    def newton(x, w):
        found = od.while_loop(
            lambda c: (c[0] ** 2).sum() < 100.0,
            lambda c: (c[0] * 2.0 + INSIDE[inside](c[0], od.stop_gradient(w)), c[1] + 1),
            (od.stop_gradient(x), 0),
        )
        return (found[0] * x).sum() * w.sum()

    compare(od.grad(newton, argnums=(0, 1)), START, W[0])

    def branches(x, w):
        still = od.stop_gradient(x)
        y = od.cond(w.sum() > 0.0, lambda q: INSIDE[inside](q, still), lambda q: q, still)
        return (y * x * w).sum()

    compare(od.grad(branches, argnums=(0, 1)), START, W[0])


@pytest.mark.slow
def test_third_derivatives_are_those_of_the_function():
    def fn(s):
        step = lambda c, x: (ops.sin(c * s) + x, c * c)  # noqa: E731
        carry, ys = od.scan(step, s * 0.5, np.array([0.1, 0.7, -0.3]))
        return carry + ys.sum()

    compare(od.grad(od.grad(od.grad(fn))), np.array(0.8))


# ------------------------------------------------------------------ they stay loops


@pytest.mark.parametrize("fn", [recurrent, od.grad(recurrent, EVERYWHERE)], ids=["itself", "grad"])
def test_a_program_is_as_large_for_1000_steps_as_for_10(fn):
    sizes = []
    for steps in (10, 1000):
        lowered = od.compile(fn).lower(W, START, np.ones((steps, 3)))
        sizes.append([str(one).count("\n") for one in lowered.graph.instructions])
    assert sizes[0] == sizes[1]


def test_a_branch_and_the_number_of_steps_are_chosen_when_the_program_runs():
    def fn(x, most):
        count, x = od.while_loop(lambda v: v[0] < most, lambda v: (v[0] + 1, v[1] * 2.0), (0, x))
        return od.cond(x > 100.0, lambda: x - 100.0, lambda: x), count

    compiled = od.compile(fn)
    for start, most in ((1.0, 3), (1.0, 3), (1.0, 10), (3.0, 0), (2.0, 7), (-1.0, 9000)):
        with np.errstate(all="ignore"):
            wanted = fn(np.array(start), np.array(most))
            got = compiled(np.array(start), np.array(most))
        for pair in zip(got, wanted, strict=True):
            agree(*pair, 0.0)
    assert compiled.statistics().programs == 1


def test_loops_are_evaluated_without_native_code():
    lowered = od.compile(od.grad(choosing, EVERYWHERE)).lower(W, START, XS)
    found, _ = lowered.evaluate(W, START, XS)
    for pair in zip(found, od.grad(choosing, EVERYWHERE)(W, START, XS), strict=True):
        agree(*pair)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.complex128], ids=str)
def test_dtypes_that_no_native_code_knows_go_through_loops_as_well(dtype):
    x = (XS + (1j * XS[::-1] if np.dtype(dtype).kind == "c" else 0)).astype(dtype)

    def fn(x):
        last, ys = od.scan(lambda c, x: (c * x + x, c - x), np.ones(3, dtype), x)
        return ops.absolute(last).sum() + ops.absolute(ys).sum()

    values = od.compile(fn), od.compile(od.grad(fn))
    for compiled, plain in zip(values, (fn, od.grad(fn)), strict=True):
        for _ in range(3):
            agree(compiled(x), plain(x), 1e-2 if dtype is np.float16 else 2e-6)
        assert compiled.statistics().native == 2


@pytest.mark.parametrize("steps", [0, 1, 6])
def test_trees_whole_numbers_truths_and_nothing_go_through_loops(steps):
    def fn(x):
        def step(c, x):
            new = {"n": c["n"] + 1, "s": c["s"] + x, "seen": c["seen"] | (x > 1), "none": None}
            return new, (c["n"], [x > 0, None])

        start = {"n": 0, "s": 0.0, "seen": np.bool_(False), "none": None}
        return od.scan(step, start, x)

    compare(fn, XS[:steps, 0])


def test_arrays_without_elements_go_through_loops():
    compare(lambda x: od.scan(lambda c, x: (c * x, c.sum()), np.zeros(0), x), np.zeros((5, 0)))


# ------------------------------------------------------------------ what was left out by choice


def inside(x):
    def step(c, v):
        safe = ops.where(v > 0, v, 0.0)
        return ops.where(v > 0, ops.log(safe) + c, c), ops.sqrt(ops.relu(c))

    carry, ys = od.scan(step, np.float64(0.0), x)
    return carry + ys.sum()


def behind_results(x):
    _, ys = od.scan(lambda c, v: (c + ops.log(v), ops.log(v)), np.float64(0.0), x)
    return ops.where(x > 0, ys, 0.0).sum()


def behind_a_carry(x):
    carry, ys = od.scan(lambda c, v: (ops.log(c), ops.sqrt(c)), x, np.zeros(1))
    return (ops.where(x > 0, carry, 0.0) + ops.where(x > 0, ys[0], 0.0)).sum()


def between_steps(x):
    def step(c, k):
        return ops.where(x > 0, ops.sqrt(ops.relu(c)), ops.relu(c)), None

    return od.scan(step, ops.relu(x), np.zeros(3))[0].sum()


def before(x):
    z = ops.log(x)
    rows = np.broadcast_to(POLES, (3, 4))
    return od.scan(lambda c, v: (ops.where(v > 0, z, 0.0) * c, None), np.ones(4), rows)[0].sum()


def behind_a_branch(x):
    return ops.where(x > 0, od.cond(x.sum() > 0, ops.log, ops.sqrt, x), 0.0).sum()


CHOICES = [inside, behind_results, behind_a_carry, between_steps, before, behind_a_branch]


@pytest.mark.parametrize("fn", CHOICES, **named)
def test_what_a_choice_leaves_out_stays_zero_through_loops(fn):
    compare(od.grad(fn), POLES)
    with np.errstate(all="ignore"):
        assert np.isfinite(od.grad(fn)(POLES)).all()


@pytest.mark.parametrize("fn", CHOICES, **named)
def test_what_a_choice_leaves_out_stays_zero_in_forward_mode_through_loops(fn):
    compare(lambda x: od.jvp(fn, (x,), (np.ones(4),))[1], POLES)


# ------------------------------------------------------------------ training


def recurrent_net(steps):
    random = np.random.default_rng(1)
    shapes = {"w": (8, 8), "u": (3, 8), "b": (8,), "o": (8, 1)}
    net = {name: Variable(random.normal(size=s) * 0.3, True) for name, s in shapes.items()}
    optimizer = od.optim.Adam(list(net.values()), 1e-2)
    x = random.normal(size=(steps, 4, 3))

    def step(x, wanted):
        def cell(h, x):
            h = ops.tanh(h @ net["w"] + x @ net["u"] + net["b"])
            return h, h @ net["o"]

        with GradientTape() as tape:
            _, ys = od.scan(cell, np.zeros((4, 8)), x)
            loss = ((ys - wanted) ** 2).mean()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return net, step, (x, 0.1 * x.sum(2, keepdims=True).cumsum(0))


@pytest.mark.slow
def test_a_recurrent_net_of_200_steps_trains_as_it_does_uncompiled():
    plain, step, data = recurrent_net(200)
    other, again, _ = recurrent_net(200)
    compiled = od.compile(again)
    for _ in range(10):
        one, two = float(step(*data)), float(compiled(*data))
        assert two == pytest.approx(one, rel=1e-12)
    for name, w in plain.items():
        np.testing.assert_allclose(other[name].numpy(), w.numpy(), rtol=1e-10, atol=1e-13)
    assert compiled.statistics().native == 9


def test_leaves_that_a_step_closes_over_are_read_at_each_run():
    w = Variable(W, True)

    def fn():
        with GradientTape() as tape:
            last, ys = od.scan(lambda c, v: (ops.tanh(c @ w + v), w), START, XS)
            loss = last.sum() + (ys * ys).sum()
        return loss, tape.gradient(loss, w)

    compiled = od.compile(fn)
    for scale in (1.0, 1.0, 0.5, -2.0):
        w.assign(W * scale)
        for got, wanted in zip(compiled(), fn(), strict=True):
            agree(got, wanted)
    assert compiled.statistics().native == 3


# ------------------------------------------------------------------ what no part can do


def test_a_step_that_writes_to_a_variable_runs_as_it_was_written():
    total = Variable(0.0)

    def fn(x):
        return od.scan(lambda c, v: (c + total.assign(total + v), None), 0.0, x)[0]

    compiled = od.compile(fn)
    for k in range(1, 4):
        total.assign(0.0)
        assert float(compiled(np.arange(3.0))) == 0.0 + 1.0 + 3.0
        assert compiled.statistics() == (0, 0, k)
    with pytest.raises(TapeError, match=r"writes to .*assign it outside"):
        compiled.lower(np.arange(3.0))


def test_a_branch_that_trains_runs_as_it_was_written():
    w = Variable([1.0, 2.0], True)
    optimizer = od.optim.SGD([w], 0.5)

    def learn():
        with GradientTape() as tape:
            loss = (w * w).sum()
        tape.backward(loss)
        optimizer.step()
        return loss

    def fn(x):
        return od.cond(x.sum() > 0, learn, lambda: ops.sum(x))

    compiled = od.compile(fn)
    assert [float(compiled(np.ones(2) * s)) for s in (1, 1, -1)] == [5.0, 0.0, -2.0]
    assert compiled.statistics().native == 0


def test_a_step_that_draws_random_numbers_runs_as_it_was_written():
    found = []
    for wrap in (od.compile, lambda fn: fn):
        rng = od.Generator(3)
        step = lambda c, v: (c + ops.random_normal((3,), rng=rng) * v, None)  # noqa: E731
        fn = wrap(lambda x: od.scan(step, np.zeros(3), x)[0])
        found.append([fn(XS) for _ in range(3)])
    np.testing.assert_array_equal(*found)


def test_a_value_that_leaves_a_step_by_another_way_runs_as_it_was_written():
    def fn(x):
        seen = []

        def step(c, v):
            seen.append(c * 2.0)
            return c + v, None

        carry, _ = od.scan(step, 0.0, x)
        return carry + seen[-1]

    compiled = od.compile(fn)
    for _ in range(3):
        assert float(compiled(np.arange(3.0))) == 3.0 + 2.0
    assert compiled.statistics().native == 0


def test_a_question_for_a_value_in_a_step_is_refused():
    compiled = od.compile(lambda x: od.scan(lambda c, v: (c + float(v), None), 0.0, x)[0])
    with pytest.raises(TapeError, match="which has no value while a graph is traced"):
        compiled(np.arange(3.0))


def test_a_while_loop_that_is_swept_backward_runs_as_it_was_written():
    compiled = compare(od.grad(halving), W, START, XS, native=False)
    assert "while_loop: a graph has no reverse derivative" in compiled.explain(W, START, XS)


def test_branches_that_differ_run_as_they_were_written():
    def fn(x):
        return od.cond(x.sum() > 0, lambda: x, lambda: x.astype(np.float32))

    compiled = od.compile(fn)
    for s in (1.0, -1.0, -1.0):
        agree(compiled(np.ones(2) * s), fn(np.ones(2) * s))
    assert "both must give the same" in compiled.explain(np.ones(2))


def test_an_index_that_is_not_there_raises_what_the_function_raises():
    compiled = od.compile(lambda x, k: od.scan(lambda c, k: (c + ops.take(x, k), None), 0.0, k)[0])
    good, bad = np.array([0, 1, 2]), np.array([0, 1, 9])
    for _ in range(3):
        assert float(compiled(np.arange(3.0), good)) == 3.0
    assert compiled.statistics().native == 2
    with pytest.raises(IndexError):
        compiled(np.arange(3.0), bad)
    assert float(compiled(np.arange(3.0), good)) == 3.0


# ------------------------------------------------------------------ what changes in between


def layers(w, h, x):
    """Scans over one another, whose steps close over names that are bound anew."""
    for k in range(3):

        def cell(c, v):
            return (ops.tanh(c @ w * scale + v), c[k])

        scale = 1.0 + k
        h, ys = od.scan(lambda c, v: cell(c, v), h, x)
    return h.sum() + (ys * ys).sum()


def rebound(w, h, x):
    """Branches, and a loop of a while, whose names are bound anew."""
    for k in range(3):
        h = od.cond(h.sum() > k, lambda h: ops.sin(h @ w) * k, lambda h: h * w[k], h)
        h = od.while_loop(lambda v: (v * v).sum() > 0.1 * k + 0.1, lambda v: v * 0.3 * w[k], h)
    return h.sum()


@pytest.mark.slow
@pytest.mark.parametrize("fn", [layers, rebound], **named)
def test_derivatives_are_of_what_a_step_closed_over_when_it_ran(fn):
    compare(lambda *args: od.jvp(fn, args, args), W, START, XS)
    compare(od.grad(fn, EVERYWHERE), W, START, XS, native=fn is layers)


def test_derivatives_are_of_the_values_that_a_step_met():
    b = Variable(np.ones(3))

    def fn(x):
        b.assign(np.ones(3))
        with GradientTape() as tape:
            v = tape.watch(x)
            s = v[0] * 2.0
            carry, _ = od.scan(lambda c, v: (ops.sin(c * v * b + s), None), START, v)
            s += 1.0
            b.assign(b * 3.0)
            total = (carry * s).sum()
        return tape.gradient(total, v)

    compiled = compare(fn, XS, native=False)
    assert "used other values" in compiled.explain(XS)


def test_a_step_that_counts_in_python_runs_as_it_was_written():
    count = 0

    def fn(x):
        def step(c, v):
            nonlocal count
            count += 1
            return c * v, None

        return od.grad(lambda x: od.scan(step, 1.0, x)[0])(x)

    compiled = od.compile(fn)
    for k in range(1, 4):
        compiled(np.arange(1.0, 4.0))
        assert count == 3 * k


# ------------------------------------------------------------------ around


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer that sends signals")
def test_an_interrupt_ends_a_loop_that_goes_on():
    compiled = od.compile(lambda x, end: od.while_loop(lambda v: v < end, lambda v: v + 1.0, x))
    few, many = np.array(3.0), np.array(1e15)
    assert [float(compiled(np.array(0.0), few)) for _ in range(3)] == [3.0] * 3

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            compiled(np.array(0.0), many)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert float(compiled(np.array(0.0), few)) == 3.0


def test_memory_that_a_program_holds_is_counted_with_what_a_step_needs():
    def fn(x):
        return od.scan(lambda c, v: (ops.tanh(ops.cumsum(c) @ v), None), np.ones(100), x)[0]

    compiled = od.compile(fn)
    (held,) = compiled.estimate_memory_requirements(np.ones((2, 100, 100))).values()
    assert held >= 3 * 800


def test_what_a_step_closes_over_is_watched():
    scale = [2.0]
    compiled = od.compile(lambda x: od.scan(lambda c, v: (c + v * scale[0], None), 0.0, x)[0])
    for value in (2.0, 2.0, 3.0, 3.0):
        scale[0] = value
        assert float(compiled(np.arange(3.0))) == 3.0 * value


NUMBERED = [
    lambda n: od.scan(lambda c, v: (c * n + v, c / (n + 1.0)), 0.0, XS[0]),
    lambda n: od.grad(lambda x: od.scan(lambda c, v: (c * n + v * v, None), n * x[0], x)[0])(XS[0]),
    lambda n: od.cond(ops.sum(XS[0] * n) > -4.0, lambda: XS[0] * n, lambda: XS[0] - n),
    lambda n: od.while_loop(lambda v: v.sum() < 50.0 * n, lambda v: v * 2.0 + n, XS[0] * n + 1.0),
    lambda n: od.scan(lambda c, v: (od.scan(lambda c, u: (c * n + u, c), c, v)[0], c), 1.0, XS),
    lambda n: od.scan(lambda c, v: (c * n + v, c - n), 1.0, XS[0].astype(np.float16)),
]


@pytest.mark.parametrize("k", range(len(NUMBERED)))
def test_numbers_among_the_arguments_are_those_of_each_call(k):
    compiled = od.compile(lambda n, x: NUMBERED[k](n))
    for n in (2.0, 2.0, 2.0, 3.0, 0.5, 1.25):
        found, wanted = compiled(n, XS), NUMBERED[k](n)
        for pair in zip(od.tree.leaves(found), od.tree.leaves(wanted), strict=True):
            agree(*pair)
    assert compiled.statistics() == (1, 5, 1)
    lowered = compiled.lower(2.0, XS).evaluate(2.0, XS)[0]
    for pair in zip(od.tree.leaves(lowered), od.tree.leaves(NUMBERED[k](2.0)), strict=True):
        np.testing.assert_allclose(*pair, rtol=1e-6)


def test_numbers_that_begin_or_leave_a_loop_are_those_of_each_call():
    functions = [
        lambda n: od.scan(lambda c, v: (c + v, n), n, XS[0]),
        lambda n: od.scan(lambda c, v: (c * n + v, c - n), 1j, XS[0] * 1j),
        lambda n: XS * od.cond(ops.sum(XS) * n > 25.0, lambda: n, lambda: 2.0),
    ]
    for fn in functions:
        compiled = od.compile(lambda n, unused, fn=fn: fn(n))
        for n in (2.0, 2.0, 3.0, 3.0, 2.0, 0.5):
            found, wanted = compiled(n, XS), fn(n)
            for pair in zip(od.tree.leaves(found), od.tree.leaves(wanted), strict=True):
                agree(*pair)


def test_threads_call_one_compiled_loop():
    compiled = od.compile(od.grad(recurrent))
    inputs = [XS * (1.0 + k) for k in range(4)]
    wanted = [od.grad(recurrent)(W, START, x) for x in inputs]
    compiled(W, START, XS)
    wrong = []

    def work(k):
        for _ in range(50):
            if not np.allclose(compiled(W, START, inputs[k]), wanted[k], rtol=1e-12, atol=0):
                wrong.append(k)

    run_in_threads(*[partial(work, k) for k in range(4)])
    assert wrong == []


def test_a_loop_may_carry_dozens_of_values():
    def fn(x):
        step = lambda c, v: ([a * 0.5 + v for a in c], c[7])  # noqa: E731
        return od.scan(step, [x[k] * 1.0 for k in range(30)], x)

    compare(fn, RNG.normal(size=(30, 2)))


def test_a_graph_shows_what_its_loops_run():
    total = od.compile(lambda x: od.scan(lambda c, v: (c + v, None), np.zeros(()), x)[0])
    assert str(total.lower(XS[:, 0]).graph).splitlines() == [
        "graph(%0: float64[6]):",
        "  %4: float64[] = scan(0.0: float64[], %0)",
        "    graph(%1: float64[], %2: float64[]):",
        "      %3: float64[] = add(%1, %2)",
        "      return %3",
        "  return %4",
    ]


def test_what_goes_through_untouched_is_an_array_of_its_own():
    x = np.ones(3)
    assert od.cond(True, lambda: x, lambda: x) is not x
    assert od.scan(lambda c, v: (c, None), x, XS)[0] is not x
    assert od.while_loop(lambda v: False, lambda v: v, x) is not x
    compare(lambda x: od.cond(x.sum() > 0, lambda: x, lambda: x * 2.0), x)
    compare(lambda x: od.while_loop(lambda v: v.sum() > 9, lambda v: v * 0.5, x), x)
    compare(lambda x: od.scan(lambda c, v: (c, v), x, XS), x)


@pytest.mark.filterwarnings("ignore::odyssey.errors.WideningWarning")
def test_numbers_that_branches_return_have_their_own_dtype():
    x = np.ones(3, np.float32)
    compare(lambda x: x * od.cond(x.sum() > 0, lambda: 1, lambda: 2), x)
    compare(lambda x: x * od.cond(x.sum() > 0, lambda: 1.0, lambda: x[0]), x, native=False)
    count = lambda x: od.while_loop(lambda v: v > 9, lambda v: v + x[0], 0)  # noqa: E731
    compare(count, x, native=False)


def test_a_loop_without_steps_gives_arrays_of_its_own_though_its_steps_call_python():
    a = np.eye(6) * 2

    def halve(x):
        later = od.while_loop(lambda c: c.sum() < 0, lambda c: linalg.solve(a, c), x @ a)
        others = (x * 3.0) @ a  # which take the buffers that are free
        return later, others @ a + np.cumsum(others)

    compiled = compare(halve, np.arange(6.0))
    first, _ = compiled(np.ones(6))
    compiled(np.full(6, 5.0))
    np.testing.assert_array_equal(first, np.full(6, 2.0))

"""Long loops outside of ``compile`` run by programs, with all that eager code promises."""

import gc
import os
import threading
import time
import warnings
import weakref
from importlib import import_module

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler import eager_loops
from odyssey.errors import MissingGradientError, MutationError, OdysseyError
from support.threads import run_in_threads

RNG = np.random.default_rng(5)
STEPS = 70
XS = RNG.normal(size=(STEPS, 3)) * 0.3
W = RNG.normal(size=(3, 3)) * 0.4
START = RNG.normal(size=3)
SCAN, WHILE = [
    import_module(f"odyssey.transforms.control_flow.{n}") for n in ("scan", "while_loop")
]


def leaf(value):
    return Variable(value, requires_grad=True)


@pytest.fixture
def runs(monkeypatch):
    """Let every program pay; return the list that each run of a program appends to."""
    made = []
    plain = eager_loops._Program.run

    def run(program, arrays):
        result = plain(program, arrays)
        made.append(program)
        return result

    monkeypatch.setattr(eager_loops._Program, "run", run)
    monkeypatch.setattr(eager_loops, "_WORTH_A_PROGRAM", 0.0)
    monkeypatch.setattr(WHILE, "FEWEST_STEPS_DONE", 64)
    return made


def step_by_step(fn, *args):
    """Call a function whose loops run step by step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SCAN, "worth_a_trace", lambda steps: False)
        patch.setattr(WHILE, "FEWEST_STEPS_DONE", 1 << 60)
        return fn(*args)


def flat(tree):
    return od.tree.leaves(tree)


def assert_alike(found, wanted, rtol=1e-10):
    """Values, classes, dtypes and marks are equal."""
    for got, want in zip(flat(found), flat(wanted), strict=True):
        assert type(got) is type(want)
        if want is None:
            continue
        if isinstance(want, Variable):
            assert got.requires_grad == want.requires_grad
            got, want = got.numpy(), want.numpy()
        assert np.asarray(got).dtype == np.asarray(want).dtype
        np.testing.assert_allclose(got, want, rtol=rtol, atol=1e-13)


def cell(w):
    def step(h, x):
        h = ops.tanh(h @ w + x)
        return h, ops.sin(h)

    return step


def gated(w):
    def step(h, x):
        h = ops.relu(h @ w + x)
        return h, ops.where(h > 0.1, ops.log(h), 0.0)

    return step


# ------------------------------------------------------------------ values and gradients


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("make", [cell, gated], ids=["smooth", "selecting"])
def test_values_and_gradients_of_captured_and_given_variables_are_those_of_the_loop(
    make, reverse, runs
):
    def both():
        w, x, h = leaf(W), leaf(XS), leaf(START)
        with np.errstate(all="ignore"), GradientTape() as tape:
            carry, ys = od.scan(make(w), h, x, reverse=reverse)
            loss = (carry * carry).sum() + (ys * ops.exp(ys)).sum()
        with np.errstate(all="ignore"):
            return [carry, ys, *tape.gradient(loss, [w, x, h])]

    found = both()
    assert len(runs) == 2
    assert_alike(found, step_by_step(both))
    assert_alike(both(), found)
    assert len(runs) == 4
    assert len(set(map(id, runs))) == 2  # fresh closures, and the programs of the first call


@pytest.mark.slow
def test_what_is_given_and_comes_back_keeps_its_kind(runs):
    w = leaf(W)

    def cases():
        step = cell(W)
        yield od.scan(step, START, XS)
        yield od.scan(step, Variable(START), XS)
        yield od.scan(step, w[0], XS)
        yield od.scan(lambda c, x: (c + x, None), np.float32(0), np.ones(STEPS, np.float32))
        yield od.scan(lambda c, x: (c + 1, c), 0, None, STEPS)
        yield od.scan(
            lambda c, x: ({"a": c["a"] * 0.5 + x["p"]}, (c["a"], None)),
            {"a": 1.0},
            {"p": XS[:, 0], "q": None},
        )
        yield od.scan(lambda c, x: (c * 1j, c), 1.0, None, STEPS)
        yield od.scan(lambda c, x: (w[0], x), w[1], XS)
        yield od.scan(lambda c, x: (c, x[::-1]), np.ones((4, 3)).T[::2], XS[:, ::-1])
        with od.no_grad():
            yield od.scan(cell(w), START, XS)
        with GradientTape():
            yield od.scan(step, START, XS)

    wanted = step_by_step(lambda: list(cases()))
    assert not runs
    assert_alike(list(cases()), wanted)
    assert len(runs) >= 11


def test_results_are_arrays_that_nobody_else_has(runs):
    c0 = np.zeros(3)
    carry, (a, b) = od.scan(lambda c, x: (c * 1.0, (x, x)), c0, XS)
    assert len(runs) == 1
    for one in (carry, a, b):
        one[...] = 7.0
    assert not c0.any()
    assert not np.shares_memory(a, b)
    assert not np.shares_memory(a, XS)
    assert not (XS == 7.0).any()


@pytest.mark.slow
@pytest.mark.parametrize("modes", ["r", "f", "rr", "rf", "fr", "ff"])
def test_derivatives_of_every_order_and_mode_are_those_of_the_loop(modes, runs):
    def total(s):
        u = s * 0.25

        def step(c, x):
            return ops.sin(c * s) + x * u, c * c

        carry, ys = od.scan(step, s * 0.5, XS[:, 0])
        return carry + ys.sum()

    def derivative():
        fn = total
        for mode in modes:
            fn = (
                od.grad(fn) if mode == "r" else (lambda g: lambda s: od.jvp(g, (s,), (1.0,))[1])(fn)
            )
        return float(fn(0.8))

    found = derivative()
    assert len(runs) >= 2
    np.testing.assert_allclose(found, step_by_step(derivative), rtol=1e-9)


@pytest.mark.slow
def test_jacobians_run_one_program_for_every_row(runs):
    def final(p):
        return od.scan(lambda c, x: (ops.cos(c * p[:2]) + p[2:], None), START[:2], None, STEPS)[0]

    p = np.array([0.3, 0.4, 0.5, 0.6])
    found = od.jacobian(final)(p)
    assert len(runs) == 3
    assert_alike(found, step_by_step(od.jacobian(final), p))


@pytest.mark.slow
def test_what_is_not_chosen_outside_gets_no_cotangent_through_a_selecting_loop(runs):
    def gradient():
        v = leaf([0.0, 4.0])
        with np.errstate(all="ignore"), GradientTape() as tape:
            pole = 1.0 / v  # infinite, and never chosen
            step = lambda c, x: (ops.where(v > 1.0, pole, c) * 0.5, None)  # noqa: E731
            carry, _ = od.scan(step, np.ones(2), None, STEPS)
            loss = carry.sum()
        return tape.gradient(loss, v)

    with np.errstate(all="ignore"):
        found, wanted = gradient(), step_by_step(gradient)
    assert runs
    assert np.isfinite(wanted).all()
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.slow
def test_a_carry_that_nobody_reads_brings_no_nan(runs):
    def gradient():
        v = leaf(3.0)
        with GradientTape() as tape:
            # Of the last carry, the square root of 0, the slope is infinite.
            step = lambda c, x: (ops.sqrt(x * v), c * v)  # noqa: E731
            _, ys = od.scan(step, 1.0, np.r_[np.ones(STEPS - 1), 0.0])
            loss = ys.sum()
        return tape.gradient(loss, v)

    with np.errstate(all="ignore"):
        found, wanted = gradient(), step_by_step(gradient)
    assert runs
    assert np.isfinite(wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


# ------------------------------------------------------------------ tapes


@pytest.mark.slow
def test_gradients_accumulate_and_leaves_that_a_result_never_meets_have_none(runs):
    def sums():
        w, b, free = leaf(0.5), leaf(0.25), leaf(2.0)
        with GradientTape() as tape:
            step = lambda c, x: (c * w, (x * b, free * x))  # noqa: E731
            carry, (ys, _) = od.scan(step, 1.0, np.ones(STEPS))
            first, second = carry * 1.0, ys.sum()
        del first
        tape.backward(second)
        with GradientTape() as tape:
            loss = od.scan(lambda c, x: (c + x * b, None), 0.0, np.ones(STEPS))[0]
        tape.backward(loss)
        return [w.grad, free.grad, b.grad]

    found = sums()
    assert runs
    assert found[:2] == [None, None]
    assert float(found[2]) == 2.0 * STEPS
    assert_alike(found, step_by_step(sums))


def swing(w, u=None):
    return lambda c, x: (ops.sin(c * w) + x, c * (w if u is None else u))


def of_one_leaf_that_is_given_and_captured():
    w = leaf(START * 0.3)
    with GradientTape() as tape:
        carry, ys = od.scan(swing(w), w, XS)
        loss = (carry * carry).sum() + ys.sum()
    return tape.gradient(loss, w)


def of_complex_numbers():
    w = leaf((START + 1j * START[::-1]) * 0.3)
    with GradientTape() as tape:
        carry, ys = od.scan(lambda c, x: (ops.sin(c * w) * (1 + 2j) * x, c), w, XS)
        loss = ops.real(carry * ops.conj(carry)).sum() + ops.imag(ys).sum()
    return tape.gradient(loss, w)


def of_carries_of_several_kinds():
    w = leaf(0.5)

    def step(c, x):
        n, h, flag = c
        return (n + 1, ops.where(flag, h * w, h + w), x > 0), {"n": n, "h": h}

    with GradientTape() as tape:
        (n, h, flag), ys = od.scan(step, (0, 1.0, True), XS[:, 0])
        loss = h + ys["h"].sum()
    return [n, flag, ys["n"], tape.gradient(loss, w)]


def of_values_on_the_tape():
    w = leaf(START * 0.3)
    with GradientTape() as tape:
        u, z = ops.exp(w * 0.1), w * 2.0
        tape.on_gradient(u, lambda g: g * 2.0)
        carry, ys = od.scan(swing(u, z), START * 0.3, XS)
        loss = carry.sum() + (ys * u).sum()
    return tape.gradient(loss, [w, u, z])


def of_a_tape_that_is_swept_again():
    w = leaf(START * 0.3)
    with GradientTape(persistent=True) as tape:
        carry, ys = od.scan(swing(w), START * 0.3, XS)
        one, other = carry.sum(), ys.sum()
    return [tape.gradient(one, w), tape.gradient(other, w), tape.gradient([one, other], w)]


def of_a_sweep_that_is_recorded():
    w = leaf(START * 0.3)
    with GradientTape() as outer:
        with GradientTape() as tape:
            loss = od.scan(swing(w), START * 0.3, XS)[0].sum()
        g = tape.gradient(loss, w)
        total = (g * g).sum()
    return outer.gradient(total, w)


def of_a_constant_that_was_assigned_since():
    w, k = leaf(START * 0.3), Variable(START.copy())
    with GradientTape() as tape:
        step = lambda c, x: (ops.sin(c * w) * k + x, None)  # noqa: E731
        loss = od.scan(step, START * 0.3, XS)[0].sum()
    k.assign(k * 2.0)
    return tape.gradient(loss, w)


def of_steps_that_pause_or_sweep():
    w = leaf(0.5)

    def step(c, x):
        with od.no_grad():
            still = c * w
        inner = od.grad(lambda q: (ops.sin(q * w) ** 2).sum())(c)
        return c - 0.1 * inner + still.detach() * x, still

    with GradientTape() as tape:
        carry, ys = od.scan(step, START, XS)
        loss = carry.sum()
    return [tape.gradient(loss, w), ys, carry.detach()]


def of_a_checkpoint_around():
    w = leaf(START * 0.3)
    with GradientTape() as tape:
        carry, ys = od.checkpoint(lambda h: od.scan(swing(w), h, XS))(w * 1.0)
        loss = (carry * carry).sum() + ys.sum()
    return tape.gradient(loss, w)


def of_a_leaf_of_the_tape():
    tape = GradientTape()
    w = tape.variable(START * 0.3)
    with tape:
        loss = od.scan(swing(w), START * 0.3, XS)[0].sum()
    return tape.gradient(loss, w)


def of_nothing():
    w = leaf(np.zeros((0, 3)))
    with GradientTape() as tape:
        carry, ys = od.scan(lambda c, x: (ops.sin(c * w), c), np.zeros((0, 3)), XS)
        loss = carry.sum()
    return [tape.gradient(loss, w), ys.detach()]


@pytest.mark.slow
@pytest.mark.parametrize(
    "gradient",
    [
        of_one_leaf_that_is_given_and_captured,
        of_complex_numbers,
        of_carries_of_several_kinds,
        of_values_on_the_tape,
        of_a_tape_that_is_swept_again,
        of_a_sweep_that_is_recorded,
        of_a_constant_that_was_assigned_since,
        of_steps_that_pause_or_sweep,
        of_a_checkpoint_around,
        of_a_leaf_of_the_tape,
        of_nothing,
    ],
    ids=lambda fn: fn.__name__[3:],
)
def test_gradients_are_those_of_the_loop(gradient, runs):
    found = gradient()
    assert len(runs) >= 2
    assert_alike(found, step_by_step(gradient))


@pytest.mark.slow
def test_a_leaf_that_was_assigned_before_the_sweep_is_refused(runs):
    w = leaf(START * 0.3)
    with GradientTape() as tape:
        loss = od.scan(swing(w), START * 0.3, XS)[0].sum()
    w.assign(w * 2.0)
    assert len(runs) == 1
    with pytest.raises(MutationError):
        tape.gradient(loss, w)


@pytest.mark.slow
def test_a_loop_leaves_nothing_behind_with_the_collector_off(runs):
    def once():
        w = leaf(START * 0.3)
        with GradientTape() as tape:
            carry, _ = od.scan(swing(w), START * 0.3, XS)
            loss = carry.sum()
        tape.backward(loss)
        return weakref.ref(w), weakref.ref(carry)

    once()
    gc.collect()
    gc.disable()
    try:
        assert [one() for one in once()] == [None, None]
    finally:
        gc.enable()
    assert len(runs) == 4


@pytest.mark.slow
def test_a_gradient_that_is_missing_is_missed(runs):
    w, b = leaf(0.5), leaf(0.25)
    optimizer = od.optim.SGD([w, b], 0.1)
    with GradientTape() as tape:
        _, ys = od.scan(lambda c, x: (c * w, x * b), 1.0, np.ones(STEPS))
        loss = ys.sum()
    tape.backward(loss)
    assert runs
    with pytest.raises(MissingGradientError):
        optimizer.step()


@pytest.mark.slow
def test_scans_stand_in_scans_and_checkpoints_in_steps(runs):
    def gradient():
        w = leaf(W)

        def inner(c, x):
            return ops.tanh(c @ w) + x, None

        def step(c, x):
            c, _ = od.scan(inner, c, x)
            c = od.checkpoint(lambda c: ops.sin(c @ w))(c)
            return c, c

        with GradientTape() as tape:
            _, ys = od.scan(step, START, XS.reshape(STEPS, 1, 3))
            loss = (ys * ys).sum()
        return tape.gradient(loss, w)

    found = gradient()
    assert runs
    assert_alike(found, step_by_step(gradient))


@pytest.mark.slow
def test_what_a_closure_is_bound_to_after_the_loop_does_not_change_its_gradient(runs):
    def gradient():
        v, held = leaf(1.5), {"power": 2.0}
        with GradientTape() as tape:
            carry, _ = od.scan(lambda c, x: (c * 0.5 + v * held["power"], None), 0.0, None, STEPS)
        held["power"] = 5.0
        return tape.gradient(carry, v)

    found = gradient()
    assert len(runs) == 2
    np.testing.assert_allclose(found, step_by_step(gradient), rtol=1e-12)


@pytest.mark.slow
def test_captured_arrays_and_constants_are_read_anew_by_one_program(runs):
    scale = Variable(2.0)

    def gradient(shift):
        w = leaf(W)

        def inner(c, x):
            return c * 0.5 + x * shift, None

        def step(c, x):
            c = od.scan(inner, c, x)[0]
            return c * 0.5 + (x[0] + shift) @ w * scale, shift * c

        with GradientTape() as tape:
            carry, ys = od.scan(step, START, XS.reshape(STEPS // 2, 2, 3))
            loss = (carry * carry).sum() + ys.sum()
        return [loss.detach(), tape.gradient(loss, w)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SCAN, "worth_a_trace", lambda steps: steps == STEPS // 2)
        for k in range(3):
            scale.assign(1.0 + k)
            assert_alike(gradient(np.arange(3.0) + k), step_by_step(gradient, np.arange(3.0) + k))
    assert len(runs) == 6
    assert len(set(map(id, runs))) == 2


@pytest.mark.slow
def test_arrays_of_the_user_can_be_written_to_after_the_loop(runs):
    def gradient():
        w, xs, shift = leaf(2.0), np.ones((STEPS, 3000)), np.ones((100, 300))
        with GradientTape() as tape:
            step = lambda c, x: (c * 0.5 + (x * w).mean() * shift[0, 0], None)  # noqa: E731
            carry, _ = od.scan(step, 0.0, xs)
        xs *= 2.0
        return tape.gradient(carry, w)

    np.testing.assert_allclose(gradient(), 2.0, rtol=1e-12)
    assert len(runs) == 2


def test_a_tape_that_checks_values_runs_loops_as_written(runs):
    w = leaf(W)
    with GradientTape(check=True) as tape:
        carry, _ = od.scan(cell(w), START, XS)
        loss = carry.sum()
    tape.gradient(loss, w)
    assert not runs


# ------------------------------------------------------------------ what runs as written


def refused_cases():
    calls, box = [], [0.0]

    def counts(c, x):
        calls.append(1)
        return c + x, None

    def prints(c, x):
        print(end="")
        return c + x, None

    def asks(c, x):
        return (c + x if float(c[0]) > 0 else c - x), None

    def raises(c, x):
        if len(box) > 1:
            raise KeyError("the box")
        return c + x, None

    def draws(c, x):
        return c + x + RNG.normal(), None

    def writes(c, x):
        box[0] = c
        return c + x, None

    def clock(c, x):
        return c + x * 0.0, time.perf_counter()

    def goes_on(c, x):
        return c + x, next(numbers)

    def locks(c, x):
        with lock:
            return c + x, None

    numbers, lock = iter(range(1000)), threading.Lock()
    return [counts, prints, asks, raises, draws, writes, clock, goes_on, locks], calls, box


@pytest.mark.parametrize(
    "k",
    range(9),
    ids=["appends", "prints", "asks", "raises", "draws", "writes", "clock", "iterates", "locks"],
)
def test_steps_with_side_effects_run_one_by_one(k, runs):
    fns, calls, box = refused_cases()
    fn = fns[k]
    if k == 3:
        box.append(1)
        with pytest.raises(KeyError, match="the box"):
            od.scan(fn, START, XS)
        assert not runs
        return
    _, ys = od.scan(fn, START, XS)
    if k == 0:
        assert len(calls) == STEPS
    if k in (6, 7):
        assert len(set(ys.tolist())) > 1
    if k == 5:
        assert type(box[0]) is np.ndarray
    assert not runs


@pytest.mark.slow
def test_a_check_by_value_within_a_step_raises_its_own_error(runs):
    def step(c, x):
        return c + ops.choose(x, (c, c * 2.0)), None

    good, bad = np.arange(STEPS) % 2, np.arange(STEPS) % 2
    bad[57] = -1
    od.scan(step, START * 1e-30, good)
    count = len(runs)
    with pytest.raises((OdysseyError, ValueError, IndexError)) as found:
        od.scan(step, START * 1e-30, bad)
    with pytest.raises(found.type) as wanted:
        step_by_step(od.scan, step, START * 1e-30, bad)
    assert str(found.value) == str(wanted.value)
    assert len(runs) == count


@pytest.mark.slow
def test_numpy_warns_and_raises_as_in_the_loop(runs):
    step = lambda c, x: (c * x, None)  # noqa: E731
    big = np.full(STEPS, 1e30)
    with pytest.warns(RuntimeWarning, match="overflow"):
        carry, _ = od.scan(step, 1.0, big)
    assert np.isinf(carry)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        od.scan(step, 1.0, big)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        od.scan(step, np.nan, big)  # NaN in, NaN out: NumPy says nothing


def test_a_step_that_says_it_wraps_itself_runs_as_written(runs):
    class Proxy:
        def __getattr__(self, name):
            return self

        def __call__(self, c, x):
            return c + x, None

    np.testing.assert_allclose(od.scan(Proxy(), START, XS)[0], START + XS.sum(axis=0), rtol=1e-12)
    assert not runs


def test_short_loops_and_loops_that_do_not_pay_leave_the_compiler_alone(monkeypatch):
    monkeypatch.setattr(eager_loops._Program, "__init__", lambda *given: pytest.fail("compiles"))
    od.scan(cell(W), START, XS[:5])
    od.scan(lambda c, x: (c + x, None), START, XS)
    od.while_loop(lambda v: v < 100.0, lambda v: v * 2.0, 1.0)


# ------------------------------------------------------------------ while loops


@pytest.mark.slow
def test_a_long_while_loop_ends_by_a_program(runs):
    limit = 1000

    def count():
        return od.while_loop(
            lambda v: v["n"] < limit,
            lambda v: {"n": v["n"] + 1, "x": v["x"] * 0.99},
            {"n": 0, "x": 1.0},
        )

    found = count()
    assert len(runs) == 1
    assert_alike(found, step_by_step(count))
    limit = 300
    assert int(count()["n"]) == 300


def test_a_while_loop_on_a_tape_has_its_gradient(runs):
    w = leaf(0.999)
    with GradientTape() as tape:
        last = od.while_loop(lambda v: v > 0.9, lambda v: v * w, 1.0)
    assert not runs
    np.testing.assert_allclose(tape.gradient(last, w), 106 * 0.999**105, rtol=1e-12)


# ------------------------------------------------------------------ threads, forks and memory


@pytest.mark.slow
def test_threads_run_one_program_side_by_side(runs):
    wanted = step_by_step(od.scan, cell(W), START, XS)
    found = []

    def work():
        found.extend(od.scan(cell(W), START, XS) for _ in range(5))

    run_in_threads(*[work] * 4)
    assert len(found) == 20
    for one in found:
        assert_alike(one, wanted)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_child_of_a_fork_runs_the_program(runs):
    od.scan(cell(W), START, XS)
    wanted = od.scan(cell(W), START, XS)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        same = np.array_equal(od.scan(cell(W), START, XS)[0], wanted)
        os._exit(0 if same and len(runs) == 3 else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.slow
def test_a_dropped_step_drops_its_programs(runs):
    names = {"od": od, "ops": ops}
    exec("def step(c, x):\n    return ops.sin(c) + x, None\n", names)
    od.scan(names["step"], START, XS)
    program = weakref.ref(runs.pop())
    assert program() is not None
    del names
    gc.collect()
    assert program() is None


@pytest.mark.slow
def test_a_step_whose_numbers_differ_at_each_call_is_left_alone_in_the_end(runs):
    def total(factor):
        return od.scan(lambda c, x: (c * 0.5 + x * factor, None), START, XS)[0]

    for k in range(40):
        np.testing.assert_allclose(total(k + 0.5), step_by_step(total, k + 0.5), rtol=1e-12)
    assert len(runs) <= eager_loops._MOST_UNREWARDED

"""Variables that a function holds, handed to what wants values: each call finds today's numbers."""

import re
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable, ops
from odyssey.compiler.runtime.results import VIEWS
from support.cases import EVERY, draw

START = np.arange(6.0)


def done(action):
    """A function of an action whose result is left in Variables."""

    def run(w, v, t, x):
        action(w, v, t, x)

    return run


def on_tape(ask):
    def run(w, v, t, x):
        with od.GradientTape() as tape:
            y = w * x[:2]
        return ask(tape, y, w, v)

    return run


def swap(w, v, t, x):
    before = w * 1.0
    w.assign(t)
    t.assign(before)


def hooked(w, v, t, x):
    with od.GradientTape() as tape:
        y = w * x[:2]
        tape.on_gradient(y, lambda g: v)
        z = ops.sum(y)
    return tape.gradient(z, w)


def custom(w, v, t, x):
    fn = od.custom_vjp(lambda a: a * 2.0)
    fn.defvjp(lambda a: (a * 2.0, ()), lambda kept, g: (v,))
    return od.grad(lambda a: ops.sum(fn(a)))(x[:2])


def clipped(w, v, t, x):
    w.grad = v
    return od.optim.clip_grad_norm([w], 1.0)


def target(w, v, t, x):
    with od.GradientTape() as tape:
        loss = ops.sum((w * x[:2] - v) ** 2)
    tape.backward(loss)
    od.optim.SGD([w], learning_rate=1e-3).step()
    t.assign(w)


def view(w, v, t, x):
    before = w.data
    w.assign(x[:2])
    return before * 1.0


def turned_view(w, v, t, x):
    before = w.numpy()[::-1]
    w.assign(x[:2])
    return before * 1.0


def seen_before(see, write=lambda w, x: w.assign(x[:2]), first=lambda w, x: None):
    """A function that sees a leaf, writes to it, and only then reads what it saw."""

    def run(w, v, t, x):
        first(w, x)
        before = see(w)
        write(w, x)
        return (before * 1.0).detach()

    return run


def seen_of_its_own(w, v, t, x):
    u = Variable(x * 2.0)
    before = ops.reshape(u, (2, 3))
    u.assign(x)
    return before * 1.0


def carried(w, v, t, x):
    before = w.T
    w.assign(x[:2])
    return od.scan(lambda h, r: (h * r, h), before, x)[0].detach()


def seen_of_another_array(w, v, t, x):
    u = Variable(x * 2.0)
    before = ops.reshape(u, (2, 3))
    u[0] = 3.0
    u.assign(x)
    return before * 1.0, u * 1.0


def view_of_known_numbers(w, v, t, x):
    w.assign(np.zeros(2))
    before = ops.reshape(w, (1, 2))
    w.assign(x[:2])
    return (before * 1.0).detach()


def array_that_a_variable_shares(w, v, t, x):
    z = np.zeros(6)
    u = Variable(z)
    u.assign(x)
    return z * 1.0 + x * 0.0


def view_of_an_array_that_it_made(w, v, t, x):
    u = Variable(np.zeros(6))
    before = ops.reshape(u, (2, 3))
    u.assign(x)
    return before * 1.0


def buffer_that_is_used_again(w, v, t, x):
    """What is assigned is copied: who writes to it later changes no Variable."""
    buffer = np.zeros(2)
    w.assign(buffer)
    buffer[0] = 5.0
    return (w * x[1:3]).detach()


def unrolled(w, v, t, x):
    """What is computed and then assigned is not the leaf's array."""
    found = []
    for _ in range(3):
        made = w * 0.5 + x[:2]
        w.assign(made)
        found.append(made)
    return ops.stack(found).detach()


def swapped_views(w, v, t, x):
    one, other = w.data, t.data
    w.assign(other)
    t.assign(one)


def cube(a):
    return ops.sum(a**3)


# Of w and t, which are trainable, v, which is not, and an argument.
FLOATS = {
    "assign": done(lambda w, v, t, x: w.assign(v)),
    "assign a leaf": done(lambda w, v, t, x: w.assign(t)),
    "an item": done(lambda w, v, t, x: w.__setitem__(slice(None), v)),
    "a gradient": done(lambda w, v, t, x: setattr(w, "grad", v)),
    "swap": swap,
    "a target": target,
    "a view": view,
    "swapped views": swapped_views,
    "turned": seen_before(lambda w: w.T),
    "in a shape": seen_before(lambda w: ops.reshape(w, (1, 2))),
    "broadcast": seen_before(lambda w: np.broadcast_to(w, (3, 2))),
    "with an axis": seen_before(lambda w: ops.expand_dims(w, 0)),
    "matrix": seen_before(lambda w: ops.matrix_transpose(ops.reshape(w, (1, 2)))),
    "view of a view": seen_before(lambda w: ops.ravel(w.T)),
    "an item of a view": seen_before(lambda w: w.T, lambda w, x: w.__setitem__(0, x[1])),
    "view between writes": seen_before(lambda w: w.T, first=lambda w, x: w.assign(x[1:3])),
    "data between writes": seen_before(lambda w: w.detach(), first=lambda w, x: w.assign(x[1:3])),
    "view of its own": seen_of_its_own,
    "view of an array of before": seen_of_another_array,
    "view that is carried": carried,
    "view of known numbers": view_of_known_numbers,
    "array that a Variable shares": array_that_a_variable_shares,
    "view of an array that it made": view_of_an_array_that_it_made,
    "buffer that is used again": buffer_that_is_used_again,
    "unrolled": unrolled,
    "seed of a gradient": on_tape(lambda tape, y, w, v: tape.gradient(y, w, v)),
    "seed of a sweep": on_tape(lambda tape, y, w, v: tape.backward(y, v)),
    "tangent of a tape": on_tape(lambda tape, y, w, v: tape.jvp(y, w, v)),
    "tangent": lambda w, v, t, x: od.jvp(lambda a: a**2, [x[:2]], [v])[1],
    "point of a tangent": lambda w, v, t, x: od.jvp(lambda a: a**2, [v], [x[:2]])[1],
    "cotangent": lambda w, v, t, x: od.vjp(lambda a: a**2, x[:2])[1](v)[0],
    "point of a cotangent": lambda w, v, t, x: od.vjp(lambda a: a**2, v)[1](x[:2])[0],
    "vector of a Hessian": lambda w, v, t, x: od.hvp(cube, x[:2], v),
    "point of a Hessian": lambda w, v, t, x: od.hvp(cube, v, x[:2]),
    "point": lambda w, v, t, x: od.grad(cube)(v),
    "point in a tree": lambda w, v, t, x: od.grad(lambda d: cube(d["a"] * d["b"]))(
        {"a": v, "b": x[:2]}
    ),
    "hook": hooked,
    "rule": custom,
    "norm of gradients": clipped,
    "bounds": lambda w, v, t, x: ops.clip(x[:2], None, v),
    "bins": lambda w, v, t, x: np.digitize(x, v),
    "edges": lambda w, v, t, x: np.histogram(x, v)[0],
    "values": lambda w, v, t, x: np.unique(v),
    "carry": lambda w, v, t, x: od.scan(lambda h, r: (h * r, h), v, x)[0],
    "carry of a loop": lambda w, v, t, x: od.while_loop(
        lambda a: ops.sum(a) < 50.0, lambda a: a * 2.0 + ops.sum(x), v
    ),
}
INTEGERS = {
    "an index": lambda w, v, t, x: x[v],
    "of a column": lambda w, v, t, x: ops.stack([x, x])[:, v],
    "written at": lambda w, v, t, x: ops.setitem(x, 7.0, v),
    "gradient": lambda w, v, t, x: od.grad(lambda a: cube(a[v]))(x),
    "within a scan": lambda w, v, t, x: od.scan(
        lambda h, r: (h + ops.sum(r[v]), h), 0.0, ops.stack([x, x])
    )[0],
    "checkpoint": lambda w, v, t, x: od.grad(lambda a: od.checkpoint(lambda b: cube(b[v]))(a))(x),
    "dropped": lambda w, v, t, x: np.delete(x, v),
    "inserted": lambda w, v, t, x: np.insert(x, v, 0.0),
    "kept": lambda w, v, t, x: np.compress(v, x[:2]),
    "repeated": lambda w, v, t, x: np.repeat(x[:2], v),
    "segments": lambda w, v, t, x: ops.segment_sum(x[:2], v),
    "chosen": lambda w, v, t, x: np.choose(v % 2, [x[:2], x[2:4]]),
    "taken": lambda w, v, t, x: ops.take(x, v),
}


def left(fn, wrap, values):
    """What calls return and leave, between which the Variables take other values."""
    w = Variable(np.zeros(2), requires_grad=True)
    v, t = Variable(values[0].copy()), Variable(np.ones(2), requires_grad=True)
    run, found = wrap(lambda x: fn(w, v, t, x)), []
    for k, value in enumerate(values):
        v.assign(value)
        t.assign(np.array([k + 2.0, k - 1.0]))
        result = run(START + k)
        state = (result, w.numpy(), t.numpy(), w.grad, t.grad)
        found.append([np.array(leaf) for leaf in od.tree.leaves(state) if leaf is not None])
    return found


@pytest.mark.parametrize("name", [*FLOATS, *INTEGERS])
def test_what_a_variable_holds_now_is_what_counts(name):
    if name in FLOATS:
        fn, values = FLOATS[name], [np.array([k + 1.0, k + 2.5]) for k in range(6)]
    else:
        fn, values = INTEGERS[name], [np.array([k % 4, (k + 1) % 4]) for k in range(6)]
    for got, wanted in zip(
        left(fn, od.compile, values), left(fn, lambda f: f, values), strict=True
    ):
        for a, b in zip(got, wanted, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-14)


def test_what_a_leaf_is_given_is_not_the_leaf_and_programs_use_it_behind_other_writes():
    w = Variable(np.ones(2), requires_grad=True)
    step = od.compile(lambda x: unrolled(w, None, None, x))
    for _ in range(3):
        step(START)
    assert step.statistics().native == 2


@pytest.mark.parametrize("known", [np.zeros(6), START], ids=["zeros", "others"])
def test_a_variable_of_known_numbers_that_nobody_else_has_is_written_to_natively(known):
    def run(x):
        u = Variable(known * 2.0)
        y = u * x
        u.assign(u + x)
        u.assign(known + 1.0)
        return y + u

    compiled = od.compile(run)
    for k in range(4):
        np.testing.assert_array_equal(compiled(START + k).numpy(), run(START + k).numpy())
    assert compiled.statistics().native == 3


@pytest.mark.slow
def test_no_other_row_gives_a_view_of_its_operand():
    for row, sample in EVERY.values():
        given = draw(sample, "float64")
        with np.errstate(all="ignore"):
            made = row.call(*given, **sample.options)
        for leaf in od.tree.leaves(made):
            shown = [np.may_share_memory(leaf, a) for a in given if isinstance(a, np.ndarray)]
            assert row.name in VIEWS or not any(shown), row.name


def test_a_target_network_and_the_best_weights_so_far_are_native():
    w = Variable(np.ones(2), requires_grad=True)
    kept = Variable(np.zeros(2))

    @od.compile
    def keep(x):
        w.assign(w * x)
        kept.assign(w)

    for k in range(5):
        keep(np.array([2.0, 0.5]))
        np.testing.assert_array_equal(kept.numpy(), [2.0 ** (k + 1), 0.5 ** (k + 1)])
    assert keep.statistics().native == 4


def test_what_looks_at_numbers_runs_as_it_was_written_and_says_so():
    places = Variable(np.array([0, 1]), name="places")
    compiled = od.compile(lambda x: x[places])
    for _ in range(3):
        compiled(START)
    assert not compiled.statistics().native
    assert "an index reads the values of places" in compiled.explain(START)


def test_a_position_in_a_captured_variable_is_read_anew_by_each_run():
    table, number = Variable(np.arange(24.0).reshape(2, 4, 3)), Variable(np.array(0), name="number")
    plain = table.numpy().copy()

    @od.compile(fullgraph=True, copies="error", check=True)
    def step(x, y):
        before = table[:, number]
        table[:, number] = x
        table[1, number, 2] = 7.0
        after = table[..., number, 1] * 1.0
        number.assign((number + 1) % 4)
        return before, after, y[number]

    y = np.arange(4.0)
    for k in range(6):
        x, at = np.full((2, 3), -k - 1.0), k % 4
        wanted = plain[:, at].copy()
        plain[:, at] = x
        plain[1, at, 2] = 7.0
        before, after, following = step(x, y)
        np.testing.assert_array_equal(before, wanted)
        np.testing.assert_array_equal(after, x[:, 1])
        np.testing.assert_array_equal(table.numpy(), plain)
        assert following == (at + 1) % 4
    assert step.statistics().native >= 4


OTHER_POSITIONS = {
    "a list": lambda x, n: x[[n, 2]],
    "deleted": lambda x, n: np.delete(x, n),
    "repeated": lambda x, n: ops.repeat(x, n),
    "getitem": lambda x, n: ops.getitem(x, (n,)),
    "with a mask": lambda x, n: x[np.arange(4) > 1][n],
}


@pytest.mark.parametrize("name", OTHER_POSITIONS)
def test_other_uses_of_captured_positions_are_right_as_before(name):
    number = Variable(np.array(1), name="number")
    compiled = od.compile(lambda x: OTHER_POSITIONS[name](x, number), warn=False)
    x = np.arange(4.0)
    for at in (1, 1, 0, 1):
        number.assign(np.array(at))
        np.testing.assert_array_equal(compiled(x), OTHER_POSITIONS[name](x, at))


def test_ops_ask_for_what_a_variable_holds():
    package = Path(od.__file__).parent
    rooms = ("ops", "linalg", "nn", "losses", "fft", "special")
    files = [p for room in rooms for p in (package / room).rglob("*.py") if p.stem != "generator"]
    found = [str(p) for p in files if re.search(r"\._array\b", p.read_text("utf-8"))]
    assert len(files) > 100
    assert not found, "use operand_of or numbers_of: while traced the array is of one run"


HELD = np.arange(6.0)


@pytest.mark.parametrize(
    ("fn", "native"),
    [
        (lambda: HELD * 2.0, True),
        (lambda: ops.sum(HELD, keepdims=True), True),
        (lambda: Variable(np.ones(3)), True),
        (lambda: HELD[2:], True),
        (lambda: Variable(HELD), False),
        (lambda: (HELD + 1.0)[::-1], True),
    ],
)
def test_what_is_made_anew_of_what_is_the_same_is_an_array_of_each_call(fn, native):
    compiled = od.compile(lambda x: (x * 2.0, fn()))
    found = [compiled(np.ones(2))[1] for _ in range(4)]
    assert (compiled.statistics().native > 0) == native
    once, again, wanted = (getattr(one, "data", one) for one in (found[2], found[3], fn()))
    np.testing.assert_array_equal(np.asarray(again), np.asarray(wanted))
    shared = np.shares_memory(np.asarray(again), HELD), np.shares_memory(np.asarray(wanted), HELD)
    assert shared[0] == shared[1]
    if native:
        assert np.shares_memory(np.asarray(once), np.asarray(again)) == shared[1]

"""What a tape holds, and when it lets go: everything by reference counting, collector off."""

import gc
import subprocess
import sys
import tracemalloc
import weakref
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices.array_locks import locked_bytes

ROOT = Path(__file__).parents[2]
BIG = 4096  # elements: more bytes than a tape copies


@pytest.fixture(autouse=True)
def _no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leaf(size=8, value=2.0, name=None):
    return Variable(np.full(size, value), requires_grad=True, name=name)


def foreign():
    """An op from outside the package, which keeps its operand and its result."""

    @od.op(elementwise=True, vjp={"x": lambda g, x, out: ops.mul(g, ops.div(out, x))})
    def line(x, /):
        return x * 1.0

    return line


# ------------------------------------------------------------------ under a living tape


def test_an_intermediate_that_no_rule_asked_for_is_freed_under_a_live_tape():
    w = leaf()
    with GradientTape() as tape:
        h = w + 1.0
        array = weakref.ref(h._array)
        y = (h + 2.0).sum()
        del h
        assert array() is None
    np.testing.assert_array_equal(tape.gradient(y, w), np.ones(8))


def test_an_intermediate_that_a_rule_asked_for_lives_until_the_sweep():
    w = leaf()
    with GradientTape() as tape:
        h = w + 1.0
        array = weakref.ref(h._array)
        y = (h * h).sum()
        del h
    assert array() is not None
    np.testing.assert_array_equal(tape.gradient(y, w), np.full(8, 6.0))
    assert array() is None


@pytest.mark.parametrize("check", [False, True], ids=["plain", "careful"])
def test_nodes_never_hold_the_variables_of_results(check):
    w = leaf()
    with GradientTape(check=check) as tape:
        h = ops.exp(w)
        z = ops.tanh(h * h)
        y = z.sum()
        seen = [weakref.ref(v) for v in (h, z)]
        del h, z
        assert [ref() for ref in seen] == [None, None]
        assert len(tape) == 4
    e = np.exp(2.0)
    expected = (1 - np.tanh(e * e) ** 2) * 2 * e * e
    np.testing.assert_allclose(tape.gradient(y, w), np.full(8, expected), atol=1e-300)


def test_a_dropped_constant_operand_leaves_only_its_array():
    w = leaf()
    with GradientTape() as tape:
        c = Variable(np.full(8, 3.0))
        ref = weakref.ref(c)
        y = (w * c).sum()
        del c
        assert ref() is None
    np.testing.assert_array_equal(tape.gradient(y, w), np.full(8, 3.0))


# ------------------------------------------------------------------ after the sweep


def test_a_kept_loss_keeps_no_array_and_no_tape_alive_after_the_sweep():
    w = leaf()
    with GradientTape() as tape:
        h = ops.exp(w)
        arrays = [weakref.ref(h._array)]
        z = h * h
        arrays.append(weakref.ref(z._array))
        loss = (z * z).sum()
    del h, z
    assert all(ref() is not None for ref in arrays)
    tape.backward(loss)
    assert [ref() for ref in arrays] == [None, None]
    alive = weakref.ref(tape)
    del tape
    assert alive() is None
    assert loss.shape == ()


def test_a_kept_gradient_variable_keeps_nothing_alive_after_its_tapes():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            h = ops.exp(x)
            array = weakref.ref(h._array)
            y = (h * h).sum()
            del h
        slope = inner.gradient(y, x)
        total = slope.sum()
    curvature = outer.gradient(total, x)
    np.testing.assert_allclose(curvature, np.full(8, 4 * np.exp(4.0)))
    del inner, outer
    assert array() is None
    assert slope.shape == (8,)


def test_a_sweep_frees_saved_arrays_as_it_goes():
    held, freed = [], []
    w = leaf()
    with GradientTape() as tape:
        a = ops.exp(w)
        b = ops.exp(a)
        held += [weakref.ref(a._array), weakref.ref(b._array)]
        y = b.sum()
        del a, b
    row = od.ops.OPS["exp"]
    pulls, bare = row.pullbacks, row.array_pullbacks

    def looking(g, kept, specs):
        freed.append([ref() is None for ref in held])
        return pulls[0](g, kept, specs)

    try:
        row.pullbacks = row.array_pullbacks = (looking,)
        tape.backward(y)
    finally:
        row.pullbacks, row.array_pullbacks = pulls, bare
    # The rule of b runs while both are held; when that of a runs, b's array is gone.
    assert freed == [[False, False], [False, True]]


STEPS = {
    "sums that pass a cotangent on": lambda h: h + 1.5,
    "a sum with a leaf": lambda h, b=leaf(50_000): h + b,  # noqa: B008
    "products": lambda h: h * 1.01,
    "one operand": ops.tanh,
    "broadcasting": lambda h: h + np.ones(1),
    "options": lambda h: ops.reshape(h, (-1,)),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=list(STEPS))
def test_a_sweep_holds_the_cotangents_of_its_frontier_only(step):
    w = leaf(50_000)
    with GradientTape() as tape:
        h = step(w)
        for _ in range(40):
            h = step(h)
        y = h.sum()
        del h
    tracemalloc.start()
    try:
        gradients = tape.backward(y)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # The gradients of two leaves at most; with their sources and an intermediate at the peak.
    assert held < 2.5 * w._array.nbytes
    assert peak < 6.5 * w._array.nbytes
    assert len(gradients) >= 1


def test_a_sweep_remembers_the_cotangents_of_results_that_live():
    w = leaf()
    with GradientTape() as tape:
        a = w * 2.0
        b = ops.exp(a)
        c = b + a
        y = c.sum()
        del b
    gradients = tape.backward(y)
    assert [v in gradients for v in (w, a, c, y)] == [True] * 4
    assert len(gradients._leaves) + len(gradients._reached) == 4


def test_a_sweep_with_foreign_ops_frees_all_at_its_end():
    line, w = foreign(), leaf()
    with GradientTape() as tape:
        a = line(ops.exp(w))
        array = weakref.ref(a._array)
        y = a.sum()
        del a
    tape.backward(y)
    assert array() is None


@pytest.mark.parametrize("how", ["backward", "gradient", "clear", "drop", "error", "reenter"])
def test_every_way_to_end_a_tape_empties_it_and_unlocks(how):
    before = locked_bytes()
    w, x = leaf(BIG), np.full(BIG, 3.0)
    tape = GradientTape()
    try:
        with tape:
            h = ops.exp(w)
            array = weakref.ref(h._array)
            y = (h * x).sum()
            del h
            assert not x.flags.writeable
            assert locked_bytes() == before + x.nbytes
            if how == "error":
                raise KeyError("left")
    except KeyError:
        pass
    if how == "backward":
        tape.backward(y)
    elif how == "gradient":
        tape.gradient(y, w)
    elif how == "clear":
        tape.clear()
    elif how == "drop":
        del tape
    elif how == "reenter":
        tape.gradient(y, w)
        with tape:
            pass
    assert array() is None
    assert x.flags.writeable
    assert locked_bytes() == before
    assert np.array_equal(w.data, np.full(BIG, 2.0))
    if how != "drop":
        assert len(tape) == 0
        assert tape.nodes == []
        assert tape.ids == frozenset()
        assert tape.memory().total == 0


def test_an_inner_tape_consumed_inside_another_knows_nothing_more():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = (x * x).sum()
        inner.gradient(y, x)
        assert (len(inner), inner.nodes, inner.ids) == (0, [], frozenset())
        assert len(outer) > 0


def test_an_inner_tape_keeps_the_nodes_until_the_outer_one_ends_too():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            h = ops.exp(x)
            array = weakref.ref(h._array)
            y = (h * h).sum()
            del h
        inner.gradient(y, x)
        del inner
        assert array() is not None
        z = (x * x).sum()
    outer.backward(z)
    assert array() is None


# ------------------------------------------------------------------ the memory report


@pytest.mark.parametrize("big", [False, True], ids=["copied", "locked"])
def test_memory_totals_the_bytes_of_the_arrays_that_nodes_saved(big):
    size = BIG if big else 16
    w, x = leaf(size), np.full(size, 3.0)
    with GradientTape() as tape:
        h = ops.exp(w)  # saves its result
        z = h * x  # saves x
        q = z + 1.0  # saves nothing
        r = q * q  # saves q, once
        y = r.sum()  # saves nothing
    report = tape.memory()
    assert report.total == h.data.nbytes + x.nbytes + q.data.nbytes
    assert report.locked == (x.nbytes if big else 0)
    assert [name for name, _ in report.nodes] == [node.op for node in tape.nodes]
    assert sum(size for _, size in report.nodes) == report.total
    tape.gradient(y, w)
    assert tape.memory().total == 0


# ------------------------------------------------------------------ cycles and growth

STEPS = """
import gc, sys
import numpy as np
from odyssey import GradientTape, Variable, losses, ops
from odyssey.optim import SGD

gc.disable()
rng = np.random.default_rng(0)
w = Variable(rng.normal(0, 0.3, (32, 16)), requires_grad=True)
b = Variable(np.zeros(16), requires_grad=True)
v = Variable(rng.normal(0, 0.3, (16, 4)), requires_grad=True)
optimizer = SGD([w, b, v], learning_rate=0.05, momentum=0.9)
x, y = rng.normal(size=(64, 32)), rng.integers(0, 4, 64)

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def run(steps):
    for k in range(steps):
        with GradientTape() as tape:
            h = ops.relu(x @ w + b)
            loss = losses.cross_entropy(h @ v, y)
        if k % 7 == 0:
            slopes = tape.gradient(loss, [w, v], create_graph=True)
            del slopes
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

run(int(sys.argv[1]) // 10)  # Python gets memory from the system in pieces of 256 kB
before = resident()
run(int(sys.argv[1]))
print(resident() - before)
"""


@pytest.mark.parametrize(
    ("steps", "limit"),
    [
        pytest.param(10_000, 2**20, marks=pytest.mark.slow),
        pytest.param(100_000, 200_000, marks=pytest.mark.soak),
    ],
)
def test_resident_memory_is_flat_over_thousands_of_steps_without_the_collector(steps, limit):
    result = subprocess.run(
        [sys.executable, "-c", STEPS, str(steps)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(result.stdout) < limit


def train():
    w, x = leaf(BIG), np.full(BIG, 1e-4)
    optimizer = od.optim.SGD([w], learning_rate=0.1)
    for _ in range(20):
        with GradientTape() as tape:
            loss = od.losses.mean_squared_error(ops.tanh(w * x), x)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()


def nest():
    x = leaf()
    for _ in range(20):
        with GradientTape() as outer:
            with GradientTape() as inner:
                y = ops.exp(x).sum()
            slope = inner.gradient(y, x)
            total = (slope * slope).sum()
        outer.backward(total)
        x.zero_grad()


def fail():
    x, odd = leaf(), leaf(3)
    for _ in range(20):
        with pytest.raises(od.errors.ShapeError), GradientTape():
            (x * x) @ odd
        with GradientTape() as tape:
            y = (x * x).sum()
        tape.gradient(y, x)
        with pytest.raises(od.errors.TapeConsumedError):
            tape.gradient(y, x)


def hook():
    x = leaf()
    for _ in range(20):
        with GradientTape(persistent=True) as tape:
            y = (tape.watch(x) * 2.0).sum()
        tape.on_gradient(y, lambda g: g)
        gradients = tape.backward(y)
        assert list(gradients)


@pytest.mark.share(4, rest="slow")
@pytest.mark.parametrize("work", [train, nest, fail, hook])
def test_no_reference_cycles_are_left(work):
    work()
    gc.collect()
    work()
    assert gc.collect() == 0


def test_a_tape_that_was_swept_inside_another_may_be_collected_while_that_one_sweeps():
    x = Variable(2.0, requires_grad=True)
    with GradientTape() as tape:
        with GradientTape() as inner:
            y = x * x * x
        slope = inner.gradient(y, x)
    recording = tape._recording
    mine = recording.open.pop(id(tape))  # so a sweep begins that takes the nodes off
    inner.__del__()  # as the collector would, of a ring that holds the tape
    recording.open[id(tape)] = mine
    assert float(tape.gradient(slope, x)) == 12.0

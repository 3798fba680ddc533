"""Long recordings shed their dead branches and nothing else; deep ones neither recurse nor leak."""

import gc
import weakref

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices.array_locks import locked_bytes

BIG = 4096  # elements: more bytes than a tape copies


@pytest.fixture(autouse=True)
def _no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def leaf(size=8):
    return Variable(np.full(size, 2.0), requires_grad=True)


# ------------------------------------------------------------------ long recordings


@pytest.mark.parametrize(
    ("check", "steps"),
    [(False, 100_000), pytest.param(True, 20_000, marks=pytest.mark.slow)],
    ids=["plain", "careful"],
)
def test_dead_branches_are_pruned_from_a_long_recording(check, steps):
    w = leaf()
    longest = 0
    with GradientTape(check=check) as tape:
        alive = ops.exp(w)
        for _ in range(steps):
            ops.exp(w)
            longest = max(longest, len(tape))
        y = (alive * 2.0).sum()
    assert longest < 4096
    np.testing.assert_allclose(tape.gradient(y, w), np.full(8, 2 * np.exp(2.0)))


@pytest.mark.slow
@pytest.mark.share(4, rest="slow")
@pytest.mark.parametrize("cut", ["detach", "no_grad", "watch", "constant"])
def test_a_state_that_is_cut_at_every_step_does_not_grow_the_recording(cut):
    w, state, longest = leaf(), np.ones(8), 0
    with GradientTape() as tape:
        for _ in range(10_000):
            if cut == "no_grad":
                with od.no_grad():
                    state = ops.tanh(ops.tanh(w * state) + 0.0)
            elif cut == "watch":
                state = ops.tanh(w * tape.watch(state)).detach().data.copy()
            elif cut == "constant":
                state = ops.tanh(w * tape.constant(state)).detach().data.copy()
            else:
                state = ops.tanh(w * state).detach()
            longest = max(longest, len(tape))
        y = (w * state).sum()
    r = tape._recording
    assert longest < 16_384
    assert max(map(len, (r.cut_reasons, r.watched, r.constants))) < 8_192
    np.testing.assert_allclose(tape.gradient(y, w), np.asarray(state))


def test_dead_chains_are_pruned_whole():
    w = leaf()
    with GradientTape() as tape:
        for _ in range(5_000):
            h = w
            for _ in range(10):
                h = h * 1.5
    assert len(tape) < 8192


def test_pruning_unlocks_the_arrays_of_dead_branches_and_keeps_those_of_live_ones():
    before = locked_bytes()
    w, x = leaf(BIG), np.full(BIG, 3.0)
    with GradientTape() as tape:
        y = w * x
        for k in range(3_000):
            ops.exp(w) * np.full(BIG, float(k))
        assert locked_bytes() - before < 2_000 * x.nbytes
        assert not x.flags.writeable
    np.testing.assert_array_equal(tape.gradient(y, w, np.ones(BIG)), x)
    assert locked_bytes() == before


def test_pruning_never_drops_what_can_still_be_asked():
    rng = np.random.default_rng(0)
    w = Variable(1.0, requires_grad=True)
    kept, slopes = [], []
    with GradientTape(persistent=True) as tape:
        for k in range(6_000):
            a = float(rng.uniform(0.5, 2.0))
            h = w * a
            for _ in range(k % 4):
                h = h + w
            if k % 50 == 0:
                kept.append(h)
                slopes.append(a + k % 4)
    assert len(tape) < 5_000
    assert [float(tape.gradient(h, w)) for h in kept] == pytest.approx(slopes, rel=1e-15)


def test_pruning_keeps_results_that_only_a_manual_record_or_a_hook_names():
    x, seen = Variable(3.0, requires_grad=True), []
    with GradientTape() as tape:
        y = x * x
        hooked = x * 5.0
        tape.on_gradient(hooked, seen.append)
        z = hooked * 1.0
        c = tape.constant(27.0)
        # An id that made a detour through text is an equal number, but another object.
        tape.record("multiply", [int(str(y.id)), x.id], c.id, x=9.0, y=3.0)
        del y, hooked
        for _ in range(5_000):
            ops.exp(x)
        total = c + z
    assert float(tape.gradient(total, x)) == 32.0
    assert [float(g) for g in seen] == [1.0]


def test_pruning_during_a_recorded_sweep_keeps_what_the_sweep_still_needs():
    x = Variable(0.5, requires_grad=True)
    with GradientTape() as outer:
        with GradientTape() as inner:
            h = x
            for _ in range(3_000):
                h = h * 1.0 + 0.0
            y = h * h * h
            del h
        slope = inner.gradient(y, x)
        del y
        for _ in range(5_000):
            ops.exp(x)
    assert float(slope) == 0.75
    assert float(outer.gradient(slope, x)) == 3.0


# ------------------------------------------------------------------ deep graphs


@pytest.mark.parametrize(
    "depth", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)], ids=["1e5", "1e6"]
)
def test_a_deep_chain_neither_recurses_nor_leaks(depth):
    a = 1.0 - 1.0 / depth
    x = Variable(1.0, requires_grad=True)
    with GradientTape() as tape:
        h = x
        for _ in range(depth // 2):
            h = h * a + 0.25
    assert len(tape) == depth
    alive = weakref.ref(tape._recording)
    with od.testing.count_kernels() as counts:
        g = tape.gradient(h, x)
    assert float(g) == pytest.approx(a ** (depth // 2), rel=1e-9)
    # Linear: one product for each multiplication, and nothing at all for a sum.
    assert sum(counts.values()) <= depth // 2
    del tape, h
    assert alive() is None


@pytest.mark.slow
def test_a_deep_chain_that_is_dropped_unswept_is_freed():
    x = leaf()
    with GradientTape() as tape:
        h = x
        for _ in range(100_000):
            h = h + 1.0
    alive = weakref.ref(tape._recording)
    del tape, h
    assert alive() is None

"""Writing to arrays behind a tape's back: the value at record time or an error, never silence."""

import gc
import threading

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices import array_locks
from odyssey.devices.array_locks import locked_bytes
from odyssey.errors import MutationError, ShapeError, TapeError
from odyssey.optim import SGD

BIG = 4096  # elements: more bytes than a tape copies


def leaf(value, size=6, name=None):
    return Variable(np.full(size, float(value)), requires_grad=True, name=name)


def end(tape, how, y, w):
    if how == "sweep":
        tape.gradient(y, w)
    elif how == "backward":
        tape.backward(y)
    else:
        tape.clear()


# ------------------------------------------------------------------ arrays of others


@pytest.mark.parametrize("how", ["sweep", "backward", "clear"])
def test_a_large_array_is_read_only_until_the_tape_is_done_with_it(how):
    w, x = leaf(2, BIG), np.full(BIG, 3.0)
    with GradientTape() as tape:
        y = (w * x).sum()
    with pytest.raises(ValueError, match="read-only"):
        x[0] = 7.0
    with pytest.raises(ValueError, match="read-only"):
        x += 1.0
    end(tape, how, y, w)
    x[0] = 7.0
    assert x[0] == 7.0


def test_a_dropped_tape_unlocks():
    w, x = leaf(2, BIG), np.full(BIG, 3.0)
    with GradientTape() as tape:
        y = (w * x).sum()
    del tape
    x[0] = 7.0
    assert y.item() == 6.0 * BIG


def test_an_array_that_was_read_only_stays_so():
    w, x = leaf(2, BIG), np.full(BIG, 3.0)
    x.setflags(write=False)
    with GradientTape() as tape:
        y = (w * x).sum()
    tape.gradient(y, w)
    assert not x.flags.writeable


@pytest.mark.parametrize("first", [0, 1])
def test_locks_are_counted_across_tapes(first):
    w, x = leaf(2, BIG), np.full(BIG, 3.0)
    tapes, losses = [GradientTape(), GradientTape()], []
    for tape in tapes:
        with tape:
            losses.append((w * x * x).sum())
    tapes[first].gradient(losses[first], w)
    assert not x.flags.writeable
    np.testing.assert_array_equal(tapes[1 - first].gradient(losses[1 - first], w), x * x)
    assert x.flags.writeable


def test_a_persistent_tape_holds_its_locks_until_it_is_cleared():
    w, x = leaf(2, BIG), np.full(BIG, 3.0)
    with GradientTape(persistent=True) as tape:
        y = (w * x).sum()
    tape.gradient(y, w)
    assert not x.flags.writeable
    tape.clear()
    assert x.flags.writeable


def test_an_array_that_no_rule_asked_for_is_never_locked():
    w, x = leaf(2, BIG), np.full(BIG, 3.0)
    with GradientTape():
        (w + x).sum()
        assert x.flags.writeable


@pytest.mark.parametrize("kind", ["small", "view", "scalar array", "list", "subclass"])
def test_what_is_copied_may_be_written_to(kind):
    base = np.full(2 * BIG, 3.0)
    x = {
        "small": np.full(6, 3.0),
        "view": base[::2],
        "scalar array": np.array(3.0),
        "list": [3.0] * 6,
        "subclass": base[:BIG].view(np.recarray),
    }[kind]
    w = leaf(2, BIG if kind in ("view", "subclass") else 6)
    with GradientTape() as tape:
        y = (w * x).sum()
    if kind == "list":
        x[:] = [9.0] * 6
    else:
        x[...] = 9.0
    base[...] = 9.0
    np.testing.assert_array_equal(tape.gradient(y, w), np.full(w.shape, 3.0))


def test_a_constant_variable_is_as_safe_as_its_array():
    w, small, big = leaf(2, 6), Variable(np.full(6, 3.0)), Variable(np.full(BIG, 3.0))
    v = leaf(2, BIG)
    with GradientTape() as tape:
        y = (w * small).sum() + (v * big).sum()
    small.assign(9.0)
    with pytest.raises(MutationError, match="needed unchanged by <tape"):
        big.assign(9.0)
    for g in tape.gradient(y, [w, v]):
        assert set(g) == {3.0}
    big.assign(9.0)


@pytest.mark.parametrize("shared", [False, True], ids=["another array", "the same array"])
def test_the_collector_may_end_a_tape_while_an_array_is_being_locked(shared, monkeypatch):
    before, w, first = locked_bytes(), leaf(2, BIG), np.full(BIG, 3.0)
    second = first if shared else np.full(BIG, 3.0)

    class CollectingLock(array_locks._Lock):
        __slots__ = ()

        def __init__(self, array):
            gc.collect()
            super().__init__(array)

    def work():
        for lock in (array_locks._Lock, CollectingLock):
            monkeypatch.setattr(array_locks, "_Lock", lock)
            tape = GradientTape()
            with tape:
                tape.itself = (tape, w * (first if lock is array_locks._Lock else second))
                tape.itself[1] * np.full(BIG, 2.0)
            del tape  # a cycle: only the collector ends this tape

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(30)
    assert not worker.is_alive()
    gc.collect()
    assert first.flags.writeable
    assert second.flags.writeable
    assert locked_bytes() == before


# ------------------------------------------------------------------ leaves


def test_a_leaf_of_a_call_that_failed_may_be_assigned():
    w, v = leaf(2, 3), leaf(3, 4)
    with GradientTape() as tape:
        y = (w * w).sum()
        with pytest.raises(ShapeError):
            w * v
    v.assign(0.0)
    assert set(tape.gradient(y, w)) == {4.0}
    with GradientTape() as tape:
        y = (w * w).sum()
        with pytest.raises(ShapeError):
            w * v
    w.assign(0.0)
    with pytest.raises(MutationError):
        tape.gradient(y, w)


def test_an_optimizer_may_step_between_a_failed_call_and_the_first_use():
    w = leaf(2, 3)
    with GradientTape() as tape:
        with pytest.raises(ShapeError):
            w * np.ones(5)
        w.grad = np.ones(3)
        od.optim.SGD([w], 1.0).step()
        y = (w * w).sum()
    assert set(tape.gradient(y, w)) == {2.0}


def test_a_leaf_of_a_failed_call_counts_from_its_first_use():
    w, v = leaf(2, 3), leaf(3, 4)
    with GradientTape() as tape:
        y = (v * v).sum()
        with pytest.raises(ShapeError):
            v * w
        w.assign(5.0)
        z = (w * w).sum() + y
    assert [set(g) for g in tape.gradient(z, [w, v])] == [{10.0}, {6.0}]
    with GradientTape() as tape:
        y = (w * w).sum()
        w.assign(7.0)
        z = (w * 2.0).sum() + y
    with pytest.raises(MutationError):
        tape.gradient(z, w)


def test_the_data_of_a_trainable_leaf_is_read_only_and_its_own():
    source = np.full(6, 2.0)
    w = Variable(source, requires_grad=True)
    source[...] = 9.0
    for view in (w.data, w.numpy(), np.asarray(w)):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1.0
    assert set(w.data) == {2.0}


WRITES = {
    "assign": lambda w: w.assign(5.0),
    "data": lambda w: setattr(w, "data", 5.0),
    "item": lambda w: w.__setitem__(0, 5.0),
    "in place": lambda w: w.__iadd__(5.0),
    "freeze": lambda w: (setattr(w, "requires_grad", False), w.assign(5.0)),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("sweep", ["gradient", "backward", "jvp"])
def test_a_leaf_that_was_written_after_its_use_is_reported_and_nothing_is_lost(write, sweep):
    w, v = leaf(2, name="w"), leaf(3)
    with GradientTape() as tape:
        y = (w * w * v).sum()
    nodes = len(tape)
    write(w)
    with pytest.raises(MutationError, match=r"'w'.* was assigned after this tape recorded"):
        tape.jvp(y, v, np.ones(6)) if sweep == "jvp" else getattr(tape, sweep)(
            *((y, v) if sweep == "gradient" else (y,))
        )
    assert (v.grad, w.grad, len(tape), tape.consumed) == (None, None, nodes, False)


def test_an_optimizer_step_between_record_and_sweep_is_reported():
    w = leaf(2)
    optimizer = SGD([w], learning_rate=0.5)
    with GradientTape() as first:
        a = (w * w).sum()
    with GradientTape() as second:
        b = (w * w * w).sum()
    first.backward(a)
    optimizer.step()
    with pytest.raises(MutationError):
        second.backward(b)
    np.testing.assert_array_equal(w.grad, np.full(6, 4.0))
    np.testing.assert_array_equal(w.data, np.zeros(6))


def test_a_leaf_made_on_a_tape_may_be_assigned_before_its_first_use():
    tape = GradientTape()
    w = tape.variable(np.zeros(3))
    w.assign(np.array([1.0, 2.0, 3.0]))
    with tape:
        y = (w * w).sum()
    np.testing.assert_array_equal(tape.gradient(y, w), [2.0, 4.0, 6.0])


def test_freezing_a_leaf_does_not_open_what_the_tape_saved():
    w, x = leaf(2), leaf(3)
    with GradientTape() as tape:
        y = (w * x).sum()
    w.requires_grad = False
    w.data[...] = 9.0
    np.testing.assert_array_equal(tape.gradient(y, x), np.full(6, 2.0))


@pytest.mark.parametrize("saved", ["leaf", "intermediate"])
@pytest.mark.parametrize(
    "view",
    [lambda v: v.reshape(2, 3), lambda v: v.T, lambda v: v[0:3], lambda v: v.detach()],
    ids=["reshape", "transpose", "slice", "detach"],
)
def test_a_constant_view_taken_in_a_pause_is_no_way_in(saved, view):
    w = leaf(2)
    with GradientTape() as tape:
        h = w if saved == "leaf" else w * 1.0
        y = (h * h).sum()
        with od.no_grad():
            outside = view(h)
        with tape.no_recording():
            paused = view(h)
    for constant in (outside, paused):
        array = constant.data
        if np.shares_memory(array, h.data):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0.0
        else:
            array[...] = 0.0
    np.testing.assert_array_equal(tape.gradient(y, w), np.full(6, 4.0))


def test_the_data_of_an_intermediate_is_read_only():
    w = leaf(2)
    with GradientTape() as tape:
        h = ops.exp(w)
        y = (h * h).sum()
    for array in (h.data, h.numpy(), h.detach().data, h.reshape(2, 3).data):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0
    with pytest.raises(TapeError, match="not a leaf"):
        h.assign(0.0)
    np.testing.assert_allclose(tape.gradient(y, w), np.full(6, 2 * np.exp(4.0)))


def test_an_untracked_view_of_a_leaf_is_no_way_in():
    @od.op(elementwise=True, vjp={"x": lambda g: g})
    def same(x, /):
        return x

    w = leaf(2)
    early = [w.reshape(2, 3), same(w)]
    with od.no_grad():
        early.append(w.reshape(2, 3))
    with GradientTape() as tape:
        y = (w * w).sum()
    for h in early[:2]:
        with pytest.raises(TapeError, match="not a leaf"):
            h.assign(0.0)
    for h in early:
        with pytest.raises(ValueError, match="read-only"):
            h.data[...] = 0.0
        if h is early[2]:
            h.assign(5.0)  # a constant, which gets an array of its own
        h[0] = 0.0
    np.testing.assert_array_equal(w.numpy(), np.full(6, 2.0))
    np.testing.assert_array_equal(tape.gradient(y, w), np.full(6, 4.0))


def test_item_assignment_rebinds_and_earlier_uses_keep_the_old_value():
    w = leaf(2)
    with GradientTape() as tape:
        h = w * 3.0
        before = h * h
        h[0] = 0.0
        y = before.sum() + h.sum()
    np.testing.assert_array_equal(tape.gradient(y, w), [36.0] + [39.0] * 5)


# ------------------------------------------------------------------ the careful mode


def test_the_careful_mode_finds_a_write_through_an_earlier_view():
    w, x = leaf(2, BIG), np.full(BIG, 3.0)
    early = x[:10]
    with GradientTape(check=True) as tape:
        y = (w * x).sum()
    early[3] = 100.0
    with pytest.raises(
        MutationError, match=r"multiply at .*test_recording_mutation\.py:\d+ saved y"
    ):
        tape.gradient(y, w)
    early[3] = 3.0
    np.testing.assert_array_equal(tape.gradient(y, w), np.full(BIG, 3.0))


def test_the_careful_mode_names_the_line_that_recorded():
    w, x = leaf(2, BIG), np.full(BIG, 3.0)
    early = x[:10]
    with GradientTape(check=True) as tape:
        h = w + 1.0
        line = test_the_careful_mode_names_the_line_that_recorded.__code__.co_firstlineno + 6
        y = (h * x).sum()
    early[3] = 100.0
    with pytest.raises(MutationError, match=rf"test_recording_mutation\.py:{line} "):
        tape.backward(y)


# ------------------------------------------------------------------ values made elsewhere


@pytest.mark.parametrize("size", [6, BIG], ids=["small", "big"])
@pytest.mark.parametrize("by", ["variable", "id"])
def test_the_output_of_a_manual_record_is_as_fixed_as_any_result(size, by):
    x, array = leaf(3, size), np.full(size, 9.0)
    with GradientTape() as tape:
        c = tape.constant(array)
        tape.record("multiply", [x, x], c if by == "variable" else c.id)
        y = (c * c).sum()
    if array.flags.writeable:
        array[...] = 0.0
    with pytest.raises(ValueError, match="read-only"):
        c.data[...] = 0.0
    np.testing.assert_array_equal(tape.gradient(y, x), np.full(size, 4 * 27.0))
    array[...] = 0.0


@pytest.mark.parametrize("part", [lambda y: y, lambda y: y[:]], ids=["operand", "view"])
def test_a_foreign_op_that_returns_its_operand_records_a_value(part):
    @od.op(vjp={"x": lambda g, out: ops.mul(g, out)})
    def second(x, y, /):
        return part(y)

    w, x = leaf(3), np.full(6, 9.0)
    with GradientTape() as tape:
        y = second(w, x)
        z = (y * y).sum()
    x[...] = 0.0
    np.testing.assert_array_equal(tape.gradient(z, w), np.full(6, 2 * 81.0))

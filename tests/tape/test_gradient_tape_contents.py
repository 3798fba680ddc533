"""The rules of the tape on what it holds: clearing, locks, depth, lifetime, threads."""

import gc
import threading
import weakref

import numpy as np
import pytest

from odyssey import GradientTape, Variable


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


# ------------------------------------------------------------------ rule 7: clearing


def test_after_clear_there_are_no_nodes_and_no_ids():
    w = wide(np.ones(3))
    tape = GradientTape()
    with tape:
        constant = tape.constant(2.0)
        watched = tape.watch(np.ones(3))
        _ = w * watched * constant
    assert len(tape) == len(tape.nodes) == 3
    assert {w.id, watched.id, constant.id} <= tape.ids
    tape.clear()
    assert len(tape) == 0
    assert tape.nodes == []
    assert tape.ids == frozenset()


def test_clear_inside_the_block_starts_again_and_goes_on():
    w = wide([1.0, 2.0])
    with GradientTape() as tape:
        _ = w * w * w
        tape.clear()
        y = (w * w).sum()
        assert len(tape) == 2
    assert not tape.enabled
    assert (w * w).tape is None
    np.testing.assert_array_equal(tape.gradient(y, w), [2.0, 4.0])


def test_a_block_left_by_an_exception_clears_its_tape_and_releases_every_lock():
    w, x = wide(np.ones(1000)), np.ones(1000)
    tape = GradientTape()

    def fail():
        with tape:
            _ = w * x
            assert not x.flags.writeable
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert len(tape) == 0
    assert tape.ids == frozenset()
    assert x.flags.writeable
    assert (w * w).tape is None


@pytest.mark.parametrize("end", ["backward", "gradient", "clear", "drop"])
def test_every_end_of_a_tape_releases_its_locks(end):
    w, x = wide(np.ones(1000)), np.ones(1000)
    with GradientTape() as tape:
        y = (w * x).sum()
    assert not x.flags.writeable
    if end == "backward":
        tape.backward(y)
    elif end == "gradient":
        tape.gradient(y, w)
    elif end == "clear":
        tape.clear()
    else:
        del tape, y
    assert x.flags.writeable


def test_an_array_saved_by_two_tapes_opens_with_the_second():
    w, x = wide(np.ones(1000)), np.ones(1000)
    tapes, losses = [GradientTape(), GradientTape()], []
    for tape in tapes:
        with tape:
            losses.append((w * x).sum())
    tapes[0].backward(losses[0])
    assert not x.flags.writeable
    tapes[1].backward(losses[1])
    assert x.flags.writeable


def test_an_array_that_was_read_only_stays_so():
    w, x = wide(np.ones(1000)), np.ones(1000)
    x.flags.writeable = False
    with GradientTape() as tape:
        y = (w * x).sum()
    tape.backward(y)
    assert not x.flags.writeable


@pytest.mark.parametrize("size", [4, 1000], ids=["small", "large"])
@pytest.mark.parametrize("view", [False, True], ids=["owner", "view"])
def test_writing_to_a_saved_array_gives_the_value_at_record_time_or_an_error(size, view):
    w = wide(np.ones(size))
    base = np.full(size, 3.0)
    x = base[:] if view else base
    with GradientTape() as tape:
        y = (w * x).sum()
    if x.flags.writeable:
        x[:] = 77.0
    else:
        with pytest.raises(ValueError, match="read-only"):
            x[:] = 77.0
    np.testing.assert_array_equal(tape.gradient(y, w), np.full(size, 3.0))


# ------------------------------------------------------------------ rule 11: depth and lifetime


@pytest.mark.slow
def test_a_million_nodes_neither_recurse_nor_leak():
    x = wide(1.0)
    with GradientTape() as tape:
        y = x
        for _ in range(1_000_000):
            y = y + 1e-6
    assert len(tape) == 1_000_000
    assert float(tape.gradient(y, x)) == 1.0
    assert len(tape) == 0


def test_dropping_a_deep_graph_does_not_recurse():
    x = wide(1.0)
    with GradientTape() as tape:
        y = x
        for _ in range(30_000):
            y = y * 1.0
    recording = weakref.ref(tape._recording)
    del tape, y
    assert recording() is None


def test_intermediates_that_no_rule_asked_for_die_with_their_last_name():
    gc.disable()
    try:
        w = wide(np.ones(4))
        with GradientTape() as tape:
            middle = w + 1.0
            died = weakref.ref(middle)
            y = middle.sum()
            del middle
            assert died() is None
        tape.backward(y)
        leaf_alive = weakref.ref(w)
        assert leaf_alive() is w
    finally:
        gc.enable()


def test_a_kept_loss_keeps_no_graph_alive():
    gc.disable()
    try:
        w = wide(np.ones(4))
        with GradientTape() as tape:
            loss = (w * w).sum()
        saved = weakref.ref(tape._recording)
        tape.backward(loss)
        assert tape.nodes == []
        died = weakref.ref(tape)
        del tape
        assert died() is None
        assert saved() is not None
        assert saved().nodes == []
        assert float(loss) == 4.0
    finally:
        gc.enable()


def test_a_tape_keeps_its_leaves_alive():
    w = wide(2.0)
    alive = weakref.ref(w)
    with GradientTape() as tape:
        y = w * w
    del w
    assert alive() is not None
    tape.backward(y)
    gc.collect()
    assert alive() is None


def test_long_recordings_drop_dead_branches():
    w = wide(np.ones(2))
    with GradientTape() as tape:
        y = w
        for _ in range(20_000):
            _ = w * 2.0
        y = (w * w).sum()
    assert len(tape) < 10_000
    np.testing.assert_array_equal(tape.gradient(y, w), [2.0, 2.0])


# ------------------------------------------------------------------ threads


def test_eight_threads_with_tapes_of_their_own_add_up_exactly():
    w = wide(np.ones(3))

    def work():
        for _ in range(50):
            with GradientTape() as tape:
                y = (w * w).sum()
            tape.backward(y)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(w.grad, np.full(3, 2.0 * 8 * 50))

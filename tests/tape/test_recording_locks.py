"""Locks: an array is read-only as long as something stands for that, and open again at once."""

import gc
import itertools
import threading

import numpy as np
import pytest

from odyssey.devices import array_locks
from odyssey.devices.array_locks import lock_array, locked_bytes


def test_a_lock_lasts_until_the_last_that_holds_it_lets_go():
    array, one, two = np.zeros(3), {}, {}
    lock_array(array, one)
    lock_array(array, two)
    one.clear()
    assert not array.flags.writeable
    two.clear()
    assert array.flags.writeable


def test_freezing_by_the_owner_outlasts_the_lock():
    array, held = np.zeros(3), {}
    array.flags.writeable = False
    lock_array(array, held)
    held.clear()
    assert not array.flags.writeable


def test_an_array_that_is_not_aligned_is_opened_again():
    array, held = np.zeros(25, np.uint8)[1:].view(np.float64), {}
    assert not array.flags.aligned
    lock_array(array, held)
    assert not array.flags.writeable
    held.clear()
    assert array.flags.writeable


def test_locks_leave_nothing_behind():
    before = locked_bytes()
    array, held = np.zeros(3), {}
    lock_array(array, held)
    assert locked_bytes() == before + array.nbytes
    held.clear()
    assert locked_bytes() == before


def test_the_collector_ends_a_lock_in_a_cycle():
    array, held = np.zeros(3), {}
    lock_array(array, held)
    held["itself"] = held
    del held
    gc.collect()
    assert array.flags.writeable


def test_threads_that_lock_and_unlock_one_array_leave_it_open():
    array = np.zeros(3)

    def work():
        for _ in range(2000):
            held = {}
            lock_array(array, held)
            assert not array.flags.writeable
            held.clear()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert array.flags.writeable


@pytest.mark.parametrize("moment", range(1, 6))
def test_a_lock_that_ends_while_another_is_looked_for_leaves_the_array_open(monkeypatch, moment):
    array, first, second = np.zeros(3), {}, {}
    lock_array(array, first)
    moments = itertools.count(1)
    real = array_locks._lock_count

    def end_the_first():
        if next(moments) == moment:
            first.clear()
        return real()

    monkeypatch.setattr(array_locks, "_lock_count", end_the_first)
    lock_array(array, second)
    assert not array.flags.writeable
    first.clear()
    second.clear()
    assert array.flags.writeable

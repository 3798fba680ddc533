"""What an item assignment binds anew: who has the array of before keeps its elements."""

import sys
import threading
import time

import numpy as np
import pytest

import odyssey as od
from odyssey import Variable


class World:
    """A constant that a function writes elements of."""

    def __init__(self, compiled, order="C"):
        self.run = Variable(np.zeros((2, 3), order=order), name="run")
        use = od.compile if compiled else lambda fn: fn
        self.put, self.add, self.read = use(self._put), use(self._add), use(self._read)

    def _put(self, x):
        self.run[0, 1] = self.run[1, 0] + x.sum()
        return x * 1.0

    def _add(self, x):
        self.run.assign(self.run + x.mean())
        self.run[1] = self.run[0] * 2.0
        return x * 1.0

    def _read(self, x):
        return (self.run * x.sum()).sum()


def both(actions, order="C"):
    """What two worlds have that do the same, of which one is compiled."""
    found = []
    for compiled in (False, True):
        world = World(compiled, order)
        kept = list(actions(world))
        found.append([np.array(one).tolist() for one in (*kept, world.run.numpy())])
    return found


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", ["put", "add"])
def test_views_of_before_keep_their_elements(name, order):
    def actions(world):
        for k in range(6):
            getattr(world, name)(np.full(2, k))
            yield world.run.data if k % 2 else world.run.data[::-1, 1:]

    eager, compiled = both(actions, order)
    assert eager == compiled


@pytest.mark.parametrize("calls", [1, 2, 3])
@pytest.mark.parametrize("name", ["put", "add"])
def test_the_array_of_a_caller_is_not_written_to(name, calls):
    def actions(world):
        for _ in range(calls):
            getattr(world, name)(np.ones(2))
        mine, strided = np.zeros((2, 3)), np.zeros((2, 6))
        for array in (mine, strided[:, ::2]):
            world.run = Variable(array)
            for k in range(3):
                getattr(world, name)(np.full(2, k))
        yield from (mine, strided)

    eager, compiled = both(actions)
    assert eager == compiled


def test_the_first_program_does_not_write_to_the_array_of_a_caller():
    held = {"run": Variable(np.zeros(4))}

    @od.compile
    def put(x):
        held["run"][0] = held["run"][1] + x.mean()
        return x * 1.0

    put(np.ones(4))
    mine = np.zeros(4)
    held["run"] = Variable(mine)
    put(np.full(4, 2.0))
    assert put.statistics().native == 1
    assert mine.tolist() == [0.0] * 4
    assert held["run"].numpy().tolist() == [2.0, 0.0, 0.0, 0.0]


def test_a_variable_on_the_same_array_keeps_its_elements():
    def actions(world):
        others = []
        for k in range(5):
            world.put(np.full(2, k))
            others.append(Variable(world.run.data))
        return others

    eager, compiled = both(actions)
    assert eager == compiled


def test_an_argument_may_be_the_array_of_before():
    def actions(world):
        for _ in range(5):
            yield world.put(world.run.data)
            yield world.put(world.run.data[::-1])

    eager, compiled = both(actions)
    assert eager == compiled


def test_programs_that_read_and_write_take_turns_and_run_natively():
    world = World(True)
    arrays = []
    for k in range(8):
        world.put(np.full(2, k))
        world.read(np.ones(2))
        arrays.append(id(world.run.data))
    assert world.put.statistics() == world.read.statistics() == (1, 7, 1)
    assert len(set(arrays[1:])) == 1  # nobody else has the array: it is written to where it lies


@pytest.mark.slow
@pytest.mark.parametrize("size", [4, 200_000])
def test_who_takes_the_array_in_another_thread_sees_none_of_it_change(size):
    run = Variable(np.zeros(size))

    @od.compile
    def put(x):
        run[0] = run[1] + x.sum()
        run[1] = x.sum() * 1.0
        return x * 1.0

    for k in range(4):
        put(np.full(4, k))
    changed, stop, before = [], [], sys.getswitchinterval()

    def look():
        while not stop:
            taken = run.data
            copy = taken.copy()
            time.sleep(0)
            changed.append(not np.array_equal(copy, taken))

    readers = [threading.Thread(target=look) for _ in range(2)]
    sys.setswitchinterval(1e-5)
    try:
        for reader in readers:
            reader.start()
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            put(np.full(4, 2.0))
    finally:
        stop.append(True)
        for reader in readers:
            reader.join()
        sys.setswitchinterval(before)
    assert changed
    assert not any(changed)


@pytest.mark.slow
def test_threads_that_bind_anew_leave_no_symbol_of_a_trace_elsewhere():
    run, errors = Variable(np.zeros(4)), []

    def put(x):
        run[0] = run[1] + x.sum()
        return x * 1.0

    def work():
        try:
            for _ in range(15):
                fresh = od.compile(put)
                for _ in range(3):
                    fresh(np.ones(4))
                    put(np.ones(4))
        except Exception as error:
            errors.append(error)

    threads, before = [threading.Thread(target=work) for _ in range(3)], sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert not errors
    assert type(run.data) is np.ndarray

"""States that are written in place are written together: an error or an interrupt leaves all as
they were, or all as a complete run leaves them."""

import signal
import time
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.errors import SettingError
from support import faults
from support.faults import in_its_thread

COMPILER = str(Path(od.__file__).parent / "compiler")
ROWS = np.ones((2, 1, 8), np.float32)


class World:
    """Keys, values and their length; each step puts a row that tells its number."""

    def __init__(self, capacity=64, hosted=True):
        shape = 2, capacity, 8
        self.keys = od.Variable(np.zeros(shape, np.float32), name="keys")
        self.values = od.Variable(np.zeros(shape, np.float32), name="values")
        self.length = od.Variable(np.array(0), name="length")
        self.largest = od.Variable(np.zeros(8, np.float32), name="largest")
        self.hosted, self.capacity = hosted, capacity
        self.step = od.compile(self._step, check=True)

    def _step(self, rows):
        number = ops.identity(self.length)
        if self.hosted:  # a call of Python between two native segments
            rows = ops.sort(rows, axis=-1)
        rows = ops.demanded(rows, ops.isfinite(rows), "the rows are not finite")
        row = rows * ops.astype(number + 1, np.float32)
        start = ops.stack([np.array(0), number, np.array(0)])
        self.keys.assign(ops.dynamic_update_slice(self.keys, row, start))
        self.values[:, number] = row[:, 0]
        self.values[:, number] = row[:, 0] * 2.0
        self.largest.assign(ops.max(self.keys, axis=(0, 1)))
        self.length.assign(number + 1)

    def assert_whole(self, at_least=0):
        """Raise AssertionError unless all states are those after one number of steps."""
        count = int(self.length.numpy())
        assert count >= at_least
        wanted = np.zeros((2, self.capacity, 8), np.float32)
        wanted[:, :count] = np.arange(1, count + 1, dtype=np.float32)[:, None]
        np.testing.assert_array_equal(self.keys.numpy(), wanted)
        np.testing.assert_array_equal(self.values.numpy(), 2 * wanted)
        np.testing.assert_array_equal(self.largest.numpy(), wanted.max((0, 1)))
        return count


def test_the_states_of_these_tests_are_written_in_place():
    for hosted in (False, True):
        world = World(hosted=hosted)
        world.step.precompile(ROWS)
        assert "copies" not in world.step.explain(ROWS)
        world.step(ROWS), world.step(ROWS)
        assert (world.assert_whole(), world.step.statistics().native) == (2, 2)


@pytest.mark.slow
@in_its_thread
def test_an_interrupt_at_any_line_of_a_step_leaves_whole_states():
    world = World(capacity=2000)
    world.step.precompile(ROWS)
    n, finished, before = 0, False, 0
    while not finished:
        n += 1
        try:
            with faults.interrupt(n, within=COMPILER) as fired:
                world.step(ROWS)
            finished = not fired
        except KeyboardInterrupt:
            pass
        after = world.assert_whole(before)
        assert after <= before + 1
        before = after
    assert n > 20
    assert before > 1  # it also came behind the commit


@pytest.mark.parametrize("hosted", [False, True], ids=["native", "with a host call"])
def test_a_failed_check_leaves_the_states_as_they_were(hosted):
    world = World(hosted=hosted)
    world.step.precompile(ROWS)
    world.step(ROWS)
    for bad in (np.nan, np.inf):
        with pytest.raises(SettingError, match="the rows are not finite"):
            world.step(ROWS * np.float32(bad))
        assert world.assert_whole() == 1
    world.step(ROWS)
    assert (world.assert_whole(), world.step.statistics().native) == (2, 2)


def test_an_error_of_a_host_call_leaves_the_states_as_they_were():
    failing = []

    @od.op(infer=lambda x: x)
    def picky_rows(x, /):
        if failing:
            raise faults.FaultError
        return np.array(x)

    world = World()
    step = od.compile(lambda rows: world._step(picky_rows(rows)), check=True)
    step.precompile(ROWS)
    assert "calls picky_rows" in step.explain(ROWS)
    step(ROWS)
    failing.append(True)
    with pytest.raises(faults.FaultError):
        step(ROWS)
    assert world.assert_whole() == 1
    failing.clear()
    step(ROWS)
    assert (world.assert_whole(), step.statistics().native) == (2, 2)


class _AlarmError(Exception):
    pass


def _raise(*_):
    raise _AlarmError


@pytest.mark.soak
@pytest.mark.parametrize("hosted", [False, True], ids=["native", "with a host call"])
def test_700_signals_at_random_moments_leave_whole_states(hosted):
    rng = np.random.default_rng(0)
    world, before = World(capacity=8000, hosted=hosted), signal.signal(signal.SIGALRM, _raise)
    try:
        world.step.precompile(ROWS)
        stopped = 0
        for _ in range(700):
            end = time.perf_counter() + 0.002
            try:
                signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(1e-5, 2e-3)))
                while time.perf_counter() < end:
                    world.step(ROWS)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except _AlarmError:  # of a timer that goes off once
                stopped += 1
                if world.assert_whole() > 6000:
                    for state in (world.keys, world.values, world.largest, world.length):
                        state.assign(np.zeros(state.shape, state.dtype))
        assert stopped > 300
    finally:
        signal.signal(signal.SIGALRM, before)

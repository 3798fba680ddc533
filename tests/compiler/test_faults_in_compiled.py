"""A compiled step that is stopped anywhere leaves nothing open, and what the eager one leaves."""

from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey.devices.array_locks import locked_bytes
from odyssey.table.declare import OPS
from odyssey.table.scope import scopes
from odyssey.table.store import MEMORY, store
from support import faults
from support.faults import in_its_thread
from support.two_worlds import World

COMPILER = str(Path(od.__file__).parent / "compiler")


class FaultError(Exception):
    pass


@contextmanager
def failing_kernel(n, error):
    """Let the ``n``-th kernel call of a block raise; the block sees how many there were."""
    kernels = {row: row.kernel for row in OPS.values()}
    calls = []

    def failing(kernel):
        def call(*args):
            calls.append(None)
            if len(calls) == n:
                raise error
            return kernel(*args)

        return call

    try:
        for row, kernel in kernels.items():
            row.use(failing(kernel))
        yield calls
    finally:
        for row, kernel in kernels.items():
            row.use(kernel)


def batch():
    rng = np.random.default_rng(5)
    return rng.normal(size=(200, 3)), rng.integers(0, 3, 200)  # large enough for a tape to lock


def assert_nothing_is_open(*arrays):
    assert store() is MEMORY
    assert scopes() == (None,)
    assert locked_bytes() == 0
    assert all(array.flags.writeable for array in arrays)


ERRORS = [FaultError, MemoryError, KeyboardInterrupt]


@pytest.mark.slow
@pytest.mark.share(3)
@pytest.mark.parametrize("name", ["step", "clipped", "checkpointed", "hooked"])
@pytest.mark.parametrize("warm", [True, False], ids=["warm", "first call"])
def test_an_error_in_any_kernel_leaves_what_the_eager_step_leaves(name, warm):
    x, y = batch()
    args = (x, y, 2.0) if name == "hooked" else (x, y)
    n, finished = 0, False
    while not finished:
        n += 1
        error = ERRORS[n % 3]
        worlds = World(3, False), World(3, True)
        for world in worlds:
            if warm:
                world.use[name](*args)
                # A program runs no kernels; the function itself does.
                getattr(world.use[name], "clear_cache", bool)()
                # A program runs no kernels; the function itself does.
                getattr(world.use[name], "clear_cache", bool)()
            try:
                with failing_kernel(n, error) as calls:
                    world.use[name](*args)
            except error:
                assert len(calls) == n
            else:
                finished = True
            assert_nothing_is_open(x, y, world.scale)
        assert worlds[0].look() == worlds[1].look(), n
        for world in worlds:
            world.optimizer.zero_grad()
            world.use[name](*args)
        assert worlds[0].look() == worlds[1].look(), n
    assert n > 10


def look(world):
    """What can be seen but for Python's own objects, which an interrupted trial may leave moved."""
    return {what: value for what, value in world.look().items() if what != "python"}


@pytest.mark.parametrize(
    "stride",
    [pytest.param(7, marks=pytest.mark.soak), pytest.param(83, marks=pytest.mark.slow)],
    ids=["many lines", "some lines"],
)
def test_an_interrupt_at_any_line_of_the_first_call_changes_nothing_but_by_the_run(stride):
    x, y = batch()
    n, finished = 0, False
    fresh, stepped = look(World(3, True)), World(3, False)
    stepped.step(x, y)
    stepped = look(stepped)
    while not finished:
        n += stride
        world = World(3, True)
        try:
            with faults.interrupt(n, within=COMPILER):
                world.use["step"](x, y)
        except KeyboardInterrupt:
            assert look(world) in (fresh, stepped), n
        else:
            finished = True
        assert_nothing_is_open(x, y, world.scale)
        if look(world) == fresh:
            world.use["step"](x, y)
        assert look(world) == stepped, n
    assert n > 1000


# A tracer can raise between opening a file and entering its block; the collector closes it.
@pytest.mark.filterwarnings("ignore:Exception ignored:pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(
    "stride", [pytest.param(1, marks=pytest.mark.soak), pytest.param(7, marks=pytest.mark.slow)]
)
@in_its_thread
def test_an_interrupt_at_any_line_of_a_first_call_leaves_what_the_function_holds(stride):
    large, n, finished = np.zeros(20_000), 0, False
    while not finished:
        n += stride
        held, rng = {"calls": [], "last": None}, np.random.default_rng(0)

        class Counter:
            count = 0

        def step(x, held=held, counter=Counter, rng=rng):
            counter.count += 1
            held["last"] = x
            held["calls"].append(counter.count)
            return x * large[0] if counter.count < 9 else rng.normal()

        x = np.ones(2)
        try:
            with faults.interrupt(n, within=COMPILER):
                od.compile(step)(x)
        except KeyboardInterrupt:
            calls = Counter.count  # none, or that of the run
            assert calls in (0, 1), n
            assert held["calls"] == [1] * calls, n
            assert held["last"] is (x if calls else None), n
        else:
            finished = True
            assert Counter.count == 1
        assert_nothing_is_open(large)
    assert n > 400

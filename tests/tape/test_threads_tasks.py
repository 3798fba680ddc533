"""Threads, async tasks and generators: each records on its own tapes, and leaves others alone."""

import asyncio
import gc
import threading

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.table.scope import innermost_scope, scopes


@pytest.fixture(autouse=True)
def _nothing_is_left_in_this_context():
    assert innermost_scope() is None
    yield
    assert innermost_scope() is None
    assert scopes() == (None,)


def leaf(value=3.0):
    return Variable(value, requires_grad=True)


def cube(x):
    return x * x * x


def slope_of_cube(x):
    with GradientTape() as tape:
        y = cube(x)
    return float(tape.gradient(y, x))


def in_thread(fn):
    results, errors = [], []

    def work():
        try:
            results.append(fn())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


# ------------------------------------------------------------------ threads and tasks


def test_a_thread_does_not_see_the_tape_or_the_pause_of_another():
    x = leaf()
    with GradientTape() as tape:
        assert in_thread(innermost_scope) is None
        assert in_thread(lambda: slope_of_cube(x)) == 27.0
        with od.no_grad():
            assert in_thread(lambda: slope_of_cube(x)) == 27.0
        y = x * x
    assert len(tape) == 1
    assert float(tape.gradient(y, x)) == 6.0


def test_threads_sweep_tapes_of_their_own_and_gradients_of_shared_leaves_add_up_exactly():
    w = Variable(np.arange(1.0, 65.0), requires_grad=True)
    v = Variable(np.full(64, 2.0), requires_grad=True)
    threads, rounds = 8, 50
    barrier = threading.Barrier(threads)
    errors = []

    def work(k):
        try:
            barrier.wait()
            for _ in range(rounds):
                with GradientTape() as tape:
                    loss = (w * v * float(k)).sum()
                gradients = tape.backward(loss)
                assert (gradients[w] == 2.0 * k).all()
        except BaseException as error:
            errors.append(error)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(1, threads + 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert errors == []
    total = rounds * threads * (threads + 1) / 2
    np.testing.assert_array_equal(w.grad, np.full(64, 2.0 * total))
    np.testing.assert_array_equal(v.grad, np.arange(1.0, 65.0) * total)


@pytest.mark.slow
def test_reading_a_gradient_while_others_add_to_it_loses_nothing():
    w = Variable(np.ones(4096), requires_grad=True)
    done, rounds, threads = threading.Event(), 200, 4

    def read():
        while not done.is_set():
            w.grad  # noqa: B018 - the first reading makes the array the leaf's own

    def add():
        for _ in range(rounds):
            with GradientTape() as tape:
                loss = (w * 1.0).sum()
            kept = tape.backward(loss)
            assert len(kept) == 1

    reader, adders = threading.Thread(target=read), []
    reader.start()
    for _ in range(threads):
        adders.append(threading.Thread(target=add))
        adders[-1].start()
    for adder in adders:
        adder.join()
    done.set()
    reader.join()
    np.testing.assert_array_equal(w.grad, np.full(4096, float(rounds * threads)))


def test_async_tasks_have_tapes_of_their_own():
    async def one(k):
        x = leaf(float(k))
        with GradientTape() as tape:
            y = x * x
            await asyncio.sleep(0)
            with od.no_grad():
                await asyncio.sleep(0)
                assert not (x * x).requires_grad
            await asyncio.sleep(0)
            y = y * x
        await asyncio.sleep(0)
        return float(tape.gradient(y, x)), len(tape)

    async def everything():
        return await asyncio.gather(*(one(k) for k in range(1, 6)))

    assert asyncio.run(everything()) == [(3.0 * k * k, 0) for k in range(1, 6)]


def test_a_task_that_outlives_the_block_it_was_born_in_is_free_of_it():
    async def late(x, gate):
        await gate.wait()
        assert innermost_scope() is None
        return slope_of_cube(x)

    async def everything():
        x, gate = leaf(), asyncio.Event()
        with GradientTape() as tape:
            task = asyncio.create_task(late(x, gate))
            await asyncio.sleep(0)
            y = x * x
        gate.set()
        return await task, float(tape.gradient(y, x))

    assert asyncio.run(everything()) == (27.0, 6.0)


@pytest.mark.parametrize("sweep", ["backward", "gradient"])
def test_a_tape_may_be_handed_to_another_thread(sweep):
    x = leaf()
    with GradientTape() as tape:
        y = cube(x)
    if sweep == "gradient":
        assert float(in_thread(lambda: tape.gradient(y, x))) == 27.0
    else:
        in_thread(lambda: tape.backward(y))
        assert float(x.grad) == 27.0


def test_an_inner_tape_dropped_in_another_thread_leaves_the_outer_recording():
    x = leaf()
    with GradientTape() as outer:
        box = [GradientTape()]
        with box[0]:
            y = x * x
        in_thread(box.clear)
        z = y * x
    assert float(outer.gradient(z, x)) == 27.0


# ------------------------------------------------------------------ generators


def taping(x):
    with GradientTape() as tape:
        y = x * x
        yield tape
        y = y * x
        yield tape.gradient(y, x).item()


def pausing(x):
    with od.no_grad():
        yield x * x
        yield x * x


def throw(generator):
    with pytest.raises(KeyError):
        generator.throw(KeyError())


MAKERS = {"tape": taping, "no_grad": pausing}
ENDS = {
    "closed": lambda g: g.close(),
    "exhausted": lambda g: list(g),
    "thrown into": throw,
    "finished in a thread": lambda g: in_thread(lambda: list(g)),
    "closed in a thread": lambda g: in_thread(g.close),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_generator_that_ended_leaves_the_outer_recording_as_it_was(make, end):
    x = leaf()
    with GradientTape() as tape:
        before = x * x
        generator = make(leaf(2.0))
        next(generator)
        end(generator)
        assert innermost_scope() is tape._recording
        y = before * x
        assert y.requires_grad
    assert float(tape.gradient(y, x)) == 27.0
    assert slope_of_cube(x) == 27.0


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_abandoned_generator_leaves_the_outer_recording_as_it_was(make):
    x = leaf()
    with GradientTape() as tape:
        generator = make(leaf(2.0))
        next(generator)
        del generator
        y = cube(x)
    assert float(tape.gradient(y, x)) == 27.0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)], ids=str)
@pytest.mark.parametrize("pattern", ["tpt", "ptp", "ttt", "ppp"])
def test_generators_may_end_in_any_order(pattern, order):
    x = leaf()
    makers = {"t": taping, "p": pausing}
    with GradientTape() as tape:
        generators = [makers[letter](leaf(2.0)) for letter in pattern]
        for generator in generators:
            next(generator)
        for k in order:
            generators[k].close()
        assert innermost_scope() is tape._recording
        y = cube(x)
    assert float(tape.gradient(y, x)) == 27.0


def test_a_generators_own_gradient_is_right_while_others_come_and_go():
    x = leaf()
    first, second = taping(x), taping(x)
    next(first), next(second)
    assert float(next(first)) == 27.0
    assert float(next(second)) == 27.0
    first.close()
    second.close()


def test_a_suspended_generator_that_ends_after_the_outer_block_leaves_nothing():
    x = leaf()
    with GradientTape() as tape:
        generator = taping(leaf(2.0))
        next(generator)
        y = cube(x)
    assert float(tape.gradient(y, x)) == 27.0
    assert float(next(generator)) == 12.0
    generator.close()
    assert innermost_scope() is None
    assert slope_of_cube(x) == 27.0


def test_a_generator_collected_as_part_of_a_cycle_ends_its_pause():
    x, held = leaf(), []
    with GradientTape() as tape:
        generator = pausing(x)
        next(generator)
        held.append((held, generator))
        del generator, held
        gc.collect()
        y = cube(x)
    assert float(tape.gradient(y, x)) == 27.0

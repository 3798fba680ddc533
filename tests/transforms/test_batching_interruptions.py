"""Calls of vmap that end early, in several threads, or in the middle of generators."""

import asyncio
import contextvars
import sys
import threading

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import DTypeError, TapeError
from odyssey.table.scope import CONTEXT_IS_COPIED, scopes
from odyssey.table.store import MEMORY, store

RNG = np.random.default_rng(2)
X = RNG.normal(size=(4, 3))
W = RNG.normal(size=3)


def assert_nothing_is_left():
    assert store() is MEMORY
    assert scopes() == (None,)


def slopes_on_a_tape(w):
    def loss(x):
        carry, ys = od.scan(lambda c, z: (ops.tanh(c * w + z), c), x, np.ones((2, 3)))
        return (carry * carry).sum() + ys.sum()

    with GradientTape() as tape:
        slopes = od.vmap(od.grad(loss))(X)
        total = slopes.sum() + od.vmap(lambda x: (x * w).sum())(X).sum()
    return tape.gradient(total, w)


class _Interrupt:
    """A trace function that raises KeyboardInterrupt at one line of the library."""

    def __init__(self, at):
        self.lines, self.at = 0, at

    def __call__(self, frame, event, arg):
        if event == "line" and "odyssey" in frame.f_globals.get("__name__", ""):
            self.lines += 1
            if self.lines == self.at:
                raise KeyboardInterrupt
        return self


def test_an_interrupt_at_any_line_leaves_nothing_behind():
    w = Variable(W, requires_grad=True)
    before = sys.gettrace()
    wanted = slopes_on_a_tape(w)
    counter = _Interrupt(-1)
    sys.settrace(counter)
    try:
        slopes_on_a_tape(w)
    finally:
        sys.settrace(before)
    assert counter.lines > 1000
    for at in range(7, counter.lines, counter.lines // 5):
        sys.settrace(_Interrupt(at))
        try:
            with pytest.raises(KeyboardInterrupt):
                slopes_on_a_tape(w)
        finally:
            sys.settrace(before)
        assert_nothing_is_left()
        assert w.grad is None
    np.testing.assert_array_equal(slopes_on_a_tape(w), wanted)


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, RecursionError])
def test_an_exception_of_the_function_comes_out_as_it_is(kind):
    def inner(x):
        raise kind("mine")

    nested = od.vmap(lambda x: od.vmap(od.grad(inner))(ops.stack([x, x])))
    for call in (od.vmap(inner), od.vmap(od.grad(inner)), nested):
        with pytest.raises(kind, match="mine"):
            call(X)
        assert_nothing_is_left()
    np.testing.assert_array_equal(od.vmap(lambda x: x * 2)(X), 2 * X)


def test_endless_recursion_ends_as_in_python():
    def endless(x):
        return od.vmap(endless)(np.ones((2, 3))) * x

    with pytest.raises(RecursionError):
        od.vmap(endless)(X)
    assert_nothing_is_left()


def test_a_function_may_call_vmap_of_itself():
    def product(x, depth):
        if not depth:
            return x.sum()
        return od.vmap(lambda y: product(y * x, depth - 1))(np.full((2, 3), 1.5)).sum()

    found = od.vmap(lambda x: product(x, 4))(X)
    np.testing.assert_allclose(found, 2**4 * 1.5**4 * X.sum(1), rtol=1e-13)


# ------------------------------------------------------------------ threads and tasks


def test_eight_threads_run_vmap_at_once():
    w = Variable(W, requires_grad=True)
    wrong = []

    def work(seed):
        x = np.random.default_rng(seed).normal(size=(5, 3))
        loss = lambda x: (ops.sin(x * w) ** 2).sum()  # noqa: E731
        for _ in range(5):
            slopes = od.vmap(od.grad(loss))(x)
            with GradientTape() as tape:
                total = od.vmap(loss)(x).sum()
            outside = tape.gradient(total, w)
            half = np.sin(2 * x * W)
            wrong.append(np.abs(slopes - half * W).max() > 1e-12)
            wrong.append(np.abs(outside - (half * x).sum(0)).max() > 1e-12)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 80


USES = {
    "op": lambda x: x * 2,
    "key": lambda x: x[0],
    "reduction": lambda x: x.sum(),
    "grad": lambda x: od.grad(lambda y: (y * x).sum())(X[0]),
    "vmap": lambda x: od.vmap(lambda y: y * x)(X),
    "scan": lambda x: od.scan(lambda c, z: (c + z, c), 0.0, x),
    "array": np.asarray,
    "number": lambda x: float(x[0]),
}


@pytest.mark.parametrize("use", USES)
def test_a_value_is_of_no_use_in_another_thread_or_afterwards(use):
    held, found = [], []

    def work():
        try:
            USES[use](held[0])
        except TapeError as error:
            found.append(str(error))

    def fn(x):
        held.append(x)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x * 1.0

    od.vmap(fn)(X)
    work()
    assert len(found) == 2
    assert all("vmap" in text for text in found)
    assert_nothing_is_left()


def test_a_thread_in_a_copy_of_the_context_computes_for_all_examples():
    def fn(x):
        made = []
        context = contextvars.copy_context()
        thread = threading.Thread(target=lambda: made.append(context.run(lambda: ops.sin(x) * 2)))
        thread.start()
        thread.join()
        return made[0] + x

    np.testing.assert_allclose(od.vmap(fn)(X), 2 * np.sin(X) + X, rtol=1e-15)


def test_another_thread_sweeps_what_was_recorded_in_vmap():
    scaled = od.custom_vjp(lambda w, x: w * x)
    scaled.defvjp(lambda w, x: (w * x, x), lambda x, g: (ops.multiply(g, x) * 3, None))
    layer = od.checkpoint(lambda x: ops.sin(x))
    w, found = Variable(W, requires_grad=True), []
    with GradientTape() as tape:
        y = od.vmap(lambda x: layer(scaled(w, x)).sum())(X).sum()
    copied = list(CONTEXT_IS_COPIED)
    thread = threading.Thread(target=lambda: found.append(tape.gradient(y, w)))
    thread.start()
    thread.join()
    np.testing.assert_allclose(found[0], (3 * X * np.cos(W * X)).sum(0), rtol=1e-13)
    assert copied == CONTEXT_IS_COPIED


def test_tasks_take_turns_in_their_own_calls():
    async def task(scale):
        await asyncio.sleep(0)
        found = od.vmap(od.grad(lambda x: (scale * x * x).sum()))(X)
        await asyncio.sleep(0)
        return found

    async def main():
        return await asyncio.gather(*[task(float(k)) for k in range(4)])

    for k, found in enumerate(asyncio.run(main())):
        np.testing.assert_array_equal(found, 2.0 * k * X)
    assert_nothing_is_left()


# ------------------------------------------------------------------ generators of Python


def test_a_generator_that_is_left_in_the_middle_ends_outside():
    def entered():
        with GradientTape():
            yield 1

    def fn(x):
        generators.append(entered())
        next(generators[-1])
        return x * 2

    generators = []
    np.testing.assert_array_equal(od.vmap(fn)(X), 2 * X)
    assert_nothing_is_left()
    for generator in generators:
        generator.close()
    assert_nothing_is_left()


def test_calls_of_vmap_between_the_steps_of_a_generator_are_its_own():
    def rows():
        for x in X:
            with GradientTape() as tape:
                v = tape.watch(x)
                y = od.vmap(lambda s, v=v: s * (v * v).sum())(np.arange(3.0)).sum()
                yield
            yield tape.gradient(y, v)

    one, other = rows(), rows()
    found = [(next(one), next(other), next(one), next(other)) for _ in X]
    for x, (_, _, first, second) in zip(X, found, strict=True):
        np.testing.assert_allclose(first, 6 * x, rtol=1e-14)
        np.testing.assert_allclose(second, 6 * x, rtol=1e-14)
    assert_nothing_is_left()


def test_a_generator_function_is_refused():
    def yields(x):
        yield x

    with pytest.raises(DTypeError, match="vmap: the result of the function is a generator"):
        od.vmap(yields)(X)

"""What is remembered from call to call has an end: after thousands of new ones memory is flat."""

import gc
import tracemalloc

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops, spec
from odyssey.errors import ShapeError

RNG = np.random.default_rng(0)
W = Variable(np.ones(3), requires_grad=True)
RATE = Variable(np.ones(3), requires_grad=True)
OPTIMIZER = od.optim.Adam([RATE], learning_rate=1.0)
COMPILED = od.compile(lambda x, factor: (x * factor).sum())


def sweep(result):
    def run(*args):
        with GradientTape() as tape:
            y = ops.sum(result(*args))
        tape.gradient(y, W)

    return run


def shapes(k):
    x = Variable(np.ones((1 + k % 100, 1 + k // 100)), requires_grad=True)
    with GradientTape() as tape:
        y = (x * 2.0).sum()
    tape.gradient(y, x)


def failing_shapes(k):
    with pytest.raises(ShapeError):
        ops.add(np.ones(2), np.ones(3 + k))


def custom_rules(k):
    f = od.custom_vjp(lambda x: x * 2.0)
    f.defvjp(lambda x: (x * 2.0, None), lambda kept, g: (g * 2.0,))
    sweep(lambda: f(W))()


def ops_from_outside(k):
    @od.op(elementwise=True, vjp={"x": lambda g, x: ops.mul(g, x)})
    def line(x, /):
        return x * 1.0

    sweep(lambda: line(W))()


def learning_rates(k):
    OPTIMIZER.learning_rate = 1.0 / (k + 1)
    RATE.grad = np.ones(3)
    OPTIMIZER.step()


def optimizers(k):
    p = Variable(np.ones(3), requires_grad=True)
    p.grad = np.ones(3)
    od.optim.Adam([p], learning_rate=1e-3 * (1 + k)).step()


NEW = {
    "shapes": shapes,
    "shapes that fail": failing_shapes,
    "counts of arrays": sweep(lambda k: ops.concatenate([W] * (2 + k % 40))),
    "mixes of operands": sweep(
        lambda k: ops.stack([W, *(W if on else np.ones(3) for on in RNG.integers(0, 2, 24))])
    ),
    "options": sweep(lambda k: ops.clip(W, -float(k), float(k))),
    "indices": sweep(lambda k: W[[k % 3] * (k % 7)]),
    "functions for grad": lambda k: od.grad(lambda x: (x * float(k)).sum())(np.ones(2)),
    "functions for vjp": lambda k: od.vjp(lambda x: x * float(k), np.ones(2))[1](np.ones(2)),
    "functions for checkpoint": sweep(lambda k: od.checkpoint(lambda x: x * float(k))(W)),
    "functions for compile": lambda k: od.compile(lambda x: x * float(k))(np.ones(2)),
    "numbers for a compiled function": lambda k: COMPILED(np.ones(3), float(k)),
    "shapes for a compiled function": lambda k: COMPILED(np.ones(k + 1), 2.0),
    "rules of one's own": custom_rules,
    "ops from outside": ops_from_outside,
    "learning rates": learning_rates,
    "optimizers": optimizers,
}
# These fill the table of specs, which holds 4096 of some 240 bytes, and is emptied then.
FILL_SPECS = {"shapes", "shapes that fail", "shapes for a compiled function"}


def growth(work, start, count):
    """Bytes that stay for each of ``count`` new ones."""
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for k in range(start, start + count):
            work(k)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (after - before) / count


def training_step():
    """Return a step of training on a batch."""
    w = Variable(RNG.normal(size=(3, 4)), requires_grad=True)
    optimizer = od.optim.Adam([w], learning_rate=1e-3)

    def step(x, wanted):
        with GradientTape() as tape:
            loss = ((ops.tanh(x @ w) - wanted) ** 2).mean()
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def eager_step():
    step = training_step()
    return lambda k: step(np.full((5, 3), k * 1e-3), np.ones((5, 4)))


def compiled_step():
    step = od.compile(training_step())

    def run(k):
        step(np.full((5, 3), k * 1e-3), np.ones((5, 4)))
        assert k < 3 or step.statistics().native

    return run


def failing_step(make):
    """Return a step that fails after each one that does not."""

    def run(k):
        step(k)
        with pytest.raises(ShapeError):
            ops.add(np.ones(2), leaf)
        with pytest.raises(ShapeError), GradientTape() as tape:
            tape.backward((leaf * 2.0) @ np.ones(2))

    step, leaf = make(), Variable(np.ones(3), requires_grad=True)
    return run


# Each with a number of steps, and the bytes that one may leave: an array takes 112, a float 24.
STEPS = {
    "eager": (eager_step, 200, 5),
    "compiled": (compiled_step, 200, 5),
    "eager, with failures between": (lambda: failing_step(eager_step), 200, 100),
    "compiled, with failures between": (lambda: failing_step(compiled_step), 200, 100),
}


@pytest.mark.share(1)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if "failures" in name else []) for name in STEPS],
)
def test_after_some_hundred_steps_of_training_objects_and_memory_are_as_many_as_before(name):
    make, count, left = STEPS[name]
    run = make()
    for k in range(10):
        run(k)
    gc.collect()
    objects = len(gc.get_objects())
    assert growth(run, 10, count) <= left
    assert len(gc.get_objects()) <= objects + 5


@pytest.mark.slow
@pytest.mark.share(2)
@pytest.mark.parametrize("name", [name for name in NEW if name not in FILL_SPECS])
def test_after_five_hundred_new_ones_memory_has_hardly_grown(name):
    for k in range(200):
        NEW[name](k)
    assert growth(NEW[name], 200, 500) <= 100


@pytest.mark.soak
@pytest.mark.parametrize("name", NEW)
def test_after_ten_thousand_new_ones_memory_has_hardly_grown(name):
    for k in range(200):
        NEW[name](k)
    table = 4096 * 250 / 10_000 if name in FILL_SPECS else 0  # bytes of it for each new one
    assert growth(NEW[name], 200, 10_000) <= 100 + table


def test_the_table_of_specs_is_emptied_when_it_is_full():
    for k in range(2 * spec._LIMIT):
        spec.intern((k, 1), np.dtype(float))
        assert len(spec._INTERNED) <= spec._LIMIT

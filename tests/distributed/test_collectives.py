"""Collectives as rows: derivatives over all ranks, batches of examples, and traces."""

import pytest

from support.ranks import run_ranks

DERIVATIVES = """
import numpy as np
import odyssey as od
from odyssey import GradientTape, Variable, ops

group = od.distributed.world()
rank, size = group.rank, group.size

def numbers(seed, *shape):
    return np.random.default_rng(100 * seed + rank).normal(size=shape)

COLLECTIVES = {
    "all_reduce": (lambda x: group.all_reduce(x), (3, 4)),
    "all_reduce, large": (lambda x: group.all_reduce(x), (30, 40)),
    "all_reduce, fast": (lambda x: group.all_reduce(x, "fast"), (3, 4)),
    "all_gather": (lambda x: group.all_gather(x), (3, 4)),
    "reduce_scatter": (lambda x: group.reduce_scatter(x), (size, 3, 4)),
    "broadcast": (lambda x: group.broadcast(x, size - 1), (3, 4)),
    "broadcast, large": (lambda x: group.broadcast(x, 0), (30, 40)),
    "shift": (lambda x: group.shift(x), (3, 4)),
    "shift back": (lambda x: group.shift(x, -3), ()),
}

def over_all(value):
    return float(group.all_reduce(np.float64(value)))

if size > 2:  # of the rest, the number of ranks decides nothing
    del COLLECTIVES["all_reduce, fast"], COLLECTIVES["broadcast, large"]
for name, (collective, shape) in COLLECTIVES.items():
    x, direction, other = (numbers(seed, *shape) for seed in range(3))
    weights = numbers(3, *np.shape(collective(x)))

    def loss(v):  # another one on each rank
        return ops.sum(ops.tanh(collective(ops.sin(v))) * weights)

    # The derivative of the sum of all losses along a direction of all ranks' operands.
    step = 1e-5
    slope = (over_all(loss(x + step * direction)) - over_all(loss(x - step * direction))) / step / 2
    gradient = od.grad(loss)(x)
    assert abs(over_all((gradient * direction).sum()) - slope) < 1e-7 * max(1, abs(slope)), name
    assert abs(over_all(od.jvp(loss, (x,), (direction,))[1]) - slope) < 1e-7 * max(1, abs(slope))
    w = Variable(x, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        value = loss(w)
    tape.backward(value)
    assert np.array_equal(w.grad, gradient)

    # Second order, forward over reverse, and reverse over reverse.
    product = od.jvp(od.grad(loss), (x,), (direction,))[1]
    difference = (
        od.grad(loss)(x + step * direction) - od.grad(loss)(x - step * direction)
    ) / (2 * step)
    assert np.allclose(product, difference, rtol=1e-6, atol=1e-7), name
    twice = od.grad(lambda v: ops.sum(od.grad(loss)(v) * direction))(x)
    assert np.allclose(twice, product, rtol=1e-12, atol=1e-12), name

    # Transposes: <f(x), y> = <x, f'(y)> over all ranks.
    out, pullback = od.vjp(collective, x)
    y = numbers(4, *out.shape)
    assert np.isclose(over_all((out * y).sum()), over_all((x * pullback(y)).sum()), rtol=1e-12)

    # Batches of examples.
    batch = numbers(5, 5, *shape)
    one_by_one = np.stack([collective(example) for example in batch])
    assert np.array_equal(od.vmap(collective)(batch), one_by_one), name
    last = od.vmap(collective, in_axes=-1, out_axes=-1)(np.moveaxis(batch, 0, -1))
    assert np.array_equal(np.moveaxis(last, -1, 0), one_by_one), name
    gradients = np.stack([od.grad(loss)(example) for example in batch])
    assert np.allclose(od.vmap(od.grad(loss))(batch), gradients, rtol=1e-13), name
    # Recomputed in the sweep.
    assert np.array_equal(od.grad(od.checkpoint(loss))(x), gradient)

    # Complex: the gradient of a real loss is conjugate.
    z = numbers(6, *shape) + 1j * numbers(7, *shape)

    def power(v):
        made = collective(v)
        return ops.sum(ops.real(made) ** 2 + ops.imag(made) ** 2)

    along = numbers(8, *shape) + 1j * numbers(9, *shape)
    slope = (over_all(power(z + step * along)) - over_all(power(z - step * along))) / step / 2
    found = over_all((np.conj(od.grad(power)(z)) * along).real.sum())
    assert abs(found - slope) < 1e-7 * max(1, abs(slope)), name

jacobian = od.jacobian(lambda v: group.all_reduce(v))(np.ones(2))
assert np.array_equal(jacobian, size * np.eye(2))
# Gradients in halves are summed in float32, and rounded once.
half = od.grad(lambda v: ops.sum(group.all_reduce(v)))(np.ones(3, np.float16))
assert half.dtype == np.float16 and half.tolist() == [size] * 3
# A pole in the branch that is not taken, on one rank: no rank waits for another.
x = np.array([0.0, 1.0, 2.0]) if rank == 0 else np.array([3.0, 1.0, 2.0])
safe = od.grad(lambda v: ops.sum(ops.where(group.all_reduce(v) > 0, ops.log(v), 0.0)))(x)
assert group.all_gather(safe).shape == (size, 3)
group.print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_derivatives_are_those_of_the_sum_of_all_losses(size):
    result = run_ranks(size, DERIVATIVES)
    assert result.status == 0, result.stderr
    assert result.stdout == "done\n"


TRACES = """
import warnings
import numpy as np
import odyssey as od
from odyssey import ops
from odyssey.errors import CompileError, CompileWarning, TapeError

group = od.distributed.world()
rank, size = group.rank, group.size
x, constant = np.arange(4.0) + rank, np.arange(4.0) * (rank + 1)
total = sum(np.arange(4.0) * (r + 1) for r in range(size))

def calls_compiled(fn, expected):
    step = od.compile(fn)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Ranks may trace at different calls: here rank 0 alone sees another shape in between.
        for _ in range(3):
            assert np.allclose(step(x), expected(x))
        if rank == 0:
            longer = np.concatenate([x, x])
            other = od.compile(lambda v: v * 2)
            assert np.allclose(other(longer), longer * 2)
    return [str(w.message) for w in caught if isinstance(w.message, CompileWarning)]

texts = calls_compiled(lambda v: ops.sum(group.all_reduce(v * v)),
    lambda v: sum(((np.arange(4.0) + r) ** 2).sum() for r in range(size)))
assert len(texts) == 1 and "all_reduce has a side effect" in texts[0], texts
# A collective of what the trace knows: nothing is sent while one rank traces.
texts = calls_compiled(lambda v: v * group.all_reduce(constant), lambda v: v * total)
assert len(texts) == 1 and "all_reduce has a side effect" in texts[0], texts
texts = calls_compiled(
    lambda v: od.vmap(lambda u: u * group.all_reduce(constant)[:1])(v[:, None])[:, 0],
    lambda v: v * total[:1])
assert len(texts) == 1, texts
printed = []

def meets(v):
    group.barrier()
    group.agree(np.ones(2))
    group.print("met")
    return v * group.rank + group.size

texts = calls_compiled(meets, lambda v: v * rank + size)
assert len(texts) == 1 and "Group.barrier has a side effect" in texts[0], texts

# One rank alone meets new shapes, again and again: it traces, and the others do not.
step = od.compile(lambda v: v.sum() * group.all_reduce(constant), warn=False)
for k in range(1, 6):
    v = np.ones(k if rank == 0 else 1)
    assert np.allclose(step(v), (k if rank == 0 else 1) * total)
# What a program cannot hold is refused at the first call, before anything is sent.
step = od.compile(lambda v: v * float(group.all_reduce(constant)[1]))
try:
    step(x)
    raise AssertionError("read while traced")
except TapeError as error:
    assert "has no value while a graph is traced" in str(error)
flat = np.ones(8)
step = od.compile(lambda v: v * group.sum_slices(flat).sum())
try:
    step(x)
    raise AssertionError("called while traced")
except TapeError as error:
    assert "sum_slices: a collective called while a graph is traced" in str(error)
group.barrier()  # not broken
step = od.compile(lambda v: group.shift(v), fullgraph=True)
try:
    for _ in range(3):
        step(x)
    raise AssertionError("compiled")
except CompileError as error:
    assert "shift has a side effect" in str(error)
# The numbers of a group are constants of a program.
step = od.compile(lambda v: v * group.rank + group.size, fullgraph=True)
for _ in range(3):
    assert np.array_equal(step(x), x * rank + size)
graph = str(od.compile(lambda v: group.all_gather(v), warn=False).lower(x).graph)
assert f"float64[{size}, 4] = all_gather(" in graph and "side effect" in graph, graph

def body(carry, row):
    carry = carry + group.all_reduce(row)
    return carry, carry

rows = np.ones((3, 2)) * (rank + 1)
for _ in range(3):
    assert np.array_equal(od.scan(body, np.zeros(2), rows)[0], [3 * size * (size + 1) / 2] * 2)
group.print("done")
"""


@pytest.mark.slow
def test_compiled_functions_with_collectives_run_as_python_and_nobody_waits():
    result = run_ranks(2, TRACES)
    assert result.status == 0, result.stderr
    assert [line for line in result.stdout.splitlines() if line != "met"] == ["done"]
    assert result.stdout.count("met") == 3

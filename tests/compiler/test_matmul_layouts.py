"""Products of matrices that lie in memory in any way, as native code, against NumPy's.

All numbers are whole and small, so that products are exact in any order.
"""

import itertools
import random

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.codegen import matmul
from odyssey.compiler.runtime.executable import RAN, Executable
from odyssey.compiler.ways import products
from odyssey.devices.copy_on_write import StateMemory, packed_view
from support.bounded import within_bounds
from support.compiled_programs import run
from support.programs import seeded

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")


def emptied(executable):
    """Arrays for the results of a program."""
    return [np.empty(shape, dtype) for shape, dtype in executable.outputs]


def compiled(function, *arrays):
    """What a program gives for arrays."""
    executable = Executable(od.compile(function).lower(*arrays).graph)
    results = emptied(executable)
    assert not executable.calls
    assert executable.start(*executable.canonical_args(arrays), *results) == RAN
    return results[0]


def seen(kind, shape):
    """The shape of an array, and how it is seen as one of ``shape``."""
    *batch, m, n = shape
    return {
        "plain": (shape, lambda x: x),
        "turned": ((*batch, n, m), lambda x: ops.swapaxes(x, -1, -2)),
        "rows reversed": (shape, lambda x: x[..., ::-1, :]),
        "columns reversed": (shape, lambda x: x[..., ::-1]),
        "every other row": ((*batch, 2 * m, n), lambda x: x[..., ::2, :]),
        "every other column": ((*batch, m, 2 * n), lambda x: x[..., ::2]),
        "few of both": ((*batch, 2 * m, 3 * n), lambda x: x[..., ::-2, ::3]),
        "one row": ((*batch, 1, n), lambda x: ops.broadcast_to(x, shape)),
        "one column": ((*batch, m, 1), lambda x: ops.broadcast_to(x, shape)),
        "a part": ((*batch, m + 3, n + 2), lambda x: x[..., 1 : m + 1, 2:]),
        "one matrix": ((m, n), lambda x: ops.broadcast_to(x, shape)),
        "batch last": ((m, n, *batch), lambda x: ops.moveaxis(x, (0, 1), (-2, -1))),
    }[kind]


VIEWS = (
    *("plain", "turned", "rows reversed", "columns reversed", "every other row"),
    *("every other column", "few of both", "one row", "one column", "a part", "one matrix"),
    "batch last",
)


def placed(down, along):
    """What puts a product into zeros, so many rows and columns apart; backward where below 0."""

    def after(z):
        *batch, m, n = z.shape
        whole = np.zeros((*batch, m * abs(down), n * abs(along)), z.dtype)
        return od.vjp(lambda v: v[..., ::down, ::along], whole)[1](z)[0]

    return after


AFTER = {
    "itself": lambda z: z,
    "rows first": lambda z: ops.reshape(ops.moveaxis(z, (-2, -1), (0, 1)), (-1,)),
    "columns first": lambda z: ops.reshape(ops.moveaxis(z, (-1, -2), (0, 1)), (-1,)) * 2.0,
    "rows reversed": placed(-1, 1),
    "columns reversed": placed(1, -1),
    "every other row": placed(2, 1),
    "few of both": placed(2, -3),
    "every other column": placed(1, -2),
    "joined": lambda z: ops.moveaxis(ops.concatenate([z, z * 2.0], -1), (-2, -1), (0, 1)) * 1.0,
    "joined and turned": lambda z: ops.swapaxes(ops.concatenate([z, z[..., ::-1, :]], -2), -1, -2),
    "turned": lambda z: ops.swapaxes(z, -1, -2),
    "doubled": lambda z: z * 2.0,
    "summed": lambda z: ops.sum(z, tuple(range(z.ndim - 2))) if z.ndim > 2 else z,
}


def whole(rng, shape, dtype):
    """Whole numbers; of complex ones both parts."""
    made = rng.integers(-5, 6, shape).astype(dtype)
    return made + made.dtype.type(1j) * rng.integers(-5, 6, shape) if dtype in "FD" else made


def check(kinds, sizes, batches, after, dtype, rng):
    m, n, k = sizes
    (of_a, see_a), (of_b, see_b) = (
        seen(kind, (*batch, *shape))
        for kind, batch, shape in zip(kinds, batches, ((m, k), (k, n)), strict=True)
    )
    x, y = (whole(rng, shape, dtype) for shape in (of_a, of_b))

    def function(x, y):
        return AFTER[after](see_a(x) @ see_b(y))

    assert np.array_equal(compiled(function, x, y), function(x, y))


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(6), ids=lambda k: f"seed {k}")
def test_products_of_any_views_are_those_of_numpy(chunk):
    choose, rng = random.Random(chunk), np.random.default_rng(chunk)
    for _ in range(20):
        sizes = [choose.choice([1, 2, 3, 17, 33, 40]) for _ in range(3)]
        batch = choose.choice([(), (2,), (3, 2)])
        batches = choose.choice([(batch, batch), (batch, ()), ((), batch)])
        kinds = choose.choices(VIEWS, k=2)
        check(kinds, sizes, batches, choose.choice([*AFTER]), choose.choice("fdFD"), rng)


@pytest.mark.parametrize("kind", VIEWS)
def test_single_rows_and_columns_of_a_batch_are_multiplied_where_they_lie(kind):
    # Large enough for BLAS: a batch of them is no matrix where each of them is one.
    rng = np.random.default_rng(1)
    for other in [(2,), ()]:
        for double, single in ("df", "DF"):
            check((kind, "plain"), (1, 150, 33), ((2,), other), "itself", double, rng)
            check(("plain", kind), (150, 1, 33), (other, (2,)), "turned", single, rng)


@pytest.mark.parametrize("dtype", "dD")
@pytest.mark.parametrize("turned", [False, True], ids=["as it is", "turned"])
@pytest.mark.parametrize("m", [1, 20])
def test_a_state_that_a_product_is_added_to_is_written_where_it_lies(m, turned, dtype):
    rng = np.random.default_rng(2)
    x, y, before = (whole(rng, s, dtype) for s in ((m, 30), (30, 25), (m, 25)))
    v = od.Variable(before.T.copy() if turned else before.copy())

    def step(x, y):
        product = x @ y
        v.assign(v * 0.5 + (product.T if turned else product))
        return product

    executable = Executable(od.compile(step).lower(x, y).graph)
    results = emptied(executable)
    assert executable.start(*executable.canonical_args([x, y]), *results) == RAN
    if len(executable.module.steps) > 1:
        executable.rest()
    expected = before * 0.5 + x @ y
    assert np.array_equal(v.numpy(), expected.T if turned else expected)
    assert np.array_equal(results[0], x @ y)


@pytest.mark.slow
@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("dtype", "fD")
def test_a_product_is_written_where_it_belongs_or_copied_there(after, dtype):
    rng = np.random.default_rng(4)
    for sizes, batch in itertools.product(
        [(20, 30, 40), (2, 3, 2), (1, 70, 90)], [(), (3,), (2, 3)]
    ):
        check(("plain", "turned"), sizes, (batch, batch), after, dtype, rng)


STATES = {
    "rows reversed": lambda whole: whole[:20, :25][::-1],
    "columns reversed": lambda whole: whole[:20, :25][:, ::-1],
    "few of both": lambda whole: whole[::2, ::3],
    "turned": lambda whole: whole[:25, :20].T,
    "a part": lambda whole: whole[3:23, 5:30],
}


@pytest.mark.parametrize("kind", STATES)
def test_a_product_becomes_a_state_wherever_that_lies(kind):
    rng = np.random.default_rng(5)
    memory = rng.normal(size=(40, 75))
    before = memory.copy()
    v = od.Variable(np.zeros((20, 25)))
    v._array = packed_view(STATES[kind](memory.view(StateMemory)))  # which programs write in place
    x, y = rng.integers(-5, 6, (20, 40)).astype("d"), rng.integers(-5, 6, (40, 25)).astype("d")
    step = od.compile(lambda x, y: v.assign(x @ y))
    for k in range(1, 5):
        step(x * k, y)
        assert np.array_equal(v.numpy(), k * (x @ y))
    assert step.statistics().native == 3
    STATES[kind](before)[...] = 4 * (x @ y)
    assert np.array_equal(memory, before)


@pytest.mark.parametrize("kind", STATES)
def test_a_product_and_a_view_read_what_became_a_state_wherever_that_lies(kind):
    rng = np.random.default_rng(6)
    v = od.Variable(STATES[kind](np.zeros((40, 75))))
    y = rng.integers(-5, 6, (25, 40)).astype("d")

    def step(x):
        v.assign(x * 2.0)
        return v @ y, ops.swapaxes(v, 0, 1) @ v, ops.reshape(v, (-1,)) * 1.0, v + 1.0

    compiled = od.compile(step)
    for _ in range(4):
        x = rng.integers(-5, 6, (20, 25)).astype("d")
        got = [one.numpy() for one in compiled(x)]
        wanted = (2 * x) @ y, 4 * x.T @ x, 2 * x.reshape(-1), 2 * x + 1.0
        assert all(map(np.array_equal, got, wanted))
        assert np.array_equal(v.numpy(), 2 * x)
    assert compiled.statistics().native == 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_steps_whose_products_all_are_the_librarys(seed, monkeypatch):
    # Those of small matrices are loops else, which write anywhere.
    monkeypatch.setattr(products, "SMALL", -1)
    with within_bounds():
        run(seeded(1000 + seed, 100), seed)


def test_sizes_that_the_library_cannot_be_told_are_multiplied_by_loops(monkeypatch):
    rng = np.random.default_rng(3)
    x, y = (rng.integers(-5, 6, s).astype("f") for s in ((20, 50), (50, 30)))
    called = []
    for largest in (50, 49):
        monkeypatch.setattr(matmul, "max_blas_size", lambda largest=largest: largest)
        program = Executable(od.compile(lambda x, y: x @ y).lower(x, y).graph)
        results = emptied(program)
        assert program.start(*program.canonical_args([x, y]), *results) == RAN
        assert np.array_equal(results[0], x @ y)
        called.append("call void @ody_sgemm" in program.module.text)
    assert called == [True, False]

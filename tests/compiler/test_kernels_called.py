"""Programs call kernels that are faster than what they would write themselves."""

import gc

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.runtime import host_calls
from odyssey.table import kernel_selection
from support.executables import run

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = pytest.mark.share(14)

RNG = np.random.default_rng(0)


def called(fn, *args):
    """What a program gives, and which kernels it calls."""
    _, (got,), made = run(fn, *args)
    return got, set(made.calls)


def images(channels, dtype="f4"):
    """Images that tiles of 2 by 2 results cover, 128 of them, and windows of 3 by 3."""
    shapes = (2, channels, 16, 16), (channels, channels, 3, 3)
    return [RNG.normal(size=shape).astype(dtype) for shape in shapes]


CONVOLUTIONS = {
    "conv2d": lambda x, w: ops.conv2d(x, w, padding=1),
    "convolution_input": lambda y, w: ops.convolution_input(y, w, size=16, padding=1),
    "convolution_weight": lambda y, x: ops.convolution_weight(y, x, window=3, padding=1),
}


def operands_of(name, channels, dtype="f4"):
    x, w = images(channels, dtype)
    return (x[::-1].copy(), x) if name == "convolution_weight" else (x, w)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_by_tiles_are_called_and_give_their_bits(name, dtype):
    pytest.importorskip("numba")
    operands = operands_of(name, 64, dtype)
    got, names = called(CONVOLUTIONS[name], *operands)
    assert names == {name}
    np.testing.assert_array_equal(got, CONVOLUTIONS[name](*operands))


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_others_are_written(name, monkeypatch):
    assert called(CONVOLUTIONS[name], *operands_of(name, 31))[1] == set()
    monkeypatch.setattr(
        kernel_selection, "SIZE_FACTOR", [np.inf]
    )  # as ODYSSEY_KERNELS=numpy has it
    operands = operands_of(name, 64)
    got, names = called(CONVOLUTIONS[name], *operands)
    assert names == set()
    wanted = CONVOLUTIONS[name](*[x.astype("f8") for x in operands])
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.slow
def test_a_training_step_with_such_kernels_is_the_eager_one():
    pytest.importorskip("numba")
    x, _ = images(32)
    filters = RNG.normal(size=(32, 32, 3, 3)) * 0.05

    def trained(wrap):
        w = od.Variable(filters.astype("f4"), requires_grad=True)
        optimizer = od.optim.SGD([w], learning_rate=1e-4, momentum=0.9)

        @wrap
        def step(x):
            optimizer.zero_grad()
            with od.GradientTape() as tape:
                loss = (ops.relu(ops.conv2d(ops.conv2d(x, w, padding=1), w, padding=1)) ** 2).mean()
            tape.backward(loss)
            optimizer.step()
            return loss

        return [float(step(x)) for _ in range(5)], w.numpy()

    (losses, w), (wanted, v) = trained(od.compile), trained(lambda fn: fn)
    assert losses[4] < losses[0]
    np.testing.assert_allclose(losses, wanted, rtol=1e-6)
    np.testing.assert_allclose(w, v, rtol=0, atol=1e-6 * np.abs(v).max())


PLACES = {"argmax": ops.argmax, "argmin": ops.argmin}


@pytest.mark.parametrize("shape", [(5, 255), (5, 1000), (5, 120_000), (3000, 255)], ids=str)
@pytest.mark.parametrize("axis", [-1, 0, None])
@pytest.mark.parametrize("name", PLACES)
def test_places_in_long_lines_are_called_and_are_those_of_numpy(name, axis, shape):
    x = RNG.integers(-20, 20, shape).astype("f4")
    x[1, 17] = x[2, 30] = x[2, -1] = np.nan
    got, names = called(lambda x: PLACES[name](x, axis), x)
    np.testing.assert_array_equal(got, getattr(np, name)(x, axis))
    long = axis is None or (axis == -1 and shape[1] > 255)
    assert names == ({name} if long and x.nbytes > 1 << 21 else set())


def test_places_in_halves_and_in_lines_of_a_vocabulary_are_compiled():
    for dtype in ("f2", "f4"):
        x = RNG.normal(size=(1, 1 << 18)).astype(dtype)
        got, names = called(lambda x: ops.argmax(x, -1), x)
        assert (int(got[0]), names) == (int(x.argmax()), set())
    x = RNG.normal(size=(2, 1 << 20)).astype("f2")
    got, names = called(lambda x: ops.argmax(x, -1), x)
    np.testing.assert_array_equal(got, x.argmax(-1))
    assert names == set()


@pytest.mark.parametrize("shape", [(100, 100), (10_000, 4), (20_000,)], ids=str)
def test_products_of_all_others_are_called_where_there_are_many_of_many(shape):
    pytest.importorskip("numba")
    x = RNG.uniform(0.9, 1.1, shape)
    got, names = called(lambda x: ops.prod_others(x, axis=-1), x)
    np.testing.assert_allclose(got, x.prod(-1, keepdims=True) / x, rtol=1e-10)
    assert names == ({"prod_others"} if shape == (100, 100) else set())


def test_a_sort_is_numpys_and_its_order_another_call():
    x = RNG.normal(size=(5, 40))
    got, names = called(ops.sort, x)
    np.testing.assert_array_equal(got, np.sort(x))
    assert names == {"sort"}
    slope, names = called(od.grad(lambda x: ops.sum(ops.sort(x) * np.arange(40.0))), x)
    np.testing.assert_array_equal(slope, np.argsort(np.argsort(x)))
    assert names == {"sort", "argsort"}


def test_a_kernel_is_given_what_numpy_need_not_copy(monkeypatch):
    seen, row = [], ops.OPS["argmax"]
    kernel = row.kernel

    def looking(x, *options):
        seen.append((x.flags.writeable, x.flags.c_contiguous, x.flags.aligned))
        return kernel(x, *options)

    monkeypatch.setattr(row, "kernel", looking)
    assert called(lambda x: ops.argmax(x * 2.0), np.arange(3e5)) == (299_999, {"argmax"})
    assert seen == [(True, True, True)]


@pytest.mark.slow
def test_what_an_op_from_outside_keeps_stays_as_it_was():
    kept = {}

    @od.op(infer=lambda x: x)
    def keeping(x, /):
        if x[0] > 1:
            kept[float(x[0])] = x
        return x * 1.0

    compiled = od.compile(lambda x: keeping(x + 1.0) * 2.0)
    for k in range(8):
        np.testing.assert_array_equal(compiled(np.full(1000, float(k))), 2.0 * (k + 1))
    assert compiled.statistics().native > 0
    del compiled
    gc.collect()
    assert len(kept) == 7
    for number, array in kept.items():
        assert array.flags.owndata  # and is not of a program, which may be gone
        np.testing.assert_array_equal(array, number)


def noting(fn, found):
    def noted(*values):
        found.append(fn(*values))
        return found[-1]

    return noted


@pytest.mark.parametrize(
    "gives", [lambda x, /: x * 1j, lambda x, /: x[:2], lambda x, /: x.astype("f4")]
)
def test_an_op_from_outside_that_does_not_give_what_it_said_runs_as_it_was_written(
    gives, monkeypatch
):
    row = od.op(infer=lambda x: x)(gives)
    called = []

    def fn(x):
        return row(x + 1.0) * 2.0

    compiled, x = od.compile(fn), np.arange(4.0)
    monkeypatch.setattr(
        host_calls, "_check_result_specs", noting(host_calls._check_result_specs, called)
    )
    for _ in range(4):
        got, wanted = compiled(x), fn(x)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    assert called == [False]  # once by a program, and never again

"""One program for all sizes: values are those of the function, and nothing is compiled anew."""

import copy
import re

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.machine.jit import unavailable_reason
from odyssey.compiler.schedule import work_partition
from odyssey.errors import DTypeError, MissingGradientError, SettingError, ShapeError

pytestmark = [
    pytest.mark.share(14),
    pytest.mark.skipif(unavailable_reason() is not None, reason=str(unavailable_reason())),
]

BATCH = od.Dim("batch", 1, 4096)
SIZES = (8, 12, 10, 11, 12, 3, 2, 64, 65, 100, 7, 5, 6, 4, 1, 200, 48, 49)
WIDTH = 7
WEIGHTS = np.random.default_rng(3).normal(size=(WIDTH, 3)).astype(np.float32)
KERNEL = np.random.default_rng(5).normal(size=(4, WIDTH, 3)).astype(np.float32)
TABLE = od.Variable(np.random.default_rng(4).normal(size=(5, WIDTH)), requires_grad=True)
OTHER = od.Variable(np.ones((5, WIDTH)))


def attention(x):
    length = x.shape[0]
    scores = x @ x.T / np.float32(np.sqrt(WIDTH))
    mask = np.tril(np.ones((length, length), bool))
    return ops.softmax(ops.where(mask, scores, np.float32(-1e9)), axis=-1) @ x


def gradient_of_a_leaf(x):
    with od.GradientTape() as tape:
        loss = ((x @ ops.transpose(TABLE)) ** 2).mean()
    return tape.gradient(loss, TABLE)


def second_order(x):
    def inner(w):
        return (ops.tanh(x @ w) ** 3).mean()

    return od.grad(lambda w: (od.grad(inner)(w) ** 2).sum())(WEIGHTS)


def zeros_around(column):
    return np.square(ops.pad(column, ((0, 0), (1, 2))).T[:, None])


ONE_PROGRAM = {
    "attention": attention,
    "a gradient": gradient_of_a_leaf,
    "a second derivative": second_order,
    "a gradient of slices": lambda x: od.grad(lambda v: (v[1:] * v[:-1]).sum())(x),
    "softmax along it": lambda x: ops.softmax(x, axis=0),
    "softmax across it": lambda x: ops.softmax(x, axis=1),
    "layer_norm": lambda x: ops.layer_norm(x, axis=-1),
    "logsumexp": lambda x: ops.logsumexp(x, axis=0),
    "cumsum along it": lambda x: ops.cumsum(x, axis=0),
    "cumsum across it": lambda x: ops.cumsum(x, axis=1),
    "concatenate": lambda x: ops.concatenate([x, x * 2.0], axis=0),
    "gather": lambda x: x[np.array([0, 0, -1])],
    "pad": lambda x: ops.pad(x, ((1, 2), (0, 0))),
    "max": lambda x: x.max(axis=0),
    "argmax": lambda x: ops.argmax(x, axis=0),
    "prod": lambda x: ops.prod(x, axis=0),
    "var": lambda x: x.var(axis=0),
    "std": lambda x: x.std(),
    "its Gram matrix": lambda x: x @ x.T,
    "its covariance": lambda x: x.T @ x,
    "flat": lambda x: ops.reshape(x, (x.shape[0] * WIDTH,)) * 2.0,
    "half of it": lambda x: x[: x.shape[0] // 2] * 2.0,
    "differences": lambda x: x[1:] - x[:-1],
    "backwards": lambda x: x[::-1] * 1.5,
    "its size as a number": lambda x: x.sum(axis=0) * (1 / x.shape[0]),
    "its size as a result": lambda x: (x.sum(), x.shape[0]),
    "rows that are called": lambda x: ops.sort(x * 2.0, axis=0) + x,
    "an array of its size": lambda x: x * np.arange(x.shape[0])[:, None],
}
SEVERAL = {
    "a branch on it": lambda x: x * 2.0 if x.shape[0] > 50 else x * 3.0,
    "a slice that it may be shorter than": lambda x: x[:5] * 2.0,
    "a loop over it": lambda x: sum(x[i] for i in range(x.shape[0])),
    "rows": lambda x: sum(row for row in x),
    "a Variable that it picks": lambda x: (
        (TABLE[0] if x.shape[0] % 3 else OTHER[1]).sum().detach() + x
    ),
    "a multiple of 4": lambda x: ops.reshape(x, (x.shape[0] // 4, 4, WIDTH)).sum(axis=1),
    "a column between zeros": lambda x: zeros_around(ops.sort(x[:-1, :1], axis=0)),
    "windows along it": lambda x: ops.conv1d(x.T[None] * 2.0, KERNEL, padding=1),
    "a larger of two": lambda x: x * max(x.shape[0], 60),
}


def outcome(fn, x):
    try:
        return [np.asarray(leaf) for leaf in od.tree.leaves(fn(x))]
    except ShapeError as error:
        return str(error)


def assert_same(fn, compiled, sizes, what):
    rng = np.random.default_rng(0)
    for n in sizes:
        x = rng.normal(size=(n, WIDTH)).astype(np.float32)
        wanted, got = outcome(fn, x), outcome(compiled, x)
        if isinstance(wanted, str):
            assert got == wanted, (what, n)
            continue
        assert len(got) == len(wanted), (what, n)
        for a, b in zip(got, wanted, strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype), (what, n)
            np.testing.assert_allclose(a, b, rtol=3e-5, atol=3e-5, err_msg=f"{what} at {n}")


@pytest.mark.parametrize("what", ONE_PROGRAM)
def test_one_program_is_for_all_sizes(what):
    fn = ONE_PROGRAM[what]
    compiled = od.compile(fn, dynamic={"x": {0: BATCH}}, check=True)
    assert_same(fn, compiled, SIZES, what)
    found = compiled.statistics()
    assert found.programs == 1, compiled.explain(np.ones((11, WIDTH), np.float32))
    assert found.written <= 3, "the first call, a size of 1, and one at which a part is of size 1"


@pytest.fixture
def threads():
    yield od.set_threads
    od.set_threads(1)


QUADRATIC = ("attention", "its Gram matrix")


@pytest.mark.parametrize("what", ONE_PROGRAM)
def test_large_sizes_are_shared_among_threads_and_give_the_same_bits(what, threads):
    fn = ONE_PROGRAM[what]
    compiled = od.compile(fn, dynamic={"x": {0: BATCH}}, check=True)
    rng = np.random.default_rng(1)
    sizes = (700, 300) if what in QUADRATIC else (4096, 4095, 2048, 33)
    for n in (8, 12, *sizes):
        x = rng.normal(size=(n, WIDTH)).astype(np.float32)
        compiled(x)
        found = []
        for count in (1, 2):
            threads(count)
            found.append(outcome(compiled, x))
        for one, two, wanted in zip(*found, outcome(fn, x), strict=True):
            np.testing.assert_array_equal(one, two)
            np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=3e-4, err_msg=f"at {n}")
    assert compiled.statistics().programs == 1


@pytest.mark.parametrize("what", ONE_PROGRAM)
def test_blocks_of_any_length_are_what_the_whole_is(what, threads, monkeypatch):
    monkeypatch.setattr(work_partition, "_MIN_PARALLEL_SECONDS", 0.0)
    monkeypatch.setattr(work_partition, "_BLOCK_SECONDS", 1e-12)
    threads(2)
    fn = ONE_PROGRAM[what]
    compiled = od.compile(fn, dynamic={"x": {0: BATCH}}, check=True)
    assert_same(fn, compiled, (*SIZES, 333, 129, 128, 127), what)
    assert compiled.statistics().programs == 1


def test_a_long_step_of_many_rows_is_shared(threads):
    compiled = od.compile(lambda x: ops.softmax(x * 2.0, axis=1), dynamic={"x": {0: BATCH}})
    for n in (8, 12, 4096):
        compiled(np.ones((n, WIDTH), np.float32))
    told = str(compiled.explain(np.ones((12, WIDTH), np.float32)))
    assert re.search(r"threads: .* 1 function", told), told


@pytest.mark.slow
@pytest.mark.parametrize("what", SEVERAL)
def test_sizes_that_a_function_treats_apart_are_apart(what):
    fn = SEVERAL[what]
    compiled = od.compile(fn, dynamic={"x": {0: BATCH}}, check=True)
    assert_same(fn, compiled, (*SIZES, *SIZES, 51, 50, 59, 61), what)


@pytest.mark.parametrize("odd", [False, True], ids=["of arrays first", "of numbers first"])
def test_what_is_a_number_at_some_sizes_and_an_array_at_others_is_what_it_is_to_the_function(odd):
    def fn(x):
        return x.sum() if x.shape[0] % 2 == odd else x.sum(axis=0)

    compiled = od.compile(fn, dynamic={"x": {0: BATCH}}, check=True)
    for n in (9, *SIZES, *SIZES):
        x = np.ones((n, WIDTH))
        assert type(compiled(x)) is type(fn(x)), n


def network(seed):
    rng = np.random.default_rng(seed)
    shapes = (20, 32), (32,), (32, 10), (10,)
    return [od.Variable(0.3 * rng.normal(size=s), requires_grad=True, name="w") for s in shapes]


def step_of(weights, optimizer):
    w, b, v, c = weights

    def step(x, y):
        with od.GradientTape() as tape:
            hidden = ops.maximum(x @ w + b, 0.0)
            loss = od.losses.cross_entropy(hidden @ v + c, y)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [od.optim.SGD, od.optim.Adam], ids=["SGD", "Adam"])
def test_training_in_batches_of_69_sizes_is_one_program(optimizer):
    plain, fast = network(0), network(0)
    written = step_of(plain, optimizer(plain, 0.01))
    dynamic = {"x": {0: BATCH}, "y": {0: BATCH}}
    compiled = od.compile(step_of(fast, optimizer(fast, 0.01)), dynamic=dynamic, check=True)
    rng = np.random.default_rng(1)
    for n in rng.permutation(np.arange(2, 71)):
        x, y = rng.normal(size=(n, 20)), rng.integers(0, 10, n)
        np.testing.assert_allclose(float(compiled(x, y)), float(written(x, y)), 1e-9)
    assert compiled.statistics() == (1, 68, 1)
    for a, b in zip(fast, plain, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), 1e-6, 1e-9)


def test_two_sizes_of_one_name_that_differ_are_left_to_the_function():
    compiled = od.compile(lambda x, y: ops.add(x, y), dynamic={"x": {0: BATCH}, "y": {0: BATCH}})
    for n in (4, 5, 6):
        assert compiled(np.ones(n), np.ones(n)).shape == (n,)
    for _ in range(3):
        with pytest.raises(ShapeError):
            compiled(np.ones(4), np.ones(3))
    assert compiled(np.ones(4), np.ones(1)).shape == (4,)
    assert compiled.statistics().programs == 1


def test_numbers_and_sizes_vary_together():
    def fn(x, rate, power):
        return ops.sort(x * (rate / x.shape[0])) * power + rate

    compiled = od.compile(fn, dynamic={"x": {0: BATCH}}, check=True)
    rng = np.random.default_rng(0)
    for n in (5, 6, 7, 6, 50, 3):
        x, rate = rng.normal(size=n), float(rng.normal())
        wanted = np.sort(x * rate / n) * 2 + rate
        np.testing.assert_allclose(compiled(x, rate, 2), wanted, 1e-13, 1e-15)
    assert compiled.statistics() == (1, 5, 1)


def test_two_names_vary_apart():
    def fn(x, y):
        return x @ y

    a, b = od.Dim("rows", 1, 512), od.Dim("columns", 1, 512)
    compiled = od.compile(fn, dynamic={"x": {0: a}, "y": {-1: b}}, check=True)
    rng = np.random.default_rng(0)
    for m, n in ((3, 4), (4, 3), (9, 9), (2, 100), (101, 103), (40, 6)):
        x, y = rng.normal(size=(m, 6)), rng.normal(size=(6, n))
        np.testing.assert_allclose(compiled(x, y), x @ y, 1e-12)
    assert compiled.statistics() == (1, 5, 1)


def test_sizes_out_of_bounds_have_programs_of_their_own():
    compiled = od.compile(lambda x: x * 2.0, dynamic={"x": {0: od.Dim("n", 4, 64)}})
    for n in (5, 6, 7, 65, 65, 3, 3):
        assert compiled(np.ones(n)).shape == (n,)
    assert compiled.statistics().programs == 3


def test_calls_by_name_trees_and_views_are_of_one_program():
    def fn(pair, x):
        return pair["a"] * pair["b"] + x[::-1]

    compiled = od.compile(fn, dynamic={"pair": {0: BATCH}, "x": {0: BATCH}}, check=True)
    rng = np.random.default_rng(0)
    for n in (5, 6, 9, 33):
        pair = {"a": rng.normal(size=n), "b": rng.normal(size=2 * n)[::2]}
        x = od.Variable(rng.normal(size=n))
        np.testing.assert_array_equal(np.asarray(compiled(pair, x=x)), np.asarray(fn(pair, x)))
    assert compiled.statistics() == (1, 3, 1)


def test_what_a_function_reads_of_python_makes_a_program_anew():
    scale = [2.0]
    compiled = od.compile(
        eval("lambda x: x * scale[0]", {"scale": scale}), dynamic={"x": {0: BATCH}}
    )
    for n in (3, 4, 5):
        assert compiled(np.ones(n))[0] == 2.0
    scale[0] = 3.0
    for n in (3, 4, 5, 6):
        assert compiled(np.ones(n))[0] == 3.0


def test_sizes_that_did_not_come_yet_are_told_of_a_program():
    total = od.compile(lambda x: (x * 2.0).sum(), dynamic={"x": {0: od.Dim("n", 1, 99)}})
    assert "the second call compiles a program" in total.explain(np.ones(20))
    for n in (7, 9, 12):
        total(np.ones(n))
    assert "not called with such sizes yet" in total.explain(np.ones(20))
    native = total.statistics().native
    assert total(np.ones(20)) == 40.0
    assert total.statistics().native == native + 1
    assert total.explain(np.ones(20)).startswith("for all n, 3 sizes so far: ")


def test_a_copy_has_no_programs():
    compiled = od.compile(lambda x: x * 2.0, dynamic={"x": {0: BATCH}})
    for n in (3, 4, 5):
        compiled(np.ones(n))
    other = copy.copy(compiled)
    assert other(np.ones(6))[0] == 2.0
    assert other.statistics().programs == 0
    compiled.clear_cache()
    assert compiled(np.ones(6)).shape == (6,)


def fn_of_x(x):
    return x


@pytest.mark.parametrize(
    ("dynamic", "error", "says"),
    [
        pytest.param([("x", 0)], DTypeError, "pass a dict", id="a list"),
        pytest.param({"x": 0}, DTypeError, "names no axes", id="an axis alone"),
        pytest.param({"x": {0: "batch"}}, DTypeError, "a Dim for each", id="a string"),
        pytest.param({"x": {"0": BATCH}}, DTypeError, "whole numbers", id="a string as axis"),
        pytest.param({"y": {0: BATCH}}, SettingError, "not a parameter", id="another name"),
        pytest.param(
            {"x": {0: BATCH, 1: od.Dim("batch")}}, SettingError, "one name for two", id="two Dims"
        ),
    ],
)
def test_a_declaration_that_means_nothing_is_refused(dynamic, error, says):
    with pytest.raises(error, match=says):
        od.compile(fn_of_x, dynamic=dynamic)


def test_an_axis_that_an_argument_lacks_is_refused_by_name():
    compiled = od.compile(fn_of_x, dynamic={"x": {2: BATCH}})
    with pytest.raises(ShapeError, match="axis 2 of 'x'"):
        compiled(np.ones((3, 4)))


@pytest.mark.parametrize("given", [("",), (3,), ("n", -1), ("n", 1.5), ("n", 5, 4)], ids=str)
def test_a_dim_of_no_sizes_is_refused(given):
    with pytest.raises((SettingError, DTypeError)):
        od.Dim(*given)


def test_dims_are_equal_where_all_of_them_is():
    assert od.Dim("n", 1, 4) == od.Dim("n", 1, 4) != od.Dim("n", 1, 5)
    assert len({od.Dim("n"), od.Dim("n"), od.Dim("m")}) == 2
    assert repr(od.Dim("n", 2)) == "Dim('n', 2)"


class Layer:
    def __init__(self, factor):
        self.w = od.Variable(np.full(2, factor), requires_grad=True)

    @od.compile(dynamic={"x": {0: od.Dim("n", 1, 64)}})
    def mass(self, x, n):
        return (x * self.w).sum() * len(range(n))


def test_what_differs_from_call_to_call_has_a_program_each_for_all_sizes():
    layers = [Layer(2.0), Layer(3.0)]
    for size in range(3, 11):
        for layer in layers:
            for n in (1, 2):
                wanted = size * 2 * layer.w.numpy()[0] * n
                assert layer.mass(np.ones((size, 2)), n).item() == wanted
    statistics = Layer.mass.statistics()
    assert statistics.programs == 4
    assert statistics.written == 4


@pytest.mark.parametrize("first", [0, 1])
def test_calls_that_raise_keep_no_later_one_from_a_program_for_all_sizes(first):
    w = od.Variable(np.ones(3), requires_grad=True)
    optimizer = od.optim.SGD([w], 0.5)
    step = od.compile(lambda x: (optimizer.step(), x.sum())[1], dynamic={"x": {0: BATCH}})
    for size in range(first):
        w.grad = np.ones(3)
        assert step(np.ones(7 + size)) == 7 + size
    w.zero_grad()
    for size in range(5, 11):
        with pytest.raises(MissingGradientError) as info:
            step(np.ones(size))
        assert info.value.__context__ is None
    for size in range(5, 11):
        w.grad = np.ones(3)
        assert step(np.ones(size)) == size
    np.testing.assert_array_equal(w.numpy(), np.full(3, 1.0 - (6 + first) * 0.5))
    assert step.statistics().programs == 1
    assert step.statistics().native >= 5

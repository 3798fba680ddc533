"""Programs of a device call rows without kernels between launches, and run loops step by step."""

import weakref
from functools import partial

import numpy as np
import pytest

import odyssey as od
from odyssey import ops
from odyssey.compiler.cuda.device_function import UnsupportedKernelError
from odyssey.compiler.cuda.lower_for_device import lower_for_device
from odyssey.compiler.device_runtime import execution, segments
from odyssey.compiler.lowering import lower
from odyssey.devices.device import device_of
from odyssey.devices.same_device import host_array
from odyssey.table.value import array_of
from support import standin as standin_module
from support.threads import run_in_threads

pytestmark = [
    pytest.mark.usefixtures("standin"),
    pytest.mark.filterwarnings("error::odyssey.errors.CompileWarning"),
]

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 5))
LONG = RNG.standard_normal((33, 5))  # too many steps to be unrolled


def on_device(array, **named):
    return od.Variable(array, device="cuda", **named)


def values_of(leaf):
    return host_array(array_of(leaf))


def executable_of(compiled):
    ((_, program),) = next(iter(compiled._known.values())).programs
    return program.executable


def assert_as_eager(fn, *arrays, runs=4, rtol=1e-12):
    """The compiled function returns what the function returns, in each run; return it."""
    compiled = od.compile(fn, fullgraph=True)
    args = [on_device(array) for array in arrays]
    want = list(map(values_of, od.tree.leaves(fn(*args))))
    for _ in range(runs):
        found = od.tree.leaves(compiled(*args))
        assert {str(device_of(array_of(leaf))) for leaf in found} == {"cuda:0"}
        for one, other in zip(found, want, strict=True):
            np.testing.assert_allclose(values_of(one), other, rtol=rtol, atol=1e-14)
    assert compiled.statistics() == (1, runs - 1, 1)
    return compiled


# ------------------------------------------------------------------ rows


ROWS = {
    "sort": lambda x: ops.sort(x * 2.0) + 1.0,
    "of a transpose": lambda x: ops.sort(ops.matrix_transpose(x * 2.0), axis=0) + 1.0,
    "of a flipped slice": lambda x: ops.sort((x * 2.0)[::-1, 1:4]) + 1.0,
    "of an argument": lambda x: ops.sort(x)[0],
    "an output is an operand": lambda x: (y := x * 2.0, ops.sort(y) - 1.0),
    "a result is an output": lambda x: ops.sort(x * 2.0),
    "a result of a result": lambda x: ops.argsort(ops.sort(x * 2.0), axis=0).sum(0) * 1.0,
    "several results": lambda x: od.linalg.svd(x * 2.0)[1] * 2.0,
    "solve": lambda x: od.linalg.solve(x[:5] * 2.0, x[5]) * 2.0,
    "cholesky": lambda x: od.linalg.cholesky(ops.matrix_transpose(x) @ x) * 2.0,
    "fft": lambda x: abs(od.fft.fft(x * 2.0)) * 2.0,
    "of no elements": lambda x: ops.sort(x[:0]) * 2.0,
    "of a number": lambda x: ops.sort(x.sum()[None])[0] * x,
}


@pytest.mark.parametrize("fn", ROWS.values(), ids=ROWS)
def test_rows_without_kernels_are_called_on_views_of_the_programs_memory(fn):
    assert_as_eager(fn, X)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i4", "u1", "?", "c16", "f2"])
def test_dtypes_of_host_calls(dtype):
    x = (X * 3).astype(dtype) if dtype != "?" else X > 0
    assert_as_eager(lambda x: ops.flip(ops.sort(ops.flip(x, 0), axis=0), 0), x, rtol=1e-3)


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("axes", [(1, 0, 2), (2, 0, 1)])
def test_a_state_that_is_not_contiguous_is_read_where_it_lies(axes, written):
    data, left = np.random.default_rng(2).standard_normal((2, 3, 4)), []
    for is_compiled in (False, True):
        state = ops.transpose(on_device(data), axes).detach()

        def fn(x, state=state):
            if written:
                state.assign(state * 0.5)
            passed_on = od.cond(x.sum() > 0.0, lambda a: a[::-1], lambda a: a, state)
            return ops.sort(state), passed_on, ops.sort(state * 2.0)

        call = od.compile(fn, fullgraph=True) if is_compiled else fn
        found = [one.numpy() for _ in range(4) for one in call(on_device(np.ones(2)))]
        left.append([*found, state.numpy()])
    for one, other in zip(*left, strict=True):
        np.testing.assert_array_equal(one, other)
    assert call.statistics() == (1, 3, 1)


@pytest.mark.parametrize("op", ["argmax", "conv2d", "sort"])
def test_rows_that_are_called_on_the_cpu_for_speed_alone_are_kernels(op):
    shapes = {
        "argmax": [(400, 4096)],
        "conv2d": [(8, 32, 32, 32), (64, 32, 3, 3)],
        "sort": [(5,)],
    }
    options = {"axis": 1} if op == "argmax" else {}
    arrays = [np.ones(shape, np.float32) for shape in shapes[op]]
    graph = od.compile(lambda *x: getattr(ops, op)(*x, **options)).lower(*arrays).graph
    assert list(lower(graph).host_calls) == [op]
    # A sort would be an argsort, which is a host call as well.
    assert list(lower_for_device(graph).low.host_calls) == ["sort"] * (op == "sort")


def test_results_with_nan_and_ties_are_the_eager_ones():
    x = X.copy()
    x[0, 0], x[1, 2], x[:, 3] = np.nan, np.inf, 1.0
    compiled = od.compile(lambda x: ops.argsort(x * 2.0) * 3, fullgraph=True)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(on_device(x)).numpy(), np.argsort(x * 2.0) * 3)


def test_a_result_that_shares_memory_with_an_operand_is_copied():
    def twice(x, /):
        return x  # its operand

    same = od.op(infer=lambda x: x)(twice)
    compiled = assert_as_eager(lambda x: (y := same(x * 2.0), ops.sort(y) * 3.0, x * 4.0), X)
    held = compiled(on_device(X))[0]
    compiled(on_device(X + 1.0))
    np.testing.assert_array_equal(held.numpy(), X * 2.0)


def test_a_scalar_argument_reaches_the_kernel_as_a_number():
    fn = od.compile(lambda x, k: ops.sort(x * k), fullgraph=True)
    x = on_device(X)
    for k in (2.0, 3.0, -1.0, 0.5):
        np.testing.assert_array_equal(fn(x, k).numpy(), np.sort(X * k))


# ------------------------------------------------------------------ training


def sorted_step(device, optimizer=od.optim.Adam):
    """A training step whose loss sorts, and whose gradient goes through a solver."""
    w = od.Variable(np.eye(5) + 0.1 * X[:5], requires_grad=True, device=device)
    update = optimizer([w], 0.05)

    def step(x, y):
        with od.GradientTape() as tape:
            loss = ((ops.sort(od.linalg.solve(w, x), axis=0) - y) ** 2).mean()
        tape.backward(loss)
        update.step()
        update.zero_grad()
        return loss

    return step, w, update


@pytest.mark.parametrize("optimizer", [od.optim.SGD, od.optim.Adam])
def test_a_training_step_with_host_calls_leaves_what_the_eager_step_leaves(optimizer):
    found = {}
    for compiled in (False, True):
        step, w, _ = sorted_step("cuda", optimizer)
        step = od.compile(step, fullgraph=True) if compiled else step
        x, y = on_device(X[:5]), on_device(X[1:6])
        found[compiled] = [step(x, y).item() for _ in range(6)], w.numpy()
    np.testing.assert_allclose(found[True][0], found[False][0], rtol=1e-12)
    np.testing.assert_allclose(found[True][1], found[False][1], rtol=1e-11)
    assert step.statistics() == (1, 5, 1)
    assert "not lowered: solve, since a device has no LAPACK; calls" in str(step.explain(x, y))


def test_second_derivatives_go_through_host_calls():
    def fn(x):
        inner = od.grad(lambda x: (od.linalg.solve(x, x[0]) ** 2).sum() + ops.sort(x**3)[0].sum())
        return od.grad(lambda x: (inner(x) ** 2).sum())(x)

    assert_as_eager(fn, np.eye(5) + 0.1 * X[:5], rtol=1e-9)


# ------------------------------------------------------------------ failures


def test_an_error_of_a_host_call_is_the_eager_one_and_changes_nothing():
    step, w, update = sorted_step("cuda")
    compiled = od.compile(step, fullgraph=True)
    x, y = on_device(X[:5]), on_device(X[1:6])
    for _ in range(4):
        compiled(x, y)
    good, state = w.numpy(), od.tree.leaves(update.state_dict())
    w.assign(np.zeros((5, 5)))
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError, match="ingular"):
            compiled(x, y)
        np.testing.assert_array_equal(w.numpy(), np.zeros((5, 5)))
        for one, other in zip(od.tree.leaves(update.state_dict()), state, strict=True):
            np.testing.assert_array_equal(one, other)
    w.assign(good)
    runs = compiled.statistics().native
    compiled(x, y)
    assert compiled.statistics().native == runs + 1


def test_no_host_call_runs_behind_a_failed_check():
    calls = []

    @od.op(infer=lambda x: x)
    def noted(x, /):
        calls.append(1)
        return x * 1.0

    count = on_device(np.zeros(()))

    def fn(x, rows):
        y = noted(ops.take(x, rows, axis=0) * 2.0)
        count.assign(count + 1.0)
        return od.losses.cross_entropy(y[:3], ops.astype(y[:3, 0], int))

    compiled = od.compile(fn, fullgraph=True)
    good, bad = on_device(np.arange(6)), on_device(np.full(6, 9))
    x, high = on_device(np.ones((6, 5))), on_device(np.full((6, 5), 4.0))
    for _ in range(4):
        compiled(x, good)
    said = str(compiled.explain(x, good))
    assert "waits for 1 checks before host calls" in said
    assert "waits for 1 checks at the end" in said
    assert (len(calls), count.item()) == (4, 4.0)
    with pytest.raises(IndexError, match="take"):
        compiled(x, bad)
    assert (len(calls), count.item()) == (4, 4.0)  # nor does the eager run get there
    with pytest.raises(od.errors.ShapeError, match="class numbers"):
        compiled(high, good)
    # In the program, which the fast path and then the search find, and in the eager run.
    assert (len(calls), count.item()) == (7, 5.0)
    assert compiled(x, good).item() == pytest.approx(fn(x, good).item())


@pytest.mark.parametrize(
    "gives", [lambda x, /: x * 1j, lambda x, /: x[:2], lambda x, /: x.astype("f4")]
)
def test_an_op_from_outside_that_does_not_give_what_it_said_runs_as_it_was_written(gives):
    row = od.op(infer=lambda x: x)(gives)
    compiled, x = od.compile(lambda x: row(x + 1.0) * 2.0), on_device(X)
    want = row(x + 1.0) * 2.0
    for _ in range(4):
        got = compiled(x)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.numpy(), want.numpy())
    assert executable_of(compiled).contract_broken


def test_an_interrupt_in_a_host_call_commits_nothing():
    interrupts = []

    def maybe(x, /):
        if interrupts:
            raise KeyboardInterrupt
        return x * 1.0

    op = od.op(infer=lambda x: x)(maybe)
    w = on_device(np.zeros(5), requires_grad=True)

    def fn(x):
        w.assign(op(x) + w)
        return w * 2.0

    compiled = od.compile(fn, fullgraph=True)
    for _ in range(3):
        compiled(on_device(X[0]))
    before = w.numpy()
    interrupts.append(1)
    with pytest.raises(KeyboardInterrupt):
        compiled(on_device(X[0]))
    interrupts.clear()
    np.testing.assert_array_equal(w.numpy(), before)
    compiled(on_device(X[0]))
    np.testing.assert_allclose(w.numpy(), before + X[0], rtol=1e-12)


@pytest.mark.slow
def test_memory_that_is_short_at_any_allocation_leaves_all_as_it_was(monkeypatch):
    step, w, update = sorted_step("cuda")
    compiled = od.compile(step, warn=False)
    x, y = on_device(X[:5]), on_device(X[1:6])
    for _ in range(4):
        compiled(x, y)
    add, left = standin_module.Pool.add, [0]

    def add_few(pool, elements):
        left[0] -= elements.base is None
        if left[0] < 0:
            raise standin_module.OutOfMemoryError("Out of memory")
        add(pool, elements)

    monkeypatch.setattr(standin_module.Pool, "add", add_few)
    failures = 0
    for count in range(40):
        left[0] = 10**9
        before = [w.numpy(), *map(np.array, od.tree.leaves(update.state_dict()))]
        left[0] = count
        try:
            compiled(x, y)
        except od.errors.DeviceMemoryError:
            failures += 1
            left[0] = 10**9
            after = [w.numpy(), *map(np.array, od.tree.leaves(update.state_dict()))]
            for one, other in zip(before, after, strict=True):
                np.testing.assert_array_equal(one, other)
    assert failures >= 5  # results, results of host calls, and eager ops behind them
    left[0] = 10**9
    assert np.isfinite(compiled(x, y).item())


# ------------------------------------------------------------------ memory, graphs and threads


def test_a_program_keeps_no_array_of_a_run(standin):
    compiled = od.compile(lambda x: (ops.sort(x * 2.0) + 1.0, x * 3.0), fullgraph=True)
    for _ in range(4):
        compiled(on_device(X))
    held = standin.memory_stats(0)["in_use"]
    x = on_device(X)
    out = compiled(x)
    arrays = [weakref.ref(one._array) for one in (x, *out)]
    del x, out
    assert [ref() for ref in arrays] == [None] * 3
    assert standin.memory_stats(0)["in_use"] == held
    program = weakref.ref(executable_of(compiled))
    del compiled
    assert program() is None  # without the garbage collector
    assert standin.memory_stats(0)["in_use"] < held


def test_each_segment_is_a_graph_that_reads_results_at_fixed_places():
    compiled = assert_as_eager(lambda x: ops.sort(ops.sort(x * 2.0, axis=0) + 1.0) * 3.0, X, runs=6)
    said = str(compiled.explain(on_device(X)))
    assert "launched as 3 CUDA graphs" in said
    assert "not lowered: sort, since" in said
    assert "; calls Python on cuda:0 between launches" in said


def test_a_segment_with_large_arguments_is_launched_one_by_one(monkeypatch):
    monkeypatch.setattr(segments, "MOST_COPIED", 100)

    def fn(x):
        small = ops.sort(ops.sort(x * 2.0).sum(0) * 3.0)  # reads and writes 40 bytes from there
        return small + 1.0

    compiled = assert_as_eager(fn, X)
    said = str(compiled.explain(on_device(X)))
    assert "launched as one CUDA graph, and 2 segments one by one" in said


def test_states_that_move_are_found_again_by_all_segments():
    w = on_device(np.ones(5), requires_grad=True)
    compiled = od.compile(lambda x: (w.assign(ops.sort(x * w) + w), w * 1.0)[1], fullgraph=True)
    value = np.ones(5)
    for k in range(8):
        if k % 3 == 2:
            held = w.detach()  # so the next run writes to another array
        x = RNG.standard_normal(5)
        value = np.sort(x * value) + value
        np.testing.assert_allclose(compiled(on_device(x)).numpy(), value, rtol=1e-12)
    assert held.shape == (5,)


def test_two_threads_run_one_program():
    compiled = od.compile(lambda x: ops.sort(x * 2.0) + ops.sort(x, axis=0), fullgraph=True)
    arrays = [RNG.standard_normal((6, 5)) for _ in range(2)]
    compiled(on_device(X)), compiled(on_device(X))
    wrong = []

    def run(array):
        want = np.sort(array * 2.0) + np.sort(array, axis=0)
        for _ in range(10):
            found = compiled(on_device(array)).numpy()
            if not np.array_equal(found, want):
                wrong.append(found)

    run_in_threads(*[partial(run, array) for array in arrays])
    assert not wrong


# ------------------------------------------------------------------ control flow


LOOPS = {
    "exchanged carries": lambda x: od.scan(
        lambda c, r: ((c[1], c[0] + r), None), (x[0] * 1.0, x[1] * 2.0), x
    )[0],
    "branches that pass on": lambda x: od.cond(
        (x**2).sum() > 0.0, lambda a, b: (a, a, b), lambda a, b: (b, a, b), x * 1.0, x * 2.0
    ),
    "scan": lambda x: od.scan(lambda c, r: (ops.tanh(c * 0.5 + r), c * 2.0), x[0] * 1.0, x),
    "reverse scan": lambda x: od.scan(
        lambda c, r: (c * 0.5 + r, c * 2.0), x[0] * 1.0, x, reverse=True
    ),
    "scan with a host call": lambda x: od.scan(
        lambda c, r: (ops.sort(c * 0.5 + r), ops.sort(c)), x[0] * 1.0, x
    ),
    "captured values": lambda x: od.scan(lambda c, r: (c * 0.5 + x[1], c), x[0] * 1.0, x)[0],
    "no columns": lambda x: od.scan(lambda c, _: (c * 1.1, None), x * 1.0, length=66)[0],
    "while": lambda x: od.while_loop(lambda c: (c * c).sum() < 20.0, lambda c: c * 1.5, x[0]),
    "while without steps": lambda x: (
        y := x * 1.0,
        od.while_loop(lambda c: (c * c).sum() < 0.0, lambda c: c * 1.5, y) + 1.0,
    ),
    "cond, true": lambda x: od.cond((x**2).sum() > 0.0, lambda x: ops.sin(x), lambda x: x * 2, x),
    "cond, false": lambda x: od.cond((x**2).sum() < 0.0, lambda x: ops.sin(x), lambda x: x * 2, x),
    "reversed operands": lambda x: (
        od.cond((x**2).sum() > 0.0, lambda a: a[::-1], lambda a: a, x[::-1, 0]),
        od.scan(lambda c, r: (r[::-1], c[::-1]), x[0, ::-1], x[:, ::-1]),
        od.while_loop(lambda c: c.sum() < 60.0, lambda c: c[::-1] * 2.0, abs(x[0, ::-1])),
    ),
    "nested": lambda x: od.scan(
        lambda c, r: (
            od.while_loop(lambda a: (a * a).sum() > 1.0, lambda a: a * 0.5, c + r),
            None,
        ),
        x[0] * 1.0,
        x[:2],
    )[0],
}


@pytest.mark.parametrize("fn", LOOPS.values(), ids=LOOPS)
def test_loops_and_branches_run_programs_of_their_steps(fn):
    assert_as_eager(fn, LONG)


def test_scalar_arguments_of_loops_are_numbers_of_each_call():
    fn = lambda x, k: od.scan(lambda c, r: (c * k + r, c * k), x[0] * 1.0, x)  # noqa: E731
    compiled, x = od.compile(fn, fullgraph=True), on_device(LONG)
    for k in (0.5, 0.25, -0.5, 0.1):
        for one, other in zip(compiled(x, k), fn(x, k), strict=True):
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)
    assert compiled.statistics() == (1, 3, 1)


def test_a_check_that_fails_in_a_step_of_a_scan_raises_the_eager_error():
    compiled = od.compile(
        lambda x, rows: od.scan(
            lambda c, k: (c + ops.take(x, k, axis=0) * 0.5, ops.sort(c)), x[0] * 1.0, rows
        )[0],
        fullgraph=True,
    )
    x, good, bad = on_device(X), np.zeros(33, int), np.zeros(33, int)
    bad[20] = 9
    for _ in range(3):
        compiled(x, on_device(good))
    for _ in range(2):
        with pytest.raises(IndexError, match="take: index 9 is out of bounds"):
            compiled(x, on_device(bad))
    found = compiled(x, on_device(good)).numpy()
    np.testing.assert_allclose(found, X[0] * (1 + 33 * 0.5), rtol=1e-12)


def test_programs_of_loops_on_the_second_device():
    compiled = od.compile(LOOPS["scan with a host call"], fullgraph=True)
    x = od.Variable(LONG, device="cuda:1")
    for _ in range(3):
        found = compiled(x)
        assert {str(one.device) for one in found} == {"cuda:1"}
    for one, other in zip(found, LOOPS["scan with a host call"](x), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)


def test_nothing_of_a_loop_waits_for_the_garbage_collector():
    compiled = od.compile(LOOPS["scan with a host call"], fullgraph=True)
    for _ in range(3):
        compiled(on_device(LONG))
    program = executable_of(compiled)
    ((part,),) = [call.parts.values() for call in program.host_calls.values()]
    references = weakref.ref(program), weakref.ref(part)
    del compiled, program, part
    assert [reference() for reference in references] == [None, None]


def test_gradients_of_scans_and_branches_are_the_eager_ones():
    def loss(x):
        last, rows = od.scan(lambda c, r: (ops.tanh(c * x[1] + r), c * x[2]), x[0] * 1.0, x)
        return od.cond(last.sum() > 0.0, lambda a: (a**2).sum(), lambda a: (a**3).sum(), rows)

    assert_as_eager(od.grad(loss), LONG, rtol=1e-10)


@pytest.mark.slow
def test_second_gradients_of_scans_are_the_eager_ones():
    def loss(x):
        return od.scan(lambda c, r: (ops.tanh(c * x[1] + r), None), x[0] * 1.0, x)[0].sum()

    def fn(x):
        return od.grad(lambda x: (od.grad(loss)(x) ** 2).sum())(x)

    assert_as_eager(fn, LONG, rtol=1e-9)


def test_explain_says_what_a_loop_waits_for_and_lists_its_kernels():
    compiled = assert_as_eager(LOOPS["while"], LONG)
    said = str(compiled.explain(on_device(LONG)))
    assert "the CPU reads the condition of a while_loop before each step, and waits for it" in said
    assert "each step:" in said


def test_a_memory_limit_counts_what_the_program_of_a_step_holds():
    def fn(x):
        return od.scan(lambda c, r: (ops.sort(c) @ c + r.sum(), None), x[:5] * 1.0, x)[0]

    with pytest.raises(od.errors.DeviceMemoryError, match="bytes in a scan"):
        od.compile(fn, memory_limit=200)(on_device(LONG))


def test_a_loop_whose_step_has_no_program_runs_eagerly_and_says_why(monkeypatch):
    lower = execution.lower_for_device

    def refuse(graph, *others):
        if any(one.row.name == "tanh" for one in graph.instructions):
            raise UnsupportedKernelError("cuda: tanh has no CUDA kernel")
        return lower(graph, *others)

    monkeypatch.setattr(execution, "lower_for_device", refuse)
    fn = LOOPS["scan"]
    compiled, x = od.compile(fn, warn=False), on_device(LONG)
    want = fn(x)[0].numpy()
    for _ in range(3):
        np.testing.assert_array_equal(compiled(x)[0].numpy(), want)
    assert "in a scan, tanh has no CUDA kernel" in str(compiled.explain(x))


# ------------------------------------------------------------------ random numbers


DRAWS = {
    "uniform": lambda x, rng: ops.random_uniform((33, 5), high=x[0, 0] ** 2 + 1.0, rng=rng),
    "bernoulli": lambda x, rng: ops.random_bernoulli((9,), p=x[0, 0] * 0.0 + 0.5, rng=rng),
    "permutation": lambda x, rng: ops.random_permutation(x, rng=rng),
    "few indices": lambda x, rng: x[rng.permutation(10)],
    "dropout": lambda x, rng: ops.dropout(x, rate=0.5, rng=rng),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_compiled_draws_equal_eager_draws_bit_for_bit(draw):
    found = {}
    for compiled in (False, True):
        rng = od.Generator(7)
        fn = lambda x, rng=rng: draw(x, rng)  # noqa: E731
        fn = od.compile(fn, fullgraph=True) if compiled else fn
        x = on_device(LONG)
        found[compiled] = [fn(x).numpy() for _ in range(4)], rng.state
    np.testing.assert_array_equal(found[True][0], found[False][0])
    assert found[True][1] == found[False][1]
    assert fn.statistics() == (1, 3, 1)


def test_normal_numbers_differ_from_eager_ones_by_roundings_of_logarithm_and_cosine():
    found = {}
    for compiled in (False, True):
        rng = od.Generator(7)
        fn = lambda x, rng=rng: ops.random_normal((40, 5), mean=x[0, 0], rng=rng)  # noqa: E731
        fn = od.compile(fn, fullgraph=True) if compiled else fn
        found[compiled] = [fn(on_device(LONG)).numpy() for _ in range(3)]
    np.testing.assert_allclose(found[True], found[False], rtol=0, atol=1e-15)


def test_dropout_in_a_training_step_drops_what_the_eager_step_drops():
    found = {}
    for compiled in (False, True):
        w = on_device(np.ones((5, 5)), requires_grad=True)
        update, rng = od.optim.SGD([w], 0.1), od.Generator(7)

        def step(x, w=w, update=update, rng=rng):
            with od.GradientTape() as tape:
                loss = (ops.dropout(x @ w, rate=0.5, rng=rng) ** 2).mean()
            tape.backward(loss)
            update.step()
            update.zero_grad()
            return loss

        step = od.compile(step, fullgraph=True) if compiled else step
        found[compiled] = [step(on_device(X)).item() for _ in range(5)], rng.state
    np.testing.assert_allclose(found[True][0], found[False][0], rtol=1e-12)
    assert found[True][1] == found[False][1]


def test_a_failed_check_leaves_the_generator_where_it_was():
    rng = od.Generator(7)

    def fn(x, classes):
        return od.losses.cross_entropy(ops.dropout(x, rate=0.5, rng=rng), classes)

    compiled = od.compile(fn, fullgraph=True)
    x, good, bad = on_device(X), on_device(np.zeros(6, int)), on_device(np.full(6, 9))
    for _ in range(3):
        compiled(x, good)
    before = rng.state
    eager = od.Generator(7)
    eager.state = before
    with pytest.raises(od.errors.ShapeError, match="class numbers"):
        od.losses.cross_entropy(ops.dropout(x, rate=0.5, rng=eager), bad)
    with pytest.raises(od.errors.ShapeError, match="class numbers"):
        compiled(x, bad)
    assert rng.state == eager.state  # as the eager run leaves it

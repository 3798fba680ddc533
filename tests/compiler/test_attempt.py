"""A trace attempt leaves no side effects, and what it holds is bounded."""

import asyncio
import functools
import gc
import math
import threading
import tracemalloc
from collections import deque
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler import compiled_function
from odyssey.errors import DTypeError, NonFiniteError, TapeError
from odyssey.ops import Symbol
from support.threads import run_in_threads

X = np.array([3.0, 4.0])


def leaf(value=(1.0, 2.0), name="w"):
    return Variable(np.array(value), requires_grad=True, name=name)


count_of_module = 0


def test_python_objects_change_once_a_call():
    history, seen, latest, total = [], set(), {}, np.zeros(2)
    last, calls = deque(maxlen=2), 0

    class Net:
        steps = 0

    net = Net()

    def step(x):
        global count_of_module
        nonlocal calls, total
        calls += 1
        count_of_module += 1
        net.steps += 1
        net.hidden = getattr(net, "hidden", 0.0) + x
        history.append(x * 2.0)
        last.append(len(history))
        latest["x"] = x
        seen.add(len(seen))
        total *= 0.5
        total += 1.0
        return x

    compiled = od.compile(step)
    for k in range(1, 4):
        compiled(X)
        compiled(np.ones((k, 2)) if k == 9 else X)
        assert calls == net.steps == 2 * k
    assert len(history) == len(seen) == 6
    assert all(type(part) is np.ndarray for part in history)
    assert list(last) == [5, 6]
    assert latest["x"] is X
    assert type(net.hidden) is np.ndarray
    assert total.tolist() == [2.0 - 0.5**5] * 2
    assert count_of_module == 6


def test_trials_of_several_threads_leave_nothing_of_one_another():
    history, start = [], threading.Barrier(4)

    @od.compile
    def keep(x):
        if isinstance(x, Symbol):
            history.append(x)
        return x * 2.0

    def work(k):
        start.wait()
        for n in range(k, 60, 4):
            assert keep(np.ones(n)).tolist() == [2.0] * n

    run_in_threads(*[partial(work, k) for k in range(4)])
    assert not history


def test_a_coroutine_function_is_awaited_once():
    @od.compile
    async def double(x):
        return x * 2.0

    assert asyncio.run(double(X)).tolist() == [6.0, 8.0]


def test_an_object_that_lets_nobody_look_at_it_is_no_obstacle():
    class Shy:
        def __getattribute__(self, name):
            raise RuntimeError("go away")

    shy = Shy()
    assert od.compile(lambda x, other: x if other is shy else None)(X, shy) is X


def test_what_threads_share_is_written_to_by_the_run_alone():
    class Loader:
        def __init__(self):
            self.lock = threading.Lock()
            self.ready = []

    loader, plain = Loader(), []

    def step(x):
        loader.ready.append(1)  # as another thread might meanwhile: nothing can be taken back
        plain.append(1)
        return x

    od.compile(step)(X)
    assert loader.ready == [1]
    assert plain == [1]


def test_an_iterator_that_a_function_draws_from_loses_nothing():
    batches = iter([np.full(2, float(k)) for k in range(3)])
    step = od.compile(lambda: next(batches) * 2.0)
    assert [step()[0] for _ in range(3)] == [0.0, 2.0, 4.0]


def test_lowering_a_step_leaves_the_optimizer_without_state():
    w = leaf()
    optimizer = od.optim.Adam([w])
    w.grad = [1.0, 2.0]

    def step(x):
        with GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)
        optimizer.step()

    lowered = od.compile(step).lower(X)
    assert "steps" in str(lowered.graph)
    assert optimizer.state_dict()["state"] == [{}]
    assert w.grad.tolist() == [1.0, 2.0]
    assert w._info.version == 0


def test_a_constant_that_is_written_to_by_index_keeps_its_data_while_it_is_traced():
    running = Variable(np.zeros(2), name="running")

    def note(x):
        running[0] = x[0] * 0.5 + running[0] * 0.5

    compiled = od.compile(note)
    result = compiled.lower(X)
    assert running.numpy().tolist() == [0.0, 0.0]
    assert result.evaluate(X)[1]["running"].tolist() == [1.5, 0.0]
    compiled(X)
    compiled(X)
    assert running.numpy().tolist() == [2.25, 0.0]


def test_a_value_that_a_trace_left_behind_is_refused_by_name():
    w = leaf()

    @functools.lru_cache
    def doubled():
        return w * 2.0

    def keep(x):
        return doubled() + x

    od.compile(keep).lower(X)  # the cache has the graph's value now, and nothing can take it out
    with pytest.raises(TapeError, match="belongs to a trace that has ended"):
        od.compile(keep)(X)


def test_a_trace_warns_of_nothing():
    zeros = np.zeros(2)
    compiled = od.compile(lambda x: x * ops.log(zeros))
    with pytest.warns(RuntimeWarning, match="divide by zero") as caught:
        compiled(X)
    assert len(caught) == 1


def test_a_transform_that_depends_on_nothing_warns_once_a_call():
    slope = od.compile(od.grad(lambda x: ops.sum(X)))
    for _ in range(2):
        with pytest.warns(od.errors.IndependentWarning) as caught:
            slope(X)
        assert len(caught) == 1


def test_errors_of_the_trial_are_those_of_the_run():
    w = leaf(np.ones((2, 3)))

    def loss_of(x, y):
        with GradientTape() as tape:
            loss = od.cross_entropy(x @ w, y)
        tape.backward(loss)
        return loss

    compiled = od.compile(loss_of)
    good = np.ones((4, 2)), np.array([0, 1, 2, 0])
    calls = [
        good,
        (np.ones((4, 5)), good[1]),
        (good[0], np.array([0, 1, 7, 0])),
        (good[0], good[1][:3]),
        (good[0].astype(object), good[1]),
        (good[0], good[1] * 0.5),
        good,
    ]
    for args in calls:
        told = []
        for fn in (loss_of, compiled):
            w.grad = None
            try:
                fn(*args)
            except Exception as error:
                told.append((type(error), str(error), type(error.__context__)))
            else:
                told.append(w.grad.tobytes())
        assert told[0] == told[1]


def test_a_careful_tape_inside_finds_the_first_value_that_is_not_finite():
    w = leaf()

    @od.compile
    def train(x):
        with GradientTape(check=True) as tape:
            loss = ops.log(w * x).sum()
        tape.backward(loss)
        return loss

    train(X)
    with (
        pytest.raises(NonFiniteError, match=r"log at .*test_attempt"),
        np.errstate(all="ignore"),
    ):
        train(np.zeros(2))


# ------------------------------------------------------------------ memory of calls


def test_ever_new_numbers_are_traced_once(monkeypatch):
    traced = []
    trace = compiled_function.try_trace
    monkeypatch.setattr(
        compiled_function, "try_trace", lambda *a, **k: traced.append(a[1]) or trace(*a, **k)
    )

    @od.compile
    def scale(x, rate, step):
        return x * rate + step

    for k in range(100):
        assert scale(X, 0.1 * k, k).tolist() == (X * (0.1 * k) + k).tolist()
    assert len(traced) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "args",
    [
        lambda k: (X, 0.001 * k),
        lambda k: (X, math.nan),
        lambda k: (X, k),
        lambda k: (X, f"name {k}"),
        lambda k: (X, {f"name {k}": X}),
        lambda k: (np.ones(k), None),
        lambda k: (X, Fraction(k)),
    ],
    ids=["floats", "nan", "ints", "strings", "keys", "shapes", "objects"],
)
def test_ever_new_arguments_do_not_grow_a_compiled_function(args):
    compiled = od.compile(lambda x, other: x * 2.0)
    tracemalloc.start()
    try:
        for k in range(300):
            compiled(*args(k))
        gc.collect()
        start = tracemalloc.get_traced_memory()[0]
        for k in range(300, 800):
            compiled(*args(k))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - start
    finally:
        tracemalloc.stop()
    assert grown <= 100 * 500


def test_the_graphs_package_is_imported_beside_the_function():
    import odyssey.graph.graph as graph

    assert graph.Graph is type(od.compile(lambda x: x).lower(X).graph)
    assert callable(od.compile)


def test_a_graph_is_evaluated_for_the_numbers_that_it_holds():
    lowered = od.compile(lambda x, rate: x * rate).lower(X, 0.0)
    assert lowered.evaluate(X, 0.0)[0].tolist() == [0.0, 0.0]
    for other in (-0.0, 1.0, 0, False):
        with pytest.raises(DTypeError, match="fixed in this graph"):
            lowered.evaluate(X, other)
    assert lowered(X, 2.0).tolist() == [6.0, 8.0]


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("first", ["view", "base"])
@pytest.mark.parametrize("taped", [False, True])
def test_an_array_and_a_view_of_it_are_both_writable_again(first, taped):
    base = np.zeros((200, 200))
    arrays = [base.T, base] if first == "view" else [base, base.T]
    w = Variable(np.ones((200, 200)), requires_grad=True)
    step = od.compile(lambda v: v + arrays[0][0].sum() + arrays[1][1].sum())
    with GradientTape() as tape:
        y = w * base if taped else w * 2.0
        step(1.0)
        assert base.flags.writeable is not taped  # until the sweep
        assert (arrays[0].flags.writeable, arrays[1].flags.writeable) == (not taped,) * 2
    tape.gradient(y, w, np.ones((200, 200)))
    assert [a.flags.writeable for a in arrays] == [True, True]
    arrays[0][0, 1] = arrays[1][0, 1] = 3.0

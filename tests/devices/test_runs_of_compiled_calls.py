"""Runs of compiled functions on a device: guards between them, memory, threads, and copies."""

import copy
import gc
import os
import weakref

import numpy as np
import pytest

import odyssey as od
from support.standin import CUPY

pytestmark = [
    pytest.mark.usefixtures("standin"),
    pytest.mark.filterwarnings("error::odyssey.errors.CompileWarning"),
]

X = np.random.default_rng(0).standard_normal((4, 3)).astype("f4")
W = np.arange(1.0, 4.0, dtype="f4")


def on(array, device="cuda", **options):
    return od.Variable(array, device=device, **options)


def read(w, x):
    return x * w


def write(w, x):
    w.assign(w - (x * w).sum(0) * 0.25)
    return w.sum()


def accumulate(w, x):
    with od.GradientTape() as tape:
        loss = (x * w * w).sum()
    tape.backward(loss)
    return loss


def write_item(w, x):
    w[0] = x.sum()
    return w * 1.0


def hold(w, k, held):
    if k % 3 == 2:
        held.append((w.detach(), w.numpy()))


def toggle(w, k, held):
    w.grad = None if k % 2 else CUPY.asarray(np.ones(3, "f4"))


CHANGES = {
    "nothing": lambda w, k, held: None,
    "values of the host": lambda w, k, held: w.assign(np.full(3, k, "f4")),
    "values of the device": lambda w, k, held: w.assign(on(np.full(3, k, "f4"))),
    "one item": lambda w, k, held: w.__setitem__(0, float(k)),
    "another holder": hold,
    "a gradient that comes and goes": toggle,
    "frozen now and then": lambda w, k, held: setattr(w, "requires_grad", k % 3 != 0),
    "the CPU": lambda w, k, held: setattr(w, "_array", W.copy()) if k == 4 else None,
}


@pytest.mark.filterwarnings("ignore::odyssey.errors.CompileWarning")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("function", [read, write, accumulate, write_item])
def test_what_happens_to_a_state_between_runs_is_seen(function, change):
    left = []
    for is_compiled in (False, True):
        w, held, found = on(W, requires_grad=True), [], []

        def step(x, w=w):
            return function(w, x)

        step = od.compile(step, warn=False) if is_compiled else step
        for k in range(7):
            CHANGES[change](w, k, held)
            try:
                found.append(step(on(X)).numpy())
            except od.errors.OdysseyError as error:
                found.append(type(error).__name__)
            found += [w.numpy(), None if w.grad is None else np.asarray(w.grad.get())]
        left.append([*found, *[(one.numpy(), other) for one, other in held]])
    for one, other in zip(*map(od.tree.leaves, left), strict=True):
        if isinstance(one, np.ndarray):
            np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-6)
        else:
            assert one == other
    assert step.statistics().native >= (1 if change == "frozen now and then" else 3)


def test_a_held_state_of_the_host_keeps_its_numbers():
    w, count = on(W, requires_grad=True), od.Variable(np.zeros(2))

    @od.compile(fullgraph=True)
    def step(x):
        count.assign(count + 1.0)
        w.assign(w * 0.5)
        return x * 2.0

    step(on(X)), step(on(X))
    held = count.detach(), count.numpy()
    step(on(X)), step(on(X))
    assert step.statistics().native == 3
    assert count.numpy().tolist() == [4.0, 4.0]
    assert [held[0].numpy().tolist(), held[1].tolist()] == [[2.0, 2.0]] * 2


def test_a_failed_check_of_what_the_host_computes_raises_the_eager_error():
    table, index = od.Variable(np.arange(4.0)), od.Variable(np.array([1, 2]))
    total = on(np.zeros(3, "f8"), requires_grad=True)

    @od.compile(fullgraph=True)
    def step(x):
        drawn = od.ops.sum(od.ops.take(table, index, 0)).to(x.device)
        total.assign(total + x * drawn)
        return x * drawn

    x = on(np.ones(3))
    for _ in range(3):
        np.testing.assert_array_equal(step(x).numpy(), np.full(3, 3.0))
    index.assign(np.array([1, 9]))
    for _ in range(2):
        with pytest.raises(od.errors.OutOfRangeError, match="index 9 is out of bounds"):
            step(x)
    np.testing.assert_array_equal(total.numpy(), np.full(3, 9.0))
    index.assign(np.array([0, 3]))
    np.testing.assert_array_equal(step(x).numpy(), np.full(3, 3.0))
    assert step.statistics().native == 3


def test_arguments_that_are_or_alias_states():
    w = on(W, requires_grad=True)
    scale = od.compile(lambda x: x * w, fullgraph=True)
    for given in (w, w.detach(), w, w.detach()):
        np.testing.assert_array_equal(scale(given).numpy(), W * W)

    @od.compile(fullgraph=True)
    def halve(x):
        w.assign(w - x * 0.5)
        return x * 1.0

    expected = W
    for _ in range(4):
        np.testing.assert_array_equal(halve(w.detach()).numpy(), expected)
        expected = expected * np.float32(0.5)
    np.testing.assert_array_equal(w.numpy(), expected)


def test_two_programs_write_one_state_in_turns():
    w, other = on(W, requires_grad=True), on(W, requires_grad=True)
    first = od.compile(lambda x: w.assign(w - x.sum(0)).sum(), fullgraph=True)
    second = od.compile(lambda x: w.assign(w * 0.5 + x.sum(0)).sum(), fullgraph=True)
    for _ in range(4):
        first(on(X)), second(on(X))
        other.assign(other - on(X).sum(0))
        other.assign(other * 0.5 + on(X).sum(0))
    np.testing.assert_allclose(w.numpy(), other.numpy(), rtol=1e-5)
    assert first.statistics().native == second.statistics().native == 3


def test_profiling_times_whole_runs(monkeypatch):
    from odyssey.compiler import compiled_function

    timed = []

    def profiled(name, run, missed):
        return lambda *given: timed.append(name) or run(*given)

    monkeypatch.setattr(compiled_function, "is_profiled", lambda: True)
    monkeypatch.setattr(compiled_function, "profiled", profiled)
    double = od.compile(lambda x: x * 2.0, fullgraph=True)
    for _ in range(4):
        np.testing.assert_array_equal(double(on(X)).numpy(), X * 2.0)
    assert timed == ["compiled <lambda>"] * 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks on this system")
def test_a_fork_runs_the_programs_of_its_parent():
    step, x = training(), on(X)
    for _ in range(3):
        step(x)
    expected, (read_end, write_end) = step.statistics(), os.pipe()
    child = os.fork()
    if not child:
        try:
            step(x)
            ran = step.statistics() == expected._replace(native=expected.native + 1)
            os.write(write_end, b"1" if ran else b"0")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write_end)
    assert os.read(read_end, 1) == b"1"
    os.close(read_end)
    step(x)
    assert step.statistics().native == expected.native + 1


def in_use():
    return od.devices.cuda().memory_stats()["in_use"]


def training():
    w = on(np.ones((3, 2), "f4"), requires_grad=True)
    update = od.optim.Adam([w], 0.01)

    def step(x):
        with od.GradientTape() as tape:
            loss = od.ops.tanh(x @ w).sum()
        tape.backward(loss)
        update.step()
        update.zero_grad()
        return loss

    return od.compile(step, fullgraph=True)


def test_a_dropped_function_frees_its_memory_at_once():
    w = on(W, requires_grad=True)
    c = np.full((64, 3), 2.0, "f4")
    x = on(np.ones((64, 3), "f4"))
    gc.collect()
    gc.disable()
    try:
        before = in_use()
        step = od.compile(lambda x: od.ops.tanh(x * w) @ od.ops.exp(x.T), fullgraph=True)
        for _ in range(4):
            step(x)
        assert in_use() > before
        gone = weakref.ref(next(iter(step._known.values())).programs[0][1].executable)
        del step
        assert gone() is None
        assert in_use() == before
    finally:
        gc.enable()
    assert c.size


@pytest.mark.slow
def test_runs_leave_no_memory_behind():
    step, x = training(), on(X)
    for _ in range(5):
        step(x)
    gc.collect()
    memory, objects = in_use(), len(gc.get_objects())
    for _ in range(60):
        step(x)
    gc.collect()
    assert in_use() == memory
    assert len(gc.get_objects()) <= objects + 30  # fewer than one a run


def test_copies_of_compiled_functions_compile_programs_of_their_own():
    step = od.compile(lambda x: od.ops.tanh(x))
    for one in (step, copy.copy(step)):
        for _ in range(3):
            one(on(X))
        assert one.statistics() == (1, 2, 1)


def test_sizes_have_programs_of_their_own():
    tanh = od.compile(od.ops.tanh, dynamic={"x": {0: od.Dim("batch")}})
    for count in (2, 3, 2, 3, 2, 3):
        x = np.ones((count, 3), "f4")
        np.testing.assert_allclose(tanh(on(x)).numpy(), np.tanh(x), rtol=1e-6)
    assert tanh.statistics() == (2, 4, 2)


@pytest.mark.parametrize("named", [False, True], ids=["by position", "by name"])
def test_kinds_of_arguments_are_compared_at_each_call(named):
    scale = od.compile(lambda x, k: x * k, fullgraph=True)
    w = on(X, requires_grad=True)
    given = [on(X), on(X), CUPY.asarray(X), on(X), w, on(X), on(X[:2]), on(X.astype("f8")), on(X)]
    for k, x in enumerate([*given, *given]):
        found = scale(x=x, k=2.0 + k) if named else scale(x, 2.0 + k)
        expected = x * (2.0 + k)
        assert type(found) is type(expected)
        assert found.dtype == expected.dtype
        assert getattr(found, "requires_grad", None) == getattr(expected, "requires_grad", None)
        host = [
            one.numpy() if isinstance(one, od.Variable) else one.get() for one in (found, expected)
        ]
        np.testing.assert_allclose(*host, rtol=1e-6)
    assert scale.statistics().native >= 9

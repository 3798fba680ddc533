"""Natively dispatched calls leave what eager calls leave, whatever comes in between."""

import gc
import sys
import threading
import weakref
from collections import namedtuple
from functools import partial

import numpy as np
import pytest

import odyssey as od
from odyssey.compiler.dispatch.fast_path import CACHE_MISS
from odyssey.compiler.native_dispatch import NATIVE_DISPATCH
from odyssey.compiler.native_dispatch.loader import load_entry_points
from odyssey.errors import MutationError
from support.threads import run_in_threads

pytestmark = pytest.mark.skipif(not NATIVE_DISPATCH, reason="ODYSSEY_NATIVE_DISPATCH=off")

Pair = namedtuple("Pair", "first second")
X, Y = np.linspace(-1.0, 1.0, 8), np.linspace(0.5, 2.0, 8)


def settled(fn, *args):
    """A compiled function whose next call with these arguments is one native function."""
    compiled = od.compile(fn)
    for _ in range(4):
        compiled(*args)
    return compiled


def is_direct(compiled, *args):
    return compiled._fast_path(*args) is not CACHE_MISS


def step_of(optimizer=None, zero=True):
    w = od.Variable(np.linspace(-1.0, 1.0, 4), requires_grad=True, name="w")
    b = od.Variable(np.zeros(2), requires_grad=True, name="b")
    optimizer = optimizer or od.optim.SGD([w, b], 0.1, momentum=0.9)

    def step(x):
        with od.GradientTape() as tape:
            loss = od.ops.sum(od.ops.tanh(od.ops.reshape(w, (2, 2)) @ x + b) ** 2)
        tape.backward(loss)
        optimizer.step()
        if zero:
            optimizer.zero_grad()
        return loss

    return step, w, b, optimizer


RESULTS = {
    "an array": lambda x, y: od.ops.tanh(x * y),
    "a number": lambda x, y: np.sum(x * y),
    "a Variable": lambda x, y: od.Variable(x) * y,
    "a Variable without axes": lambda x, y: od.ops.sum(od.Variable(x) * y),
    "nothing": lambda x, y: None,
    "numbers of Python": lambda x, y: (1, 2.5, "three", None),
    "a pair": lambda x, y: (x + y, od.Variable(x) - y),
    "a nested pair": lambda x, y: ((x + y,), x - y),
    "a list": lambda x, y: [x + y, x - y],
    "a dictionary": lambda x, y: {"sum": x + y, "both": (x * 2.0, od.ops.sum(od.Variable(y) * x))},
    "a named tuple": lambda x, y: Pair(x + y, x * y),
    "a product with one": lambda x, y: (x * 1.0, np.reshape(1.0 * y, (2, 4))),
    "many": lambda x, y: tuple(x * (k + 2.0) for k in range(20)),
}


def described(result):
    if isinstance(result, dict):
        return {key: described(value) for key, value in result.items()}
    if isinstance(result, (tuple, list)):
        return [type(result), *map(described, result)]
    if isinstance(result, od.Variable):
        kind = type(result._array), result._recording, result._info, result._spec
        return kind, described(result._array)
    if isinstance(result, (np.ndarray, np.generic)):
        return type(result), result.dtype, result.shape, np.asarray(result).tobytes()
    return type(result), result


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_those_of_the_function(name):
    fn = RESULTS[name]
    x, y = np.round(X * 8) / 8, np.round(Y * 8) / 8  # sums of these are exact in any order
    compiled = settled(fn, x, y)
    assert is_direct(compiled, x, y)
    before = compiled.statistics()
    first, second = compiled(x, y), compiled(2.0 * x, y)
    assert compiled.statistics() == before._replace(native=before.native + 2)
    if name == "an array":  # of a function whose last digit is not given
        np.testing.assert_allclose(first, fn(x, y), rtol=1e-14)
        return
    assert described(first) == described(fn(x, y))
    assert described(second) == described(fn(2.0 * x, y))


def test_results_are_new_each_time_and_have_numbers_of_their_own():
    compiled = settled(lambda x: (x * 2.0, od.Variable(x) * 3.0), X)
    (a, v), (b, u) = compiled(X), compiled(X)
    assert a is not b
    assert not np.may_share_memory(a, b)
    assert not np.may_share_memory(v._array, u._array)
    assert u.id > v.id
    a[...] = 0.0
    np.testing.assert_array_equal(b, 2.0 * X)


def test_a_direct_step_is_the_eager_step_call_by_call():
    (eager, *ours), (fn, *theirs) = step_of(), step_of()
    x = np.linspace(0.0, 1.0, 4).reshape(2, 2)
    compiled = od.compile(fn)
    for k in range(20):
        if k == 12:
            ours[-1].learning_rate = theirs[-1].learning_rate = 0.01
        a, b = eager(x), compiled(x)
        np.testing.assert_allclose(b.numpy(), a.numpy(), rtol=1e-13)
        for one, other in zip(ours[:2], theirs[:2], strict=True):
            np.testing.assert_allclose(other.numpy(), one.numpy(), rtol=1e-13)
            assert other.grad is None
    assert compiled.statistics().written == 1
    assert is_direct(compiled, x)


def test_a_tape_notices_what_a_direct_step_wrote():
    fn, w, _, _ = step_of()
    x = np.eye(2)
    compiled = settled(fn, x)
    with od.GradientTape() as tape:
        loss = od.ops.sum(w * w)
    version = w._info.version
    compiled(x)
    assert w._info.version > version
    with pytest.raises(MutationError):
        tape.backward(loss)


def test_gradients_that_a_direct_call_leaves_are_new_arrays_of_the_eager_values():
    w = od.Variable(np.array([1.0, 2.0]), requires_grad=True)

    def backward(x):
        with od.GradientTape() as tape:
            loss = od.ops.sum(w * w * x)
        tape.backward(loss)

    x = np.array([3.0, 5.0])
    compiled = od.compile(backward)
    kept = []
    for _ in range(6):
        compiled(x)
        np.testing.assert_array_equal(w.grad, [6.0, 20.0])
        kept.append(w._info.grad)
        w.zero_grad()
    assert len({id(grad) for grad in kept}) == 6
    assert compiled.statistics().written == 1
    compiled(x)
    compiled(x)  # adds to what is there
    np.testing.assert_array_equal(w.grad, [12.0, 40.0])


def test_what_surrounds_a_call_is_asked_each_time():
    w = od.Variable(np.array([1.0, 2.0]), requires_grad=True)
    compiled = settled(lambda x: w * x, np.ones(2))
    x = np.array([2.0, 3.0])
    assert is_direct(compiled, x)
    with od.GradientTape() as tape:
        y = od.ops.sum(compiled(x))
    np.testing.assert_array_equal(tape.gradient(y, w), x)
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        compiled(np.array([1e308, 1.7e308]))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(compiled(x).numpy(), [2.0, 6.0])
    np.testing.assert_array_equal(compiled(x).numpy(), [2.0, 6.0])
    graph = od.compile(lambda x: compiled(x) + 1.0).lower(x).graph
    assert any(instruction.row.name == "multiply" for instruction in graph.instructions)


def test_one_array_at_two_places_is_told_from_two():
    compiled = settled(lambda x, y: x - y, X, Y)
    assert not is_direct(compiled, X, X)
    np.testing.assert_array_equal(compiled(X, X), np.zeros(8))
    np.testing.assert_array_equal(compiled(X, X.copy()), np.zeros(8))


def test_a_direct_write_waits_for_who_writes():
    fn, *_ = step_of()
    x = np.eye(2)
    compiled = settled(fn, x)
    done = threading.Event()

    def call():
        compiled(x)
        done.set()

    from odyssey.devices.write_guard import GUARD

    thread = threading.Thread(target=call)
    with GUARD:
        thread.start()
        assert not done.wait(0.2)
        compiled(x)  # who holds the lock may go on
    thread.join()
    assert done.is_set()


@pytest.mark.slow
def test_a_hundred_thousand_calls_leave_no_object_and_no_reference_behind():
    w = od.Variable(np.ones(4), requires_grad=True)

    def fn(x):
        with od.GradientTape() as tape:
            loss = od.ops.sum(w * x)
        tape.backward(loss)
        w.assign(w.numpy() * 0.5 + x)
        w.zero_grad()
        return loss, x * 2.0, None, {"sum": od.ops.sum(x)}

    x = np.linspace(0.0, 1.0, 4)
    compiled = settled(fn, x)
    assert is_direct(compiled, x)
    watched = [None, True, CACHE_MISS, np.dtype(float), compiled(x)[0]._recording, w._spec, w._info]
    kept = None

    def run(times):
        nonlocal kept
        for _ in range(times):
            kept = compiled(x)
            compiled._fast_path(x, x)  # a miss
            compiled._fast_path(x.astype(np.float32))

    run(100)
    gc.collect()
    counts = [sys.getrefcount(one) for one in watched]
    blocks = sys.getallocatedblocks()
    run(100_000)
    gc.collect()
    assert abs(sys.getallocatedblocks() - blocks) < 200
    later = [sys.getrefcount(one) for one in watched]
    assert all(abs(a - b) < 50 for a, b in zip(counts, later, strict=True)), (counts, later)


def test_a_compiled_function_and_what_it_uses_are_let_go():
    class Held:
        pass

    fn, w, b, optimizer = step_of()
    held = fn.held = Held()
    compiled = settled(fn, np.eye(2))
    gone = [weakref.ref(one) for one in (held, w, b, compiled, fn)]
    del fn, w, b, optimizer, held, compiled
    gc.collect()
    assert [one() for one in gone] == [None] * 5


def test_programs_keep_the_code_that_all_of_them_are_called_by():
    fn, *_ = step_of()
    compiled = settled(fn, np.eye(2))
    before = load_entry_points(direct=True)
    gone = weakref.ref(before)
    load_entry_points.cache_clear()  # as at the end of Python
    del before
    gc.collect()
    assert gone() is not None
    compiled(np.eye(2))
    other, *_ = step_of()
    settled(other, np.eye(2))
    assert load_entry_points(direct=True) is not gone()


def test_who_is_about_to_call_a_program_may_do_so_while_another_thread_forgets_it():
    x = np.linspace(-1.0, 1.0, 240).reshape(12, 20)
    w = od.Variable(np.ones((12, 20)))
    compiled = settled(lambda x: np.tanh(x @ x.T) @ x + w, x)
    wanted = compiled(x).numpy()
    latest = compiled._fast_path  # as a thread has it that waits for the lock of Python
    ((case),) = compiled._known.values()
    executable = case.programs[0][1].executable
    sizes = {part.nbytes for part in (executable._keep, executable.table, executable.words)}
    del case, executable
    compiled.clear_cache()
    gc.collect()
    # Where the program had its memory.
    others = [np.full(size, 7, np.uint8) for size in sizes for _ in range(50)]
    for _ in range(3):
        assert np.array_equal(latest(x).numpy(), wanted)
    assert all((other == 7).all() for other in others)


def test_a_binding_that_fails_changes_nothing_of_the_one_before():
    v = od.Variable(np.arange(8.0))
    w = od.Variable(np.ones(8), requires_grad=True)
    optimizer = od.optim.SGD([w], 0.5)

    def step(x):
        with od.GradientTape() as tape:
            loss = od.ops.sum(v * w * x)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    compiled = settled(step, X)
    mine, other = v._array, np.full(8, 100.0)
    v._array = other
    w._array.flags.writeable = False
    compiled(X)  # as it was written: w looks as if nobody might write to it
    v._array = mine
    w._array.flags.writeable = True
    wanted = float(np.sum(mine * w._array * X))
    assert float(compiled(X).detach().numpy()) == pytest.approx(wanted, rel=1e-12)


def test_the_collector_may_call_the_function_while_results_are_made():
    fn, w, _, _ = step_of()
    x = np.eye(2)
    compiled = settled(fn, x)
    inside = []

    def called(phase, info):
        if phase == "start" and len(inside) < 1000 and not (inside and inside[-1] is None):
            inside.append(None)
            inside[-1] = compiled(x)

    version = w._info.version
    gc.callbacks.append(called)
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        kept = [compiled(x) for _ in range(100)]
    finally:
        gc.set_threshold(*threshold)
        gc.callbacks.remove(called)
    assert inside
    assert None not in inside
    assert w._info.version - version == len(kept) + len(inside)
    losses = [float(loss.numpy()) for loss in (*kept, *inside)]
    assert len(set(losses)) == len(losses)  # each was a step of its own


def test_a_call_for_which_memory_is_short_is_whole_or_not_at_all():
    api = pytest.importorskip("_testcapi")
    fn, w, _, _ = step_of()
    x = np.eye(2)
    compiled = settled(fn, x)
    steps = 0
    for start in range(1, 40):
        version, data = w._info.version, w.numpy().copy()
        try:
            api.set_nomemory(start, start + 1)
            compiled(x)
        except MemoryError:
            pass
        finally:
            api.remove_mem_hooks()
        moved = not np.array_equal(w.numpy(), data)
        assert (w._info.version != version) is moved
        steps += moved
    assert steps > 20


def test_results_of_threads_are_their_own():
    compiled = settled(lambda x: (x * 2.0, od.ops.sum(od.Variable(x) * x)), X)
    wrong = []

    def work(k):
        x = np.full(8, float(k))
        for _ in range(3000):
            doubled, total = compiled(x)
            if doubled[0] != 2.0 * k or float(total.numpy()) != 8.0 * k * k:
                wrong.append(k)

    run_in_threads(*[partial(work, k) for k in range(4)])
    assert not wrong


def test_what_shows_an_argument_is_not_copied():
    shown = (
        lambda x: x,
        lambda x: x[::2],
        lambda x: np.reshape(x, (2, 4)),
        lambda x: np.real(x),
        lambda x: od.Variable(x),
        lambda x: (x * 2.0, [x.T]),
    )
    for fn in shown:
        compiled = settled(fn, X)
        for found in (compiled(X), fn(X)):
            last = found[1][0] if type(found) is tuple else found
            array = last._array if isinstance(last, od.Variable) else last
            assert np.may_share_memory(array, X)


class Model:
    scale = 1.0

    def __init__(self, seed=0):
        rng = np.random.default_rng(seed)
        self.w = od.Variable(rng.normal(size=(2, 2)), requires_grad=True)
        self.optimizer = od.optim.SGD([self.w], 0.1)

    def written(self, x):
        with od.GradientTape() as tape:
            loss = od.ops.sum((x @ self.w) ** 2) * self.scale
        tape.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss

    step = od.compile(written)

    @od.compile
    def scaled(self, x, factor):
        return od.ops.sum(x @ self.w, axis=0) * factor

    @od.compile
    def between(self, factor, other, x):
        return x * factor + other.scale


def test_methods_are_direct_calls_of_the_object_they_were_called_of():
    one, two, eager = Model(), Model(), Model()
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    for _ in range(5):
        np.testing.assert_allclose(one.step(x).numpy(), eager.written(x).numpy(), rtol=1e-13)
    assert Model.step._fast_path(one, x) is not CACHE_MISS
    eager.written(x)
    assert Model.step._fast_path(two, x) is CACHE_MISS
    assert Model.step._fast_path(one) is CACHE_MISS
    assert Model.step._fast_path() is CACHE_MISS
    losses = []
    for _ in range(6):  # each of an object of its own
        losses.append(float(two.step(x).numpy()))
        np.testing.assert_allclose(one.step(x).numpy(), eager.written(x).numpy(), rtol=1e-13)
    other = Model()
    np.testing.assert_allclose(losses, [float(other.written(x).numpy()) for _ in range(6)])
    one.scale = 2.0
    eager.scale = 2.0
    for _ in range(3):
        np.testing.assert_allclose(one.step(x).numpy(), eager.written(x).numpy(), rtol=1e-13)


def test_numbers_of_a_method_are_inputs_wherever_they_stand():
    one, two = Model(), Model()
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    for k in range(8):
        wanted = (x @ one.w.numpy()).sum(0) * (0.5 * k)
        np.testing.assert_allclose(one.scaled(x, 0.5 * k).numpy(), wanted, rtol=1e-14)
        np.testing.assert_array_equal(one.between(0.5 * k, two, x), x * (0.5 * k) + 1.0)
    assert Model.scaled._fast_path(one, x, 3.0) is not CACHE_MISS
    assert Model.scaled.statistics().programs == 1
    two.scale = 3.0
    np.testing.assert_array_equal(one.between(2.0, two, x), x * 2.0 + 3.0)


def test_calls_with_keywords_are_direct_and_bind_as_python_does():
    compiled = od.compile(lambda x, y=X, *, z=Y: x - 2.0 * y + 3.0 * z)
    a, b, c = np.ones(8), np.full(8, 2.0), np.full(8, 5.0)
    ways = {
        (1, "y", "z"): 1.0 - 4.0 + 15.0,
        (1, "z", "y"): 1.0 - 10.0 + 6.0,
        (0, "z", "x", "y"): 2.0 - 10.0 + 3.0,
        (2, "z"): 1.0 - 4.0 + 15.0,
        (0, "x", "y", "z"): 1.0 - 4.0 + 15.0,
    }
    for _ in range(4):
        for (count, *names), wanted in ways.items():
            given = a, b, c
            for _ in range(2):
                found = compiled(*given[:count], **dict(zip(names, given[count:], strict=True)))
                np.testing.assert_array_equal(found, np.full(8, wanted))
    names, latest, _ = compiled._keyword_path
    assert names == ("x", "y", "z")
    assert latest(a, b, c) is not CACHE_MISS
    np.testing.assert_array_equal(compiled(x=a, y=a, z=c), a - 2.0 * a + 3.0 * c)
    np.testing.assert_array_equal(compiled(a, b), a - 2.0 * b + 3.0 * Y)
    with pytest.raises(TypeError, match="multiple values"):
        compiled(a, b, x=c)
    with pytest.raises(TypeError, match="unexpected keyword"):
        compiled(a, y=b, w=c)
    assert compiled.statistics().programs == len(ways)

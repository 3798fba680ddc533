"""Programs of different states run side by side; those of one set, and who writes, one by one."""

import ast
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.compiler.machine.state_locks import memory_owner, state_locks
from odyssey.devices import write_guard
from odyssey.devices.copy_on_write import StateMemory, packed_view
from odyssey.optim import SGD
from support.faults import in_its_thread, interrupt

pytest.importorskip("llvmlite", reason="llvmlite, which makes machine code, is missing")

X = np.random.default_rng(1).normal(size=(300, 160))


def model(seed, size=160):
    """A step that takes long enough to let other threads run, its parameters and its optimizer."""
    rng = np.random.default_rng(seed)
    w = Variable(rng.normal(size=(size, size)) * 0.05, requires_grad=True)
    b = Variable(np.zeros(size), requires_grad=True)
    optimizer = SGD([w, b], 0.01, momentum=0.9)

    def step(x):
        with GradientTape() as tape:
            loss = ops.mean((ops.tanh(x @ w + b) - x) ** 2)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step, w, optimizer


def native(fn, *args):
    """A compiled function that has run natively."""
    compiled = od.compile(fn, check=True)
    for _ in range(3):
        compiled(*args)
    assert compiled.statistics().native
    return compiled


def program_of(compiled):
    return next(iter(compiled._known.values())).programs[0][1]


def locks(compiled):
    return program_of(compiled).executable.locks


class Doing:
    """What runs in a thread of its own; ``ends`` is whether it does within a time."""

    def __init__(self, work, *args):
        self.failed = None
        self.thread = threading.Thread(target=self.run, args=(work, *args), daemon=True)
        self.thread.start()

    def run(self, work, *args):
        try:
            work(*args)
        except BaseException as error:
            self.failed = error

    def ends(self, seconds=60):
        self.thread.join(seconds)
        if self.failed is not None:
            raise self.failed
        return not self.thread.is_alive()


def running(compiled, until):
    """Let a thread be in the midst of a program's run, as far as others see; say when it is."""
    begun = threading.Event()

    def run():
        begun.set()
        assert until.wait(60)

    doing = Doing(write_guard.run_with_locks, locks(compiled), run)
    assert begun.wait(60)
    return doing


@pytest.fixture
def until():
    """An event, which is set at the end whatever comes."""
    event = threading.Event()
    yield event
    event.set()


# ------------------------------------------------------------------ who waits for whom


@pytest.mark.slow
def test_programs_of_two_models_run_side_by_side(until):
    (one, *_), (other, *_) = model(1), model(2)
    one, other = native(one, X), native(other, X)
    assert program_of(one).executable.module.releases_gil
    assert len(locks(one)) == len(locks(other)) == 1
    first = running(one, until)
    assert Doing(other, X).ends()
    again = Doing(one, X)
    assert not again.ends(0.1)
    until.set()
    assert first.ends()
    assert again.ends()


@pytest.mark.parametrize("short", [False, True])
def test_a_program_that_reads_a_state_waits_for_one_that_writes_it(short, until):
    step, w, _ = model(1)
    step = native(step, X)
    reader = native((lambda: w[0, 0] * 2.0) if short else lambda: ops.sum(ops.tanh(X @ w)))
    assert program_of(reader).executable.module.releases_gil is not short
    first = running(step, until)
    reading = Doing(reader)
    assert not reading.ends(0.1)
    until.set()
    assert first.ends()
    assert reading.ends()


def test_programs_of_arguments_alone_wait_for_nobody(until):
    step, *_ = model(1)
    step, pure = native(step, X), native(lambda x: ops.tanh(x @ x.T).sum(), X)
    first = running(step, until)
    with program_of(native(lambda x: ops.exp(x @ x.T).sum(), X))._lock, write_guard.GUARD:
        assert Doing(pure, X).ends()
    assert not first.ends(0.0)


def backward(w):
    with GradientTape() as tape:
        loss = ops.sum(w * w)
    tape.backward(loss)


WRITES = {
    "assign": lambda w, o: w.assign(w.numpy() * 1.0),
    "an item": lambda w, o: w.__setitem__((0, 0), 1.0),
    "in place": lambda w, o: w.__iadd__(1.0),
    "a gradient": lambda w, o: setattr(w, "grad", None),
    "freezing": lambda w, o: setattr(w, "requires_grad", False),
    "a step": lambda w, o: o.step(allow_missing=True),
    "zero_grad": lambda w, o: o.zero_grad(),
    "state_dict": lambda w, o: o.state_dict(),
    "load_state_dict": lambda w, o: o.load_state_dict(od.optim.SGD([w], 0.1).state_dict()),
    "backward": lambda w, o: backward(w),
}


@pytest.mark.share(3, rest="slow")
@pytest.mark.parametrize("name", WRITES)
def test_who_writes_waits_for_programs_and_programs_wait_for_it(name, until):
    step, *_ = model(1)
    step, pure = native(step, X), native(lambda x: ops.tanh(x @ x.T).sum(), X)
    w = Variable(np.ones((2, 2)), requires_grad=True)  # of no program: who writes does not ask
    optimizer = SGD([w], 0.1)
    first = running(step, until)
    writing = Doing(WRITES[name], w, optimizer)
    assert not writing.ends(0.1)
    begins = Doing(step, X)  # behind it
    assert Doing(pure, X).ends()
    assert not begins.ends(0.1)
    until.set()
    assert first.ends()
    assert writing.ends()
    assert begins.ends()


def test_a_file_is_written_between_two_steps(until, tmp_path):
    step, w, _ = model(1)
    step = native(step, X)
    first = running(step, until)
    saving = Doing(od.save, tmp_path / "w.npz", {"w": w})
    assert not saving.ends(0.1)
    until.set()
    assert first.ends()
    assert saving.ends()


@pytest.mark.slow
def test_programs_of_two_sets_have_the_locks_of_both():
    (one, v, _), (other, w, _) = model(1), model(2)
    one, other = native(one, X), native(other, X)
    both = native(lambda: ops.sum(ops.tanh(v @ w)))
    assert set(locks(both)) == {*locks(one), *locks(other)}
    assert list(locks(both)) == sorted(locks(both), key=id)
    wanted = float(both())
    works = [Doing(lambda fn=fn: [fn() for _ in range(20)]) for fn in (both, both)]
    works += [Doing(lambda fn=fn: [fn(X) for _ in range(20)]) for fn in (one, other)]
    assert all(work.ends() for work in works)
    assert float(both()) != wanted


def test_states_that_are_views_of_one_array_are_one_set():
    whole = np.zeros((4, 400))
    pair = [Variable(np.zeros(400), requires_grad=True) for _ in range(2)]
    for k, v in enumerate(pair):
        v._array = packed_view(whole.view(StateMemory)[2 * k])
    programs = [native(lambda v=v: v.assign(ops.tanh(v) + 1.0)) for v in pair]
    assert memory_owner(pair[0]._array) is memory_owner(pair[1]._array) is whole
    assert set(locks(programs[0])) & set(locks(programs[1]))


def test_memory_of_others_is_one_set():
    memory = bytearray(6400)
    pair = [np.frombuffer(memoryview(memory)[k : k + 3200]) for k in (0, 3200)]
    found = [state_locks([memory_owner(array)]) for array in pair]
    assert found[0] == found[1]
    own = state_locks([memory_owner(np.ones(3))])
    assert own != found[0]
    roots = [memory_owner(np.ones(3)), memory_owner(pair[0])]
    assert set(state_locks(roots)) > set(found[0])
    assert len(state_locks(roots)) == 2


def test_a_program_whose_state_was_given_memory_of_another_set_has_its_lock_from_then_on():
    shared = np.zeros(400)
    v, w = [Variable(np.zeros(400), requires_grad=True) for _ in range(2)]
    v._array = packed_view(shared.view(StateMemory)[:])
    one, other = native(lambda: v.assign(v + 1.0)), native(lambda: w.assign(w + 1.0))
    assert locks(one) != locks(other)
    w._array = packed_view(shared.view(StateMemory)[:])
    before = v.numpy().copy()
    for _ in range(3):
        other()
    assert set(locks(one)) < set(locks(other))
    np.testing.assert_array_equal(v.numpy(), before + 3.0)


# ------------------------------------------------------------------ in the midst of a run


def test_what_is_called_within_a_program_writes_while_somebody_waits_for_it():
    step, w, _ = model(1)
    step = native(step, X)
    found = []

    def interrupted():
        writing = Doing(w.assign, w.numpy() * 0.0)
        assert not writing.ends(0.1)
        w.assign(np.ones(w.shape))
        found.append(step(X))  # as written
        return writing

    writing = write_guard.run_with_locks(locks(step), interrupted)
    assert writing.ends()
    assert np.isfinite(float(found[0]))
    assert not w.numpy().any()
    assert not write_guard.GUARD._is_owned()


def test_two_programs_that_are_interrupted_to_write_do_not_wait_for_each_other():
    (one, v, _), (other, w, _) = model(1), model(2)
    one, other = native(one, X), native(other, X)
    both = threading.Barrier(2)

    def interrupted(leaf):
        both.wait(60)
        leaf.assign(np.ones(leaf.shape))

    works = [
        Doing(write_guard.run_with_locks, locks(fn), lambda leaf=leaf: interrupted(leaf))
        for fn, leaf in ((one, w), (other, v))
    ]
    assert all(work.ends() for work in works)
    assert v.numpy().all()
    assert w.numpy().all()


def test_who_is_called_within_a_program_waits_for_one_that_runs_on(until):
    (one, *_), (other, w, _) = model(1), model(2)
    one, other = native(one, X), native(other, X)
    first = running(other, until)
    writing = Doing(write_guard.run_with_locks, locks(one), lambda: w.assign(np.ones(w.shape)))
    assert not writing.ends(0.1)
    until.set()
    assert first.ends()
    assert writing.ends()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no such timer")
def test_a_handler_that_saves_in_the_midst_of_steps_finds_whole_ones(tmp_path):
    w = Variable(np.zeros(200_000), requires_grad=True)
    step = native(lambda: w.assign(ops.tanh(w) * 0.0 + w + 1.0))
    saved, over = [], threading.Event()

    def handle(*_):
        if not over.is_set():
            saved.append(w.numpy().copy())
            od.save(tmp_path / "w.npz", {"w": w})
            signal.setitimer(signal.ITIMER_REAL, 0.01)

    (other, *_), before = model(1), signal.signal(signal.SIGALRM, handle)
    other = native(other, X)
    beside = Doing(lambda: [other(X) for _ in iter(over.is_set, True)])
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        while len(saved) < 20:
            step()
    finally:
        over.set()
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert beside.ends()
    assert all(array.min() == array.max() for array in saved)


@in_its_thread
def test_a_writer_forgets_runs_that_ended_unnoticed():
    w, n, lock = Variable(np.ones(3), requires_grad=True), 0, write_guard.STATES.new()
    while True:
        n += 1
        write_guard._RUNNING[lock] = False
        try:
            with interrupt(n) as fired:
                w.assign(np.zeros(3))
        except KeyboardInterrupt:
            pass
        assert not write_guard.GUARD._is_owned()
        if not fired:
            break
    assert n > 20
    assert not write_guard._RUNNING


@in_its_thread
def test_an_interrupt_at_any_line_of_a_run_leaves_no_lock_and_a_whole_step():
    w = Variable(np.zeros(200_000), requires_grad=True)
    k, n = np.zeros(200_000, np.int64), 0
    # Two steps, as indices must be looked at before anything is written.
    step = native(lambda k: w.assign(ops.tanh(w[k]) * 0.0 + w + 1.0), k)
    assert program_of(step).executable.module.releases_gil
    while True:
        n += 1
        before = w.numpy()[0]
        try:
            with interrupt(n) as fired:
                step(k)
        except KeyboardInterrupt:
            pass
        assert w.numpy().min() == w.numpy().max()
        assert w.numpy()[0] in (before, before + 1)
        assert Doing(step, k).ends(), fired
        assert not write_guard.is_inside_program()
        if not fired:
            break
    assert n > 10


@pytest.mark.slow
def test_whoever_takes_the_guard_waits_for_programs_first():
    """In every file of the package, so that a further writer is not forgotten."""
    package, found = Path(od.__file__).parent, []
    for file in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.With):
                for item in node.items:
                    if ast.unparse(item.context_expr) == "write_lock()":
                        found.append((file.name, ast.unparse(node.body[0])))
    assert len(found) > 12
    assert {first for _, first in found} == {"wait_for_programs()"}, found


# ------------------------------------------------------------------ all at once


def test_models_writers_and_readers_in_many_threads_lose_nothing():
    rng = np.random.default_rng(3)
    rooms = [Variable(np.zeros(60_000), requires_grad=True) for _ in range(3)]
    adds = [native(lambda v=v: v.assign(ops.tanh(v) * 0.0 + v + 1.0)) for v in rooms]
    reads = [native(lambda v=v: (ops.min(v), ops.max(ops.tanh(v) * 0.0 + v))) for v in rooms]
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    moves = [
        native(lambda a=a, b=b: (rooms[a].assign(rooms[a] - 1.0), rooms[b].assign(rooms[b] + 1.0)))
        for a, b in pairs
    ]
    start = sum(float(v.numpy()[0]) for v in rooms)

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            kind, which = rng.integers(4), rng.integers(3)
            if kind == 0:
                adds[which]()
            elif kind == 1:
                moves[rng.integers(len(moves))]()
            elif kind == 2:
                rooms[which] += 1.0
            else:
                low, high = reads[which]()
                assert float(low) == float(high)
            counts[seed] += kind in (0, 2)

    counts = dict.fromkeys(rng.integers(1 << 30, size=6).tolist(), 0)
    before, works = sys.getswitchinterval(), []
    sys.setswitchinterval(1e-5)
    try:
        works = [Doing(work, seed) for seed in counts]
        assert all(one.ends() for one in works)
    finally:
        sys.setswitchinterval(before)
    for v in rooms:
        assert v.numpy().min() == v.numpy().max()
    assert sum(float(v.numpy()[0]) for v in rooms) == start + sum(counts.values())

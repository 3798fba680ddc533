"""Threads: scopes and tapes belong to one at a time; leaves and optimizers may be shared."""

import asyncio
import contextvars
import itertools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.devices.commit import commit
from odyssey.errors import MutationError, TapeConsumedError, TapeError, UntrackedError
from odyssey.table import scope
from odyssey.table.scope import innermost_scope, scopes
from odyssey.table.value import SharedVersion, write_plan
from odyssey.tape.recording import Recording


@pytest.fixture(autouse=True)
def _nothing_is_left_in_this_context():
    assert innermost_scope() is None
    yield
    assert innermost_scope() is None
    assert scopes() == (None,)


@pytest.fixture(autouse=True)
def _often_in_turn():
    """Threads take turns after a microsecond, not after five milliseconds."""
    before, travels = sys.getswitchinterval(), list(scope.CONTEXT_IS_COPIED)
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)
    scope.CONTEXT_IS_COPIED[:] = travels


def leaf(value=3.0):
    return Variable(value, requires_grad=True)


def cube(x):
    return x * x * x


def slope_of_cube(x):
    with GradientTape() as tape:
        y = cube(x)
    return float(tape.gradient(y, x))


def at_once(*jobs, endless=()):
    """Run the jobs in threads that begin together; return what they returned or raised.

    Those that are ``endless`` as well are repeated until the first other one has ended.
    """
    barrier, over = threading.Barrier(len(jobs)), threading.Event()

    def work(job):
        barrier.wait()
        try:
            if job not in endless:
                return job()
            while not over.is_set():
                job()
            return None
        except Exception as error:
            return error
        finally:
            over.set()

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(work, jobs))


def elsewhere(fn):
    """Run ``fn`` in a thread, in a copy of this context."""
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(context.run, fn).result()


# ------------------------------------------------------------------ contexts that travel


def test_a_thread_in_a_copied_context_has_no_tape_and_no_pause_of_its_parent():
    x = leaf()
    with GradientTape() as tape:
        y = x * x
        assert elsewhere(innermost_scope) is None
        assert elsewhere(lambda: slope_of_cube(x)) == 27.0
        with od.no_grad():
            assert elsewhere(lambda: slope_of_cube(x)) == 27.0
            assert innermost_scope() is not None
        assert innermost_scope() is tape._recording
    assert len(tape) == 1
    assert float(tape.gradient(y, x)) == 6.0


def test_what_a_thread_in_a_copied_context_computes_is_not_on_the_parents_tape():
    x = leaf()
    with GradientTape() as tape:
        y = x * x
        z = elsewhere(lambda: ops.exp(leaf()) + 1.0)
        late = elsewhere(lambda: (innermost_scope(), x * x)[1])
    assert len(tape) == 1
    for value in (z, late):
        with pytest.raises(UntrackedError):
            tape.gradient(value, x)
    assert float(tape.gradient(y, x)) == 6.0


FIRST_OPS = {
    "one operand": lambda x: ops.exp(x),
    "two operands": lambda x: x * x,
    "a number first": lambda x: 2.0 * x,
    "with options": lambda x: ops.sum(x, 0),
}


@pytest.mark.parametrize("op", FIRST_OPS.values(), ids=FIRST_OPS.keys())
def test_the_first_op_of_a_thread_on_a_leaf_of_its_own_is_not_on_the_parents_tape(op):
    before = scope.CONTEXT_IS_COPIED[:]
    scope.CONTEXT_IS_COPIED[:] = []
    try:
        x = leaf(np.ones(2))
        with GradientTape() as tape:
            y = x * x
            z = elsewhere(lambda: op(leaf(np.ones(2))))
    finally:
        scope.CONTEXT_IS_COPIED[:] = before
    assert len(tape) == 1
    assert z.requires_grad
    with GradientTape(), pytest.raises(UntrackedError):
        z.sum()
    np.testing.assert_array_equal(tape.gradient(y, x, np.ones(2)), [2.0, 2.0])


def test_a_task_and_the_threads_that_it_asks_have_tapes_of_their_own():
    async def one(k):
        x = leaf(float(k))
        with GradientTape() as tape:
            y = x * x
            inside = await asyncio.to_thread(slope_of_cube, x)
            y = y * x
        return float(tape.gradient(y, x)), inside, len(tape)

    async def everything():
        return await asyncio.gather(*(one(k) for k in range(1, 9)))

    assert asyncio.run(everything()) == [(3.0 * k * k, 3.0 * k * k, 0) for k in range(1, 9)]


@pytest.mark.parametrize("op", FIRST_OPS.values(), ids=FIRST_OPS.keys())
def test_the_first_op_of_a_thread_that_a_task_asks_is_not_on_the_tape_of_the_task(op):
    scope.CONTEXT_IS_COPIED[:] = []

    async def main():
        x = leaf(np.ones(2))
        with GradientTape() as tape:
            y = x * x
            z = await asyncio.to_thread(op, x)
        with pytest.raises(UntrackedError):
            tape.gradient(z, x, np.ones(z.shape))
        return tape.gradient(y, x, np.ones(2)), len(tape)

    gradient, nodes = asyncio.run(main())
    np.testing.assert_array_equal(gradient, [2.0, 2.0])
    assert nodes == 0


def test_a_thread_records_on_a_tape_that_it_is_handed_also_in_a_copied_context():
    x = leaf()
    with GradientTape() as tape:
        y = elsewhere(lambda: ops.mul(x, x, tape=tape))
        z = elsewhere(lambda: y * x)
    assert float(tape.gradient(z, x)) == 27.0


def test_a_generator_may_go_on_in_a_copied_context_of_another_thread():
    x = leaf()

    def taping():
        with GradientTape() as tape:
            y = cube(x)
            yield y
            yield float(tape.gradient(y, x))

    generator = taping()
    next(generator)
    assert elsewhere(lambda: next(generator)) == 27.0
    elsewhere(generator.close)


@pytest.fixture
def _travelling():
    scope.CONTEXT_IS_COPIED[:] = [True]


@pytest.mark.usefixtures("_travelling")
def test_where_contexts_travel_each_op_asks_whose_tape_it_is():
    x = leaf()
    with GradientTape() as tape:
        y = x * x
        late = elsewhere(lambda: x * x)  # a shortcut, with a leaf that the tape has taken up
        paused = elsewhere(lambda: (x * x, slope_of_cube(x)))
        z = elsewhere(lambda: y * x)  # a value hands its tape over
        for _ in range(3000):
            y = y * 1.0
    assert paused[1] == 27.0
    assert len(tape) == 1 + 1 + 3000
    for value in (late, paused[0]):
        with pytest.raises(UntrackedError):
            tape.gradient(value, x)
    assert float(tape.gradient([y, z], x)) == 33.0


@pytest.mark.usefixtures("_travelling")
def test_where_contexts_travel_results_are_the_same():
    x = Variable(np.arange(1.0, 5.0), requires_grad=True)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = (cube(x) * 2.0).sum()
        slope = inner.gradient(y, x, create_graph=True)
        total = (slope * slope).sum()
    np.testing.assert_array_equal(slope.detach().numpy(), 6.0 * np.arange(1.0, 5.0) ** 2)
    np.testing.assert_array_equal(outer.gradient(total, x), 144.0 * np.arange(1.0, 5.0) ** 3)


# ------------------------------------------------------------------ one tape, several threads


def test_a_tape_is_entered_by_one_thread_at_a_time():
    x, tape = leaf(), GradientTape(persistent=True)
    with tape:
        y = cube(x)
        (refused,) = at_once(tape.__enter__)
        assert isinstance(refused, TapeError)
        assert "another thread" in str(refused)
        with tape:
            y = y * 1.0
    assert float(tape.gradient(y, x)) == 27.0


def test_of_threads_that_enter_one_tape_at_once_each_is_right_or_refused():
    for _ in range(50):
        tape = GradientTape(persistent=True)

        def work(tape=tape):
            x = leaf()
            with tape:
                y = cube(x)
            return float(tape.gradient(y, x))

        got = at_once(*[work] * 4)
        assert all(g == 27.0 or (type(g) is TapeError and "thread" in str(g)) for g in got), got
        assert 27.0 in got
        assert not tape.enabled
        assert tape._recording.exited


def test_threads_that_sweep_one_tape_at_once_get_one_gradient_between_them():
    for _ in range(50):
        x = leaf()
        with GradientTape() as tape:
            y = x
            for _ in range(30):
                y = y * 1.0
            y = cube(y)
        got = at_once(*[lambda tape=tape, y=y, x=x: float(tape.gradient(y, x))] * 4)
        right = [g for g in got if g == 27.0]
        assert len(right) == 1, got
        assert all(type(g) is TapeConsumedError for g in got if g != 27.0), got


def test_threads_sweep_a_persistent_tape_at_once():
    x = Variable(np.arange(1.0, 9.0), requires_grad=True)
    with GradientTape(persistent=True) as tape:
        parts = [(x * float(k) * x).sum() for k in range(16)]
    jobs = [lambda k=k: tape.gradient(parts[k], x) for k in range(16)]
    for k, got in enumerate(at_once(*jobs)):
        np.testing.assert_array_equal(got, 2.0 * k * np.arange(1.0, 9.0))


@pytest.mark.parametrize("handed", ["the tape", "a value"])
def test_threads_record_on_one_tape_that_all_were_handed(handed):
    x = Variable(np.arange(1.0, 5.0), requires_grad=True)
    tape = GradientTape()
    tape.enable()
    start = ops.mul(x, 1.0, tape=tape)

    def work(k):
        y = start
        for _ in range(700):  # more than a block of ids together, so that pruning sets in
            y = ops.add(y, x, tape=tape) if handed == "the tape" else y + start
            ops.mul(y, 2.0, tape=tape)
        return ops.mul(y, float(k), tape=tape)

    parts = at_once(*[lambda k=k: work(k) for k in range(1, 5)])
    assert not [part for part in parts if isinstance(part, Exception)]
    got = tape.gradient(parts, [x, start], [np.ones(4)] * 4)
    through = 7010.0 if handed == "a value" else 10.0
    np.testing.assert_array_equal(got[0], np.full(4, 7010.0))
    np.testing.assert_array_equal(got[1], np.full(4, through))


def test_a_sweep_beside_a_thread_that_records_is_right_or_refused():
    refused = 0
    for _ in range(30):
        x = leaf()
        with GradientTape() as tape:
            y = x
            for _ in range(1500):
                y = y * 1.0

        def record(tape=tape, y=y):
            tape.enable()
            for _ in range(1500):
                y * 2.0

        got = at_once(lambda tape=tape, y=y, x=x: float(tape.gradient(y, x)), record)[0]
        assert got == 1.0 or type(got) in (TapeError, TapeConsumedError), repr(got)
        refused += got != 1.0
    assert refused < 30


# ------------------------------------------------------------------ shared leaves


def test_a_leaf_assigned_during_a_sweep_is_noticed_before_anything_is_delivered():
    w = Variable(np.ones(3), requires_grad=True)

    @od.op(vjp={"x": lambda g, x: meddle(g, x)}, samples=[])
    def meddled(x, /):
        """The same."""
        return x * 1.0

    def meddle(g, x):
        at_once(lambda: w.assign([2.0, 2.0, 2.0]))
        return g * x

    with GradientTape() as tape:
        y = meddled(w * w).sum()
    with pytest.raises(MutationError, match="while this tape was swept"):
        tape.backward(y)
    assert w.grad is None


@pytest.mark.parametrize("name", ["hypot", "matmul", "linear", "square", "softmax"])
@pytest.mark.parametrize("settings", [{}, {"check": True}, {"saved": "bfloat16"}], ids=str)
def test_an_op_reads_a_leaf_after_its_version_was_noted(name, settings, monkeypatch):
    op, note = getattr(ops, name), Recording.operand_id
    leaves = [Variable(np.full((2, 2), 3.0), requires_grad=True) for _ in range(2)]
    leaves = leaves[: 1 if name in ("square", "softmax") else 2]

    def assign_and_note(recording, value, *who):
        value.assign([[4.0, 5.0], [6.0, 7.0]])  # as another thread may do here
        return note(recording, value, *who)

    with GradientTape(**settings) as tape:
        monkeypatch.setattr(Recording, "operand_id", assign_and_note)
        y = op(*leaves)
        monkeypatch.undo()
    with GradientTape() as later:
        z = op(*leaves)
    np.testing.assert_array_equal(y.numpy(), z.numpy())
    found, expected = tape.gradient(y, leaves, np.eye(2)), later.gradient(z, leaves, np.eye(2))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("saved", [None, "bfloat16"], ids=["plain", "rounding"])
def test_values_mixed_from_before_and_after_an_assignment_are_never_differentiated(saved):
    size = 100_000
    w = Variable(np.zeros(size), requires_grad=True)
    values, seen = itertools.count(1.0), []

    def assign():
        w.assign(np.full(size, next(values)))

    def sweep():
        for _ in range(150):
            with GradientTape(saved=saved) as tape:
                y = (w * w).sum()
            try:
                g = tape.gradient(y, w)
            except MutationError:
                seen.append(None)
            else:
                seen.append(g)
                assert (g == g[0]).all()
                assert float(y.detach()) == size * (g[0] / 2.0) ** 2

    assert at_once(assign, sweep, endless=[assign]) == [None, None]
    assert len(seen) == 150


def test_item_assignments_and_sums_in_place_by_threads_lose_nothing():
    w = Variable(np.zeros(8), requires_grad=True)

    def work(k):
        shared = w
        for n in range(200):
            w[k] = float(n)
            shared += 1.0
            w[k] = 0.0

    assert at_once(*[lambda k=k: work(k) for k in range(4)]) == [None] * 4
    np.testing.assert_array_equal(w.numpy()[4:], np.full(4, 800.0))


def test_one_optimizer_stepped_by_threads_moves_once_for_each_step():
    w = Variable(np.zeros(64), requires_grad=True)
    v = Variable(np.zeros(20_000), requires_grad=True)
    optimizer = od.optim.SGD([w, v], learning_rate=1.0)
    w.grad, v.grad = np.full(64, -1.0), np.full(20_000, -2.0)

    def work():
        for _ in range(50):
            optimizer.step()

    assert at_once(*[work] * 8) == [None] * 8
    np.testing.assert_array_equal(w.numpy(), np.full(64, 400.0))
    np.testing.assert_array_equal(v.numpy(), np.full(20_000, 800.0))


def test_assignments_and_steps_by_threads_happen_one_after_the_other():
    v = Variable(np.zeros(200_000), requires_grad=True)
    optimizer = od.optim.SGD([v], learning_rate=1.0)
    v.grad = np.full(200_000, -1.0)

    def step():
        for _ in range(60):
            optimizer.step()

    def assign():
        for _ in range(60):
            v.assign(np.full(200_000, 1000.0))

    assert at_once(step, assign, step) == [None] * 3
    found = v.numpy()
    assert (found == found[0]).all()
    assert 1000.0 <= found[0] <= 1120.0


def test_gradients_that_are_cleared_while_others_add_to_them_are_whole():
    w = Variable(np.zeros(1000), requires_grad=True)

    def add():
        for _ in range(300):
            with GradientTape() as tape:
                y = (w * 1.0).sum()
            tape.backward(y)

    def look():
        g = w.grad
        assert g is None or (g == g[0]).all()
        w.zero_grad()

    assert at_once(add, look, endless=[look]) == [None, None]


def test_an_optimizers_state_is_that_between_two_steps():
    params = [Variable(np.zeros(5000), requires_grad=True) for _ in range(2)]
    optimizer = od.optim.SGD(params, learning_rate=0.0, momentum=1.0)
    for p in params:
        p.grad = np.ones(5000)
    optimizer.step()

    def step():
        for _ in range(200):
            optimizer.step()

    def look():
        states = optimizer.state_dict()["state"]
        (values,) = {tuple(np.unique(a)) for s in states for n, a in s.items() if n != "steps"}
        assert len(values) == 1

    assert at_once(step, look, endless=[look]) == [None, None]


@pytest.mark.skipif(sys.version_info < (3, 14), reason="the flag is of Python 3.14")
def test_with_the_flag_that_threads_inherit_contexts_no_thread_records_on_its_parents_tape():
    source = (
        "import threading, odyssey as od\n"
        "x = od.Variable(3.0, requires_grad=True)\n"
        "with od.GradientTape() as tape:\n"
        "    y = x * x\n"
        "    thread = threading.Thread(target=lambda: x * x)\n"
        "    thread.start(); thread.join()\n"
        "assert len(tape) == 1\n"
    )
    command = [sys.executable, "-X", "thread_inherit_context=1", "-c", source]
    subprocess.run(command, check=True, timeout=100)


# ------------------------------------------------------------------ many threads, many sweeps


def sums_from(threads, sweeps):
    """The gradients of shared leaves after sweeps of many threads: whole numbers, exact sums."""
    w = Variable(np.arange(6.0).reshape(2, 3), requires_grad=True, name="w")
    b = Variable(np.ones(3), requires_grad=True, name="b")
    start, errors = threading.Barrier(threads), []

    def work(number):
        x = np.full((4, 2), float(1 + number % 5))
        try:
            start.wait(60)
            for _ in range(sweeps):
                with GradientTape() as tape:
                    y = (x @ w + b).sum()
                tape.backward(y)
        except BaseException as error:
            errors.append(error)
            raise

    workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(250)
    assert not errors
    assert not any(worker.is_alive() for worker in workers)
    return w.grad, b.grad


@pytest.mark.parametrize(
    ("threads", "sweeps"), [(32, 25), pytest.param(32, 1000, marks=pytest.mark.soak)]
)
def test_sweeps_of_many_threads_add_up_bit_for_bit(threads, sweeps):
    of_w, of_b = sums_from(threads, sweeps)
    expected = sum(4.0 * (1 + k % 5) for k in range(threads)) * sweeps
    np.testing.assert_array_equal(of_w, np.full((2, 3), expected))
    np.testing.assert_array_equal(of_b, np.full(3, 4.0 * threads * sweeps))
    assert expected < 2**53


@pytest.mark.parametrize(
    ("threads", "rounds"), [(8, 25), pytest.param(32, 500, marks=pytest.mark.soak)]
)
def test_assignments_and_steps_beside_sweeps_are_right_or_refused(threads, rounds):
    w = Variable(np.full(64, 2.0), requires_grad=True, name="w")
    optimizer = od.optim.SGD([w], learning_rate=0.0)
    start, wrong, done = threading.Barrier(threads), [], []

    def sweep():
        for _ in range(rounds):
            with GradientTape() as tape:
                y = (w * w).sum()
            try:
                g = tape.gradient(y, w)
            except MutationError:
                continue
            # All elements are of one value: of one moment, and of no other.
            if len(set(g.tolist())) != 1 or g[0] not in (4.0, 6.0):
                wrong.append(g)

    def assign():
        for k in range(rounds):
            w.assign(float(2 + k % 2))

    def step():
        for _ in range(rounds):
            w.grad = np.ones(64)
            try:
                optimizer.step()
            except od.errors.MissingGradientError:
                continue

    def work(number):
        start.wait(60)
        (sweep, sweep, assign, step)[number % 4]()
        done.append(number)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(250)
    assert len(done) == threads
    assert not wrong
    assert optimizer.state_dict()["state"][0]["steps"] == rounds * (threads // 4)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("ended", [False, True])
def test_a_leaf_that_a_tape_takes_up_in_the_middle_of_a_write_is_refused_by_its_sweep(
    together, ended
):
    w = Variable(np.ones(3), requires_grad=True)
    plan = SharedVersion([w]).writing([]) if together else write_plan(w)
    commit(plan[:-1])
    with GradientTape() as tape:
        y = (w * w).sum()
    if ended:
        commit(plan[-1:])
    with pytest.raises(MutationError, match="was assigned"):
        tape.backward(y)
    commit(plan[-1:])
    with GradientTape() as tape:
        y = (w * w).sum()
    tape.backward(y)
    np.testing.assert_array_equal(w.grad, [2.0, 2.0, 2.0])


def test_a_leaf_frozen_after_a_tape_used_it_gets_no_gradient_of_its_sweep():
    w, v = (Variable(np.ones(2), requires_grad=True) for _ in range(2))
    with GradientTape() as tape:
        y = (w * v).sum()
    w.requires_grad = False
    tape.backward(y)
    assert w.grad is None
    np.testing.assert_array_equal(v.grad, [1.0, 1.0])
    w.requires_grad = True
    with GradientTape() as tape:
        y = (w * w).sum()
    w.requires_grad = False
    with pytest.raises(TapeError, match="no trainable leaf"):
        tape.backward(y)

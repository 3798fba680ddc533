"""The keyword ``tape=`` of composites, which their decorator handles."""

import asyncio
import inspect
import itertools
import re
import threading
from contextvars import copy_context

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, linalg, nn, ops
from odyssey.errors import DTypeError, ShapeError, TapeMismatchError
from odyssey.ops import COMPOSITES
from odyssey.table import registry, scope
from odyssey.table.scope import (
    Pause,
    enter_scope,
    innermost_scope,
    leave_scope,
    passed_tape,
    run_with_tape,
    scopes,
)
from support.faults import PACKAGE, in_its_thread, interrupt


def leaf(data):
    return Variable(np.asarray(data, np.float64), True)


def enabled_tape():
    tape = GradientTape()
    tape.enable()
    return tape


def recorded(tape):
    return [node.op for node in tape.nodes]


def assert_no_scope():
    assert scopes()[0] is None
    assert passed_tape() is None
    assert (leaf(1.0) * 2.0).tape is None


# ------------------------------------------------------------------ what is recorded, and where


def test_each_op_of_a_composite_is_recorded_on_the_tape_that_was_passed():
    w, tape = leaf([1.0, 2.0]), enabled_tape()
    y = nn.tanh_shrink(w, tape=tape)
    assert recorded(tape) == ["tanh", "subtract"]
    assert y.tape is tape
    np.testing.assert_allclose(tape.gradient(y, w, np.ones(2)), np.tanh([1.0, 2.0]) ** 2)
    assert_no_scope()


def test_a_call_with_a_tape_records_what_a_call_in_its_block_does():
    data = np.random.default_rng(0).normal(size=(3, 4))
    for call in (linalg.corrcoef, linalg.cond, ops.nanstd, ops.nanmedian):
        w, passed = leaf(data), enabled_tape()
        y = call(w, tape=passed)
        with GradientTape() as entered:
            z = call(w)
        assert recorded(passed) == recorded(entered) != []
        grad = np.ones(y.shape)
        np.testing.assert_array_equal(passed.gradient(y, w, grad), entered.gradient(z, w, grad))


# These have ops that earlier were not given the tape, and refused what was recorded on it.
@pytest.mark.parametrize(
    "call",
    [
        lambda w, **tape: ops.ediff1d(w, **tape),
        lambda w, **tape: linalg.cond(ops.reshape(w, (2, 2), **tape), **tape),
        lambda w, **tape: linalg.lstsq(ops.reshape(w, (2, 2), **tape), np.eye(2), **tape)[0],
        lambda w, **tape: ops.logsumexp(w, b=2.0, **tape),
    ],
    ids=["ediff1d", "cond", "lstsq", "logsumexp"],
)
def test_an_entered_tape_records_nothing_of_a_call_with_another_tape(call):
    w, chosen = leaf([1.0, 2.0, 4.0, 3.0]), enabled_tape()
    with GradientTape() as entered:
        y = call(w, tape=chosen)
        z = w * 3.0
    assert recorded(entered) == ["multiply"]
    assert z.tape is entered
    with GradientTape() as alone:
        call(w)
    assert recorded(chosen) == recorded(alone)
    assert y.tape is chosen


def test_a_call_inside_of_another_may_have_a_tape_of_its_own():
    w, outer, inner = leaf([1.0, 2.0]), enabled_tape(), enabled_tape()

    def function(x):
        y = nn.tanh_shrink(x, tape=inner)
        return y.detach() + nn.tanh_shrink(x)

    run_with_tape(outer, function, (w,), {})
    assert recorded(inner) == ["tanh", "subtract"]
    assert recorded(outer) == ["tanh", "subtract", "add"]
    assert_no_scope()


def test_a_pause_wins_over_the_tape_that_was_passed():
    w, tape = leaf([1.0, 2.0]), enabled_tape()
    with od.no_grad():
        assert not nn.tanh_shrink(w, tape=tape).requires_grad
    with tape.no_recording():
        assert not nn.tanh_shrink(w, tape=tape).requires_grad
    assert len(tape) == 0

    def paused(x):
        with od.no_grad():
            return x * 2.0

    assert not run_with_tape(tape, paused, (w,), {}).requires_grad
    assert len(tape) == 0


def test_a_tape_that_does_not_record_records_no_composite():
    w, tape = leaf([1.0, 2.0]), GradientTape()
    with GradientTape() as entered:
        assert nn.tanh_shrink(w, tape=tape).tape is None
    assert len(tape) == len(entered) == 0


def test_the_passed_tape_is_no_scope_for_those_who_ask_for_the_innermost():
    tape = enabled_tape()
    asked = run_with_tape(tape, lambda: (passed_tape(), innermost_scope()), (), {})
    assert asked == (tape, None)
    with GradientTape() as entered:
        asked = run_with_tape(tape, lambda: (passed_tape(), innermost_scope()), (), {})
        assert asked == (tape, entered._recording)
    with od.no_grad():
        pause = innermost_scope()
        assert run_with_tape(tape, innermost_scope, (), {}) is pause


def test_a_scope_that_has_ended_below_does_not_hide_the_passed_tape():
    w, tape, ended = leaf([1.0, 2.0]), enabled_tape(), Pause()
    ended.exited = True
    enter_scope(ended)
    try:
        nn.tanh_shrink(w, tape=tape)
    finally:
        leave_scope(ended)
    assert recorded(tape) == ["tanh", "subtract"]
    assert_no_scope()


def test_a_compiled_step_may_pass_a_tape_to_a_composite():
    w = leaf([[1.0, 2.0], [3.0, 4.0]])

    def step(x):
        tape = enabled_tape()
        loss = ops.sum(ops.multiply(nn.glu(w, tape=tape), x, tape=tape), tape=tape)
        return tape.gradient(loss, w)

    compiled = od.compile(step)
    for x in (np.ones((2, 1)), np.full((2, 1), 2.0), np.full((2, 1), 3.0)):
        np.testing.assert_allclose(compiled(x), step(x), rtol=1e-12)


# ------------------------------------------------------------------ refusals


def test_operands_of_another_tape_are_refused_naming_both():
    w, chosen, other = leaf([1.0, 2.0]), enabled_tape(), enabled_tape()
    x = ops.multiply(w, 2.0, tape=other)
    both = re.escape(f"operands of two recordings, {other!r} and {chosen!r}")
    with pytest.raises(TapeMismatchError, match=both):
        nn.tanh_shrink(x, tape=chosen)
    assert len(chosen) == 0
    assert_no_scope()


@pytest.mark.parametrize("tape", [np.ones(2), 5, leaf(1.0)], ids=["array", "number", "Variable"])
def test_a_composite_refuses_what_is_no_tape(tape):
    for operand in (np.ones(2), leaf([1.0, 2.0])):
        with pytest.raises(
            DTypeError, match=r"^nansum: tape is not a GradientTape .* nansum\(a, axis=None"
        ):
            ops.nansum(operand, tape=tape)


def test_an_error_in_a_composite_leaves_no_tape_behind():
    w, tape = leaf(np.ones((2, 3))), enabled_tape()
    with pytest.raises(ShapeError, match="glu: "):
        nn.glu(w, tape=tape)
    assert_no_scope()
    with GradientTape() as entered:
        with pytest.raises(ShapeError, match="glu: "):
            nn.glu(w, tape=tape)
        y = w * 2.0
    assert y.tape is entered


@pytest.mark.parametrize(
    ("event", "within"),
    [("line", PACKAGE), ("opcode", registry.__file__), ("opcode", scope.__file__)],
    ids=["lines", "opcodes of the decorator", "opcodes of scopes"],
)
@in_its_thread
def test_an_interrupt_leaves_no_tape_behind(event, within):
    w, tape = leaf(np.ones((2, 2))), enabled_tape()
    nn.tanh_shrink(w, tape=tape)
    for n in itertools.count(1):
        try:
            with interrupt(n, event, within) as fired:
                nn.tanh_shrink(w, tape=tape)
        except KeyboardInterrupt:
            assert_no_scope()
        if not fired:
            break
    assert n > 20


# ------------------------------------------------------------------ threads and tasks


def test_each_thread_has_a_passed_tape_of_its_own():
    start, found = threading.Barrier(2), {}

    def work(name, scale):
        w, tape = leaf([1.0, 2.0]), enabled_tape()
        start.wait()
        for _ in range(50):
            y = linalg.outer(nn.tanh_shrink(w, tape=tape), [scale], tape=tape)
        found[name] = (y.tape is tape, passed_tape(), tape.gradient(y, w, np.ones((2, 1))))

    threads = [threading.Thread(target=work, args=(k, 1.0 + k)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(2):
        own, left, gradient = found[k]
        assert own
        assert left is None
        np.testing.assert_allclose(gradient, (1.0 + k) * np.tanh([1.0, 2.0]) ** 2)


def test_a_thread_that_runs_in_a_copied_context_does_not_see_the_passed_tape():
    tape, seen = enabled_tape(), []

    def function():
        context = copy_context()
        thread = threading.Thread(target=lambda: seen.append(context.run(passed_tape)))
        thread.start()
        thread.join()
        return passed_tape()

    assert run_with_tape(tape, function, (), {}) is tape
    assert seen == [None]


def test_tasks_that_take_turns_pass_tapes_of_their_own():
    async def work(scale):
        w, tape = leaf([1.0, 2.0]), enabled_tape()
        y = nn.tanh_shrink(w, tape=tape)
        await asyncio.sleep(0)
        y = ops.nansum(linalg.outer(y, [scale], tape=tape), tape=tape)
        await asyncio.sleep(0)
        return tape.gradient(y, w)

    async def both():
        return await asyncio.gather(work(1.0), work(2.0))

    one, two = asyncio.run(both())
    np.testing.assert_allclose(one, np.tanh([1.0, 2.0]) ** 2)
    np.testing.assert_allclose(two, 2.0 * np.tanh([1.0, 2.0]) ** 2)


# ------------------------------------------------------------------ signatures and docstrings


def test_every_composite_shows_the_keyword_last():
    for function in COMPOSITES.values():
        *others, last = inspect.signature(function).parameters.values()
        assert (last.name, last.kind, last.default) == ("tape", last.KEYWORD_ONLY, None)
        assert others == list(inspect.signature(function.__wrapped__).parameters.values())
        doc = inspect.getdoc(function)
        assert doc.count("tape: The tape to record on.") == doc.count("Args:")
        if "Args:" in doc:
            section = doc.partition("Args:\n")[2].partition("\n\n")[0].splitlines()
            assert section[-1] == "    tape: The tape to record on."
            assert section[0].startswith("    ")

"""Which tape records: explicit, innermost, interleaved and paused tapes."""

import sys

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import TapeError, TapeMismatchError, UntrackedError
from odyssey.table.scope import innermost_scope, scopes


@pytest.fixture(autouse=True)
def _nothing_is_left_in_this_context():
    assert innermost_scope() is None
    yield
    assert innermost_scope() is None
    assert scopes() == (None,)


def leaf(value=3.0, name=None):
    return Variable(value, requires_grad=True, name=name)


def cube(x):
    return x * x * x


# ------------------------------------------------------------------ several tapes


def test_interleaved_tapes_equal_isolated_ones():
    rng = np.random.default_rng(0)
    points = [Variable(rng.normal(size=4), requires_grad=True) for _ in range(3)]
    shared = Variable(rng.normal(size=4), requires_grad=True)
    steps = [
        lambda x, w, tape: ops.mul(x, w, tape=tape),
        lambda x, w, tape: ops.add(ops.tanh(x, tape=tape), w, tape=tape),
        lambda x, w, tape: ops.mul(x, x, tape=tape),
    ]

    def alone(x):
        tape = GradientTape()
        tape.enable()
        y = x
        for step in steps:
            y = step(y, shared, tape)
        return tape.gradient(y, [x, shared], np.ones(4))

    expected = [alone(x) for x in points]
    tapes, values = [GradientTape() for _ in points], list(points)
    for tape in tapes:
        tape.enable()
    for step in steps:
        for k, tape in enumerate(tapes):
            values[k] = step(values[k], shared, tape)
    for k in (1, 2, 0):
        got = tapes[k].gradient(values[k], [points[k], shared], np.ones(4))
        np.testing.assert_array_equal(got, expected[k])


def test_a_tape_is_a_value_that_functions_take_and_return():
    def model(x, *, tape):
        return ops.mul(ops.mul(x, x, tape=tape), x, tape=tape)

    def record(x):
        tape = GradientTape()
        tape.enable()
        return tape, model(x, tape=tape)

    x = leaf()
    pairs = [record(x) for _ in range(3)]
    assert [float(tape.gradient(y, x)) for tape, y in pairs] == [27.0] * 3


def test_an_explicit_tape_records_beside_the_contexts_own():
    x, z = leaf(), leaf(2.0)
    other = GradientTape()
    other.enable()
    with GradientTape() as tape:
        a = x * x
        b = ops.mul(z, z, tape=other)
        c = a * x
    assert (float(tape.gradient(c, x)), float(other.gradient(b, z))) == (27.0, 4.0)


@pytest.mark.parametrize("how", ["operands", "context", "tape="])
def test_two_recordings_raise_and_name_both(how):
    x, first, second = leaf(), GradientTape(), GradientTape()
    first.enable()
    second.enable()
    a, b = ops.mul(x, x, tape=first), ops.mul(x, x, tape=second)
    if how == "operands":
        with pytest.raises(TapeMismatchError) as caught:
            a * b
    elif how == "tape=":
        with pytest.raises(TapeMismatchError) as caught:
            ops.exp(a, tape=second)
    else:
        second = GradientTape()
        with second, pytest.raises(TapeMismatchError) as caught:
            a * x
    for tape in (first, second):
        assert f"<tape {id(tape._recording):x}" in str(caught.value)
    assert float(first.gradient(a, x)) == 6.0


def test_a_value_of_one_tape_is_refused_by_another_ones_sweep():
    x, first, second = leaf(), GradientTape(), GradientTape()
    with first:
        a = x * x
    with second:
        x * x
    with pytest.raises(TapeMismatchError):
        second.gradient(a, x)
    assert float(first.gradient(a, x)) == 6.0


@pytest.mark.parametrize("end", ["consumed", "cleared", "dropped", "left"])
def test_state_carried_from_an_old_tape_into_a_new_one_raises(end):
    x = leaf()
    tape = GradientTape()
    with tape:
        state = x * x
    if end == "consumed":
        tape.gradient(state, x)
    elif end == "cleared":
        tape.clear()
    elif end == "dropped":
        del tape
    with pytest.raises(TapeMismatchError), GradientTape():
        state * x
    with GradientTape() as new:
        y = state.detach() * x
    assert float(new.gradient(y, x)) == 9.0


def test_a_value_computed_off_the_tape_raises_instead_of_losing_its_gradient():
    x = leaf()
    h = x * x
    with pytest.raises(UntrackedError), GradientTape():
        h * x
    with pytest.raises(UntrackedError), GradientTape():
        x * h
    with GradientTape() as tape:
        y = h.detach() * x
    assert float(tape.gradient(y, x)) == 9.0


def test_clearing_inside_the_block_goes_on_recording_there():
    x = leaf()
    with GradientTape() as tape:
        old = x * x
        tape.clear()
        y = cube(x)
        with pytest.raises(TapeMismatchError):
            old * y
        z = y * 2.0
    assert float(tape.gradient(z, x)) == 54.0


def test_after_a_sweep_inside_the_block_nothing_is_recorded():
    x = leaf()
    with GradientTape() as tape:
        tape.gradient(x * x, x)
        late = x * x
        assert len(tape) == 0
    with pytest.raises(TapeError):
        tape.gradient(late, x)


# ------------------------------------------------------------------ pauses


def test_pauses_nest_and_end_with_their_blocks():
    x = leaf()
    with GradientTape() as tape:
        with od.no_grad():
            with od.no_grad():
                pass
            a = x * x
            b = ops.mul(x, x, tape=tape)
        c = x * x
    assert (a.requires_grad, b.requires_grad, c.requires_grad) == (False, False, True)
    assert float(tape.gradient(c, x)) == 6.0


@pytest.mark.parametrize("pause", ["no_grad", "no_recording"])
def test_an_exception_ends_a_pause(pause):
    x = leaf()
    with GradientTape() as tape:
        with pytest.raises(KeyError), od.no_grad() if pause == "no_grad" else tape.no_recording():
            raise KeyError
        y = cube(x)
    assert float(tape.gradient(y, x)) == 27.0


WITHIN = {
    "disable": (lambda tape, y, x: tape.disable(), False),
    "disable, enable": (lambda tape, y, x: (tape.disable(), tape.enable()), True),
    "enable": (lambda tape, y, x: tape.enable(), True),
    "reenter": (lambda tape, y, x: (tape.__enter__(), tape.__exit__(None, None, None)), True),
}


@pytest.mark.parametrize(("act", "resumes"), WITHIN.values(), ids=WITHIN)
def test_what_is_done_in_a_pause_does_not_upset_the_count(act, resumes):
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as tape:
            y = x * x
            with tape.no_recording():
                act(tape, y, x)
                assert not tape.enabled
            assert tape.enabled == resumes
            tape.enable()
            z = cube(x)
            assert tape.gradient(z, x).item() == 27.0
        after = cube(x)
    assert outer._recording.on == 0 or resumes is None
    assert float(outer.gradient(after, x)) == 27.0


@pytest.mark.parametrize("end", ["sweep", "clear"])
def test_a_tape_that_ends_in_its_own_pause_leaves_the_outer_one_recording(end):
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = x * x
            with inner.no_recording():
                inner.gradient(y, x) if end == "sweep" else inner.clear()
        z = cube(x)
    assert not outer.enabled
    assert float(outer.gradient(z, x)) == 27.0


def calls_of_a_sweep(pauses):
    """How many Python calls a sweep makes over a tape that was paused so often."""
    x = leaf()
    with GradientTape() as tape:
        y = x
        for _ in range(pauses):
            y = y + x
            with tape.no_recording():
                y.detach()
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        gradient = tape.gradient(y, x)
    finally:
        sys.setprofile(None)
    assert float(gradient) == pauses + 1.0
    return calls


def test_a_sweeps_work_grows_linearly_with_the_number_of_pauses():
    assert calls_of_a_sweep(400) < 5 * calls_of_a_sweep(100)

"""Which tape records, and when: finding, entering, enabling, pausing."""

import asyncio
import threading

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


# ------------------------------------------------------------------ three ways of finding a tape


def test_the_three_ways_of_finding_a_tape_give_one_gradient():
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    expected = x.T @ (2 * x @ np.ones((2, 1)))

    def by_context(w):
        with GradientTape() as tape:
            h = x @ w
            return tape.gradient((h * h).sum(), w)

    def by_argument(w):
        tape = GradientTape()
        tape.enable()
        h = ops.matmul(x, w, tape=tape)
        return tape.gradient(ops.sum(ops.multiply(h, h, tape=tape), tape=tape), w)

    np.testing.assert_array_equal(by_context(wide(np.ones((2, 1)))), expected)
    np.testing.assert_array_equal(by_argument(wide(np.ones((2, 1)))), expected)
    tape = GradientTape()
    tape.enable()
    w = tape.variable(np.ones((2, 1)))
    h = x @ w
    np.testing.assert_array_equal(tape.gradient((h * h).sum(), w), expected)


def test_an_explicit_tape_beats_the_context():
    w = wide(2.0)
    chosen = GradientTape()
    chosen.enable()
    with GradientTape() as context:
        y = ops.multiply(w, w, tape=chosen)
    assert (len(chosen), len(context)) == (1, 0)
    assert float(chosen.gradient(y, w)) == 4.0


def test_operands_know_their_tape_outside_any_block():
    tape = GradientTape()
    tape.enable()
    w, b = tape.variable(3.0), Variable(1.0, requires_grad=True)
    loss = ((w * 2.0 + b - 4.0) ** 2).mean()
    assert loss.tape is tape
    tape.backward(loss)
    assert (float(w.grad), float(b.grad)) == (12.0, 6.0)


def test_a_variable_sweeps_the_tape_that_recorded_it():
    w = wide(3.0)
    with GradientTape():
        y = w * w
        y.backward()
    assert float(w.grad) == 6.0


def test_enable_does_not_make_a_tape_the_contexts():
    w = wide(2.0)
    tape = GradientTape()
    tape.enable()
    assert tape.enabled
    assert (w * w).tape is None
    assert len(tape) == 0


def test_interleaved_tapes_equal_isolated_ones():
    a, b = wide(2.0), wide(3.0)
    first, second = GradientTape(), GradientTape()
    first.enable()
    second.enable()
    x = ops.multiply(a, a, tape=first)
    y = ops.multiply(b, b, tape=second)
    x = x * a
    y = y * b
    assert (len(first), len(second)) == (2, 2)
    assert float(first.gradient(x, a)) == 12.0
    assert float(second.gradient(y, b)) == 27.0


def test_each_thread_has_its_own_context():
    w = wide(2.0)
    seen = []
    with GradientTape():
        thread = threading.Thread(target=lambda: seen.append((w * w).tape))
        thread.start()
        thread.join()
    assert seen == [None]


def test_each_async_task_has_its_own_context():
    async def sweep(x):
        w = wide(x)
        with GradientTape() as tape:
            y = w * w
            await asyncio.sleep(0)
            y = y * w
        return float(tape.gradient(y, w))

    async def main():
        return await asyncio.gather(*(sweep(x) for x in (1.0, 2.0, 3.0)))

    assert asyncio.run(main()) == [3.0, 12.0, 27.0]


def test_generators_that_leak_their_context_do_not_mislead_others():
    w = wide(2.0)

    def steps():
        with GradientTape() as tape:
            yield tape

    generator = steps()
    inner = next(generator)
    generator.close()
    assert not inner.enabled
    with GradientTape() as tape:
        y = w * w
    assert y.tape is tape
    assert (w * w).tape is None


def test_generators_that_end_in_another_order_restore_the_context():
    w = wide(2.0)

    def steps():
        with GradientTape() as tape:
            yield tape

    first, second = steps(), steps()
    next(first)
    inner = next(second)
    first.close()
    assert (w * w).tape is inner
    second.close()
    assert (w * w).tape is None


# ------------------------------------------------------------------ enable, disable, enter again


def test_entering_again_resumes_recording():
    w = wide(2.0)
    tape = GradientTape()
    with tape:
        y = w * w
    with tape:
        z = y * w
    assert len(tape) == 2
    assert float(tape.gradient(z, w)) == 12.0


def test_enabling_again_resumes_recording():
    tape = GradientTape()
    tape.enable()
    w = tape.variable(2.0)
    y = w * w
    tape.disable()
    assert (w * w).tape is None
    tape.enable()
    z = y * w
    assert float(tape.gradient(z, w)) == 12.0


@pytest.mark.parametrize("how", ["enter", "enable"])
def test_a_consumed_tape_starts_empty_when_it_records_again(how):
    w = wide(2.0)
    tape = GradientTape()
    with tape:
        tape.backward(w * w)
    assert len(tape) == 0
    if how == "enter":
        with tape:
            y = w * 3.0
    else:
        tape.enable()
        y = ops.multiply(w, 3.0, tape=tape)
    assert len(tape) == 1
    assert float(tape.gradient(y, w)) == 3.0


def test_a_consumed_tape_that_is_enabled_in_its_block_records_there_again():
    w = wide(2.0)
    with GradientTape() as tape:
        tape.backward(w * w)
        tape.enable()
        y = w * w * w
    assert not tape.enabled
    assert float(tape.gradient(y, w)) == 12.0


def test_a_tape_enabled_by_hand_stays_enabled_after_a_block():
    tape = GradientTape()
    tape.enable()
    with tape:
        pass
    assert tape.enabled


def test_enable_and_disable_are_not_counted():
    w = wide(2.0)
    tape = GradientTape()
    tape.enable()
    tape.enable()
    tape.disable()
    assert not tape.enabled
    assert ops.multiply(w, w, tape=tape).tape is None
    tape.disable()
    tape.enable()
    assert ops.multiply(w, w, tape=tape).tape is tape


# ------------------------------------------------------------------ pauses


def test_no_recording_gives_constants_and_resumes():
    w = wide(3.0)
    with GradientTape() as tape:
        with tape.no_recording():
            scale = w * 10.0
            assert not tape.enabled
        y = w * scale
    assert not scale.requires_grad
    assert float(tape.gradient(y, w)) == 30.0


def test_no_recording_nests_and_is_restored_after_an_exception():
    w = wide(3.0)
    with GradientTape() as tape:
        with pytest.raises(KeyError), tape.no_recording(), tape.no_recording():
            raise KeyError
        assert tape.enabled
        with tape.no_recording():
            with tape.no_recording():
                pass
            assert not (w * w).requires_grad
        assert (w * w).requires_grad


def test_no_recording_holds_for_a_tape_passed_by_hand():
    w = wide(3.0)
    tape = GradientTape()
    tape.enable()
    with tape.no_recording():
        assert not ops.multiply(w, w, tape=tape).requires_grad
    assert ops.multiply(w, w, tape=tape).requires_grad


def test_no_recording_pauses_one_tape_only():
    w = wide(3.0)
    other = GradientTape()
    other.enable()
    with GradientTape() as tape, tape.no_recording():
        assert ops.multiply(w, w, tape=other).tape is other


@pytest.mark.parametrize("change", ["enable", "disable"])
def test_changing_a_paused_tape_takes_effect_after_the_pause(change):
    w = wide(3.0)
    tape = GradientTape()
    if change == "disable":
        tape.enable()
    with tape.no_recording():
        getattr(tape, change)()
        assert not tape.enabled
        assert not ops.multiply(w, w, tape=tape).requires_grad
    assert tape.enabled == (change == "enable")
    assert (ops.multiply(w, w, tape=tape).tape is tape) == (change == "enable")
    tape.disable()
    assert ops.multiply(w, w, tape=tape).tape is None


def test_no_grad_gives_constants_and_beats_an_explicit_tape():
    w = wide(3.0)
    tape = GradientTape()
    tape.enable()
    with GradientTape() as context:
        with od.no_grad():
            a, b = w * w, ops.multiply(w, w, tape=tape)
        y = w * a
    assert not a.requires_grad
    assert not b.requires_grad
    assert (len(tape), len(context)) == (0, 1)
    assert float(context.gradient(y, w)) == 9.0


def test_no_grad_nests_and_is_restored_after_an_exception():
    w = wide(3.0)
    with GradientTape():
        with pytest.raises(KeyError), od.no_grad(), od.no_grad():
            raise KeyError
        with od.no_grad():
            with od.no_grad():
                pass
            assert not (w * w).requires_grad
        assert (w * w).requires_grad


def test_no_grad_decorates_a_function():
    w = wide(3.0)

    @od.no_grad()
    def evaluate():
        return w * w

    with GradientTape() as tape:
        assert not evaluate().requires_grad
        assert not evaluate().requires_grad
    assert len(tape) == 0


def test_constants_of_a_pause_can_meet_any_tape():
    w = wide(3.0)
    with od.no_grad():
        scale = w * 2.0
    with GradientTape() as tape:
        y = scale * w
    assert float(tape.gradient(y, w)) == 6.0

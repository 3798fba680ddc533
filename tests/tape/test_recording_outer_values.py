"""Several tapes: values that cross from one to another, and tapes inside tapes."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable
from odyssey.errors import TapeError, TapeMismatchError, UntrackedError


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


# ------------------------------------------------------------------ untracked values, two tapes


def test_a_value_computed_while_nothing_recorded_is_never_used_in_silence():
    w = wide(3.0)
    lost = w * 2.0
    with GradientTape() as tape:
        with pytest.raises(UntrackedError, match=r"while nothing recorded.*detach\(\)"):
            _ = w * lost
        y = w * lost.detach()
    assert float(tape.gradient(y, w)) == 6.0


def test_integers_and_comparisons_of_leaves_are_constants_everywhere():
    w = wide([1.0, 3.0])
    outside = w > 2.0
    assert not outside.requires_grad
    with GradientTape() as tape:
        inside = w > 2.0
        y = (w * outside * inside).sum()
    assert not inside.requires_grad
    np.testing.assert_array_equal(tape.gradient(y, w), [0.0, 1.0])


def test_detach_into_makes_a_leaf_of_the_other_tape_and_no_gradient_flows_back():
    w = wide([1.0, 2.0])
    other = GradientTape()
    other.enable()
    with GradientTape() as tape:
        middle = w * 3.0
        moved = middle.detach_into(other)
        y = middle.sum()
    loss = (moved * moved).sum()
    assert moved.is_leaf
    assert moved.requires_grad
    np.testing.assert_array_equal(moved.numpy(), [3.0, 6.0])
    other.backward(loss)
    np.testing.assert_array_equal(moved.grad, [6.0, 12.0])
    assert w.grad is None
    tape.backward(y)
    np.testing.assert_array_equal(w.grad, [3.0, 3.0])


def test_state_carried_from_an_old_tape_into_a_new_one_is_refused():
    w = wide(2.0)
    with GradientTape(persistent=True) as old:
        state = w * w
    with GradientTape() as new, pytest.raises(TapeMismatchError, match="detach") as caught:
        _ = state * w
    assert repr(old) in str(caught.value)
    assert repr(new).split(",")[0] in str(caught.value)


def test_detached_state_carries_over():
    w = wide(2.0)
    state = 1.0
    for _ in range(3):
        with GradientTape() as tape:
            state = state * w
        slope = float(tape.gradient(state, w))
        state = state.detach()
    assert (float(state), slope) == (8.0, 4.0)


# ------------------------------------------------------------------ nesting


def test_nested_tapes_give_second_derivatives():
    x = wide(3.0)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = x**3
        slope = inner.gradient(y, x)
    assert isinstance(slope, Variable)
    assert (float(slope), float(outer.gradient(slope, x))) == (27.0, 18.0)


def test_nested_tapes_go_to_any_order():
    x = wide(2.0)
    with GradientTape() as a:
        with GradientTape() as b:
            with GradientTape() as c:
                y = x**4
            first = c.gradient(y, x)
        second = b.gradient(first, x)
    third = a.gradient(second, x)
    assert (float(first), float(second), float(third)) == (32.0, 48.0, 48.0)


def test_the_sweep_of_a_nested_tape_inside_another_gives_variables():
    x = wide([1.0, 2.0])
    with GradientTape(persistent=True) as outer:
        with GradientTape() as inner:
            y = (x * x * x).sum()
        gradients = inner.gradient(y, {"x": x})
        penalty = (gradients["x"] ** 2).sum()
    # sum (3 x^2)^2 = sum 9 x^4, whose derivative is 36 x^3
    np.testing.assert_array_equal(outer.gradient(penalty, x), 36.0 * np.array([1.0, 8.0]))


def test_an_inner_tape_knows_only_what_it_recorded():
    x = wide(2.0)
    with GradientTape(persistent=True) as outer:
        before = x * x
        with GradientTape(persistent=True) as inner:
            y = before * x
        after = y * x
    assert float(outer.gradient(after, x)) == 4 * 8.0
    with pytest.raises(TapeError, match="did not record"):
        inner.gradient(after, x)


def test_forward_over_reverse_is_a_hessian_vector_product():
    x = wide([1.0, 2.0])
    with GradientTape(persistent=True) as outer:
        with GradientTape() as inner:
            y = (x**3).sum()
        slope = inner.gradient(y, x)
    product = outer.jvp(slope, x, np.array([1.0, 10.0]))
    np.testing.assert_allclose(product, [6.0, 120.0], rtol=1e-15)


def test_jvp_is_recorded_while_an_enclosing_tape_records():
    x = wide(2.0)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = x**3
        slope = inner.jvp(y, x, 1.0)
    assert (float(slope), float(outer.gradient(slope, x))) == (12.0, 12.0)

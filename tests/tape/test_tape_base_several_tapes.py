"""Tapes that live at the same time: who records what, who is consumed, learning to learn."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import TapeConsumedError, TapeError, TapeMismatchError


def leaf(value=3.0):
    return Variable(value, requires_grad=True)


# ------------------------------------------------------------------ who records what


def test_results_are_arrays_outside_and_variables_while_an_enclosing_tape_records():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape(persistent=True) as inner:
            y = x * x
        assert isinstance(inner.gradient(y, x), Variable)
        assert isinstance(inner.jvp(y, x, 1.0), Variable)
        with outer.no_recording():
            assert isinstance(inner.gradient(y, x), np.ndarray)
        with od.no_grad():
            assert isinstance(inner.gradient(y, x), np.ndarray)
    assert isinstance(inner.gradient(y, x), np.ndarray)
    assert isinstance(inner.gradient(y, x, create_graph=True), Variable)
    with GradientTape():
        assert isinstance(inner.gradient(y, x), np.ndarray)
        assert isinstance(outer.gradient(y, x), np.ndarray)


@pytest.mark.parametrize("fn", [lambda x: x + 1.0, lambda x: 2.0 * x], ids=["shift", "scale"])
def test_a_constant_slope_is_a_variable_too(fn):
    x = leaf()
    with GradientTape(persistent=True) as tape:
        y = fn(x)
    slope = tape.gradient(y, x, create_graph=True)
    assert isinstance(slope, Variable)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = fn(x)
        total = inner.gradient(y, x) * x
    assert float(outer.gradient(total, x)) == float(slope)


def test_an_inner_tape_is_consumed_while_the_outer_lives():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = x * x * x
        slope = inner.gradient(y, x)
        with pytest.raises(TapeConsumedError):
            inner.gradient(y, x)
        z = slope * y
    assert float(outer.gradient(z, x)) == 15 * 81.0  # 3 x⁵


def test_a_persistent_inner_tape_sweeps_many_times_and_after_the_outer():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape(persistent=True) as inner:
            y = x * x * x
        total = inner.gradient(y, x) + inner.gradient(y, x)
    assert float(outer.gradient(total, x)) == 36.0
    assert float(inner.gradient(y, x)) == 27.0


def test_nodes_recorded_after_the_inner_tape_was_left_are_not_on_it():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape(persistent=True) as inner:
            y = x * x
        z = y * x
        for ask in (lambda: inner.gradient(z, x), lambda: inner.jvp(z, x, 1.0)):
            with pytest.raises(TapeError, match="while this tape did not record"):
                ask()
        assert inner.gradient(y, x).item() == 6.0
    assert float(outer.gradient(z, x)) == 27.0


def test_a_paused_inner_tape_takes_for_a_constant_what_the_outer_differentiates():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            a = x * x
            with inner.no_recording():
                c = x * x
            y = a * c
        slope = inner.gradient(y, x)  # 2 x c
    assert float(slope) == 54.0
    assert float(outer.gradient(slope, x)) == 6 * 9.0


def test_a_paused_outer_tape_takes_for_a_constant_what_the_inner_differentiates():
    x = leaf()
    with GradientTape() as outer:
        with outer.no_recording():
            with GradientTape() as inner:
                y = x * x
            slope = inner.gradient(y, x)
        z = float(slope) * x
    assert float(outer.gradient(z, x)) == 6.0


@pytest.mark.parametrize("end", ["drop", "consume"])
def test_an_outer_tape_that_ends_first_leaves_the_inner_ones_nodes(end):
    x = leaf()
    outer, inner = GradientTape(), GradientTape()
    with outer, inner:
        y = x * x * x
    if end == "drop":
        del outer
    else:
        assert float(outer.gradient(y, x)) == 27.0
    assert float(inner.gradient(y, x)) == 27.0


def test_retained_sweeps_and_nested_ones_mix():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = x * x * x
        inner.backward(y, retain=True)
        first = x.grad
        slope = inner.gradient(y, x)
        both = first + slope
    x.zero_grad()
    outer.backward(both, retain=True)
    assert float(x.grad) == 36.0
    outer.backward(slope)
    assert float(x.grad) == 36.0 + 18.0
    with pytest.raises(TapeConsumedError):
        outer.backward(slope)


def test_recorded_gradients_of_several_tapes_add_up_in_a_leaf():
    x = leaf()
    for _ in range(3):
        with GradientTape():
            with GradientTape() as inner:
                y = x * x * x
            inner.backward(y)
    with GradientTape() as plain:
        y = x * x
    plain.backward(y)
    assert float(x.grad) == 3 * 27.0 + 6.0


def test_recorded_gradients_of_two_living_recordings_do_not_mix_and_nothing_is_half_done():
    a, b = leaf(), leaf()
    with GradientTape() as first:
        with GradientTape() as inner:
            y = a * a * b
        inner.backward(y)
    b.zero_grad()
    with GradientTape():
        with GradientTape() as inner:
            y = b * b * a
        with pytest.raises(TapeMismatchError, match="zero_grad"):
            inner.backward(y)
        assert b.grad is None
        assert inner.gradient(y, b).item() == 18.0
    assert float(a.grad) == 18.0
    assert float(first.gradient(a.grad, b)) == 6.0


@pytest.mark.parametrize("sweep", ["gradient", "jvp"])
def test_what_passes_through_a_recorded_sweep_is_a_variable_apart_from_what_came(sweep):
    x, given = Variable(np.full(6, 3.0), requires_grad=True), np.ones(6)
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = x + 0.0
        slope = inner.gradient(y, x, given) if sweep == "gradient" else inner.jvp(y, x, given)
        assert isinstance(slope, Variable)
        total = (slope * x).sum()
    given[...] = 0.0
    np.testing.assert_array_equal(outer.gradient(total, x), np.ones(6))


def test_a_manual_record_does_not_let_paused_nodes_into_a_sweep():
    x = leaf()
    with GradientTape(), GradientTape() as inner:
        a, c = x * x, inner.constant(18.0)
        with inner.no_recording():
            b = x * x
        inner.record("add", [a, b], c)
        assert inner.gradient(c, x).item() == 6.0


def test_a_hook_sees_a_variable_in_a_recorded_sweep_and_its_replacement_is_differentiated():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            h = x * x
            y = h * x
        inner.on_gradient(h, lambda g: g * x)
        slope = inner.gradient(y, x)  # 2x * x² + x²
    assert float(slope) == 2 * 27.0 + 9.0
    assert float(outer.gradient(slope, x)) == 6 * 9.0 + 2 * 3.0


def test_a_function_waits_for_the_sweep_of_the_tape_it_was_given_to():
    x, seen = leaf(), []
    with GradientTape() as outer:
        h = x * x
        outer.on_gradient(h, lambda g: seen.append(("outer", g.item())))
        with GradientTape() as inner:
            y = h * x
        inner.on_gradient(h, lambda g: seen.append(("inner", g.item())))
        inner.gradient(y, x)
        assert seen == [("inner", 3.0)]
        z = h * 5.0
    outer.gradient(z, x)
    assert seen == [("inner", 3.0), ("outer", 5.0)]


def test_an_error_in_the_inner_block_leaves_the_outer_recording_intact():
    x = leaf()
    inner = GradientTape()

    def fail(y):
        with inner:
            return y * x / [1.0, 2.0] @ np.ones(3)

    with GradientTape() as outer:
        y = x * x
        with pytest.raises(od.errors.ShapeError):
            fail(y)
        assert len(inner) == 0
        z = y * x
    assert float(outer.gradient(z, x)) == 27.0


@pytest.mark.slow
def test_a_training_loop_inside_an_outer_tape_does_not_grow():
    rng = np.random.default_rng(5)
    x, lengths = rng.normal(size=(4, 3)), []
    start = Variable(rng.normal(size=3), requires_grad=True)
    with GradientTape() as outer:
        w = start * 1.0
        for _ in range(2_000):
            with GradientTape() as inner:
                p = inner.watch(w.detach())
                loss = ((x @ p) * (x @ p)).sum()
            w = (p - 0.01 * inner.gradient(loss, p)).detach()
            lengths.append(len(outer))
    assert max(lengths) < 8_192


def test_a_cotangent_may_be_a_variable_of_the_outer_tape():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = x * x
        c = x * x * x
        slope = inner.gradient(y, x, c)  # 2 x⁴
    assert float(outer.gradient(slope, x)) == 8 * 27.0


# ------------------------------------------------------------------ learning to learn


def task_loss(params, x, y):
    h = ops.tanh(x @ params["w"] + params["b"])
    return ((h @ params["v"] - y) * (h @ params["v"] - y)).mean()


def adapted_loss(start, x, y, steps, rate):
    """The loss after gradient steps, as a function of where they start."""
    params = start
    for _ in range(steps):
        with GradientTape() as inner:
            loss = task_loss(params, x, y)
        slopes = inner.gradient(loss, params)
        params = {name: params[name] - rate * slopes[name] for name in params}
    return task_loss(params, x, y)


@pytest.mark.parametrize("steps", [1, 3])
def test_the_gradient_through_gradient_steps_equals_differences(steps):
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(8, 3)), rng.normal(size=(8, 2))
    start = {
        "w": rng.normal(size=(3, 4)) * 0.5,
        "b": rng.normal(size=4) * 0.1,
        "v": rng.normal(size=(4, 2)) * 0.5,
    }
    params = {name: Variable(value, requires_grad=True) for name, value in start.items()}
    with GradientTape() as outer:
        loss = adapted_loss(params, x, y, steps, 0.3)
    slopes = outer.gradient(loss, params)

    def moved(name, direction, step):
        point = start | {name: start[name] + step * direction}
        fresh = {n: Variable(v, requires_grad=True) for n, v in point.items()}
        with GradientTape():
            return adapted_loss(fresh, x, y, steps, 0.3).item()

    for name in start:
        direction, h = rng.normal(size=start[name].shape), 1e-3
        near = (moved(name, direction, h) - moved(name, direction, -h)) / (2 * h)
        far = (moved(name, direction, 2 * h) - moved(name, direction, -2 * h)) / (4 * h)
        assert float((slopes[name] * direction).sum()) == pytest.approx(
            (4 * near - far) / 3, rel=1e-7
        )


def test_the_gradient_through_gradient_steps_equals_analysis_on_a_parabola():
    # loss = a w² / 2; one step takes w to (1 - r a) w; so n steps to (1 - r a)**n w.
    a, r, n = 1.7, 0.2, 5
    w = leaf(2.0)
    with GradientTape() as outer:
        p = w
        for _ in range(n):
            with GradientTape() as inner:
                loss = 0.5 * a * p * p
            p = p - r * inner.gradient(loss, p)
        final = 0.5 * a * p * p
    assert float(outer.gradient(final, w)) == pytest.approx(a * 2.0 * (1 - r * a) ** (2 * n))


@pytest.mark.parametrize("first", ["nowhere", "no_grad", "another tape", "after"])
def test_a_recorded_complex_gradient_is_the_same_wherever_it_is_first_looked_up(first):
    w = Variable(np.array([1 + 2j, 3 - 1j]), requires_grad=True)
    with GradientTape(persistent=True) as outer:
        with GradientTape() as inner:
            z = w * w
            y = ops.real((z * z).sum())
        gradients = inner.backward(y)
        if first == "no_grad":
            with od.no_grad():
                gradients[z]
        if first != "after":
            total = ops.square(ops.absolute(gradients[z])).sum()
    if first == "another tape":
        with GradientTape():
            gradients[z]
    if first == "after":
        outer.enable()
        total = ops.square(ops.absolute(gradients[z])).sum()
    # The gradient of z is conj(2 z), so the total is 4 |w|^4, whose gradient is 16 |w|^2 w.
    np.testing.assert_allclose(
        outer.gradient(total, w), 16 * np.abs(w.data) ** 2 * w.data, rtol=1e-14
    )


@pytest.mark.parametrize("dtype", [float, complex])
def test_a_recorded_sweep_with_complex_values_records_on_its_own_tape(dtype):
    w = Variable(np.array([1.0, 2.0], dtype), requires_grad=True)
    outer, inner = GradientTape(), GradientTape()
    with outer, inner:
        y = w * (1 + 2j)
        z = ops.real(y * y).sum()
    outer.enable()
    with GradientTape():
        gradients = inner.backward(z)
    # The gradient of Re((c w)^2) is conj(2 c^2 w), its real part where w is real; c^2 = -3 + 4j.
    slope = np.conj(2 * (1 + 2j) ** 2 * np.array([1.0, 2.0]))
    found = gradients[w].detach().numpy()
    np.testing.assert_allclose(found, slope if dtype is complex else slope.real)


def test_a_hook_of_a_recorded_sweep_may_use_a_leaf_that_is_new_to_the_tape():
    w, scale = leaf(), leaf(2.0)
    with GradientTape(persistent=True) as outer:
        with GradientTape() as inner:
            y = w * w
            inner.on_gradient(w, lambda g: g * scale)
        inner.backward(y)
        z = w.grad * w.grad
    # z = (scale * 2 w)**2, with w = 3 and scale = 2.
    assert [float(g) for g in outer.gradient(z, [w, scale])] == [96.0, 144.0]

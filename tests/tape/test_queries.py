"""Sources and outputs in trees, the mapping of backward, forward sweeps, hooks."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest

from odyssey import GradientTape, Variable, ops
from odyssey.errors import ShapeError


class Pair(NamedTuple):
    w: Any
    b: Any


@dataclass
class Layer:
    w: Any
    b: Any


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


# ------------------------------------------------------------------ gradient: sources and outputs


@pytest.mark.parametrize("kind", [dict, Layer, list], ids=lambda kind: kind.__name__)
def test_cotangents_and_tangents_stand_where_their_values_stand(kind):
    def tree(w, b):
        if kind is list:
            return [w, {"b": b}]
        return kind(w=w, b=b)

    a, b = wide([1.0, 2.0]), wide([3.0, 4.0])
    with GradientTape(persistent=True) as tape:
        outputs = tree(2.0 * a, 3.0 * b)
    # A list of numbers stands for an array.
    ga, gb = tape.gradient(outputs, (a, b), tree([1.0, 1.0], np.zeros(2)))
    np.testing.assert_array_equal((ga, gb), [[2.0, 2.0], [0.0, 0.0]])
    moved = tape.jvp(outputs, tree(a, b), tree(np.ones(2), [0.0, 0.0]))
    first = moved[0] if kind is list else moved["w"] if kind is dict else moved.w
    np.testing.assert_array_equal(first, [2.0, 2.0])


def test_dictionaries_of_cotangents_and_tangents_go_by_key():
    a, b = wide(1.0), wide(2.0)
    with GradientTape(persistent=True) as tape:
        y, z = a * 3.0, b * 2.0
    ga, gb = tape.gradient({"y": y, "z": z}, (a, b), {"z": 0.0, "y": 1.0})
    assert (float(ga), float(gb)) == (3.0, 0.0)
    assert float(tape.jvp(y, {"a": a, "b": b}, {"b": 0.0, "a": 1.0}, unused="zero")) == 3.0
    with pytest.raises(ShapeError, match=r"gradient: the cotangents .* differ at \['x'\]"):
        tape.gradient({"y": y, "z": z}, a, {"y": 1.0, "x": 0.0})


@pytest.mark.parametrize("container", [dict, list, tuple, Pair, Layer], ids=lambda c: c.__name__)
def test_gradients_come_in_the_shape_of_the_sources(container):
    w, b = wide([1.0, 2.0]), wide(3.0)
    with GradientTape() as tape:
        y = (w * b).sum()
    if container is dict:
        g = tape.gradient(y, {"w": w, "b": b})
        got = g["w"], g["b"]
    elif container in (list, tuple):
        g = tape.gradient(y, container((w, b)))
        got = tuple(g)
    else:
        g = tape.gradient(y, container(w, b))
        got = g.w, g.b
    assert type(g) is container
    np.testing.assert_array_equal(got[0], [3.0, 3.0])
    assert float(got[1]) == 3.0


def test_sources_may_be_intermediates_and_named_twice():
    x = wide(2.0)
    with GradientTape() as tape:
        middle = x * x
        y = middle * middle * x
    gx, gm, again = tape.gradient(y, (x, middle, x))
    assert (float(gx), float(gm), float(again)) == (5 * 16.0, 2 * 4.0 * 2.0, 80.0)
    again[...] = 0.0
    assert float(gx) == 80.0


def test_gradient_touches_no_grad():
    x = wide(2.0)
    with GradientTape() as tape:
        y = x * x
    tape.gradient(y, x)
    assert x.grad is None


@pytest.mark.parametrize("unused", ["zero", "none"])
def test_sources_that_the_output_does_not_use_get_what_was_asked(unused):
    x, other = wide(2.0), wide([1.0, 1.0])
    with GradientTape() as tape:
        y = x * x
    gx, go = tape.gradient(y, (x, other), unused=unused)
    assert float(gx) == 4.0
    if unused == "none":
        assert go is None
    else:
        assert go.dtype == np.float64
        np.testing.assert_array_equal(go, [0.0, 0.0])


def test_the_results_of_gradient_share_no_memory():
    a, b = wide([1.0, 2.0]), wide([3.0, 4.0])
    seed = np.ones(2)
    with GradientTape() as tape:
        y = a + b
    ga, gb = tape.gradient(y, (a, b), seed)
    assert not np.shares_memory(ga, gb)
    assert not np.shares_memory(ga, seed)
    assert not np.shares_memory(gb, seed)
    ga[0] = 9.0
    assert (gb[0], seed[0]) == (1.0, 1.0)


def test_a_grad_shares_memory_with_nothing_else():
    a, b = wide([1.0, 2.0]), wide([3.0, 4.0])
    seed = np.ones(2)
    with GradientTape() as tape:
        y = a + b
    gradients = tape.backward(y, seed)
    others = [seed, gradients[a], gradients[b], gradients[y], a.numpy(), b.numpy()]
    for grad in (a.grad, b.grad):
        assert not any(np.shares_memory(grad, other) for other in others)
    assert not np.shares_memory(a.grad, b.grad)
    a.grad[:] = 7.0
    np.testing.assert_array_equal(gradients[a], [1.0, 1.0])


# ------------------------------------------------------------------ the mapping of backward


def test_backward_returns_what_this_sweep_contributed():
    w = wide(3.0)
    for _ in range(2):
        with GradientTape() as tape:
            middle = w * w
            y = middle * 2.0
        gradients = tape.backward(y)
    assert float(w.grad) == 24.0
    assert float(gradients[w]) == 12.0
    assert float(gradients[middle]) == 2.0
    assert float(gradients[y]) == 1.0
    assert list(gradients) == [w]
    assert len(gradients) == 1
    assert middle in gradients


def test_the_mapping_refuses_what_was_not_reached():
    w, other = wide(3.0, name="w"), wide(1.0, name="other")
    with GradientTape() as tape:
        y = w * w
        _ = other * 2.0
    gradients = tape.backward(y)
    assert other not in gradients
    with pytest.raises(KeyError, match=r"other.*not reached"):
        _ = gradients[other]
    assert other.grad is None


def test_a_watched_variable_that_was_written_to_stands_for_what_was_watched():
    with GradientTape() as tape:
        v = tape.watch(np.ones(3))
        y = (v * 2.0).sum()
        v[0] = 5.0
    gradients = tape.backward(y)
    assert list(gradients) == [v]
    assert gradients[v].tolist() == [2.0, 2.0, 2.0]


def test_clear_grads_and_zero_grad_forget_all_and_one():
    a, b = wide(2.0), wide(3.0)
    with GradientTape(persistent=True) as tape:
        y = a * b
    tape.backward(y)
    a.zero_grad()
    assert a.grad is None
    assert float(b.grad) == 2.0
    tape.backward(y)
    tape.clear_grads()
    assert a.grad is None
    assert b.grad is None


# ------------------------------------------------------------------ jvp


def test_jvp_is_the_derivative_along_tangents():
    w, b = wide([1.0, 2.0]), wide(3.0)
    with GradientTape() as tape:
        square = w * w
        outputs = (square * b, square.sum())
    first, second = tape.jvp(outputs, {"w": w, "b": b}, {"w": np.array([1.0, 10.0]), "b": 100.0})
    np.testing.assert_array_equal(first, [2.0 * 3.0 + 100.0, 40.0 * 3.0 + 400.0])
    assert float(second) == 2.0 + 40.0


def test_jvp_moves_an_intermediate():
    w = wide(2.0)
    with GradientTape() as tape:
        middle = w * w
        y = middle * middle
    assert float(tape.jvp(y, middle, 1.0)) == 8.0


def test_jvp_and_gradient_agree_on_a_random_network():
    rng = np.random.default_rng(3)
    x, w, v = rng.normal(size=(5, 4)), wide(rng.normal(size=(4, 3))), rng.normal(size=(4, 3))
    g = rng.normal(size=(5, 3))
    with GradientTape() as tape:
        y = ops.tanh(x @ w)
    forward = np.vdot(g, tape.jvp(y, w, v))
    assert forward == pytest.approx(np.vdot(tape.gradient(y, w, g), v), rel=1e-13)


# ------------------------------------------------------------------ on_gradient


def test_on_gradient_sees_the_complete_cotangent_once():
    x, seen = wide(3.0), []
    with GradientTape(persistent=True) as tape:
        middle = x * x
        y = middle * middle + middle
    tape.on_gradient(middle, lambda g: seen.append(float(g)))
    assert float(tape.gradient(y, x)) == (2 * 9.0 + 1.0) * 6.0
    assert seen == [19.0]
    tape.gradient(y, x)
    assert seen == [19.0]


@pytest.mark.parametrize("sweep", ["backward", "gradient"])
@pytest.mark.parametrize("where", ["leaf", "middle", "output"])
def test_on_gradient_may_replace_the_cotangent(sweep, where):
    x = wide(3.0)
    with GradientTape() as tape:
        middle = x * x
        y = middle * 1.0
    tape.on_gradient({"leaf": x, "middle": middle, "output": y}[where], lambda g: g * 10.0)
    if sweep == "backward":
        tape.backward(y)
        assert float(x.grad) == 60.0
    else:
        assert float(tape.gradient(y, x)) == 60.0


def test_on_gradient_gives_the_conjugated_cotangent_of_a_complex_value():
    z, seen = Variable(np.array(1 + 2j), requires_grad=True), []
    with GradientTape() as tape:
        y = (z * z.conj()).real
    tape.on_gradient(z, lambda g: seen.append(complex(g)))
    tape.backward(y)
    assert seen == [2 + 4j]


def test_on_gradient_works_on_a_recorded_sweep():
    x = wide(2.0)
    with GradientTape() as tape:
        middle = x * x
        y = middle * middle
    tape.on_gradient(middle, lambda g: g * 2.0)
    slope = tape.gradient(y, x, create_graph=True)
    # twice 4 x^3, whose derivative is 24 x^2
    assert float(slope) == 64.0
    assert float(tape.gradient(slope, x)) == 96.0


@pytest.mark.parametrize("sweep", ["backward", "gradient", "create_graph"])
def test_a_hook_that_gives_itself_again_is_called_once_a_sweep(sweep):
    x, seen = wide(3.0), []
    with GradientTape(persistent=True) as tape:
        middle = x * x
        y = middle * middle

    def hook(g):
        seen.append(g.item())
        assert len(seen) < 5  # rather than for ever
        tape.on_gradient(middle, hook)

    tape.on_gradient(middle, hook)
    for calls in (1, 2, 3):
        if sweep == "backward":
            tape.backward(y)
        else:
            tape.gradient(y, x, create_graph=sweep == "create_graph")
        assert seen == [18.0] * calls


@pytest.mark.parametrize("sweep", ["backward", "gradient"])
@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "once"])
def test_a_hook_given_during_a_sweep_is_called_in_it_where_it_has_yet_to_come_by(sweep, persistent):
    x = wide(3.0)
    with GradientTape(persistent=persistent) as tape:
        middle = x * x
        y = middle * middle
    tape.on_gradient(middle, lambda g: tape.on_gradient(x, lambda g: g * 10.0))
    ask = {"backward": lambda: tape.backward(y)[x], "gradient": lambda: tape.gradient(y, x)}[sweep]
    assert float(ask()) == 1080.0
    if persistent:
        assert float(ask()) == 108.0


def test_a_hook_given_during_a_sweep_that_is_past_it_waits_for_the_next():
    x = wide(3.0)
    with GradientTape(persistent=True) as tape:
        first = x * x
        second = first * 1.0
        y = second * 1.0
    tape.on_gradient(first, lambda g: tape.on_gradient(second, lambda g: g * 10.0))
    assert [float(tape.gradient(y, x)) for _ in range(3)] == [6.0, 60.0, 6.0]


def test_a_refused_sweep_keeps_its_hooks_and_those_given_in_it():
    x, seen = wide(3.0), []
    with GradientTape(persistent=True) as tape:
        middle = x * x
        y = middle * 1.0

    def fail(g):
        if not seen:
            seen.append("failed")
            tape.on_gradient(x, lambda g: seen.append("leaf"))
            raise KeyError("mine")

    tape.on_gradient(middle, fail)
    with pytest.raises(KeyError, match="mine"):
        tape.backward(y)
    tape.backward(y)
    tape.backward(y)
    assert seen == ["failed", "leaf"]

"""What tapes are asked about: every kind of source and output, with every ``unused=``."""

import numpy as np
import pytest

from odyssey import GradientTape, Variable, no_grad
from odyssey.errors import TapeError, TapeMismatchError, UntrackedError

X = np.array([3.0, -2.0])


class World:
    """A persistent tape with ``y = sum(w * w * c * frozen)`` on it, and values of every kind."""

    def __init__(self):
        self.w = Variable(X, requires_grad=True, name="w")
        self.constant = Variable([1.0, 1.0])
        self.frozen = Variable([1.0, 1.0], requires_grad=True)
        self.frozen.requires_grad = False
        self.thawed_then_frozen = Variable([1.0, 1.0], requires_grad=True)
        self.idle = Variable(X, requires_grad=True)
        self.untracked = self.w * 2.0
        with GradientTape() as self.elsewhere:
            self.stranger = self.w * 2.0
        with GradientTape(persistent=True) as tape:
            self.watched = tape.watch(X)
            self.h = self.w * self.w
            with no_grad():
                self.paused = self.w * 2.0
            factors = self.constant * self.frozen * self.thawed_then_frozen
            self.y = (self.h * factors).sum() + 0.0 * self.watched.sum()
            self.aside = (self.watched * 3.0).sum()
            self.detached = self.h.detach()
        self.thawed_then_frozen.requires_grad = False
        self.tape = tape


# Sources on which ``y`` depends, by what it gives them.
SLOPES = {"w": 2 * X, "h": np.ones(2), "watched": np.zeros(2)}
CONSTANTS = ["constant", "frozen", "thawed_then_frozen", "paused", "detached"]
UNUSED = ["idle", "aside"]


@pytest.mark.parametrize("unused", ["error", "zero", "none"])
@pytest.mark.parametrize("kind", SLOPES)
def test_a_source_that_the_output_depends_on_has_its_gradient(kind, unused):
    world = World()
    for source in (getattr(world, kind), getattr(world, kind).id):
        found = world.tape.gradient(world.y, source, unused=unused)
        np.testing.assert_array_equal(found, SLOPES[kind])
        moved = world.tape.jvp(world.y, source, [1.0, 10.0], unused=unused)
        assert float(moved) == SLOPES[kind] @ [1.0, 10.0]


@pytest.mark.parametrize("kind", [*CONSTANTS, *UNUSED])
def test_what_the_output_does_not_depend_on_is_an_error_zero_or_none(kind):
    world = World()
    tape, source, y = world.tape, getattr(world, kind), world.y
    with pytest.raises(TapeError, match=r"is a constant|does not depend on"):
        tape.gradient(y, source)
    with pytest.raises(TapeError, match=r"is a constant|does not depend on"):
        tape.jvp(y, source, np.ones(source.shape))
    assert tape.gradient(y, source, unused="none") is None
    assert tape.jvp(y, source, np.ones(source.shape), unused="none") is None
    np.testing.assert_array_equal(tape.gradient(y, source, unused="zero"), np.zeros(source.shape))
    assert float(tape.jvp(y, source, np.ones(source.shape), unused="zero")) == 0.0


@pytest.mark.parametrize("kind", [*CONSTANTS, *UNUSED])
def test_in_a_tree_the_other_sources_have_their_gradients(kind):
    world = World()
    tree = {"a": getattr(world, kind), "b": [world.w, world.h]}
    found = world.tape.gradient(world.y, tree, unused="zero")
    assert found["a"].shape == tree["a"].shape
    assert not found["a"].any()
    np.testing.assert_array_equal(found["b"], [2 * X, np.ones(2)])
    found = world.tape.gradient(world.y, tree, unused="none")
    assert found["a"] is None
    tangents = {"a": np.ones(tree["a"].shape), "b": [np.array([1.0, 10.0]), np.zeros(2)]}
    for unused in ("zero", "none"):
        # ``h`` stands still, as was asked, so nothing of what ``w`` does passes it.
        assert float(world.tape.jvp(world.y, tree, tangents, unused=unused)) == 0.0
    tangents["b"][1] = np.array([1.0, 10.0])
    assert float(world.tape.jvp(world.y, tree, tangents, unused="zero")) == 11.0


@pytest.mark.parametrize("unused", ["error", "zero", "none"])
@pytest.mark.parametrize("kind", ["untracked", "stranger"])
def test_a_source_whose_gradient_would_be_lost_is_an_error_whatever_unused_says(kind, unused):
    world = World()
    source = getattr(world, kind)
    wanted = UntrackedError if kind == "untracked" else TapeMismatchError
    with pytest.raises(wanted):
        world.tape.gradient(world.y, source, unused=unused)
    with pytest.raises(wanted):
        world.tape.jvp(world.y, source, np.ones(2), unused=unused)
    with pytest.raises(wanted):
        world.tape.jvp(source, world.w, np.ones(2), unused=unused)


@pytest.mark.parametrize("kind", [*CONSTANTS, "idle"])
def test_a_constant_output_of_jvp_is_an_error_zero_or_none(kind):
    world = World()
    out = getattr(world, kind)
    with pytest.raises(TapeError, match=r"is a constant|does not depend on"):
        world.tape.jvp(out, world.w, np.ones(2))
    zero = world.tape.jvp([out, world.y], world.w, np.ones(2), unused="zero")
    np.testing.assert_array_equal(zero[0], np.zeros(2))
    assert float(zero[1]) == 2.0
    none = world.tape.jvp([out, world.y], world.w, np.ones(2), unused="none")
    assert none[0] is None
    assert float(none[1]) == 2.0


def test_zeros_have_the_shape_and_dtype_of_their_source():
    w = Variable(np.ones(2, np.float32), requires_grad=True)
    c = Variable(np.ones((2, 3), np.complex64))
    with GradientTape() as tape:
        y = w.sum()
    assert tape.jvp(y, c, np.ones((2, 3)), unused="zero").dtype == np.float32
    found = tape.gradient(y, c, unused="zero")
    assert (found.shape, found.dtype) == ((2, 3), np.complex64)


def test_a_tangent_of_a_constant_must_fit_it():
    world = World()
    with pytest.raises(ValueError, match=r"shape \(3,\), its value \(2,\)"):
        world.tape.jvp(world.y, world.constant, np.ones(3), unused="zero")


def test_an_unknown_id_is_refused_by_name():
    world = World()
    for ask in (
        lambda: world.tape.gradient(world.y, 12),
        lambda: world.tape.gradient(12, world.w),
        lambda: world.tape.jvp(world.y, 12, 1.0, unused="zero"),
    ):
        with pytest.raises(TapeError, match="does not know the id 12"):
            ask()


def test_an_id_of_a_constant_that_the_tape_made_is_a_constant():
    w = Variable(X, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        c = tape.constant(np.ones(2))
        y = (w * c).sum()
    with pytest.raises(TapeError, match="is a constant"):
        tape.gradient(y, c.id)
    assert tape.gradient(y, c.id, unused="none") is None
    assert tape.gradient(y, [c.id, w.id], unused="zero")[0].tolist() == [0.0, 0.0]


# ------------------------------------------------------------------ a leaf as the output


@pytest.mark.parametrize("used", [True, False], ids=["used", "new to the tape"])
@pytest.mark.parametrize("persistent", [True, False])
def test_backward_of_a_bare_leaf_gives_one(used, persistent):
    w = Variable(3.0, requires_grad=True)
    with GradientTape(persistent=persistent) as tape:
        if used:
            w * 2.0
    gradients = tape.backward(w)
    assert type(w.grad) is np.ndarray
    assert (w.grad.shape, float(w.grad), float(gradients[w])) == ((), 1.0, 1.0)
    assert tape.consumed != persistent
    if persistent:
        tape.backward(w, 4.0)
        assert float(w.grad) == 5.0


def test_backward_of_a_bare_leaf_takes_a_cotangent_of_its_shape():
    w, v = Variable(X, requires_grad=True), Variable([[1.0]], requires_grad=True)
    tape = GradientTape(persistent=True)
    with pytest.raises(ValueError, match=r"the output has shape \(2,\)"):
        tape.backward(w)
    assert w.grad is None
    given = np.array([5.0, 7.0])
    tape.backward([w, v], [given, None])
    given[0] = 0.0
    assert (w.grad.tolist(), v.grad.tolist()) == ([5.0, 7.0], [[1.0]])
    tape.backward([w, w], [[1.0, 1.0], [10.0, 10.0]])
    assert w.grad.tolist() == [16.0, 18.0]


def test_backward_of_a_leaf_beside_a_result_adds_up():
    w = Variable(3.0, requires_grad=True)
    with GradientTape() as tape:
        y = w * w
    tape.backward([y, w])
    assert float(w.grad) == 7.0


def test_jvp_of_a_leaf_along_itself_is_its_tangent():
    w, v = Variable(X, requires_grad=True), Variable(X, requires_grad=True)
    tape = GradientTape(persistent=True)
    assert tape.jvp(w, w, [1.0, 2.0]).tolist() == [1.0, 2.0]
    assert tape.jvp(w, v, [1.0, 2.0], unused="zero").tolist() == [0.0, 0.0]
    assert tape.gradient(w, w, [1.0, 2.0]).tolist() == [1.0, 2.0]


def test_a_frozen_leaf_and_a_constant_have_no_backward():
    w = Variable(3.0, requires_grad=True)
    w.requires_grad = False
    for value in (w, Variable(2.0)):
        with pytest.raises(TapeError, match="is a constant"):
            GradientTape().backward(value)


def test_backward_of_a_complex_leaf_is_one():
    w = Variable(3.0 + 1j, requires_grad=True)
    GradientTape().backward(w)
    assert complex(w.grad) == 1.0


def test_the_backward_of_a_leaf_asks_its_own_tape_or_the_one_that_is_entered():
    w = Variable(3.0, requires_grad=True)
    with pytest.raises(TapeError, match=r"is not on a tape"):
        w.backward()
    with GradientTape(persistent=True):
        w.backward()
    assert float(w.grad) == 1.0
    tape = GradientTape(persistent=True)
    tape.enable()
    v = tape.variable(X)
    v.backward(np.array([2.0, 3.0]))
    assert v.grad.tolist() == [2.0, 3.0]
    with no_grad(), pytest.raises(TapeError, match=r"is not on a tape"):
        v.backward()


def test_a_leaf_that_is_an_output_may_still_be_assigned():
    w = Variable(3.0, requires_grad=True)
    with GradientTape(persistent=True) as tape:
        tape.backward(w)
        w.assign(4.0)
        y = w * w
    assert float(tape.gradient(y, w)) == 8.0

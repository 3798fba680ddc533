"""Refused sweeps: each has its named error, and afterwards the same tape still answers."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import (
    DTypeError,
    MutationError,
    NotDifferentiableError,
    ShapeError,
    TapeError,
    TapeMismatchError,
    UntrackedError,
)


def wide(data, **options):
    """A leaf of float64."""
    return Variable(np.asarray(data, np.float64), True, **options)


def enabled():
    tape = GradientTape()
    tape.enable()
    return tape


# ------------------------------------------------------------------ refused sweeps

SWEEPS = ["backward", "gradient"]


def sweep(kind, tape, output, source, *args):
    """Return the gradient at ``source`` by either sweep."""
    if kind == "gradient":
        return tape.gradient(output, source, *args)
    return tape.backward(output, *args)[source]


class Recorded:
    """A tape on which ``y = w * w`` is the one output, and what a refusal must not change."""

    def __init__(self, check=False):
        self.w = wide([1.0, 2.0], name="w")
        with GradientTape(check=check) as self.tape:
            self.middle = self.w * self.w
            self.y = self.middle * 1.0
        self.before = self.state()

    def state(self):
        nodes = [(*node[:3], repr(node.saved), *node[4:]) for node in self.tape.nodes]
        return nodes, self.tape.ids, self.w.grad, self.tape.consumed

    def unchanged(self, kind):
        assert self.state() == self.before
        g = sweep(kind, self.tape, self.y, self.w, [1.0, 10.0])
        np.testing.assert_array_equal(g, [2.0, 40.0])


REFUSED = {
    "no_cotangent": (lambda r: (r.y,), ShapeError, r"shape \(2,\).*grad="),
    "cotangent_shape": (
        lambda r: (r.y, np.ones(3)),
        ShapeError,
        r"cotangent has shape \(3,\), its value \(2,\)",
    ),
    "scalar_cotangent": (lambda r: (r.y, 1.0), ShapeError, r"cotangent has shape \(\)"),
    "cotangent_kind": (
        lambda r: (r.y, np.array([1j, 1j])),
        DTypeError,
        "cotangent of complex128 came for a value of float64",
    ),
    "cotangent_text": (
        lambda r: (r.y, np.array(["a", "b"])),
        DTypeError,
        "cotangent is an ndarray of dtype <U1",
    ),
    "too_few_cotangents": (
        lambda r: ((r.y, r.middle), (np.ones(2),)),
        ShapeError,
        r"cotangents came as a tree of 1 leaves for one of 2; the trees differ at \[1\]",
    ),
    "empty_tree": (lambda r: ([],), TapeError, "empty tree"),
    "array": (lambda r: (np.ones(2),), TapeError, "ndarray .* is not a Variable"),
    "none": (lambda r: (None,), TapeError, "NoneType None is not a Variable"),
    "constant": (lambda r: (Variable(1.0, name="c"),), TapeError, "name='c'.* is a constant"),
    "detached": (
        lambda r: (r.y.detach(),),
        TapeError,
        r"is a constant \(it was made by detach\).*requires_grad=True",
    ),
    "untracked": (
        lambda r: (r.w * 1.0,),
        UntrackedError,
        r"while nothing recorded.*with GradientTape\(\) as tape",
    ),
    "foreign_id": (lambda r: (123_456_789,), TapeError, "does not know the id 123456789"),
}


@pytest.mark.parametrize("kind", SWEEPS)
@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_sweep_changes_nothing(case, kind):
    question, error, words = REFUSED[case]
    r = Recorded()
    output, *args = question(r)
    with pytest.raises(error, match=rf"(?s){kind}: .*{words}"):
        sweep(kind, r.tape, output, r.w, *args)
    r.unchanged(kind)


def test_the_gradient_of_a_leaf_that_the_tape_did_not_meet_is_refused_unless_it_is_the_source():
    r = Recorded()
    other = wide(1.0, name="other")
    with pytest.raises(TapeError, match=r"gradient: .*name='other'.* was not used on this tape"):
        r.tape.gradient(other, r.w)
    assert r.state() == r.before
    assert float(r.tape.gradient(other, other)) == 1.0


@pytest.mark.parametrize("kind", SWEEPS)
def test_an_output_of_another_tape_raises_with_both(kind):
    r, other = Recorded(), Recorded()
    with pytest.raises(TapeMismatchError) as caught:
        sweep(kind, r.tape, other.y, r.w, np.ones(2))
    assert repr(r.tape) in str(caught.value)
    assert repr(other.tape) in str(caught.value)
    r.unchanged(kind)
    other.unchanged(kind)


@pytest.mark.parametrize("kind", SWEEPS)
def test_a_sweep_after_an_assignment_is_refused_and_consumes_nothing(kind):
    r = Recorded()
    r.w.assign([5.0, 5.0])
    with pytest.raises(MutationError, match=r"name='w'.*assigned.*sweep before assigning"):
        sweep(kind, r.tape, r.y, r.w, np.ones(2))
    assert (len(r.tape), r.tape.ids) == (2, r.before[1])
    assert not r.tape.consumed
    assert r.w.grad is None


def test_backward_of_an_output_without_trainable_leaves_raises():
    tape = enabled()
    a, b, z = tape.constant(1.0), tape.constant(2.0), tape.constant(3.0)
    tape.record_add(a, b, z)
    with pytest.raises(TapeError, match=r"depends on no trainable leaf.*requires_grad=True"):
        tape.backward(z)


def test_backward_of_an_output_that_no_leaf_reaches_raises_though_another_has_leaves():
    w = wide(2.0, name="w")
    tape = enabled()
    _ = ops.multiply(w, w, tape=tape)
    a, z = tape.constant(1.0), tape.constant(2.0)
    tape.record_add(a, a, z)
    with pytest.raises(TapeError, match="depends on no trainable leaf"):
        tape.backward(z)
    assert w.grad is None
    assert not tape.consumed


@pytest.mark.parametrize(
    ("sources", "error", "words"),
    [
        (lambda r: np.ones(2), TapeError, "ndarray .* is not a Variable"),
        (lambda r: Variable(1.0), TapeError, "is a constant"),
        (lambda r: r.w * 1.0, UntrackedError, "while nothing recorded"),
        (lambda r: wide(1.0, name="other"), TapeError, "name='other'.*unused='zero' or 'none'"),
        (lambda r: [r.w, Recorded().y], TapeMismatchError, "lives on"),
        (lambda r: {"w": r.w, "x": 3.0}, TapeError, "float 3.0 is not a Variable"),
    ],
    ids=["array", "constant", "untracked", "unused", "other_tape", "number"],
)
def test_refused_sources_change_nothing(sources, error, words):
    r = Recorded()
    with pytest.raises(error, match=rf"(?s)gradient: .*{words}"):
        r.tape.gradient(r.y, sources(r), np.ones(2))
    r.unchanged("gradient")


def test_an_unknown_word_for_unused_is_refused():
    r = Recorded()
    with pytest.raises(TapeError, match="unused='maybe'; choose 'error', 'zero' or 'none'"):
        r.tape.gradient(r.y, r.w, np.ones(2), unused="maybe")
    r.unchanged("gradient")


@pytest.mark.parametrize(
    ("tangents", "error", "words"),
    [
        (np.ones(3), ShapeError, r"tangent has shape \(3,\), its value \(2,\)"),
        (np.array([1j, 1j]), DTypeError, "tangent of complex128 came for a value of float64"),
    ],
    ids=["shape", "kind"],
)
def test_refused_tangents_change_nothing(tangents, error, words):
    r = Recorded()
    with pytest.raises(error, match=rf"jvp: .*{words}"):
        r.tape.jvp(r.y, r.w, tangents)
    r.unchanged("gradient")


def test_too_few_tangents_and_unrelated_outputs_are_refused():
    r, other = Recorded(), wide(1.0)
    with pytest.raises(ShapeError, match=r"tangents came as a tree of 1 leaves.*at \[1\]"):
        r.tape.jvp(r.y, [r.w, r.middle], [np.ones(2)])
    with pytest.raises(TapeError, match=r"jvp: .*does not depend on the sources"):
        r.tape.jvp(r.y, other, 1.0)
    r.unchanged("gradient")


@pytest.mark.parametrize("kind", SWEEPS)
def test_a_hook_that_returns_a_wrong_shape_is_refused(kind):
    r, answers = Recorded(), [np.ones(5), None]
    r.tape.on_gradient(r.middle, lambda g: answers.pop(0))
    with pytest.raises(ShapeError, match=r"on_gradient: .*shape \(5,\) for \(2,\)"):
        sweep(kind, r.tape, r.y, r.w, np.ones(2))
    r.unchanged(kind)


@pytest.mark.parametrize("kind", SWEEPS)
def test_a_hook_that_raises_leaves_the_tape_as_it_was(kind):
    r, calls = Recorded(), []

    def fail(g):
        calls.append(g)
        if len(calls) == 1:
            raise KeyError("mine")

    r.tape.on_gradient(r.w, fail)
    with pytest.raises(KeyError, match="mine"):
        sweep(kind, r.tape, r.y, r.w, np.ones(2))
    r.unchanged(kind)
    assert len(calls) == 2


@pytest.mark.parametrize("kind", SWEEPS)
def test_differentiating_through_an_operand_without_a_rule_is_refused(kind):
    @od.op(vjp={"x": lambda g, y: ops.multiply(g, y)})
    def scaled(x, y, /):
        """One operand has a rule, the other has none."""
        return x * y

    x, y = wide([1.0, 2.0]), wide([3.0, 4.0])
    with GradientTape() as tape:
        first = x * x
        z = scaled(first, y)
        fine = scaled(first, y.detach())
    with pytest.raises(
        NotDifferentiableError, match=r"scaled: not differentiable with respect to y.*y\.detach\(\)"
    ):
        sweep(kind, tape, z, y, np.ones(2))
    assert x.grad is None
    assert len(tape) == 3
    np.testing.assert_array_equal(sweep(kind, tape, fine, x, np.ones(2)), [6.0, 16.0])


def test_on_gradient_refuses_what_is_not_on_the_tape():
    r = Recorded()
    with pytest.raises(TapeError, match=r"on_gradient: .*was not used on this tape"):
        r.tape.on_gradient(wide(1.0), print)
    with pytest.raises(TapeError, match=r"on_gradient: .*is a constant"):
        r.tape.on_gradient(Variable(1.0), print)


def test_backward_of_an_output_whose_leaves_were_frozen_since_raises():
    w, other = wide(2.0), wide(3.0)
    with GradientTape() as tape:
        y = w * w
        _ = other * 2.0
    w.requires_grad = False
    with pytest.raises(TapeError, match="depends on no trainable leaf"):
        tape.backward(y)
    w.requires_grad = True
    tape.backward(y)
    assert float(w.grad) == 4.0


@pytest.mark.parametrize("kind", SWEEPS)
@pytest.mark.parametrize("by", ["a hook", "a rule"])
def test_the_base_of_a_large_view_that_is_written_to_within_a_sweep_is_noticed(kind, by):
    base, writing = np.full(1 << 17, 3.0), []
    w = Variable(np.ones(base.size), requires_grad=True)

    @od.custom_vjp
    def same(x):
        return x * 1.0

    def write(*_):
        base[7] += len(writing)

    same.defvjp(lambda x: (x * 1.0, None), lambda _, g: (write(), (g,))[1])
    with GradientTape() as tape:
        middle = w * base[:]
        y = (same(middle) if by == "a rule" else middle * 1.0).sum()
    if by == "a hook":
        tape.on_gradient(middle, write)
    writing.append(1)
    with pytest.raises(MutationError, match="was written to since"):
        sweep(kind, tape, y, w)
    assert w.grad is None
    base[7] -= 1.0
    writing.clear()
    np.testing.assert_array_equal(sweep(kind, tape, y, w), base)

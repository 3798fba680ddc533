"""custom_vjp: what it refuses to close over, and rules that do not fit."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import DTypeError, NotDifferentiableError, OdysseyError, ShapeError, TapeError


def leaf(value):
    return Variable(value, requires_grad=True)


# ------------------------------------------------------------------ what is refused

W = leaf([1.0, 2.0])


def refusing(fn=None, forward=None, backward=None):
    """A doubling function with one of its parts replaced."""
    made = od.custom_vjp(fn or (lambda x: 2.0 * x))
    made.__name__ = "twice"
    made.defvjp(
        forward or (lambda x: (2.0 * x, None)), backward or (lambda residuals, g: (2.0 * g,))
    )
    return lambda: od.grad(lambda x: made(x).sum())(np.ones(2))


REFUSED = {
    "forward closes over a leaf": (
        refusing(forward=lambda x: (x * W, None)),
        TapeError,
        r"twice: it closes over Variable\(\[1., 2.\].*pass it as an argument.*detach",
    ),
    "forward converts a leaf": (
        refusing(forward=lambda x: (x * np.asarray(W), None)),
        TapeError,
        "its conversion to an array uses",
    ),
    "backward closes over a leaf": (
        refusing(backward=lambda residuals, g: (g * W,)),
        TapeError,
        "twice: it closes over",
    ),
    "a tape inside meets a leaf": (
        refusing(forward=lambda x: (od.grad(lambda y: (y * y * W).sum())(x), None)),
        TapeError,
        "twice: it closes over",
    ),
    "no pair": (refusing(forward=lambda x: 2.0 * x), DTypeError, r"pair \(out, residuals\)"),
    "no tuple": (refusing(backward=lambda r, g: g), DTypeError, "must return a tuple of gradients"),
    "too many": (
        refusing(backward=lambda r, g: (g, g)),
        ShapeError,
        "twice: backward returned 2 gradients for 1 arguments; None stands for zero",
    ),
    "wrong shape": (
        refusing(backward=lambda r, g: (np.ones(3),)),
        ShapeError,
        r"gradient of shape \(3,\) for argument 0, whose shape is \(2,\)",
    ),
    "wrong tree": (
        refusing(backward=lambda r, g: ({"a": g},)),
        ShapeError,
        "twice: the gradient of argument 0 came as a tree.*the trees differ at argument 0",
    ),
    "wrong kind": (refusing(backward=lambda r, g: (g > 0,)), DTypeError, "gradient of bool"),
    "no rules": (
        lambda: od.grad(od.custom_vjp(lambda x: x))(1.0),
        TapeError,
        r"has no rules; call <lambda>.defvjp\(forward, backward\) first",
    ),
    "keyword only": (
        lambda: od.custom_vjp(lambda x, *, k: x)(1.0, k=2),
        DTypeError,
        "k can be passed by keyword only",
    ),
    "unknown keyword": (lambda: od.custom_vjp(lambda x: x)(1.0, c=1), DTypeError, "unexpected"),
}


@pytest.mark.parametrize(("call", "error", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_rules_say_what_came_and_what_was_wanted(call, error, message):
    with pytest.raises(error, match=message):
        call()
    assert W.grad is None


def test_recorded_variables_cannot_be_closed_over_with_or_without_a_recorded_argument():
    made = od.custom_vjp(lambda x: x * h)
    made.defvjp(lambda x: (x * h, None), lambda residuals, g: (g,))
    with GradientTape() as tape:
        h = W * 2.0
        for x in (np.ones(2), W):
            with pytest.raises(TapeError, match="closes over"):
                made(x)
        fine = od.custom_vjp(lambda x: x * h.detach())
        fine.defvjp(lambda x: (x * h.detach(), None), lambda residuals, g: (g * h.detach(),))
        y = fine(W).sum()
    np.testing.assert_array_equal(tape.gradient(y, W), [2.0, 4.0])


def test_leaves_that_are_made_inside_are_no_closures():
    def slope_inside(x):
        own = leaf(2.0)
        with GradientTape() as tape:
            y = own * own
        return x * float(tape.gradient(y, own)) * (y * 1.0).detach()

    made = od.custom_vjp(slope_inside)
    made.defvjp(lambda x: (made(x), None), lambda residuals, g: (16.0 * g,))
    assert float(od.grad(made)(1.0)) == 16.0


def test_a_rule_without_ops_has_first_derivatives_and_says_what_the_others_need():
    plain = od.custom_vjp(np.sinh)
    plain.defvjp(
        lambda x: (np.sinh(x), np.asarray(x)),
        lambda x, g: (np.asarray(g) * np.vectorize(np.cosh)(x),),
    )
    assert float(od.grad(plain)(0.5)) == pytest.approx(np.cosh(0.5))
    for call in (
        lambda: od.grad(od.grad(plain))(0.5),
        lambda: od.jvp(plain, (0.5,), (1.0,)),
    ):
        with pytest.raises(OdysseyError) as caught:
            call()
        assert not isinstance(caught.value, NotDifferentiableError)
        assert "write them with ops, and call sinh itself" in caught.value.__notes__[0]


def test_an_error_in_backward_leaves_the_tape_to_be_swept_again():
    broken = [True]

    def backward(residuals, g):
        if broken[0]:
            raise ArithmeticError("not today")
        return (2.0 * g,)

    made = od.custom_vjp(lambda x: 2.0 * x)
    made.defvjp(lambda x: (2.0 * x, None), backward)
    w = leaf(3.0)
    with GradientTape() as tape:
        y = made(w) * w
    with pytest.raises(ArithmeticError):
        tape.backward(y)
    assert w.grad is None
    broken[0] = False
    tape.backward(y)
    assert float(w.grad) == 12.0

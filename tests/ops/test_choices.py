"""What was not chosen stays out of derivatives: every choice, behind every pole, in every mode."""

import math

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops

INF, NAN = np.inf, np.nan

# name: (function with an infinite or undefined slope at the first of two points, the same for
# complex numbers by NumPy, the points). At the second its value lies between 0.2 and 2.5.
POLES = {
    "sqrt": (ops.sqrt, np.sqrt, [0.0, 2.25]),
    "log": (ops.log, np.log, [0.0, 2.25]),
    "log of a negative number": (ops.log, np.log, [-1.0, 2.25]),
    "log1p": (ops.log1p, np.log1p, [-1.0, 2.25]),
    "log2": (ops.log2, np.log2, [0.0, 2.25]),
    "divide": (lambda x: -1.0 / x + 1.0, lambda x: 1 - 1 / x, [0.0, 2.25]),
    "reciprocal": (lambda x: 1.0 - ops.reciprocal(x), lambda x: 1 - 1 / x, [0.0, 2.25]),
    "rsqrt": (lambda x: 1.0 - ops.rsqrt(x), lambda x: 1 - 1 / np.sqrt(x), [0.0, 2.25]),
    "power": (lambda x: x**0.5, np.sqrt, [0.0, 2.25]),
    "power, bent": (lambda x: x**1.5, lambda x: x**1.5, [0.0, 1.25]),
    "x log x": (lambda x: x * ops.log(x), lambda x: x * np.log(x), [0.0, 2.25]),
    "cbrt": (ops.cbrt, lambda x: x ** (1 / 3), [0.0, 2.25]),
    "arcsin": (ops.arcsin, np.arcsin, [1.0, 0.5]),
    "arccos": (ops.arccos, np.arccos, [1.0, 0.5]),
    "arccosh": (ops.arccosh, np.arccosh, [1.0, 2.25]),
    "arctanh": (lambda x: -ops.arctanh(x), lambda x: -np.arctanh(x), [1.0, -0.5]),
    "an overflow": (lambda x: -ops.exp(x) + 3.0, lambda x: 3 - np.exp(x), [1000.0, 0.25]),
    "a root of a log": (lambda x: ops.sqrt(ops.log(x)), lambda x: np.sqrt(np.log(x)), [1.0, 2.25]),
}  # fmt: skip

# The first element far below, the second as it was.
LOW = np.array([-100.0, 0.0])
FIRST_OFF = np.array([False, True])


def lowered(choice):
    """A choice by value, on values of which the first is far below."""
    return lambda v: choice(v + LOW)


# name: what is its argument at the second element and a constant at the first.
CHOICES = {
    "where": lambda v: ops.where(FIRST_OFF, v, 7.0),
    "where not": lambda v: ops.where(~FIRST_OFF, 7.0, v),
    "keep_where": lambda v: ops.keep_where(v, FIRST_OFF),
    "clip of where": lambda v: ops.clip(ops.where(FIRST_OFF, v, 7.0), -10.0, 10.0),
}
BY_VALUE = {
    "relu": ops.relu,
    "relu6": ops.relu6,
    "leaky_relu": lambda v: ops.leaky_relu(v, negative_slope=0.0),
    "elu": lambda v: ops.elu(v, alpha=0.0),
    "maximum": lambda v: ops.maximum(v, -10.0),
    "maximum, second": lambda v: ops.maximum(np.full(2, -10.0), v),
    "minimum": lambda v: -ops.minimum(-v, 10.0),
    "minimum, second": lambda v: -ops.minimum(np.full(2, 10.0), -v),
    "clip": lambda v: ops.clip(v, -10.0, 10.0),
    "clip, one bound": lambda v: ops.clip(v, -10.0, None),
    "hard_tanh": lambda v: ops.hard_tanh(v, min_val=-3.0, max_val=3.0),
    "hard_sigmoid": lambda v: 6.0 * ops.hard_sigmoid(v),
    "max": lambda v: ops.max(ops.stack([v, np.full(2, -10.0)]), axis=0),
    "min": lambda v: -ops.min(ops.stack([-v, np.full(2, 10.0)], 1), axis=1, keepdims=True)[:, 0],
    "relu of relu": lambda v: ops.relu(ops.relu(v)),
}
CHOICES |= {name: lowered(choice) for name, choice in BY_VALUE.items()}


def first(f, x):
    return od.grad(f)(x)


def moved(f, x):
    return od.jvp(f, (x,), (np.ones_like(x),))[1]


def elementwise(f, g):
    """The derivative ``g(f, x)`` as a function that can be differentiated again."""
    return lambda x: g(f, x)


def summed(f):
    return lambda x: ops.sum(f(x))


ORDERS = {
    "reverse": (1, lambda f, x: first(summed(f), x)),
    "forward": (1, lambda f, x: moved(f, x)),
    "compiled": (1, lambda f, x: od.compile(lambda x: first(summed(f), x))(x)),
    "compiled forward": (1, lambda f, x: od.compile(lambda x: moved(f, x))(x)),
    "checkpoint": (1, lambda f, x: first(summed(od.checkpoint(f)), x)),
    "checkpoint forward": (1, lambda f, x: moved(od.checkpoint(f), x)),
    "reverse over reverse": (2, lambda f, x: first(lambda x: ops.sum(first(summed(f), x)), x)),
    "reverse over forward": (2, lambda f, x: first(lambda x: ops.sum(moved(f, x)), x)),
    "forward over reverse": (2, lambda f, x: moved(lambda x: first(summed(f), x), x)),
    "forward over forward": (2, lambda f, x: moved(lambda x: moved(f, x), x)),
    "compiled, twice": (
        2,
        lambda f, x: od.compile(
            lambda x: first(lambda x: ops.sum(first(summed(f), x)), x)
        )(x),
    ),
    "checkpoint, twice": (
        2,
        lambda f, x: first(lambda x: ops.sum(first(summed(od.checkpoint(f)), x)), x),
    ),
    "checkpoint, forward over reverse": (
        2,
        lambda f, x: moved(lambda x: first(summed(od.checkpoint(f)), x), x),
    ),
    "thrice": (
        3,
        lambda f, x: first(
            lambda x: ops.sum(first(lambda x: ops.sum(first(summed(f), x)), x)), x
        ),
    ),
}  # fmt: skip


def slopes(pole, order):
    """What is right: 0 where nothing was chosen of the function, its derivative elsewhere."""
    _, exact, (_, x) = POLES[pole]
    # Cauchy's formula on a circle that no pole comes near, good to 1e-12.
    turn = np.exp(2j * np.pi * np.arange(64) / 64)
    derivative = math.factorial(order) * np.mean(exact(x + 0.2 * turn) * turn**-order) / 0.2**order
    return [0.0, derivative.real]


def check(pole, choice, mode):
    function, _, x = POLES[pole]
    order, derive = ORDERS[mode]
    with np.errstate(all="ignore"):
        got = derive(lambda x: choice(function(x)), np.array(x))
    np.testing.assert_allclose(got, slopes(pole, order), rtol=1e-9, atol=0)


@pytest.mark.parametrize("mode", ORDERS)
@pytest.mark.parametrize("pole", POLES)
def test_no_pole_reaches_through_a_choice_that_left_it_out(pole, mode):
    check(pole, CHOICES["where"], mode)
    with np.errstate(all="ignore"):
        value = POLES[pole][0](np.array(POLES[pole][2]))[0]
    if not np.isnan(value):  # which a choice by value takes
        check(pole, CHOICES["maximum"], mode)


@pytest.mark.parametrize("mode", ORDERS)
@pytest.mark.parametrize("choice", CHOICES)
def test_every_choice_keeps_poles_out(choice, mode):
    for pole in ("sqrt", "log", "power, bent"):
        check(pole, CHOICES[choice], mode)


# ------------------------------------------------------------------ what lies between

TWO = Variable([2.0, 2.0])
BETWEEN = {
    "reshape": lambda v: ops.reshape(ops.reshape(v, (2, 1)), (2,)),
    "transpose": lambda v: ops.transpose(ops.reshape(v, (1, 2)))[:, 0],
    "matrix_transpose": lambda v: ops.matrix_transpose(ops.reshape(v, (1, 2)))[:, 0],
    "getitem": lambda v: v[::-1][::-1],
    "getitem by number": lambda v: v[np.array([1, 0])][np.array([1, 0])],
    "take": lambda v: ops.take(v, np.array([0, 1])),
    "take_along_axis": lambda v: ops.take_along_axis(v, np.array([0, 1]), 0),
    "concatenate": lambda v: ops.concatenate([np.zeros(1), v, np.zeros(2)])[1:3],
    "stack of three": lambda v: ops.stack([np.zeros(2), v, np.ones(2)])[1],
    "setitem": lambda v: ops.setitem(np.zeros(4), v, key=slice(1, 3))[1:3],
    "pad": lambda v: ops.pad(v, 1)[1:-1],
    "roll": lambda v: ops.roll(ops.roll(v, 1), -1),
    "broadcast": lambda v: ops.broadcast_to(v, (3, 2))[1],
    "added to more": lambda v: (v + np.zeros((3, 2)))[1],
    "mean of copies": lambda v: ops.mean(v + np.zeros((3, 2)), 0),
    "sum of one": lambda v: ops.sum(ops.reshape(v, (2, 1)), 1),
    "add and negate": lambda v: -(1.0 - v) + 1.0,
    "multiply": lambda v: v * TWO / 2.0,
    "log of exp": lambda v: ops.log(ops.exp(v)),
    "identity": lambda v: ops.identity(v),
    "prelu": lambda v: ops.prelu(v, 1.0),
    "elu": lambda v: ops.elu(v),
    "checkpoint": od.checkpoint(lambda v: v * 1.0),
    "checkpoint of a view": od.checkpoint(lambda v: ops.reshape(v, (2, 1))[:, 0]),
    "two checkpoints": od.checkpoint(od.checkpoint(lambda v: ops.exp(v) * ops.exp(-v) * v)),
}  # fmt: skip


@pytest.mark.parametrize("mode", ORDERS)
@pytest.mark.parametrize("between", BETWEEN)
def test_views_broadcasts_and_checkpoints_between_hand_on_what_was_left_out(between, mode):
    for choice in (CHOICES["where"], CHOICES["relu"]):
        check("sqrt", lambda v, choice=choice: choice(BETWEEN[between](v)), mode)


@pytest.mark.parametrize("mode", ORDERS)
def test_what_was_left_out_in_a_checkpoint_is_known_before_it_and_after_it(mode):
    inside = od.checkpoint(CHOICES["relu"])
    check("sqrt", inside, mode)
    pole = od.checkpoint(ops.sqrt)
    order, derive = ORDERS[mode]
    with np.errstate(all="ignore"):
        got = derive(lambda x: CHOICES["relu"](pole(x)), np.array([0.0, 2.25]))
        after = derive(lambda x: pole(od.checkpoint(ops.relu)(x)), np.array([-1.0, 2.25]))
    np.testing.assert_allclose(got, slopes("sqrt", order), rtol=1e-9)
    np.testing.assert_allclose(after, slopes("sqrt", order), rtol=1e-9)


# ------------------------------------------------------------------ poles behind the choice

BEHIND = {
    "relu": (ops.relu, [-1.0, 2.25]),
    "relu at the kink": (ops.relu, [0.0, 2.25]),
    "maximum": (lambda x: ops.maximum(x, 0.0), [-1.0, 2.25]),
    "minimum": (lambda x: -ops.minimum(0.0, -x), [-1.0, 2.25]),
    "clip": (lambda x: ops.clip(x, 0.0, 9.0), [-1.0, 2.25]),
    "where": (lambda x: ops.where(x > 0, x, 0.0), [-1.0, 2.25]),
    "relu6": (ops.relu6, [-1.0, 2.25]),
    "leaky_relu": (lambda x: ops.leaky_relu(x, negative_slope=0.0), [-1.0, 2.25]),
    "elu": (lambda x: ops.elu(x, alpha=0.0), [-1.0, 2.25]),
    "hard_tanh": (lambda x: ops.hard_tanh(x, min_val=0.0, max_val=9.0), [-1.0, 2.25]),
    "hard_sigmoid": (lambda x: 6.0 * ops.hard_sigmoid(x - 3.0), [-1.0, 2.25]),
    "max": (lambda x: ops.max(ops.stack([x, np.zeros(2)]), 0), [-1.0, 2.25]),
    "min": (lambda x: -ops.min(ops.stack([-x, np.zeros(2)], -1), -1), [-1.0, 2.25]),
    "floor": (lambda x: x - x + ops.floor(ops.where(x > 0, 0.5, x)), None),
}
del BEHIND["floor"]  # it has no element that is chosen; see below


@pytest.mark.parametrize("mode", ORDERS)
@pytest.mark.parametrize("choice", BEHIND)
def test_an_infinite_slope_behind_a_choice_stops_at_what_was_not_chosen(choice, mode):
    choose, x = BEHIND[choice]
    order, derive = ORDERS[mode]
    with np.errstate(all="ignore"):
        got = derive(lambda x: ops.sqrt(choose(x)), np.array(x))
    np.testing.assert_allclose(got, slopes("sqrt", order), rtol=1e-9)


# What was chosen comes beside what is not left out anywhere; only its own place is looked at.
BESIDE = {
    "concatenate": lambda chosen, x: ops.concatenate([chosen, x + 9.0])[:2],
    "concatenate behind": lambda chosen, x: ops.concatenate([x + 9.0, chosen])[2:],
    "concatenate of three": lambda chosen, x: ops.concatenate([x + 9.0, chosen, x + 8.0])[2:4],
    "stack": lambda chosen, x: ops.stack([x + 9.0, chosen])[1],
    "hstack": lambda chosen, x: ops.hstack([chosen, x + 9.0])[:2],
    "setitem": lambda chosen, x: ops.setitem(ops.tile(x, 2) + 9.0, chosen, key=slice(0, 2))[:2],
    "setitem around": lambda chosen, x: ops.setitem(ops.tile(chosen, 2), x + 9.0, slice(2, 4))[:2],
    "pad": lambda chosen, x: ops.pad(chosen, 1)[1:-1],
}


@pytest.mark.parametrize("mode", ORDERS)
@pytest.mark.parametrize("join", BESIDE)
def test_what_was_not_chosen_stays_left_out_beside_values_that_are_all_wanted(join, mode):
    order, derive = ORDERS[mode]

    def f(x):
        return ops.sqrt(BESIDE[join](ops.relu(x), x))

    with np.errstate(all="ignore"):
        got = derive(f, np.array([-1.0, 2.25]))
    np.testing.assert_allclose(got, slopes("sqrt", order), rtol=1e-9)


@pytest.mark.parametrize("constant", [0.0, np.zeros(()), 1.0])
def test_the_constants_of_a_padding_are_left_out_by_forward_mode_as_by_reverse(constant):
    x = np.array([0.5, 2.0])
    wanted = [0.0, 1.0 / 0.5, 1.0 / 2.0, 0.0]
    with np.errstate(all="ignore"):

        def f(x):
            return ops.log(ops.pad(x, 1, constant_values=constant))

        _, pushed = od.jvp(f, (x,), (np.ones(2),))
        pulled = od.grad(lambda x: ops.sum(f(x)[1:-1]))(x)
    np.testing.assert_array_equal(pushed, wanted)
    np.testing.assert_array_equal(pulled, wanted[1:-1])


@pytest.mark.parametrize("mode", ORDERS)
@pytest.mark.parametrize(
    "step",
    [
        ops.floor,
        ops.ceil,
        ops.round,
        ops.rint,
        ops.trunc,
        ops.sign,
        lambda x: ops.floor_divide(x, 2.0),
        lambda x: ops.copysign(0.0, x),
    ],
    ids=["floor", "ceil", "round", "rint", "trunc", "sign", "floor_divide", "the sign of copysign"],
)
def test_steps_have_slope_0_before_and_behind_every_pole(step, mode):
    _, derive = ORDERS[mode]
    x = np.array([0.0, 0.25, 1.0])
    with np.errstate(all="ignore"):
        assert derive(lambda x: ops.sqrt(step(x)), x).tolist() == [0.0, 0.0, 0.0]
        assert derive(lambda x: step(ops.sqrt(x)), x).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("g", [INF, -INF, NAN, 1e300])
def test_an_infinite_cotangent_from_above_passes_to_what_was_chosen_only(g):
    for choose, x in BEHIND.values():
        x = np.array([-1.0, x[1]])
        with GradientTape() as tape:
            leaf = tape.watch(Variable(x))
            y = choose(leaf)
        with np.errstate(all="ignore"):
            got = tape.gradient(y, leaf, np.array([g, g]))
        np.testing.assert_allclose(got, [0.0, g], rtol=1e-15)


def test_both_sides_of_a_tie_get_half_of_an_infinite_cotangent():
    for op in (ops.maximum, ops.minimum):
        x, y = Variable([1.0], requires_grad=True), Variable([1.0], requires_grad=True)
        with GradientTape() as tape:
            out = op(x, y)
        assert [g.tolist() for g in tape.gradient(out, [x, y], np.array([INF]))] == [[INF], [INF]]
    with GradientTape() as tape:
        x = tape.watch(Variable([1.0, 1.0, 0.0]))
        out = ops.max(x)
    assert tape.gradient(out, x, INF).tolist() == [INF, INF, 0.0]


def test_the_weight_of_prelu_gets_nothing_where_it_was_not_used():
    x, w = Variable([1.0, -2.0]), Variable([1.0], requires_grad=True)
    with GradientTape() as tape:
        y = ops.prelu(x, w)
    assert tape.gradient(y, w, np.array([INF, 3.0])).tolist() == [-6.0]


# ------------------------------------------------------------------ what is not hidden


def hidden(f, x, mode="gradient"):
    """The derivative of ``f`` for ones."""
    with np.errstate(all="ignore"):
        with GradientTape() as tape:
            leaf = tape.watch(Variable(x))
            y = f(leaf)
        return getattr(tape, mode)(y, leaf, np.ones(y.shape)).tolist()


UNRELATED = {
    "before": lambda x: ops.where(x > 5.0, x, x) * 0.0,
    "beside": lambda x: ops.relu(x) * 0.0,
    "of a constant": lambda x: ops.where(np.array([True, False]), 1.0, 2.0) + 0.0 * x,
}


@pytest.mark.parametrize("mode", ["gradient", "jvp"])
@pytest.mark.parametrize("other", UNRELATED.values(), ids=list(UNRELATED))
def test_a_choice_elsewhere_on_the_tape_hides_no_nan(other, mode):
    # sqrt(x)**2 at 0 is inf times 0 in both modes.
    x = np.array([0.0, 4.0])
    alone = hidden(lambda x: ops.sqrt(x) ** 2, x, mode)
    np.testing.assert_allclose(alone, [NAN, 1.0])
    both = hidden(lambda x: ops.sqrt(x) ** 2 + other(x), x, mode)
    np.testing.assert_allclose(both, [NAN, 1.0])


@pytest.mark.parametrize("mode", ["gradient", "jvp"])
def test_nan_and_infinity_at_what_was_chosen_stay(mode):
    x = np.array([0.0, 4.0])
    for choice in (
        lambda v: ops.where(np.array([True, False]), v, 0.0),
        lambda v: ops.maximum(v, -1.0),
        lambda v: ops.clip(v, -1.0, 1.0),
        lambda v: ops.max(ops.stack([v, v - 1.0]), 0),
    ):
        assert hidden(lambda x, c=choice: c(ops.sqrt(x)), x, mode)[0] == INF
        assert np.isnan(hidden(lambda x, c=choice: c(ops.sqrt(x) ** 2), x, mode)[0])


def test_hard_swish_does_not_hide_a_pole_where_its_own_slope_is_0():
    # sqrt(x) - 1.5 at 0, where hard_swish has slope 0 by value: 0 times inf is no number.
    assert np.isnan(hidden(lambda x: ops.hard_swish(ops.sqrt(x) - 1.5), [0.0])[0])
    assert hidden(lambda x: ops.hard_swish(ops.log(x)), [0.0]) == [0.0]


@pytest.mark.parametrize("mode", ["gradient", "jvp"])
def test_a_pole_used_by_a_choice_and_elsewhere_too_shows(mode):
    x = np.array([0.0, 4.0])

    def fan(x):
        root = ops.sqrt(x)
        return ops.where(x > 1.0, root, 0.0) + root

    assert hidden(fan, x, mode) == [INF, 0.5]


@pytest.mark.parametrize("mode", ["gradient", "jvp"])
def test_a_pole_that_two_choices_leave_out_stays_out_and_one_that_one_takes_shows(mode):
    x = np.array([0.0, 0.0, 4.0])
    one, other = np.array([False, False, True]), np.array([False, True, True])

    def both(x):
        root = ops.sqrt(x)
        return ops.where(one, root, 0.0) + ops.where(other, root, 0.0)

    assert hidden(both, x, mode) == [0.0, INF, 0.5]


def test_choices_of_two_branches_leave_each_its_part():
    x = np.array([0.0, -1.0, 2.0])
    got = hidden(lambda x: ops.where(x > 0, ops.log(x), x**2), x)
    assert got == [0.0, -2.0, 0.5]
    with np.errstate(all="ignore"):
        bent = od.grad(
            lambda x: od.grad(lambda x: ops.where(x > 0, ops.log(x), x**2).sum())(x).sum()
        )(x)
    np.testing.assert_allclose(bent, [2.0, 2.0, -0.25])


def test_a_hook_that_replaces_a_cotangent_is_believed():
    x = Variable([0.0, 4.0], requires_grad=True)
    with np.errstate(all="ignore"), GradientTape() as tape:
        root = ops.sqrt(x)
        y = ops.where(np.array([False, True]), root, 0.0)
    tape.on_gradient(root, lambda g: g + 1.0)
    with np.errstate(all="ignore"):
        assert tape.gradient(y, x, np.ones(2)).tolist() == [INF, 0.5]


def test_a_choice_of_a_whole_reduction_leaves_all_of_it_out():
    total = lambda x: ops.where(np.array(False), ops.sum(ops.log(x)), ops.sum(x))  # noqa: E731
    assert hidden(total, [0.0, 4.0]) == [1.0, 1.0]
    assert hidden(lambda x: ops.maximum(ops.mean(ops.log(x)), -3.0), [0.0, 4.0]) == [0.0, 0.0]
    spread = lambda x: ops.where(np.array([[False], [False]]), ops.sqrt(x), x)  # noqa: E731
    assert hidden(spread, [0.0, 4.0]) == [2.0, 2.0]


# ------------------------------------------------------------------ cost


def nodes_of(program):
    with np.errstate(all="ignore"), GradientTape() as tape:
        leaf = tape.watch(Variable([0.0, 4.0]))
        with GradientTape() as inner:
            y = program(leaf)
        before = len(tape)
        inner.gradient(y, leaf, np.ones(2))
        return [node.op for node in tape.nodes[before:]]


def test_a_recorded_sweep_gets_one_row_for_each_rule_that_needs_it_and_no_other():
    guarded = nodes_of(lambda x: ops.where(FIRST_OFF, ops.sqrt(x + 1.0), 0.0))
    assert guarded.count("keep_where") == 1  # behind the rule of sqrt; that of where is constant
    assert nodes_of(lambda x: ops.where(FIRST_OFF, x + 1.0, 0.0)) == []
    assert "keep_where" not in nodes_of(lambda x: ops.sqrt(x) * ops.where(FIRST_OFF, 1.0, 2.0))


@pytest.mark.slow
def test_masks_of_a_long_chain_of_views_do_not_recurse():
    with np.errstate(all="ignore"), GradientTape() as tape:
        x = tape.watch(Variable([0.0, 4.0]))
        y = ops.sqrt(x)
        for _ in range(3000):
            y = ops.relu(ops.reshape(y - 1e-9, (2,)))
        y = ops.where(FIRST_OFF, y, 0.0)
    with np.errstate(all="ignore"):
        assert tape.gradient(y, x, np.ones(2)).tolist() == [0.0, 0.25]


def test_a_guarded_sweep_still_lets_go_of_cotangents_that_nobody_can_ask_for():
    x = Variable([0.0, 4.0], requires_grad=True)
    with np.errstate(all="ignore"):
        with GradientTape() as tape:
            h = ops.sqrt(x)
            for _ in range(10):
                h = h * 1.0
            y = ops.where(FIRST_OFF, h, 0.0).sum()
        gradients = tape.backward(y)
    assert x.grad.tolist() == [0.0, 0.25]
    assert len(gradients._reached) == 2  # of h and y, which are alive


# ------------------------------------------------------------------ the row

DTYPES = ["float16", "float32", "float64", "complex64", "complex128", "longdouble", ">f8"]
LAYOUTS = {
    "small": lambda x: x[:5, :7],
    "large": lambda x: x,
    "transposed": lambda x: x.T,
    "stepped": lambda x: x[::2, ::-1],
    "broadcast": lambda x: np.broadcast_to(x[0], x.shape),
    "one number": lambda x: x[0, 0],
    "0-d": lambda x: np.array(x[0, 0]),
    "empty": lambda x: x[:0],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_keep_where_equals_numpys_where_bit_for_bit(dtype, layout):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 50)).astype(dtype)
    x[rng.random(x.shape) < 0.3] = NAN
    x[rng.random(x.shape) < 0.3] = -INF
    x = LAYOUTS[layout](x)
    for condition in (
        rng.random(np.shape(x)) < 0.5,
        True,
        False,
        np.array(True),
        np.ones(np.shape(x)[-1:]),
    ):
        got, wanted = ops.keep_where(x, condition), np.where(condition, x, 0)
        np.testing.assert_array_equal(got, wanted)
        assert np.shape(got) == wanted.shape
        assert np.asarray(got).dtype == wanted.dtype
        assert not isinstance(got, np.ndarray) or got.flags.writeable


def test_keep_where_keeps_python_numbers_and_their_weakness():
    assert ops.keep_where(3.0, True) == 3.0
    assert ops.keep_where(INF, False) == 0.0
    got = ops.keep_where(2.0, np.array([True, False]))
    assert (got * np.float32(1)).tolist() == [2.0, 0.0]


# ------------------------------------------------------------------ rows from outside


def test_an_op_from_outside_says_by_a_rule_what_it_chose():
    @od.op(
        elementwise=True,
        # Its slope is 0 at 1 by value, and below 0 by choice.
        selects={"x": lambda c, x: ops.keep_where(c, ops.greater(x, 0))},
        vjp={"x": lambda g, x: ops.keep_where(g * (x - 1.0), ops.greater(x, 0))},
    )
    def bowl(x, /):
        return np.where(x > 0, (x - 1) ** 2 / 2, 0.5)

    got = hidden(lambda x: bowl(ops.log(x)), [0.0, 1.0, np.e**3])
    np.testing.assert_allclose(got, [0.0, 0.0, 2 * np.e**-3])
    assert np.isnan(hidden(lambda x: bowl(ops.sqrt(x) + 1.0), [0.0])[0])


def test_a_rule_of_what_was_chosen_that_asks_for_what_is_not_kept_is_refused():
    for masks in ({"x": lambda c, x: c}, {"z": lambda c: c}):
        with pytest.raises(od.errors.OdysseyError, match="same: the rule of what was chosen"):

            @od.op(elementwise=True, selects=masks, vjp={"x": lambda g: g})
            def same(x, /):
                return np.array(x)


@pytest.mark.peers
def test_values_and_slopes_equal_those_of_peers_with_a_double_where():
    torch = pytest.importorskip("torch")
    x = torch.tensor([-1.0, 0.0, 2.25], dtype=torch.float64, requires_grad=True)
    safe = torch.where(x > 0, x, torch.ones_like(x))
    y = torch.where(x > 0, torch.sqrt(safe), torch.zeros_like(x))
    theirs = torch.autograd.grad(y.sum(), x)[0].tolist()
    ours = hidden(lambda x: ops.where(x > 0, ops.sqrt(x), 0.0), [-1.0, 0.0, 2.25])
    assert ours == theirs
    behind = torch.autograd.grad(torch.sqrt(torch.relu(x)).sum(), x)[0].tolist()
    assert hidden(lambda x: ops.sqrt(ops.relu(x)), [-1.0, 0.0, 2.25]) == behind

"""Ops that a user declares: what they get for free, and what a mistake in one costs."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import NotDifferentiableError, OdysseyError, ShapeError
from odyssey.ops import OPS, Symbol
from odyssey.spec import Spec, spec_of

X = np.array([0.5, -1.25, 2.0])
Y = np.array([1.5, 0.75, -0.5])


@od.op(elementwise=True, vjp={"x": lambda g, x: ops.mul(g, ops.mul(3.0, ops.square(x)))})
def cube(x, /):
    """Elementwise third power."""
    return x**3


def _tilted_forward(t, y, tilt):
    return ops.mul(t, ops.add(y, tilt))


@od.op(
    infer=lambda x, y, tilt: Spec(np.broadcast_shapes(x.shape, y.shape), x.dtype),
    vjp={
        "x": lambda g, y, tilt: ops.mul(g, ops.add(y, tilt)),
        "y": lambda g, x: ops.mul(g, x),
    },
    jvp={"x": _tilted_forward, "y": lambda t, x: ops.mul(t, x)},
)
def tilted(x, y, /, *, tilt):
    """``x * (y + tilt)``."""
    return x * (y + tilt)


@od.op(linear=True, infer=lambda x: x, vjp={"x": lambda g: backwards(g)})
def backwards(x, /):
    """The elements in reverse order."""
    return np.flip(x)


@od.op(linear=True, infer=lambda x, by: x, vjp={"x": lambda g, by: rolled(g, by=-by)})
def rolled(x, /, *, by):
    """The elements moved along, the last to the front."""
    return np.roll(x, by)


# A rule for the first operand only.
@od.op(elementwise=True, vjp={"x": lambda g, y: ops.mul(g, y)})
def scaled(x, y, /):
    """Product with a fixed scale."""
    return x * y


def leaf(data=X, name=None):
    return Variable(data, requires_grad=True, name=name)


# ------------------------------------------------------------------ what one gets


@pytest.mark.parametrize(
    ("call", "operands"),
    [
        (cube, (X,)),
        (lambda x, y: tilted(x, y, tilt=0.3), (X, Y)),
        (lambda x, y: tilted(x, y, tilt=0.3), (X.reshape(3, 1), Y)),
        (backwards, (X,)),
        (lambda x: rolled(x, by=2), (X,)),
        (lambda x: cube(backwards(x) * x), (X,)),
    ],
    ids=["elementwise", "options", "broadcast", "linear", "linear with options", "composed"],
)
def test_an_op_from_outside_differentiates_twice_in_both_modes(call, operands):
    od.testing.check_gradients(call, *operands, tolerance=1e-6)


def test_an_op_from_outside_has_exact_first_and_second_derivatives():
    x = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = cube(x)
        first = inner.gradient(y, x, np.ones(3))
    np.testing.assert_allclose(first.numpy(), 3 * X**2, rtol=1e-15)
    np.testing.assert_allclose(outer.gradient(first, x, np.ones(3)), 6 * X, rtol=1e-15)


def test_an_op_from_outside_runs_on_plain_arrays_as_its_reference_and_takes_a_tape():
    np.testing.assert_array_equal(cube(X), X**3)
    assert type(cube(X)) is np.ndarray
    x = leaf()
    tape = GradientTape()
    tape.enable()
    y = tilted(x, Y, tilt=1.0, tape=tape)
    np.testing.assert_array_equal(tape.gradient(y, x, np.ones(3)), Y + 1.0)


def test_an_optional_operand_may_be_left_out_or_be_none():
    @od.op(
        infer=lambda x, w, b: x,
        vjp={"x": lambda g, w: ops.mul(g, w), "w": lambda g, x: ops.mul(g, x), "b": ops.PASS},
    )
    def linear(x, w, b=None, /):
        return x * w if b is None else x * w + b

    np.testing.assert_array_equal(linear(X, Y), X * Y)
    for rest in ((), (None,), (1.0,), (leaf(),)):
        x, w = leaf(X), leaf(Y)
        with GradientTape() as tape:
            out = linear(x, w, *rest)
        biases = [b for b in rest if isinstance(b, Variable)]
        g_x, g_w, *g_b = tape.gradient(out, [x, w, *biases], X)
        np.testing.assert_array_equal(g_x, X * Y)
        np.testing.assert_array_equal(g_w, X * X)
        assert [g.tolist() for g in g_b] in ([], [X.tolist()])
    with pytest.raises(OdysseyError, match=r"^linear: missing a required"):
        linear(X)


def test_an_op_from_outside_keeps_only_what_its_rules_ask_for():
    x, y = leaf(X), leaf(Y)
    with GradientTape() as tape:
        cube(x), tilted(x, Y, tilt=2.0), tilted(X, y, tilt=2.0), backwards(x)
    assert [sorted(node.saved) for node in tape.nodes] == [["x"], ["tilt", "y"], ["tilt", "x"], []]


def test_an_op_from_outside_traces_by_the_rule_of_its_spec():
    class Graph:
        def emit(self, row, values, options):
            specs = [v.spec if isinstance(v, Symbol) else spec_of(v) for v in values]
            return Symbol(row.infer(*specs, *options), self, 0)

    symbol = Symbol(Spec((3, 1), np.dtype(np.float32)), Graph(), 1)
    assert cube(symbol).spec == symbol.spec
    assert tilted(symbol, Y.astype(np.float32), tilt=0.5).shape == (3, 3)


# ------------------------------------------------------------------ the table stays as it is


def test_rows_from_outside_are_not_in_the_table():
    before = dict(OPS)
    rows = [call.row for call in (cube, tilted, backwards, scaled)]
    assert not {row.name for row in rows} & set(OPS)

    @od.op(elementwise=True, vjp={"x": lambda g: g})
    def exp(x, /):
        return x

    assert OPS["exp"] is ops.exp.row is not exp.row
    assert dict(OPS) == before


def test_the_table_is_read_only():
    with pytest.raises(TypeError, match="does not support item assignment"):
        OPS["cube"] = cube.row
    with pytest.raises(TypeError, match="does not support item deletion"):
        del OPS["exp"]
    with pytest.raises(AttributeError):
        OPS.clear()
    with pytest.raises(TypeError, match="does not support item assignment"):
        od.backward.TABLE["cube"] = cube


# ------------------------------------------------------------------ mistakes in a declaration


@pytest.mark.parametrize("rules", ["vjp", "jvp"])
@pytest.mark.parametrize(
    ("rule", "offender"),
    [
        ({"x": lambda g, z: g}, "z"),
        ({"x": lambda g, outt: g}, "outt"),
        ({"x": lambda g, y_spec: g}, "y_spec"),
        ({"w": lambda g: g}, "w"),
    ],
    ids=["array", "out", "spec", "operand"],
)
def test_a_rule_that_names_what_is_unknown_fails_at_declaration(rules, rule, offender):
    with pytest.raises(OdysseyError, match=rf"^op twice: .*\b{offender}\b.*known are"):

        @od.op(elementwise=True, **{rules: rule})
        def twice(x, /):
            return 2 * x


def test_a_forward_rule_that_asks_for_what_is_not_kept_fails_at_declaration():
    with pytest.raises(OdysseyError, match=r"forward rule of 'x' asks for out, which its reverse"):

        @od.op(vjp={"x": lambda g, x: g}, jvp={"x": lambda t, out: t})
        def twice(x, /):
            return 2 * x


def test_an_op_without_arrays_fails_at_declaration():
    with pytest.raises(OdysseyError, match=r"^op twice: no array parameters; write the arrays"):

        @od.op()
        def twice(x):
            return 2 * x


def test_tracing_without_a_rule_for_the_spec_says_what_to_declare():
    @od.op(vjp={"x": lambda g: g})
    def opaque(x, /):
        return np.array(x)

    class Graph:
        def emit(self, row, values, options):
            return row.infer(*[v.spec for v in values], *options)

    with pytest.raises(OdysseyError, match=r"^opaque: cannot be traced, the row has no infer="):
        opaque(Symbol(spec_of(X), Graph(), 1))


# ------------------------------------------------------------------ no rule


def test_a_missing_rule_raises_at_the_sweep_and_names_op_and_operand():
    x, y = leaf(X), leaf(Y)
    with GradientTape(persistent=True) as tape:
        out = scaled(x, y)
    for sweep in (
        lambda: tape.gradient(out, [x, y], np.ones(3)),
        lambda: tape.backward(out, np.ones(3)),
        lambda: tape.jvp(out, y, np.ones(3)),
    ):
        with pytest.raises(NotDifferentiableError, match=r"^scaled: .* respect to y; .*detach"):
            sweep()
    assert x.grad is None
    assert y.grad is None


def test_a_missing_rule_does_not_matter_where_nobody_asks_for_that_gradient():
    x, y = leaf(X), leaf(Y)
    with GradientTape(persistent=True) as tape:
        out = scaled(x, y)
    np.testing.assert_array_equal(tape.gradient(out, x, np.ones(3)), Y)
    with GradientTape() as tape:
        out = scaled(x, y.detach())
    tape.backward(out, np.ones(3))
    np.testing.assert_array_equal(x.grad, Y)


def test_a_missing_rule_loses_nothing_of_a_tape_that_would_be_consumed():
    x, y = leaf(X), leaf(Y)
    with GradientTape() as tape:
        out = scaled(cube(x), y)
    with pytest.raises(NotDifferentiableError, match="scaled"):
        tape.backward(out, np.ones(3))
    np.testing.assert_allclose(tape.gradient(out, x, np.ones(3)), 3 * X**2 * Y)


# ------------------------------------------------------------------ rules that fail


class Flaky:
    """A rule that fails until it is told to work."""

    def __init__(self, failure):
        self.failure = failure
        self.works = False

    def __call__(self, g, x):
        return g if self.works else self.failure(g, x)


def declare(rule):
    def either(g, x):
        return rule(g, x)

    @od.op(infer=lambda x: x, vjp={"x": either}, jvp={"x": either})
    def passing(x, /):
        return np.array(x)

    return passing


def explode(g, x):
    raise ZeroDivisionError("the user's own mistake")


FAILURES = {
    "raises": (explode, ZeroDivisionError, "the user's own mistake"),
    "longer": (lambda g, x: np.ones(4), ShapeError, "shape"),
    "more axes": (lambda g, x: np.ones((3, 3, 2)), ShapeError, "shape"),
    "fewer axes": (lambda g, x: np.float64(1.0), ShapeError, "shape"),
}


@pytest.mark.parametrize("persistent", [False, True], ids=["consumed", "persistent"])
@pytest.mark.parametrize("sweep", ["backward", "gradient"])
@pytest.mark.parametrize(("failure", "error", "match"), FAILURES.values(), ids=list(FAILURES))
def test_a_rule_that_fails_in_the_middle_of_a_sweep_loses_nothing(
    failure, error, match, sweep, persistent
):
    rule = Flaky(failure)
    x = leaf()
    x.grad = np.array([10.0, 20.0, 30.0])
    with GradientTape(persistent=persistent) as tape:
        out = ops.exp(declare(rule)(cube(x)))
    with pytest.raises(error, match=match):
        getattr(tape, sweep)(out, *([x] if sweep == "gradient" else []), np.ones(3))
    assert x.grad.tolist() == [10.0, 20.0, 30.0]
    assert len(tape) == 3
    rule.works = True
    wanted = np.exp(X**3) * 3 * X**2
    np.testing.assert_allclose(tape.gradient(out, x, np.ones(3)), wanted, rtol=1e-14)


@pytest.mark.parametrize("elementwise", [False, True], ids=["any", "elementwise"])
@pytest.mark.parametrize(("failure", "error", "match"), FAILURES.values(), ids=list(FAILURES))
def test_ops_of_every_kind_from_outside_fail_alike_on_results(failure, error, match, elementwise):
    def rule(g, x):
        return failure(g, x)

    @od.op(elementwise=elementwise, infer=lambda x: x, vjp={"x": rule}, jvp={"x": rule})
    def passing(x, /):
        return np.array(x)

    x = leaf()
    with GradientTape() as tape:
        out = passing(x * 2.0).sum()
    with pytest.raises(error, match=match):
        tape.backward(out)
    assert x.grad is None
    assert len(tape) == 3
    assert not tape.consumed


def test_an_op_from_outside_that_chooses_keeps_zeros_of_what_it_did_not_choose():
    @od.op(elementwise=True, selects=True, vjp={"x": lambda g, x: ops.where(ops.less(x, -1), 0, g)})
    def above(x, /):
        return np.maximum(x, -1.0)

    x = leaf([0.0, 2.0])
    with GradientTape() as tape, np.errstate(divide="ignore"):
        out = above(ops.log(x)).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        assert tape.gradient(out, x).tolist() == [0.0, 0.5]


def test_a_rule_that_fails_where_the_leaf_is_next_loses_nothing():
    rule = Flaky(lambda g, x: np.ones(4))
    x, y = leaf(), leaf()
    with GradientTape() as tape:
        out = cube(declare(rule)(x)) + cube(y)
    with pytest.raises(ShapeError, match="shape"):
        tape.backward(out, np.ones(3))
    assert x.grad is None
    assert y.grad is None
    rule.works = True
    tape.backward(out, np.ones(3))
    np.testing.assert_allclose(x.grad, 3 * X**2)
    np.testing.assert_allclose(y.grad, 3 * X**2)


def test_a_forward_rule_that_fails_loses_nothing():
    rule = Flaky(explode)
    x = leaf()
    with GradientTape() as tape:
        out = declare(rule)(cube(x))
    with pytest.raises(ZeroDivisionError):
        tape.jvp(out, x, np.ones(3))
    rule.works = True
    np.testing.assert_allclose(tape.jvp(out, x, np.ones(3)), 3 * X**2)
    np.testing.assert_allclose(tape.gradient(out, x, np.ones(3)), 3 * X**2)


def test_the_gradient_check_reports_the_rule_of_a_user_that_is_wrong():
    wrong = declare(lambda g, x: ops.mul(g, 2.0))
    with pytest.raises(AssertionError, match="derivative of order 1 in reverse mode"):
        od.testing.check_gradients(wrong, X)


# ------------------------------------------------------------------ memory


RETURNS = {
    "its saved array": lambda g, x: x,
    "a view of it": lambda g, x: x[:],
    "its cotangent": lambda g, x: g,
    "an array of its own": lambda g, x: OWN,
}
OWN = np.array([4.0, 5.0, 6.0])


@pytest.mark.parametrize("returned", RETURNS.values(), ids=list(RETURNS))
@pytest.mark.parametrize("through", [False, True], ids=["leaf", "result"])
def test_a_gradient_shares_memory_with_nothing_whatever_a_rule_returns(returned, through):
    x, other = leaf(), leaf()
    cotangent = np.array([1.0, 2.0, 3.0])
    with GradientTape(persistent=True) as tape:
        middle = ops.identity(x) if through else x
        out = declare(returned)(middle) + other
    gradients = tape.gradient(out, [x, other], cotangent)
    tape.backward(out, cotangent)
    arrays = [*gradients, x.grad, other.grad]
    others = [x.data, middle.data, other.data, out.data, cotangent]
    for k, array in enumerate(arrays):
        array += 100.0
        assert not any(np.shares_memory(array, o) for o in [*others, *arrays[:k]])
    np.testing.assert_array_equal(x.data, X)
    np.testing.assert_array_equal(cotangent, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(OWN, [4.0, 5.0, 6.0])
    special = {"its cotangent": cotangent, "an array of its own": OWN}
    wanted = next((w for name, w in special.items() if returned is RETURNS[name]), X)
    np.testing.assert_array_equal(tape.gradient(out, x, cotangent), wanted)


@pytest.mark.parametrize("first", [False, True], ids=["later", "first"])
def test_a_function_that_records_itself_is_found_by_sweeps_behind_what_it_recorded(first):
    v, kept = Variable(np.array([1.0, -2.0, 0.5]), requires_grad=True), []

    @od.op(
        vjp={"x": lambda g, x: ops.multiply(g, ops.multiply(2.0, x))}, infer=lambda x_spec: x_spec
    )
    def square_that_records(x, /):
        for _ in range(6):
            middle = v * 1.5
            square = middle * middle
            kept.append((middle, square, square.sum()))
        return x * x

    w = Variable(np.array([1.0, 2.0, 3.0]), requires_grad=True)
    with GradientTape(persistent=True) as tape:
        y = square_that_records(w if first else w * 1.0)
        loss = (y * y).sum()
    asked = [(loss, y, 2 * y.numpy())]
    asked += [(total, square, np.ones(3)) for _, square, total in kept]
    asked += [(total, middle, 2 * middle.numpy()) for middle, _, total in kept]
    for output, source, slope in asked:
        np.testing.assert_array_equal(tape.gradient(output, source), slope)
        np.testing.assert_array_equal(tape.gradient(output, source, unused="zero"), slope)

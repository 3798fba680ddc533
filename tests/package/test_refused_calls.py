"""Misuse of ops, manual records, losses and optimizers: named errors that change nothing."""

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import (
    DTypeError,
    MissingGradientError,
    MutationError,
    OdysseyError,
    ShapeError,
    TapeConsumedError,
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


def stranger():
    """A result on a tape that still lives."""
    STRANGERS.append(enabled())
    return STRANGERS[-1].variable(1.0) * 2.0


STRANGERS = []


# ------------------------------------------------------------------ operands of two recordings


def test_operands_on_two_tapes_raise_with_both():
    first, second = enabled(), enabled()
    x = first.variable([1.0, 2.0]) * 2.0
    y = second.variable([1.0, 2.0]) * 2.0
    with pytest.raises(TapeMismatchError, match=r"add: .*detach") as caught:
        _ = x + y
    assert repr(first) in str(caught.value)
    assert repr(second) in str(caught.value)
    assert (len(first), len(second)) == (1, 1)


def test_an_operands_tape_and_the_contexts_raise_with_both():
    old = enabled()
    x = old.variable(2.0) * 2.0
    with GradientTape() as new:
        with pytest.raises(TapeMismatchError, match=r"exp: .*detach") as caught:
            _ = ops.exp(x)
        assert repr(old) in str(caught.value)
        assert repr(new) in str(caught.value)
    assert (len(old), len(new)) == (1, 0)


@pytest.mark.parametrize("arity", ["unary", "binary", "options"])
def test_an_operands_tape_and_an_explicit_one_raise(arity):
    old, new = enabled(), enabled()
    x = old.variable([2.0, 3.0]) * 2.0
    calls = {
        "unary": lambda: ops.exp(x, tape=new),
        "binary": lambda: ops.multiply(x, 2.0, tape=new),
        "options": lambda: ops.sum(x, tape=new),
    }
    with pytest.raises(TapeMismatchError, match=r"operands of two recordings.*detach_into"):
        calls[arity]()
    assert (len(old), len(new)) == (1, 0)


@pytest.mark.parametrize("arity", ["unary", "binary", "options"])
def test_an_untracked_operand_raises_for_every_kind_of_op(arity):
    w = wide([1.0, 2.0])
    lost = w * 2.0
    calls = {
        "unary": lambda: ops.exp(lost),
        "binary": lambda: ops.multiply(lost, w),
        "options": lambda: ops.sum(lost),
    }
    with GradientTape() as tape, pytest.raises(UntrackedError, match=r"nothing recorded.*detach"):
        calls[arity]()
    assert len(tape) == 0


# ------------------------------------------------------------------ recording by hand


def record_cases():
    return {
        "unknown_op": (lambda t, x, c: t.record("nonsense", [x], c), AttributeError, "'nonsense'"),
        "foreign_id": (
            lambda t, x, c: t.record_add(x.id, 987_654_321, c.id),
            TapeError,
            "add names the input id 987654321, which this tape does not know",
        ),
        "array": (
            lambda t, x, c: t.record_add(x.id, np.ones(2), c.id),
            TapeError,
            "ndarray as an input.*tape.variable or tape.constant",
        ),
        "too_few": (
            lambda t, x, c: t.record_add(x, c),
            TapeError,
            "add has the inputs x, y; 1 came",
        ),
        "nothing": (lambda t, x, c: t.record_add(), TapeError, "inputs and then the output"),
        "long_cycle": (
            lambda t, x, c: (t.record_multiply(x, c, 10**15), t.record_add(10**15, x, c)),
            TapeError,
            "add was the input of an earlier record.*close a cycle",
        ),
        "cycle": (lambda t, x, c: t.record_add(x, c, c), TapeError, "add would make a cycle"),
        "leaf_output": (
            lambda t, x, c: t.record_exp(c, x, x=np.ones(2)),
            TapeError,
            "already a leaf or a result",
        ),
        "second_producer": (
            lambda t, x, c: (t.record_exp(x, c), t.record_exp(x, c)),
            TapeError,
            "a second producer could close a cycle",
        ),
        "output_kind": (
            lambda t, x, c: t.record_exp(x, np.ones(2)),
            TapeError,
            "pass a constant Variable or an id",
        ),
        "missing_saved": (
            lambda t, x, c: t.record_exp(x, 10**15),
            TapeError,
            "rules of exp ask for out; pass out=",
        ),
        "unknown_saved": (
            lambda t, x, c: t.record_exp(x, c, banana=1),
            TapeError,
            "exp has nothing called banana",
        ),
        "missing_option": (
            lambda t, x, c: t.record_reshape(x, c),
            TapeError,
            "rules of reshape ask for shape",
        ),
        "untracked_input": (
            lambda t, x, c: t.record_exp(wide(1.0) * 2.0, c),
            UntrackedError,
            "nothing recorded",
        ),
        "other_tapes_input": (
            lambda t, x, c: t.record_exp(stranger(), c),
            TapeMismatchError,
            "lives on",
        ),
        "recorded_output": (
            lambda t, x, c: t.record_exp(x, stranger()),
            TapeError,
            "is not a constant",
        ),
    }


@pytest.mark.parametrize("case", record_cases())
def test_a_refused_manual_record_changes_nothing(case):
    call, error, words = record_cases()[case]
    tape = enabled()
    x, c = tape.variable([1.0, 2.0]), tape.constant(np.exp([1.0, 2.0]))
    made = 1 if case in ("second_producer", "long_cycle") else 0
    with pytest.raises(error, match=rf"(?s)record.*{words}|{words}"):
        call(tape, x, c)
    assert len(tape) == made
    assert c.requires_grad == (case == "second_producer")
    if case == "long_cycle":
        tape.clear()
        x, c = tape.variable([1.0, 2.0]), tape.constant(np.exp([1.0, 2.0]))
    if case != "second_producer":
        tape.record_exp(x.id, c.id)
    tape.backward(c, np.ones(2))
    np.testing.assert_array_equal(x.grad, np.exp([1.0, 2.0]))


@pytest.mark.parametrize("state", ["never_enabled", "disabled", "paused"])
def test_recording_by_hand_on_a_tape_that_does_not_record_is_refused(state):
    tape = GradientTape()
    x, c = tape.variable(1.0), tape.constant(np.e)
    pause = od.no_grad()
    if state == "disabled":
        tape.enable()
        tape.disable()
    if state == "paused":
        tape.enable()
        pause = tape.no_recording()
    with pause, pytest.raises(TapeError, match="records nothing now; enter or enable it"):
        tape.record_exp(x, c)
    assert len(tape) == 0
    assert not c.requires_grad


@pytest.mark.parametrize("state", ["never_enabled", "left", "paused", "no_grad"])
def test_watching_on_a_tape_that_does_not_record_is_refused(state):
    tape = GradientTape()
    pause = od.no_grad()
    if state == "left":
        with tape:
            pass
    if state in ("paused", "no_grad"):
        tape.enable()
    if state == "paused":
        pause = tape.no_recording()
    with pause, pytest.raises(TapeError, match=r"watch: .*records nothing now; enter or enable it"):
        tape.watch(np.ones(2))
    assert tape.ids == frozenset()


# ------------------------------------------------------------------ ops, losses, optimizers


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda w: w @ np.ones((3, 3)), ShapeError, r"matmul: inner sizes differ, x \(2, 2\) @"),
        (lambda w: w @ 2.0, ShapeError, "matmul: operands need at least one axis.*use \\*"),
        (lambda w: w + np.ones(3), ShapeError, r"add: shapes do not broadcast, x \(2, 2\), y"),
        (lambda w: w.sum(5), ShapeError, "sum: .*axis"),
        (lambda w: w.sum(np.array([0, 1])), DTypeError, "sum: axis is array.*tuple of ints"),
        (lambda w: ops.hstack([w, [[1.0], [2.0, 3.0]]]), DTypeError, "list came for an array"),
        (lambda w: ops.take_along_axis(0.5, w), DTypeError, "take_along_axis: .*integers"),
        (lambda w: w.reshape(3), ShapeError, r"reshape: .*\(2, 2\)"),
        (lambda w: w.transpose(0, 0), ShapeError, "transpose: "),
        (lambda w: ops.sum(w, axes=1), DTypeError, "sum: .*axes.*the signature is sum"),
        (lambda w: ops.exp("text"), DTypeError, "exp: x is a str"),
        (lambda w: ops.setitem(w, np.ones(5), 0), ShapeError, "setitem: .*does not broadcast"),
        (lambda w: od.mean_squared_error(w, np.ones(2)), ShapeError, "mean_squared_error: .*diff"),
        (lambda w: od.cross_entropy(w, np.array([0, 9])), ShapeError, "there are 2 classes"),
        (lambda w: od.cross_entropy(w, np.array([0.5])), ShapeError, "want class numbers"),
    ],
    ids=[
        "matmul",
        "matmul_scalar",
        "broadcast",
        "axis",
        "axis_array",
        "ragged",
        "float_indices",
        "reshape",
        "transpose",
        "option",
        "text",
        "setitem",
        "mse",
        "class_range",
        "targets",
    ],
)
@pytest.mark.parametrize("recording", [True, False], ids=["recorded", "plain"])
def test_refused_calls_record_nothing(call, error, words, recording):
    w = wide(np.ones((2, 2)))
    tape = GradientTape()
    if recording:
        tape.enable()
    with tape if recording else od.no_grad(), pytest.raises(error, match=words):
        call(w)
    tape.enable()
    assert len(tape) == 0
    with tape:
        y = (w * 2.0).sum()
    np.testing.assert_array_equal(tape.gradient(y, w), np.full((2, 2), 2.0))


@pytest.mark.parametrize("tape", [np.ones(2), 5, wide(1.0)], ids=["array", "number", "Variable"])
@pytest.mark.parametrize("operand", [np.ones(2), wide([1.0, 2.0]), 2.0], ids=repr)
def test_what_is_no_tape_is_refused_as_one(operand, tape):
    calls = {
        "add": lambda: ops.add(operand, operand, tape),
        "exp": lambda: ops.exp(operand, tape),
        "sum": lambda: ops.sum(operand, tape=tape),
        "where": lambda: ops.where(np.array([True, False]), operand, operand, tape=tape),
    }
    for name, call in calls.items():
        with pytest.raises(DTypeError, match=rf"{name}: tape is not a GradientTape .* {name}\("):
            call()
        with (
            od.no_grad(),
            pytest.raises(DTypeError, match=rf"{name}: tape is not a GradientTape .* {name}\("),
        ):
            call()


def test_an_op_that_is_none_suggests_its_neighbour():
    with pytest.raises(AttributeError, match="no op 'tanhh'; did you mean tanh"):
        _ = ops.tanhh
    with pytest.raises(AttributeError, match=r"no op 'zeros'; write np\.zeros: ops take NumPy's"):
        _ = ops.zeros
    with pytest.raises(AttributeError, match="no op 'cat'; write concatenate"):
        _ = ops.cat


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: od.optim.SGD([], 0.1), OdysseyError, "SGD: there are no parameters"),
        (lambda: od.optim.SGD([np.ones(2)], 0.1), DTypeError, r"parameter \[0\].*requires_grad"),
        (lambda: od.optim.SGD([Variable(1.0)], 0.1), DTypeError, r"\[0\].*requires_grad=True"),
        (lambda: od.optim.SGD([wide(1.0)], -0.1), OdysseyError, "learning_rate: -0.1 is negative"),
        (lambda: od.optim.SGD([wide(1.0)], np.nan), OdysseyError, "learning_rate: nan"),
        (
            lambda: od.optim.SGD([wide(1.0)], 0.1, nesterov=True),
            OdysseyError,
            "nesterov=True needs momentum > 0 and dampening = 0",
        ),
        (lambda: od.optim.SGD([wide(1.0)], 0.1, momentum=-1), OdysseyError, "must not be negative"),
    ],
    ids=["empty", "array", "constant", "negative_rate", "nan_rate", "nesterov", "momentum"],
)
def test_what_an_optimizer_cannot_be_made_of_is_refused(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_parameter_that_comes_twice_is_refused():
    w = wide(1.0)
    with pytest.raises(OdysseyError, match=r"SGD: parameter \['b'\] came twice"):
        od.optim.SGD({"a": w, "b": w}, 0.1)


def test_a_missing_gradient_at_a_step_moves_nothing():
    a, b = wide(1.0, name="a"), wide(1.0, name="bias")
    optimizer = od.optim.SGD([a, b], 0.1)
    a.grad = 1.0
    with pytest.raises(MissingGradientError, match=r"parameter bias .*allow_missing=True"):
        optimizer.step()
    assert (float(a), float(b)) == (1.0, 1.0)


# ------------------------------------------------------------------ the tree of errors


def test_errors_stand_where_users_of_python_look_for_them():
    parents = {
        "ShapeError": ValueError,
        "DTypeError": TypeError,
        "TapeError": RuntimeError,
        "DeviceError": RuntimeError,
        "DeviceMemoryError": MemoryError,
    }
    for name in od.errors.__all__:
        wanted = UserWarning if name.endswith("Warning") else OdysseyError
        assert issubclass(getattr(od.errors, name), wanted)
    for name, parent in parents.items():
        assert issubclass(getattr(od.errors, name), parent)
    for error in (TapeMismatchError, TapeConsumedError, UntrackedError, MutationError):
        assert issubclass(error, TapeError)

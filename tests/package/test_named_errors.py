"""What makes no sense is refused by name where it comes in: flags, numbers, names, copies."""

import copy
import inspect
import pickle

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, losses, ops, optim
from odyssey.checks import check_choice, check_flag, check_int, check_number, format_value
from odyssey.errors import (
    DTypeError,
    OdysseyError,
    SettingError,
    TapeError,
    UnknownOpError,
    UnreachedError,
    UntrackedError,
)
from odyssey.ops import COMPOSITES, OPS
from support.composed import LOSSES

X = np.array([[1.0, 2.0], [3.0, 5.0]])
T = np.array([0, 1])


def leaf(**named):
    return Variable(X, True, **named)


def swept(name, **options):
    w = leaf()
    with GradientTape() as tape:
        y = (w * w).sum()
    return getattr(tape, name)(*[y, w][: 1 if name == "backward" else 2], **options)


# ------------------------------------------------------------------ flags

FLAGS = {
    "requires_grad": lambda f: Variable(X, f),
    "requires_grad=": lambda f: setattr(Variable(X), "requires_grad", f),
    "persistent": lambda f: GradientTape(persistent=f),
    "check": lambda f: GradientTape(check=f),
    "retain": lambda f: swept("backward", retain=f),
    "create_graph": lambda f: swept("gradient", create_graph=f),
    "keepdims": lambda f: ops.sum(leaf(), 0, keepdims=f),
    "keepdims of a method": lambda f: leaf().var(0, keepdims=f),
    "keepdims of a rule": lambda f: od.backward.sum(1.0, x=X, keepdims=f),
    "nesterov": lambda f: optim.SGD([leaf()], 0.1, momentum=0.9, nesterov=f),
    "amsgrad": lambda f: optim.Adam([leaf()], amsgrad=f),
    "centered": lambda f: optim.RMSprop([leaf()], centered=f),
    "allow_missing": lambda f: optim.SGD([leaf()], 0.1).step(allow_missing=f),
    "error_if_nonfinite": lambda f: optim.clip_grad_global_norm(
        [leaf()], 1.0, error_if_nonfinite=f
    ),
    "has_aux": lambda f: od.grad(lambda x: (x, 1) if f else x, has_aux=f),
    "has_aux of vjp": lambda f: od.vjp(lambda x: (x, 1) if f else x, 1.0, has_aux=f),
    "from_logits": lambda f: losses.binary_cross_entropy(X / 9, X / 9, from_logits=f),
    "log_target": lambda f: losses.kl_divergence(X, X, log_target=f),
    "elementwise": lambda f: od.op(elementwise=f, vjp={})(lambda x, /: x),
}


@pytest.mark.parametrize("call", FLAGS.values(), ids=list(FLAGS))
@pytest.mark.parametrize("text", ["no", "false", "", None, 2, 0.5, [True]], ids=repr)
def test_a_flag_is_true_or_false_and_nothing_else(call, text):
    with pytest.raises(DTypeError, match="is not a flag; pass True or False"):
        call(text)


@pytest.mark.parametrize("value", [False, np.False_, np.array(False), 0], ids=repr)
def test_what_numpy_calls_false_is_false(value):
    assert check_flag("who", "flag", value) is False
    assert ops.sum(X, 0, keepdims=value).shape == (2,)


# ------------------------------------------------------------------ numbers

SETTINGS = {
    "label_smoothing": lambda v: losses.cross_entropy(X, T, label_smoothing=v),
    "delta": lambda v: losses.huber(X, X, delta=v),
    "beta": lambda v: losses.smooth_l1(X, X, beta=v),
    "gamma": lambda v: losses.focal(X, X * 0, gamma=v),
    "alpha": lambda v: losses.focal(X, X * 0, alpha=v),
    "learning_rate": lambda v: optim.SGD([leaf()], v),
    "learning_rate=": lambda v: setattr(optim.SGD([leaf()], 0.1), "learning_rate", v),
    "learning_rate of a rule": lambda v: optim.sgd(np.array(v) if type(v) is float else v),
    "momentum": lambda v: optim.SGD([leaf()], 0.1, momentum=v),
    "weight_decay": lambda v: optim.AdamW([leaf()], weight_decay=v),
    "betas": lambda v: optim.Adam([leaf()], betas=(0.9, v)),
    "eps": lambda v: optim.Adam([leaf()], eps=v),
    "trust_coefficient": lambda v: optim.LARS([leaf()], 0.1, trust_coefficient=v),
    "step_size": lambda v: optim.StepLR(optim.SGD([leaf()], 0.1), v),
    "gamma of a schedule": lambda v: optim.ExponentialLR(optim.SGD([leaf()], 0.1), v),
    "eta_min": lambda v: optim.CosineAnnealingLR(optim.SGD([leaf()], 0.1), 3, v),
    "warmup_steps": lambda v: optim.WarmupLR(optim.SGD([leaf()], 0.1), v),
    "factor": lambda v: optim.ReduceLROnPlateau(optim.SGD([leaf()], 0.1), factor=v),
    "min_lr": lambda v: optim.ReduceLROnPlateau(optim.SGD([leaf()], 0.1), min_lr=v),
    "step": lambda v: od.testing.check_gradients(ops.sin, X, step=v),
}


@pytest.mark.parametrize("call", SETTINGS.values(), ids=list(SETTINGS))
@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), -1.0, 10**400, "0.5", None, 1j, [0.5, 0.5], {}, X],
    ids=["nan", "inf", "negative", "huge", "text", "none", "complex", "list", "dict", "array"],
)
def test_a_setting_that_is_no_sensible_number_is_refused_by_name(call, value, request):
    if value is None and "alpha" in request.node.callspec.id:
        return  # which means none
    if isinstance(value, list) and "min_lr" in request.node.callspec.id:
        value = [0.5, "x"]
    with pytest.raises((DTypeError, SettingError)) as caught:
        call(value)
    assert "; " in str(caught.value)  # what came; what is wanted


@pytest.mark.parametrize(
    ("value", "interval", "fits"),
    [
        (0, "[0, 1)", True),
        (1.0, "[0, 1)", False),
        (0.0, "(0, inf)", False),
        (np.float32(0.5), "(0, inf)", True),
        (float("inf"), "[0, inf]", True),
        (float("nan"), "[-inf, inf]", False),
        (10**400, "[0, inf)", False),
    ],
    ids=str,
)
def test_a_number_lies_in_its_interval_or_is_refused(value, interval, fits):
    if fits:
        assert type(check_number("who", "name", value, interval)) is float
    else:
        with pytest.raises(SettingError, match="who: name="):
            check_number("who", "name", value, interval)


def test_whole_numbers_and_words_are_checked_by_name():
    assert check_int("who", "n", np.int8(3), 1) == 3
    for value in (1.5, "3", None, X):
        with pytest.raises(DTypeError, match=r"who: n=.* is not a whole number"):
            check_int("who", "n", value)
    with pytest.raises(SettingError, match="n=0; it must be at least 1"):
        check_int("who", "n", 0, 1)
    for value in ("c", 3, X, None):
        with pytest.raises(SettingError, match="choose 'a' or 'b'"):
            check_choice("who", "mode", value, ("a", "b"))


def test_any_value_can_be_shown_on_one_short_line():
    deep = []
    for _ in range(5000):
        deep = [deep]

    class Broken:
        def __repr__(self):
            raise KeyError

    for value in (deep, 10**5000, Broken(), "a\nb" * 1000, X, None):
        assert len(format_value(value)) <= 80
        assert "\n" not in format_value(value)


# ------------------------------------------------------------------ words and names

WORDS = {
    "reduction": lambda v: losses.mean_squared_error(X, X, reduction=v),
    "unused": lambda v: swept("gradient", unused=v),
    "loss": lambda v: od.compute_gradient(X, X, v),
    "mode": lambda v: optim.ReduceLROnPlateau(optim.SGD([leaf()], 0.1), v),
    "modes": lambda v: od.testing.check_gradients(ops.sin, X, modes=[v]),
}


@pytest.mark.parametrize("call", WORDS.values(), ids=list(WORDS))
@pytest.mark.parametrize("value", ["banana", 3, None, X, ["mean"], {}], ids=lambda v: str(type(v)))
def test_an_unknown_word_is_refused_with_those_that_are_known(call, value):
    with pytest.raises(OdysseyError, match="choose"):
        call(value)


def options_of_composites_that_are_on_or_off():
    for function in COMPOSITES.values():
        for name, parameter in inspect.signature(function).parameters.items():
            if isinstance(parameter.default, bool):
                by_name = parameter.kind is parameter.KEYWORD_ONLY
                yield pytest.param(function, name, by_name, id=f"{function.__name__}-{name}")


@pytest.mark.parametrize(
    ("function", "name", "by_name"), [*options_of_composites_that_are_on_or_off()]
)
def test_what_is_on_or_off_is_a_flag_however_it_comes(function, name, by_name):
    operands = function.samples[0].arrays(np.random.default_rng(0))
    told = f"^{function.__name__}: {name}='no' is not a flag"
    with pytest.raises(DTypeError, match=told):
        function(*operands, **function.samples[0].options | {name: "no"})
    if not by_name:
        order = list(inspect.signature(function).parameters)
        defaults = [p.default for p in inspect.signature(function).parameters.values()]
        given = [*operands, *defaults[len(operands) : order.index(name)], "no"]
        with pytest.raises(DTypeError, match=told):
            function(*given)


def options_that_are_words():
    """Functions with an option whose default is a word, a sample that gives it, and its name."""
    functions = [row.call for row in OPS.values()]
    for function in [*functions, *COMPOSITES.values(), *LOSSES.values()]:
        of = getattr(function, "row", function)
        for name, parameter in inspect.signature(function).parameters.items():
            # What rules call gets words that were checked before.
            checked = of.samples and not function.__name__.endswith(("_slope", "_mass"))
            if isinstance(parameter.default, str) and checked:
                giving = [s for s in of.samples if name in s.options] or of.samples
                yield pytest.param(function, giving[0], name, id=f"{function.__name__}-{name}")


@pytest.mark.parametrize(("function", "sample", "name"), [*options_that_are_words()])
def test_a_word_that_an_op_does_not_know_is_a_setting_refused_with_its_name(function, sample, name):
    operands = sample.arrays(np.random.default_rng(0))
    with pytest.raises(SettingError, match=f"{name}='banana'|{name}='BANANA'"):
        function(*operands, **sample.options | {name: "banana"})


SETTINGS = {
    "softplus": lambda: ops.softplus(X, beta=0),
    "celu": lambda: ops.celu(X, alpha=0),
    "hard_tanh": lambda: ops.hard_tanh(X, min_val=2, max_val=1),
    "multigammaln": lambda: ops.multigammaln(X, 0),
    "diff": lambda: ops.diff(X, -1),
    "gradient": lambda: ops.gradient(X, edge_order=3),
    "triangular_solve": lambda: ops.triangular_solve(X, X, trans=3),
    "pinv": lambda: ops.pinv(X, 0.1, rtol=0.1),
    "hinge": lambda: losses.hinge(X, X),
    "gaussian_nll": lambda: losses.gaussian_nll(X, X, -X),
    "average": lambda: ops.average(X, weights=X * 0),
    "cov": lambda: ops.cov(X, aweights=-T - 1),
    "SGD": lambda: optim.SGD([leaf()], 0.1, nesterov=True),
    "pad, edge": lambda: ops.pad(X, 1, "edge", constant_values=1),
    "pad, constant": lambda: np.pad(leaf(), 1, end_values=2.0),
    "pad, wrap": lambda: ops.pad(X, 1, "wrap", stat_length=2),
    "pad, mean": lambda: ops.pad(X, 1, "mean", reflect_type="odd"),
    "pad, an array": lambda: ops.pad(X, 1, "edge", end_values=X),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_or_a_number_that_makes_no_sense_is_a_value_error_of_ours(name):
    with pytest.raises(SettingError, match=f"^{name.partition(',')[0]}: ") as caught:
        SETTINGS[name]()
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("name", [3, b"w", ["w"], X], ids=["int", "bytes", "list", "array"])
def test_a_name_is_text(name):
    for call in (
        lambda: Variable(X, name=name),
        lambda: setattr(leaf(), "name", name),
        lambda: GradientTape().variable(X, name),
    ):
        with pytest.raises(DTypeError, match="is not text"):
            call()


def test_what_is_not_a_function_is_refused_before_anything_runs():
    for call in (
        od.grad,
        od.value_and_grad,
        od.jacobian,
        od.hessian,
        od.checkpoint,
        od.custom_vjp,
        od.compile,
        lambda f: od.vjp(f, 1.0),
        lambda f: od.jvp(f, 1.0, 1.0),
        lambda f: od.optim.scipy_objective(f, X),
        lambda f: od.testing.check_gradients(f, X),
        lambda f: od.custom_vjp(ops.sin).defvjp(f, f),
    ):
        with pytest.raises(DTypeError, match="'sin' cannot be called; pass a function"):
            call("sin")


def test_an_op_that_no_table_has_is_refused_by_name():
    w = leaf()
    with GradientTape() as tape, pytest.raises(UnknownOpError, match="there is no op 3"):
        tape.record(3, [w], tape.constant(X))


def test_an_error_of_the_kernel_becomes_ours_and_one_of_the_user_stays():
    for axis in (10**30, "x", 1.5, None, [[0]]):
        with pytest.raises(OdysseyError):
            ops.swapaxes(leaf(), axis, 0)
    with pytest.raises(OdysseyError, match="y is an int that no array"):
        ops.add(X, 10**400)

    @od.op(elementwise=True, vjp={"x": lambda g: g})
    def mine(x, /):
        raise ZeroDivisionError("my own")

    with pytest.raises(ZeroDivisionError, match="my own"):
        mine(leaf())
    with pytest.raises(ZeroDivisionError):
        od.grad(lambda x: 1 / 0)(1.0)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        ops.divide(X, 0.0)


def test_a_backward_function_names_itself_and_what_came():
    with pytest.raises(OdysseyError, match="inner sizes differ"):
        od.backward.matmul(np.ones(3), np.ones((2, 2)), np.ones((4, 4)))
    with pytest.raises(DTypeError, match=r"backward\.sum: x_spec is 3; pass a Spec, or x itself"):
        od.backward.sum(1.0, x_spec=3)
    with pytest.raises(DTypeError, match=r"backward\.exp: does not take y"):
        od.backward.exp(1.0, out=1.0, y=3)


def test_a_gradient_that_no_sweep_reached_is_an_error_of_ours_and_a_key_error():
    gradients = swept("backward")
    with pytest.raises(UnreachedError, match="was not reached by this sweep"):
        gradients[leaf()]
    assert gradients.get(leaf()) is None
    assert gradients.get("w", 3) == 3
    assert issubclass(UnreachedError, KeyError)


# ------------------------------------------------------------------ pictures

EVIL = 'w"]; click n1 <script>alert(1)</script>\nn1["x`\\#quot;\u2028&\x00'


def test_names_cannot_leave_their_labels_in_any_picture():
    w = leaf(name=EVIL)
    with GradientTape() as tape:
        y = w * 2.0
    mermaid = tape.to_mermaid().splitlines()
    assert len(mermaid) == 4
    assert mermaid[0] == "graph LR"
    label = mermaid[1].removeprefix('  n1["').removesuffix('"]')
    assert mermaid[1] == f'  n1["{label}"]'
    assert not set(label) & set('"<>`\\&\x00')
    assert "#lt;" in label or "#60;" in label
    dot = tape.to_dot().splitlines()
    assert len(dot) == 6
    assert "\\\\#quot;" in dot[2]
    for html in (tape._repr_html_(), y._repr_html_(), w._repr_html_(), w.detach()._repr_html_()):
        assert "<script" not in html


# ------------------------------------------------------------------ copies

COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
}
ways = pytest.mark.parametrize("way", COPIES.values(), ids=list(COPIES))


@ways
@pytest.mark.parametrize("state", ["new", "recorded", "persistent", "consumed"])
def test_a_tape_is_neither_copied_nor_pickled(way, state):
    w = leaf()
    with GradientTape(persistent=state == "persistent") as tape:
        y = (w * w).sum() if state != "new" else None
    if state == "consumed":
        tape.backward(y)
    for thing in (tape, tape._recording, {"tape": [tape]}):
        if way is not copy.copy or thing is tape or not isinstance(thing, dict):
            with pytest.raises(TapeError, match="neither copied nor pickled"):
                way(thing)
    if state == "recorded":
        np.testing.assert_array_equal(tape.gradient(y, w), 2 * X)


@ways
def test_gradients_are_neither_copied_nor_pickled(way):
    with pytest.raises(TapeError, match="not pickled"):
        way(swept("backward"))


@ways
@pytest.mark.parametrize("trainable", [True, False])
def test_a_copy_of_a_variable_keeps_its_gradient_in_memory_of_its_own(way, trainable):
    w = Variable(X, trainable, name="w")
    w.grad = 2 * X
    made = way(w)
    assert (made.name, made.requires_grad, made.id == w.id) == ("w", trainable, False)
    np.testing.assert_array_equal(made.grad, 2 * X)
    assert not np.shares_memory(made.grad, w.grad)
    assert not np.shares_memory(made.numpy(), w.numpy())
    w.zero_grad()
    assert made.grad is not None
    assert way(w).grad is None


@ways
def test_a_copy_keeps_a_gradient_that_a_sweep_just_delivered(way):
    w = leaf()
    with GradientTape() as tape:
        y = (w * w).sum()
    gradients = tape.backward(y)
    made = way(w)
    made.grad[...] = 0.0
    np.testing.assert_array_equal(w.grad, 2 * X)
    np.testing.assert_array_equal(gradients[w], 2 * X)


@ways
def test_a_gradient_that_is_still_recorded_is_not_copied(way):
    w = leaf()
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = (w * w * w).sum()
        inner.backward(y)
        with pytest.raises(UntrackedError, match="was recorded"):
            way(w)
    outer.clear()
    np.testing.assert_array_equal(way(w).grad, 3 * X * X)


@pytest.mark.parametrize(
    "value", [float("nan"), -0.5, 2.0, "x", None, X, {}], ids=lambda v: str(type(v))
)
def test_the_op_behind_cross_entropy_refuses_what_the_loss_refuses(value):
    with pytest.raises(OdysseyError):
        ops.softmax_cross_entropy(X, T, label_smoothing=value)
    with pytest.raises(OdysseyError):
        ops.softmax_cross_entropy(X, T, reduction=value)


@ways
def test_a_lowered_graph_is_neither_copied_nor_pickled(way):
    with pytest.raises(TapeError, match="neither copied nor pickled; lower again"):
        way(od.compile(ops.sin).lower(X))


# ------------------------------------------------------------------ complex numbers that come first


@pytest.mark.parametrize("op", [ops.add, ops.subtract, ops.multiply, ops.divide, ops.power])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "plain"])
def test_a_complex_number_before_a_single_element_gives_an_array(op, dtype, recorded):
    w = Variable(np.array(2.0, dtype), True)
    with GradientTape() if recorded else od.no_grad():
        y = op(1j, w * 1.0)
    expected = np.array([1j], np.complex64).dtype if dtype != np.float64 else np.dtype(complex)
    assert y.dtype == expected
    reference = {"add": 1j + 2, "subtract": 1j - 2, "multiply": 2j, "divide": 0.5j, "power": -1}
    np.testing.assert_allclose(y.numpy() if not recorded else y.detach().numpy(),
                               reference[op.__name__], rtol=1e-6, atol=1e-7)  # fmt: skip

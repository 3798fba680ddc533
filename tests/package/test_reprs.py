"""What optimizers, their groups and schedules print: one short line, in whatever state they are."""

import copy
import functools
import pickle
import pydoc

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.checks import few_digits
from odyssey.optim import (
    SGD,
    Adam,
    AdamW,
    CosineAnnealingLR,
    ExponentialLR,
    MultiStepLR,
    Optimizer,
    ReduceLROnPlateau,
    Schedule,
    StepLR,
    WarmupCosineLR,
    WarmupLR,
)
from support.optimizers import optimizer_classes


def leaves(count):
    return [Variable(np.ones(3), True) for _ in range(count)]


def two_groups():
    first, second = leaves(2)
    return [{"params": [first]}, {"params": [second], "learning_rate": 0.01}]


# ------------------------------------------------------------------ optimizers

OPTIMIZERS = {
    "SGD(4 parameters, learning_rate=0.1, momentum=0.9)": lambda: SGD(leaves(4), 0.1, momentum=0.9),
    "SGD(1 parameter, learning_rate=0.1)": lambda: SGD(leaves(1), 0.1),
    "SGD(2 parameters in 2 groups, learning_rate=[0.1, 0.01])": lambda: SGD(two_groups(), 0.1),
    "Adam(2 parameters, learning_rate=0.3, betas=(0.8, 0.999))": lambda: Adam(
        leaves(2), 0.1 + 0.2, betas=(0.8, 0.999)
    ),
    "AdamW(2 parameters, learning_rate=0.333333)": lambda: AdamW(leaves(2), 1 / 3),
}


@pytest.mark.parametrize(("text", "make"), OPTIMIZERS.items(), ids=list(OPTIMIZERS))
def test_an_optimizer_shows_its_parameters_and_the_settings_that_were_chosen(text, make):
    assert repr(make()) == text


def test_a_setting_that_is_assigned_is_shown_as_it_is_now():
    optimizer = SGD(leaves(2), 0.1)
    optimizer.learning_rate, optimizer.nesterov = 0.05, False
    optimizer.groups[0].momentum = 0.5
    assert repr(optimizer) == "SGD(2 parameters, learning_rate=0.05, momentum=0.5)"


def test_frozen_parameters_are_counted():
    params = leaves(3)
    optimizer = SGD(params, 0.1)
    params[1].requires_grad = False
    assert repr(optimizer) == "SGD(3 parameters, 1 frozen, learning_rate=0.1)"
    params[1].requires_grad = True
    assert repr(optimizer) == "SGD(3 parameters, learning_rate=0.1)"


def test_a_group_shows_all_its_settings():
    assert repr(SGD(two_groups(), 0.1, momentum=1 / 3).groups[1]) == (
        "Group(1 parameter, learning_rate=0.01, momentum=0.333333, dampening=0.0, "
        "nesterov=False, weight_decay=0.0)"
    )


def stepped(optimizer):
    for p in optimizer.params:
        p.grad = np.ones(p.shape)
    optimizer.step()
    return optimizer


STATES = {
    "new": lambda optimizer: optimizer,
    "stepped": stepped,
    "copied": copy.deepcopy,
    "pickled": lambda optimizer: pickle.loads(pickle.dumps(optimizer)),
    "pickled after a step": lambda optimizer: pickle.loads(pickle.dumps(stepped(optimizer))),
}


@pytest.mark.parametrize("change", STATES.values(), ids=list(STATES))
@pytest.mark.parametrize("kind", optimizer_classes().values(), ids=list(optimizer_classes()))
def test_every_optimizer_prints_the_same_in_every_state(kind, change):
    groups = two_groups()
    if kind.__name__ == "Muon":  # a parameter is a matrix
        for group in groups:
            group["params"] = [Variable(np.ones((2, 3)), requires_grad=True)]
    optimizer = kind(groups, learning_rate=0.1)
    wanted = f"{kind.__name__}(2 parameters in 2 groups, learning_rate=[0.1, 0.01])"
    assert repr(change(optimizer)) == wanted


def test_an_optimizer_of_ones_own_prints_too():
    class Halving(Optimizer):
        def __init__(self, params, learning_rate, momentum=0.5):
            super().__init__(params, od.optim.sgd, learning_rate=learning_rate, momentum=momentum)

    assert repr(Halving(leaves(2), 0.1)) == "Halving(2 parameters, learning_rate=0.1)"
    assert repr(Halving(leaves(2), 0.1, 0.25)).endswith("learning_rate=0.1, momentum=0.25)")


def test_what_is_being_made_or_could_not_be_prints_too():
    for kind in (SGD, StepLR, ReduceLROnPlateau, od.optim.Group):
        assert repr(kind.__new__(kind)) == f"<{kind.__name__}, unfinished>"


def test_an_optimizer_prints_while_a_graph_is_traced():
    w = Variable(np.ones(3), True)
    optimizer, shown = SGD([w], 0.1), []

    @od.compile
    def step(x):
        with GradientTape() as tape:
            loss = (w * x).sum()
        tape.backward(loss)
        optimizer.step()
        shown.append(repr(optimizer))
        return loss

    step(np.ones(3))
    assert set(shown) == {"SGD(1 parameter, learning_rate=0.1)"}


# ------------------------------------------------------------------ schedules

SCHEDULES = {
    "StepLR(step_size=2, gamma=0.5; steps=3, learning_rate=0.5)": lambda o: StepLR(o, 2, 0.5),
    "StepLR(step_size=30, gamma=0.1; steps=3, learning_rate=1.0)": lambda o: StepLR(o, 30),
    "MultiStepLR(milestones=[2, 3, 3], gamma=0.5; steps=3, learning_rate=0.125)": lambda o: (
        MultiStepLR(o, [3, 2, 3], 0.5)
    ),
    "ExponentialLR(gamma=0.5; steps=3, learning_rate=0.125)": lambda o: ExponentialLR(o, 0.5),
    "CosineAnnealingLR(T_max=6, eta_min=0.0; steps=3, learning_rate=0.5)": lambda o: (
        CosineAnnealingLR(o, 6)
    ),
    "WarmupLR(warmup_steps=5, start_factor=0.166667; steps=3, learning_rate=0.666667)": lambda o: (
        WarmupLR(o, 5)
    ),
    "WarmupCosineLR(warmup_steps=1, total_steps=5, eta_min=0.0, start_factor=0.5; steps=3, "
    "learning_rate=0.5)": lambda o: WarmupCosineLR(o, 1, 5),
}


@pytest.mark.parametrize(("text", "make"), SCHEDULES.items(), ids=list(SCHEDULES))
@pytest.mark.parametrize("state", ["new", "copied", "pickled"])
def test_a_schedule_shows_its_settings_and_where_it_stands(text, make, state):
    schedule = make(SGD(leaves(2), 1.0))
    for _ in range(3):
        schedule.step()
    assert repr(STATES[state](schedule)) == text


def test_a_plateau_shows_the_best_measurement_and_for_how_long_there_was_no_better_one():
    schedule = ReduceLROnPlateau(SGD(leaves(2), 1.0), patience=5, cooldown=1)
    assert "steps=0, best=inf, bad_steps=0, learning_rate=1.0" in repr(schedule)
    for loss in (3.0, 2.0, 2.5):
        schedule.step(loss)
    assert repr(schedule) == (
        "ReduceLROnPlateau(mode='min', factor=0.1, patience=5, cooldown=1; "
        "steps=3, best=2.0, bad_steps=1, learning_rate=1.0)"
    )


def test_a_schedule_of_groups_that_differ_shows_each_rate():
    assert repr(StepLR(SGD(two_groups(), 0.1), 3)) == (
        "StepLR(step_size=3, gamma=0.1; steps=0, learning_rate=[0.1, 0.01])"
    )


def test_a_schedule_of_ones_own_prints_too():
    class Linear(Schedule):
        def _next(self, rate, base):
            return rate - 0.25

    schedule = Linear(SGD(leaves(1), 1.0))
    schedule.step()
    assert repr(schedule) == "Linear(steps=1, learning_rate=0.75)"


def test_long_lists_of_settings_are_cut():
    schedule = MultiStepLR(SGD(leaves(1), 1.0), range(1, 1000))
    assert "milestones=[1, 2, 3, 4, 5, 6, 7, 8, ...]" in repr(schedule)
    assert few_digits((1 / 3, 2j / 3, "x", True)) == "(0.333333, 0+0.666667j, 'x', True)"


# ------------------------------------------------------------------ what help lists of a tape


def test_help_of_a_tape_lists_what_it_does_and_not_a_recorder_for_every_op():
    text = pydoc.plaintext.document(GradientTape)
    assert "record_add" not in text
    listed = set(dir(GradientTape))
    assert not any(name.startswith("record_") for name in listed)
    for name in ("backward", "gradient", "record", "watch", "explain"):
        assert f" {name}(" in text
        assert name in listed


def test_the_recorders_are_there_all_the_same():
    tape = GradientTape()
    tape.enable()
    x = tape.variable(2.0)
    tape.record_exp(x, tape.constant(np.exp(2.0)))
    assert len(tape) == 1


def test_a_tape_hides_the_recorders_at_a_tab_and_lists_the_rest():
    listed = dir(GradientTape())
    assert not any(name.startswith("record_") for name in listed)
    assert {"record", "backward", "persistent", "jvp"} <= {*listed}


@pytest.mark.parametrize("shape", [(3, 2), (2, 3, 2), (1, 30), (30, 2), (2, 2, 2, 2)], ids=str)
def test_rows_of_a_variable_are_aligned_as_those_of_an_array_are(shape):
    data = np.arange(np.prod(shape)).reshape(shape) * 1.5 - 1.0
    text = repr(Variable(data, requires_grad=True, name="w"))
    facts = f", shape={shape}, dtype=float64, name='w', requires_grad=True)"
    with np.printoptions(threshold=20, edgeitems=2):
        plain = repr(np.array(data)).rpartition(")")[0].partition(", shape=")[0]
    rows = ("Variable" + plain.removeprefix("array")).splitlines()
    rows[1:] = [f"   {row}" if row else "" for row in rows[1:]]  # by which the word is longer
    assert text == "\n".join(rows) + facts


def test_graphs_programs_profiles_and_explanations_show_what_they_print():
    w = Variable([1.0, 2.0, 3.0], requires_grad=True, name="w")
    double = od.compile(lambda x: (w * x).sum())
    x = np.ones(3)
    double(x), double(x)
    with GradientTape() as tape:
        y = (w * x).sum()
    lowered = double.lower(x)
    shown = {
        "graph(": lowered.graph,
        "graph(%": lowered,
        "a program of 1 kernels": double.explain(x),
        "1 kernels in": double.profile(x),
        "define ": double.code(x),
        "w -> multiply": tape.explain(y, w),
        "total": tape.memory(),
        "digraph": tape.to_dot(),
        "graph": tape.to_mermaid(),
    }
    for start, thing in shown.items():
        assert repr(thing) == str(thing)
        assert start in repr(thing)
        assert "\\n" not in repr(thing)
    assert isinstance(double.explain(x), str)


@pytest.mark.parametrize(
    ("room", "name", "near"),
    [
        ("odyssey", "complie", "compile"),
        ("odyssey.nn", "sotfmax", "softmax"),
        ("odyssey.optim", "Adma", "Adam"),
        ("odyssey.losses", "cros_entropy", "cross_entropy"),
        ("odyssey.linalg", "slove", "solve"),
        ("odyssey.ops", "tanhh", "tanh"),
    ],
)
def test_a_missing_name_is_suggested_in_the_message_and_only_there(room, name, near):
    import importlib
    import traceback

    with pytest.raises(AttributeError, match=rf"did you mean .*\b{near}\b") as refused:
        getattr(importlib.import_module(room), name)
    shown = "".join(traceback.format_exception(refused.value))
    assert shown.lower().count("did you mean") == 1
    with pytest.raises(AttributeError) as private:
        getattr(importlib.import_module(room), "_" + name)
    assert "did you mean" not in str(private.value)


def test_an_unknown_op_of_a_manual_record_is_suggested():
    tape = GradientTape()
    tape.enable()
    with pytest.raises(od.errors.UnknownOpError, match=r"did you mean .*multiply"):
        tape.record("multipy", [1, 2], 3)


def test_a_compiled_function_shows_its_name():
    assert repr(od.compile(two_groups)) == "compile(two_groups)"
    assert repr(od.compile(functools.partial(leaves, 2))) == "compile(partial)"

"""Optimizers are declared once: the class's signature has the settings, and all else follows."""

import inspect
import pickle
import pydoc
import re
from functools import partial

import numpy as np
import pytest

from odyssey import Variable, ops, optim
from odyssey.errors import DTypeError, OdysseyError, SettingError
from support.optimizers import OPTIMIZERS, optimizer_classes, settings_of

kinds = pytest.mark.parametrize("kind", optimizer_classes().values(), ids=list(optimizer_classes()))


def leaf():
    return Variable(np.ones(3), requires_grad=True)


def given(kind):
    """Settings, as few as there must be."""
    return {
        name: 0.1
        for name, default in settings_of(kind).items()
        if default is inspect.Parameter.empty
    }


def pure(kind):
    return getattr(optim, kind.__name__.lower())


@kinds
def test_every_optimizer_has_a_pure_rule_with_its_settings_and_defaults(kind):
    whole, rule = inspect.signature(kind), inspect.signature(pure(kind))
    assert next(iter(whole.parameters)) == "params"
    assert list(whole.parameters.values())[1:] == list(rule.parameters.values())
    assert rule.return_annotation == "Rule"
    assert list(kind([leaf()], **given(kind)).settings()) == list(rule.parameters)


@kinds
def test_every_optimizer_is_compared_with_a_formula_of_the_tests(kind):
    assert any(entry[0] is kind for entry in OPTIMIZERS.values())


@kinds
def test_every_setting_is_documented_and_shown_by_help(kind):
    _, args = inspect.getdoc(kind).split("Args:")
    documented = re.findall(r"^    (\w+): ", args.split(">>>")[0], re.MULTILINE)
    assert documented == ["params", *settings_of(kind)]
    for thing in (kind, pure(kind)):
        shown = re.sub(".\b", "", pydoc.render_doc(thing))
        assert all(f"{name}: " in shown for name in settings_of(kind))
        assert len(thing.__doc__.strip()) > 40


@kinds
def test_settings_come_by_place_and_by_name_alike(kind):
    settings = {"learning_rate": 0.1} | settings_of(kind) | given(kind)
    by_place, by_name = kind([leaf()], *settings.values()), kind(params=[leaf()], **settings)
    assert by_place.settings() == by_name.settings() == settings
    shape = (3, 1) if kind is optim.Muon else 3
    w, g = np.ones(shape), np.full(shape, 0.5)
    results = []
    for rule in (pure(kind)(*settings.values()), pure(kind)(**settings)):
        (p,), _ = rule.update([g], rule.init([w]), [w])
        results.append(p)
    np.testing.assert_array_equal(*results)


@kinds
def test_a_setting_that_makes_no_sense_is_refused_by_class_and_rule_alike(kind):
    for name, default in settings_of(kind).items():
        wrong = "on" if isinstance(default, bool) else (0.5, 1.5) if default == () else -1.0
        if isinstance(default, tuple):
            wrong = (0.5, -1.0) if None in default else (0.5, 1.0)
        elif isinstance(default, float) and default < 0:
            wrong = 1.0
        messages = []
        for make in (lambda **s: kind([leaf()], **s), pure(kind)):
            with pytest.raises((SettingError, DTypeError), match=f"{kind.__name__}: {name}") as got:
                make(**given(kind) | {name: wrong})
            messages.append(str(got.value))
        assert messages[0] == messages[1]


def test_words_of_other_libraries_and_wrong_counts_are_told_by_the_pure_rule():
    for call, words in (
        (lambda: optim.adam(lr=0.1), "adam: .*'lr'; lr is called learning_rate here"),
        (lambda: optim.sgd(), "sgd: missing a required argument: 'learning_rate'"),
        (lambda: optim.sgd(0.1, learning_rate=0.1), "sgd: multiple values .*'learning_rate'"),
        (lambda: optim.lion(1, (0, 0), 0, 0), "lion: too many positional arguments"),
        (lambda: optim.adam(betas=(0.5,)), r"Adam: betas=\(0.5,\); pass two numbers in \[0, 1\)"),
        (lambda: optim.rule_of(3), "rule_of: 3 is not a class made from Optimizer"),
    ):
        with pytest.raises(DTypeError, match=words):
            call()


def test_intervals_of_a_class_are_asked_beside_those_of_all():
    class Own(optim.Optimizer):
        _ranges = {"share": "(0, 1)"}  # noqa: RUF012

        def __init__(
            self, params, learning_rate=0.1, share=0.5, name="x", *, three=(0.1, 0.2, 0.3)
        ):
            optim.Optimizer.__init__(**locals())

    seen = []

    @optim.rule_of(Own)
    def own(s):
        """Return a rule that does nothing."""
        seen.append(s)
        return optim.Rule((), lambda g, state, p: (p, state))

    optimizer = Own([leaf()], share=np.float32(0.25), name="y")
    assert vars(seen[-1]) == {
        "learning_rate": 0.1, "share": 0.25, "name": "y", "three": (0.1, 0.2, 0.3)
    }  # fmt: skip
    assert type(seen[-1].share) is float
    assert repr(optimizer) == "Own(1 parameter, share=0.25, name='y')"
    with pytest.raises(SettingError, match=r"Own: share=0.0; it must lie in \(0, 1\)"):
        own(share=0.0)
    with pytest.raises(SettingError, match=r"Own: three=.*; all must lie in"):
        own(three=(0.1, 0.2, 1.0))
    with pytest.raises(DTypeError, match=r"Own: three=.*; pass 3 numbers"):
        own(three=(0.1, 0.2))
    with pytest.raises(SettingError, match="Own: share"):
        optimizer.share = 1.0
    assert optimizer.share == 0.25
    assert own.__doc__ == "Return a rule that does nothing."


def test_a_rule_of_a_declared_optimizer_travels_by_its_name():
    assert pickle.loads(pickle.dumps(optim.adam)) is optim.adam
    optimizer = pickle.loads(pickle.dumps(optim.Adam([leaf()], eps=1e-3)))
    optimizer.params[0].grad = np.ones(3)
    optimizer.step()
    assert optimizer.eps == 1e-3


def test_an_optimizer_may_take_the_rule_of_another():
    class Halving(optim.Optimizer):
        def __init__(self, params, learning_rate, momentum=0.5):
            super().__init__(params, optim.sgd, learning_rate=learning_rate, momentum=momentum)

    w, v = leaf(), leaf()
    ours, theirs = Halving([w], 0.1), optim.SGD([v], 0.1, 0.5)
    for _ in range(3):
        w.grad = v.grad = np.array([1.0, 2.0, 3.0])
        ours.step()
        theirs.step()
    np.testing.assert_array_equal(w.numpy(), v.numpy())


def test_a_rule_that_refuses_its_settings_does_so_when_it_is_made_and_when_they_change():
    class Own(optim.Optimizer):
        def __init__(self, params, learning_rate=0.1, twice=False):
            optim.Optimizer.__init__(**locals())

    @optim.rule_of(Own)
    def own(s):
        if s.twice and s.learning_rate == 0:
            raise OdysseyError("Own: twice nothing is nothing")
        return optim.Rule((), lambda g, t, p: (ops.subtract(p, g), t))

    optimizer = Own([leaf()], twice=True)
    with pytest.raises(OdysseyError, match="twice nothing"):
        optimizer.learning_rate = 0
    assert optimizer.learning_rate == 0.1
    assert callable(own)


def steps_of(step, slots=("m",)):
    """One step of a rule, by the pure face and by the optimizer that holds it."""

    class Own(optim.Optimizer):
        def __init__(self, params, learning_rate=0.1):
            optim.Optimizer.__init__(**locals())

    own = optim.rule_of(Own)(
        lambda s: step if slots is None else optim.Rule(slots, partial(step, s))
    )

    def pure():
        rule = own()
        rule.update([np.ones(3)], rule.init([np.ones(3)]), [np.ones(3)])

    def held():
        w = leaf()
        w.grad = np.ones(3)
        Own([w]).step()

    return pure, held


@pytest.mark.parametrize(
    ("step", "slots", "error", "words"),
    [
        (lambda s, g, t, p: (p, t | {"mm": g}), ("m",), DTypeError,
         "Rule: step returned a state of 'steps', 'm', 'mm'; .* a state of 'steps', 'm'$"),
        (lambda s, g, t, p: (p, {"steps": t["steps"]}), ("m",), DTypeError,
         "Rule: step returned a state of 'steps'; .* a state of 'steps', 'm'$"),
        (lambda s, g, t, p: p, (), DTypeError, "Rule: step returned .*; return the pair"),
        (lambda s, g, t, p: (p - s.lr * g, t), (), AttributeError,
         "a rule: no setting is called 'lr'; known are learning_rate"),
        (3, None, DTypeError, "<lambda>: it returned an int; return a Rule"),
    ],
    ids=["a slot that there is not", "no slot", "no pair", "no such setting", "no rule"],
)  # fmt: skip
def test_a_rule_that_is_none_is_told_of_by_its_pure_face_and_by_its_optimizer(
    step, slots, error, words
):
    for call in steps_of(step, slots):
        with pytest.raises(error, match=words):
            call()

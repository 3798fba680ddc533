"""Writes to objects of Python that a function does not read are repeated behind each program."""

import warnings
from collections import OrderedDict, deque

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable
from odyssey.errors import CompileWarning
from odyssey.tree import leaves


class Log:
    kind = "log"

    def __init__(self):
        self.losses, self.by_name = [], {}
        self.last = None
        self.scale = 2.0


class Slotted:
    __slots__ = ("last",)


class Noisy(list):
    def append(self, item):
        super().append(item * 2.0)


class Named(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key.upper(), value)


def training(write):
    """A step of training, in which a function writes to a log."""

    def make(log):
        w = Variable(np.ones(3), requires_grad=True)
        optimizer = od.optim.SGD([w], 0.1, momentum=0.9)

        def step(x):
            with GradientTape() as tape:
                loss = ((w * x) ** 2).mean()
            tape.backward(loss)
            optimizer.step()
            write(log, loss, w)
            optimizer.zero_grad()
            return loss

        return step

    return make


# ------------------------------------------------------------------ writes that are repeated


def appended(log):
    def step(x):
        loss = (x * log.scale).sum()
        log.losses.append(loss)
        return loss

    return step


def appended_alone(log):
    def step(x):
        log.losses.append((x * 2.0).sum())

    return step


def appended_thrice(log):
    losses = log.losses

    def step(x):
        y = x * 2.0
        losses.append(y)
        losses.append({"sum": y.sum(), "first": y, "name": "loss", "none": None})
        losses.append(3)
        return y, y.T

    return step


def stored(log):
    by_name = log.by_name

    def step(x):
        loss = (x * 2.0).sum()
        by_name["loss"] = loss
        by_name["more"] = [loss, x + 1.0]
        return x * 3.0

    return step


def stored_attribute(log):
    def step(x):
        y = x * log.scale
        log.last = y
        log.made, log.kind = y[1:], "other"
        return y

    return step


def read_after_its_write(log):
    """An attribute that no run has set before is read behind its write alone."""

    def step(x):
        log.fresh = x * 2.0
        return log.fresh + 1.0

    return step


def counted(log):
    log.count, log.left = 3, 100

    def step(x):
        log.count += 1
        y = x * 2.0
        log.left -= 2
        log.count += 2
        return y

    return step


def appended_items(log):
    log.by_name = {"loss": [], "norm": [1.0], "epoch": 0}
    history = log.by_name

    def step(x):
        loss = (x * 2.0).sum()
        history["loss"].append(loss)
        log.by_name["norm"].append(x)
        history["more"] = x * 3.0
        return loss

    return step


def appended_items_of_self(log):
    class Model:
        def __init__(self):
            self.history = log.by_name

        def step(self, x):
            y = x * 2.0
            self.history["loss"].append(y)
            self.note("first", y[0])
            return y

        def note(self, name, value):
            self.history["first"].append(value)

    log.by_name.update(loss=[], first=[])
    return Model().step


class Trainer(Log):
    def __init__(self):
        super().__init__()
        self.w = Variable(np.ones(3), requires_grad=True)
        self.optimizer = od.optim.Adam([self.w], 0.1)
        self.steps = 0

    def step(self, x):
        with GradientTape() as tape:
            loss = ((self.w * x) ** 2).mean()
        tape.backward(loss)
        self.optimizer.step()
        self.record(loss)
        self.optimizer.zero_grad()
        return loss

    def record(self, loss):
        self.steps += 1
        self.losses.append(loss)
        self.by_name["loss"] = loss
        self.last = loss


def of_trainer(log):
    trainer = Trainer()
    trainer.losses, trainer.by_name = log.losses, log.by_name
    log.trainer = trainer
    return trainer.step


REPEATED = {f.__name__: f for f in (appended, appended_alone, appended_thrice, stored)}
REPEATED |= {f.__name__: f for f in (stored_attribute, read_after_its_write, of_trainer, counted)}
REPEATED |= {f.__name__: f for f in (appended_items, appended_items_of_self)}
REPEATED |= {
    "step that appends": training(lambda log, loss, w: log.losses.append(loss)),
    "step that appends a gradient": training(lambda log, loss, w: log.losses.append(w.grad)),
    "step that appends a leaf": training(lambda log, loss, w: log.losses.append(w)),
}

# Writes that depend on what was there, or that Python code of users has a part in.
NOT_REPEATED = {
    "length asked": lambda log: lambda x: (setattr(log, "last", x * 2.0), x * len(log.losses))[1],
    "item read": lambda log: item_read(log),
    "item replaced": lambda log: item_replaced(log),
    "item of own class": lambda log: item_of_own_class(log),
    "item by variable key": lambda log: item_by_variable_key(log),
    "count read": lambda log: count_read(log),
    "count set": lambda log: count_set(log),
    "count of a class": lambda log: count_of_class(log),
    "float counted": lambda log: float_counted(log),
    "length read": lambda log: lambda x: (log.losses.append(1.0), x * len(log.losses))[1],
    "last read": lambda log: lambda x: (log.losses.append(x * 2.0), log.losses[-1] + 1.0)[1],
    "popped": lambda log: lambda x: (log.losses.append(x), log.losses.pop())[1] * 2.0,
    "returned": lambda log: lambda x: (log.losses.append(x * 2.0), log.losses)[1],
    "own list": lambda log: (lambda own: lambda x: (own.append(x * 2.0), x * 3.0)[1])(Noisy()),
    "own dictionary": lambda log: named_by_own(log),
    "slots": lambda log: slotted(log),
    "deque": lambda log: (lambda d: lambda x: (d.append(x * 2.0), x * 3.0)[1])(deque()),
    "ordered": lambda log: ordered(log),
    "summed": lambda log: summed(log),
    "written list of attributes": lambda log: through_vars(log),
    "alias": lambda log: through_alias(log),
    "another name": lambda log: through_another_name(log),
    "deleted": lambda log: deleted(log),
    "object": lambda log: lambda x: (log.losses.append(Slotted()), x * 2.0)[1],
    "argument": lambda log: lambda x: (log.losses.append(x), x * 2.0)[1],
}


def item_read(log):
    log.by_name["loss"] = []

    def step(x):
        log.by_name["loss"].append(x * 2.0)
        return x * len(log.by_name["loss"])

    return step


def item_replaced(log):
    log.by_name["loss"] = []

    def step(x):
        log.by_name["loss"] = []
        log.by_name["loss"].append(x * 2.0)
        return x * 3.0

    return step


def item_of_own_class(log):
    log.by_name["loss"] = Noisy()

    def step(x):
        log.by_name["loss"].append(x * 2.0)
        return x * 3.0

    return step


def item_by_variable_key(log):
    log.by_name["loss"] = []
    key = "loss"

    def step(x):
        log.by_name[key].append(x * 2.0)
        return x * 3.0

    return step


def count_read(log):
    log.count = 0

    def step(x):
        log.count += 1
        return x * log.count

    return step


def count_set(log):
    log.count = 0

    def step(x):
        log.count = 5
        log.count += 1
        return x * 2.0

    return step


def count_of_class(log):
    class Counting:
        count = 0

    log.trainer = Counting()

    def step(x):
        log.trainer.count += 1
        return x * 2.0

    return step


def float_counted(log):
    log.count = 0.5

    def step(x):
        log.count += 1
        return x * 2.0

    return step


def named_by_own(log):
    own = Named()
    log.by_name = own

    def step(x):
        own["loss"] = x * 2.0
        return x * 3.0

    return step


def slotted(log):
    thing = log.thing = Slotted()

    def step(x):
        thing.last = x * 2.0
        return x * 3.0

    return step


def ordered(log):
    own = log.by_name = OrderedDict()

    def step(x):
        own["loss"] = x * 2.0
        return x * 3.0

    return step


def summed(log):
    log.total = np.float64(0.0)

    def step(x):
        log.total += x.sum()
        return x * 2.0

    return step


def through_vars(log):
    def step(x):
        log.losses.append(x * 2.0)
        return x * len(vars(log)["losses"])

    return step


def through_alias(log):
    def step(x):
        items = log.losses
        log.losses.append(x * 2.0)
        return x * len(items)

    return step


def through_another_name(log):
    log.other = log.losses

    def step(x):
        log.losses.append(x * 2.0)
        return x * len(log.other)

    return step


def deleted(log):
    def step(x):
        log.by_name["a"] = x * 2.0
        log.by_name["b"] = x * 3.0
        del log.by_name["a"]
        return x

    return step


def left(compiled, make, calls=6):
    """What a function returns and leaves in its log after each call."""
    log = Log()
    call, found = compiled(make(log)), []
    for k in range(calls):
        result = call(np.arange(3.0) + k)
        held = (result, log.losses, log.by_name, log.last, vars(log).get("made"), log.kind)
        held += tuple(vars(log).get(name) for name in ("count", "left", "total"))
        held += (getattr(vars(log).get("trainer"), "steps", None),)
        things = leaves(held)
        arrays = [t for t in things if isinstance(t, (np.ndarray, Variable)) and t.shape]
        found.append([str(type(t)) for t in things])
        things = [t for t in things if not isinstance(t, Slotted)]
        found.append([t if isinstance(t, (str, int, type(None))) else np.array(t) for t in things])
        found.append([[a is b for a in arrays] for b in arrays])
        found.append([*vars(log)])
    return found, call


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
                np.testing.assert_allclose(a, b, rtol=1e-13)
            else:
                assert a == b


def quiet(fn):
    return od.compile(fn, warn=False)


ALL = REPEATED | NOT_REPEATED


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_a_function_leaves_in_objects_what_it_leaves_eagerly(make):
    same(left(quiet, make)[0], left(lambda fn: fn, make)[0])


@pytest.mark.parametrize("make", REPEATED.values(), ids=REPEATED)
def test_functions_that_write_to_what_they_do_not_read_are_compiled(make):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, call = left(lambda fn: od.compile(fn, fullgraph=True), make)
    makes_state = make is of_trainer or make.__qualname__.startswith("training")
    assert call.statistics().native == 5 - makes_state  # in the first run, of an optimizer


def test_a_write_that_depends_on_what_was_there_warns():
    log = Log()
    log.total = 0.0

    def step(x):
        log.total = log.total + 1.5
        return x * 2.0

    compiled = od.compile(step)
    compiled(np.ones(2))
    with pytest.warns(CompileWarning, match="it writes to total"):
        compiled(np.ones(2))
    compiled(np.ones(2))
    assert log.total == 4.5


def test_a_list_that_is_replaced_is_appended_to_in_its_place():
    log = Log()
    compiled = od.compile(appended(log), warn=False)
    lists = []
    for _ in range(6):
        lists.append(log.losses)
        compiled(np.ones(2))
        compiled(np.ones(2))
        log.losses = []
    assert list(map(len, lists)) == [2] * 6


def test_a_call_that_raises_appends_what_it_appends_eagerly():
    def left(compiled):
        log = Log()

        @compiled
        def step(i, x):
            log.losses.append(x * 2.0)
            y = od.ops.take(x, i)
            log.losses.append(y)
            return y

        for k in (0, 1, 2, 5, 1, -7, 2):
            try:
                step(np.array([k]), np.arange(3.0))
            except od.errors.OdysseyError:
                log.losses.append("raised")
        return [x if isinstance(x, str) else x.tolist() for x in log.losses]

    assert left(quiet) == left(lambda fn: fn)


def test_a_list_that_is_also_an_argument_is_not_appended_to_by_a_program():
    items = [np.ones(2)]

    def fn(x, given):
        items.append(x)
        return x * len(given)

    compiled = quiet(fn)
    for k in range(5):
        assert compiled(np.ones(2), items).tolist() == [k + 2.0] * 2
        assert len(items) == k + 2


def test_a_count_of_a_function_whose_first_trace_is_not_used_is_right():
    """The optimizer makes its state in the first run, which is traced anew behind it."""
    log = Log()
    log.count = 0
    compiled = od.compile(training(lambda log, loss, w: add_one(log))(log), fullgraph=True)
    for k in range(6):
        compiled(np.arange(3.0))
        assert log.count == k + 1
    assert compiled.statistics().native == 4


def add_one(log):
    log.count += 1


def test_many_appends_keep_one_program():
    log = Log()
    compiled = od.compile(appended(log), fullgraph=True)
    for _ in range(300):
        compiled(np.ones(2))
    assert len(log.losses) == 300
    assert compiled.statistics()[:2] == (1, 299)

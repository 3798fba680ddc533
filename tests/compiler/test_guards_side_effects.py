"""Side effects keep a function from being guarded and compiled; pure library functions do not."""

import contextlib
import dataclasses
import datetime
import enum
import functools
import math
import operator
import pathlib
import random
import re
import statistics
import sys
import threading
import time
import warnings
import zoneinfo
from itertools import count
from typing import NamedTuple

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, ops
from odyssey.compiler.guards import effects
from odyssey.compiler.guards.guards import discover_guards
from odyssey.compiler.tracing.snapshot import Snapshot

X = np.array([3.0, 4.0])


class Pair(NamedTuple):
    a: list
    b: float


class Net:
    def __init__(self):
        self.scale = 3.0
        self.parts = [1.0]

    def forward(self, x):
        return x * self.scale

    def __call__(self, x):
        return self.forward(x)


def with_default(x, scale=2.0, *, shift=1.0):
    return x * scale + shift


global_scale = 2.0


counted = count()
lock = threading.Lock()
rng = np.random.default_rng(0)
tape = GradientTape()
leaf_of_tape = tape.variable([1.0])


def printing(x):
    print(x)
    return x


def generating(x):
    yield x


async def waiting(x):
    return x


def importing(x):
    import this_module_was_never_imported

    return this_module_was_never_imported.y * x


class Printing:
    def __mul__(self, x):
        print("times")
        return x


def deep(x):
    return printing(x)


REASONS = {
    "print": (printing, "print"),
    "print further down": (lambda x: deep(x), "print"),
    "print of an operator": ((lambda p: lambda x: p * x)(Printing()), "print"),
    "open": (lambda x: x.map(open), "open"),
    "time": (lambda x: x * time.time(), "time"),
    "time by a name": ((lambda now: lambda x: x * now())(time.perf_counter), "perf_counter"),
    "numpy.random": (lambda x: x * np.random.default_rng().normal(), "random"),
    "numpy's files": (lambda x: x * np.load("a.npy"), "load"),
    "numpy's files by a name": ((lambda take: lambda x: x * take("a"))(np.load), "load"),
    "a saving function": ((lambda keep: lambda x: keep("a", x))(np.savez), "savez"),
    "function that numpy wraps": (
        (lambda f: lambda x: f(x))(np.frompyfunc(lambda x: x, 1, 1)),
        "wraps",
    ),
    "random": (lambda x: x * random.random(), "random"),
    "exec": (lambda x: exec("pass"), "exec"),
    "globals": (lambda x: x * globals()["global_scale"], "globals"),
    "iterator": (lambda x: x * next(counted), "iterator"),
    "lock": (lambda x: lock.acquire() and x, "lock"),
    "generator's state": (lambda x: x * rng.bit_generator.state["uinteger"], "rng"),
    "stdout": (lambda x: sys.stdout.write("x") and x, "stdout"),
    "array of objects": ((lambda a: lambda x: a)(np.array([[]], object)), "objects"),
    "masked array": ((lambda a: lambda x: x * a)(np.ma.array([1.0])), "MaskedArray"),
    "errstate": (lambda x: np.errstate(all="raise") and x, "errstate"),
    "errstate of a variable": (lambda x, how="ignore": np.errstate(all=how) and x, "errstate"),
    "errstate in part": (
        lambda x: np.errstate(all="ignore", divide="raise") and x,
        "errstate",
    ),
    "tape": ((lambda t: lambda x: t)(GradientTape()), "GradientTape"),
    "leaf of a tape": (lambda x: x * leaf_of_tape, "tape"),
    "generator": (generating, "generator"),
    "coroutine": (functools.partial(waiting, 1), "coroutine"),
    "import": (importing, "imports"),
    "flags": ((lambda a: lambda x: a.setflags(write=True))(np.ones(2)), "setflags"),
}


@pytest.mark.parametrize("name", REASONS)
def test_what_may_do_something_else_at_each_call_is_a_reason(name):
    fn, told = REASONS[name]
    guards = discover_guards(fn)
    assert told in guards.reason
    assert not guards.holds()
    assert not guards.refresh()


PURE = {
    "errstate": lambda x: np.errstate(divide="ignore", invalid="ignore") and x,
    "builtins": lambda x: sum(map(float, range(len(x)))) + max(1, 2) + isinstance(x, list),
    "numpy": lambda x: np.linalg.norm(np.asarray(x)) * np.pi + np.arange(3.0).sum(),
    "math": lambda x: x * math.sqrt(2.0) * math.pi,
    "functools": lambda x: functools.reduce(lambda a, b: a * b, [1.0, 2.0]) * x,
    "ops": lambda x: ops.tanh(x) + od.nn.gelu(x) + od.losses.cross_entropy(x, x),
    "exceptions": lambda x: x if len(x) else ValueError("empty"),
    "raising": lambda x: contextlib.suppress(ValueError) and x,
    "transforms": od.grad(lambda x: od.checkpoint(lambda y: ops.sum(y * y))(x)),
    "compiled": od.compile(lambda x: x * global_scale),
    "method": Net().forward,
    "object": Net(),
    "class": lambda x: Net().forward(x),
    "partial": functools.partial(with_default, shift=2.0),
    "draws": (lambda g: lambda x: ops.random_uniform((2,), rng=g))(od.Generator(7)),
}


@pytest.mark.parametrize("name", PURE)
def test_what_is_pure_can_be_watched(name):
    guards = discover_guards(PURE[name])
    assert guards.reason is None
    assert guards.holds()


class Dates(enum.Enum):
    FIRST = datetime.date(2020, 1, 1)


@dataclasses.dataclass(frozen=True)
class Dated:
    when: datetime.datetime


class UserDate(datetime.datetime):
    pass


class UserPath(type(pathlib.Path())):
    pass


class UserDistribution(statistics.NormalDist):
    pass


day, moment = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1, 12)
dated, held = Dated(moment), {"when": [moment]}
user_moment, user_path = UserDate(2020, 1, 1), UserPath(".")
zone = zoneinfo.ZoneInfo("UTC")
numpy_moment = np.array("2020-01-01T12:00:00", "M8[us]")[()]
numpy_records = np.zeros(1, [("when", "M8[us]"), ("value", float)])
numpy_record = numpy_records[0]
numpy_moments = np.array(["2020-01-01T12:00:00"], "M8[us]")
normal, user_normal = statistics.NormalDist(), UserDistribution()
bound_now, bound_timestamp, bound_samples = moment.now, moment.timestamp, normal.samples
plain_timestamp, now_of_class = datetime.datetime.timestamp, vars(datetime.datetime)["now"]
write_array, plain_write = np.zeros(3).tofile, np.ndarray.tofile
local_pattern = re.compile(rb"\w", re.LOCALE)

# Attributes of immutable objects that read the clock, the local time zone, the locale, files or
# random numbers, by the ways that lead to them.
IMPURE_METHODS = {
    "now": (lambda x: x * moment.now().microsecond, "now"),
    "utcnow": (lambda x: x * moment.utcnow().microsecond, "utcnow"),
    "today": (lambda x: x * day.today().toordinal(), "today"),
    "timestamp": (lambda x: x * moment.timestamp(), "timestamp"),
    "fromtimestamp": (lambda x: x * moment.fromtimestamp(0.0).hour, "fromtimestamp"),
    "astimezone": (lambda x: x * moment.astimezone().hour, "astimezone"),
    "strftime": (lambda x: x * len(day.strftime("%A")), "strftime"),
    "strftime of a time": (lambda x: x * len(moment.time().strftime("%p")), "strftime"),
    "strptime": (lambda x: x * moment.strptime("1 May", "%d %b").month, "strptime"),
    "f-string": (lambda x: x * len(f"{day:%A}"), "__format__"),
    "format": (lambda x: x * len(format(day, "%A")), "__format__"),
    "str.format": (lambda x: x * len("{:%A}".format(day)), "may use"),  # noqa: UP032
    "getattr": (lambda x: x * getattr(moment, "now")().microsecond, "now"),  # noqa: B009
    "name in a variable": (lambda x, name="now": x * getattr(moment, name)().hour, "may use"),
    "methodcaller": (lambda x: x * operator.methodcaller("now")(moment).hour, "may use"),
    "class of an object": (lambda x: x * moment.__class__.now().microsecond, "now"),
    "type of an object": (lambda x: x * type(moment).now().microsecond, "now"),
    "object in containers": (lambda x: x * held["when"][0].now().microsecond, "now"),
    "object in a dataclass": (lambda x: x * dated.when.now().microsecond, "now"),
    "object in an enumeration": (lambda x: x * Dates.FIRST.value.today().day, "today"),
    "object of a subclass": (lambda x: x * user_moment.now().microsecond, "now"),
    "subclass": (lambda x: x * UserDate.now().microsecond, "now"),
    "bound method of the class": (lambda x: x * bound_now().microsecond, "now"),
    "bound method": (lambda x: x * bound_timestamp(), "timestamp"),
    "unbound method": (lambda x: x * plain_timestamp(moment), "timestamp"),
    "descriptor": (lambda x: x * now_of_class.__get__(None, UserDate)().hour, "now"),
    "time zone": (lambda x: x * len(zone.no_cache("UTC").key), "no_cache"),
    "date of numpy": (lambda x: x * numpy_moment.item().now().microsecond, "now"),
    "dates of numpy": (lambda x: x * numpy_moments[0].item().now().microsecond, "now"),
    "record of numpy": (lambda x: x * numpy_record["when"].item().now().hour, "now"),
    "records of numpy": (lambda x: x * numpy_records["when"][0].item().now().hour, "now"),
    "folder of the process": (lambda x: contextlib.chdir(".").__enter__() or x, "chdir"),
    "output of the process": (
        lambda x: contextlib.redirect_stdout(sys.stderr).__enter__() and x,
        "redirect_stdout",
    ),
    "clock of numpy": (lambda x: x * np.datetime64("now").astype(int), "datetime64"),
    "random numbers": (lambda x: x * normal.samples(1)[0], "samples"),
    "random numbers of a subclass": (lambda x: x * user_normal.samples(1)[0], "samples"),
    "random numbers of a class": (lambda x: x * statistics.NormalDist().samples(1)[0], "samples"),
    "random numbers, bound": (lambda x: x * bound_samples(1)[0], "samples"),
    "file of a subclass": (lambda x: x * user_path.exists(), "exists"),
    "path": ((lambda p: lambda x: x * p.exists())(pathlib.Path(".")), "pathlib"),
    "pattern of a locale": (lambda x: x * len(local_pattern.findall(b"a")), "locale"),
    "file of an array": (lambda x: write_array("a") and x, "tofile"),
    "file of an array, unbound": (lambda x: plain_write(x, "a") and x, "tofile"),
}


@pytest.mark.share(1)
@pytest.mark.parametrize("name", IMPURE_METHODS)
def test_a_method_of_an_object_that_reads_more_than_the_object_is_a_reason(name):
    fn, told = IMPURE_METHODS[name]
    assert told in discover_guards(fn).reason


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x * moment.year * (moment - user_moment).total_seconds() + day.weekday(),
        lambda x: x * len(f"{day} {moment}") * (moment.replace(tzinfo=zone).utcoffset().days + 1),
        lambda x: x * normal.mean * user_normal.cdf(0.5) * user_path.name.count("."),
        lambda x: x * (Dates.FIRST.value < day) * zone.key.count("U") * dated.when.hour,
        lambda x: x * len(re.compile(r"\w").findall("ab")) * int(numpy_moment.astype(int)),
    ],
    ids=["dates", "texts", "subclasses", "enumerations", "patterns"],
)
def test_a_method_that_depends_on_its_object_alone_can_be_guarded(fn):
    assert discover_guards(fn).reason is None


IMPURE_ATTRIBUTES = {
    datetime.date: {"today", "fromtimestamp", "strftime", "__format__"},
    datetime.time: {"strftime", "__format__"},
    datetime.datetime: {
        *("now", "utcnow", "timestamp", "astimezone", "strptime"),
        *("today", "fromtimestamp", "strftime", "__format__"),
    },
    datetime.timedelta: set(),
    datetime.timezone: set(),
    zoneinfo.ZoneInfo: {"no_cache", "clear_cache", "from_file"},
    statistics.NormalDist: {"samples"},
    np.float64: set(),
    np.datetime64: set(),
    np.dtype: set(),
}


@pytest.mark.parametrize("kind", IMPURE_ATTRIBUTES, ids=lambda kind: kind.__name__)
def test_the_impure_attributes_of_immutable_classes_are_these(kind):
    found = {
        name
        for name in effects.impure_attributes(kind)
        if not name.startswith("_") or name == "__format__"
    }
    later = {"strptime"} if sys.version_info >= (3, 14) else set()  # of dates and times too
    assert IMPURE_ATTRIBUTES[kind] <= found <= IMPURE_ATTRIBUTES[kind] | later


@pytest.mark.parametrize("as_argument", [False, True], ids=["captured", "argument"])
def test_a_compiled_function_reads_the_clock_at_each_call_by_way_of_an_object(as_argument):
    compiled = od.compile(lambda x, when=moment: x * when.now().timestamp())
    seen = []
    for _ in range(5):
        seen.append(float(compiled(X, moment)[0] if as_argument else compiled(X)[0]))
        time.sleep(1e-3)
    assert seen == sorted(set(seen))


def test_what_a_trial_changed_is_told_before_it_is_put_back():
    history, net = [], Net()
    total = 0

    def step(x):
        nonlocal total
        total += 1
        history.append(x)
        net.scale = 5.0
        return x

    for undone, told in [(step, "total"), (net.parts.append, "list")]:
        around, guards = Snapshot(undone), discover_guards(undone)
        assert around.describe_change() is None
        assert guards.describe_change() is None
        undone(1)
        assert told in around.describe_change()
        assert guards.describe_change() is not None
        around.restore()
        assert around.describe_change() is None
        assert guards.refresh()


def test_what_equals_what_was_there_is_a_change_of_a_trial_all_the_same():
    members, table = {2}, np.ones((2, 1))

    def step(x):
        return x * len(str(max(members))) * table

    around = Snapshot(step)
    members.clear()
    members.add(2.0)
    assert "members" in around.describe_change()
    around = Snapshot(step)
    with warnings.catch_warnings(action="ignore"):  # a newer NumPy warns of it
        table.shape = (1, 2)
    assert "table" in around.describe_change()


def test_why_there_is_no_trial_is_told():
    assert "count" in Snapshot(lambda: next(counted)).refusal
    assert "tape" in Snapshot(GradientTape()).refusal
    assert "lock" in Snapshot(lambda: lock).refusal
    assert Snapshot(lambda: X, Pair([], 1.0)).refusal is None


class Trainer:
    """What somebody's class may be, most of which its step does not ask for."""

    def __init__(self):
        self.net = Net()
        self.batches = iter([X])
        self.lock = threading.Lock()
        self.history, self.epoch = [], 0

    def fit(self):
        with self.lock:
            self.history.append(self.step(next(self.batches)))
            self.epoch += 1
            print(self.history)

    def step(self, x):
        return self.net.forward(x)


def test_what_the_code_does_not_name_neither_hinders_a_trial_nor_a_program():
    trainer = Trainer()
    del trainer.lock  # whoever shares something with threads is left alone
    around = Snapshot(trainer.step, (X,))
    assert around.refusal is None
    assert around.guards.reason is None
    trainer.history.append(1.0)
    trainer.epoch += 1
    trainer.best = 2.0
    assert around.guards.holds()
    trainer.net.scale = 5.0
    assert not around.guards.holds()
    assert around.guards.describe_change() == "step.__self__.net.scale: 3.0 -> 5.0"
    assert Snapshot(trainer.fit).refusal is not None
    assert Snapshot(Trainer().step, (X,)).refusal is not None


def test_what_an_object_that_is_passed_holds_is_watched_and_batches_are_not():
    net, batch = Net(), {"x": X.copy(), "n": 3}
    around = Snapshot(lambda net, batch: net.forward(batch["x"]), (net, batch), {})
    assert around.guards.reason is None
    batch["x"] += 1.0
    batch["n"] = 4
    assert around.guards.holds()
    net.scale = 5.0
    assert not around.guards.holds()


def test_a_module_of_a_user_that_is_called_as_one_of_pythons_is_looked_into(tmp_path, monkeypatch):
    (tmp_path / "graphlib.py").write_text("scale = [2.0]\ndef f(x):\n    return x * scale[0]\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "graphlib", raising=False)
    effects.is_standard_library.cache_clear()
    import graphlib

    guards = discover_guards(lambda x: graphlib.f(x))
    assert guards.reason is None
    assert guards.holds()
    graphlib.scale[0] = 3.0
    assert not guards.holds()
    effects.is_standard_library.cache_clear()
    monkeypatch.delitem(sys.modules, "graphlib")

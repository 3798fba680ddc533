"""Hostile calls: what a stranger might hand in, which errors may come out, and what must stay.

``storm`` makes calls of the public API at random, from a seed: a plausible call, of which a few
arguments are replaced by hostile ones. Allowed is an answer, one of odyssey's errors, Python's
complaint about the form of the call, MemoryError, NumPy's wrapper round one of ours, and what the
hostile objects themselves and functions of users raise. Afterwards no scope is entered, no array is
locked, and no array of the caller has changed.
"""

import datetime
import decimal
import fractions
import gc
import os
import re
import traceback
import types
import warnings
from collections import Counter, OrderedDict, defaultdict, namedtuple
from functools import partial

import numpy as np

import odyssey
from odyssey import GradientTape, Variable
from odyssey.checks import format_value
from odyssey.devices.array_locks import locked_bytes
from odyssey.errors import OdysseyError
from odyssey.table.scope import scopes

HERE = os.path.dirname(odyssey.__file__) + os.sep
TESTS = os.path.dirname(os.path.dirname(__file__)) + os.sep
Point = namedtuple("Point", "x y")


class HostileError(Exception):
    """What hostile objects raise: their own error, which nobody has to rename."""


def _refuse(self, *args, **named):
    raise HostileError


def _class_with(*names):
    return type("Broken" + names[0].strip("_").title(), (), dict.fromkeys(names, _refuse))


BROKEN = [
    _class_with("__array__"),
    _class_with("__len__", "__getitem__"),
    _class_with("__eq__", "__hash__"),
    _class_with("__bool__"),
    _class_with("__repr__", "__str__"),
    _class_with("__index__", "__int__", "__float__"),
    _class_with("__iter__"),
    _class_with("__getattr__"),
]


def _self_holding():
    nest = [1.0]
    nest.append(nest)
    return nest


def _self_holding_dict():
    nest = {"w": 1.0}
    nest["me"] = nest
    return nest


def _deep(kind=list):
    nest = 1.0
    for _ in range(5000):
        nest = kind([nest])
    return nest


def _read_only():
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    return array


def _untracked():
    return Variable([1.0, 2.0], True) * 2.0


def _of_another_tape():
    tape = GradientTape()
    tape.enable()
    value = tape.watch(np.ones(2)) * 2.0
    tape.disable()
    return value


def _consumed():
    tape = GradientTape()
    w = Variable([1.0, 2.0], True)
    with tape:
        y = (w * w).sum()
    tape.backward(y)
    return tape


def _spent_value():
    w = Variable([1.0, 2.0], True)
    with GradientTape() as tape:
        y = w * w
    tape.gradient(y, w, np.ones(2))
    return y


STRUCTURED = np.dtype([("a", np.float64), ("b", np.int64)])

PLAIN = [
    None, True, False, Ellipsis, NotImplemented, 0, 1, 2, 3, -1, -2, -3, 7, 10**30, -(10**30),
    2**62, 2**63, -(2**63), 10**400, 10**5000, 0.0, -0.0, 0.5, 1.0, -1.0, 2.5, 1e-320, 1e308,
    float("nan"), float("inf"), -float("inf"), 1j, complex("nan"), "", "no", "false", "mean",
    "1.0", "x", "é\n<script>alert(1)</script>", "a" * 10000, "\x00", b"", b"bytes", (), (0, 0),
    (-1,), (1, 2, 3), ("a",), (None, None), (0.5, 0.5), (2**62, 2**62), slice(None),
    slice("a", "b"), range(3), frozenset({1}), int, float, np.float32, np.float16, object, list,
    "float32", "U5", "datetime64[s]", np, os, len, np.sin, lambda: None, lambda *a, **k: a,
    fractions.Fraction(1, 3), decimal.Decimal("1.5"), decimal.Decimal("nan"), np.float64("nan"),
    datetime.datetime(2020, 1, 1), np.int8(3), np.uint64(2**63), np.bool_(True), np.str_("s"),
    np.datetime64("2020-01-01"), np.timedelta64(3, "s"), types.SimpleNamespace(), Variable,
    odyssey.ops, odyssey.ops.add, odyssey.ops.OPS["add"], odyssey.errors.ShapeError("mine"),
    np.random, *BROKEN,
]  # fmt: skip

# Each makes a fresh one, so that no call meets what another left.
MAKERS = [
    *[partial(lambda value: value, value) for value in PLAIN],
    *BROKEN,
    list, dict, set, object, bytearray, lambda: [None], lambda: [[1.0], [1.0, 2.0]],
    lambda: {"w": np.ones(2)}, lambda: {1, 2}, lambda: {"w": {"b": [None, "s"]}},
    lambda: [np.ones(2), np.ones(3)], lambda: ["a", "b"], lambda: [1.0, 2.0], lambda: [0, 1],
    lambda: OrderedDict(w=np.ones(2)), lambda: defaultdict(list, w=np.ones(2)),
    lambda: Counter("abc"), lambda: Point(np.ones(2), 3.0), lambda: memoryview(b"abc"),
    lambda: (x for x in (1.0, 2.0)), lambda: iter([1.0, 2.0]), lambda: map(abs, [1.0, -1.0]),
    _self_holding, _self_holding_dict, _deep, lambda: _deep(tuple), lambda: {"w": _deep()},
    lambda: np.array(1.0), lambda: np.array(3), lambda: np.ones(2), lambda: np.ones((2, 3)),
    lambda: np.arange(4), lambda: np.arange(-2, 2), lambda: np.array([True, False]),
    lambda: np.empty(0), lambda: np.empty((0, 3)), lambda: np.empty((3, 0)),
    lambda: np.empty(0, int), lambda: np.array([np.nan, np.inf]), lambda: np.array([1j, 2.0]),
    lambda: np.ones(2, np.float16), lambda: np.ones((2, 2), np.float32),
    lambda: np.ones((1,) * 60), lambda: np.ones(2, np.longdouble), lambda: np.zeros(2, STRUCTURED),
    lambda: np.array([None, "x"], object), lambda: np.array([1.0, 2.0], object),
    lambda: np.array(["a", "b"]), lambda: np.array([b"a"]), lambda: np.matrix([[1.0, 2.0]]),
    lambda: np.array(["2020-01-01"], "datetime64[D]"), lambda: np.array([1], "timedelta64[s]"),
    lambda: np.ma.masked_array([1.0, 2.0], [True, False]), lambda: np.rec.array([(1, 2.0)]),
    lambda: np.broadcast_to(np.ones(1), (4, 5)), lambda: np.arange(6.0)[::-2], _read_only,
    lambda: np.ones(3, ">f8"), lambda: np.ones(2)[..., None].T, lambda: Variable(1.0, True),
    lambda: Variable(np.ones(2), True), lambda: Variable(np.ones((2, 3))), GradientTape,
    lambda: Variable(np.arange(3)), lambda: Variable(1 + 1j, True), _untracked, _of_another_tape,
    _spent_value, _consumed, lambda: np.random.default_rng(0),
    lambda: odyssey.optim.SGD([Variable(1.0, True)], 0.1),
]  # fmt: skip


def hostile(rng):
    """One hostile argument."""
    return MAKERS[rng.integers(len(MAKERS))]()


# ------------------------------------------------------------------ what may come out


def fault(error):
    """What is wrong with an error that a call raised: its type and our innermost line, or None."""
    if isinstance(error, (OdysseyError, MemoryError, HostileError, np.ma.MAError)):
        return None
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:
        # Of Python's call, or of a ufunc that reads its keywords before it asks us.
        fits = isinstance(error, (TypeError, ValueError))
        return None if fits else f"{type(error).__name__} at the call"
    wrapped = error.__cause__
    if isinstance(error, (TypeError, ValueError)) and isinstance(
        wrapped, (OdysseyError, HostileError)
    ):
        return None
    if isinstance(error, AssertionError) and "check_gradients" in str(error):
        return None
    ours = [frame for frame in frames if frame.filename.startswith((HERE, TESTS))]
    if not ours or not ours[-1].filename.startswith(HERE):
        return None  # it comes out of a function of a user, or out of NumPy alone
    last = ours[-1]
    if re.search(r"\b_*(fn|forward|backward|__wrapped__|transform)\(", last.line or ""):
        return None  # it comes out of a function of a user that is written in C
    where = last.filename.removeprefix(HERE)
    return f"{type(error).__name__} in {where}:{last.lineno} ({last.name}): {_line(error)}"


def _line(error):
    try:
        return str(error)[:90].replace("\n", " ")
    except Exception:
        return "?"


class Watched:
    """Arrays that a call is given, and how they looked before."""

    def __init__(self, values):
        self.arrays = [a for a in _arrays(values) if a.nbytes < 10000 and a.dtype.kind in "biufc"]
        self.before = [(a.tobytes(), a.flags.writeable) for a in self.arrays]

    def changes(self):
        """What is different now."""
        found = []
        for array, (data, writable) in zip(self.arrays, self.before, strict=True):
            if array.tobytes() != data:
                found.append("an array of the caller changed")
            if array.flags.writeable != writable:
                found.append("an array of the caller is left locked")
        return found


def _arrays(values):
    for value in values:
        if type(value) is np.ndarray:
            yield value
        elif type(value) in (list, tuple) and len(value) < 4:
            yield from (v for v in value if type(v) is np.ndarray)


# ------------------------------------------------------------------ the calls


def mixed(rng, args, named, extra=()):
    """A plausible call with some arguments made hostile, left out or added."""
    args, named = list(args), dict(named)
    for k in range(len(args)):
        if rng.random() < 0.3:
            args[k] = hostile(rng)
    for name in (*named, *extra):
        chance = rng.random()
        if chance < 0.35:
            named[name] = hostile(rng)
        elif chance < 0.4:
            named.pop(name, None)
    chance = rng.random()
    if chance < 0.03:
        args.append(hostile(rng))
    elif chance < 0.06 and args:
        args.pop()
    elif chance < 0.07:
        named[str(rng.choice(["dim", "x", "self", "out", "tape", "name"]))] = hostile(rng)
    return args, named


def called(door, rng):
    """Make one call through ``door``; return what was wrong with it, and what was passed."""
    found = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        call, args, named, writes = door(rng)
        watched = Watched([] if writes else (*args, *named.values()))
        try:
            call(*args, **named)
        except Exception as error:
            wrong = fault(error)
            found += [wrong] if wrong else []
    if scopes() != (None,):
        found.append(f"a scope is left: {scopes()}")
    call = None
    if locked_bytes():
        found.append("an array is left locked")
    return found + watched.changes(), args, named


def storm(doors, count, seed):
    """Make ``count`` calls through doors at random; return what was wrong, with the first call."""
    gc.collect()  # else what earlier tests left may die where a call has taken all of the stack
    rng = np.random.default_rng(seed)
    names = list(doors)
    faults = {}
    for k in range(count):
        name = names[rng.integers(len(names))]
        found, args, named = called(doors[name], rng)
        for wrong in found:
            if wrong not in faults:
                faults[wrong] = (
                    f"{wrong}; call {k}, {name}(*{format_value(args)}, **{format_value(named)})"
                )
    return list(faults.values())

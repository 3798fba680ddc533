"""Memory guards see each change of what a function reads of Python, in native dispatch."""

import gc
import random
import subprocess
import sys
import types
import weakref

import numpy as np
import pytest
from test_guards import CHANGES, CLASSES, OfClass, of
from test_guards_random_changes import change, function, put_back, tree

import odyssey as od
from odyssey.compiler.dispatch.fast_path import CACHE_MISS
from odyssey.compiler.machine.addresses import read_word
from odyssey.compiler.native_dispatch import NATIVE_DISPATCH, cpython_layout

# Ordinary runs take one case in fourteen, and soaks the others.
pytestmark = [
    pytest.mark.share(14),
    pytest.mark.skipif(not NATIVE_DISPATCH, reason="ODYSSEY_NATIVE_DISPATCH=off"),
]

X = np.array([3.0, 4.0])


def settled(fn, *args):
    compiled = od.compile(fn)
    for _ in range(4):
        compiled(*args)
    return compiled


def is_direct(compiled, *args):
    return compiled._fast_path(*args) is not CACHE_MISS


def program_of(compiled):
    ((case),) = compiled._known.values()
    return case.programs[0][1]


def asks_python(compiled):
    return program_of(compiled).guards.native_guards()[1] is not None


def outcome(fn, *args):
    try:
        return repr(fn(*args))
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("name", CHANGES)
def test_a_direct_call_sees_what_changes(name):
    make, act, change = CHANGES[name]
    thing = make()
    compiled = settled(of(thing, act), X)
    assert is_direct(compiled, X)
    change(thing)
    assert not is_direct(compiled, X)
    assert outcome(compiled, X) == outcome(act, thing, X)


@pytest.mark.parametrize("name", CLASSES)
def test_a_direct_call_sees_what_is_done_to_classes(name):
    base = type("Base", (OfClass,), {"table": {"a": 1.0}, "part": OfClass.part})
    thing = type("Derived", (base,), {})()
    thing.own = 1.0
    fn = lambda x: thing.run(x) + thing.own  # noqa: E731
    compiled = settled(fn, X)
    assert is_direct(compiled, X)
    CLASSES[name](type(thing))
    assert outcome(compiled, X) == outcome(fn, X)


def run(seed):
    """Change what a random function reads; return whether a direct call came to something else."""
    rng = random.Random(seed)
    root, things, text = tree(rng, rng.randrange(4))
    fn = function(root, text, rng.choice(["global", "cell", "default"]))
    before = outcome(fn, X)
    compiled = od.compile(fn)
    if [outcome(compiled, X) for _ in range(4)] != [before] * 4 or not is_direct(compiled, X):
        return False
    other = False
    for _ in range(6):
        if things:
            try:
                change(rng.choice(things), rng)
            except Exception:  # what cannot be done to such a thing
                continue
        wanted = outcome(fn, X)
        assert outcome(compiled, X) == wanted, text
        other |= wanted != before
    return other


@pytest.mark.slow
def test_direct_calls_of_random_functions_see_random_changes():
    changed = 0
    for seed in range(120):
        try:
            changed += run(seed)
        finally:
            put_back()
    assert changed > 20


# ------------------------------------------------------------------ one place, changed in each way


def space_of(text, **names):
    """A module of a user's, with a function in it."""
    space = types.ModuleType("module_of_a_user")
    vars(space).update(names)
    exec(text, vars(space))
    return space


GLOBAL = "def fn(x):\n    return x * scale\n"


def grown(space):
    vars(space).update({f"name{k}": k for k in range(1000)})


def shrunk(space):
    grown(space)
    for k in range(1000):
        del vars(space)[f"name{k}"]
    vars(space).update(more=1)


def added_again(space):
    del space.scale
    space.other = 1.0
    space.scale = 5.0


def emptied(space):
    old = dict(vars(space))
    vars(space).clear()
    vars(space).update(reversed([*old.items()]))


SPACES = {
    "value replaced": lambda s: setattr(s, "scale", 5.0),
    "equal value": lambda s: setattr(s, "scale", float("2.0")),
    "deleted": lambda s: delattr(s, "scale"),
    "deleted and added again": added_again,
    "grown": grown,
    "grown and replaced": lambda s: (grown(s), setattr(s, "scale", 5.0)),
    "shrunk": shrunk,
    "shrunk and replaced": lambda s: (shrunk(s), setattr(s, "scale", 5.0)),
    "emptied and filled": emptied,
    "emptied and filled with another": lambda s: (emptied(s), setattr(s, "scale", 5.0)),
    "cleared": lambda s: vars(s).clear(),
    "a name of Python's": lambda s: setattr(s, "float", lambda x: 7.0),
    "by its own code": lambda s: exec("scale = 6.0", vars(s)),
    "by code that is hot": lambda s: exec("for scale in range(1000): pass", vars(s)),
    "by a function that is hot": lambda s: (
        exec("def put(v):\n    global scale\n    scale = v\n", vars(s)),
        [s.put(k) for k in range(100)],
    ),
}


@pytest.mark.parametrize("name", SPACES)
def test_a_name_of_a_module_is_what_it_is_now(name):
    space = space_of("def fn(x):\n    return x * float(scale)\n", scale=2.0)
    fn = space.fn
    compiled = settled(fn, X)
    assert is_direct(compiled, X)
    assert not asks_python(compiled)
    SPACES[name](space)
    for _ in range(4):
        assert outcome(compiled, X) == outcome(fn, X)
    if outcome(fn, X) == repr(X * 2.0):
        assert is_direct(compiled, X)
        space.scale = 3.0
        assert outcome(compiled, X) == repr(X * 3.0)


class Plain:
    def __init__(self):
        self.scale, self.other = 2.0, 1.0

    def fn(self, x):
        return x * self.scale


class Slotted(Plain):
    __slots__ = ("own", "scaled")

    def __init__(self):
        super().__init__()
        self.scaled = 2.0

    def fn(self, x):
        return x * self.scaled


class Swapped(Plain):
    def fn(self, x):
        return x * 9.0


def hot(thing):
    for k in range(100):
        thing.scale = float(k)


OBJECTS = {
    "value replaced": lambda p: setattr(p, "scale", 5.0),
    "deleted": lambda p: delattr(p, "scale"),
    "deleted and added again": lambda p: (delattr(p, "scale"), setattr(p, "scale", 5.0)),
    "others added": lambda p: [setattr(p, f"name{k}", k) for k in range(100)],
    "others added, and replaced": lambda p: (
        [setattr(p, f"name{k}", k) for k in range(100)],
        setattr(p, "scale", 5.0),
    ),
    "by its dictionary": lambda p: p.__dict__.update(scale=5.0),
    "another dictionary": lambda p: setattr(p, "__dict__", {"scale": 5.0}),
    "the same in another dictionary": lambda p: setattr(p, "__dict__", dict(p.__dict__)),
    "emptied": lambda p: p.__dict__.clear(),
    "another class": lambda p: setattr(p, "__class__", Swapped),
    "a function of its own": lambda p: setattr(p, "fn", lambda x: x * 8.0),
    "by code that is hot": hot,
}


@pytest.mark.parametrize("name", OBJECTS)
def test_an_attribute_of_an_object_is_what_it_is_now(name):
    thing = Plain()
    fn = lambda x: thing.fn(x)  # noqa: E731
    compiled = settled(fn, X)
    assert is_direct(compiled, X)
    OBJECTS[name](thing)
    for _ in range(4):
        assert outcome(compiled, X) == outcome(fn, X)


def test_a_slot_is_what_it_is_now():
    thing = Slotted()
    fn = lambda x: thing.fn(x)  # noqa: E731
    compiled = settled(fn, X)
    assert is_direct(compiled, X)
    thing.scaled = 4.0
    assert outcome(compiled, X) == repr(X * 4.0)
    del thing.scaled
    assert outcome(compiled, X) == outcome(fn, X)
    thing.scaled = 2.0
    assert outcome(compiled, X) == repr(X * 2.0)


class Shadowing(Slotted):
    """Has two slots of one name."""

    __slots__ = ("scaled",)

    def fn(self, x):
        return x * self.scaled + super().scaled


def test_each_of_two_slots_of_one_name_is_what_it_is_now():
    thing = Shadowing()
    thing.scaled = 2.0
    Slotted.scaled.__set__(thing, 10.0)
    fn = lambda x: thing.fn(x)  # noqa: E731
    compiled = settled(fn, X)
    assert outcome(compiled, X) == repr(X * 2.0 + 10.0)
    thing.scaled = 4.0
    assert outcome(compiled, X) == repr(X * 4.0 + 10.0)
    Slotted.scaled.__set__(thing, 20.0)
    assert outcome(compiled, X) == repr(X * 4.0 + 20.0)


def in_cell(value):
    def fn(x):
        return x * value

    def rebind(new):
        nonlocal value
        value = new

    def empty():
        nonlocal value
        del value

    return fn, rebind, empty


def test_a_cell_is_what_it_is_now():
    fn, rebind, empty = in_cell(2.0)
    compiled = settled(fn, X)
    assert is_direct(compiled, X)
    empty()
    assert not is_direct(compiled, X)
    assert outcome(compiled, X) == outcome(fn, X)
    rebind(3.0)
    assert outcome(compiled, X) == repr(X * 3.0)
    rebind(2.0)
    assert outcome(compiled, X) == repr(X * 2.0)


LISTS = {
    "replaced": lambda v: v.__setitem__(1, 5.0),
    "swapped": lambda v: v.reverse(),
    "grown": lambda v: v.extend(range(1000)),
    "grown and shrunk": lambda v: (v.extend(range(1000)), v.__delitem__(slice(3, None))),
    "emptied and filled": lambda v: (v.clear(), v.extend([7.0, 8.0, 9.0])),
    "sorted": lambda v: v.sort(reverse=True),
    "one less": lambda v: v.pop(),
}


@pytest.mark.parametrize("name", LISTS)
def test_an_item_of_a_list_is_what_it_is_now(name):
    values = [2.0, 3.0, 4.0]
    fn = lambda x: x * values[0] + values[1] - values[2]  # noqa: E731
    compiled = settled(fn, X)
    assert is_direct(compiled, X)
    assert not asks_python(compiled)
    LISTS[name](values)
    for _ in range(4):
        assert outcome(compiled, X) == outcome(fn, X)


FUNCTIONS = {
    "code": lambda f: setattr(f, "__code__", (lambda x, a=1.0, *, b=1.0: x - a - b).__code__),
    "defaults": lambda f: setattr(f, "__defaults__", (5.0,)),
    "no defaults": lambda f: setattr(f, "__defaults__", None),
    "defaults of keywords": lambda f: setattr(f, "__kwdefaults__", {"b": 9.0}),
    "an item of these": lambda f: f.__kwdefaults__.update(b=9.0),
    "no defaults of keywords": lambda f: setattr(f, "__kwdefaults__", None),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_what_it_is_now(name):
    def called(x, a=2.0, *, b=3.0):
        return x * a + b

    fn = lambda x: called(x)  # noqa: E731
    compiled = settled(fn, X)
    assert is_direct(compiled, X)
    FUNCTIONS[name](called)
    for _ in range(4):
        assert outcome(compiled, X) == outcome(fn, X)


# ------------------------------------------------------------------ what may change


def test_names_that_change_all_the_time_cost_no_call_in_python():
    space = space_of(GLOBAL, scale=2.0)
    compiled = settled(space.fn, X)
    for k in range(100):
        space.loss = k
        space.number = float(k)
        assert is_direct(compiled, X)


def test_a_number_that_is_bound_anew_to_an_equal_one_is_asked_about_in_python_in_the_end():
    space = space_of(GLOBAL, scale=2.0)
    compiled = settled(space.fn, X)
    for _ in range(20):
        space.scale = float("2.0")
        assert outcome(compiled, X) == repr(X * 2.0)
    assert asks_python(compiled)
    space.scale = 4.0
    assert outcome(compiled, X) == repr(X * 4.0)
    assert compiled.statistics().programs == 2


def test_errors_that_are_told_of_anew_each_time_are_looked_at_again():
    compiled = settled(lambda x: x * 2.0, X)
    for _ in range(20):
        with np.errstate(all="ignore"):
            assert outcome(compiled, X) == repr(X * 2.0)
            assert is_direct(compiled, X)
    assert compiled.statistics().written == 1


def test_a_rate_that_is_new_in_each_step_makes_no_new_program():
    w = od.Variable(np.array([1.0, 2.0]), requires_grad=True)
    optimizer = od.optim.SGD([w], 0.1)

    def step(x):
        with od.GradientTape() as tape:
            loss = od.ops.sum(w * x)
        tape.backward(loss)
        optimizer.step()
        optimizer.zero_grad()

    compiled, wanted = settled(step, X), w.numpy() * 1.0
    for k in range(50):
        optimizer.learning_rate = 0.5**k
        compiled(X)
        wanted = wanted - 0.5**k * X
        np.testing.assert_allclose(w.numpy(), wanted, rtol=1e-13)
    before = program_of(compiled).native._predicate
    compiled(X)
    assert is_direct(compiled, X)
    assert program_of(compiled).native._predicate is before
    assert compiled.statistics()[::2] == (1, 1)


def test_what_guards_look_at_is_held_no_longer_than_the_program():
    class Held(float):
        pass

    space = space_of(GLOBAL, scale=2.0)
    thing, values = Plain(), [Held(2.0)]
    space.thing, space.values = thing, values
    exec("def fn(x):\n    return x * scale * thing.scale * values[0]", vars(space))
    compiled = settled(space.fn, X)
    gone = [weakref.ref(one) for one in (thing, values[0], space.fn)]
    compiled.clear_cache()
    del thing, values, space, compiled
    gc.collect()
    assert [one() for one in gone] == [None] * 3


def test_values_that_are_dropped_are_let_go_at_the_next_call_that_looks_anew():
    class Scale:
        scale = 2.0

    space = space_of("def fn(x):\n    return x * thing.scale\n", thing=Scale())
    compiled = settled(space.fn, X)
    gone = weakref.ref(space.thing)
    del space.thing
    space.thing = types.SimpleNamespace(scale=3.0)
    for _ in range(4):
        assert outcome(compiled, X) == repr(X * 3.0)
    compiled.clear_cache()
    gc.collect()
    assert gone() is None


def test_a_key_that_equals_any_other_may_do_what_it_likes():
    space = space_of(GLOBAL, scale=2.0)
    compiled = settled(space.fn, X)
    rebound = []

    class Sly(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            if len(rebound) < 3:
                rebound.append(1)
                space.scale = float(len(rebound))
                compiled(X)
            return str.__eq__(self, other)

    old = dict(vars(space))
    vars(space).clear()
    vars(space)[Sly("scale")] = 7.0
    vars(space).update((k, v) for k, v in old.items() if k != "scale")
    for _ in range(6):
        assert outcome(compiled, X) == outcome(space.fn, X)


def test_versions_of_dictionaries_are_known_where_python_has_them():
    assert (cpython_layout.dict_version_offset() is not None) is (sys.version_info < (3, 13))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["code", "items"])
def test_no_change_of_a_dictionary_keeps_its_version(way):
    place = cpython_layout.dict_version_offset()
    if place is None:
        pytest.skip("this Python has no versions of dictionaries")
    thing = Plain()
    rooms = [thing.__dict__, {}, {k: k for k in range(100)}, vars(space_of(GLOBAL, scale=1.0))]
    rng, seen = random.Random(0), set()
    for room in rooms:
        for k in range(3000):
            before, version = dict(room), read_word(id(room) + place)
            order = [*room]
            key = rng.choice([*room, f"new{k}"])
            if way == "items":
                change = rng.choice(
                    [
                        lambda r, k: r.__setitem__(k, object()),
                        lambda r, k: r.pop(k, None),
                        lambda r, k: r.update({k: object(), "other": 1}),
                        lambda r, k: r.setdefault(k, object()),
                        lambda r, k: r and r.popitem(),
                        lambda r, k: r.__ior__({k: object()}),
                        lambda r, k: rng.random() < 0.01 and r.clear(),
                    ]
                )
                change(room, key)
            elif room is thing.__dict__:
                thing.scale = object()
                if k % 7 == 0:
                    setattr(thing, f"new{k}", k)
                if k % 11 == 0:
                    del thing.scale
            else:
                exec(f"a = {k}\nif {k} % 7 == 0: new{k} = 1\nif {k} % 11 == 0: del a", room)
            now = read_word(id(room) + place)
            same = order == [*room] and all(room[key] is before[key] for key in order)
            if not same:
                assert now != version
                assert now not in seen
            seen.add(now)


def test_elements_that_are_gone_are_another_thing():
    rows = [[np.array([1.0, 2.0])]]
    fn = lambda x: x * rows[0][0]  # noqa: E731
    compiled = settled(fn, X)
    rows[0][0][0] = 5.0  # the place that is asked first, the next time
    assert outcome(compiled, X) == outcome(fn, X)
    rows[0].clear()
    assert outcome(compiled, X) == outcome(fn, X)


UNUSED = """
import sys
import numpy as np
import odyssey as od

def fn(x, deep=False):
    if deep:
        x = od.ops.max_pool2d(od.nn.conv2d(x, x), window=2)
    return od.ops.tanh(x)

before = {name for name in sys.modules if name.startswith("odyssey.nn.")}
compiled = od.compile(fn)
for _ in range(3):
    compiled(np.ones(3))
assert compiled.statistics().native == 2
print(sorted({name for name in sys.modules if name.startswith("odyssey.nn.")} - before))
"""


@pytest.mark.slow
def test_ops_that_code_names_and_does_not_call_are_not_loaded():
    done = subprocess.run(
        [sys.executable, "-c", UNUSED], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"

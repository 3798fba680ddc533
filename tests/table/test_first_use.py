"""A family of ops loads when it is first used, by whatever door, and all of it or nothing."""

import ast
import importlib
import os
import pickle
import shutil
import subprocess
import sys
from operator import attrgetter
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey.ops import COMPOSITES, OPS
from odyssey.table import index, registry

ROOT = Path(__file__).resolve().parents[2]

HEAD = """
import sys
import numpy as np
import odyssey as od
from odyssey.table import registry

def loaded(family):
    return f"odyssey.{family}" in sys.modules

v = od.Variable([0.5, 2.0], requires_grad=True)
"""


def run(program):
    """Run a program in a process of its own, where nothing was used yet."""
    paths = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", HEAD + program],
        env=paths, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_loads_what_operators_need_and_no_more():
    families = ast.literal_eval(run("print(sorted(registry._LOADED))"))
    rooms = {family.split(".")[1] for family in families}
    assert rooms == {"ops", "linalg"}
    assert len(families) < len(registry.OP_MODULES) / 2
    assert "odyssey.ops.elementwise.arithmetic" in families


DOORS = {
    "an attribute of ops": ("od.ops.gelu", "nn.activations.smooth"),
    "an attribute of its room": ("od.nn.gelu", "nn.activations.smooth"),
    "an import from ops": ("exec('from odyssey.ops import gelu')", "nn.activations.smooth"),
    "an import of all of a room": ("exec('from odyssey.special import *')", "special.entropies"),
    "another name": ("od.ops.swish", "nn.activations.smooth"),
    "a row": ("od.ops.OPS['gelu']", "nn.activations.smooth"),
    "a composite": ("od.ops.COMPOSITES['interp']", "ops.reductions.interpolation"),
    "the number of rows": ("len(od.ops.OPS)", "nn.activations.smooth"),
    "a backward function": ("od.backward.gelu", "nn.activations.smooth"),
    "a backward function of another name": ("od.backward.swish", "nn.activations.smooth"),
    "the table of backward functions": ("od.backward.TABLE['gelu']", "nn.activations.smooth"),
    "a method": ("v.cumprod()", "ops.reductions.cumulative"),
    "a function of NumPy": ("np.sinc(v)", "ops.elementwise.trigonometry"),
    "a ufunc of NumPy": ("np.arctan(v)", "ops.elementwise.trigonometry"),
    "a fold of NumPy": ("np.cumprod(v, axis=0)", "ops.reductions.cumulative"),
    "a loss": ("od.losses.huber", "losses.regression"),
    "a loss of the package": ("od.cross_entropy", "losses.classification"),
    "what is said of an op": (
        "__import__('odyssey.describe').describe.find('gelu')",
        "nn.linear_layers",
    ),
    "a transform": ("od.grad", "transforms.reverse"),
    "an import of a transform": ("exec('from odyssey import grad')", "transforms.reverse"),
    "all of the package": ("exec('from odyssey import *')", "transforms.reverse"),
    "compile": ("od.compile", "compiler.compiled_function"),
    "the room of the compiler": ("od.compiler", "compiler.compiled_function"),
    "a size of the compiler": ("od.Dim", "compiler.compiled_function"),
    "saving": ("od.save", "saving"),
    "a generator": ("od.Generator", "ops.random.generator"),
    "an optimizer": ("od.optim.SGD", "optim.sgd"),
    "an import of an optimizer": ("exec('from odyssey.optim import SGD')", "optim.sgd"),
    "an objective": ("od.optim.scipy_objective", "objective"),
    "an import of it": ("exec('from odyssey.optim import scipy_objective')", "objective"),
    "a pickle": ("__import__('pickle').loads(PICKLE)", "nn.activations.smooth"),
}


@pytest.fixture(scope="module")
def doors():
    """For each door whether the family was loaded before, and after: each in a fork of one."""
    program = """
import os
for name, (door, family) in DOORS.items():
    child = os.fork()
    if child == 0:
        before = loaded(family)
        eval(door)
        print([name, before, loaded(family)], flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
    if not hasattr(os, "fork"):
        pytest.skip("needs os.fork")
    known = f"DOORS, PICKLE = {DOORS!r}, {pickle.dumps(od.nn.gelu)!r}"
    answers = map(ast.literal_eval, run(known + program).splitlines())
    return {name: (before, after) for name, before, after in answers}


@pytest.mark.parametrize("door", DOORS)
def test_a_family_is_loaded_by_its_first_use_and_not_before(doors, door):
    assert doors[door] == (False, True)


def test_the_import_loads_neither_compiler_nor_optimizers_nor_transforms():
    rooms = "compiler", "graph", "objective", "optim", "saving", "testing", "transforms"
    run(f"assert not any(map(loaded, {rooms}))")


def test_each_name_of_the_package_is_what_its_room_has():
    run("""
assert set(od.__all__) <= set(dir(od))
for name in od.__all__:
    assert getattr(od, name) is vars(od)[name], name
from odyssey import compiler, objective, optim, saving, transforms
for room in (compiler, saving, transforms):
    for name in set(room.__all__) & set(od.__all__):
        assert getattr(od, name) is getattr(room, name), name
    assert room is compiler or set(room.__all__) <= set(od.__all__)
assert optim.scipy_objective is objective.scipy_objective
assert "scipy_objective" in dir(optim)
""")


def test_a_ufunc_of_scipy_loads_its_op():
    pytest.importorskip("scipy")
    run("""
from scipy import special
assert not loaded("special.error_functions")
assert isinstance(special.erf(v), od.Variable)
assert loaded("special.error_functions")
""")


def test_a_manual_record_loads_its_op():
    run("""
with od.GradientTape() as tape:
    x, y = tape.variable(0.5), tape.constant(np.sinc(0.5))
    assert hasattr(tape, "record_sinc") and not loaded("ops.elementwise.trigonometry")
    tape.record_sinc(x, y)
assert loaded("ops.elementwise.trigonometry")
""")


def test_names_are_listed_and_looked_for_without_loading_a_family():
    run("""
before = sorted(registry._LOADED)
assert {"gelu", "swish", "interp", "exp", "OPS"} <= set(dir(od.ops))
assert {"gelu", "swish", "one_hot"} <= set(dir(od.nn)) and "trunc" not in dir(od.nn)
assert "huber" in dir(od.losses) and {"cross_entropy", "testing"} <= set(dir(od))
assert "gelu" in od.ops.OPS and "exq" not in od.ops.OPS and "interp" in od.ops.COMPOSITES
for thing in (od, od.ops, od.nn, od.losses, od.backward):
    try:
        thing.gelv
    except AttributeError as error:
        assert "gelv" in str(error)
        if thing in (od, od.nn, od.losses):
            assert error.name == "gelv"
        if thing is od.nn:
            assert "did you mean gelu" in str(error)
    else:
        raise AssertionError(thing)
assert before == sorted(registry._LOADED)
""")


def test_rows_that_load_after_an_op_of_a_stranger_are_ours_and_the_op_is_not():
    run("""
@od.op(elementwise=True, vjp={"x": lambda g, x: g})
def mine(x, /):
    return np.asarray(x)

assert not loaded("nn.activations.smooth")
assert mine.row.foreign and not od.nn.gelu.row.foreign
gelu = od.nn.gelu.row
assert any(own is not rule for own, rule in zip(gelu.array_pullbacks, gelu.pullbacks))
""")


def test_what_surrounds_the_first_use_does_not_reach_the_family():
    run("""
import warnings
with np.errstate(all="raise"), warnings.catch_warnings(), od.GradientTape() as tape:
    warnings.simplefilter("error")
    loss = od.losses.binary_cross_entropy(od.ops.sinc(v), [0.0, 1.0], from_logits=True)
assert [node.op for node in tape.nodes] == ["sinc", "binary_entropy_with_logits", "mean"]
slope = tape.gradient(loss, v)
assert slope.shape == (2,)
with od.no_grad():
    od.ops.gelu
with od.GradientTape() as tape:
    y = od.ops.gelu(v)
assert np.all(tape.gradient(y, v, np.ones(2)) > 0)
""")


def test_the_first_use_may_be_in_a_function_that_is_compiled_or_differentiated():
    run("""
import math
erf = np.vectorize(math.erf)

def f(x):
    return od.ops.sum(od.nn.gelu(x) * od.special.erf(x))

x = np.array([0.5, -1.0])
step = od.compile(f)
assert not loaded("nn.activations.smooth")
value, slope = float(np.asarray(step(x))), od.grad(f)(x)
normal = x * (1 + erf(x / np.sqrt(2))) / 2
np.testing.assert_allclose(value, np.sum(normal * erf(x)), rtol=1e-12)
h = 1e-6
for k in range(2):
    e = np.eye(2)[k] * h
    np.testing.assert_allclose(slope[k], (f(x + e) - f(x - e)) / (2 * h), rtol=1e-7)
assert od.compile(od.losses.huber)(x, x) == 0
""")


def test_threads_that_use_a_family_at_once_get_the_same_ops():
    run("""
import threading
NAMES = ("gelu", "softmax", "sinc", "huber", "erf", "interp", "einsum", "linspace", "cumprod")
start = threading.Barrier(len(NAMES) * 4)
found, failed = [], []

def use(name):
    start.wait()
    try:
        room = od.losses if name == "huber" else od.ops
        found.append((name, getattr(room, name)))
    except BaseException as error:
        failed.append(error)

threads = [threading.Thread(target=use, args=(name,)) for name in NAMES * 4]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failed, failed
assert len(set(found)) == len(NAMES)
for name in NAMES:
    if name in od.ops.OPS:
        assert (name, od.ops.OPS[name].call) in found
""")


INTERRUPTED = """
import itertools
NAMES = {"erf", "erfc"}

class Late(KeyboardInterrupt):
    pass

def interrupted_at(k):
    left = itertools.count(k, -1)

    def watch(frame, event, argument):
        watched = ("error_function.py", "registry.py", "array_rules.py")
        if frame.f_code.co_filename.endswith(watched):
            if event == "line" and next(left) == 0:
                sys.settrace(None)
                raise Late
            return watch

    sys.settrace(watch)
    try:
        return od.ops.erf
    except Late:
        return None
    finally:
        sys.settrace(None)

stops = 0
for k in itertools.count(0):
    met = interrupted_at(k)
    known = NAMES & registry._NAMES.keys()
    assert known in (set(), NAMES), known
    assert ("erf" in registry._ROWS) == bool(known)
    if met is not None:
        break
    stops += 1
    if k % 40 == 0 and known:  # it is usable, though its import was broken off
        assert float(od.ops.OPS["erf"].call(0.0)) == 0.0
print(stops)
assert od.ops.OPS["erf"].call is od.special.erf and loaded("special.error_functions")
with od.GradientTape() as tape:
    y = od.ops.gelu(od.ops.erf(v)).sum()
assert tape.gradient(y, v).shape == (2,)
from odyssey.special.error_functions import erf
"""


@pytest.mark.slow
def test_an_interrupt_at_any_line_of_a_first_use_enters_all_or_nothing():
    assert int(run(INTERRUPTED)) > 200


INTERRUPTED_ROOMS = """
import itertools

class Late(KeyboardInterrupt):
    pass

def interrupted_at(k, ask):
    left = itertools.count(k, -1)

    def watch(frame, event, argument):
        code = frame.f_code
        if "odyssey" in code.co_filename and code.co_name in ("<module>", "__getattr__"):
            if event == "line" and next(left) == 0:
                sys.settrace(None)
                raise Late
            return watch

    sys.settrace(watch)
    try:
        return ask()
    except Late:
        return None
    finally:
        sys.settrace(None)

def asked(ask):
    return next(k for k in itertools.count(0) if interrupted_at(k, ask) is not None)

stops = [
    asked(ask)
    for ask in (
        lambda: od.optim,
        lambda: od.optim.scipy_objective,
        lambda: od.value_and_grad,
        lambda: od.compile,
        lambda: od.Generator,
        lambda: od.save,
        lambda: od.TapeNode,
    )
]
assert od.optim.SGD is sys.modules["odyssey.optim.sgd"].SGD
optimizer = od.optim.SGD([v], learning_rate=0.5)

@od.compile
def step(x):
    with od.GradientTape() as tape:
        loss = (v * x).sum()
    tape.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss

for _ in range(3):
    step(np.ones(2))
assert v.numpy().tolist() == [-1.0, 0.5] and step.statistics().native == 2
assert od.value_and_grad(lambda x: x * x)(3.0) == (9.0, 6.0)
print(stops)
"""


@pytest.mark.slow
def test_an_interrupt_at_any_line_of_a_first_use_of_a_room_leaves_it_to_the_next():
    stops = ast.literal_eval(run(INTERRUPTED_ROOMS))
    assert min(stops) > 0
    assert sum(stops) > 400


def test_the_index_has_what_the_families_have():
    homes = registry._parse_index(index.ROWS)
    assert {name: home for name, (home, *_) in homes.items()} == {
        row.name: row.module for row in OPS.values()
    }
    assert {name: tuple(more) for name, (_, *more) in homes.items()} == {
        row.name: row.aliases for row in OPS.values()
    }
    homes = registry._parse_index(index.COMPOSITES)
    assert homes == {n: (f.__module__, *f.aliases) for n, f in COMPOSITES.items()}


def test_the_index_names_functions_that_numpy_has_each_under_one_op():
    words = [word.split("=") for word in index.NUMPY.split()]
    known = [name for op, *names in words for name in names or [op]]
    assert len(set(known)) == len(known)
    missing = set()
    for name in known:  # "linalg.eigh" as well
        try:
            attrgetter(name)(np)
        except AttributeError:
            missing.add(name)
    assert missing <= {"unstack"}  # which NumPy has from 2.1 on
    assert {op for op, *_ in words} <= {*OPS, *COMPOSITES}


@pytest.mark.parametrize("room", ["ops", "fft", "linalg", "losses", "nn", "special"])
def test_no_family_has_the_name_of_an_op(room):
    # Python would put the module in the place of the op, whenever the family is imported.
    files = {path.stem for path in (ROOT / "odyssey" / room).glob("*.py")}
    names = set(registry.op_names(others=True)) if room == "ops" else set()
    assert not files & (names | set(importlib.import_module(f"odyssey.{room}").__all__))


def test_what_is_asked_of_the_table_in_vain_raises_as_a_mapping_does():
    with pytest.raises(KeyError):
        OPS["exq"]
    assert OPS.get("exq") is None
    assert OPS.get("sub") is None  # another name; the row's own is "subtract"
    assert od.ops.sub.row is OPS["subtract"]
    assert len(OPS) == len(list(OPS)) == len(OPS.values())
    assert "exp" in repr(OPS)


STALE = """
import sys
from types import ModuleType

index = ModuleType("odyssey.table.index")
index.ROWS = {ROWS}
index.COMPOSITES = {COMPOSITES}
index.LOSSES, index.NUMPY = {LOSSES}, {NUMPY!r}
sys.modules[index.__name__] = index
import odyssey as od
"""


@pytest.mark.share(3, rest="slow")
@pytest.mark.parametrize(
    ("old", "new", "name"),
    [
        pytest.param(" erfc", "", "erf", id="an op that it lacks beside one that it has"),
        pytest.param("sine_quotient sinc", "sine_quotient gelu", "gelu", id="in two families"),
        pytest.param("linear", "linear linea", "linear", id="an op that there is not"),
    ],
)
def test_an_index_that_is_out_of_date_says_nothing_wrong(old, new, name):
    rows = {family: words.replace(old, new) for family, words in index.ROWS.items()}
    assert rows != index.ROWS
    parts = {"COMPOSITES": index.COMPOSITES, "LOSSES": index.LOSSES, "NUMPY": index.NUMPY}
    done = subprocess.run(
        [sys.executable, "-c", STALE.format(ROWS=rows, **parts) + f"""
assert od.ops.{name}.__name__ == {name!r}
assert {{"erfc", "gelu", "sinc", "linear"}} <= set(od.ops.OPS)
assert od.ops.erfc.row is od.ops.OPS["erfc"] and len(od.ops.OPS) == {len(OPS)}
assert not hasattr(od.ops, "linea")
"""],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


FAMILY = '''"""Cubes."""

from odyssey.ops.elementwise.arithmetic import mul
from odyssey.table.declare import op, publish
from odyssey.table.samples import singles


@op(
    elementwise=True,
    aliases=("third_power",),
    vjp={"x": lambda g, x: mul(g, mul(3.0, mul(x, x)))},
    samples=singles(),
)
def cube(x, /):
    """Elementwise cube, ``x ** 3``."""
    return x * x * x


publish(globals())
'''


@pytest.mark.slow
def test_a_new_family_is_one_new_file_and_a_command(tmp_path):
    for part in ("odyssey", "tools"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "odyssey" / "special" / "cubes.py").write_text(FAMILY, encoding="utf-8")
    moved = tmp_path / "odyssey" / "special" / "zeta_function.py"
    moved.rename(moved.with_name("sums_of_powers.py"))

    def python(*arguments):
        command = [sys.executable, *arguments]
        paths = os.environ | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run(
            command, cwd=tmp_path, env=paths, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    written = python("-m", "tools.reference", "index", "stubs").split()
    assert str(tmp_path / "odyssey" / "table" / "index.py") in written
    assert "cube: Unary" in (tmp_path / "odyssey" / "special" / "__init__.pyi").read_text()
    assert "third_power = cube" in (tmp_path / "odyssey" / "ops" / "__init__.pyi").read_text()
    python("-m", "tools.reference", "--check", "index")
    program = "import odyssey as od; v = od.Variable(2.0, requires_grad=True)\n"
    program += "with od.GradientTape() as tape: y = od.special.cube(v)\n"
    program += "assert od.ops.third_power is od.special.cube and float(tape.gradient(y, v)) == 12.0"
    python("-c", program + "; od.special.zeta, od.backward.third_power, tape.record_cube")

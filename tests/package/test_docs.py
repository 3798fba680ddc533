"""What is made from the table says what the table says: pages, stubs, ``python -m odyssey ops``."""

import ast
import importlib.util
import inspect
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import CodeType

import numpy as np
import pytest

import odyssey as od
from odyssey import cli, describe
from odyssey.describe.entries import dtypes_of, signature_of
from odyssey.describe.sources import rule_text
from odyssey.errors import OdysseyError
from odyssey.ops import OPS
from support.cases import NEW_NUMPY
from tools import reference
from tools.reference.__main__ import main as refer
from tools.reference.overloads import operands_of

ROOT = Path(__file__).resolve().parents[2]
ENTRIES = describe.entries()


# ------------------------------------------------------------------ files made from the table


needs_scipy = pytest.mark.skipif(
    importlib.util.find_spec("scipy") is None, reason="SciPy, which computes some ops, is missing"
)


@pytest.mark.slow
@needs_scipy
@pytest.mark.skipif(not NEW_NUMPY, reason="before NumPy 2.1 what rounds made floats of integers")
@pytest.mark.parametrize("kind", reference.FILES)
def test_the_files_made_from_the_table_are_fresh(kind):
    stale = reference.stale(kind)
    assert not stale, f"{', '.join(stale)}: refresh with 'python -m tools.reference'"


@pytest.mark.slow
@needs_scipy
@pytest.mark.parametrize("kind", reference.FILES)
def test_the_command_writes_the_files_and_then_none_is_stale(kind, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tools.reference.files._root", lambda: tmp_path)
    assert set(reference.stale(kind)) == set(reference.FILES[kind])
    assert refer(["--check", kind]) == 1
    capsys.readouterr()
    assert refer([kind]) == 0
    written = [line.removeprefix("wrote ") for line in capsys.readouterr().out.splitlines()]
    assert written == [str(tmp_path / path) for path in reference.FILES[kind]]
    assert reference.stale(kind) == []
    assert refer(["--check", kind]) == 0


def test_no_file_is_made_from_the_table_of_another_package(tmp_path, monkeypatch):
    monkeypatch.setattr(od, "__file__", str(tmp_path / "odyssey" / "__init__.py"))
    with pytest.raises(SystemExit, match="not in this checkout"):
        refer(["markdown"])


@pytest.mark.parametrize("option", ["--markdown", "--stubs"])
def test_the_options_that_wrote_files_say_what_writes_them_now(option):
    with pytest.raises(SystemExit, match=r"'python -m tools\.reference'"):
        cli.main(["ops", option])


# ------------------------------------------------------------------ entries


def test_there_is_an_entry_for_every_op_and_composite():
    assert set(ENTRIES) == {*OPS, *od.ops.COMPOSITES}


@pytest.mark.slow
def test_the_entry_shows_how_to_call_the_op_and_each_of_its_other_names():
    offenders = []
    for entry in ENTRIES.values():
        text = describe.entry_text(entry)
        also = " ".join(re.findall("^also (.*)", text, re.M))
        shown = text.startswith(f"{entry.name}(") and "tape=None)" in text.partition("\n")[0]
        named = all(re.search(rf"\b{alias}\b", also) for alias in entry.aliases)
        if not (shown and named and all(describe.find(a) is entry for a in entry.aliases)):
            offenders.append(entry.name)
    assert offenders == []


@pytest.mark.slow
def test_the_derivative_shown_is_the_code_that_runs():
    assert [name for name, row in OPS.items() if not shows_its_rules(row)] == []


def shows_its_rules(row):
    """Return whether the text of each rule that is a lambda compiles to the rule's code."""
    for rule in (*row.vjp.values(), *row.jvp.values()):
        if rule is None or rule.__name__ != "<lambda>" or rule.__code__.co_freevars:
            continue
        code = rule.__code__
        # What a name stands for that was imported is loaded by an instruction of its own.
        modules = [n for n in code.co_names if inspect.ismodule(rule.__globals__.get(n))]
        arguments = ", ".join(inspect.signature(rule).parameters)
        lines = [*(f"import {name}" for name in modules), f"lambda {arguments}: {rule_text(rule)}"]
        constants = compile("\n".join(lines), "shown", "exec").co_consts
        again = next(value for value in constants if isinstance(value, CodeType))
        for part in ("co_code", "co_names", "co_consts"):
            if getattr(again, part) != getattr(code, part):
                return False
    return True


@pytest.mark.parametrize(
    ("name", "operand", "text"),
    [
        pytest.param("add", "x", "g", id="passed on"),
        pytest.param("multiply", "y", "mul(g, x)", id="lambda, one of two"),
        pytest.param("subtract", "y", "neg(g)", id="lambda"),
    ],
)
def test_a_derivative_reads_as_it_is_written(name, operand, text):
    assert rule_text(OPS[name].vjp[operand]) == text
    assert f"derivative in {operand}   {text}\n" in describe.entry_text(ENTRIES[name])


def test_a_rule_of_several_statements_is_shown_whole():
    shown = rule_text(OPS["gelu"].vjp["x"])
    assert shown == inspect.getsource(OPS["gelu"].vjp["x"]).rstrip()


def test_an_entry_says_what_a_node_keeps_and_which_numpy_function_finds_it():
    text = describe.entry_text(ENTRIES["multiply"])
    assert re.search("\na node keeps +y for the gradient of x\n +x for the gradient of y\n", text)
    assert re.search(r"\nNumPy +np\.multiply\n", text)
    assert re.search(r"\nNumPy +np\.concatenate\n", describe.entry_text(ENTRIES["concatenate"]))
    assert re.search("\na node keeps +nothing\n", describe.entry_text(ENTRIES["add"]))


@pytest.mark.parametrize("name", ["absolute", "exp", "sign", "floor", "sum", "argmax", "cbrt"])
def test_the_dtypes_shown_are_those_of_the_numpy_function(name):
    function, wanted = getattr(np, name), {}
    for dtype in ("float32", "float64", "complex64", "complex128", "int64", "bool"):
        try:
            with np.errstate(all="ignore"):
                wanted[dtype] = str(function(np.ones(2, dtype)).dtype)
        except TypeError:
            continue
    assert dtypes_of(OPS[name]) == wanted


@pytest.mark.slow
def test_no_filter_of_warnings_is_needed_to_ask_rows_for_their_dtypes(monkeypatch):
    def refuse(*args, **named):
        raise AssertionError("the filters belong to all threads, and Ctrl-C leaves them changed")

    assert len(ENTRIES) > 300
    with monkeypatch.context() as within:  # pytest calls it to tell of a failure
        within.setattr(warnings, "catch_warnings", refuse)
        for row in OPS.values():
            assert dtypes_of(row), row.name  # a warning is an error here


def test_an_object_that_cannot_be_called_is_documented_as_data():
    from tools.docs.objects import GROUPS, object_page, value_of

    for group in GROUPS:
        for name in group.names:
            if not callable(value_of(name)):
                assert ".. py:data:: " in object_page(name, group), name


# ------------------------------------------------------------------ the command


def test_without_a_name_all_ops_are_listed_with_their_meaning(capsys):
    assert cli.main(["ops"]) == 0
    printed = capsys.readouterr().out
    for entry in ENTRIES.values():
        assert re.search(rf"^{entry.name}\(", printed, re.MULTILINE)
        assert entry.meaning in printed


def test_a_name_or_another_name_of_an_op_tells_its_entry(capsys):
    assert cli.main(["ops", "mul"]) == 0
    assert capsys.readouterr().out == describe.entry_text(ENTRIES["multiply"]) + "\n"


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        pytest.param("matmull", "matmul", id="a letter too many"),
        pytest.param("sigmod", "sigmoid", id="a letter too few"),
        pytest.param("zzzzzz", "lists all", id="nothing near"),
    ],
)
def test_a_wrong_name_says_which_are_near(wrong, near):
    with pytest.raises(SystemExit, match=f"no op '{wrong}'.*{near}"):
        cli.main(["ops", wrong])
    with pytest.raises(OdysseyError, match=near):
        describe.find(wrong)


# ------------------------------------------------------------------ stubs


def definitions(path):
    """The parameters of every function of a stub, once for each overload, and the other names.

    What has a signature with a name has those of the protocol's ``__call__``.
    """
    shapes, found, others = {}, {}, set()
    for kind in ast.parse((ROOT / SIGNATURES).read_text(encoding="utf-8")).body:
        if isinstance(kind, ast.ClassDef):
            calls = [node for node in kind.body if isinstance(node, ast.FunctionDef)]
            shapes[kind.name] = [parameters_of(call) for call in calls]
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(parameters_of(node))
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) in shapes:
            found[node.target.id] = shapes[ast.unparse(node.annotation)]
        elif isinstance(node, ast.Assign):
            others |= {target.id for target in node.targets}
    return found, others


SIGNATURES = "odyssey/table/signatures.pyi"
ROOMS = ["ops", "fft", "linalg", "losses", "nn", "special"]


def parameters_of(node):
    """Names with how they come: by position alone, by keyword alone, or either way."""
    a = node.args
    rest = [(a.vararg.arg, "rest")] if a.vararg else []
    pairs = [*((p.arg, "position") for p in a.posonlyargs), *((p.arg, "either") for p in a.args)]
    pairs += [*rest, *((p.arg, "keyword") for p in a.kwonlyargs)]
    return [pair for pair in pairs if pair[0] != "self"]  # editors show names by position too


KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "position",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "either",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "rest",
}


@pytest.mark.parametrize("room", ROOMS)
def test_the_stub_of_a_room_has_its_functions_with_the_parameters_that_they_have(room):
    found, others = definitions(f"odyssey/{room}/__init__.pyi")
    face = importlib.import_module(f"odyssey.{room}")
    wanted = {name for name in face.__all__ if name in ENTRIES}
    if room == "losses":
        wanted = {n for n in face.__all__ if n.islower() and not re.search("grad|compute", n)}
    if room == "ops":
        handed_on = {name for other in OTHER_ROOMS for name in other.__all__}
        wanted = ENTRIES.keys() - handed_on
        assert {alias for entry in ENTRIES.values() for alias in entry.aliases} <= others
    assert {alias for name in wanted & ENTRIES.keys() for alias in ENTRIES[name].aliases} <= others
    assert set(found) == wanted | set(getattr(face, "OTHERS", ()))
    for name, overloads in found.items():
        if hasattr(od.ops, name):
            parameters = signature_of(describe.find(name)).parameters
        else:
            parameters = inspect.signature(getattr(face, name)).parameters
        shown = [(n, KINDS[p.kind]) for n, p in parameters.items()]
        assert all(overload == shown for overload in overloads), name


OTHER_ROOMS = (od.fft, od.linalg, od.nn, od.special)

OF_ROOMS = {
    "nn": "logsigmoid hardtanh softshrink one_hot random_uniform random_normal expit gelu",
    "special": "expit log_expit logsumexp psi lgamma erf",
    "linalg": "solve_triangular norm",
    "fft": "fft",
}


@pytest.mark.parametrize("room", OF_ROOMS)
def test_a_room_has_its_ops_by_all_of_their_names_and_those_that_peers_have_there(room):
    face = importlib.import_module(f"odyssey.{room}")
    for name in OF_ROOMS[room].split():
        assert getattr(face, name) is getattr(od.ops, name)
        assert name in dir(face)
    for name in face.__all__:
        assert all(hasattr(face, alias) for alias in ENTRIES[name].aliases)


@pytest.mark.parametrize("module", [od, od.losses, od.nn, od.linalg, od.fft], ids=str)
def test_a_module_that_lacks_an_op_says_where_it_is(module):
    with pytest.raises(AttributeError, match=r"has no attribute 'trunc'; write od\.ops\.trunc"):
        getattr(module, "trunc")  # noqa: B009
    with pytest.raises(AttributeError, match=r"has no attribute 'nosuch'$"):
        getattr(module, "nosuch")  # noqa: B009


@pytest.mark.parametrize("room", ROOMS)
def test_the_stub_of_a_room_tells_what_each_function_means(room):
    text = (ROOT / "odyssey" / room / "__init__.pyi").read_text(encoding="utf-8")
    for name in definitions(f"odyssey/{room}/__init__.pyi")[0]:
        function = getattr(importlib.import_module(f"odyssey.{room}"), name)
        meaning = (function.__doc__ or "").strip().partition("\n")[0]
        assert f'"""{meaning}"""'.replace("\\", "\\\\") in text


@pytest.mark.parametrize("room", ROOMS)
def test_no_stub_of_a_room_imports_a_room_that_stands_above_the_table(room):
    tree = ast.parse((ROOT / "odyssey" / room / "__init__.pyi").read_text(encoding="utf-8"))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    rooms = {module.split(".")[1] for module in modules if module.startswith("odyssey.")}
    allowed = {"errors", "table", "spec", room}
    if room == "ops":
        allowed |= {"fft", "linalg", "nn", "special"}
    assert rooms <= allowed


def test_the_stub_of_backward_has_every_function_with_the_parameters_of_its_docstring():
    found, others = definitions("odyssey/backward.pyi")
    assert set(found) == set(od.backward.TABLE)
    for name, (kinds,) in found.items():
        parameters = [parameter for parameter, _ in kinds]
        documented = re.search(r"\((.*?)\)``", od.backward.TABLE[name].__doc__)[1].split(", ")
        assert parameters[: len(documented)] == documented
        assert set(parameters) <= {*documented, *OPS[name].arrays}
    assert {alias for name in found for alias in OPS[name].aliases} <= others


def test_the_stub_knows_which_parameters_are_arrays():
    unknown = [f"{e.name}{signature_of(e)}" for e in ENTRIES.values() if not operands_of(e)]
    numbers = "random_integers(", "random_exponential("  # their parameters are settings elsewhere
    unknown = [text for text in unknown if not text.startswith(numbers)]
    assert unknown == [], (
        "no parameter is known as an array; use a name of tools.reference.overloads.ARRAYS, or add "
        "it there"
    )


PROGRAM = """
from typing import Any, assert_type
import numpy as np
from numpy.typing import NDArray
import odyssey as od
from odyssey import GradientTape, Variable, backward, ops
from odyssey.nn import gelu

Array = NDArray[Any]

def check(
    x: NDArray[np.float64], w: Variable, either: Variable | Array, tape: GradientTape
) -> None:
    assert_type(ops.exp(w, tape=tape), Variable)
    assert_type(ops.exp(x), Array)
    assert_type(ops.exp(2.0), Any)
    assert_type(ops.exp([1.0, 2.0]), Array)
    assert_type(ops.exp(either), Variable | Array)
    assert_type(ops.add(w, x), Variable)
    assert_type(ops.add(x, w), Variable)
    assert_type(ops.add(x, either), Variable | Array)
    assert_type(ops.mul(2.0, w), Variable)
    assert_type(ops.multiply(x, 2.0), Array)
    assert_type(ops.where(x > 0, w, 0.0), Variable)
    assert_type(ops.where(x > 0, x, 0.0), Array)
    assert_type(ops.linear(x, x, w), Variable)
    assert_type(ops.linear(x, x), Array)
    assert_type(ops.sum(w, axis=0), Variable)
    assert_type(ops.sum(x, 0, keepdims=True), Array | Any)
    assert_type(ops.concatenate([w, w], axis=1), Variable)
    assert_type(ops.concatenate([x, x]), Array)
    assert_type(ops.concatenate([x, w]), Any)
    assert_type(ops.split(w, 2), list[Variable])
    assert_type(ops.split(x, 2), list[Array])
    assert_type(ops.vstack([w, w]), Variable)
    assert_type(ops.squeeze(a=w, axis=0), Variable)
    assert_type(ops.max(either, keepdims=True), Variable | Array | Any)
    assert_type(ops.matmul(x, w), Variable)
    assert_type(ops.abs(w), Variable)
    # A room and ops have the same functions.
    assert_type(od.nn.gelu(w, approximate="tanh"), Variable)
    assert_type(ops.gelu(x), Array)
    assert_type(gelu(w), Variable)
    assert_type(ops.expit(w), Variable)
    assert_type(od.linalg.einsum("ij,jk", w, w), Variable)
    assert_type(od.special.xlogy(x, w), Variable)
    assert_type(od.losses.hinge(w, x), Variable)
    assert_type(od.cross_entropy(w, [1, 2], label_smoothing=0.1), Variable)
    assert_type(od.losses.mean_squared_error(x, x, weights=w), Variable)
    assert_type(od.losses.mse_loss_and_grad(x, x), od.LossAndGrad)
    assert_type(backward.multiply(1.0, x, x), tuple[Array, Array])
    assert_type(backward.exp(1.0, out=x), Array)
    assert_type(backward.sum(1.0, x=x, axis=0), Array)
    # Arrays on the left give way to Variables, as they do when the program runs.
    for both in (x @ w, x + w, x - w, x * w, x / w, x // w, x % w, x**w, x > w, x <= w):
        assert_type(both, Variable)
    for single in (np.float32(2.0) * w, 2.0 - w, 2**w, 1j / w, np.ones(2, np.float32) @ w):
        assert_type(single, Variable)
    assert_type(w @ x, Variable)
    assert_type(np.asarray(w), NDArray[Any])
    # An ignore that has nothing to ignore is an error too.
    ops.sigmod(x)  # type: ignore[attr-defined]
    ops.exp(x, tape="here")  # type: ignore[call-overload]
    ops.softplus(x, gamma=1.0)  # type: ignore[call-overload]
    ops.relu(x, axis=0)  # type: ignore[call-overload]
    ops.sum(w, dim=0)  # type: ignore[call-overload]
    ops.exp("text", x)  # type: ignore[call-overload]
    od.nn.sigmod(x)  # type: ignore[attr-defined]
    od.losses.huber(w, x, beta=1.0)  # type: ignore[call-overload]
    od.nn.trunc(x)  # type: ignore[attr-defined]
    backward.argmax(x)  # type: ignore[attr-defined]
"""


def run_mypy(*arguments):
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", *arguments]
    paths = os.environ | {"MYPYPATH": str(ROOT)}
    return subprocess.run(command, cwd=ROOT, env=paths, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_program_written_with_ops_has_the_types_that_its_calls_return(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM, encoding="utf-8")
    done = run_mypy(str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_what_a_stub_shades_is_type_checked_all_the_same():
    rooms = [f"odyssey/{room}/__init__.py" for room in ROOMS]
    done = run_mypy("odyssey/backward.py", *rooms)
    assert done.returncode == 0, done.stdout + done.stderr

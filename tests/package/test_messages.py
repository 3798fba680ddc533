"""Errors say it in the right words: one error at a time, with the names of here."""

import ast
import builtins
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import odyssey
import odyssey as od
from odyssey import GradientTape, Variable, describe, ops
from odyssey.errors import DTypeError, OdysseyError, ShapeError, TapeError, UntrackedError
from odyssey.ops import OPS
from odyssey.suggestions import MISSING_ATTRIBUTES
from support.together import together

PACKAGE = Path(odyssey.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))


def leaf():
    return Variable([1.0, 2.0], requires_grad=True)


# ------------------------------------------------------------------ one error at a time


@pytest.fixture(scope="module")
def trees():
    """The syntax trees of the package by path."""
    return {p.relative_to(PACKAGE): ast.parse(p.read_text(encoding="utf-8")) for p in SOURCES}


def raising_functions(trees):
    """Names of the package's functions that raise."""
    return {
        node.name
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    }


@pytest.mark.slow
def test_an_error_raised_in_an_except_clause_says_what_it_comes_from(trees):
    raising = raising_functions(trees) - set(dir(builtins))
    offenders = []
    for path, tree in trees.items():
        clauses = [node for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler)]
        for node in (node for clause in clauses for node in ast.walk(clause)):
            if isinstance(node, ast.Raise) and node.exc is not None and node.cause is None:
                offenders.append(f"{path}:{node.lineno}: raise without from")
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in raising:
                offenders.append(f"{path}:{node.lineno}: {node.func.id} may raise, in the clause")
    assert offenders == []


def assert_alone(error):
    """No ``During handling of the above exception, another exception occurred``."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, OdysseyError):
            assert error.__context__ is None or error.__suppress_context__
        error = error.__cause__


REJECTS = [
    pytest.param(row, reject, id=f"{row.name}-{k}")
    for row in OPS.values()
    for k, reject in enumerate(row.rejects)
]


@pytest.mark.parametrize(("row", "reject"), REJECTS)
@together("how", ["alone", "recorded", "disabled", "paused", "careful"])
def test_a_refused_call_shows_one_error_only(row, reject, how):
    operands = [np.zeros(o) if isinstance(o, tuple) else o for o in reject.operands]
    if how != "alone":
        floating = [isinstance(o, np.ndarray) and o.dtype.kind == "f" for o in operands]
        operands = [
            Variable(o, requires_grad=True) if f else o
            for o, f in zip(operands, floating, strict=True)
        ]
    with GradientTape(check=how == "careful") as tape:
        if how == "disabled":
            tape.disable()
        block = od.no_grad() if how == "paused" else nullcontext()
        with block, pytest.raises(OdysseyError) as caught:
            row.call(*operands, **reject.options)
    assert_alone(caught.value)


def test_an_error_on_the_general_path_does_not_show_how_it_got_there():
    w, tape = leaf(), GradientTape()
    with tape:
        y = w * 1.0
    with pytest.raises(ShapeError) as caught:
        y * np.ones(3)
    assert_alone(caught.value)
    with pytest.raises(OdysseyError) as caught:
        ops.exp(np.array(["a"]))
    assert_alone(caught.value)


def test_a_masked_array_on_the_left_shows_our_error_only():
    with GradientTape(), pytest.raises(TapeError, match=r"\.detach\(\)\.numpy\(\)") as caught:
        np.ma.array([1.0, 2.0], mask=[True, False]) * leaf()
    assert_alone(caught.value)


# ------------------------------------------------------------------ the right word

WORDS = {
    "exp": r"od\.ops\.exp\(v\)",
    "sqrt": r"od\.ops\.sqrt\(v\)",
    "log": r"od\.ops\.log\(v\)",
    "softmax": r"od\.ops\.softmax\(v\)",
    "view": r"v\.reshape\(shape\)",
    "norm": r"od\.ops\.norm\(v\)",
    "cpu": r"v\.to\('cpu'\)",
    "cuda": r"v\.to\('cuda'\)",
    "requires_grad_": r"v\.requires_grad = True",
    "zero_": r"v\.assign\(0\)",
    "unsqueeze": r"ops\.expand_dims\(v, axis\)",
    "tolist": r"v\.numpy\(\)\.tolist\(\)",
}


@pytest.mark.parametrize(("name", "words"), WORDS.items(), ids=list(WORDS))
def test_an_attribute_of_other_libraries_is_answered_with_our_word(name, words):
    v = leaf()
    with pytest.raises(AttributeError, match=f"Variable has no attribute '{name}'; write {words}"):
        getattr(v, name)
    assert not hasattr(v, name)
    assert not hasattr(Variable, name)
    assert name not in dir(v)
    assert getattr(v, name, None) is None


@pytest.mark.usefixtures("standin")
def test_every_expression_that_a_missing_attribute_names_is_one_that_works():
    v, x, shape, axis, axes, mask = leaf(), np.ones(2), (2, 1), 0, (0,), np.array([True, False])
    with GradientTape(persistent=True) as tape:
        output = ops.sum(v * v)
    known = {"function": lambda g: None, "np": np, "ops": ops, "od": od}
    known |= {"v": v, "x": x, "shape": shape, "axis": axis, "axes": axes, "mask": mask}
    known |= {"tape": tape, "output": output}
    # First what reads the tape, since others assign to the leaf.
    for name, words in sorted(MISSING_ATTRIBUTES.items(), key=lambda pair: "tape" not in pair[1]):
        code = words.partition(":")[0] if words.startswith("v:") else words
        if name == "expand":
            known["shape"] = (3, 2)
        exec(code, dict(known))
        known["shape"] = shape


@pytest.mark.parametrize("name", ["copy", "clone"])
def test_what_is_named_in_place_of_a_copy_works_on_results_and_is_recorded(name):
    def fn(v):
        y = eval(MISSING_ATTRIBUTES[name], {"ops": ops, "v": v * 1.0})
        y[0] = 3.0 * v[1]
        return (y * v).sum()

    np.testing.assert_array_equal(od.grad(fn)(np.array([1.0, 2.0])), [6.0, 7.0])


def test_an_unknown_attribute_is_pythons_own_error():
    with pytest.raises(AttributeError, match="object has no attribute 'nosuch'"):
        leaf().nosuch  # noqa: B018


CALLS = {
    "method dim": (lambda v: v.sum(dim=0), "sum: .*dim is called axis here"),
    "method keepdim": (lambda v: v.mean(keepdim=True), "mean: .*keepdim is called keepdims here"),
    "op": (lambda v: ops.sum(v, dim=0), "sum: .*dim is called axis here; the signature"),
    "op input": (lambda v: ops.sum(input=v), "sum: .*input is called the first array"),
    "composite": (lambda v: ops.squeeze(v, dim=0), "squeeze: .*dim is called axis here"),
    "attention": (
        lambda v: ops.scaled_dot_product_attention(v, v, v, is_causal=True),
        "is_causal is called causal here",
    ),
    "embedding": (
        lambda v: ops.embedding([0], v, padding_idx=0),
        "padding_idx is called padding_index here",
    ),
    "group norm": (
        lambda v: ops.group_norm(v, num_groups=1),
        "num_groups is called groups here",
    ),
    "layer norm": (
        lambda v: ops.layer_norm(v, normalized_shape=(2,)),
        "normalized_shape is called axis here",
    ),
    "SGD": (lambda v: od.optim.SGD([v], lr=0.1), "SGD: lr is called learning_rate here"),
    "Adam": (lambda v: od.optim.Adam([v], lr=0.1), "Adam: lr is called learning_rate here"),
}


@pytest.mark.parametrize(("call", "words"), CALLS.values(), ids=list(CALLS))
def test_a_keyword_of_other_libraries_is_answered_with_our_word(call, words):
    with pytest.raises(DTypeError, match=words):
        call(leaf())


@pytest.mark.parametrize(("name", "words"), [("mm", "write matmul"), ("view", "write reshape")])
def test_a_missing_op_that_is_looked_for_is_answered_with_what_to_write(name, words):
    with pytest.raises(OdysseyError, match=f"there is no op '{name}'; .*{words}"):
        describe.find(name)


def test_an_optimizer_is_copied_and_pickled_as_before():
    import copy
    import pickle

    optimizer = od.optim.SGD([leaf()], learning_rate=0.1)
    assert copy.deepcopy(optimizer).learning_rate == 0.1
    assert pickle.loads(pickle.dumps(optimizer)).learning_rate == 0.1


# ------------------------------------------------------------------ functions of others

special = pytest.importorskip("scipy.special")
UNKNOWN = {
    "np.setdiff1d": lambda v: np.setdiff1d(v, v),
    "np.nextafter": lambda v: np.nextafter(v, 0.5),
    "np.savez": lambda v: np.savez("never written", v),
    "np.add.accumulate": np.add.accumulate,
    "scipy.special.dawsn": special.dawsn,
    "scipy.special.ellipk": special.ellipk,
}


@pytest.mark.parametrize(("name", "call"), UNKNOWN.items(), ids=list(UNKNOWN))
@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "alone"])
def test_a_refused_function_is_called_by_its_own_name_with_the_ways_out(name, call, recorded):
    v = leaf()
    with GradientTape() as tape:
        if not recorded:
            tape.disable()
        with pytest.raises(DTypeError) as caught:
            call(v)
    message = str(caught.value)
    assert message.startswith(f"{name} is not in odyssey's table")
    assert all(way in message for way in ("od.op ", "od.custom_vjp", ".numpy()"))


def test_copying_a_result_as_a_plot_does_names_the_plain_array():
    import copy

    w = leaf()
    wanted = r"\.numpy\(\) where only its numbers are wanted"
    with GradientTape(), pytest.raises(UntrackedError, match=wanted):
        copy.copy(w[:, np.newaxis])
    np.testing.assert_array_equal(w[:, np.newaxis].numpy(), [[1.0], [2.0]])


# ------------------------------------------------------------------ rules of one's own


@pytest.mark.parametrize("elementwise", [True, False], ids=["elementwise", "of any shape"])
@pytest.mark.parametrize("deep", [True, False], ids=["inside", "at the leaf"])
def test_a_wrong_rule_is_named_with_its_op_and_operand(elementwise, deep):
    @od.op(
        elementwise=elementwise,
        vjp={"x": lambda g: g, "y": lambda g, x: np.ones(5)},
        jvp={"x": lambda t: t, "y": lambda t, x: np.ones(5)},
    )
    def faulty(x, y, /):
        return x + y

    w, v = leaf(), leaf()
    with GradientTape(persistent=True) as tape:
        y = faulty(w * 1.0, v * 1.0) * 2.0 if deep else faulty(w, v)
    with pytest.raises(ShapeError, match=r"faulty: the rule of y gave .* shape \(5,\).*\(2,\)"):
        tape.gradient(y, [w, v], np.ones(2))
    with pytest.raises(ShapeError, match=r"faulty: the rule of y"):
        tape.backward(y, np.ones(2))
    with pytest.raises(ShapeError, match=r"faulty: the forward rule of y"):
        tape.jvp(y, [w, v], [np.ones(2), np.ones(2)])


@pytest.mark.parametrize("result", [None, "text", (1.0, 2.0), np.ma.ones(2)], ids=repr)
def test_a_rule_or_an_op_that_returns_no_array_is_named(result):
    @od.op(vjp={"x": lambda g: result})
    def strange_rule(x, /):
        return x * 1.0

    @od.op(vjp={"x": lambda g: g})
    def strange_kernel(x, /):
        return result

    w = leaf()
    with GradientTape() as tape:
        y = strange_rule(w)
        with pytest.raises(DTypeError, match="strange_kernel: the result"):
            strange_kernel(w)
    with pytest.raises(DTypeError, match="strange_rule: the rule of x"):
        tape.gradient(y, w, np.ones(2))


# ------------------------------------------------------------------ the command line


def run(command):
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )


def test_the_list_of_ops_ends_quietly_when_its_reader_has_enough():
    found = run(f"set -o pipefail; '{sys.executable}' -m odyssey ops | head -n 1")
    assert found.stdout.startswith("CALL")
    assert found.stderr == ""
    assert found.returncode in (0, 141)  # 0 where all was written before head left


def test_an_op_that_is_not_there_is_answered_on_the_command_line():
    found = run(f"'{sys.executable}' -m odyssey ops mm")
    assert found.returncode == 1
    assert "write matmul" in found.stderr
    assert len(found.stderr.splitlines()) == 1


def texts(tree):
    """The strings of a module that may become part of a message: all but its docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if text and id(node) not in docstrings:
            yield node


# As a speaker of another language would say "is not a leaf", "does not know it", "is not an array".
ODD = re.compile(r"(?<!there)(?<!There) (is|are|was|knows|takes|asks for) no |^, no |has no say")


@pytest.mark.slow
def test_no_message_says_is_no_where_is_not_a_is_meant(trees):
    offenders = []
    for path, tree in trees.items():
        raised = {id(n) for r in ast.walk(tree) if isinstance(r, ast.Raise) for n in ast.walk(r)}
        for node in texts(tree):
            odd = id(node) in raised and " is no " in node.value.replace(" is no op", "")
            if odd or ODD.search(node.value):
                offenders.append(f"{path}:{node.lineno}: {node.value}")
    assert offenders == []


ENGLISH = {
    "leaf": (lambda v: (v * 1.0).assign(0.0), "assign: .* is not a leaf; build a new value"),
    "frozen": (lambda v: setattr(v * 1.0, "requires_grad", True), "is not a leaf; detach"),
    "Variable": (lambda v: GradientTape().explain(1.0, v), "the output is 1.0, which is not a V"),
    "tape": (lambda v: (v * 1.0).sum().backward(), "is not on a tape; compute it inside"),
    "id": (lambda v: swept(v).gradient(v * 1.0, 12), "this tape does not know the id 12"),
    "empty": (
        lambda v: ops.max(np.ones((0, 2)), 0),
        r"x \(0, 2\) has no elements .* and so no max",
    ),
    "pad": (lambda v: ops.pad(v, 1.5), "pad: pad_width 1.5 must hold ints only"),
    "repeat": (lambda v: ops.repeat(v, -1), "repeat: -1 came; a count cannot be negative"),
    "keyword": (lambda v: v.sum(nonsense=1), "sum: does not take nonsense"),
    "rule": (
        lambda v: od.backward.exp(1.0, 1.0, y=2),
        r"does not take y; the signature is \(g, out\)",
    ),
    "result": (
        lambda v: od.jacobian(lambda w: Unwilling())(v.data),
        "Unwilling object.*, which is not an array: it will not",
    ),
    "setting": (
        lambda v: od.optim.SGD([v], learning_rate=0.1).groups[0].change(rate=1.0),
        "rate: not among the settings; there are learning_rate, momentum",
    ),
}


class Unwilling:
    def __array__(self, dtype=None, copy=None):
        raise ValueError("it will not")


def swept(leaf):
    """A tape on which ``leaf`` was used."""
    with GradientTape() as tape:
        _ = leaf * leaf
    return tape


@pytest.mark.parametrize(("call", "words"), ENGLISH.values(), ids=list(ENGLISH))
def test_messages_are_plain_english(call, words):
    with pytest.raises(OdysseyError, match=words):
        call(leaf())


@pytest.mark.parametrize(
    ("call", "words"),
    {
        "a row": (
            lambda v: ops.sum(v, dim=0),
            "dim is called axis here; the signature is sum(x, /, axis=None, *, keepdims=False)",
        ),
        "a composite": (
            lambda v: ops.one_hot(v, size=3),
            "is one_hot(indices, num_classes, *, dtype=np.float64, axis=-1, tape=None)",
        ),
        "an axis of a number": (
            lambda v: ops.fft(v[0]),
            "fft: axis -1 does not fit a number, which has no axes",
        ),
        "weights": (
            lambda v: od.losses.cross_entropy(np.ones((2, 3)), [0, 1], weights=[1.0, 2.0, 3.0]),
            "cross_entropy: weights (3,) for losses (2,), with which they must broadcast; for "
            "weights of classes pass weights[targets]",
        ),
        "weights of text": (
            lambda v: od.losses.mean_squared_error(v, v, weights="a"),
            "mean_squared_error: weights: multiply: y is a str",
        ),
        "of real numbers": (
            lambda v: ops.floor(v * 1j),
            "floor: has no meaning for complex numbers; take the real part or the absolute value "
            "first; came complex128[2]",
        ),
        "of bits": (
            lambda v: v & 1,
            "bitwise_and: takes whole numbers and truth values; came float64[2], 1",
        ),
        "an op within an op": (
            lambda v: ops.svd(v),
            "svd: svd_factors: a has shape (2,); wanted are matrices, (..., m, n)",
        ),
    }.values(),
    ids=lambda value: "",
)
def test_a_message_names_what_was_called_and_reads_as_it_is_written(call, words):
    with pytest.raises(OdysseyError, match=re.escape(words)):
        call(leaf())

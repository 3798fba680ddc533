"""The first op that turns float32 to float64 is named by careful tapes and compiled functions."""

import warnings

import numpy as np
import pytest

import odyssey as od
from odyssey import GradientTape, Variable, ops
from odyssey.errors import WideningWarning

X = np.ones((2, 3), np.float32)


def narrow(dtype="float32"):
    return Variable(np.ones(3, dtype), requires_grad=True)


# By NumPy 2's promotion: numbers of NumPy and integers are strong, Python's numbers are weak.
WIDENS = {
    "number": (lambda w: w / np.sqrt(3), r"divide\(float32\[3\], float64\[\]\).*pass float\(y\)"),
    "number first": (lambda w: np.float64(2) * w, r"multiply\(.*since x is a number of float64"),
    "array": (lambda w: w + np.zeros(3), r"add\(.* since y is of float64; cast it"),
    "integers": (lambda w: w * np.arange(3), r"multiply\(float32\[3\], int64\[3\]\).*is of int64"),
    "third": (lambda w: ((w * 2.0 + 1.0) / np.float64(2)).sum(), r"divide\(float32\[3\], float64"),
    "half": (lambda w: w.astype("float16") * np.float64(2), r"multiply\(float16\[3\], float64"),
    "complex": (lambda w: w.astype("complex64") * np.float64(2), r"gives complex128\[3\]"),
    "where": (
        lambda w: ops.where(X[0] > 0, w, np.float64(0)),
        r"where\(bool\[3\], float32\[3\], f",
    ),
}
KEEPS = {
    "Python number": lambda w: w / float(np.sqrt(3)) + 1,
    "narrow number": lambda w: w * np.float32(2),
    "narrow array": lambda w: w * X[0],
    "cast on purpose": lambda w: w.astype("float64") * np.float64(2),
    "integer": lambda w: w * 3,
    "sum": lambda w: w.mean() + w.std(),
}


@pytest.mark.parametrize(("fn", "told"), WIDENS.values(), ids=WIDENS)
def test_a_careful_tape_names_the_first_op_that_widens_at_the_users_line(fn, told):
    w = narrow()
    with GradientTape(check=True):
        with pytest.warns(WideningWarning, match=told) as caught:
            fn(w)
        fn(w)  # once on a tape
    (warning,) = caught
    assert warning.filename == __file__
    assert str(warning.message).startswith("check: ")


@pytest.mark.parametrize("fn", KEEPS.values(), ids=KEEPS)
def test_a_careful_tape_says_nothing_of_what_keeps_float32_or_is_cast(fn):
    w = narrow()
    with GradientTape(check=True):
        fn(w)
    double = narrow("float64")
    with GradientTape(check=True):
        double * np.float64(2)
        double * w


def test_a_usual_tape_says_nothing():
    with GradientTape():
        assert (narrow() * np.float64(2)).dtype == np.float64


def called_twice(fn, *args, **settings):
    compiled = od.compile(fn, **settings)
    compiled(*args)
    compiled(*args)
    return compiled


@pytest.mark.parametrize("name", ["number", "array", "integers", "third", "where"])
def test_explain_names_the_first_op_that_widens(name):
    fn, told = WIDENS[name]
    w = narrow()
    text = called_twice(lambda x: fn(w * x), X[0]).explain(X[0])
    (line,) = [line for line in text.splitlines() if line.startswith("widens: ")]
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(line)


@pytest.mark.parametrize("fn", KEEPS.values(), ids=KEEPS)
def test_explain_says_nothing_of_what_keeps_float32_or_is_cast(fn):
    w = narrow()
    assert "widens" not in called_twice(lambda x: fn(w * x), X[0]).explain(X[0])


def test_explain_says_nothing_of_a_program_with_inputs_of_both_widths():
    compiled = called_twice(lambda x, y: (x * y * np.float64(2)).sum(), X, X.astype("float64"))
    assert "widens" not in compiled.explain(X, X.astype("float64"))


def test_a_function_compiled_with_check_warns_once_of_what_widens():
    w = narrow()
    compiled = od.compile(lambda x: ((x * w) / np.sqrt(3)).sum(), check=True)
    compiled(X)
    with pytest.warns(WideningWarning, match=r"^compile: divide\(") as caught:
        compiled(X)
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(X)

"""Every example in a docstring runs, and none escapes: prompts written = prompts found."""

import doctest
import importlib
import io
import re
from pathlib import Path

import numpy as np
import pytest

import odyssey

PACKAGE = Path(odyssey.__file__).resolve().parent
PROMPT = re.compile(r"^\s*>>> ", re.MULTILINE)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def modules_with_doctests():
    """Return the dotted names of the package's files that hold a prompt."""
    names = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if PROMPT.search(path.read_text(encoding="utf-8")):
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return names


def find_doctests(module):
    """Return the module's doctests, those on objects that are no functions or classes included."""
    names = {"np": np, "od": odyssey}  # what every docstring may take as imported
    globs = {**vars(module), **names}
    found = doctest.DocTestFinder(exclude_empty=True).find(module, globs=globs)
    seen = {test.name for test in found}
    parser = doctest.DocTestParser()
    for name, value in vars(module).items():
        text = getattr(value, "__doc__", None)
        qualified = f"{module.__name__}.{name}"
        if (
            qualified not in seen
            and getattr(value, "__module__", None) == module.__name__
            and isinstance(text, str)
            and PROMPT.search(text)
        ):
            found.append(parser.get_doctest(text, globs, qualified, module.__file__, None))
    return found


@pytest.mark.parametrize("name", modules_with_doctests())
def test_docstring_examples_print_what_they_show(name, tmp_path, monkeypatch):
    if name.startswith("odyssey.kernels."):
        pytest.importorskip("numba", reason="numba, which compiles kernels, is missing")
    if name == "odyssey.compiler.tuning":  # what it measures is not for the programs of other tests
        monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    module = importlib.import_module(name)
    tests = find_doctests(module)
    written = len(PROMPT.findall(Path(module.__file__).read_text(encoding="utf-8")))
    assert sum(len(test.examples) for test in tests) >= written, f"{name} hides a doctest"

    report = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for test in tests:
        runner.run(test, out=report.write)
    assert runner.failures == 0, report.getvalue()

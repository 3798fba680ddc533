"""Every code block of the README and of the pages in docs/ runs, and prints what it shows.

The blocks of a page run in order and share their names. A block with ``>>>`` is a doctest, any
other block a program. A page may say two things about itself, in comments that a reader does not
see: ``<!-- slow -->``, so that the test is a slow one, and ``<!-- needs: scipy -->``, so that it is
skipped where a library is missing.
"""

import doctest
import importlib.util
import io
import linecache
import operator
import re
from pathlib import Path
from types import ModuleType

import pytest

import odyssey as od

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if "_build" not in path.parts
}
PAGES = [
    pytest.param(name, id=name, marks=[pytest.mark.slow] if "<!-- slow -->" in text else [])
    for name, text in TEXTS.items()
    if BLOCK.search(text)
]


def run_page(name):
    """Run the blocks of a page in order, and return the names that they define."""
    text, module = TEXTS[name], ModuleType("page")
    names, report = vars(module), io.StringIO()
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for block in BLOCK.finditer(text):
        program, line = block[1], text.count("\n", 0, block.start()) + 1
        if re.search(r"^>>> ", program, re.MULTILINE):
            test = doctest.DocTestParser().get_doctest(program, names, name, name, line)
            runner.run(test, out=report.write, clear_globs=False)
            names.update(test.globs)  # get_doctest copies the names
        else:
            source = "\n" * line + program  # so that a traceback has the line of the page
            linecache.cache[name] = (len(source), None, source.splitlines(True), name)
            exec(compile(source, name, "exec"), names)
    assert runner.failures == 0, report.getvalue()
    return names


@pytest.mark.share(1)  # ordinary runs have all pages, but for those that are slow
@pytest.mark.parametrize("name", PAGES)
def test_the_blocks_of_a_page_run_and_print_what_they_show(name, tmp_path, monkeypatch):
    for library in re.findall(r"<!-- needs: (\w+) -->", TEXTS[name]):
        if importlib.util.find_spec(library) is None:
            pytest.skip(f"needs {library}, which is not installed")
    monkeypatch.chdir(tmp_path)  # for what a page saves
    if any(
        "od.tune(" in block for block in BLOCK.findall(TEXTS[name])
    ):  # what it measures is not for the programs of other tests
        monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    run_page(name)


def test_the_names_of_the_library_that_pages_mention_exist():
    missing = []
    for page, text in TEXTS.items():
        for name in sorted(set(re.findall(r"\bod\.((?:[A-Za-z]\w*\.)*[A-Za-z]\w*)", text))):
            try:
                operator.attrgetter(name)(od)
            except AttributeError:
                missing.append(f"{page}: od.{name}")
    assert missing == []


def test_a_block_that_fails_or_prints_something_else_is_found(monkeypatch):
    monkeypatch.setitem(TEXTS, "wrong.md", "```python\nx = 2\n```\n```python\n>>> x\n3\n```\n")
    with pytest.raises(AssertionError, match=r'File "wrong.md", line 5'):
        run_page("wrong.md")
    monkeypatch.setitem(TEXTS, "broken.md", "A page\n\n```python\n\nx = 1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError) as caught:
        run_page("broken.md")
    assert caught.traceback[-1].lineno + 1 == 5

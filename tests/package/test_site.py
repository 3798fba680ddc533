"""The documentation site: a small one is built, and each check finds a planted fault."""

import importlib.util
import re
import shutil

import pytest

from tools.docs.__main__ import LIBRARIES, build_site
from tools.docs.build_folder import ROOT, BuildFolder
from tools.docs.check_browser import check_browser, chromium
from tools.docs.check_files import check_coverage, check_files

missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
needs_docs = pytest.mark.skipif(
    bool(missing), reason=f"needs the extra 'docs'; missing here: {', '.join(missing)}"
)
has_browser = importlib.util.find_spec("playwright") is not None and chromium() is not None
needs_browser = pytest.mark.skipif(
    not has_browser, reason="needs playwright, of the extra 'docs', and an installed Chromium"
)
pytestmark = [pytest.mark.slow, needs_docs]

HOME = """# Home

See [the other page](learn/index.md#formulas), [a program](engine.py) and [an example](../examples).
"""
LEARN = """# Learn

## Formulas

$\\\\frac{1}{2}$ and

$$
a &= b \\\\\\\\
c &= \\\\text{d}
$$
"""
EXAMPLE = '''"""A picture.

The example draws one.
"""

import matplotlib.pyplot as plt

plt.plot([1, 2])
print("drawn")
'''


def write_small_site(folder, home=HOME, example=EXAMPLE):
    """Write pages and an example for a site without reference, and return its folders."""
    docs, examples = folder / "docs", folder / "examples"
    shutil.copytree(ROOT / "docs" / "_static", docs / "_static")
    shutil.copy(ROOT / "docs" / "conf.py", docs)
    (docs / "learn").mkdir()
    (docs / "index.md").write_text(home, encoding="utf-8")
    (docs / "learn" / "index.md").write_text(LEARN.replace("\\\\", "\\"), encoding="utf-8")
    (docs / "engine.py").write_text('"""A program."""\n', encoding="utf-8")
    examples.mkdir()
    (examples / "01_picture.py").write_text(example, encoding="utf-8")
    return BuildFolder(folder / "build", docs, examples)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    build = write_small_site(tmp_path_factory.mktemp("site"))
    assert build_site(build, reference={}, root_pages=False) == 0
    return build


@pytest.fixture
def site(built, tmp_path):
    """A copy of the site, to plant a fault in."""
    shutil.copytree(built.folder, tmp_path / "build")
    return BuildFolder(tmp_path / "build", built.docs, built.example_sources)


def test_a_sound_site_has_no_faults(built):
    assert list(check_files(built)) == []
    text = (built.html / "learn" / "index.html").read_text(encoding="utf-8")
    assert text.count('class="odyssey-math"') == 2
    assert 'aria-label="\\frac{1}{2}"' in text


def test_outputs_of_examples_are_kept_until_the_example_or_the_library_changes(built, capfd):
    page = built.source / "gallery" / "01_picture.rst"
    assert "drawn" in page.read_text(encoding="utf-8")
    record = built.source / "gallery" / "01_picture.py.md5"
    before = record.stat().st_mtime_ns
    assert build_site(built, reference={}, root_pages=False) == 0
    assert record.stat().st_mtime_ns == before
    (built.folder / "library.sha256").write_text("of another library")
    assert build_site(built, reference={}, root_pages=False) == 0
    assert record.stat().st_mtime_ns > before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param({"home": HOME + "[a](none.md)\n"}, "none.md", id="dead link"),
        pytest.param({"home": HOME + "[a](learn/index.md#none)\n"}, "none", id="dead anchor"),
        pytest.param({"home": HOME + "$\\none$\n"}, "not mathtext", id="formula"),
        pytest.param({"example": EXAMPLE + "1 / 0\n"}, "ZeroDivisionError", id="failing example"),
    ],
)
def test_a_fault_in_the_source_fails_the_build(changes, message, tmp_path, capfd):
    build = write_small_site(tmp_path, **changes)
    assert build_site(build, reference={}, root_pages=False) != 0
    printed = capfd.readouterr()
    assert message in printed.out + printed.err


def append(site, text):
    page = site.html / "index.html"
    page.write_text(page.read_text(encoding="utf-8").replace("</article>", f"{text}</article>"))


@pytest.mark.parametrize(
    ("planted", "message"),
    [
        pytest.param('<a href="none.html">a</a>', "dead link: index.html to none.html", id="link"),
        pytest.param(
            '<a href="learn/index.html#none">a</a>', "dead anchor: index.html", id="anchor"
        ),
        pytest.param(
            '<script src="https://cdn.example/a.js"></script>',
            "request to another host: index.html loads https://cdn.example/a.js",
            id="script from a CDN",
        ),
        pytest.param(
            '<link rel="stylesheet" href="//fonts.example/a.css"/>',
            "request to another host: index.html loads //fonts.example/a.css",
            id="style from a CDN",
        ),
        pytest.param(
            '<img src="_static/plus.png"/>', "picture without text: index.html", id="image"
        ),
        pytest.param(
            '<svg role="img" aria-label=""></svg>', "picture without text: index.html", id="drawing"
        ),
    ],
)
def test_a_fault_on_a_page_is_found(planted, message, site):
    append(site, planted)
    assert any(fault.startswith(message) for fault in check_files(site)), [*check_files(site)]


def test_a_font_from_another_host_is_found(site):
    style = site.html / "_static" / "odyssey.css"
    style.write_text('@font-face { src: url("https://fonts.example/a.woff2"); }')
    assert any("loads https://fonts.example/a.woff2" in fault for fault in check_files(site))


def test_an_example_that_did_not_run_is_found(site):
    (site.source / "gallery" / "01_picture.py.md5").unlink()
    assert list(check_files(site)) == ["example that did not run to its end: 01_picture.py"]


def test_a_public_name_without_a_page_and_an_op_without_a_plot_are_found(tmp_path):
    from tools.docs.reference import reference_pages

    pages = reference_pages()
    for name, text in pages.items():
        page = tmp_path / re.sub(r"\.(rst|md)$", ".html", name)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(text.replace(":Plot:", ">Plot<"), encoding="utf-8")
    assert list(check_coverage(tmp_path)) == []
    (tmp_path / "reference" / "api" / "odyssey.hvp.html").unlink()
    relu = tmp_path / "reference" / "ops" / "relu.html"
    relu.write_text(relu.read_text(encoding="utf-8").replace("odyssey-plot", ""), encoding="utf-8")
    assert list(check_coverage(tmp_path)) == [
        "public name without a page: odyssey.hvp",
        "op without a plot or the reason why there is none: relu",
    ]


@needs_browser
@pytest.mark.parametrize(
    ("planted", "message"),
    [
        pytest.param("", "", id="none"),
        pytest.param(
            '<div style="width: 700px">wide</div>', "overflow at 390 px: index", id="overflow"
        ),
        pytest.param(
            '<script>console.error("broken")</script>', "console error: broken", id="console"
        ),
        pytest.param("<script>none()</script>", "console error: none is not", id="exception"),
        pytest.param(
            '<img alt="a" src="http://host.example/a.png"/>',
            "request to another host: http://host.example/a.png",
            id="request",
        ),
    ],
)
def test_a_fault_that_a_browser_shows_is_found(planted, message, site):
    append(site, planted)
    faults = list(check_browser(site.html, ["index"], {}))
    assert any(fault.startswith(message) for fault in faults) if message else faults == []


@needs_browser
def test_a_query_without_its_page_is_found(site):
    assert list(check_browser(site.html, [], {"formulas": "learn/index"})) == []
    (fault,) = check_browser(site.html, [], {"huber": "learn/index"})
    assert "'huber' does not find learn/index" in fault

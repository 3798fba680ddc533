"""The source folder of the site: pages of ``docs/``, files of the root, examples, reference."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tools.docs.build_folder import ROOT, BuildFolder

__all__ = ["remove_old_pages", "write_source"]

ROOT_PAGES = {
    "DESIGN.md": "project/design.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "benchmarks/README.md": "project/benchmarks.md",
    "README.md": "index.md",
}
"""Source pages of files outside of ``docs/``, by path in the checkout."""

ORDER = ("learn", "how-to", "coming-from", "sharp-edges", "gallery", "reference", "project")
"""Entries of the home page's table of contents; other pages of ``docs/`` come before the last two.
"""

_PROJECT = """\
# Project

* [Design](design.md): glossary and architecture
* [Contributing](contributing.md): how to add an op, a loss, an optimizer, a pass or a guard
* [Changelog](changelog.md)
* [Benchmarks](benchmarks.md): workloads, peers, and how to repeat the measurements
"""

_FENCE = re.compile(r"^(```+|~~~+).*?^\1[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:")


def write_source(
    build: BuildFolder, generated: Mapping[str, str], *, root_pages: bool = True
) -> None:
    """Write the source folder; files with equal content keep their time stamps.

    Args:
        build: Where the folder lies.
        generated: Texts of generated pages by path in the source folder; one that ``docs/`` has
            too is put behind that page's text.
        root_pages: Whether files outside of ``docs/`` have pages.
    """
    files: dict[str, str | bytes] = dict(generated)
    pages = _pages(build.docs)
    for path, page in pages.items():
        if not root_pages and build.docs not in path.parents:
            continue
        text = _with_source_links(path, page, path.read_text(encoding="utf-8"), build.docs)
        files[page] = f"{text}\n{generated[page]}" if page in generated else text
    for path in _other_files(build.docs):
        files[path.relative_to(build.docs).as_posix()] = path.read_bytes()
    for name in _linked_programs(build.docs):
        files[f"code/{Path(name).stem}.md"] = _program_page(build.docs / name)
    if root_pages:
        files["project/index.md"] = _PROJECT
    for page in [page for page in files if posixpath.basename(page) == "index.md"]:
        files[page] = _with_contents(page, files)
    _write_files(build.source, files, keep=("gallery", "sg_execution_times.rst"))
    _write_files(build.examples, dict(_examples(build.example_sources)), keep=())
    _forget_old_outputs(build)


def remove_old_pages(build: BuildFolder) -> None:
    """Remove pages of the site whose source is gone, which Sphinx leaves."""
    for path in build.html.rglob("*.html"):
        name = path.relative_to(build.html).as_posix().removesuffix(".html")
        sources = [build.source / f"{name}{suffix}" for suffix in (".md", ".rst")]
        generated = name in ("genindex", "search", "py-modindex") or name.startswith("_static/")
        if not generated and not any(source.is_file() for source in sources):
            path.unlink()


# ------------------------------------------------------------------ pages and their links


def _pages(docs: Path) -> dict[Path, str]:
    """Return the page of each Markdown file."""
    pages = {path: path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md"))}
    home = docs / "index.md" in pages
    for name, page in ROOT_PAGES.items():
        if (ROOT / name).is_file() and not (page == "index.md" and home):
            pages[ROOT / name] = page
    return pages


def _other_files(docs: Path) -> Iterator[Path]:
    """Yield files of ``docs/`` that pages refer to: pictures, styles, the configuration."""
    for path in sorted(docs.rglob("*")):
        if path.is_file() and path.suffix != ".md" and "__pycache__" not in path.parts:
            yield path


def _source_page(target: Path, docs: Path) -> str | None:
    """Return the page that stands for a file or folder of the checkout."""
    if target == ROOT / "README.md":
        return "index.md"
    pages = _pages(docs)
    if target in pages:
        return pages[target]
    if target.is_dir() and target / "index.md" in pages:
        return pages[target / "index.md"]
    if target.is_dir() and target / "README.md" in pages:
        return pages[target / "README.md"]
    examples = ROOT / "examples"
    if target == examples:
        return "gallery/index.rst"
    if target.parent == examples and target.suffix == ".py":
        return f"gallery/{target.stem}.rst"
    if target.suffix == ".py" and docs in target.parents and target.is_file():
        return f"code/{target.stem}.md"
    return None


def _with_source_links(path: Path, page: str, text: str, docs: Path) -> str:
    """Return a page whose relative links to files of the checkout are links to their pages.

    A link to a file that has no page becomes a download if the file lies in ``docs/``, and text
    elsewhere; one to a file that does not exist stays, and Sphinx warns.
    """

    def replace(match: re.Match[str]) -> str:
        bang, label, target = match.groups()
        name, hash_sign, anchor = target.partition("#")
        if bang or _EXTERNAL.match(target) or not name:
            return match[0]
        file = Path(os.path.normpath(path.parent / name))
        other = _source_page(file, docs)
        if other is None and docs in file.parents and file.is_file():
            return f"{{download}}`{label} <{target}>`"
        if other is None:
            return label if file.exists() else match[0]
        return f"[{label}]({posixpath.relpath(other, posixpath.dirname(page))}{hash_sign}{anchor})"

    return _outside_of_code(text, lambda prose: _LINK.sub(replace, prose))


def _outside_of_code(text: str, change: Callable[[str], str]) -> str:
    """Return the text with all but its fenced blocks changed."""
    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [change(text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, change(text[end:])])


def _linked_programs(docs: Path) -> list[str]:
    """Return the programs in ``docs/`` that are shown on pages of their own."""
    programs = [path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.py"))]
    return [name for name in programs if name != "conf.py"]


def _program_page(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    title = re.match(r'"""(.*?)[.:]?\n', text)
    heading = title[1].replace("``", "`") if title else path.name
    return (
        f"---\norphan: true\n---\n\n# {heading}\n\n`docs/{path.name}`\n\n````python\n{text}````\n"
    )


# ------------------------------------------------------------------ tables of contents


def _with_contents(page: str, files: Mapping[str, str | bytes]) -> str:
    """Return an index page with a table of contents of its folder, unless it has one.

    Pages stand in the order in which the index links to them, the others by name behind.
    """
    text = files[page]
    assert isinstance(text, str)
    folder = posixpath.dirname(page)
    if not folder:
        text = re.sub(r"^```\{toctree\}.*?^```\n?", "", text, flags=re.MULTILINE | re.DOTALL)
    if "{toctree}" in text:
        return text
    entries = _root_entries(files) if not folder else _folder_entries(folder, text, files)
    lines = ["```{toctree}", ":hidden:", *([] if folder else [":maxdepth: 3"]), "", *entries, "```"]
    return text.rstrip() + "\n\n" + "\n".join(lines) + "\n" if entries else text


def _root_entries(files: Mapping[str, str | bytes]) -> list[str]:
    # sphinx-gallery writes the gallery later; it is there all the same.
    names = {posixpath.splitext(name)[0] for name in files} | {"gallery/index"}
    entries = [f"{entry}/index" if f"{entry}/index" in names else entry for entry in ORDER]
    top = {n for n in names if "/" not in n and f"{n}.md" in files} - {"index", *ORDER}
    listed = [entry for entry in entries if entry in names]
    before = [entry for entry in listed if entry.split("/")[0] not in ("reference", "project")]
    return [*before, *sorted(top), *listed[len(before) :]]


def _folder_entries(folder: str, text: str, files: Mapping[str, str | bytes]) -> list[str]:
    pages = [
        posixpath.relpath(posixpath.splitext(name)[0], folder)
        for name in sorted(files)
        if name.startswith(f"{folder}/") and name.endswith((".md", ".rst"))
    ]
    pages = [name for name in pages if "/" not in name or name.endswith("/index")]
    targets = [posixpath.splitext(match[3].partition("#")[0])[0] for match in _LINK.finditer(text)]
    position = {name: k for k, name in reversed(list(enumerate(targets)))}
    pages.sort(key=lambda name: (position.get(name, len(targets)), name))
    return [name for name in pages if name != "index"]


# ------------------------------------------------------------------ examples


def _examples(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the examples, with a heading as sphinx-gallery wants it, and the gallery's head.

    Files without a number are modules that examples import: they are shown, but not run.
    """
    heads = [path for path in sorted(folder.glob("*.rst")) if path.stem.isupper()]
    for path in [*sorted(folder.glob("*.py")), *heads]:
        text = path.read_text(encoding="utf-8")
        yield path.name, _with_heading(text) if path.suffix == ".py" else text
    if not heads:
        yield "GALLERY_HEADER.rst", "Gallery\n=======\n\nPrograms to run, with their output.\n"


def _with_heading(text: str) -> str:
    """Return an example whose first line is a heading in reStructuredText."""
    match = re.match(r'(r?""")(.*)\n', text)
    if match is None or re.match(r"([=\-~])\1+\n", text[match.end() :]):
        return text
    title = match[2].rstrip(".:").replace("`", "")
    return f"{match[1]}{title}\n{'=' * len(title)}\n{text[match.end() :]}"


def _forget_old_outputs(build: BuildFolder) -> None:
    """Let examples run again if the library has changed since they ran.

    sphinx-gallery keeps the output of an example while a hash of its text stays; the library, which
    the output depends on as well, has a hash here.
    """
    hasher = hashlib.sha256()
    for path in sorted([*(ROOT / "odyssey").rglob("*.py"), build.docs / "conf.py"]):
        hasher.update(path.read_bytes())
    recorded = build.folder / "library.sha256"
    if not recorded.is_file() or recorded.read_text() != hasher.hexdigest():
        for path in build.source.glob("gallery/*.md5"):
            path.unlink()
        recorded.write_text(hasher.hexdigest())


# ------------------------------------------------------------------ writing


def _write_files(folder: Path, files: Mapping[str, str | bytes], keep: tuple[str, ...]) -> None:
    """Make a folder hold these files, and no others but those to keep."""
    for name, content in files.items():
        data = content.encode("utf-8") if isinstance(content, str) else content
        path = folder / name
        if not path.is_file() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in files and name.split("/")[0] not in keep:
            path.unlink()

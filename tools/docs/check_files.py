"""Checks of the built site that read its files: links, requests, pictures, coverage, examples."""

from __future__ import annotations

import html
import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from odyssey.describe.entries import entries
from tools.docs.build_folder import BuildFolder
from tools.docs.objects import MODULES, documented, public_names

__all__ = ["check_files", "pages_of"]

_TAG = re.compile(r"<(a|img|script|link|iframe|source|svg|object|embed|video|audio)\b([^>]*)>")
_ATTRIBUTE = re.compile(r'([\w:-]+)\s*=\s*"([^"]*)"')
_ID = re.compile(r'\b(?:id|name)="([^"]+)"')
_CSS_URL = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])([^"')]+)""")
_REMOTE = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:")


def check_files(build: BuildFolder) -> Iterator[str]:
    """Yield a line for each fault that the files of the built site have."""
    pages = pages_of(build.html)
    yield from _links(build.html, pages)
    yield from _requests(build.html, pages)
    yield from _pictures(build.html, pages)
    yield from _examples(build)


def check_coverage(folder: Path) -> Iterator[str]:
    """Yield a line for each public name without a page, and each op without a plot or a reason."""
    for module in MODULES:
        for name in public_names(module):
            full = f"{module}.{name}"
            page = documented().get(full)
            if full not in MODULES and (page is None or not (folder / f"{page}.html").is_file()):
                yield f"public name without a page: {full}"
    for name in entries():
        page_file = folder / "reference" / "ops" / f"{name}.html"
        text = page_file.read_text(encoding="utf-8") if page_file.is_file() else ""
        if 'class="odyssey-plot"' not in text and ">Plot<" not in text:
            yield f"op without a plot or the reason why there is none: {name}"


def pages_of(folder: Path) -> Mapping[Path, str]:
    """Return the text of each page of a site."""
    return {path: path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.html"))}


def _attributes(tag: re.Match[str]) -> dict[str, str]:
    return {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(tag[2])}


def _links(folder: Path, pages: Mapping[Path, str]) -> Iterator[str]:
    ids = {path: {html.unescape(i) for i in _ID.findall(text)} for path, text in pages.items()}

    @cache
    def is_file(path: Path) -> bool:
        return path.is_file()

    for path, text in pages.items():
        seen = set()
        for tag in _TAG.finditer(text):
            attributes = _attributes(tag)
            target = attributes.get("href") or attributes.get("src") or ""
            if not target or target in seen or _SCHEME.match(target) or target.startswith("//"):
                continue
            seen.add(target)
            name, _, anchor = unquote(target).partition("#")
            file = Path(os.path.normpath(path.parent / name.partition("?")[0])) if name else path
            if not is_file(file):
                yield f"dead link: {path.relative_to(folder)} to {target}"
            elif anchor and file in ids and anchor not in ids[file]:
                yield f"dead anchor: {path.relative_to(folder)} to {target}"


def _requests(folder: Path, pages: Mapping[Path, str]) -> Iterator[str]:
    """Yield scripts, styles, fonts and pictures that come from another host."""
    for path, text in pages.items():
        for tag in _TAG.finditer(text):
            attributes = _attributes(tag)
            target = attributes.get("src") or attributes.get("data") or ""
            if tag[1] == "link":
                target = attributes.get("href", "")
            if _REMOTE.match(target):
                yield f"request to another host: {path.relative_to(folder)} loads {target}"
    for path in sorted(folder.rglob("*.css")):
        for target in _CSS_URL.findall(path.read_text(encoding="utf-8")):
            if _REMOTE.match(target):
                yield f"request to another host: {path.relative_to(folder)} loads {target}"


def _pictures(folder: Path, pages: Mapping[Path, str]) -> Iterator[str]:
    for path, text in pages.items():
        for tag in _TAG.finditer(text):
            attributes = _attributes(tag)
            label = attributes.get("alt", "") or attributes.get("aria-label", "")
            shown = tag[1] == "img" or (tag[1] == "svg" and attributes.get("role") == "img")
            if shown and not label.strip():
                source = attributes.get("src", "a drawing")
                yield f"picture without text: {path.relative_to(folder)}, {source}"


def _examples(build: BuildFolder) -> Iterator[str]:
    for path in sorted(build.examples.glob("[0-9]*.py")):
        page = build.html / "gallery" / f"{path.stem}.html"
        if not page.is_file():
            yield f"example without a page: {path.name}"
        elif not (build.source / "gallery" / f"{path.name}.md5").is_file():
            yield f"example that did not run to its end: {path.name}"

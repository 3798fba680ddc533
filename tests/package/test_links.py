"""Relative links of the Markdown files lead to files and headings that exist."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP = [*ROOT.glob("*.md"), ROOT / "benchmarks" / "README.md"]
PAGES = sorted({*TOP, *(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts)})


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def prose_of(text):
    """Text without blocks of code."""
    kept, fence = [], None
    for line in text.splitlines():
        mark = line.strip()
        if fence is None and mark.startswith("```"):
            fence = mark[: len(mark) - len(mark.lstrip("`"))]
        elif fence is None:
            kept.append(line)
        elif mark == fence:
            fence = None
    return "\n".join(kept)


@cache
def anchors_of(text):
    """Anchors of headings, as file viewers and MyST make them, and those that are written out."""
    found, seen = set(re.findall(r'<a (?:id|name)="([^"]+)"', text)), {}
    found |= set(re.findall(r"^\(([\w.-]+)\)=$", text, re.MULTILINE))
    for heading in re.findall(r"^#+ (.+)$", prose_of(text), re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        count = seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{count}" if count else slug)
    return found


def dead_links(page, text):
    """The targets of links of a page that lead nowhere."""
    dead = []
    prose = re.sub(r"`[^`\n]*`", "", prose_of(text))  # in code, brackets are no links
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists():
            dead.append(target)
        elif anchor and file.suffix == ".md":
            headings = text if not path else file.read_text(encoding="utf-8")
            if anchor not in anchors_of(headings):
                dead.append(target)
    return dead


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_links_of_a_page_lead_to_files_and_headings_that_exist(page):
    assert dead_links(page, page.read_text(encoding="utf-8")) == []


def test_a_dead_link_and_a_dead_anchor_are_found():
    text = "# A head, of `two`\n[a](none.md) [b](README.md#none) [c](#a-head-of-two) [d](DESIGN.md)"
    assert dead_links(ROOT / "README.md", text) == ["none.md", "README.md#none"]

"""Docstrings in Google's form, as reStructuredText."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

__all__ = ["Docstring", "parse", "to_rst"]

_SECTIONS = ("Args", "Returns", "Raises", "Attributes", "Yields", "Note", "Warning", "Warns")
_HEADINGS = {"Args": "Arguments", "Note": "Note", "Warning": "Warning"}
_SECTION = re.compile(rf"({'|'.join(_SECTIONS)}):\s*(.*)")
_ITEM = re.compile(r"(\*{0,2}[A-Za-z_][\w.]*(?:, \*{0,2}[A-Za-z_][\w.]*)*):(?:\s+(.*))?$")
_RAISED = re.compile(r"([A-Z]\w*(?:, (?:or )?[A-Z]\w*| or [A-Z]\w*)*):\s+")
_LITERAL = re.compile(r"``(.+?)``", re.DOTALL)
_BULLET = re.compile(r"[*-] ")


@dataclass
class Docstring:
    """A docstring in its parts.

    Attributes:
        summary: The first line.
        blocks: Paragraphs, lists, programs and doctests, each with its lines, without sections.
        sections: Items by section: pairs of a name, which may be empty, and a text.
    """

    summary: str = ""
    blocks: list[list[str]] = field(default_factory=list)
    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)


def parse(text: str | None) -> Docstring:
    """Return the parts of a docstring.

    >>> parsed = parse(parse.__doc__.split(">>>")[0])
    >>> parsed.summary, parsed.sections
    ('Return the parts of a docstring.', {})
    """
    lines = inspect.cleandoc(text or "").split("\n")
    result = Docstring(lines[0])
    k = 1
    while k < len(lines):
        match = _SECTION.fullmatch(lines[k])
        if match:
            k, body = _indented(lines, k + 1)
            items = _items(match[1], ([match[2]] if match[2] else []) + body)
            result.sections.setdefault(match[1], []).extend(items)
        elif lines[k].strip():
            k, block = _block(lines, k)
            result.blocks.append(block)
        else:
            k += 1
    return result


def _indented(lines: list[str], start: int) -> tuple[int, list[str]]:
    """Return the end of the indented lines from ``start``, and these lines dedented."""
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(" ")):
        end += 1
    return end, textwrap.dedent("\n".join(lines[start:end])).strip("\n").split("\n")


def _block(lines: list[str], start: int) -> tuple[int, list[str]]:
    end = start
    while end < len(lines) and lines[end].strip():
        end += 1
    block = lines[start:end]
    if block[-1].rstrip().endswith("::"):  # with the program that it announces
        while end < len(lines) and not lines[end].strip():
            end += 1
        end, program = _indented(lines, end)
        block = [*block, "", *(f"    {line}".rstrip() for line in program)]
    return end, block


def _items(section: str, body: list[str]) -> list[tuple[str, str]]:
    """Return the named items of a section, or one without a name."""
    if section in ("Args", "Attributes"):
        items: list[tuple[str, list[str]]] = []
        for line in body:
            match = _ITEM.fullmatch(line) if not line.startswith(" ") else None
            if match:
                items.append((match[1], [match[2] or ""]))
            elif items:
                items[-1][1].append(line)
            else:
                items.append(("", [line]))
        return [(name, _joined(texts)) for name, texts in items]
    if section == "Raises":
        text = " ".join(line.strip() for line in body).strip()
        starts = list(_RAISED.finditer(text))
        if starts and starts[0].start() == 0:
            ends = [*(start.start() for start in starts[1:]), len(text)]
            return [(s[1], text[s.end() : e].strip()) for s, e in zip(starts, ends, strict=True)]
        return [("", text)]
    return [("", _joined(body))]


def _joined(lines: list[str]) -> str:
    first, *rest = lines
    return f"{first}\n{textwrap.dedent(chr(10).join(rest))}".strip()


# ------------------------------------------------------------------ reStructuredText


def to_rst(parsed: Docstring, link: Callable[[str], str | None]) -> Iterator[str]:
    """Yield the lines of a docstring in reStructuredText.

    Args:
        parsed: The docstring.
        link: Returns the full name of a documented object that a literal means, or None.
    """
    yield from (prose(parsed.summary, link), "")
    tests = [block for block in parsed.blocks if block[0].startswith(">>>")]
    for block in parsed.blocks:
        if not block[0].startswith(">>>"):
            yield from _block_lines(block, link)
    for section, items in parsed.sections.items():
        heading = _HEADINGS.get(section, section)
        yield f":{heading}:"
        for name, text in items:
            yield from _item_lines(section, name, text, link)
        yield ""
    if tests:
        yield from (".. rubric:: Example", "")
    for block in tests:
        yield from ("", ".. code-block:: pycon", "")
        yield from (f"   {line}".rstrip() for line in block)
        yield ""


def _item_lines(
    section: str, name: str, text: str, link: Callable[[str], str | None]
) -> Iterator[str]:
    lines = _text_lines(text, link)
    if not name:
        yield from (f"   {line}".rstrip() for line in lines)
        return
    if section == "Raises":
        names = re.findall(r"[A-Z]\w*", name)
        shown = ", ".join(_reference(n, n, link) for n in names)
    else:
        shown = ", ".join(f"``{n}``" for n in name.split(", "))
    yield f"   {shown}"
    yield from (f"      {line}".rstrip() for line in lines)


def _text_lines(text: str, link: Callable[[str], str | None]) -> list[str]:
    blocks = re.split(r"\n\s*\n", text)
    lines: list[str] = []
    for block in blocks:
        lines += [*_block_lines(block.split("\n"), link)]
    return lines[:-1]


def _block_lines(block: list[str], link: Callable[[str], str | None]) -> Iterator[str]:
    if block[0].startswith(">>>"):
        yield from (".. code-block:: pycon", "")
        yield from (f"   {line}".rstrip() for line in block)
    elif "" in block:  # a paragraph that announces a program
        end = block.index("")
        paragraph = prose(" ".join(line.strip() for line in block[:end]), link)
        yield from (re.sub(r"::$", ":", paragraph), "", ".. code-block:: python", "")
        yield from (f"   {line[1:]}".rstrip() for line in block[end + 1 :])
    elif any(_BULLET.match(line) for line in block):
        for item in _bullets(block):
            yield f"{item[0]}{prose(item[1], link)}"
    elif all(line.startswith("    ") for line in block):
        yield from ("::", "")
        yield from block
    else:
        yield prose(" ".join(line.strip() for line in block), link)
    yield ""


def _bullets(block: list[str]) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    for line in block:
        if _BULLET.match(line):
            items.append(("* ", line[2:].strip()))
        elif items:
            items[-1] = (items[-1][0], f"{items[-1][1]} {line.strip()}")
        else:
            items.append(("", line.strip()))
    if items and not items[0][0]:
        items.insert(1, ("", ""))
    return items


def prose(text: str, link: Callable[[str], str | None]) -> str:
    r"""Return plain text with literals as reStructuredText; literals become links where they can.

    >>> prose("|x| is ``abs(x)``", lambda name: None)
    '\\|x\\| is ``abs(x)``'
    """
    parts, end = [], 0
    for match in _LITERAL.finditer(text):
        parts += [_escaped(text[end : match.start()]), _literal(match[1], link)]
        end = match.end()
    return _spaced([*parts, _escaped(text[end:])])


def _spaced(parts: list[str]) -> str:
    """Join parts; a literal that touches a letter needs an escaped space between."""
    result = ""
    for k, part in enumerate(parts):
        if k % 2 and result and re.search(r"[\w]$", result):
            result += "\\ "
        if k and not k % 2 and part and re.match(r"[\w]", part):
            result += "\\ "
        result += part
    return result


def _literal(text: str, link: Callable[[str], str | None]) -> str:
    return _reference(" ".join(text.split()), text, link)


def _reference(shown: str, name: str, link: Callable[[str], str | None]) -> str:
    target = link(name)
    return f":py:obj:`{shown} <{target}>`" if target else f"``{shown}``"


def _escaped(text: str) -> str:
    return re.sub(r"([\\*`|_])", r"\\\1", text)

"""Names of the library that examples use, from their syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache

from tools.docs.build_folder import ROOT

__all__ = ["example_uses"]


@cache
def example_uses() -> Mapping[str, set[str]]:
    """Return the examples, by their names without suffix, that use each full name."""
    uses: dict[str, set[str]] = {}
    for path in sorted((ROOT / "examples").glob("[0-9]*.py")):
        for name in _names(ast.parse(path.read_text(encoding="utf-8"))):
            uses.setdefault(name, set()).add(path.stem)
    return uses


def _names(tree: ast.Module) -> Iterator[str]:
    imported: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "odyssey":
                    imported[alias.asname or "odyssey"] = alias.name if alias.asname else "odyssey"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "odyssey":
            for alias in node.names:
                imported[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in imported:
            yield imported[node.id]
        elif isinstance(node, ast.Attribute):
            dotted = _dotted(node)
            root, _, rest = dotted.partition(".")
            if root in imported:
                yield f"{imported[root]}.{rest}"


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"

"""The compiler knows what rows mean, and none of them by name."""

import ast
from pathlib import Path

import pytest

import odyssey.compiler

FILES = sorted(Path(odyssey.compiler.__file__).parent.rglob("*.py"))
ROOMS = ("ops", "linalg", "fft", "special", "nn", "losses")
# What guards know by its class: it has no row. And the two rows that a scan stands for, which is
# written out step by step: its columns are indexed, and its results stacked.
KNOWN = {
    "odyssey.ops.random.generator",
    "odyssey.ops.structure.indexing",
    "odyssey.ops.structure.joining",
}


@pytest.mark.parametrize("path", FILES, ids=[path.name for path in FILES])
def test_no_file_imports_rows_or_asks_for_the_name_of_one(path):
    name = path.name
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            home, _, rest = node.module.partition(".")
            rows = home == "odyssey" and rest.partition(".")[0] in ROOMS
            assert not rows or node.module in KNOWN, name
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            names = [s for s in sides if ast.unparse(s).endswith("row.name")]
            texts = [s for s in sides if isinstance(s, ast.Constant) and isinstance(s.value, str)]
            assert not (names and texts), f"{name}:{node.lineno} asks for a name"


def test_the_files_are_looked_at():
    assert {"lowering.py", "simplify.py", "loops.py"} <= {path.name for path in FILES}

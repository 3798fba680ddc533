"""The index of op modules: every op that is declared is listed in it."""

import re
from pathlib import Path

import odyssey
from odyssey.table.index import COMPOSITES, ROWS

ROOT = Path(odyssey.__file__).parent
DECLARATION = re.compile(r"^@(?:op|composite)\b.*?^def (\w+)\(", re.MULTILINE | re.DOTALL)
REFRESH = "not in the index; run 'python -m tools.reference'"


def listed(module):
    names = f"{ROWS.get(module, '')} {COMPOSITES.get(module, '')}"
    return {name for entry in names.split() for name in entry.split("=")}


def missing(module, source):
    return [name for name in DECLARATION.findall(source) if name not in listed(module)]


def test_every_row_and_composite_is_in_the_index():
    found = []
    for path in ROOT.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if source.endswith("\npublish(globals())\n"):
            module = ".".join(("odyssey", *path.relative_to(ROOT).with_suffix("").parts))
            found += [f"{module}.{name}" for name in missing(module, source)]
    assert not found, f"{', '.join(found)}: {REFRESH}"


def test_an_op_that_was_added_to_a_module_is_missing_from_the_index_of_before():
    module = "odyssey.ops.elementwise.trigonometry"
    source = (ROOT / "ops/elementwise/trigonometry.py").read_text(encoding="utf-8")
    added = '@op(\n    vjp={"x": lambda g, x: g},\n)\ndef new_op(x, /):\n    return x\n'
    assert missing(module, source + added) == ["new_op"]

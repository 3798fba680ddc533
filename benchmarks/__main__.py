"""Run a benchmark by its name.

python -m benchmarks                     # which there are
python -m benchmarks scans --rounds 15   # the same as python benchmarks/scans.py --rounds 15
"""

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Not what a benchmark starts in processes of its own.
FILES = [p for p in HERE.glob("*.py") if not p.stem.endswith(("_", "worker"))]
BY_NAME = {p.stem: p for p in FILES} | {p.parent.name: p for p in HERE.glob("*/__main__.py")}
NAMES = sorted(BY_NAME)


def _said(name: str) -> str:
    """What a benchmark is, in a line."""
    tree = ast.parse(BY_NAME[name].read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def main() -> None:
    """Run the benchmark that is named, with the arguments behind its name."""
    if sys.argv[1:] in ([], ["-h"], ["--help"]):
        print("\n".join(f"{name:<18}{_said(name)}" for name in NAMES))
        return
    name = sys.argv[1]
    if name not in NAMES:
        raise SystemExit(f"no benchmark is called {name!r}; there are {', '.join(NAMES)}")
    path = BY_NAME[name]
    sys.argv[:] = [str(path), *sys.argv[2:]]
    sys.path[0] = str(HERE)  # as Python does for a file
    runpy.run_path(str(path), run_name="__main__")


if __name__ == "__main__":
    main()

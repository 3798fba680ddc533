"""Style, types, tests and walks of one room or one file: ``python -m tools.check nn``.

A room is a folder of ``odyssey/``, such as ``nn``, ``compiler`` or a folder below it; a file is
one of ``odyssey/`` or ``tests/``. Everything is derived from the tree: tests of a room lie in the
folder of ``tests/`` with its name, tests of a file bear its name or import it, and its rows are
those of the table that are declared there.
"""

import ast
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FEW = 20  # rows whose walks run in full; of more, walks take what ordinary runs take


def main(arguments: list[str]) -> int:
    """Run the checks of a room or file; return 1 if one of them fails, and else 0."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    target = find_target(arguments[0])
    # A folder that stays, so that the second check of a room compiles next to nothing.
    environment = {"ODYSSEY_TEST_CACHE": str(ROOT / ".pytest_cache" / "odyssey")} | os.environ
    environment["ODYSSEY_TEST_STRICT"] = "1"  # a test that takes too long fails
    shares = {"ODYSSEY_TEST_SHARES": "1"} if len(rows_of(target)) > FEW else {}
    failed = []
    for command in commands(target):
        print("$", *(word if len(word) < 200 else f"{word[:200]}…" for word in command), flush=True)
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=ROOT, env=environment | shares, check=False
        )
        print(f"  {time.perf_counter() - started:.1f} s\n", flush=True)
        # pytest returns 5 where no test was selected: rows without options have some walks only.
        if done.returncode not in ((0, 5) if command[0] == "pytest" else (0,)):
            failed.append(command[0])
    print("failed: " + ", ".join(failed) if failed else "all passed")
    return int(bool(failed))


def find_target(name: str) -> Path:
    """Return the folder or file that a name stands for, relative to the root.

    Raises:
        SystemExit: There is none.
    """
    for path in (ROOT / "odyssey" / name, ROOT / "odyssey" / f"{name}.py", Path(name).resolve()):
        if path.exists() and path.is_relative_to(ROOT):
            found = path.relative_to(ROOT)
            if len(found.parts) > 1 and found.parts[0] in ("odyssey", "tests"):
                return found
    rooms = sorted(p.name for p in (ROOT / "odyssey").iterdir() if (p / "__init__.py").exists())
    raise SystemExit(
        f"{name}: neither a room nor a file of odyssey/ or tests/; the rooms are {', '.join(rooms)}"
    )


def commands(target: Path) -> list[list[str]]:
    """Return the commands that check a target, each for ``python -m``."""
    tests = tests_of(target)
    checked = [str(target), *(str(test) for test in tests)]
    found = [["ruff", "check", *checked], ["ruff", "format", "--check", *checked]]
    if target.parts[0] == "odyssey":
        kind = "-m" if target.suffix else "-p"
        found.append(["mypy", kind, module_of(target)])
    if tests:
        found.append(["pytest", "-q", *(str(test) for test in tests)])
    rows = rows_of(target)
    if rows:
        found.append(["pytest", "-q", "tests/walks", "-k", " or ".join(rows)])
    return found


def module_of(target: Path) -> str:
    """Return the dotted name of a file or folder of the package."""
    parts = target.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tests_of(target: Path) -> list[Path]:
    """Return the tests of a target: a room's folder, or files that bear its name or import it."""
    if target.parts[0] == "tests":
        return [target]
    if len(target.parts) == 2 and not target.suffix:
        folder = Path("tests", target.name)
        return [folder] if (ROOT / folder).is_dir() else []
    module = module_of(target)
    members = [target] if target.suffix else (ROOT / target).rglob("*.py")
    names = {f"test_{path.stem}" for path in members}
    return [
        path.relative_to(ROOT)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if path.parent.name != "peers"
        and (
            any(path.stem == name or path.stem.startswith(f"{name}_") for name in names)
            or imports(path, module)
        )
    ]


def imports(path: Path, module: str) -> bool:
    """Return whether a file imports a module, or one below it."""
    text = path.read_text(encoding="utf-8")
    parent, _, name = module.rpartition(".")
    if parent not in text or name not in text:  # saves most of the parsing
        return False
    for node in ast.walk(ast.parse(text)):
        found = set()
        if isinstance(node, ast.ImportFrom) and node.module:
            found = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found = {alias.name for alias in node.names}
        if any(f"{each}.".startswith(f"{module}.") for each in found):
            return True
    return False


def rows_of(target: Path) -> list[str]:
    """Return the names of the ops that are declared in a file, or in the files of a folder."""
    if target.parts[0] != "odyssey":
        return []
    from odyssey import describe

    module = module_of(target)
    entries = describe.entries().values()
    return [entry.name for entry in entries if f"{entry.module}.".startswith(f"{module}.")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What the repository says about itself is true."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import odyssey
from odyssey.ops import COMPOSITES, OPS

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

SETUP_COMMANDS = [
    'pip install -e ".[examples]" && python -m odyssey train',
    'pip install -e ".[test,examples]" && pytest',
]


def test_the_version_is_the_same_in_the_package_and_in_its_metadata():
    assert odyssey.__version__ == PROJECT["version"]


@pytest.mark.parametrize("command", SETUP_COMMANDS, ids=["try", "test"])
@pytest.mark.parametrize("file", ["README.md", ".ci/run"])
def test_the_set_up_commands_are_told_and_run_word_for_word(file, command):
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    assert command in [line.strip().removeprefix("$ ") for line in lines]


def test_the_row_that_the_guide_shows_is_the_one_in_the_table():
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (row,) = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    source = ROOT / "odyssey" / "ops" / "elementwise" / "trigonometry.py"
    assert row in source.read_text(encoding="utf-8")


def test_every_requirement_has_a_lower_and_an_upper_bound():
    extras = PROJECT["optional-dependencies"].values()
    for requirement in [*PROJECT["dependencies"], *(r for extra in extras for r in extra)]:
        # An exact version, as the tools of the documentation have it, is both bounds.
        exact = re.fullmatch(r"[\w.-]+==\d+(\.\d+)*", requirement)
        assert exact or (">=" in requirement and ",<" in requirement), requirement


def test_no_file_mentions_a_path_of_the_machine_it_was_written_on():
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    # Others are files that git does not know yet, but would not ignore.
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.split(b"\0")
    # Joined here, so that this file does not hold what it looks for.
    folders = [b"/".join([b"", *parts, b""]) for parts in ([b"work"], [b"tmp", b"v"], [b"root"])]
    offenders = [
        f"{path.relative_to(ROOT)}: {folder.decode()}"
        for path in (ROOT / name.decode() for name in listed if name)
        if path.is_file()  # a listed file may be deleted
        for folder in folders
        if folder in path.read_bytes()
    ]
    assert not offenders


def test_tests_lie_in_folders_named_after_rooms_and_no_two_files_share_a_name():
    tests = ROOT / "tests"
    files = [path for path in tests.rglob("test_*.py") if "__pycache__" not in path.parts]
    assert {path.parent.parent for path in files} == {tests}
    rooms = {path.name for path in (ROOT / "odyssey").iterdir() if path.is_dir()}
    # The whole of it, the documentation site, other libraries, the study among the benchmarks, and
    # walks over the table.
    others = {"package", "docs", "peers", "study", "walks"}
    assert {path.parent.name for path in files} <= rooms | others
    assert len({path.name for path in files}) == len(files)


def test_benchmarks_are_listed_and_run_by_name():
    def run(*arguments):
        command = [sys.executable, "-m", "benchmarks", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    listed = [line.split()[0] for line in run().stdout.splitlines()]
    text = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    assert {"kernels", "run"} <= set(listed)
    packages = {"card", "study"}
    lines = [f"{name}.py" for name in listed if name not in packages]
    lines += [f"python -m benchmarks {name}" for name in packages]
    assert [line for line in lines if line not in text] == []
    assert run("--help").stdout == run().stdout
    helped = run("kernels", "--help")
    assert (helped.returncode, "--rounds" in helped.stdout) == (0, True)
    unknown = run("kernel")
    assert unknown.returncode == 1
    assert "no benchmark is called 'kernel'; there are both_ways" in unknown.stderr


def test_importing_the_package_does_not_import_numba():
    program = "import sys, odyssey; sys.exit('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_importing_the_package_looks_for_no_name_like_another():
    program = "import sys, odyssey; sys.exit('difflib' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_importing_the_package_loads_no_random_numbers_and_nothing_else_that_programs_do_without():
    program = (
        # (``dataclasses`` loads inspect; later versions of NumPy than 2.0 load it themselves.)
        "import sys, numpy, dataclasses; before = set(sys.modules); import odyssey; "
        "names = {'numpy.random', 'random', 'inspect', 'asyncio', 'zipfile', 'argparse', 'ast'}; "
        "sys.exit(', '.join(names & set(sys.modules) - before) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False)
    assert done.returncode == 0


def test_the_package_declares_its_types():
    assert (Path(odyssey.__file__).parent / "py.typed").is_file()


@pytest.mark.slow
def test_no_modules_import_each_other_in_a_circle_not_even_for_types():
    root = Path(odyssey.__file__).parent
    named = {}
    for file in root.rglob("*.py"):
        parts = file.relative_to(root.parent).with_suffix("").parts
        named[".".join(part for part in parts if part != "__init__")] = file
    wanted = {name: set() for name in named}
    for name, file in named.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("odyssey"):
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                wanted[name] |= full & named.keys() or {node.module}
    assert sum(map(len, wanted.values())) > 500
    TopologicalSorter(wanted).prepare()  # raises CycleError, which names the circle


def test_no_file_of_a_room_has_the_name_of_an_op():
    # The module would take the op's place in the room as soon as it is imported.
    rooms = [
        ROOT / "odyssey" / room for room in ("fft", "linalg", "losses", "nn", "ops", "special")
    ]
    names = {path.stem for room in rooms for path in room.glob("*.py")}
    assert not names & {*OPS, *COMPOSITES}

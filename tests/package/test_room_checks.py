"""``python -m tools.check`` runs the checks of a room or file, and derives them from the tree."""

import subprocess
from pathlib import Path

import pytest

from odyssey.ops import OPS
from tools import check

COSINE = next(
    path.relative_to(check.ROOT)
    for path in (check.ROOT / "odyssey").rglob("*.py")
    if path.name == "trigonometry.py"
)


def test_a_room_is_checked_with_its_folder_of_tests():
    style, layout, types, tests, walks = check.commands(check.find_target("nn"))
    assert style == ["ruff", "check", "odyssey/nn", "tests/nn"]
    assert layout[:3] == ["ruff", "format", "--check"]
    assert types == ["mypy", "-p", "odyssey.nn"]
    assert tests == ["pytest", "-q", "tests/nn"]
    assert walks[2] == "tests/walks"
    assert {"relu", "linear"} <= set(walks[-1].split(" or "))


def test_a_file_is_checked_with_the_walks_of_its_own_rows():
    target = check.find_target(str(check.ROOT / COSINE))
    assert target == COSINE
    rows = check.rows_of(target)
    assert {"sin", "cos", "tan"} <= set(rows)
    assert all(OPS[name].module == check.module_of(target) for name in rows if name in OPS)
    assert ["mypy", "-m", check.module_of(COSINE)] in check.commands(target)


def test_tests_of_a_file_bear_its_name_or_import_it(tmp_path, monkeypatch):
    texts = {
        "odyssey/room/thing.py": "",
        "tests/room/test_thing.py": "",
        "tests/room/test_thing_of_many.py": "",
        "tests/room/test_things.py": "",
        "tests/walks/test_user.py": "from odyssey.room import thing",
        "tests/walks/test_neighbour.py": "from odyssey.room import thing_of_many",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    found = [path.name for path in check.tests_of(Path("odyssey/room/thing.py"))]
    assert found == ["test_thing.py", "test_thing_of_many.py", "test_user.py"]
    assert check.tests_of(Path("odyssey/room")) == [Path("tests/room")]
    assert check.tests_of(Path("tests/room/test_things.py")) == [Path("tests/room/test_things.py")]


@pytest.mark.parametrize("name", ["nosuch", "README.md", "odyssey"])
def test_what_is_neither_room_nor_file_is_refused_with_the_rooms(name):
    with pytest.raises(SystemExit, match=r"neither a room nor a file.*compiler, .*nn, "):
        check.find_target(name)


def test_a_failure_of_one_check_is_reported_after_all_of_them(monkeypatch, capsys):
    ran = []

    def run(command, **settings):
        ran.append(command[2])
        return subprocess.CompletedProcess(command, int(command[2] == "ruff"))

    monkeypatch.setattr(check.subprocess, "run", run)
    assert check.main(["graph"]) == 1
    assert ran[-1] == "pytest"
    assert capsys.readouterr().out.endswith("failed: ruff, ruff\n")
    monkeypatch.setattr(
        check.subprocess, "run", lambda *given, **named: type("D", (), {"returncode": 0})
    )
    assert check.main(["graph"]) == 0

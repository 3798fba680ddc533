"""Programs that ``benchmarks/card`` prepares as data run without a card, and faults are found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from card.here import HostRun
from card.on_card import read_programs, write_programs
from card.prepare import workload

ROOT = Path(__file__).parents[2]
ON_CARD = ROOT / "benchmarks" / "card" / "on_card.py"


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A step of W1, through a file."""
    path = tmp_path_factory.mktemp("card") / "programs.npz"
    write_programs(path, [workload("W1", small=True)])
    (found,) = read_programs(path)
    return found


def test_a_stored_step_has_the_loss_and_the_states_of_numpy(stored):
    assert len(stored["left"]) > 3
    run = HostRun(stored)
    run.once()
    assert run.differences() == []


def test_a_wrong_result_a_wrong_state_and_a_step_left_out_are_found(stored):
    def differences(**changes):
        run = HostRun({**stored, **changes})
        run.once()
        return run.differences()

    (view, loss), *_ = stored["results"]
    assert differences(results=[[view, loss * 1.01]]) == ["W1: result 0 differs"]
    key, left = stored["left"][0]
    (found,) = differences(left=[[key, left + 0.1]])
    assert found == f"W1: state {key[1]} differs"
    launches = [s for s in stored["steps"] if s[0] != "launch"]
    assert differences(steps=launches)


def test_what_runs_on_a_card_imports_numpy_alone_and_says_what_is_missing(tmp_path):
    program = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); "
        "print([m for m in ('odyssey', 'numba', 'llvmlite', 'cupy') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, ON_CARD], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    refused = subprocess.run(
        [sys.executable, ON_CARD, tmp_path], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 1
    assert "card prepare" in refused.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cupy", "message"),
    [
        pytest.param(
            "raise ImportError('no libcudart')",
            "CuPy cannot be imported (no libcudart); pip install cupy-cuda13x",
            id="no CuPy",
        ),
        pytest.param(
            "class cuda:\n"
            "    class runtime:\n"
            "        def getDeviceProperties(k):\n"
            "            raise RuntimeError('cudaErrorInsufficientDriver')",
            "CuPy finds no card (cudaErrorInsufficientDriver); run it on a machine with",
            id="no driver",
        ),
    ],
)
def test_without_cupy_or_a_card_the_first_part_says_so_and_ends_the_run(cupy, message, tmp_path):
    (tmp_path / "cupy.py").write_text(cupy)
    (tmp_path / "programs.npz").touch()
    done = subprocess.run(
        [sys.executable, ON_CARD, tmp_path],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"on_card: {message}")
    (part,) = map(json.loads, done.stdout.splitlines())
    assert (part["part"], part["ended"]) == ("versions", 1)


def test_a_full_folder_is_not_written_to(tmp_path):
    from card.prepare import prepare

    (tmp_path / "mine.txt").write_text("kept")
    with pytest.raises(SystemExit, match="is not empty; pass a new folder"):
        prepare(str(tmp_path), small=True)
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.slow
def test_a_small_set_is_prepared_and_runs_here(tmp_path):
    for part in (["prepare", "--out", str(tmp_path), "--small"], ["here", str(tmp_path)]):
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks", "card", *part],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 results wrong" in done.stdout
    assert int(done.stdout.split()[0]) > 50
    ended = subprocess.run(  # a part that fails is named, and the others run
        [sys.executable, str(tmp_path / "on_card.py"), str(tmp_path), "versions"],
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        assert "cupy" in ended.stderr
    else:
        assert json.loads(ended.stdout.splitlines()[0])["part"] == "versions"


def test_no_figure_is_claimed_that_was_not_measured():
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    assert "No figure on a card is measured" in text

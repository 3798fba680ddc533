"""What fails becomes a record, and the study goes on."""

import math
import re
import sys

import pytest

from study.records import read_records
from study.schema import record_faults
from support.study import HERE, run_study


def python_alone(folder):
    """Return the path of an interpreter that has the standard library alone."""
    path = folder / "python_alone"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    out = tmp_path_factory.mktemp("faulty")
    done = run_study(out, HERE / "faulty.py", "--peer-python", f"torch={python_alone(out)}")
    assert done.returncode == 1, done.stderr
    return read_records(out / "records.jsonl", pytest.fail).of("faulty")


STATUSES = {
    "wrong": ("wrong", "gradient[1]: 2.5 came, 2.0 was wanted; the relative error is 0.25, at"),
    "shape": ("wrong", "gradient: shape (3,) came, shape (2,) was wanted"),
    "missing": ("wrong", "gradient: nothing came, shape (2,) was wanted"),
    "error": ("error", "ValueError: the build fails (faulty.py, line "),
    "exit": ("error", "taped: no message (exit status 7)"),
    "killed": ("error", "(signal SIGKILL)"),
    "hang": ("timeout", "taped: no answer in 8 s"),
    "hang in a sample": ("timeout", "taped: no answer in 8 s"),
    "memory": ("out-of-memory", "MB are resident, of at most 160"),
    "memory error": ("out-of-memory", "MemoryError: too much"),
    "no number": ("error", "only"),
    "not applicable": ("absent", "it cannot do this"),
}


@pytest.mark.slow
def test_a_fault_is_one_record_that_says_which_and_nothing_is_measured_of_it(faulty):
    for fault, (status, message) in STATUSES.items():
        (record,) = faulty.where("taped", fault=fault)
        assert record["status"] == status, record
        assert message in record["message"]
        assert not faulty.has("taped", fault=fault)


@pytest.mark.slow
def test_the_other_systems_are_measured_beside_each_fault(faulty):
    for fault in (*STATUSES, "none", "prints"):
        assert faulty.estimate("numpy", "metric", fault=fault).rounds == 2, fault
        assert faulty.values("numpy", "error", fault=fault) == {0: math.inf, 1: math.inf}
    for fault in ("none", "prints"):
        assert faulty.estimate("taped", "metric", fault=fault).rounds == 2


@pytest.mark.slow
def test_nobody_is_measured_where_the_reference_fails(faulty):
    records = faulty.where(fault="reference").lines
    assert [(line["system"], line["status"]) for line in records] == [
        ("numpy", "error"),
        ("taped", "error"),
    ]
    for line in records:
        assert line["message"].startswith("the reference failed: ValueError: nobody knows (faulty")


@pytest.mark.slow
def test_a_library_that_is_not_installed_is_one_record_with_the_way_to_install_it(faulty):
    (record,) = faulty.where("torch")
    assert record["status"] == "absent"
    assert re.fullmatch(
        r"torch is not installed for .*/python_alone; --peer-python chooses another",
        record["message"],
    )


@pytest.mark.slow
def test_an_interpreter_that_cannot_be_started_is_refused_before_anything_is_written(tmp_path):
    done = run_study(tmp_path, HERE / "alike.py", "--peer-python", "no_such_python")
    assert done.returncode == 1
    assert done.stderr == (
        "--peer-python: no_such_python cannot be started (No such file or directory); the path of "
        "a Python interpreter is wanted\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_records_of_faults_keep_to_the_schema_and_say_what_came_and_what_was_wanted(faulty):
    assert [record_faults(line) for line in faulty if record_faults(line)] == []
    (wrong,) = faulty.where("taped", fault="wrong")
    assert wrong["wrong"] == {
        "name": "gradient[1]",
        "came": 2.5,
        "wanted": 2.0,
        "relative_error": 0.25,
        "tolerance": 1e-6,
    }


@pytest.mark.slow
def test_an_unknown_experiment_is_named_with_those_that_there_are(tmp_path):
    done = run_study(tmp_path, "no_such,stability,nor.py")
    assert done.returncode == 1
    assert "--only: unknown: no_such, nor.py; choose from " in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_tenth_more_work_is_found(tmp_path):
    done = run_study(tmp_path, HERE / "planted.py")
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path / "records.jsonl", pytest.fail).of("planted")
    ratio = records.ratio("taped", "numpy", "cpu_seconds", number=0)
    assert ratio.low > 1, ratio
    assert ratio.low < 1.1 < ratio.high or abs(ratio.median - 1.1) < 0.05, ratio


@pytest.mark.soak
def test_equal_work_is_seen_as_no_difference_in_nineteen_of_twenty(tmp_path):
    done = run_study(tmp_path, HERE / "alike.py")
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path / "records.jsonl", pytest.fail).of("alike")
    numbers = records.axis("number")
    assert len(numbers) == 20
    ratios = [records.ratio("taped", "numpy", "cpu_seconds", number=n) for n in numbers]
    # The level of an interval is 3.5 %: four or more of twenty come once in 200 runs.
    assert sum(ratio.differs_from(1.0) for ratio in ratios) <= 3, ratios

"""All experiments of the study, at few sizes and with few rounds."""

import os

import pytest

from study.records import judged, read_records
from study.running import library_of
from study.schema import record_faults
from study.worker import experiment_names, load_experiment
from support.study import ROOT, run_study

QUICK_SECONDS = 120
COMMITTED = ROOT / "benchmarks" / "records" / "study.jsonl"

# The study runs in the setup of the first test.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """Records of ``study --quick``, and the processor seconds that it took."""
    out = tmp_path_factory.mktemp("quick")
    before = os.times()
    done = run_study(out, None, "--quick", timeout=900)
    after = os.times()
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = sum(after[2:4]) - sum(before[2:4])
    return read_records(out / "records.jsonl", pytest.fail), seconds


def test_the_quick_study_takes_two_minutes_at_most(quick):
    _, seconds = quick
    assert seconds <= QUICK_SECONDS


def test_every_record_of_every_experiment_keeps_to_the_schema(quick):
    records, _ = quick
    assert set(records.experiments()) == {load_experiment(n).NAME for n in experiment_names()}
    assert [found for line in records if (found := record_faults(line))] == []
    assert [found for line in records.headers if (found := record_faults(line))] == []


def test_nobody_fails_who_is_installed_and_odyssey_is_measured_at_every_config(quick):
    records, _ = quick
    assert [line for line in records.failures() if line["status"] != "absent"] == []
    for name in experiment_names():
        experiment = load_experiment(name)
        mine = records.of(experiment.NAME)
        for config in experiment.configs(True):
            measured = [
                line
                for line in mine.measured()
                if line["config"] == config and library_of(line["system"]) == "odyssey"
            ]
            assert measured, (name, config)


@pytest.mark.skipif(not COMMITTED.exists(), reason=f"{COMMITTED.name} is not committed")
def test_counts_are_those_of_the_committed_study(quick):
    def counts_of(records):
        return {
            (line["experiment"], line["system"], str(line["config"])): line["counts"]
            for line in records.measured()
        }

    now, committed = counts_of(quick[0]), counts_of(read_records(COMMITTED, pytest.fail))
    shared = [key for key in now if key in committed and now[key]]
    assert shared
    assert {key: now[key] for key in shared} == {key: committed[key] for key in shared}


def test_every_hypothesis_is_judged_by_the_quick_records(quick):
    records, _ = quick
    for name in experiment_names():
        experiment = load_experiment(name)
        mine = records.of(experiment.NAME)
        verdicts = judged(experiment.HYPOTHESES, mine)
        assert len(verdicts) == len(experiment.HYPOTHESES) > 0, name
        assert {v.outcome for v in verdicts.values()} <= {"held", "refuted", "undecided"}
        assert experiment.pictures(mine) is not None

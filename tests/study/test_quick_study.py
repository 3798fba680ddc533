"""All experiments of the study, at few sizes and with few rounds."""

import pytest

from study.records import judged, read_records
from study.running import library_of
from study.schema import record_faults
from study.worker import experiment_names, load_experiment
from support.study import ROOT, run_study

COMMITTED = ROOT / "docs" / "study" / "records.jsonl.gz"
# Counts that depend on neither the processor nor the versions of Python and NumPy.
PORTABLE = {"distinct", "forward_flops", "nodes", "saved_bytes", "sweep_flops"}

# The study runs in the setup of the first test.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1000)]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    """Records of ``study --quick``."""
    out = tmp_path_factory.mktemp("quick")
    done = run_study(out, None, "--quick", timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    return read_records(out / "records.jsonl", pytest.fail)


def test_every_record_of_every_experiment_keeps_to_the_schema(records):
    assert set(records.experiments()) == {load_experiment(n).NAME for n in experiment_names()}
    assert [found for line in records if (found := record_faults(line))] == []
    assert [found for line in records.headers if (found := record_faults(line))] == []


def test_nobody_fails_who_is_installed_and_odyssey_is_measured_at_every_config(records):
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


def test_counts_are_those_of_the_committed_study(records):
    def counts_of(some):
        return {
            (line["experiment"], line["system"], str(line["config"]), name): count
            for line in some.measured()
            for name, count in line["counts"].items()
            if name in PORTABLE and library_of(line["system"]) == "odyssey"
        }

    now, committed = counts_of(records), counts_of(read_records(COMMITTED, pytest.fail))
    shared = now.keys() & committed.keys()
    assert shared
    assert {key: now[key] for key in shared} == {key: committed[key] for key in shared}


def test_every_hypothesis_is_judged_by_the_quick_records(records):
    for name in experiment_names():
        experiment = load_experiment(name)
        mine = records.of(experiment.NAME)
        verdicts = judged(experiment.HYPOTHESES, mine)
        assert len(verdicts) == len(experiment.HYPOTHESES) > 0, name
        assert {v.outcome for v in verdicts.values()} <= {"held", "refuted", "undecided"}
        assert experiment.pictures(mine) is not None

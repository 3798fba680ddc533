"""Selection and estimates of records, verdicts, and the schema."""

import json
import math

import pytest

from study.contract import Estimate, Hypothesis, Verdict
from study.records import MissingRecords, Records, judged
from study.schema import faults, record_faults, schema
from support.study import header, sample


def records_of(*lines):
    return Records(lines, [header()])


def test_a_ratio_is_taken_between_neighbours_in_one_round():
    drift = [1.0, 2.0, 4.0]  # the machine slows down, and both systems with it
    records = records_of(
        *(sample("taped", k, 2 * slow) for k, slow in enumerate(drift)),
        *(sample("numpy", k, slow) for k, slow in enumerate(drift)),
    )
    assert records.ratio("taped", "numpy", "cpu_seconds", size=1) == Estimate(2, 2, 2, 3, False)
    assert records.estimate("taped", "cpu_seconds").median == 4.0
    assert records.estimate("taped", "cpu_seconds").noisy


def test_samples_of_two_sessions_are_no_neighbours():
    records = records_of(
        *(sample("taped", k, 2.0) for k in range(3)),
        *(sample("numpy", k, 1.0) for k in range(2)),
        sample("numpy", 2, 100.0, session=1),
    )
    assert records.ratio("taped", "numpy", "seconds") == Estimate(2, 2, 2, 2, False)
    assert records.estimate("numpy", "seconds").rounds == 3
    only = records_of(sample("taped", 0, 2.0), sample("numpy", 0, 1.0, session=1))
    assert only.ratio("taped", "numpy", "seconds").median == 2.0  # there is no other round


def test_the_last_attempt_counts():
    noisy = [sample("taped", k, 5.0 + k) for k in range(3)]
    again = [sample("taped", k, 2.0, attempt=1) for k in range(3)]
    records = records_of(*noisy, *again)
    assert records.estimate("taped", "seconds") == Estimate(2, 2, 2, 3, False)
    assert records.values("taped", "seconds") == {0: 2.0, 1: 2.0, 2: 2.0}


def test_selection_is_by_system_and_config():
    records = records_of(
        sample("torch", 0, 1.0, config={"size": 30, "causal": True}),
        sample("taped", 0, 1.0, config={"size": 4, "causal": True}),
        sample("taped", 0, 2.0, config={"size": 30, "causal": False}),
        sample("taped", 0, 3.0, config={"size": 30, "causal": True}),
    )
    assert records.axis("size") == [4, 30]
    assert records.axis("size", causal=False) == [30]
    assert records.axis("size", system="torch") == [30]
    assert records.systems() == ["taped", "torch"]
    assert len(records.where(system="taped", size=30)) == 2
    assert records.estimate("taped", "seconds", size=30, causal=True).median == 3.0
    with pytest.raises(ValueError, match=r"2 configs have records, .* name more entries"):
        records.estimate("taped", "seconds", causal=True)
    with pytest.raises(MissingRecords, match=r"seconds of numpy at \{'size': 4\}: nothing was"):
        records.estimate("numpy", "seconds", size=4)


def test_a_system_that_failed_at_a_config_has_no_estimate_there():
    failed = {"status": "error", "message": "it died", "round": 1, "attempt": 0}
    head = {name: sample("taped", 0, 1.0)[name] for name in ("study", "run", "session")}
    broken = {**head, "experiment": "e", "system": "taped", "config": {"size": 1}, **failed}
    records = records_of(sample("taped", 0, 1.0), broken, sample("numpy", 0, 1.0))
    assert not records.has("taped", size=1)
    assert records.systems() == ["numpy"]
    assert [line["message"] for line in records.failures()] == ["it died"]
    with pytest.raises(MissingRecords):
        records.estimate("taped", "seconds", size=1)


def test_numbers_that_are_not_finite_are_read_as_they_were_measured():
    metrics = {"error": "inf", "other": "nan"}
    records = records_of(sample("taped", 0, 1.0, metrics=metrics))
    assert records.estimate("taped", "error").median == math.inf
    assert math.isnan(records.estimate("taped", "other").median)


def test_counts_are_those_of_a_config():
    records = records_of(sample("taped", 0, 1.0))
    assert records.counts("taped") == {"nodes": 3}
    assert records.count("taped", "nodes", size=1) == 3
    with pytest.raises(MissingRecords, match="taped: kernels was not counted at"):
        records.count("taped", "kernels")


def test_p_values_of_an_experiment_are_corrected_together():
    def hypothesis(name, p, outcome="held"):
        return Hypothesis(name, "claim", "refuted by", lambda records: Verdict(outcome, {}, p))

    four = [*(hypothesis(n, p) for n, p in zip("abc", (0.001, 0.02, 0.03), strict=True))]
    verdicts = judged([*four, hypothesis("counts", None)], records_of())
    assert {name: v.outcome for name, v in verdicts.items()} == {
        **{"a": "held", "b": "held", "c": "held"},
        "counts": "held",
    }
    five = [hypothesis(n, 0.02) for n in "abc"]
    verdicts = judged(five, records_of())
    assert {v.outcome for v in verdicts.values()} == {"undecided"}
    assert {v.note for v in verdicts.values()} == {"no difference seen"}
    assert [v.p for v in verdicts.values()] == pytest.approx([0.06] * 3)


def test_a_hypothesis_without_its_records_is_undecided_and_says_what_is_missing():
    def judge(records):
        return Verdict("held", {"cost": records.estimate("jax", "seconds", size=8)})

    verdict = judged([Hypothesis("a", "claim", "refuted by", judge)], records_of())["a"]
    assert verdict.outcome == "undecided"
    assert verdict.note == "seconds of jax at {'size': 8}: nothing was measured"


BREAKS = {
    "no run": {"run": None},
    "a number of another kind": {"round": 1.5},
    "a truth as a number": {"round": True},
    "a negative round": {"round": -1},
    "an unknown status": {"status": "fine"},
    "an infinity that JSON lacks": {"metrics": {"seconds": math.inf}},
    "a list of metrics": {"metrics": [1]},
    "an entry too many": {"figure": 1},
    "a name with a space": {"system": "a b"},
    "an object that is no value": {"config": {"x": {"y": object()}}},
}


@pytest.mark.parametrize("change", BREAKS.values(), ids=BREAKS)
def test_the_schema_refuses(change):
    good = sample("taped", 0, 1.0)
    assert record_faults(good) == []
    (found, *_) = record_faults({**good, **change})
    assert found.startswith("record")


def test_each_entry_of_a_record_is_required():
    for good in (header(), sample("taped", 0, 1.0)):
        for name in set(good) - {"set_aside"}:
            less = {key: value for key, value in good.items() if key != name}
            assert record_faults(less), name


def rules_in(rule):
    """The rule and those inside of it."""
    yield rule
    inner = [*rule.get("properties", {}).values(), *rule.get("$defs", {}).values()]
    inner += [*rule.get("oneOf", []), rule.get("items"), rule.get("additionalProperties")]
    for one in inner:
        if isinstance(one, dict):
            yield from rules_in(one)


def test_the_validator_knows_each_keyword_of_the_schema():
    keywords = {keyword for rule in rules_in(schema()) for keyword in rule}
    assert {"pattern", "minimum", "items", "$ref"} <= keywords
    for keyword in keywords - {"$ref", "oneOf", "properties", "additionalProperties"}:
        wanted = {"type": "object", "required": [], "enum": [], "items": {}, "pattern": ""}
        assert isinstance(faults({}, {keyword: wanted.get(keyword, 0)}, "here"), list), keyword


def test_records_of_version_one_stay_readable():
    # Literally as version 1 wrote them: not made by the code of today.
    lines = [
        '{"study": 1, "run": "e781e217336b", "session": 0, "seed": 0, "quick": true, "started": '
        '"2026-11-29T00:46:46Z", "set_aside": "", "machine": {"cpu": "AMD EPYC", "cores": 2, '
        '"memory": 25276063744, "system": "Linux", "architecture": "x86_64", "kernel": "6.18", '
        '"governor": null, "threads": 1, "load_at_start": 0.57}, "versions": {"numpy": "2.4.6", '
        '"python": "3.11.7", "odyssey": "0.1.0+cced00de"}}',
        '{"study": 1, "run": "e781e217336b", "session": 0, "experiment": "alike", "system": '
        '"numpy", "config": {"size": 200}, "attempt": 0, "round": 0, "status": "ok", "metrics": '
        '{"seconds": 4.25e-06, "cpu_seconds": 4e-06, "repeats": 5357}, "counts": {"elements": 200},'
        ' "check": {"square": 0.0}}',
    ]
    first, second = map(json.loads, lines)
    assert record_faults(first) == record_faults(second) == []
    records = Records([second], [first]).of("alike")
    assert records.estimate("numpy", "cpu_seconds", size=200).median == 4e-06

"""The command tune: a function of a script, and the file of measurements."""

import json

import numpy as np
import pytest

import odyssey as od
from odyssey import cli
from odyssey.cli.tune import record_first_call
from odyssey.compiler.compiled_function import CompiledFunction
from odyssey.compiler.ways.store import Verdict, default_store

SCRIPT = """
import sys
import numpy as np
import odyssey as od

@od.compile
def other(x):
    return x + 1.0

@od.compile
def step(x, scale=1.0):
    return od.ops.cumsum(x, axis=1) * scale

print("arguments", sys.argv)
other(np.ones(3))
try:
    step(np.ones((4, 8)), scale=2.0)
except Exception:
    raise AssertionError("the end of the script is no Exception")
raise AssertionError("the script went on")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def script(folder):
    path = folder / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def verdict(work="cumsum(float64[4, 8]; axis=1)", way="called", version="1/compiled/2"):
    return Verdict(work, way, version, "g", 0.5, 0.6, 1e-7, 1e-7)


def test_a_script_runs_until_the_first_call_of_the_function(script, capsys):
    before = CompiledFunction.__call__
    step, args, named = record_first_call(script, "step")
    assert np.array_equal(args[0], np.ones((4, 8)))
    assert named == {"scale": 2.0}
    assert step.statistics() == (0, 0, 0)
    assert CompiledFunction.__call__ is before
    assert capsys.readouterr().out == f"arguments {[script]}\n"


@pytest.mark.slow
def test_the_function_of_a_script_is_tuned(script, capsys):
    assert cli.main(["tune", f"{script}:step", "--seconds", "3"]) == 0
    out = capsys.readouterr().out
    assert "tuning step for at most 3 seconds" in out
    assert "tune: step: " in out
    assert cli.main(["tune", "--list"]) == 0
    listed = capsys.readouterr().out
    assert "(this machine)" in listed
    assert "cumsum(float64[4, 8]; axis=1): called: x" in listed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "pass one of SCRIPT:FUNCTION, --ops, --list"),
        (["--list", "--prune"], "pass one of"),
        (["train.py"], "'train.py' is not SCRIPT:FUNCTION"),
        (["no/train.py:step"], "no such script: 'no/train.py'"),
        (["--ops", "softmax,birds"], "no compiled loops for birds; the ops with compiled loops"),
        (["--import", "no/file"], "'no/file' was not imported"),
        (["--export", "no/file"], "'no/file' was not written"),
    ],
    ids=str,
)
def test_wrong_arguments_end_with_one_line(arguments, message):
    with pytest.raises(SystemExit) as caught:
        cli.main(["tune", *arguments])
    assert str(caught.value).startswith("python -m odyssey tune: ")
    assert message in str(caught.value)


def test_a_function_that_a_script_does_not_call_is_named(script):
    with open(script, "w") as file:
        file.write(SCRIPT.partition("try:")[0])
    with pytest.raises(SystemExit, match=r"calls no compiled function 'walk'; it called other"):
        record_first_call(script, "walk")


def test_a_script_that_exits_before_is_told(script):
    with open(script, "w") as file:
        file.write("raise SystemExit(3)")
    with pytest.raises(SystemExit, match=r"ended \(3\) before it called step"):
        record_first_call(script, "step")


def test_the_error_of_a_script_is_shown_as_it_is(script):
    with open(script, "w") as file:
        file.write("1 / 0")
    with pytest.raises(ZeroDivisionError):
        record_first_call(script, "step")
    assert od.compile(lambda x: x)(3) == 3


def test_what_was_measured_is_listed(capsys):
    assert cli.main(["tune", "--list"]) == 0
    assert "nothing was measured yet" in capsys.readouterr().out
    bad = verdict(way="planted")._replace(ratio=None, bound=None, reason="it raised")
    assert default_store().add(verdicts=[verdict(), bad])
    assert cli.main(["tune", "--list"]) == 0
    out = capsys.readouterr().out
    assert "cumsum(float64[4, 8]; axis=1): called: x0.50 (<0.60)" in out
    assert "planted: in quarantine, since it raised" in out


def test_measurements_are_exported_and_imported(folder, capsys, monkeypatch):
    assert default_store().add(verdicts=[verdict()])
    assert cli.main(["tune", "--export", str(folder / "m.json")]) == 0
    monkeypatch.setenv("ODYSSEY_CACHE", str(folder / "other"))
    for added in (2, 0):
        assert cli.main(["tune", "--import", str(folder / "m.json")]) == 0
        assert f"{added} rows added" in capsys.readouterr().out
    assert default_store().all_verdicts() == [verdict()]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"format": "x"}',
        '{"format": "odyssey measurements 1", "rows": 3}',
    ],
    ids=lambda text: text[:12],
)
def test_a_file_that_is_no_export_is_refused(text, folder):
    (folder / "m.json").write_text(text)
    with pytest.raises(SystemExit, match=r"was not imported: .*; pass a file that --export wrote"):
        cli.main(["tune", "--import", str(folder / "m.json")])


def test_an_export_with_a_row_that_makes_no_sense_adds_nothing(folder):
    assert default_store().add(verdicts=[verdict()])
    rows = [*default_store().export_rows()]
    rows[-1]["ratio"] = -1
    text = json.dumps({"format": "odyssey measurements 1", "rows": [rows[0], rows[-1], rows[-1]]})
    (folder / "m.json").write_text(text)
    with pytest.raises(SystemExit, match="make no sense"):
        cli.main(["tune", "--import", str(folder / "m.json")])
    assert len(default_store().all_verdicts()) == 1


def test_prune_keeps_what_is_of_the_code_of_now(capsys):
    from odyssey.compiler.ways.choosing import is_stale, version_of

    step = od.compile(lambda x: od.ops.cumsum(x, axis=1))
    (choice,) = list(step._works(od.Plan(), (np.ones((4, 8)),), {}))
    versions = {way.name: version_of(way, choice.ways[0]) for way in choice.ways[1:]}
    assert not any(is_stale(str(choice.work), *pair) for pair in versions.items())
    rows = [verdict(str(choice.work), name, version) for name, version in versions.items()]
    assert default_store().add(verdicts=[*rows, verdict(), verdict(way="gone"), verdict("birds()")])
    assert cli.main(["tune", "--prune"]) == 0
    assert "3 rows deleted" in capsys.readouterr().out
    assert default_store().all_verdicts() == rows


def test_without_a_cache_there_is_nothing_to_list(monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", "off")
    with pytest.raises(SystemExit, match="ODYSSEY_CACHE=off"):
        cli.main(["tune", "--list"])

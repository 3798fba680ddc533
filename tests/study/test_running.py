"""How samples are taken: in turns, in processes of their own, again where they are noisy."""

import signal
import subprocess
import time

import pytest

from harness.sampling import Samples, calibrate, interleaved, repeated, take_turns
from study.records import read_records
from support.study import HERE, ROOT, run_study, study_command


class Ticks:
    """A clock that work moves forward."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def work(self, seconds):
        return lambda: setattr(self, "now", self.now + seconds)


def test_turns_go_there_and_back():
    assert list(take_turns("ABC", 3)) == [
        *((0, name) for name in "ABC"),
        *((1, name) for name in "CBA"),
        *((2, name) for name in "ABC"),
    ]
    assert list(take_turns([], 3)) == []


def test_a_block_is_calibrated_to_its_seconds():
    clock = Ticks()
    assert calibrate(repeated(clock.work(0.003)), 0.12, clock) == 40
    assert calibrate(repeated(clock.work(5.0)), 0.12, clock) == 1
    assert calibrate(repeated(clock.work(0.0001)), 0.12, clock, most=7) == 7


def test_interleaved_cases_have_the_seconds_of_one_repetition_and_ratios_by_round():
    clock, order = Ticks(), []

    def case(name, seconds):
        def run():
            order.append(name)
            clock.now += seconds * (1 + clock.now)  # slower and slower, for both alike

        return run

    cases = {"a": case("a", 2e-6), "b": case("b", 1e-6)}
    samples = interleaved(cases, 3, clock=clock, repeats=4)
    assert order == ["a"] * 4 + ["b"] * 8 + ["a"] * 8 + ["b"] * 4
    assert samples.median("a") == pytest.approx(2e-6, rel=1e-3)
    assert samples.ratio("a", "b") == pytest.approx(2.0, rel=1e-3)
    assert samples.best("a") == min(samples["a"])


def test_a_block_runs_inside_of_what_is_around_it_and_its_calibration_too():
    entered = []

    class Around:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            entered.append(self.name)

        def __exit__(self, *_):
            entered.append(None)

    interleaved({"a": lambda: entered.append("run")}, 2, repeats=1, around=Around)
    assert entered == ["a", None] + ["a", "run", None] * 2


def test_single_samples_keep_their_results():
    clock = Ticks()
    samples = Samples(clock)
    assert samples.timed("a", lambda: clock.work(2.0)() or 7) == 7
    assert dict(samples) == {"a": [2.0]}


@pytest.mark.slow
def test_each_fresh_sample_has_a_process_of_its_own_on_one_cpu_without_choices_of_blas(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    done = run_study(tmp_path, HERE / "fresh.py")
    assert done.returncode == 0, done.stdout + done.stderr
    whole = read_records(tmp_path / "records.jsonl", pytest.fail)
    assert whole.header["set_aside"] == "OPENBLAS_CORETYPE=Haswell"
    records = whole.of("fresh")
    metrics = [line["metrics"] for line in records]
    processes = {m["process"] for m in metrics}
    checked = {line["counts"]["process"] for line in records}
    assert (len(metrics), len(processes), len(processes & checked)) == (6, 6, 0)
    assert {(m["cpus"], m["threads"], m["choices"]) for m in metrics} == {(1, 1.0, 0)}


@pytest.mark.slow
def test_a_noisy_config_is_measured_again_once_and_then_marked(tmp_path):
    done = run_study(tmp_path, HERE / "noisy.py")
    assert done.returncode == 0, done.stdout + done.stderr
    records = read_records(tmp_path / "records.jsonl", pytest.fail).of("noisy")
    attempts = {n: {line["attempt"] for line in records.where(noisy=n)} for n in (0, 2, 100)}
    assert attempts == {0: {0}, 2: {0, 1}, 100: {0, 1}}
    noisy = {n: records.estimate("taped", "cpu_seconds", noisy=n).noisy for n in (0, 2, 100)}
    assert noisy == {0: False, 2: False, 100: True}
    # All systems are measured again, since a ratio needs neighbours.
    assert records.ratio("taped", "numpy", "cpu_seconds", noisy=2).rounds == 2
    assert "noisy=100: numpy 1 s, taped 1 s (noisy)" in done.stdout


@pytest.mark.slow
def test_an_interrupted_study_says_how_to_go_on(tmp_path):
    command, environment = study_command(tmp_path, HERE / "alike.py")
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    path, deadline = tmp_path / "records.jsonl", time.monotonic() + 60
    while not path.exists() or path.read_bytes().count(b"\n") < 4:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 130, errors
    assert f"interrupted; --out {tmp_path} --resume continues it" in errors.decode()
    assert "Traceback" not in errors.decode()
    assert len(read_records(path, pytest.fail)) >= 3

"""od.MetricLog: whole lines whatever happens, numbers of any kind, and files that are kept."""

import copy
import dataclasses
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import odyssey as od
from odyssey import MetricLog
from odyssey.errors import (
    DTypeError,
    FileError,
    FormatError,
    MissingFileError,
    OdysseyError,
    SettingError,
    ShapeError,
    TapeError,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


def lines_of(path):
    """The lines of a file, each of which is whole JSON without NaN."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line, parse_constant=refuse) for line in data.splitlines()]


# ------------------------------------------------------------------ what is written


def test_a_run_has_a_first_line_with_machine_versions_and_config_and_a_line_a_step(path):
    with MetricLog(path, config={"learning_rate": 0.1}) as log:
        log.log(0, loss=2.5)
        log.log(10, loss=1.5, accuracy=0.75)
    first, *steps = lines_of(path)
    assert first["metric_log"] == 1
    assert first["config"] == {"learning_rate": 0.1}
    assert first["versions"]["odyssey"] == od.__version__
    assert first["versions"]["numpy"] == np.__version__
    assert first["machine"]["cores"] == os.cpu_count()
    assert [(line["run"], line["step"]) for line in steps] == [(log.run, 0), (log.run, 10)]
    assert 0 <= steps[0]["seconds"] <= steps[1]["seconds"] < 60
    assert {k: v for k, v in steps[1].items() if k not in ("run", "step", "seconds")} == {
        "loss": 1.5,
        "accuracy": 0.75,
    }


def test_a_line_is_in_the_file_when_log_returns(path):
    log = MetricLog(path)
    log.log(1, loss=0.5)
    assert lines_of(path)[-1]["loss"] == 0.5
    log.close()


class Tensor:
    """As those of other libraries: shape and item()."""

    shape = (1,)

    def item(self):
        return 0.5


NUMBERS = {
    "float": (0.1, 0.1),
    "int": (3, 3),
    "bool": (True, 1.0),
    "float32": (np.float32(0.5), 0.5),
    "float16": (np.float16(0.5), 0.5),
    "longdouble": (np.longdouble(0.5), 0.5),
    "int64": (np.int64(-7), -7),
    "bool of NumPy": (np.bool_(False), 0.0),
    "array without axes": (np.array(2.5), 2.5),
    "array of one element": (np.array([[2.5]]), 2.5),
    "Variable": (od.Variable(2.5), 2.5),
    "trainable Variable": (od.Variable([2.5], requires_grad=True), 2.5),
    "tensor of another library": (Tensor(), 0.5),
    "nan": (float("nan"), math.nan),
    "inf": (np.inf, math.inf),
    "-inf": (np.float32(-np.inf), -math.inf),
    "largest float": (sys.float_info.max, sys.float_info.max),
    "smallest float": (5e-324, 5e-324),
    "large int": (2**80, 2.0**80),
    "larger int than a float": (-(10**400), -math.inf),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_whatever_is_one_number_is_read_back_as_that_number(name, path):
    value, expected = NUMBERS[name]
    with MetricLog(path) as log:
        log.log(0, x=value)
    lines_of(path)
    (run,) = MetricLog.read(path)
    np.testing.assert_array_equal(run["x"], np.array([expected]))


def test_a_half_of_two_bytes_is_a_number(path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with MetricLog(path) as log:
        log.log(0, x=ml_dtypes.bfloat16(0.5), y=np.array(1.5, ml_dtypes.bfloat16))
    assert [lines_of(path)[-1][name] for name in "xy"] == [0.5, 1.5]


def test_a_recorded_value_is_read_and_its_recording_goes_on(path):
    w = od.Variable(3.0, requires_grad=True)
    with MetricLog(path) as log, od.GradientTape() as tape:
        square = w * w
        nodes = len(tape)
        log.log(0, square=square)
        assert len(tape) == nodes
        loss = square * 2.0
    assert float(tape.gradient(loss, w)) == 12.0
    assert lines_of(path)[-1]["square"] == 9.0


def test_inside_of_grad_values_are_logged_and_the_gradient_stays(path):
    with MetricLog(path) as log:

        def f(x):
            y = x * x
            log.log(0, y=y)
            return y

        assert float(od.grad(f)(3.0)) == 6.0
    assert lines_of(path)[-1]["y"] == 9.0


def test_names_in_dicts_come_after_the_name_of_the_dict(path):
    with MetricLog(path) as log:
        log.log(1, {"train/loss": 0.5, "time": {"data": {"read": 1, "cast": 2}}}, lr=0.1)
    assert list(MetricLog.read(path)[0].columns) == [
        "train/loss", "time/data/read", "time/data/cast", "lr",
    ]  # fmt: skip


@dataclasses.dataclass
class Settings:
    rate: float
    layers: tuple


def test_config_keeps_dicts_lists_paths_dataclasses_and_scalars(path):
    config = {
        "rate": np.float32(0.5),
        "seed": np.int64(3),
        "data": Path("a") / "b",
        "model": Settings(0.1, (1, 2)),
        "none": None,
        "limit": np.inf,
        "text": "ü\n\ud800",
    }
    MetricLog(path, config).close()
    assert MetricLog.read(path)[0].config == {
        "rate": 0.5,
        "seed": 3,
        "data": os.path.join("a", "b"),
        "model": {"rate": 0.1, "layers": [1, 2]},
        "none": None,
        "limit": "inf",
        "text": "ü\n\ud800",
    }


@pytest.mark.parametrize("name", ["OMPI_COMM_WORLD_RANK", "PMI_RANK"])
def test_a_run_of_several_processes_has_its_rank(name, path, monkeypatch):
    MetricLog(path).close()
    monkeypatch.setenv(name, "3")
    MetricLog(path).close()
    monkeypatch.setenv("ODYSSEY_RANK_PROCESS", f"3:{os.getpid()}:")
    MetricLog(path).close()
    monkeypatch.setenv("ODYSSEY_RANK_PROCESS", "3:1:")  # of the rank that started this process
    MetricLog(path).close()
    assert [run.rank for run in MetricLog.read(path)] == [None, 3, 3, None]


# ------------------------------------------------------------------ what is refused

HOLDS_ITSELF = {}
HOLDS_ITSELF["inner"] = HOLDS_ITSELF

REFUSED = {
    "text": ((1,), {"x": "a"}, DTypeError, "metric 'x' is a str"),
    "None": ((1,), {"x": None}, DTypeError, "metric 'x' is a NoneType"),
    "complex": ((1,), {"x": 1j}, DTypeError, "metric 'x' is a complex"),
    "date": ((1,), {"x": np.datetime64("2026")}, DTypeError, "metric 'x' is a date"),
    "masked": ((1,), {"x": np.ma.masked}, DTypeError, "metric 'x' is a Masked"),
    "object": ((1,), {"x": np.array(None)}, DTypeError, "metric 'x' is a NoneType"),
    "three elements": ((1,), {"x": np.ones(3)}, ShapeError, r"shape \(3,\); pass one number"),
    "no element": ((1,), {"x": od.Variable(np.ones(0))}, ShapeError, r"shape \(0,\)"),
    "no metrics": ((1,), {}, SettingError, "step 1 has no metrics"),
    "empty dict": ((1, {}), {}, SettingError, "step 1 has no metrics"),
    "no dict": ((1, 0.5), {}, DTypeError, r"values=0.5 is not a dict"),
    "key": ((1, {1: 0.5}), {}, DTypeError, "a metric is called 1; names are text"),
    "own name": ((1,), {"step": 2}, SettingError, "'step' is an entry of every line"),
    "twice": ((1, {"x": 1}), {"x": 2}, SettingError, "the metric 'x' came twice"),
    "dict in itself": ((1, HOLDS_ITSELF), {}, SettingError, "'inner' holds itself"),
    "step": ((1.5,), {"x": 1}, DTypeError, "step=1.5 is not a whole number"),
    "class": ((1,), {"x": np.float16}, DTypeError, "metric 'x' is a type"),
    "long step": ((10**5000,), {"x": 1}, SettingError, "step=.* has more than 64 bits"),
    "no step": (("a",), {"x": 1}, DTypeError, "step='a' is not a whole number"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_metric_is_refused_by_name_and_nothing_is_written(name, path):
    args, metrics, error, text = REFUSED[name]
    with MetricLog(path) as log:
        log.log(0, x=1)
        before = path.read_bytes()
        with pytest.raises(error, match=rf"MetricLog\.log: .*{text}"):
            log.log(*args, **metrics)
        assert path.read_bytes() == before
        log.log(2, x=3)
    assert list(MetricLog.read(path)[0].steps) == [0, 2]


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"a": [object()]}, r"config\['a'\]\[0\] is an object"),
        ({1: 2}, "config has the key 1"),
        ("text", "config='text' is not a dict"),
        ([1], r"config=\[1\] is not a dict"),
        (HOLDS_ITSELF, "config holds itself"),
    ],
    ids=["object", "key", "text", "list", "itself"],
)
def test_a_config_that_is_not_json_is_refused_and_makes_no_file(config, text, path):
    with pytest.raises(OdysseyError, match=text):
        MetricLog(path, config)
    assert not path.exists()


def test_a_compiled_function_logs_nothing_and_says_so(path):
    with MetricLog(path) as log:

        @od.compile
        def step(x):
            y = ops_sum(x)
            log.log(0, y=y)
            return y

        @od.compile
        def opens(x):
            MetricLog(path)
            return x * 2.0

        before = path.read_bytes()
        for _ in range(3):
            with pytest.raises(TapeError, match=r"MetricLog\.log: called while a graph is traced"):
                step(np.ones(3))
            with pytest.raises(TapeError, match=r"MetricLog: opened while a graph is traced"):
                opens(np.ones(3))
        assert path.read_bytes() == before


def ops_sum(x):
    return od.ops.sum(x * 2.0)


def test_a_value_that_each_example_of_vmap_has_its_own_of_is_refused(path):
    with MetricLog(path) as log:
        before = path.read_bytes()

        def f(x):
            log.log(0, x=x)
            return x

        with pytest.raises(OdysseyError, match="vmap"):
            od.vmap(f)(np.ones(3))
        assert path.read_bytes() == before


def test_a_log_is_not_copied_or_pickled(path):
    with MetricLog(path) as log:
        for copying in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(DTypeError, match=r"not copied or pickled; open one by"):
                copying(log)


def test_after_closing_nothing_is_written_and_the_message_says_so(path):
    log = MetricLog(path)
    log.close()
    log.close()
    with pytest.raises(FileError, match=r"run\.jsonl' was closed, step 3 is not written"):
        log.log(3, loss=1.0)
    assert repr(log).endswith("closed>")


def test_a_folder_that_is_missing_and_a_path_that_is_none_are_refused(tmp_path):
    with pytest.raises(MissingFileError, match="make its folder first"):
        MetricLog(tmp_path / "none" / "run.jsonl")
    with pytest.raises(FileError, match="pass the path of a file in it"):
        MetricLog(tmp_path)
    with pytest.raises(DTypeError, match="path=3 is not a path"):
        MetricLog(3)
    with pytest.raises(SettingError, match="null character"):
        MetricLog("a\0b")


# ------------------------------------------------------------------ files that are there


@pytest.mark.parametrize(
    "content",
    [b"step,loss\n1,2\n", b"{\n", b"{", b"\n", b'{"metric": 1}\n', b"\x00" * 100, b'{"metr'],
    ids=["csv", "object", "brace", "blank", "other", "zeros", "fragment"],
)
def test_a_file_that_is_no_log_is_refused_and_unchanged(content, path):
    path.write_bytes(content)
    with pytest.raises(FormatError, match="is not a metric log, it begins with"):
        MetricLog(path)
    assert path.read_bytes() == content
    with pytest.raises(FormatError, match="pass the path of one that"):
        MetricLog.read(path)


def test_another_run_is_appended_and_the_earlier_bytes_stay(path):
    with MetricLog(path, {"lr": 1}) as first:
        first.log(0, loss=1.0)
    before = path.read_bytes()
    with MetricLog(path, {"lr": 2}) as second:
        second.log(0, loss=2.0, more=3.0)
    assert path.read_bytes().startswith(before)
    runs = MetricLog.read(path)
    assert [run.id for run in runs] == [first.run, second.run]
    assert [run.config["lr"] for run in runs] == [1, 2]
    assert [list(run.columns) for run in runs] == [["loss"], ["loss", "more"]]


def test_two_logs_that_are_open_at_once_stay_separate(path):
    with MetricLog(path) as one, MetricLog(path) as other:
        for step in range(5):
            one.log(step, x=step)
            other.log(step, x=-step)
    first, second = MetricLog.read(path)
    assert list(first["x"]) == [0, 1, 2, 3, 4]
    assert list(second["x"]) == [0, -1, -2, -3, -4]


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_torn_last_line_is_ended_and_reported_by_its_number(cut, path):
    with MetricLog(path) as log:
        log.log(0, loss=1.0)
        log.log(1, loss=2.0)
    torn = path.read_bytes()[:-cut]
    path.write_bytes(torn)
    assert "line 3 is left out: it is cut off" in MetricLog.read(path).faults[0]
    with MetricLog(path) as again:
        again.log(2, loss=3.0)
    assert path.read_bytes().startswith(torn + b"\n")
    runs = MetricLog.read(path)
    if cut == 1:  # only the end of the line was lost
        assert runs.faults == ()
    else:
        (fault,) = runs.faults
        assert "line 3 is left out: it is not JSON" in fault
    assert list(runs[1]["loss"]) == [3.0]


def test_a_first_line_that_was_torn_is_no_foreign_file(path):
    path.write_bytes(b'{"metric_log": 1, "run"')
    with MetricLog(path) as log:
        log.log(0, loss=1.0)
    runs = MetricLog.read(path)
    assert [run.id for run in runs] == [log.run]
    assert len(runs.faults) == 1


def test_an_empty_file_is_a_log_without_runs(path):
    path.touch()
    assert len(MetricLog.read(path)) == 0
    with MetricLog(path) as log:
        log.log(0, x=1)
    assert len(MetricLog.read(path)) == 1


def test_lines_of_others_are_left_out_with_their_numbers(path):
    with MetricLog(path) as log:
        log.log(0, x=1)
    own = {"run": log.run, "step": 1, "seconds": 0.1}
    bad = [b"[]", b"null", b"\xff\xfe", b'{"run": 3}', b"[" * 5000]
    bad += [json.dumps({**own, **change}).encode() for change in
            ({"step": 1.5}, {"seconds": "a"}, {"x": "b"}, {"x": [1]}, {"step": 2**70})]  # fmt: skip
    with path.open("ab") as file:
        file.write(b"\n".join(bad) + b"\n\n" + json.dumps({**own, "x": 2}).encode() + b"\n")
    runs = MetricLog.read(path)
    assert [int(fault.split(" line ")[1].split()[0]) for fault in runs.faults] == [*range(3, 13)]
    assert list(runs[0]["x"]) == [1, 2]


def test_a_run_whose_first_line_is_missing_is_kept_and_reported(path):
    with MetricLog(path) as log:
        log.log(0, x=1)
    with path.open("ab") as file:
        file.write(b'{"run": "other", "step": 1, "seconds": 0.5, "x": 7}\n')
    runs = MetricLog.read(path)
    assert [run.id for run in runs] == [log.run, "other"]
    assert (runs[1].config, list(runs[1]["x"])) == (None, [7])
    assert "line 3 is of a run whose first line is missing" in runs.faults[0]


def test_a_later_version_of_the_format_is_refused(path):
    path.write_text('{"metric_log": 2, "run": "a"}\n')
    with pytest.raises(FormatError, match=r"line 1 of .* has version 2 of the format"):
        MetricLog.read(path)


def test_columns_have_nan_where_a_metric_was_not_logged_and_logged_tells_which(path):
    with MetricLog(path) as log:
        log.log(5, loss=1.0)
        log.log(6, loss=float("nan"), accuracy=0.5)
        log.log(7, accuracy=0.75)
    (run,) = MetricLog.read(path)
    np.testing.assert_array_equal(run["loss"], [1.0, np.nan, np.nan])
    steps, values = run.logged("loss")
    assert list(steps) == [5, 6]
    np.testing.assert_array_equal(values, [1.0, np.nan])
    assert (len(run), list(run.steps)) == (3, [5, 6, 7])
    with pytest.raises(SettingError, match="no metric 'los'; there are 'loss', 'accuracy'"):
        run["los"]


# ------------------------------------------------------------------ processes, threads, the system


def test_lines_of_threads_are_whole(path):
    count = 200
    with MetricLog(path) as log:

        def work(k):
            for step in range(count):
                log.log(step, {f"x{k}": k})

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (run,) = MetricLog.read(path)
    assert [list(run.logged(f"x{k}")[0]) for k in range(4)] == [list(range(count))] * 4
    lines_of(path)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_writes_whole_lines_to_the_same_run(path):
    with MetricLog(path) as log:
        log.log(0, x=0)
        child = os.fork()
        if not child:
            try:
                log.log(1, x=1)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        log.log(2, x=2)
    (run,) = MetricLog.read(path)
    assert sorted(run["x"]) == [0, 1, 2]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
def test_a_full_disk_is_named_at_the_first_line():
    with pytest.raises(FileError, match=r"No space left on device; make room .* first line"):
        MetricLog("/dev/full")


FULL = """
import resource, signal, sys
import odyssey as od

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = od.MetricLog(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
failed = None
for step in range(100):
    try:
        log.log(step, loss=step)
    except od.errors.FileError as error:
        failed = step
        assert f"step {step} is not written, and earlier lines are intact" in str(error), error
        assert "save less in one file, or elsewhere" in str(error), error
        break
assert failed
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.log(failed, loss=failed)
print(failed)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of files are Linux's")
def test_a_disk_that_fills_up_keeps_all_lines_and_the_log_goes_on(path):
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    runs = MetricLog.read(path)
    assert list(runs[0].steps) == list(range(int(done.stdout) + 1))
    assert len(runs.faults) <= 1  # what there was room for of the line that failed


ENDLESS = """
import sys
import odyssey as od

log = od.MetricLog(sys.argv[1])
print("ready", flush=True)
step = 0
while True:
    log.log(step, loss=0.1 * step, text={"a" * 200: step})
    step += 1
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
def test_a_process_that_is_killed_at_any_moment_leaves_whole_lines(path):
    for wait in (0.0, 0.013, 0.07):
        process = subprocess.Popen(
            [sys.executable, "-c", ENDLESS, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout.readline() == "ready\n"
        time.sleep(wait)
        process.kill()
        process.wait()
        process.stdout.close()
    lines_of(path)
    runs = MetricLog.read(path)
    assert runs.faults == ()
    assert len(runs) == 3
    for run in runs:
        assert list(run.steps) == list(range(len(run)))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
def test_an_interrupt_at_any_moment_leaves_whole_lines_and_an_open_log(path):
    class Interrupt(BaseException):
        pass

    def interrupt(number, frame):
        raise Interrupt

    before, interrupted, logged = signal.signal(signal.SIGALRM, interrupt), 0, 0
    try:
        log = MetricLog(path)
        for step in range(300):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-6 * (step + 1))
                while True:
                    log.log(step, loss=step)
                    logged += 1
            except Interrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    log.log(300, loss=300)
    log.close()
    assert interrupted == 300
    (run,) = (runs := MetricLog.read(path))
    assert runs.faults == ()
    assert logged + 1 <= len(run) <= logged + 1 + interrupted  # one may end as it is interrupted
    np.testing.assert_array_equal(run["loss"], run.steps)

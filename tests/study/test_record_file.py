"""Files of records: continued, refused, torn, killed, and full."""

import json
import os
import random
import resource
import signal
import subprocess
import time

import pytest

from study.record_file import RecordFile
from study.records import RecordsError, read_records
from study.schema import record_faults
from support.study import HERE, ROOT, header, sample, study_command


def record(number, system="taped"):
    whole = sample(system, number, 1.0)
    return {name: whole[name] for name in whole if name not in ("study", "run", "session")}


def test_records_are_in_the_file_when_append_returns(tmp_path):
    path = tmp_path / "records.jsonl"
    with RecordFile(path, header(), resume=False) as file:
        for number in range(3):
            file.append(record(number))
            assert len(read_records(path, pytest.fail)) == number + 1


def test_a_file_is_not_overwritten_and_resume_continues_it(tmp_path):
    path = tmp_path / "records.jsonl"
    with RecordFile(path, header(), resume=False) as file:
        file.append(record(0))
    with pytest.raises(RecordsError, match=r"there are records already; --resume continues them"):
        RecordFile(path, header(), resume=False)
    later = header(run="ffffffffffff", started="later")
    with RecordFile(path, later, resume=True, notice=pytest.fail) as file:
        assert [line["round"] for line in file.lines] == [0]
        written = file.append(record(1))
    assert (written["run"], written["session"]) == ("0123456789ab", 1)
    records = read_records(path, pytest.fail)
    assert [line["session"] for line in records.headers] == [0, 1]
    assert records.header["started"] == "now"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"machine": {"cpu": "b"}}, "cpu was 'a' and is 'b'"),
        ({"machine": {"cores": 4}}, "cores was 2 and is 4"),
        ({"versions": {"numpy": "3"}}, "version of numpy was '2' and is '3'"),
        ({"versions": {"torch": "2"}}, "version of torch was None and is '2'"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"quick": True}, "quick was False and is True"),
    ],
    ids=["cpu", "cores", "version", "peer", "seed", "quick"],
)
def test_records_of_another_run_are_refused_and_left_as_they_are(tmp_path, change, message):
    path = tmp_path / "records.jsonl"
    RecordFile(path, header(), resume=False).close()
    before = path.read_bytes()
    other = header()
    other = {n: {**v, **change.get(n, {})} if isinstance(v, dict) else v for n, v in other.items()}
    other |= {name: value for name, value in change.items() if not isinstance(value, dict)}
    with pytest.raises(RecordsError, match="records of another run cannot be continued: ") as told:
        RecordFile(path, other, resume=True)
    assert message in str(told.value)
    assert path.read_bytes() == before


def test_another_schema_is_refused_by_its_number(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps({**header(), "study": 2}) + "\n")
    with pytest.raises(RecordsError, match=r"line 1 has schema 2, this study reads up to 1; read"):
        RecordFile(path, header(), resume=True)
    with pytest.raises(RecordsError, match="line 1 has schema 2"):
        read_records(path)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text(json.dumps(sample("taped", 0, 1.0)) + "\n")
    with pytest.raises(RecordsError, match="the record of the run and its machine is missing"):
        RecordFile(path, header(), resume=True)
    with pytest.raises(RecordsError, match="no record of a run came"):
        read_records(path)


def test_a_torn_last_line_is_cut_off_with_a_notice_and_measured_again(tmp_path):
    path, told = tmp_path / "records.jsonl", []
    with RecordFile(path, header(), resume=False) as file:
        file.append(record(0))
        file.append(record(1))
    content = path.read_bytes()
    for length in range(content[:-1].rfind(b"\n") + 2, len(content), 37):
        path.write_bytes(content[:length])
        told.clear()
        with RecordFile(path, header(), resume=True, notice=told.append) as file:
            assert [line["round"] for line in file.lines] == [0]
            file.append(record(1))
        assert told == [f"{path}: line 3 is cut off, since it is torn: it has no end"]
        assert [line["round"] for line in read_records(path, pytest.fail)] == [0, 1]


def test_a_line_that_does_not_parse_is_reported_with_its_number_and_left_out(tmp_path):
    path, told = tmp_path / "records.jsonl", []
    lines = [json.dumps(header()), "{", json.dumps(sample("taped", 0, 1.0)), "[1]", "\xff"]
    path.write_bytes("\n".join(lines).encode("latin-1") + b"\n")
    assert len(read_records(path, told.append)) == 1
    assert [text.partition(" is left out: ")[0] for text in told] == [
        f"{path}: line {number}" for number in (2, 4, 5)
    ]
    again = []
    with RecordFile(path, header(), resume=True, notice=again.append) as file:
        assert len(file.lines) == 1
    assert again == told


def test_two_studies_do_not_write_to_one_file(tmp_path):
    path = tmp_path / "records.jsonl"
    with (
        RecordFile(path, header(), resume=False),
        pytest.raises(RecordsError, match="another process writes to it"),
    ):
        RecordFile(path, header(), resume=True)


def test_a_record_that_breaks_the_schema_is_not_written(tmp_path):
    path = tmp_path / "records.jsonl"
    with RecordFile(path, header(), resume=False) as file:
        before = path.read_bytes()
        for change in ({"metrics": {"seconds": float("nan")}}, {"more": 1}, {"round": -1}):
            with pytest.raises(ValueError, match=r"^record"):
                file.append({**record(0), **change})
        assert path.read_bytes() == before


def test_a_full_disk_leaves_complete_lines_and_says_how_to_go_on(tmp_path):
    path = tmp_path / "records.jsonl"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with RecordFile(path, header(), resume=False) as file:
        # A limit inside of the third line: a part of it is written first.
        size = len(path.read_bytes())
        file.append(record(0))
        line = len(path.read_bytes()) - size
        previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 2 * line + line // 2, hard))
        try:
            file.append(record(1))
            with pytest.raises(RecordsError, match=r"until now is there, and --resume continues"):
                file.append(record(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, previous)
    assert [line["round"] for line in read_records(path, pytest.fail)] == [0, 1]


@pytest.mark.parametrize(
    "kills",
    [pytest.param(6, marks=pytest.mark.slow), pytest.param(20, marks=pytest.mark.soak)],
)
def test_a_study_that_is_killed_and_continued_loses_no_record_and_doubles_none(tmp_path, kills):
    experiment = tmp_path / "many_rounds.py"
    text = (HERE / "alike.py").read_text(encoding="utf-8")
    text = text.replace("ROUNDS = 15", f"ROUNDS = {2 * kills}").replace("range(100", "range(10")
    experiment.write_text(text, encoding="utf-8")
    path, draws = tmp_path / "records.jsonl", random.Random(5)
    command, environment = study_command(tmp_path, experiment, "--quick", "--resume")
    before = b""
    for kill in range(kills):
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        lines = before.count(b"\n") + draws.randrange(7)
        deadline = time.monotonic() + 60
        while not path.exists() or path.read_bytes().count(b"\n") <= lines:
            assert process.poll() is None, process.stdout.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(draws.random() * 0.04)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        after = path.read_bytes()
        assert after.startswith(before[: before.rfind(b"\n") + 1]), kill
        before = after
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    records = read_records(path, pytest.fail)
    keys = [(r["config"]["number"], r["attempt"], r["round"], r["system"]) for r in records]
    wanted = {(n, 0, k, s) for n in (0, 1) for k in range(2 * kills) for s in ("numpy", "taped")}
    assert len(keys) == len(set(keys))
    assert set(keys) == wanted
    assert [record_faults(r) for r in [*records, *records.headers] if record_faults(r)] == []
    assert len(records.headers) >= kills
    assert _processes_of(experiment) == []


def _processes_of(experiment):
    """Processes that were started for an experiment and have not ended in two seconds."""
    deadline = time.monotonic() + 2
    while True:
        found = []
        for number in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{number}/cmdline", "rb") as file:
                    found += [number] if str(experiment).encode() in file.read() else []
            except OSError:
                continue
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.05)

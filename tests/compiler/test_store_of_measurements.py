"""The store of measurements: whole contests, and no error whatever happens to its file."""

import json
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from contextlib import closing, suppress
from functools import partial
from random import Random

import pytest

from odyssey.compiler.ways import store as module
from odyssey.compiler.ways.store import Outcome, Ran, Store, Verdict, default_store
from odyssey.kernels.machine_facts import machine_facts
from support.threads import run_in_threads

FACTS = {"processor": "a"}
ROUNDS = [(10.0, 11.0), (12.5, 9.0)]


@pytest.fixture(autouse=True)
def warns_each_time(monkeypatch):
    monkeypatch.setattr("odyssey.kernels.cache_folders._warned", set())


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "measurements.sqlite"


def verdict(work="w", way="fast", **more):
    settings = {"graph": "g", "ratio": 0.5, "bound": 0.6, "error": 1e-7, "guess_error": 2e-7}
    return Verdict(work, way, "1", **(settings | more))


def contest(graph="g"):
    return Ran(graph, '{"w": "fast"}', "{}", "1", ROUNDS)


def filled(path, count=1, facts=FACTS):
    store = Store(path, facts)
    for k in range(count):
        assert store.add(
            [contest(f"g{k}")], [verdict(f"w{k}")], [Outcome(f"g{k}", "0.0", "{}", 1.0, 1.1)]
        )
    return store


def test_what_is_added_is_read(path):
    store = filled(path)
    assert store.verdicts(["w0", "other"]) == [verdict("w0")]
    assert store.all_verdicts() == [verdict("w0")]
    assert store.outcomes("g0") == [Outcome("g0", "0.0", "{}", 1.0, 1.1)]
    assert store.contests() == store.contests("g0") == [contest("g0")]
    again = Store(path, FACTS)
    assert again.verdicts(["w0"]) == [verdict("w0")]
    assert again.contests("g1") == []
    assert path.stat().st_mode & 0o077 == 0


def test_reading_makes_no_file(path):
    store = Store(path, FACTS)
    assert store.verdicts(["w"]) == store.outcomes("g") == store.contests() == []
    assert store.machines() == {}
    assert list(store.export_rows()) == []
    assert not path.parent.exists()


def test_another_machine_reads_nothing_of_this(path):
    filled(path)
    other = Store(path, {"processor": "b"})
    assert other.verdicts(["w0"]) == other.contests() == other.outcomes("g0") == []
    assert other.add(verdicts=[verdict("w0", bound=0.9)])
    assert [row.bound for row in other.verdicts(["w0"])] == [0.9]
    assert [row.bound for row in Store(path, FACTS).verdicts(["w0"])] == [0.6]
    assert sorted(facts["processor"] for facts, _ in other.machines().values()) == ["a", "b"]


def test_many_works_are_read_in_one_call(path):
    store = Store(path, FACTS)
    assert store.add(verdicts=[verdict(f"w{k}") for k in range(1200)])
    assert len(store.verdicts([f"w{k}" for k in range(1300)])) == 1200


def test_contests_of_which_one_is_no_row_are_not_added_at_all(path):
    store = filled(path)
    with pytest.warns(RuntimeWarning, match="was not written"):
        assert not store.add([contest()], [verdict(), verdict(reason=None)])
    assert len(store.contests()) == len(store.all_verdicts()) == 1


@pytest.mark.parametrize("kind", ["garbage", "truncated", "flipped", "newer", "foreign", "text"])
def test_an_unusable_file_is_set_aside_with_one_warning(path, kind):
    filled(path, 60 if kind in ("truncated", "flipped") else 1).close()
    module._CHECKED.clear()
    data = bytearray(path.read_bytes())
    if kind == "garbage":
        path.write_bytes(os.urandom(5000))
    elif kind == "text":
        path.write_text("measurements\n" * 400)
    elif kind == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif kind == "flipped":
        for k in range(4096, len(data), 700):
            data[k] ^= 0xFF
        path.write_bytes(data)
    elif kind == "newer":
        change_file(path, "PRAGMA user_version=99")
    else:
        path.unlink()
        change_file(path, "CREATE TABLE birds(name)")
    before = path.read_bytes()
    store = Store(path, FACTS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        store.verdicts(["w0"])
        if not store.add(verdicts=[verdict("new")]):  # reading had not met the damage
            assert store.add(verdicts=[verdict("new")])
        assert store.verdicts(["new"]) == [verdict("new")]
    assert len(caught) == 1
    assert "was renamed to" in str(caught[0].message)
    (aside,) = [p for p in path.parent.iterdir() if ".unusable-" in p.name]
    assert aside.read_bytes() == before


def change_file(path, statement):
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_an_empty_file_is_filled(path):
    path.parent.mkdir(mode=0o700)
    path.touch(0o600)
    assert filled(path).verdicts(["w0"]) == [verdict("w0")]


@pytest.mark.parametrize(
    "values",
    [
        {"ratio": "'fast'"},
        {"ratio": -1.0},
        {"bound": "NULL"},
        {"bound": 0},
        {"error": "'nan'"},
        {"error": -1e-9},
        {"guess_error": "NULL"},
        {"equal": 7},
        {"way": "x'ff00fe'"},
        {"reason": "x'00'"},
        {"graph": "x'12'"},
    ],
    ids=str,
)
def test_verdicts_that_make_no_sense_are_passed_over(path, values):
    store = filled(path)
    settings = ", ".join(f'"{name}"={value}' for name, value in values.items())
    change_file(path, f"UPDATE verdict SET {settings}")
    assert store.verdicts(["w0"]) == []
    assert store.add(verdicts=[verdict("w0")])
    assert store.verdicts(["w0"]) == [verdict("w0")]


@pytest.mark.parametrize(
    "text",
    [
        "[[1]]",
        "[[0, 1]]",
        "[[-5, 1]]",
        "[[1, NaN]]",
        "[[1, 1e99]]",
        "{",
        "null",
        "[1, 2]",
        "[" * 9999,
    ],
)
def test_contests_that_make_no_sense_are_passed_over(path, text):
    store = filled(path)
    connection = sqlite3.connect(path)
    connection.execute("UPDATE ran SET rounds=?", (text,))
    connection.commit()
    connection.close()
    assert store.contests() == []


def test_text_that_is_no_utf8_is_read_as_another_text(path):
    store = filled(path)
    change_file(path, "UPDATE verdict SET way=CAST(x'ff61' AS TEXT)")
    assert [row.way for row in store.verdicts(["w0"])] == ["�a"]


def test_a_locked_file_is_read_as_empty_and_is_whole_afterwards(path, monkeypatch):
    monkeypatch.setattr(module, "_WAIT_TO_WRITE", 0.05)
    monkeypatch.setattr(module, "_WAIT_TO_READ", 0.05)
    store = filled(path)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert store.verdicts(["w0"]) == []
    with pytest.warns(RuntimeWarning, match="was not written: database is locked"):
        assert not store.add(verdicts=[verdict("new")])
    holder.execute("ROLLBACK")
    holder.close()
    assert store.verdicts(["w0", "new"]) == [verdict("w0")]
    assert store.add(verdicts=[verdict("new")])


def test_a_folder_in_place_of_the_file_is_left_alone(path):
    path.mkdir(parents=True, mode=0o700)
    store = Store(path, FACTS)
    with pytest.warns(RuntimeWarning, match="is not a file of this user alone"):
        assert store.verdicts(["w"]) == []
    assert not store.add(verdicts=[verdict()])
    assert path.is_dir()


def test_a_folder_that_cannot_be_made_costs_a_warning_and_no_more(tmp_path):
    (tmp_path / "file").touch()
    store = Store(tmp_path / "file" / "folder" / "m", FACTS)
    with pytest.warns(RuntimeWarning, match="was not written"):
        assert not store.add(verdicts=[verdict()])
    assert store.verdicts(["w"]) == []


def test_a_folder_that_others_may_write_to_is_not_used(path):
    filled(path).close()
    path.parent.chmod(0o777)
    with pytest.warns(RuntimeWarning, match="others may write to"):
        assert Store(path, FACTS).verdicts(["w0"]) == []


def test_a_link_is_not_followed(path, tmp_path):
    filled(path).close()
    (tmp_path / "link").symlink_to(path)
    with pytest.warns(RuntimeWarning, match="is not a file of this user alone"):
        assert Store(tmp_path / "link", FACTS).verdicts(["w0"]) == []


class FullDisk:
    """A connection whose writes fail."""

    def __init__(self, connection, error, statement):
        self._connection, self._error, self._statement = connection, error, statement

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, text, *values):
        if text.startswith(self._statement):
            raise self._error
        return self._connection.execute(text, *values)


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT INTO verdict", "COMMIT"])
@pytest.mark.parametrize("message", ["database or disk is full", "disk I/O error", "readonly"])
def test_a_full_disk_leaves_the_file_as_it_was(path, statement, message):
    store = filled(path)
    store._connection = FullDisk(store._connection, sqlite3.OperationalError(message), statement)
    with pytest.warns(RuntimeWarning, match=f"was not written: {message}"):
        assert not store.add([contest()], [verdict("new")])
    assert store.all_verdicts() == [verdict("w0")]
    assert store.contests() == [contest("g0")]


@pytest.mark.parametrize("statement", ["INSERT INTO ran", "INSERT INTO verdict", "COMMIT"])
def test_an_interrupted_write_is_undone_and_raises(path, statement):
    store = filled(path)
    usable = store._connection
    store._connection = FullDisk(usable, KeyboardInterrupt(), statement)
    with pytest.raises(KeyboardInterrupt):
        store.add([contest()], [verdict("new")])
    assert not usable.in_transaction
    assert Store(path, FACTS).all_verdicts() == [verdict("w0")]


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes to read-only files")
def test_a_read_only_file_is_read(path):
    filled(path).close()
    path.chmod(0o400)
    store = Store(path, FACTS)
    assert store.verdicts(["w0"]) == [verdict("w0")]
    with pytest.warns(RuntimeWarning, match="was not written"):
        assert not store.add(verdicts=[verdict("new")])


def test_a_python_without_sqlite_reads_nothing(path, monkeypatch):
    filled(path).close()
    monkeypatch.setitem(sys.modules, "sqlite3", None)
    store = Store(path, FACTS)
    assert store.verdicts(["w0"]) == []
    with pytest.warns(RuntimeWarning, match="was not written"):
        assert not store.add(verdicts=[verdict("new")])


def test_a_file_that_was_deleted_or_replaced_is_opened_again(path):
    store = filled(path)
    path.unlink()
    assert store.verdicts(["w0"]) == []
    filled(path, facts=FACTS).add(verdicts=[verdict("new")])
    assert store.verdicts(["new"]) == [verdict("new")]


def test_threads_add_and_read_at_once(path):
    store, failed = Store(path, FACTS), []

    def work(k):
        for n in range(10):
            if not store.add([contest(f"{k}")], [verdict(f"w{k}.{n}")]):
                failed.append((k, n))
            store.verdicts([f"w{k}.{n}"])

    run_in_threads(*[partial(work, k) for k in range(4)])
    assert failed == []
    assert len(store.all_verdicts()) == 40


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_opens_the_file_anew(path):
    store = filled(path)
    child = os.fork()
    if child == 0:
        os._exit(0 if store.add(verdicts=[verdict("child")]) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert store.verdicts(["child"]) == [verdict("child")]
    assert store.add(verdicts=[verdict("parent")])


def test_prune_deletes_other_machines_versions_and_replaced_rows(path):
    filled(path, facts={"processor": "b"})
    store = filled(path, 3)
    assert store.add(verdicts=[verdict("w0", bound=0.7), verdict("w0", way="gone")])

    def is_stale(work, way, version):
        return work == "w1" or way == "gone"

    # Of the other machine a row of each table and its facts; the replaced one, and those of w1 and
    # of the way that is gone.
    assert store.prune(is_stale) == 4 + 3
    kept = [(row.work, row.way, row.bound) for row in store.all_verdicts()]
    assert kept == [("w2", "fast", 0.6), ("w0", "fast", 0.7)]
    assert list(store.machines()) == [store.machine]


def test_an_exported_file_is_imported_once(path, tmp_path):
    store = filled(path, 2)
    rows = [json.loads(json.dumps(row)) for row in store.export_rows()]
    other = Store(tmp_path / "other" / "m", FACTS)
    assert other.import_rows(rows) == len(rows) == 7
    assert other.import_rows(rows) == 0
    assert other.all_verdicts() == store.all_verdicts()
    assert other.contests() == store.contests()
    assert other.outcomes("g1") == store.outcomes("g1")


@pytest.mark.parametrize(
    "change",
    [
        {"table": "birds"},
        {"table": 3},
        {"ratio": -1},
        {"bound": "1"},
        {"extra": 1},
        {"at": "now"},
        {"error": math.nan},
        {"machine": None},
    ],
    ids=str,
)
def test_rows_that_make_no_sense_are_not_imported(path, tmp_path, change):
    rows = list(filled(path).export_rows())
    (row,) = [row for row in rows if row["table"] == "verdict"]
    other = Store(tmp_path / "other" / "m", FACTS)
    with pytest.raises(ValueError, match=r"is not a row of|make no sense"):
        other.import_rows([*rows, row | change])
    assert other.all_verdicts() == []


def test_facts_of_another_machine_are_not_imported_under_its_name(path):
    store = filled(path)
    row = {"table": "machine", "id": store.machine, "facts": "{}"}
    with pytest.raises(ValueError, match="make no sense"):
        store.import_rows([row])


def test_the_default_store_lies_beside_the_machine_code(tmp_path, monkeypatch):
    monkeypatch.setenv("ODYSSEY_CACHE", str(tmp_path))
    store = default_store(2)
    assert store.path == tmp_path / "native" / "measurements.sqlite"
    assert not module.is_present()
    assert default_store(2) is store
    assert default_store(1).machine != store.machine
    assert store.add(verdicts=[verdict()])
    assert module.is_present()
    monkeypatch.setenv("ODYSSEY_CACHE", "off")
    assert default_store() is None
    assert not module.is_present()


def test_the_facts_name_processor_blas_and_versions():
    facts = machine_facts()
    assert set(facts) == {"processor", "flags", "cores", "caches", "system", "blas", "versions"}
    assert facts["cores"] >= 1
    assert "numpy" in facts["versions"]
    assert facts["processor"]
    json.dumps(facts)


def test_a_file_that_another_process_is_making_is_not_taken_for_that_of_another_program(
    path, monkeypatch
):
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    read = module._pragma

    def make_tables_meanwhile(connection, name):
        found = read(connection, name)
        with closing(sqlite3.connect(path, timeout=0)) as other, suppress(sqlite3.OperationalError):
            own = {"application": module._APPLICATION, "version": module._VERSION}
            other.executescript(module._TABLES.format(**own))
        return found

    monkeypatch.setattr(module, "_pragma", make_tables_meanwhile)
    store = Store(path, FACTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.all_verdicts() == []
    assert [file.name for file in path.parent.iterdir() if "unusable" in file.name] == []


WRITERS = """
import os, sys, time
from odyssey.compiler.ways.store import Ran, Store, Verdict
for k in range(20):
    if os.fork() == 0:
        break
else:
    os._exit(0)
store, n = Store(sys.argv[1], {"processor": "a"}), 0
os.write(1, f"{k} {os.getpid()} 0\\n".encode())
while True:
    name = f"{k}.{n}"
    rows = [Verdict(name, way, "1", "g", 0.5, 0.6, 1e-7, 1e-7) for way in ("one", "two")]
    if store.add([Ran(name, "{}", "{}", "1", [(1.0, 2.0)])], rows):
        n += 1
        os.write(1, f"{k} {os.getpid()} {n}\\n".encode())
    time.sleep(0.002)  # SQLite is not fair to writers that wait
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_twenty_writers_killed_at_random_moments_leave_no_half_contest(path):
    rng = Random(0)
    arguments = [sys.executable, "-c", WRITERS, str(path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as writers:
        lines, known = [], {}
        while len(known) < 20 or min(known.values()) < 1:
            lines.append(writers.stdout.readline().split())
            known |= {int(pid): int(n) for _, pid, n in lines[-1:]}
        for pid in rng.sample(sorted(known), 20):
            time.sleep(0.05 * rng.random())
            os.kill(pid, signal.SIGKILL)
        lines += [line.split() for line in writers.stdout.read().splitlines()]
    promised = {f"{k}.{n}" for k, _, count in lines for n in range(int(count))}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = Store(path, FACTS)  # undoes what a killed writer had begun
        verdicts, contests = store.all_verdicts(), store.contests()
        assert store.add(verdicts=[verdict()])
    ways = {}
    for row in verdicts:
        ways.setdefault(row.work, []).append(row.way)
    assert all(found == ["one", "two"] for found in ways.values())
    assert {ran.graph for ran in contests} == set(ways)
    assert promised <= set(ways)
    assert len(promised) >= 20

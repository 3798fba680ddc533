"""The store of measurements: one SQLite file beside the machine code, to which rows are added.

Called by ``choosing`` for what is known of the works of a program, and by ``tuning``, which adds to
it. It is a cache: losing it costs the time to measure again, so no failure of it is an error. A
file that is damaged, of a newer version or of another program is renamed, with one warning. A file
that is locked or cannot be read or written is left alone: reading finds nothing, and writing
returns False. What is read is text and numbers, which are checked; nothing of it is executed.

Tables, with the machine in each row::

    machine(id, facts)
    ran(machine, graph, plan, against, version, rounds, at)
    verdict(machine, graph, work, way, version, ratio, bound, error, guess_error, equal, reason, at)
    outcome(machine, graph, tolerance, plan, ratio, bound, at)

``ran`` has the raw times of a contest, ``verdict`` what is known of a way of a work: how exact it
was when it was checked, and how fast in the program of a graph. ``outcome`` is the plan at the end
of a tuning. Later rows replace earlier ones. Nothing but ``prune`` deletes rows.

The journal is a rollback journal, because a write-ahead log does not work in network folders. A
contest is one transaction: a killed process leaves all of it or nothing.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from odyssey.kernels.cache_folders import (
    is_private_folder,
    is_regular_and_owned,
    machine_code_folder,
    warn_once,
)

__all__ = ["Ran", "Outcome", "Store", "Verdict", "default_store"]

FILE_NAME = "measurements.sqlite"

# Marks the file as one of this program, in the header of SQLite files.
_APPLICATION = 0x6F647977

_VERSION = 1
"""Version of the tables; files of newer versions are set aside."""

_TABLES = """
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS machine(id TEXT PRIMARY KEY, facts TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS ran(
  machine TEXT NOT NULL, graph TEXT NOT NULL, plan TEXT NOT NULL, against TEXT NOT NULL,
  version TEXT NOT NULL, rounds TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS verdict(
  machine TEXT NOT NULL, graph TEXT NOT NULL, work TEXT NOT NULL, way TEXT NOT NULL,
  version TEXT NOT NULL, ratio REAL, bound REAL, error REAL, guess_error REAL, equal INTEGER,
  reason TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS outcome(
  machine TEXT NOT NULL, graph TEXT NOT NULL, tolerance TEXT NOT NULL, plan TEXT NOT NULL,
  ratio REAL, bound REAL, at REAL NOT NULL);
CREATE INDEX IF NOT EXISTS verdict_of_work ON verdict(machine, work);
CREATE INDEX IF NOT EXISTS outcome_graph ON outcome(machine, graph);
PRAGMA application_id={application};
PRAGMA user_version={version};
COMMIT;
"""

# Seconds to wait for another process that is writing.
_WAIT_TO_READ, _WAIT_TO_WRITE = 0.2, 5.0

# Works of one query; SQLite had a limit of 999 parameters.
_CHUNK = 500

# Largest text and time of a row that is believed.
_MOST_TEXT = 1 << 20
_MOST_TIME = 1e15

Result = TypeVar("Result")


class Ran(NamedTuple):
    """A contest as it was run.

    Attributes:
        graph: Key of the graph.
        plan: The challenger's plan as JSON.
        against: The champion's plan as JSON.
        version: Versions of the ways that differ.
        rounds: For each round the nanoseconds of a run of the champion, and of the challenger.
    """

    graph: str
    plan: str
    against: str
    version: str
    rounds: Sequence[tuple[float, float]]


class Verdict(NamedTuple):
    """Measured exactness and speed of a way of a work.

    Attributes:
        work: Text of the work.
        way: Name of the way.
        version: Version of the way.
        graph: Key of the graph in whose program it was timed; empty if it was only checked.
        ratio: Time of the program with this way, to that with the guess; None if not timed.
        bound: Upper 97.5 % bound of the ratio.
        error: Largest error against float64, relative to the largest element; None if not checked.
        guess_error: Error of the guess, on the same operands.
        equal: Whether all results were equal to the guess's, bit for bit.
        reason: Why the way is in quarantine; empty if it is not.
    """

    work: str
    way: str
    version: str
    graph: str = ""
    ratio: float | None = None
    bound: float | None = None
    error: float | None = None
    guess_error: float | None = None
    equal: bool = False
    reason: str = ""


class Outcome(NamedTuple):
    """The plan of a graph at the end of its tuning.

    Attributes:
        graph: Key of the graph.
        tolerance: Text of the tolerance that it was tuned for.
        plan: The plan as JSON; of no works if the guess is faster.
        ratio: Time of the program with the plan, to that with the guess.
        bound: Upper 97.5 % bound of the ratio.
    """

    graph: str
    tolerance: str
    plan: str
    ratio: float
    bound: float


class Store:
    """A file of measurements, as one machine sees it.

    Args:
        path: The file; it, and its folder, are made by the first write.
        facts: What the speed of kernels depends on; a machine is a set of facts.

    Attributes:
        path: The file.
        machine: Identifier of the machine.
    """

    def __init__(self, path: str | os.PathLike[str], facts: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self._facts = json.dumps(facts, sort_keys=True, default=str)
        self.machine = _digest(self._facts)
        self._lock = RLock()
        self._connection: Any = None
        # Of the file that the connection reads: device and number; and the process that opened it.
        self._file: tuple[int, int] = (0, 0)
        self._process = 0

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r}, machine {self.machine})"

    # -------------------------------------------------------------- reading

    def verdicts(self, works: Iterable[str]) -> list[Verdict]:
        """Return what is known of works on this machine, the oldest first."""
        keys = list(dict.fromkeys(works))

        def query(connection: Any) -> list[Any]:
            rows: list[Any] = []
            for k in range(0, len(keys), _CHUNK):
                chunk = keys[k : k + _CHUNK]
                marks = ",".join("?" * len(chunk))
                rows += connection.execute(
                    f"SELECT {_VERDICT} FROM verdict WHERE machine=? AND work IN ({marks}) "
                    "ORDER BY rowid",
                    (self.machine, *chunk),
                ).fetchall()
            return rows

        return list(filter(None, map(_verdict_of, self._query(query))))

    def outcomes(self, graph: str) -> list[Outcome]:
        """Return the plans at the ends of the tunings of a graph here, the oldest first."""
        rows = self._query(
            lambda connection: connection.execute(
                "SELECT graph, tolerance, plan, ratio, bound FROM outcome "
                "WHERE machine=? AND graph=? ORDER BY rowid",
                (self.machine, graph),
            ).fetchall()
        )
        return list(filter(None, map(_outcome_of, rows)))

    def contests(self, graph: str | None = None) -> list[Ran]:
        """Return the contests on this machine, the oldest first; of one graph, or of all."""
        rows = self._query(
            lambda connection: connection.execute(
                "SELECT graph, plan, against, version, rounds FROM ran WHERE machine=?1 "
                "AND (?2 IS NULL OR graph=?2) ORDER BY rowid",
                (self.machine, graph),
            ).fetchall()
        )
        return list(filter(None, map(_ran_of, rows)))

    def all_verdicts(self) -> list[Verdict]:
        """Return all verdicts of this machine, the oldest first."""
        rows = self._query(
            lambda connection: connection.execute(
                f"SELECT {_VERDICT} FROM verdict WHERE machine=? ORDER BY rowid",
                (self.machine,),
            ).fetchall()
        )
        return list(filter(None, map(_verdict_of, rows)))

    # -------------------------------------------------------------- writing

    def add(
        self,
        contests: Iterable[Ran] = (),
        verdicts: Iterable[Verdict] = (),
        outcomes: Iterable[Outcome] = (),
    ) -> bool:
        """Add rows in one transaction; return whether all of them are in the file, or none."""
        now = time.time()
        ran = [(*c[:4], json.dumps([[_rounded(t) for t in p] for p in c.rounds])) for c in contests]
        judged = [
            (v.graph, v.work, v.way, v.version, *v[4:8], int(v.equal), v.reason) for v in verdicts
        ]
        ended = list(outcomes)

        def insert(connection: Any) -> bool:
            connection.execute(
                "INSERT OR IGNORE INTO machine VALUES(?,?)", (self.machine, self._facts)
            )
            for table, rows in (("ran", ran), ("verdict", judged), ("outcome", ended)):
                for row in rows:
                    marks = ",".join("?" * (len(row) + 2))
                    connection.execute(
                        f"INSERT INTO {table} VALUES({marks})",
                        (self.machine, *row, now),
                    )
            return True

        return bool(self._change(insert))

    # -------------------------------------------------------------- the whole file

    def machines(self) -> dict[str, tuple[dict[str, Any], int]]:
        """Return by identifier of each machine in the file its facts, and its number of rows."""
        rows = self._query(
            lambda connection: [
                (id, facts, _count_rows(connection, id))
                for id, facts in connection.execute("SELECT id, facts FROM machine").fetchall()
            ]
        )
        found = {}
        for id, facts, count in rows:
            known = _json(facts)
            if isinstance(id, str):
                found[id] = (known if isinstance(known, dict) else {}, count)
        return found

    def prune(self, is_stale: Callable[[str, str, str], bool]) -> int:
        """Delete rows that can no longer be used, and return their number.

        These are the rows of other machines, and verdicts on ways of another version or that are
        replaced by a later one.

        Args:
            is_stale: ``is_stale(work, way, version)`` returns whether a version is another now.
        """

        def delete(connection: Any) -> int:
            before = connection.total_changes
            for table in (*_ROW_TABLES, "machine"):
                column = "id" if table == "machine" else "machine"
                connection.execute(f"DELETE FROM {table} WHERE {column} IS NOT ?", (self.machine,))
            connection.execute(
                "DELETE FROM verdict WHERE rowid NOT IN (SELECT max(rowid) FROM verdict "
                "GROUP BY machine, graph, work, way, version)"
            )
            rows = connection.execute("SELECT rowid, work, way, version FROM verdict").fetchall()
            for rowid, work, way, version in rows:
                if is_stale(work, way, version):
                    connection.execute("DELETE FROM verdict WHERE rowid=?", (rowid,))
            return int(connection.total_changes - before)

        return self._change(delete) or 0

    def export_rows(self) -> Iterator[dict[str, Any]]:
        """Yield all rows of all machines, as dictionaries that JSON holds."""
        for table in ("machine", *_ROW_TABLES):

            def query(connection: Any, table: str = table) -> list[dict[str, Any]]:
                cursor = connection.execute(f"SELECT * FROM {table} ORDER BY rowid")
                names = [column[0] for column in cursor.description]
                return [{"table": table, **dict(zip(names, row, strict=True))} for row in cursor]

            yield from self._query(query)

    def import_rows(self, rows: Iterable[Any]) -> int | None:
        """Add rows that ``export_rows`` returned, except those that are there.

        Returns:
            The number of added rows; None if the file cannot be written.

        Raises:
            ValueError: a row is not one of these tables, or its values make no sense. Nothing is
                added.
        """
        checked = [_imported(row) for row in rows]

        def insert(connection: Any) -> int:
            before = connection.total_changes
            for table, values in checked:
                marks = ",".join("?" * len(values))
                same = " AND ".join(f"{name} IS ?" for name in _COLUMNS[table])
                connection.execute(
                    f"INSERT OR IGNORE INTO {table} SELECT {marks} WHERE NOT EXISTS "
                    f"(SELECT 1 FROM {table} WHERE {same})",
                    (*values, *values),
                )
            return int(connection.total_changes - before)

        return self._change(insert)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                with suppress(Exception):
                    self._connection.close()
            self._connection = None

    # -------------------------------------------------------------- the file

    def _query(self, query: Callable[[Any], list[Any]]) -> list[Any]:
        """Return the rows of a query; none if there is no file, or whatever fails."""
        with self._lock:
            try:
                connection = self._open(create=False)
                if connection is None:
                    return []
                try:
                    return query(connection)
                except _sqlite().OperationalError as error:
                    if "decode" not in str(error):
                        raise
                    connection.text_factory = _decode  # five times as slow as SQLite's own
                    return query(connection)
            except Exception as error:
                self._give_up(error)
                return []

    def _change(self, change: Callable[[Any], Result]) -> Result | None:
        """Return the result of a transaction; None if it could not be made, after a warning."""
        with self._lock:
            connection = None
            try:
                connection = self._open(create=True)
                if connection is None:
                    return None
                connection.execute("BEGIN IMMEDIATE")
                result = change(connection)
                connection.execute("COMMIT")
                return result
            except Exception as error:
                if not self._give_up(error):
                    warn_once(f"tune: {str(self.path)!r} was not written: {error}")
                return None
            finally:  # after Ctrl-C too
                if connection is not None:
                    with suppress(Exception):
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")

    def _open(self, create: bool) -> Any:
        """Return a connection of this process; None if there is no file, or no file can be made."""
        status = self._status()
        current = None if status is None else (status.st_dev, status.st_ino)
        if self._connection is not None and self._process != os.getpid():
            _INHERITED.append(self._connection)  # it is the parent's: not to be used, nor closed
            self._connection = None
        if self._connection is not None and current != self._file:  # deleted, or replaced
            self.close()
        if self._connection is None:
            if status is None and not create:
                return None
            if not is_private_folder(self.path.parent, "what was measured", create=create):
                return None
            if status is not None and not is_regular_and_owned(status):
                warn_once(
                    f"tune: {str(self.path)!r} is not a file of this user alone, so nothing that "
                    "was measured is kept; delete it, or name another folder in ODYSSEY_CACHE"
                )
                return None
            self._connection = self._connect()
        wait = _WAIT_TO_WRITE if create else _WAIT_TO_READ
        self._connection.execute(f"PRAGMA busy_timeout={int(1e3 * wait)}")
        if create:
            self._make_tables(self._connection)
        status = self._status()
        self._file = (0, 0) if status is None else (status.st_dev, status.st_ino)
        return self._connection

    def _connect(self) -> Any:
        connection = _sqlite().connect(self.path, isolation_level=None, check_same_thread=False)
        self._process = os.getpid()
        try:
            status = self._status()
            self._file = (0, 0) if status is None else (status.st_dev, status.st_ino)
            connection.execute(f"PRAGMA busy_timeout={int(1e3 * _WAIT_TO_READ)}")
            _check_header(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _make_tables(self, connection: Any) -> None:
        """Make the tables in an empty file, or check that the pages of another are whole."""
        if _pragma(connection, "user_version") == 0:
            os.chmod(self.path, 0o600)
            connection.executescript(_TABLES.format(application=_APPLICATION, version=_VERSION))
        elif self.path not in _CHECKED:
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise _sqlite().DatabaseError(problem)
            _CHECKED.add(self.path)

    def _status(self) -> os.stat_result | None:
        try:
            return os.lstat(self.path)
        except OSError:
            return None

    def _give_up(self, error: Exception) -> bool:
        """Close the file after an error; set it aside if it is unusable, and return whether."""
        self.close()
        module = sys.modules.get("sqlite3")
        if module is None or type(error) is not module.DatabaseError:
            return False  # locked, read-only, full, no folder
        status = self._status()
        if status is None or (status.st_dev, status.st_ino) != self._file:
            return False  # another process set it aside
        aside = f"{self.path}.unusable-{os.getpid()}-{time.time_ns()}"
        try:
            for suffix in ("-journal", ""):  # a journal must not meet a new file
                with suppress(FileNotFoundError):
                    os.replace(f"{self.path}{suffix}", f"{aside}{suffix}")
        except OSError:
            return False
        _CHECKED.discard(self.path)
        warn_once(
            f"tune: {str(self.path)!r} cannot be used ({error}); it was renamed to "
            f"{os.path.basename(aside)!r}, and measuring starts anew"
        )
        return True


# Connections that a fork inherited. If they were closed, SQLite would release locks of the parent.
_INHERITED: list[Any] = []

# Files whose pages were found whole.
_CHECKED: set[Path] = set()

_VERDICT = "work, way, version, graph, ratio, bound, error, guess_error, equal, reason"
_ROW_TABLES = ("ran", "verdict", "outcome")
_COLUMNS = {
    "machine": ("id", "facts"),
    "ran": ("machine", "graph", "plan", "against", "version", "rounds", "at"),
    "verdict": (
        *("machine", "graph", "work", "way", "version", "ratio", "bound", "error"),
        *("guess_error", "equal", "reason", "at"),
    ),
    "outcome": ("machine", "graph", "tolerance", "plan", "ratio", "bound", "at"),
}


def default_store(threads: int = 1) -> Store | None:
    """Return the store beside the machine code; None if the disk cache is off.

    Args:
        threads: Number of threads of the program, which is one of the facts.
    """
    folder = machine_code_folder()
    if folder is None:
        return None
    key = folder / FILE_NAME, threads, os.getpid()  # a lock may be held while a process forks
    if key not in _STORES:
        from odyssey.kernels.machine_facts import machine_facts

        _STORES[key] = Store(key[0], {**machine_facts(), "threads": threads})
    return _STORES[key]


_STORES: dict[tuple[Path, int, int], Store] = {}


def is_present() -> bool:
    """Return whether there is a file of measurements; takes some microseconds."""
    folder = machine_code_folder()
    return folder is not None and os.path.exists(folder / FILE_NAME)


def _sqlite() -> ModuleType:
    import sqlite3  # its import takes 5 ms

    return sqlite3


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _digest(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode()).hexdigest()[:16]


def _pragma(connection: Any, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _check_header(connection: Any) -> None:
    """Raise DatabaseError for files of other programs, and of newer versions of this one."""
    # In one transaction: another process may be making the tables.
    connection.execute("BEGIN")
    try:
        application, version = (_pragma(connection, n) for n in ("application_id", "user_version"))
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    finally:
        connection.execute("ROLLBACK")
    if (application, version) == (0, 0):
        if not tables:
            return  # a new file
        raise _sqlite().DatabaseError("it is of another program")
    if application != _APPLICATION:
        raise _sqlite().DatabaseError("it is of another program")
    if version != _VERSION:
        raise _sqlite().DatabaseError(f"its version is {version}, and {_VERSION} is understood")


def _count_rows(connection: Any, machine: str) -> int:
    return sum(
        connection.execute(f"SELECT count(*) FROM {table} WHERE machine=?", (machine,)).fetchone()[
            0
        ]
        for table in _ROW_TABLES
    )


# ------------------------------------------------------------------ checks of rows


def _rounded(nanoseconds: float) -> float:
    return float(f"{nanoseconds:.6g}")


def _json(text: Any) -> Any:
    """Return the value of a JSON text; None for anything else."""
    if not isinstance(text, str) or len(text) > _MOST_TEXT:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _MOST_TEXT


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < _MOST_TIME


_NUMBERS = (int, float)


def _is_measure(value: Any) -> bool:
    """Return whether a value is a positive number, and not NaN."""
    return type(value) in _NUMBERS and value > 0


def _verdict_of(row: Sequence[Any]) -> Verdict | None:
    """Return a row as a verdict; None if it makes no sense.

    It is called for each row of a look-up, and so without calls of its own.
    """
    work, way, version, graph, ratio, bound, error, guess_error, equal, reason = row
    for text in (work, way, version, graph, reason):
        if type(text) is not str or len(text) > _MOST_TEXT:
            return None
    if equal not in (None, 0, 1):
        return None
    if ratio is not None or bound is not None:
        for value in (ratio, bound):
            if type(value) not in _NUMBERS or not value > 0:
                return None
    if error is not None or guess_error is not None:
        for value in (error, guess_error):
            if type(value) not in _NUMBERS or not value >= 0:
                return None
    return Verdict(work, way, version, graph, ratio, bound, error, guess_error, equal == 1, reason)


def _outcome_of(row: Sequence[Any]) -> Outcome | None:
    """Return a row as the end of a tuning; None if it makes no sense."""
    graph, tolerance, plan, ratio, bound = row
    plain = all(map(_is_text, (graph, tolerance))) and all(map(_is_measure, (ratio, bound)))
    return Outcome(*row) if plain and isinstance(_json(plan), (dict, list)) else None


def _ran_of(row: Sequence[Any]) -> Ran | None:
    """Return a row as a contest; None if it makes no sense."""
    graph, plan, against, version, text = row
    rounds = _json(text)
    if not all(map(_is_text, (graph, plan, against, version))) or not isinstance(rounds, list):
        return None
    pairs = [tuple(pair) for pair in rounds if isinstance(pair, list)]
    if len(pairs) != len(rounds) or any(len(p) != 2 or not all(map(_is_time, p)) for p in pairs):
        return None
    return Ran(graph, plan, against, version, pairs)


def _imported(row: Any) -> tuple[str, list[Any]]:
    """Return table and values of an exported row, checked."""
    table = row.get("table") if isinstance(row, dict) else None
    names = _COLUMNS.get(table) if isinstance(table, str) else None
    if names is None or set(row) != {"table", *names}:
        raise ValueError(f"{str(row)[:80]!r} is not a row of a file of measurements")
    of = row.get
    if table == "machine":
        sound = isinstance(_json(row["facts"]), dict) and row["id"] == _digest(row["facts"])
    else:
        sound = _is_text(row["machine"]) and _is_measure(row["at"])
    if table == "ran":
        sound = sound and _ran_of([of(n) for n in names[1:6]]) is not None
    elif table == "verdict":
        sound = sound and _verdict_of([of(n.strip()) for n in _VERDICT.split(",")]) is not None
    elif table == "outcome":
        sound = sound and _outcome_of([of(n) for n in names[1:6]]) is not None
    if not sound:
        raise ValueError(f"a row of {table} has values that make no sense: {str(row)[:200]}")
    return str(table), [row[name] for name in names]

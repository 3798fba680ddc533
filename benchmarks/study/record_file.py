"""The file of a run's records: appended at once, continued after an interruption."""

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from study.records import VERSION, RecordsError, parsed_lines
from study.schema import record_faults

SYNC_SECONDS = 5.0
"""How often records are forced to the disk; a process that is killed loses none, power cuts may."""

SAME_MACHINE = ("cpu", "cores", "memory", "system", "architecture")
NAME = "records.jsonl"


def new_header(
    machine: Mapping[str, Any], versions: Mapping[str, str], seed: int, quick: bool, set_aside: str
) -> dict[str, Any]:
    """Return the first record of a run.

    Args:
        machine: What a reader needs in order to place the figures.
        versions: Versions of libraries by name.
        seed: Of the order of configs.
        quick: Whether configs and rounds are those of ``--quick``.
        set_aside: Variables of the environment that were taken out of it.
    """
    return {
        "study": VERSION,
        "run": secrets.token_hex(6),
        "session": 0,
        "seed": seed,
        "quick": quick,
        "started": _now(),
        "set_aside": set_aside,
        "machine": dict(machine),
        "versions": dict(versions),
    }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _point(experiment: str, config: Mapping[str, Any]) -> str:
    return json.dumps([experiment, config], sort_keys=True)


class RecordFile:
    """Records of one run, open for more.

    Args:
        path: The file.
        header: The first record of a run on this machine, as `new_header` makes it.
        resume: Whether the file of an earlier run is continued. Without it the file must not exist.
        notice: Called with a sentence for each line that does not parse.

    Raises:
        RecordsError: There is a file that cannot be continued: of another schema, machine, version,
            seed or size, or one that another process writes; or there is one and `resume` is false.
    """

    def __init__(
        self,
        path: Path,
        header: dict[str, Any],
        resume: bool,
        notice: Callable[[str], None] = print,
    ) -> None:
        self.path = path
        exists = path.exists() and path.stat().st_size > 0
        if exists and not resume:
            raise RecordsError(
                f"{path}: there are records already; --resume continues them, "
                "--out DIR writes to another folder"
            )
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        self._synced = time.monotonic()
        try:
            self._lock()
            self.lines: list[dict[str, Any]] = []
            self._by_point: dict[str, list[dict[str, Any]]] = {}
            earlier = self._read(notice) if exists else []
            if earlier:
                self._continue(earlier, header)
            else:
                self.header, self.session = header, 0
                self._write(header)
        except BaseException:
            os.close(self._file)
            raise

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # Windows
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RecordsError(
                f"{self.path}: another process writes to it; wait for it, or choose another --out"
            ) from None

    def _read(self, notice: Callable[[str], None]) -> list[dict[str, Any]]:
        """Return the records of runs, and keep those of samples; cut off a torn last line."""
        headers = []
        for number, record, fault in parsed_lines(self.path):
            if record is None and fault.startswith("torn"):
                notice(f"{self.path}: line {number} is cut off, since it is {fault}")
                self._cut_last_line()
            elif record is None:
                notice(f"{self.path}: line {number} is left out: {fault}")
            elif "experiment" in record:
                self._keep(record)
            else:
                headers.append(record)
        if self.lines and not headers:
            raise RecordsError(
                f"{self.path}: the record of the run and its machine is missing; "
                "choose another --out"
            )
        return headers

    def _cut_last_line(self) -> None:
        content = self.path.read_bytes()
        os.ftruncate(self._file, content.rfind(b"\n") + 1)

    def _continue(self, headers: list[dict[str, Any]], header: dict[str, Any]) -> None:
        old = headers[0]
        differing = [
            f"{name} was {before!r} and is {now!r}"
            for name, before, now in [
                ("schema", old["study"], VERSION),
                *((n, old["machine"].get(n), header["machine"].get(n)) for n in SAME_MACHINE),
                *(
                    (f"version of {n}", old["versions"].get(n), header["versions"].get(n))
                    for n in sorted({*old["versions"], *header["versions"]})
                ),
                *((n, old[n], header[n]) for n in ("seed", "quick", "set_aside")),
            ]
            if before != now
        ]
        if differing:
            raise RecordsError(
                f"{self.path}: records of another run cannot be continued: {'; '.join(differing)}. "
                "Choose another --out"
            )
        self.header, self.session = old, 1 + max(line["session"] for line in headers)
        self._write(
            {
                "study": VERSION,
                "run": old["run"],
                "session": self.session,
                "started": _now(),
                "load_at_start": header["machine"]["load_at_start"],
            }
        )

    def append(self, record: dict[str, Any]) -> dict[str, Any]:
        """Write a record of a sample or a failure, with the run and the session.

        Returns:
            The record that was written.

        Raises:
            ValueError: The record breaks the schema.
            RecordsError: It could not be written (a full disk); nothing of it is in the file.
        """
        head = {"study": VERSION, "run": self.header["run"], "session": self.session}
        written = self._write({**head, **record})
        self._keep(written)
        return written

    def at(self, experiment: str, config: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the records of an experiment at a config."""
        return self._by_point.get(_point(experiment, config), [])

    def _keep(self, record: dict[str, Any]) -> None:
        self.lines.append(record)
        point = _point(record["experiment"], record["config"])
        self._by_point.setdefault(point, []).append(record)

    def _write(self, record: dict[str, Any]) -> dict[str, Any]:
        if found := record_faults(record):
            raise ValueError("; ".join(found))
        line = (json.dumps(record, allow_nan=False) + "\n").encode()
        end = os.fstat(self._file).st_size
        try:
            # One call a line, so that a process that is killed leaves whole lines.
            count = os.write(self._file, line)
            while count < len(line):  # a disk that is almost full
                count += os.write(self._file, line[count:])
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, end)
            raise RecordsError(
                f"{self.path}: {error}; what was measured until now is there, and --resume "
                "continues it"
            ) from error
        if time.monotonic() - self._synced > SYNC_SECONDS:
            self.sync()
        return record

    def sync(self) -> None:
        """Force what was written to the disk."""
        with contextlib.suppress(OSError):  # a pipe
            os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Close the file, with what was written on the disk."""
        self.sync()
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

"""Metric logs: one JSON line for each step, appended to a file."""

from __future__ import annotations

import json
import math
import os
import platform
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from odyssey.checks import STUMBLES, check_int, describe_type, format_value
from odyssey.devices.stateful import TraceConstant
from odyssey.errors import (
    DTypeError,
    FileError,
    FormatError,
    OdysseyError,
    SettingError,
    ShapeError,
)
from odyssey.saving.paths import file_error, path_text
from odyssey.table.store import store

__all__ = ["MetricLog", "MetricRun", "MetricRuns"]

_FORMAT = 1
_OWN = ("run", "step", "seconds")
"""Entries of a line that are not metrics."""

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_RANKS = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
"""Variables in which launchers tell a process its number."""


class MetricLog(TraceConstant):
    """A file to which each step of a training appends its metrics, as one line of JSON.

    The first line of a run has the machine, the versions of odyssey, NumPy and Python, and
    ``config``. A line is written at once and by one call of the system: whenever the process is
    killed, whole lines are in the file. An existing log is continued by another run, and never
    changed. Several processes and threads may write to one file of a local disk.

    Args:
        path: The file; its folder must exist.
        config: Settings to keep with the run: a dict, or a dataclass, of text, numbers, booleans,
            None, paths, lists and further dicts.

    Raises:
        SettingError, DTypeError: the path is not valid, or a setting cannot be written as JSON.
        FormatError: the file is not a metric log; it is unchanged.
        FileError: the system refuses.

    >>> import odyssey as od, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "run.jsonl")
    >>> with od.MetricLog(path, config={"learning_rate": 0.1}) as log:
    ...     for step in range(3):
    ...         log.log(step, loss=1.0 / (step + 1))
    >>> run = od.MetricLog.read(path)[-1]
    >>> run.config, run["loss"].round(2)
    ({'learning_rate': 0.1}, array([1.  , 0.5 , 0.33]))
    """

    def __init__(self, path: str | os.PathLike[str], config: Any = None) -> None:
        who = "MetricLog"
        store().refuse_effect(f"{who}: opened", "open it outside of the compiled function")
        self._file: Any = None
        self._torn = False
        self._start = time.monotonic()
        self._path = path_text(who, path)
        self._run = secrets.token_hex(4)
        header = _first_line(self._run, _config_json(who, config))
        try:
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115 - close() ends it
            ending = _check_ending(who, self._path)
        except OSError as error:
            self.close()
            raise file_error(who, self._path, error, creates=True) from error
        except FormatError:
            self.close()
            raise
        self._torn = ending == "torn"
        self._append(header, "the first line of this run")

    @property
    def path(self) -> str:
        """The file, as it was given."""
        return self._path

    @property
    def run(self) -> str:
        """The id of this run, which each of its lines has."""
        return self._run

    def log(self, step: int, values: Mapping[str, Any] | None = None, /, **metrics: Any) -> None:
        """Append the metrics of a step.

        Args:
            step: The number of the step; it may repeat.
            values: Metrics by name, for names such as ``"train/loss"``. The names in a further dict
                come after the name of the dict and a ``/``.
            **metrics: Metrics by name: numbers, booleans, or what has one element, such as a
                Variable, an array or a tensor. A Variable that is recorded is read, and its
                recording continues. NaN and infinities are written as ``"nan"``, ``"inf"`` and
                ``"-inf"``.

        Raises:
            DTypeError, ShapeError, SettingError: a metric is not a number, or its name is not
                valid; nothing is written.
            FileError: the system refuses, as on a full disk; earlier lines are intact.
            TapeError: in a compiled function, which would write once and not at every call.

        >>> import odyssey as od, os, tempfile
        >>> log = od.MetricLog(os.path.join(tempfile.mkdtemp(), "run.jsonl"))
        >>> log.log(1, {"train/loss": 0.5, "time": {"data": 0.1}}, accuracy=0.9)
        >>> list(od.MetricLog.read(log.path)[0].columns)
        ['train/loss', 'time/data', 'accuracy']
        """
        who = "MetricLog.log"
        store().refuse_effect(
            f"{who}: called", "return the metrics and log them outside of the compiled function"
        )
        number = int(check_int(who, "step", step))
        if not -(2**63) <= number < 2**63:
            raise SettingError(f"{who}: step={format_value(step)} has more than 64 bits")
        if values is not None and not isinstance(values, Mapping):
            raise DTypeError(
                f"{who}: values={format_value(values)} is not a dict; pass metrics by name, as in "
                "log(step, loss=0.5)"
            )
        line: dict[str, Any] = {
            "run": self._run,
            "step": number,
            "seconds": round(time.monotonic() - self._start, 6),
        }
        for name, value in _flat(who, "", {}, values or {}):
            _add_metric(who, line, name, value)
        for name, value in _flat(who, "", {}, metrics):
            _add_metric(who, line, name, value)
        if len(line) == len(_OWN):
            raise SettingError(f"{who}: step {number} has no metrics; pass some, as in loss=0.5")
        self._append(line, f"step {number}")

    def _append(self, line: Mapping[str, Any], what: str) -> None:
        """Write a line by one call of the system."""
        file = self._file
        if file is None:
            raise FileError(
                f"MetricLog.log: {self._path!r} was closed, {what} is not written; log before "
                "close(), or inside of the with block"
            )
        data = json.dumps(line, allow_nan=False, separators=(", ", ": ")).encode() + b"\n"
        if self._torn:  # a line was cut off, here or in a process that was killed
            data = b"\n" + data
        try:
            written = file.write(data)
            while written < len(data):  # the disk is almost full
                written += file.write(data[written:])
        except OSError as error:
            self._torn = True
            found = file_error("MetricLog.log", self._path, error, creates=True)
            found.args = (f"{found}; {what} is not written, and earlier lines are intact",)
            raise found from error
        except ValueError:  # another thread closed the file just now
            self._file = None
            return self._append(line, what)
        except BaseException:
            self._torn = True
            raise
        self._torn = False

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __enter__(self) -> MetricLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.close()

    def __repr__(self) -> str:
        state = "closed" if self._file is None else "open"
        return f"<MetricLog: {self._path!r}, run {self._run}, {state}>"

    def __reduce__(self) -> Any:
        raise DTypeError(
            "MetricLog: a log is an open file of this process, and is not copied or pickled; open "
            "one by od.MetricLog(path) where it is needed, lines of several processes stay apart"
        )

    def __copy__(self) -> Any:
        return self.__reduce__()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__reduce__()

    @staticmethod
    def read(path: str | os.PathLike[str]) -> MetricRuns:
        """Read a metric log, which may still be written.

        Args:
            path: The file.

        Returns:
            Its runs in the order in which they began; ``.faults`` lists the lines that are left
            out, with their numbers.

        Raises:
            FormatError: the file is not a metric log, or one of a later version.
            MissingFileError, FileError: it cannot be read.
        """
        who = "MetricLog.read"
        store().refuse_effect(f"{who}: called", "call it outside of the compiled function")
        text = path_text(who, path)
        try:
            with open(text, "rb") as file:
                return _read_runs(who, text, file)
        except OSError as error:
            if isinstance(error, OdysseyError):
                raise
            raise file_error(who, text, error) from error


@dataclass(frozen=True, eq=False)
class MetricRun:
    """One run of a metric log.

    Args:
        id: Which each of its lines has.
        started: The time of its start, in UTC.
        config: Its settings; None if there are none.
        machine: ``cpu``, ``cores``, ``system`` and ``architecture``.
        versions: Those of odyssey, NumPy and Python.
        rank: The number of the process, where a launcher started several; None otherwise.
        steps: The step of each line.
        seconds: The time of each line since the start of the run.
        columns: For each metric an array with a number for each line: NaN where it was not logged.
    """

    id: str
    started: str
    config: Any
    machine: Mapping[str, Any]
    versions: Mapping[str, str]
    rank: int | None
    steps: npt.NDArray[np.int64]
    seconds: npt.NDArray[np.float64]
    columns: Mapping[str, npt.NDArray[np.float64]]
    _lines: Mapping[str, npt.NDArray[np.intp]] = field(repr=False)

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self.steps)

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        """Return the column of a metric."""
        if name not in self.columns:
            raise SettingError(
                f"MetricRun: no metric {format_value(name)}; there are "
                f"{', '.join(map(format_value, self.columns)) or 'none'}"
            )
        return self.columns[name]

    def logged(self, name: str) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the steps at which a metric was logged, and its values there."""
        values = self[name]
        lines = self._lines[name]
        return self.steps[lines], values[lines]

    def __repr__(self) -> str:
        return (
            f"<MetricRun {self.id}: {len(self)} lines, metrics "
            f"{', '.join(self.columns) or 'none'}, started {self.started}>"
        )


class MetricRuns(Sequence[MetricRun]):
    """The runs of a metric log.

    Attributes:
        faults: A sentence for each line that is left out.
    """

    def __init__(self, runs: Sequence[MetricRun], faults: Sequence[str]) -> None:
        self._runs = tuple(runs)
        self.faults = tuple(faults)

    @overload
    def __getitem__(self, index: int) -> MetricRun: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[MetricRun]: ...
    def __getitem__(self, index: int | slice) -> MetricRun | Sequence[MetricRun]:
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return "\n".join([*map(repr, self._runs), *self.faults]) or "<no runs>"


# ------------------------------------------------------------------ writing


def _first_line(run: str, config: Any) -> dict[str, Any]:
    return {
        "metric_log": _FORMAT,
        "run": run,
        "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "rank": _launched_rank(),
        "machine": {
            "cpu": _cpu_name(),
            "cores": os.cpu_count(),
            "system": platform.system(),
            "architecture": platform.machine(),
        },
        "versions": {
            "odyssey": sys.modules["odyssey"].__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "config": config,
    }


def _launched_rank() -> int | None:
    """Return the number that a launcher gave to this process; None without a launcher."""
    rank_process = os.environ.get("ODYSSEY_RANK_PROCESS", "").split(":")[1:2]
    if rank_process not in ([], [str(os.getpid())]):
        return None  # a rank started this process, which has its environment
    ranks = [os.environ[name] for name in _RANKS if os.environ.get(name, "").isdigit()]
    return int(ranks[0]) if ranks else None


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = (line.partition(":")[2].strip() for line in file if "model name" in line)
            return next(names, "")
    except OSError:
        return platform.processor()


def _check_ending(who: str, path: str) -> str:
    """Return whether a file is ``"empty"``, ends with a ``"line"`` or is ``"torn"``.

    Raises:
        FormatError: the file is not a metric log.
    """
    if not os.path.isfile(path):  # a pipe
        return "empty"
    with open(path, "rb") as file:
        first = file.readline(1 << 20)
        if not first:
            return "empty"
        _check_first_line(who, path, first)
        file.seek(-1, os.SEEK_END)
        return "line" if file.read(1) == b"\n" else "torn"


def _check_first_line(who: str, path: str, line: bytes) -> None:
    start = b'{"metric_log": '
    cut_off = line.rstrip(b"\n")  # of a process that was killed as it began
    if not (line.startswith(start) or (len(cut_off) > 8 and start.startswith(cut_off))):
        advice = "pass the path of one that od.MetricLog wrote"
        if who == "MetricLog":
            advice = "it is unchanged; choose another path"
        raise FormatError(
            f"{who}: {path!r} is not a metric log, it begins with {line[:40]!r}; {advice}"
        )


def _flat(
    who: str, prefix: str, holders: dict[int, Any], values: Mapping[Any, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield metrics by name; names in a dict come after its own."""
    if id(values) in holders:
        raise SettingError(f"{who}: the dict {prefix[:-1]!r} holds itself; pass numbers in it")
    inner = {**holders, id(values): values}
    for key, value in values.items():
        if not isinstance(key, str) or not key:
            raise DTypeError(f"{who}: a metric is called {format_value(key)}; names are text")
        if isinstance(value, Mapping):
            yield from _flat(who, f"{prefix}{key}/", inner, value)
        else:
            yield prefix + key, value


def _add_metric(who: str, line: dict[str, Any], name: str, value: Any) -> None:
    if name in _OWN:
        raise SettingError(
            f"{who}: {name!r} is an entry of every line, and no metric; choose another name"
        )
    if name in line:
        raise SettingError(f"{who}: the metric {name!r} came twice; pass it once")
    line[name] = _number_json(who, f"metric {name!r}", value)


def _number_json(who: str, what: str, value: Any) -> bool | int | float | str:
    """Return a number as JSON has it.

    Raises:
        DTypeError, ShapeError: it is not one number.
    """
    if type(value) is not float and type(value) is not int and not isinstance(value, bool):
        value = _python_number(who, what, value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return int(value)
        try:
            value = float(value)
        except OverflowError:
            value = math.inf if value > 0 else -math.inf
    if math.isfinite(value):
        return float(value)
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _python_number(who: str, what: str, value: Any) -> Any:
    """Return the Python number of what has one element: Variables, arrays, scalars, tensors."""
    if isinstance(value, (float, int)):
        return value  # of a subclass
    foreign = isinstance(value, type) or "numpy.ma" in type(value).__module__
    if not foreign and callable(getattr(value, "item", None)):
        try:
            shape = tuple(getattr(value, "shape", ()))
            single = math.prod(shape) == 1
            found = value.item() if single else None
        except OdysseyError:
            raise  # a value of vmap, which each example has its own of
        except STUMBLES as error:
            raise DTypeError(f"{who}: {what} has no value: {error}") from error
        if not single:
            raise ShapeError(
                f"{who}: {what} has shape {shape}; pass one number, such as its mean()"
            )
        value = found
        if isinstance(value, np.floating):  # a long double
            value = float(value)
    if not isinstance(value, (float, int)):
        raise DTypeError(
            f"{who}: {what} is {describe_type(value)}; pass a number, or what has one element"
        )
    return value


def _config_json(who: str, config: Any) -> Any:
    if config is not None and not isinstance(config, Mapping) and not _is_record(config):
        raise DTypeError(
            f"{who}: config={format_value(config)} is not a dict; pass one, such as vars(arguments)"
        )
    try:
        return _setting_json(who, "config", config)
    except RecursionError:
        raise SettingError(f"{who}: config holds itself; pass a dict of text and numbers") from None


def _is_record(value: Any) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _setting_json(who: str, where: str, value: Any) -> Any:
    """Return a setting as JSON has it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise DTypeError(f"{who}: {where} has the key {format_value(key)}; keys are text")
        return {str(k): _setting_json(who, f"{where}[{k!r}]", v) for k, v in value.items()}
    if _is_record(value):
        return {
            f.name: _setting_json(who, f"{where}.{f.name}", getattr(value, f.name))
            for f in fields(value)
        }
    if isinstance(value, (list, tuple)):
        return [_setting_json(who, f"{where}[{k}]", v) for k, v in enumerate(value)]
    return _number_json(who, where, value)


# ------------------------------------------------------------------ reading


def _read_runs(who: str, path: str, file: Any) -> MetricRuns:
    headers: dict[str, dict[str, Any]] = {}
    lines: dict[str, list[dict[str, Any]]] = {}
    faults: list[str] = []
    for number, line in enumerate(file, 1):
        if number == 1:
            _check_first_line(who, path, line)
        fault = "it is cut off" if not line.endswith(b"\n") else ""
        record: Any = None
        if not line.strip():
            continue
        if not fault:
            record, fault = _parsed_line(line)
        if fault:
            faults.append(f"{path}: line {number} is left out: {fault}")
        elif "metric_log" in record:
            if record["metric_log"] != _FORMAT:
                raise FormatError(
                    f"{who}: line {number} of {path!r} has version {record['metric_log']!r} of the "
                    f"format, and this odyssey reads {_FORMAT}; read it with the version that "
                    "wrote it"
                )
            headers[record["run"]] = record
            lines.setdefault(record["run"], [])
        else:
            if record["run"] not in lines:
                faults.append(f"{path}: line {number} is of a run whose first line is missing")
            lines.setdefault(record["run"], []).append(record)
    return MetricRuns([_run_of(id, headers.get(id, {}), of) for id, of in lines.items()], faults)


def _parsed_line(line: bytes) -> tuple[Any, str]:
    """Return the record of a line, or what is wrong with it."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None, "it is not JSON, as of a process that was killed"
    if not isinstance(record, dict) or not isinstance(record.get("run"), str):
        return None, "it is not a line of a metric log"
    if "metric_log" in record:
        return record, ""
    step, seconds = record.get("step"), record.get("seconds")
    if type(step) is not int or not -(2**63) <= step < 2**63:
        return None, "it has no step"
    if type(seconds) not in (int, float):
        return None, "it has no time"
    for name, value in record.items():
        if name in _OWN or isinstance(value, (int, float)):
            continue
        if not isinstance(value, str) or value not in _NOT_FINITE:
            return None, f"{name!r} is not a number"
    return record, ""


def _run_of(id: str, header: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> MetricRun:
    positions: dict[str, list[int]] = {}
    for k, line in enumerate(lines):
        for name in line:
            if name not in _OWN:
                positions.setdefault(name, []).append(k)
    columns = {}
    for name, where in positions.items():
        column = np.full(len(lines), np.nan)
        column[where] = [_float_of(lines[k][name]) for k in where]
        columns[name] = column
    return MetricRun(
        id,
        str(header.get("started", "")),
        header.get("config"),
        header.get("machine") or {},
        header.get("versions") or {},
        header.get("rank"),
        np.array([line["step"] for line in lines], np.int64),
        np.array([line["seconds"] for line in lines], np.float64),
        columns,
        {name: np.array(where, np.intp) for name, where in positions.items()},
    )


def _float_of(value: Any) -> float:
    if isinstance(value, str):
        return _NOT_FINITE[value]
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def __dir__() -> list[str]:
    return sorted(__all__)

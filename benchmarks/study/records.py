"""Records of a study, and what is estimated from them."""

import gzip
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.statistics import bootstrap_median, holm, neighbour_ratios, sign_test
from study.contract import SYSTEMS, Estimate, Hypothesis, Verdict
from study.schema import record_faults

VERSION = 1
"""Version of the schema; records of all versions up to it can be read."""

LEVEL = 0.05
NOISY_CLOCKS, NOISY_INTERVAL = 0.2, 0.15

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class MissingRecords(LookupError):
    """Nothing was measured of what is asked for; hypotheses that need it are undecided."""


class RecordsError(ValueError):
    """A file of records cannot be used: not records, another schema, run or machine."""


def number_to_json(value: Any) -> float | int | str:
    """Return a number as JSON has it; one that is not finite by its name."""
    value = value.item() if hasattr(value, "item") else value
    return value if math.isfinite(value) else str(float(value))


def _number(value: Any) -> float:
    return _NOT_FINITE[value] if isinstance(value, str) else value


class Records:
    """Records of one experiment, or of a whole run.

    Args:
        lines: Records of samples, in the order in which they were written.
        headers: The records of the run, those of the machine and the versions first.
    """

    def __init__(self, lines: Iterable[dict[str, Any]], headers: Sequence[dict[str, Any]]) -> None:
        self.lines = list(lines)
        self.headers = list(headers)
        self._cache: dict[Any, Any] = {}
        failed = {_point(line) for line in self.lines if line["status"] != "ok"}
        self._measured = [line for line in self.lines if _point(line) not in failed]

    # ------------------------------------------------------------------ the run

    @property
    def header(self) -> dict[str, Any]:
        """``run seed quick machine versions started experiments`` of the run."""
        return self.headers[0]

    def experiments(self) -> list[str]:
        """Names of the experiments that have records, in the order of their first."""
        return list(dict.fromkeys(line["experiment"] for line in self.lines))

    def of(self, experiment: str) -> "Records":
        """Return the records of one experiment."""
        mine = [line for line in self.lines if line["experiment"] == experiment]
        return Records(mine, self.headers)

    def __len__(self) -> int:
        return len(self.lines)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.lines)

    # ------------------------------------------------------------------ selection

    def where(self, system: str | None = None, **config: Any) -> "Records":
        """Return the records of a system whose config has these values."""
        key = ("where", system, json.dumps(config, sort_keys=True))
        if key not in self._cache:
            self._cache[key] = Records(
                [
                    line
                    for line in self.lines
                    if (system is None or line["system"] == system)
                    and all(line["config"].get(name) == value for name, value in config.items())
                ],
                self.headers,
            )
        found: Records = self._cache[key]
        return found

    def measured(self) -> list[dict[str, Any]]:
        """Records of samples; none of a system at a config where it has failed."""
        return self._measured

    def systems(self, **config: Any) -> list[str]:
        """Systems that were measured there, in the order in which they are shown."""
        found = {line["system"] for line in self.where(**config).measured()}
        return sorted(found, key=_system_order)

    def has(self, system: str, **config: Any) -> bool:
        """Return whether a system was measured there."""
        return bool(self.where(system, **config).measured())

    def axis(self, key: str, **config: Any) -> list[Any]:
        """Return the values of one entry of the config that were measured, sorted.

        Args:
            key: The entry.
            config: Other entries, which restrict it; ``system`` may be one.
        """
        lines = self.where(**config).measured()
        values = {json.dumps(line["config"][key]): line["config"][key] for line in lines}
        return sorted(values.values(), key=lambda v: (isinstance(v, str), v))

    def failures(self) -> list[dict[str, Any]]:
        """Records of what was not measured: wrong, error, timeout, out-of-memory, absent."""
        return [line for line in self.lines if line["status"] != "ok"]

    def configs(self, system: str | None = None, **config: Any) -> list[dict[str, Any]]:
        """Configs that were measured there, in the order in which they were."""
        lines = self.where(system, **config).measured()
        return list({json.dumps(line["config"]): line["config"] for line in lines}.values())

    # ------------------------------------------------------------------ estimates

    def values(self, system: str, metric: str, **config: Any) -> dict[int, float]:
        """Return the raw samples of a metric by round, those of the last attempt.

        Raises:
            MissingRecords: There is none.
            ValueError: The records are of several configs.
        """
        return {
            line["round"]: _number(line["metrics"][metric])
            for line in self._attempt(system, metric, config)
        }

    def estimate(self, system: str, metric: str, **config: Any) -> Estimate:
        """Return the median of a metric over rounds, with its interval.

        Args:
            system: A name of `study.contract.SYSTEMS`, or another of the experiment's.
            metric: ``cpu_seconds``, ``seconds``, or one of the case's own.
            config: Entries of the config, enough to leave one.

        Raises:
            MissingRecords: There is no sample.
            ValueError: The records are of several configs.
        """
        key = ("estimate", system, metric, json.dumps(config, sort_keys=True))
        if key not in self._cache:
            values = list(self.values(system, metric, **config).values())
            clocks = self._clock_difference(system, metric, config)
            self._cache[key] = estimate_of(values, clocks)
        found: Estimate = self._cache[key]
        return found

    def ratio(self, system: str, base: str, metric: str, **config: Any) -> Estimate:
        """Return the median ratio of two systems, each taken between neighbours in one round.

        Args:
            system: The numerator.
            base: The denominator.
            metric: As in `estimate`.
            config: As in `estimate`.
        """
        return self.between(
            (system, config), (base, config), metric, metric, f"{system} and {base}"
        )

    def between(
        self,
        numerator: tuple[str, Mapping[str, Any]],
        denominator: tuple[str, Mapping[str, Any]],
        metric: str,
        base_metric: str | None = None,
        who: str = "",
    ) -> Estimate:
        """Return the median ratio of two systems at two configs, of two metrics, round by round.

        Args:
            numerator: The system and its config.
            denominator: The same of the base. At another config the two are not neighbours in
                time: what the machine did between them is in the interval.
            metric: Of the numerator.
            base_metric: Of the denominator; by default the same.
            who: Named in errors.
        """
        ratios, clocks = self._ratios(numerator, denominator, metric, base_metric or metric)
        if not ratios:
            raise MissingRecords(f"{who or numerator[0]}: no round has {metric} of both")
        return estimate_of(ratios, clocks)

    def p_value(
        self, system: str, base: str, metric: str, bound: float = 1.0, **config: Any
    ) -> float:
        """Return the probability of such ratios if their median were `bound`: a test of signs.

        Fifteen rounds on one side have 6e-5; five have 0.06, which decides nothing.
        """
        ratios, _ = self._ratios((system, config), (base, config), metric, metric)
        if not ratios:
            raise MissingRecords(f"{system} and {base}: no round has {metric} of both")
        return sign_test(ratios, bound)

    def counts(self, system: str, **config: Any) -> dict[str, float]:
        """Return what was counted there.

        Raises:
            MissingRecords: There is no sample.
        """
        return dict(self._attempt(system, None, config)[-1]["counts"])

    def count(self, system: str, name: str, **config: Any) -> float:
        """Return one count.

        Raises:
            MissingRecords: It was not counted there.
        """
        counts = self.counts(system, **config)
        if name not in counts:
            raise MissingRecords(f"{system}: {name} was not counted at {config}")
        return counts[name]

    def _ratios(
        self,
        numerator: tuple[str, Mapping[str, Any]],
        denominator: tuple[str, Mapping[str, Any]],
        metric: str,
        base_metric: str,
    ) -> tuple[Sequence[float], float]:
        mine = self._attempt(numerator[0], metric, numerator[1])
        base = self._attempt(denominator[0], base_metric, denominator[1])

        def by_round(
            lines: list[dict[str, Any]], name: str, entries: tuple[str, ...]
        ) -> dict[Any, float]:
            return {
                tuple(line[entry] for entry in entries): _number(line["metrics"][name])
                for line in lines
            }

        clocks = max(
            self._clock_difference(numerator[0], metric, numerator[1]),
            self._clock_difference(denominator[0], base_metric, denominator[1]),
        )
        # A round that was interrupted has no neighbours in time; it counts where there is no other.
        for entries in (("session", "round"), ("round",)):
            ratios = neighbour_ratios(
                by_round(mine, metric, entries), by_round(base, base_metric, entries)
            )
            if ratios:
                break
        return ratios, clocks

    def _attempt(
        self, system: str, metric: str | None, config: Mapping[str, Any]
    ) -> list[dict[str, Any]]:
        lines = [
            line
            for line in self.where(system, **config).measured()
            if metric is None or metric in line["metrics"]
        ]
        what = f"{metric or 'counts'} of {system} at {dict(config)}"
        if not lines:
            raise MissingRecords(f"{what}: nothing was measured")
        configs = {json.dumps(line["config"], sort_keys=True) for line in lines}
        if len(configs) > 1:
            raise ValueError(
                f"{what}: {len(configs)} configs have records, {' '.join(sorted(configs)[:3])}; "
                "name more entries, until one is left"
            )
        last = max(line["attempt"] for line in lines)
        return [line for line in lines if line["attempt"] == last]

    def _clock_difference(self, system: str, metric: str, config: Mapping[str, Any]) -> float:
        """Median difference of wall and CPU time, relative to the latter; 0 for other metrics."""
        if metric not in ("seconds", "cpu_seconds"):
            return 0.0
        return clock_difference(line["metrics"] for line in self._attempt(system, metric, config))


def clock_difference(samples: Iterable[Mapping[str, Any]]) -> float:
    """Median of the relative differences of ``seconds`` and ``cpu_seconds``."""
    differences = sorted(
        abs(_number(metrics["seconds"]) / _number(metrics["cpu_seconds"]) - 1)
        for metrics in samples
        if "seconds" in metrics and metrics.get("cpu_seconds")
    )
    return differences[len(differences) // 2] if differences else 0.0


def estimate_of(values: Sequence[float], clocks: float = 0.0) -> Estimate:
    """Return the estimate of samples.

    Args:
        values: One for each round.
        clocks: Relative difference of wall and CPU time.
    """
    median, low, high = bootstrap_median(values)
    wide = high - low > NOISY_INTERVAL * abs(median)
    return Estimate(median, low, high, len(values), bool(wide or clocks > NOISY_CLOCKS))


def judged(hypotheses: Iterable[Hypothesis], records: Records) -> dict[str, Verdict]:
    """Judge the hypotheses of one experiment.

    Args:
        hypotheses: Of the experiment.
        records: Of the experiment.

    Returns:
        Verdicts by the names of the hypotheses, with p-values that Holm's method has corrected; one
        that is then above 0.05 is undecided, with the note "no difference seen".
    """
    verdicts: dict[str, Verdict] = {}
    for hypothesis in hypotheses:
        try:
            verdicts[hypothesis.name] = hypothesis.judge(records)
        except MissingRecords as missing:
            verdicts[hypothesis.name] = Verdict("undecided", note=str(missing))
    corrected = holm({name: v.p for name, v in verdicts.items() if v.p is not None})
    for name, p in corrected.items():
        verdict = verdicts[name]
        if p > LEVEL and verdict.outcome != "undecided":
            verdicts[name] = Verdict("undecided", verdict.numbers, p, "no difference seen")
        else:
            verdicts[name] = Verdict(verdict.outcome, verdict.numbers, p, verdict.note)
    return verdicts


def _point(line: Mapping[str, Any]) -> tuple[str, str, str]:
    return line["experiment"], line["system"], json.dumps(line["config"], sort_keys=True)


def _system_order(system: str) -> tuple[int, str]:
    return (SYSTEMS.index(system) if system in SYSTEMS else len(SYSTEMS), system)


# ---------------------------------------------------------------------- files


def read_records(path: str | Path, notice: Callable[[str], None] = print) -> Records:
    """Read a file of records.

    Args:
        path: The file, JSON lines; one whose name ends in ``.gz`` is decompressed.
        notice: Called with a sentence for each line that is no record, and for a torn last line.

    Returns:
        The records of the file's run.

    Raises:
        RecordsError: The file has no record of a run first, or a schema that is newer.
    """
    headers: list[dict[str, Any]] = []
    lines: list[dict[str, Any]] = []
    for number, record, fault in parsed_lines(path):
        if record is None:
            notice(f"{path}: line {number} is left out: {fault}")
        elif faults := record_faults(record):
            notice(f"{path}: line {number} is left out: {'; '.join(faults)}")
        elif "experiment" in record:
            lines.append(record)
        else:
            headers.append(record)
    if not headers:
        raise RecordsError(f"{path}: no record of a run came; a file of a study begins with one")
    return Records(lines, headers)


def _whole_lines(file: Any) -> Iterator[bytes]:
    """Yield the lines of a file; a compressed one may end too early, which is a torn line."""
    try:
        yield from file
    except EOFError:
        yield b""


def parsed_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any] | None, str]]:
    """Yield the number of each line with its record, or None and what is wrong with it."""
    with gzip.open(path) if str(path).endswith(".gz") else open(path, "rb") as file:
        for number, line in enumerate(_whole_lines(file), 1):
            if not line.endswith(b"\n"):
                yield number, None, "torn: it has no end"
                continue
            try:
                record = json.loads(line)
            except ValueError as error:
                yield number, None, f"not JSON: {error}"
                continue
            if not isinstance(record, dict) or not isinstance(record.get("study"), int):
                yield number, None, 'no record: an object with the entry "study" is wanted'
            elif record["study"] > VERSION:
                raise RecordsError(
                    f"{path}: line {number} has schema {record['study']}, this study reads up to "
                    f"{VERSION}; read it with the version of odyssey that wrote it, or a later one"
                )
            else:
                yield number, record, ""

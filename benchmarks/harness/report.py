"""A table for people, JSON lines for programs."""

import json
import statistics
import time
from collections.abc import Iterator
from typing import Any, TextIO

from harness.interleave import Ratio, Result
from harness.machine import hardware
from harness.workloads import Metric

MEGABYTE = 2.0**20
SUBJECT = "odyssey"
_ROW = "  {:<9} {:<9} {:>10} {:>8} {:>10} {:<6} {:>7} {:>15} {:>7} {:>16} {:>8}"
_HEADER = [
    "metric",
    "peer",
    "wall",
    "iqr",
    "cpu",
    "unit",
    "ratio",
    "interval",
    "cpu r.",
    "bar",
    "MB",
]


def print_table(result: Result) -> None:
    """The figures of one workload, a row for each metric and peer."""
    print(f"\n{result.workload.name}: {result.workload.title}")
    if result.samples:
        print(_ROW.format(*_HEADER))
    for metric in result.workload.metrics:
        for peer in result.samples:
            if result.values(peer, metric.name, "wall"):
                print(_row(result, metric, peer))
    for peer, complaint in result.disagreements().items():
        print(f"  DISAGREES: {peer}: {complaint}")
    for failure in result.failures.values():
        print(f"  not measured: {failure}")


def _row(result: Result, metric: Metric, peer: str) -> str:
    walls = [value / metric.unit_size for value in result.values(peer, metric.name, "wall")]
    quartiles = statistics.quantiles(walls, n=4, method="inclusive") if len(walls) > 1 else None
    cpu_values = result.values(peer, metric.name, "cpu")
    cpu = statistics.median(cpu_values) / metric.unit_size if cpu_values else None
    ratio = result.ratio(peer, metric.name, "wall")
    cpu_ratio = result.ratio(peer, metric.name, "cpu")
    peak = peak_bytes(result, peer)
    return _ROW.format(
        metric.name,
        peer,
        _figure(statistics.median(walls)),
        "-" if quartiles is None else _figure(quartiles[2] - quartiles[0]),
        "-" if cpu is None else _figure(cpu),
        metric.unit,
        "-" if ratio is None else f"{ratio.median:.3f}",
        "-" if ratio is None else f"{ratio.low:.3f}..{ratio.high:.3f}",
        "-" if cpu_ratio is None else f"{cpu_ratio.median:.3f}",
        _verdict(metric, peer, ratio),
        "-" if peak is None else f"{peak / MEGABYTE:.1f}",
    ).rstrip()


def _figure(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def _verdict(metric: Metric, peer: str, ratio: Ratio | None) -> str:
    if peer != SUBJECT or metric.bar is None or ratio is None:
        return ""
    return f"<= {metric.bar:.2f} {'met' if ratio.median <= metric.bar else 'MISSED'}"


def peak_bytes(result: Result, peer: str) -> float | None:
    """The peak of the peer's process above its import, the median over fresh processes."""
    peaks = result.values(peer, "memory", "wall")
    return statistics.median(peaks) if peaks else None


def write_json_lines(result: Result, stream: TextIO, config: dict[str, Any]) -> None:
    """One line for each metric and peer, and one for each peer that failed."""
    shared = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "workload": result.workload.name,
        "depth": result.workload.depth,
        "config": config,
        "hardware": hardware(),
    }
    stream.writelines(json.dumps({**shared, **record}) + "\n" for record in _records(result))
    stream.flush()


def _records(result: Result) -> Iterator[dict[str, Any]]:
    disagreements = result.disagreements()
    for metric in result.workload.metrics:
        for peer in result.samples:
            wall = result.values(peer, metric.name, "wall")
            if not wall:
                continue
            yield {
                "metric": metric.name,
                "peer": peer,
                "measure": "bytes" if metric.unit == "MB" else "seconds",
                "wall": wall,
                "cpu": result.values(peer, metric.name, "cpu"),
                "ratio": _ratio_fields(result.ratio(peer, metric.name, "wall")),
                "cpu_ratio": _ratio_fields(result.ratio(peer, metric.name, "cpu")),
                "bar": metric.bar if peer == SUBJECT else None,
                "peak_bytes": peak_bytes(result, peer),
                "disagreement": disagreements.get(peer),
                "worker": result.hellos[peer],
            }
    for peer, failure in result.failures.items():
        yield {"peer": peer, "failure": failure}


def _ratio_fields(ratio: Ratio | None) -> dict[str, float] | None:
    if ratio is None:
        return None
    return {"median": ratio.median, "low": ratio.low, "high": ratio.high}

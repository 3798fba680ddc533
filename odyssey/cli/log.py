"""Command ``python -m odyssey log``: draw metric logs, or write them for TensorBoard."""

from __future__ import annotations

import argparse
import logging
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from odyssey.cli.arguments import import_extra, path_in_folder
from odyssey.errors import OdysseyError

__all__ = ["add_command"]

_COLOURS = ("#0b5fa5", "#c8500a", "#8a2be2", "#1e1e1e", "#757575", "#e0a100")
_DASHES: tuple[Any, ...] = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_MOST_PANELS = 12


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``log`` to the commands."""
    parser = commands.add_parser(
        "log",
        help="draw metric logs, or write them for TensorBoard",
        description="Draw the files of od.MetricLog, or write them as event files of TensorBoard.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    drawn = actions.add_parser(
        "plot",
        help="draw the metrics of runs",
        description="Draw the metrics of runs over their steps: a panel for each metric, a line "
        "for each run. The format of the picture follows from its name.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    drawn.add_argument("runs", nargs="+", metavar="RUN", help="a file of od.MetricLog")
    drawn.add_argument(
        "--out", type=path_in_folder, default=Path("odyssey-metrics.svg"), help="the picture"
    )
    drawn.add_argument("--keys", type=_names, help="metrics, comma-separated; by default all")
    drawn.add_argument(
        "--smooth", type=_factor, default=0.0, metavar="FACTOR",
        help="factor of an exponential moving average, 0 for none",
    )  # fmt: skip
    drawn.set_defaults(run=_plot)
    events = actions.add_parser(
        "tensorboard",
        help="write event files for TensorBoard",
        description="Write each run as event files into a folder of DIR, named after the file and "
        "the id of the run. TensorBoard shows them: tensorboard --logdir DIR.",
    )
    events.add_argument("file", metavar="RUN", help="a file of od.MetricLog")
    events.add_argument("folder", type=Path, metavar="DIR", help="made if it is missing")
    events.set_defaults(run=_write_events)


def _names(text: str) -> list[str]:
    """Parse names with commas between them; argparse reports an empty list."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} has no names of metrics")
    return names


def _factor(text: str) -> float:
    """Parse a factor of at least 0 and below 1; argparse reports other text."""
    with suppress(ValueError):
        if 0 <= (number := float(text)) < 1:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a factor of at least 0 and below 1")


def _stop(message: str) -> SystemExit:
    return SystemExit(f"python -m odyssey log: {message}")


def _read_file(path: str) -> Any:
    """Return the runs of a file; lines that are left out are reported on the standard error."""
    from odyssey.metric_log import MetricLog

    try:
        runs = MetricLog.read(path)
    except OdysseyError as error:
        raise _stop(str(error).removeprefix("MetricLog.read: ")) from None
    for fault in runs.faults:
        print(fault, file=sys.stderr)
    if not len(runs):
        raise _stop(f"{path!r} has no runs yet")
    return runs


# ------------------------------------------------------------------ pictures


def _plot(arguments: argparse.Namespace) -> int:
    runs = list(_labelled_runs(arguments.runs))
    present = list(dict.fromkeys(name for _, run in runs for name in run.columns))
    keys = arguments.keys or present[:_MOST_PANELS]
    if missing := [name for name in keys if name not in present]:
        raise _stop(f"no metric {', '.join(missing)}; there are {', '.join(present) or 'none'}")
    if not keys:
        raise _stop("the runs have no metrics yet")
    if len(keys) < len(present) and not arguments.keys:
        left_out = ", ".join(present[_MOST_PANELS:])
        print(f"the first {_MOST_PANELS} metrics are drawn; --keys draws others: {left_out}")
    matplotlib = import_extra("matplotlib", "matplotlib")
    with matplotlib.rc_context({"text.parse_math": False, "svg.fonttype": "none"}):
        figure = _draw_panels(runs, keys, arguments.smooth)
        try:
            figure.savefig(arguments.out, dpi=130)
        except (OSError, ValueError) as error:  # an ending that is no format
            raise _stop(f"{str(arguments.out)!r} was not written: {error}") from None
    print(f"wrote {arguments.out}")
    return 0


def _labelled_runs(paths: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield the runs of files, each with a label that tells it from the others."""
    paths = list(dict.fromkeys(paths))
    stems = [Path(path).stem for path in paths]
    for path, stem in zip(paths, stems, strict=True):
        runs = _read_file(path)
        name = stem if stems.count(stem) == 1 else path
        for run in runs:
            label = name if len(runs) == 1 else f"{name} {run.id}"
            yield (label if run.rank is None else f"{label} rank {run.rank}"), run


def _draw_panels(runs: Sequence[tuple[str, Any]], keys: Sequence[str], smooth: float) -> Any:
    import numpy as np

    figure_class = import_extra("matplotlib.figure", "matplotlib").Figure
    ticker = import_extra("matplotlib.ticker", "matplotlib")
    columns = min(3, len(keys))
    rows = -(-len(keys) // columns)
    figure = figure_class(figsize=(4.2 * columns + 0.6, 2.9 * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in panels[len(keys) :]:
        axes.set_visible(False)
    labels: dict[str, Any] = {}
    for axes, key in zip(panels, keys, strict=False):
        lost = 0
        for number, (label, run) in enumerate(runs):
            if key not in run.columns:
                continue
            steps, values = run.logged(key)
            lost += int((~np.isfinite(values)).sum())
            drawn = np.where(np.isfinite(values), values, np.nan)  # a gap in the line
            colour = _COLOURS[number % len(_COLOURS)]
            dashes = _DASHES[number // len(_COLOURS) % len(_DASHES)]
            if smooth:
                axes.plot(steps, drawn, color=colour, lw=0.6, alpha=0.35)
                drawn = _smoothed(drawn, smooth)
            marker = "o" if len(steps) < 3 or np.isfinite(drawn).sum() < 3 else ""
            (labels[label],) = axes.plot(
                steps, drawn, color=colour, ls=dashes, lw=1.4, marker=marker, ms=3
            )
        axes.set_title(key, fontsize=9, loc="left")
        axes.set_xlabel("step" + (f" ({lost} values not finite)" if lost else ""), fontsize=8)
        axes.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="0.92")
    if len(labels) > 1:
        figure.legend(
            labels.values(), labels.keys(), loc="outside lower left", fontsize=8, frameon=False,
            ncols=min(4, len(labels)),
        )  # fmt: skip
    return figure


def _smoothed(values: Any, factor: float) -> Any:
    """Return the exponential moving average, without the bias of its start; gaps stay gaps."""
    import numpy as np

    total = weight = 0.0
    averages = np.full(len(values), np.nan)
    for k, value in enumerate(values):
        if np.isfinite(value):
            total = factor * total + (1 - factor) * value
            weight = factor * weight + (1 - factor)
            averages[k] = total / weight
    return averages


# ------------------------------------------------------------------ TensorBoard


def _write_events(arguments: argparse.Namespace) -> int:
    runs = _read_file(arguments.file)
    writer_class = import_extra("tensorboardX", "tensorboardX", "tensorboard").SummaryWriter
    stem = Path(arguments.file).stem
    targets = [arguments.folder / f"{stem}-{run.id}" for run in runs]
    for target in targets:
        if target.exists():
            raise _stop(f"{str(target)!r} exists; delete it, or choose another folder than DIR")
    try:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        for run, target in zip(runs, targets, strict=True):
            _write_run(writer_class, run, target)
    except OSError as error:
        raise _stop(f"the event files were not written: {error}") from None
    print(f"wrote {len(targets)} runs to {arguments.folder}")
    return 0


def _write_run(writer_class: Any, run: Any, target: Path) -> None:
    """Write a run beside its folder, and move it there: all of it, or nothing."""
    import json

    temporary = target.with_name(f".odyssey-{secrets.token_hex(8)}.tmp")
    try:
        temporary.mkdir()
        start = _epoch_seconds(run.started)
        writer = writer_class(str(temporary))
        try:
            if run.config is not None:
                text = json.dumps(run.config, indent=1)
                writer.add_text("config", f"```\n{text}\n```", walltime=start)
            # It warns on the standard error for each NaN, which metrics may well be.
            logging.getLogger("tensorboardX").setLevel(logging.ERROR)
            for name in run.columns:
                steps, values = run.logged(name)
                times = start + run.seconds[run._lines[name]]
                for step, value, moment in zip(steps, values, times, strict=True):
                    writer.add_scalar(name, float(value), int(step), walltime=float(moment))
        finally:
            writer.close()
        os.replace(temporary, target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _epoch_seconds(started: str) -> float:
    try:
        return datetime.fromisoformat(started).timestamp()
    except ValueError:  # the first line of the run is missing
        return 0.0

"""The report of a study, from its records alone: Markdown, one file of HTML, figures.

A report is a list of blocks, which are written as Markdown and as HTML. No sentence has a digit of
its own: numbers are fields that are filled from records, or from the constants that judge them.
"""

from __future__ import annotations

import base64
import html
import importlib
import json
import os
import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from study.contract import LIBRARIES, Hypothesis, Verdict
from study.drawing import Picture, draw_svg_and_png, estimate_text, number_text, system_label
from study.records import (
    LEVEL,
    NOISY_CLOCKS,
    NOISY_INTERVAL,
    MissingRecords,
    Records,
    estimate_of,
    judged,
    read_records,
)
from study.worker import experiment_names, load_experiment

__all__ = ["Report", "make_report", "write_report"]

MOST_ROWS = 60
"""Rows of a table of all values, for an experiment without figures."""

QUESTION = (
    "How do dynamic computation graphs influence memory, the efficiency of the backward pass, "
    "overhead and the stability of gradients, beside a static graph? odyssey runs the same table "
    "of ops, the same rules and the same kernels taped (a dynamic graph) and compiled (a static "
    "one), so that the two differ in nothing else. Peers say where the answer stands."
)
PAGE = Path(__file__).with_name("report_page.html")


# ------------------------------------------------------------------ blocks


@dataclass(frozen=True, slots=True)
class Heading:
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Items:
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    text: str
    summary: str | None = None  # of a table that is folded away
    unfolded: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    picture: Picture
    note: str


Block = Heading | Text | Items | Table | Figure


@dataclass(slots=True)
class Report:
    """A report before it is written.

    Args:
        title: Its heading.
        blocks: Headings, texts, lists, tables and figures in order.
        faults: What could not be reported, a sentence each: lines that do not parse, judges and
            pictures that failed.
    """

    title: str
    blocks: list[Block]
    faults: list[str] = field(default_factory=list)

    def figures(self) -> list[Figure]:
        """Return the figures in order."""
        return [block for block in self.blocks if isinstance(block, Figure)]

    def markdown(self, figures: str = "") -> str:
        """Return the report as Markdown, whose figures lie in a folder ``figures``, with its /."""
        parts = [f"# {self.title}", *(_markdown(block, figures) for block in self.blocks)]
        return "\n\n".join(parts) + "\n"

    def html(self, drawn: Mapping[str, bytes]) -> str:
        """Return the report as one file of HTML, with the SVG of each figure inside."""
        body = "\n".join(_html(block, drawn) for block in self.blocks)
        page = string.Template(PAGE.read_text(encoding="utf-8"))
        return page.substitute(title=_inline(self.title), body=body)


def _markdown(block: Block, figures: str) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Items(texts):
            return "\n".join(f"* {text}" for text in texts)
        case Table(text, summary, unfolded):
            if summary is None:
                return text
            opened = " open" if unfolded else ""
            return f"<details{opened}><summary>{summary}</summary>\n\n{text}\n\n</details>"
        case Figure(picture, _):
            alt = re.sub(r"[\[\]]", "", _one_line(picture.title))
            return f"![{_plain(alt)}]({figures}{picture.name}.svg)"


def _html(block: Block, drawn: Mapping[str, bytes]) -> str:
    match block:
        case Heading(level, text):
            return f'<h{level} id="{_anchor(text)}">{_inline(text)}</h{level}>'
        case Text(text):
            return f"<p>{_inline(text)}</p>"
        case Items(texts):
            return "<ul>" + "".join(f"<li>{_inline(text)}</li>" for text in texts) + "</ul>"
        case Table(text, summary, unfolded):
            table = _html_tables(text)
            if summary is None:
                return table
            opened = " open" if unfolded else ""
            return f"<details{opened}><summary>{_inline(summary)}</summary>{table}</details>"
        case Figure(picture, _):
            source = base64.b64encode(drawn[picture.name]).decode("ascii")
            return (
                f'<figure><img alt="{html.escape(_one_line(picture.title))}" '
                f'src="data:image/svg+xml;base64,{source}"></figure>'
            )


_INLINE = re.compile(r"\\(.)|(`+)(.+?)\2|\*\*(.+?)\*\*|\[((?:\\.|[^\]])*)\]\((#[^)]*)\)")


def _inline(text: str) -> str:
    """Return the HTML of a line of this module's Markdown: escapes, code and bold."""
    parts, end = [], 0
    for match in _INLINE.finditer(text):
        parts.append(html.escape(text[end : match.start()]))
        escaped, fence, code, bold, label, anchor = match.groups()
        if fence:
            parts.append(f"<code>{html.escape(code.strip())}</code>")
        elif anchor:
            parts.append(f'<a href="{html.escape(anchor)}">{_inline(label)}</a>')
        else:
            parts.append(html.escape(escaped) if escaped else f"<strong>{_inline(bold)}</strong>")
        end = match.end()
    return "".join([*parts, html.escape(text[end:])])


def _html_tables(text: str) -> str:
    """Return the HTML of Markdown tables, and of the lines between them."""
    parts: list[str] = []
    for chunk in text.split("\n\n"):
        if not chunk.startswith("|"):
            parts.append(f"<p>{_inline(chunk)}</p>")
            continue
        head, _, *rows = ([c.strip() for c in _cells(line)] for line in chunk.splitlines())
        top = "".join(f"<th>{_inline(cell)}</th>" for cell in head)
        lines = ("".join(f"<td>{_inline(cell)}</td>" for cell in row) for row in rows)
        below = "".join(f"<tr>{line}</tr>" for line in lines)
        parts.append(
            f'<div class="scroll"><table><thead><tr>{top}</tr></thead>'
            f"<tbody>{below}</tbody></table></div>"
        )
    return "\n".join(parts)


def _cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)[1:-1]


def _one_line(text: object) -> str:
    return " ".join(str(text).split())


def _plain(text: object) -> str:
    """Return foreign text as Markdown that shows it as it is."""
    return re.sub(r"([\\`*_\[\]<>|$#{}~&])", r"\\\1", _one_line(text))


def _code(text: object) -> str:
    """Return foreign text as a code span."""
    shown = _one_line(text).replace("|", "¦") or " "
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{fence}{space}{shown}{space}{fence}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _counted(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


# ------------------------------------------------------------------ what is reported


def make_report(records: Records, faults: Iterable[str] = (), source: str = "") -> Report:
    """Return the report of records.

    Args:
        records: All records of a run; parts of one will do.
        faults: Sentences on lines that were left out.
        source: The name of their file, for the command that repeats the report.
    """
    report = Report("What do dynamic graphs cost?", [], list(faults))
    sections, summary = [], []
    for name in _in_order(records.experiments()):
        section, verdicts = _experiment(name, records.of(name), records.header, report.faults)
        sections += section
        summary += [(name, hypothesis, verdict) for hypothesis, verdict in verdicts]
    report.blocks += [
        Text(QUESTION),
        *_conditions(records),
        *_summary(summary),
        *_systems(records),
        *sections,
        *_threats(records),
        *_provenance(records, source),
    ]
    if report.faults:
        left_out = Heading(2, "Left out"), Items([_plain(fault) for fault in report.faults])
        report.blocks += left_out
    return report


def _in_order(names: Sequence[str]) -> list[str]:
    known = experiment_names()
    return sorted(names, key=lambda n: (known.index(n) if n in known else len(known), n))


def _conditions(records: Records) -> list[Block]:
    """Return the machine and the versions, and a warning where a run is a quick one."""
    header = records.header
    machine: Mapping[str, Any] = header.get("machine", {})
    rows = []
    for key, value in machine.items():
        if value is None or value == "":
            continue
        counted = isinstance(value, (int, float)) and not isinstance(value, bool)
        shown = number_text(value, "B" if key == "memory" else "") if counted else value
        rows.append([_plain(key.replace("_", " ")), _plain(shown)])
    for key, value in header.get("versions", {}).items():
        rows.append([_plain(key), _plain(value)])
    rows.append(["started", _plain(header.get("started", "unknown"))])
    blocks: list[Block] = [
        Text(
            f"Times are CPU seconds of one process on {_threads(machine)}, in interleaved rounds: "
            f"systems take turns, and a ratio is taken between neighbours in one round. Intervals "
            f"are {_percent(1 - LEVEL)} bootstrap intervals of the median over rounds; two systems "
            f"differ if the interval of their ratio leaves out equality. A star, or a "
            f"hollow marker, is a noisy estimate: CPU and wall time differ by more than "
            f"{_percent(NOISY_CLOCKS)}, or the interval is wider than {_percent(NOISY_INTERVAL)} "
            f"of the median."
        )
    ]
    if header.get("quick"):
        warning = (
            "**A quick run**: few sizes and few rounds. It shows that the study works; its numbers "
            "are not what things cost, and its outcomes answer nothing."
        )
        blocks.insert(0, Text(warning))
    return [*blocks, Heading(2, "Machine"), Table(_table(["", ""], rows))]


def _threads(machine: Mapping[str, Any]) -> str:
    threads = machine.get("threads")
    return "one thread" if threads == 1 else f"{threads} threads" if threads else "its threads"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _summary(summary: Sequence[tuple[str, Hypothesis, Verdict]]) -> list[Block]:
    if not summary:
        return []
    outcomes = Counter(verdict.outcome for _, _, verdict in summary)
    counts = ", ".join(
        f"{outcomes[o]} {o}" for o in ("held", "refuted", "undecided") if outcomes[o]
    )
    rows = [
        [
            f"[{_plain(name)}](#{_anchor(name)})",
            _filled(hypothesis.claim, verdict.numbers),
            verdict.outcome,
        ]
        for name, hypothesis, verdict in summary
    ]
    return [
        Heading(2, "Answers"),
        Text(
            f"Of {_counted(len(summary), 'hypothesis', 'hypotheses')}, "
            f"written down before measuring: {counts}."
        ),
        Table(_table(["experiment", "hypothesis", "outcome"], rows)),
    ]


def _anchor(name: str) -> str:
    return re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-")


def _systems(records: Records) -> list[Block]:
    """Return what was measured of each system, and why the rest was not."""
    measured: Counter[tuple[str, Any]] = Counter()
    failed: dict[str, Counter[str]] = {}
    for line in records:
        key = line["experiment"], json.dumps(line["config"], sort_keys=True)
        if line["status"] == "ok":
            measured[line["system"], key] += 1
        else:
            failed.setdefault(line["system"], Counter())[line["status"]] += 1
    names = list(dict.fromkeys([*LIBRARIES, *(line["system"] for line in records)]))
    present = {line["system"] for line in records}
    versions = records.header.get("versions", {})
    rows = []
    for name in (name for name in names if name in present):
        of = [samples for (system, _), samples in measured.items() if system == name]
        library = LIBRARIES.get(name, "odyssey")
        rest = ", ".join(f"{count} {status}" for status, count in failed.get(name, {}).items())
        rows.append(
            [_plain(system_label(name)), _plain(f"{library} {versions.get(library, '–')}"),
             str(len(of)), str(sum(of)), rest]
        )  # fmt: skip
    head = ["system", "version", "configs", "samples", "not measured"]
    return [Heading(2, "Systems"), Table(_table(head, rows))] if rows else []


def _experiment(
    name: str, records: Records, header: Mapping[str, Any], faults: list[str]
) -> tuple[list[Block], list[tuple[Hypothesis, Verdict]]]:
    """Return the section of an experiment, and its hypotheses with their verdicts."""
    blocks: list[Block] = [Heading(2, _plain(name))]
    experiment = _load(name, faults)
    verdicts: list[tuple[Hypothesis, Verdict]] = []
    pictures: list[Picture] = []
    if experiment is None:
        blocks.append(Text("This version of the study has no experiment of this name: its values."))
    else:
        blocks.append(Text(_plain(experiment.QUESTION)))
        verdicts = _verdicts(name, experiment.HYPOTHESES, records, faults)
        blocks.append(Items([_verdict_text(*one) for one in verdicts]))
        pictures = _pictures(name, experiment, records, faults)
    note = _note(header, records)
    for picture in pictures:
        blocks.append(Figure(picture, note))
        table = _table_of(name, picture, faults)
        if table:
            # The table of an ablation is a result of its own.
            blocks.append(Table(table, "Values", unfolded="ablation" in name))
    if not pictures:
        blocks += _values(records)
    blocks += _failures(records)
    return [b for b in blocks if not (isinstance(b, Items) and not b.texts)], verdicts


def _load(name: str, faults: list[str]) -> Any:
    if name not in experiment_names():
        return None
    try:
        return load_experiment(name)
    except Exception as error:
        faults.append(f"{name}: the experiment cannot be read: {_described(error)}")
        return None


def _described(error: BaseException) -> str:
    return _one_line(f"{type(error).__name__}: {error}")


def _verdicts(
    name: str, hypotheses: Iterable[Hypothesis], records: Records, faults: list[str]
) -> list[tuple[Hypothesis, Verdict]]:
    """Judge hypotheses; one whose judge fails is undecided, and the fault is reported."""

    def guarded(hypothesis: Hypothesis) -> Hypothesis:
        def judge(of: Records) -> Verdict:
            try:
                return hypothesis.judge(of)
            except MissingRecords:
                raise
            except Exception as error:
                faults.append(f"{name}: hypothesis {hypothesis.name}: {_described(error)}")
                return Verdict("undecided", note="its judge failed, see below")

        return Hypothesis(hypothesis.name, hypothesis.claim, hypothesis.refuted_by, judge)

    hypotheses = list(hypotheses)
    verdicts = judged(map(guarded, hypotheses), records)
    return [(hypothesis, verdicts[hypothesis.name]) for hypothesis in hypotheses]


class _Fields(string.Formatter):
    """Fields ``{name}`` and ``{name:unit}`` of a sentence, filled with estimates."""

    def __init__(self, numbers: Mapping[str, Any]) -> None:
        self.numbers = numbers

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        return self.numbers.get(field_name), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        return "(not measured)" if value is None else estimate_text(value, format_spec)


def _filled(sentence: str, numbers: Mapping[str, Any]) -> str:
    """Return a sentence with its fields filled, as Markdown."""
    try:
        return _plain(_Fields(numbers).format(sentence))
    except ValueError:  # a brace of its own
        return _plain(sentence)


def _unit(name: str) -> str:
    """Return the unit of a number by the last word of its name."""
    last = re.split(r"[\W_]+", name)[-1]
    return {"seconds": "s", "bytes": "B", "share": "%"}.get(last, "")


def _verdict_text(hypothesis: Hypothesis, verdict: Verdict) -> str:
    text = f"**{verdict.outcome}**: {_filled(hypothesis.claim, verdict.numbers)}"
    if verdict.note:
        text += f" ({_plain(verdict.note)})"
    shown = [f"{_plain(k)} {estimate_text(v, _unit(k))}" for k, v in verdict.numbers.items()]
    if verdict.p is not None:
        shown.append(f"p {number_text(verdict.p)} after Holm's correction")
    text += f" Measured: {'; '.join(shown)}." if shown else ""
    return text + f" Refuted by: {_filled(hypothesis.refuted_by, verdict.numbers)}"


def _pictures(name: str, experiment: Any, records: Records, faults: list[str]) -> list[Picture]:
    try:
        pictures: list[Picture] = list(experiment.pictures(records))
    except MissingRecords:
        return []
    except Exception as error:
        faults.append(f"{name}: its figures: {_described(error)}")
        return []
    # Names are files in one folder.
    prefix = f"{name}-"
    return [
        picture if picture.name == name or picture.name.startswith(prefix)
        else _renamed(picture, prefix + picture.name)
        for picture in pictures
    ]  # fmt: skip


def _renamed(picture: Picture, name: str) -> Picture:
    import dataclasses

    return dataclasses.replace(picture, name=name)


def _table_of(name: str, picture: Picture, faults: list[str]) -> str:
    try:
        return picture.table()
    except Exception as error:
        faults.append(f"{name}: the table of {picture.name}: {_described(error)}")
        return ""


def _note(header: Mapping[str, Any], records: Records) -> str:
    """Return the small line below a figure."""
    machine = header.get("machine", {})
    rounds = 1 + max((line["round"] for line in records.measured()), default=0)
    python = header.get("versions", {}).get("python", "")
    return (
        f"{_one_line(machine.get('cpu', 'unknown processor'))}, {_threads(machine)}, "
        f"Python {python}. Median of {_counted(rounds, 'interleaved round')}, "
        f"{_percent(1 - LEVEL)} bootstrap intervals of the median; hollow: noisy."
    )


def _values(records: Records) -> list[Block]:
    """Return a table of all medians, for what has no figure."""
    groups: dict[tuple[str, str], dict[str, list[float]]] = {}
    for line in records.measured():
        key = line["system"], _one_line(json.dumps(line["config"], sort_keys=True))
        for metric, value in line["metrics"].items():
            groups.setdefault(key, {}).setdefault(metric, []).append(float(value))  # or "nan"
    metrics = list(dict.fromkeys(m for of in groups.values() for m in of))
    rows = [
        [_plain(system_label(system)), _code(config),
         *(estimate_text(estimate_of(of[m]), _unit(m)) if m in of else "–" for m in metrics)]
        for (system, config), of in list(groups.items())[:MOST_ROWS]
    ]  # fmt: skip
    if not rows:
        return []
    blocks: list[Block] = [Table(_table(["system", "config", *map(_plain, metrics)], rows))]
    if len(groups) > MOST_ROWS:
        blocks.append(Text(f"These are {MOST_ROWS} of {len(groups)} rows; the records have all."))
    return blocks


def without_folders(message: str) -> str:
    """Return a message with absolute paths cut to their last names: folders are no facts."""
    return re.sub(r"(?<![\w.:/])/(?:[^\s/:;,'\"]+/)+", "", message)


def _failures(records: Records) -> list[Block]:
    """Return a line for each reason why something was not measured, those that are wrong first."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for line in records.failures():
        message = without_folders(_one_line(line.get("message", "")))
        key = line["status"], line["system"], message
        groups.setdefault(key, []).append(json.dumps(line["config"], sort_keys=True))
    order = ("wrong", "error", "timeout", "out-of-memory", "absent")
    items = []
    for (status, system, message), configs in sorted(
        groups.items(), key=lambda item: (order.index(item[0][0]), item[0][1])
    ):
        where = f" at {_code(configs[0])}" if len(set(configs)) == 1 and status != "absent" else ""
        many = f" at {_counted(len(set(configs)), 'config')}" if len(set(configs)) > 1 else ""
        shown = f"**{status}**" if status == "wrong" else status
        items.append(f"{_plain(system_label(system))}: {shown}{where}{many}: {_plain(message)}")
    return [Text("Not measured:"), Items(items)] if items else []


def _threats(records: Records) -> list[Block]:
    header = records.header
    machine = header.get("machine", {})
    noisy, timed = _noisy_share(records)
    items = [
        f"One machine: {_plain(machine.get('cpu', 'unknown'))}. Ratios of compute-bound work "
        "depend on its caches and vectors, and on the BLAS of each library.",
        f"On {_threads(machine)}: libraries that divide small work among threads are not shown at "
        "their best, nor are those that do it badly shown so.",
        "Networks and arrays are small, which is where overhead is seen; large products hide it.",
        "Caches are warm and programs are compiled before the first sample, unless an experiment "
        "says otherwise: the first steps of a program cost more.",
        "Hypotheses, bounds and cases were chosen by the authors of odyssey.",
    ]
    if timed:
        items.append(f"Of {_counted(timed, 'timed estimate')}, {noisy} stayed noisy.")
    load = machine.get("load_at_start")
    if load is not None:
        items.append(f"The load of the machine was {number_text(load)} at the start.")
    sessions = len(records.headers)
    if sessions > 1:
        items.append(
            f"The run was interrupted and continued: {_counted(sessions, 'session')}. Ratios are "
            "of rounds of one session alone."
        )
    if header.get("set_aside"):
        items.append(f"Set aside, since they slow one library: {_code(header['set_aside'])}.")
    return [Heading(2, "Threats to validity"), Items(items)]


def _noisy_share(records: Records) -> tuple[int, int]:
    """Return how many estimates of CPU time are noisy, and how many there are."""
    cases = {
        (line["experiment"], line["system"], json.dumps(line["config"], sort_keys=True))
        for line in records.measured()
        if "cpu_seconds" in line["metrics"]
    }
    noisy = 0
    by_experiment = {name: records.of(name) for name in records.experiments()}
    for experiment, system, config in cases:
        estimate = _exact_estimate(by_experiment[experiment], system, json.loads(config))
        noisy += bool(estimate is not None and estimate.noisy)
    return noisy, len(cases)


def _exact_estimate(records: Records, system: str, config: Mapping[str, Any]) -> Any:
    lines = [line for line in records.where(system) if line["config"] == config]
    try:
        return Records(lines, records.headers).estimate(system, "cpu_seconds")
    except MissingRecords:
        return None


def _provenance(records: Records, source: str) -> list[Block]:
    header = records.header
    measured = ["python -m benchmarks study"]
    names = _in_order(records.experiments())
    if set(names) != set(experiment_names()):
        measured.append("--only " + ",".join(names))
    measured += ["--quick"] if header.get("quick") else []
    measured += [f"--seed {header['seed']}"] if header.get("seed") else []
    version = header.get("versions", {}).get("odyssey", "unknown")
    text = (
        f"Measured by {_code(' '.join(measured))} with odyssey {_code(version)}, run "
        f"{_code(header.get('run', 'unknown'))}."
    )
    if "dirty" in str(version):
        text += " Files differed from that commit."
    if source:
        text += (
            f" This report is made from the records alone, by "
            f"{_code(f'python -m benchmarks study report {source}')}."
        )
    return [Heading(2, "How this was made"), Text(text)]


# ------------------------------------------------------------------ files


def write_report(
    records_path: str | Path, out_dir: str | Path, notice: Callable[[str], None] = print
) -> Report:
    """Write ``report.md``, ``report.html`` and the figures of a file of records.

    Args:
        records_path: JSON lines, as the study writes them, or a ``.gz`` of such a file.
        out_dir: The folder, which is made if it is missing.
        notice: Called with a sentence for each line or figure that is left out, and for what was
            written.

    Raises:
        RecordsError: The file has no records of a run, or those of a later schema.
        ImportError: matplotlib is missing. Nothing is written.
    """
    report = read_report(records_path)
    for fault in report.faults:
        notice(fault)
    drawn, files = draw_figures(report)
    out = Path(out_dir)
    files["report.md"] = report.markdown().encode()
    files["report.html"] = report.html(drawn).encode()
    out.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        _replace(out / name, data)
    notice(f"wrote {out / 'report.md'}, report.html and {_counted(len(drawn), 'figure')}")
    return report


def read_report(records_path: str | Path, source: str = "") -> Report:
    """Return the report of a file of records, of which nothing is drawn."""
    faults: list[str] = []
    path = Path(records_path)
    records = read_records(path, faults.append)
    # The folder of the file is no fact of the study.
    faults = [fault.replace(str(path), path.name) for fault in faults]
    return make_report(records, faults, source or path.name)


def draw_figures(report: Report) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the SVG of each figure by its name, and its files by theirs.

    A figure that cannot be drawn becomes a fault of the report, and leaves it.
    """
    importlib.import_module("study.drawing").require_matplotlib()
    drawn: dict[str, bytes] = {}
    files: dict[str, bytes] = {}
    for block in report.figures():
        name = block.picture.name
        try:
            svg, png = draw_svg_and_png(block.picture, block.note)
        except Exception as error:
            report.faults.append(f"figure {name} was not drawn: {_described(error)}")
            report.blocks.remove(block)
            report.blocks.append(Text(_plain(report.faults[-1])))
            continue
        drawn[name] = svg
        files |= {f"{name}.svg": svg, f"{name}.png": png}
    return drawn, files


def _replace(path: Path, data: bytes) -> None:
    """Write a file so that there is the old one or the new one, also if the disk is full."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)

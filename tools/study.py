"""The study's page of the documentation, made from records of a run.

python -m tools.study                  # make the page again from the records in docs/study/
python -m tools.study RECORDS          # take the records of another run, then make the page
python -m tools.study --check          # whether the page differs from its records

The page is ``docs/study.md``. Its figures and the compressed records lie in ``docs/study/``.
Making it needs matplotlib; the check does not, as it compares the text and the names of figures.
"""

import gzip
import importlib
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "study.md"
FOLDER = ROOT / "docs" / "study"
RECORDS = FOLDER / "records.jsonl.gz"
REMARKS = {
    "da0a64ac308f": "The two failures of `width` are no wrong gradients. With ReLU, float32 puts "
    "2 of 8 million pre-activations on the other side of the kink than the float64 reference, and "
    "a gradient jumps by up to a hundredth. Later runs have tanh there. Peaks of `width` hold a "
    "copy of the batch, which no prediction holds, and miss pages that Linux counts in batches; "
    "later runs do neither. The run took 46 minutes.",
}
"""Remarks on a run that its records do not hold, by the name of the run."""

MOST_BYTES = 2_000_000
"""What page, figures and records may take together."""


def _report_module() -> Any:
    """Return the module of the report, which lies among the benchmarks."""
    if str(ROOT / "benchmarks") not in sys.path:
        sys.path.append(str(ROOT / "benchmarks"))
    return importlib.import_module("study.report")


def read_study() -> tuple[Any, str]:
    """Return the report of the committed records, and the text of the page."""
    source = RECORDS.relative_to(ROOT).as_posix()
    report = _report_module().read_report(RECORDS, source)
    return report, page_text(report)


def page_text(report: Any) -> str:
    """Return the page of a report, with a link to the records."""
    text: str = report.markdown(f"{FOLDER.name}/")
    link = f"[{RECORDS.name}]({FOLDER.name}/{RECORDS.name})"
    made = f"<!-- made by python -m tools.study -->\n\nAll samples are in {link}."
    title, _, rest = text.partition("\n\n")
    remarks = [remark for run, remark in REMARKS.items() if run in rest]
    return "\n\n".join([title, made, *remarks, rest])


def stale_files() -> list[Path]:
    """Return the page if its text is not that of the records, and figures that are not its own."""
    if not RECORDS.is_file():
        return [PAGE] if PAGE.is_file() else []
    report, text = read_study()
    wanted = {FOLDER / f"{figure.picture.name}.svg" for figure in report.figures()}
    present = {path for path in FOLDER.glob("*") if path != RECORDS}
    same = PAGE.is_file() and PAGE.read_text(encoding="utf-8") == text
    return [*([] if same else [PAGE]), *sorted(wanted ^ present)]


def write_page() -> list[Path]:
    """Write the page and its figures, and delete figures of an earlier one; return what is there.

    Raises:
        ImportError: matplotlib is missing; nothing is changed.
    """
    module = _report_module()
    report, _ = read_study()
    drawn, _ = module.draw_figures(report)
    paths = {FOLDER / f"{name}.svg": svg for name, svg in drawn.items()}
    for path in set(FOLDER.glob("*")) - paths.keys() - {RECORDS}:
        path.unlink()
    for path, svg in paths.items():
        path.write_bytes(svg)
    PAGE.write_text(page_text(report), encoding="utf-8")
    return [PAGE, *sorted(paths)]


def take_records(path: Path) -> None:
    """Compress the records of a run into the folder of the page; equal records give equal bytes.

    Messages lose the folders of the machine.
    """
    data = path.read_bytes()
    data = gzip.decompress(data) if path.suffix == ".gz" else data
    data = b"".join(map(_without_folders, data.splitlines(keepends=True)))
    FOLDER.mkdir(parents=True, exist_ok=True)
    RECORDS.write_bytes(gzip.compress(data, mtime=0))


def _without_folders(line: bytes) -> bytes:
    try:
        record = json.loads(line)
        message = record["message"]
    except (ValueError, TypeError, LookupError):
        return line
    record["message"] = _report_module().without_folders(message)
    return json.dumps(record).encode() + b"\n"


def main(arguments: list[str]) -> int:
    """Write the page, or with ``--check`` return 1 where it differs from the records."""
    if arguments == ["--check"]:
        stale = stale_files()
        for path in stale:
            print("differs:", path.relative_to(ROOT))
        return int(bool(stale))
    if len(arguments) > 1 or any(argument.startswith("-") for argument in arguments):
        print(__doc__)
        return 2
    if arguments:
        _report_module().read_report(arguments[0])  # refused before anything is replaced
        take_records(Path(arguments[0]))
    written = write_page()
    total = sum(path.stat().st_size for path in [*written, RECORDS])
    print(f"wrote {PAGE.relative_to(ROOT)} and {len(written) - 1} figures, {total:,} bytes in all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

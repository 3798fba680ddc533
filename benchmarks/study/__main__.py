"""The study: what dynamic graphs cost beside static ones.

    python -m benchmarks study                                    # measure, then write the report
    python -m benchmarks study --quick --only overhead,depth --out DIR
    python -m benchmarks study --out DIR --resume                 # what an interruption left over
    python -m benchmarks study report DIR/records.jsonl           # the report alone

Records go to DIR/records.jsonl, one JSON line a sample, at once; the report is made from them.
"""

import argparse
import sys
from pathlib import Path

from harness.machine import set_blas_choices_aside
from harness.processes import PEER_PYTHON_VARIABLE, Interpreters
from study.record_file import NAME, RecordFile, new_header
from study.records import RecordsError
from study.running import Settings, Study, library_of, library_versions, machine_record
from study.worker import experiment_names, load_experiment

OUT = Path("study")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks study",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="two sizes of each experiment, few rounds")
    add("--only", metavar="NAMES", help="experiments, comma-separated; or files of your own, .py")
    add("--out", type=Path, default=OUT, metavar="DIR", help="(default: %(default)s)")
    add("--resume", action="store_true", help="continue the records that are in the folder")
    add("--seed", type=int, default=0, help="of the order of configs")
    add(
        "--peer-python",
        action="append",
        default=[],
        metavar="[LIBRARY=]PYTHON",
        help=f"interpreter of one peer, or of all; repeatable (also ${PEER_PYTHON_VARIABLE})",
    )
    add("--no-report", action="store_true", help="write the records alone")
    return parser


def _report_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks study report", description="Write the report of records."
    )
    parser.add_argument("records", type=Path)
    parser.add_argument("--out", type=Path, metavar="DIR", help="(default: beside the records)")
    return parser


def _chosen(only: str | None) -> list[str]:
    """Return names of experiments, or paths of files."""
    known = experiment_names()
    if only is None:
        return known
    names = [name for name in only.split(",") if name]
    own = [name for name in names if name.endswith(".py") and Path(name).is_file()]
    unknown = [name for name in names if name not in known and name not in own]
    if unknown or not names:
        wrong = ", ".join(unknown) or repr(only)
        raise SystemExit(f"--only: unknown: {wrong}; choose from {', '.join(known)}")
    return [str(Path(name).resolve()) if name.endswith(".py") else name for name in names]


def _write_report(records: Path, out: Path) -> None:
    from study.report import write_report

    try:
        write_report(records, out)
    except (OSError, RecordsError, ImportError) as error:  # without matplotlib
        raise SystemExit(f"{records}: the report was not written: {error}") from None


def main(given: list[str]) -> int:
    """Run; the exit status is 1 where odyssey or NumPy failed, or a system is wrong."""
    if given[:1] == ["report"]:
        arguments = _report_parser().parse_args(given[1:])
        _write_report(arguments.records, arguments.out or arguments.records.parent)
        return 0
    arguments = _parser().parse_args(given)
    sys.stdout.reconfigure(line_buffering=True)  # progress, into a pipe too
    names = _chosen(arguments.only)
    set_aside = set_blas_choices_aside()
    settings = Settings(arguments.quick, arguments.seed, Interpreters(arguments.peer_python))
    experiments = [(load_experiment(name), name) for name in names]
    path = arguments.out / NAME
    try:
        versions = library_versions(settings)
        header = new_header(machine_record(), versions, arguments.seed, arguments.quick, set_aside)
        arguments.out.mkdir(parents=True, exist_ok=True)
        with RecordFile(path, header, arguments.resume) as file, Study(file, settings) as study:
            for experiment, name in experiments:
                study.run(experiment, name)
            sound = not any(map(_is_fault, file.lines))
    except (OSError, RecordsError) as error:
        raise SystemExit(str(error)) from None
    except KeyboardInterrupt:
        print(f"\ninterrupted; --out {arguments.out} --resume continues it", file=sys.stderr)
        return 130
    if not arguments.no_report:
        _write_report(path, arguments.out)
    return 0 if sound else 1


def _is_fault(line: dict[str, object]) -> bool:
    if line["status"] in ("ok", "absent"):
        return False
    own = library_of(str(line["system"])) in ("numpy", "odyssey")
    return line["status"] == "wrong" or own


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

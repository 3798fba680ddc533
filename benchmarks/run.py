"""Time odyssey and its peers side by side, and hold the ratios against the project's bars.

    python benchmarks/run.py
    python benchmarks/run.py --workload record,W2 --peers odyssey,torch --json results.jsonl
    python benchmarks/run.py --workload depth --depth-n 1000000

The README beside this file says what the columns mean.
"""

import argparse
import sys
from collections.abc import Mapping
from contextlib import ExitStack

from harness.interleave import Result, measure
from harness.machine import hardware, set_blas_choices_aside
from harness.processes import PEER_PYTHON_VARIABLE, Interpreters
from harness.report import print_table, write_json_lines
from harness.workloads import WORKLOADS, deep_chain
from peers import MODULES


def _names(text: str, known: Mapping[str, object]) -> list[str]:
    names = [name for name in text.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise SystemExit(f"unknown: {', '.join(unknown) or text!r}; choose from {', '.join(known)}")
    return names


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--workload", default=",".join(WORKLOADS), help="comma-separated (default: %(default)s)")
    add("--peers", default=",".join(MODULES), help="comma-separated (default: %(default)s)")
    add("--rounds", type=int, default=15, help="samples of each peer; at most 5 of a deep chain")
    add("--json", metavar="FILE", help="append one JSON line for each metric and peer")
    add("--depth-n", type=int, metavar="N", help="also run a chain of N through odyssey alone")
    add(
        "--peer-python",
        action="append",
        default=[],
        metavar="[PEER=]PYTHON",
        help=f"interpreter of one peer, or of all; repeatable (also ${PEER_PYTHON_VARIABLE})",
    )
    add("--keep-blas", action="store_true", help="keep variables that choose a BLAS's kernels")
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {arguments.rounds}")
    return arguments


def main() -> int:
    """Run; the exit status is 1 if a peer disagreed or odyssey could not be measured."""
    arguments = _parse_arguments()
    workloads = [WORKLOADS[name] for name in _names(arguments.workload, WORKLOADS)]
    peers = _names(arguments.peers, MODULES)
    interpreters = Interpreters(arguments.peer_python)
    plan = [(workload, peers) for workload in workloads]
    if arguments.depth_n is not None:
        plan.append((deep_chain(arguments.depth_n), ["odyssey"]))
    config = {"rounds": arguments.rounds, "threads": 1, "peers": peers}
    print(", ".join(str(value) for value in hardware().values()) + "; one thread")
    set_aside = "" if arguments.keep_blas else set_blas_choices_aside()
    if set_aside:
        print(f"set aside, as it slows one peer and not the others: {set_aside}; see --keep-blas")
    ok = True
    with ExitStack() as stack:
        stream = arguments.json and stack.enter_context(open(arguments.json, "a"))
        for workload, runners in plan:
            result = measure(workload, runners, interpreters, arguments.rounds)
            print_table(result)
            sys.stdout.flush()
            if stream:
                write_json_lines(result, stream, config)
            ok = ok and _sound(result)
    return 0 if ok else 1


def _sound(result: Result) -> bool:
    return not result.disagreements() and "odyssey" not in result.failures


if __name__ == "__main__":
    sys.exit(main())

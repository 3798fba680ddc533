"""Command ``python -m odyssey launch``: run a script on several ranks of MPI."""

from __future__ import annotations

import argparse
import os
import sys

from odyssey.cli.arguments import positive_int

__all__ = ["add_command"]


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``launch`` to the commands."""
    parser = commands.add_parser(
        "launch",
        help="run a script on several processes that train one model",
        description="Run a script on several ranks of this machine, processes of MPI that "
        "od.distributed.world() connects. Ends with status 0 only if every rank reached the end of "
        "the script; if one fails, all are ended, and none is left. Lines of ranks other than 0 "
        "are tagged by the rank. For several machines see python -m odyssey.distributed.",
    )
    parser.add_argument(
        "-n",
        dest="ranks",
        required=True,
        type=_rank_range,
        metavar="N|LOW:HIGH",
        help="number of ranks; of a range the largest power of two for which there are cores, "
        "and after a failure for which ranks are left",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds_above_0,
        default=60.0,
        metavar="SECONDS",
        help="how long a rank waits in a collective for the others before it fails (60)",
    )
    parser.add_argument(
        "--restarts",
        type=_count,
        default=0,
        metavar="K",
        help="start again after a failure, at most K times, and resume",
    )
    parser.add_argument(
        "--resume",
        choices=["auto"],
        help="set ODYSSEY_RESUME=auto: parallel.resume(path) loads the file if there is one",
    )
    parser.add_argument(
        "--blas-threads",
        type=positive_int,
        default=1,
        metavar="N",
        help="threads of NumPy's matrix products in each rank (1); results of other numbers "
        "differ in the last digits",
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module")
    parser.add_argument("script", metavar="SCRIPT", help="script to run, or module after -m")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="...", help="arguments of the script"
    )
    parser.set_defaults(run=_run)


def _rank_range(text: str) -> tuple[int, int]:
    """Parse a number of ranks or a range of numbers; argparse reports other text."""
    low, colon, high = text.partition(":")
    numbers = [low, high] if colon else [low, low]
    if not all(number.isascii() and number.isdecimal() for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 4, or a range, 1:8")
    first, last = map(int, numbers)
    if not 1 <= first <= last:
        raise argparse.ArgumentTypeError(
            f"{text!r}: at least 1 rank, and the smaller number of a range first"
        )
    return first, last


def _seconds_above_0(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def _run(arguments: argparse.Namespace) -> int:
    from odyssey.distributed.launcher import LaunchOptions, launch
    from odyssey.errors import DistributedError

    if not arguments.module and not os.path.isfile(arguments.script):
        print(f"python -m odyssey launch: no such script: {arguments.script!r}", file=sys.stderr)
        return 2
    low, high = arguments.ranks
    options = LaunchOptions(
        target=arguments.script,
        arguments=tuple(arguments.arguments),
        module=arguments.module,
        low=low,
        high=high,
        timeout=arguments.timeout,
        restarts=arguments.restarts,
        resume=arguments.resume or "",
        blas_threads=arguments.blas_threads,
    )
    try:
        return launch(options)
    except DistributedError as error:
        print(f"python -m odyssey launch: {error}", file=sys.stderr)
        return 2

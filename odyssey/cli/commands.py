"""Parser of the commands, and their exit status."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import odyssey as od
from odyssey.cli import files, launch, log, ops, train, tune, warmup

__all__ = ["build_parser", "main"]

_CLOSED_PIPE = 128 + 13  # the exit status that shells report for SIGPIPE


def main(argv: Sequence[str] | None = None) -> int:
    """Parse ``argv``, by default ``sys.argv``; run the command and return its exit status."""
    arguments = build_parser().parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as head, closed the pipe; redirect Python's final flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _CLOSED_PIPE
    return status


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``python -m odyssey``."""
    parser = argparse.ArgumentParser(
        prog="python -m odyssey", description="Tape-based automatic differentiation over NumPy."
    )
    parser.add_argument("--version", action="version", version=f"odyssey {od.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (train, ops, files, log, tune, warmup, launch):
        command.add_command(commands)
    return parser

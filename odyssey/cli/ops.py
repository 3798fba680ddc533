"""Command ``python -m odyssey ops``: list the ops, or describe one."""

from __future__ import annotations

import argparse

from odyssey.errors import OdysseyError

__all__ = ["add_command"]

_MOVED = (
    "a checkout makes its files with 'python -m tools.reference', run where pyproject.toml lies"
)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``ops`` to the commands."""
    parser = commands.add_parser(
        "ops",
        help="list the ops, or describe one in full",
        description="List the ops, or show the whole table entry of one.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="op to describe")
    for option in ("--markdown", "--stubs"):  # replaced by tools.reference
        parser.add_argument(option, action="store_true", help=argparse.SUPPRESS)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from odyssey import describe  # imports inspect and ast, which other commands do not need

    try:
        if arguments.markdown or arguments.stubs:
            raise OdysseyError(f"--markdown and --stubs are gone; {_MOVED}")
        if arguments.name is None:
            print(describe.listing())
        else:
            print(describe.entry_text(describe.find(arguments.name)))
    except OdysseyError as error:
        raise SystemExit(f"python -m odyssey ops: {error}") from None
    return 0

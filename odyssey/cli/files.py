"""Command ``python -m odyssey files``: list the tensors of safetensors files."""

from __future__ import annotations

import argparse
import sys

from odyssey.errors import OdysseyError

__all__ = ["add_command"]


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``files`` to the commands."""
    parser = commands.add_parser(
        "files",
        help="list the tensors of safetensors files",
        description="List the tensors of safetensors files, with their dtypes, shapes and sizes. "
        "Headers are read and checked; data is not read.",
    )
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="FILE",
        help="a file that ends in .safetensors, an index of shards that ends in "
        ".safetensors.index.json, or a folder that holds one of them",
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from odyssey.saving import list_tensors

    status = 0
    for number, path in enumerate(arguments.paths):
        try:
            listing = list_tensors(path)
        except OdysseyError as error:
            sys.stdout.flush()
            text = str(error).removeprefix("list_tensors: ")
            print(f"python -m odyssey files: {text}", file=sys.stderr)
            status = 1
            continue
        if len(arguments.paths) > 1:
            print(f"{'' if not number else chr(10)}{ascii(listing.path)[1:-1]}")
        print(listing)
    return status
